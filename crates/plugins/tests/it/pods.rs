//! Service accounts and presets of Pods.

use lockgate_plugins::lookup::{Memory, POD_PRESETS, SERVICE_ACCOUNTS};
use lockgate_plugins::{PodPreset, ServiceAccount};
use serde_json::{Value, json};

use crate::kit::{Asked, forbidden, mutate, mutate_with_warnings, named, pod, pod_with, validate};

const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn accounts(account: Value) -> Memory {
    let memory = Memory::new();
    let mut all = named("shop", "default", json!({}));
    for (name, value) in account.as_object().unwrap() {
        all[name] = value.clone();
    }
    memory.put(SERVICE_ACCOUNTS, all);
    memory
}

#[tokio::test]
async fn pods_run_as_an_account_with_its_token() {
    let plugin = ServiceAccount::new(accounts(json!({"imagePullSecrets": [{"name": "pull"}]})));
    let pod = pod_with(json!({
        "containers": [
            {"name": "a"},
            {"name": "b", "volumeMounts": [{"name": "own", "mountPath": MOUNT}]},
        ],
        "initContainers": [{"name": "c"}],
    }));
    let got = mutate(&plugin, &Asked::create_pod(pod)).await.unwrap();
    let spec = &got["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["serviceAccount"], "default");
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    let volume = spec["volumes"][0]["name"].as_str().unwrap();
    let letters = volume.strip_prefix("kube-api-access-").unwrap();
    assert_eq!(letters.len(), 5);
    let mount = json!([{"name": volume, "readOnly": true, "mountPath": MOUNT}]);
    assert_eq!(spec["containers"][0]["volumeMounts"], mount);
    assert_eq!(
        spec["containers"][1]["volumeMounts"],
        json!([{"name": "own", "mountPath": MOUNT}])
    );
    assert_eq!(spec["initContainers"][0]["volumeMounts"], mount);
    assert_eq!(
        spec["volumes"],
        json!([{"name": volume, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}])
    );
    assert_eq!(validate(&plugin, &Asked::create_pod(got)).await, Ok(()));
}

#[tokio::test]
async fn the_pod_and_then_the_account_say_whether_a_token_is_mounted() {
    for (of_pod, of_account, want) in [
        (json!(true), json!(false), true),
        (json!(false), json!(true), false),
        (Value::Null, json!(false), false),
        (Value::Null, Value::Null, true),
    ] {
        let plugin = ServiceAccount::new(accounts(
            json!({"automountServiceAccountToken": of_account}),
        ));
        let pod = pod_with(json!({"automountServiceAccountToken": of_pod}));
        let got = mutate(&plugin, &Asked::create_pod(pod)).await.unwrap();
        assert_eq!(got["spec"].get("volumes").is_some(), want);
    }
    let plugin = ServiceAccount::new(accounts(json!({}))).without_tokens();
    let got = mutate(&plugin, &Asked::create_pod(pod())).await.unwrap();
    assert!(got["spec"].get("volumes").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_not_there_is_refused() {
    let plugin = ServiceAccount::new(Memory::new());
    for (name, tries) in [("default", 10), ("robot", 1)] {
        let start = tokio::time::Instant::now();
        let asked = Asked::create_pod(pod_with(json!({"serviceAccountName": name})));
        let refused = forbidden(&format!(
            "error looking up service account shop/{name}: serviceaccount \"{name}\" not found"
        ));
        assert_eq!(validate(&plugin, &asked).await, Err(refused.clone()));
        let waited = start.elapsed().as_millis();
        assert!(
            (150 * (tries - 1)..=152 * (tries - 1)).contains(&waited),
            "{waited}"
        );
        assert_eq!(mutate(&plugin, &asked).await, Err(refused));
    }
    let nobody = forbidden("no service account specified for pod shop/x");
    assert_eq!(
        validate(&plugin, &Asked::create_pod(pod())).await,
        Err(nobody)
    );
}

#[tokio::test]
async fn an_account_may_insist_on_its_secrets() {
    let strict = || {
        accounts(json!({
            "metadata": {"name": "default", "namespace": "shop", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
            "secrets": [{"name": "known"}],
            "imagePullSecrets": [{"name": "pull"}],
        }))
    };
    let env = |secret: &str| json!([{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": secret}}}]}]);
    let from = |secret: &str| json!([{"name": "c", "envFrom": [{"secretRef": {"name": secret}}]}]);
    let unlisted = |what: &str| {
        format!(
            "{what} is not allowed because service account default does not reference that secret"
        )
    };
    let named = "referencing secret.secretName=\"other\"";
    for (spec, want) in [
        (
            json!({"volumes": [{"secret": {"secretName": "known"}}], "containers": env("known")}),
            None,
        ),
        (json!({"imagePullSecrets": [{"name": "pull"}]}), None),
        (
            json!({"volumes": [{"secret": {"secretName": "other"}}]}),
            Some(unlisted("volume with secret.secretName=\"other\"")),
        ),
        (
            json!({"containers": env("other")}),
            Some(unlisted(&format!("container c with envVar E {named}"))),
        ),
        (
            json!({"initContainers": env("other")}),
            Some(unlisted(&format!("init container c with envVar E {named}"))),
        ),
        (
            json!({"containers": from("other")}),
            Some(unlisted(&format!("container c with envFrom {named}"))),
        ),
        (
            json!({"initContainers": from("other")}),
            Some(unlisted(&format!("init container c with envFrom {named}"))),
        ),
        (
            json!({"imagePullSecrets": [{"name": "pull"}, {"name": "other"}]}),
            Some(String::from(
                "imagePullSecrets[1].name=\"other\" is not allowed because service account default does not reference that imagePullSecret",
            )),
        ),
    ] {
        let mut pod = pod_with(spec);
        pod["spec"]["serviceAccountName"] = json!("default");
        let asked = Asked::create_pod(pod.clone());
        let want = want.map_or(Ok(()), |text| Err(forbidden(&text)));
        assert_eq!(validate(&ServiceAccount::new(strict()), &asked).await, want);
        let lax = accounts(
            json!({"secrets": [{"name": "known"}], "imagePullSecrets": [{"name": "pull"}]}),
        );
        assert_eq!(
            validate(&ServiceAccount::new(lax.clone()), &asked).await,
            Ok(())
        );
        assert_eq!(
            validate(&ServiceAccount::new(lax).limit_secrets(), &asked).await,
            want
        );
    }
    // Updates of ephemeral containers only check the ephemeral containers.
    let mut pod = pod_with(json!({
        "serviceAccountName": "default",
        "containers": env("other"),
        "ephemeralContainers": from("other"),
    }));
    let asked = Asked::update_pod(pod.clone(), pod.clone()).sub_resource("ephemeralcontainers");
    let refused = unlisted(&format!("ephemeral container c with envFrom {named}"));
    let plugin = ServiceAccount::new(strict());
    assert_eq!(validate(&plugin, &asked).await, Err((500, refused)));
    pod["spec"]["ephemeralContainers"] = from("known");
    assert_eq!(validate(&plugin, &asked.object(pod)).await, Ok(()));
}

#[tokio::test]
async fn mirror_pods_refer_to_nothing_they_cannot_read() {
    let plugin = ServiceAccount::new(Memory::new());
    let secrets = "a mirror pod may not reference secrets";
    for (spec, want) in [
        (json!({}), None),
        (
            json!({"serviceAccountName": "default"}),
            Some("a mirror pod may not reference service accounts"),
        ),
        (
            json!({"volumes": [{"secret": {"secretName": "s"}}]}),
            Some(secrets),
        ),
        (
            json!({"volumes": [{"csi": {"nodePublishSecretRef": {"name": "s"}}}]}),
            Some(secrets),
        ),
        (
            json!({"volumes": [{"projected": {"sources": [{"secret": {"name": "s"}}]}}]}),
            Some(secrets),
        ),
        (json!({"imagePullSecrets": [{"name": "s"}]}), Some(secrets)),
        (
            json!({"ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}),
            Some(secrets),
        ),
        (
            json!({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s"}}}]}]}),
            Some(secrets),
        ),
        (
            json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
            Some("a mirror pod may not use ServiceAccountToken volume projections"),
        ),
    ] {
        let mut pod = pod_with(spec);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        let asked = Asked::create_pod(pod.clone());
        let want = want.map_or(Ok(()), |text| Err(forbidden(text)));
        assert_eq!(validate(&plugin, &asked).await, want);
        assert_eq!(mutate(&plugin, &asked).await, want.map(|()| pod));
    }
}

fn preset(name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": "7"});
    json!({"metadata": metadata, "spec": spec})
}

#[tokio::test]
async fn presets_add_what_pods_lack() {
    let memory = Memory::new();
    memory.put(
        POD_PRESETS,
        preset(
            "b",
            json!({
                "selector": {"matchLabels": {"app": "web"}},
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "envFrom": [{"configMapRef": {"name": "m"}}],
                "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                "volumes": [{"name": "cache", "emptyDir": {}}],
            }),
        ),
    );
    memory.put(POD_PRESETS, preset("a", json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "env": [{"name": "C", "value": "3"}]})));
    memory.put(POD_PRESETS, preset("c", json!({"selector": {"matchLabels": {"app": "db"}}, "env": [{"name": "D", "value": "4"}]})));
    let plugin = PodPreset::new(memory);
    let mut pod = pod_with(json!({
        "containers": [{"name": "a", "env": [{"name": "A", "value": "1"}]}],
        "initContainers": [{"name": "i"}],
    }));
    pod["metadata"]["labels"] = json!({"app": "web"});
    let got = mutate(&plugin, &Asked::create_pod(pod.clone()))
        .await
        .unwrap();
    let (a, b, c) = (
        json!({"name": "A", "value": "1"}),
        json!({"name": "B", "value": "2"}),
        json!({"name": "C", "value": "3"}),
    );
    let from = json!([{"configMapRef": {"name": "m"}}]);
    let mounts = json!([{"name": "cache", "mountPath": "/cache"}]);
    assert_eq!(
        got["spec"],
        json!({
            "containers": [{"name": "a", "env": [a, c, b], "envFrom": from, "volumeMounts": mounts}],
            "initContainers": [{"name": "i", "env": [c, a, b], "envFrom": from, "volumeMounts": mounts}],
            "volumes": [{"name": "cache", "emptyDir": {}}],
        })
    );
    let prefix = "podpreset.admission.kubernetes.io/podpreset-";
    let annotations = json!({format!("{prefix}a"): "7", format!("{prefix}b"): "7"});
    assert_eq!(got["metadata"]["annotations"], annotations);
    let key = "podpreset.admission.kubernetes.io/exclude";
    pod["metadata"]["annotations"] = json!({key: "true"});
    assert_eq!(
        mutate(&plugin, &Asked::create_pod(pod.clone())).await,
        Ok(pod)
    );
}

#[tokio::test]
async fn a_preset_that_contradicts_the_pod_is_void_with_all_others() {
    let own = json!({
        "containers": [{
            "name": "a",
            "env": [{"name": "A", "value": "1"}],
            "volumeMounts": [{"name": "m", "mountPath": "/m"}],
        }],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    for (spec, what) in [
        (json!({"env": [{"name": "A", "value": "2"}]}), "name A"),
        (
            json!({"volumeMounts": [{"name": "m", "mountPath": "/x"}]}),
            "name m",
        ),
        (
            json!({"volumeMounts": [{"name": "x", "mountPath": "/m"}]}),
            "mountPath /m",
        ),
        (
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            "name v",
        ),
    ] {
        let memory = Memory::new();
        memory.put(
            POD_PRESETS,
            preset("a", json!({"env": [{"name": "OTHER", "value": "1"}]})),
        );
        memory.put(POD_PRESETS, preset("b", spec));
        let pod = pod_with(own.clone());
        let plugin = PodPreset::new(memory);
        let got = mutate_with_warnings(&plugin, &Asked::create_pod(pod.clone()))
            .await
            .unwrap();
        let warning = format!("no pod preset was applied: merging b has a conflict on {what}");
        assert_eq!(got, (pod, vec![warning]));
    }
}
