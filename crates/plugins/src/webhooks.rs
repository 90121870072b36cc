//! Rules as webhooks: their registrations and handlers.

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::meta::status::Status;
use lockgate_webhook::patch::Patch;
use lockgate_webhook::{
    BoxFuture, Context, Denial, Fault, Handler, MatchPolicy, Registration, ReinvocationPolicy,
    Response, Role, Rule, SideEffects, Webhooks,
};
use serde_json::Value;

use crate::rules::{About, Refusal, Rules, mutate, validate};

/// A registration and its handler.
pub type Hook = (Registration, Arc<dyn Handler>);

/// A plugin that can be served.
pub trait ReadyMade: Send + Sync {
    /// The name that enables and disables it in process: upstream's if it has the plugin.
    fn name(&self) -> &'static str;

    /// Its webhooks.
    fn webhooks(&self) -> Vec<Hook>;
}

impl<R: Rules + Clone> ReadyMade for R {
    fn name(&self) -> &'static str {
        Rules::name(self)
    }

    fn webhooks(&self) -> Vec<Hook> {
        let steps = [
            (Role::Mutating, self.mutates()),
            (Role::Validating, self.validates()),
        ];
        let steps = steps.into_iter().filter(|(_, about)| !about.is_empty());
        let hook = |(role, about)| -> Hook {
            let registration = registration(Rules::name(self), role, about);
            let rules = self.clone();
            (registration, Arc::new(Served { rules, role }))
        };
        steps.map(hook).collect()
    }
}

/// The webhooks of several plugins.
///
/// They are not called for requests in the exempt namespaces, which should be `kube-system` and the namespace of the
/// webhooks: an unavailable server must not block its own Pods.
#[must_use]
pub fn served(plugins: &[&dyn ReadyMade], exempt_namespaces: &[&str]) -> Webhooks {
    let mut webhooks = Webhooks::new();
    for (mut registration, handler) in plugins.iter().flat_map(|plugin| plugin.webhooks()) {
        if !exempt_namespaces.is_empty() && registration.webhook.namespace_selector.is_none() {
            registration = registration.namespace_selector(not_in(exempt_namespaces));
        }
        webhooks = webhooks.with(registration, handler);
    }
    webhooks
}

fn not_in(namespaces: &[&str]) -> LabelSelector {
    LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: String::from("kubernetes.io/metadata.name"),
            operator: String::from("NotIn"),
            values: Some(namespaces.iter().map(|&name| name.to_owned()).collect()),
        }]),
    }
}

fn registration(name: &str, role: Role, about: &[About]) -> Registration {
    let word = kebab(name);
    let full = format!("{word}.plugins.lockgate.io");
    let mut registration = match role {
        // It is reinvoked when others change the object afterwards.
        Role::Mutating => Registration::mutating(full)
            .path(format!("/{word}/mutate"))
            .reinvocation_policy(ReinvocationPolicy::IfNeeded),
        Role::Validating => Registration::validating(full).path(format!("/{word}/validate")),
    };
    registration = registration.admission_review_versions(&["v1", "v1beta1"]);
    for about in about {
        let rule = Rule::resources(about.resources.iter().copied()).groups([about.group]);
        registration = registration
            .rule(rule.operations(about.operations.iter().copied().map(convert_operation)));
    }
    match name {
        // Events of `events.k8s.io` are of another kind, which upstream does not limit; the call has the side effect of
        // taking tokens.
        "EventRateLimit" => registration
            .match_policy(MatchPolicy::Exact)
            .side_effects(SideEffects::NoneOnDryRun),
        // Exempt namespaces would not be protected.
        "NamespaceProtection" => registration.namespace_selector(LabelSelector::default()),
        _ => registration,
    }
}

/// Converts `PodNodeSelector` to `pod-node-selector`.
fn kebab(name: &str) -> String {
    let letters = name.as_bytes();
    let is_small = |at: usize| letters.get(at).is_some_and(u8::is_ascii_lowercase);
    let mut word = String::with_capacity(name.len() + 8);
    for (at, letter) in name.char_indices() {
        // A new word, or the end of an abbreviation, including a plural `s`.
        let after_abbreviation = is_small(at + 1) && at + 2 != letters.len();
        let begins = at > 0 && (is_small(at - 1) || after_abbreviation);
        if letter.is_ascii_uppercase() && begins {
            word.push('-');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

fn convert_operation(operation: Operation) -> lockgate_webhook::Operation {
    match operation {
        Operation::Create => lockgate_webhook::Operation::Create,
        Operation::Update => lockgate_webhook::Operation::Update,
        Operation::Delete => lockgate_webhook::Operation::Delete,
        Operation::Connect => lockgate_webhook::Operation::Connect,
    }
}

/// Handles reviews with rules.
struct Served<R> {
    rules: R,
    role: Role,
}

impl<R: Rules> Handler for Served<R> {
    fn handle<'f>(&'f self, ctx: &'f Context) -> BoxFuture<'f, Result<Response, Fault>> {
        Box::pin(self.answer(ctx))
    }
}

impl<R: Rules> Served<R> {
    async fn answer(&self, ctx: &Context) -> Result<Response, Fault> {
        let mut ask = match request(ctx) {
            Ok(request) => Admission::new(request),
            Err(lockgate_webhook::Refusal::Denied(denial)) => return Ok(Response::deny(*denial)),
            Err(lockgate_webhook::Refusal::Fault(fault)) => return Err(fault),
        };
        let before = ask.request().object.clone();
        let verdict = match self.role {
            Role::Mutating => mutate(&self.rules, &mut ask).await,
            Role::Validating => validate(&self.rules, &mut ask).await,
        };
        let mut response = match verdict {
            Err(refusal) => Response::deny(denial(refusal)?),
            Ok(()) => match (before, &ask.request().object, self.role) {
                (Some(before), Some(after), Role::Mutating) => {
                    Response::patch(Patch::between(before.value(), after.value()))
                }
                _ => Response::allow(),
            },
        };
        let remarks = ask.take_remarks();
        for warning in remarks.warnings {
            response = response.warning(warning);
        }
        for (key, value, _) in remarks.annotations {
            // The server adds the webhook's name as prefix, and a key may have one slash.
            let key = key.rsplit('/').next().unwrap_or_default();
            response = response.audit_annotation(key, value);
        }
        Ok(response)
    }
}

/// Converts a review to a request.
fn request(ctx: &Context) -> Result<Request, lockgate_webhook::Refusal> {
    let name = ctx.operation().as_str();
    let operation = Operation::from_name(name)
        .ok_or_else(|| Denial::bad_request(format!("operation `{name}` is not known")))?;
    let mut request = Request::new(operation, ctx.kind().clone(), ctx.resource().clone());
    ctx.sub_resource().clone_into(&mut request.subresource);
    ctx.name().clone_into(&mut request.name);
    ctx.namespace().clone_into(&mut request.namespace);
    request.user = ctx.user().clone();
    request.object = ctx
        .object::<Value>()?
        .map(|object| object.into_inner().into());
    request.old_object = ctx
        .old_object::<Value>()?
        .map(|object| object.into_inner().into());
    request.options = ctx
        .options::<Value>()?
        .map(|options| options.into_inner().into());
    request.dry_run = ctx.is_dry_run();
    request.deadline = ctx.deadline();
    Ok(request)
}

/// Converts to a webhook denial: the server adds the object's name.
fn denial(refusal: Refusal) -> Result<Denial, Fault> {
    Ok(match refusal {
        Refusal::Forbidden(text, causes) => {
            let mut denial = Denial::forbidden(text);
            for cause in causes {
                denial = denial.cause(cause.reason, cause.field, cause.message);
            }
            denial
        }
        Refusal::Status(status) => {
            let Status {
                code,
                reason,
                message,
                details,
                ..
            } = *status;
            let code = u16::try_from(code).unwrap_or(500);
            let mut denial = Denial::new(code, &reason, message);
            for cause in details
                .and_then(|details| details.causes)
                .into_iter()
                .flatten()
            {
                denial = denial.cause(cause.reason, cause.field, cause.message);
            }
            denial
        }
        Refusal::Plain(text) => Denial::new(500, "InternalError", text),
        Refusal::Fault(text) => return Err(Fault::new(text)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_from_names() {
        for (name, want) in [
            ("LimitRanger", "limit-ranger"),
            ("DenyServiceExternalIPs", "deny-service-external-ips"),
            ("ExternalIPRanger", "external-ip-ranger"),
            ("ImagePolicyWebhook", "image-policy-webhook"),
        ] {
            assert_eq!(kebab(name), want);
        }
    }
}
