//! The expectation of a case, and its comparison with a run.

use std::collections::BTreeMap;

use lockgate_admission::audit::Level;
use lockgate_admission::host::Kinds as _;
use lockgate_admission::trace::{Enforcement, Trace};
use serde_json::Value;

use crate::chain::Run;
use crate::diff;
use crate::explanation::PolicyVerdict;
use crate::explanation::{HookVerdict, blame, evaluation_verdict, hook_verdict};
use crate::kinds::OfflineKinds;

/// The expectation of a case. Absent fields are not compared.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// The decision.
    pub allowed: Option<bool>,
    /// A substring of the message of a denial.
    pub message: Option<String>,
    /// The status code of a denial.
    pub code: Option<i32>,
    /// The reason of a denial.
    pub reason: Option<String>,
    /// Substrings of warnings, each of which must occur.
    pub warnings: Option<Vec<String>>,
    /// Substrings of audit annotations by key; the prefix up to the `/` may be omitted.
    pub audit_annotations: BTreeMap<String, String>,
    /// The entire object after mutation.
    pub object: Option<Value>,
    /// A subset of the object after mutation.
    pub object_part: Option<Value>,
    /// Fields that a webhook or a policy removes.
    pub removed: Vec<String>,
    /// The called webhooks, in order, both rounds together.
    pub calls: Option<Vec<String>>,
    /// Verdicts by the name of a webhook or policy.
    pub verdicts: BTreeMap<String, String>,
    /// Patches by the name of a webhook.
    pub patches: BTreeMap<String, Value>,
    /// The webhook or policy that set a field.
    pub blame: BTreeMap<String, String>,
    /// The expected outcome of one policy, in suites that test policies individually.
    pub enforced: Option<(String, Enforced)>,
    /// The number of failed validations.
    pub violations: Option<(Count, Option<String>)>,
}

/// The outcome of one policy on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    /// It matches and allows the request.
    Pass,
    /// It denies the request, or would.
    Fail,
    /// It does not match.
    Skip,
    /// It warns.
    Warn,
    /// It adds an audit annotation.
    Audit,
    /// It cannot be evaluated.
    Error,
}

/// A number of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// None.
    Zero,
    /// At least one.
    Some,
    /// This number.
    Exactly(usize),
}

impl Expect {
    /// The differences from the expectation.
    pub(super) fn compare(&self, run: &Run, kinds: &OfflineKinds) -> Vec<String> {
        let mut failures = Vec::new();
        self.compare_decision(run, &mut failures);
        self.compare_remarks(run, &mut failures);
        self.compare_object(run, kinds, &mut failures);
        self.compare_trace(run, &mut failures);
        failures
    }

    fn compare_decision(&self, run: &Run, failures: &mut Vec<String>) {
        let status = run.decision.status();
        let is_allowed = run.decision.is_allowed();
        let told = status
            .map(|status| status.message.as_str())
            .unwrap_or_default();
        match self.allowed {
            Some(true) if !is_allowed => {
                failures.push(format!(
                    "expected the request to be allowed, it was denied: {told}"
                ));
            }
            Some(false) if is_allowed => {
                failures.push(String::from(
                    "expected the request to be denied, it was allowed",
                ));
            }
            _ => {}
        }
        if let Some(message) = &self.message
            && !told.contains(message.trim())
        {
            failures.push(format!(
                "expected the message `{}`, found `{told}`",
                message.trim()
            ));
        }
        let code = status.map(|status| status.code);
        if let Some(wanted) = self.code
            && code != Some(wanted)
        {
            let code = code.map_or_else(|| String::from("none"), |code| code.to_string());
            failures.push(format!("expected code {wanted}, found {code}"));
        }
        let reason = status
            .map(|status| status.reason.as_str())
            .unwrap_or_default();
        if let Some(wanted) = &self.reason
            && reason != wanted
        {
            failures.push(format!("expected reason {wanted}, found `{reason}`"));
        }
    }

    fn compare_remarks(&self, run: &Run, failures: &mut Vec<String>) {
        let told = run.admission.warnings();
        let told = told.texts();
        if let Some(wanted) = &self.warnings {
            for warning in wanted {
                if !told.iter().any(|text| text.contains(warning.trim())) {
                    failures.push(format!(
                        "expected the warning `{}`, found {told:?}",
                        warning.trim()
                    ));
                }
            }
            if wanted.is_empty() && !told.is_empty() {
                failures.push(format!("expected no warnings, found {told:?}"));
            }
        }
        let annotations = run.admission.annotations();
        for (key, wanted) in &self.audit_annotations {
            let mut found = annotations.at(Level::Request);
            let suffix = format!("/{key}");
            let found = found.find(|(known, _)| known == key || known.ends_with(&suffix));
            match found {
                Some((_, value)) if value.contains(wanted.as_str()) => {}
                Some((_, value)) => failures.push(format!(
                    "expected the audit annotation `{key}` to be `{wanted}`, found `{value}`"
                )),
                None => failures.push(format!("expected the audit annotation `{key}`, found none")),
            }
        }
    }

    fn compare_object(&self, run: &Run, kinds: &OfflineKinds, failures: &mut Vec<String>) {
        let nothing = Value::Null;
        let found = run.object.as_ref().unwrap_or(&nothing);
        if let Some(wanted) = &self.object {
            // Both in the server's form, so that defaults are equal.
            let of = &run.admission.request().kind;
            let read = |value: &Value| match kinds.read(value.clone(), of) {
                Ok((value, _)) => value,
                Err(_) => value.clone(),
            };
            let (mut wanted, found) = (read(wanted), read(found));
            let namespace = &found["metadata"]["namespace"];
            if wanted["metadata"].get("namespace").is_none() && namespace.is_string() {
                wanted["metadata"]["namespace"] = namespace.clone();
            }
            if !kinds.semantically_equal(of, &wanted, &found) {
                let diff = diff::unified(&wanted, &found);
                failures.push(format!(
                    "the object is not as expected (- expected, + found):\n{diff}"
                ));
            }
        }
        if let Some(wanted) = &self.object_part
            && let Some(missing) = missing(wanted, found)
        {
            failures.push(missing);
        }
    }

    fn compare_trace(&self, run: &Run, failures: &mut Vec<String>) {
        let trace = run.admission.trace();
        if let Some(wanted) = &self.calls {
            let found: Vec<&str> = trace
                .calls()
                .map(|(_, _, hook, _)| hook.hook.name())
                .collect();
            if found != *wanted {
                failures.push(format!("expected the calls {wanted:?}, found {found:?}"));
            }
        }
        let verdicts = verdicts(trace);
        for (name, wanted) in &self.verdicts {
            let found = verdicts.get(name).map_or("not-matched", |verdict| *verdict);
            if found != wanted {
                failures.push(format!("expected `{name}` to be {wanted}, found {found}"));
            }
        }
        for (name, wanted) in &self.patches {
            let mut calls = trace.calls();
            let found = calls.find_map(|(_, _, hook, call)| {
                let patch = call.patch.as_ref().filter(|_| hook.hook.name() == name)?;
                serde_json::from_str::<Value>(&patch.text).ok()
            });
            if found.as_ref() != Some(wanted) {
                let found = found.unwrap_or_default();
                failures.push(format!(
                    "expected `{name}` to patch {wanted}, found {found}"
                ));
            }
        }
        if !self.blame.is_empty() {
            let blamed = blame(&run.admission);
            for (field, wanted) in &self.blame {
                let mut found = blamed.iter().rev();
                let found = found.find(|it| it.field == *field).map(|it| it.by.as_str());
                if found != Some(wanted) {
                    let found = found.unwrap_or("nobody");
                    failures.push(format!(
                        "expected `{field}` to be set by {wanted}, found {found}"
                    ));
                }
            }
        }
        if let Some((policy, wanted)) = &self.enforced {
            let found = enforced(trace, policy);
            if found != *wanted {
                failures.push(format!(
                    "expected the result of `{policy}` to be {wanted:?}, found {found:?}"
                ));
            }
        }
        if let Some((wanted, message)) = &self.violations {
            let found = violations(trace, message.as_deref());
            let holds = match wanted {
                Count::Zero => found.is_empty(),
                Count::Some => !found.is_empty(),
                Count::Exactly(count) => found.len() == *count,
            };
            if !holds {
                failures.push(format!("expected violations: {wanted:?}, found {found:?}"));
            }
        }
    }
}

/// The first field that is missing in an object; lists are compared as a whole.
fn missing(wanted: &Value, found: &Value) -> Option<String> {
    let mut open = vec![(String::new(), wanted, Some(found))];
    while let Some((path, wanted, found)) = open.pop() {
        match (wanted, found) {
            (Value::Null, None | Some(Value::Null)) => {}
            (Value::Object(members), Some(Value::Object(present))) => {
                for (key, value) in members {
                    open.push((format!("{path}.{key}"), value, present.get(key)));
                }
            }
            (wanted, Some(found)) if wanted == found => {}
            (wanted, found) => {
                let found = found.map_or_else(|| String::from("nothing"), Value::to_string);
                let path = path.trim_start_matches('.');
                return Some(format!("expected `{path}` to be {wanted}, found {found}"));
            }
        }
    }
    None
}

/// The last verdict on each webhook or policy, by name.
fn verdicts(trace: &Trace) -> BTreeMap<String, &'static str> {
    let mut verdicts = BTreeMap::new();
    for (_, plugin) in trace.plugins() {
        for hook in &plugin.hooks {
            let verdict = hook_verdict(hook);
            if verdict != HookVerdict::NotReinvoked {
                verdicts.insert(hook.hook.name().to_owned(), verdict.name());
            }
        }
        for policy in &plugin.policies {
            let failed = policy.failure.as_ref().map(|_| PolicyVerdict::Denied);
            let evaluations = policy.bindings.iter().flat_map(|it| &it.evaluations);
            let evaluations = evaluations.map(|it| evaluation_verdict(it, PolicyVerdict::Denied));
            let bindings = policy.bindings.iter();
            let bindings = bindings.filter_map(|it| it.failure.as_ref());
            let bindings = bindings.map(|_| PolicyVerdict::Denied);
            let verdict = evaluations.chain(bindings).chain(failed).max();
            if let Some(verdict) = verdict.filter(|it| *it != PolicyVerdict::NotReinvoked) {
                verdicts.insert(policy.policy.name().to_owned(), verdict.name());
            }
        }
    }
    verdicts
}

fn enforced(trace: &Trace, name: &str) -> Enforced {
    let mut result = Enforced::Skip;
    for (_, plugin) in trace.plugins() {
        for policy in plugin.policies.iter().filter(|it| it.policy.name() == name) {
            if policy.failure.is_some() {
                return Enforced::Error;
            }
            for binding in &policy.bindings {
                if binding.failure.is_some() {
                    return Enforced::Error;
                }
                for evaluation in &binding.evaluations {
                    let verdict = evaluation_verdict(evaluation, PolicyVerdict::Denied);
                    let found = match verdict {
                        PolicyVerdict::Denied | PolicyVerdict::FailedOpen => Enforced::Fail,
                        PolicyVerdict::Warned => Enforced::Warn,
                        PolicyVerdict::Audited => Enforced::Audit,
                        PolicyVerdict::Allowed | PolicyVerdict::Mutated => Enforced::Pass,
                        _ => continue,
                    };
                    if matches!(result, Enforced::Skip | Enforced::Pass) {
                        result = found;
                    }
                }
            }
        }
    }
    result
}

/// The messages of failed validations, once per expression.
fn violations(trace: &Trace, containing: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for (_, plugin) in trace.plugins() {
        for policy in &plugin.policies {
            if let Some(failure) = &policy.failure {
                found.push(failure.clone());
            }
            for binding in &policy.bindings {
                if let Some(failure) = &binding.failure {
                    found.push(failure.clone());
                }
                for evaluation in &binding.evaluations {
                    let outcomes = evaluation.outcomes.iter();
                    let denied = outcomes.filter(|it| it.enforcement == Enforcement::Deny);
                    found.extend(denied.filter_map(|it| it.error.clone()));
                }
            }
        }
    }
    if let Some(part) = containing {
        found.retain(|message| message.contains(part));
    }
    found
}
