//! Rules about policies and their bindings.

use std::collections::BTreeSet;

use super::{WARNING, levels};
use crate::finding::Grade;
use crate::rule::Rule;

pub(super) static W046: Rule = Rule {
    id: "W046",
    title: "policy without a binding",
    summary: "A policy does nothing until a binding refers to it, and a binding does nothing without its policy. If the policy has a `paramKind` and the binding has no `paramRef`, `params` is null.",
    advice: "Add the binding or the policy to the same manifests.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas.example.com}
spec:
  matchConstraints:
    resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  validations: [{expression: object.spec.replicas <= 5}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas.example.com}
spec: {policyName: replica.example.com, validationActions: [Deny]}
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas.example.com}
spec:
  matchConstraints:
    resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  validations: [{expression: object.spec.replicas <= 5}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas.example.com}
spec: {policyName: replicas.example.com, validationActions: [Deny]}
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: |context, report| {
        let set = context.set;
        let bound: BTreeSet<_> = set.bindings.iter().map(|(_, binding)| (binding.kind.name(), &binding.policy_name)).collect();
        for (object, policy) in &set.policies {
            let name = &policy.metadata.name;
            if !name.is_empty() && !bound.contains(&(policy.kind.name(), name)) {
                // The binding may be applied separately, unless the set has other bindings.
                let grade = if bound.is_empty() { Grade::Lower } else { Grade::Usual };
                let message = format!("no binding refers to `{name}`: it applies to nothing");
                report.object(grade, *object, "metadata.name", message);
            }
        }
        for (object, binding) in &set.bindings {
            let mut of_kind = set.policies.iter().filter(|(_, policy)| policy.kind == binding.kind).peekable();
            if of_kind.peek().is_none() {
                continue;
            }
            match of_kind.find(|(_, policy)| policy.metadata.name == binding.policy_name) {
                None => {
                    let message = format!("no {} `{}` found", binding.kind.name(), binding.policy_name);
                    report.object(Grade::Usual, *object, "spec.policyName", message);
                }
                Some((_, policy)) if policy.param_kind.is_some() && binding.param_ref.is_none() => {
                    let message = format!("`{}` has parameters and the binding has no paramRef: `params` is null", binding.policy_name);
                    report.object(Grade::Usual, *object, "spec", message);
                }
                Some((_, policy)) if policy.param_kind.is_none() && binding.param_ref.is_some() => {
                    let message = format!("`{}` has no paramKind, and paramRef has no effect", binding.policy_name);
                    report.object(Grade::Lower, *object, "spec.paramRef", message);
                }
                Some(_) => {}
            }
        }
    },
};
