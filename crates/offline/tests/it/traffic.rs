//! The lint rules about captured calls, on captures in their stored format.

use lockgate_lint::{Finding, Options, Profile, RULES, Rule, Set, check};
use lockgate_offline::capture::{self, Capture};
use lockgate_offline::chain::Chain;
use lockgate_offline::cluster::{Cluster, Validation};
use lockgate_offline::hooks::{Hook, Hooks, Script};
use lockgate_offline::kinds::OfflineKinds;
use lockgate_offline::manifest;
use lockgate_offline::traffic::{exchange, sent_again};
use serde_json::{Value, json};

fn read(lines: &str) -> Capture {
    let header = serde_json::to_string(&capture::header("serve")).unwrap();
    capture::read("capture", &format!("{header}\n{lines}\n")).unwrap()
}

fn lint(profile: Profile, manifests: &str, capture: &Capture) -> Vec<Finding> {
    let mut set = Set::default();
    set.add_text(manifests).unwrap();
    let kinds = OfflineKinds::default();
    for record in &capture.records {
        set.add_exchange(exchange(record, &kinds));
    }
    let options = Options {
        profile,
        ..Options::default()
    };
    check(&set, &options)
}

fn messages(rule: &str, manifests: &str, lines: &[Value]) -> Vec<String> {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    let found = lint(Profile::Balanced, manifests, &read(&lines.join("\n")));
    let own = found.into_iter().filter(|finding| finding.rule.id == rule);
    own.map(|finding| format!("{}: {}", finding.severity.name(), finding.message))
        .collect()
}

#[test]
fn every_bad_example_is_found_and_no_good_one_is() {
    let mut rules = 0;
    for rule in RULES {
        let Some(captured) = rule.captured else {
            continue;
        };
        rules += 1;
        let found = |manifests: &str, line: &str| -> Vec<String> {
            let lines = vec![line; captured.times].join("\n");
            let found = lint(Profile::Balanced, manifests, &read(&lines));
            let own = found.into_iter().filter(|finding| *finding.rule == **rule);
            own.map(|finding| finding.message).collect()
        };
        let Rule { id, bad, good, .. } = rule;
        assert_eq!(found(bad, captured.bad).len(), 1, "{id}: bad example");
        assert_eq!(found(good, captured.good), [""; 0], "{id}: good example");
        if captured.times > 1 {
            let few = vec![captured.bad; captured.times - 1].join("\n");
            let few = lint(Profile::Balanced, bad, &read(&few));
            assert!(
                !few.iter().any(|it| *it.rule == **rule),
                "{id}: too few calls"
            );
        }
    }
    assert_eq!(rules, 8);
}

/// A mutating configuration with a webhook of the same name.
fn webhook(name: &str, more: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {{name: {name}}}
webhooks:
- name: {name}.example.com
  clientConfig: {{service: {{namespace: hooks, name: {name}}}}}
  rules: [{{operations: [CREATE, UPDATE], apiGroups: ['', apps], apiVersions: [v1], resources: [pods, deployments]}}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
{more}"
    )
}

/// A captured Pod creation, with the patches of webhooks in the order of their calls.
fn pod(calls: &[(&str, Value)]) -> Value {
    pod_in_rounds(
        &calls
            .iter()
            .map(|(name, patch)| (*name, 1, patch.clone()))
            .collect::<Vec<_>>(),
    )
}

fn pod_in_rounds(calls: &[(&str, u8, Value)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, round, patch)| {
            let mut response = json!({"allowed": true});
            if !patch.is_null() {
                response["patchType"] = "JSONPatch".into();
                response["patch"] = patch.clone();
            }
            json!({"configuration": name, "webhook": format!("{name}.example.com"), "round": round, "response": response})
        })
        .collect();
    json!({
        "request": {
            "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "shop", "name": "web",
            "userInfo": {"username": "ann"},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"containers": [{"name": "c", "image": "web:1"}]}},
        },
        "calls": calls,
    })
}

fn add(path: &str, value: Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

#[test]
fn webhooks_that_set_the_same_field_collide_and_those_beside_each_other_do_not() {
    let both = webhook("a", "") + &webhook("b", "");
    let w029 = |first: Value, second: Value| {
        messages("W029", &both, &[pod(&[("a", first), ("b", second)])])
    };
    let label = |key: &str| add("/metadata/labels", json!({key: "1"}));
    // The second receives the labels of the first and adds its own.
    let beside = add("/metadata/labels/y", json!("1"));
    assert!(w029(label("x"), beside).is_empty());
    let sidecar = |name: &str| add("/spec/containers/-", json!({"name": name, "image": "i"}));
    assert!(w029(sidecar("x"), sidecar("y")).is_empty());
    let told = w029(label("x"), label("y"));
    assert_eq!(
        told,
        ["warning: overwrites `metadata.labels.x` set by `a.example.com` (CREATE pods shop/web)"]
    );
    // One replaces a list that the other appended to.
    let whole = json!([{"op": "replace", "path": "/spec/containers", "value": [{"name": "c", "image": "web:1"}]}]);
    assert_eq!(w029(sidecar("x"), whole).len(), 1);
    // A webhook may change its own field when it is reinvoked.
    let again = pod_in_rounds(&[
        ("a", 1, label("x")),
        ("b", 1, Value::Null),
        ("a", 2, add("/metadata/labels/x", json!("2"))),
    ]);
    assert!(messages("W029", &both, &[again]).is_empty());
}

#[test]
fn a_webhook_of_the_same_name_in_another_configuration_is_another() {
    let set = webhook("a", "");
    let mut line = pod(&[("a", add("/metadata/managedFields", json!([])))]);
    assert_eq!(messages("W031", &set, &[line.clone()]).len(), 1);
    line["calls"][0]["configuration"] = "other".into();
    assert!(messages("W031", &set, &[line.clone()]).is_empty());
    // Reviews do not contain the name of the calling configuration.
    line["calls"][0]["configuration"] = "".into();
    assert_eq!(messages("W031", &set, &[line]).len(), 1);
}

#[test]
fn patches_of_what_is_the_servers_are_told() {
    let set = webhook("a", "");
    for (patch, want) in [
        (add("", json!({})), Some("replace the whole object")),
        (
            add("/spec", json!({"containers": []})),
            Some("replace the whole `spec`"),
        ),
        (
            add("/metadata/uid", json!("u")),
            Some("change `metadata.uid`, which the server manages"),
        ),
        (
            add("/status/phase", json!("x")),
            Some("change `status`, which is dropped outside of the status subresource"),
        ),
        (
            add("/spec/containers/0", json!({"name": "first", "image": "i"})),
            None,
        ),
        (add("/metadata/labels", json!({"a": "b"})), None),
        (add("/spec/nodeName", json!("n")), None),
        (
            json!([{"op": "test", "path": "/metadata/uid", "value": "u"}]),
            None,
        ),
    ] {
        let told = messages("W031", &set, &[pod(&[("a", patch.clone())])]);
        let want = want
            .map(|want| format!("warning: 1 of 1 captured patches {want} (CREATE pods shop/web)"));
        assert_eq!(told, want.into_iter().collect::<Vec<_>>(), "{patch}");
    }
    // A field of a newer version, which a webhook with older types drops with the list around it.
    let mut line = pod(&[(
        "a",
        json!([{"op": "replace", "path": "/spec/containers/0", "value": {"name": "c", "image": "web:2"}}]),
    )]);
    line["request"]["object"]["spec"]["containers"][0]["brandNew"] = true.into();
    let told = messages("W031", &set, &[line]);
    assert!(
        told[0].contains("drop the unknown field `spec.containers[0].brandNew`"),
        "{told:?}"
    );
}

#[test]
fn mutations_that_are_invalid_are_told_with_the_servers_words() {
    let set = webhook("a", "");
    let w033 = |patch: Value| messages("W033", &set, &[pod(&[("a", patch)])]);
    let told = w033(add(
        "/spec/containers/-",
        json!({"name": "Not A Name", "image": "i"}),
    ));
    assert!(
        told[0].contains("1 of 1 captured calls left an invalid object"),
        "{told:?}"
    );
    assert!(told[0].contains("spec.containers[1].name"), "{told:?}");
    let told = w033(add("/spec/nodeName", json!(7)));
    assert!(told[0].contains("cannot unmarshal number"), "{told:?}");
    assert!(w033(add("/spec/nodeName", json!("n"))).is_empty());
}

#[test]
fn a_request_of_the_webhooks_own_account_is_told() {
    let set = webhook("a", "");
    let sent_by = |user: &str| {
        let mut line = pod(&[("a", Value::Null)]);
        line["request"]["userInfo"]["username"] = user.into();
        line
    };
    let own = sent_by("system:serviceaccount:hooks:server");
    let told = messages("W035", &set, std::slice::from_ref(&own));
    assert!(
        told[0].starts_with("note: was called for a request"),
        "{told:?}"
    );
    assert!(
        messages(
            "W035",
            &set,
            &[sent_by("system:serviceaccount:shop:server")]
        )
        .is_empty()
    );
    assert!(messages("W035", &set, &[sent_by("ann")]).is_empty());
    // Manifests contain the webhook's service account.
    let backend = |account: &str| {
        format!(
            "---
apiVersion: v1
kind: Service
metadata: {{name: a, namespace: hooks}}
spec: {{selector: {{app: a}}, ports: [{{port: 443}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: a, namespace: hooks}}
spec: {{template: {{metadata: {{labels: {{app: a}}}}, spec: {{serviceAccountName: {account}}}}}}}
"
        )
    };
    let told = messages(
        "W035",
        &(set.clone() + &backend("server")),
        std::slice::from_ref(&own),
    );
    assert!(told[0].starts_with("warning: "), "{told:?}");
    assert!(messages("W035", &(set + &backend("other")), &[own]).is_empty());
}

#[test]
fn a_webhook_that_always_makes_one_patch_could_be_a_policy() {
    let set = webhook("a", "");
    let one = pod(&[("a", add("/spec/nodeName", json!("n")))]);
    let other = pod(&[("a", add("/spec/nodeName", json!("m")))]);
    let told = messages("W038", &set, &vec![one.clone(); 20]);
    assert!(
        told[0].contains("20 of 20 captured calls returned the same patch of `/spec/nodeName`"),
        "{told:?}"
    );
    let mut varied = vec![one; 19];
    varied.push(other);
    assert!(messages("W038", &set, &varied).is_empty());
    assert!(messages("W038", &set, &vec![pod(&[("a", Value::Null)]); 20]).is_empty());
}

#[test]
fn a_webhook_that_changes_what_it_left_is_not_idempotent() {
    let set = webhook("a", "");
    let label = add("/metadata/labels", json!({"x": "1"}));
    let first = pod(&[("a", label)]);
    // The object as patched by the webhook is written again.
    let mut second = pod(&[("a", add("/metadata/labels/x", json!("2")))]);
    second["request"]["object"]["metadata"]["labels"] = json!({"x": "1"});
    second["request"]["object"]["metadata"]["resourceVersion"] = "7".into();
    let told = messages("W032", &set, &[first.clone(), second.clone()]);
    assert!(
        told[0].contains("it changes `metadata.labels.x` of its own result"),
        "{told:?}"
    );
    assert!(messages("W032", &set, &[second, first]).is_empty());
}

#[tokio::test]
async fn results_are_sent_once_more_where_webhooks_can_be_asked() {
    let text = webhook("a", "");
    let cluster =
        Cluster::from_manifests(manifest::read("m", &text).unwrap(), Validation::Strict).unwrap();
    let capture = read(&pod(&[("a", Value::Null)]).to_string());
    for (script, want) in [
        (
            Script {
                patch: Some(vec![
                    json!({"op": "add", "path": "/spec/containers/-", "value": {"name": "p", "image": "i"}}),
                ]),
                ..Script::default()
            },
            vec![
                "warning: is not idempotent: it changes `spec.containers` of its own result (CREATE pods shop/web)",
            ],
        ),
        (
            Script {
                merge: Some(json!({"metadata": {"labels": {"x": "1"}}})),
                ..Script::default()
            },
            vec![],
        ),
    ] {
        let mut hooks = Hooks::default();
        hooks.set("a.example.com", Hook::Scripted(Box::new(script)));
        let chain = Chain::new(&cluster, hooks);
        let again = sent_again(&capture.records[0], &chain, &cluster.kinds)
            .await
            .unwrap();
        assert!(again.again);
        let mut set = Set::default();
        set.add_text(&text).unwrap();
        set.add_exchange(again);
        let found = check(&set, &Options::default());
        let own = found.iter().filter(|finding| finding.rule.id == "W032");
        let told: Vec<String> = own
            .map(|it| format!("{}: {}", it.severity.name(), it.message))
            .collect();
        assert_eq!(told, want);
    }
}
