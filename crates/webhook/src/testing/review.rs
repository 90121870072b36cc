//! Reviews as the API server sends them.

use bytes::Bytes;
use lockgate_go::json;
use serde_json::{Map, Value, json};

use super::outcome::Outcome;
use super::read;
use crate::webhooks::{Webhook, Webhooks};

/// The uid of every review of a test.
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// An admission request for a webhook. By default it is sent by the user `jane`, in the object's namespace, and not a
/// dry run.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    version: &'static str,
    operation: String,
    pub(super) object: Option<Value>,
    old_object: Option<Value>,
    user: String,
    groups: Vec<String>,
    namespace: Option<String>,
    resource: Option<(String, String, String)>,
    sub_resource: String,
    dry_run: bool,
}

impl Review {
    /// The creation of an object, as YAML or JSON.
    ///
    /// # Panics
    ///
    /// Panics if the text is neither.
    #[track_caller]
    #[must_use]
    pub fn create(object: &str) -> Self {
        Self::of("CREATE", Some(object), None)
    }

    /// The update of an object.
    ///
    /// # Panics
    ///
    /// Panics if a text is neither YAML nor JSON.
    #[track_caller]
    #[must_use]
    pub fn update(old: &str, new: &str) -> Self {
        Self::of("UPDATE", Some(new), Some(old))
    }

    /// The deletion of an object.
    ///
    /// # Panics
    ///
    /// Panics if the text is neither YAML nor JSON.
    #[track_caller]
    #[must_use]
    pub fn delete(old: &str) -> Self {
        Self::of("DELETE", None, Some(old))
    }

    /// A CONNECT request with these options.
    ///
    /// # Panics
    ///
    /// Panics if the text is neither YAML nor JSON.
    #[track_caller]
    #[must_use]
    pub fn connect(options: &str) -> Self {
        Self::of("CONNECT", Some(options), None)
    }

    /// Any operation, including unknown ones.
    ///
    /// # Panics
    ///
    /// Panics if a text is neither YAML nor JSON.
    #[track_caller]
    #[must_use]
    pub fn of(operation: &str, object: Option<&str>, old_object: Option<&str>) -> Self {
        let parse = |text: &str| match read(text) {
            Ok(value) => value,
            Err(error) => panic!("this is neither YAML nor JSON: {error}\n{text}"),
        };
        Self {
            version: "v1",
            operation: operation.to_owned(),
            object: object.map(parse),
            old_object: old_object.map(parse),
            user: String::from("jane"),
            groups: vec![String::from("system:authenticated")],
            namespace: None,
            resource: None,
            sub_resource: String::new(),
            dry_run: false,
        }
    }

    /// Sets the requesting user.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.user = name.into();
        self
    }

    /// Adds a group of the user, besides `system:authenticated`.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.groups.push(name.into());
        self
    }

    /// Sets the namespace, if it differs from the object's.
    #[must_use]
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = Some(name.into());
        self
    }

    /// Sets the resource, if it is not the regular plural of the object's kind.
    #[must_use]
    pub fn resource(mut self, group: &str, version: &str, resource: &str) -> Self {
        self.resource = Some((group.into(), version.into(), resource.into()));
        self
    }

    /// Sets the subresource.
    #[must_use]
    pub fn sub_resource(mut self, name: impl Into<String>) -> Self {
        self.sub_resource = name.into();
        self
    }

    /// Makes it a dry run.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Uses `v1beta1` of the review.
    #[must_use]
    pub fn v1beta1(mut self) -> Self {
        self.version = "v1beta1";
        self
    }

    /// Calls the webhook at a path.
    ///
    /// # Panics
    ///
    /// Panics if there is none.
    pub async fn ask(&self, webhooks: &Webhooks, path: &str) -> Outcome {
        let Some(webhook) = webhooks.at(path) else {
            let paths: Vec<_> = webhooks.iter().map(|it| &it.registration().path).collect();
            panic!("there is no webhook at `{path}`, there are {paths:?}");
        };
        self.ask_webhook(webhook).await
    }

    /// Calls a webhook.
    pub async fn ask_webhook(&self, webhook: &Webhook) -> Outcome {
        let answered = webhook.answer(Bytes::from(self.to_json()), None).await;
        Outcome::new(self.clone(), webhook.clone(), &answered)
    }

    /// The encoded review.
    #[must_use]
    pub fn to_json(&self) -> String {
        let subject = self.object.as_ref().or(self.old_object.as_ref());
        let text = |pointer: &str| {
            let found = subject.and_then(|subject| subject.pointer(pointer));
            found.and_then(Value::as_str).unwrap_or_default()
        };
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = json!({"group": group, "version": version, "kind": text("/kind")});
        let resource = match &self.resource {
            Some((group, version, resource)) => {
                json!({"group": group, "version": version, "resource": resource})
            }
            None => {
                json!({"group": group, "version": version, "resource": plural(text("/kind"))})
            }
        };
        let namespace = self
            .namespace
            .as_deref()
            .unwrap_or_else(|| text("/metadata/namespace"));
        let mut request = Map::new();
        let mut set = |member: &str, value: Value| request.insert(member.to_owned(), value);
        set("uid", UID.into());
        set("kind", kind.clone());
        set("resource", resource.clone());
        set("requestKind", kind);
        set("requestResource", resource);
        if !self.sub_resource.is_empty() {
            set("subResource", self.sub_resource.clone().into());
            set("requestSubResource", self.sub_resource.clone().into());
        }
        if !text("/metadata/name").is_empty() {
            set("name", text("/metadata/name").into());
        }
        if !namespace.is_empty() {
            set("namespace", namespace.into());
        }
        set("operation", self.operation.clone().into());
        set(
            "userInfo",
            json!({"username": self.user, "groups": self.groups}),
        );
        set("object", self.object.clone().unwrap_or_default());
        set("oldObject", self.old_object.clone().unwrap_or_default());
        set("dryRun", self.dry_run.into());
        set("options", Value::Null);
        json::to_string(&json!({
            "kind": "AdmissionReview",
            "apiVersion": format!("admission.k8s.io/{}", self.version),
            "request": request,
        }))
    }

    /// The same request for another object.
    pub(super) fn about(&self, object: Value) -> Self {
        Self {
            object: Some(object),
            ..self.clone()
        }
    }

    /// The `uid` and version that the response must repeat.
    pub(super) fn echoed(&self) -> (String, &'static str) {
        (format!("admission.k8s.io/{}", self.version), UID)
    }
}

/// The regular plural of a kind.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| kind.ends_with(ending));
    match kind.strip_suffix('y') {
        Some(stem) if !ends(&["ay", "ey", "oy", "uy"]) => format!("{stem}ies"),
        _ if ends(&["s", "x", "ch", "sh"]) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::plural;

    #[test]
    fn kinds_have_their_usual_resources() {
        for (kind, resource) in [
            ("Pod", "pods"),
            ("Ingress", "ingresses"),
            ("NetworkPolicy", "networkpolicies"),
            ("Gateway", "gateways"),
        ] {
            assert_eq!(plural(kind), resource);
        }
    }
}
