//! In-process webhooks: an engine plugin that calls custom webhooks written with `lockgate-webhook`. The plugins of
//! this crate do not use it.
//!
//! A webhook is called for the requests that match its registration, with the review it would receive over HTTP. Its
//! response has the effect of an in-process plugin: a 403 reads `pods "x" is forbidden: …`, a fault is an internal
//! error.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use lockgate_admission::audit::Level;
use lockgate_admission::configuration::{Configurations, Snapshot};
use lockgate_admission::decision::{Cause, Decision};
use lockgate_admission::host::{BoxFuture, DecodeError, Host};
use lockgate_admission::json_patch::{self, Patch};
use lockgate_admission::matching::{Matcher, Selection};
use lockgate_admission::object::Object;
use lockgate_admission::plugin::{Admission, Plugin};
use lockgate_admission::request::{Operation, Request};
use lockgate_admission::status::forbidden_request;
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::status::Status;
use lockgate_api::registration::{Configuration, ConfigurationKind};
use lockgate_go::json;
use lockgate_webhook::{Denial, Response, Role, Webhook};

use crate::config::ConfigError;

/// Webhooks to call in process.
#[derive(Clone)]
pub struct InProcess {
    name: &'static str,
    mutating: Hooks,
    validating: Hooks,
    host: Host,
}

/// Webhooks of one kind, and their compiled rules; both in the same order.
#[derive(Clone)]
struct Hooks {
    webhooks: Arc<[Webhook]>,
    compiled: Arc<Snapshot>,
}

impl InProcess {
    /// Creates a plugin from webhooks; the name enables and disables it.
    ///
    /// # Errors
    ///
    /// Fails if a webhook has match conditions, which only the engine's webhook dispatch evaluates.
    pub fn new(
        name: &'static str,
        webhooks: impl IntoIterator<Item = Webhook>,
        host: Host,
    ) -> Result<Self, ConfigError> {
        let webhooks: Vec<Webhook> = webhooks.into_iter().collect();
        for webhook in &webhooks {
            let registered = &webhook.registration().webhook;
            if registered
                .match_conditions
                .iter()
                .flatten()
                .next()
                .is_some()
            {
                let name = &registered.name;
                return Err(ConfigError(format!(
                    "webhook {name} has match conditions, which are not evaluated in process"
                )));
            }
        }
        let of = |role: Role| {
            let webhooks = webhooks
                .iter()
                .filter(|webhook| webhook.registration().role == role);
            Hooks::new(role, webhooks.cloned().collect())
        };
        Ok(Self {
            name,
            mutating: of(Role::Mutating),
            validating: of(Role::Validating),
            host,
        })
    }

    /// Calls the webhooks of one kind, each with the result of the previous ones.
    async fn ask(&self, hooks: &Hooks, admission: &mut Admission) -> Decision {
        let mut matcher = Matcher::new(&self.host, admission.request());
        for (webhook, compiled) in hooks.webhooks.iter().zip(hooks.compiled.hooks()) {
            let request = admission.request();
            let object = request.object.as_ref();
            let predicates = matcher.decide(compiled, request, object).await;
            match predicates.selection() {
                Selection::Skip => continue,
                Selection::Call(_) => {}
                Selection::Fail => {
                    let message = format!("{} could not be matched", compiled.name());
                    return Decision::deny(Status::internal_error(&message), Cause::Matching);
                }
            }
            let review = review(request, &self.host.ids.uid());
            let answered = webhook.answer(review, request.deadline).await;
            let response = match answered.outcome {
                Ok(response) => response,
                Err(error) => {
                    let status = Status::internal_error(&error.to_string());
                    return Decision::deny(status, Cause::Internal);
                }
            };
            if let Some(decision) = self.take(compiled.name(), &response, admission) {
                return decision;
            }
        }
        Decision::Allow
    }

    /// Applies a response, and decides if it ends the request.
    fn take(
        &self,
        webhook: &str,
        response: &Response,
        admission: &mut Admission,
    ) -> Option<Decision> {
        for warning in response.warnings() {
            admission.warn(warning);
        }
        for (key, value) in response.audit_annotations() {
            admission.annotate(format!("{webhook}/{key}"), value, Level::Metadata);
        }
        if let Some(denial) = response.denial() {
            let status = status(admission.request(), denial);
            return Some(Decision::deny(status, Cause::Plugin));
        }
        if response.changes().is_empty() {
            return None;
        }
        match self.patched(admission.request(), response) {
            Ok(object) => admission.set_object(object),
            Err(error) => {
                let status = Status::internal_error(&error.to_string());
                return Some(Decision::deny(status, Cause::Patch));
            }
        }
        None
    }

    /// The object with the patch of a response, and the defaults of added fields.
    fn patched(&self, request: &Request, response: &Response) -> Result<Object, PatchError> {
        let Some(object) = &request.object else {
            return Err(PatchError::NoObject);
        };
        let text = json::to_string(response.changes());
        let patch = Patch::parse(text.as_bytes())?;
        let patched = patch.apply(object.value())?;
        let mut patched = self.host.kinds.decode(patched, &request.kind)?;
        self.host.kinds.complete(&mut patched, &request.kind);
        // Plugins change objects in place: unencoded fields are preserved.
        let unwritten = object.unwritten().cloned();
        Ok(Object::with_unwritten(patched, unwritten))
    }
}

/// A patch that cannot be applied.
#[derive(Debug, thiserror::Error)]
enum PatchError {
    #[error("the request has no object to change")]
    NoObject,
    #[error(transparent)]
    Syntax(#[from] json_patch::DecodeError),
    #[error(transparent)]
    Apply(#[from] json_patch::ApplyError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl Hooks {
    fn new(role: Role, webhooks: Vec<Webhook>) -> Self {
        let kind = match role {
            Role::Mutating => ConfigurationKind::Mutating,
            Role::Validating => ConfigurationKind::Validating,
        };
        let registered = webhooks.iter().map(|webhook| {
            let mut registered = webhook.registration().webhook.clone();
            // Other versions would require conversion; in-process plugins receive one version.
            registered.match_policy = Some(String::from("Exact"));
            // Defaulting as in the API: an absent selector would match nothing.
            registered.namespace_selector.get_or_insert_default();
            registered.object_selector.get_or_insert_default();
            registered
        });
        let configurations = Configurations::new(kind);
        configurations.upsert(&Configuration {
            kind,
            metadata: ObjectMeta::default(),
            webhooks: Some(registered.collect()),
        });
        Self {
            webhooks: webhooks.into(),
            compiled: configurations.snapshot(),
        }
    }
}

/// A denial, in the format of an in-process plugin.
fn status(request: &Request, denial: &Denial) -> Status {
    let said = denial.status();
    let mut status = if said.code == 403 && said.reason == "Forbidden" {
        forbidden_request(request, &said.message)
    } else {
        said.clone()
    };
    status.kind = String::from("Status");
    status.api_version = String::from("v1");
    if let Some(causes) = said
        .details
        .as_ref()
        .and_then(|details| details.causes.clone())
    {
        status.details.get_or_insert_default().causes = Some(causes);
    }
    status
}

/// The review of a request, with its objects as encoded JSON.
fn review(request: &Request, uid: &str) -> Bytes {
    let text = |object: &Option<Object>| match object {
        Some(object) => object.text().to_owned(),
        None => String::from("null"),
    };
    let kind = &request.kind;
    let resource = &request.resource;
    let facts = [
        ("uid", json::to_string(uid)),
        ("kind", json::to_string(kind)),
        ("resource", json::to_string(resource)),
        ("subResource", json::to_string(&request.subresource)),
        ("requestKind", json::to_string(kind)),
        ("requestResource", json::to_string(resource)),
        ("requestSubResource", json::to_string(&request.subresource)),
        ("name", json::to_string(&request.name)),
        ("namespace", json::to_string(&request.namespace)),
        ("operation", json::to_string(request.operation.name())),
        ("userInfo", json::to_string(&request.user)),
        ("dryRun", json::to_string(&request.dry_run)),
        ("object", text(&request.object)),
        ("oldObject", text(&request.old_object)),
        ("options", text(&request.options)),
    ];
    let facts: Vec<String> = facts
        .iter()
        .map(|(name, text)| format!("\"{name}\":{text}"))
        .collect();
    let facts = facts.join(",");
    Bytes::from(format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{{facts}}}}}"#
    ))
}

impl Plugin for InProcess {
    fn name(&self) -> &'static str {
        self.name
    }

    fn handles(&self, operation: Operation) -> bool {
        let hooks = self
            .mutating
            .webhooks
            .iter()
            .chain(self.validating.webhooks.iter());
        let mut rules =
            hooks.flat_map(|webhook| webhook.registration().webhook.rules.iter().flatten());
        rules.any(|rule| {
            let mut names = rule.operations.iter().flatten();
            names.any(|name| name == "*" || name == operation.name())
        })
    }

    fn admits(&self) -> bool {
        !self.mutating.webhooks.is_empty()
    }

    fn validates(&self) -> bool {
        !self.validating.webhooks.is_empty()
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(self.ask(&self.mutating, admission))
    }

    fn validate<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(self.ask(&self.validating, admission))
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InProcess").field(&self.name).finish()
    }
}
