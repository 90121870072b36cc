//! Rules about captured patches: whether they get on with each other, with themselves and with the API.

use std::collections::{BTreeMap, BTreeSet};

use super::{ERROR, NOTE, WARNING, levels, list};
use crate::finding::Grade;
use crate::rule::{Captured, Context, Reporter, Rule};
use crate::set::Hook;
use crate::traffic::{Call, Change, ChangeKind, Exchange, Outcome, PatchOperation, Replaced};

pub(super) static W029: Rule = Rule {
    id: "W029",
    title: "mutating webhooks overwrite each other",
    summary: "Two mutating webhooks set the same field. Which value remains depends on the names of their configurations, by which the API server orders them, and \
              a reinvocation may turn it around.",
    advice: "Let one webhook own the field, or let the second leave a value alone that it finds.",
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
        // The webhook that set a field last.
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
            "overwrites {} that `{}` set before ({})",
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

/// Both changes are of the same field, and the second undoes the first. Items that both add to a list
/// stay beside each other.
fn collide(earlier: &Change, later: &Change) -> bool {
    use ChangeKind::Added;
    let both_add = matches!((&earlier.kind, &later.kind), (Added(_), Added(_)));
    match (earlier.path == later.path, &later.kind) {
        (true, _) => !both_add,
        // A field within the list item or map that the other added or set as a whole.
        (false, ChangeKind::Removed | ChangeKind::Set(_)) => within(&earlier.path, &later.path),
        (false, Added(_)) => false,
    }
}

/// The field is below another.
fn within(field: &str, other: &str) -> bool {
    let below = field.strip_prefix(other);
    below.is_some_and(|below| below.starts_with(['.', '[']))
}

pub(super) static W030: Rule = Rule {
    id: "W030",
    title: "reinvocationPolicy that does not fit",
    summary: "A webhook that changes every container, and is called before another adds one, leaves that one unchanged unless it is \
              reinvoked. The other way around, a webhook that does not recognise its own change makes it twice when it is.",
    advice: "Set `reinvocationPolicy: IfNeeded` for the first, once it is idempotent, and `Never` for the second until it is.",
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
                // The list whose items it changes one by one.
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
            "changes items of `{list}` and is not called again for those that `{}` adds after it ({})",
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

/// The first reinvocation in which a webhook changed what it had changed already.
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

/// The change was made by that call before, or undoes what that call did.
fn repeats(first: &Call, change: &Change) -> bool {
    first.changes.iter().any(|before| {
        before.path == change.path
            && match (&before.kind, &change.kind) {
                // Other items may be for what another webhook added in between.
                (ChangeKind::Added(one), ChangeKind::Added(other)) => {
                    one.iter().any(|item| other.contains(item))
                }
                _ => true,
            }
    })
}

pub(super) static W031: Rule = Rule {
    id: "W031",
    title: "patch that overwrites more than it changes",
    summary: "A patch that replaces a whole list, `spec` or the object overwrites what it does not know: fields of newer versions are lost, and what other \
              webhooks added. Patches of `metadata.managedFields`, of `status` and of selectors break server-side apply, controllers and workloads.",
    advice: "Patch the fields that change: `add` to `/spec/containers/-`, not `replace` of `/spec/containers`.",
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
        // What it does, with the number of calls and the first request.
        let mut found: BTreeMap<String, (usize, &Exchange)> = BTreeMap::new();
        let patching = calls.iter().filter(|(_, call)| !call.operations.is_empty());
        let patching: Vec<&(&Exchange, &Call)> = patching.collect();
        for (exchange, call) in patching.iter().copied() {
            let mut said: BTreeSet<String> = BTreeSet::new();
            for operation in &call.operations {
                said.extend(excess(exchange, operation));
            }
            for field in &call.dropped {
                said.insert(format!("drop the field `{field}`, which it does not know"));
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

/// Metadata that is the server's, or that identifies the object.
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

/// The excess of an operation, as in `replace the list `spec.containers` as a whole`.
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
            return Some(format!("change `metadata.{member}`, which is the server's"));
        }
        ["status", ..] if exchange.subresource != "status" => {
            return Some(String::from(
                "change `status`, which is dropped without its subresource",
            ));
        }
        ["spec", "selector", ..] if exchange.group == "apps" => {
            return Some(String::from(
                "change `spec.selector`, which cannot be changed later",
            ));
        }
        _ => {}
    }
    if !matches!(operation.op.as_str(), "replace" | "add") {
        return None;
    }
    match operation.replaced {
        Replaced::Map if segments.len() == 1 => Some(format!("replace `{field}` as a whole")),
        // `add` with an index inserts.
        Replaced::List => Some(format!("replace the list `{field}` as a whole")),
        _ => None,
    }
}

pub(super) static W032: Rule = Rule {
    id: "W032",
    title: "webhook that is not idempotent",
    summary: "A webhook is called again on its own result: when it is reinvoked, and whenever the object is written again. One that changes it once more \
              adds a container twice, or makes GitOps tools and controllers write for ever.",
    advice: "Check whether the change is already there before making it. `lockgate test` with `checks: {idempotence: true}` tests that.",
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

/// A call that changed or denied an object exactly as the webhook had left it before.
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
    title: "mutation that is invalid",
    summary: "The object is validated after mutation. A patch that makes it invalid turns a request that was fine into an error about fields which its \
              author did not write.",
    advice: "Validate the result in the tests of the webhook, and deny with a message of its own where no valid change exists.",
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
        // The request was denied in any case.
        let is_denied = matches!(call.outcome, Outcome::Denied(_));
        let grade = if is_denied {
            Grade::Lower
        } else {
            Grade::Usual
        };
        report.graded(grade, hook, "", message);
    }
}
