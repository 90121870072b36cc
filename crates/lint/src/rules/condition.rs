//! Rules about match conditions. The rules evaluate them on sample requests, so that findings match the behaviour
//! of a server.

use std::collections::BTreeSet;

use lockgate_api::registration::hub::{MatchCondition, Rule as RequestRule};
use lockgate_cel::admission::{MatchConditions, Outcome, Variables};
use serde_json::{Value as Json, json};

use super::{NOTE, WARNING, levels};
use crate::finding::Grade;
use crate::matching::{Labels, Operation, Operations, Sender, Target, named};
use crate::resource;
use crate::rule::{Context, Reporter, Rule};

pub(super) static W026: Rule = Rule {
    id: "W026",
    title: "condition fails to evaluate for some requests",
    summary: "An expression can compile and fail at run time: `object` is null on DELETE, `oldObject` on CREATE, labels and annotations \
              may be absent, and `namespaceObject` is always null in match conditions of webhooks. With `failurePolicy: Fail`, an \
              evaluation error rejects the request.",
    advice: "Guard fields with `has()`, `?.` or a test of `request.operation`, such as `request.operation == 'DELETE' || …`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE, DELETE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  matchConditions:
  - {name: team, expression: \"object.metadata.labels['team'] == 'payments'\"}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE, DELETE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  matchConditions:
  - name: team
    expression: \"request.operation == 'DELETE' || object.metadata.?labels['team'].orValue('') == 'payments'\"
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: fragile,
};

/// A condition with its field path.
struct Site<'s> {
    condition: &'s MatchCondition,
    operations: Operations,
    rules: Vec<&'s RequestRule>,
}

fn fragile(context: &Context<'_>, report: &mut Reporter<'_>) {
    for hook in &context.set.hooks {
        let operations = hook
            .rules()
            .iter()
            .map(Operations::of)
            .fold(Operations::default(), Operations::with);
        for (index, condition) in hook.webhook.match_conditions.iter().flatten().enumerate() {
            let field = format!("matchConditions[{index}].expression");
            if mentions(&condition.expression, "namespaceObject") {
                let message = String::from(
                    "`namespaceObject` is always null in match conditions of webhooks",
                );
                report.hook(hook, &field, message);
                continue;
            }
            let site = Site {
                condition,
                operations,
                rules: hook.rules().iter().collect(),
            };
            let grade = if hook.fails_closed() {
                Grade::Usual
            } else {
                Grade::Lower
            };
            if let Some(message) = site.failure() {
                report.graded(grade, hook, &field, message);
            } else if mentions(&condition.expression, "authorizer") {
                let message = String::from(
                    "calls the authorizer for each request, which may be a webhook too",
                );
                report.graded(Grade::Lower, hook, &field, message);
            }
        }
    }
    for (object, policy) in &context.set.policies {
        let rules = policy
            .match_constraints
            .iter()
            .flat_map(|constraints| constraints.resource_rules.iter().flatten());
        let rules: Vec<&RequestRule> = rules.map(|rule| &rule.rule).collect();
        let operations = rules
            .iter()
            .map(|rule| Operations::of(rule))
            .fold(Operations::default(), Operations::with);
        let grade = if policy.failure_policy.as_deref() == Some("Ignore") {
            Grade::Lower
        } else {
            Grade::Usual
        };
        let conditions = policy.match_conditions.iter().flatten().cloned();
        let conditions = conditions.enumerate().map(|(index, condition)| {
            (
                format!("spec.matchConditions[{index}].expression"),
                condition,
            )
        });
        let validations =
            policy
                .validations
                .iter()
                .flatten()
                .enumerate()
                .map(|(index, validation)| {
                    let condition = MatchCondition {
                        name: String::from("validation"),
                        expression: validation.expression.clone(),
                    };
                    (format!("spec.validations[{index}].expression"), condition)
                });
        // With match conditions, validations run only for matching requests.
        let guarded = policy
            .match_conditions
            .as_ref()
            .is_some_and(|list| !list.is_empty());
        let validations = validations.filter(|_| !guarded);
        for (path, condition) in conditions.chain(validations) {
            let foreign = ["params", "variables", "namespaceObject", "authorizer"];
            if foreign
                .iter()
                .any(|name| mentions(&condition.expression, name))
            {
                continue;
            }
            let site = Site {
                condition: &condition,
                operations,
                rules: rules.clone(),
            };
            if let Some(message) = site.failure() {
                report.object(grade, *object, &path, message);
            }
        }
    }
}

impl Site<'_> {
    /// The first request for which the expression fails.
    fn failure(&self) -> Option<String> {
        let expression = &self.condition.expression;
        let compiled = MatchConditions::compile([("condition", expression.as_str())]);
        for operation in self.operations.iter() {
            for target in self.targets(operation) {
                if let Some(message) = self.failure_on(&compiled, &target) {
                    return Some(message);
                }
            }
        }
        None
    }

    /// The resources of the rules, or a sample resource for wildcards.
    fn targets(&self, operation: Operation) -> Vec<Target<'_>> {
        let resources: BTreeSet<(&str, &str)> = self
            .rules
            .iter()
            .filter(|rule| Operations::of(rule).has(operation))
            .flat_map(|rule| named(rule))
            .take(MAX_RESOURCES)
            .collect();
        let resources = if resources.is_empty() {
            BTreeSet::from([("", "configmaps")])
        } else {
            resources
        };
        resources
            .into_iter()
            .map(|(group, plural)| target(group, plural, operation))
            .collect()
    }

    fn failure_on(&self, compiled: &MatchConditions, target: &Target<'_>) -> Option<String> {
        let expression = &self.condition.expression;
        let operation = target.operation;
        let request = target.request().to_json();
        let bare = json!({ "metadata": { "name": "example", "namespace": "default" } });
        let unlabelled = json!({ "metadata": { "name": "example", "namespace": "default", "labels": {}, "annotations": {} } });
        for object in [&bare, &unlabelled] {
            let (new, old) = objects(operation, object);
            let Some(error) = error_of(compiled, &request, new, old) else {
                continue;
            };
            let key = error.split("no such key: ").nth(1).map(first_line)?;
            for (name, value) in [("object", new), ("oldObject", old)] {
                // If an object with the key changes the error, the null is the cause.
                let other = json!({ key: 1 });
                let touched = value.is_none() && expression.contains(&format!("{name}.{key}")) && {
                    let (new, old) = (new.or(Some(&other)), old.or(Some(&other)));
                    error_of(compiled, &request, new, old).as_ref() != Some(&error)
                };
                if touched {
                    return Some(format!(
                        "`{name}` is null on {}, which this expression does not handle",
                        operation.name()
                    ));
                }
            }
            if ["labels", "annotations"].contains(&key) {
                return Some(format!("fails for objects without {key}"));
            }
            let written = |map: &str| {
                [
                    format!("{map}.{key}"),
                    format!("{map}['{key}']"),
                    format!("{map}[\"{key}\"]"),
                ]
                .iter()
                .any(|text| expression.contains(text.as_str()))
            };
            if let Some(map) = ["labels", "annotations"]
                .into_iter()
                .find(|map| written(map))
            {
                let singular = map.trim_end_matches('s');
                return Some(format!("fails for objects without the {singular} `{key}`"));
            }
        }
        None
    }
}

/// The error of evaluating the condition on these objects.
fn error_of(
    compiled: &MatchConditions,
    request: &Json,
    object: Option<&Json>,
    old_object: Option<&Json>,
) -> Option<String> {
    let variables = Variables::new(request)
        .object(object)
        .old_object(old_object)
        .without_authorizer();
    match compiled.evaluate(&variables.evaluator()).outcome {
        Outcome::Reject(error) => Some(error),
        Outcome::Match | Outcome::NoMatch(_) => None,
    }
}

/// The maximum number of resources to try per webhook.
const MAX_RESOURCES: usize = 32;

fn first_line(text: &str) -> &str {
    text.split([',', '\n', ']'])
        .next()
        .unwrap_or_default()
        .trim()
}

fn objects(operation: Operation, object: &Json) -> (Option<&Json>, Option<&Json>) {
    match operation {
        Operation::Create | Operation::Connect => (Some(object), None),
        Operation::Update => (Some(object), Some(object)),
        Operation::Delete => (None, Some(object)),
    }
}

static NO_LABELS: Labels = Labels::new();

fn target<'t>(group: &'t str, plural: &'t str, operation: Operation) -> Target<'t> {
    let known = resource::find(group, plural);
    Target {
        operation,
        group,
        version: known
            .and_then(|known| known.versions.first())
            .copied()
            .unwrap_or("v1"),
        resource: plural,
        subresource: "",
        kind: known.map_or("Example", |known| known.kind),
        namespace: known
            .is_none_or(|known| known.namespaced)
            .then_some(("default", &NO_LABELS)),
        labels: &NO_LABELS,
        annotations: None,
        sender: Sender::Controller,
    }
}

/// Returns true if the expression has the identifier outside of string literals, and not as a field.
fn mentions(expression: &str, name: &str) -> bool {
    identifiers(expression).any(|(identifier, is_field)| identifier == name && !is_field)
}

/// The identifiers outside of string literals, with true if preceded by a dot.
fn identifiers(expression: &str) -> impl Iterator<Item = (&str, bool)> {
    let bytes = expression.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let byte = *bytes.get(at)?;
            if byte == b'\'' || byte == b'"' {
                at += 1;
                while let Some(inner) = bytes.get(at) {
                    at += 1;
                    match inner {
                        b'\\' => at += 1,
                        inner if *inner == byte => break,
                        _ => {}
                    }
                }
            } else if byte.is_ascii_alphabetic() || byte == b'_' {
                let start = at;
                while bytes
                    .get(at)
                    .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
                {
                    at += 1;
                }
                let before = bytes
                    .get(..start)
                    .unwrap_or_default()
                    .iter()
                    .rev()
                    .find(|byte| !byte.is_ascii_whitespace());
                let is_field = before.is_some_and(|byte| matches!(byte, b'.' | b'?'))
                    && bytes.get(..start).is_some_and(|head| {
                        head.trim_ascii_end().ends_with(b".")
                            || head.trim_ascii_end().ends_with(b".?")
                    });
                return Some((expression.get(start..at)?, is_field));
            } else {
                at += 1;
            }
        }
    })
}

pub(super) static W027: Rule = Rule {
    id: "W027",
    title: "condition is constant",
    summary: "A condition that is true for every request the rules match costs time and has no effect. A condition that is false \
              for every request disables the webhook.",
    advice: "Remove or correct the condition; use rules and selectors where they suffice.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  matchConditions:
  - {name: on-update, expression: \"request.operation == 'UPDATE'\"}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  matchConditions:
  - {name: on-update, expression: \"request.operation == 'UPDATE'\"}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, NOTE, WARNING),
    check: |context, report| {
        for hook in &context.set.hooks {
            let rules: Vec<&RequestRule> = hook.rules().iter().collect();
            for (index, condition) in hook.webhook.match_conditions.iter().flatten().enumerate() {
                let Some(holds) = decided_by_rules(&rules, condition) else {
                    continue;
                };
                let (grade, message) = if holds {
                    (Grade::Lower, "is true for every request that the rules match")
                } else {
                    (Grade::Usual, "is false for every request that the rules match: the webhook is never called")
                };
                report.graded(grade, hook, &format!("matchConditions[{index}].expression"), message.to_owned());
            }
        }
    },
};

/// The value of a condition for every request of the rules, if it depends on nothing else.
fn decided_by_rules(rules: &[&RequestRule], condition: &MatchCondition) -> Option<bool> {
    let expression = &condition.expression;
    let roots: Vec<&str> = identifiers(expression)
        .filter(|(_, is_field)| !is_field)
        .map(|(name, _)| name)
        .collect();
    let constant = roots
        .iter()
        .all(|name| matches!(*name, "true" | "false" | "in"));
    let reads_request = roots
        .iter()
        .all(|name| matches!(*name, "true" | "false" | "in" | "request"));
    // The request fields that the rules determine.
    let fields: Vec<&str> = identifiers(expression)
        .filter(|(_, is_field)| *is_field)
        .map(|(name, _)| name)
        .collect();
    let known = fields
        .iter()
        .all(|name| matches!(*name, "operation" | "resource" | "group"));
    let has_wildcard = rules.iter().any(|rule| {
        let lists = [&rule.api_groups, &rule.resources];
        lists
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.contains('*') || entry.contains('/'))
    });
    let depends_on_resource = fields
        .iter()
        .any(|name| matches!(*name, "resource" | "group"));
    let decidable = constant || (reads_request && known && !(depends_on_resource && has_wildcard));
    if !decidable || rules.is_empty() {
        return None;
    }
    let compiled = MatchConditions::compile([("condition", expression.as_str())]);
    let mut verdicts = BTreeSet::new();
    for rule in rules {
        for operation in Operations::of(rule).iter() {
            let mut resources: Vec<(&str, &str)> = named(rule).collect();
            if resources.is_empty() {
                resources.push(("", "configmaps"));
            }
            for (group, plural) in resources {
                let request = target(group, plural, operation).request().to_json();
                let variables = Variables::new(&request).without_authorizer();
                match compiled.evaluate(&variables.evaluator()).outcome {
                    Outcome::Match => verdicts.insert(true),
                    Outcome::NoMatch(_) => verdicts.insert(false),
                    Outcome::Reject(_) => return None,
                };
            }
        }
    }
    let mut verdicts = verdicts.into_iter();
    match (verdicts.next(), verdicts.next()) {
        (Some(verdict), None) => Some(verdict),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_identifiers_outside_of_literals() {
        let found: Vec<_> =
            identifiers(r#"object.spec.?a['x y'] == "object\"" && size(oldObject) > 1"#).collect();
        assert_eq!(
            found,
            [
                ("object", false),
                ("spec", true),
                ("a", true),
                ("size", false),
                ("oldObject", false)
            ]
        );
        assert!(mentions("namespaceObject.metadata", "namespaceObject"));
        assert!(!mentions(
            "object.namespaceObject == 'namespaceObject'",
            "namespaceObject"
        ));
        assert!(identifiers("'unclosed").next().is_none());
    }
}
