//! The program with handwritten reviews over HTTPS.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockgate_testkit::certs::Authority;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::support::{Program, post, post_as, render};

const NAME: &str = "shaper-webhooks.shaper-system.svc";
const A: &str = "47c6da67-7477-4970-aa03-84e48ff4f6ad";

fn review(version: &str, kind: &str, operation: &str, object: &Value, old: &Value) -> Value {
    json!({
        "apiVersion": format!("admission.k8s.io/{version}"),
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "shaper.amahdha.com", "version": "v1alpha1", "kind": kind},
            "resource": {"group": "shaper.amahdha.com", "version": "v1alpha1", "resource": format!("{}s", kind.to_lowercase())},
            "name": object["metadata"]["name"], "namespace": "default", "operation": operation,
            "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters"]},
            "object": object, "oldObject": old, "dryRun": false, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

fn assignment(spec: &Value) -> Value {
    json!({
        "apiVersion": "shaper.amahdha.com/v1alpha1", "kind": "Assignment",
        "metadata": {"name": "a", "namespace": "default"}, "spec": spec,
    })
}

struct Asked {
    cluster: Cluster,
    program: Program,
    authority: Authority,
}

impl Asked {
    async fn start() -> Self {
        Self::start_with(json!({})).await
    }

    async fn start_with(mut config: Value) -> Self {
        let cluster = Cluster::start().await;
        cluster.apply(&render("shaper-crds", &[]).unwrap()).await;
        let profile = json!({
            "apiVersion": "shaper.amahdha.com/v1alpha1", "kind": "Profile",
            "metadata": {"name": "test-profile", "namespace": "default"}, "spec": {"ipxeTemplate": "#!ipxe"},
        });
        assert!(cluster.create(&profile).await.0);
        let authority = Authority::new("ca");
        let identity = authority.issue(&[NAME]);
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("tls.crt"), identity.certificate_pem).unwrap();
        std::fs::write(folder.path().join("tls.key"), identity.key_pem).unwrap();
        config["kubeconfigPath"] = json!(cluster.kubeconfig());
        config["webhookServer"]["shutdownDelay"] = json!("0s");
        let program = Program::start(config, folder);
        program.until_ready().await;
        Self {
            cluster,
            program,
            authority,
        }
    }

    async fn ask(&self, path: &str, body: &Value) -> (u16, Value) {
        let (code, text) = post(
            self.program.webhooks,
            self.authority.pem(),
            NAME,
            path,
            body,
        )
        .await;
        let answer: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if code == 200 {
            assert_eq!(answer["apiVersion"], body["apiVersion"]);
            assert_eq!(answer["response"]["uid"], body["request"]["uid"]);
        }
        (code, answer["response"].clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_both_versions_at_every_path() {
    let asked = Asked::start().await;
    let good = assignment(
        &json!({"profileName": "test-profile", "subjectSelectors": {"buildarch": ["arm64"], "uuidList": [A.to_uppercase(), format!("{{{}}}", A.replace('4', "5")), format!("urn:uuid:{}", A.replace('4', "6")), A.replace('4', "7").replace('-', "")]}}),
    );
    let bad = assignment(
        &json!({"profileName": "missing", "subjectSelectors": {"buildarch": null, "uuidList": [A]}}),
    );
    for version in ["v1", "v1beta1"] {
        for path in [
            "/mutate-assignment",
            "/mutate-shaper-amahdha-com-v1alpha1-assignment",
        ] {
            let (code, response) = asked
                .ask(
                    path,
                    &review(version, "Assignment", "CREATE", &good, &Value::Null),
                )
                .await;
            assert_eq!(
                (code, &response["allowed"], &response["patchType"]),
                (200, &json!(true), &json!("JSONPatch"))
            );
            let patch = BASE64_STANDARD
                .decode(response["patch"].as_str().unwrap())
                .unwrap();
            let patch: Value = serde_json::from_slice(&patch).unwrap();
            let want: Value = ['4', '5', '6', '7']
                .iter()
                .map(|digit| {
                    (
                        format!(
                            "uuid.shaper.amahdha.com/{}",
                            A.replace('4', &digit.to_string())
                        ),
                        json!(""),
                    )
                })
                .chain([(
                    String::from("buildarch.shaper.amahdha.com/arm64"),
                    json!(""),
                )])
                .collect();
            assert_eq!(
                patch,
                json!([{"op": "add", "path": "/metadata/labels", "value": want}])
            );
        }
        for path in [
            "/validate-assignment",
            "/validate-shaper-amahdha-com-v1alpha1-assignment",
        ] {
            let (code, response) = asked
                .ask(
                    path,
                    &review(version, "Assignment", "CREATE", &good, &Value::Null),
                )
                .await;
            assert_eq!(
                (code, response),
                (
                    200,
                    json!({"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": true})
                )
            );
            let (code, response) = asked
                .ask(
                    path,
                    &review(version, "Assignment", "CREATE", &bad, &Value::Null),
                )
                .await;
            assert_eq!((code, &response["allowed"]), (200, &json!(false)));
            assert_eq!(
                response["status"],
                json!({
                    "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
                    "message": "spec.profileName: Not found: \"missing\": assignment must specify an existing profileName",
                    "details": {"name": "a", "group": "shaper.amahdha.com", "kind": "Assignment",
                        "causes": [{"reason": "FieldValueNotFound", "field": "spec.profileName",
                            "message": "Not found: \"missing\": assignment must specify an existing profileName"}]},
                })
            );
        }
        let profile = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"ipxeTemplate": "{{ .x", "additionalContent": [{"name": "a", "exposed": true, "inline": ""}]}});
        for path in [
            "/mutate-profile",
            "/mutate-shaper-amahdha-com-v1alpha1-profile",
        ] {
            let (code, response) = asked
                .ask(
                    path,
                    &review(version, "Profile", "CREATE", &profile, &Value::Null),
                )
                .await;
            assert_eq!(
                (code, &response["allowed"], &response["warnings"]),
                (
                    200,
                    &json!(true),
                    &json!(["spec.ipxeTemplate: an action `{{` is not closed"])
                )
            );
        }
        for path in [
            "/validate-profile",
            "/validate-shaper-amahdha-com-v1alpha1-profile",
        ] {
            let (code, response) = asked
                .ask(
                    path,
                    &review(version, "Profile", "DELETE", &Value::Null, &profile),
                )
                .await;
            assert_eq!((code, &response["allowed"]), (200, &json!(true)));
        }
    }
    let (code, _) = asked.ask("/nowhere", &json!({})).await;
    assert_eq!(code, 404);
    let (code, _) = asked
        .ask("/validate-assignment", &json!({"kind": "Pod"}))
        .await;
    assert_eq!(code, 400);
    asked.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_at_all_pages_of_a_long_list() {
    let asked = Asked::start().await;
    let api = asked.cluster.api(
        "shaper.amahdha.com",
        "v1alpha1",
        "Assignment",
        Some("default"),
    );
    for number in 0..520 {
        let mut object =
            assignment(&json!({"profileName": "test-profile", "isDefault": number == 519}));
        object["metadata"]["name"] = json!(format!("a-{number:03}"));
        let object = serde_json::from_value(object).unwrap();
        api.create(&Default::default(), &object).await.unwrap();
    }
    let object = assignment(
        &json!({"profileName": "test-profile", "isDefault": true, "subjectSelectors": {"buildarch": ["arm64"]}}),
    );
    let body = review("v1", "Assignment", "CREATE", &object, &Value::Null);
    let (_, response) = asked.ask("/validate-assignment", &body).await;
    let message = "spec.subjectSelectors.buildarch[0]: Duplicate value: \"arm64\": there is a default assignment for this buildarch already: default/a-519";
    assert_eq!(response["status"]["message"], message);
    asked.cluster.stop().await;
}

/// Objects created before the webhooks were installed have no labels.
#[tokio::test(flavor = "multi_thread")]
async fn finds_what_has_no_labels_and_only_where_it_is_told() {
    let taken = json!({"profileName": "test-profile", "subjectSelectors": {"buildarch": ["i386"], "uuidList": [A.to_uppercase()]}, "isDefault": false});
    let mut other = assignment(&taken);
    other["metadata"] = json!({"name": "other", "namespace": "kube-public"});
    let body = review(
        "v1",
        "Assignment",
        "CREATE",
        &assignment(&taken),
        &Value::Null,
    );
    let asked = Asked::start().await;
    assert!(asked.cluster.create(&other).await.0);
    let (_, response) = asked.ask("/validate-assignment", &body).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.ends_with("assignment cannot reference a subject selector referenced by another assignment: kube-public/other"), "{message}");
    asked.cluster.stop().await;

    let asked =
        Asked::start_with(json!({"lookupScope": "Namespaces", "assignmentNamespace": "default"}))
            .await;
    assert!(asked.cluster.create(&other).await.0);
    let (_, response) = asked.ask("/validate-assignment", &body).await;
    assert_eq!(response["allowed"], true, "{response}");
    asked.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_definitions_there_is_nothing_to_find() {
    let asked = Asked::start().await;
    let (passed, text) = asked.cluster.kubectl(&["delete", "crd", "--all"]).await;
    assert!(passed, "{text}");
    let object = json!({
        "metadata": {"name": "p", "namespace": "default", "labels": {format!("uuid.shaper.amahdha.com/{A}"): "a"}},
        "spec": {"ipxeTemplate": "#!ipxe", "additionalContent": [{"name": "a", "exposed": true, "inline": ""}]},
    });
    let body = review("v1", "Profile", "CREATE", &object, &Value::Null);
    for path in ["/mutate-profile", "/validate-profile"] {
        let (code, response) = asked.ask(path, &body).await;
        assert_eq!(
            (code, response),
            (200, json!({"uid": body["request"]["uid"], "allowed": true}))
        );
    }
    let object = assignment(&json!({"profileName": "test-profile"}));
    let body = review("v1", "Assignment", "CREATE", &object, &Value::Null);
    let (_, response) = asked.ask("/validate-assignment", &body).await;
    assert_eq!(response["status"]["code"], 422);
    asked.program.until_ready().await;
    asked.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_and_sizes_are_limited_as_configured() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "sesame\n").unwrap();
    let asked = Asked::start_with(
        json!({"webhookServer": {"bearerTokenFile": token.path(), "maxRequestBytes": 1000}}),
    )
    .await;
    let object = assignment(&json!({"profileName": "test-profile"}));
    let body = review("v1", "Assignment", "CREATE", &object, &Value::Null);
    let with = |token: Option<&'static str>, body: Value| {
        let (address, authority) = (asked.program.webhooks, asked.authority.pem().to_owned());
        async move {
            post_as(
                token,
                address,
                &authority,
                NAME,
                "/mutate-assignment",
                &body,
            )
            .await
            .0
        }
    };
    assert_eq!(with(None, body.clone()).await, 401);
    assert_eq!(with(Some("wrong"), body.clone()).await, 401);
    assert_eq!(with(Some("sesame"), body.clone()).await, 200);
    let mut large = body;
    large["request"]["object"]["spec"]["more"] = json!("x".repeat(1000));
    assert_eq!(with(Some("sesame"), large).await, 413);
    asked.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cannot_decide_once_the_api_is_gone() {
    let asked = Asked::start().await;
    let object = assignment(&json!({"profileName": "test-profile"}));
    let body = review("v1", "Assignment", "CREATE", &object, &Value::Null);
    assert_eq!(asked.ask("/validate-assignment", &body).await.0, 200);
    let Asked {
        cluster,
        program,
        authority,
    } = asked;
    cluster.stop().await;
    let (code, text) = post(
        program.webhooks,
        authority.pem(),
        NAME,
        "/validate-assignment?timeout=5s",
        &body,
    )
    .await;
    assert_eq!(code, 500, "{text}");
    assert!(
        !text.contains("127.0.0.1"),
        "what went wrong is for the log: {text}"
    );
    // Requests that need no lookup are still decided.
    let (code, _) = post(
        program.webhooks,
        authority.pem(),
        NAME,
        "/mutate-assignment",
        &body,
    )
    .await;
    assert_eq!(code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_used_without_a_restart() {
    let asked = Asked::start().await;
    let other = Authority::new("another");
    let identity = other.issue(&[NAME]);
    std::fs::write(
        asked.program.folder.path().join("tls.key"),
        identity.key_pem,
    )
    .unwrap();
    std::fs::write(
        asked.program.folder.path().join("tls.crt"),
        identity.certificate_pem,
    )
    .unwrap();
    asked
        .program
        .logs(|line| line["message"] == "certificate loaded" && line["first"] == false);
    let object = assignment(&json!({"profileName": "test-profile"}));
    let body = review("v1", "Assignment", "CREATE", &object, &Value::Null);
    let (code, _) = post(
        asked.program.webhooks,
        other.pem(),
        NAME,
        "/validate-assignment",
        &body,
    )
    .await;
    assert_eq!(code, 200);
    asked.cluster.stop().await;
}
