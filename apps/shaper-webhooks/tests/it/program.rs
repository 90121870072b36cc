//! The program as a process: output, startup and shutdown.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Program, get};

fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn tells_its_version_and_its_use() {
    let output = Program::command(None).arg("--version").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        concat!("shaper-webhooks ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let output = Program::command(None).arg("--help").output().unwrap();
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout));
    let output = Program::command(None).arg("--nonsense").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn does_not_start_without_a_configuration() {
    let output = Program::command(None).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let started = String::from_utf8_lossy(&output.stdout).into_owned();
    let want = concat!(
        "Starting shaper-webhook version ",
        env!("CARGO_PKG_VERSION"),
        " (n/a) n/a\n"
    );
    assert_eq!(started, want);
    let log = lines(&output.stderr);
    assert_eq!(
        (&log[0]["level"], &log[0]["message"]),
        (&json!("ERROR"), &json!("cannot load the configuration"))
    );
    assert!(
        log[0]["error"]
            .as_str()
            .unwrap()
            .contains("SHAPER_WEBHOOK_CONFIG_PATH")
    );
}

#[test]
fn says_why_it_does_not_start() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("config.yaml");
    for (text, want) in [
        ("invalid: yaml: content: [", "is not YAML"),
        (
            "kubeconfigPath: /nonexistent",
            "cannot reach the Kubernetes API: cannot read the kubeconfig `/nonexistent`: ",
        ),
        (
            "kubeconfigPath: in-cluster",
            "cannot reach the Kubernetes API: cannot read the service account: ",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let output = Program::command(Some(&path)).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let log = lines(&output.stderr);
        assert!(log[0]["error"].as_str().unwrap().contains(want), "{log:?}");
    }
}

#[test]
fn checks_a_configuration_without_serving() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, "webhookServer: {prot: 1}").unwrap();
    let output = Program::command(Some(&path))
        .arg("--check-config")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(lines(&output.stderr)[0]["key"], "webhookServer.prot");
}

/// A kubeconfig of an unreachable server.
const NOWHERE: &str = r#"
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"#;

#[test]
fn does_not_start_where_somebody_else_listens() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, NOWHERE).unwrap();
    let config = json!({
        "kubeconfigPath": kubeconfig,
        "webhookServer": {"host": "127.0.0.1", "port": port},
        "probesServer": {"port": 0}, "metricsServer": {"port": 0},
    });
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    let output = Program::command(Some(&path)).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = lines(&output.stderr);
    let error = log.last().unwrap()["error"].as_str().unwrap();
    let want = format!("cannot start the webhook server: cannot listen on `127.0.0.1:{port}`: ");
    assert!(error.starts_with(&want), "{error}");
}

#[tokio::test]
async fn lives_but_is_not_ready_without_certificate_and_api() {
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, NOWHERE).unwrap();
    let config = json!({
        "kubeconfigPath": kubeconfig.to_str(),
        "probesServer": {"livenessPath": "/alive", "readinessPath": "/able"},
        "metricsServer": {"path": "/numbers"},
        "webhookServer": {"shutdownDelay": "0s"},
    });
    let mut program = Program::start(config, folder);
    assert_eq!(get(program.probes, "/alive").await.0, 200);
    let (code, body) = get(program.probes, "/able?verbose").await;
    assert_eq!(code, 503);
    assert!(body.contains("kubernetes-api"), "{body}");
    let (code, body) = get(program.metrics, "/numbers").await;
    assert_eq!(code, 200);
    assert!(
        body.contains("controller_runtime_webhook_requests_total"),
        "{body}"
    );
    assert_eq!(program.terminate(), Some(0));
}
