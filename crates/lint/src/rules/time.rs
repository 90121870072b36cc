//! Rules about timeouts: of one webhook, and of all webhooks that a request calls.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_api::meta::label_selector::LabelSelector;

use super::{ERROR, NOTE, WARNING, levels, list};
use crate::finding::Grade;
use crate::matching::{
    Labels, Operation, Sender, Target, covers_scope, lists, named, operations_on,
};
use crate::resource::{self, qualified};
use crate::rule::{Context, Reporter, Rule};
use crate::set::{Hook, Set};

/// Timeouts above this are a warning.
const LONG_SECONDS: u32 = 10;
/// Timeouts above this are an error.
const TOO_LONG_SECONDS: u32 = 15;
/// The request timeout of most clients.
const REQUEST_SECONDS: u32 = 30;
/// The renew deadline of leader election.
const LEASE_SECONDS: u32 = 10;
/// The longest timeout that leaves time for a second renewal.
const LEASE_TIMEOUT_SECONDS: u32 = 3;
/// The number of mutating webhooks per request that causes a note.
const MANY_MUTATING: usize = 5;

pub(super) static W001: Rule = Rule {
    id: "W001",
    title: "long or implicit timeout",
    summary: "A request waits for an unresponsive webhook until the timeout, and many clients give up earlier. A webhook that hangs \
              for 30 s blocks controllers for 30 s. Without `timeoutSeconds` the default depends on the \
              API version: 10 s in v1, 30 s in v1beta1.",
    advice: "Set `timeoutSeconds` to 5 or less.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 30
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
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: Some("sets `timeoutSeconds` to 10, the default of v1"),
    levels: levels(WARNING, WARNING, NOTE),
    check: |context, report| {
        for hook in &context.set.hooks {
            let seconds = hook.timeout();
            let grade = match seconds {
                _ if seconds > TOO_LONG_SECONDS => Grade::Higher,
                _ if seconds > LONG_SECONDS => Grade::Usual,
                _ if hook.timeout_is_default => Grade::Lower,
                _ => continue,
            };
            let message = if hook.timeout_is_default {
                format!("timeoutSeconds is not set: a call may take {seconds} s")
            } else {
                format!("a call may take {seconds} s")
            };
            report
                .fixing(hook.set("timeoutSeconds", LONG_SECONDS))
                .graded(grade, hook, "timeoutSeconds", message);
        }
    },
};

pub(super) static W002: Rule = Rule {
    id: "W002",
    title: "sum of timeouts exceeds the client's timeout",
    summary: "Mutating webhooks are called one after the other, twice with `reinvocationPolicy: IfNeeded`; validating ones in \
              parallel after them. The sum can exceed the client's timeout, 30 s for most clients and 10 s for leader election. `failurePolicy: Ignore` does \
              not help, since the request has ended by then.",
    advice: "Shorten the timeouts, or narrow the rules so that fewer webhooks match the same request.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: defaults.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 10
  reinvocationPolicy: IfNeeded
  sideEffects: None
  admissionReviewVersions: [v1]
- name: labels.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 10
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: defaults.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 3
  reinvocationPolicy: IfNeeded
  sideEffects: None
  admissionReviewVersions: [v1]
- name: labels.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 3
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(WARNING, ERROR, NOTE),
    check: budgets,
};

/// A webhook, by object and index.
type HookId = (usize, usize);

/// The webhooks that one kind of request calls.
struct Crowd<'s> {
    hooks: Vec<&'s Hook>,
    seconds: u32,
    limit: u32,
}

/// Every resource named by a rule, with the webhooks that may match it.
fn crowds(set: &Set) -> Vec<(String, Crowd<'_>)> {
    let mut by_resource: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    by_resource.insert(("", "pods"), Vec::new());
    by_resource.insert(("coordination.k8s.io", "leases"), Vec::new());
    let mut wildcards = BTreeSet::new();
    for (index, hook) in set.hooks.iter().enumerate() {
        for rule in hook.rules() {
            if lists(rule.api_groups.as_deref(), "\0") || has_wildcard(rule.resources.as_deref()) {
                wildcards.insert(index);
            }
            for named in named(rule) {
                let hooks = by_resource.entry(named).or_default();
                if hooks.last() != Some(&index) {
                    hooks.push(index);
                }
            }
        }
    }
    let mut crowds = Vec::new();
    for ((group, plural), indices) in by_resource {
        let mut indices: Vec<usize> = indices
            .into_iter()
            .chain(wildcards.iter().copied())
            .collect();
        indices.sort_unstable();
        indices.dedup();
        let hooks: Vec<&Hook> = indices.iter().filter_map(|at| set.hooks.get(*at)).collect();
        for operation in [Operation::Create, Operation::Update, Operation::Delete] {
            let crowd = crowd(set, group, plural, operation, &hooks);
            crowds.push((
                format!("{} of {}", operation.name(), qualified(group, plural)),
                crowd,
            ));
        }
    }
    crowds
}

fn has_wildcard(resources: Option<&[String]>) -> bool {
    resources.is_some_and(|list| list.iter().any(|entry| entry.starts_with('*')))
}

fn crowd<'s>(
    set: &Set,
    group: &str,
    plural: &str,
    operation: Operation,
    hooks: &[&'s Hook],
) -> Crowd<'s> {
    let is_lease = (group, plural) == ("coordination.k8s.io", "leases");
    let known = resource::find(group, plural);
    let name = if is_lease { "kube-system" } else { "default" };
    let labels = set.namespace_labels(name);
    let namespaced = known.is_none_or(|known| known.namespaced);
    let selects = |hook: &Hook| {
        let version = known.and_then(|known| known.versions.first()).copied();
        hook.selects(&Target {
            operation,
            group,
            version: version.unwrap_or_else(|| version_of(hook)),
            resource: plural,
            subresource: "",
            kind: known.map_or("", |known| known.kind),
            namespace: namespaced.then_some((name, &labels)),
            labels: EMPTY,
            annotations: None,
            sender: Sender::Controller,
        })
    };
    // A webhook with an objectSelector matches only some of the objects.
    let is_for_all = |hook: &Hook| {
        let selector = hook.webhook.object_selector.as_ref();
        selector.is_none_or(LabelSelector::is_empty)
    };
    let matching: Vec<&Hook> = hooks
        .iter()
        .copied()
        .filter(|hook| is_for_all(hook))
        .filter(|hook| has_rule(hook, group, plural, operation, namespaced) && selects(hook))
        .collect();
    let mut mutating = 0;
    let mut validating = 0;
    for hook in &matching {
        if hook.is_mutating() {
            let again = hook.webhook.reinvocation_policy.as_deref() == Some("IfNeeded");
            mutating += hook.timeout() * if again { 2 } else { 1 };
        } else {
            validating = validating.max(hook.timeout());
        }
    }
    Crowd {
        hooks: matching,
        seconds: mutating + validating,
        limit: if is_lease {
            LEASE_SECONDS
        } else {
            REQUEST_SECONDS
        },
    }
}

static NO_LABELS: Labels = Labels::new();
const EMPTY: &Labels = &NO_LABELS;

fn has_rule(
    hook: &Hook,
    group: &str,
    plural: &str,
    operation: Operation,
    namespaced: bool,
) -> bool {
    hook.rules().iter().any(|rule| {
        covers_scope(rule, namespaced)
            && operations_on(rule, group, None, plural, "").has(operation)
    })
}

/// The request version of a custom resource: the version in the webhook's rule.
fn version_of(hook: &Hook) -> &str {
    let versions = hook
        .rules()
        .iter()
        .flat_map(|rule| rule.api_versions.iter().flatten());
    let mut named = versions.filter(|version| *version != "*");
    named.next().map_or("v1", String::as_str)
}

fn budgets(context: &Context<'_>, report: &mut Reporter<'_>) {
    // Requests that call the same webhooks are reported once.
    let mut by_hooks: BTreeMap<Vec<HookId>, (Vec<String>, Crowd<'_>)> = BTreeMap::new();
    for (request, crowd) in crowds(context.set) {
        if crowd.hooks.len() < 2 || crowd.seconds < crowd.limit {
            continue;
        }
        let key = crowd
            .hooks
            .iter()
            .map(|hook| (hook.object, hook.index))
            .collect();
        let entry = by_hooks.entry(key).or_insert_with(|| (Vec::new(), crowd));
        entry.0.push(request);
    }
    for (requests, crowd) in by_hooks.into_values() {
        let Some(slowest) = crowd
            .hooks
            .iter()
            .max_by_key(|hook| (hook.is_mutating(), hook.timeout()))
        else {
            continue;
        };
        let names: Vec<String> = crowd
            .hooks
            .iter()
            .map(|hook| format!("{} ({} s)", hook.webhook.name, hook.timeout()))
            .collect();
        let message = format!(
            "{} can take {} s, but its client times out after {} s: {}",
            list(&requests, 3),
            crowd.seconds,
            crowd.limit,
            list(&names, 5)
        );
        report.hook(slowest, "timeoutSeconds", message);
    }
}

pub(super) static W003: Rule = Rule {
    id: "W003",
    title: "matches leases of the control plane",
    summary: "Leader election and node heartbeats update leases in kube-system and kube-node-lease every few seconds. \
              A slow webhook that matches them makes controllers lose leadership and nodes NotReady.",
    advice: "Remove leases from the rules, or exclude kube-system and kube-node-lease with a `namespaceSelector` on \
             `kubernetes.io/metadata.name`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: leases}
webhooks:
- name: leases.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [UPDATE], apiGroups: [coordination.k8s.io], apiVersions: [v1], resources: ['*']}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: leases}
webhooks:
- name: leases.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [UPDATE], apiGroups: [coordination.k8s.io], apiVersions: [v1], resources: [leases]}]
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease, hooks]}
  timeoutSeconds: 3
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: Some("excludes the namespaces it matches, by `kubernetes.io/metadata.name`"),
    levels: levels(WARNING, WARNING, NOTE),
    check: |context, report| {
        let Some(leases) = resource::find("coordination.k8s.io", "leases") else {
            return;
        };
        let namespaces = ["kube-system", "kube-node-lease"].map(|name| (name, context.set.namespace_labels(name)));
        for hook in &context.set.hooks {
            if !hook.builtin_operations(leases).has(Operation::Update) {
                continue;
            }
            let matched: Vec<String> = namespaces
                .iter()
                .filter(|(name, labels)| {
                    hook.selects(&Target::of(leases, Operation::Update, Some((name, labels))))
                })
                .map(|(name, _)| String::from(*name))
                .collect();
            if matched.is_empty() {
                continue;
            }
            let seconds = hook.timeout();
            let grade = if seconds > LEASE_TIMEOUT_SECONDS { Grade::Higher } else { Grade::Usual };
            let message = format!("matches updates of leases in {}, each of which may take {seconds} s", list(&matched, 2));
            report.fixing(hook.excluding(matched)).graded(grade, hook, "rules", message);
        }
    },
};

pub(super) static W039: Rule = Rule {
    id: "W039",
    title: "many mutating webhooks for one request",
    summary: "Mutating webhooks are called sequentially. Each adds latency to every request and is one more point of failure.",
    advice: "Merge webhooks of the same owner, or move simple changes to a MutatingAdmissionPolicy, which runs in the API server.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: a.widgets.example.com
  clientConfig: &client {service: {namespace: widgets, name: webhook}}
  rules: &rules [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 1
  sideEffects: None
  admissionReviewVersions: [v1]
- {name: b.widgets.example.com, clientConfig: *client, rules: *rules, timeoutSeconds: 1, sideEffects: None, admissionReviewVersions: [v1]}
- {name: c.widgets.example.com, clientConfig: *client, rules: *rules, timeoutSeconds: 1, sideEffects: None, admissionReviewVersions: [v1]}
- {name: d.widgets.example.com, clientConfig: *client, rules: *rules, timeoutSeconds: 1, sideEffects: None, admissionReviewVersions: [v1]}
- {name: e.widgets.example.com, clientConfig: *client, rules: *rules, timeoutSeconds: 1, sideEffects: None, admissionReviewVersions: [v1]}
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: all.widgets.example.com
  clientConfig: {service: {namespace: widgets, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 1
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(NOTE, NOTE, NOTE),
    check: |context, report| {
        let mut seen: BTreeSet<Vec<HookId>> = BTreeSet::new();
        for (request, crowd) in crowds(context.set) {
            let hooks: Vec<&&Hook> = crowd.hooks.iter().filter(|hook| hook.is_mutating()).collect();
            let key = hooks.iter().map(|hook| (hook.object, hook.index)).collect();
            let Some(last) = hooks.last().filter(|_| hooks.len() >= MANY_MUTATING) else {
                continue;
            };
            if seen.insert(key) {
                let names: Vec<String> = hooks.iter().map(|hook| hook.webhook.name.clone()).collect();
                let message = format!("{} mutating webhooks are called for {request}: {}", hooks.len(), list(&names, 5));
                report.hook(last, "rules", message);
            }
        }
    },
};
