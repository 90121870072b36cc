//! Objects in the trace: only on request.

use std::sync::Arc;

use lockgate_admission::call::Local;
use lockgate_admission::configuration::from_yaml;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::Host;
use lockgate_admission::object::Object;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_admission::trace::Trace;
use serde_json::{Value, json};

const CONFIGURATIONS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: m}
webhooks:
- name: m.example.com
  clientConfig: {url: 'https://m.example.com/'}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: v}
webhooks:
- name: v.example.com
  clientConfig: {url: 'https://v.example.com/'}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]
  sideEffects: None
  admissionReviewVersions: [v1]
";

/// Adds `data`, and denies objects that have it.
fn webhook(review: &[u8]) -> Vec<u8> {
    let review: Value = serde_json::from_slice(review).unwrap();
    let uid = &review["request"]["uid"];
    let response = match review["request"]["object"].get("data") {
        Some(_) => json!({"uid": uid, "allowed": false, "status": {"message": "no data"}}),
        // [{"op":"add","path":"/data","value":{"a":"b"}}]
        None => {
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEiLCJ2YWx1ZSI6eyJhIjoiYiJ9fV0="})
        }
    };
    json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
        .to_string()
        .into_bytes()
}

async fn trace(prepare: impl Fn(Admission) -> Admission) -> Trace {
    let engine = Engine::new(Host::new(Arc::new(Local::new(webhook))));
    for configuration in from_yaml(CONFIGURATIONS).unwrap() {
        engine.register(&configuration);
    }
    let mut request = Request::new(
        Operation::Create,
        kind("", "v1", "ConfigMap"),
        resource("", "v1", "configmaps"),
    );
    request.object = Some(Object::new(json!({"metadata": {"name": "a"}})));
    let mut admission = prepare(Admission::new(request));
    assert!(engine.admit(&mut admission).await.is_allowed());
    assert!(!engine.validate(&mut admission).await.is_allowed());
    admission.trace().clone()
}

fn objects(trace: &Trace) -> Vec<Option<Value>> {
    let value = |object: &Option<Object>| object.as_ref().map(|object| object.value().clone());
    let steps = trace.steps.iter().map(|step| &step.object);
    let plugins = trace.plugins().map(|(_, plugin)| &plugin.object);
    steps.chain(plugins).map(value).collect()
}

#[tokio::test]
async fn a_trace_has_every_version_of_the_object_if_asked_to() {
    let trace = trace(Admission::record_objects).await;
    let sent = json!({"metadata": {"name": "a"}});
    let patched = json!({"metadata": {"name": "a"}, "data": {"a": "b"}});
    let recorded = objects(&trace);
    let count = |wanted: &Value| {
        recorded
            .iter()
            .flatten()
            .filter(|one| *one == wanted)
            .count()
    };
    // At the start of mutation; at the start of validation, and after the plugin.
    assert_eq!((count(&sent), count(&patched)), (1, 2), "{recorded:?}");
    let status = trace.steps.last().unwrap().status.as_ref().unwrap();
    assert!(
        status.message.ends_with("denied the request: no data"),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_trace_has_no_objects_otherwise() {
    let trace = trace(|admission| admission).await;
    assert!(objects(&trace).iter().all(Option::is_none));
    assert!(trace.steps.iter().all(|step| step.status.is_none()));
    assert!(trace.steps.last().unwrap().denied.is_some());
}
