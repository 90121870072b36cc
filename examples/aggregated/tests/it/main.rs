//! kubectl, the main server, the aggregated notes server, and a webhook for notes.

#![expect(
    clippy::unwrap_used,
    reason = "what is not there fails the test, also in the helpers"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aggregated_notes::Running;
use lockgate_apiserver::{ServiceMapping, Settings, TestServer};
use lockgate_certs::{Authority, Leaf};
use lockgate_follow::Server;
use lockgate_store::MemoryStore;
use lockgate_testkit::{ScriptedResponse, WebhookServer};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The timeout of any operation in these tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The main server with the aggregated notes server.
struct Setup {
    main: TestServer,
    _notes: Running,
}

async fn start() -> Setup {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = free.local_addr().unwrap();
    drop(free);
    let settings = Settings {
        services: vec![ServiceMapping {
            namespace: String::from("notes"),
            name: String::from("notes"),
            port: None,
            address: address.to_string(),
        }],
        ..Settings::default()
    };
    let main = TestServer::start_with(settings).await.unwrap();
    let authority = Authority::new("notes-ca").unwrap();
    let leaf = Leaf::server("notes", ["notes.notes.svc", "127.0.0.1"]);
    let pair = authority.issue(&leaf).unwrap();
    std::fs::write(main.folder().join("notes-ca.crt"), authority.pem()).unwrap();
    let server = Server::from_kubeconfig(&main.kubeconfig_path()).unwrap();
    let pair = (pair.certificate_pem.as_bytes(), pair.key_pem.as_bytes());
    let notes = Running::start(address, pair, server, Arc::new(MemoryStore::new()))
        .await
        .unwrap();
    let bundle = lockgate_go::base64::encode(authority.pem().as_bytes());
    let registered = include_str!("../../apiservice.yaml");
    main.apply(&format!("{registered}  caBundle: {bundle}\n"))
        .await
        .unwrap();
    let setup = Setup {
        main,
        _notes: notes,
    };
    let wait = "wait --for=condition=Available apiservice/v1.notes.example.com --timeout=60s";
    setup.kubectl(wait, "").await.unwrap();
    setup
}

impl Setup {
    /// Runs kubectl; returns its output, or its error.
    async fn kubectl(&self, line: &str, input: &str) -> Result<String, String> {
        let mut child = Command::new("kubectl")
            .args(line.split_whitespace())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.main.folder())
            .env("KUBECONFIG", self.main.kubeconfig_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the tests need `kubectl` on the PATH");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await;
        let output = output.expect("kubectl ends").unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }
}

fn note(name: &str, text: &str) -> String {
    format!(
        "apiVersion: notes.example.com/v1\nkind: Note\nmetadata: {{name: {name}}}\ntext: {text}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_keeps_notes_that_webhooks_may_deny() {
    let setup = start().await;
    let shown = setup
        .kubectl(
            "api-resources --api-group=notes.example.com --no-headers",
            "",
        )
        .await;
    let shown = shown.unwrap();
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(
        words,
        ["notes", "nt", "notes.example.com/v1", "true", "Note"]
    );
    let made = setup
        .kubectl("create -f -", &note("milk", "buy"))
        .await
        .unwrap();
    assert_eq!(made, "note.notes.example.com/milk created\n");
    let got = setup
        .kubectl("get notes milk -o jsonpath={.text}", "")
        .await
        .unwrap();
    assert_eq!(got, "buy");
    let listed = setup.kubectl("get nt -A -o name", "").await.unwrap();
    assert_eq!(listed, "note.notes.example.com/milk\n");
    let twice = setup
        .kubectl("create -f -", &note("milk", "buy"))
        .await
        .unwrap_err();
    assert!(twice.contains("already exists"), "{twice}");
    setup
        .kubectl("replace -f -", &note("milk", "bought"))
        .await
        .unwrap();
    let got = setup
        .kubectl("get notes milk -o jsonpath={.text}", "")
        .await
        .unwrap();
    assert_eq!(got, "bought");

    // A webhook registered with the main server is called by the aggregated one.
    let hooks = WebhookServer::start().await;
    hooks.script("/notes", [ScriptedResponse::deny("no more notes")]);
    let bundle = lockgate_go::base64::encode(hooks.ca_pem().as_bytes());
    let registered = format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: notes}}
webhooks:
- name: deny.notes.example.com
  clientConfig: {{url: '{}', caBundle: {bundle}}}
  rules: [{{operations: [CREATE], apiGroups: [notes.example.com], apiVersions: [v1], resources: [notes]}}]
  sideEffects: None
  admissionReviewVersions: [v1]
",
        hooks.url("/notes")
    );
    setup.kubectl("apply -f -", &registered).await.unwrap();
    let denied = async {
        let mut number = 0;
        loop {
            number += 1;
            let name = format!("bread-{number}");
            match setup.kubectl("create -f -", &note(&name, "buy")).await {
                // The webhook configuration is not in effect yet.
                Ok(_) => {}
                Err(why) => return why,
            }
        }
    };
    let denied = tokio::time::timeout(TIMEOUT, denied)
        .await
        .expect("the webhook is called");
    assert!(
        denied.contains(
            "admission webhook \"deny.notes.example.com\" denied the request: no more notes"
        ),
        "{denied}"
    );
    let requests = hooks.requests();
    let body = &requests.last().unwrap().body;
    let review: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!(review["request"]["userInfo"]["username"], "admin");
    assert_eq!(review["request"]["resource"]["resource"], "notes");

    // The main server rejects unauthorized requests, and does not proxy them.
    let refused = setup.kubectl("get notes --as=ann", "").await.unwrap_err();
    assert!(
        refused.contains("User \"ann\" cannot list resource \"notes\""),
        "{refused}"
    );
    let role = "create role reader --verb=get,list --resource=notes.notes.example.com";
    setup.kubectl(role, "").await.unwrap();
    setup
        .kubectl("create rolebinding reader --role=reader --user=ann", "")
        .await
        .unwrap();
    let listed = setup
        .kubectl("get notes milk --as=ann -o name", "")
        .await
        .unwrap();
    assert_eq!(listed, "note.notes.example.com/milk\n");
    setup.kubectl("delete note milk", "").await.unwrap();
    let gone = setup.kubectl("get note milk", "").await.unwrap_err();
    assert!(gone.contains("not found"), "{gone}");
    setup.main.stop().await;
}

/// Sends a request directly to the aggregated server.
async fn ask(setup: &Setup, token: Option<String>, headers: &[(&str, &str)]) -> (u16, String) {
    let pem = std::fs::read(setup.main.folder().join("notes-ca.crt")).unwrap();
    let url = format!("https://{}", setup._notes.address());
    let direct = Server::new(&url, &pem, token).unwrap();
    assert!(headers.is_empty());
    let path = "/apis/notes.example.com/v1/namespaces/default/notes";
    let (code, answer) = direct.exchange(path, None).await.unwrap();
    (
        code,
        answer["message"].as_str().unwrap_or_default().to_owned(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_directly_is_authenticated_and_authorized_by_the_main_server() {
    let setup = start().await;
    let (code, message) = ask(&setup, None, &[]).await;
    assert_eq!(code, 403, "{message}");
    assert!(
        message.contains("User \"system:anonymous\" cannot list resource \"notes\""),
        "{message}"
    );
    let (code, _) = ask(&setup, Some(String::from("guessed")), &[]).await;
    assert_eq!(code, 401);
    setup
        .kubectl("create serviceaccount reader", "")
        .await
        .unwrap();
    let token = setup.kubectl("create token reader", "").await.unwrap();
    let token = token.trim().to_owned();
    let (code, _) = ask(&setup, Some(token.clone()), &[]).await;
    assert_eq!(code, 403);
    setup
        .kubectl(
            "create clusterrole notes --verb=list --resource=notes.notes.example.com",
            "",
        )
        .await
        .unwrap();
    let bind =
        "create clusterrolebinding notes --clusterrole=notes --serviceaccount=default:reader";
    setup.kubectl(bind, "").await.unwrap();
    let allowed = async {
        // Denials are cached for ten seconds.
        while ask(&setup, Some(token.clone()), &[]).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, allowed)
        .await
        .expect("allowed in the end");
    setup.main.stop().await;
}

/// The cost of the proxy, printed by `LOCKGATE_PROXY_REQUESTS=10000 cargo test -p aggregated-notes --test it cost --
/// --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cost_of_a_request_through_the_proxy() {
    let requests = std::env::var("LOCKGATE_PROXY_REQUESTS");
    let requests: u32 = requests.map_or(50, |text| text.parse().unwrap());
    let setup = start().await;
    let file = kube::config::Kubeconfig::read_from(setup.main.kubeconfig_path()).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    for (what, path) in [
        (
            "proxied",
            "/apis/notes.example.com/v1/namespaces/default/notes",
        ),
        ("served", "/api/v1/namespaces/default/configmaps?limit=1"),
    ] {
        let began = Instant::now();
        for _ in 0..requests {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            let list: serde_json::Value = client.request(request).await.unwrap();
            assert!(list["items"].is_array());
        }
        println!("{what}: {:?} per request", began.elapsed() / requests);
    }
    assert!(Path::new(&setup.main.kubeconfig_path()).exists());
    setup.main.stop().await;
}
