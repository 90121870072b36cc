//! ServiceAccount tokens are valid only for their audience, account and lifetime.

use serde_json::{Value, json};

use crate::support::*;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ROBOT: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

async fn account(client: &Client) -> Value {
    client
        .create(ACCOUNTS, json!({"metadata": {"name": "robot"}}))
        .await
}

async fn token(client: &Client, spec: Value) -> String {
    let answer = client.post(ROBOT, &json!({"spec": spec})).await.expect(201);
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// The response code for a token.
async fn code(server: &lockgate_apiserver::TestServer, token: &str) -> u16 {
    let client = Client::with_token(server, token).await;
    client.get("/version").await.code
}

#[tokio::test]
async fn a_token_ends_with_its_account() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    account(&admin).await;
    let token = token(&admin, json!({})).await;
    assert_eq!(code(&server, &token).await, 200);
    admin.delete(&format!("{ACCOUNTS}/robot")).await.expect(200);
    assert_eq!(code(&server, &token).await, 401);
    // A recreated ServiceAccount of the same name has another UID.
    let again = account(&admin).await;
    assert_eq!(code(&server, &token).await, 401);
    let review = json!({"spec": {"token": token}});
    let review = admin.post(REVIEWS, &review).await.expect(201);
    let error = review["status"]["error"].as_str().unwrap();
    let uid = again["metadata"]["uid"].as_str().unwrap();
    assert!(
        error.starts_with(&format!(
            "[service account UID ({uid}) does not match claim ("
        )),
        "{error}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_token_is_for_its_audience() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    account(&admin).await;
    let vault = token(&admin, json!({"audiences": ["vault.example.com"]})).await;
    let own = token(&admin, json!({})).await;
    assert_eq!(code(&server, &vault).await, 401);
    let ask =
        |token: &str, audiences: Value| json!({"spec": {"token": token, "audiences": audiences}});
    let review = admin
        .post(REVIEWS, &ask(&vault, json!([])))
        .await
        .expect(201);
    assert_eq!(
        review["status"]["error"],
        format!(
            "[token audiences [\"vault.example.com\"] is invalid for the target audiences \
             [\"{ISSUER}\"], unknown]"
        )
    );
    assert!(review["status"]["authenticated"].is_null());
    let both = json!(["other", "vault.example.com"]);
    let review = admin
        .post(REVIEWS, &ask(&vault, both.clone()))
        .await
        .expect(201);
    assert_eq!(review["status"]["authenticated"], true);
    assert_eq!(review["status"]["audiences"], json!(["vault.example.com"]));
    let review = admin.post(REVIEWS, &ask(&own, both)).await.expect(201);
    assert!(review["status"]["authenticated"].is_null());
    let review = admin.post(REVIEWS, &ask(&own, json!([]))).await.expect(201);
    assert_eq!(review["status"]["audiences"], json!([ISSUER]));
    server.stop().await;
}

#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    account(&admin).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    admin
        .create(secrets, json!({"metadata": {"name": "key"}}))
        .await;
    let mut theirs = pod("web");
    theirs["spec"]["serviceAccountName"] = "robot".into();
    theirs["spec"]["nodeName"] = "n1".into();
    let web = admin.create(PODS, theirs).await;
    let to = |kind: &str, name: &str, uid: &Value| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}});
    let bound = [
        (
            token(&admin, to("Secret", "key", &Value::Null)).await,
            format!("{secrets}/key"),
        ),
        (
            token(&admin, to("Pod", "web", &web["metadata"]["uid"])).await,
            format!("{PODS}/web?gracePeriodSeconds=0"),
        ),
    ];
    let who = Client::with_token(&server, &bound[1].0).await;
    let who = who
        .post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            &json!({}),
        )
        .await
        .expect(201);
    let extra = &who["status"]["userInfo"]["extra"];
    assert_eq!(
        extra["authentication.kubernetes.io/pod-name"],
        json!(["web"])
    );
    assert_eq!(
        extra["authentication.kubernetes.io/pod-uid"],
        json!([web["metadata"]["uid"]])
    );
    assert_eq!(
        extra["authentication.kubernetes.io/node-name"],
        json!(["n1"])
    );
    for (token, object) in bound {
        assert_eq!(code(&server, &token).await, 200);
        admin.delete(&object).await.expect(200);
        assert_eq!(code(&server, &token).await, 401, "{object}");
    }
    server.stop().await;
}

#[tokio::test]
async fn refuses_requests_for_tokens_that_make_no_sense() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let robot = account(&admin).await;
    admin.create(PODS, pod("web")).await;
    let uid = robot["metadata"]["uid"].as_str().unwrap();
    for (request, code, reason, message) in [
        (
            json!({"spec": {"expirationSeconds": -5}}),
            422,
            "Invalid",
            String::from(
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid \
                 value: -5: may not specify a duration less than 10 minutes",
            ),
        ),
        (
            json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
            422,
            "Invalid",
            String::from(
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid \
                 value: 4294967297: may not specify a duration larger than 2^32 seconds",
            ),
        ),
        (
            json!({"metadata": {"name": "other"}}),
            422,
            "Invalid",
            String::from(
                "TokenRequest.authentication.k8s.io \"robot\" is invalid: metadata.name: Invalid \
                 value: \"other\": must match the service account name if specified",
            ),
        ),
        (
            json!({"metadata": {"uid": "7"}}),
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"robot\": the \
                 UID in the token request (7) does not match the UID of the service account ({uid})"
            ),
        ),
        (
            json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web"}}}),
            400,
            "BadRequest",
            String::from(
                "cannot bind token for serviceaccount \"robot\" to pod running with different \
                 serviceaccount name.",
            ),
        ),
        (
            json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "none"}}}),
            404,
            "NotFound",
            String::from("secrets \"none\" not found"),
        ),
        (
            json!({"spec": {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}),
            400,
            "BadRequest",
            String::from("cannot bind token to object of type apps/v1, Kind=Deployment"),
        ),
    ] {
        admin
            .post(ROBOT, &request)
            .await
            .refused(code, reason, &message);
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    admin
        .create(secrets, json!({"metadata": {"name": "key"}}))
        .await;
    let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": "key", "uid": "7"});
    let answer = admin
        .post(ROBOT, &json!({"spec": {"boundObjectRef": reference}}))
        .await;
    answer.refused(
        409,
        "Conflict",
        "Operation cannot be fulfilled on Secret \"key\": the UID in the bound object reference (7) \
         does not match the UID in record. The object might have been deleted and then recreated",
    );
    server.stop().await;
}

#[tokio::test]
async fn refuses_reviews_that_make_no_sense() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let other = json!({"spec": {
        "user": "ann", "resourceAttributes": {"namespace": "kube-system", "verb": "get", "resource": "pods"},
    }});
    let invalid = |why: &str| format!(".authorization.k8s.io \"\" is invalid: {why}");
    admin.post(local, &other).await.refused(
        422,
        "Invalid",
        &invalid(
            "spec.resourceAttributes.namespace: Invalid value: \"kube-system\": must match \
             metadata.namespace",
        ),
    );
    let path = json!({"spec": {"user": "ann", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}});
    admin.post(local, &path).await.refused(
        422,
        "Invalid",
        &invalid(
            "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/metrics\",\"Verb\":\"get\"}: \
             disallowed on this kind of request",
        ),
    );
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let nobody = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    admin.post(reviews, &nobody).await.refused(
        422,
        "Invalid",
        &invalid("spec.user: Invalid value: \"\": at least one of user or group must be specified"),
    );
    let nothing = json!({"spec": {"user": "ann"}});
    admin.post(reviews, &nothing).await.refused(
        422,
        "Invalid",
        &invalid(
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or \
             resourceAttributes must be specified",
        ),
    );
    let named = json!({"metadata": {"name": "x"}, "spec": path["spec"]});
    let refused = admin.post(reviews, &named).await.expect(422);
    let message = refused["message"].as_str().unwrap();
    let start = invalid("metadata: Invalid value: {\"name\":\"x\",\"managedFields\":[{");
    assert!(message.starts_with(&start), "{message}");
    assert!(message.ends_with("}]}: must be empty"), "{message}");
    admin.post(REVIEWS, &json!({"spec": {}})).await.refused(
        400,
        "BadRequest",
        "token is required for TokenReview in authentication",
    );
    server.stop().await;
}
