//! Recordings of subexpressions.

use lockgate_cel::admission::{Request, Variables, compile_expression};
use lockgate_cel::eval::{Limits, MAX_RECORDED, RecordedOutcome, Recording, evaluate_recorded};
use serde_json::json;

/// Records the evaluation of an expression on a small object.
fn record(expression: &str) -> Recording {
    let program = compile_expression(expression).unwrap();
    let object = json!({
        "metadata": { "name": "wéb", "labels": { "team": null } },
        "spec": { "replicas": 3, "images": ["a/b", "c"] },
    });
    let request = Request::default().to_json();
    let variables = Variables::new(&request).object(Some(&object));
    evaluate_recorded(&program, variables.inputs(), Limits::default()).1
}

/// The steps as lines: depth, source, cost, outcome.
fn lines(expression: &str) -> Vec<String> {
    let recording = record(expression);
    assert_eq!(recording.omitted, 0);
    let lines = recording.steps.iter().map(|step| {
        let text = step.span.of(expression).expect("a span is a part of it");
        let outcome = match &step.outcome {
            RecordedOutcome::Value(value) => value.clone(),
            RecordedOutcome::Error(error) => format!("error: {error}"),
        };
        format!("{} {text} ({}) {outcome}", step.depth, step.cost)
    });
    lines.collect()
}

#[test]
fn every_part_is_recorded_with_its_text_value_and_cost() {
    assert_eq!(
        lines("!( object.spec.replicas > 2 && (object.metadata.name).startsWith('wé') ) || true"),
        [
            "0 !( object.spec.replicas > 2 && (object.metadata.name).startsWith('wé') ) || true (9) true",
            "1 !( object.spec.replicas > 2 && (object.metadata.name).startsWith('wé') ) (9) false",
            "2 object.spec.replicas > 2 && (object.metadata.name).startsWith('wé') (8) true",
            "3 object.spec.replicas > 2 (4) true",
            "4 object.spec.replicas (3) 3",
            "3 (object.metadata.name).startsWith('wé') (4) true",
            "4 object.metadata.name (3) \"wéb\"",
        ]
    );
    assert_eq!(
        lines("[object.spec][0].images[1] + string(object.spec.replicas)"),
        [
            "0 [object.spec][0].images[1] + string(object.spec.replicas) (21) \"c3\"",
            "1 [object.spec][0].images[1] (16) \"c\"",
            "2 [object.spec] (12) [{\"images\": [\"a/b\", \"c\"], \"replicas\": 3}]",
            "3 object.spec (2) {\"images\": [\"a/b\", \"c\"], \"replicas\": 3}",
            "1 string(object.spec.replicas) (4) \"3\"",
            "2 object.spec.replicas (3) 3",
        ]
    );
}

#[test]
fn errors_are_recorded_where_they_arise() {
    assert_eq!(
        lines("object.nope.more == 1 || object.spec.replicas == 3"),
        [
            "0 object.nope.more == 1 || object.spec.replicas == 3 (7) true",
            "1 object.nope.more == 1 (3) error: no such key: nope",
            "2 object.nope.more (2) error: no such key: nope",
            "1 object.spec.replicas == 3 (4) true",
            "2 object.spec.replicas (3) 3",
        ]
    );
}

#[test]
fn a_macro_is_recorded_as_it_is_written_and_its_body_for_each_round() {
    assert_eq!(
        lines("object.spec.images.all(i, i.contains('/'))"),
        [
            "0 object.spec.images.all(i, i.contains('/')) (14) false",
            "1 object.spec.images (3) [\"a/b\", \"c\"]",
            "1 i.contains('/') (2) true",
            "2 i (1) \"a/b\"",
            "1 i.contains('/') (2) false",
            "2 i (1) \"c\"",
        ]
    );
    assert_eq!(
        lines("has(object.metadata.labels) ? [1].map(x, object.metadata.labels.team) : []"),
        [
            "0 has(object.metadata.labels) ? [1].map(x, object.metadata.labels.team) : [] (19) [null]",
            "1 has(object.metadata.labels) (2) true",
            "1 [1].map(x, object.metadata.labels.team) (17) [null]",
            "2 object.metadata.labels.team (4) null",
        ]
    );
    assert_eq!(
        lines("object.spec.?images.optMap(i, i[0]).orValue('')"),
        [
            "0 object.spec.?images.optMap(i, i[0]).orValue('') (11) \"a/b\"",
            "1 object.spec.?images.optMap(i, i[0]) (11) optional.of(\"a/b\")",
            "2 object.spec.?images (3) optional.of([\"a/b\", \"c\"])",
            "2 i[0] (6) \"a/b\"",
            "3 object.spec.?images (3) optional.of([\"a/b\", \"c\"])",
        ]
    );
}

#[test]
fn a_recording_is_bounded() {
    let long = "[1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, \
                [1,2,3,4,5,6,7,8,9,10].map(c, [1,2,3,4,5,6,7,8,9,10].map(d, a + b + c + d))))";
    let recording = record(long);
    assert_eq!(recording.steps.len(), MAX_RECORDED);
    assert!(recording.omitted > 0);
    for step in &recording.steps {
        let RecordedOutcome::Value(text) = &step.outcome else {
            panic!("{step:?}")
        };
        assert!(text.len() <= 503, "{} bytes", text.len());
    }
    let first = &recording.steps[0].outcome;
    assert!(matches!(first, RecordedOutcome::Value(text) if text.ends_with('…')));
    // Values are truncated at a character boundary.
    let cut = record("[object.metadata.name].map(n, 'é'.replace('é', 'x' + 'é') + n).join('é')");
    assert!(cut.steps.len() > 3);
}
