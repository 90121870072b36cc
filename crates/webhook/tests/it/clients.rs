//! Client authentication.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lockgate_testkit::certs::Authority;
use lockgate_webhook::server::{Certificates, ClientAuth, Running, Server, StartError};

use crate::support::{Client, post, review, until, webhooks};

struct Setup {
    folder: tempfile::TempDir,
    server: Authority,
    clients: Authority,
}

impl Setup {
    fn new() -> Self {
        let setup = Self {
            folder: tempfile::tempdir().unwrap(),
            server: Authority::new("server-ca"),
            clients: Authority::new("client-ca"),
        };
        let identity = setup.server.issue(&["127.0.0.1"]);
        fs::write(setup.path().join("tls.crt"), identity.certificate_pem).unwrap();
        fs::write(setup.path().join("tls.key"), identity.key_pem).unwrap();
        fs::write(setup.path().join("ca.crt"), setup.clients.pem()).unwrap();
        setup
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn start(&self, auth: ClientAuth) -> Running {
        let certificates = Certificates::folder(self.path()).poll(Duration::from_secs(3600));
        let server = Server::new(webhooks()).listen(([127, 0, 0, 1], 0));
        let server = server.certificates(certificates).client_auth(auth);
        server.shutdown_delay(Duration::ZERO).start().await.unwrap()
    }

    fn client(&self, authority: &Authority, names: &[&str]) -> Client {
        let identity = authority.issue_for_clients(names);
        let pair = (&*identity.certificate_pem, &*identity.key_pem);
        Client::with_identity(self.server.pem(), Some(pair))
    }
}

/// The status code, or `None` if the connection fails.
async fn code(client: &Client, running: &Running) -> Option<u16> {
    let reply = client.review(running.address(), "/validate").await;
    reply.ok().map(|reply| reply.code)
}

#[tokio::test]
async fn only_certificates_of_the_authority_are_let_in() {
    let setup = Setup::new();
    let auth = ClientAuth::new().client_ca(setup.path().join("ca.crt"));
    let running = setup.start(auth).await;
    assert!(running.is_ready().await);
    let good = setup.client(&setup.clients, &["apiserver"]);
    assert_eq!(code(&good, &running).await, Some(200));
    let stranger = setup.client(&Authority::new("other"), &["apiserver"]);
    assert_eq!(code(&stranger, &running).await, None);
    let nobody = Client::trusting(setup.server.pem());
    assert_eq!(code(&nobody, &running).await, None);

    // From now on another CA is trusted.
    let others = Authority::new("others");
    fs::write(setup.path().join("ca.crt"), others.pem()).unwrap();
    let newcomer = setup.client(&others, &["apiserver"]);
    until("the new authority counts", || async {
        code(&newcomer, &running).await == Some(200)
    })
    .await;
    assert_eq!(code(&good, &running).await, None);
    // An invalid file changes nothing.
    fs::write(setup.path().join("ca.crt"), "nothing").unwrap();
    assert_eq!(code(&newcomer, &running).await, Some(200));
    running.stop().await;
}

#[tokio::test]
async fn without_the_authorities_file_nobody_is_let_in() {
    let setup = Setup::new();
    let auth = ClientAuth::new().client_ca(setup.path().join("missing.crt"));
    let running = setup.start(auth).await;
    assert!(!running.is_ready().await);
    let nobody = Client::trusting(setup.server.pem());
    assert_eq!(code(&nobody, &running).await, None);
    running.stop().await;
}

#[tokio::test]
async fn only_some_names_may_call() {
    let setup = Setup::new();
    let auth = ClientAuth::new()
        .client_ca(setup.path().join("ca.crt"))
        .allow_name("kube-apiserver")
        .allow_name("webhook-caller.example.com");
    let running = setup.start(auth).await;
    for (names, want) in [
        (&["kube-apiserver"][..], 200),
        (&["a.example.com", "webhook-caller.example.com"], 200),
        (&["kube-apiserver.evil.com"], 403),
        (&["kubelet"], 403),
    ] {
        let client = setup.client(&setup.clients, names);
        assert_eq!(code(&client, &running).await, Some(want), "{names:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_bearer_token_is_needed_when_one_is_asked_for() {
    let setup = Setup::new();
    let (old, new) = (setup.path().join("old"), setup.path().join("new"));
    fs::write(&old, "first\n").unwrap();
    fs::write(&new, "").unwrap();
    let auth = ClientAuth::new().bearer_tokens(&old).bearer_tokens(&new);
    let running = setup.start(auth).await;
    assert!(running.is_ready().await);
    let client = Client::trusting(setup.server.pem());
    let shows = |token: &str| {
        let mut request = post("/validate", review());
        if !token.is_empty() {
            let value = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", value);
        }
        let (client, address) = (client.clone(), running.address());
        async move { client.send(address, request).await.unwrap() }
    };
    let reply = shows("").await;
    assert_eq!(
        (reply.code, reply.header("www-authenticate")),
        (401, "Bearer")
    );
    assert_eq!(shows("wrong").await.code, 401);
    assert_eq!(shows("first").await.code, 200);
    // The response does not disclose which paths exist.
    let reply = client
        .send(running.address(), post("/nowhere", ""))
        .await
        .unwrap();
    assert_eq!(reply.code, 401);
    // Reloaded without a gap.
    fs::write(&new, "second\n").unwrap();
    until("both are good", || async {
        shows("second").await.code == 200
    })
    .await;
    assert_eq!(shows("first").await.code, 200);
    fs::write(&old, "").unwrap();
    until("the old one is not", || async {
        shows("first").await.code == 401
    })
    .await;
    assert_eq!(shows("second").await.code, 200);
    running.stop().await;
}

#[tokio::test]
async fn without_a_token_to_show_it_is_not_ready() {
    let setup = Setup::new();
    let file = setup.path().join("token");
    let running = setup.start(ClientAuth::new().bearer_tokens(&file)).await;
    assert!(!running.is_ready().await);
    let client = Client::trusting(setup.server.pem());
    assert_eq!(code(&client, &running).await, Some(401));
    fs::write(&file, "secret").unwrap();
    until("ready", || running.is_ready()).await;
    running.stop().await;
}

#[tokio::test]
async fn names_without_authorities_are_a_mistake() {
    let auth = ClientAuth::new().allow_name("kube-apiserver");
    let server = Server::new(webhooks()).listen(([127, 0, 0, 1], 0));
    let error = server.client_auth(auth).start().await.unwrap_err();
    assert!(
        matches!(error, StartError::NamesWithoutAuthorities),
        "{error}"
    );
}

#[tokio::test]
async fn users_show_their_passwords_and_paths_have_requirements_of_their_own() {
    let setup = Setup::new();
    let file = |name: &str, text: &str| {
        let path = setup.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let auth = ClientAuth::new()
        .client_ca(setup.path().join("ca.crt"))
        .bearer_tokens(file("tokens", "secret\n"))
        .at(
            "/mutate",
            ClientAuth::new()
                .basic_auth(file("users", "ann:pass\n"))
                .allow_name("apiserver"),
        )
        .at("/fault", ClientAuth::new());
    let running = setup.start(auth).await;
    assert!(running.is_ready().await);
    let apiserver = setup.client(&setup.clients, &["apiserver"]);
    let other = setup.client(&setup.clients, &["other"]);
    let basic = format!("Basic {}", lockgate_go::base64::encode(b"ann:pass"));
    let wrong = format!("Basic {}", lockgate_go::base64::encode(b"ann:other"));
    let ask = async |client: &Client, path: &str, shown: &str| {
        let mut request = post(path, review());
        if !shown.is_empty() {
            let headers = request.headers_mut();
            headers.insert("authorization", shown.parse().unwrap());
        }
        let reply = client.send(running.address(), request).await.unwrap();
        (reply.code, reply.header("www-authenticate").to_owned())
    };
    let none = String::new;
    let bearer = || String::from("Bearer");
    let realm = || String::from("Basic realm=\"webhooks\"");
    for (client, path, shown, wanted) in [
        (&other, "/validate", "Bearer secret", (200, none())),
        (&other, "/validate", basic.as_str(), (401, bearer())),
        (&apiserver, "/mutate", basic.as_str(), (200, none())),
        (&apiserver, "/mutate", wrong.as_str(), (401, realm())),
        (&apiserver, "/mutate", "Bearer secret", (401, realm())),
        (&apiserver, "/mutate", "", (401, realm())),
        (&other, "/mutate", basic.as_str(), (403, none())),
        (&other, "/fault", "", (500, none())),
        // Unknown paths are rejected by the server as well.
        (&other, "/nowhere", "", (401, bearer())),
    ] {
        assert_eq!(ask(client, path, shown).await, wanted, "{path} {shown}");
    }
    let away = Client::trusting(setup.server.pem());
    assert!(away.review(running.address(), "/fault").await.is_err());
    running.stop().await;
}
