//! Rules about the requests that a webhook matches.

use super::{ERROR, NOTE, OFF, WARNING, levels, list};
use crate::finding::Grade;
use crate::matching::{Labels, Operation, Sender, Target, lists};
use crate::resource::{self, BUILTIN, Resource};
use crate::rule::{Reporter, Rule};
use crate::set::{Hook, Set};

pub(super) static W004: Rule = Rule {
    id: "W004",
    title: "matches kube-system",
    summary: "kube-system runs components that everything else needs: DNS, the network plugin, kube-proxy, storage drivers. An \
              unavailable webhook that matches kube-system prevents them from starting, and then cannot start itself.",
    advice: "Exclude kube-system with a `namespaceSelector` on `kubernetes.io/metadata.name`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, hooks]}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: Some("excludes kube-system, by `kubernetes.io/metadata.name`"),
    levels: levels(WARNING, WARNING, NOTE),
    check: |context, report| {
        let labels = context.set.namespace_labels("kube-system");
        for hook in &context.set.hooks {
            let matched: Vec<String> = reached(hook, |resource| resource.namespaced, &labels);
            if matched.is_empty() {
                continue;
            }
            let (grade, effect) = if hook.fails_closed() {
                (Grade::Usual, "which fail while it is unavailable")
            } else {
                (
                    Grade::Lower,
                    "which are delayed by its timeout while it is unavailable",
                )
            };
            let message = format!(
                "matches writes of {} in kube-system, {effect}",
                list(&matched, 3)
            );
            report.fixing(hook.excluding(["kube-system"])).graded(
                grade,
                hook,
                place_of_selector(hook),
                message,
            );
        }
    },
};

/// The built-in resources for which a write in kube-system, or of a cluster-scoped object, matches
/// the webhook.
fn reached(hook: &Hook, wanted: impl Fn(&Resource) -> bool, labels: &Labels) -> Vec<String> {
    let covered = hook.builtin.iter().map(|(resource, _)| *resource);
    covered
        .filter(|resource| wanted(resource))
        .filter(|resource| {
            hook.reaches(resource, Some(("kube-system", labels)))
                .is_some()
        })
        .map(Resource::qualified)
        .collect()
}

fn place_of_selector(hook: &Hook) -> &'static str {
    if hook
        .webhook
        .namespace_selector
        .as_ref()
        .is_some_and(|selector| !selector.is_empty())
    {
        "namespaceSelector"
    } else {
        "rules"
    }
}

pub(super) static W005: Rule = Rule {
    id: "W005",
    title: "matches authentication and authorization reviews",
    summary: "TokenReviews and SubjectAccessReviews authenticate and authorize requests, including the webhook's own. A webhook that \
              matches them can lock out all users. Kubernetes 1.37 stops calling webhooks for them.",
    advice: "List the resources the webhook handles, or exclude the groups authentication.k8s.io and authorization.k8s.io with a match condition.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: reviews}
webhooks:
- name: reviews.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [authorization.k8s.io], apiVersions: [v1], resources: ['*']}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: roles}
webhooks:
- name: roles.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], resources: [roles]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: |context, report| {
        let is_review = |resource: &Resource| {
            matches!(resource.group, "authentication.k8s.io" | "authorization.k8s.io")
        };
        report_reached(context.set, report, is_review, Hook::fails_closed);
    },
};

fn report_reached(
    set: &Set,
    report: &mut Reporter<'_>,
    wanted: impl Fn(&Resource) -> bool,
    applies: impl Fn(&Hook) -> bool,
) {
    let labels = set.namespace_labels("kube-system");
    for hook in set.hooks.iter().filter(|hook| applies(hook)) {
        let matched = reached(hook, &wanted, &labels);
        if !matched.is_empty() {
            let message = format!("matches {} and fails closed", list(&matched, 6));
            report.hook(hook, "rules", message);
        }
    }
}

/// The cluster-scoped resources that a cluster needs to recover.
const CRITICAL: &[(&str, &str)] = &[
    ("", "nodes"),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("scheduling.k8s.io", "priorityclasses"),
];

pub(super) static W006: Rule = Rule {
    id: "W006",
    title: "critical cluster resources depend on the webhook",
    summary: "Nodes join, certificates are signed and the API server updates its own roles, APIServices and priority classes through \
              writes. If these depend on an unavailable webhook, the cluster cannot recover.",
    advice: "Remove these resources from the rules, or handle them in a separate webhook with `failurePolicy: Ignore`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: nodes}
webhooks:
- name: nodes.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [nodes]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: nodes}
webhooks:
- name: nodes.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [nodes]}]
  failurePolicy: Ignore
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, ERROR, NOTE),
    check: |context, report| {
        let is_critical =
            |resource: &Resource| CRITICAL.contains(&(resource.group, resource.plural));
        report_reached(context.set, report, is_critical, Hook::fails_closed);
    },
};

pub(super) static W007: Rule = Rule {
    id: "W007",
    title: "wildcard rule fails closed",
    summary: "A rule with `*` for groups or resources matches everything the cluster serves now and later: events, leases, endpoints, \
              custom resources of other vendors. With `failurePolicy: Fail`, an outage of the webhook stops the cluster.",
    advice: "List groups and resources. If the webhook must see everything, set `failurePolicy: Ignore` or narrow it with \
             a `namespaceSelector` and match conditions.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: everything}
webhooks:
- name: everything.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}]
  failurePolicy: Fail
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: own-resources}
webhooks:
- name: own-resources.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: ['*'], apiGroups: [example.com], apiVersions: ['*'], resources: ['*/*']}]
  failurePolicy: Fail
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, NOTE),
    check: |context, report| {
        for hook in context.set.hooks.iter().filter(|hook| hook.fails_closed()) {
            for (index, rule) in hook.rules().iter().enumerate() {
                let all_groups = lists(rule.api_groups.as_deref(), "\0");
                let resources = rule.resources.iter().flatten();
                let all_resources = resources
                    .clone()
                    .any(|entry| entry == "*" || entry == "*/*");
                let of_builtin = rule
                    .api_groups
                    .iter()
                    .flatten()
                    .any(|group| resource::is_builtin_group(group));
                if !all_resources || !(all_groups || of_builtin) {
                    continue;
                }
                let grade = match () {
                    () if all_groups && hook.is_unscoped() => Grade::Higher,
                    () if all_groups => Grade::Usual,
                    () => Grade::Lower,
                };
                let groups = rule.api_groups.as_deref().unwrap_or_default().join(", ");
                let message = if all_groups {
                    String::from("matches every resource of every group and fails closed")
                } else {
                    format!("matches every resource of `{groups}` and fails closed")
                };
                report.graded(grade, hook, &format!("rules[{index}]"), message);
            }
        }
    },
};

pub(super) static W008: Rule = Rule {
    id: "W008",
    title: "wildcard matches subresources",
    summary: "`*/*` and `pods/*` cover every subresource: status updates of kubelets, evictions of a node drain, bindings of the \
              scheduler, and with CONNECT exec, attach and port-forward. Few webhooks handle these objects: the body of \
              `pods/eviction` is an Eviction, not a Pod.",
    advice: "List the subresources the webhook handles, like `pods/ephemeralcontainers`, or use `*` for resources without subresources.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: pods}
webhooks:
- name: pods.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: ['pods/*']}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: pods}
webhooks:
- name: pods.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, WARNING, NOTE),
    check: |context, report| {
        for hook in &context.set.hooks {
            for (index, rule) in hook.rules().iter().enumerate() {
                let Some(entry) = rule.resources.iter().flatten().find(|entry| entry.ends_with("/*")) else {
                    continue;
                };
                let main = entry.trim_end_matches("/*");
                let examples: Vec<String> = BUILTIN
                    .iter()
                    .filter(|resource| main == "*" || main == resource.plural)
                    .filter(|resource| lists(rule.api_groups.as_deref(), resource.group))
                    .flat_map(|resource| resource.subresources.iter().map(|sub| format!("{}/{sub}", resource.plural)))
                    .collect();
                if !examples.is_empty() {
                    let message = format!("`{entry}` matches {}", list(&examples, 10));
                    report.hook(hook, &format!("rules[{index}].resources"), message);
                }
            }
        }
    },
};

pub(super) static W009: Rule = Rule {
    id: "W009",
    title: "mutating webhook without a selector",
    summary: "A mutating webhook without selectors changes objects in every namespace, including system namespaces, without an opt-out.",
    advice: "Set a `namespaceSelector` or an `objectSelector`, preferably as an opt-in.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector: {matchLabels: {sidecars.example.com/inject: enabled}}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(NOTE, WARNING, NOTE),
    check: |context, report| {
        for hook in &context.set.hooks {
            let namespaced = hook.builtin.iter().any(|(resource, _)| resource.namespaced);
            if hook.is_mutating() && namespaced && hook.is_unscoped() {
                let message = String::from(
                    "mutates objects in every namespace: no selector and no match condition",
                );
                report.hook(hook, "rules", message);
            }
        }
    },
};

pub(super) static W034: Rule = Rule {
    id: "W034",
    title: "mutates mirror Pods",
    summary: "A kubelet creates a mirror Pod for each static Pod. Changes to it have no effect on the node, and some make the kubelet \
              delete and recreate the mirror Pod in a loop.",
    advice: "Exclude mirror Pods with a match condition: `!(has(object.metadata.annotations) && 'kubernetes.io/config.mirror' in object.metadata.annotations)`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: labels}
webhooks:
- name: labels.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: labels}
webhooks:
- name: labels.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  matchConditions:
  - name: no-mirror-pods
    expression: \"!(has(object.metadata.annotations) && 'kubernetes.io/config.mirror' in object.metadata.annotations)\"
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(OFF, NOTE, OFF),
    check: |context, report| {
        let Some(pods) = resource::find("", "pods") else {
            return;
        };
        let labels = context.set.namespace_labels("kube-system");
        let annotations = Labels::from([(String::from("kubernetes.io/config.mirror"), String::from("0"))]);
        let target = Target {
            annotations: Some(&annotations),
            sender: Sender::Kubelet,
            ..Target::of(pods, Operation::Create, Some(("kube-system", &labels)))
        };
        for hook in context.set.hooks.iter().filter(|hook| hook.is_mutating()) {
            if hook.builtin_operations(pods).has(Operation::Create) && hook.selects(&target) {
                let message = String::from("mutates the mirror Pods of static Pods in kube-system");
                report.hook(hook, "rules", message);
            }
        }
    },
};

pub(super) static W043: Rule = Rule {
    id: "W043",
    title: "no gradual rollout",
    summary: "A webhook that fails closed and has no selector applies to every namespace as soon as it is created. An error in it stops \
              the whole cluster instead of one test namespace.",
    advice: "Roll it out with a `namespaceSelector` on a label that is added to one namespace after another, or start with `failurePolicy: Ignore`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector: {matchLabels: {images.example.com/enforce: 'true'}}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(OFF, NOTE, OFF),
    check: |context, report| {
        for hook in &context.set.hooks {
            let namespaced = hook.builtin.iter().any(|(resource, _)| resource.namespaced);
            if hook.fails_closed() && namespaced && hook.is_unscoped() {
                let message =
                    String::from("fails closed for every namespace from the moment it is created");
                report.hook(hook, "failurePolicy", message);
            }
        }
    },
};
