//! Human-readable explanations: a table, the deciding expressions, and the fields set by each hook.

use std::fmt::Write as _;

use lockgate_offline::explanation::{
    BindingExplanation, Explanation, ExpressionExplanation, HookExplanation, HookVerdict,
    PolicyExplanation, PolicyVerdict, StepExplanation,
};
use serde_json::Value;

use super::table;

/// The length at which values are truncated.
const MAX_VALUE: usize = 100;
/// The maximum number of shown subexpressions.
const MAX_PARTS: usize = 25;

/// The explanation as text, with true expressions only if requested.
#[must_use]
pub fn render(told: &Explanation, all_expressions: bool) -> String {
    let mut text = head(told);
    let rows: Vec<Vec<String>> = told.steps.iter().flat_map(rows).collect();
    if rows.is_empty() {
        text.push_str("no webhooks and no policies with bindings\n");
    } else {
        text.push('\n');
        text.push_str(&table::render(
            &["PHASE", "ROUND", "NAME", "VERDICT", "WHY"],
            &rows,
        ));
    }
    let expressions = expressions(told, all_expressions);
    if !expressions.is_empty() {
        text.push_str("\nexpressions:\n");
        text.push_str(&expressions);
    }
    section(&mut text, "fields set", &fields(told));
    let dry_run: Vec<String> = told
        .steps
        .iter()
        .flat_map(|step| &step.webhooks)
        .filter_map(|hook| Some((hook, hook.dry_run.as_ref()?)))
        .map(|(hook, why)| format!("{}: {why}", hook.webhook))
        .collect();
    section(&mut text, "dry runs", &distinct(dry_run));
    section(&mut text, "warnings", &told.warnings);
    section(&mut text, "assumed", &told.assumptions);
    text.push('\n');
    text.push_str(&decision(told));
    text
}

fn distinct(mut lines: Vec<String>) -> Vec<String> {
    lines.dedup();
    lines
}

fn head(told: &Explanation) -> String {
    let request = &told.request;
    let resource = match request.subresource.as_str() {
        "" => request.resource.clone(),
        subresource => format!("{}/{subresource}", request.resource),
    };
    let group = match request.group.as_str() {
        "" => request.version.clone(),
        group => format!("{group}/{}", request.version),
    };
    let name = match request.namespace.as_str() {
        "" => request.name.clone(),
        namespace => format!("{namespace}/{}", request.name),
    };
    let dry_run = if request.dry_run { " (dry run)" } else { "" };
    format!(
        "{} {resource} ({group}) {name} by {}{dry_run}\n",
        request.operation, request.user
    )
}

fn decision(told: &Explanation) -> String {
    let decision = &told.decision;
    if decision.allowed {
        return String::from("allowed\n");
    }
    let code = decision.code.map(|code| code.to_string());
    format!(
        "denied ({} {}): {}\n",
        code.unwrap_or_default(),
        decision.reason,
        decision.message
    )
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    // Writing to a String does not fail.
    let _ = writeln!(text, "\n{title}:");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

fn rows(step: &StepExplanation) -> Vec<Vec<String>> {
    let row = |name: String, verdict: &str, why: String| {
        vec![
            step.phase.to_owned(),
            step.round.to_string(),
            name,
            verdict.to_owned(),
            why,
        ]
    };
    let mut rows = Vec::new();
    for policy in &step.policies {
        if policy.bindings.is_empty() {
            let name = format!("policy {}", policy.policy);
            rows.push(row(name, policy.verdict.name(), policy.reason.clone()));
        }
        for binding in &policy.bindings {
            for (name, verdict, why) in binding_rows(policy, binding) {
                rows.push(row(name, verdict.name(), why));
            }
        }
    }
    for hook in &step.webhooks {
        let name = format!("webhook {}", hook.webhook);
        rows.push(row(name, hook.verdict.name(), hook_reason(hook)));
    }
    rows
}

fn binding_rows(
    policy: &PolicyExplanation,
    binding: &BindingExplanation,
) -> Vec<(String, PolicyVerdict, String)> {
    let name = if binding.binding == policy.policy {
        format!("policy {}", policy.policy)
    } else {
        format!("policy {} ({})", policy.policy, binding.binding)
    };
    if binding.evaluations.is_empty() {
        return vec![(name, binding.verdict, binding.reason.clone())];
    }
    let evaluations = binding.evaluations.iter();
    evaluations
        .map(|evaluation| {
            let name = match &evaluation.param {
                None => name.clone(),
                Some(param) => format!("{name} with {param}"),
            };
            let outcomes = evaluation.outcomes.iter();
            let mut outcomes: Vec<String> = outcomes
                .filter(|outcome| !outcome.message.is_empty())
                .map(|outcome| match outcome.field.as_str() {
                    "matchConditions" => outcome.message.clone(),
                    field => format!("{field}: {}", outcome.message),
                })
                .collect();
            outcomes.dedup();
            (name, evaluation.verdict, outcomes.join("; "))
        })
        .collect()
}

fn hook_reason(hook: &HookExplanation) -> String {
    let mut parts = Vec::new();
    if !hook.reason.is_empty() {
        parts.push(hook.reason.clone());
    }
    if let Some(patch) = &hook.patch {
        let operations = patch.as_array().map_or(0, Vec::len);
        let plural = if operations == 1 { "" } else { "s" };
        parts.push(format!("patched, {operations} operation{plural}"));
    }
    if let Some(other) = &hook.converted_to {
        parts.push(format!("converted to {other}"));
    }
    parts.join("; ")
}

fn fields(told: &Explanation) -> Vec<String> {
    let blame = told.blame.iter();
    blame
        .map(|blame| {
            let after = match &blame.after {
                Some(value) => format!("= {}", shown(value)),
                None => String::from("removed"),
            };
            let before = blame.before.as_ref();
            let before = before.map(|value| format!(", was {}", shown(value)));
            format!(
                "{} {after} by {} (round {}){}",
                blame.field,
                blame.by,
                blame.round,
                before.unwrap_or_default()
            )
        })
        .collect()
}

fn shown(value: &Value) -> String {
    clip(&value.to_string())
}

fn clip(text: &str) -> String {
    let mut chars = text.chars();
    let cut: String = chars.by_ref().take(MAX_VALUE).collect();
    if chars.next().is_some() {
        format!("{cut}…")
    } else {
        cut
    }
}

fn expressions(told: &Explanation, all: bool) -> String {
    let mut text = String::new();
    for step in &told.steps {
        for policy in &step.policies {
            for binding in &policy.bindings {
                for evaluation in &binding.evaluations {
                    let name = format!("policy {}", policy.policy);
                    let conditions = evaluation.conditions.iter();
                    for expression in conditions.chain(&evaluation.expressions) {
                        add(&mut text, &name, expression, all);
                    }
                }
            }
        }
        for hook in &step.webhooks {
            let wanted = all || hook.verdict != HookVerdict::NotReinvoked;
            for expression in hook.conditions.iter().filter(|_| wanted) {
                add(
                    &mut text,
                    &format!("webhook {}", hook.webhook),
                    expression,
                    all,
                );
            }
        }
    }
    text
}

fn add(text: &mut String, of: &str, expression: &ExpressionExplanation, all: bool) {
    let outcome = match (&expression.value, &expression.error) {
        (_, Some(error)) => format!("error: {error}"),
        (Some(value), None) => clip(value),
        (None, None) => String::new(),
    };
    let decided = outcome == "false" || expression.error.is_some();
    if !decided && !all {
        return;
    }
    let name = match expression.name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "  {of} {}{name}: {outcome}   cost {}",
        expression.field, expression.cost
    );
    for part in expression.parts.iter().take(MAX_PARTS) {
        let indent = "  ".repeat(part.depth as usize + 2);
        let outcome = match (&part.value, &part.error) {
            (_, Some(error)) => format!("error: {error}"),
            (value, None) => clip(value.as_deref().unwrap_or_default()),
        };
        let part = part.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "{indent}{}  ->  {outcome}", clip(&part));
    }
    let omitted = expression.parts.len().saturating_sub(MAX_PARTS);
    if omitted > 0 {
        let _ = writeln!(text, "    … {omitted} more subexpressions; -o json has all");
    }
}
