//! The test kit: each assertion fails when it should.

use std::fs;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use lockgate_webhook::testing::{Review, apply, run_fixtures};
use lockgate_webhook::{
    Context, Mutator, Registration, Response, Verdict, Webhooks, from_fn, mutating,
};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAP, webhooks};

/// Adds another annotation on every call.
struct Growing;

impl Mutator<ConfigMap> for Growing {
    async fn mutate(&self, _: &Context, object: &mut ConfigMap) -> Verdict {
        let annotations = object.metadata.annotations.get_or_insert_default();
        let key = format!("seen-{}", annotations.len());
        annotations.insert(key, String::new());
        Ok(())
    }
}

fn sloppy() -> Webhooks {
    // Replaces the object by its typed form, dropping unknown fields, as a naive webhook does.
    let naive = from_fn(async |ctx: &Context| {
        let text = ctx.object_text().unwrap_or_default();
        let typed: ConfigMap = serde_json::from_str(text)?;
        let raw: Value = serde_json::from_str(text)?;
        let known = serde_json::to_value(&typed)?;
        Ok(Response::patch(lockgate_webhook::patch::Patch::between(
            &raw, &known,
        )))
    });
    Webhooks::new()
        .with(
            Registration::mutating("growing.example.com").path("/growing"),
            mutating::<ConfigMap, _>(Growing),
        )
        .with(
            Registration::mutating("naive.example.com").path("/naive"),
            naive,
        )
}

async fn fails(test: impl Future) -> String {
    let panic = AssertUnwindSafe(test).catch_unwind().await.err();
    let panic = panic.expect("a statement that does not hold");
    let text = panic.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string())
}

#[tokio::test]
async fn statements_hold_and_fail() {
    let webhooks = webhooks();
    let labelled = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, labels: {owner: jane}}}";
    let outcome = Review::create(CONFIG_MAP).ask(&webhooks, "/mutate").await;
    outcome.accepts().patches_to(labelled).does_not_warn();
    outcome.idempotent().await.preserves_unknown_fields().await;
    fails(async { outcome.rejects_with("") }).await;
    fails(async { outcome.patches_to(CONFIG_MAP) }).await;
    fails(async { outcome.unpatched() }).await;
    fails(async { outcome.warns("anything") }).await;
    fails(async { outcome.faults_with("") }).await;

    let denied = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {deny: not today, warn: look out}}";
    let outcome = Review::create(denied).ask(&webhooks, "/validate").await;
    outcome
        .rejects_with("not today")
        .rejects_with_code(403)
        .warns("look out");
    fails(async { outcome.accepts() }).await;
    fails(async { outcome.rejects_with("tomorrow") }).await;
    fails(async { outcome.rejects_with_code(404) }).await;
    fails(async { outcome.does_not_warn() }).await;

    let text = fails(Review::create(CONFIG_MAP).ask(&webhooks, "/nowhere")).await;
    assert!(text.contains("/mutate"), "{text}");
    let text = fails(async { Review::create("{") }).await;
    assert!(text.contains("neither YAML nor JSON"), "{text}");
}

#[tokio::test]
async fn a_webhook_that_never_comes_to_rest_is_found() {
    let outcome = Review::create(CONFIG_MAP).ask(&sloppy(), "/growing").await;
    let text = fails(outcome.idempotent()).await;
    assert!(text.contains("changed more"), "{text}");
}

#[tokio::test]
async fn a_webhook_that_drops_fields_is_found() {
    let outcome = Review::create(CONFIG_MAP).ask(&sloppy(), "/naive").await;
    let text = fails(outcome.preserves_unknown_fields()).await;
    assert!(text.contains("fields were lost"), "{text}");
}

#[tokio::test]
async fn fixtures_say_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("label.yaml", CONFIG_MAP);
    write(
        "label.expect.yaml",
        "path: /mutate\nuser: kim\nidempotent: true\npreservesUnknownFields: true\n",
    );
    write(
        "label.patched.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, labels: {owner: kim}}}",
    );
    write(
        "denied.yaml",
        "{apiVersion: v1, kind: ConfigMap, data: {deny: why not, warn: hm}}",
    );
    write(
        "denied.expect.yaml",
        "path: /validate\nrejects: why not\nwarns: [hm]\n",
    );
    write("gone.old.yaml", CONFIG_MAP);
    write("gone.expect.yaml", "path: /mutate\npatch: []\n");
    assert_eq!(run_fixtures(&webhooks(), folder.path()).await, 3);

    write("denied.expect.yaml", "path: /validate\n");
    write("gone.expect.yaml", "path: /mutate\nrejects: nope\n");
    write("typo.expect.yaml", "path: /mutate\nrejectz: nope\n");
    let text = fails(run_fixtures(&webhooks(), folder.path())).await;
    for name in [
        "denied: it was rejected",
        "gone: it was accepted",
        "typo: the expectation",
    ] {
        assert!(text.contains(name), "{text}");
    }
    assert!(!text.contains("label"), "{text}");
    fails(run_fixtures(&webhooks(), folder.path().join("nowhere"))).await;
}

#[test]
fn patches_apply_or_say_why_not() {
    let object = json!({"list": [1, 2], "map": {"a/b~c": 1}});
    let patch = json!([
        {"op": "add", "path": "/list/0", "value": 0},
        {"op": "remove", "path": "/list/1"},
        {"op": "replace", "path": "/map/a~1b~0c", "value": 2},
    ]);
    assert_eq!(
        apply(&object, &patch),
        Ok(json!({"list": [0, 2], "map": {"a/b~c": 2}}))
    );
    for wrong in [
        json!({}),
        json!([{"path": "/a"}]),
        json!([{"op": "add", "path": "/list/9", "value": 1}]),
        json!([{"op": "add", "path": "/x/y", "value": 1}]),
        json!([{"op": "remove", "path": "/x"}]),
        json!([{"op": "remove", "path": ""}]),
        json!([{"op": "replace", "path": "/list/x", "value": 1}]),
        json!([{"op": "move", "path": "/map/z", "from": "/list"}]),
        json!([{"op": "add", "path": "/list/0/a", "value": 1}]),
    ] {
        assert!(apply(&object, &wrong).is_err(), "{wrong}");
    }
}
