//! Node selection and tolerations.

use lockgate_plugins::lookup::{Memory, NAMESPACES};
use lockgate_plugins::{
    DefaultTolerationSeconds, LimitPodHardAntiAffinityTopology, PodNodeSelector,
    PodTolerationRestriction, config,
};
use serde_json::{Value, json};

use crate::kit::{Asked, forbidden, mutate, named, pod, pod_with, validate};

fn namespace(annotations: Value) -> Memory {
    let memory = Memory::new();
    memory.put(NAMESPACES, named("", "shop", annotations));
    memory
}

fn selector(text: &str) -> Value {
    json!({"scheduler.alpha.kubernetes.io/node-selector": text})
}

#[tokio::test]
async fn a_namespace_chooses_the_nodes_of_its_pods() {
    let config = "
podNodeSelectorPluginConfig:
  clusterDefaultNodeSelector: disk=hdd
";
    for (annotations, own, want) in [
        (json!({}), Value::Null, Ok(json!({"disk": "hdd"}))),
        (
            selector(" zone = a , disk= ssd"),
            Value::Null,
            Ok(json!({"disk": "ssd", "zone": "a"})),
        ),
        (selector(""), json!({"a": "b"}), Ok(json!({"a": "b"}))),
        (
            selector("zone=a"),
            json!({"zone": "a", "x": "y"}),
            Ok(json!({"zone": "a", "x": "y"})),
        ),
        (
            selector("zone=a"),
            json!({"zone": "b"}),
            Err(forbidden(
                "pod node label selector conflicts with its namespace node label selector",
            )),
        ),
        (
            selector("zone"),
            Value::Null,
            Err((500, String::from("invalid selector: [zone]"))),
        ),
        (
            selector("a=b=c"),
            Value::Null,
            Err((500, String::from("invalid selector: [a b c]"))),
        ),
    ] {
        let plugin = PodNodeSelector::new(config::read(config).unwrap(), namespace(annotations));
        let asked = Asked::create_pod(pod_with(json!({"nodeSelector": own})));
        let got = mutate(&plugin, &asked).await;
        assert_eq!(got.map(|pod| pod["spec"]["nodeSelector"].clone()), want);
    }
}

#[tokio::test]
async fn labels_that_are_not_for_a_namespace_are_refused() {
    let config = "podNodeSelectorPluginConfig: {shop: 'zone=a,disk=ssd'}";
    let plugin = PodNodeSelector::new(config::read(config).unwrap(), namespace(json!({})));
    let not_listed =
        forbidden("pod node label selector labels conflict with its namespace whitelist");
    for (own, want) in [
        (json!({"zone": "a"}), Ok(())),
        (json!({}), Ok(())),
        (json!({"zone": "b"}), Err(not_listed.clone())),
        (json!({"zone": "a", "gpu": "yes"}), Err(not_listed)),
    ] {
        let asked = Asked::create_pod(pod_with(json!({"nodeSelector": own})));
        assert_eq!(validate(&plugin, &asked).await, want);
        assert_eq!(mutate(&plugin, &asked).await.map(drop), want);
    }
    let plugin = PodNodeSelector::new(Default::default(), Memory::new());
    let missing = (404, String::from("namespaces \"shop\" not found"));
    assert_eq!(
        validate(&plugin, &Asked::create_pod(pod())).await,
        Err(missing)
    );
}

const PRESSURE: &str = "node.kubernetes.io/memory-pressure";

#[tokio::test]
async fn pods_get_the_tolerations_of_their_namespace() {
    let defaults = |text: &str| json!({"scheduler.alpha.kubernetes.io/defaultTolerations": text});
    let a = json!({"key": "a", "operator": "Exists"});
    let b = json!({"key": "b", "operator": "Equal", "value": "1", "effect": "NoExecute"});
    let cluster = json!({"default": [b]}).to_string();
    let requests = json!({"requests": {"cpu": "1m"}});
    let pressure = json!({"key": PRESSURE, "operator": "Exists", "effect": "NoSchedule"});
    for (annotations, own, resources, want) in [
        (json!({}), json!([]), json!({}), json!([b])),
        (json!({}), json!([a]), json!({}), json!([a, b])),
        (defaults(""), json!([a]), json!({}), json!([a])),
        (defaults(&json!([a]).to_string()), json!([b]), json!({}), json!([b, a])),
        (defaults(""), json!([]), requests.clone(), json!([pressure])),
        // A toleration without a key covers all others.
        (
            defaults(&json!([a]).to_string()),
            json!([b, {"operator": "Exists"}]),
            requests.clone(),
            json!([{"operator": "Exists"}]),
        ),
        // A longer tolerationSeconds covers a shorter one.
        (
            defaults(&json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]).to_string()),
            json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]),
            json!({}),
            json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]),
        ),
        (defaults(""), json!([a]), json!({"requests": {"cpu": "0"}}), json!([a])),
    ] {
        let config = config::read(&cluster).unwrap();
        let plugin = PodTolerationRestriction::new(config, namespace(annotations));
        let mut pod = pod_with(json!({"tolerations": own}));
        pod["spec"]["containers"][0]["resources"] = resources;
        let got = mutate(&plugin, &Asked::create_pod(pod)).await.unwrap();
        assert_eq!(got["spec"]["tolerations"], want);
    }
    // An update of a Pod adds only the tolerations that follow from its QoS class.
    let config = config::read(&cluster).unwrap();
    let plugin = PodTolerationRestriction::new(config, namespace(json!({})));
    let best_effort = Asked::update_pod(pod(), pod());
    assert_eq!(mutate(&plugin, &best_effort).await.unwrap(), pod());
    let mut guaranteed = pod();
    guaranteed["status"] = json!({"qosClass": "Guaranteed"});
    let asked = Asked::update_pod(pod(), guaranteed);
    let got = mutate(&plugin, &asked).await.unwrap();
    assert_eq!(got["spec"]["tolerations"], json!([pressure]));
}

#[tokio::test]
async fn tolerations_that_are_not_listed_are_refused() {
    let listed = |text: &str| json!({"scheduler.alpha.kubernetes.io/tolerationsWhitelist": text});
    let cluster = json!({"whitelist": [{"key": "c", "operator": "Exists"}]}).to_string();
    let refused = |scope: &str| {
        let message = format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its \
             {scope} whitelist"
        );
        // Upstream's error has no status.
        Err((500, message))
    };
    let a = json!([{"key": "a", "operator": "Exists"}]);
    for (annotations, own, want) in [
        (json!({}), json!([]), Ok(())),
        (json!({}), a.clone(), refused("cluster")),
        (
            json!({}),
            json!([{"key": "c", "operator": "Equal", "value": "x"}]),
            Ok(()),
        ),
        (listed(""), a.clone(), Ok(())),
        (listed(&a.to_string()), a.clone(), Ok(())),
        (
            listed(&a.to_string()),
            json!([{"key": "c"}]),
            refused("namespace"),
        ),
        (
            listed("[{"),
            a.clone(),
            Err((500, String::from("unexpected end of JSON input"))),
        ),
    ] {
        let config = config::read(&cluster).unwrap();
        let plugin = PodTolerationRestriction::new(config, namespace(annotations));
        let pod = pod_with(json!({"tolerations": own}));
        for asked in [
            Asked::create_pod(pod.clone()),
            Asked::update_pod(pod.clone(), pod),
        ] {
            assert_eq!(validate(&plugin, &asked).await, want);
            assert_eq!(mutate(&plugin, &asked).await.map(drop), want);
        }
    }
}

#[tokio::test]
async fn pods_tolerate_nodes_that_are_away() {
    let plugin = DefaultTolerationSeconds {
        not_ready_seconds: 1,
        unreachable_seconds: 2,
    };
    let got = mutate(&plugin, &Asked::create_pod(pod())).await.unwrap();
    let toleration = |key: &str, seconds: i64| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let want = json!([
        toleration("node.kubernetes.io/not-ready", 1),
        toleration("node.kubernetes.io/unreachable", 2),
    ]);
    assert_eq!(got["spec"]["tolerations"], want);
    assert_eq!(got["unknown"], pod()["unknown"]);
    let all = pod_with(json!({"tolerations": [{"operator": "Exists"}]}));
    assert_eq!(
        mutate(&plugin, &Asked::create_pod(all.clone()))
            .await
            .unwrap(),
        all
    );
}

#[tokio::test]
async fn pods_do_not_keep_others_off_a_zone() {
    let plugin = LimitPodHardAntiAffinityTopology;
    let with = |key: &str| {
        pod_with(json!({"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname"},
                {"topologyKey": key},
            ],
        }}}))
    };
    assert_eq!(validate(&plugin, &Asked::create_pod(pod())).await, Ok(()));
    let host = Asked::create_pod(with("kubernetes.io/hostname"));
    assert_eq!(validate(&plugin, &host).await, Ok(()));
    let refused = forbidden(
        "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key \
         kubernetes.io/hostname is allowed",
    );
    let zone = Asked::update_pod(pod(), with("zone"));
    assert_eq!(validate(&plugin, &zone).await, Err(refused));
}
