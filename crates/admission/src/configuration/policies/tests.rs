use lockgate_api::document::json::parse;
use lockgate_api::registration::policy::{decode_binding, decode_policy};
use serde_json::{Value, json};

use super::*;

fn policy(name: &str, resource: &str) -> Policy {
    let text = json!({
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": [resource],
            }]},
            "validations": [{"expression": "namespaceObject != null || variables.v == 1"}],
            "variables": [{"name": "v", "expression": "1"}],
        },
    });
    let text = text.to_string();
    let document = parse(text.as_bytes()).unwrap();
    decode_policy(document.root(), PolicyKind::Validating)
        .unwrap()
        .value
}

fn binding(name: &str, policy: &str, resources: Value) -> Binding {
    let text = json!({
        "metadata": {"name": name},
        "spec": {
            "policyName": policy, "validationActions": ["Audit", "Warn"],
            "matchResources": resources,
        },
    });
    let text = text.to_string();
    let document = parse(text.as_bytes()).unwrap();
    decode_binding(document.root(), PolicyKind::Validating)
        .unwrap()
        .value
}

/// The names of effective policies, with those of their bindings.
fn in_force(policies: &Policies) -> Vec<(String, Vec<String>)> {
    let snapshot = policies.snapshot();
    let bound = snapshot.policies().iter();
    bound
        .map(|bound| {
            let bindings = bound.bindings.iter().map(|b| b.name().to_owned());
            (bound.policy.name().to_owned(), bindings.collect())
        })
        .collect()
}

fn named(policy: &str, bindings: &[&str]) -> (String, Vec<String>) {
    let bindings = bindings.iter().map(|name| String::from(*name));
    (policy.to_owned(), bindings.collect())
}

#[test]
fn a_policy_is_in_force_with_its_bindings_in_order() {
    let policies = Policies::new(PolicyKind::Validating);
    policies.upsert_policy(&policy("p", "pods"));
    policies.upsert_policy(&policy("a", "pods"));
    policies.upsert_binding(&binding("y", "p", Value::Null));
    policies.upsert_binding(&binding("x", "p", Value::Null));
    policies.upsert_binding(&binding("lonely", "nobody", Value::Null));
    assert_eq!(in_force(&policies), [named("p", &["x", "y"])]);
    // An update may change the policy of a binding.
    policies.upsert_binding(&binding("x", "a", Value::Null));
    assert_eq!(
        in_force(&policies),
        [named("a", &["x"]), named("p", &["y"])]
    );
    policies.remove_binding("y");
    policies.remove_binding("never was");
    assert_eq!(in_force(&policies), [named("a", &["x"])]);
    policies.remove_policy("a");
    assert_eq!(in_force(&policies), []);
}

#[test]
fn what_did_not_change_keeps_its_form() {
    let policies = Policies::new(PolicyKind::Validating);
    policies.upsert_policy(&policy("p", "pods"));
    policies.upsert_binding(&binding("b", "p", Value::Null));
    let before = policies.snapshot();
    assert!(Arc::ptr_eq(&before, &policies.snapshot()));
    policies.upsert_policy(&policy("q", "pods"));
    let after = policies.snapshot();
    assert!(!Arc::ptr_eq(&before, &after));
    let (before, after) = (&before.policies()[0], &after.policies()[0]);
    assert!(Arc::ptr_eq(&before.policy, &after.policy));
    assert!(Arc::ptr_eq(&before.bindings, &after.bindings));
}

#[test]
fn equal_matches_and_programs_are_held_once() {
    let policies = Policies::new(PolicyKind::Validating);
    let about = json!({"namespaceSelector": {"matchLabels": {"a": "b"}}});
    policies.upsert_policy(&policy("p", "pods"));
    policies.upsert_policy(&policy("q", "services"));
    policies.upsert_binding(&binding("b", "p", about.clone()));
    policies.upsert_binding(&binding("c", "q", about));
    let snapshot = policies.snapshot();
    let [one, other] = snapshot.policies() else {
        panic!("two policies are in force");
    };
    let criteria = |bound: &BoundPolicy| bound.bindings[0].criteria().cloned().unwrap();
    assert!(Arc::ptr_eq(&criteria(one), &criteria(other)));
    let program = |bound: &BoundPolicy| bound.policy.validations[0].program.clone().unwrap();
    assert!(Arc::ptr_eq(&program(one), &program(other)));
    assert!(one.policy.looks_at_namespace);
    let actions: Vec<_> = one.bindings[0].actions().map(Action::name).collect();
    assert_eq!(actions, ["Audit", "Warn"]);
}

#[test]
fn what_cannot_be_read_refuses_until_it_is_gone() {
    let policies = Policies::new(PolicyKind::Validating);
    policies.upsert_policy(&policy("p", "pods"));
    policies.upsert_binding(&binding("b", "p", Value::Null));
    let what = Registered::Policy(PolicyKind::Validating);
    policies.refuse_unreadable(what, "p", "why");
    let snapshot = policies.snapshot();
    let [bound] = snapshot.policies() else {
        panic!("one policy is in force");
    };
    assert_eq!(
        bound.policy.unreadable.as_deref(),
        Some("ValidatingAdmissionPolicy 'p' cannot be read: why")
    );
    policies.upsert_policy(&policy("p", "pods"));
    assert_eq!(in_force(&policies), [named("p", &["b"])]);
    let what = Registered::Binding(PolicyKind::Validating);
    policies.refuse_unreadable(what, "b", "why");
    assert_eq!(in_force(&policies), [named("b", &["b"])]);
    policies.remove_binding("b");
    assert_eq!(in_force(&policies), []);
}

#[test]
fn policies_of_the_other_kind_are_left_alone() {
    let policies = Policies::new(PolicyKind::Mutating);
    policies.upsert_policy(&policy("p", "pods"));
    policies.upsert_binding(&binding("b", "p", Value::Null));
    assert_eq!(in_force(&policies), []);
}

/// The memory cost per policy and binding.
#[test]
fn many_bindings_cost_little_each() {
    const POLICIES: usize = 100;
    const BINDINGS: usize = 300;
    /// Bytes per binding: itself with its name, and its entries in the lists of its policy and of all bindings.
    const PER_BINDING: i64 = 76;
    let policies = Policies::new(PolicyKind::Validating);
    for number in 0..POLICIES {
        policies.upsert_policy(&policy(&format!("p{number}"), "pods"));
    }
    let counted = allocation_counter::measure(|| {
        for number in 0..POLICIES * BINDINGS {
            let shard =
                json!({"namespaceSelector": {"matchLabels": {"shard": (number % 10).to_string()}}});
            let policy = format!("p{}", number / BINDINGS);
            policies.upsert_binding(&binding(&format!("b{number}"), &policy, shard));
        }
    });
    let each = counted.bytes_current / i64::try_from(POLICIES * BINDINGS).unwrap();
    println!("{each} bytes for each binding");
    assert!(each <= PER_BINDING, "{each} bytes for each binding");
}

/// Policies with the expressions of others, except for two that contain the policy's name.
#[test]
fn many_policies_cost_little_each() {
    const POLICIES: usize = 300;
    /// Bytes per policy: its strings, its own programs, and its entries.
    const PER_POLICY: i64 = 4_000;
    let policies = Policies::new(PolicyKind::Validating);
    let add = |range: std::ops::Range<usize>| {
        for number in range {
            let name = format!("p{number}");
            let text = json!({
                "metadata": {"name": name},
                "spec": {
                    "matchConstraints": {"resourceRules": [{
                        "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
                        "resources": [format!("things{number}")],
                    }]},
                    "matchConditions": [{
                        "name": "c",
                        "expression": format!("request.userInfo.username != 'system:{name}'"),
                    }],
                    "variables": [{
                        "name": "team",
                        "expression": "has(object.metadata.labels) ? object.metadata.labels['team'] : ''",
                    }],
                    "validations": [
                        {"expression": "object.metadata.name != 'denied'", "message": "by name"},
                        {"expression": format!("variables.team != '{name}'"), "message": "by team"},
                        {"expression": "!has(object.data) || object.data.all(k, size(k) < 64)",
                         "messageExpression": "'long keys in ' + string(object.metadata.name)"},
                    ],
                },
            });
            let text = text.to_string();
            let document = parse(text.as_bytes()).unwrap();
            let policy = decode_policy(document.root(), PolicyKind::Validating).unwrap();
            policies.upsert_policy(&policy.value);
        }
    };
    // The shared parts exist already.
    add(0..1);
    let counted = allocation_counter::measure(|| add(1..POLICIES + 1));
    let each = counted.bytes_current / i64::try_from(POLICIES).unwrap();
    println!("{each} bytes for each policy");
    assert!(each <= PER_POLICY, "{each} bytes for each policy");
}

/// The thousandth policy costs as much as the first: existing ones are not recompiled.
#[test]
fn policies_come_one_by_one_without_work_for_the_others() {
    let policies = Policies::new(PolicyKind::Validating);
    let work = |first: usize| {
        let all: Vec<(Policy, Binding)> = (first..first + 100)
            .map(|number| {
                let name = format!("p{number:05}");
                (policy(&name, &name), binding(&name, &name, Value::Null))
            })
            .collect();
        allocation_counter::measure(|| {
            for (policy, binding) in &all {
                policies.upsert_policy(policy);
                policies.upsert_binding(binding);
            }
        })
    };
    let first = work(0);
    for number in 1..20 {
        work(number * 100);
    }
    let last = work(2000);
    let (before, after) = (first.bytes_total, last.bytes_total);
    assert!(after * 10 <= before * 12, "{before} bytes, then {after}");
    assert_eq!(policies.snapshot().policies().len(), 2100);
}
