//! Rules about webhooks for custom resources. They need the CustomResourceDefinitions.

use lockgate_cel::crd::{OldSelf, Scope, rule_too_costly};
use lockgate_cel::schema::Schema;
use serde_json::Value as Json;

use super::{ERROR, NOTE, levels};
use crate::finding::Grade;
use crate::matching::Operation;
use crate::rule::Rule;

pub(super) static W037: Rule = Rule {
    id: "W037",
    title: "webhook for checks a schema can express",
    summary: "The API server can validate and default custom resources itself, without a call that can fail. This \
              CustomResourceDefinition has no `x-kubernetes-validations` (for a validating webhook) or `default` (for a mutating webhook).",
    advice: "Move checks and defaults that CEL rules and schema defaults can express into the CustomResourceDefinition.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer}}
            x-kubernetes-validations: [{rule: self.size <= 10}]
",
    captured: None,
    fix: None,
    levels: levels(NOTE, NOTE, NOTE),
    check: |context, report| {
        for definition in context.set.of_kind("apiextensions.k8s.io", "CustomResourceDefinition") {
            let text = |pointer: &str| definition.at(pointer).as_str().unwrap_or_default();
            let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
            let versions = definition.at("/spec/versions");
            for hook in &context.set.hooks {
                let names_it = hook.rules().iter().any(|rule| rule.api_groups.iter().flatten().any(|one| one == group));
                // Schemas do not apply to DELETE.
                let operations = hook.operations(group, plural, "");
                if !names_it || !operations.has(Operation::Create) && !operations.has(Operation::Update) {
                    continue;
                }
                let wanted = if hook.is_mutating() { "default" } else { "x-kubernetes-validations" };
                if !has_member(versions, wanted) {
                    let message = format!("the CustomResourceDefinition {plural}.{group} has no `{wanted}`");
                    report.hook(hook, "rules", message);
                }
            }
        }
    },
};

pub(super) static W048: Rule = Rule {
    id: "W048",
    title: "invalid CRD validation rule",
    summary: "An API server rejects a CustomResourceDefinition with a rule in `x-kubernetes-validations` that does not compile, is not \
              `bool`, or may cost more than its budget for the sizes that the schema allows.",
    advice: "Check it with `lockgate cel check --crd FILE`; limit lists, maps and strings with `maxItems`, `maxProperties` and `maxLength`.",
    bad: "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer}}
            x-kubernetes-validations: [{rule: self.sise <= 10}]
",
    good: "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer}}
            x-kubernetes-validations: [{rule: self.size <= 10}]
",
    captured: None,
    fix: None,
    levels: levels(ERROR, ERROR, ERROR),
    check: |context, report| {
        for definition in context
            .set
            .of_kind("apiextensions.k8s.io", "CustomResourceDefinition")
        {
            let versions = definition.at("/spec/versions").as_array();
            for (at, version) in versions.into_iter().flatten().enumerate() {
                let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
                    continue;
                };
                let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
                for (path, problem) in rejected_rules(path, schema) {
                    report.object(Grade::Usual, definition.object, &path, problem);
                }
            }
        }
    },
};

/// The maximum number of inspected nodes per schema.
const MAX_PLACES: usize = 100_000;

/// The rules of a schema that an API server rejects, with their paths. Only the API server knows how often a rule
/// runs per object, so that it may reject further rules inside of lists for their cost.
fn rejected_rules(root_path: String, root: &Json) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![(root_path, root, true)];
    let mut places = 0;
    while let Some((path, schema, is_root)) = open.pop() {
        places += 1;
        if places > MAX_PLACES {
            break;
        }
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            open.push((format!("{path}.properties[{name}]"), below, false));
        }
        for name in ["items", "additionalProperties"] {
            if schema[name].is_object() {
                open.push((format!("{path}.{name}"), &schema[name], false));
            }
        }
        let rules = schema["x-kubernetes-validations"].as_array();
        let Some(rules) = rules.filter(|rules| !rules.is_empty()) else {
            continue;
        };
        let Ok(typed) = Schema::from_json(schema) else {
            continue;
        };
        let typed = if is_root {
            typed.into_resource_root()
        } else {
            typed
        };
        let Some(scope) = Scope::new(&typed) else {
            continue;
        };
        for (at, rule) in rules.iter().enumerate() {
            let old_self = match rule["optionalOldSelf"] == true {
                true => OldSelf::Optional,
                false => OldSelf::Value,
            };
            let text = rule["rule"].as_str().unwrap_or_default();
            let problem = match scope.compile_rule(text, old_self) {
                Err(error) => Some(error.to_string()),
                Ok(compiled) => rule_too_costly(compiled.max_cost()),
            };
            if let Some(problem) = problem {
                let problem = problem.lines().next().unwrap_or_default().to_owned();
                found.push((
                    format!("{path}.x-kubernetes-validations[{at}].rule"),
                    problem,
                ));
            }
        }
    }
    found
}

/// Returns true if any object below has the field. Does not recurse.
fn has_member(root: &Json, name: &str) -> bool {
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Json::Object(members) if members.contains_key(name) => return true,
            Json::Object(members) => open.extend(members.values()),
            Json::Array(items) => open.extend(items),
            _ => {}
        }
    }
    false
}
