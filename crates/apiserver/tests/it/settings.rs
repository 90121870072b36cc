//! Server settings: feature gates, manifests, admission configuration.

use std::sync::{Arc, Mutex};

use lockgate_apiserver::{FeatureGates, Observer, Settings, StartError, TestServer};
use serde_json::{Value, json};

use crate::support::*;

const CONFIGURATIONS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn configuration(name: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "never.lockgate.test",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}],
            "matchConditions": [{"name": "no", "expression": "false"}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

#[tokio::test]
async fn without_the_gate_new_conditions_are_dropped() {
    let gates = FeatureGates {
        match_conditions: false,
        ..FeatureGates::default()
    };
    let server = start_with(Settings {
        feature_gates: gates,
        ..settings()
    })
    .await;
    let client = Client::admin(&server).await;
    let made = client
        .post(CONFIGURATIONS, &configuration("a"))
        .await
        .expect(201);
    assert_eq!(made["webhooks"][0].get("matchConditions"), None);
    // The condition would have excluded the Secret; without it the unreachable webhook is called.
    let secret = json!({"metadata": {"name": "s"}});
    let answer = client
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .expect(500);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("connection refused"),
        "{answer}"
    );
    server.stop().await;
}

#[tokio::test]
async fn manifests_are_applied_in_order_and_merged() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let manifests = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}, data: {k: v}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: shop}
data: {l: w}
";
    let applied = server.apply(manifests).await.unwrap();
    let names = applied
        .objects
        .iter()
        .map(|object| &object["metadata"]["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["shop", "a", "a"]);
    assert_eq!(applied.objects[2]["data"], json!({"k": "v", "l": "w"}));
    let found = client
        .get("/api/v1/namespaces/shop/configmaps/a")
        .await
        .expect(200);
    assert_eq!(found["data"], json!({"k": "v", "l": "w"}));
    for (text, want) in [
        (
            "{apiVersion: v9, kind: Foo, metadata: {name: x}}",
            "v9 Foo x: unknown kind; apply its CRD first",
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: nowhere}}",
            "v1 ConfigMap x: namespaces \"nowhere\" not found",
        ),
    ] {
        assert_eq!(server.apply(text).await.unwrap_err().to_string(), want);
    }
    server.stop().await;
}

/// An AdmissionConfiguration whose validating webhooks are in manifest files.
fn with_manifests(folder: &std::path::Path) -> std::path::PathBuf {
    let manifests = folder.join("manifests");
    std::fs::create_dir_all(&manifests).unwrap();
    let mut hook = configuration("guard.static.k8s.io");
    hook["webhooks"][0]
        .as_object_mut()
        .unwrap()
        .remove("matchConditions");
    std::fs::write(manifests.join("guard.json"), hook.to_string()).unwrap();
    let file = folder.join("admission.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\n\
         kind: AdmissionConfiguration\n\
         plugins:\n\
         - name: ValidatingAdmissionWebhook\n  \
           configuration:\n    \
             apiVersion: apiserver.config.k8s.io/v1\n    \
             kind: WebhookAdmissionConfiguration\n    \
             staticManifestsDir: {}\n",
        manifests.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

#[tokio::test]
async fn webhooks_from_files_need_their_gate() {
    let folder = tempfile::tempdir().unwrap();
    let file = with_manifests(folder.path());
    let settings = Settings {
        admission_control_config_file: Some(file),
        ..settings()
    };
    let refused = TestServer::start_with(settings.clone()).await;
    let Err(StartError::Admission(why)) = refused else {
        panic!("it started");
    };
    assert!(
        why.contains("requires the ManifestBasedAdmissionControlConfig feature gate"),
        "{why}"
    );

    let gates = FeatureGates {
        static_manifests: true,
        ..FeatureGates::default()
    };
    let server = start_with(Settings {
        feature_gates: gates,
        ..settings
    })
    .await;
    let client = Client::admin(&server).await;
    let secret = json!({"metadata": {"name": "s"}});
    let answer = client
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .expect(500);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("connection refused"),
        "{answer}"
    );
    // Their names are reserved for manifests.
    let answer = client
        .post(CONFIGURATIONS, &configuration("guard.static.k8s.io"))
        .await
        .expect(422);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("reserved for static manifest-based"),
        "{answer}"
    );
    server.stop().await;
}

#[tokio::test]
async fn an_observer_is_told_of_every_run() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&told);
    let observer = Observer::new(move |admission| {
        ear.lock().unwrap().push((
            admission.request().name.clone(),
            admission.trace().steps.len(),
        ));
    });
    let server = start_with(Settings {
        observer: Some(observer),
        ..settings()
    })
    .await;
    let client = Client::admin(&server).await;
    client
        .post("/api/v1/namespaces/default/configmaps", &config_map("seen"))
        .await
        .expect(201);
    assert_eq!(*told.lock().unwrap(), [(String::from("seen"), 2)]);
    server.stop().await;
}

#[tokio::test]
async fn webhooks_on_loopback_may_be_plain_http_when_it_is_allowed() {
    const TEXT: &str = "Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]";
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let at = |name: &str, url: &str| {
        let mut object = configuration(name);
        object["webhooks"][0]["clientConfig"]["url"] = url.into();
        object
    };
    let definition = |url: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": {"url": url},
                }},
            },
        })
    };
    for allowed in [false, true] {
        let mut settings = settings();
        settings.feature_gates.http_on_loopback = allowed;
        let server = TestServer::start_with(settings).await.unwrap();
        let client = Client::admin(&server).await;
        let local = client
            .post(CONFIGURATIONS, &at("local", "http://localhost:8080/x"))
            .await;
        let crd = client
            .post(DEFINITIONS, &definition("http://127.0.0.1:8080/convert"))
            .await;
        if allowed {
            // It is stored unchanged.
            let stored = local.expect(201);
            let url = &stored["webhooks"][0]["clientConfig"]["url"];
            assert_eq!(url, "http://localhost:8080/x");
            crd.expect(201);
            let moved = client
                .patch(
                    &format!("{CONFIGURATIONS}/local"),
                    "json",
                    &json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": "http://[::1]/y"}]),
                )
                .await
                .expect(200);
            assert_eq!(
                moved["webhooks"][0]["clientConfig"]["url"],
                "http://[::1]/y"
            );
            let away = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": "http://example.com/y"}]);
            let refused = client
                .patch(&format!("{CONFIGURATIONS}/local"), "json", &away)
                .await;
            let refused = refused.expect(422);
            assert!(
                refused["message"].as_str().unwrap().contains(TEXT),
                "{refused}"
            );
        } else {
            for refused in [local.expect(422), crd.expect(422)] {
                assert!(
                    refused["message"].as_str().unwrap().contains(TEXT),
                    "{refused}"
                );
            }
        }
        for url in [
            "http://example.com/x",
            "http://localhost.example.com",
            "http://127.0.0.1.nip.io",
        ] {
            let refused = client
                .post(CONFIGURATIONS, &at("away", url))
                .await
                .expect(422);
            assert!(
                refused["message"].as_str().unwrap().contains(TEXT),
                "{refused}"
            );
        }
        let url = "http://user@localhost:8080/x?a=b#c";
        let refused = client
            .post(CONFIGURATIONS, &at("away", url))
            .await
            .expect(422);
        let message = refused["message"].as_str().unwrap();
        for problem in [
            "user information is not",
            "fragments are not",
            "query parameters are not",
        ] {
            assert!(message.contains(problem), "{message}");
        }
        server.stop().await;
    }
}
