//! Stage 8: who did what to what, one JSON line per stage of a request.
//!
//! UPSTREAM: apiserver pkg/audit, pkg/apis/audit/v1

mod policy;

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Method, Uri};
use lockgate_admission::audit::Level;
use lockgate_api::admission::UserInfo;
use lockgate_go::json;
use lockgate_kinds::protobuf::Envelope;
use serde_json::{Map, Value, json};

use crate::encoding;
use crate::error::Failure;
use crate::http::listen::Peer;
use crate::http::request_info::Target;
use crate::metadata;
use crate::private_file;
use crate::request::Recorded;
use crate::respond::Reply;

pub use policy::PolicyError;
pub(crate) use policy::{Policy, Rule};

/// The logged stages of a request.
const RECEIVED: &str = "RequestReceived";
const COMPLETE: &str = "ResponseComplete";
const PANIC: &str = "Panic";
/// The code of a request whose client disconnected.
const GONE: u16 = 499;

/// The log.
pub(crate) struct Audit {
    policy: Policy,
    sink: Option<Mutex<Box<dyn Write + Send>>>,
}

impl Audit {
    /// Opens a log to a file, to standard output (`-`), or a disabled one.
    pub(crate) fn open(policy: Policy, path: Option<&Path>) -> io::Result<Self> {
        let sink: Option<Box<dyn Write + Send>> = match path {
            None => None,
            Some(path) if path.as_os_str() == "-" => Some(Box::new(io::stdout())),
            Some(path) => {
                let file = private_file::append(path)?;
                Some(Box::new(file))
            }
        };
        Ok(Self {
            policy,
            sink: sink.map(Mutex::new),
        })
    }

    /// Starts the event of a request.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: &str,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Event {
        if self.sink.is_none() {
            return Event(None);
        }
        let agent = headers.get(http::header::USER_AGENT);
        let agent = agent.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let path_and_query = uri
            .path_and_query()
            .map_or_else(|| uri.path().to_owned(), ToString::to_string);
        let fields = json!({
            "auditID": id,
            "requestURI": path_and_query,
            "verb": method.as_str().to_ascii_lowercase(),
            "sourceIPs": [peer.address.ip().to_string()],
            "userAgent": agent,
            "requestReceivedTimestamp": metadata::now_to_microsecond(),
        });
        let Value::Object(fields) = fields else {
            return Event(None);
        };
        Event(Some(Box::new(Open {
            audit: Arc::clone(self),
            is_received: false,
            is_finished: false,
            fields,
            path: uri.path().to_owned(),
            target: None,
            user: UserInfo::default(),
            request: None,
            response: None,
            annotations: Map::new(),
            notes: Vec::new(),
        })))
    }

    fn write(&self, events: &[Value]) {
        let Some(sink) = &self.sink else { return };
        let mut text = String::new();
        for event in events {
            text.push_str(&json::to_string(event));
            text.push('\n');
        }
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = sink.write_all(text.as_bytes()).and_then(|()| sink.flush()) {
            tracing::error!(%error, "audit log write failed");
        }
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

/// A request in progress. Its event is logged in any case: on a response, a disconnected client, or a panic. Without
/// an audit log nothing is recorded.
#[derive(Debug)]
pub(crate) struct Event(Option<Box<Open>>);

#[derive(Debug)]
struct Open {
    audit: Arc<Audit>,
    is_received: bool,
    is_finished: bool,
    fields: Map<String, Value>,
    path: String,
    target: Option<Target>,
    user: UserInfo,
    request: Option<Value>,
    response: Option<Value>,
    annotations: Map<String, Value>,
    notes: Vec<lockgate_admission::audit::Annotations>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let (stage, code, message) = if std::thread::panicking() {
            (PANIC, 500, "the server panicked")
        } else {
            (COMPLETE, GONE, "the client went away before the answer")
        };
        let status = json!({"metadata": {}, "status": "Failure", "message": message});
        self.fields.insert(String::from("responseStatus"), status);
        self.finish(stage, code);
    }
}

impl Open {
    /// Logs the stage RequestReceived, unless it is already logged.
    fn receive(&mut self) {
        if !std::mem::replace(&mut self.is_received, true) {
            self.write(RECEIVED, 0);
        }
    }

    fn finish(&mut self, stage: &'static str, code: u16) {
        self.is_finished = true;
        self.receive();
        self.write(stage, code);
    }

    /// Logs a stage, at the level of the policy.
    fn write(&self, stage: &'static str, code: u16) {
        let policy = &self.audit.policy;
        let rule = policy.rule(&self.user, self.verb(), self.target.as_ref(), &self.path);
        let Some(rule) = rule.filter(|rule| rule.level > Level::None) else {
            return;
        };
        if !rule.omits(stage) && !policy.omits(stage) {
            self.audit.write(&[self.render(rule, stage, code)]);
        }
    }
}

impl Event {
    /// Logs the stage RequestReceived, with user and target.
    pub(crate) fn receive(&mut self) {
        if let Some(open) = &mut self.0 {
            open.receive();
        }
    }

    /// Logs the final stage.
    pub(crate) fn finish(mut self, code: u16) {
        if let Some(open) = &mut self.0 {
            open.finish(COMPLETE, code);
        }
    }

    /// Records the user.
    pub(crate) fn user(&mut self, user: &UserInfo) {
        if let Some(open) = &mut self.0 {
            open.user = user.clone();
            open.set("user", serde_json::to_value(user).unwrap_or_default());
        }
    }

    /// Records the impersonated user, and the verb of constrained impersonation that allowed it.
    pub(crate) fn impersonated(&mut self, user: &UserInfo, constraint: Option<&str>) {
        if let Some(open) = &mut self.0 {
            open.set(
                "impersonatedUser",
                serde_json::to_value(user).unwrap_or_default(),
            );
            if let Some(verb) = constraint {
                let told = json!({"impersonationConstraint": verb});
                open.set("authenticationMetadata", told);
            }
        }
    }

    /// Records the target.
    pub(crate) fn target(&mut self, target: &Target, name: &str) {
        if let Some(open) = &mut self.0 {
            let mut reference = Map::new();
            for (key, text) in [
                ("resource", target.resource.as_str()),
                ("namespace", &target.namespace),
                ("name", name),
                ("apiGroup", &target.group),
                ("apiVersion", &target.version),
                ("subresource", &target.subresource),
            ] {
                if !text.is_empty() {
                    reference.insert(key.to_owned(), text.into());
                }
            }
            open.set("objectRef", Value::Object(reference));
            open.set("verb", target.verb.name().into());
            open.target = Some(Target {
                name: name.to_owned(),
                ..target.clone()
            });
        }
    }

    /// Records the decision of authorization.
    pub(crate) fn decided(&mut self, allowed: bool) {
        if let Some(open) = &mut self.0 {
            let decision = if allowed { "allow" } else { "forbid" };
            for (key, text) in [("decision", decision), ("reason", "")] {
                let key = format!("authorization.k8s.io/{key}");
                open.annotations.insert(key, text.into());
            }
        }
    }

    /// Records the request body.
    pub(crate) fn request_body(&mut self, body: &[u8]) {
        if let Some(open) = &mut self.0 {
            open.request = encoding::tree(body).or_else(|| Envelope::open(body).ok()?.object());
            open.complete_reference();
        }
    }

    /// Records the response.
    pub(crate) fn respond(&mut self, reply: &Reply) {
        if let Some(open) = &mut self.0 {
            // A list may be large, and most policies do not log it.
            if open.writes_responses() {
                open.response = encoding::tree(reply.json().as_bytes());
            }
        }
    }

    /// Records the response of a failure.
    pub(crate) fn respond_status(&mut self, failure: &Failure) {
        if let Some(open) = &mut self.0 {
            let status = serde_json::to_value(&failure.0).unwrap_or_default();
            open.set("responseStatus", status.clone());
            open.response = Some(status);
        }
    }

    /// Records the annotations of admission.
    pub(crate) fn notes(&mut self, notes: &Recorded) {
        if let Some(open) = &mut self.0 {
            open.notes.extend(notes.annotations.iter().cloned());
        }
    }
}

impl Open {
    fn writes_responses(&self) -> bool {
        let policy = &self.audit.policy;
        let rule = policy.rule(&self.user, self.verb(), self.target.as_ref(), &self.path);
        rule.is_some_and(|rule| rule.level >= Level::RequestResponse)
    }

    fn set(&mut self, key: &str, value: Value) {
        self.fields.insert(key.to_owned(), value);
    }

    /// Completes the reference with the name in the body, which the path of a create does not contain.
    ///
    /// UPSTREAM: apiserver pkg/audit/request.go (LogRequestObject)
    fn complete_reference(&mut self) {
        if !matches!(self.verb(), "create" | "update") {
            return;
        }
        let metadata = self
            .request
            .as_ref()
            .and_then(|object| object.get("metadata"));
        let reference = self
            .fields
            .get_mut("objectRef")
            .and_then(Value::as_object_mut);
        let (Some(metadata), Some(reference)) = (metadata, reference) else {
            return;
        };
        for key in ["namespace", "name", "uid", "resourceVersion"] {
            if let Some(Value::String(text)) = metadata.get(key)
                && !text.is_empty()
                && !reference.contains_key(key)
            {
                reference.insert(key.to_owned(), text.clone().into());
            }
        }
    }

    fn verb(&self) -> &str {
        self.fields
            .get("verb")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn render(&self, rule: &Rule, stage: &str, code: u16) -> Value {
        let mut event = self.fields.clone();
        let mut set = |key: &str, value: Value| {
            event.insert(key.to_owned(), value);
        };
        set("kind", "Event".into());
        set("apiVersion", "audit.k8s.io/v1".into());
        set("level", policy::level_name(rule.level).into());
        set("stage", stage.into());
        set("stageTimestamp", metadata::now_to_microsecond().into());
        if stage == RECEIVED {
            event.remove("responseStatus");
            return Value::Object(event);
        }
        let mut status = self
            .fields
            .get("responseStatus")
            .cloned()
            .unwrap_or_else(|| json!({"metadata": {}}));
        status["code"] = code.into();
        if let Some(members) = status.as_object_mut() {
            members.remove("kind");
            members.remove("apiVersion");
        }
        set("responseStatus", status);
        if rule.level >= Level::Request
            && let Some(request) = &self.request
        {
            set("requestObject", rule.trim(request));
        }
        if rule.level >= Level::RequestResponse
            && let Some(response) = &self.response
        {
            set("responseObject", rule.trim(response));
        }
        let mut annotations = self.annotations.clone();
        for (key, value) in self.notes.iter().flat_map(|notes| notes.at(rule.level)) {
            // The first value of a key is kept.
            annotations.entry(key).or_insert_with(|| value.into());
        }
        if !annotations.is_empty() {
            set("annotations", Value::Object(annotations));
        }
        Value::Object(event)
    }
}
