//! Rules about captured patches: conflicts, idempotence and validity.

use std::collections::{BTreeMap, BTreeSet};

use super::{ERROR, NOTE, WARNING, levels, list};
use crate::finding::Grade;
use crate::rule::{Captured, Context, Reporter, Rule};
use crate::set::Hook;
use crate::traffic::{Call, Change, ChangeKind, Exchange, Outcome, PatchOperation, Replaced};

pub(super) static W029: Rule = Rule {
    id: "W029",
    title: "mutating webhooks overwrite each other",
    summary: "Two mutating webhooks set the same field. The final value depends on the names of their configurations, by which the API server orders them, and a reinvocation \
              can reverse the result.",
    advice: "Let one webhook own the field, or let the second webhook keep an existing value.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: cache}
webhooks:
- name: cache.example.com
  clientConfig: {service: {namespace: hooks, name: cache}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mirror}
webhooks:
- name: mirror.example.com
  clientConfig: {service: {namespace: hooks, name: mirror}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: cache}
webhooks:
- name: cache.example.com
  clientConfig: {service: {namespace: hooks, name: cache}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mirror}
webhooks:
- name: mirror.example.com
  clientConfig: {service: {namespace: hooks, name: mirror}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: Some(Captured {
        bad: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"web:1"}]}}},"calls":[{"configuration":"cache","webhook":"cache.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"replace","path":"/spec/containers/0/image","value":"cache.example/web:1"}]}},{"configuration":"mirror","webhook":"mirror.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"replace","path":"/spec/containers/0/image","value":"mirror.example/web:1"}]}}]}"#,
        good: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"web:1"}]}}},"calls":[{"configuration":"cache","webhook":"cache.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/metadata/annotations","value":{"cache":"on"}}]}},{"configuration":"mirror","webhook":"mirror.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"replace","path":"/spec/containers/0/image","value":"mirror.example/web:1"}]}}]}"#,
        times: 1,
    }),
    fix: None,
    levels: levels(WARNING, WARNING, NOTE),
    check: overwrites,
};

fn overwrites(context: &Context<'_>, report: &mut Reporter<'_>) {
    let mut found: BTreeMap<Pair, (BTreeSet<String>, &Exchange)> = BTreeMap::new();
    let numbers = numbered(context);
    for exchange in &context.set.traffic {
        // The last webhook that set a field.
        let mut owners: Vec<(&Change, usize)> = Vec::new();
        for call in &exchange.calls {
            let Some(&number) = numbers.get(&(&call.configuration, &call.webhook)) else {
                continue;
            };
            for change in &call.changes {
                for (earlier, owner) in &owners {
                    if *owner != number && collide(earlier, change) {
                        let entry = found.entry((number, *owner));
                        let (fields, _) = entry.or_insert_with(|| (BTreeSet::new(), exchange));
                        fields.insert(change.path.clone());
                    }
                }
            }
            let changed = call.changes.iter().map(|change| (change, number));
            owners.extend(changed);
        }
    }
    for ((later, earlier), (fields, exchange)) in found {
        let (Some(later), Some(earlier)) =
            (context.set.hooks.get(later), context.set.hooks.get(earlier))
        else {
            continue;
        };
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        let message = format!(
            "overwrites {} set by `{}` ({})",
            list(&fields, 3),
            earlier.webhook.name,
            exchange.title()
        );
        report.hook(later, "", message);
    }
}

/// The later and the earlier webhook, by number.
type Pair = (usize, usize);

/// The mutating webhooks of the set by configuration and name, and by name alone.
fn numbered<'c>(context: &'c Context<'_>) -> BTreeMap<(&'c String, &'c String), usize> {
    static NONE: String = String::new();
    let mut numbers = BTreeMap::new();
    for (at, hook) in context.set.hooks.iter().enumerate() {
        let Some(info) = context.set.info(hook.object).filter(|_| hook.is_mutating()) else {
            continue;
        };
        numbers.insert((&info.name, &hook.webhook.name), at);
        numbers.entry((&NONE, &hook.webhook.name)).or_insert(at);
    }
    numbers
}

/// Returns true if both changes are to the same field and the second overwrites the first. List items added by both
/// are kept.
fn collide(earlier: &Change, later: &Change) -> bool {
    use ChangeKind::Added;
    let both_add = matches!((&earlier.kind, &later.kind), (Added(_), Added(_)));
    match (earlier.path == later.path, &later.kind) {
        (true, _) => !both_add,
        // A field inside the list item or map that the other change added or replaced.
        (false, ChangeKind::Removed | ChangeKind::Set(_)) => within(&earlier.path, &later.path),
        (false, Added(_)) => false,
    }
}

/// Returns true if the field is below another.
fn within(field: &str, other: &str) -> bool {
    let below = field.strip_prefix(other);
    below.is_some_and(|below| below.starts_with(['.', '[']))
}

pub(super) static W030: Rule = Rule {
    id: "W030",
    title: "wrong reinvocationPolicy",
    summary: "A webhook that changes every container misses containers that a later webhook adds, unless it is reinvoked. Conversely, \
              a reinvoked webhook that does not recognise its own change makes it twice.",
    advice: "Set `reinvocationPolicy: IfNeeded` for the former once it is idempotent, and `Never` for the latter until it is.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: environment}
webhooks:
- name: environment.example.com
  clientConfig: {service: {namespace: hooks, name: environment}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: hooks, name: sidecars}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: environment}
webhooks:
- name: environment.example.com
  clientConfig: {service: {namespace: hooks, name: environment}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  reinvocationPolicy: IfNeeded
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: hooks, name: sidecars}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: Some(Captured {
        bad: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"web:1"}]}}},"calls":[{"configuration":"environment","webhook":"environment.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/0/env","value":[{"name":"ZONE","value":"a"}]}]}},{"configuration":"sidecars","webhook":"sidecars.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"proxy:1"}}]}}]}"#,
        good: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"web:1"}]}}},"calls":[{"configuration":"environment","webhook":"environment.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/0/env","value":[{"name":"ZONE","value":"a"}]}]}},{"configuration":"sidecars","webhook":"sidecars.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"proxy:1"}}]}},{"configuration":"environment","webhook":"environment.example.com","round":2,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/1/env","value":[{"name":"ZONE","value":"a"}]}]}}]}"#,
        times: 1,
    }),
    fix: None,
    levels: levels(WARNING, NOTE, WARNING),
    check: reinvocation,
};

fn reinvocation(context: &Context<'_>, report: &mut Reporter<'_>) {
    let numbers = numbered(context);
    let mut missed: BTreeMap<Pair, (String, &Exchange)> = BTreeMap::new();
    for exchange in &context.set.traffic {
        let mut seen: Vec<(usize, &str)> = Vec::new();
        for call in exchange.calls.iter().filter(|call| call.round <= 1) {
            let Some(&number) = numbers.get(&(&call.configuration, &call.webhook)) else {
                continue;
            };
            for change in &call.changes {
                if let ChangeKind::Added(_) = change.kind {
                    let earlier = seen
                        .iter()
                        .filter(|(at, of)| *at != number && *of == change.path);
                    for (at, list) in earlier {
                        let entry = missed.entry((*at, number));
                        entry.or_insert_with(|| (String::from(*list), exchange));
                    }
                }
                // The list whose items the webhook changes individually.
                if let Some((list, _)) = change.path.split_once('[') {
                    seen.push((number, list));
                }
            }
        }
    }
    for ((earlier, later), (list, exchange)) in missed {
        let (Some(hook), Some(later)) =
            (context.set.hooks.get(earlier), context.set.hooks.get(later))
        else {
            continue;
        };
        if is_reinvoked(hook) {
            continue;
        }
        let message = format!(
            "changes items of `{list}` and is not reinvoked for items that `{}` adds later ({})",
            later.webhook.name,
            exchange.title()
        );
        report.hook(hook, "reinvocationPolicy", message);
    }
    for (hook, calls) in context.set.calls() {
        if is_reinvoked(hook)
            && let Some((exchange, what)) = repeated(&calls)
        {
            let message = format!(
                "is reinvoked and is not idempotent: {what} ({})",
                exchange.title()
            );
            report.hook(hook, "reinvocationPolicy", message);
        }
    }
}

fn is_reinvoked(hook: &Hook) -> bool {
    hook.webhook.reinvocation_policy.as_deref() == Some("IfNeeded")
}

/// The first reinvocation in which a webhook changed a field again.
fn repeated<'c>(calls: &[(&'c Exchange, &'c Call)]) -> Option<(&'c Exchange, String)> {
    calls.iter().enumerate().find_map(|(at, (exchange, call))| {
        if call.round < 2 {
            return None;
        }
        let before = calls.get(..at)?.iter().rev();
        let same = |(other, _): &&(&Exchange, &Call)| std::ptr::eq(*other, *exchange);
        let mut own = before.take_while(same).map(|(_, call)| *call);
        let again = own.find_map(|first| call.changes.iter().find(|change| repeats(first, change)));
        again.map(|change| (*exchange, format!("it changes `{}` again", change.path)))
    })
}

/// Returns true if the change repeats or reverts a change of that call.
fn repeats(first: &Call, change: &Change) -> bool {
    first.changes.iter().any(|before| {
        before.path == change.path
            && match (&before.kind, &change.kind) {
                // Other items may be due to additions of another webhook.
                (ChangeKind::Added(one), ChangeKind::Added(other)) => {
                    one.iter().any(|item| other.contains(item))
                }
                _ => true,
            }
    })
}

pub(super) static W031: Rule = Rule {
    id: "W031",
    title: "patch replaces more than it changes",
    summary: "A patch that replaces a whole list, `spec` or the object drops fields of newer API versions and additions of other \
              webhooks. Patches of `metadata.managedFields`, `status` and selectors break server-side apply, controllers and workloads.",
    advice: "Patch only the changed fields: `add` to `/spec/containers/-` instead of `replace` of `/spec/containers`.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: hooks, name: sidecars}}
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
  clientConfig: {service: {namespace: hooks, name: sidecars}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: Some(Captured {
        bad: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"web:1"},{"name":"d","image":"log:1"}]}}},"calls":[{"configuration":"sidecars","webhook":"sidecars.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"replace","path":"/spec/containers","value":[{"name":"c","image":"web:1"},{"name":"d","image":"log:1"},{"name":"proxy","image":"proxy:1"}]}]}}]}"#,
        good: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"web:1"},{"name":"d","image":"log:1"}]}}},"calls":[{"configuration":"sidecars","webhook":"sidecars.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"proxy:1"}}]}}]}"#,
        times: 1,
    }),
    fix: None,
    levels: levels(WARNING, NOTE, WARNING),
    check: overwriting,
};

fn overwriting(context: &Context<'_>, report: &mut Reporter<'_>) {
    for (hook, calls) in context.set.calls() {
        // Each problem with the number of calls and the first request.
        let mut found: BTreeMap<String, (usize, &Exchange)> = BTreeMap::new();
        let patching = calls.iter().filter(|(_, call)| !call.operations.is_empty());
        let patching: Vec<&(&Exchange, &Call)> = patching.collect();
        for (exchange, call) in patching.iter().copied() {
            let mut said: BTreeSet<String> = BTreeSet::new();
            for operation in &call.operations {
                said.extend(excess(exchange, operation));
            }
            for field in &call.dropped {
                said.insert(format!("drop the unknown field `{field}`"));
            }
            for what in said {
                found.entry(what).or_insert((0, exchange)).0 += 1;
            }
        }
        for (what, (count, exchange)) in found {
            let message = format!(
                "{count} of {} captured patches {what} ({})",
                patching.len(),
                exchange.title()
            );
            report.hook(hook, "", message);
        }
    }
}

/// Metadata that the server manages or that identifies the object.
const SERVER_METADATA: &[&str] = &[
    "managedFields",
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "selfLink",
];

/// The problem of an operation, such as `replace the whole list `spec.containers``.
fn excess(exchange: &Exchange, operation: &PatchOperation) -> Option<String> {
    if matches!(operation.op.as_str(), "test" | "copy") {
        return None;
    }
    let path = operation.path.as_str();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let field = segments.join(".");
    match segments.as_slice() {
        [] => return Some(String::from("replace the whole object")),
        ["metadata", member, ..] if SERVER_METADATA.contains(member) => {
            return Some(format!(
                "change `metadata.{member}`, which the server manages"
            ));
        }
        ["status", ..] if exchange.subresource != "status" => {
            return Some(String::from(
                "change `status`, which is dropped outside of the status subresource",
            ));
        }
        ["spec", "selector", ..] if exchange.group == "apps" => {
            return Some(String::from("change `spec.selector`, which is immutable"));
        }
        _ => {}
    }
    if !matches!(operation.op.as_str(), "replace" | "add") {
        return None;
    }
    match operation.replaced {
        Replaced::Map if segments.len() == 1 => Some(format!("replace the whole `{field}`")),
        // `add` with an index inserts.
        Replaced::List => Some(format!("replace the whole list `{field}`")),
        _ => None,
    }
}

pub(super) static W032: Rule = Rule {
    id: "W032",
    title: "webhook is not idempotent",
    summary: "A webhook is called on its own result when it is reinvoked and whenever the object is written again. If it changes the \
              object again, it adds a container twice, or makes GitOps tools and controllers write in a loop.",
    advice: "Check that the change is missing before making it. `lockgate test` with `checks: {idempotence: true}` tests that.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecars}
webhooks:
- name: sidecars.example.com
  clientConfig: {service: {namespace: hooks, name: sidecars}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  reinvocationPolicy: IfNeeded
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
  clientConfig: {service: {namespace: hooks, name: sidecars}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  reinvocationPolicy: IfNeeded
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: Some(Captured {
        bad: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"web:1"}]}}},"calls":[{"configuration":"sidecars","webhook":"sidecars.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"proxy:1"}}]}},{"configuration":"sidecars","webhook":"sidecars.example.com","round":2,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"proxy:1"}}]}}]}"#,
        good: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"web:1"}]}}},"calls":[{"configuration":"sidecars","webhook":"sidecars.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"proxy:1"}}]}},{"configuration":"sidecars","webhook":"sidecars.example.com","round":2,"response":{"allowed":true}}]}"#,
        times: 1,
    }),
    fix: None,
    levels: levels(WARNING, WARNING, WARNING),
    check: idempotence,
};

fn idempotence(context: &Context<'_>, report: &mut Reporter<'_>) {
    for (hook, calls) in context.set.calls() {
        let again = calls
            .iter()
            .find(|(exchange, call)| exchange.again && has_effect(call));
        let told = again.map(|(exchange, call)| (*exchange, on_its_result(hook, call)));
        let told = told.or_else(|| repeated(&calls));
        let told = told.or_else(|| on_an_earlier_result(hook, &calls));
        if let Some((exchange, what)) = told {
            let message = format!("is not idempotent: {what} ({})", exchange.title());
            report.hook(hook, "", message);
        }
    }
}

fn has_effect(call: &Call) -> bool {
    !call.changes.is_empty() || matches!(call.outcome, Outcome::Denied(_))
}

fn on_its_result(hook: &Hook, call: &Call) -> String {
    let whose = if hook.is_mutating() {
        "its own result"
    } else {
        "the result of mutations"
    };
    match (&call.outcome, call.changes.first()) {
        (Outcome::Denied(message), _) => format!("it denies {whose}: {message}"),
        (_, Some(change)) => format!("it changes `{}` of {whose}", change.path),
        (_, None) => format!("it changes {whose}"),
    }
}

/// A call that changed or denied an object that the webhook itself had produced.
fn on_an_earlier_result<'c>(
    hook: &Hook,
    calls: &[(&'c Exchange, &'c Call)],
) -> Option<(&'c Exchange, String)> {
    let mut left: BTreeSet<u64> = BTreeSet::new();
    for (exchange, call) in calls {
        if left.contains(&call.before) && has_effect(call) {
            return Some((*exchange, on_its_result(hook, call)));
        }
        if !call.changes.is_empty() {
            left.insert(call.after);
        }
    }
    None
}

pub(super) static W033: Rule = Rule {
    id: "W033",
    title: "mutation makes the object invalid",
    summary: "The object is validated after mutation. A patch that makes it invalid turns a valid request into an error about fields \
              that its author did not write.",
    advice: "Validate the result in the webhook's tests, and deny the request with a clear message if no valid change exists.",
    bad: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: ports}
webhooks:
- name: ports.example.com
  clientConfig: {service: {namespace: hooks, name: ports}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [services]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    good: "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: ports}
webhooks:
- name: ports.example.com
  clientConfig: {service: {namespace: hooks, name: ports}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [services]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
",
    captured: Some(Captured {
        bad: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Service"},"resource":{"group":"","version":"v1","resource":"services"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{"ports":[{"name":"http","port":80}],"selector":{"app":"web"}}}},"calls":[{"configuration":"ports","webhook":"ports.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"replace","path":"/spec/ports/0/port","value":80000}]}}]}"#,
        good: r#"{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Service"},"resource":{"group":"","version":"v1","resource":"services"},"namespace":"shop","name":"web","object":{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{"ports":[{"name":"http","port":80}],"selector":{"app":"web"}}}},"calls":[{"configuration":"ports","webhook":"ports.example.com","round":1,"response":{"allowed":true,"patchType":"JSONPatch","patch":[{"op":"replace","path":"/spec/ports/0/port","value":8080}]}}]}"#,
        times: 1,
    }),
    fix: None,
    levels: levels(ERROR, ERROR, WARNING),
    check: invalid,
};

fn invalid(context: &Context<'_>, report: &mut Reporter<'_>) {
    for (hook, calls) in context.set.calls() {
        let mut bad = calls.iter().filter(|(_, call)| !call.invalid.is_empty());
        let Some((exchange, call)) = bad.next() else {
            continue;
        };
        let errors: Vec<String> = call
            .invalid
            .iter()
            .map(|error| format!("`{error}`"))
            .collect();
        let message = format!(
            "{} of {} captured calls left an invalid object: {} ({})",
            bad.count() + 1,
            calls.len(),
            list(&errors, 2),
            exchange.title()
        );
        // The request was denied anyway.
        let is_denied = matches!(call.outcome, Outcome::Denied(_));
        let grade = if is_denied {
            Grade::Lower
        } else {
            Grade::Usual
        };
        report.graded(grade, hook, "", message);
    }
}
