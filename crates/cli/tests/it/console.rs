//! `lockgate serve --console`, over HTTP and in a browser.

use std::process::Command;

use lockgate_testkit::{Browser, ScriptedResponse, WebhookServer};
use serde_json::{Value, json};

use super::served::{Client, Home, Served, tls};

const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replica-limit}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  variables: [{name: replicas, expression: object.spec.replicas}]
  validations:
  - expression: "variables.replicas <= 3 && object.metadata.namespace == 'default'"
    message: at most 3 replicas
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replica-limit-everywhere}
spec: {policyName: replica-limit, validationActions: [Deny]}
"#;

/// Starts a server with the console: the process, the API port, and the console's URL.
fn start(home: &Home) -> (Served, u16, String) {
    start_on(home, "127.0.0.1")
}

fn start_on(home: &Home, ip: &str) -> (Served, u16, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command
        .args(home.arguments())
        .arg(format!("--console={ip}:0"));
    let mut served = Served::start(command);
    let port = served.port();
    let line = served.line();
    let url = line.strip_prefix("Console on ").unwrap().to_owned();
    (served, port, url)
}

/// A webhook configuration for a scripted server.
fn configuration(kind: &str, name: &str, path: &str, webhook: &WebhookServer) -> Value {
    let ca = lockgate_go::base64::encode(webhook.ca_pem().as_bytes());
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.com"), "clientConfig": {"url": webhook.url(path), "caBundle": ca},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]},
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        }],
    })
}

async fn post(client: &mut Client, path: &str, body: &Value) -> (u16, Value) {
    client.send("POST", path, Some(body)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_the_console_is_for_the_console() {
    let home = Home::new();
    let (served, port, url) = start(&home);
    let (address, token) = url.split_once("/#token=").unwrap();
    let address = address.strip_prefix("http://").unwrap().to_owned();
    let ask = async |authorization: String| {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut socket = tokio::net::TcpStream::connect(&address).await.unwrap();
        let request = format!(
            "GET /api/session HTTP/1.1\r\nhost: {address}\r\n{authorization}connection: close\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let own = ask(format!("authorization: Bearer {token}\r\n")).await;
    assert!(
        own.starts_with("HTTP/1.1 200") && own.contains("lockgate:console"),
        "{own}"
    );
    // API tokens are accepted by the console; the console's token is not accepted by the API.
    let of_api = ask(String::from("authorization: Bearer a-token\r\n")).await;
    assert!(
        of_api.contains("\"user\":\"admin\"") && of_api.contains("\"seesObjects\":true"),
        "{of_api}"
    );
    assert!(ask(String::new()).await.starts_with("HTTP/1.1 403"));
    assert!(
        ask(String::from("authorization: Bearer guess\r\n"))
            .await
            .starts_with("HTTP/1.1 401")
    );
    let connector = tls(&home.data());
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let socket = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    let mut stream = connector.connect(name, socket).await.unwrap();
    let answer = {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let request = format!(
            "GET /api HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_loopback_the_console_speaks_https_with_the_certificate_of_the_server() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let home = Home::new();
    let (served, _, url) = start_on(&home, "0.0.0.0");
    let rest = url.strip_prefix("https://0.0.0.0:").unwrap();
    let (port, token) = rest.split_once("/#token=").unwrap();
    let port: u16 = port.parse().unwrap();
    let connector = tls(&home.data());
    let ask = async |path: &str, host: &str, authorization: &str| {
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let socket = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .unwrap();
        let mut stream = connector.connect(name, socket).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\n{authorization}connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let own = format!("authorization: Bearer {token}\r\n");
    let host = format!("localhost:{port}");
    let session = ask("/api/session", &host, &own).await;
    assert!(
        session.starts_with("HTTP/1.1 200") && session.contains("lockgate:console"),
        "{session}"
    );
    let page = ask("/", &host, "").await;
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("<!doctype html>"),
        "{page}"
    );
    assert!(
        ask("/api/session", &host, "")
            .await
            .starts_with("HTTP/1.1 403")
    );
    // Another Host may be DNS rebinding.
    let rebound = ask("/api/session", "evil.example.com", &own).await;
    assert!(rebound.starts_with("HTTP/1.1 4"), "{rebound}");
    // Plain HTTP is not served.
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .unwrap();
    let plain =
        format!("GET /api/session HTTP/1.1\r\nhost: {host}\r\n{own}connection: close\r\n\r\n");
    let _ = socket.write_all(plain.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    assert!(
        !answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    served.stop();
}

/// Saves a screenshot for the documentation, if LOCKGATE_SCREENSHOTS is set to a folder.
fn picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("LOCKGATE_SCREENSHOTS") {
        let path = std::path::Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(path, browser.screenshot()).unwrap();
    }
}

mod browser {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_denied_request_leads_to_the_webhook_and_to_the_expression_that_denied_it() {
        let home = Home::new();
        let (served, port, url) = start(&home);
        let webhook = WebhookServer::start().await;
        let labels = json!([{"op": "add", "path": "/metadata/labels", "value": {"owner": "ann"}}]);
        webhook.script("/owner", [ScriptedResponse::patch(&labels)]);
        webhook.script("/size", [ScriptedResponse::deny("too <b>large</b>")]);
        let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
        let registration = "/apis/admissionregistration.k8s.io/v1";
        let hook = configuration("MutatingWebhookConfiguration", "owner", "/owner", &webhook);
        let path = format!("{registration}/mutatingwebhookconfigurations");
        assert_eq!(post(&mut client, &path, &hook).await.0, 201);
        for (document, plural) in POLICY.split("---").zip([
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ]) {
            let document = lockgate_api::document::yaml::parse(document).unwrap();
            let object: Value = serde_json::from_str(&document.root().to_json()).unwrap();
            assert_eq!(
                post(&mut client, &format!("{registration}/{plural}"), &object)
                    .await
                    .0,
                201
            );
        }
        let config_map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
        let config_maps = "/api/v1/namespaces/default/configmaps";
        assert_eq!(
            post(&mut client, config_maps, &config_map("fine")).await.0,
            201
        );
        let hook = configuration("ValidatingWebhookConfiguration", "size", "/size", &webhook);
        let path = format!("{registration}/validatingwebhookconfigurations");
        assert_eq!(post(&mut client, &path, &hook).await.0, 201);
        assert_eq!(
            post(&mut client, config_maps, &config_map("large")).await.0,
            403
        );
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}},
        });
        let (code, _) = post(
            &mut client,
            "/apis/apps/v1/namespaces/default/deployments",
            &deployment,
        )
        .await;
        assert_eq!(code, 422);
        let clicked = tokio::task::spawn_blocking(move || click_through(&url));
        clicked.await.unwrap();
        served.stop();
        webhook.stop().await;
    }

    fn click_through(url: &str) {
        let mut browser = Browser::start(1440, 900);
        browser.open(url);
        let row = |name: &str| {
            format!(
                "[...document.querySelectorAll('#canvas .row')].find((row) => !row.hidden && row.textContent.includes('default/{name}'))"
            )
        };
        // The webhook that denied a request.
        browser.wait(&row("web"));
        browser.click(&row("large"));
        browser.wait(
            "document.getElementById('verdict')?.textContent.includes('webhook size.example.com')",
        );
        let item = "document.querySelector('.item > button[data-name=\"size.example.com\"]')";
        browser.wait(&format!("{item}.getAttribute('aria-expanded') === 'true'"));
        let body = format!("{item}.parentElement.querySelector('.body')");
        // Webhook messages are rendered as text, not HTML.
        browser.wait(&format!("{body}.textContent.includes('too <b>large</b>')"));
        assert_eq!(
            browser.evaluate("document.querySelectorAll('#detail b').length"),
            json!(0)
        );
        picture(&mut browser, "console-denied");
        // Its configuration with lint findings.
        browser.click(&format!("{body}.querySelector('dd button')"));
        browser.wait("!document.getElementById('registered').hidden && document.querySelector('#table .name[data-name=\"size.example.com\"]')");
        browser.evaluate("const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'))");
        browser.wait("document.querySelectorAll('#table .name').length === 3 && document.querySelector('#table .finding')");
        picture(&mut browser, "console-registered");
        // The fields that a webhook set.
        browser.press("1");
        browser.click(&row("fine"));
        browser.wait("document.querySelector('.item .tag.patched')");
        browser.click("document.querySelector('.item > button[data-name=\"owner.example.com\"]')");
        browser.wait("document.querySelector('.diff .plus')?.textContent.includes('owner: ann')");
        picture(&mut browser, "console-patched");
        browser.click("[...document.querySelectorAll('#detail .tabs button')].find((tab) => tab.textContent === 'Object')");
        browser.wait("[...document.querySelectorAll('#source .blamed')].some((line) => line.textContent.includes('owner: ann') && line.textContent.includes('webhook owner.example.com'))");
        picture(&mut browser, "console-blame");
        // The expression that denied a request, with the values of its parts.
        browser.click(&row("web"));
        let policy = "document.querySelector('.item > button[data-name=\"replica-limit\"]')";
        browser.wait(&format!(
            "{policy}.getAttribute('aria-expanded') === 'true'"
        ));
        let expression = format!("{policy}.parentElement.querySelector('.expression.denied')");
        browser.wait(&format!(
            "{expression}.textContent.startsWith('variables.replicas <= 3')"
        ));
        browser.evaluate("document.documentElement.dataset.theme = 'dark'");
        picture(&mut browser, "console-policy");
        browser.click(&format!("{expression}.nextElementSibling"));
        browser.wait("document.getElementById('result')?.textContent.startsWith('false')");
        let parts = browser.evaluate("[...document.querySelectorAll('.steps tbody tr')].map((row) => row.children[0].textContent.trim() + ' = ' + row.children[1].textContent)");
        assert!(
            parts
                .as_array()
                .unwrap()
                .contains(&json!("variables.replicas = 5")),
            "{parts}"
        );
        picture(&mut browser, "console-playground");
        // Errors are underlined at their position.
        browser.evaluate("document.getElementById('expression').value = 'object.spec == nothing'");
        browser.click("document.getElementById('evaluate')");
        browser.wait("document.querySelector('#answer mark')?.textContent === 'nothing'");
        // Light and dark: the key toggles the theme, and the colours change.
        browser.evaluate(
            "document.activeElement.blur(); delete document.documentElement.dataset.theme",
        );
        let mut backgrounds = std::collections::BTreeMap::new();
        for _ in 0..3 {
            browser.press("t");
            let theme = browser.evaluate("document.documentElement.dataset.theme ?? 'system'");
            let color = browser.evaluate("getComputedStyle(document.body).backgroundColor");
            backgrounds.insert(theme.to_string(), color.to_string());
        }
        assert_eq!(backgrounds.len(), 3, "{backgrounds:?}");
        assert_ne!(backgrounds["\"light\""], backgrounds["\"dark\""]);
        // With the keyboard only.
        browser.evaluate("document.activeElement.blur()");
        browser.press("1");
        browser.press("/");
        browser.write("verdict:denied");
        browser.wait("document.getElementById('count').textContent.startsWith('2 of')");
        browser.press("Enter");
        browser.press("Escape");
        browser.wait("document.getElementById('detail').hidden");
        browser.press("k");
        browser.press("Enter");
        browser.wait("!document.getElementById('detail').hidden && document.querySelector('#detail h2').textContent.includes('deployments')");
        browser.press("j");
        browser.wait("document.querySelector('#detail h2').textContent.includes('configmaps')");
        assert_eq!(browser.problems(), [""; 0]);
    }
}
