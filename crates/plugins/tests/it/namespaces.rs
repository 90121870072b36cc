//! Immortal namespaces, and Pods that cannot be exec'd into.

use lockgate_plugins::lookup::{Memory, PODS};
use lockgate_plugins::{DenyEscalatingExec, NamespaceProtection, ReadyMade, config, served};
use serde_json::{Value, json};

use crate::kit::{Asked, forbidden, pod_with, validate};

#[tokio::test]
async fn some_namespaces_stay() {
    let delete = |name: &str| Asked {
        name: name.to_owned(),
        old: json!({"metadata": {"name": name}}),
        ..Asked::new("DELETE", "namespaces", "Namespace")
    };
    let refused = Err(forbidden("this namespace may not be deleted"));
    let plugin = NamespaceProtection::default();
    for name in ["default", "kube-system", "kube-public"] {
        assert_eq!(validate(&plugin, &delete(name)).await, refused);
    }
    assert_eq!(validate(&plugin, &delete("shop")).await, Ok(()));
    let plugin = NamespaceProtection::new(config::read("namespaces: [shop]").unwrap());
    assert_eq!(validate(&plugin, &delete("shop")).await, refused);
    assert_eq!(validate(&plugin, &delete("default")).await, Ok(()));
    // It is also called for the namespaces that other plugins exempt.
    let webhooks = served(&[&plugin], &["kube-system"]);
    let webhook = webhooks.at("/namespace-protection/validate").unwrap();
    let selector = webhook.registration().webhook.namespace_selector.as_ref();
    assert!(selector.unwrap().is_empty());
}

#[tokio::test]
async fn nobody_enters_a_pod_that_is_close_to_its_node() {
    let connect = |sub_resource| {
        let kind = match sub_resource {
            "exec" => "PodExecOptions",
            _ => "PodAttachOptions",
        };
        let options = json!({"apiVersion": "v1", "kind": kind, "stdin": true});
        Asked::new("CONNECT", "pods", kind)
            .object(options)
            .sub_resource(sub_resource)
    };
    let privileged = json!([{"name": "c", "securityContext": {"privileged": true}}]);
    let on_node =
        |what: &str| format!("cannot exec into or attach to a container using host {what}");
    let deep = String::from("cannot exec into or attach to a privileged container");
    for (spec, escalating, on_privileged) in [
        (json!({}), None, None),
        (json!({"hostNetwork": true}), Some(on_node("network")), None),
        (
            json!({"hostPID": true, "hostIPC": true}),
            Some(on_node("pid")),
            None,
        ),
        (json!({"hostIPC": true}), Some(on_node("ipc")), None),
        (
            json!({"containers": privileged}),
            Some(deep.clone()),
            Some(deep.clone()),
        ),
        (
            json!({"initContainers": privileged}),
            Some(deep.clone()),
            Some(deep.clone()),
        ),
        (
            json!({"ephemeralContainers": privileged}),
            Some(deep.clone()),
            Some(deep),
        ),
    ] {
        let memory = Memory::new();
        memory.put(PODS, pod_with(spec));
        let answer = |want: Option<String>| want.map_or(Ok(()), |text| Err(forbidden(&text)));
        for sub_resource in ["exec", "attach"] {
            let asked = connect(sub_resource);
            let plugin = DenyEscalatingExec::new(memory.clone());
            assert_eq!(validate(&plugin, &asked).await, answer(escalating.clone()));
            let plugin = DenyEscalatingExec::on_privileged(memory.clone());
            assert_eq!(
                validate(&plugin, &asked).await,
                answer(on_privileged.clone())
            );
        }
    }
    let plugin = DenyEscalatingExec::new(Memory::new());
    let missing = forbidden("pods \"x\" not found");
    assert_eq!(validate(&plugin, &connect("exec")).await, Err(missing));
}

#[test]
fn every_plugin_has_a_name_and_paths_of_its_own() {
    let memory = Memory::new;
    let exec = DenyEscalatingExec::new(memory());
    let privileged = DenyEscalatingExec::on_privileged(memory());
    let limits = lockgate_plugins::LimitRanger::new(memory());
    let accounts = lockgate_plugins::ServiceAccount::new(memory());
    let all: [&dyn ReadyMade; 5] = [
        &exec,
        &privileged,
        &limits,
        &accounts,
        &lockgate_plugins::AlwaysPullImages,
    ];
    // A duplicate path would panic.
    let webhooks = served(&all, &["kube-system"]);
    assert_eq!(webhooks.iter().count(), 8);
    for webhook in webhooks.iter() {
        let registered = &webhook.registration().webhook;
        assert!(registered.name.ends_with(".plugins.lockgate.io"));
        let selector = registered.namespace_selector.as_ref().unwrap();
        let expressions = selector.match_expressions.as_ref().unwrap();
        let values: Vec<Value> = expressions.iter().map(|one| json!(one.values)).collect();
        assert_eq!(values, [json!(["kube-system"])]);
    }
}
