//! Review requests and responses.

use bytes::Bytes;
use lockgate_admission::json_patch::Patch;
use lockgate_go::json;
use lockgate_plugins::ReadyMade;
use lockgate_webhook::{Response, ReviewError, Role, Webhook};
use serde_json::{Value, json};

/// The fields of an admission request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) operation: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) sub_resource: &'static str,
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    pub(crate) user: &'static str,
    pub(crate) dry_run: bool,
    pub(crate) object: Value,
    pub(crate) old: Value,
}

impl Asked {
    pub(crate) fn new(operation: &'static str, plural: &'static str, kind: &'static str) -> Self {
        Self {
            operation,
            plural,
            kind,
            sub_resource: "",
            name: String::from("x"),
            namespace: "shop",
            user: "jane",
            dry_run: false,
            object: Value::Null,
            old: Value::Null,
        }
    }

    pub(crate) fn create_pod(object: Value) -> Self {
        Self::new("CREATE", "pods", "Pod").object(object)
    }

    pub(crate) fn update_pod(old: Value, object: Value) -> Self {
        Self::new("UPDATE", "pods", "Pod").object(object).old(old)
    }

    pub(crate) fn object(mut self, object: Value) -> Self {
        self.object = object;
        self
    }

    pub(crate) fn old(mut self, old: Value) -> Self {
        self.old = old;
        self
    }

    pub(crate) fn sub_resource(mut self, name: &'static str) -> Self {
        self.sub_resource = name;
        self
    }

    fn body(&self, version: &str) -> Bytes {
        let resource = json!({"group": "", "version": "v1", "resource": self.plural});
        let kind = json!({"group": "", "version": "v1", "kind": self.kind});
        let review = json!({
            "apiVersion": format!("admission.k8s.io/{version}"),
            "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "kind": kind,
                "resource": resource,
                "subResource": self.sub_resource,
                "requestKind": kind,
                "requestResource": resource,
                "requestSubResource": self.sub_resource,
                "name": self.name,
                "namespace": self.namespace,
                "operation": self.operation,
                "userInfo": {"username": self.user, "groups": ["system:authenticated"]},
                "object": self.object,
                "oldObject": self.old,
                "dryRun": self.dry_run,
                "options": null,
            },
        });
        Bytes::from(review.to_string())
    }
}

/// The webhooks of a plugin that match a request.
fn webhooks(plugin: &dyn ReadyMade, role: Role, asked: &Asked) -> Vec<Webhook> {
    let full = match asked.sub_resource {
        "" => asked.plural.to_owned(),
        sub => format!("{}/{sub}", asked.plural),
    };
    let is_for = |webhook: &Webhook| {
        let registration = webhook.registration();
        let mut rules = registration.webhook.rules.iter().flatten();
        registration.role == role
            && rules.any(|rule| {
                let has = |list: &Option<Vec<String>>, name: &str| {
                    list.iter().flatten().any(|known| known == name)
                };
                has(&rule.operations, asked.operation) && has(&rule.resources, &full)
            })
    };
    let all = plugin.webhooks().into_iter();
    let all = all.map(|(registration, handler)| Webhook::new(registration, handler));
    all.filter(is_for).collect()
}

async fn answer(webhook: &Webhook, asked: &Asked) -> Result<Response, ReviewError> {
    let answered = webhook.answer(asked.body("v1"), None).await;
    if answered.outcome.is_ok() {
        assert_eq!(answered.code, 200);
        let body: Value = serde_json::from_slice(&answered.body).unwrap();
        assert_eq!(
            body["response"]["uid"],
            "705ab4f5-6393-11e8-b7cc-42010a800002"
        );
    }
    answered.outcome
}

/// A denial: code and message. An error has the code 0.
pub(crate) type No = (i32, String);

fn refusal(outcome: &Result<Response, ReviewError>) -> Option<No> {
    match outcome {
        Ok(response) => response.denial().map(|denial| {
            let status = denial.status();
            (status.code, status.message.clone())
        }),
        Err(error) => Some((0, error.to_string())),
    }
}

/// The object after the mutating webhook, and the warnings. A second mutation must not change the result.
pub(crate) async fn mutate_with_warnings(
    plugin: &dyn ReadyMade,
    asked: &Asked,
) -> Result<(Value, Vec<String>), No> {
    let mut asked = asked.clone();
    let mut warnings = Vec::new();
    for webhook in webhooks(plugin, Role::Mutating, &asked) {
        let outcome = answer(&webhook, &asked).await;
        if let Some(no) = refusal(&outcome) {
            return Err(no);
        }
        let response = outcome.unwrap();
        warnings.extend(response.warnings().iter().cloned());
        let patch = Patch::parse(json::to_string(response.changes()).as_bytes()).unwrap();
        asked.object = patch.apply(&asked.object).unwrap();
        let again = answer(&webhook, &asked).await.unwrap();
        assert!(again.is_allowed(), "its own result is refused: {again:?}");
        assert_eq!(again.changes(), [], "its own result is changed");
    }
    Ok((asked.object, warnings))
}

pub(crate) async fn mutate(plugin: &dyn ReadyMade, asked: &Asked) -> Result<Value, No> {
    Ok(mutate_with_warnings(plugin, asked).await?.0)
}

/// The result of the validating webhooks.
pub(crate) async fn validate(plugin: &dyn ReadyMade, asked: &Asked) -> Result<(), No> {
    for webhook in webhooks(plugin, Role::Validating, asked) {
        if let Some(no) = refusal(&answer(&webhook, asked).await) {
            return Err(no);
        }
    }
    Ok(())
}

/// The response of the first validating webhook.
pub(crate) async fn response(plugin: &dyn ReadyMade, asked: &Asked) -> Response {
    let webhooks = webhooks(plugin, Role::Validating, asked);
    answer(webhooks.first().unwrap(), asked).await.unwrap()
}

pub(crate) fn forbidden(message: &str) -> No {
    (403, message.to_owned())
}

/// A Pod with one container.
pub(crate) fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": "shop"},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
        "unknown": {"member": [1, 2, 3]},
    })
}

/// The sample Pod with another spec.
pub(crate) fn pod_with(spec: Value) -> Value {
    let mut pod = pod();
    for (name, value) in spec.as_object().unwrap() {
        pod["spec"][name] = value.clone();
    }
    pod
}

/// A namespaced object with annotations.
pub(crate) fn named(namespace: &str, name: &str, annotations: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "annotations": annotations}})
}
