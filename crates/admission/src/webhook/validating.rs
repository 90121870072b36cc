//! Calls validating webhooks in parallel.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/validating/dispatcher.go

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lockgate_api::admission::request::ReviewBody;
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource, ReviewVersion};
use lockgate_api::meta::status::Status;
use lockgate_api::registration::ConfigurationKind;
use tracing::Instrument as _;

use super::broken::BrokenInvariant;
use super::catch_panic::catch_panic;
use super::denial::denial;
use super::mutating::conclude;
use super::round_trip::{self, Failure};
use super::versioned::{Reviews, Versioned};
use super::{Hooks, NextStep, Relevant, after_conditions, call_span, check_conditions};
use crate::configuration::{CompiledHook, Configurations};
use crate::decision::{Cause, Decision};
use crate::host::{BoxFuture, Host};
use crate::matching::{ConditionsGate, Matcher, Selection};
use crate::plugin::{Admission, Plugin};
use crate::request::Operation;
use crate::status;
use crate::trace::{CallOutcome, CallTrace, HookTrace};

const NAME: &str = "ValidatingAdmissionWebhook";

/// The plugin `ValidatingAdmissionWebhook`.
#[derive(Debug, Clone)]
pub struct ValidatingWebhooks(Hooks);

impl ValidatingWebhooks {
    /// Creates a plugin without webhooks.
    #[must_use]
    pub fn new(host: Host) -> Self {
        let none = Configurations::new(ConfigurationKind::Validating);
        Self::with_configurations(host, Arc::new(none))
    }

    /// Creates a plugin with shared configurations.
    #[must_use]
    pub fn with_configurations(host: Host, configurations: Arc<Configurations>) -> Self {
        Self(Hooks::new(host, configurations))
    }

    /// Enables or disables match conditions.
    #[must_use]
    pub fn with_conditions(mut self, gate: ConditionsGate) -> Self {
        self.0.conditions = gate;
        self
    }

    /// Its configurations.
    #[must_use]
    pub fn configurations(&self) -> &Arc<Configurations> {
        &self.0.configurations
    }

    async fn dispatch(&self, admission: &mut Admission) -> Decision {
        let (relevant, mut matcher) = match self.0.relevant(admission).await {
            Ok(Some(relevant)) => relevant,
            Ok(None) => return Decision::Allow,
            Err(refused) => return refused,
        };
        let selected = self.select(admission, &relevant, &mut matcher).await;
        admission.running.namespace = matcher.namespace().cloned();
        let calls_to_make = match selected {
            Ok(calls_to_make) => calls_to_make,
            Err(refused) => return refused,
        };
        if calls_to_make.is_empty() {
            return Decision::Allow;
        }
        if admission.request.is_over(self.0.host.clock.now()) {
            return Decision::deny(status::request_timeout(), Cause::Timeout);
        }
        let now = self.0.host.clock.now();
        let in_progress = calls_to_make.iter().map(|pending| (pending.position, now));
        admission.in_progress.calls.extend(in_progress);
        let mut first_refusal = Decision::Allow;
        let mut rank = 0;
        call_all(
            &self.0.host,
            &calls_to_make,
            |(position, hook, mut call, lost)| {
                call.finished = rank;
                rank += 1;
                if let Some(broken) = lost {
                    first_refusal = broken.into_decision();
                } else if first_refusal.is_allowed() {
                    first_refusal = conclude(&hook, &call, NAME);
                }
                if let Some(trace) = admission.running.hooks.get_mut(position) {
                    trace.call = Some(call);
                }
                let calls = &mut admission.in_progress.calls;
                calls.retain(|(in_progress, _)| *in_progress != position);
            },
        )
        .await;
        first_refusal
    }

    /// Matches all webhooks before any is called. The first error ends it.
    async fn select(
        &self,
        admission: &mut Admission,
        relevant: &Relevant,
        matcher: &mut Matcher<'_>,
    ) -> Result<Vec<PendingCall>, Decision> {
        let mut versions: Vec<(Versioned, Reviews)> = Vec::new();
        let mut calls_to_make = Vec::new();
        let request = &admission.request;
        for position in relevant.candidates.iter() {
            let hook = relevant
                .hook(position)
                .map_err(BrokenInvariant::into_decision)?;
            let object = request.object.as_ref();
            let predicates = matcher.decide(hook, request, object).await;
            let refusal = matcher.refusal(&hook.criteria, &predicates, request, object);
            admission.running.hooks.push(HookTrace {
                hook: Arc::clone(hook),
                // Unlike mutating webhooks, these are numbered among the matching ones only.
                index: calls_to_make.len(),
                predicates,
                refusal,
                conditions: None,
                not_reinvoked: false,
                call: None,
            });
            let target = match predicates.selection() {
                Selection::Skip => continue,
                Selection::Fail => {
                    let status = matcher.failure(hook, &predicates);
                    return Err(Decision::deny(status, Cause::Matching));
                }
                Selection::Call(target) => target,
            };
            let Some((resource, kind)) = matcher.resolve(target, request) else {
                return Err(BrokenInvariant::Equivalent(hook.name().to_owned()).into_decision());
            };
            let (resource, kind) = (resource.clone(), kind.clone());
            let known = versions
                .iter()
                .position(|(versioned, _)| versioned.kind == kind);
            let known = match known {
                Some(known) => known,
                None => {
                    let versioned = Versioned::new(&*self.0.host.kinds, request, &kind).await;
                    let versioned = versioned.map_err(|error| {
                        Decision::deny(
                            Status::internal_error(&error.to_string()),
                            Cause::Conversion,
                        )
                    })?;
                    versions.push((versioned, Reviews::default()));
                    versions.len() - 1
                }
            };
            let Some((versioned, reviews)) = versions.get_mut(known) else {
                return Err(BrokenInvariant::Objects(hook.name().to_owned()).into_decision());
            };
            if self.0.has_conditions(hook) {
                let host = &self.0.host;
                let conditions = check_conditions(host, hook, request, matcher, versioned);
                let next = after_conditions(request, &conditions);
                if let Some(trace) = admission.running.hooks.last_mut() {
                    trace.conditions = Some(conditions);
                }
                match next {
                    NextStep::Call => {}
                    NextStep::Skip => continue,
                    NextStep::Deny(decision) => return Err(decision),
                }
            }
            let review = round_trip::prepare(hook, request.dry_run).map(|version| {
                (
                    version,
                    reviews.body(request, versioned, target, &resource, version),
                )
            });
            calls_to_make.push(PendingCall {
                position: admission.running.hooks.len() - 1,
                hook: Arc::clone(hook),
                resource,
                kind,
                operation: request.operation,
                subresource: request.subresource.clone(),
                deadline: request.deadline,
                review,
            });
        }
        Ok(calls_to_make)
    }
}

impl Plugin for ValidatingWebhooks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, _: Operation) -> bool {
        true
    }

    fn validates(&self) -> bool {
        true
    }

    fn validate<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(self.dispatch(admission))
    }
}

/// A pending call.
struct PendingCall {
    /// The position of its webhook in the trace.
    position: usize,
    hook: Arc<CompiledHook>,
    resource: GroupVersionResource,
    kind: GroupVersionKind,
    operation: Operation,
    subresource: String,
    deadline: Option<Instant>,
    review: Result<(ReviewVersion, Arc<ReviewBody>), Failure>,
}

/// A completed call: the position of its webhook in the trace, the webhook, the call, and the error if it was lost.
type CompletedCall = (usize, Arc<CompiledHook>, CallTrace, Option<BrokenInvariant>);

/// Calls all webhooks in parallel and waits for all, recording each call when it ends. The request's task polls all
/// calls: dropping it drops them.
async fn call_all(
    host: &Host,
    calls_to_make: &[PendingCall],
    mut ended: impl FnMut(CompletedCall),
) {
    if let [pending] = calls_to_make {
        return ended(pending.call_webhook(host).await);
    }
    let mut calls = FuturesUnordered::new();
    for pending in calls_to_make {
        calls.push(pending.call_webhook(host));
    }
    while let Some(call_result) = calls.next().await {
        ended(call_result);
    }
}

impl PendingCall {
    async fn call_webhook(&self, host: &Host) -> CompletedCall {
        let hook = Arc::clone(&self.hook);
        match catch_panic(self.call(host)).await {
            Ok(call) => (self.position, hook, call, None),
            // Panics of callers are contained elsewhere, so this is an internal error: the webhook did not decide, and
            // its failure policy does not apply.
            Err(_) => {
                let broken = BrokenInvariant::Task(hook.name().to_owned());
                let mut call = self.trace();
                call.outcome = CallOutcome::Refused(Box::new(broken.clone().into_status()));
                (self.position, hook, call, Some(broken))
            }
        }
    }

    fn trace(&self) -> CallTrace {
        CallTrace::new(self.resource.clone(), self.kind.clone(), 0)
    }

    async fn call(&self, host: &Host) -> CallTrace {
        let started = host.clock.now();
        let hook = &self.hook;
        let span = call_span!(
            "Call validating webhook",
            hook,
            self.operation,
            self.resource.resource,
            self.subresource
        );
        let mut trace = self.trace();
        let review = self.review.clone();
        let call_result = catch_panic(call_webhook(host, hook, self.deadline, review, &mut trace));
        match call_result.instrument(span).await {
            Err(panic) => {
                trace.outcome = CallOutcome::Panicked {
                    message: panic.to_string(),
                }
            }
            Ok(Err(failure)) => trace.outcome = failure.into_outcome(),
            Ok(Ok(outcome)) => trace.outcome = outcome,
        }
        trace.elapsed = host.clock.now().saturating_duration_since(started);
        trace
    }
}

async fn call_webhook(
    host: &Host,
    hook: &CompiledHook,
    deadline: Option<Instant>,
    review: Result<(ReviewVersion, Arc<ReviewBody>), Failure>,
    trace: &mut CallTrace,
) -> Result<CallOutcome, Failure> {
    let (version, body) = review?;
    trace.version = Some(version);
    let reply = round_trip::call_webhook(host, hook, deadline, &body, version, false).await;
    let answer = trace.take(reply)?;
    Ok(if answer.allowed {
        CallOutcome::Allowed
    } else {
        CallOutcome::Denied(Box::new(denial(hook.name(), answer.status)))
    })
}

#[cfg(test)]
mod tests;
