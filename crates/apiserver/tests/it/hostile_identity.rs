//! No request is executed as another user, or on another target, than authorized.

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use lockgate_apiserver::{AuthorizationMode, Settings, TestServer};
use serde_json::{Value, json};

use crate::support::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn role(kind: &str, name: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "rules": rules,
    })
}

fn binding(kind: &str, name: &str, (role_kind, role): (&str, &str), user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

/// Grants a user permissions in one namespace.
async fn grant(admin: &Client, namespace: &str, user: &str, rules: Value) {
    let place = format!("{RBAC}/namespaces/{namespace}");
    let name = format!("{user}-grant");
    admin
        .create(&format!("{place}/roles"), role("Role", &name, rules))
        .await;
    let bound = binding("RoleBinding", &name, ("Role", &name), user);
    admin.create(&format!("{place}/rolebindings"), bound).await;
}

async fn namespace(admin: &Client, name: &str) {
    let object = json!({"metadata": {"name": name}});
    admin.create("/api/v1/namespaces", object).await;
}

/// A request with a header value of raw bytes.
async fn with_header(
    server: &TestServer,
    name: &str,
    value: &[u8],
    credentials: Credentials,
) -> Answer {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(WHO)
        .header("host", "server")
        .header("content-type", "application/json");
    for (name, value) in &credentials.headers {
        request = request.header(name, value);
    }
    let mut request = request.body(body(Bytes::from_static(b"{}"))).unwrap();
    let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
    let value = HeaderValue::from_bytes(value).unwrap();
    request.headers_mut().append(name, value);
    http1_request(server, &credentials, request).await
}

#[tokio::test]
async fn a_role_in_one_namespace_reaches_no_other_namespace() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    for name in ["team-a", "victim"] {
        namespace(&admin, name).await;
    }
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    grant(&admin, "team-a", "mallory", everything).await;
    let mallory = admin.taken_for("mallory");
    let within = "/api/v1/namespaces/team-a/namespaces";
    let gone = "the server could not find the requested resource";
    let labels = json!({"metadata": {"labels": {"steered": "yes"}}});
    let object = json!({"metadata": {"name": "made"}});
    for inner in [
        within.to_owned(),
        format!("{within}/victim"),
        format!("{within}/kube-system"),
        format!("{within}/team-a"),
        format!("{within}/victim/status"),
        format!("{within}/victim/finalize"),
        String::from("/api/v1/namespaces/team-a%2Fnamespaces/victim"),
        String::from("/api/v1/namespaces/team-a/namespaces%2Fvictim"),
    ] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let json = [("content-type", "application/json")];
            let answer = mallory
                .request(method.clone(), &inner, &json, object.to_string())
                .await;
            answer.refused(404, "NotFound", gone);
        }
        let answer = mallory.patch(&inner, "merge", &labels).await;
        answer.refused(404, "NotFound", gone);
    }
    // A user without permissions gets no details either.
    let answer = admin
        .taken_for("eve")
        .get(&format!("{within}/victim"))
        .await;
    assert_eq!(answer.code, 403);
    // In their own namespace they may read it, as upstream.
    mallory.get("/api/v1/namespaces/team-a").await.expect(200);
    assert_eq!(mallory.get("/api/v1/namespaces/victim").await.code, 403);
    let victim = admin.get("/api/v1/namespaces/victim").await.expect(200);
    assert!(victim["metadata"]["labels"]["steered"].is_null());
    assert!(victim["metadata"]["deletionTimestamp"].is_null());
    server.stop().await;
}

#[tokio::test]
async fn paths_that_go_on_after_a_subresource_do_nothing() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    admin.create(CONFIG_MAPS, config_map("a")).await;
    let gone = "the server could not find the requested resource";
    for path in [
        "/api/v1/namespaces/default/status/more",
        "/apis/apps/v1/namespaces/default/deployments/d/scale/more",
        "/api/v1/watch/namespaces/default/configmaps",
    ] {
        admin.get(path).await.refused(404, "NotFound", gone);
    }
    let doubled = admin.get("//api/v1/namespaces/default/configmaps/a").await;
    assert_eq!(doubled.text(), "404 page not found\n");
    // A method without a verb has no effect.
    let answer = admin.request(Method::OPTIONS, CONFIG_MAPS, &[], "").await;
    assert_eq!(answer.code, 405, "{}", answer.text());
    server.stop().await;
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    namespace(&admin, "team-a").await;
    let cluster_roles = format!("{RBAC}/clusterroles");
    let cluster_bindings = format!("{RBAC}/clusterrolebindings");
    let roles = format!("{RBAC}/namespaces/team-a/roles");
    let bindings = format!("{RBAC}/namespaces/team-a/rolebindings");
    let writes = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"],
         "verbs": ["create", "update", "patch", "get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]);
    admin
        .create(&cluster_roles, role("ClusterRole", "role-writer", writes))
        .await;
    let bound = ("ClusterRole", "role-writer");
    admin
        .create(
            &cluster_bindings,
            binding("ClusterRoleBinding", "mallory", bound, "mallory"),
        )
        .await;
    let mallory = admin.taken_for("mallory");
    let lacks = |resource: &str, name: &str, what: &str| {
        format!(
            "{resource}.rbac.authorization.k8s.io \"{name}\" is forbidden: user \"mallory\" \
             (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not \
             currently held:\n{what}"
        )
    };
    let pods = |verbs: Value| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
    // Creating.
    let secrets = json!([
        {"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]);
    let missing = "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
                   {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
                   {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}";
    let answer = mallory
        .post(&cluster_roles, &role("ClusterRole", "more", secrets))
        .await;
    answer.refused(403, "Forbidden", &lacks("clusterroles", "more", missing));
    let own = mallory
        .create(&roles, role("Role", "own", pods(json!(["get"]))))
        .await;
    // Updating and patching.
    let delete = "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}";
    let mut grown = own.clone();
    grown["rules"] = pods(json!(["get", "delete"]));
    let answer = mallory.put(&format!("{roles}/own"), &grown).await;
    answer.refused(403, "Forbidden", &lacks("roles", "own", delete));
    let patch = json!({"rules": pods(json!(["delete"]))});
    for kind in ["merge", "strategic"] {
        let answer = mallory.patch(&format!("{roles}/own"), kind, &patch).await;
        answer.refused(403, "Forbidden", &lacks("roles", "own", delete));
    }
    let applied = role("Role", "applied", pods(json!(["delete"])));
    let answer = mallory
        .patch(
            &format!("{roles}/applied?fieldManager=m"),
            "apply",
            &applied,
        )
        .await;
    answer.refused(403, "Forbidden", &lacks("roles", "applied", delete));
    let answer = mallory
        .put(
            &format!("{roles}/put"),
            &role("Role", "put", pods(json!(["delete"]))),
        )
        .await;
    answer.refused(403, "Forbidden", &lacks("roles", "put", delete));
    // Binding.
    for (path, kind) in [
        (&cluster_bindings, "ClusterRoleBinding"),
        (&bindings, "RoleBinding"),
    ] {
        let resource = path.rsplit('/').next().unwrap();
        let bound = binding(kind, "up", ("ClusterRole", "cluster-admin"), "mallory");
        let all = "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n\
                   {NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
        let answer = mallory.post(path, &bound).await;
        answer.refused(403, "Forbidden", &lacks(resource, "up", all));
        let unknown = binding(kind, "up", ("ClusterRole", "absent"), "mallory");
        let answer = mallory.post(path, &unknown).await;
        let message = format!("{resource}.rbac.authorization.k8s.io \"absent\" not found");
        answer.refused(404, "NotFound", &message);
    }
    mallory
        .create(
            &bindings,
            binding("RoleBinding", "fine", ("Role", "own"), "friend"),
        )
        .await;
    // Aggregation rules require all permissions.
    let mut gathers = role("ClusterRole", "gathers", json!([]));
    gathers["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let answer = mallory.post(&cluster_roles, &gathers).await;
    answer.refused(
        403,
        "Forbidden",
        "clusterroles.rbac.authorization.k8s.io \"gathers\" is forbidden: must have cluster-admin \
         privileges to use the aggregationRule",
    );
    // The escalation verbs.
    let allow = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "clusterroles"], "verbs": ["escalate", "bind"],
    }]);
    grant(&admin, "team-a", "mallory", allow).await;
    mallory
        .put(&format!("{roles}/own"), &grown)
        .await
        .expect(200);
    let bound = binding(
        "RoleBinding",
        "up",
        ("ClusterRole", "cluster-admin"),
        "mallory",
    );
    mallory.create(&bindings, bound).await;
    server.stop().await;
}

#[tokio::test]
async fn the_admin_of_a_namespace_cannot_make_themselves_more() {
    // `admin` has an aggregation rule.
    let server = start_with(Settings::default()).await;
    let admin = Client::admin(&server).await;
    namespace(&admin, "team-a").await;
    let bindings = format!("{RBAC}/namespaces/team-a/rolebindings");
    admin
        .create(
            &bindings,
            binding("RoleBinding", "boss", ("ClusterRole", "admin"), "boss"),
        )
        .await;
    let boss = admin.taken_for("boss");
    // Users may grant permissions they have.
    for role in ["admin", "edit", "view"] {
        boss.create(
            &bindings,
            binding("RoleBinding", role, ("ClusterRole", role), "friend"),
        )
        .await;
    }
    let up = binding(
        "RoleBinding",
        "up",
        ("ClusterRole", "cluster-admin"),
        "boss",
    );
    assert_eq!(boss.post(&bindings, &up).await.code, 403);
    // Removing references that they may not add is allowed: owner references and finalizers are not rules.
    admin.create(&bindings, up.clone()).await;
    let patch = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    boss.patch(&format!("{bindings}/up"), "merge", &patch)
        .await
        .expect(200);
    server.stop().await;
}

#[tokio::test]
async fn headers_beyond_ascii_never_count_as_absent() {
    let server = start().await;
    let admin = admin(&server);
    for (value, name) in [("müller", "müller"), ("日本", "日本")] {
        let answer =
            with_header(&server, "impersonate-user", value.as_bytes(), admin.clone()).await;
        let review = answer.expect(201);
        assert_eq!(review["status"]["userInfo"]["username"], name);
    }
    let latin1 = b"m\xfcller";
    for header in [
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-scopes",
    ] {
        let mut credentials = admin.clone();
        if header != "impersonate-user" {
            credentials
                .headers
                .push((String::from("impersonate-user"), String::from("ann")));
        }
        let answer = with_header(&server, header, latin1, credentials.clone()).await;
        let message = format!("header \"{header}\" is not UTF-8");
        answer.refused(400, "BadRequest", &message);
        let answer = with_header(&server, header, "ü".as_bytes(), credentials).await;
        assert_eq!(answer.code, 201, "{header}: {}", answer.text());
    }
    let anonymous = Credentials::default();
    for token in ["Bearer ä".as_bytes(), b"Bearer \xff"] {
        let answer = with_header(&server, "authorization", token, anonymous.clone()).await;
        answer.refused(401, "Unauthorized", "Unauthorized");
    }
    server.stop().await;
}

#[tokio::test]
async fn whoever_is_taken_for_unauthenticated_stays_so() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let nobody = admin
        .taken_for("ann")
        .with("impersonate-group", "system:unauthenticated");
    let review = nobody.post(WHO, &json!({})).await;
    // They may not even create reviews, unlike `system:authenticated`.
    assert_eq!(review.code, 403, "{}", review.text());
    server.stop().await;
}

#[tokio::test]
async fn who_shows_nothing_gets_nothing_where_everything_is_allowed() {
    let server = start_with(Settings {
        authorization_mode: AuthorizationMode::AlwaysAllow,
        ..settings()
    })
    .await;
    let anonymous = Client::anonymous(&server).await;
    for path in ["/api/v1/secrets", "/livez", "/version"] {
        let answer = anonymous.get(path).await;
        answer.refused(401, "Unauthorized", "Unauthorized");
    }
    Client::admin(&server)
        .await
        .get("/api/v1/secrets")
        .await
        .expect(200);
    server.stop().await;
}

#[tokio::test]
async fn a_field_selector_by_name_asks_about_that_name() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    for name in ["mine", "theirs"] {
        admin.create(CONFIG_MAPS, config_map(name)).await;
    }
    let one = json!([{
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"],
        "verbs": ["list", "watch", "deletecollection"],
    }]);
    grant(&admin, "default", "ann", one).await;
    let ann = admin.taken_for("ann");
    let by_name = |name: &str| format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3D{name}");
    let found = ann.get(&by_name("mine")).await.expect(200);
    assert_eq!(names(&found), ["mine"]);
    assert_eq!(ann.watch(&by_name("mine")).await.line().await, "ADDED mine");
    for path in [
        by_name("theirs"),
        String::from(CONFIG_MAPS),
        format!("{CONFIG_MAPS}?fieldSelector=metadata.name!%3Dmine"),
        format!("{}&limit=x", by_name("mine")),
    ] {
        assert_eq!(ann.get(&path).await.code, 403, "{path}");
    }
    assert_eq!(ann.delete(&by_name("mine")).await.code, 403);
    server.stop().await;
}
