//! One log line per decision, without sensitive data.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockgate_webhook::server::{ClientAuth, Server};
use lockgate_webhook::testing::{Review, serve_with};
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{Client, post, webhooks};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

// A single thread, so that its subscriber receives all events.
#[tokio::test(flavor = "current_thread")]
async fn a_decision_is_one_line_without_the_object() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "hush-hush").unwrap();
    let served =
        serve_with(Server::new(webhooks()).client_auth(ClientAuth::new().bearer_tokens(&token)))
            .await;
    let client = Client::trusting(served.ca_bundle());
    let send = |path: &str, review: &Review| {
        let mut request = post(path, review.to_json());
        request
            .headers_mut()
            .insert("authorization", "Bearer hush-hush".parse().unwrap());
        client.send(served.address(), request)
    };
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: prod}, data: {deny: top secret}}";
    let review = Review::create(object)
        .user("mallory\nINFO forged line")
        .dry_run();
    // Another test may register the same callsites concurrently without a subscriber, which disables them until
    // interest is computed again.
    let decided = || String::from_utf8_lossy(&lines.0.lock().unwrap()).contains(": decided ");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !decided() {
        assert!(Instant::now() < deadline, "decisions are not logged");
        tracing::callsite::rebuild_interest_cache();
        send("/validate", &review).await.unwrap();
    }
    lines.0.lock().unwrap().clear();

    send("/validate", &review).await.unwrap();
    send("/fault", &review).await.unwrap();
    let long = Review::create(object).user("u".repeat(100_000));
    send("/mutate", &long).await.unwrap();
    served.stop().await;

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let decided: Vec<_> = text
        .lines()
        .filter(|line| line.contains(": decided "))
        .collect();
    assert_eq!(decided.len(), 2, "{text}");
    for part in [
        "webhook=\"strict.example.com\"",
        "uid=\"705ab4f5-6393-11e8-b7cc-42010a800002\"",
        "operation=\"CREATE\"",
        "resource=\"configmaps\"",
        "namespace=\"prod\"",
        "name=\"a\"",
        "user=\"mallory\\nINFO forged line\"",
        "dry_run=true",
        "decision=\"deny\"",
        "code=403",
        "ms=",
    ] {
        assert!(decided[0].contains(part), "{part} in {}", decided[0]);
    }
    let failed = text
        .lines()
        .find(|line| line.contains("could not decide"))
        .unwrap();
    assert!(
        failed.contains("the database is away") && failed.contains("decision=\"error\""),
        "{failed}"
    );
    for secret in ["top secret", "hush-hush", "\nINFO forged"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert!(text.len() < 20_000, "{}", text.len());
}
