//! Rules about webhooks for custom resources. They need the CustomResourceDefinitions.

use serde_json::Value as Json;

use super::{NOTE, levels};
use crate::rule::Rule;

pub(super) static W037: Rule = Rule {
    id: "W037",
    title: "webhook where a schema would do",
    summary: "The API server itself validates and defaults custom resources, without a call that can fail. A definition without any \
              `x-kubernetes-validations` (for a validating webhook) or `default` (for a mutating one) has not tried.",
    advice: "Move what CEL rules and defaults can express into the schema of the CustomResourceDefinition.",
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
    levels: levels(NOTE, NOTE, NOTE),
    check: |context, report| {
        for definition in context.set.of_kind("apiextensions.k8s.io", "CustomResourceDefinition") {
            let text = |pointer: &str| definition.at(pointer).as_str().unwrap_or_default();
            let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
            let versions = definition.at("/spec/versions");
            for hook in &context.set.hooks {
                let names_it = hook.rules().iter().any(|rule| rule.api_groups.iter().flatten().any(|one| one == group));
                if !names_it || hook.operations(group, plural, "").is_empty() {
                    continue;
                }
                let wanted = if hook.is_mutating() { "default" } else { "x-kubernetes-validations" };
                if !has_member(versions, wanted) {
                    let message = format!("the definition of {plural}.{group} has no `{wanted}`");
                    report.hook(hook, "rules", message);
                }
            }
        }
    },
};

/// Returns true if any object below has the member. Walks without recursion.
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
