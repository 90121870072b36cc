//! Rules about webhooks that need themselves, or each other, to start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{ERROR, WARNING, levels, list};
use crate::finding::Grade;
use crate::matching::{Labels, Operation, Target};
use crate::resource::{self, Resource};
use crate::rule::{Context, Reporter, Rule};
use crate::set::{Hook, Set};

/// A service by namespace and name.
type Service<'s> = (&'s str, &'s str);

/// Creates that a Pod of a Service needs to become ready.
const NEEDED: &[(&str, &str)] = &[
    ("", "pods"),
    ("apps", "replicasets"),
    ("discovery.k8s.io", "endpointslices"),
];

/// The Pods behind a Service: their namespace and labels.
struct Pods<'s> {
    namespace: &'s str,
    namespace_labels: Labels,
    labels: Labels,
}

impl<'s> Pods<'s> {
    fn of(set: &Set, (namespace, name): Service<'s>) -> Self {
        Self {
            namespace,
            namespace_labels: set.namespace_labels(namespace),
            labels: set.pod_labels(namespace, name),
        }
    }

    /// The first required create for which the webhook is called.
    fn guarded_by(&self, guard: &Guard<'_>) -> Option<&'static str> {
        let Guard {
            hook,
            needed,
            fixed,
        } = guard;
        needed.iter().find_map(|resource| {
            let namespace = Some((self.namespace, &self.namespace_labels));
            let target = Target::of(resource, Operation::Create, namespace).labelled(&self.labels);
            let selected = if *fixed {
                hook.selects_labels(&target)
            } else {
                hook.selects(&target)
            };
            selected.then_some(resource.plural)
        })
    }
}

/// A webhook that required creates depend on.
struct Guard<'s> {
    hook: &'s Hook,
    /// The resources whose creates its rules match.
    needed: Vec<&'static Resource>,
    /// The creates that its conditions match in every namespace, to avoid evaluating them again.
    fixed: bool,
}

impl<'s> Guard<'s> {
    fn new(hook: &'s Hook) -> Self {
        let fixed = hook.has_fixed_conditions();
        let needed = NEEDED
            .iter()
            .filter_map(|(group, plural)| resource::find(group, plural))
            .filter(|resource| hook.builtin_operations(resource).has(Operation::Create))
            .filter(|resource| {
                !fixed || Target::of(resource, Operation::Create, None).passes(&hook.conditions)
            })
            .collect();
        Self {
            hook,
            needed,
            fixed,
        }
    }
}

pub(super) static W010: Rule = Rule {
    id: "W010",
    title: "webhook matches its own Pods",
    summary: "A webhook that fails closed and is called when its own Pods are created cannot start again once all of them are gone, \
              for example after a restart of the cluster.",
    advice: "Exclude the webhook's own namespace with a `namespaceSelector` on `kubernetes.io/metadata.name`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}
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
    fix: Some("excludes the webhook's own namespace, by `kubernetes.io/metadata.name`"),
    levels: levels(ERROR, ERROR, WARNING),
    check: |context, report| {
        let mut known: BTreeMap<Service<'_>, Pods<'_>> = BTreeMap::new();
        for hook in &context.set.hooks {
            let Some(service) = hook.service() else {
                continue;
            };
            let pods = known
                .entry(service)
                .or_insert_with(|| Pods::of(context.set, service));
            let Some(plural) = pods.guarded_by(&Guard::new(hook)) else {
                continue;
            };
            let (namespace, name) = service;
            let (grade, effect) = if hook.fails_closed() {
                (
                    Grade::Usual,
                    "without a running Pod it blocks its own start",
                )
            } else {
                (Grade::Lower, "its own start is delayed by its timeout")
            };
            let assumed = if context.set.knows_namespace(namespace) {
                ""
            } else {
                " (its Namespace is not among the manifests and is assumed to have no custom labels)"
            };
            let message = format!(
                "matches CREATE of {plural} in `{namespace}`, where its service `{name}` runs: {effect}{assumed}"
            );
            report.fixing(hook.excluding([namespace])).graded(
                grade,
                hook,
                "clientConfig.service.namespace",
                message,
            );
        }
    },
};

pub(super) static W011: Rule = Rule {
    id: "W011",
    title: "webhooks depend on each other to start",
    summary: "Two webhooks that fail closed and are each called when the other's Pods are created cannot start again once both are \
              down. The same holds for longer cycles.",
    advice: "Exclude the namespace of one webhook from the other, with a `namespaceSelector` on `kubernetes.io/metadata.name`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {service: {namespace: images, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, images]}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: sidecars, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, sidecars]}
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
  clientConfig: {service: {namespace: images, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, images]}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: sidecars, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  namespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, sidecars, images]}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: None,
    fix: None,
    levels: levels(ERROR, ERROR, WARNING),
    check: circles,
};

fn circles(context: &Context<'_>, report: &mut Reporter<'_>) {
    let set = context.set;
    let mut guards: BTreeMap<Service<'_>, Vec<Guard<'_>>> = BTreeMap::new();
    for hook in set.hooks.iter().filter(|hook| hook.fails_closed()) {
        if let Some(service) = hook.service() {
            guards.entry(service).or_default().push(Guard::new(hook));
        }
    }
    let services: Vec<Service<'_>> = guards.keys().copied().collect();
    let pods: Vec<Pods<'_>> = services
        .iter()
        .map(|service| Pods::of(set, *service))
        .collect();
    let hooks: Vec<&Vec<Guard<'_>>> = guards.values().collect();
    // A Service has edges to the Services whose Pods its webhooks match. With many Services that is almost all of
    // them, so the graph is not materialised: only edges to unvisited Services are tried.
    let leads = |from: usize, to: usize| {
        let (Some(hooks), Some(pods)) = (hooks.get(from), pods.get(to)) else {
            return false;
        };
        from != to && hooks.iter().any(|hook| pods.guarded_by(hook).is_some())
    };
    let mut seen = BTreeSet::new();
    for start in 0..services.len() {
        if seen.contains(&start) {
            continue;
        }
        let led_to = reachable(services.len(), start, leads);
        if !led_to.contains(&start) {
            continue;
        }
        // Services that depend on each other form one strongly connected component, reported once.
        let leading = reachable(services.len(), start, |from, to| leads(to, from));
        let knot: Vec<usize> = led_to.intersection(&leading).copied().collect();
        let Some(circle) = shortest_circle(&knot, start, leads) else {
            continue;
        };
        let others = knot.len().saturating_sub(circle.len());
        seen.extend(knot);
        let names: Vec<String> = circle
            .iter()
            .chain(circle.first())
            .filter_map(|at| services.get(*at))
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect();
        let next = circle.get(1).copied().unwrap_or(start);
        let hooks = services.get(start).and_then(|service| guards.get(service));
        let hook = hooks.into_iter().flatten().find(|hook| {
            pods.get(next)
                .is_some_and(|pods| pods.guarded_by(hook).is_some())
        });
        if let Some(hook) = hook {
            let shown = if names.len() > 6 {
                list(&names, 6)
            } else {
                names.join(" → ")
            };
            let more = match others {
                0 => String::new(),
                1 => String::from(", and 1 more Service in cycles with these"),
                others => format!(", and {others} more Services in cycles with these"),
            };
            let message = format!(
                "Services whose Pods need each other's webhooks to be created: {shown}{more}"
            );
            report.hook(hook.hook, "namespaceSelector", message);
        }
    }
}

/// The nodes reachable from a node; includes the node if it is on a cycle.
fn reachable(count: usize, start: usize, leads: impl Fn(usize, usize) -> bool) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut left: Vec<usize> = (0..count).filter(|node| *node != start).collect();
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        if leads(at, start) {
            found.insert(start);
        }
        left.retain(|to| {
            let is_next = leads(at, *to);
            if is_next {
                found.insert(*to);
                open.push(*to);
            }
            !is_next
        });
    }
    found
}

/// The shortest cycle through a node among these, without its end.
fn shortest_circle(
    nodes: &[usize],
    start: usize,
    leads: impl Fn(usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut left: Vec<usize> = nodes
        .iter()
        .copied()
        .filter(|node| *node != start)
        .collect();
    let mut open = VecDeque::from([start]);
    while let Some(at) = open.pop_front() {
        if leads(at, start) {
            let mut circle = vec![at];
            let mut step = at;
            while let Some(&before) = came_from.get(&step) {
                circle.push(before);
                step = before;
            }
            circle.reverse();
            return Some(circle);
        }
        left.retain(|to| {
            let is_next = leads(at, *to);
            if is_next {
                came_from.insert(*to, at);
                open.push_back(*to);
            }
            !is_next
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_shortest_way_back() {
        let edges = [vec![1, 2], vec![3], vec![0], vec![0], vec![0]];
        let leads = |from: usize, to: usize| edges[from].contains(&to);
        let all = [0, 1, 2, 3, 4];
        assert_eq!(shortest_circle(&all, 0, leads), Some(vec![0, 2]));
        assert_eq!(shortest_circle(&all, 1, leads), Some(vec![1, 3, 0]));
        assert_eq!(shortest_circle(&all, 4, leads), None);
        assert_eq!(reachable(5, 0, leads), [0, 1, 2, 3].into());
        assert_eq!(reachable(5, 4, leads), [0, 1, 2, 3].into(), "no way back");
        assert_eq!(reachable(1, 0, |_, _| false), BTreeSet::new());
    }
}
