//! Validating dispatch: parallel calls, the first denial to arrive, indices of annotations.

use std::time::Duration;

use lockgate_api::registration::Webhook;
use serde_json::json;

use super::support::*;

#[tokio::test(start_paused = true)]
async fn the_first_refusal_to_arrive_counts_after_all_have_ended() {
    let world = World::new();
    world.hook(Validating, "slow.example.com", Reply::deny("slow").after(4));
    world.hook(Validating, "fast.example.com", Reply::deny("fast").after(1));
    world.hook(Validating, "fine.example.com", Reply::allow().after(2));
    let began = tokio::time::Instant::now();
    let outcome = world.run(Validating, create()).await;
    assert_eq!(began.elapsed(), Duration::from_secs(4));
    let message = "admission webhook \"fast.example.com\" denied the request: fast";
    assert_eq!(outcome.refusal(), Some((403, "", message)));
    assert_eq!(world.seen().len(), 3);
}

#[tokio::test]
async fn failed_open_hooks_are_numbered_among_those_that_match() {
    let world = World::new();
    let unmatched = selecting(webhook("unmatched.example.com"), "app", "other");
    world.hook_in(Validating, "c", unmatched, Reply::allow());
    for name in ["x.example.com", "y.example.com", "z.example.com"] {
        let hook = ignoring(webhook(name));
        world.hook_in(
            Validating,
            "c",
            hook,
            Reply::Raw(500, Some("text/plain"), "no"),
        );
    }
    let outcome = world.run(Validating, create()).await;
    outcome.allowed();
    let key = |n| format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{n}");
    let names = ["x.example.com", "y.example.com", "z.example.com"];
    let want: Vec<_> = (0..)
        .zip(names)
        .map(|(n, name)| (key(n), String::from(name)))
        .collect();
    assert_eq!(outcome.annotations(), want);
}

#[tokio::test]
async fn a_patch_is_not_for_validating_hooks() {
    for (response, want) in [
        (
            patched("[]"),
            "validating webhook may not return response.patch",
        ),
        (
            json!({"allowed": true, "patchType": "JSONPatch"}),
            "validating webhook may not return response.patchType",
        ),
        (
            json!({"allowed": false, "patch": base64(b"[]"), "patchType": "JSONPatch"}),
            "validating webhook may not return response.patch",
        ),
    ] {
        let world = World::new();
        world.hook(
            Validating,
            "h.example.com",
            Reply::Response(response.clone()),
        );
        let message = format!(
            "Internal error occurred: failed calling webhook \"h.example.com\": received invalid \
             webhook response: {want}"
        );
        let outcome = world.run(Validating, create()).await;
        assert_eq!(
            outcome.refusal(),
            Some((500, "InternalError", message.as_str()))
        );

        let world = World::new();
        let hook = ignoring(webhook("h.example.com"));
        world.hook_in(Validating, "c", hook, Reply::Response(response));
        world.run(Validating, create()).await.allowed();
    }
    let world = World::new();
    let hook = Webhook {
        admission_review_versions: Some(vec![String::from("v1beta1")]),
        ..webhook("h.example.com")
    };
    let patch = patched(r#"[{"op":"remove","path":"/data"}]"#);
    world.hook_in(Validating, "c", hook, Reply::Response(patch));
    let outcome = world.run(Validating, create()).await;
    outcome.allowed();
    assert_eq!(outcome.object(), &config_map());
}

#[tokio::test]
async fn a_decision_error_ends_it_before_any_call() {
    let world = World::new();
    world.hook(Validating, "a.example.com", Reply::allow());
    let broken = Webhook {
        match_conditions: Some(vec![lockgate_api::registration::hub::MatchCondition {
            name: String::from("c"),
            expression: String::from("object.nope == 1"),
        }]),
        ..webhook("b.example.com")
    };
    world.hook_in(Validating, "c", broken, Reply::allow());
    let outcome = world.run(Validating, create()).await;
    assert_eq!(outcome.refusal().map(|refusal| refusal.0), Some(403));
    assert!(world.seen().is_empty());
}

#[tokio::test]
async fn hooks_share_one_body_but_for_the_uid() {
    let world = World::new();
    for name in ["a.example.com", "b.example.com"] {
        world.hook(Validating, name, Reply::allow());
    }
    world.run(Validating, create()).await.allowed();
    let mut seen = world.seen();
    let uids: Vec<_> = seen
        .iter_mut()
        .map(|s| s.review["request"]["uid"].take())
        .collect();
    assert_ne!(uids[0], uids[1]);
    assert_eq!(seen[0].review, seen[1].review);
}

#[tokio::test]
async fn warnings_of_all_are_told_once() {
    let world = World::new();
    let warn = |texts: &[&str]| Reply::Response(json!({"allowed": true, "warnings": texts}));
    world.hook(Validating, "a.example.com", warn(&["one", "both"]));
    world.hook(Validating, "b.example.com", warn(&["both", "line\nbreak"]));
    let outcome = world.run(Validating, create()).await;
    let mut headers: Vec<String> = outcome.admission.warnings().headers().collect();
    headers.sort();
    assert_eq!(headers, ["299 - \"both\"", "299 - \"one\""]);
}
