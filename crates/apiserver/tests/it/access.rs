//! Authentication, authorization and audit.

use std::path::Path;

use http::Method;
use lockgate_api::admission::UserInfo;
use lockgate_apiserver::Settings;
use lockgate_testkit::WebhookServer;
use lockgate_testkit::certs::Authority;
use serde_json::{Value, json};

use crate::support::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn who(client: &Client) -> Value {
    let review = client.post(WHO, &json!({})).await.expect(201);
    review["status"]["userInfo"].clone()
}

#[tokio::test]
async fn says_what_a_user_may_not_do() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let bob = admin.taken_for("bob");
    let cannot = |verb: &str, resource: &str, group: &str, place: &str| {
        let qualified = match group {
            "" => resource.to_owned(),
            group => format!("{}.{group}", resource.split('/').next().unwrap()),
        };
        format!(
            "{} is forbidden: User \"bob\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}",
            qualified.split('/').next().unwrap()
        )
    };
    let default = "in the namespace \"default\"";
    let cluster = "at the cluster scope";
    for (method, path, message) in [
        (
            Method::GET,
            String::from(PODS),
            cannot("list", "pods", "", default),
        ),
        (
            Method::GET,
            String::from("/api/v1/pods"),
            cannot("list", "pods", "", cluster),
        ),
        (
            Method::GET,
            format!("{PODS}?watch=true"),
            cannot("watch", "pods", "", default),
        ),
        (
            Method::POST,
            String::from(DEPLOYMENTS),
            cannot("create", "deployments", "apps", default),
        ),
        (
            Method::DELETE,
            String::from(CONFIG_MAPS),
            cannot("deletecollection", "configmaps", "", default),
        ),
        (
            Method::GET,
            format!("{PODS}/p"),
            String::from(
                "pods \"p\" is forbidden: User \"bob\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\"",
            ),
        ),
        (
            Method::PATCH,
            format!("{DEPLOYMENTS}/d/scale"),
            String::from(
                "deployments.apps \"d\" is forbidden: User \"bob\" cannot patch resource \"deployments/scale\" in API group \"apps\" in the namespace \"default\"",
            ),
        ),
        (
            Method::GET,
            String::from("/api/v1/nodes/n"),
            String::from(
                "nodes \"n\" is forbidden: User \"bob\" cannot get resource \"nodes\" in API group \"\" at the cluster scope",
            ),
        ),
        (
            Method::GET,
            String::from("/metrics"),
            String::from("forbidden: User \"bob\" cannot get path \"/metrics\""),
        ),
    ] {
        let answer = bob.request(method, &path, &[], "").await;
        answer.refused(403, "Forbidden", &message);
    }
    server.stop().await;
}

#[tokio::test]
async fn roles_take_effect_when_their_write_returns() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let bob = admin.taken_for("bob");
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    for _ in 0..20 {
        admin.create(&roles, role.clone()).await;
        assert_eq!(bob.get(CONFIG_MAPS).await.code, 403);
        admin.create(&bindings, binding.clone()).await;
        assert_eq!(bob.get(CONFIG_MAPS).await.code, 200);
        assert_eq!(
            bob.get("/api/v1/namespaces/kube-system/configmaps")
                .await
                .code,
            403
        );
        assert_eq!(bob.get("/api/v1/configmaps").await.code, 403);
        assert_eq!(bob.post(CONFIG_MAPS, &config_map("x")).await.code, 403);
        admin.delete(&format!("{bindings}/bob")).await.expect(200);
        assert_eq!(bob.get(CONFIG_MAPS).await.code, 403);
        admin.delete(&format!("{roles}/reader")).await.expect(200);
    }
    // An update that creates requires the create permission.
    let mut update = role.clone();
    update["rules"][0] =
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]});
    admin.create(&roles, update).await;
    admin.create(&bindings, binding).await;
    let lease = json!({"metadata": {"name": "l"}});
    let answer = bob
        .put(
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
            &lease,
        )
        .await;
    answer.refused(
        403,
        "Forbidden",
        "leases.coordination.k8s.io \"l\" is forbidden: User \"bob\" cannot create resource \"leases\" \
         in API group \"coordination.k8s.io\" in the namespace \"default\"",
    );
    server.stop().await;
}

#[tokio::test]
async fn users_are_taken_for_others_only_if_they_may() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let user = who(&admin).await;
    assert_eq!(
        (&user["username"], &user["groups"]),
        (
            &json!("admin"),
            &json!(["system:masters", "system:authenticated"])
        )
    );
    let ann = admin
        .taken_for("ann")
        .with("impersonate-group", "dev")
        .with("impersonate-group", "ops")
        .with("impersonate-uid", "7")
        .with("impersonate-extra-scopes", "view");
    let user = who(&ann).await;
    assert_eq!(
        user,
        json!({
            "username": "ann", "uid": "7", "groups": ["dev", "ops", "system:authenticated"],
            "extra": {"scopes": ["view"]},
        })
    );
    let robot = who(&admin.taken_for("system:serviceaccount:default:x")).await;
    assert_eq!(
        robot["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    let answer = admin
        .with("impersonate-group", "dev")
        .get(CONFIG_MAPS)
        .await;
    answer.refused(
        400,
        "BadRequest",
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"dev\"}, \
         Extra:map[string][]string(nil)} without impersonating a user name",
    );

    let token = Settings {
        tokens: vec![(
            String::from("t"),
            UserInfo {
                username: String::from("eve"),
                ..UserInfo::default()
            },
        )],
        ..settings()
    };
    let other = start_with(token).await;
    let eve = Client::with_token(&other, "t").await;
    eve.taken_for("ann").get(CONFIG_MAPS).await.refused(
        403,
        "Forbidden",
        "configmaps is forbidden: User \"eve\" cannot impersonate-on:user-info:list resource \
         \"configmaps\" in API group \"\" in the namespace \"default\"",
    );
    other.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn knows_certificates_of_other_authorities() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("users");
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, "secret,carl,42,\"one,two\"\n").unwrap();
    let server = start_with(Settings {
        client_ca_file: Some(ca),
        token_auth_file: Some(tokens),
        ..settings()
    })
    .await;
    // The common name of the testkit's certificates is the user.
    let identity = authority.issue_for_clients(&["x"]);
    let client = Client::connect(
        &server,
        Credentials {
            certificate: Some((identity.certificate_pem, identity.key_pem)),
            headers: Vec::new(),
        },
    )
    .await;
    assert_eq!(who(&client).await["username"], "webhook");
    // The server's own CA is still trusted.
    assert_eq!(
        who(&Client::admin(&server).await).await["username"],
        "admin"
    );
    let carl = Client::with_token(&server, "secret").await;
    assert_eq!(
        who(&carl).await,
        json!({"username": "carl", "uid": "42", "groups": ["one", "two", "system:authenticated"]})
    );
    let stranger = Client::with_token(&server, "guess").await;
    stranger
        .get("/healthz")
        .await
        .refused(401, "Unauthorized", "Unauthorized");
    server.stop().await;
}

#[tokio::test]
async fn lets_nobody_in_when_told_to() {
    let server = start_with(Settings {
        anonymous_auth: false,
        ..settings()
    })
    .await;
    Client::anonymous(&server)
        .await
        .get("/healthz")
        .await
        .refused(401, "Unauthorized", "Unauthorized");
    server.stop().await;
}

#[tokio::test]
async fn answers_questions_about_access() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let ask = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(
        admin.post(path, &ask("list")).await.expect(201)["status"]["allowed"],
        true
    );
    let bob = admin.taken_for("bob");
    assert_eq!(
        bob.post(path, &ask("list")).await.expect(201)["status"]["allowed"],
        false
    );
    let mut about = ask("list");
    about["spec"]["user"] = "bob".into();
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(
        admin.post(path, &about).await.expect(201)["status"]["allowed"],
        false
    );
    server.stop().await;
}

fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn writes_down_what_the_policy_says() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    let log = folder.path().join("audit.log");
    std::fs::write(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
         - {level: None, nonResourceURLs: ['/healthz*', /version]}\n\
         - {level: Metadata, resources: [{group: '', resources: [secrets]}]}\n\
         - {level: RequestResponse, verbs: [create], resources: [{group: '', resources: [configmaps]}], omitManagedFields: true}\n\
         - {level: Request, resources: [{group: '', resources: [configmaps]}], omitStages: []}\n\
         - {level: None, users: [bob]}\n\
         - {level: Metadata}\n",
    )
    .unwrap();
    let server = start_with(Settings {
        audit_policy_file: Some(policy),
        audit_log_path: Some(log.clone()),
        ..settings()
    })
    .await;
    let admin = Client::admin(&server).await;
    admin.get("/healthz").await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    admin
        .create("/api/v1/namespaces/default/secrets", secret)
        .await;
    let answer = admin.post(CONFIG_MAPS, &config_map("a")).await;
    let id = answer.header("audit-id").to_owned();
    answer.expect(201);
    let patch = json!({"data": {"a": "2"}});
    admin
        .patch(&format!("{CONFIG_MAPS}/a"), "merge", &patch)
        .await
        .expect(200);
    admin.taken_for("ann").get(PODS).await;
    admin.get(PODS).await.expect(200);

    let events = events(&log);
    let shown: Vec<String> = events
        .iter()
        .map(|event| {
            format!(
                "{} {} {} {} {}",
                event["level"].as_str().unwrap(),
                event["stage"].as_str().unwrap(),
                event["verb"].as_str().unwrap(),
                event["objectRef"]["resource"].as_str().unwrap_or("-"),
                event["responseStatus"]["code"],
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "Metadata ResponseComplete create secrets 201",
            "RequestResponse ResponseComplete create configmaps 201",
            "Request ResponseComplete patch configmaps 200",
            "Metadata ResponseComplete list pods 403",
            "Metadata ResponseComplete list pods 200",
        ]
    );
    for event in &events {
        assert_eq!(
            (&event["kind"], &event["apiVersion"]),
            (&json!("Event"), &json!("audit.k8s.io/v1"))
        );
        assert_eq!(event["user"]["username"], "admin");
        assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
        assert!(event["requestReceivedTimestamp"].is_string());
    }
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("hunter2"), "secrets stay secret");
    let create = &events[1];
    assert_eq!(create["auditID"], id);
    assert_eq!(create["requestObject"]["data"]["a"], "1");
    assert_eq!(create["responseObject"]["metadata"]["name"], "a");
    assert_eq!(
        create["responseObject"]["metadata"].get("managedFields"),
        None
    );
    assert_eq!(
        create["objectRef"],
        json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"})
    );
    assert_eq!(
        create["annotations"]["authorization.k8s.io/decision"],
        "allow"
    );
    let patched = &events[2];
    assert_eq!(patched["requestObject"], patch);
    assert_eq!(patched.get("responseObject"), None);
    let refused = &events[3];
    assert_eq!(refused["impersonatedUser"]["username"], "ann");
    assert_eq!(
        refused["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    server.stop().await;
}

/// The id is that of the token, by which requests that use it are found.
#[tokio::test]
async fn writes_down_which_token_was_issued() {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(Settings {
        audit_log_path: Some(log.clone()),
        ..settings()
    })
    .await;
    let admin = Client::admin(&server).await;
    let account = json!({"metadata": {"name": "robot"}});
    admin.create(ACCOUNTS, account).await;
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = admin
        .create(&format!("{ACCOUNTS}/robot/token"), request)
        .await;
    let robot = Client::with_token(&server, issued["status"]["token"].as_str().unwrap()).await;
    robot.get(PODS).await.expect(403);
    let events = events(&log);
    let annotated = events.iter().find_map(|event| {
        event["annotations"]["authentication.kubernetes.io/issued-credential-id"].as_str()
    });
    let robots =
        |event: &&Value| event["user"]["username"] == "system:serviceaccount:default:robot";
    let used = events.iter().find(robots).and_then(|event| {
        event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0].as_str()
    });
    assert!(annotated.unwrap().starts_with("JTI="), "{annotated:?}");
    assert_eq!(annotated, used);
    server.stop().await;
}

#[tokio::test]
async fn writes_down_what_webhooks_did() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(Settings {
        audit_log_path: Some(log.clone()),
        ..settings()
    })
    .await;
    let admin = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    hooks.script(
        "/mutate",
        [lockgate_testkit::ScriptedResponse::patch(
            &json!([{"op": "add", "path": "/data/b", "value": "2"}]),
        )],
    );
    admin
        .create(
            MUTATING,
            hook(
                "MutatingWebhookConfiguration",
                "m",
                &hooks.url("/mutate"),
                hooks.ca_pem(),
            ),
        )
        .await;
    admin.create(CONFIG_MAPS, config_map("a")).await;
    let events = events(&log);
    let annotations = events.last().unwrap()["annotations"].clone();
    assert_eq!(
        annotations["mutation.webhook.admission.k8s.io/round_0_index_0"],
        "{\"configuration\":\"m\",\"webhook\":\"m.example.com\",\"mutated\":true}"
    );
    hooks.stop().await;
    server.stop().await;
}
