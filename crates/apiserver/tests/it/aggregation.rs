//! Aggregated API servers: proxying, authorization, discovery merging, and unavailability.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockgate_apiserver::{RequestHeaders, ServiceMapping, Settings, TestServer};
use lockgate_certs::{Authority, Leaf};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::support::*;

pub(crate) const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
pub(crate) const NOTES: &str = "/apis/notes.example.com/v1/namespaces/shop/notes";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

type Answered = UnsyncBoxBody<Bytes, Infallible>;

/// A request as the aggregated server received it.
#[derive(Debug, Clone)]
struct Seen {
    method: Method,
    uri: String,
    headers: Vec<(String, String)>,
    body: String,
    has_certificate: bool,
}

impl Seen {
    fn all(&self, name: &str) -> Vec<&str> {
        let headers = self.headers.iter().filter(|(key, _)| key == name);
        headers.map(|(_, value)| value.as_str()).collect()
    }
}

/// A server behind an APIService: each note in it is the received request.
pub(crate) struct Behind {
    address: SocketAddr,
    ca_pem: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    events: mpsc::Sender<&'static str>,
}

impl Behind {
    /// Starts it; `client_ca` verifies the proxy's client certificate, if already known.
    pub(crate) async fn start(http2: bool) -> Self {
        let authority = Authority::new("notes-ca").unwrap();
        let pair = authority
            .issue(&Leaf::server("notes", ["notes.shop.svc"]))
            .unwrap();
        let chain = CertificateDer::pem_slice_iter(pair.certificate_pem.as_bytes());
        let chain: Vec<_> = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(AnyCertificate))
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = match http2 {
            true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            false => vec![b"http/1.1".to_vec()],
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (events, receiver) = mpsc::channel(10);
        let receiver = Arc::new(Mutex::new(Some(receiver)));
        let recorded = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), Arc::clone(&recorded));
                let receiver = Arc::clone(&receiver);
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else {
                        return;
                    };
                    let session = stream.get_ref().1;
                    let has_certificate = session.peer_certificates().is_some();
                    let is_http2 = session.alpn_protocol() == Some(b"h2");
                    let service = service_fn(move |request| {
                        let (seen, receiver) = (Arc::clone(&seen), Arc::clone(&receiver));
                        async move {
                            Ok::<_, Infallible>(
                                answer(request, &seen, &receiver, has_certificate).await,
                            )
                        }
                    });
                    let io = TokioIo::new(stream);
                    if is_http2 {
                        let builder =
                            hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = builder.serve_connection(io, service).await;
                    } else {
                        let builder = hyper::server::conn::http1::Builder::new();
                        let connection = builder.serve_connection(io, service);
                        let _ = connection.with_upgrades().await;
                    }
                });
            }
        });
        Self {
            address,
            ca_pem: authority.pem().to_owned(),
            seen,
            events,
        }
    }

    /// The requests for notes, without the controller's requests for discovery documents.
    fn notes(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        let notes = seen.iter().filter(|seen| seen.uri.contains("/namespaces/"));
        notes.cloned().collect()
    }

    fn last(&self) -> Seen {
        self.notes().last().cloned().unwrap()
    }

    fn count(&self, path: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| seen.uri.starts_with(path))
            .count()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            services: vec![ServiceMapping {
                namespace: String::from("shop"),
                name: String::from("notes"),
                port: None,
                address: self.address.to_string(),
            }],
            ..settings()
        }
    }

    pub(crate) fn api_service(&self) -> Value {
        api_service(json!({"caBundle": lockgate_go::base64::encode(self.ca_pem.as_bytes())}))
    }
}

/// Accepts any client certificate; the tests check its subject.
#[derive(Debug)]
struct AnyCertificate;

impl rustls::server::danger::ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::server::danger::ClientCertVerified, rustls::Error> {
        Ok(rustls::server::danger::ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn api_service(more: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.notes.example.com"},
        "spec": {
            "group": "notes.example.com", "version": "v1",
            "service": {"namespace": "shop", "name": "notes", "port": 443},
            "groupPriorityMinimum": 2000, "versionPriority": 20,
        },
    });
    for (name, value) in more.as_object().unwrap() {
        object["spec"][name] = value.clone();
    }
    object
}

fn json_answer(value: &Value) -> Response<Answered> {
    Response::builder()
        .header("content-type", "application/json")
        .header("x-of-notes", "yes")
        .body(Full::new(Bytes::from(value.to_string())).boxed_unsync())
        .unwrap()
}

/// The responses of a malicious server, by the name of the note.
fn hostile_answer(path: &str) -> Option<Response<Answered>> {
    let builder = match path.strip_prefix(NOTES)? {
        "/elsewhere" => Response::builder()
            .status(StatusCode::FOUND)
            .header("location", "https://127.0.0.1:1/api/v1/secrets"),
        "/nowhere" => Response::builder().status(StatusCode::NOT_MODIFIED),
        "/unasked" => Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "Upgrade")
            .header("upgrade", "words"),
        "/public" => Response::builder().header("cache-control", "public"),
        _ => return None,
    };
    Some(builder.body(Full::default().boxed_unsync()).unwrap())
}

async fn answer(
    mut request: Request<Incoming>,
    seen: &Mutex<Vec<Seen>>,
    events: &Mutex<Option<mpsc::Receiver<&'static str>>>,
    has_certificate: bool,
) -> Response<Answered> {
    let upgrade = request
        .headers()
        .contains_key("upgrade")
        .then(|| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let headers = head.headers.iter().map(|(name, value)| {
        (
            name.to_string(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        )
    });
    let path = head.uri.path().to_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let uri = head.uri.path_and_query().unwrap().to_string();
    seen.lock().unwrap().push(Seen {
        method: head.method.clone(),
        uri,
        headers: headers.collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
        has_certificate,
    });
    if let Some(hostile) = hostile_answer(&path) {
        return hostile;
    }
    if let Some(upgrade) = upgrade {
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            let mut word = [0; 4];
            while io.read_exact(&mut word).await.is_ok() {
                word.make_ascii_uppercase();
                io.write_all(&word).await.unwrap();
                io.flush().await.unwrap();
            }
        });
        return Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "Upgrade")
            .header("upgrade", "words")
            .body(Full::default().boxed_unsync())
            .unwrap();
    }
    match path.as_str() {
        "/apis/notes.example.com/v1" => json_answer(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "notes.example.com/v1",
            "resources": [
                {"name": "notes", "singularName": "note", "namespaced": true, "kind": "Note",
                 "verbs": ["get", "list", "watch", "create"], "shortNames": ["nt"]},
                {"name": "notes/status", "singularName": "", "namespaced": true, "kind": "Note",
                 "verbs": ["get"]},
            ],
        })),
        "/openapi/v3" => json_answer(&json!({"paths": {"apis/notes.example.com/v1": {
            "serverRelativeURL": "/openapi/v3/apis/notes.example.com/v1?hash=ABC",
        }}})),
        "/openapi/v3/apis/notes.example.com/v1" => json_answer(&json!({"openapi": "3.0.0"})),
        "/openapi/v2" => json_answer(&json!({
            "swagger": "2.0",
            "paths": {"/apis/notes.example.com/v1/notes": {"get": {}}, "/api/v1/pods": {"get": {"stolen": true}}},
            "definitions": {"com.example.notes.v1.Note": {"type": "object"}},
        })),
        _ if path.starts_with("/apis/notes.example.com/v1/") && query.contains("watch=true") => {
            let receiver = events.lock().unwrap().take().unwrap();
            let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
                let event = receiver.recv().await?;
                Some((Ok(Frame::data(Bytes::from(event))), receiver))
            });
            Response::new(BodyExt::boxed_unsync(StreamBody::new(stream)))
        }
        _ if path.starts_with("/apis/notes.example.com/v1/") => json_answer(&json!({
            "apiVersion": "notes.example.com/v1", "kind": "Note", "metadata": {"name": "seen"},
        })),
        _ => Response::builder()
            .status(404)
            .body(Full::from("not here").boxed_unsync())
            .unwrap(),
    }
}

pub(crate) async fn wait_for(client: &Client, status: &str, reason: &str) -> Value {
    let found = client
        .wait_until(API_SERVICES, "v1.notes.example.com", |object| {
            let condition = &object["status"]["conditions"][0];
            condition["status"] == status && condition["reason"] == reason
        })
        .await;
    found["status"]["conditions"][0].clone()
}

#[tokio::test]
async fn requests_are_proxied_as_their_user() {
    for http2 in [true, false] {
        let behind = Behind::start(http2).await;
        let server = start_with(behind.settings()).await;
        let client = Client::admin(&server).await;
        client.create(API_SERVICES, behind.api_service()).await;
        let condition = wait_for(&client, "True", "Passed").await;
        assert_eq!(condition["message"], "all checks passed");
        let check = behind.seen.lock().unwrap()[0].clone();
        assert_eq!(check.all("x-remote-user"), ["system:kube-aggregator"]);
        assert_eq!(check.all("x-remote-group"), ["system:masters"]);
        assert!(check.has_certificate);

        // Identity headers of a client are not forwarded.
        let spoofed = client
            .with("x-remote-user", "mallory")
            .with("x-remote-group", "system:masters-too")
            .with("x-remote-extra-scopes", "all")
            .with("x-remote-uid", "0");
        let answer = spoofed
            .get(&format!("{NOTES}/a%20b?labelSelector=a%3Db"))
            .await;
        assert_eq!((answer.code, answer.header("x-of-notes")), (200, "yes"));
        assert!(!answer.header("audit-id").is_empty());
        let seen = behind.last();
        assert_eq!(seen.uri, format!("{NOTES}/a%20b?labelSelector=a%3Db"));
        assert_eq!(seen.all("x-remote-user"), ["admin"]);
        assert_eq!(
            seen.all("x-remote-group"),
            ["system:masters", "system:authenticated"]
        );
        assert!(seen.all("x-remote-uid").is_empty());
        assert!(seen.all("x-remote-extra-scopes").is_empty());
        let credential = "x-remote-extra-authentication.kubernetes.io%2fcredential-id";
        assert_eq!(seen.all(credential).len(), 1);

        // The impersonated user is the requesting user.
        let ann = client
            .taken_for("ann")
            .with("impersonate-group", "system:masters");
        let made = ann.post(NOTES, &json!({"kind": "Note", "n": 1})).await;
        assert_eq!(made.code, 200);
        let seen = behind.last();
        assert_eq!(
            (seen.method.as_str(), seen.body.as_str()),
            ("POST", r#"{"kind":"Note","n":1}"#)
        );
        assert_eq!(seen.all("x-remote-user"), ["ann"]);
        assert!(seen.all("impersonate-user").is_empty());

        // Unauthorized requests are not proxied.
        let before = behind.notes().len();
        client.taken_for("nobody").get(NOTES).await.expect(403);
        let bare = Client::anonymous(&server).await;
        bare.with("x-remote-user", "admin")
            .get(NOTES)
            .await
            .expect(403);
        for path in [
            format!("{NOTES}/../../../../api"),
            format!("{NOTES}/%2e%2e/x"),
        ] {
            assert_eq!(client.get(&path).await.code, 404, "{path}");
        }
        let large = "x".repeat(3 * 1024 * 1024 + 1);
        let large = client.request(Method::POST, NOTES, &[], large).await;
        assert_eq!(large.code, 413);
        assert_eq!(behind.notes().len(), before);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_watch_is_passed_on_event_by_event() {
    let behind = Behind::start(true).await;
    let server = start_with(behind.settings()).await;
    let client = Client::admin(&server).await;
    client.create(API_SERVICES, behind.api_service()).await;
    wait_for(&client, "True", "Passed").await;
    let path = format!("{NOTES}?watch=true");
    let mut watching = client.send(&Method::GET, &path, &[], body("")).await;
    for event in ["{\"type\":\"ADDED\"}\n", "{\"type\":\"DELETED\"}\n"] {
        behind.events.send(event).await.unwrap();
        let frame = within(watching.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    drop(behind.events);
    let rest = within(watching.into_body().collect()).await.unwrap();
    assert!(rest.to_bytes().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn an_upgrade_joins_both_ends() {
    let behind = Behind::start(true).await;
    let server = start_with(behind.settings()).await;
    let client = Client::admin(&server).await;
    client.create(API_SERVICES, behind.api_service()).await;
    wait_for(&client, "True", "Passed").await;
    let (certificate, key) = server.admin();
    let credentials = Credentials {
        certificate: Some((certificate.to_owned(), key.to_owned())),
        headers: Vec::new(),
    };
    let mut stream = connect(&tls(&server, &credentials, "http/1.1"), server.address()).await;
    let head = format!(
        "POST {NOTES}/a/exec HTTP/1.1\r\nhost: server\r\nconnection: Upgrade\r\nupgrade: words\r\n\
         x-remote-user: mallory\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(within(stream.read_u8()).await.unwrap());
    }
    let text = String::from_utf8(text).unwrap().to_lowercase();
    assert!(text.starts_with("http/1.1 101"), "{text}");
    assert!(text.contains("upgrade: words"), "{text}");
    for (said, heard) in [(b"abcd", b"ABCD"), (b"efgh", b"EFGH")] {
        stream.write_all(said).await.unwrap();
        let mut word = [0; 4];
        within(stream.read_exact(&mut word)).await.unwrap();
        assert_eq!(&word, heard);
    }
    assert_eq!(behind.last().all("x-remote-user"), ["admin"]);
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn discovery_and_openapi_show_both() {
    let behind = Behind::start(true).await;
    let server = start_with(behind.settings()).await;
    let client = Client::admin(&server).await;
    client.create(API_SERVICES, behind.api_service()).await;
    wait_for(&client, "True", "Passed").await;

    let all = client
        .request(Method::GET, "/apis", &[("accept", AGGREGATED)], "")
        .await;
    let tag = all.header("etag").to_owned();
    let all = all.expect(200);
    let groups = all["items"].as_array().unwrap();
    let notes = groups
        .iter()
        .find(|group| group["metadata"]["name"] == "notes.example.com")
        .unwrap();
    assert_eq!(
        notes["versions"],
        json!([{"version": "v1", "freshness": "Current", "resources": [{
            "resource": "notes", "singularResource": "note", "scope": "Namespaced",
            "responseKind": {"group": "notes.example.com", "version": "v1", "kind": "Note"},
            "verbs": ["get", "list", "watch", "create"], "shortNames": ["nt"],
            "subresources": [{"subresource": "status", "verbs": ["get"],
                "responseKind": {"group": "notes.example.com", "version": "v1", "kind": "Note"}}],
        }]}])
    );
    assert!(groups.len() > 10);
    let known = [("accept", AGGREGATED), ("if-none-match", tag.as_str())];
    assert_eq!(
        client.request(Method::GET, "/apis", &known, "").await.code,
        304
    );

    let list = client.get("/apis").await.expect(200);
    let names: Vec<&str> = list["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["name"].as_str().unwrap())
        .collect();
    // By priority: after the built-in groups.
    assert_eq!(names.last(), Some(&"notes.example.com"), "{names:?}");
    let version = json!({"groupVersion": "notes.example.com/v1", "version": "v1"});
    assert_eq!(
        client.get("/apis/notes.example.com").await.expect(200),
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "notes.example.com",
            "versions": [version], "preferredVersion": version})
    );
    let resources = client.get("/apis/notes.example.com/v1").await.expect(200);
    assert_eq!(resources["resources"][0]["kind"], "Note");

    let index = client.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/notes.example.com/v1"]["serverRelativeURL"].as_str();
    assert_eq!(url, Some("/openapi/v3/apis/notes.example.com/v1?hash=ABC"));
    assert!(index["paths"]["apis/apps/v1"].is_object());
    let document = client.get(url.unwrap()).await.expect(200);
    assert_eq!(document["openapi"], "3.0.0");
    let v2 = client.get("/openapi/v2").await.expect(200);
    assert!(v2["paths"]["/apis/notes.example.com/v1/notes"].is_object());
    assert!(v2["definitions"]["com.example.notes.v1.Note"].is_object());
    // Only its own paths are merged.
    assert!(v2["paths"]["/api/v1/pods"]["get"]["stolen"].is_null());

    client
        .delete(&format!("{API_SERVICES}/v1.notes.example.com"))
        .await
        .expect(200);
    assert_eq!(client.get("/apis/notes.example.com").await.code, 404);
    assert_eq!(client.get(NOTES).await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn what_is_away_is_told_apart_and_holds_up_nobody() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create("/api/v1/namespaces", json!({"metadata": {"name": "shop"}}))
        .await;
    // The group of a CustomResourceDefinition is still served.
    let insecure = json!({"insecureSkipTLSVerify": true});
    client.create(API_SERVICES, api_service(insecure)).await;
    let told = wait_for(&client, "False", "ServiceNotFound").await;
    assert_eq!(told["message"], "service/notes in \"shop\" is not present");
    let answer = client.get(NOTES).await;
    assert_eq!(
        (answer.code, answer.text().as_str()),
        (503, "service unavailable\n")
    );
    client.taken_for("nobody").get(NOTES).await.expect(403);

    let services = "/api/v1/namespaces/shop/services";
    let service = |port: i32| {
        json!({
            "metadata": {"name": "notes"}, "spec": {"ports": [{"name": "api", "port": port}]},
        })
    };
    client.create(services, service(80)).await;
    let told = wait_for(&client, "False", "ServicePortError").await;
    assert_eq!(
        told["message"],
        "service/notes in \"shop\" is not listening on port 443"
    );
    let port = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 443}]);
    client
        .patch(&format!("{services}/notes"), "json", &port)
        .await
        .expect(200);
    let told = wait_for(&client, "False", "EndpointsNotFound").await;
    assert_eq!(
        told["message"],
        "cannot find endpointslices for service/notes in \"shop\""
    );

    // A port without a listener.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let number = free.local_addr().unwrap().port();
    drop(free);
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    let slice = json!({
        "metadata": {"name": "notes-1", "labels": {"kubernetes.io/service-name": "notes"}},
        "addressType": "IPv4", "ports": [{"name": "api", "port": number}],
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": false}}],
    });
    client.create(slices, slice).await;
    let told = wait_for(&client, "False", "MissingEndpoints").await;
    assert_eq!(
        told["message"],
        "endpointslices for service/notes in \"shop\" have no addresses with port name \"api\""
    );
    let since = told["lastTransitionTime"].clone();
    let ready =
        json!([{"op": "replace", "path": "/endpoints", "value": [{"addresses": ["127.0.0.1"]}]}]);
    let patched = client
        .patch(&format!("{slices}/notes-1"), "json", &ready)
        .await;
    // Loopback addresses are not valid endpoints, so the test maps the address; see below.
    assert_eq!(patched.code, 422);
    let told = wait_for(&client, "False", "MissingEndpoints").await;
    assert_eq!(told["lastTransitionTime"], since);

    let began = Instant::now();
    let groups = client
        .request(Method::GET, "/apis", &[("accept", AGGREGATED)], "")
        .await
        .expect(200);
    let items = groups["items"].as_array().unwrap();
    let notes = items
        .iter()
        .find(|group| group["metadata"]["name"] == "notes.example.com");
    assert_eq!(
        notes.unwrap()["versions"],
        json!([{"version": "v1", "freshness": "Stale"}])
    );
    client.get("/apis/apps/v1").await.expect(200);
    assert!(began.elapsed().as_secs() < 5);

    // A local APIService needs no availability check.
    let mut local = api_service(json!({}));
    local["metadata"]["name"] = "v1.local.example.com".into();
    local["spec"] = json!({"group": "local.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1});
    client.create(API_SERVICES, local).await;
    let found = client
        .wait_until(API_SERVICES, "v1.local.example.com", |object| {
            object["status"]["conditions"][0]["reason"] == "Local"
        })
        .await;
    let condition = &found["status"]["conditions"][0];
    assert_eq!(
        condition["message"],
        "Local APIServices are always available"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_fails_its_check() {
    let behind = Behind::start(true).await;
    // The first has no listener, and the second presents the wrong certificate.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = free.local_addr().unwrap();
    drop(free);
    let mut dead_settings = behind.settings();
    dead_settings.services[0].address = dead.to_string();
    let other = Authority::new("other-ca").unwrap();
    let bundle = lockgate_go::base64::encode(other.pem().as_bytes());
    for (settings, object, wanted) in [
        (
            dead_settings,
            behind.api_service(),
            "connect: connection refused",
        ),
        (
            behind.settings(),
            api_service(json!({"caBundle": bundle})),
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
    ] {
        let server = start_with(settings).await;
        let client = Client::admin(&server).await;
        client.create(API_SERVICES, object).await;
        let told = wait_for(&client, "False", "FailedDiscoveryCheck").await;
        let message = told["message"].as_str().unwrap();
        assert!(
            message.starts_with("failing or missing response from https://127.0.0.1:"),
            "{message}"
        );
        assert!(message.contains(wanted), "{message}");
        assert_eq!(client.get(NOTES).await.code, 503);
        server.stop().await;
    }
    // Its certificate is verified unless the APIService disables that.
    let server = start_with(behind.settings()).await;
    let client = Client::admin(&server).await;
    client
        .create(
            API_SERVICES,
            api_service(json!({"insecureSkipTLSVerify": true})),
        )
        .await;
    wait_for(&client, "True", "Passed").await;
    assert_eq!(client.get(NOTES).await.code, 200);
    assert!(behind.count(NOTES) > 0);
    server.stop().await;
}

#[tokio::test]
async fn headers_of_proxies_are_believed_by_their_certificate_alone() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("front-ca").unwrap();
    let file = folder.path().join("front.crt");
    std::fs::write(&file, authority.pem()).unwrap();
    let settings = Settings {
        request_headers: RequestHeaders {
            client_ca_file: Some(file),
            allowed_names: vec![String::from("front")],
            ..RequestHeaders::default()
        },
        ..settings()
    };
    let server = start_with(settings).await;
    let as_proxy = |name: &str, group: Option<&str>| {
        let pair = authority.issue(&Leaf::client(name, group)).unwrap();
        Credentials {
            certificate: Some((pair.certificate_pem, pair.key_pem)),
            headers: Vec::new(),
        }
    };
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let front = Client::connect(&server, as_proxy("front", None)).await;
    let told = front
        .with("x-remote-user", "ann")
        .with("x-remote-uid", "u1")
        .with("x-remote-group", "dev")
        .with("x-remote-group", "ops")
        .with("x-remote-extra-example.com%2fScope", "a")
        .post(who, &review)
        .await
        .expect(201);
    assert_eq!(
        told["status"]["userInfo"],
        json!({"username": "ann", "uid": "u1", "groups": ["dev", "ops", "system:authenticated"],
            "extra": {"example.com/scope": ["a"]}})
    );
    // Without a username the request is unauthenticated, and its CA does not authenticate users.
    assert_eq!(front.post(who, &review).await.code, 401);
    let masters = Client::connect(&server, as_proxy("front", Some("system:masters"))).await;
    assert_eq!(masters.get("/api/v1/secrets").await.code, 401);
    let other = Client::connect(&server, as_proxy("other", None)).await;
    assert_eq!(
        other
            .with("x-remote-user", "ann")
            .post(who, &review)
            .await
            .code,
        401
    );
    // Only a trusted proxy may set identity headers.
    let admin = Client::admin(&server).await;
    let told = admin
        .with("x-remote-user", "ann")
        .post(who, &review)
        .await
        .expect(201);
    assert_eq!(told["status"]["userInfo"]["username"], "admin");
    let anonymous = Client::anonymous(&server)
        .await
        .with("x-remote-user", "admin");
    assert_eq!(anonymous.post(who, &review).await.code, 403);
    server.stop().await;
}

#[tokio::test]
async fn aggregated_servers_learn_how_to_authenticate() {
    let server = TestServer::start_with(settings()).await.unwrap();
    let client = Client::admin(&server).await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let data = client.get(path).await.expect(200)["data"].clone();
    for (key, value) in [
        ("requestheader-allowed-names", "[\"front-proxy-client\"]"),
        ("requestheader-username-headers", "[\"X-Remote-User\"]"),
        ("requestheader-uid-headers", "[\"X-Remote-Uid\"]"),
        ("requestheader-group-headers", "[\"X-Remote-Group\"]"),
        (
            "requestheader-extra-headers-prefix",
            "[\"X-Remote-Extra-\"]",
        ),
    ] {
        assert_eq!(data[key], value, "{key}");
    }
    for key in ["client-ca-file", "requestheader-client-ca-file"] {
        let pem = data[key].as_str().unwrap();
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
    }
    assert_ne!(data["client-ca-file"], data["requestheader-client-ca-file"]);
    server.stop().await;
}

#[tokio::test]
async fn what_the_server_serves_itself_has_local_api_services() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let listed = client.get(API_SERVICES).await.expect(200);
    let find = |listed: &Value, name: &str| {
        let items = listed["items"].as_array().unwrap().iter();
        let found = items.filter(|it| it["metadata"]["name"] == name).cloned();
        found.collect::<Vec<_>>().pop()
    };
    for (name, group, group_priority, version_priority) in [
        ("v1.", "", 18_000, 1),
        ("v1.apps", "apps", 17_800, 15),
        ("v2.autoscaling", "autoscaling", 17_500, 30),
        (
            "v1.admissionregistration.k8s.io",
            "admissionregistration.k8s.io",
            16_700,
            15,
        ),
    ] {
        let found = find(&listed, name).unwrap();
        assert_eq!(
            found["metadata"]["labels"],
            json!({"kube-aggregator.kubernetes.io/automanaged": "onstart"})
        );
        assert_eq!(
            found["spec"].get("group"),
            Some(&json!(group)).filter(|_| !group.is_empty())
        );
        assert_eq!(found["spec"]["groupPriorityMinimum"], group_priority);
        assert_eq!(found["spec"]["versionPriority"], version_priority);
        let condition = &found["status"]["conditions"][0];
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], "Local");
    }
    // The aggregator does not create an APIService for its own group.
    assert_eq!(find(&listed, "v1.apiregistration.k8s.io"), None);

    // The APIServices of a CustomResourceDefinition are created, deleted and reset with it.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = definition(json!([open_version("v1", true)]));
    let name = format!("v1.{}", definition["spec"]["group"].as_str().unwrap());
    client.create(definitions, definition.clone()).await;
    let made = client.wait_until(API_SERVICES, &name, |_| true).await;
    assert_eq!(
        made["metadata"]["labels"],
        json!({"kube-aggregator.kubernetes.io/automanaged": "true"})
    );
    assert_eq!(made["spec"]["groupPriorityMinimum"], 1_000);
    assert_eq!(made["spec"]["versionPriority"], 100);
    let path = format!("{API_SERVICES}/{name}");
    let patch = json!({"spec": {"versionPriority": 7}});
    client.patch(&path, "merge", &patch).await.expect(200);
    let is_right = |object: &Value| object["spec"]["versionPriority"] == 100;
    client.wait_until(API_SERVICES, &name, is_right).await;
    client.delete(&path).await.expect(200);
    let is_another = |object: &Value| object["metadata"]["uid"] != made["metadata"]["uid"];
    client.wait_until(API_SERVICES, &name, is_another).await;
    let defined = definition["metadata"]["name"].as_str().unwrap();
    let defined = format!("{definitions}/{defined}");
    client.delete(&defined).await.expect(200);
    client.wait_until_gone(API_SERVICES, &name).await;

    // One that is not managed automatically is left to its owner.
    client
        .delete(&format!("{API_SERVICES}/v1.apps"))
        .await
        .expect(200);
    client.get("/apis/apps/v1").await.expect(200);
    server.stop().await;
}
