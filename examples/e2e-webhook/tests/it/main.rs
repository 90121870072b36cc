//! Every endpoint, called as an API server calls it, in both versions.

#![expect(
    clippy::unwrap_used,
    reason = "a test that meets something unexpected fails"
)]

use bytes::Bytes;
use lockgate_webhook::ReviewError;
use serde_json::{Value, json};

async fn ask(path: &str, request: Value) -> Value {
    let webhooks = e2e_webhook::webhooks(Some(String::from("sidecar:1")));
    let webhook = webhooks.at(path).unwrap();
    let mut answers = Vec::new();
    for version in ["v1", "v1beta1"] {
        let mut all = json!({
            "uid": "u1",
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": null,
        });
        for (name, value) in request.as_object().unwrap() {
            all[name] = value.clone();
        }
        let review = json!({
            "apiVersion": format!("admission.k8s.io/{version}"),
            "kind": "AdmissionReview",
            "request": all,
        });
        let answered = webhook.answer(Bytes::from(review.to_string()), None).await;
        assert_eq!(answered.code, 200);
        let patch = answered.outcome.as_ref().unwrap().changes().to_vec();
        let body: Value = serde_json::from_slice(&answered.body).unwrap();
        assert_eq!(body["apiVersion"], format!("admission.k8s.io/{version}"));
        let mut response = body["response"].clone();
        assert_eq!(response["uid"], "u1");
        if !patch.is_empty() {
            assert_eq!(response["patchType"], "JSONPatch");
            response["patch"] = json!(patch);
        }
        answers.push(response);
    }
    assert_eq!(answers[0], answers[1]);
    answers.remove(0)
}

fn about(plural: &str) -> Value {
    json!({"group": "", "version": "v1", "resource": plural})
}

fn refused(response: &Value) -> (&str, &str) {
    assert_eq!(response["allowed"], false);
    let text = |name: &str| {
        response["status"]
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    (text("message"), text("reason"))
}

#[tokio::test(start_paused = true)]
async fn some_answers_do_not_depend_on_the_request() {
    let start = tokio::time::Instant::now();
    let answer = ask("/always-allow-delay-5s", json!({})).await;
    assert_eq!(answer["allowed"], true);
    assert_eq!(start.elapsed().as_secs(), 10);
    let answer = ask("/always-deny", json!({})).await;
    assert_eq!(refused(&answer), ("this webhook denies all requests", ""));
}

#[tokio::test]
async fn a_label_is_added() {
    for (labels, patch) in [
        (
            json!(null),
            json!([{"op": "add", "path": "/metadata/labels", "value": {"added-label": "yes"}}]),
        ),
        (
            json!({}),
            json!([{"op": "add", "path": "/metadata/labels", "value": {"added-label": "yes"}}]),
        ),
        (
            json!({"a": "b"}),
            json!([{"op": "add", "path": "/metadata/labels/added-label", "value": "yes"}]),
        ),
        (
            json!({"added-label": "no"}),
            json!([{"op": "replace", "path": "/metadata/labels/added-label", "value": "yes"}]),
        ),
        (json!({"added-label": "yes"}), json!(null)),
    ] {
        let answer = ask(
            "/add-label",
            json!({"object": {"metadata": {"labels": labels}}}),
        )
        .await;
        assert_eq!(answer["allowed"], true);
        assert_eq!(answer.get("patch").cloned().unwrap_or_default(), patch);
    }
}

#[tokio::test]
async fn pods_are_refused_by_label_and_by_container() {
    let label = "the pod contains unwanted label;";
    let container = "the pod contains unwanted container name;";
    for (pod, want) in [
        (
            json!({"metadata": {"labels": {"webhook-e2e-test": "webhook-disallow"}}}),
            label.to_owned(),
        ),
        (
            json!({"spec": {"containers": [{"name": "webhook-disallow"}]}}),
            container.to_owned(),
        ),
        (
            json!({
                "metadata": {"labels": {"webhook-e2e-test": "webhook-disallow"}},
                "spec": {"containers": [{"name": "webhook-disallow-1"}, {"name": "webhook-disallow-2"}]},
            }),
            format!("{label} {container} {container}"),
        ),
    ] {
        let answer = ask("/pods", json!({"object": pod})).await;
        assert_eq!(refused(&answer), (want.as_str(), ""));
    }
    assert_eq!(ask("/pods", json!({"object": {}})).await["allowed"], true);
    let answer = ask(
        "/pods",
        json!({"object": {}, "resource": about("services")}),
    )
    .await;
    assert!(refused(&answer).0.starts_with("expect resource to be"));
}

#[tokio::test]
async fn some_pods_are_never_answered_about() {
    let webhooks = e2e_webhook::webhooks(None);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1",
        "operation": "CREATE",
        "resource": about("pods"),
        "object": {"metadata": {"labels": {"webhook-e2e-test": "wait-forever"}}},
    }});
    let soon = std::time::Instant::now();
    let webhook = webhooks.at("/pods").unwrap();
    let answered = webhook
        .answer(Bytes::from(review.to_string()), Some(soon))
        .await;
    assert_eq!(answered.outcome.unwrap_err(), ReviewError::TooLate);
}

#[tokio::test]
async fn one_attachment_is_refused() {
    let attach = |name: &str, options: Value| json!({"name": name, "operation": "CONNECT", "subResource": "attach", "object": options});
    let options = json!({"stdin": true, "container": "container1"});
    let answer = ask(
        "/pods/attach",
        attach("to-be-attached-pod", options.clone()),
    )
    .await;
    assert_eq!(
        refused(&answer).0,
        "attaching to pod 'to-be-attached-pod' is not allowed"
    );
    for request in [
        attach("other", options),
        attach(
            "to-be-attached-pod",
            json!({"stdin": true, "container": "container2"}),
        ),
        attach("to-be-attached-pod", json!({"container": "container1"})),
    ] {
        assert_eq!(ask("/pods/attach", request).await["allowed"], true);
    }
}

#[tokio::test]
async fn pods_get_containers() {
    let init = json!([{"op": "add", "path": "/spec/initContainers", "value": [{"image": "webhook-added-image", "name": "webhook-added-init-container", "resources": {}}]}]);
    let sidecar = json!([{"op": "add", "path": "/spec/containers/-", "value": {"image": "sidecar:1", "name": "webhook-added-sidecar", "resources": {}}}]);
    let named = json!({"metadata": {"name": "webhook-to-be-mutated"}});
    for (path, pod, patch) in [
        ("/mutating-pods", named, Some(init)),
        (
            "/mutating-pods",
            json!({"metadata": {"name": "other"}}),
            None,
        ),
        (
            "/mutating-pods",
            json!({"metadata": {"name": "webhook-to-be-mutated"}, "spec": {"initContainers": [{"name": "webhook-added-init-container"}]}}),
            None,
        ),
        ("/mutating-pods-sidecar", json!({}), Some(sidecar)),
        (
            "/mutating-pods-sidecar",
            json!({"spec": {"containers": [{"name": "webhook-added-sidecar"}]}}),
            None,
        ),
    ] {
        let answer = ask(path, json!({"object": pod})).await;
        assert_eq!(answer.get("patch").cloned(), patch);
    }
    let webhooks = e2e_webhook::webhooks(None);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1", "operation": "CREATE", "resource": about("pods"), "object": {},
    }});
    let webhook = webhooks.at("/mutating-pods-sidecar").unwrap();
    let answered = webhook.answer(Bytes::from(review.to_string()), None).await;
    let outcome = answered.outcome.unwrap();
    let status = outcome.denial().unwrap().status().clone();
    assert_eq!(
        (status.code, status.message.as_str()),
        (500, "No image specified by the sidecar-image parameter")
    );
}

#[tokio::test]
async fn data_are_refused_by_reason() {
    let data = |wish: &str| json!({"data": {"webhook-e2e-test": wish}});
    for (path, write, delete) in [
        (
            "/configmaps",
            "the configmap contains unwanted key and value",
            "the configmap cannot be deleted because it contains unwanted key and value",
        ),
        (
            "/custom-resource",
            "the custom resource contains unwanted data",
            "the custom resource cannot be deleted because it contains unwanted key and value",
        ),
    ] {
        let resource = about("configmaps");
        let request = |operation: &str, object: Value, old: Value| json!({"operation": operation, "resource": resource, "object": object, "oldObject": old});
        for operation in ["CREATE", "UPDATE"] {
            let answer = ask(
                path,
                request(operation, data("webhook-disallow"), json!({})),
            )
            .await;
            assert_eq!(refused(&answer), ("", write));
            let answer = ask(
                path,
                request(operation, data("webhook-nondeletable"), json!({})),
            )
            .await;
            assert_eq!(answer["allowed"], true);
        }
        let answer = ask(
            path,
            request("DELETE", json!(null), data("webhook-nondeletable")),
        )
        .await;
        assert_eq!(refused(&answer), ("", delete));
        let answer = ask(
            path,
            request("DELETE", json!(null), data("webhook-disallow")),
        )
        .await;
        assert_eq!(answer["allowed"], true);
    }
}

#[tokio::test]
async fn data_go_through_two_stages() {
    let add = |stage: u8| json!([{"op": "add", "path": format!("/data/mutation-stage-{stage}"), "value": "yes"}]);
    for path in ["/mutating-configmaps", "/mutating-custom-resource"] {
        for (data, patch) in [
            (json!({}), None),
            (json!({"mutation-start": "yes"}), Some(add(1))),
            (
                json!({"mutation-start": "yes", "mutation-stage-1": "yes"}),
                Some(add(2)),
            ),
            (json!({"mutation-stage-1": "yes"}), Some(add(2))),
        ] {
            let request = json!({"resource": about("configmaps"), "object": {"data": data}});
            assert_eq!(ask(path, request).await.get("patch").cloned(), patch);
        }
    }
}

#[tokio::test]
async fn definitions_are_refused_by_label() {
    let resource = |version: &str| json!({"group": "apiextensions.k8s.io", "version": version, "resource": "customresourcedefinitions"});
    let labelled = json!({"metadata": {"labels": {"webhook-e2e-test": "webhook-disallow"}}});
    for version in ["v1", "v1beta1"] {
        let answer = ask(
            "/crd",
            json!({"resource": resource(version), "object": labelled}),
        )
        .await;
        assert_eq!(refused(&answer).0, "the crd contains unwanted label");
        let answer = ask("/crd", json!({"resource": resource(version), "object": {}})).await;
        assert_eq!(answer["allowed"], true);
    }
    let answer = ask(
        "/crd",
        json!({"resource": about("pods"), "object": labelled}),
    )
    .await;
    assert!(refused(&answer).0.ends_with("but got { v1 pods}"));
}
