//! An engine with a console, without an API server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use lockgate_admission::call::Local;
use lockgate_admission::configuration::from_yaml;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{BoxFuture, Host};
use lockgate_admission::object::Object;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, Decision};
use lockgate_api::admission::UserInfo;
use lockgate_api::meta::status::Status;
use lockgate_console::cluster::{Cluster, Resource};
use lockgate_console::{Limits, Recorder, Serving, Token, serve};
use lockgate_listener::Phase;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The timeout of any operation.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

const CONFIGURATIONS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: owners}
webhooks:
- name: owner.example.com
  clientConfig: {url: 'https://owner.example.com/'}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps, secrets]}]
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {url: 'https://images.example.com/'}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  matchConditions: [{name: not-system, expression: \"request.userInfo.username != 'robot'\"}]
  sideEffects: None
  admissionReviewVersions: [v1]
";

/// Patches ConfigMaps and Secrets, denies Pods.
fn webhook(review: &[u8]) -> Vec<u8> {
    let review: Value = serde_json::from_slice(review).unwrap();
    let request = &review["request"];
    let uid = &request["uid"];
    let response = match request["resource"]["resource"].as_str().unwrap() {
        "pods" => {
            json!({"uid": uid, "allowed": false, "status": {"message": "image has no version"}})
        }
        _ => {
            // [{"op":"add","path":"/metadata/labels","value":{"owner":"ann"}},{"op":"add","path":"/data/added","value":"cGF0Y2hlZA=="}]
            let patch = "W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscyIsInZhbHVlIjp7Im93bmVyIjoiYW5uIn19LHsib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYWRkZWQiLCJ2YWx1ZSI6ImNHRjBZMmhsWkE9PSJ9XQ==";
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch})
        }
    };
    let answer = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
    answer.to_string().into_bytes()
}

/// `admin` has all permissions, `viewer` those for the console, others none.
#[derive(Debug)]
struct Roles;

impl Authorizer for Roles {
    fn authorize(&self, request: &AccessRequest<'_>) -> Decision {
        let is_console =
            matches!(request.object, AccessObject::Path(path) if path.starts_with("/console/"));
        let is_master = request
            .user
            .groups
            .iter()
            .any(|group| group == "system:masters");
        Decision {
            allowed: is_master || request.user.name == "viewer" && is_console,
            ..Decision::default()
        }
    }
}

struct Fake;

impl Cluster for Fake {
    fn authenticate<'f>(
        &'f self,
        _: SocketAddr,
        headers: &'f HeaderMap,
    ) -> BoxFuture<'f, Result<UserInfo, Box<Status>>> {
        let shown = headers.get("authorization");
        let token = shown.map(|value| value.to_str().unwrap().to_owned());
        let user = |name: &str| UserInfo {
            username: name.to_owned(),
            ..UserInfo::default()
        };
        let result = match token.as_deref() {
            None => Ok(user("system:anonymous")),
            Some("Bearer viewer-token") => Ok(user("viewer")),
            Some(_) => Err(Box::new(Status {
                code: 401,
                message: String::from("Unauthorized"),
                ..Status::default()
            })),
        };
        Box::pin(async { result })
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(Roles)
    }

    fn objects<'f>(
        &'f self,
        (_, _, plural): Resource,
        _: usize,
    ) -> BoxFuture<'f, Result<Vec<Value>, Box<Status>>> {
        let objects = match plural {
            "validatingwebhookconfigurations" => vec![json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "images"},
                "webhooks": [{
                    "name": "images.example.com", "clientConfig": {"url": "https://images.example.com/"}, "failurePolicy": "Fail", "timeoutSeconds": 30,
                    "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
                    "sideEffects": "None", "admissionReviewVersions": ["v1"],
                }],
            })],
            _ => Vec::new(),
        };
        Box::pin(async { Ok(objects) })
    }
}

/// The console of an engine.
pub(crate) struct Console {
    engine: Engine,
    recorder: Arc<Recorder>,
    pub(crate) address: SocketAddr,
    pub(crate) token: Token,
    phase: watch::Sender<Phase>,
    serving: JoinHandle<()>,
}

impl Console {
    pub(crate) async fn start() -> Self {
        let engine = Engine::new(Host::new(Arc::new(Local::new(webhook))));
        for configuration in from_yaml(CONFIGURATIONS).unwrap() {
            engine.register(&configuration);
        }
        let recorder = Arc::new(Recorder::start(Limits::default()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let token = Token::generate().unwrap();
        let (phase, watched) = watch::channel(Phase::Serving);
        let serving = Serving {
            recorder: Arc::clone(&recorder),
            cluster: Arc::new(Fake),
            token: token.clone(),
            tls: None,
        };
        let serving = tokio::spawn(serve(listener, serving, watched));
        Self {
            engine,
            recorder,
            address,
            token,
            phase,
            serving,
        }
    }

    /// Admits a new object.
    pub(crate) async fn create(&self, plural: &str, name: &str, object: Value) {
        let kinds = [
            ("pods", "Pod"),
            ("configmaps", "ConfigMap"),
            ("secrets", "Secret"),
        ];
        let of = kinds.iter().find(|(known, _)| *known == plural).unwrap().1;
        let mut request = Request::new(
            Operation::Create,
            kind("", "v1", of),
            resource("", "v1", plural),
        );
        request.name = name.to_owned();
        request.user.username = String::from("ann");
        request.object = Some(Object::new(object));
        let mut admission = Admission::new(request).record_objects();
        if self.engine.admit(&mut admission).await.is_allowed() {
            self.engine.validate(&mut admission).await;
        }
        self.recorder.observe(&admission);
    }

    pub(crate) async fn stop(self) {
        self.phase.send(Phase::Closing).unwrap();
        tokio::time::timeout(DEADLINE, self.serving)
            .await
            .unwrap()
            .unwrap();
    }

    /// Sends a request with these headers; returns the code, the head and the body.
    pub(crate) async fn send(
        &self,
        line: &str,
        headers: &[&str],
        body: &str,
    ) -> (u16, String, String) {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let mut text = format!(
            "{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for header in headers {
            text.push_str(&format!("{header}\r\n"));
        }
        text.push_str(&format!("\r\n{body}"));
        // The server may close the connection before it has read everything.
        let _ = socket.write_all(text.as_bytes()).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(DEADLINE, socket.read_to_end(&mut answer)).await;
        let _ = read.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (
            code.unwrap_or_default(),
            head.to_lowercase(),
            body.to_owned(),
        )
    }

    /// Requests JSON with the console token.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let authorization = format!("authorization: Bearer {}", self.token.text());
        let (code, head, body) = self
            .send(
                &format!("GET {path}"),
                &["host: localhost", &authorization],
                "",
            )
            .await;
        assert_eq!(code, 200, "{path}: {head} {body}");
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"))
    }

    /// Waits for this many requests, and returns their rows.
    pub(crate) async fn rows(&self, count: usize) -> Vec<Value> {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let rows = self.get("/api/requests").await;
            let rows = rows["requests"].as_array().unwrap().clone();
            if rows.len() >= count {
                return rows;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{} of {count}",
                rows.len()
            );
            tokio::task::yield_now().await;
        }
    }
}
