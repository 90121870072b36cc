//! The default roles, aggregated roles, and their permissions.

use std::sync::Arc;

use lockgate_apiserver::{AuthorizationMode, Running, Settings};
use lockgate_store::MemoryStore;
use serde_json::{Value, json};

use crate::support::*;

const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

fn on_a_free_port() -> Settings {
    Settings {
        secure_port: 0,
        ..Settings::default()
    }
}

fn role(name: &str, label: &str, rule: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {label: "true"}},
        "rules": [rule],
    })
}

fn has_rule(role: &Value, rule: &Value) -> bool {
    let rules = role["rules"].as_array().into_iter().flatten();
    rules.into_iter().any(|found| found == rule)
}

async fn bind(client: &Client, user: &str, role: &str, namespace: &str) {
    let binding = json!({
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let path = format!("{GROUP}/namespaces/{namespace}/rolebindings");
    client.create(&path, binding).await;
}

/// Recorded from kube-apiserver v1.36.4: a rejected bind reports the role with storage's error, which names the
/// resource of the request.
#[tokio::test]
async fn roles_that_cannot_be_bound_are_named_as_upstream_does() {
    let server = start_with(Settings::default()).await;
    let client = Client::admin(&server).await;
    let rule = json!({
        "verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["rolebindings", "clusterrolebindings"],
    });
    client
        .create(CLUSTER_ROLES, role("binder", "l", &rule))
        .await;
    let everywhere = json!({
        "metadata": {"name": "binder"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "binder"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    client.create(BINDINGS, everywhere).await;
    let bob = client.taken_for("bob");
    let inside = format!("{GROUP}/namespaces/default/rolebindings");
    for (path, kind, name, code, message) in [
        (
            inside.as_str(),
            "Role",
            "none",
            404,
            "rolebindings.rbac.authorization.k8s.io \"none\" not found",
        ),
        (
            &inside,
            "ClusterRole",
            "none",
            404,
            "rolebindings.rbac.authorization.k8s.io \"none\" not found",
        ),
        (
            BINDINGS,
            "ClusterRole",
            "none",
            404,
            "clusterrolebindings.rbac.authorization.k8s.io \"none\" not found",
        ),
        (&inside, "Role", "", 400, "Name parameter required."),
        (
            &inside,
            "Role",
            "a/b",
            400,
            "Name parameter invalid: \"a/b\": may not contain '/'",
        ),
        (
            BINDINGS,
            "Role",
            "none",
            400,
            "Namespace parameter required.",
        ),
    ] {
        let binding = json!({
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        });
        let answer = bob.post(path, &binding).await;
        let told = answer.json()["message"].as_str().map(str::to_owned);
        assert_eq!(
            (answer.code, told.as_deref()),
            (code, Some(message)),
            "{path} {kind} {name}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn are_there_from_the_start() {
    let server = start_with(Settings::default()).await;
    let client = Client::admin(&server).await;
    for (plural, count) in [
        ("clusterroles", 69),
        ("clusterrolebindings", 50),
        ("roles", 7),
        ("rolebindings", 7),
    ] {
        let list = client.get(&format!("{GROUP}/{plural}")).await.expect(200);
        assert_eq!(names(&list).len(), count, "{plural}");
    }
    let found = client
        .get(&format!("{CLUSTER_ROLES}/system:discovery"))
        .await
        .expect(200);
    assert_eq!(
        found["metadata"]["labels"],
        json!({"kubernetes.io/bootstrapping": "rbac-defaults"})
    );
    assert_eq!(
        found["metadata"]["annotations"],
        json!({AUTO_UPDATE: "true"})
    );

    // They grant the expected permissions.
    for (user, role) in [("ann", "admin"), ("eve", "edit"), ("vic", "view")] {
        bind(&client, user, role, "default").await;
    }
    let may = |user: &str, path: &str| {
        let client = client.taken_for(user);
        let path = path.to_owned();
        async move { client.get(&path).await.code == 200 }
    };
    let roles = format!("{GROUP}/namespaces/default/roles");
    let secrets = "/api/v1/namespaces/default/secrets";
    for (user, of) in [
        ("ann", [true, true, true]),
        ("eve", [true, true, false]),
        ("vic", [true, false, false]),
        ("bob", [false, false, false]),
    ] {
        let found = [
            may(user, DEPLOYMENTS).await,
            may(user, secrets).await,
            may(user, &roles).await,
        ];
        assert_eq!(found, of, "{user}");
        assert!(!may(user, "/api/v1/nodes").await);
    }
    server.stop().await;
}

#[tokio::test]
async fn are_made_from_others() {
    let server = start_with(Settings::default()).await;
    let client = Client::admin(&server).await;
    let rule = json!({"verbs": ["create"], "apiGroups": ["example.com"], "resources": ["widgets"]});
    let before = client
        .get(&format!("{CLUSTER_ROLES}/edit"))
        .await
        .expect(200);
    let label = "rbac.authorization.k8s.io/aggregate-to-edit";
    client
        .create(CLUSTER_ROLES, role("widgets", label, &rule))
        .await;
    let edit = client
        .wait_until(CLUSTER_ROLES, "edit", |role| has_rule(role, &rule))
        .await;
    // Every permission of edit is in admin; view has fewer.
    client
        .wait_until(CLUSTER_ROLES, "admin", |role| has_rule(role, &rule))
        .await;
    let view = client
        .get(&format!("{CLUSTER_ROLES}/view"))
        .await
        .expect(200);
    assert!(!has_rule(&view, &rule));
    let owners = edit["metadata"]["managedFields"].as_array().unwrap();
    assert!(owners.iter().any(|owner| {
        owner["manager"] == "clusterrole-aggregation-controller" && owner["operation"] == "Apply"
    }));

    client
        .delete(&format!("{CLUSTER_ROLES}/widgets"))
        .await
        .expect(200);
    client
        .wait_until(CLUSTER_ROLES, "edit", |role| {
            role["rules"] == before["rules"]
        })
        .await;

    // A custom role.
    let mine = json!({
        "metadata": {"name": "mine"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "mine"}}]},
    });
    client.create(CLUSTER_ROLES, mine).await;
    let mut part = role("part", "to", &rule);
    part["metadata"]["labels"]["to"] = "mine".into();
    client.create(CLUSTER_ROLES, part).await;
    client
        .wait_until(CLUSTER_ROLES, "mine", |role| role["rules"] == json!([rule]))
        .await;
    server.stop().await;
}

#[tokio::test]
async fn roles_in_a_circle_come_to_rest() {
    let server = start_with(Settings::default()).await;
    let client = Client::admin(&server).await;
    // Each aggregates the next, so the rules form a cycle.
    for (name, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let role = json!({
            "metadata": {"name": name, "labels": {"is": name}},
            "rules": [{"verbs": [name], "apiGroups": [""], "resources": ["pods"]}],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"is": next}}]},
        });
        client.create(CLUSTER_ROLES, role).await;
    }
    // The controller does not loop: other changes are still processed.
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let label = "rbac.authorization.k8s.io/aggregate-to-view";
    client
        .create(CLUSTER_ROLES, role("more", label, &rule))
        .await;
    client
        .wait_until(CLUSTER_ROLES, "view", |role| has_rule(role, &rule))
        .await;
    server.stop().await;
}

#[tokio::test]
async fn are_restored_at_the_next_start() {
    let store = MemoryStore::new();
    let server = Running::start(on_a_free_port(), Arc::new(store.clone()))
        .await
        .unwrap();
    let client = Client::admin(&server).await;
    let role = |name: &str| format!("{CLUSTER_ROLES}/{name}");
    let own = json!({"verbs": ["get"], "nonResourceURLs": ["/own"]});
    let discovery = client.get(&role("system:discovery")).await.expect(200);
    let fewer = json!({"metadata": {"labels": {"own": "1"}}, "rules": [own]});
    for name in ["system:discovery", "system:monitoring"] {
        client.patch(&role(name), "merge", &fewer).await.expect(200);
    }
    let protect = json!({"metadata": {"annotations": {AUTO_UPDATE: "false"}}});
    client
        .patch(&role("system:monitoring"), "merge", &protect)
        .await
        .expect(200);
    client.delete(&role("system:basic-user")).await.expect(200);
    let nobody = json!({"subjects": []});
    client
        .patch(&format!("{BINDINGS}/system:discovery"), "merge", &nobody)
        .await
        .expect(200);
    server.stop().await;

    let server = Running::start(on_a_free_port(), Arc::new(store))
        .await
        .unwrap();
    let client = Client::admin(&server).await;
    client.get(&role("system:basic-user")).await.expect(200);
    let restored = client.get(&role("system:discovery")).await.expect(200);
    assert_eq!(restored["metadata"]["uid"], discovery["metadata"]["uid"]);
    assert_eq!(restored["metadata"]["labels"]["own"], "1");
    assert!(has_rule(&restored, &own));
    let paths: Vec<&Value> = restored["rules"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|rule| rule["nonResourceURLs"].as_array().unwrap())
        .collect();
    assert!(paths.contains(&&json!("/apis/*")));
    let protected = client.get(&role("system:monitoring")).await.expect(200);
    assert_eq!(protected["rules"], json!([own]));
    let binding = client
        .get(&format!("{BINDINGS}/system:discovery"))
        .await
        .expect(200);
    assert_eq!(binding["subjects"][0]["name"], "system:authenticated");
    server.stop().await;
}

#[tokio::test]
async fn people_are_told_what_they_may_do() {
    let server = start_with(Settings::default()).await;
    let client = Client::admin(&server).await;
    let review = |namespace: &str| {
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        })
    };
    client
        .post(REVIEWS, &review(""))
        .await
        .refused(400, "BadRequest", "no namespace on request");
    let all = client.create(REVIEWS, review("default")).await;
    assert_eq!(all["kind"], "SelfSubjectRulesReview");
    assert_eq!(all["spec"], json!({}));
    assert_eq!(all["status"]["incomplete"], false);
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    assert!(
        all["status"]["resourceRules"]
            .as_array()
            .unwrap()
            .contains(&everything)
    );

    let rule = json!({
        "verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"],
    });
    client
        .create(CLUSTER_ROLES, role("reader", "l", &rule))
        .await;
    bind(&client, "bob", "reader", "default").await;
    bind(&client, "bob", "nobody", "default").await;
    let bob = client.taken_for("bob");
    let bobs = bob.create(REVIEWS, review("default")).await;
    let rules = bobs["status"]["resourceRules"].as_array().unwrap();
    assert_eq!(rules.last(), Some(&rule));
    let paths = bobs["status"]["nonResourceRules"].as_array().unwrap();
    assert!(paths.iter().any(|rule| {
        rule["nonResourceURLs"]
            .as_array()
            .unwrap()
            .contains(&json!("/version"))
    }));
    assert_eq!(
        bobs["status"]["evaluationError"],
        "clusterrole.rbac.authorization.k8s.io \"nobody\" not found"
    );
    let elsewhere = bob.create(REVIEWS, review("kube-system")).await;
    let rules = elsewhere["status"]["resourceRules"].as_array().unwrap();
    assert!(!rules.contains(&rule));
    assert_eq!(elsewhere["status"].get("evaluationError"), None);
    server.stop().await;

    let server = start_with(Settings {
        authorization_mode: AuthorizationMode::AlwaysAllow,
        ..Settings::default()
    })
    .await;
    let client = Client::admin(&server).await;
    let all = client.create(REVIEWS, review("default")).await;
    assert_eq!(
        all["status"],
        json!({
            "resourceRules": [everything],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        })
    );
    server.stop().await;
}
