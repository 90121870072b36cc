//! The trace of one request: every verdict, call and outcome.
//!
//! The engine only writes a trace: metrics, audit annotations, warnings and explanations are derived from it, so that
//! they always agree.
//!
//! ```text
//!   Trace ─► StepTrace (admit, validate) ─► PluginTrace (each round) ─► HookTrace ─► CallTrace
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockgate_api::admission::{GroupVersionKind, GroupVersionResource, ReviewVersion};
use lockgate_api::meta::status::Status;
use lockgate_go::json;
use serde::Serialize;

use crate::audit::{Annotations, Level, go_duration};
use crate::call::Phase;
use crate::conditions::{ExpressionRole, ExpressionTrace};
use crate::configuration::{CompiledBinding, CompiledHook, CompiledPolicy, FailurePolicy};
use crate::decision::Cause;
use crate::host::Namespace;
use crate::matching::{ConditionsTrace, Predicates, Refusal};
use crate::object::Object;
use crate::request::Operation;
use crate::warnings::Warnings;

/// Requests above this duration get latency annotations.
const SLOW_REQUEST: Duration = Duration::from_millis(500);

/// The trace of one request.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The completed steps, in order.
    pub steps: Vec<StepTrace>,
}

/// The two steps of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Objects may be changed.
    Admit,
    /// Objects are only validated.
    Validate,
}

impl Step {
    /// The label in metrics of steps and plugins.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validate => "validate",
        }
    }

    /// The label in metrics of webhooks, which may differ.
    #[must_use]
    pub fn webhook_name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validate => "validating",
        }
    }
}

/// One pass through admission.
#[derive(Debug, Clone)]
pub struct StepTrace {
    /// The admission step.
    pub step: Step,
    /// The operation.
    pub operation: Operation,
    /// The duration of both rounds.
    pub elapsed: Duration,
    /// The cause of the denial, if denied.
    pub denied: Option<Cause>,
    /// The status for the client. Recorded with objects only.
    pub status: Option<Box<Status>>,
    /// The object at the start of the step. Recorded with objects only.
    pub object: Option<Object>,
    /// The plugins that ran, in order; in a second round they appear again.
    pub plugins: Vec<PluginTrace>,
}

/// One run of a plugin.
#[derive(Debug, Clone, Default)]
pub struct PluginTrace {
    /// Its name.
    pub name: &'static str,
    /// 0, or 1 in the second round.
    pub round: u8,
    /// The duration.
    pub elapsed: Duration,
    /// `true` if it denied the request.
    pub denied: bool,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations with the level from which they are recorded.
    pub annotations: Vec<(String, String, Level)>,
    /// The number of registered webhooks, for plugins that call webhooks.
    pub registered: usize,
    /// The namespace for the selectors, if it was looked up.
    pub namespace: Option<Arc<Namespace>>,
    /// The webhooks that may match, in calling order.
    pub hooks: Vec<HookTrace>,
    /// The policies that may match, in evaluation order.
    pub policies: Vec<PolicyTrace>,
    /// The object after a change by it. Recorded with objects only.
    pub object: Option<Object>,
}

/// The outcome of one policy.
#[derive(Debug, Clone)]
pub struct PolicyTrace {
    /// The policy.
    pub policy: Arc<CompiledPolicy>,
    /// The verdicts of the predicates.
    pub predicates: Option<Predicates>,
    /// The first predicate that did not match, if recorded.
    pub refusal: Option<Refusal>,
    /// The reason that it cannot be evaluated at all.
    pub failure: Option<String>,
    /// Its bindings, if they were evaluated.
    pub bindings: Vec<BindingTrace>,
}

/// The outcome of one binding of a policy.
#[derive(Debug, Clone)]
pub struct BindingTrace {
    /// The binding.
    pub binding: CompiledBinding,
    /// The verdicts of the predicates, if the binding did not match.
    pub predicates: Option<Predicates>,
    /// The first predicate that did not match, if recorded.
    pub refusal: Option<Refusal>,
    /// The reason the policy cannot be evaluated with this binding.
    pub failure: Option<String>,
    /// One evaluation for each parameter.
    pub evaluations: Vec<EvaluationTrace>,
}

/// One evaluation of a policy with a binding.
#[derive(Debug, Clone)]
pub struct EvaluationTrace {
    /// The namespace and name of the parameter.
    pub param: Option<(String, String)>,
    /// The verdict of the match conditions, if there are any.
    pub conditions: Option<ConditionsTrace>,
    /// True if it matched in the second round but had no reason to be reinvoked.
    pub not_reinvoked: bool,
    /// The results of the expressions: validations that are not simply true, and every mutation.
    pub outcomes: Vec<PolicyOutcome>,
    /// The evaluated expressions, if recorded, without match conditions.
    pub expressions: Vec<ExpressionTrace>,
    /// The object before and after, if a mutating policy replaced it.
    pub change: Option<Change>,
}

/// An object that a webhook or policy replaced, in the version that it received.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The object before.
    pub before: Object,
    /// The object after.
    pub after: Object,
}

/// The result of one expression of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// The role of the expression.
    pub role: ExpressionRole,
    /// The index of the expression in the list of its role.
    pub index: usize,
    /// The failure; `None` for a successful mutation.
    pub error: Option<String>,
    /// The enforcement that followed.
    pub enforcement: Enforcement,
    /// The duration.
    pub elapsed: Duration,
}

impl PolicyOutcome {
    /// The source of the expression.
    #[must_use]
    pub fn expression<'p>(&self, policy: &'p CompiledPolicy) -> Option<&'p str> {
        let at = self.index;
        match self.role {
            ExpressionRole::Validation => policy.validations.get(at).map(|one| &*one.expression),
            ExpressionRole::AuditAnnotation => {
                policy.annotations.get(at).map(|one| &*one.expression)
            }
            ExpressionRole::Mutation => policy.mutations.get(at).map(|one| &*one.expression),
            _ => None,
        }
    }
}

/// The enforcement of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// None.
    Allow,
    /// The request is denied.
    Deny,
    /// The client is warned.
    Warn,
    /// Adds an audit annotation.
    Audit,
}

impl Enforcement {
    /// The label in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Warn => "warn",
            Self::Audit => "audit",
        }
    }
}

impl PolicyTrace {
    pub(crate) fn new(policy: &Arc<CompiledPolicy>) -> Self {
        Self {
            policy: Arc::clone(policy),
            predicates: None,
            refusal: None,
            failure: None,
            bindings: Vec::new(),
        }
    }
}

impl BindingTrace {
    pub(crate) fn matched(binding: &CompiledBinding) -> Self {
        Self {
            binding: binding.clone(),
            predicates: None,
            refusal: None,
            failure: None,
            evaluations: Vec::new(),
        }
    }

    pub(crate) fn unmatched(
        binding: &CompiledBinding,
        predicates: Predicates,
        refusal: Option<Refusal>,
    ) -> Self {
        Self {
            predicates: Some(predicates),
            refusal,
            ..Self::matched(binding)
        }
    }
}

/// The trace of one webhook.
#[derive(Debug, Clone)]
pub struct HookTrace {
    /// The webhook.
    pub hook: Arc<CompiledHook>,
    /// Its index in audit annotations.
    pub index: usize,
    /// The verdicts of the predicates.
    pub predicates: Predicates,
    /// The first predicate that did not match, if recorded.
    pub refusal: Option<Refusal>,
    /// The verdict of the match conditions, if they were evaluated.
    pub conditions: Option<ConditionsTrace>,
    /// `true` if it matched in the second round but was not reinvoked.
    pub not_reinvoked: bool,
    /// The call, if there was one.
    pub call: Option<CallTrace>,
}

/// One call, or an attempt at one.
#[derive(Debug, Clone)]
pub struct CallTrace {
    /// The `uid` of the review; empty if none was built.
    pub uid: String,
    /// The version of the review, if one was built.
    pub version: Option<ReviewVersion>,
    /// The resource in the webhook's review.
    pub resource: GroupVersionResource,
    /// The kind of the objects in the review.
    pub kind: GroupVersionKind,
    /// The total duration, from building the review to patching the object.
    pub elapsed: Duration,
    /// The duration of the HTTP round trip; zero if no request was sent.
    pub round_trip: Duration,
    /// The timeout of the call; `None` without a limit.
    pub allowed_time: Option<Duration>,
    /// The phases of the call.
    pub phases: Vec<(Phase, Duration)>,
    /// The outcome.
    pub outcome: CallOutcome,
    /// The patch of the webhook.
    pub patch: Option<PatchTrace>,
    /// The object before and after the patch.
    pub change: Option<Change>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations, without the webhook's name in their keys.
    pub annotations: BTreeMap<String, String>,
    /// The position in the order in which the calls of this plugin run ended.
    pub finished: usize,
}

/// A patch that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchTrace {
    /// The patch as compact JSON.
    pub text: String,
    /// `true` if the patch changed the object semantically.
    pub changed: bool,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// The webhook allowed the request.
    Allowed,
    /// The webhook denied the request.
    Denied(Box<Status>),
    /// The call failed or its response is malformed; the failure policy applies.
    Failed {
        /// The error, without `failed calling webhook …: `.
        reason: String,
        /// The status code.
        code: i32,
        /// The phase in which the call failed, if it was in progress.
        phase: Option<Phase>,
    },
    /// The failure is not subject to the failure policy.
    Refused(Box<Status>),
    /// The request was cancelled before a response: its client disconnected.
    Canceled,
    /// The caller panicked.
    Panicked {
        /// The panic message.
        message: String,
    },
}

impl CallTrace {
    /// Returns `true` if the call failed and the failure was ignored.
    #[must_use]
    pub fn failed_open(&self, policy: FailurePolicy) -> bool {
        let failed = matches!(
            self.outcome,
            CallOutcome::Failed { .. } | CallOutcome::Panicked { .. }
        );
        failed && policy == FailurePolicy::Ignore
    }
}

/// A certificate defect that older clients accepted, counted in a separate metric.
///
/// UPSTREAM: apiserver pkg/util/x509metrics/server_cert_deprecations.go
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegacyCertificate {
    MissingSan,
    InsecureSha1,
}

impl CallOutcome {
    /// The defect of the webhook's certificate, if that made the call fail.
    pub(crate) fn legacy_certificate(&self) -> Option<LegacyCertificate> {
        let Self::Failed { reason, .. } = self else {
            return None;
        };
        let insecure = "x509: cannot verify signature: insecure algorithm";
        if reason.contains("x509: certificate relies on legacy Common Name field") {
            return Some(LegacyCertificate::MissingSan);
        }
        let (_, rest) = reason.split_once(insecure)?;
        rest.contains("SHA1")
            .then_some(LegacyCertificate::InsecureSha1)
    }
}

#[derive(Serialize)]
struct MutationAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

impl Trace {
    /// All runs of plugins, in order.
    pub fn plugins(&self) -> impl Iterator<Item = (Step, &PluginTrace)> {
        self.steps
            .iter()
            .flat_map(|step| step.plugins.iter().map(|plugin| (step.step, plugin)))
    }

    /// All calls, in calling order.
    pub fn calls(&self) -> impl Iterator<Item = (Step, &PluginTrace, &HookTrace, &CallTrace)> {
        self.plugins().flat_map(|(step, plugin)| {
            plugin
                .hooks
                .iter()
                .filter_map(move |hook| Some((step, plugin, hook, hook.call.as_ref()?)))
        })
    }

    /// Returns true if a webhook or policy replaced the object, even with an equal one.
    #[must_use]
    pub fn is_patched(&self) -> bool {
        let is_mutation = |outcome: &PolicyOutcome| outcome.error.is_none();
        let mut mutating = self.plugins().filter(|(step, _)| *step == Step::Admit);
        mutating.any(|(_, plugin)| {
            let mut calls = plugin.hooks.iter().filter_map(|hook| hook.call.as_ref());
            let policies = plugin.policies.iter().flat_map(|policy| &policy.bindings);
            calls.any(|call| call.patch.as_ref().is_some_and(|patch| patch.text != "[]"))
                || policies
                    .flat_map(|binding| &binding.evaluations)
                    .any(|evaluation| evaluation.outcomes.iter().any(is_mutation))
        })
    }

    /// The warnings for the client, in order.
    #[must_use]
    pub fn warnings(&self) -> Warnings {
        let mut warnings = Warnings::default();
        for (_, plugin) in self.plugins() {
            let mut calls: Vec<&CallTrace> = plugin
                .hooks
                .iter()
                .filter_map(|hook| hook.call.as_ref())
                .collect();
            calls.sort_by_key(|call| call.finished);
            let hooks = calls.into_iter().flat_map(|call| &call.warnings);
            for text in hooks.chain(&plugin.warnings) {
                warnings.add(text);
            }
        }
        warnings
    }

    /// The audit annotations. Invalid keys are dropped.
    #[must_use]
    pub fn annotations(&self) -> Annotations {
        let mut annotations = Annotations::default();
        for (step, plugin) in self.plugins() {
            for hook in &plugin.hooks {
                if let Some(call) = &hook.call {
                    annotate(&mut annotations, step, plugin.round, hook, call);
                }
            }
            for (key, value, level) in &plugin.annotations {
                let _ = annotations.add(key, value, *level);
            }
        }
        annotations
    }

    /// The time spent in webhooks: mutating ones in sequence, validating ones in parallel.
    ///
    /// UPSTREAM: apiserver pkg/endpoints/request/webhook_duration.go
    #[must_use]
    pub fn webhook_latencies(&self) -> (Duration, Duration) {
        let mut mutating = Duration::ZERO;
        let mut validating = Duration::ZERO;
        for (step, _, _, call) in self.calls() {
            match step {
                Step::Admit => mutating = mutating.saturating_add(call.round_trip),
                Step::Validate => validating = validating.max(call.round_trip),
            }
        }
        (mutating, validating)
    }

    /// The latency annotations for webhooks of a request that took longer than half a second in total. A host adds
    /// those of its other layers, and the total, if any.
    ///
    /// UPSTREAM: apiserver pkg/endpoints/{filters/audit,request/webhook_duration}.go
    #[must_use]
    pub fn latency_annotations(&self, total: Duration) -> Vec<(&'static str, String)> {
        if total <= SLOW_REQUEST {
            return Vec::new();
        }
        let (mutating, validating) = self.webhook_latencies();
        [
            ("apiserver.latency.k8s.io/mutating-webhook", mutating),
            ("apiserver.latency.k8s.io/validating-webhook", validating),
        ]
        .into_iter()
        .filter(|(_, latency)| !latency.is_zero())
        .map(|(key, latency)| (key, go_duration(latency)))
        .collect()
    }
}

/// Adds the annotations of a call. Rejected annotations are ignored.
fn annotate(
    annotations: &mut Annotations,
    step: Step,
    round: u8,
    trace: &HookTrace,
    call: &CallTrace,
) {
    let hook = &trace.hook;
    for (key, value) in &call.annotations {
        let _ = annotations.add(&format!("{}/{key}", hook.name()), value, Level::Metadata);
    }
    if let Some(legacy) = call.outcome.legacy_certificate() {
        let (id, reason) = match legacy {
            LegacyCertificate::MissingSan => (
                "missing-san",
                "relies on a legacy Common Name field instead of the SAN extension for subject \
                 validation",
            ),
            LegacyCertificate::InsecureSha1 => {
                ("insecure-sha1", "uses an insecure SHA-1 signature")
            }
        };
        let key = format!("{id}.invalid-cert.kubernetes.io/{}", hook.host_name());
        let _ = annotations.add(&key, reason, Level::Metadata);
    }
    let suffix = format!("round_{round}_index_{}", trace.index);
    let (prefix, is_mutating) = match step {
        Step::Admit => ("mutation.webhook.admission.k8s.io", true),
        Step::Validate => ("validating.webhook.admission.k8s.io", false),
    };
    if is_mutating {
        if let Some(patch) = &call.patch {
            let key = format!("patch.webhook.admission.k8s.io/{suffix}");
            let value = format!(
                "{{\"configuration\":{},\"webhook\":{},\"patch\":{},\"patchType\":\"JSONPatch\"}}",
                json::to_string(hook.configuration()),
                json::to_string(hook.name()),
                patch.text
            );
            let _ = annotations.add(&key, &value, Level::Request);
        }
        let value = json::to_string(&MutationAnnotation {
            configuration: hook.configuration(),
            webhook: hook.name(),
            mutated: call.patch.as_ref().is_some_and(|patch| patch.changed),
        });
        let _ = annotations.add(&format!("{prefix}/{suffix}"), &value, Level::Metadata);
    }
    if call.failed_open(hook.failure_policy()) {
        let key = format!("failed-open.{prefix}/{suffix}");
        let _ = annotations.add(&key, hook.name(), Level::Metadata);
    }
}

#[cfg(test)]
mod tests;
