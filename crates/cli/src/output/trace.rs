//! The admission trace of a request, as a table.

use lockgate_admission::matching::{
    ConditionsVerdict, NamespaceVerdict, ObjectVerdict, Predicates, RuleVerdict,
};
use lockgate_admission::plugin::Admission;
use lockgate_admission::trace::{
    BindingTrace, CallOutcome, EvaluationTrace, HookTrace, PluginTrace, PolicyTrace, Step, Trace,
};

use super::table;

/// The trace of one request: a line for the request and a row for each webhook. Empty if no webhook matched.
#[must_use]
pub fn one_request(admission: &Admission) -> String {
    let rows = rows_of(std::slice::from_ref(admission.trace()));
    if rows.is_empty() {
        return String::new();
    }
    let request = admission.request();
    let resource = match request.subresource.as_str() {
        "" => request.resource.resource.clone(),
        subresource => format!("{}/{subresource}", request.resource.resource),
    };
    let name = match request.namespace.as_str() {
        "" => request.display_name().to_owned(),
        namespace => format!("{namespace}/{}", request.display_name()),
    };
    let (operation, user) = (request.operation.name(), &request.user.username);
    let dry_run = if request.dry_run { " (dry run)" } else { "" };
    let table = render(&rows);
    format!(
        "{operation} {resource} {name} by {user}{dry_run}\n{}",
        table.trim_end()
    )
}

/// The traces as a table: a row for each webhook and for each plugin that denied the request.
#[must_use]
pub fn table(traces: &[Trace]) -> String {
    let rows = rows_of(traces);
    if rows.is_empty() {
        return String::from("   no webhook matched\n");
    }
    render(&rows)
}

fn render(rows: &[Vec<String>]) -> String {
    let text = table::render(&["PHASE", "ROUND", "WHO", "TIME", "VERDICT"], rows);
    text.lines().map(|line| format!("   {line}\n")).collect()
}

fn rows_of(traces: &[Trace]) -> Vec<Vec<String>> {
    traces
        .iter()
        .flat_map(|trace| &trace.steps)
        .flat_map(|step| {
            step.plugins
                .iter()
                .flat_map(move |plugin| rows(step.step, plugin))
        })
        .collect()
}

fn rows(step: Step, plugin: &PluginTrace) -> Vec<Vec<String>> {
    let phase = match step {
        Step::Admit => "mutating",
        Step::Validate => "validating",
    };
    let row = |who: &str, verdict: String, time: String| {
        vec![
            phase.to_owned(),
            (plugin.round + 1).to_string(),
            who.to_owned(),
            // Printed before the verdict, which may contain a long patch.
            time,
            verdict,
        ]
    };
    if plugin.denied && plugin.hooks.is_empty() && plugin.policies.is_empty() {
        return vec![row(plugin.name, String::from("denied"), String::new())];
    }
    let hooks = plugin.hooks.iter().map(|hook| {
        let time = hook
            .call
            .as_ref()
            .map(|call| format!("{:>7.1} ms", call.elapsed.as_secs_f64() * 1000.0));
        row(hook.hook.name(), verdict(hook), time.unwrap_or_default())
    });
    let policies = plugin.policies.iter().flat_map(policy_verdicts);
    let policies = policies.map(|(who, verdict)| row(&who, verdict, String::new()));
    hooks.chain(policies).collect()
}

/// The verdicts of a policy: a line for each evaluation, or the first reason why it was not evaluated.
fn policy_verdicts(trace: &PolicyTrace) -> Vec<(String, String)> {
    let policy = trace.policy.name();
    if let Some(failure) = &trace.failure {
        return vec![(policy.to_owned(), format!("failed: {failure}"))];
    }
    if trace.bindings.is_empty() {
        let unmatched = trace.predicates.as_ref().map(unmatched);
        let why = unmatched.unwrap_or_else(|| String::from("not evaluated"));
        return vec![(
            policy.to_owned(),
            why.replace("not called", "not evaluated"),
        )];
    }
    let bindings = trace.bindings.iter();
    bindings
        .flat_map(|binding| binding_verdicts(policy, binding))
        .collect()
}

fn binding_verdicts(policy: &str, trace: &BindingTrace) -> Vec<(String, String)> {
    let who = format!("{policy} ({})", trace.binding.name());
    if let Some(failure) = &trace.failure {
        return vec![(who, format!("failed: {failure}"))];
    }
    if trace.evaluations.is_empty() {
        let why = match &trace.predicates {
            Some(predicates) => unmatched(predicates).replace("not called", "not evaluated"),
            None => String::from("not evaluated: no parameters"),
        };
        return vec![(who, why)];
    }
    let evaluations = trace.evaluations.iter();
    evaluations
        .map(|evaluation| {
            let who = match &evaluation.param {
                None => who.clone(),
                Some((namespace, name)) => format!("{who} with {namespace}/{name}"),
            };
            (who, evaluation_verdict(evaluation))
        })
        .collect()
}

fn evaluation_verdict(evaluation: &EvaluationTrace) -> String {
    if evaluation.not_reinvoked {
        return String::from("not reevaluated: object unchanged");
    }
    if let Some(conditions) = &evaluation.conditions
        && let Some(why) = excluded(&conditions.verdict)
    {
        return why.replace("not called", "not evaluated");
    }
    let outcomes = evaluation.outcomes.iter();
    let outcomes: Vec<String> = outcomes
        .map(|outcome| {
            let action = outcome.enforcement.name();
            match &outcome.error {
                None => format!("[{}] applied", outcome.index),
                Some(error) => format!("[{}] {action}: {error}", outcome.index),
            }
        })
        .collect();
    if outcomes.is_empty() {
        String::from("allowed")
    } else {
        outcomes.join("; ")
    }
}

/// The outcome of a call, or the first reason why the webhook was not called.
fn verdict(hook: &HookTrace) -> String {
    if let Some(call) = &hook.call {
        return match &call.outcome {
            CallOutcome::Allowed => match &call.patch {
                Some(patch) => format!("allowed, {}", folded(&patch.text)),
                None => String::from("allowed"),
            },
            CallOutcome::Denied(status) => {
                // The client's message has a prefix with the name.
                let message = status.message.split_once(" denied the request");
                let message = message.map_or(status.message.as_str(), |(_, rest)| rest);
                format!("denied {}{message}", status.code)
            }
            CallOutcome::Refused(status) => format!("failed {}: {}", status.code, status.message),
            CallOutcome::Failed { reason, code, .. } => format!("failed {code}: {reason}"),
            _ => String::from("failed"),
        };
    }
    if hook.not_reinvoked {
        return String::from("not reinvoked: object unchanged");
    }
    if let Some(conditions) = &hook.conditions {
        return excluded(&conditions.verdict).unwrap_or_else(|| String::from("matched"));
    }
    unmatched(&hook.predicates)
}

/// The maximum number of shown paths of a patch.
const MAX_PATHS: usize = 3;

/// A patch for display: a short one in full, otherwise the number of operations and the first paths.
fn folded(patch: &str) -> String {
    const SHORT: usize = 120;
    if patch.len() <= SHORT {
        return format!("patched {patch}");
    }
    let operations: Vec<serde_json::Value> = serde_json::from_str(patch).unwrap_or_default();
    let paths = operations.iter().map(|operation| {
        let text = |name: &str| operation[name].as_str().unwrap_or_default();
        format!("{} {}", text("op"), text("path"))
    });
    let shown: Vec<String> = paths.take(MAX_PATHS).collect();
    let more = match operations.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "patched: {}{more} ({} bytes)",
        shown.join(", "),
        patch.len()
    )
}

/// The reason if match conditions prevent the call.
fn excluded(verdict: &ConditionsVerdict) -> Option<String> {
    match verdict {
        ConditionsVerdict::Matched => None,
        ConditionsVerdict::Excluded { condition } => {
            Some(format!("excluded by matchCondition {condition}"))
        }
        _ => Some(String::from("not called: matchCondition evaluation failed")),
    }
}

/// The first predicate that did not match.
fn unmatched(predicates: &Predicates) -> String {
    if predicates.namespace == NamespaceVerdict::Refused {
        return String::from("excluded by namespaceSelector");
    }
    match (predicates.object, predicates.rule) {
        (Some(ObjectVerdict::Refused), _) => String::from("excluded by objectSelector"),
        (_, Some(RuleVerdict::None)) => String::from("no rule matched"),
        (_, Some(RuleVerdict::Excluded { .. })) => String::from("excluded by excludeResourceRules"),
        _ => String::from("not called"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::folded;

    #[test]
    fn folds_long_patches() {
        let short = json!([{"op": "add", "path": "/a", "value": 1}]).to_string();
        assert_eq!(folded(&short), format!("patched {short}"));
        let long = "x".repeat(200);
        let operation = |path: &str| json!({"op": "add", "path": path, "value": long});
        let patch = json!([
            operation("/a"),
            operation("/b"),
            operation("/c"),
            operation("/d")
        ])
        .to_string();
        let want = format!(
            "patched: add /a, add /b, add /c and 1 more ({} bytes)",
            patch.len()
        );
        assert_eq!(folded(&patch), want);
        assert_eq!(folded(&long), "patched:  (200 bytes)");
    }
}
