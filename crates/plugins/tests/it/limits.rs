//! Resource requests and limits of Pods and claims.

use lockgate_plugins::cluster_resource_override::Configuration;
use lockgate_plugins::lookup::{LIMIT_RANGES, Memory, NAMESPACES};
use lockgate_plugins::{ClusterResourceOverride, LimitRanger, RunOnceDuration, config};
use serde_json::{Value, json};

use crate::kit::{Asked, forbidden, mutate, named, pod, pod_with, validate};

fn ranges(limits: Value) -> Memory {
    let memory = Memory::new();
    memory.put(
        LIMIT_RANGES,
        json!({"metadata": {"name": "limits", "namespace": "shop"}, "spec": {"limits": limits}}),
    );
    memory.put(NAMESPACES, named("", "shop", json!({})));
    memory
}

fn resources(requests: Value, limits: Value) -> Value {
    json!({"requests": requests, "limits": limits})
}

fn container(name: &str, resources: Value) -> Value {
    json!({"name": name, "image": "i", "resources": resources})
}

#[tokio::test]
async fn containers_get_what_they_do_not_say() {
    let limits = json!([
        {"type": "Container", "default": {"cpu": "100m", "memory": "1Gi"}, "defaultRequest": {"cpu": "50m"}},
        {"type": "Pod", "max": {"cpu": "2"}},
        {"type": "Container", "default": {"memory": "2Gi"}},
    ]);
    let plugin = LimitRanger::new(ranges(limits));
    let pod = pod_with(json!({
        "containers": [
            container("a", json!({})),
            container("b", resources(json!({"cpu": "1m"}), json!({"cpu": "2m"}))),
        ],
        "initContainers": [container("c", resources(json!({"cpu": "1"}), json!({"cpu": "1", "memory": "1"})))],
    }));
    let got = mutate(&plugin, &Asked::create_pod(pod.clone()))
        .await
        .unwrap();
    let mut want = pod.clone();
    want["spec"]["containers"][0]["resources"] = resources(
        json!({"cpu": "50m"}),
        json!({"cpu": "100m", "memory": "2Gi"}),
    );
    want["spec"]["containers"][1]["resources"]["limits"]["memory"] = json!("2Gi");
    want["metadata"]["annotations"] = json!({"kubernetes.io/limit-ranger":
        "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; \
         memory limit for container b"});
    assert_eq!(got, want);
    // Containers of an existing Pod only change on resize.
    let update = Asked::update_pod(pod.clone(), pod.clone());
    assert_eq!(mutate(&plugin, &update).await.unwrap(), pod);
    let resize = update.sub_resource("resize");
    assert_ne!(mutate(&plugin, &resize).await.unwrap(), pod);
    let mut going = pod.clone();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let resize = resize.old(going);
    assert_eq!(mutate(&plugin, &resize).await.unwrap(), pod);
}

#[tokio::test]
async fn init_containers_are_named_as_such() {
    let limits = json!([{"type": "Container", "default": {"cpu": "1", "memory": "1"}, "defaultRequest": {"cpu": "1", "memory": "1"}}]);
    let plugin = LimitRanger::new(ranges(limits));
    let pod = pod_with(json!({"containers": [], "initContainers": [container("c", json!({}))]}));
    let got = mutate(&plugin, &Asked::create_pod(pod)).await.unwrap();
    assert_eq!(
        got["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for init container c; cpu, memory limit for init \
         container c"
    );
}

#[tokio::test]
async fn containers_keep_within_their_limits() {
    let cpu = |amount: &str| json!({"cpu": amount});
    let none = json!({});
    for (limit, requests, limits, want) in [
        (
            json!({"min": cpu("100m")}),
            cpu("50m"),
            none.clone(),
            Some("minimum cpu usage per Container is 100m, but request is 50m"),
        ),
        (
            json!({"min": cpu("100m")}),
            none.clone(),
            cpu("1"),
            Some("minimum cpu usage per Container is 100m.  No request is specified"),
        ),
        (
            json!({"min": cpu("100m")}),
            cpu("0.1"),
            cpu("50m"),
            Some("minimum cpu usage per Container is 100m, but limit is 50m"),
        ),
        (json!({"min": cpu("100m")}), cpu("0.1"), none.clone(), None),
        (
            json!({"max": cpu("1")}),
            cpu("1"),
            none.clone(),
            Some("maximum cpu usage per Container is 1.  No limit is specified"),
        ),
        (
            json!({"max": cpu("1")}),
            none.clone(),
            cpu("1001m"),
            Some("maximum cpu usage per Container is 1, but limit is 1001m"),
        ),
        (
            json!({"max": cpu("1")}),
            cpu("2"),
            cpu("1"),
            Some("maximum cpu usage per Container is 1, but request is 2"),
        ),
        (json!({"max": cpu("1")}), cpu("1000m"), cpu("1"), None),
        (
            json!({"maxLimitRequestRatio": cpu("2")}),
            cpu("100m"),
            cpu("300m"),
            Some(
                "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
            ),
        ),
        (
            json!({"maxLimitRequestRatio": cpu("1500m")}),
            cpu("2"),
            cpu("3"),
            None,
        ),
        (
            json!({"maxLimitRequestRatio": cpu("2")}),
            none.clone(),
            cpu("1"),
            Some(
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
        ),
        (
            json!({"maxLimitRequestRatio": cpu("2")}),
            cpu("0"),
            cpu("1"),
            Some(
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
        ),
        (
            json!({"maxLimitRequestRatio": cpu("2")}),
            cpu("1"),
            none.clone(),
            Some(
                "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
            ),
        ),
        (
            json!({"min": {"cpu": "1", "memory": "1Gi"}}),
            none.clone(),
            none,
            Some(
                "[minimum cpu usage per Container is 1.  No request is specified, minimum memory usage per Container is 1Gi.  No request is specified]",
            ),
        ),
        (
            json!({"max": {"memory": "16Pi"}}),
            json!({}),
            json!({"memory": "17Pi"}),
            Some("maximum memory usage per Container is 16Pi, but limit is 17Pi"),
        ),
    ] {
        let mut limit = limit;
        limit["type"] = json!("Container");
        let plugin = LimitRanger::new(ranges(json!([limit])));
        let resources = resources(requests, limits);
        for list in ["containers", "initContainers"] {
            let mut pod = pod_with(json!({"containers": []}));
            pod["spec"][list] = json!([container("a", resources.clone())]);
            let got = validate(&plugin, &Asked::create_pod(pod)).await;
            assert_eq!(got, want.map_or(Ok(()), |text| Err(forbidden(text))));
        }
    }
}

#[tokio::test]
async fn what_a_pod_needs_is_what_runs_at_once() {
    let plugin = LimitRanger::new(ranges(json!([{"type": "Pod", "max": {"cpu": "4"}}])));
    let cpu =
        |name: &str, amount: &str| container(name, resources(json!({}), json!({"cpu": amount})));
    let sidecar = |name: &str, amount: &str| {
        let mut sidecar = cpu(name, amount);
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    };
    let over = |amount: &str| {
        let text = format!("maximum cpu usage per Pod is 4, but limit is {amount}");
        Err(forbidden(&text))
    };
    for (containers, init, whole, want) in [
        (
            json!([cpu("a", "2"), cpu("b", "2")]),
            json!([]),
            Value::Null,
            Ok(()),
        ),
        (
            json!([cpu("a", "2"), cpu("b", "2100m")]),
            json!([]),
            Value::Null,
            over("4100m"),
        ),
        (
            json!([cpu("a", "1")]),
            json!([cpu("i", "4"), cpu("j", "4")]),
            Value::Null,
            Ok(()),
        ),
        (
            json!([cpu("a", "1")]),
            json!([cpu("i", "5")]),
            Value::Null,
            over("5"),
        ),
        (
            json!([cpu("a", "2")]),
            json!([sidecar("s", "3")]),
            Value::Null,
            over("5"),
        ),
        (
            json!([cpu("a", "1")]),
            json!([sidecar("s", "2"), cpu("i", "3")]),
            Value::Null,
            over("5"),
        ),
        (
            json!([cpu("a", "1")]),
            json!([cpu("i", "3"), sidecar("s", "2")]),
            Value::Null,
            Ok(()),
        ),
        (
            json!([cpu("a", "9")]),
            json!([]),
            json!({"limits": {"cpu": "3"}}),
            Ok(()),
        ),
        (
            json!([cpu("a", "1")]),
            json!([]),
            json!({"limits": {"cpu": "5"}}),
            over("5"),
        ),
    ] {
        let pod =
            pod_with(json!({"containers": containers, "initContainers": init, "resources": whole}));
        assert_eq!(validate(&plugin, &Asked::create_pod(pod)).await, want);
    }
}

#[tokio::test]
async fn claims_keep_within_their_limits() {
    let limits = json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}}]);
    let plugin = LimitRanger::new(ranges(limits));
    for (requests, want) in [
        (json!({"storage": "3Gi"}), None),
        (
            json!({"storage": "1Mi"}),
            Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
        ),
        (
            json!({"storage": "6Gi"}),
            Some("maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi"),
        ),
        (
            json!({}),
            Some(
                "[minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, maximum storage usage per PersistentVolumeClaim is 5Gi.  No request is specified]",
            ),
        ),
    ] {
        let claim = json!({"spec": {"resources": {"requests": requests}}});
        let want = want.map_or(Ok(()), |text| Err(forbidden(text)));
        let create = Asked::new("CREATE", "persistentvolumeclaims", "PersistentVolumeClaim");
        assert_eq!(validate(&plugin, &create.object(claim.clone())).await, want);
        let update = Asked::new("UPDATE", "persistentvolumeclaims", "PersistentVolumeClaim");
        let update = update.object(claim.clone()).old(claim);
        assert_eq!(validate(&plugin, &update).await, want);
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(validate(&plugin, &update.old(going)).await, Ok(()));
    }
}

#[tokio::test]
async fn amounts_that_are_none_are_refused() {
    let plugin = LimitRanger::new(ranges(json!([{"type": "Container", "max": {"cpu": "1"}}])));
    let bad = container("a", resources(json!({}), json!({"cpu": "lots"})));
    let asked = Asked::create_pod(pod_with(json!({"containers": [bad]})));
    assert_eq!(validate(&plugin, &asked).await.unwrap_err().0, 400);
}

#[tokio::test]
async fn requests_follow_from_limits_of_memory() {
    let config: Configuration = config::read(
        "{limitCPUToMemoryPercent: 200, cpuRequestToLimitPercent: 25, memoryRequestToLimitPercent: 50}",
    )
    .unwrap();
    for (limits, want) in [
        (
            json!({"memory": "1Gi"}),
            resources(
                json!({"cpu": "500m", "memory": "512Mi"}),
                json!({"cpu": "2", "memory": "1Gi"}),
            ),
        ),
        (
            json!({"memory": "3G"}),
            resources(
                json!({"cpu": "1396m", "memory": "1500M"}),
                json!({"cpu": "5587m", "memory": "3G"}),
            ),
        ),
        (
            json!({"memory": "1Mi"}),
            resources(
                json!({"cpu": "1m", "memory": "1Mi"}),
                json!({"cpu": "1m", "memory": "1Mi"}),
            ),
        ),
        (
            json!({"cpu": "1"}),
            resources(json!({"cpu": "250m"}), json!({"cpu": "1"})),
        ),
    ] {
        let plugin = ClusterResourceOverride::new(config, ranges(json!([]))).unwrap();
        let asked = Asked::create_pod(pod_with(
            json!({"containers": [container("a", json!({"limits": limits}))]}),
        ));
        let got = mutate(&plugin, &asked).await.unwrap();
        assert_eq!(got["spec"]["containers"][0]["resources"], want);
    }
    // Defaults of a LimitRange are taken into account.
    let defaults = json!([{"type": "Container", "default": {"memory": "2Gi"}}]);
    let memory = ranges(defaults);
    let plugin = ClusterResourceOverride::new(config, memory.clone()).unwrap();
    let got = mutate(&plugin, &Asked::create_pod(pod())).await.unwrap();
    assert_eq!(
        got["spec"]["containers"][0]["resources"]["requests"]["memory"],
        "1Gi"
    );
    // A namespace may opt out.
    let off = json!({"quota.openshift.io/cluster-resource-override-enabled": "false"});
    memory.put(NAMESPACES, named("", "shop", off));
    assert_eq!(
        mutate(&plugin, &Asked::create_pod(pod())).await.unwrap(),
        pod()
    );
    for wrong in [
        "{}",
        "{cpuRequestToLimitPercent: 101}",
        "{limitCPUToMemoryPercent: -1}",
    ] {
        let config = config::read(wrong).unwrap();
        assert!(ClusterResourceOverride::new(config, Memory::new()).is_err());
    }
}

#[tokio::test]
async fn pods_that_run_once_come_to_an_end() {
    let key = "openshift.io/active-deadline-seconds-override";
    for (annotations, policy, own, want) in [
        (json!({}), "Never", Value::Null, json!(60)),
        (json!({}), "OnFailure", json!(90), json!(60)),
        (json!({}), "Never", json!(30), json!(30)),
        (json!({}), "Always", Value::Null, Value::Null),
        (json!({key: "7"}), "Never", Value::Null, json!(7)),
        (json!({key: "700"}), "Never", json!(90), json!(90)),
    ] {
        let memory = Memory::new();
        memory.put(NAMESPACES, named("", "shop", annotations));
        let config = config::read("activeDeadlineSecondsLimit: 60").unwrap();
        let plugin = RunOnceDuration::new(config, memory);
        let spec = json!({"restartPolicy": policy, "activeDeadlineSeconds": own});
        let got = mutate(&plugin, &Asked::create_pod(pod_with(spec)))
            .await
            .unwrap();
        assert_eq!(got["spec"]["activeDeadlineSeconds"], want);
    }
}
