//! `lockgate dev`, with this program as the webhook.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockgate_webhook::server::{Certificates, Server};
use lockgate_webhook::{Context, Mutator, Registration, Verdict, Webhooks, mutating};
use serde_json::{Value, json};

use super::lockgate;
use super::served::Served;

struct Mark;

impl Mutator<Value> for Mark {
    async fn mutate(&self, _: &Context, object: &mut Value) -> Verdict {
        object["metadata"]["labels"]["marked"] = json!("yes");
        Ok(())
    }
}

#[tokio::test]
#[ignore = "is the webhook that another test starts"]
async fn webhook() {
    let variable = |name: &str| std::env::var(name).unwrap();
    assert!(std::path::Path::new(&variable("KUBECONFIG")).is_absolute());
    let port: u16 = variable("WEBHOOK_PORT").parse().unwrap();
    let webhooks = Webhooks::new().with(
        Registration::mutating("mark.example.com").path("/mark"),
        mutating::<Value, _>(Mark),
    );
    let running = Server::new(webhooks)
        .listen(([127, 0, 0, 1], port))
        .certificates(Certificates::folder(variable("WEBHOOK_CERT_DIR")))
        .shutdown_delay(Duration::ZERO)
        .start()
        .await
        .unwrap();
    running.until_terminated().await.unwrap();
}

/// A webhook configuration with cert-manager's CA injection, as commonly deployed.
const CONFIGURATION: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: mark
  annotations: {cert-manager.io/inject-ca-from: shop/hook}
webhooks:
- name: mark.example.com
  clientConfig: {service: {namespace: shop, name: hook, path: /mark}}
  rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  sideEffects: None
  admissionReviewVersions: [v1]
";

#[test]
fn a_webhook_is_asked_as_in_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("mark.yaml"), CONFIGURATION).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let itself = std::env::current_exe().unwrap().display().to_string();
    let kubeconfig = file("kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(["dev", "--secure-port=0", "--webhook-port", &port])
        .args(["--kubeconfig-out", &kubeconfig, "-f", &file("mark.yaml")])
        .args(["--", &itself, "--ignored", "--exact", "dev::webhook"]);
    let mut dev = Served::start(command);
    // The webhook logs to the same stream.
    let ready = format!("Webhook ready on port {port} ");
    while !dev.line().starts_with(&ready) {}

    let kubectl = |arguments: &[&str]| {
        let run = Command::new("kubectl")
            .args(["--kubeconfig", &kubeconfig])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        String::from_utf8(run.stdout).unwrap()
    };
    kubectl(&["create", "configmap", "a"]);
    let label = "jsonpath={.metadata.labels.marked}";
    assert_eq!(kubectl(&["get", "configmap", "a", "-o", label]), "yes");

    let log = dev.stop();
    assert!(log.contains("CREATE configmaps default/a by"), "{log}");
    assert!(log.contains("allowed, patched"), "{log}");
    let address = format!("127.0.0.1:{port}");
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "the webhook goes on"
    );
}

/// A rendered chart: without its namespace, webhooks first, with custom resources of other charts.
const CHART: &str = "
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: serving, namespace: shop}
spec: {secretName: serving-tls, dnsNames: [hook.shop.svc], issuerRef: {name: selfsigned}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: selfsigned, namespace: shop}
spec: {selfSigned: {}}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: hook, namespace: shop}
spec: {selector: {}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: NOT-A-NAME, namespace: shop}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_rendered_chart_is_taken_as_it_is_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(file("chart")).unwrap();
    std::fs::write(
        file("chart/chart.yaml"),
        format!("{CONFIGURATION}---{CHART}"),
    )
    .unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let itself = std::env::current_exe().unwrap().display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(["dev", "--secure-port=0", "--webhook-port", &port])
        .args(["--kubeconfig-out", &file("kubeconfig")])
        .args([&format!("--watch={}", file("chart")), "-f", &file("chart")])
        .args(["--", &itself, "--ignored", "--exact", "dev::webhook"]);
    let mut dev = Served::start(command);
    let ready = format!("Webhook ready on port {port} ");
    while !dev.line().starts_with(&ready) {}
    let text = CHART.replace("serving-tls", "changed-tls");
    std::fs::write(
        file("chart/chart.yaml"),
        format!("{CONFIGURATION}---{text}"),
    )
    .unwrap();
    while !dev.line().starts_with(&ready) {}
    let log = dev.stop();
    for said in [
        "unknown kind Certificate of cert-manager.io",
        "unknown kind Issuer of cert-manager.io",
        "unknown kind ServiceMonitor of monitoring.coreos.com",
        "Warning: not applied: v1 ConfigMap NOT-A-NAME",
        "applied 4 of 5 objects",
        "chart.yaml` changed, restarting",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert!(!log.contains("cannot define"), "{log}");
}

/// A webhook that fails to start is restarted after a source change.
#[test]
fn a_watched_webhook_is_mended_by_a_change_of_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(file("source")).unwrap();
    std::fs::write(file("source/run.sh"), "echo begun\nexit 7\n").unwrap();
    std::fs::write(file("mark.yaml"), CONFIGURATION).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(["dev", "--secure-port=0", "--webhook-port", &port])
        .args(["--kubeconfig-out", &file("kubeconfig")])
        .args([
            &format!("--watch={}", file("source")),
            "-f",
            &file("mark.yaml"),
        ])
        .args(["--", "sh", &file("source/run.sh")]);
    let mut dev = Served::start(command);
    while dev.line() != "begun" {}
    let itself = std::env::current_exe().unwrap().display().to_string();
    let mended = format!("exec '{itself}' --ignored --exact dev::webhook\n");
    std::fs::write(file("source/run.sh"), mended).unwrap();
    let ready = format!("Webhook ready on port {port} ");
    while !dev.line().starts_with(&ready) {}
    let log = dev.stop();
    assert!(log.contains("run.sh` changed, restarting"), "{log}");
}

#[test]
fn another_program_on_the_port_is_not_the_webhook() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    // The program listens without TLS.
    let script = format!(
        "import socket,time\ns=socket.create_server(('127.0.0.1',{port}))\nwhile True: s.accept()[0].sendall(b'hello')"
    );
    let run = lockgate(&[
        "dev",
        "--secure-port=0",
        "--webhook-port",
        &port,
        "--timeout=3s",
        "--kubeconfig-out",
        &file("kubeconfig"),
        "--service=shop/hook",
        "--",
        "python3",
        "-c",
        &script,
    ]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let said =
        format!("port {port} is not served with the certificate of WEBHOOK_CERT_DIR: no TLS");
    assert!(run.stderr.contains(&said), "{}", run.stderr);
}

#[test]
fn what_cannot_work_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig").display().to_string();
    let dev = |arguments: &[&str]| {
        let common = ["dev", "--secure-port=0", "--kubeconfig-out", &kubeconfig];
        lockgate(&[&common[..], arguments].concat())
    };
    for (arguments, code, said) in [
        (&["--", "true"][..], 2, "no Service found for the webhook"),
        (&["--service=shop", "--", "true"], 2, "expected NS/NAME"),
        (&["--service=shop/hook"], 2, "<COMMAND>"),
        (
            &["--service=shop/hook", "--", "no-such-program"],
            1,
            "cannot run `no-such-program`",
        ),
        (
            &["--service=shop/hook", "--", "false"],
            1,
            "webhook exited (status 1)",
        ),
    ] {
        let run = dev(arguments);
        assert_eq!(run.code, Some(code), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{arguments:?}: {}", run.stderr);
    }
}
