//! What admission did with a request, as a table.

use lockgate_admission::matching::{
    ConditionsVerdict, NamespaceVerdict, ObjectVerdict, RuleVerdict,
};
use lockgate_admission::plugin::Admission;
use lockgate_admission::trace::{CallOutcome, HookTrace, PluginTrace, Step, Trace};

use super::table;

/// What happened in one run through admission: what was asked, and a row for each webhook. Empty when
/// no webhook comes into question.
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
    let table = render(&rows);
    format!(
        "{operation} {resource} {name} by {user}\n{}",
        table.trim_end()
    )
}

/// What happened, a row for each webhook and for each plugin that said something.
#[must_use]
pub fn table(traces: &[Trace]) -> String {
    let rows = rows_of(traces);
    if rows.is_empty() {
        return String::from("   no webhook comes into question\n");
    }
    render(&rows)
}

fn render(rows: &[Vec<String>]) -> String {
    let text = table::render(&["PHASE", "ROUND", "WHO", "VERDICT", "TIME"], rows);
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
            verdict,
            time,
        ]
    };
    if plugin.denied && plugin.hooks.is_empty() {
        return vec![row(plugin.name, String::from("refused"), String::new())];
    }
    let hooks = plugin.hooks.iter();
    hooks
        .map(|hook| {
            let time = hook
                .call
                .as_ref()
                .map(|call| format!("{:.1} ms", call.elapsed.as_secs_f64() * 1000.0));
            row(hook.hook.name(), verdict(hook), time.unwrap_or_default())
        })
        .collect()
}

/// What came of a webhook, or the first reason why it was not called.
fn verdict(hook: &HookTrace) -> String {
    if let Some(call) = &hook.call {
        return match &call.outcome {
            CallOutcome::Allowed => match &call.patch {
                Some(patch) => format!("allowed, patched {}", patch.text),
                None => String::from("allowed"),
            },
            CallOutcome::Denied(_) => String::from("denied"),
            CallOutcome::Failed { reason, .. } => format!("failed: {reason}"),
            _ => String::from("failed"),
        };
    }
    if hook.not_reinvoked {
        return String::from("not called again: nothing changed since");
    }
    if let Some(conditions) = &hook.conditions {
        return match &conditions.verdict {
            ConditionsVerdict::Excluded { condition } => {
                format!("not called: condition {condition} is false")
            }
            ConditionsVerdict::Matched => String::from("matched"),
            _ => String::from("not called: a condition cannot be evaluated"),
        };
    }
    let predicates = &hook.predicates;
    if predicates.namespace == NamespaceVerdict::Refused {
        return String::from("not called: namespaceSelector");
    }
    match (predicates.object, predicates.rule) {
        (Some(ObjectVerdict::Refused), _) => String::from("not called: objectSelector"),
        (_, Some(RuleVerdict::None)) => String::from("not called: no rule matches"),
        _ => String::from("not called"),
    }
}
