//! The charts of the plugins and the server, with the real Helm.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::served::{Client, DEADLINE, Home, Served, tls};

const RELEASE: &str = "lockgate-plugins";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn chart() -> String {
    chart_of("lockgate-plugins")
}

fn chart_of(name: &str) -> String {
    root().join("charts").join(name).display().to_string()
}

/// Runs the real Helm: from `LOCKGATE_HELM`, from the PATH, or installed by `tools/need.sh`.
fn helm(arguments: &[&str]) -> Result<String, String> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if let Some(named) = std::env::var_os("LOCKGATE_HELM") {
            return named.into();
        }
        if Command::new("helm").arg("version").output().is_ok() {
            return PathBuf::from("helm");
        }
        let installed = Command::new(root().join("tools/need.sh"))
            .arg("clients")
            .current_dir(root())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "{told}");
        Path::new(String::from_utf8_lossy(&installed.stdout).trim()).join("bin/helm")
    });
    let output = Command::new(found).args(arguments).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The rendered objects of the plugins chart.
fn rendered(values: &[&str]) -> Result<Vec<Value>, String> {
    rendered_of(RELEASE, values)
}

/// The rendered objects of a chart, with a release of the same name.
fn rendered_of(name: &str, values: &[&str]) -> Result<Vec<Value>, String> {
    let chart = chart_of(name);
    let arguments = [
        &["template", name, &chart, "--namespace", "lockgate"],
        values,
    ]
    .concat();
    let text = helm(&arguments)?;
    let documents = lockgate_api::document::yaml::parse_all(&text).unwrap();
    let values = documents
        .iter()
        .map(|document| serde_json::from_str(&document.root().to_json()).unwrap());
    Ok(values.filter(|value: &Value| !value.is_null()).collect())
}

fn of_kind<'o>(objects: &'o [Value], kind: &str) -> Option<&'o Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

#[test]
fn lint_finds_nothing() {
    helm(&["lint", "--strict", &chart()]).unwrap();
}

#[test]
fn every_plugin_is_rendered_with_its_webhooks_and_rights() {
    let file = root().join("charts/lockgate-plugins/files/plugins.json");
    let known: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for plugin in known["plugins"].as_array().unwrap() {
        let name = plugin["name"].as_str().unwrap();
        let named = format!("plugins={{{name}}}");
        let mut values = vec!["--set", &named];
        let configuration = format!("configuration.{name}.x=y");
        if plugin["configuration"] == "required" {
            let refused = rendered(&values).unwrap_err();
            let wanted = format!("plugin {name} needs configuration.{name}");
            assert!(refused.contains(&wanted), "{refused}");
            values.extend(["--set", &configuration]);
        }
        let objects = rendered(&values).unwrap();
        for (phase, kind) in [
            ("mutating", "MutatingWebhookConfiguration"),
            ("validating", "ValidatingWebhookConfiguration"),
        ] {
            let wanted = plugin[phase].as_array().unwrap();
            let found = of_kind(&objects, kind)
                .map_or(&json!([]), |it| &it["webhooks"])
                .clone();
            let found = found.as_array().unwrap();
            assert_eq!(found.len(), wanted.len(), "{name}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert_eq!(found["name"], wanted["name"]);
                assert_eq!(found["rules"], wanted["rules"], "{name}");
                assert_eq!(found["failurePolicy"], "Fail");
                let service = &found["clientConfig"]["service"];
                assert_eq!(service["name"], RELEASE);
                assert_eq!(service["path"], wanted["clientConfig"]["service"]["path"]);
            }
        }
        let role = of_kind(&objects, "ClusterRole").map(|role| role["rules"].clone());
        let rules = plugin["rules"].as_array().filter(|rules| !rules.is_empty());
        assert_eq!(role.as_ref().and_then(Value::as_array), rules, "{name}");
    }
    let unknown = rendered(&["--set", "plugins={Nope}"]).unwrap_err();
    assert!(unknown.contains("plugin Nope is unknown"), "{unknown}");
}

#[test]
fn a_digest_wins_over_a_tag() {
    let digest = format!("sha256:{}", "a1".repeat(32));
    let values = format!("image.tag=v9,image.digest={digest}");
    let objects = rendered(&["--set", &values]).unwrap();
    let deployment = of_kind(&objects, "Deployment").unwrap();
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(*image, json!(format!("lockgate@{digest}")));
    assert!(of_kind(&objects, "NetworkPolicy").is_some());
    let refused = rendered(&["--set", "image.digest=latest"]).unwrap_err();
    assert!(refused.contains("digest"), "{refused}");
}

/// `helm install` on a server, with the Deployment's program started separately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installed_by_helm_plugins_are_asked() {
    let home = Home::new();
    let ca = home.path().join("plugins-ca.crt").display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command.args([
        "plugins",
        "serve",
        "--plugins=AlwaysPullImages",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--self-signed=lockgate-plugins.lockgate.svc",
    ]);
    command.arg(format!("--ca-out={ca}"));
    let mut plugins = Served::start(command);
    let url = plugins.line();
    let address = url.trim_start_matches("https://").trim().to_owned();

    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(home.arguments())
        .arg(format!("--map-service=lockgate/{RELEASE}={address}"));
    let mut server = Served::start(command);
    let port = server.port();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let kubeconfig = home.path().join("kubeconfig").display().to_string();
    let install = [
        "install",
        RELEASE,
        &chart(),
        "--kubeconfig",
        &kubeconfig,
        "--namespace",
        "lockgate",
        "--create-namespace",
        "--set",
        "certificate.enabled=false,certificate.existingSecret=mine",
        "--set-file",
        &format!("certificate.caBundle={ca}"),
    ]
    .map(str::to_owned);
    // Helm blocks on the server, so it must not run on the server's thread.
    let run = |arguments: Vec<String>| {
        tokio::task::spawn_blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            helm(&arguments).unwrap()
        })
    };
    run(install.to_vec()).await.unwrap();

    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
    });
    let (code, made) = client.send("POST", pods, Some(&pod)).await.unwrap();
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
    // Its own Pods are exempt.
    let own = pods.replace("/default/", "/lockgate/");
    let (code, made) = client.send("POST", &own, Some(&pod)).await.unwrap();
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["spec"]["containers"][0]["imagePullPolicy"],
        "IfNotPresent"
    );

    let uninstall = [
        "uninstall",
        RELEASE,
        "--kubeconfig",
        &kubeconfig,
        "--namespace",
        "lockgate",
    ];
    run(uninstall.map(str::to_owned).to_vec()).await.unwrap();
    let (code, made) = client.send("POST", pods, Some(&pod)).await.unwrap();
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["spec"]["containers"][0]["imagePullPolicy"],
        "IfNotPresent"
    );
    plugins.stop();
    server.stop();
}

/// The values of a file in the server's chart.
fn server_values(name: &str) -> String {
    let file = root().join(format!("charts/lockgate/ci/{name}-values.yaml"));
    file.display().to_string()
}

fn container(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]["containers"][0]
}

fn arguments(workload: &Value) -> Vec<&str> {
    let arguments = container(workload)["args"].as_array().unwrap().iter();
    arguments.map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn servers_on_etcd_are_a_deployment() {
    let values = server_values("etcd");
    helm(&[
        "lint",
        "--strict",
        &chart_of("lockgate"),
        "--values",
        &values,
    ])
    .unwrap();
    let objects = rendered_of("lockgate", &["--values", &values]).unwrap();
    let deployment = of_kind(&objects, "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(
        deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"],
        0
    );
    let found = arguments(deployment);
    for wanted in [
        "--etcd-servers=https://etcd-0.etcd:2379,https://etcd-1.etcd:2379,https://etcd-2.etcd:2379",
        "--etcd-cafile=/etc/lockgate/etcd/ca.crt",
        "--admission-consistency=linearizable",
        "--shutdown-delay-duration=5s",
        "--tls-cert-file=/etc/lockgate/tls/tls.crt",
        "--token-auth-file=/etc/lockgate/tokens/tokens.csv",
    ] {
        assert!(found.contains(&wanted), "{wanted}: {found:?}");
    }
    assert!(
        !found
            .iter()
            .any(|it| it.contains("console") || it.contains("data-dir"))
    );
    let container = container(deployment);
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let budget = of_kind(&objects, "PodDisruptionBudget").unwrap();
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    let policy = of_kind(&objects, "NetworkPolicy").unwrap();
    assert_eq!(policy["spec"]["egress"][1]["ports"][0]["port"], 2379);
    let monitor = of_kind(&objects, "ServiceMonitor").unwrap();
    assert_eq!(
        monitor["spec"]["endpoints"][0]["authorization"]["credentials"]["name"],
        "scraper"
    );
    // Mounts and volumes have the same names.
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let volumes = names(&deployment["spec"]["template"]["spec"]["volumes"]);
    assert_eq!(names(&container["volumeMounts"]), volumes);
    assert_eq!(volumes.len(), 5);
}

#[test]
fn a_server_on_disk_is_a_stateful_set() {
    let values = server_values("disk");
    helm(&[
        "lint",
        "--strict",
        &chart_of("lockgate"),
        "--values",
        &values,
    ])
    .unwrap();
    let objects = rendered_of("lockgate", &["--values", &values]).unwrap();
    let set = of_kind(&objects, "StatefulSet").unwrap();
    let found = arguments(set);
    assert!(
        found.contains(&"--data-dir=/var/lib/lockgate/data"),
        "{found:?}"
    );
    assert!(
        found.contains(&"--tls-san=lockgate,lockgate.lockgate,lockgate.lockgate.svc"),
        "{found:?}"
    );
    assert!(!found.iter().any(|it| it.contains("etcd")), "{found:?}");
    assert_eq!(
        set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"],
        "data"
    );
    assert!(of_kind(&objects, "PodDisruptionBudget").is_none());
    for (refused, why) in [
        (
            vec!["--values", &values, "--set", "replicaCount=2"],
            "replicaCount must be 1",
        ),
        (
            vec!["--set", "storage.type=etcd"],
            "storage.etcd.servers is needed",
        ),
        (
            vec!["--values", &values, "--set", "storage.type=tape"],
            "type",
        ),
        (
            vec!["--values", &values, "--set", "consol.enabled=true"],
            "consol",
        ),
    ] {
        let refused = rendered_of("lockgate", &refused).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

/// Every flag in the chart is accepted by the program, and the server starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_arguments_of_the_chart_start_a_server() {
    let values = server_values("disk");
    let objects = rendered_of("lockgate", &["--values", &values]).unwrap();
    let home = Home::new();
    let folder = |path: &str| home.path().join(path).display().to_string();
    let arguments = arguments(of_kind(&objects, "StatefulSet").unwrap()).into_iter();
    let arguments = arguments.map(|argument| match argument.split_once('=') {
        Some(("--secure-port", _)) => String::from("--secure-port=0"),
        Some(("--advertise-address", _)) => String::from("--advertise-address=10.1.2.3"),
        Some(("--shutdown-delay-duration", _)) => String::from("--shutdown-delay-duration=0"),
        Some((flag @ "--data-dir", _)) => format!("{flag}={}", folder("data")),
        Some((flag @ "--kubeconfig-out", _)) => format!("{flag}={}", folder("kubeconfig")),
        Some((flag @ "--token-auth-file", _)) => format!("{flag}={}", folder("tokens.csv")),
        _ => argument.to_owned(),
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command.args(arguments);
    let mut server = Served::start(command);
    let port = tokio::task::block_in_place(|| server.port());
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let (code, _) = client.send("GET", "/readyz", None).await.unwrap();
    assert_eq!(code, 200);
    let named = Client::connect_as(&tls(&home.data()), port, "lockgate.lockgate.svc").await;
    assert!(
        named.is_ok(),
        "the certificate has the names of the Service"
    );
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let end = std::time::Instant::now() + DEADLINE;
    loop {
        let (code, found) = client.send("GET", endpoints, None).await.unwrap();
        if code == 200 {
            assert_eq!(found["subsets"][0]["addresses"][0]["ip"], "10.1.2.3");
            break;
        }
        assert!(std::time::Instant::now() < end, "{found}");
    }
    tokio::task::block_in_place(|| server.stop());
}
