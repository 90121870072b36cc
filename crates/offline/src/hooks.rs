//! Simulated webhooks: each responds from a script or a recording, or is called live.
//!
//! The engine calls through [`Caller`], which identifies a webhook only by its client configuration. So the webhooks
//! of an offline chain are registered with generated URLs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use lockgate_admission::call::{
    CallError, Caller, Client, ClientError, HttpResponse, Phase, Post, Posted,
};
use lockgate_api::registration::Configuration;
use lockgate_api::registration::hub::ClientConfig;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The host of generated URLs.
const HOST: &str = "https://offline.invalid/";

/// The scripted response of a webhook, as in files.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Script {
    /// The webhook, or `configuration/webhook` if names repeat.
    pub name: String,
    /// `false` denies the request; allowed by default.
    pub allowed: Option<bool>,
    /// The message of a denial.
    pub message: Option<String>,
    /// The status code of a denial.
    pub code: Option<u16>,
    /// The reason of a denial.
    pub reason: Option<String>,
    /// A JSON patch.
    pub patch: Option<Vec<Value>>,
    /// A merge patch, converted to a JSON patch.
    pub merge: Option<Value>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations, without the name of the webhook.
    pub audit_annotations: BTreeMap<String, String>,
    /// The error of a failed call, to which the failure policy applies.
    pub error: Option<String>,
    /// The webhook is called at this address.
    pub url: Option<String>,
    /// A file with the CA certificates of the address, in PEM.
    pub ca_file: Option<String>,
    /// A capture file with recorded responses.
    pub recorded: Option<String>,
}

/// Responds to a review, if a response is configured.
pub trait Responder: Send + Sync + fmt::Debug {
    /// The `response` for the `request` of a review.
    fn answer(&self, request: &Value) -> Option<Value>;
}

/// The source of a webhook's responses.
#[derive(Debug, Clone)]
pub enum Hook {
    /// Allows every request unchanged: no response is configured.
    Assumed,
    /// From a script.
    Scripted(Box<Script>),
    /// From a recording.
    Recorded(Arc<dyn Responder>),
    /// From a live call.
    Live(Box<ClientConfig>),
}

/// The webhooks of a chain.
#[derive(Clone, Default)]
pub struct Hooks {
    known: HashMap<String, Hook>,
    /// The behaviour of webhooks that are not listed by name; without it, they are assumed to allow.
    others: Option<Hook>,
    live: Option<Arc<dyn Caller>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("known", &self.known)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

impl Hooks {
    /// Sets the caller for live webhooks.
    #[must_use]
    pub fn with_caller(mut self, caller: Arc<dyn Caller>) -> Self {
        self.live = Some(caller);
        self
    }

    /// Sets the response of a webhook; its name may be prefixed with its configuration and a `/`.
    pub fn set(&mut self, name: &str, hook: Hook) {
        self.known.insert(name.to_owned(), hook);
    }

    /// Sets the response of all other webhooks.
    pub fn set_others(&mut self, hook: Hook) {
        self.others = Some(hook);
    }

    /// The names of webhooks with a configured response.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// The behaviour of a webhook.
    #[must_use]
    pub fn of(&self, configuration: &str, webhook: &str) -> &Hook {
        let qualified = self.known.get(&format!("{configuration}/{webhook}"));
        let named = qualified.or_else(|| self.known.get(webhook));
        named.or(self.others.as_ref()).unwrap_or(&Hook::Assumed)
    }

    /// The configuration with generated URLs.
    #[must_use]
    pub fn addressed(&self, configuration: &Configuration) -> Configuration {
        let mut configuration = configuration.clone();
        let name = configuration.metadata.name.clone();
        let webhooks = configuration.webhooks.iter_mut().flatten();
        for (nth, webhook) in webhooks.enumerate() {
            webhook.client_config = match self.of(&name, &webhook.name) {
                Hook::Live(config) if is_empty(config) => continue,
                Hook::Live(config) => (**config).clone(),
                _ => ClientConfig {
                    url: Some(format!("{HOST}{name}/{}/{nth}", webhook.name)),
                    service: None,
                    ca_bundle: None,
                },
            };
        }
        configuration
    }
}

/// A live webhook without an own address is called at that of its configuration.
fn is_empty(config: &ClientConfig) -> bool {
    config.url.is_none() && config.service.is_none()
}

impl Caller for Hooks {
    fn client(&self, config: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        let url = config.url.as_deref().unwrap_or_default();
        let Some(path) = url.strip_prefix(HOST) else {
            return match &self.live {
                Some(live) => live.client(config),
                None => Err(ClientError::Other(String::from(
                    "webhooks are not called offline",
                ))),
            };
        };
        let mut parts = path.split('/');
        let (configuration, webhook) = (parts.next(), parts.next());
        let hook = self.of(
            configuration.unwrap_or_default(),
            webhook.unwrap_or_default(),
        );
        Ok(Arc::new(ResponsePlayer(hook.clone())))
    }
}

/// Responds to reviews instead of a webhook.
struct ResponsePlayer(Hook);

impl Client for ResponsePlayer {
    fn post(&self, post: Post) -> Pin<Box<dyn Future<Output = Posted> + Send + '_>> {
        let result = self.answer(&post.body);
        Box::pin(std::future::ready(Posted {
            result,
            phases: Vec::new(),
        }))
    }
}

impl ResponsePlayer {
    fn answer(&self, body: &[u8]) -> Result<HttpResponse, CallError> {
        let review: Value = serde_json::from_slice(body).unwrap_or_default();
        let request = &review["request"];
        let response = match &self.0 {
            Hook::Assumed | Hook::Live(_) => json!({"allowed": true}),
            Hook::Scripted(script) => script.response(request)?,
            Hook::Recorded(answers) => answers.answer(request).ok_or_else(|| {
                failure("no answer to this request is recorded; capture one, or script the webhook")
            })?,
        };
        let mut response = response;
        response["uid"] = request["uid"].clone();
        let answer = json!({
            "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response,
        });
        Ok(HttpResponse {
            code: 200,
            content_type: Some(String::from("application/json")),
            body: Bytes::from(answer.to_string()),
        })
    }
}

fn failure(message: &str) -> CallError {
    CallError {
        message: message.to_owned(),
        phase: Phase::Connect,
        timed_out: false,
    }
}

impl Script {
    /// The `response` to a request.
    fn response(&self, request: &Value) -> Result<Value, CallError> {
        if let Some(error) = &self.error {
            return Err(failure(error));
        }
        let mut response = json!({"allowed": self.allowed.unwrap_or(true)});
        if self.allowed == Some(false) {
            let mut status = Map::new();
            if let Some(message) = &self.message {
                status.insert(String::from("message"), message.clone().into());
            }
            if let Some(code) = self.code {
                status.insert(String::from("code"), code.into());
            }
            if let Some(reason) = &self.reason {
                status.insert(String::from("reason"), reason.clone().into());
            }
            response["status"] = status.into();
        }
        let mut operations = self.patch.clone().unwrap_or_default();
        if let Some(merge) = &self.merge {
            operations.extend(merge_operations(merge, &request["object"]));
        }
        if !operations.is_empty() {
            let text = Value::Array(operations).to_string();
            response["patchType"] = "JSONPatch".into();
            response["patch"] = lockgate_go::base64::encode(text.as_bytes()).into();
        }
        if !self.warnings.is_empty() {
            response["warnings"] = self.warnings.clone().into();
        }
        if !self.audit_annotations.is_empty() {
            response["auditAnnotations"] = json!(self.audit_annotations);
        }
        Ok(response)
    }
}

/// Converts a merge patch to the JSON patch operations for an object.
///
/// See RFC 7386; the depth of manifests is limited, and therefore the recursion.
fn merge_operations(merge: &Value, object: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    collect(merge, Some(object), String::new(), &mut operations);
    operations
}

fn collect(merge: &Value, target: Option<&Value>, path: String, operations: &mut Vec<Value>) {
    let (Value::Object(members), Some(Value::Object(present))) = (merge, target) else {
        let value = without_nulls(merge);
        operations.push(json!({"op": "add", "path": path, "value": value}));
        return;
    };
    for (key, value) in members {
        let key_path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        match (value, present.get(key)) {
            (Value::Null, None) => {}
            (Value::Null, Some(_)) => operations.push(json!({"op": "remove", "path": key_path})),
            (value, target) => collect(value, target, key_path, operations),
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect::<Map<_, _>>()
                .into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_operations_of_a_merge_patch() {
        let object = json!({"metadata": {"labels": {"a/b": "1", "c": "2"}}});
        let merge = json!({"metadata": {"labels": {"a/b": null, "d": "3"}, "annotations": {"x": "y", "z": null}}});
        assert_eq!(
            merge_operations(&merge, &object),
            [
                json!({"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}}),
                json!({"op": "remove", "path": "/metadata/labels/a~1b"}),
                json!({"op": "add", "path": "/metadata/labels/d", "value": "3"}),
            ]
        );
    }

    #[test]
    fn finds_hooks_by_their_own_name_and_by_both() {
        let mut hooks = Hooks::default();
        let denies = |message: &str| {
            Hook::Scripted(Box::new(Script {
                allowed: Some(false),
                message: Some(message.to_owned()),
                ..Script::default()
            }))
        };
        hooks.set("a.example.com", denies("plain"));
        hooks.set("second/a.example.com", denies("qualified"));
        let message = |hook: &Hook| match hook {
            Hook::Scripted(script) => script.message.clone(),
            _ => None,
        };
        let of = |configuration| message(hooks.of(configuration, "a.example.com"));
        assert_eq!(of("first").as_deref(), Some("plain"));
        assert_eq!(of("second").as_deref(), Some("qualified"));
        assert!(matches!(hooks.of("first", "b"), Hook::Assumed));
    }
}
