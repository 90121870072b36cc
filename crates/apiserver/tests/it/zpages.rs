//! Debugging pages: status, flags, and health check results.

use std::collections::BTreeMap;

use http::Method;
use lockgate_apiserver::{FeatureGates, KubeVersion, Settings};
use serde_json::json;

use crate::support::*;

fn with_flags() -> Settings {
    let flags = [("secure-port", "0"), ("data-dir", "")];
    let flags: BTreeMap<String, String> = flags
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    Settings {
        flags: Some(flags),
        ..settings()
    }
}

async fn asked(client: &Client, path: &str, accept: &str) -> Answer {
    client
        .request(Method::GET, path, &[("accept", accept)], "")
        .await
}

#[tokio::test]
async fn pages_are_text_unless_objects_are_asked_for() {
    let server = start_with(with_flags()).await;
    let admin = Client::admin(&server).await;
    let warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
                   compatibility guarantees and is for debugging purposes only.";
    for accept in [
        "",
        "*/*",
        "application/json, */*",
        "text/plain",
        "text/*;q=0.5",
    ] {
        let status = match accept {
            "" => admin.get("/statusz").await,
            accept => asked(&admin, "/statusz", accept).await,
        };
        assert_eq!(status.code, 200, "{accept}");
        assert_eq!(status.header("content-type"), "text/plain; charset=utf-8");
        let text = status.text();
        let head = format!("\napiserver statusz\n{warning}\n\nStarted: ");
        assert!(text.starts_with(&head), "{text}");
        assert!(text.contains("\nUp: 0 hr 00 min "), "{text}");
        assert!(text.contains("\nBinary version: 1.36.4"), "{text}");
        assert!(text.contains("\nEmulation version: 1.36\n"), "{text}");
        let paths = "\nPaths: /configz /flagz /healthz /livez /metrics /readyz /version\n";
        assert!(text.ends_with(paths), "{text}");
    }
    assert_eq!(
        admin.get("/flagz").await.text(),
        format!("\napiserver flagz\n{warning}\ndata-dir=\nsecure-port=0\n")
    );
    let listed = admin.get("/").await.expect(200);
    for path in ["/flagz", "/metrics/slis", "/statusz"] {
        assert!(listed["paths"].as_array().unwrap().contains(&json!(path)));
    }

    let form = |version: &str, kind: &str| {
        format!("application/json;g=config.k8s.io;v={version};as={kind}")
    };
    let found = asked(&admin, "/flagz", &form("v1beta1", "Flagz")).await;
    assert_eq!(found.header("content-type"), form("v1beta1", "Flagz"));
    assert_eq!(found.header("warning"), "");
    assert_eq!(
        found.text(),
        "{\"kind\":\"Flagz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\"metadata\":{\"name\":\"apiserver\"},\
         \"flags\":{\"data-dir\":\"\",\"secure-port\":\"0\"}}"
    );
    let found = asked(&admin, "/statusz", &form("v1alpha1", "Statusz")).await;
    assert_eq!(
        found.warnings(),
        ["This version of the statusz endpoint is deprecated. Please use a newer version."]
    );
    let found = found.expect(200);
    assert_eq!(
        (&found["kind"], &found["apiVersion"], &found["metadata"]),
        (
            &json!("Statusz"),
            &json!("config.k8s.io/v1alpha1"),
            &json!({"name": "apiserver"})
        )
    );
    assert!(found["startTime"].is_string() && found["uptimeSeconds"].is_u64());
    let yaml = form("v1beta1", "Statusz").replace("json", "yaml");
    let found = asked(&admin, "/statusz", &yaml).await;
    assert_eq!(found.header("content-type"), yaml);
    assert!(
        found.text().contains("\nkind: Statusz\n"),
        "{}",
        found.text()
    );
    for accept in [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        &form("v1", "Statusz"),
        &form("v1beta1", "Flagz"),
        "text/plain;as=Statusz;v=v1beta1;g=config.k8s.io",
        "text/html",
    ] {
        asked(&admin, "/statusz", accept).await.refused(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, \
             text/plain",
        );
    }
    // They require the permission to read metrics.
    let ann = admin.taken_for("ann");
    let monitor = ann.with("impersonate-group", "system:monitoring");
    for path in ["/statusz", "/flagz", "/metrics/slis"] {
        assert_eq!(ann.get(path).await.code, 403);
        assert_eq!(monitor.get(path).await.code, 200);
    }
    server.stop().await;
}

#[tokio::test]
async fn pages_are_there_since_1_36_and_flags_where_they_are_told() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    assert_eq!(admin.get("/statusz").await.code, 200);
    assert_eq!(admin.get("/flagz").await.code, 404);
    server.stop().await;
    let server = start_with(Settings {
        feature_gates: FeatureGates::of(KubeVersion::V1_35),
        ..with_flags()
    })
    .await;
    let admin = Client::admin(&server).await;
    for path in ["/statusz", "/flagz"] {
        assert_eq!(admin.get(path).await.code, 404);
    }
    server.stop().await;
}

#[tokio::test]
async fn health_checks_are_counted_when_probes_run_them() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let slis = || async {
        let found = admin.get("/metrics/slis").await;
        assert_eq!(
            found.header("content-type"),
            "text/plain; version=0.0.4; charset=utf-8"
        );
        found.text()
    };
    let before = slis().await;
    assert!(!before.contains("kubernetes_healthcheck"), "{before}");
    #[cfg(target_os = "linux")]
    assert!(before.contains("\nprocess_start_time_seconds "), "{before}");
    for path in [
        "/livez",
        "/livez?verbose",
        "/livez?exclude=etcd",
        "/readyz",
        "/livez/ping",
    ] {
        assert_eq!(admin.get(path).await.code, 200);
    }
    let after = slis().await;
    for line in [
        "kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1",
        "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 3",
        // Excluded checks are not run.
        "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"livez\"} 2",
        "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"readyz\"} 1",
    ] {
        assert!(after.lines().any(|found| found == line), "{line}\n{after}");
    }
    assert!(!after.contains("healthz"), "{after}");
    let metrics = admin.get("/metrics").await.text();
    assert!(!metrics.contains("kubernetes_healthcheck"));
    server.stop().await;
}
