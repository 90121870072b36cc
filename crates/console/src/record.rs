//! A record: the page's data about one request, from its trace and without credentials.

use std::time::Duration;

use lockgate_admission::configuration::{CompiledPolicy, FailurePolicy};
use lockgate_admission::matching::{
    ConditionsTrace, ConditionsVerdict, NamespaceVerdict, ObjectVerdict, Predicates, RuleVerdict,
};
use lockgate_admission::object::Object;
use lockgate_admission::request::Request;
use lockgate_admission::trace::{
    self, BindingTrace, CallOutcome, CallTrace, Enforcement, EvaluationTrace, HookTrace,
    PluginTrace, PolicyTrace, Step, StepTrace, Trace,
};
use serde_json::{Value, json};

use crate::changes::{Blame, Change, changes};
use crate::redact::{is_sensitive, redacted};

/// Larger records are kept without their objects.
const MAX_BYTES: usize = 2 << 20;
/// The maximum length of a message in a row of the list.
const MAX_MESSAGE: usize = 300;

/// A recorded request.
#[derive(Debug)]
pub(crate) struct Record {
    /// A row of the list, as JSON.
    pub(crate) summary: String,
    /// Everything, as JSON.
    pub(crate) detail: String,
}

impl Record {
    /// Creates the record of a request. `time` is in milliseconds since 1970.
    pub(crate) fn new(number: u64, time: u64, request: &Request, trace: &Trace) -> Self {
        let writer = Writer {
            group: &request.kind.group,
            kind: &request.kind.kind,
        };
        let mut detail = writer.detail(number, time, request, trace);
        let summary = summary(number, time, request, trace, &detail).to_string();
        let mut text = detail.to_string();
        if text.len() > MAX_BYTES {
            detail = without_objects(detail);
            text = detail.to_string();
        }
        Self {
            summary,
            detail: text,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.summary.len() + self.detail.len()
    }
}

/// The record without objects, for users without full permissions, and for large requests.
pub(crate) fn without_objects(mut detail: Value) -> Value {
    for name in ["object", "oldObject", "finalObject", "options", "blame"] {
        if let Some(members) = detail.as_object_mut() {
            members.remove(name);
        }
    }
    let mut open = vec![&mut detail];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                members.remove("changes");
                members.remove("patch");
                open.extend(members.values_mut());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    detail["objectsOmitted"] = json!(true);
    detail
}

/// The row of a list.
fn summary(number: u64, time: u64, request: &Request, trace: &Trace, detail: &Value) -> Value {
    let elapsed = trace.steps.iter().map(|step| step.elapsed).sum();
    let denied = trace.steps.iter().find(|step| step.denied.is_some());
    let by = denied.map(denied_by);
    let message = denied.and_then(|step| step.status.as_ref());
    let message = message.map(|status| cut(&status.message));
    let mut names: Vec<&str> = Vec::new();
    let mut calls = 0;
    for (_, plugin) in trace.plugins() {
        for hook in plugin.hooks.iter().filter(|hook| hook.call.is_some()) {
            calls += 1;
            names.push(hook.hook.name());
        }
        let evaluated = |policy: &&PolicyTrace| {
            let mut bindings = policy.bindings.iter();
            bindings.any(|binding| !binding.evaluations.is_empty())
        };
        names.extend(
            plugin
                .policies
                .iter()
                .filter(evaluated)
                .map(|policy| policy.policy.name()),
        );
    }
    names.sort_unstable();
    names.dedup();
    let rounds = trace.plugins().map(|(_, plugin)| plugin.round + 1).max();
    json!({
        "n": number,
        "time": time,
        "operation": request.operation.name(),
        "resource": request.resource.resource,
        "group": request.resource.group,
        "subresource": request.subresource,
        "kind": request.kind.kind,
        "namespace": request.namespace,
        "name": request.display_name(),
        "user": request.user.username,
        "dryRun": request.dry_run,
        "verdict": if denied.is_some() { "denied" } else { "allowed" },
        "failed": is_failed(trace),
        "by": by,
        "message": message,
        "ms": milliseconds(elapsed),
        "calls": calls,
        "rounds": rounds,
        "names": names,
        "changed": detail.get("blame").and_then(Value::as_object).is_some_and(|blame| !blame.is_empty()),
        "warnings": trace.warnings().texts().len(),
    })
}

/// Returns true if a webhook call failed, with any effect.
fn is_failed(trace: &Trace) -> bool {
    let mut calls = trace.calls();
    calls.any(|(.., call)| {
        matches!(
            call.outcome,
            CallOutcome::Failed { .. } | CallOutcome::Panicked { .. } | CallOutcome::Canceled
        )
    })
}

/// The webhook, policy or plugin that denied a request.
fn denied_by(step: &StepTrace) -> Value {
    let Some(plugin) = step.plugins.iter().rev().find(|plugin| plugin.denied) else {
        return Value::Null;
    };
    let hook = plugin.hooks.iter().find(|hook| {
        let call = hook.call.as_ref();
        call.is_some_and(|call| call_result(hook, call).is_refusal())
            || matches!(
                condition_result(hook.conditions.as_ref()),
                Some(Verdict::Denied)
            )
    });
    if let Some(hook) = hook {
        return json!({"type": "webhook", "name": hook.hook.name(), "configuration": hook.hook.configuration()});
    }
    let policy = plugin
        .policies
        .iter()
        .find(|policy| policy_result(policy).is_refusal());
    match policy {
        Some(policy) => json!({"type": "policy", "name": policy.policy.name()}),
        None => json!({"type": "plugin", "name": plugin.name}),
    }
}

/// The outcome of a webhook or policy in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Skipped,
    NotReinvoked,
    Allowed,
    Patched,
    Audited,
    Warned,
    FailedOpen,
    Failed,
    Denied,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::NotReinvoked => "not reinvoked",
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Audited => "audited",
            Self::Warned => "warned",
            Self::FailedOpen => "failed open",
            Self::Failed => "failed",
            Self::Denied => "denied",
        }
    }

    fn is_refusal(self) -> bool {
        matches!(self, Self::Failed | Self::Denied)
    }
}

fn call_result(hook: &HookTrace, call: &CallTrace) -> Verdict {
    match &call.outcome {
        CallOutcome::Allowed => match &call.patch {
            Some(patch) if patch.changed => Verdict::Patched,
            _ => Verdict::Allowed,
        },
        CallOutcome::Denied(_) => Verdict::Denied,
        _ if call.failed_open(hook.hook.failure_policy()) => Verdict::FailedOpen,
        _ => Verdict::Failed,
    }
}

fn condition_result(conditions: Option<&ConditionsTrace>) -> Option<Verdict> {
    match &conditions?.verdict {
        ConditionsVerdict::Matched => None,
        ConditionsVerdict::Excluded { .. } | ConditionsVerdict::Ignored { .. } => {
            Some(Verdict::Skipped)
        }
        ConditionsVerdict::Refused { .. } => Some(Verdict::Denied),
    }
}

fn hook_result(hook: &HookTrace) -> Verdict {
    if let Some(call) = &hook.call {
        return call_result(hook, call);
    }
    if hook.not_reinvoked {
        return Verdict::NotReinvoked;
    }
    condition_result(hook.conditions.as_ref()).unwrap_or(Verdict::Skipped)
}

fn evaluation_result(policy: &CompiledPolicy, evaluation: &EvaluationTrace) -> Verdict {
    if evaluation.not_reinvoked {
        return Verdict::NotReinvoked;
    }
    if let Some(verdict) = condition_result(evaluation.conditions.as_ref()) {
        return verdict;
    }
    let outcomes =
        evaluation
            .outcomes
            .iter()
            .map(|outcome| match (outcome.enforcement, &outcome.error) {
                (Enforcement::Deny, _) => Verdict::Denied,
                (Enforcement::Warn, _) => Verdict::Warned,
                (Enforcement::Audit, _) => Verdict::Audited,
                (Enforcement::Allow, Some(_))
                    if policy.failure_policy() == FailurePolicy::Ignore =>
                {
                    Verdict::FailedOpen
                }
                (Enforcement::Allow, _) => Verdict::Allowed,
            });
    let worst = outcomes.max().unwrap_or(Verdict::Allowed);
    if worst == Verdict::Allowed && evaluation.change.is_some() {
        return Verdict::Patched;
    }
    worst
}

fn failure_result(policy: &CompiledPolicy) -> Verdict {
    match policy.failure_policy() {
        FailurePolicy::Ignore => Verdict::FailedOpen,
        FailurePolicy::Fail => Verdict::Failed,
    }
}

fn binding_result(policy: &CompiledPolicy, binding: &BindingTrace) -> Verdict {
    if binding.failure.is_some() {
        return failure_result(policy);
    }
    let evaluations = binding.evaluations.iter();
    let results = evaluations.map(|evaluation| evaluation_result(policy, evaluation));
    results.max().unwrap_or(Verdict::Skipped)
}

fn policy_result(trace: &PolicyTrace) -> Verdict {
    if trace.failure.is_some() {
        return failure_result(&trace.policy);
    }
    let bindings = trace.bindings.iter();
    let results = bindings.map(|binding| binding_result(&trace.policy, binding));
    results.max().unwrap_or(Verdict::Skipped)
}

/// The first predicate that did not match.
fn unmatched(predicates: &Predicates) -> &'static str {
    if predicates.namespace == NamespaceVerdict::Refused {
        return "namespaceSelector does not match the labels of the namespace";
    }
    match (predicates.object, predicates.rule) {
        (Some(ObjectVerdict::Refused), _) => {
            "objectSelector does not match the labels of the object"
        }
        (_, Some(RuleVerdict::None)) => "no rule matches",
        (_, Some(RuleVerdict::Excluded { .. })) => "excludeResourceRules match",
        _ => "not called",
    }
}

fn milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Writes the parts of a record.
struct Writer<'w> {
    group: &'w str,
    kind: &'w str,
}

impl Writer<'_> {
    fn detail(&self, number: u64, time: u64, request: &Request, trace: &Trace) -> Value {
        let first = trace.steps.first().and_then(|step| step.object.as_ref());
        let last = trace
            .steps
            .iter()
            .rev()
            .find(|step| step.step == Step::Validate);
        let last = last.and_then(|step| step.object.as_ref());
        let mut blame = Blame::default();
        let mut current = first.cloned();
        let steps: Vec<Value> = trace
            .steps
            .iter()
            .map(|step| self.step(step, &mut current, &mut blame))
            .collect();
        json!({
            "n": number,
            "time": time,
            "request": self.request(request),
            "object": self.object(first.or(request.object.as_ref())),
            "oldObject": self.object(request.old_object.as_ref()),
            "finalObject": self.object(last.or(current.as_ref())),
            "options": request.options.as_ref().map(Object::value),
            "steps": steps,
            "blame": blame.into_value(),
            "warnings": trace.warnings().texts(),
        })
    }

    /// The request as in an AdmissionReview, without objects.
    fn request(&self, request: &Request) -> Value {
        let kind = json!({"group": request.kind.group, "version": request.kind.version, "kind": request.kind.kind});
        let resource = json!({"group": request.resource.group, "version": request.resource.version, "resource": request.resource.resource});
        let user = &request.user;
        json!({
            "kind": kind,
            "resource": resource,
            "subResource": request.subresource,
            "requestKind": kind,
            "requestResource": resource,
            "requestSubResource": request.subresource,
            "name": request.name,
            "namespace": request.namespace,
            "operation": request.operation.name(),
            "userInfo": {"username": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra},
            "dryRun": request.dry_run,
        })
    }

    fn object(&self, object: Option<&Object>) -> Option<Value> {
        object.map(|object| redacted(self.group, self.kind, object.value()).into_owned())
    }

    /// The differences between two versions of the object, without credentials.
    fn changes(&self, before: Option<&Object>, after: &Object) -> Vec<Change> {
        let none = Value::Null;
        let before = before.map_or(&none, Object::value);
        let before = redacted(self.group, self.kind, before);
        changes(&before, &redacted(self.group, self.kind, after.value()))
    }

    fn step(&self, step: &StepTrace, current: &mut Option<Object>, blame: &mut Blame) -> Value {
        if step.object.is_some() {
            current.clone_from(&step.object);
        }
        let runs: Vec<Value> = step
            .plugins
            .iter()
            .map(|plugin| self.run(plugin, current, blame))
            .collect();
        let status = step.status.as_ref().map(|status| {
            json!({"code": status.code, "reason": status.reason, "message": status.message})
        });
        json!({
            "step": match step.step { Step::Admit => "mutating", Step::Validate => "validating" },
            "ms": milliseconds(step.elapsed),
            "denied": step.denied.is_some(),
            "cause": step.denied.map(|cause| format!("{cause:?}")),
            "by": step.denied.map(|_| denied_by(step)),
            "status": status,
            "runs": runs,
        })
    }

    fn run(&self, plugin: &PluginTrace, current: &mut Option<Object>, blame: &mut Blame) -> Value {
        let before = current.clone();
        let round = plugin.round + 1;
        let hooks = plugin.hooks.iter().map(|hook| {
            let author = json!({"type": "webhook", "name": hook.hook.name(), "configuration": hook.hook.configuration(), "round": round});
            let change = hook.call.as_ref().and_then(|call| call.change.as_ref());
            let changes = self.follow(current, change, blame, &author);
            self.hook(hook, changes)
        });
        let hooks: Vec<Value> = hooks.collect();
        let policies = plugin
            .policies
            .iter()
            .map(|policy| self.policy(policy, round, current, blame));
        let policies: Vec<Value> = policies.collect();
        let has_authors = !hooks.is_empty() || !policies.is_empty();
        let mut changes = Vec::new();
        if let Some(left) = &plugin.object {
            let author = json!({"type": "plugin", "name": plugin.name, "round": round});
            // Changes by webhooks and policies are already listed; the rest is version conversion.
            if has_authors {
                *current = Some(left.clone());
            } else {
                *current = before;
                changes = self.changes(current.as_ref(), left);
                blame.note(&changes, &author);
                *current = Some(left.clone());
            }
        }
        json!({
            "plugin": plugin.name,
            "round": round,
            "ms": milliseconds(plugin.elapsed),
            "denied": plugin.denied,
            "registered": plugin.registered,
            "namespaceLabels": plugin.namespace.as_ref().map(|namespace| &namespace.labels),
            "warnings": plugin.warnings,
            "annotations": plugin.annotations.iter().map(|(key, value, _)| json!([key, value])).collect::<Vec<_>>(),
            "changes": changes,
            "hooks": hooks,
            "policies": policies,
        })
    }

    /// Continues with the object after a webhook or policy.
    fn follow(
        &self,
        current: &mut Option<Object>,
        change: Option<&trace::Change>,
        blame: &mut Blame,
        author: &Value,
    ) -> Vec<Change> {
        let Some(trace::Change { before, after }) = change else {
            return Vec::new();
        };
        let changes = self.changes(Some(before), after);
        blame.note(&changes, author);
        *current = Some(after.clone());
        changes
    }

    fn hook(&self, hook: &HookTrace, changes: Vec<Change>) -> Value {
        let webhook = hook.hook.webhook();
        let condition = hook.conditions.as_ref().map(|conditions| {
            let expression = |name: &str| {
                let mut all = webhook.match_conditions.iter().flatten();
                all.find(|condition| condition.name == name)
                    .map(|condition| condition.expression.clone())
            };
            conditions_json(conditions, expression)
        });
        let result = hook_result(hook);
        let mut told = json!({
            "name": hook.hook.name(),
            "configuration": hook.hook.configuration(),
            "index": hook.index,
            "failurePolicy": match hook.hook.failure_policy() { FailurePolicy::Fail => "Fail", FailurePolicy::Ignore => "Ignore" },
            "timeoutSeconds": webhook.timeout_seconds,
            "result": result.name(),
            "condition": condition,
        });
        match &hook.call {
            None if result == Verdict::Skipped && hook.conditions.is_none() => {
                told["why"] = json!(unmatched(&hook.predicates));
            }
            None => {}
            Some(call) => self.call(call, changes, &mut told),
        }
        told
    }

    fn call(&self, call: &CallTrace, changes: Vec<Change>, told: &mut Value) {
        let (code, message) = match &call.outcome {
            CallOutcome::Denied(status) | CallOutcome::Refused(status) => {
                (Some(status.code), Some(status.message.clone()))
            }
            CallOutcome::Failed { reason, code, .. } => (Some(*code), Some(reason.clone())),
            CallOutcome::Panicked { message } => (None, Some(message.clone())),
            CallOutcome::Canceled => (None, Some(String::from("the client went away"))),
            _ => (None, None),
        };
        told["ms"] = json!(milliseconds(call.elapsed));
        told["roundTripMs"] = json!(milliseconds(call.round_trip));
        told["allowedMs"] = json!(call.allowed_time.map(milliseconds));
        told["uid"] = json!(call.uid);
        told["finished"] = json!(call.finished);
        let phases = call.phases.iter();
        let phases = phases
            .map(|(phase, span)| json!([format!("{phase:?}").to_lowercase(), milliseconds(*span)]));
        told["phases"] = phases.collect();
        told["code"] = json!(code);
        told["message"] = json!(message);
        told["warnings"] = json!(call.warnings);
        told["annotations"] = json!(call.annotations);
        told["changes"] = json!(changes);
        if let Some(patch) = &call.patch {
            // A patch of a Secret contains its data.
            told["patch"] = match is_sensitive(self.group, self.kind) {
                true => json!(crate::redact::REDACTED),
                false => json!(patch.text),
            };
        }
    }

    fn policy(
        &self,
        trace: &PolicyTrace,
        round: u8,
        current: &mut Option<Object>,
        blame: &mut Blame,
    ) -> Value {
        let policy = &trace.policy;
        let bindings = trace.bindings.iter().map(|binding| {
            let author = json!({"type": "policy", "name": policy.name(), "binding": binding.binding.name(), "round": round});
            let evaluations = binding.evaluations.iter().map(|evaluation| {
                let change = evaluation.change.as_ref();
                let changes = self.follow(current, change, blame, &author);
                evaluation_json(policy, evaluation, changes)
            });
            let evaluations: Vec<Value> = evaluations.collect();
            let why = match (&binding.predicates, evaluations.is_empty()) {
                (Some(predicates), true) => Some(unmatched(predicates)),
                (None, true) if binding.failure.is_none() => Some("there are no parameters"),
                _ => None,
            };
            json!({
                "name": binding.binding.name(),
                "actions": binding.binding.actions().map(|action| action.name()).collect::<Vec<_>>(),
                "result": binding_result(policy, binding).name(),
                "failure": binding.failure,
                "why": why,
                "evaluations": evaluations,
            })
        });
        let bindings: Vec<Value> = bindings.collect();
        let why = trace.predicates.as_ref().filter(|_| bindings.is_empty());
        json!({
            "name": policy.name(),
            "kind": policy.kind().name(),
            "failurePolicy": match policy.failure_policy() { FailurePolicy::Fail => "Fail", FailurePolicy::Ignore => "Ignore" },
            "result": policy_result(trace).name(),
            "failure": trace.failure,
            "why": why.map(unmatched),
            "bindings": bindings,
        })
    }
}

fn evaluation_json(
    policy: &CompiledPolicy,
    evaluation: &EvaluationTrace,
    changes: Vec<Change>,
) -> Value {
    let outcomes = evaluation.outcomes.iter().map(|outcome| {
        json!({
            "list": outcome.role.list(),
            "index": outcome.index,
            "expression": outcome.expression(policy),
            "message": outcome.error,
            "enforcement": outcome.enforcement.name(),
            "ms": milliseconds(outcome.elapsed),
        })
    });
    let condition = evaluation.conditions.as_ref().map(|conditions| {
        conditions_json(conditions, |name| {
            policy.match_condition(name).map(str::to_owned)
        })
    });
    json!({
        "param": evaluation.param.as_ref().map(|(namespace, name)| json!({"namespace": namespace, "name": name})),
        "result": evaluation_result(policy, evaluation).name(),
        "condition": condition,
        "outcomes": outcomes.collect::<Vec<_>>(),
        "changes": changes,
    })
}

fn conditions_json(
    conditions: &ConditionsTrace,
    expression: impl Fn(&str) -> Option<String>,
) -> Value {
    let (verdict, name, error) = match &conditions.verdict {
        ConditionsVerdict::Matched => ("matched", None, None),
        ConditionsVerdict::Excluded { condition } => ("excluded", Some(condition), None),
        ConditionsVerdict::Ignored { error } => ("failed, ignored", None, Some(error)),
        ConditionsVerdict::Refused { error } => ("failed", None, Some(error)),
    };
    json!({
        "verdict": verdict,
        "name": name,
        "expression": name.and_then(|name| expression(name)),
        "error": error,
        "ms": milliseconds(conditions.elapsed),
    })
}
