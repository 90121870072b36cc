//! How the demo shows what happened.

use lockgate_admission::matching::{
    ConditionsVerdict, NamespaceVerdict, ObjectVerdict, RuleVerdict,
};
use lockgate_admission::trace::{CallOutcome, HookTrace, PluginTrace, Step, Trace};
use serde_json::Value;

use super::client::Answer;
use crate::output::table;

/// The answer on one line.
pub(super) fn answer(answer: &Answer) -> String {
    let text = |pointer: &str| {
        answer
            .body
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let mut line = match text("/kind") {
        "Status" if !text("/message").is_empty() => format!("{} {}", answer.code, text("/message")),
        kind => {
            let name = text("/metadata/name");
            let labels = answer
                .body
                .pointer("/metadata/labels")
                .map(|labels| format!(" labels {labels}"));
            format!(
                "{} {kind} {name}{}",
                answer.code,
                labels.unwrap_or_default()
            )
        }
    };
    for warning in &answer.warnings {
        line.push_str("\n   Warning: ");
        line.push_str(warning);
    }
    line
}

/// What happened, a row for each webhook and for each plugin that said something.
pub(super) fn traces(traces: &[Trace]) -> String {
    let rows: Vec<Vec<String>> = traces
        .iter()
        .flat_map(|trace| &trace.steps)
        .flat_map(|step| {
            step.plugins
                .iter()
                .flat_map(move |plugin| rows(step.step, plugin))
        })
        .collect();
    if rows.is_empty() {
        return String::from("   no webhook comes into question\n");
    }
    let text = table::render(&["PHASE", "ROUND", "WHO", "VERDICT", "TIME"], &rows);
    text.lines().map(|line| format!("   {line}\n")).collect()
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
