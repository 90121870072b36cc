//! Decoding reviews and encoding responses.

use bytes::Bytes;
use lockgate_webhook::testing::Review;
use lockgate_webhook::{
    Context, Operation, Registration, Response, ReviewError, Role, Webhooks, answer, from_fn,
};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAP, webhooks};

async fn ask(body: impl Into<Bytes>) -> (u16, String, Result<Response, ReviewError>) {
    let allow = from_fn(async |_: &Context| Ok(Response::allow()));
    let answered = answer(Role::Validating, &allow, body.into(), None).await;
    let text = String::from_utf8(answered.body).unwrap();
    (answered.code, text, answered.outcome)
}

#[tokio::test]
async fn answers_in_the_version_of_the_question() {
    for (review, version) in [
        (Review::create(CONFIG_MAP), "admission.k8s.io/v1"),
        (
            Review::create(CONFIG_MAP).v1beta1(),
            "admission.k8s.io/v1beta1",
        ),
    ] {
        let (code, text, _) = ask(review.to_json()).await;
        assert_eq!(code, 200);
        let body: Value = serde_json::from_str(&text).unwrap();
        let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
        let want = json!({"uid": uid, "allowed": true});
        assert_eq!(
            body,
            json!({"kind": "AdmissionReview", "apiVersion": version, "response": want})
        );
    }
}

#[tokio::test]
async fn an_answer_names_the_uid_whatever_is_wrong_with_the_rest() {
    for request in [
        r#"{"uid": "u1"}"#,
        r#"{"uid": "u1", "operation": 7}"#,
        r#"{"operation": "CREATE", "kind": 7, "uid": "u1"}"#,
        r#"{"uid": "u1", "operation": "CREATE", "dryRun": "yes"}"#,
        r#"{"uid": "u1", "operation": "CREATE", "userInfo": {"groups": "all"}}"#,
        // Duplicate fields are ambiguous.
        r#"{"uid": "u1", "operation": "CREATE", "operation": "DELETE"}"#,
    ] {
        let body = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{request}}}"#
        );
        let (code, text, outcome) = ask(body).await;
        assert_eq!(code, 200, "{request}");
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body["response"]["uid"], "u1", "{request}");
        assert_eq!(body["response"]["allowed"], false, "{request}");
        assert_eq!(body["response"]["status"]["code"], 400, "{request}");
        assert!(
            matches!(outcome, Err(ReviewError::Malformed(_))),
            "{request}"
        );
    }
}

#[tokio::test]
async fn what_is_no_review_is_a_bad_request() {
    for (body, want) in [
        (&b""[..], "not an AdmissionReview"),
        (b"7", "not an AdmissionReview"),
        (b"null", "not an AdmissionReview"),
        (b"{", "not an AdmissionReview"),
        (b"{}", "got kind `` of ``"),
        (b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}", "got kind `Pod` of `v1`"),
        (
            b"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v2\"}",
            "of `admission.k8s.io/v2`",
        ),
        (
            b"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\"}",
            "has no request",
        ),
        (
            b"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":null}",
            "has no request",
        ),
        (b"{\"kind\":\"\xff\"}", "not UTF-8"),
        (b"{} trailing", "not an AdmissionReview"),
    ] {
        let (code, text, _) = ask(Bytes::from_static(body)).await;
        assert_eq!(code, 400, "{text}");
        assert!(text.contains(want), "{text}");
    }
}

#[tokio::test]
async fn null_is_as_good_as_nothing() {
    let body = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":null,"request":{
        "uid":"u1","kind":null,"resource":null,"subResource":null,"requestKind":null,"requestResource":null,
        "requestSubResource":null,"name":null,"namespace":null,"operation":"CREATE","userInfo":null,
        "object":null,"oldObject":null,"dryRun":null,"options":null,"novel":{"a":1}}}"#;
    let looked = from_fn(async |ctx: &Context| {
        assert_eq!(ctx.name(), "");
        assert_eq!(ctx.object_text(), None);
        assert_eq!(ctx.request_kind(), ctx.kind());
        assert!(!ctx.is_dry_run());
        Ok(Response::allow())
    });
    let answered = answer(Role::Validating, &looked, Bytes::from(body), None).await;
    assert!(answered.outcome.is_ok(), "{:?}", answered.outcome);
}

#[tokio::test]
async fn a_webhook_is_told_every_fact() {
    let looked = from_fn(async |ctx: &Context| {
        assert_eq!(*ctx.operation(), Operation::Update);
        assert_eq!(ctx.kind().kind, "Deployment");
        assert_eq!(ctx.resource().resource, "deployments");
        assert_eq!(ctx.resource().group, "apps");
        assert_eq!(ctx.sub_resource(), "scale");
        assert_eq!((ctx.name(), ctx.namespace()), ("d", "prod"));
        assert_eq!(ctx.user().username, "jane");
        assert!(ctx.user_is_in("devs") && !ctx.user_is_in("ops"));
        assert!(ctx.is_dry_run());
        assert!(ctx.old_object_text().unwrap().contains("\"replicas\":1"));
        assert!(ctx.object_text().unwrap().contains("\"replicas\":2"));
        let debug = format!("{ctx:?}");
        assert!(!debug.contains("replicas"), "{debug}");
        ctx.warn("first");
        ctx.annotate("key", "value");
        Ok(Response::allow().warning("second"))
    });
    let webhooks = Webhooks::new().with(Registration::validating("a.b.c").path("/"), looked);
    let object = |replicas| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: prod}}, spec: {{replicas: {replicas}}}}}"
        )
    };
    let outcome = Review::update(&object(1), &object(2))
        .group("devs")
        .sub_resource("scale")
        .dry_run()
        .ask(&webhooks, "/")
        .await;
    assert_eq!(outcome.accepts().warnings(), ["first", "second"]);
    assert_eq!(
        outcome.response()["auditAnnotations"],
        json!({"key": "value"})
    );
}

#[tokio::test]
async fn a_fault_and_a_panic_are_no_denials() {
    for (path, want) in [("/fault", "the database is away"), ("/panic", "on purpose")] {
        let outcome = Review::create(CONFIG_MAP).ask(&webhooks(), path).await;
        outcome.faults_with(want);
        // The message is sent to the API client, so it contains no internals.
        let webhooks = webhooks();
        let webhook = webhooks.at(path).unwrap();
        let body = Bytes::from(Review::create(CONFIG_MAP).to_json());
        let answered = webhook.answer(body, None).await;
        assert_eq!(answered.code, 500);
        let text = String::from_utf8(answered.body).unwrap();
        assert!(!text.contains(want), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_late_is_cut_off() {
    let webhooks = webhooks();
    let webhook = webhooks.at("/forever").unwrap();
    let body = Bytes::from(Review::create(CONFIG_MAP).to_json());
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    let answered = webhook.answer(body, Some(deadline.into_std())).await;
    assert_eq!(answered.outcome, Err(ReviewError::TooLate));
    assert_eq!(answered.code, 500);
}

#[tokio::test]
async fn a_validating_webhook_cannot_patch() {
    let patches = from_fn(async |ctx: &Context| {
        let object: Value = serde_json::from_str(ctx.object_text().unwrap_or_default())?;
        let patch = lockgate_webhook::patch::Patch::default().set_label(&object, "a", "b");
        Ok(Response::patch(patch))
    });
    let webhooks = Webhooks::new().with(Registration::validating("a.b.c").path("/"), patches);
    let outcome = Review::create(CONFIG_MAP).ask(&webhooks, "/").await;
    outcome.faults_with("may not change the object");
}
