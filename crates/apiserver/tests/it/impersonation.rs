//! Constrained impersonation: the permission to impersonate for some requests only.

use http::Method;
use lockgate_api::admission::UserInfo;
use lockgate_apiserver::{FeatureGates, KubeVersion, Settings, TestServer};
use serde_json::{Value, json};

use crate::support::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const GROUP: &str = "authentication.k8s.io";
const ROBOT: &str = "system:serviceaccount:default:robot";

/// A server on which `eve` has no permissions.
fn with_eve(gates: FeatureGates) -> Settings {
    let eve = UserInfo {
        username: String::from("eve"),
        ..UserInfo::default()
    };
    Settings {
        tokens: vec![(String::from("t"), eve)],
        feature_gates: gates,
        ..settings()
    }
}

async fn eve() -> (TestServer, Client, Client) {
    let server = start_with(with_eve(FeatureGates::default())).await;
    let admin = Client::admin(&server).await;
    let eve = Client::with_token(&server, "t").await;
    (server, admin, eve)
}

fn rule(verb: &str, group: &str, resource: &str) -> Value {
    json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]})
}

/// Grants a user, or a group with the prefix `%`, permissions in all namespaces.
async fn grant(admin: &Client, role: &str, to: &str, rules: Value) {
    let object = json!({"metadata": {"name": role}, "rules": rules});
    admin.create(&format!("{RBAC}/clusterroles"), object).await;
    let subject = match to.strip_prefix('%') {
        Some(group) => json!({"kind": "Group", "name": group}),
        None => json!({"kind": "User", "name": to}),
    };
    let binding = json!({
        "metadata": {"name": role}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    });
    admin
        .create(&format!("{RBAC}/clusterrolebindings"), binding)
        .await;
}

async fn who(client: &Client) -> Value {
    let review = client.post(SELF, &json!({})).await.expect(201);
    review["status"]["userInfo"].clone()
}

fn cannot(verb: &str, resource: &str, group: &str, place: &str) -> String {
    format!("User \"eve\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}")
}

const CLUSTER: &str = "at the cluster scope";

#[tokio::test]
async fn a_right_for_some_requests_is_one_for_no_others() {
    let (server, admin, eve) = eve().await;
    let bob = eve.taken_for("bob");
    grant(&admin, "bob", "bob", json!([rule("*", "", "configmaps")])).await;
    let place = "in the namespace \"default\"";
    // Without any permission, the error is that of the first applicable mode.
    let verb = "impersonate-on:user-info:list";
    let why = cannot(verb, "configmaps", "", place);
    bob.get(CONFIG_MAPS).await.refused(
        403,
        "Forbidden",
        &format!("configmaps is forbidden: {why}"),
    );
    // Each permission is useless without the other.
    grant(&admin, "on", "eve", json!([rule(verb, "", "configmaps")])).await;
    let why = cannot("impersonate:user-info", "users", GROUP, CLUSTER);
    bob.get(CONFIG_MAPS).await.refused(
        403,
        "Forbidden",
        &format!("users.authentication.k8s.io \"bob\" is forbidden: {why}"),
    );
    let only_bob = json!([{
        "verbs": ["impersonate:user-info"], "apiGroups": [GROUP], "resources": ["users"],
        "resourceNames": ["bob"],
    }]);
    grant(&admin, "as", "eve", only_bob).await;
    bob.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(eve.get(CONFIG_MAPS).await.code, 403);
    assert_eq!(eve.taken_for("ann").get(CONFIG_MAPS).await.code, 403);
    // Bob may, but Eve impersonating Bob may not.
    let made = bob.post(CONFIG_MAPS, &config_map("a")).await;
    let why = cannot("impersonate-on:user-info:create", "configmaps", "", place);
    made.refused(403, "Forbidden", &format!("configmaps is forbidden: {why}"));
    for (method, path) in [
        (Method::GET, format!("{CONFIG_MAPS}/a")),
        (Method::GET, format!("{CONFIG_MAPS}?watch=true")),
        (Method::DELETE, CONFIG_MAPS.to_owned()),
        (Method::GET, PODS.to_owned()),
        (Method::GET, String::from("/version")),
    ] {
        let answer = bob.request(method.clone(), &path, &[], "").await;
        assert_eq!(answer.code, 403, "{method} {path}: {}", answer.text());
    }
    // It grants nothing by itself: requests that Bob may not send are rejected.
    grant(&admin, "pods", "eve", json!([rule(verb, "", "pods")])).await;
    bob.get(PODS).await.refused(
        403,
        "Forbidden",
        "pods is forbidden: User \"bob\" cannot list resource \"pods\" in API group \"\" in the \
         namespace \"default\"",
    );
    // Non-resource requests are treated alike.
    let path =
        json!([{"verbs": ["impersonate-on:user-info:get"], "nonResourceURLs": ["/version"]}]);
    grant(&admin, "path", "eve", path).await;
    bob.get("/version").await.expect(200);
    bob.get("/metrics").await.refused(
        403,
        "Forbidden",
        "forbidden: User \"eve\" cannot impersonate-on:user-info:get path \"/metrics\"",
    );
    server.stop().await;
}

#[tokio::test]
async fn every_part_of_a_user_needs_a_right() {
    let (server, admin, eve) = eve().await;
    let on = rule(
        "impersonate-on:user-info:create",
        GROUP,
        "selfsubjectreviews",
    );
    let verb = "impersonate:user-info";
    grant(&admin, "on", "eve", json!([on, rule(verb, GROUP, "users")])).await;
    let bob = eve.taken_for("bob");
    assert_eq!(
        who(&bob).await,
        json!({"username": "bob", "groups": ["system:authenticated"]})
    );
    let refused = |client: Client, resource: &'static str, name: &'static str| async move {
        let shown = resource.split('/').next().unwrap();
        let name = if name.is_empty() {
            String::new()
        } else {
            format!(" \"{name}\"")
        };
        let why = cannot(verb, resource, GROUP, CLUSTER);
        let message = format!("{shown}.authentication.k8s.io{name} is forbidden: {why}");
        let answer = client.post(SELF, &json!({})).await;
        answer.refused(403, "Forbidden", &message);
    };
    let dev = bob.with("impersonate-group", "dev");
    let extra = bob.with("impersonate-extra-acme.io%2fscopes", "view");
    refused(bob.with("impersonate-uid", "7"), "uids", "7").await;
    refused(dev.clone(), "groups", "dev").await;
    refused(extra.clone(), "userextras/acme.io/scopes", "view").await;

    grant(
        &admin,
        "parts",
        "eve",
        json!([
            {"verbs": [verb], "apiGroups": [GROUP], "resources": ["uids"], "resourceNames": ["7"]},
            {"verbs": [verb], "apiGroups": [GROUP], "resources": ["groups"], "resourceNames": ["dev", "system:masters", ""]},
            {"verbs": [verb], "apiGroups": [GROUP], "resources": ["userextras/acme.io/scopes"], "resourceNames": ["view"]},
            // Which does not make it valid.
            {"verbs": [verb], "apiGroups": [GROUP], "resources": ["userextras/scopes"]},
        ]),
    )
    .await;
    let all = dev
        .with("impersonate-uid", "7")
        .with("impersonate-extra-acme.io%2fscopes", "view");
    assert_eq!(
        who(&all).await,
        json!({
            "username": "bob", "uid": "7", "groups": ["dev", "system:authenticated"],
            "extra": {"acme.io/scopes": ["view"]},
        })
    );
    refused(
        extra.with("impersonate-extra-acme.io%2fscopes", "edit"),
        "userextras/acme.io/scopes",
        "edit",
    )
    .await;
    for (client, name, resource, why) in [
        (
            dev.with("impersonate-group", "system:masters"),
            " \"system:masters\"",
            "groups",
            "impersonating the system:masters group is not allowed",
        ),
        (
            dev.with("impersonate-group", ""),
            "",
            "groups",
            "impersonating the empty string group is not allowed",
        ),
        (
            bob.with("impersonate-extra-scopes", "view"),
            "",
            "userextras",
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \
             \"scopes\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            // Header names are case-insensitive, but percent-encoded characters are not.
            bob.with("impersonate-extra-acme.io%2f%53copes", "view"),
            "",
            "userextras",
            "impersonating a non-lowercase key in extra is not allowed: \"acme.io/Scopes\"",
        ),
        (
            bob.with("impersonate-extra-acme.io%2fscopes", ""),
            "",
            "userextras",
            "impersonating the empty string value in extra is not allowed",
        ),
    ] {
        let what = cannot(verb, resource, GROUP, CLUSTER);
        let message = format!("{resource}.authentication.k8s.io{name} is forbidden: {what}: {why}");
        let answer = client.post(SELF, &json!({})).await;
        answer.refused(403, "Forbidden", &message);
    }
    // With many groups, permission for all of them suffices, otherwise each of them is required.
    let many = ["a", "b", "c", "d"];
    let many = many.iter().fold(bob.clone(), |client, group| {
        client.with("impersonate-group", group)
    });
    refused(many.clone(), "groups", "a").await;
    grant(
        &admin,
        "any",
        "eve",
        json!([{"verbs": [verb], "apiGroups": [GROUP], "resources": ["groups"], "resourceNames": ["*"]}]),
    )
    .await;
    assert_eq!(
        who(&many).await["groups"],
        json!(["a", "b", "c", "d", "system:authenticated"])
    );
    refused(bob.with("impersonate-group", "a"), "groups", "a").await;
    server.stop().await;
}

#[tokio::test]
async fn nodes_and_service_accounts_have_modes_of_their_own() {
    let (server, admin, eve) = eve().await;
    let anybody = |mode: &str, resource: &str| {
        json!([
            rule(
                &format!("impersonate-on:{mode}:create"),
                GROUP,
                "selfsubjectreviews"
            ),
            rule(&format!("impersonate:{mode}"), GROUP, resource),
        ])
    };
    let node = eve.taken_for("system:node:n");
    let account = eve.taken_for("system:serviceaccount:shop:x");
    grant(&admin, "user-info", "eve", anybody("user-info", "*")).await;
    // Permission for any user does not include nodes and ServiceAccounts.
    for client in [&node, &account] {
        assert_eq!(client.post(SELF, &json!({})).await.code, 403);
    }
    // Similar names are ordinary users.
    for name in [
        "system:node:",
        "system:node:A",
        "system:serviceaccount:shop",
        "system:serviceaccount:SHOP:x",
        "system:serviceaccount:shop:x:y",
    ] {
        let user = who(&eve.taken_for(name)).await;
        assert_eq!(
            user,
            json!({"username": name, "groups": ["system:authenticated"]})
        );
    }
    grant(&admin, "nodes", "eve", anybody("arbitrary-node", "nodes")).await;
    assert_eq!(
        who(&node).await,
        json!({"username": "system:node:n", "groups": ["system:nodes", "system:authenticated"]})
    );
    grant(
        &admin,
        "accounts",
        "eve",
        anybody("serviceaccount", "serviceaccounts"),
    )
    .await;
    assert_eq!(
        who(&account).await["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:shop",
            "system:authenticated"
        ])
    );
    // Their groups, UIDs and extra values are set by the server.
    for client in [&node, &account] {
        for (name, value) in [
            ("impersonate-group", "system:masters"),
            ("impersonate-group", "dev"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-acme.io%2fa", "b"),
        ] {
            let answer = client.with(name, value).post(SELF, &json!({})).await;
            assert_eq!(answer.code, 403, "{name}: {}", answer.text());
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn the_right_to_impersonate_is_one_for_all_requests() {
    let (server, admin, eve) = eve().await;
    grant(
        &admin,
        "legacy",
        "eve",
        json!([
            rule("impersonate", "", "users"),
            rule("impersonate", "", "groups")
        ]),
    )
    .await;
    grant(
        &admin,
        "bob",
        "bob",
        json!([rule("list", "", "configmaps")]),
    )
    .await;
    let bob = eve.taken_for("bob");
    let ann = eve.taken_for("ann").with("impersonate-uid", "7");
    // Eve's mode is not cached yet: the first mode returns the error.
    let refused = ann.get(CONFIG_MAPS).await.expect(403);
    let first = refused["message"].as_str().unwrap();
    assert!(
        first.contains("cannot impersonate-on:user-info:list"),
        "{first}"
    );
    bob.get(CONFIG_MAPS).await.expect(200);
    // Now it is cached, and its error is returned.
    let why = cannot("impersonate", "uids", GROUP, CLUSTER);
    ann.get(CONFIG_MAPS).await.refused(
        403,
        "Forbidden",
        &format!("uids.authentication.k8s.io \"7\" is forbidden: {why}"),
    );
    // It does not include the group of nodes.
    let node = who(&eve.taken_for("system:node:n")).await;
    assert_eq!(node["groups"], json!(["system:authenticated"]));
    server.stop().await;
}

#[tokio::test]
async fn a_service_account_may_be_the_node_it_is_on() {
    let (server, admin, _) = eve().await;
    for name in ["n", "m"] {
        let node = json!({"metadata": {"name": name}});
        admin.create("/api/v1/nodes", node).await;
    }
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "robot"}});
    admin.create(accounts, account).await;
    let token = |spec: Value| {
        let admin = admin.clone();
        async move {
            let path = format!("{accounts}/robot/token");
            let made = admin.post(&path, &json!({"spec": spec})).await.expect(201);
            made["status"]["token"].as_str().unwrap().to_owned()
        }
    };
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "n"}});
    let robot = Client::with_token(&server, &token(bound).await).await;
    let unbound = Client::with_token(&server, &token(json!({})).await).await;
    let on = rule("impersonate-on:associated-node:list", "", "configmaps");
    grant(&admin, "on", ROBOT, json!([on])).await;
    grant(
        &admin,
        "nodes",
        "%system:nodes",
        json!([rule("list", "", "configmaps")]),
    )
    .await;
    let node = "system:node:n";
    robot.taken_for(node).get(CONFIG_MAPS).await.refused(
        403,
        "Forbidden",
        &format!(
            "nodes.authentication.k8s.io \"*\" is forbidden: User \"{ROBOT}\" cannot \
             impersonate:associated-node resource \"nodes\" in API group \"{GROUP}\" {CLUSTER}"
        ),
    );
    // Permission for one node is not enough: the ServiceAccount runs on several.
    let rights = |name: &str| {
        json!([{
            "verbs": ["impersonate:associated-node"], "apiGroups": [GROUP], "resources": ["nodes"],
            "resourceNames": [name],
        }])
    };
    grant(&admin, "one", ROBOT, rights("n")).await;
    assert_eq!(robot.taken_for(node).get(CONFIG_MAPS).await.code, 403);
    grant(&admin, "own", ROBOT, rights("*")).await;
    robot.taken_for(node).get(CONFIG_MAPS).await.expect(200);
    // Not another node, no additional attributes, no other request, and not without a node.
    for client in [
        robot.taken_for("system:node:m"),
        robot
            .taken_for(node)
            .with("impersonate-group", "system:nodes"),
        robot.taken_for(node).with("impersonate-uid", "7"),
        robot.taken_for("ann"),
        unbound.taken_for(node),
        robot.clone(),
    ] {
        let answer = client.get(CONFIG_MAPS).await;
        assert_eq!(answer.code, 403, "{}", answer.text());
    }
    assert_eq!(robot.taken_for(node).get(PODS).await.code, 403);
    server.stop().await;
}

#[tokio::test]
async fn the_audit_log_names_the_constraint() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(Settings {
        audit_log_path: Some(log.clone()),
        ..with_eve(FeatureGates::default())
    })
    .await;
    let admin = Client::admin(&server).await;
    let eve = Client::with_token(&server, "t").await;
    let rules = json!([
        rule("impersonate-on:user-info:list", "", "configmaps"),
        rule("impersonate:user-info", GROUP, "users"),
    ]);
    grant(&admin, "eve", "eve", rules).await;
    eve.taken_for("ann").get(CONFIG_MAPS).await;
    eve.taken_for("ann").get(PODS).await;
    admin
        .taken_for("ann")
        .with("impersonate-group", "system:masters")
        .get(CONFIG_MAPS)
        .await;
    let text = std::fs::read_to_string(&log).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["stage"] == "ResponseComplete" && event["verb"] == "list")
        .collect();
    let told: Vec<(&Value, &Value)> = events
        .iter()
        .map(|event| {
            (
                &event["impersonatedUser"]["username"],
                &event["authenticationMetadata"],
            )
        })
        .collect();
    let constraint = json!({"impersonationConstraint": "impersonate:user-info"});
    assert_eq!(
        told,
        [
            (&json!("ann"), &constraint),
            (&Value::Null, &Value::Null),
            // `system:masters` cannot be impersonated in that mode.
            (&json!("ann"), &Value::Null),
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn without_the_gate_there_is_one_right() {
    for gates in [
        FeatureGates {
            constrained_impersonation: false,
            ..FeatureGates::default()
        },
        FeatureGates::of(KubeVersion::V1_35),
    ] {
        let server = start_with(with_eve(gates)).await;
        let admin = Client::admin(&server).await;
        let eve = Client::with_token(&server, "t").await;
        let rules = json!([
            rule("impersonate-on:user-info:list", "", "configmaps"),
            rule("impersonate:user-info", GROUP, "users"),
        ]);
        grant(&admin, "eve", "eve", rules).await;
        let why = cannot("impersonate", "users", "", CLUSTER);
        eve.taken_for("ann").get(CONFIG_MAPS).await.refused(
            403,
            "Forbidden",
            &format!("users \"ann\" is forbidden: {why}"),
        );
        server.stop().await;
    }
}
