//! `lockgate plugins`: the plugins as webhooks of a server that does not run them in process.

use std::process::Command;

use serde_json::{Value, json};

use super::lockgate;
use crate::served::{Client, Home, Served, tls};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn the_chart_knows_every_plugin() {
    let run = lockgate(&["plugins", "list", "-o", "json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../charts/lockgate-plugins/files/plugins.json"
    );
    let stored = std::fs::read_to_string(file).unwrap();
    assert!(
        stored == run.stdout,
        "out of date: lockgate plugins list -o json > charts/lockgate-plugins/files/plugins.json"
    );
    let known: Value = serde_json::from_str(&stored).unwrap();
    for plugin in known["plugins"].as_array().unwrap() {
        let webhooks = ["mutating", "validating"].map(|phase| plugin[phase].as_array().unwrap());
        assert!(
            webhooks.iter().any(|webhooks| !webhooks.is_empty()),
            "{} has no webhook",
            plugin["name"]
        );
    }
}

#[test]
fn lists_plugins_one_to_a_line() {
    let run = lockgate(&["plugins", "list"]);
    assert_eq!(run.code, Some(0));
    let line = run
        .stdout
        .lines()
        .find(|line| line.starts_with("LimitRanger "));
    assert!(
        line.is_some_and(|line| line.contains("cluster")),
        "{}",
        run.stdout
    );
}

#[test]
fn a_plugin_that_cannot_be_served_is_a_usage_error() {
    let target = ["--service", "a/b"];
    let manifests = |names: &str| {
        let names = format!("--plugins={names}");
        lockgate(&[&["plugins", "manifests", &names][..], &target].concat())
    };
    let run = manifests("AlwaysPullImage");
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("did you mean AlwaysPullImages?"),
        "{}",
        run.stderr
    );
    let run = manifests("ResourceQuota");
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("cannot be served as a webhook"),
        "{}",
        run.stderr
    );
    let serve = [
        "plugins",
        "serve",
        "--plugins=LimitRanger",
        "--self-signed=x",
        "--ca-out=/dev/null",
    ];
    let run = lockgate(&serve);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("--kubeconfig"), "{}", run.stderr);
    // A plugin's required configuration is checked before serving.
    let serve = [
        "plugins",
        "serve",
        "--plugins=SidecarInjector",
        "--self-signed=x",
        "--ca-out=/dev/null",
    ];
    let run = lockgate(&serve);
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    assert!(run.stderr.contains("no config specified"), "{}", run.stderr);
}

#[test]
fn the_example_configuration_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command.args([
        "plugins",
        "serve",
        "--plugins=EventRateLimit,ExternalIPRanger,ImagePolicyWebhook,NamespaceProtection,SidecarInjector",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--self-signed=localhost",
        "--admission-control-config-file",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/plugins/admission.yaml"),
    ]);
    command.arg(format!(
        "--ca-out={}",
        folder.path().join("ca.crt").display()
    ));
    command.arg("--shutdown-delay-duration=1h");
    let mut served = Served::start(command);
    assert!(served.line().starts_with("https://127.0.0.1:"));
    // The delay is for load balancers, not for the interrupt key.
    served.interrupt();
}

/// A server without the in-process plugin, and the plugin as its webhook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_calls_plugins_that_it_does_not_run() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(home.arguments())
        .arg("--disable-admission-plugins=LimitRanger");
    let mut server = Served::start(command);
    let port = server.port();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();

    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    let (ca, kubeconfig) = (path("plugins-ca.crt"), path("kubeconfig"));
    command.args([
        "plugins",
        "serve",
        "--plugins=LimitRanger,AlwaysPullImages",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--self-signed=127.0.0.1,localhost",
        "--shutdown-delay-duration=0",
    ]);
    command.arg(format!("--ca-out={ca}"));
    command.arg(format!("--kubeconfig={kubeconfig}"));
    let mut plugins = Served::start(command);
    let url = plugins.line();

    let limits = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "1"}}]},
    });
    let ranges = "/api/v1/namespaces/default/limitranges";
    let (code, answer) = client.send("POST", ranges, Some(&limits)).await.unwrap();
    assert_eq!(code, 201, "{answer}");
    let pod = |name: &str, limit: Option<&str>| {
        let resources = limit.map_or_else(|| json!({}), |cpu| json!({"limits": {"cpu": cpu}}));
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "nginx:1", "resources": resources}],
            },
        })
    };
    let dry_run = format!("{PODS}?dryRun=All");
    let large = pod("a", Some("2"));
    let (code, before) = client.send("POST", &dry_run, Some(&large)).await.unwrap();
    assert_eq!(code, 201, "nobody limits it yet: {before}");

    let run = lockgate(&[
        "plugins",
        "manifests",
        "--plugins=LimitRanger,AlwaysPullImages",
        &format!("--url={url}"),
        &format!("--ca-bundle={ca}"),
        "-o=json",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let list: Value = serde_json::from_str(&run.stdout).unwrap();
    for item in list["items"].as_array().unwrap() {
        let plural = format!("{}s", item["kind"].as_str().unwrap().to_lowercase());
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        let (code, answer) = client.send("POST", &path, Some(item)).await.unwrap();
        assert_eq!(code, 201, "{answer}");
    }

    let (code, denied) = client.send("POST", &dry_run, Some(&large)).await.unwrap();
    assert_eq!(code, 403, "{denied}");
    assert_eq!(
        denied["message"],
        "admission webhook \"limit-ranger.plugins.lockgate.io\" denied the request: maximum cpu usage per \
         Container is 1, but limit is 2"
    );
    let small = pod("b", None);
    let (code, stored) = client.send("POST", PODS, Some(&small)).await.unwrap();
    assert_eq!(code, 201, "{stored}");
    let container = &stored["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["cpu"], "1");
    assert_eq!(container["imagePullPolicy"], "Always");
    let annotation = &stored["metadata"]["annotations"]["kubernetes.io/limit-ranger"];
    assert!(
        annotation.as_str().is_some_and(|text| text.contains("cpu")),
        "{stored}"
    );

    // Without the plugins every request is rejected.
    plugins.stop();
    let (code, refused) = client.send("POST", &dry_run, Some(&small)).await.unwrap();
    assert_eq!(code, 500, "{refused}");
    server.stop();
}

/// The behaviour of kube-apiserver v1.36.4 for each set of flags, recorded in `conformance/plugins/flags.json`.
#[test]
fn flags_of_plugins_end_as_recorded() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../conformance/plugins/flags.json"
    );
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
        let kubeconfig = folder.path().join("kubeconfig");
        command.args(["serve", "--secure-port=0", "--kubeconfig-out"]);
        command.arg(kubeconfig);
        let flags = case["flags"].as_array().into_iter().flatten();
        command.args(flags.map(|flag| flag.as_str().unwrap()));
        if let Some(text) = case["config"].as_str() {
            let is_of_plugin = text.starts_with("imagePolicy");
            let file = if is_of_plugin {
                write("image-policy.yaml", text);
                let plugin = "{name: ImagePolicyWebhook, path: image-policy.yaml}";
                let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration";
                write("admission.yaml", &format!("{head}\nplugins: [{plugin}]\n"))
            } else {
                write("admission.yaml", text)
            };
            command.arg(format!("--admission-control-config-file={file}"));
        }
        let mut served = Served::start(command);
        let Some(want) = case["error"].as_str() else {
            served.port();
            let told = served.stop();
            for phase in ["mutating", "validating"] {
                if let Some(plugins) = case[phase].as_str() {
                    let line = format!("{phase} plugins: {plugins}\n");
                    assert!(told.contains(&line), "{case}\n{told}");
                }
            }
            continue;
        };
        assert!(
            served.port_within(crate::served::DEADLINE).is_err(),
            "{case}"
        );
        let told = served.error_output();
        if case["exit"] == 255 {
            // Upstream crashes here; this is its error for other files.
            assert!(
                told.contains("gone.yaml: no such file or directory"),
                "{told}"
            );
            continue;
        }
        assert!(told.contains(want), "{case}\n{told}");
        if let Some(warning) = case["stderr"].as_str() {
            assert!(told.contains(warning), "{case}\n{told}");
        }
    }
}
