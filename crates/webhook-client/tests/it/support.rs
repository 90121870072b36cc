//! Test support.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_api::decode::Bytes;
use lockgate_api::registration::hub::{ClientConfig, ServiceReference};
use lockgate_testkit::WebhookServer;
use lockgate_webhook_client::call::{
    CallError, Caller as _, Client, HttpResponse, Phase, Post, Posted,
};
use lockgate_webhook_client::{HttpsCaller, Settings};

/// Long enough for any call without a deliberate delay.
pub(crate) const AMPLE: Duration = Duration::from_secs(10);

/// The tolerated delay after the deadline on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

pub(crate) const REVIEW: &str =
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}"#;

pub(crate) fn caller() -> HttpsCaller {
    HttpsCaller::new(Settings::default())
}

pub(crate) fn url_config(url: &str, ca_pem: &str) -> ClientConfig {
    ClientConfig {
        url: Some(url.to_owned()),
        service: None,
        ca_bundle: Some(Bytes(ca_pem.as_bytes().to_vec())),
    }
}

pub(crate) fn service_config(name: &str, port: Option<i32>, ca_pem: &str) -> ClientConfig {
    ClientConfig {
        url: None,
        service: Some(ServiceReference {
            namespace: String::from("default"),
            name: name.to_owned(),
            path: Some(String::from("/validate")),
            port,
        }),
        ca_bundle: Some(Bytes(ca_pem.as_bytes().to_vec())),
    }
}

pub(crate) fn client_of(server: &WebhookServer, path: &str) -> Arc<dyn Client> {
    let config = url_config(&server.url(path), server.ca_pem());
    caller().client(&config).expect("a client")
}

/// Posts a review, and fails if the call exceeds its deadline.
pub(crate) async fn post(client: &dyn Client, timeout: Duration) -> Posted {
    let posted = client.post(Post {
        body: REVIEW.into(),
        deadline: Some(Instant::now() + timeout),
    });
    tokio::time::timeout(timeout + SLACK, posted)
        .await
        .expect("the call ends with its deadline")
}

pub(crate) async fn answer(client: &dyn Client) -> HttpResponse {
    let posted = post(client, AMPLE).await;
    posted.result.expect("an answer")
}

pub(crate) async fn failure(client: &dyn Client, timeout: Duration) -> CallError {
    let posted = post(client, timeout).await;
    let error = posted.result.expect_err("the call fails");
    let reached = posted.phases.iter().any(|(phase, _)| *phase == error.phase);
    assert!(reached, "{:?} {:?}", error.phase, posted.phases);
    error
}

#[track_caller]
pub(crate) fn says(error: &CallError, phase: Phase, timed_out: bool, message: &str) {
    assert_eq!(error.message, message);
    assert_eq!((error.phase, error.timed_out), (phase, timed_out));
}
