//! Injected parts of Pods.

use lockgate_plugins::{SidecarInjector, config};
use serde_json::{Value, json};

use crate::kit::{Asked, mutate, pod, pod_with};

const STATUS: &str = "sidecar.plugins.lockgate.io/status";
const INJECT: &str = "sidecar.plugins.lockgate.io/inject";

fn injector(text: &str) -> SidecarInjector {
    SidecarInjector::new(config::read(text).unwrap()).unwrap()
}

const PROXY: &str = "
neverInjectSelector:
- matchLabels: {app: db}
alwaysInjectSelector:
- matchLabels: {app: web}
templates:
- name: proxy
  pod:
    metadata:
      labels: {mesh: 'yes'}
    spec:
      containers:
      - {name: proxy, image: 'proxy:2', args: [run], resources: {limits: {cpu: 1}}}
      volumes:
      - {name: proxy-config, emptyDir: {}}
";

fn names(pod: &Value, list: &str) -> Vec<String> {
    let list = pod["spec"][list].as_array().cloned().unwrap_or_default();
    list.iter()
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_template_is_added_once() {
    let plugin = injector(PROXY);
    let got = mutate(&plugin, &Asked::create_pod(pod())).await.unwrap();
    assert_eq!(names(&got, "containers"), ["app", "proxy"]);
    assert_eq!(got["metadata"]["labels"], json!({"mesh": "yes"}));
    assert_eq!(got["unknown"], pod()["unknown"]);
    let status: Value =
        serde_json::from_str(got["metadata"]["annotations"][STATUS].as_str().unwrap()).unwrap();
    assert_eq!(
        status,
        json!({
            "templates": ["proxy"],
            "containers": ["proxy"],
            "initContainers": [],
            "volumes": ["proxy-config"],
            "imagePullSecrets": [],
            "labels": ["mesh"],
            "annotations": [],
        })
    );
    // Another version of the template replaces the previous one.
    let other = injector(
        &PROXY
            .replace("proxy:2", "proxy:3")
            .replace("proxy-config", "config"),
    );
    let got = mutate(&other, &Asked::create_pod(got)).await.unwrap();
    assert_eq!(names(&got, "containers"), ["app", "proxy"]);
    assert_eq!(got["spec"]["containers"][1]["image"], "proxy:3");
    assert_eq!(names(&got, "volumes"), ["config"]);
    // A configuration without templates removes the injected parts.
    let none = injector("policy: enabled");
    let got = mutate(&none, &Asked::create_pod(got)).await.unwrap();
    assert_eq!(names(&got, "containers"), ["app"]);
    assert_eq!(got["metadata"]["annotations"], json!({}));
    assert_eq!(got["metadata"]["labels"], json!({}));
}

#[tokio::test]
async fn the_pod_wins_over_the_template() {
    let plugin = injector(PROXY);
    let own = json!({"name": "proxy", "image": "auto", "resources": {"limits": {"cpu": 2}}, "env": [{"name": "A", "value": "1"}]});
    let pod = pod_with(json!({"containers": [own, {"name": "app", "image": "app:1"}]}));
    let got = mutate(&plugin, &Asked::create_pod(pod)).await.unwrap();
    assert_eq!(names(&got, "containers"), ["proxy", "app"]);
    assert_eq!(
        got["spec"]["containers"][0],
        json!({
            "name": "proxy",
            "image": "proxy:2",
            "args": ["run"],
            "resources": {"limits": {"cpu": 2}},
            "env": [{"name": "A", "value": "1"}],
        })
    );
}

#[tokio::test]
async fn containers_stand_where_the_template_says() {
    let plugin = injector(
        "
templates:
- name: first
  order: first
  pod: {spec: {containers: [{name: f, image: f}], initContainers: [{name: i, image: i, restartPolicy: Always}]}}
- name: last
  pod: {spec: {containers: [{name: l, image: l}], initContainers: [{name: j, image: j}]}}
",
    );
    let pod = pod_with(json!({"initContainers": [{"name": "own", "image": "o"}]}));
    let got = mutate(&plugin, &Asked::create_pod(pod)).await.unwrap();
    assert_eq!(names(&got, "containers"), ["f", "app", "l"]);
    assert_eq!(names(&got, "initContainers"), ["i", "own", "j"]);
}

#[tokio::test]
async fn pods_are_chosen_by_what_they_say_and_by_their_labels() {
    let label = |key: &str, value: &str| json!({"labels": {key: value}});
    for (policy, metadata, spec, want) in [
        ("enabled", json!({}), json!({}), true),
        ("disabled", json!({}), json!({}), false),
        ("disabled", label("app", "web"), json!({}), true),
        ("enabled", label("app", "db"), json!({}), false),
        (
            "enabled",
            json!({"labels": {"app": "db", INJECT: "Yes"}}),
            json!({}),
            true,
        ),
        ("enabled", label(INJECT, "no"), json!({}), false),
        (
            "disabled",
            json!({"annotations": {INJECT: "on"}}),
            json!({}),
            true,
        ),
        (
            "disabled",
            json!({"annotations": {INJECT: "on"}, "labels": {INJECT: "off"}}),
            json!({}),
            false,
        ),
        (
            "enabled",
            label(INJECT, "true"),
            json!({"hostNetwork": true}),
            false,
        ),
        (
            "enabled",
            json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
            json!({}),
            false,
        ),
    ] {
        let plugin = injector(&format!("policy: {policy}{PROXY}"));
        let mut pod = pod_with(spec);
        pod["metadata"] = metadata;
        let got = mutate(&plugin, &Asked::create_pod(pod.clone()))
            .await
            .unwrap();
        assert_eq!(got != pod, want, "{pod}");
    }
    let plugin = injector(PROXY);
    let system = Asked {
        namespace: "kube-system",
        ..Asked::create_pod(pod())
    };
    assert_eq!(mutate(&plugin, &system).await, Ok(pod()));
    // A template has its own selector.
    let plugin = injector(
        "
templates:
- {name: a, selector: {matchLabels: {a: b}}, pod: {spec: {containers: [{name: s, image: s}]}}}
",
    );
    assert_eq!(mutate(&plugin, &Asked::create_pod(pod())).await, Ok(pod()));
}

#[tokio::test]
async fn pods_give_no_orders_to_the_merge() {
    let plugin = injector(PROXY);
    let mut evil = pod();
    evil["metadata"]["annotations"] = json!({"$patch": "replace"});
    let refused = (400, String::from("a pod may not have a member `$patch`"));
    assert_eq!(
        mutate(&plugin, &Asked::create_pod(evil)).await,
        Err(refused)
    );
}

#[test]
fn templates_that_make_no_sense_are_refused() {
    for wrong in [
        "templates: [{name: a, pod: text}]",
        "templates: [{name: a, pod: {}, selector: {matchExpressions: [{key: a, operator: Like}]}}]",
        "neverInjectSelector: [{matchLabels: {'a b': c}}]",
    ] {
        let config = config::read(wrong).unwrap();
        assert!(SidecarInjector::new(config).is_err(), "{wrong}");
    }
}
