//! Scripted webhooks, and short ways to write registrations and requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lockgate_admission::audit::Level;
use lockgate_admission::call::{
    CallError, Caller, Client, ClientError, HttpResponse, Phase, Post, Posted,
};
use lockgate_admission::decision::Decision;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{BoxFuture, Clock, Host, SystemClock};
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::registration::hub::{self, ClientConfig};
use lockgate_api::registration::{Configuration, ConfigurationKind, Webhook};
use serde_json::{Value, json};

pub(crate) use ConfigurationKind::{Mutating, Validating};

/// The reply of a webhook.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A response, with the request's uid added.
    Response(Value),
    /// A response computed from the review.
    With(Arc<dyn Fn(&Value) -> Value + Send + Sync>),
    /// A raw status, content type and body.
    Raw(u16, Option<&'static str>, &'static str),
    /// The webhook is unreachable.
    Unreachable(&'static str),
    /// A delayed reply.
    After(Duration, Box<Self>),
    /// The caller panics.
    Panics(&'static str),
}

impl Reply {
    pub(crate) fn allow() -> Self {
        Self::Response(json!({"allowed": true}))
    }

    pub(crate) fn deny(message: &str) -> Self {
        Self::Response(json!({"allowed": false, "status": {"message": message, "code": 403}}))
    }

    pub(crate) fn patch(operations: &Value) -> Self {
        Self::patch_text(&operations.to_string())
    }

    pub(crate) fn patch_text(patch: &str) -> Self {
        Self::Response(patched(patch))
    }

    pub(crate) fn after(self, seconds: u64) -> Self {
        Self::After(Duration::from_secs(seconds), Box::new(self))
    }
}

/// A response with a patch.
pub(crate) fn patched(patch: &str) -> Value {
    json!({"allowed": true, "patch": base64(patch.as_bytes()), "patchType": "JSONPatch"})
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    lockgate_go::base64::encode(bytes)
}

/// One call as the webhook received it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) url: String,
    pub(crate) review: Value,
    pub(crate) timeout: Option<Duration>,
}

/// Calls the scripted webhooks by URL.
#[derive(Default)]
pub(crate) struct Script {
    replies: Mutex<HashMap<String, Reply>>,
    seen: Mutex<Vec<Seen>>,
}

struct Scripted {
    url: String,
    script: Arc<Script>,
}

struct ScriptedCaller(Arc<Script>);

impl Caller for ScriptedCaller {
    fn client(&self, config: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        let url = config.url.clone().unwrap_or_default();
        if url == "bad-ca" {
            let problem = "unable to load root certificates: unable to parse bytes as PEM block";
            return Err(ClientError::Other(String::from(problem)));
        }
        let script = Arc::clone(&self.0);
        Ok(Arc::new(Scripted { url, script }))
    }
}

impl Client for Scripted {
    fn post(&self, post: Post) -> BoxFuture<'_, Posted> {
        Box::pin(async move {
            let review: Value = serde_json::from_slice(&post.body).unwrap();
            let now = SystemClock.now();
            let timeout = post
                .deadline
                .map(|deadline| deadline.saturating_duration_since(now));
            self.script.seen.lock().unwrap().push(Seen {
                url: self.url.clone(),
                review: review.clone(),
                timeout,
            });
            let reply = self.script.replies.lock().unwrap().get(&self.url).cloned();
            let answer = self.answer(reply.unwrap_or_else(Reply::allow), &review);
            let result = match post.deadline {
                None => answer.await,
                Some(deadline) => {
                    let timed = tokio::time::timeout_at(deadline.into(), answer).await;
                    timed.unwrap_or_else(|_| {
                        let seconds = timeout.unwrap_or_default().as_secs_f64().ceil();
                        Err(CallError {
                            message: format!(
                                "Post \"{}?timeout={seconds}s\": context deadline exceeded",
                                self.url
                            ),
                            phase: Phase::Wait,
                            timed_out: true,
                        })
                    })
                }
            };
            let phases = vec![(Phase::Wait, SystemClock.now() - now)];
            Posted { result, phases }
        })
    }
}

impl Scripted {
    async fn answer(&self, reply: Reply, review: &Value) -> Result<HttpResponse, CallError> {
        let response = |mut response: Value| {
            if response.get("uid").is_none() {
                response["uid"] = review["request"]["uid"].clone();
            }
            let answer = json!({
                "kind": "AdmissionReview",
                "apiVersion": review["apiVersion"],
                "response": response,
            });
            HttpResponse {
                code: 200,
                content_type: Some(String::from("application/json")),
                body: Bytes::from(answer.to_string()),
            }
        };
        let mut reply = reply;
        loop {
            reply = match reply {
                Reply::Response(value) => return Ok(response(value)),
                Reply::With(make) => return Ok(response(make(review))),
                Reply::Raw(code, content_type, body) => {
                    return Ok(HttpResponse {
                        code,
                        content_type: content_type.map(String::from),
                        body: Bytes::from_static(body.as_bytes()),
                    });
                }
                Reply::Unreachable(problem) => {
                    return Err(CallError {
                        message: format!("Post \"{}?timeout=10s\": {problem}", self.url),
                        phase: Phase::Connect,
                        timed_out: false,
                    });
                }
                Reply::After(delay, then) => {
                    tokio::time::sleep(delay).await;
                    *then
                }
                Reply::Panics(words) => std::panic::panic_any(words),
            };
        }
    }
}

/// An engine with scripted webhooks.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) script: Arc<Script>,
    hooks: Mutex<BTreeMap<(bool, String), Vec<Webhook>>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Engine::new)
    }

    pub(crate) fn with(build: impl FnOnce(Host) -> Engine) -> Self {
        let script = Arc::new(Script::default());
        let host = Host::new(Arc::new(ScriptedCaller(Arc::clone(&script))));
        Self {
            engine: build(host),
            script,
            hooks: Mutex::default(),
        }
    }

    /// A host without cluster access.
    pub(crate) fn host() -> Host {
        Host::new(Arc::new(ScriptedCaller(Arc::default())))
    }

    /// Registers a webhook in the configuration `c` with its reply.
    pub(crate) fn hook(&self, kind: ConfigurationKind, name: &str, reply: Reply) {
        self.hook_in(kind, "c", webhook(name), reply);
    }

    pub(crate) fn hook_in(
        &self,
        kind: ConfigurationKind,
        config: &str,
        webhook: Webhook,
        reply: Reply,
    ) {
        let url = webhook.client_config.url.clone().unwrap_or_default();
        self.script.replies.lock().unwrap().insert(url, reply);
        let mut hooks = self.hooks.lock().unwrap();
        let list = hooks
            .entry((kind == Mutating, config.to_owned()))
            .or_default();
        list.push(webhook);
        self.engine.register(&Configuration {
            kind,
            metadata: ObjectMeta {
                name: config.to_owned(),
                ..ObjectMeta::default()
            },
            webhooks: Some(list.clone()),
        });
    }

    pub(crate) async fn run(&self, kind: ConfigurationKind, request: Request) -> Outcome {
        let mut admission = Admission::new(request);
        let decision = match kind {
            Mutating => self.engine.admit(&mut admission).await,
            Validating => self.engine.validate(&mut admission).await,
        };
        Outcome {
            decision,
            admission,
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.script.seen.lock().unwrap().clone()
    }

    /// The number of calls of a webhook.
    pub(crate) fn calls(&self, name: &str) -> usize {
        let url = format!("https://{name}/");
        self.seen().iter().filter(|seen| seen.url == url).count()
    }

    /// The counters in exposition format, without their prefix.
    pub(crate) fn counters(&self) -> Vec<String> {
        let text = self.engine.metrics().render(SystemClock.now());
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .filter(|line| {
                line.contains("_total{")
                    || line.contains("_count{error_type")
                    || line.contains("fail_open_count{")
            })
            .map(|line| line.trim_start_matches("apiserver_admission_").to_owned())
            .collect()
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) decision: Decision,
    pub(crate) admission: Admission,
}

impl Outcome {
    /// Code, reason and message of a rejection.
    pub(crate) fn refusal(&self) -> Option<(i32, &str, &str)> {
        let status = self.decision.status()?;
        Some((status.code, &status.reason, &status.message))
    }

    #[track_caller]
    pub(crate) fn allowed(&self) {
        assert_eq!(self.decision, Decision::Allow);
    }

    pub(crate) fn annotations(&self) -> Vec<(String, String)> {
        self.annotations_at(Level::RequestResponse)
    }

    pub(crate) fn annotations_at(&self, level: Level) -> Vec<(String, String)> {
        let annotations = self.admission.annotations();
        let at = annotations.at(level);
        at.map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    pub(crate) fn object(&self) -> &Value {
        self.admission.request().object.as_ref().unwrap().value()
    }
}

fn texts(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|text| String::from(*text)).collect())
}

/// A webhook that matches all resources, with failurePolicy Fail and v1 reviews.
pub(crate) fn webhook(name: &str) -> Webhook {
    Webhook {
        name: name.to_owned(),
        client_config: ClientConfig {
            url: Some(format!("https://{name}/")),
            ..ClientConfig::default()
        },
        rules: Some(vec![hub::Rule {
            operations: texts(&["*"]),
            api_groups: texts(&["*"]),
            api_versions: texts(&["*"]),
            resources: texts(&["*/*"]),
            scope: None,
        }]),
        failure_policy: Some(String::from("Fail")),
        match_policy: Some(String::from("Equivalent")),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        side_effects: Some(String::from("None")),
        timeout_seconds: Some(10),
        admission_review_versions: texts(&["v1"]),
        ..Webhook::default()
    }
}

pub(crate) fn ignoring(webhook: Webhook) -> Webhook {
    Webhook {
        failure_policy: Some(String::from("Ignore")),
        ..webhook
    }
}

pub(crate) fn if_needed(webhook: Webhook) -> Webhook {
    Webhook {
        reinvocation_policy: Some(String::from("IfNeeded")),
        ..webhook
    }
}

pub(crate) fn selecting(webhook: Webhook, key: &str, value: &str) -> Webhook {
    let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    Webhook {
        object_selector: Some(LabelSelector {
            match_labels: Some(labels),
            match_expressions: None,
        }),
        ..webhook
    }
}

/// The creation of a ConfigMap.
pub(crate) fn create() -> Request {
    let mut request = Request::new(
        Operation::Create,
        kind("", "v1", "ConfigMap"),
        resource("", "v1", "configmaps"),
    );
    request.name = String::from("cm");
    request.namespace = String::from("shop");
    request.object = Some(config_map().into());
    request
}

/// The deletion of a ConfigMap.
pub(crate) fn delete() -> Request {
    let mut request = create();
    request.operation = Operation::Delete;
    request.old_object = request.object.take();
    request
}

pub(crate) fn dry_run(mut request: Request) -> Request {
    request.dry_run = true;
    request
}

pub(crate) fn within(mut request: Request, seconds: u64) -> Request {
    request.deadline = Some(SystemClock.now() + Duration::from_secs(seconds));
    request
}

pub(crate) fn config_map() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": "shop", "labels": {"app": "web"}},
        "data": {"k": "v"},
    })
}
