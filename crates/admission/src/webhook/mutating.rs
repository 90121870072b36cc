//! Calls mutating webhooks one after another.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go

use std::sync::Arc;

use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_api::meta::status::Status;
use lockgate_api::registration::ConfigurationKind;
use tracing::Instrument as _;

use super::broken::BrokenInvariant;
use super::catch_panic::catch_panic;
use super::denial::denial;
use super::round_trip::{self, Failure, Reply, failed_call};
use super::versioned::{Reviews, Versioned, convert};
use super::{Hooks, NextStep, Relevant, after_conditions, call_span, check_conditions, patch};
use crate::conditions::ConditionInputs;
use crate::configuration::{CompiledHook, Configurations, FailurePolicy};
use crate::decision::{Cause, Decision};
use crate::host::{BoxFuture, ConvertError, Host};
use crate::matching::{ConditionsGate, Matcher, Selection, Target};
use crate::object::Object;
use crate::plugin::{Admission, Plugin};
use crate::request::{Operation, Request};
use crate::status;
use crate::trace::{CallOutcome, CallTrace, Change, HookTrace, PatchTrace};

/// The plugin `MutatingAdmissionWebhook`.
#[derive(Debug, Clone)]
pub struct MutatingWebhooks(Hooks);

impl MutatingWebhooks {
    /// Creates a plugin without webhooks.
    #[must_use]
    pub fn new(host: Host) -> Self {
        let none = Configurations::new(ConfigurationKind::Mutating);
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
        let (relevant, matcher) = match self.0.relevant(admission).await {
            Ok(Some(relevant)) => relevant,
            Ok(None) => {
                // Nothing is called, but the second round must know the initial object.
                admission
                    .reinvocation
                    .leave(admission.request.object.as_ref());
                return Decision::Allow;
            }
            Err(refused) => return refused,
        };
        let kinds = Arc::clone(&self.0.host.kinds);
        let request = &admission.request;
        admission
            .reinvocation
            .enter(|last| match (last, &request.object) {
                (None, None) => false,
                (Some(last), Some(now)) => {
                    !last.same(now)
                        && !kinds.semantically_equal(&request.kind, last.value(), now.value())
                }
                _ => true,
            });
        let mut pass = Pass {
            hooks: &self.0,
            host: &self.0.host,
            matcher,
            versioned: None,
            facts: Vec::new(),
            dirty: false,
            reviews: Reviews::default(),
            calls: 0,
        };
        let mut decision = pass.run(admission, &relevant).await;
        if decision.is_allowed() {
            decision = pass.write_back(&mut admission.request).await;
        }
        admission.running.namespace = pass.matcher.namespace().cloned();
        admission
            .reinvocation
            .leave(admission.request.object.as_ref());
        decision
    }
}

impl Plugin for MutatingWebhooks {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn handles(&self, _: Operation) -> bool {
        true
    }

    fn admits(&self) -> bool {
        true
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(self.dispatch(admission))
    }
}

/// One pass over the webhooks.
struct Pass<'p> {
    hooks: &'p Hooks,
    host: &'p Host,
    matcher: Matcher<'p>,
    /// The objects in the version of the last webhook.
    versioned: Option<Versioned>,
    /// The variables of match conditions in the versions of earlier webhooks.
    facts: Vec<(GroupVersionKind, ConditionInputs)>,
    /// True if the versioned object is newer than the request's.
    dirty: bool,
    reviews: Reviews,
    calls: usize,
}

impl Pass<'_> {
    async fn run(&mut self, admission: &mut Admission, relevant: &Relevant) -> Decision {
        for position in relevant.candidates.iter() {
            let hook = match relevant.hook(position) {
                Ok(hook) => hook,
                Err(broken) => return broken.into_decision(),
            };
            let object = self.current(&admission.request).cloned();
            let request = &admission.request;
            let predicates = self.matcher.decide(hook, request, object.as_ref()).await;
            let criteria = &hook.criteria;
            let refusal = self
                .matcher
                .refusal(criteria, &predicates, request, object.as_ref());
            admission.running.hooks.push(HookTrace {
                hook: Arc::clone(hook),
                index: position,
                predicates,
                refusal,
                conditions: None,
                not_reinvoked: false,
                call: None,
            });
            let target = match predicates.selection() {
                Selection::Skip => continue,
                Selection::Fail => {
                    let status = self.matcher.failure(hook, &predicates);
                    return Decision::deny(status, Cause::Matching);
                }
                Selection::Call(target) => target,
            };
            let is_due = admission.reinvocation.is_due(hook);
            let has_conditions = self.hooks.has_conditions(hook);
            if !is_due && !has_conditions {
                note_not_reinvoked(admission);
                continue;
            }
            let (resource, kind) = match self.matcher.resolve(target, &admission.request) {
                Some((resource, kind)) => (resource.clone(), kind.clone()),
                None => return BrokenInvariant::Equivalent(hook.name().to_owned()).into_decision(),
            };
            if let Err(error) = self.convert_to(&mut admission.request, &kind).await {
                return Decision::deny(
                    double_internal_error(&error.to_string()),
                    Cause::Conversion,
                );
            }
            if has_conditions {
                let Some(versioned) = &mut self.versioned else {
                    return BrokenInvariant::Objects(hook.name().to_owned()).into_decision();
                };
                let (request, matcher) = (&admission.request, &mut self.matcher);
                let conditions = check_conditions(self.host, hook, request, matcher, versioned);
                let next = after_conditions(&admission.request, &conditions);
                if let Some(trace) = admission.running.hooks.last_mut() {
                    trace.conditions = Some(conditions);
                }
                match next {
                    NextStep::Call => {}
                    NextStep::Skip => continue,
                    NextStep::Deny(decision) => return decision,
                }
            }
            if !is_due {
                note_not_reinvoked(admission);
                continue;
            }
            let position = admission.running.hooks.len().saturating_sub(1);
            let in_progress = (position, self.host.clock.now());
            admission.in_progress.calls.push(in_progress);
            let mut call = self
                .call(hook, &admission.request, target, resource, kind)
                .await;
            admission.in_progress.calls.clear();
            if let Some(patch) = &mut call.patch {
                patch.changed |= std::mem::take(&mut admission.request.fine_times);
            }
            let changed = call.patch.as_ref().is_some_and(|patch| patch.changed);
            admission.reinvocation.record_call(hook, changed);
            let decision = self.conclude(hook, &admission.request, &call);
            if let Some(trace) = admission.running.hooks.last_mut() {
                trace.call = Some(call);
            }
            if !decision.is_allowed() {
                return decision;
            }
        }
        Decision::Allow
    }

    /// The current object.
    fn current<'c>(&'c self, request: &'c Request) -> Option<&'c Object> {
        let versioned = self
            .versioned
            .as_ref()
            .and_then(|versioned| versioned.object.as_ref());
        versioned.or(request.object.as_ref())
    }

    /// Converts the objects to a webhook's version. A changed object is converted through the version of the request.
    async fn convert_to(
        &mut self,
        request: &mut Request,
        kind: &GroupVersionKind,
    ) -> Result<(), ConvertError> {
        if self
            .versioned
            .as_ref()
            .is_some_and(|versioned| versioned.kind == *kind)
        {
            return Ok(());
        }
        let kinds = &*self.host.kinds;
        if let Some(object) = self.versioned.as_ref().and_then(|v| v.object.as_ref())
            && self.dirty
        {
            let object = convert(kinds, object, &request.kind).await?;
            request.set_patched(object);
        }
        let mut versioned = Versioned::new(kinds, request, kind).await?;
        let known = self.facts.iter().position(|(known, _)| known == kind);
        versioned.facts = known.map(|at| self.facts.swap_remove(at).1);
        if let Some(mut before) = self.versioned.replace(versioned)
            && let Some(mut facts) = before.facts.take()
        {
            // The object may change before its version is needed again.
            facts.forget();
            self.facts.push((before.kind, facts));
        }
        self.dirty = false;
        self.reviews.clear();
        Ok(())
    }

    /// Sets the object after mutation on the request.
    async fn write_back(&mut self, request: &mut Request) -> Decision {
        let versioned = self
            .versioned
            .as_ref()
            .and_then(|versioned| versioned.object.as_ref());
        let Some(object) = versioned.filter(|_| self.dirty) else {
            return Decision::Allow;
        };
        match convert(&*self.host.kinds, object, &request.kind).await {
            Ok(object) => {
                request.set_patched(object);
                Decision::Allow
            }
            Err(error) => Decision::deny(status::raw_error(error.to_string()), Cause::Conversion),
        }
    }

    /// Calls one webhook and applies its patch.
    async fn call(
        &mut self,
        hook: &Arc<CompiledHook>,
        request: &Request,
        target: Target,
        resource: GroupVersionResource,
        kind: GroupVersionKind,
    ) -> CallTrace {
        let started = self.host.clock.now();
        let span = call_span!(
            "Call mutating webhook",
            hook,
            request.operation,
            resource.resource,
            request.subresource
        );
        let mut trace = CallTrace::new(resource, kind, self.calls);
        self.calls += 1;
        let call_result = catch_panic(self.call_webhook(hook, request, target, &mut trace));
        match call_result.instrument(span).await {
            Err(panic) => {
                trace.outcome = CallOutcome::Panicked {
                    message: panic.to_string(),
                }
            }
            Ok(Err(failure)) => trace.outcome = failure.into_outcome(),
            Ok(Ok(patched)) => {
                if let Some((object, patch)) = patched {
                    match &mut self.versioned {
                        Some(versioned) => {
                            // Shared objects are copied when they change.
                            if self.matcher.is_recording() {
                                let before = versioned.object.clone();
                                trace.change = before.map(|before| Change {
                                    before,
                                    after: object.clone(),
                                });
                            }
                            versioned.replace_object(object);
                        }
                        None => {
                            let broken = BrokenInvariant::Objects(hook.name().to_owned());
                            trace.outcome = CallOutcome::Refused(Box::new(broken.into_status()));
                        }
                    }
                    self.dirty = true;
                    self.reviews.clear();
                    trace.patch = Some(patch);
                }
            }
        }
        trace.elapsed = self.host.clock.now().saturating_duration_since(started);
        trace
    }

    async fn call_webhook(
        &mut self,
        hook: &Arc<CompiledHook>,
        request: &Request,
        target: Target,
        trace: &mut CallTrace,
    ) -> Result<Option<(Object, PatchTrace)>, Failure> {
        let Some(versioned) = &self.versioned else {
            let broken = BrokenInvariant::Objects(hook.name().to_owned());
            return Err(Failure::Refused(Box::new(broken.into_status())));
        };
        let version = round_trip::prepare(hook, request.dry_run)?;
        trace.version = Some(version);
        let body = self
            .reviews
            .body(request, versioned, target, &trace.resource, version);
        let deadline = request.deadline;
        let reply = round_trip::call_webhook(self.host, hook, deadline, &body, version, true).await;
        let answer = trace.take(reply)?;
        if !answer.allowed {
            trace.outcome = CallOutcome::Denied(Box::new(denial(hook.name(), answer.status)));
            return Ok(None);
        }
        let (object, kind) = (versioned.object.as_ref(), &versioned.kind);
        let told = (kind, &trace.resource);
        let patched = patch::apply(hook.name(), &answer, object, told, &*self.host.kinds)?;
        if patched.is_some() {
            tracing::debug!("Patch applied");
        }
        Ok(patched)
    }

    /// Derives the decision from a call.
    fn conclude(&self, hook: &CompiledHook, request: &Request, call: &CallTrace) -> Decision {
        if call.failed_open(hook.failure_policy()) {
            // The deadline of the entire request may have expired, not only that of this call.
            if request.is_over(self.host.clock.now()) {
                return Decision::deny(status::request_timeout(), Cause::Timeout);
            }
            return Decision::Allow;
        }
        conclude(hook, call, "MutatingAdmissionWebhook")
    }
}

/// Derives the decision from a call that did not fail open.
pub(super) fn conclude(hook: &CompiledHook, call: &CallTrace, plugin: &str) -> Decision {
    match &call.outcome {
        CallOutcome::Allowed => Decision::Allow,
        CallOutcome::Denied(status) => Decision::deny((**status).clone(), Cause::Webhook),
        CallOutcome::Refused(status) => {
            let cause = if status.code == 400 {
                Cause::SideEffects
            } else {
                Cause::Patch
            };
            Decision::deny((**status).clone(), cause)
        }
        _ if hook.failure_policy() == FailurePolicy::Ignore => Decision::Allow,
        CallOutcome::Failed { reason, .. } => {
            Decision::deny(failed_call(hook.name(), reason), Cause::CallFailed)
        }
        // The client disconnected.
        CallOutcome::Canceled => Decision::deny(status::request_timeout(), Cause::Canceled),
        CallOutcome::Panicked { message } => {
            let message = format!("{plugin}/{} has panicked: {message}", hook.name());
            Decision::deny(Status::internal_error(&message), Cause::Internal)
        }
    }
}

fn note_not_reinvoked(admission: &mut Admission) {
    if let Some(trace) = admission.running.hooks.last_mut() {
        trace.not_reinvoked = true;
    }
}

/// Upstream wraps this error twice: in the conversion and in the dispatcher.
fn double_internal_error(error: &str) -> Status {
    Status::internal_error(&Status::internal_error(error).message)
}

impl CallTrace {
    pub(crate) fn new(
        resource: GroupVersionResource,
        kind: GroupVersionKind,
        finished: usize,
    ) -> Self {
        Self {
            uid: String::new(),
            version: None,
            resource,
            kind,
            elapsed: std::time::Duration::ZERO,
            round_trip: std::time::Duration::ZERO,
            allowed_time: None,
            phases: Vec::new(),
            outcome: CallOutcome::Allowed,
            patch: None,
            change: None,
            warnings: Vec::new(),
            annotations: std::collections::BTreeMap::new(),
            finished,
        }
    }

    /// Records the outcome of the call. Denials may have warnings and annotations too.
    pub(super) fn take(
        &mut self,
        reply: Reply,
    ) -> Result<lockgate_api::admission::response::AdmissionDecision, Failure> {
        self.uid = reply.uid;
        self.allowed_time = reply.allowed_time;
        self.round_trip = reply.took;
        self.phases = reply.phases;
        let mut answer = reply.result?;
        self.warnings = std::mem::take(&mut answer.warnings);
        self.annotations = std::mem::take(&mut answer.audit_annotations);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
