//! Log lines of a server, and the address in its kubeconfig.

use std::process::Command;

use serde_json::{Value, json};

use crate::served::{Client, Home, Served, tls};

#[tokio::test]
async fn requests_are_logged_at_debug_level_without_secrets() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(home.arguments())
        .args(["-v", "--log-format=json"])
        .env_remove("RUST_LOG");
    let mut served = Served::start(command);
    let port = served.port();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"password": "hunter2"},
    });
    let path = "/api/v1/namespaces/default/secrets";
    let created = client.send("POST", path, Some(&secret)).await.unwrap();
    assert_eq!(created.0, 201);
    drop(client);
    let log = served.stop();
    let line: Value = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON lines only"))
        .find(|line: &Value| line["message"] == "request" && line["path"] == path)
        .unwrap_or_else(|| panic!("no line for the request:\n{log}"));
    assert_eq!(
        (&line["method"], &line["code"]),
        (&json!("POST"), &json!(201))
    );
    // The token of the request, the contents of the Secret and keys.
    let token = std::fs::read_to_string(home.path().join("tokens.csv")).unwrap();
    let token = token.split(',').next().unwrap();
    for hidden in [token, "hunter2", "PRIVATE KEY"] {
        assert!(!log.contains(hidden), "{hidden} is logged:\n{log}");
    }
}

#[test]
fn a_filter_that_does_not_parse_is_a_usage_error() {
    let run = Command::new(env!("CARGO_BIN_EXE_lockgate"))
        .args(["serve", "--secure-port=0"])
        .env("RUST_LOG", "lockgate=loud")
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("RUST_LOG is `lockgate=loud`"));
}

#[test]
fn a_server_on_all_addresses_writes_a_usable_kubeconfig() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(home.arguments())
        .args(["--bind-address=0.0.0.0"]);
    let mut served = Served::start(command);
    let port = served.port();
    let kubeconfig = std::fs::read_to_string(home.path().join("kubeconfig")).unwrap();
    let server = format!("server: https://127.0.0.1:{port}\n");
    assert!(kubeconfig.contains(&server), "{kubeconfig}");
    served.stop();
}
