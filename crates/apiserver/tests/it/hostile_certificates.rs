//! A client certificate that is not trusted authenticates no user: neither its subject nor the anonymous user.

use std::sync::Arc;

use http::Method;
use lockgate_apiserver::{Settings, TestServer};
use lockgate_certs::{Authority, Leaf, Pair};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use crate::support::*;

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A server that trusts a client CA and a token.
async fn trusting(authority: &Authority) -> (TestServer, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, "secret,carl,42,\"one\"\n").unwrap();
    let server = start_with(Settings {
        client_ca_file: Some(ca),
        token_auth_file: Some(tokens),
        ..settings()
    })
    .await;
    (server, folder)
}

/// A client with a certificate, and optionally a token.
async fn showing(server: &TestServer, shown: &Pair, token: Option<&str>) -> Client {
    let header = |token| (String::from("authorization"), format!("Bearer {token}"));
    let credentials = Credentials {
        certificate: Some((shown.certificate_pem.clone(), shown.key_pem.clone())),
        headers: token.map(header).into_iter().collect(),
    };
    Client::connect(server, credentials).await
}

async fn name(client: &Client) -> Result<Value, u16> {
    let kind = [("content-type", "application/json")];
    let answer = client.request(Method::POST, WHO, &kind, "{}").await;
    match answer.code {
        201 => Ok(answer.json()["status"]["userInfo"]["username"].clone()),
        code => Err(code),
    }
}

#[tokio::test]
async fn nobody_is_who_an_untrusted_certificate_says() {
    let authority = Authority::new("users").unwrap();
    let (server, _folder) = trusting(&authority).await;
    let masters = Leaf::client("admin", Some("system:masters"));
    let issue = |leaf: &Leaf| authority.issue(leaf).unwrap();
    let good = issue(&masters);
    assert_eq!(
        name(&showing(&server, &good, None).await).await.unwrap(),
        "admin"
    );

    let of_the_same_name = Authority::new("users").unwrap();
    let untrusted = [
        ("itself", masters.self_signed().unwrap()),
        (
            "another authority of the name",
            of_the_same_name.issue(&masters).unwrap(),
        ),
        (
            "expired",
            issue(&masters.clone().valid_in_years(2001, 2002)),
        ),
        (
            "not yet",
            issue(&masters.clone().valid_in_years(4000, 4001)),
        ),
        ("of a server", issue(&Leaf::server("admin", ["admin.test"]))),
    ];
    for (why, shown) in &untrusted {
        let client = showing(&server, shown, None).await;
        // Also for public paths.
        for path in [
            "/healthz",
            "/version",
            "/api/v1/secrets",
            "/api/v1/namespaces/default",
        ] {
            let answer = client.get(path).await;
            assert_eq!(answer.code, 401, "{why} {path}");
            answer.refused(401, "Unauthorized", "Unauthorized");
        }
        // A token is still tried, and provides the entire identity.
        let with_token = showing(&server, shown, Some("secret")).await;
        assert_eq!(name(&with_token).await.unwrap(), "carl", "{why}");
        let guessing = showing(&server, shown, Some("guess")).await;
        assert_eq!(name(&guessing).await, Err(401), "{why}");
    }
    // A trusted certificate takes precedence over a token.
    let both = showing(&server, &good, Some("guess")).await;
    assert_eq!(name(&both).await.unwrap(), "admin");
    server.stop().await;
}

/// Presents a certificate with the key of another.
#[derive(Debug)]
struct Thief(Arc<CertifiedKey>);

impl ResolvesClientCert for Thief {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_ends_the_handshake() {
    let authority = Authority::new("users").unwrap();
    let (server, _folder) = trusting(&authority).await;
    let leaf = Leaf::client("admin", Some("system:masters"));
    let (stolen, own) = (
        authority.issue(&leaf).unwrap(),
        authority.issue(&leaf).unwrap(),
    );
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).unwrap())
        .unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from_pem_slice(own.key_pem.as_bytes()).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        let shown = CertificateDer::from_pem_slice(stolen.certificate_pem.as_bytes()).unwrap();
        let thief = Thief(Arc::new(CertifiedKey::new(vec![shown], key)));
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_client_cert_resolver(Arc::new(thief));
        let tls = TlsConnector::from(Arc::new(config));
        let socket = within(tokio::net::TcpStream::connect(server.address()))
            .await
            .unwrap();
        let address = server.address().ip().into();
        // With TLS 1.3 the handshake completes on the client before the server verifies the signature.
        let answer = async {
            let mut stream = tls.connect(address, socket).await?;
            stream
                .write_all(b"GET /version HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                .await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let failure = within(answer)
            .await
            .expect_err("somebody else's certificate");
        assert!(
            failure.to_string().contains("DecryptError"),
            "{version:?}: {failure}"
        );
    }
    server.stop().await;
}
