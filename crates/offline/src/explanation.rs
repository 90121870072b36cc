//! Explanations: the trace of a request as a human-readable and machine-readable value.
//!
//! Everything is derived from the engine's trace; nothing is evaluated again.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_admission::audit::Level;
use lockgate_admission::conditions::{ExpressionRole, ExpressionTrace};
use lockgate_admission::configuration::{CompiledHook, FailurePolicy};
use lockgate_admission::decision::{Cause, Decision};
use lockgate_admission::host::Kinds;
use lockgate_admission::matching::{
    ConditionsTrace, ConditionsVerdict, NamespaceVerdict, ObjectVerdict, Predicates, RuleVerdict,
    Selection,
};
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Request;
use lockgate_admission::trace::{
    BindingTrace, CallOutcome, Change, Enforcement, EvaluationTrace, HookTrace, PluginTrace,
    PolicyTrace, Step,
};
use lockgate_api::registration::ConfigurationKind;
use lockgate_api::registration::policy::PolicyKind;
use lockgate_cel::eval::RecordedOutcome;
use serde::Serialize;
use serde_json::Value;

use crate::chain::{Chain, Run};
use crate::diff;
use crate::hooks::Hook;

/// The maximum number of displayed subexpressions.
const MAX_PARTS: usize = 200;

/// The explanation of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The request.
    pub request: RequestSummary,
    /// The decision.
    pub decision: Verdict,
    /// The runs of the plugins, in order; each round is a run.
    pub steps: Vec<StepExplanation>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations.
    pub audit_annotations: BTreeMap<String, String>,
    /// The fields set by webhooks and policies, in order.
    pub blame: Vec<Blame>,
    /// The object after mutating admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// Facts that were assumed in the absence of information.
    pub assumptions: Vec<String>,
}

/// The explained request.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestSummary {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
    /// The API group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The resource.
    pub resource: String,
    /// The subresource; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The kind of the object.
    pub kind: String,
    /// The namespace; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name, or its generateName prefix.
    pub name: String,
    /// The user.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// True for a dry run.
    pub dry_run: bool,
}

/// The decision.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// True if the request is allowed.
    pub allowed: bool,
    /// The status code of a denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The reason of a denial.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message of a denial, as returned to the client.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The cause of a denial.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub cause: &'static str,
}

/// One run of a plugin.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepExplanation {
    /// The plugin.
    pub plugin: &'static str,
    /// `mutating` or `validating`.
    pub phase: &'static str,
    /// 1, or 2 in the second round.
    pub round: u8,
    /// The webhooks, in calling order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<HookExplanation>,
    /// The policies, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyExplanation>,
}

/// The explanation of a webhook.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookExplanation {
    /// The configuration.
    pub configuration: String,
    /// The webhook.
    pub webhook: String,
    /// The name of the verdict.
    pub verdict: HookVerdict,
    /// The predicate that did not match, for webhooks that are not called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<&'static str>,
    /// The reason, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The index of the matching rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The version and resource of its review, if they differ from the request's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converted_to: Option<String>,
    /// `Fail` or `Ignore`.
    pub failure_policy: &'static str,
    /// The timeout of a call, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// The reason that a dry run of the request would be rejected, if it would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<String>,
    /// The evaluated match conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ExpressionExplanation>,
    /// True if no response was configured for the webhook, so that it is assumed to allow.
    pub assumed: bool,
    /// The patch of the webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Value>,
    /// Warnings of the webhook.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The verdict on a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookVerdict {
    /// A predicate did not match.
    NotMatched,
    /// A match condition is false.
    Excluded,
    /// A match condition cannot be evaluated, and the failure policy is `Ignore`.
    Ignored,
    /// A predicate or match condition cannot be evaluated, and the request is rejected.
    Refused,
    /// It matched in the second round, but the object has not changed since its call.
    NotReinvoked,
    /// The request was denied before its turn.
    NotReached,
    /// It is called and allows the request.
    Allowed,
    /// It is called and denies the request.
    Denied,
    /// The call fails, and so does the request.
    Failed,
    /// The call fails and the request continues.
    FailedOpen,
}

impl HookVerdict {
    /// The name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotMatched => "not-matched",
            Self::Excluded => "excluded",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
            Self::NotReinvoked => "not-reinvoked",
            Self::NotReached => "not-reached",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::FailedOpen => "failed-open",
        }
    }

    /// Returns true if the webhook is called.
    #[must_use]
    pub fn is_call(self) -> bool {
        matches!(
            self,
            Self::Allowed | Self::Denied | Self::Failed | Self::FailedOpen
        )
    }
}

/// An expression with the values of its subexpressions.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpressionExplanation {
    /// The field path, such as `matchConditions[0]`.
    pub field: String,
    /// Its name, if any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The expression.
    pub expression: String,
    /// Its value, as a CEL literal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its error, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The cost of its evaluation.
    pub cost: u64,
    /// Its subexpressions in evaluation order.
    pub parts: Vec<PartExplanation>,
}

/// A subexpression.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartExplanation {
    /// The source of the subexpression.
    pub text: String,
    /// The nesting depth.
    pub depth: u32,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The cost of it and all of its subexpressions.
    pub cost: u64,
}

/// The explanation of a policy.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyExplanation {
    /// The policy.
    pub policy: String,
    /// The name of the verdict.
    pub verdict: PolicyVerdict,
    /// The predicate that did not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<&'static str>,
    /// The reason, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The bindings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<BindingExplanation>,
}

/// The verdict on a policy, binding or evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyVerdict {
    /// A predicate did not match.
    NotMatched,
    /// The policy has no binding, and therefore no effect.
    NotBound,
    /// The request was denied before its turn.
    NotReached,
    /// A match condition is false.
    Excluded,
    /// A match condition cannot be evaluated, and the failure policy is `Ignore`.
    Ignored,
    /// There are no parameters.
    NoParams,
    /// It matched in the second round, but the object has not changed since.
    NotReinvoked,
    /// All validations are true, or a mutation had no effect.
    Allowed,
    /// A mutation changed the object.
    Mutated,
    /// A validation failed, with an audit annotation.
    Audited,
    /// A validation failed, and the client is warned.
    Warned,
    /// An expression cannot be evaluated and the failure policy is `Ignore`.
    FailedOpen,
    /// A validation failed, or an expression cannot be evaluated: the request is denied.
    Denied,
}

impl PolicyVerdict {
    /// The name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotMatched => "not-matched",
            Self::NotBound => "not-bound",
            Self::NotReached => "not-reached",
            Self::Excluded => "excluded",
            Self::Ignored => "ignored",
            Self::NoParams => "no-params",
            Self::NotReinvoked => "not-reinvoked",
            Self::Allowed => "allowed",
            Self::Mutated => "mutated",
            Self::Audited => "audited",
            Self::Warned => "warned",
            Self::FailedOpen => "failed-open",
            Self::Denied => "denied",
        }
    }
}

/// The explanation of a binding.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingExplanation {
    /// The binding.
    pub binding: String,
    /// The name of the verdict.
    pub verdict: PolicyVerdict,
    /// The validation actions.
    pub actions: Vec<&'static str>,
    /// The predicate that did not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<&'static str>,
    /// The reason, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// One evaluation for each parameter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evaluations: Vec<EvaluationExplanation>,
}

/// One evaluation of a policy.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvaluationExplanation {
    /// The namespace and name of the parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// The name of the verdict.
    pub verdict: PolicyVerdict,
    /// The failures of expressions, and their enforcement.
    pub outcomes: Vec<OutcomeExplanation>,
    /// The evaluated match conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ExpressionExplanation>,
    /// The other evaluated expressions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<ExpressionExplanation>,
}

/// The failure of an expression.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeExplanation {
    /// The field path of the expression.
    pub field: String,
    /// `deny`, `warn`, `audit` or `allow`.
    pub enforcement: &'static str,
    /// The message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A field, and the webhook or policy that set it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blame {
    /// The field, as in `metadata.labels.team`.
    pub field: String,
    /// The webhook or policy.
    pub by: String,
    /// The round it was set in.
    pub round: u8,
    /// The old value; `None` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The new value; `None` if removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Explains a run with a full trace.
#[must_use]
pub fn explain(chain: &Chain, run: &Run) -> Explanation {
    let Run {
        admission,
        decision,
        object,
    } = run;
    let kinds = &*chain.engine().host().kinds;
    let mut steps: Vec<StepExplanation> = admission
        .trace()
        .plugins()
        .filter(|(_, plugin)| !plugin.hooks.is_empty() || !plugin.policies.is_empty())
        .map(|(step, plugin)| step_of(chain, kinds, admission.request(), step, plugin))
        .collect();
    add_missing(chain, admission, &mut steps);
    let warnings = admission.warnings();
    let annotations = admission.annotations();
    Explanation {
        request: summary(admission.request()),
        decision: verdict_of(decision),
        steps,
        warnings: warnings.texts().to_vec(),
        audit_annotations: annotations
            .at(Level::Request)
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        blame: blame(admission),
        object: object.clone(),
        assumptions: chain
            .assumed_namespaces()
            .into_iter()
            .map(|name| {
                format!("namespace `{name}` is in no manifest: assumed to exist without labels")
            })
            .collect(),
    }
}

fn summary(request: &Request) -> RequestSummary {
    RequestSummary {
        operation: request.operation.name(),
        group: request.resource.group.clone(),
        version: request.resource.version.clone(),
        resource: request.resource.resource.clone(),
        subresource: request.subresource.clone(),
        kind: request.kind.kind.clone(),
        namespace: request.namespace.clone(),
        name: request.display_name().to_owned(),
        user: request.user.username.clone(),
        groups: request.user.groups.clone().unwrap_or_default(),
        dry_run: request.dry_run,
    }
}

/// Converts a decision to its output form.
#[must_use]
pub fn verdict_of(decision: &Decision) -> Verdict {
    match decision {
        Decision::Allow => Verdict {
            allowed: true,
            code: None,
            reason: String::new(),
            message: String::new(),
            cause: "",
        },
        Decision::Deny(denial) => Verdict {
            allowed: false,
            code: Some(denial.status.code),
            reason: denial.status.reason.clone(),
            message: denial.status.message.clone(),
            cause: cause(denial.cause),
        },
    }
}

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Webhook => "webhook",
        Cause::Policy => "policy",
        Cause::CallFailed => "call-failed",
        Cause::SideEffects => "side-effects",
        Cause::Patch => "patch",
        Cause::Matching => "matching",
        Cause::MatchConditions => "match-conditions",
        Cause::Conversion => "conversion",
        Cause::Timeout => "timeout",
        _ => "internal",
    }
}

fn step_of(
    chain: &Chain,
    kinds: &dyn Kinds,
    request: &Request,
    step: Step,
    plugin: &PluginTrace,
) -> StepExplanation {
    StepExplanation {
        plugin: plugin.name,
        phase: phase(step),
        round: plugin.round + 1,
        webhooks: plugin
            .hooks
            .iter()
            .map(|hook| explain_hook(chain, kinds, request, hook))
            .collect(),
        policies: plugin.policies.iter().map(explain_policy).collect(),
    }
}

fn phase(step: Step) -> &'static str {
    match step {
        Step::Admit => "mutating",
        Step::Validate => "validating",
    }
}

fn failure_policy(policy: FailurePolicy) -> &'static str {
    match policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
    }
}

/// The verdict on a webhook from its trace.
#[must_use]
pub fn hook_verdict(trace: &HookTrace) -> HookVerdict {
    if let Some(call) = &trace.call {
        return match &call.outcome {
            CallOutcome::Allowed => HookVerdict::Allowed,
            CallOutcome::Denied(_) => HookVerdict::Denied,
            _ if call.failed_open(trace.hook.failure_policy()) => HookVerdict::FailedOpen,
            _ => HookVerdict::Failed,
        };
    }
    match trace.predicates.selection() {
        Selection::Skip => return HookVerdict::NotMatched,
        Selection::Fail => return HookVerdict::Refused,
        Selection::Call(_) => {}
    }
    match trace.conditions.as_ref().map(|it| &it.verdict) {
        Some(ConditionsVerdict::Excluded { .. }) => HookVerdict::Excluded,
        Some(ConditionsVerdict::Ignored { .. }) => HookVerdict::Ignored,
        Some(ConditionsVerdict::Refused { .. }) => HookVerdict::Refused,
        _ if trace.not_reinvoked => HookVerdict::NotReinvoked,
        _ => HookVerdict::NotReached,
    }
}

fn base(hook: &CompiledHook, verdict: HookVerdict) -> HookExplanation {
    HookExplanation {
        configuration: hook.configuration().to_owned(),
        webhook: hook.name().to_owned(),
        verdict,
        predicate: None,
        reason: String::new(),
        rule: None,
        converted_to: None,
        failure_policy: failure_policy(hook.failure_policy()),
        timeout_seconds: hook.webhook().timeout_seconds,
        dry_run: None,
        conditions: Vec::new(),
        assumed: false,
        patch: None,
        warnings: Vec::new(),
    }
}

fn explain_hook(
    chain: &Chain,
    kinds: &dyn Kinds,
    request: &Request,
    trace: &HookTrace,
) -> HookExplanation {
    let hook = &trace.hook;
    let verdict = hook_verdict(trace);
    let mut told = base(hook, verdict);
    if let Some(refusal) = &trace.refusal {
        told.predicate = Some(refusal.predicate());
        told.reason = refusal.to_string();
    }
    (told.rule, told.converted_to) = matched(kinds, request, &trace.predicates);
    if let Some(conditions) = &trace.conditions {
        told.conditions = expressions(&conditions.expressions);
        if let Some((predicate, reason)) = condition_reason(conditions) {
            told.predicate = Some(predicate);
            told.reason = reason;
        }
    }
    match verdict {
        HookVerdict::Refused if told.reason.is_empty() => told.reason = broken(&trace.predicates),
        HookVerdict::NotReinvoked => {
            told.reason = String::from(if hook.reinvocable() {
                "object unchanged since the last call"
            } else {
                "reinvocationPolicy is Never"
            });
        }
        _ => {}
    }
    let effects = hook.webhook().side_effects.as_deref();
    let would_be_called = matches!(trace.predicates.selection(), Selection::Call(_));
    if would_be_called && !matches!(effects, None | Some("None" | "NoneOnDryRun")) {
        let effects = effects.unwrap_or_default();
        told.dry_run = Some(format!("refused: sideEffects is {effects}"));
    }
    if let Some(call) = &trace.call {
        let player = chain.hook(hook.configuration(), hook.name());
        told.assumed = matches!(player, Hook::Assumed) && verdict == HookVerdict::Allowed;
        told.warnings.clone_from(&call.warnings);
        told.patch = call
            .patch
            .as_ref()
            .and_then(|patch| serde_json::from_str(&patch.text).ok());
        told.reason = match &call.outcome {
            CallOutcome::Denied(status) | CallOutcome::Refused(status) => status.message.clone(),
            CallOutcome::Failed { reason, .. } => reason.clone(),
            CallOutcome::Panicked { message } => message.clone(),
            _ if told.assumed => String::from("would be called; assumed to allow"),
            _ => String::new(),
        };
    }
    told
}

/// The matching rule, and the matched resource if it is another version.
fn matched(
    kinds: &dyn Kinds,
    request: &Request,
    predicates: &Predicates,
) -> (Option<usize>, Option<String>) {
    match predicates.rule {
        Some(RuleVerdict::Exact { rule }) => (Some(rule), None),
        Some(
            RuleVerdict::Equivalent { rule, equivalent }
            | RuleVerdict::UnknownKind { rule, equivalent },
        ) => {
            let all = kinds.equivalents(&request.resource, &request.subresource);
            let other = all.get(equivalent).map(|other| {
                let of = &other.resource;
                let group = match of.group.as_str() {
                    "" => String::new(),
                    group => format!("{group}/"),
                };
                format!("{group}{}/{}", of.version, of.resource)
            });
            (Some(rule), other)
        }
        _ => (None, None),
    }
}

fn broken(predicates: &Predicates) -> String {
    if predicates.namespace == NamespaceVerdict::Error {
        return String::from("namespaceSelector cannot be evaluated");
    }
    if predicates.object == Some(ObjectVerdict::Error) {
        return String::from("objectSelector cannot be evaluated");
    }
    String::from("the kind of an equivalent resource is unknown")
}

fn condition_reason(trace: &ConditionsTrace) -> Option<(&'static str, String)> {
    let reason = match &trace.verdict {
        ConditionsVerdict::Matched => return None,
        ConditionsVerdict::Excluded { condition } => {
            format!("matchCondition `{condition}` is false")
        }
        ConditionsVerdict::Ignored { error } => {
            format!("a matchCondition failed and failurePolicy is Ignore: {error}")
        }
        ConditionsVerdict::Refused { error } => {
            format!("a matchCondition failed and failurePolicy is Fail: {error}")
        }
    };
    Some(("matchConditions", reason))
}

fn expressions(traces: &[ExpressionTrace]) -> Vec<ExpressionExplanation> {
    traces.iter().map(explain_expression).collect()
}

/// An expression with its subexpressions.
#[must_use]
pub fn explain_expression(trace: &ExpressionTrace) -> ExpressionExplanation {
    let recorded = &trace.recorded;
    let (value, error) = outcome(&recorded.outcome);
    let steps = recorded.recording.steps.iter();
    let parts = steps.take(MAX_PARTS).map(|step| {
        let (value, error) = outcome(&step.outcome);
        let text = step.span.of(&trace.expression);
        PartExplanation {
            text: text.unwrap_or_default().to_owned(),
            depth: step.depth,
            value,
            error,
            cost: step.cost,
        }
    });
    ExpressionExplanation {
        field: field(trace.role, trace.index),
        name: recorded.name.clone(),
        expression: trace.expression.clone(),
        value,
        error,
        cost: recorded.cost,
        parts: parts.collect(),
    }
}

/// The field path of an expression, as in field errors.
#[must_use]
pub fn field(role: ExpressionRole, index: usize) -> String {
    let suffix = match role {
        ExpressionRole::Message => ".messageExpression",
        _ => "",
    };
    format!("{}[{index}]{suffix}", role.list())
}

fn outcome(outcome: &RecordedOutcome) -> (Option<String>, Option<String>) {
    match outcome {
        RecordedOutcome::Value(value) => (Some(value.clone()), None),
        RecordedOutcome::Error(error) => (None, Some(error.clone())),
    }
}

fn explain_policy(trace: &PolicyTrace) -> PolicyExplanation {
    let fails = trace.policy.failure_policy() == FailurePolicy::Fail;
    let failed = if fails {
        PolicyVerdict::Denied
    } else {
        PolicyVerdict::FailedOpen
    };
    let is_mutating = trace.policy.kind() == PolicyKind::Mutating;
    let bindings: Vec<BindingExplanation> = trace
        .bindings
        .iter()
        .map(|binding| explain_binding(binding, failed, is_mutating))
        .collect();
    let mut told = PolicyExplanation {
        policy: trace.policy.name().to_owned(),
        verdict: bindings
            .iter()
            .map(|binding| binding.verdict)
            .max()
            .unwrap_or(PolicyVerdict::NotMatched),
        predicate: None,
        reason: String::new(),
        bindings,
    };
    if let Some(failure) = &trace.failure {
        told.verdict = failed;
        told.reason.clone_from(failure);
    } else if let Some(refusal) = &trace.refusal {
        told.predicate = Some(refusal.predicate());
        told.reason = refusal.to_string();
    }
    told
}

fn explain_binding(
    trace: &BindingTrace,
    failed: PolicyVerdict,
    is_mutating: bool,
) -> BindingExplanation {
    let evaluations: Vec<EvaluationExplanation> = trace
        .evaluations
        .iter()
        .map(|evaluation| explain_evaluation(evaluation, failed, is_mutating))
        .collect();
    let verdict = evaluations.iter().map(|it| it.verdict).max();
    let unmatched = match trace.predicates {
        Some(_) => PolicyVerdict::NotMatched,
        None => PolicyVerdict::NoParams,
    };
    let mut told = BindingExplanation {
        binding: trace.binding.name().to_owned(),
        verdict: verdict.unwrap_or(unmatched),
        actions: trace
            .binding
            .actions()
            .map(|action| action.name())
            .collect(),
        predicate: None,
        reason: String::new(),
        evaluations,
    };
    if let Some(failure) = &trace.failure {
        told.verdict = failed;
        told.reason.clone_from(failure);
    } else if let Some(refusal) = &trace.refusal {
        told.predicate = Some(refusal.predicate());
        told.reason = refusal.to_string();
    } else if told.verdict == PolicyVerdict::NoParams {
        told.reason = String::from("there are no parameters");
    }
    told
}

/// The verdict on an evaluation from its trace.
#[must_use]
pub fn evaluation_verdict(trace: &EvaluationTrace, failed: PolicyVerdict) -> PolicyVerdict {
    let conditions = trace.conditions.as_ref().map(|it| &it.verdict);
    match conditions {
        Some(ConditionsVerdict::Excluded { .. }) => return PolicyVerdict::Excluded,
        Some(ConditionsVerdict::Ignored { .. }) => return PolicyVerdict::Ignored,
        Some(ConditionsVerdict::Refused { .. }) => return failed,
        Some(ConditionsVerdict::Matched) | None => {}
    }
    if trace.not_reinvoked {
        return PolicyVerdict::NotReinvoked;
    }
    let worst = trace
        .outcomes
        .iter()
        .map(|outcome| match outcome.enforcement {
            Enforcement::Deny => PolicyVerdict::Denied,
            Enforcement::Warn => PolicyVerdict::Warned,
            Enforcement::Audit => PolicyVerdict::Audited,
            Enforcement::Allow if outcome.error.is_some() => PolicyVerdict::FailedOpen,
            Enforcement::Allow => PolicyVerdict::Allowed,
        });
    let changed = trace.change.as_ref().map(|_| PolicyVerdict::Mutated);
    worst.chain(changed).max().unwrap_or(PolicyVerdict::Allowed)
}

fn explain_evaluation(
    trace: &EvaluationTrace,
    failed: PolicyVerdict,
    is_mutating: bool,
) -> EvaluationExplanation {
    let role = if is_mutating {
        ExpressionRole::Mutation
    } else {
        ExpressionRole::Validation
    };
    let mut outcomes: Vec<OutcomeExplanation> = trace
        .outcomes
        .iter()
        .map(|outcome| OutcomeExplanation {
            field: field(role, outcome.index),
            enforcement: outcome.enforcement.name(),
            message: outcome.error.clone().unwrap_or_default(),
        })
        .collect();
    if let Some((_, reason)) = trace.conditions.as_ref().and_then(condition_reason) {
        outcomes.push(OutcomeExplanation {
            field: String::from("matchConditions"),
            enforcement: "allow",
            message: reason,
        });
    }
    EvaluationExplanation {
        param: trace.param.as_ref().map(|(namespace, name)| {
            if namespace.is_empty() {
                name.clone()
            } else {
                format!("{namespace}/{name}")
            }
        }),
        verdict: evaluation_verdict(trace, failed),
        outcomes,
        conditions: trace
            .conditions
            .as_ref()
            .map(|it| expressions(&it.expressions))
            .unwrap_or_default(),
        expressions: expressions(&trace.expressions),
    }
}

/// Adds the webhooks and policies that are missing in the trace: the plugin did not run, or ended with the first
/// denial.
fn add_missing(chain: &Chain, admission: &Admission, steps: &mut Vec<StepExplanation>) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (_, plugin) in admission.trace().plugins() {
        let hooks = plugin.hooks.iter();
        seen.extend(hooks.map(|it| format!("{}/{}", plugin.name, it.hook.identity())));
        let policies = plugin.policies.iter();
        seen.extend(policies.map(|it| format!("{}/{}", plugin.name, it.policy.name())));
    }
    let denied = admission.trace().steps.iter().any(|it| it.denied.is_some());
    let exempt = admission.request().is_exempt();
    let why = if denied {
        "the request was denied before"
    } else if exempt {
        "webhooks and policies do not apply to objects that configure admission"
    } else {
        "it does not apply to the operation or the resource"
    };
    for (kind, plugin, phase) in [
        (PolicyKind::Mutating, "MutatingAdmissionPolicy", "mutating"),
        (
            PolicyKind::Validating,
            "ValidatingAdmissionPolicy",
            "validating",
        ),
    ] {
        let snapshot = chain.engine().policies(kind).snapshot();
        let missing = snapshot.policies().iter();
        let missing = missing.map(|bound| bound.policy.name());
        let missing = missing.filter(|name| !seen.contains(&format!("{plugin}/{name}")));
        let told = missing.map(|name| PolicyExplanation {
            policy: name.to_owned(),
            verdict: if denied {
                PolicyVerdict::NotReached
            } else {
                PolicyVerdict::NotMatched
            },
            predicate: None,
            reason: why.to_owned(),
            bindings: Vec::new(),
        });
        let told: Vec<PolicyExplanation> = told.collect();
        if !told.is_empty() {
            step_for(steps, plugin, phase).policies.extend(told);
        }
    }
    for (kind, plugin, phase) in [
        (
            ConfigurationKind::Mutating,
            "MutatingAdmissionWebhook",
            "mutating",
        ),
        (
            ConfigurationKind::Validating,
            "ValidatingAdmissionWebhook",
            "validating",
        ),
    ] {
        let snapshot = chain.configurations(kind).snapshot();
        let missing = snapshot.hooks().iter();
        let missing =
            missing.filter(|hook| !seen.contains(&format!("{plugin}/{}", hook.identity())));
        let told: Vec<HookExplanation> = missing
            .map(|hook| {
                let verdict = if denied {
                    HookVerdict::NotReached
                } else {
                    HookVerdict::NotMatched
                };
                HookExplanation {
                    reason: why.to_owned(),
                    ..base(hook, verdict)
                }
            })
            .collect();
        if !told.is_empty() {
            step_for(steps, plugin, phase).webhooks.extend(told);
        }
    }
}

fn step_for<'s>(
    steps: &'s mut Vec<StepExplanation>,
    plugin: &'static str,
    phase: &'static str,
) -> &'s mut StepExplanation {
    let at = match steps.iter().position(|step| step.plugin == plugin) {
        Some(at) => at,
        None => {
            steps.push(StepExplanation {
                plugin,
                phase,
                round: 1,
                webhooks: Vec::new(),
                policies: Vec::new(),
            });
            steps.len() - 1
        }
    };
    &mut steps[at]
}

/// The fields set by webhooks and policies.
#[must_use]
pub fn blame(admission: &Admission) -> Vec<Blame> {
    let mut all = Vec::new();
    let mut add = |by: &str, round: u8, change: &Change| {
        let changed = diff::fields(change.before.value(), change.after.value());
        all.extend(changed.into_iter().map(|field| Blame {
            field: field.path,
            by: by.to_owned(),
            round: round + 1,
            before: field.before,
            after: field.after,
        }));
    };
    for (_, plugin) in admission.trace().plugins() {
        for policy in &plugin.policies {
            for binding in &policy.bindings {
                for evaluation in &binding.evaluations {
                    if let Some(change) = &evaluation.change {
                        add(policy.policy.name(), plugin.round, change);
                    }
                }
            }
        }
        for hook in &plugin.hooks {
            if let Some(change) = hook.call.as_ref().and_then(|call| call.change.as_ref()) {
                add(hook.hook.name(), plugin.round, change);
            }
        }
    }
    all
}
