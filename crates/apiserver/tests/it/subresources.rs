//! Subresources: status, scale, eviction, binding and others, including connect.

use http::Method;
use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};

use crate::support::*;

/// A webhook for these resources with all operations.
async fn observer(client: &Client, resources: &[&str]) -> WebhookServer {
    let hooks = WebhookServer::start().await;
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "observer",
        &hooks.url("/observe"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"] = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources,
    }]);
    client.create(VALIDATING, configuration).await;
    hooks
}

/// The last review as `OPERATION resource/sub Kind`.
fn last(hooks: &WebhookServer) -> String {
    let review = hooks.requests().last().unwrap().json()["request"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{} {}/{} {}",
        text(&review["operation"]),
        text(&review["resource"]["resource"]),
        text(&review["subResource"]),
        text(&review["kind"]["kind"])
    )
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = observer(&client, &["deployments/*"]).await;
    let mut object = deployment("d");
    object["status"] = json!({"replicas": 5});
    let made = client.create(DEPLOYMENTS, object).await;
    assert_eq!(made["status"], json!({}));
    let d = format!("{DEPLOYMENTS}/d");

    let both = json!({"spec": {"replicas": 4}, "status": {"replicas": 3, "readyReplicas": 2, "availableReplicas": 2}});
    let changed = client
        .patch(&format!("{d}/status"), "merge", &both)
        .await
        .expect(200);
    assert_eq!(last(&hooks), "UPDATE deployments/status Deployment");
    assert_eq!(
        (&changed["spec"]["replicas"], &changed["status"]["replicas"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(changed["metadata"]["generation"], 1);
    let both = json!({"spec": {"replicas": 4}, "status": {"replicas": 9}});
    let changed = client.patch(&d, "merge", &both).await.expect(200);
    assert_eq!(
        (&changed["spec"]["replicas"], &changed["status"]["replicas"]),
        (&json!(4), &json!(3))
    );
    assert_eq!(changed["metadata"]["generation"], 2);
    let got = client.get(&format!("{d}/status")).await.expect(200);
    assert_eq!(got, changed);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn scales() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = observer(&client, &["deployments/scale"]).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let mut scale = client.get(&path).await.expect(200);
    assert_eq!(
        (&scale["kind"], &scale["apiVersion"]),
        (&json!("Scale"), &json!("autoscaling/v1"))
    );
    assert_eq!(scale["spec"], json!({"replicas": 1}));
    assert_eq!(scale["status"]["selector"], "app=d");

    let patched = client
        .patch(&path, "merge", &json!({"spec": {"replicas": 3}}))
        .await
        .expect(200);
    assert_eq!(patched["spec"]["replicas"], 3);
    assert_eq!(last(&hooks), "UPDATE deployments/scale Scale");
    let review = hooks.requests().last().unwrap().json()["request"].clone();
    assert_eq!(
        (
            &review["object"]["spec"]["replicas"],
            &review["oldObject"]["spec"]["replicas"]
        ),
        (&json!(3), &json!(1))
    );
    let object = client.get(&format!("{DEPLOYMENTS}/d")).await.expect(200);
    assert_eq!(object["spec"]["replicas"], 3);
    assert_eq!(object["metadata"]["generation"], 2);

    scale["spec"]["replicas"] = 9.into();
    client.put(&path, &scale).await.refused(
        409,
        "Conflict",
        "Operation cannot be fulfilled on deployments.apps \"d\": the object has been modified; \
         please apply your changes to the latest version and try again",
    );
    let answer = client
        .patch(&path, "merge", &json!({"spec": {"replicas": -1}}))
        .await;
    answer.refused(
        422,
        "Invalid",
        "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than \
         or equal to 0",
    );
    let elsewhere = json!({"metadata": {"namespace": "other"}, "spec": {"replicas": 4}});
    client.patch(&path, "merge", &elsewhere).await.refused(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
    let odd = json!({"odd": 1, "spec": {"replicas": 3, "more": 1}});
    let answer = client.patch(&path, "merge", &odd).await;
    assert_eq!(answer.code, 200, "{}", answer.text());
    assert_eq!(
        answer.warnings(),
        ["unknown field \"odd\"", "unknown field \"spec.more\""]
    );
    let strict = format!("{path}?fieldValidation=Strict");
    let answer = client.patch(&strict, "merge", &odd).await;
    assert_eq!(answer.code, 422, "{}", answer.text());
    assert!(
        answer
            .text()
            .contains("strict decoding error: unknown field")
    );
    hooks.script("/observe", [Script::deny("no more")]);
    let answer = client
        .patch(&path, "merge", &json!({"spec": {"replicas": 5}}))
        .await;
    assert_eq!(answer.code, 403);
    let object = client.get(&format!("{DEPLOYMENTS}/d")).await.expect(200);
    assert_eq!(object["spec"]["replicas"], 3);
    hooks.stop().await;
    server.stop().await;
}

/// Validating webhooks see the scale of the changed object, mutating ones the scale that was sent.
#[tokio::test]
async fn scales_are_validated_as_their_object_says() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    let mutating = WebhookServer::start().await;
    mutating.script(
        "/label",
        [Script::patch(
            &json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
        )],
    );
    let mut configuration = hook(
        "MutatingWebhookConfiguration",
        "label",
        &mutating.url("/label"),
        mutating.ca_pem(),
    );
    configuration["webhooks"][0]["rules"] = json!([{
        "apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/scale"],
    }]);
    client.create(MUTATING, configuration).await;
    let validating = observer(&client, &["*/scale"]).await;
    let scale = format!("{DEPLOYMENTS}/d/scale");
    let patch = json!({"spec": {"replicas": 3}});
    client.patch(&scale, "merge", &patch).await.expect(200);
    let seen = |hooks: &WebhookServer| hooks.requests().last().unwrap().json()["request"].clone();
    let sent = seen(&mutating);
    assert!(sent["object"]["metadata"]["managedFields"].is_array());
    assert!(sent["oldObject"]["metadata"]["managedFields"].is_array());
    let judged = seen(&validating);
    for member in ["object", "oldObject"] {
        let metadata = &judged[member]["metadata"];
        assert_eq!(metadata.get("managedFields"), None, "{member}");
        assert_eq!(metadata.get("labels"), None, "{member}");
    }
    assert_eq!(judged["object"]["spec"], json!({"replicas": 3}));
    assert_eq!(judged["oldObject"]["spec"], json!({"replicas": 1}));
    mutating.stop().await;
    validating.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn scaling_warns_as_an_update_does() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut object = deployment("d");
    let port = json!({"containerPort": 80});
    object["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([port, port]);
    client.create(DEPLOYMENTS, object).await;
    let scale = format!("{DEPLOYMENTS}/d/scale");
    for (replicas, warnings) in [(3, 1), (3, 0)] {
        let patch = json!({"spec": {"replicas": replicas}});
        let answer = client.patch(&scale, "merge", &patch).await;
        assert_eq!(answer.warnings().len(), warnings, "{:?}", answer.warnings());
        answer.expect(200);
    }
    server.stop().await;
}

#[tokio::test]
async fn parts_that_are_applied_create_nothing() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let query = "fieldManager=t&force=true";
    let status = format!("/api/v1/nodes/n/status?{query}");
    client
        .patch(&status, "apply", &node)
        .await
        .refused(404, "NotFound", "nodes \"n\" not found");
    let pod = pod("p");
    for part in ["status", "resize", "ephemeralcontainers"] {
        let path = format!("{PODS}/p/{part}?{query}");
        let answer = client.patch(&path, "apply", &pod).await;
        answer.refused(404, "NotFound", "pods \"p\" not found");
    }
    server.stop().await;
}

#[tokio::test]
async fn scales_are_read_at_a_resource_version() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    let at = |version: &str| format!("{DEPLOYMENTS}/d/scale?resourceVersion={version}");
    client.get(&at("1")).await.expect(200);
    let answer = client.get(&at("x")).await.expect(500);
    assert_eq!(
        answer["message"],
        "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax"
    );
    let answer = client.get(&at("999999")).await.expect(504);
    assert_eq!(
        answer["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    server.stop().await;
}

#[tokio::test]
async fn binds_and_evicts_pods() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = observer(&client, &["pods/*", "bindings"]).await;
    client.create(PODS, pod("p")).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": "p", "annotations": {"by": "me"}},
        "target": {"kind": "Node", "name": "n"},
    });
    let status = client
        .post(&format!("{PODS}/p/binding"), &binding)
        .await
        .expect(201);
    assert_eq!(status["status"], "Success");
    assert_eq!(last(&hooks), "CREATE pods/binding Binding");
    let bound = client.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["metadata"]["annotations"]["by"], "me");
    let condition = &bound["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("PodScheduled"), &json!("True"))
    );
    client
        .post(&format!("{PODS}/p/binding"), &binding)
        .await
        .refused(
            409,
            "Conflict",
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"",
        );

    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        "deleteOptions": {"gracePeriodSeconds": 0},
    });
    client
        .post(&format!("{PODS}/p/eviction"), &eviction)
        .await
        .expect(201);
    assert_eq!(last(&hooks), "CREATE pods/eviction Eviction");
    assert_eq!(client.get(&format!("{PODS}/p")).await.code, 404);
    client
        .post(&format!("{PODS}/p/eviction"), &eviction)
        .await
        .refused(404, "NotFound", "pods \"p\" not found");

    // The deprecated bindings resource.
    client.create(PODS, pod("q")).await;
    let binding = json!({"metadata": {"name": "q"}, "target": {"name": "n"}});
    client
        .post("/api/v1/namespaces/default/bindings", &binding)
        .await
        .expect(201);
    let bound = client.get(&format!("{PODS}/q")).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "n");
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn changes_running_pods_through_parts_only() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = observer(&client, &["pods/*"]).await;
    client.create(PODS, pod("p")).await;
    let debug = json!({"spec": {"ephemeralContainers": [
        {"name": "debug", "image": "d", "targetContainerName": "c"},
    ]}});
    let ignored = client
        .patch(&format!("{PODS}/p"), "strategic", &debug)
        .await;
    assert_eq!(ignored.code, 422, "{}", ignored.text());
    let changed = client
        .patch(
            &format!("{PODS}/p/ephemeralcontainers"),
            "strategic",
            &debug,
        )
        .await
        .expect(200);
    assert_eq!(last(&hooks), "UPDATE pods/ephemeralcontainers Pod");
    assert_eq!(changed["spec"]["ephemeralContainers"][0]["name"], "debug");

    let resize = json!({"spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": "100m"}}},
    ]}});
    let direct = client
        .patch(&format!("{PODS}/p"), "strategic", &resize)
        .await;
    assert_eq!(direct.code, 422, "{}", direct.text());
    let mut sized = pod("s");
    sized["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "50m"}});
    client.create(PODS, sized).await;
    let changed = client
        .patch(&format!("{PODS}/s/resize"), "strategic", &resize)
        .await
        .expect(200);
    assert_eq!(last(&hooks), "UPDATE pods/resize Pod");
    assert_eq!(
        changed["spec"]["containers"][0]["resources"]["requests"]["cpu"],
        "100m"
    );
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn approves_certificates_apart() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = observer(&client, &["certificatesigningrequests/approval"]).await;
    let identity = lockgate_testkit::certs::Authority::new("x");
    assert!(!identity.pem().is_empty());
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"},
        "spec": {"request": csr(), "signerName": "example.com/s", "usages": ["client auth"]},
    });
    client.create(requests, request).await;
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Fine", "message": "yes"},
    ]}});
    let approved = client
        .patch(&format!("{requests}/r/approval"), "merge", &approval)
        .await
        .expect(200);
    assert_eq!(approved["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(
        last(&hooks),
        "UPDATE certificatesigningrequests/approval CertificateSigningRequest"
    );
    hooks.stop().await;
    server.stop().await;
}

/// A CertificateSigningRequest as a client sends it.
pub(crate) fn csr() -> String {
    use base64::Engine as _;
    let params = rcgen::CertificateParams::new(vec![String::from("x.example.com")]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    base64::prelude::BASE64_STANDARD.encode(pem)
}

#[tokio::test]
async fn asks_about_connections_before_there_are_any() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = observer(&client, &["*/*"]).await;
    client.create(PODS, pod("p")).await;
    for name in ["s", "t"] {
        let service = json!({
            "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}},
        });
        client
            .create("/api/v1/namespaces/default/services", service)
            .await;
    }
    let endpoints = json!({"metadata": {"name": "t"}});
    client
        .create("/api/v1/namespaces/default/endpoints", endpoints)
        .await;
    client
        .create("/api/v1/nodes", json!({"metadata": {"name": "n"}}))
        .await;
    let no_host = "pod p does not have a host assigned";
    for (method, path, kind, code, message) in [
        (
            Method::POST,
            format!("{PODS}/p/exec?command=sh&container=c&stdin=true"),
            "CONNECT pods/exec PodExecOptions",
            400,
            no_host,
        ),
        (
            Method::GET,
            format!("{PODS}/p/exec?command=sh"),
            "CONNECT pods/exec PodExecOptions",
            400,
            no_host,
        ),
        (
            Method::POST,
            format!("{PODS}/p/attach?stdout=true"),
            "CONNECT pods/attach PodAttachOptions",
            400,
            no_host,
        ),
        (
            Method::POST,
            format!("{PODS}/p/portforward?ports=80"),
            "CONNECT pods/portforward PodPortForwardOptions",
            400,
            no_host,
        ),
        (
            Method::DELETE,
            String::from("/api/v1/namespaces/default/services/s/proxy/a/b"),
            "CONNECT services/proxy ServiceProxyOptions",
            404,
            "services \"s\" not found",
        ),
        (
            Method::DELETE,
            String::from("/api/v1/namespaces/default/services/t/proxy/a/b"),
            "CONNECT services/proxy ServiceProxyOptions",
            503,
            "no endpoints available for service \"t\"",
        ),
    ] {
        let answer = client.request(method, &path, &[], "").await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
        assert_eq!(answer.json()["message"], message, "{path}");
        assert_eq!(last(&hooks), kind, "{path}");
    }
    let exec = hooks
        .requests()
        .iter()
        .map(|request| request.json()["request"].clone())
        .find(|review| review["subResource"] == "exec")
        .unwrap();
    assert_eq!(
        exec["object"],
        json!({
            "apiVersion": "v1", "kind": "PodExecOptions",
            "command": ["sh"], "container": "c", "stdin": true,
        })
    );
    assert_eq!(
        (&exec["options"], &exec["oldObject"]),
        (&Value::Null, &Value::Null)
    );

    hooks.script("/observe", [Script::deny("closed")]);
    let answer = client
        .request(Method::POST, &format!("{PODS}/p/exec?command=sh"), &[], "")
        .await;
    answer.refused(
        403,
        "",
        "admission webhook \"observer.example.com\" denied the request: closed",
    );
    // Reading logs calls no webhook.
    let log = client.get(&format!("{PODS}/p/log")).await;
    assert_eq!((log.code, log.text().as_str()), (200, ""));
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_token_of_a_service_account_proves_who_it_is() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = client
        .create(accounts, json!({"metadata": {"name": "robot"}}))
        .await;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 3600},
    });
    let answered = client
        .post(&format!("{accounts}/robot/token"), &request)
        .await
        .expect(201);
    let token = answered["status"]["token"].as_str().unwrap();
    assert!(answered["status"]["expirationTimestamp"].is_string());

    let robot = Client::with_token(&server, token).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let review = robot
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await
        .expect(201);
    let user = &review["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert_eq!(user["uid"], account["metadata"]["uid"]);
    assert_eq!(
        user["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    robot.get(CONFIG_MAPS).await.refused(
        403,
        "Forbidden",
        "configmaps is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \
         \"configmaps\" in API group \"\" in the namespace \"default\"",
    );
    let review = json!({"spec": {"token": token}});
    let review = client
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await
        .expect(201);
    assert_eq!(review["status"]["authenticated"], true);
    // A token with a modified signature is rejected.
    let (head, tail) = token.split_at(token.len() - 10);
    let forged = format!("{head}{}", tail.chars().rev().collect::<String>());
    let forger = Client::with_token(&server, &forged).await;
    forger
        .get("/version")
        .await
        .refused(401, "Unauthorized", "Unauthorized");
    client
        .post(&format!("{accounts}/none/token"), &request)
        .await
        .refused(404, "NotFound", "serviceaccounts \"none\" not found");
    server.stop().await;
}

#[tokio::test]
async fn parts_that_are_not_there_are_not_found() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(
        client.get(&format!("{CONFIG_MAPS}/a/status")).await.code,
        404
    );
    assert_eq!(client.get(&format!("{PODS}/none/log")).await.code, 404);
    let answer = client
        .request(Method::DELETE, &format!("{DEPLOYMENTS}/d/scale"), &[], "")
        .await;
    answer.refused(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    server.stop().await;
}

#[tokio::test]
async fn bindings_check_the_pod_and_give_it_their_labels() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let path = |name: &str| format!("{PODS}/{name}/binding");
    let binding = |metadata: Value| json!({"metadata": metadata, "target": {"name": "n"}});
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    client.create(PODS, gated).await;
    client.create(PODS, pod("p")).await;
    let nominated = json!({"status": {"nominatedNodeName": "m"}});
    let status = format!("{PODS}/p/status");
    client.patch(&status, "merge", &nominated).await.expect(200);
    let dry = |name: &str| format!("{}?dryRun=All", path(name));
    for (path, metadata, code, message) in [
        (
            path("gated"),
            json!({"name": "gated"}),
            409,
            "Operation cannot be fulfilled on pods/binding \"gated\": pod gated has non-empty .spec.schedulingGates",
        ),
        (
            path("p"),
            json!({}),
            400,
            "name in URL does not match name in Binding object",
        ),
        (
            String::from("/api/v1/namespaces/default/bindings"),
            json!({}),
            400,
            "Name parameter required.",
        ),
        (
            dry("none"),
            json!({"name": "none"}),
            404,
            "pods \"none\" not found",
        ),
        (dry("p"), json!({"name": "p"}), 201, ""),
    ] {
        let answer = client.post(&path, &binding(metadata)).await;
        let said = answer.expect(code)["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert_eq!(said, message, "{path}");
    }
    let labels = json!({"topology.kubernetes.io/zone": "z"});
    let metadata = json!({"name": "p", "labels": labels});
    client
        .post(&path("p"), &binding(metadata))
        .await
        .expect(201);
    let bound = client.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(
        bound["metadata"]["labels"]["topology.kubernetes.io/zone"],
        "z"
    );
    assert_eq!(bound["status"].get("nominatedNodeName"), None);
    server.stop().await;
}

#[tokio::test]
async fn evicted_pods_say_so() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut held = pod("p");
    held["metadata"]["finalizers"] = json!(["example.com/wait"]);
    client.create(PODS, held).await;
    let path = format!("{PODS}/p/eviction");
    let eviction = |version: &str, options: Value| json!({"apiVersion": format!("policy/{version}"), "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": options});
    let ignore = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    let answer = client
        .post(&path, &eviction("v1", ignore))
        .await
        .expect(422);
    assert_eq!(
        answer["message"],
        "Eviction.policy \"p\" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: \
         Invalid value: true: can not be set for pod eviction, try after removing the option"
    );
    let nameless = json!({"apiVersion": "policy/v1", "kind": "Eviction"});
    client.post(&path, &nameless).await.expect(400);
    let both = format!("{path}?dryRun=All");
    let twice = eviction("v1", json!({"dryRun": ["All", "All"]}));
    let answer = client.post(&both, &twice).await.expect(500);
    assert_eq!(
        answer["message"],
        "Non-matching dry-run options in request and content: [All] and [All All]"
    );
    let found = client.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(found["status"].get("conditions"), None);
    let former = eviction("v1beta1", json!({}));
    client.post(&path, &former).await.expect(201);
    let found = client.get(&format!("{PODS}/p")).await.expect(200);
    let condition = &found["status"]["conditions"][0];
    assert_eq!(
        [
            &condition["type"],
            &condition["status"],
            &condition["reason"]
        ],
        [
            &json!("DisruptionTarget"),
            &json!("True"),
            &json!("EvictionByEvictionAPI")
        ]
    );
    server.stop().await;
}

/// A token is issued for the service account of the path, whatever a webhook makes of the request.
#[tokio::test]
async fn webhooks_cannot_move_token_requests() {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    let server = start().await;
    let client = Client::admin(&server).await;
    let account = json!({"metadata": {"name": "robot"}});
    client.create(ACCOUNTS, account).await;
    let hooks = WebhookServer::start().await;
    let patches = [
        json!([{"op": "replace", "path": "/metadata/namespace", "value": "other"}]),
        json!([{"op": "remove", "path": "/metadata/namespace"}]),
    ];
    hooks.script("/move", patches.iter().map(Script::patch));
    let mut configuration = hook(
        "MutatingWebhookConfiguration",
        "move",
        &hooks.url("/move"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["serviceaccounts/token"]);
    client.create(MUTATING, configuration).await;
    let path = format!("{ACCOUNTS}/robot/token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    client.post(&path, &request).await.refused(
        422,
        "Invalid",
        "TokenRequest.authentication.k8s.io \"robot\" is invalid: metadata.namespace: Invalid value: \
         \"other\": must match the service account namespace if specified",
    );
    let issued = client.create(&path, request).await;
    assert_eq!(issued["metadata"]["namespace"], "default");
    hooks.stop().await;
    server.stop().await;
}
