//! Rules about RBAC on webhook configurations. They need the RBAC manifests.

use serde_json::Value as Json;

use super::{ERROR, WARNING, levels, list};
use crate::finding::Grade;
use crate::rule::Rule;
use crate::set::{Manifest, Set};

const GROUP: &str = "rbac.authorization.k8s.io";
const WRITES: &[&str] = &[
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "*",
];
const REGISTRATION: &str = "admissionregistration.k8s.io";
/// Groups and users that include every user or every workload.
const BROAD: &[&str] = &[
    "system:anonymous",
    "system:authenticated",
    "system:serviceaccounts",
    "system:unauthenticated",
];

pub(super) static W040: Rule = Rule {
    id: "W040",
    title: "webhooks are writable by everyone",
    summary: "A user who can write webhook configurations or policies can disable every check, or read and change every object in the \
              cluster. The same holds for Secrets and Pods in the namespace of a webhook.",
    advice: "Bind such roles to the administrators and controllers that need them.",
    bad: "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: webhook-editor}
rules: [{apiGroups: [admissionregistration.k8s.io], resources: ['*'], verbs: [update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: webhook-editors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: webhook-editor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:authenticated'}]
",
    good: "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: webhook-editor}
rules: [{apiGroups: [admissionregistration.k8s.io], resources: ['*'], verbs: [update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: webhook-editors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: webhook-editor}
subjects: [{kind: ServiceAccount, namespace: hooks, name: webhook}]
",
    captured: None,
    fix: None,
    levels: levels(ERROR, WARNING, ERROR),
    check: |context, report| {
        let set = context.set;
        for kind in ["ClusterRoleBinding", "RoleBinding"] {
            for binding in set.of_kind(GROUP, kind) {
                let broad = broad_subjects(binding);
                let Some(role) = role_of(set, binding).filter(|_| !broad.is_empty()) else {
                    continue;
                };
                let at = &binding.namespace;
                let serves = set
                    .hooks
                    .iter()
                    .any(|hook| hook.service().is_some_and(|(namespace, _)| namespace == at));
                let what = match kind {
                    "ClusterRoleBinding" if allows(role, REGISTRATION, None) => {
                        "webhook configurations and policies".to_owned()
                    }
                    "RoleBinding"
                        if serves
                            && ["secrets", "pods", "services"]
                                .iter()
                                .any(|plural| allows(role, "", Some(plural))) =>
                    {
                        format!("Secrets, Pods or Services in `{at}`, where a webhook runs")
                    }
                    _ => continue,
                };
                let message = format!("{} may write {what}", list(&broad, 3));
                report.object(Grade::Usual, binding.object, "subjects", message);
            }
        }
    },
};

fn texts<'j>(value: &'j Json, name: &str) -> impl Iterator<Item = &'j str> {
    value
        .get(name)
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
}

fn broad_subjects(binding: &Manifest) -> Vec<String> {
    let subjects = binding.at("/subjects").as_array().into_iter().flatten();
    subjects
        .filter_map(|subject| {
            let name = subject.get("name").and_then(Json::as_str)?;
            let kind = subject.get("kind").and_then(Json::as_str)?;
            let is_default = kind == "ServiceAccount" && name == "default";
            (BROAD.contains(&name) || is_default).then(|| format!("{kind} `{name}`"))
        })
        .collect()
}

fn role_of<'s>(set: &'s Set, binding: &'s Manifest) -> Option<&'s Manifest> {
    let kind = binding.at("/roleRef/kind").as_str()?;
    let name = binding.at("/roleRef/name").as_str()?;
    set.of_kind(GROUP, kind).find(|role| {
        role.name == name && (kind == "ClusterRole" || role.namespace == binding.namespace)
    })
}

/// Returns true if the role may write a resource of the group, or any of it.
fn allows(role: &Manifest, group: &str, plural: Option<&str>) -> bool {
    role.at("/rules")
        .as_array()
        .into_iter()
        .flatten()
        .any(|rule| {
            let unnamed = texts(rule, "resourceNames").next().is_none();
            unnamed
                && texts(rule, "apiGroups").any(|given| given == "*" || given == group)
                && texts(rule, "verbs").any(|verb| WRITES.contains(&verb))
                && plural.is_none_or(|plural| {
                    texts(rule, "resources").any(|given| given == "*" || given == plural)
                })
        })
}
