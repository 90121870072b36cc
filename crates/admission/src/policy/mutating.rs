//! Runs mutating policies one after another.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/mutating/dispatcher.go and
//! pkg/admission/plugin/policy/generic/policy_dispatcher.go

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use lockgate_api::meta::status::{Status, StatusCause};
use lockgate_api::registration::policy::PolicyKind;
use lockgate_go::quote::quote;

use super::mutation::{MutationError, Subject, shown};
use super::version::Versions;
use super::{Plugin, Run, misconfigured};
use crate::conditions::{ConditionsVerdict, ExpressionRole};
use crate::configuration::{BoundPolicy, CompiledBinding, CompiledPolicy, FailurePolicy, Policies};
use crate::decision::{Cause, Decision};
use crate::host::{BoxFuture, Host, Param};
use crate::matching::Target;
use crate::object::Object;
use crate::plugin::{self, Admission};
use crate::reinvocation::PolicyKey;
use crate::request::{Operation, Request};
use crate::status;
use crate::trace::{
    BindingTrace, Change, Enforcement, EvaluationTrace, PolicyOutcome, PolicyTrace,
};
use crate::webhook::convert;

/// The plugin `MutatingAdmissionPolicy`.
#[derive(Debug, Clone)]
pub struct MutatingPolicies(Plugin);

impl MutatingPolicies {
    /// Creates a plugin without policies.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self::with_policies(host, Arc::new(Policies::new(PolicyKind::Mutating)))
    }

    /// The same, for externally managed policies.
    #[must_use]
    pub fn with_policies(host: Host, policies: Arc<Policies>) -> Self {
        Self(Plugin { host, policies })
    }

    async fn dispatch(&self, admission: &mut Admission) -> Decision {
        let run = match self.0.begin(admission).await {
            Ok(Some(run)) => run,
            Ok(None) => return Decision::Allow,
            Err(refused) => return refused,
        };
        let mut pass = Pass {
            run,
            versions: Versions::default(),
            errors: Vec::new(),
            invocations: Vec::new(),
            last: None,
        };
        // Matching of all policies uses the original object.
        pass.select(admission).await;
        let decision = pass.mutate(admission).await;
        admission.running.namespace = pass.run.matcher.namespace().cloned();
        decision
    }
}

impl plugin::Plugin for MutatingPolicies {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation != Operation::Delete
    }

    fn admits(&self) -> bool {
        true
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(self.dispatch(admission))
    }
}

/// A policy, a binding and parameters that apply to a request.
struct Invocation {
    policy: Arc<CompiledPolicy>,
    binding: CompiledBinding,
    param: Option<Arc<Param>>,
    version: usize,
    /// The position in the trace: policy, binding and evaluation.
    told: (usize, usize, usize),
}

impl Invocation {
    fn key(&self) -> PolicyKey {
        let param = self.param.as_ref();
        let param = param.map(|param| (param.namespace.clone(), param.name.clone()));
        (
            self.policy.name().to_owned(),
            self.binding.name().to_owned(),
            param,
        )
    }
}

/// An error of a policy with the failure policy `Fail`.
struct PolicyError {
    policy: Arc<CompiledPolicy>,
    binding: Option<CompiledBinding>,
    message: String,
    reason: Option<&'static str>,
}

impl PolicyError {
    fn text(&self) -> String {
        match &self.binding {
            Some(binding) => format!(
                "policy '{}' with binding '{}' denied request: {}",
                self.policy.name(),
                binding.name(),
                self.message
            ),
            None => format!(
                "policy {} denied request: {}",
                quote(self.policy.name()),
                self.message
            ),
        }
    }
}

struct Pass<'p> {
    run: Run<'p>,
    versions: Versions,
    errors: Vec<PolicyError>,
    invocations: Vec<Invocation>,
    /// The last mutated version.
    last: Option<usize>,
}

impl Pass<'_> {
    fn fail(
        &mut self,
        policy: &Arc<CompiledPolicy>,
        binding: Option<&CompiledBinding>,
        message: String,
        reason: Option<&'static str>,
    ) {
        if policy.failure_policy() == FailurePolicy::Fail {
            self.errors.push(PolicyError {
                policy: Arc::clone(policy),
                binding: binding.cloned(),
                message,
                reason,
            });
        }
    }

    fn misconfigured(
        &mut self,
        policy: &Arc<CompiledPolicy>,
        binding: Option<&CompiledBinding>,
        why: &str,
    ) -> Option<String> {
        let message = misconfigured(binding, why);
        self.fail(policy, binding, message.clone(), None);
        Some(message)
    }

    async fn select(&mut self, admission: &mut Admission) {
        let candidates = self.run.candidates.clone();
        for position in candidates.iter() {
            let snapshot = Arc::clone(&self.run.snapshot);
            let Some(bound) = snapshot.policies().get(position) else {
                continue;
            };
            let mut trace = PolicyTrace::new(&bound.policy);
            let at = admission.running.policies.len();
            self.select_policy(&admission.request, bound, &mut trace, at)
                .await;
            admission.running.policies.push(trace);
        }
    }

    async fn select_policy(
        &mut self,
        request: &Request,
        bound: &BoundPolicy,
        trace: &mut PolicyTrace,
        at: usize,
    ) {
        let policy = &bound.policy;
        let target = match self.run.select(policy, request, trace).await {
            Ok(Some(target)) => target,
            Ok(None) => return,
            Err(why) => {
                trace.failure = self.misconfigured(policy, None, &why);
                return;
            }
        };
        for binding in bound.bindings.iter() {
            let told = self
                .select_binding(request, policy, binding, target, (at, trace.bindings.len()))
                .await;
            trace.bindings.push(told);
        }
    }

    async fn select_binding(
        &mut self,
        request: &Request,
        policy: &Arc<CompiledPolicy>,
        binding: &CompiledBinding,
        target: Target,
        (policy_at, binding_at): (usize, usize),
    ) -> BindingTrace {
        let (mut trace, applies) = self.run.select_binding(binding, request).await;
        if applies != Ok(true) {
            if let Err(why) = applies {
                trace.failure = self.misconfigured(policy, Some(binding), &why);
            }
            return trace;
        }
        let kinds = &*self.run.host.kinds;
        let version = self
            .versions
            .get(kinds, &mut self.run.matcher, request, target)
            .await;
        let version = match version {
            Ok(version) => version,
            Err(why) => {
                trace.failure = self.misconfigured(policy, None, &why.to_string());
                return trace;
            }
        };
        let namespace = &request.namespace;
        let params = self.run.params.collect(policy, binding, namespace).await;
        match params {
            Err(why) => trace.failure = self.misconfigured(policy, Some(binding), &why.to_string()),
            Ok(params) => {
                for param in params {
                    let named = param.as_ref();
                    let named = named.map(|param| (param.namespace.clone(), param.name.clone()));
                    self.invocations.push(Invocation {
                        policy: Arc::clone(policy),
                        binding: binding.clone(),
                        param,
                        version,
                        told: (policy_at, binding_at, trace.evaluations.len()),
                    });
                    trace.evaluations.push(EvaluationTrace {
                        param: named,
                        conditions: None,
                        not_reinvoked: false,
                        outcomes: Vec::new(),
                        expressions: Vec::new(),
                        change: None,
                    });
                }
            }
        }
        trace
    }

    async fn mutate(&mut self, admission: &mut Admission) -> Decision {
        let invocations = std::mem::take(&mut self.invocations);
        if !invocations.is_empty() {
            self.enter(admission);
            let outcome = self.invoke(admission, &invocations).await;
            let object = admission.request.object.clone();
            admission.policy_reinvocation.leave(object.as_ref());
            if let Err(decision) = outcome {
                return decision;
            }
        }
        self.conclude(&admission.request)
    }

    /// In the second round, changes by plugins since the first reinvoke all reinvocable policies.
    fn enter(&self, admission: &mut Admission) {
        if !admission.is_reinvocation() {
            return;
        }
        let request = &admission.request;
        let last = admission.policy_reinvocation.last();
        let changed = match (last, &request.object) {
            (None, None) => false,
            (Some(last), Some(now)) => !self.is_unchanged(request, last, now),
            _ => true,
        };
        if changed {
            admission.policy_reinvocation.rerun();
        }
    }

    fn is_unchanged(&self, request: &Request, one: &Object, other: &Object) -> bool {
        let kinds = &self.run.host.kinds;
        one.same(other) || kinds.semantically_equal(&request.kind, one.value(), other.value())
    }

    async fn invoke(
        &mut self,
        admission: &mut Admission,
        invocations: &[Invocation],
    ) -> Result<(), Decision> {
        let looks = |invocation: &Invocation| invocation.policy.looks_at_namespace;
        let looks = invocations.iter().any(looks);
        let namespace = self.run.namespace(&admission.request, looks).await?;
        for invocation in invocations {
            let policy = &invocation.policy;
            let params = invocation.param.as_ref().map(shown);
            if !self.check_conditions(admission, invocation, params.as_ref()) {
                continue;
            }
            let key = invocation.key();
            if admission.is_reinvocation() && !admission.policy_reinvocation.is_due(&key) {
                if let Some(told) = evaluation_trace(admission, invocation) {
                    told.not_reinvoked = true;
                }
                continue;
            }
            let before = self.object(invocation.version);
            for (index, mutation) in policy.mutations.iter().enumerate() {
                self.last = Some(invocation.version);
                let host = self.run.host;
                let Some(version) = self.versions.at(invocation.version) else {
                    break;
                };
                let Some(object) = version.versioned.object.clone() else {
                    continue;
                };
                let subject = Subject {
                    kinds: &*host.kinds,
                    request: &admission.request,
                    policy,
                    namespace: namespace.as_deref(),
                    params: params.as_ref(),
                    index,
                    records: version.is_recording().then(RefCell::default),
                };
                let started = host.clock.now();
                let outcome = subject.mutate(mutation, version, &object);
                let elapsed = host.clock.now().saturating_duration_since(started);
                let records = subject.records.map(RefCell::into_inner);
                if let (Some(records), Some(told)) =
                    (records, evaluation_trace(admission, invocation))
                {
                    told.expressions.extend(records);
                }
                let error = outcome.as_ref().err().map(ToString::to_string);
                note(admission, invocation, index, error, elapsed);
                match outcome {
                    Ok(object) => {
                        version.replace_object(object);
                    }
                    Err(MutationError::Status(status)) => {
                        return Err(Decision::deny(*status, Cause::Policy));
                    }
                    Err(MutationError::Failed(failure)) => {
                        let binding = Some(&invocation.binding);
                        self.fail(policy, binding, failure.to_string(), Some("Invalid"));
                    }
                }
            }
            let after = self.object(invocation.version);
            let is_changed = match (&before, &after) {
                (Some(before), Some(after)) => {
                    !self.is_unchanged(&admission.request, before, after)
                }
                (None, None) => false,
                _ => true,
            };
            if is_changed {
                admission.policy_reinvocation.rerun();
                admission.request_reinvocation();
            }
            if let (Some(before), Some(after)) = (before, after)
                && is_changed
                && self.run.matcher.is_recording()
                && let Some(told) = evaluation_trace(admission, invocation)
            {
                told.change = Some(Change { before, after });
            }
            if policy.reinvocable() {
                admission.policy_reinvocation.record_run(key);
            }
        }
        self.write_back(&mut *admission).await
    }

    fn object(&mut self, version: usize) -> Option<Object> {
        self.versions.at(version)?.versioned.object.clone()
    }

    /// Returns true if the match conditions of a policy are true.
    fn check_conditions(
        &mut self,
        admission: &mut Admission,
        invocation: &Invocation,
        params: Option<&serde_json::Value>,
    ) -> bool {
        let policy = &invocation.policy;
        if policy.conditions.is_empty() {
            return true;
        }
        let Some(version) = self.versions.at(invocation.version) else {
            return false;
        };
        let clock = &self.run.host.clock;
        let started = clock.now();
        let failure_policy = policy.failure_policy();
        let mut trace = version.check_conditions(&policy.conditions, params, failure_policy);
        trace.elapsed = clock.now().saturating_duration_since(started);
        let verdict = trace.verdict.clone();
        if let Some(told) = evaluation_trace(admission, invocation) {
            told.conditions = Some(trace);
        }
        match verdict {
            ConditionsVerdict::Matched => true,
            ConditionsVerdict::Excluded { .. } | ConditionsVerdict::Ignored { .. } => false,
            ConditionsVerdict::Refused { error } => {
                self.fail(policy, Some(&invocation.binding), error, Some("Invalid"));
                false
            }
        }
    }

    /// Sets the object after mutation on the request. If policies matched in several versions, only the last mutated
    /// one is used.
    async fn write_back(&mut self, admission: &mut Admission) -> Result<(), Decision> {
        let last = self.last.and_then(|at| self.versions.at(at));
        let last = last.filter(|version| version.is_dirty);
        let Some(object) = last.and_then(|version| version.versioned.object.clone()) else {
            return Ok(());
        };
        admission.policy_reinvocation.rerun();
        admission.request_reinvocation();
        let kind = admission.request.kind.clone();
        match convert(&*self.run.host.kinds, &object, &kind).await {
            Ok(object) => {
                admission.request.set_patched(object);
                // Timestamps have been encoded to JSON now.
                admission.request.fine_times = false;
                Ok(())
            }
            Err(error) => {
                let text = format!("failed to convert object: {error}");
                let status = Status::internal_error(&text);
                Err(Decision::deny(status, Cause::Conversion))
            }
        }
    }

    fn conclude(&self, request: &Request) -> Decision {
        let Some(first) = self.errors.first() else {
            return Decision::Allow;
        };
        let mut status = status::forbidden_request(request, "");
        status.message = first.text();
        if let Some(reason) = first.reason {
            reason.clone_into(&mut status.reason);
        }
        let causes = self.errors.iter().map(|error| StatusCause {
            message: error.text(),
            ..StatusCause::default()
        });
        let details = status.details.get_or_insert_default();
        details.causes.get_or_insert_default().extend(causes);
        Decision::deny(status, Cause::Policy)
    }
}

fn evaluation_trace<'a>(
    admission: &'a mut Admission,
    invocation: &Invocation,
) -> Option<&'a mut EvaluationTrace> {
    let (policy, binding, evaluation) = invocation.told;
    let policy = admission.running.policies.get_mut(policy)?;
    let binding = policy.bindings.get_mut(binding)?;
    binding.evaluations.get_mut(evaluation)
}

fn note(
    admission: &mut Admission,
    invocation: &Invocation,
    index: usize,
    error: Option<String>,
    elapsed: Duration,
) {
    let enforcement = match (&error, invocation.policy.failure_policy()) {
        (Some(_), FailurePolicy::Fail) => Enforcement::Deny,
        _ => Enforcement::Allow,
    };
    if let Some(told) = evaluation_trace(admission, invocation) {
        told.outcomes.push(PolicyOutcome {
            role: ExpressionRole::Mutation,
            index,
            error,
            enforcement,
            elapsed,
        });
    }
}
