//! Every request is in the audit log, which only its owner can read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use http::{Method, Request};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockgate_apiserver::Settings;
use serde_json::{Value, json};

use crate::support::*;

fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// All stages of all requests, without bodies.
fn every_stage(log: &Path) -> Settings {
    let policy = log.with_extension("yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
    std::fs::write(&policy, text).unwrap();
    Settings {
        audit_policy_file: Some(policy),
        ..audited(log)
    }
}

fn audited(log: &Path) -> Settings {
    Settings {
        audit_log_path: Some(log.to_owned()),
        ..settings()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_client_is_gone_is_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(every_stage(&log)).await;
    let admin = Client::admin(&server).await;
    const ROUNDS: usize = 60;
    // Each request is reset immediately after sending.
    let credentials = crate::support::admin(&server);
    let stream = connect(&tls(&server, &credentials, "h2"), server.address()).await;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for round in 0..ROUNDS {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("https://server{CONFIG_MAPS}"))
            .header("content-type", "application/json")
            .body(body(config_map(&format!("evades-{round}")).to_string()))
            .unwrap();
        let mut sender = sender.clone();
        within(sender.ready()).await.unwrap();
        let answer = sender.send_request(request);
        // The request may be in progress when it is reset.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(2), answer).await;
    }
    admin.get("/livez").await;
    // Requests in progress complete before the server stops.
    let stored = admin.get(CONFIG_MAPS).await.expect(200);
    let stored: Vec<String> = names(&stored).into_iter().map(str::to_owned).collect();
    drop((sender, admin));
    server.stop().await;
    let events = events(&log);
    for name in stored.iter().filter(|name| name.starts_with("evades-")) {
        for stage in ["RequestReceived", "ResponseComplete"] {
            let found = events.iter().any(|event| {
                event["stage"] == stage
                    && event["verb"] == "create"
                    && (event["objectRef"]["name"] == *name || stage == "RequestReceived")
            });
            assert!(found, "{name} {stage}");
        }
    }
    let count = |stage: &str| {
        events
            .iter()
            .filter(|event| event["stage"] == stage)
            .count()
    };
    assert_eq!(count("RequestReceived"), count("ResponseComplete"));
}

#[tokio::test]
async fn a_request_is_in_the_log_before_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(every_stage(&log)).await;
    let admin = Client::admin(&server).await;
    // A watch is not complete, but its start is logged.
    let watch = admin.watch(CONFIG_MAPS).await;
    let found = events(&log);
    assert_eq!(found.len(), 2, "{found:?}");
    drop(watch);
    admin.get(&format!("{CONFIG_MAPS}/none")).await;
    let last = &events(&log)[2..];
    assert_eq!(last[0]["stage"], "RequestReceived");
    assert_eq!(last[0]["objectRef"]["name"], "none");
    assert_eq!(last[0]["user"]["username"], "admin");
    assert_eq!(last[1]["stage"], "ResponseComplete");
    assert_eq!(last[1]["responseStatus"]["code"], 404);
    server.stop().await;
}

#[tokio::test]
async fn the_log_is_private_and_shows_no_secrets_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    std::fs::write(&log, "").unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o644)).unwrap();
    let server = start_with(audited(&log)).await;
    let admin = Client::admin(&server).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    admin
        .create("/api/v1/namespaces/default/secrets", secret)
        .await;
    admin
        .get("/api/v1/namespaces/default/secrets/s")
        .await
        .expect(200);
    server.stop().await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("\"secrets\""));
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"));
    let mode = std::fs::metadata(&log).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    // A symlink to another file is not accepted as a log.
    let target = folder.path().join("victim");
    std::fs::write(&target, "precious").unwrap();
    let link = folder.path().join("link.log");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let refused = lockgate_apiserver::TestServer::start_with(audited(&link)).await;
    assert!(refused.is_err());
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
}

#[tokio::test]
async fn keys_of_a_folder_are_private_and_certificates_end() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let settings = || Settings {
        cert_dir: Some(certs.clone()),
        ..settings()
    };
    start_with(settings()).await.stop().await;
    let mode = |name: &str| {
        let found = std::fs::metadata(certs.join(name)).unwrap();
        found.permissions().mode() & 0o777
    };
    let loose = std::fs::Permissions::from_mode(0o644);
    for key in ["ca.key", "apiserver.key", "sa.key"] {
        assert_eq!(mode(key), 0o600, "{key}");
        std::fs::set_permissions(certs.join(key), loose.clone()).unwrap();
    }
    std::fs::set_permissions(&certs, std::fs::Permissions::from_mode(0o777)).unwrap();
    let server = start_with(settings()).await;
    for key in ["ca.key", "apiserver.key", "sa.key"] {
        assert_eq!(mode(key), 0o600, "{key}");
    }
    assert_eq!(mode("."), 0o755);
    let (admin, _) = server.admin();
    for (pem, days) in [(admin, 365), (server.ca_pem(), 3650)] {
        use rustls::pki_types::pem::PemObject as _;
        use x509_parser::prelude::FromDer as _;
        let der = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (_, parsed) = x509_parser::prelude::X509Certificate::from_der(&der).unwrap();
        let validity = parsed.validity();
        let lasts = validity.not_after.timestamp() - validity.not_before.timestamp();
        assert!(lasts <= days * 24 * 3600 + 3600, "{lasts}");
        assert!(validity.is_valid());
    }
    server.stop().await;
}
