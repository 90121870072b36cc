//! Calls the webhooks as an API server does, in process.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockgate_admission::json_patch::Patch;
use serde_json::{Value, json};

use crate::api::{GROUP, VERSION};
use crate::config::ProfileDeletion;
use crate::lookup::fake::Fake;
use crate::profile::ProfileRules;
use crate::webhooks::webhooks;

/// The user who may choose UUIDs.
pub(crate) const CONTROLLER: &str = "system:serviceaccount:shaper-system:shaper-controller";

/// A review of an object.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    review: Value,
    deletion: ProfileDeletion,
}

/// The response of a webhook.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: u16,
    pub(crate) response: Value,
    object: Value,
}

impl Ask {
    fn new(operation: &str, kind: &str, object: Value, old: Value) -> Self {
        let of = if object.is_null() { &old } else { &object };
        let text = |pointer: &str| {
            of.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
        let plural = format!("{}s", kind.to_lowercase());
        Self {
            review: json!({
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "request": {
                    "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                    "kind": {"group": GROUP, "version": VERSION, "kind": kind},
                    "resource": {"group": GROUP, "version": VERSION, "resource": plural},
                    "name": name, "namespace": namespace,
                    "operation": operation,
                    "userInfo": {"username": "admin"},
                    "object": object, "oldObject": old, "dryRun": false,
                },
            }),
            deletion: ProfileDeletion::default(),
        }
    }

    pub(crate) fn create(kind: &str, object: &Value) -> Self {
        Self::new("CREATE", kind, object.clone(), Value::Null)
    }

    pub(crate) fn update(kind: &str, old: &Value, new: &Value) -> Self {
        Self::new("UPDATE", kind, new.clone(), old.clone())
    }

    pub(crate) fn delete(kind: &str, old: &Value) -> Self {
        Self::new("DELETE", kind, Value::Null, old.clone())
    }

    /// Changes the request of the review.
    pub(crate) fn with(mut self, member: &str, value: Value) -> Self {
        self.review["request"][member] = value;
        self
    }

    pub(crate) fn user(self, name: &str) -> Self {
        self.with("userInfo", json!({"username": name}))
    }

    pub(crate) fn version(mut self, version: &str) -> Self {
        self.review["apiVersion"] = json!(format!("admission.k8s.io/{version}"));
        self
    }

    pub(crate) fn deletion(mut self, deletion: ProfileDeletion) -> Self {
        self.deletion = deletion;
        self
    }

    /// Calls the webhook at a path.
    pub(crate) async fn at(&self, path: &str, lookup: Fake) -> Said {
        let rules = ProfileRules {
            lookup: Arc::new(lookup),
            controllers: [CONTROLLER.to_owned()].into(),
            deletion: self.deletion,
        };
        let webhooks = webhooks(&rules);
        let body = self.review.to_string().into_bytes().into();
        let answered = webhooks.at(path).unwrap().answer(body, None).await;
        let answer: Value = serde_json::from_slice(&answered.body).unwrap_or_default();
        if answered.code == 200 {
            assert_eq!(answer["apiVersion"], self.review["apiVersion"]);
            assert_eq!(answer["response"]["uid"], self.review["request"]["uid"]);
        }
        Said {
            code: answered.code,
            response: answer["response"].clone(),
            object: self.review["request"]["object"].clone(),
        }
    }
}

impl Said {
    pub(crate) fn allowed(self) -> Self {
        assert_eq!(self.response["allowed"], json!(true), "{self:?}");
        self
    }

    /// Asserts a denial with this code and message.
    pub(crate) fn denied(self, code: u16, message: &str) -> Self {
        assert_eq!(self.response["allowed"], json!(false), "{self:?}");
        assert_eq!(self.response["status"]["message"], json!(message));
        assert_eq!(self.response["status"]["code"], json!(code));
        self
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        let warnings = self.response["warnings"].as_array();
        warnings
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// The operations of the patch.
    pub(crate) fn patch(&self) -> Value {
        let Some(patch) = self.response["patch"].as_str() else {
            assert_eq!(self.response.get("patchType"), None);
            return json!([]);
        };
        assert_eq!(self.response["patchType"], json!("JSONPatch"));
        serde_json::from_slice(&BASE64_STANDARD.decode(patch).unwrap()).unwrap()
    }

    /// The object after the patch.
    pub(crate) fn patched(&self) -> Value {
        let patch = Patch::parse(self.patch().to_string().as_bytes()).unwrap();
        patch.apply(&self.object).unwrap()
    }
}
