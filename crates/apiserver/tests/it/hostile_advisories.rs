//! Past vulnerabilities of kube-apiserver, its admission plugins and webhook clients, by advisory number.

use http::Method;
use lockgate_apiserver::{AuthorizationMode, Settings, TestServer};
use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Grants a user cluster-wide permissions, and returns the user's client.
async fn grant(admin: &Client, user: &str, rules: Value) -> Client {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    admin.create(&format!("{RBAC}/clusterroles"), role).await;
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    admin
        .create(&format!("{RBAC}/clusterrolebindings"), binding)
        .await;
    admin.with("impersonate-user", user)
}

/// A CustomResourceDefinition in `example.com`.
fn kind(plural: &str, kind: &str, scope: &str) -> Value {
    let mut definition = definition(json!([open_version("v1", true)]));
    definition["metadata"]["name"] = format!("{plural}.example.com").into();
    definition["spec"]["scope"] = scope.into();
    definition["spec"]["names"] =
        json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
    definition
}

fn custom(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"secret": "of the other kind"},
    })
}

/// CVE-2018-1002105: an upgrade request does not bypass authentication.
#[tokio::test]
async fn an_upgrade_carries_no_identity_to_what_follows() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    admin.create(PODS, pod("p")).await;
    let exec = json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}]);
    grant(&admin, "eve", exec).await;
    let connector = tls(&server, &Credentials::default(), "http/1.1");
    let mut stream = connect(&connector, server.address()).await;
    let upgrade = format!(
        "GET {PODS}/p/exec?command=id HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n"
    );
    let secrets = "GET /api/v1/secrets HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(upgrade.as_bytes()).await.unwrap();
    stream.write_all(secrets.as_bytes()).await.unwrap();
    let mut answers = Vec::new();
    let _ = within(stream.read_to_end(&mut answers)).await;
    let answers = String::from_utf8_lossy(&answers);
    let codes: Vec<&str> = answers.matches("HTTP/1.1 ").collect();
    assert!(!codes.is_empty(), "{answers}");
    assert!(!answers.contains("HTTP/1.1 101"), "{answers}");
    assert!(!answers.contains("HTTP/1.1 200"), "{answers}");
    server.stop().await;
}

/// CVE-2019-11247: cluster-scoped objects are not served below a namespace.
#[tokio::test]
async fn cluster_scoped_objects_are_in_no_namespace() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    admin
        .create(DEFINITIONS, kind("clusters", "Cluster", "Cluster"))
        .await;
    admin
        .create("/apis/example.com/v1/clusters", custom("Cluster", "c"))
        .await;
    let inside = "/apis/example.com/v1/namespaces/default/clusters";
    for (method, path) in [
        (Method::GET, inside.to_owned()),
        (Method::GET, format!("{inside}/c")),
        (Method::DELETE, format!("{inside}/c")),
        (Method::DELETE, inside.to_owned()),
    ] {
        let answer = admin.request(method, &path, &[], "").await;
        assert_eq!(answer.code, 404, "{path}: {}", answer.text());
    }
    let answer = admin.post(inside, &custom("Cluster", "d")).await;
    assert_eq!(answer.code, 404, "{}", answer.text());
    assert_eq!(admin.get("/apis/example.com/v1/clusters/c").await.code, 200);
    server.stop().await;
}

/// CVE-2022-3162: permission to list one kind of a group does not include its other kinds.
#[tokio::test]
async fn kinds_of_a_group_are_apart() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    admin
        .create(DEFINITIONS, kind("widgets", "Widget", "Namespaced"))
        .await;
    admin
        .create(DEFINITIONS, kind("gadgets", "Gadget", "Namespaced"))
        .await;
    let gadgets = "/apis/example.com/v1/namespaces/default/gadgets";
    admin.create(gadgets, custom("Gadget", "g")).await;
    let rules = json!([{
        "apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "list", "watch", "update", "delete"],
    }]);
    let eve = grant(&admin, "eve", rules).await;
    for path in [
        "/apis/example.com/v1/widgets",
        "/apis/example.com/v1/widgets?fieldSelector=metadata.name%3D..%2Fgadgets",
        "/apis/example.com/v1/namespaces/..%2Fgadgets/widgets",
        "/apis/example.com/v1/namespaces/../gadgets",
        "/apis/example.com/v1/namespaces/default/widgets/..%2F..%2Fgadgets%2Fdefault%2Fg",
        "/apis/example.com/v1/namespaces/default/widgets/..",
        "/apis/example.com/v1/namespaces/../widgets/gadgets",
        "/apis/example.com/v1/namespaces/../widgets",
        "/apis/example.com/v1/namespaces/./widgets/g",
        "/apis/example.com/v1/widgets/..%2fgadgets",
        "/apis/example.com/v1/gadgets",
        "/apis/example.com/v1/namespaces/default/gadgets/g",
    ] {
        let answer = eve.get(path).await;
        assert!(
            !answer.text().contains("of the other kind"),
            "{path}: {}",
            answer.text()
        );
        let answer = eve.delete(path).await;
        assert_ne!(answer.code, 500, "{path}");
    }
    assert_eq!(admin.get(&format!("{gadgets}/g")).await.code, 200);
    server.stop().await;
}

/// CVE-2019-11253: small YAML does not expand to a large object. CVE-2019-1002100: nor do many patch operations.
#[tokio::test]
async fn small_bodies_cost_little() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let mut bomb = String::from("apiVersion: v1\nkind: ConfigMap\ndata:\n  a: &a0 x\n");
    for level in 1..30 {
        let before = format!("*a{},", level - 1).repeat(9);
        bomb.push_str(&format!("  b{level}: &a{level} [{before}]\n"));
    }
    let yaml = [("content-type", "application/yaml")];
    let answer = admin.request(Method::POST, CONFIG_MAPS, &yaml, bomb).await;
    assert_eq!(answer.code, 400, "{}", answer.text());
    admin.create(CONFIG_MAPS, config_map("c")).await;
    let operation = json!({"op": "replace", "path": "/data/a", "value": "1"});
    let patch = Value::from(vec![operation; 10_001]);
    let answer = admin
        .patch(&format!("{CONFIG_MAPS}/c"), "json", &patch)
        .await;
    assert_eq!(answer.code, 413, "{}", answer.text());
    server.stop().await;
}

/// CVE-2020-8559, CVE-2020-8561, CVE-2022-3172: a webhook's redirect is not followed, and its target is not disclosed.
#[tokio::test]
async fn webhooks_lead_the_server_nowhere() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let inside = WebhookServer::start().await;
    inside.script("/metadata", [Script::http(200, "a secret of the network")]);
    let hooks = WebhookServer::start().await;
    for (number, code) in [301, 302, 303, 307, 308].into_iter().enumerate() {
        hooks.script("/hook", [Script::redirect(code, &inside.url("/metadata"))]);
        let name = format!("v{number}");
        let configuration = hook(
            "ValidatingWebhookConfiguration",
            &name,
            &hooks.url("/hook"),
            hooks.ca_pem(),
        );
        admin.create(VALIDATING, configuration).await;
        let answer = admin.post(CONFIG_MAPS, &config_map("c")).await;
        assert_eq!(answer.code, 500, "{code}: {}", answer.text());
        assert!(
            !answer.text().contains("a secret of the network"),
            "{}",
            answer.text()
        );
        assert!(!answer.text().contains("/metadata"), "{}", answer.text());
        admin
            .delete(&format!("{VALIDATING}/{name}"))
            .await
            .expect(200);
    }
    assert_eq!(inside.requests().len(), 0);
    hooks.stop().await;
    inside.stop().await;
    server.stop().await;
}

/// CVE-2021-25735: webhooks validating a Node update receive the old object unchanged.
#[tokio::test]
async fn updates_of_nodes_show_what_was_there() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let node = |value: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"kept": value}}});
    admin.create("/api/v1/nodes", node("old")).await;
    let hooks = WebhookServer::start().await;
    let seen = Script::review(|review| {
        let request = &review["request"];
        let was = &request["oldObject"]["metadata"]["labels"]["kept"];
        let is = &request["object"]["metadata"]["labels"]["kept"];
        json!({
            "apiVersion": review["apiVersion"], "kind": review["kind"],
            "response": {
                "uid": request["uid"], "allowed": was == is,
                "status": {"message": format!("{was} became {is}")},
            },
        })
    });
    hooks.script(
        "/hook",
        vec![seen.clone(), seen.clone(), seen.clone(), seen],
    );
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "v",
        &hooks.url("/hook"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["nodes", "nodes/status"]);
    admin.create(VALIDATING, configuration).await;
    let path = "/api/v1/nodes/n";
    let mut changed = admin.get(path).await.expect(200);
    changed["metadata"]["labels"]["kept"] = "new".into();
    let merge = json!({"metadata": {"labels": {"kept": "new"}}});
    for answer in [
        admin.put(path, &changed).await,
        admin.patch(path, "merge", &merge).await,
        admin.patch(path, "strategic", &merge).await,
        admin.put(&format!("{path}/status"), &changed).await,
    ] {
        let text = answer.text();
        assert!(
            answer.code == 400 && text.contains(r#"\"old\" became \"new\""#) || answer.code == 200,
            "{text}"
        );
    }
    let kept = admin.get(path).await.expect(200);
    assert_eq!(kept["metadata"]["labels"]["kept"], "old");
    hooks.stop().await;
    server.stop().await;
}

async fn with_accounts() -> TestServer {
    start_with(Settings {
        disable_plugins: Vec::new(),
        ..settings()
    })
    .await
}

/// CVE-2023-2728 and CVE-2024-3177: a ServiceAccount with a list of secrets can mount no others, through any container
/// type or field.
#[tokio::test]
async fn accounts_mount_only_their_secrets() {
    let server = with_accounts().await;
    let admin = Client::admin(&server).await;
    let account = json!({
        "metadata": {"name": "robot", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "allowed"}],
    });
    admin
        .create("/api/v1/namespaces/default/serviceaccounts", account)
        .await;
    let with = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut object = pod(name);
        object["spec"]["serviceAccountName"] = "robot".into();
        object["spec"]["automountServiceAccountToken"] = false.into();
        change(&mut object);
        object
    };
    let env_from = |name: &str| json!([{"secretRef": {"name": name}}]);
    let env = json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]);
    let init = |envs: Value| {
        move |pod: &mut Value| {
            pod["spec"]["initContainers"] = json!([{"name": "i", "image": "i", "envFrom": envs}]);
        }
    };
    let of_container =
        |pod: &mut Value| pod["spec"]["containers"][0]["envFrom"] = env_from("other");
    let of_env = |pod: &mut Value| pod["spec"]["containers"][0]["env"] = env.clone();
    let of_volume = |pod: &mut Value| {
        pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "other"}}]);
    };
    let of_init = init(env_from("other"));
    let refused: [&dyn Fn(&mut Value); 4] = [&of_container, &of_env, &of_volume, &of_init];
    for (name, change) in ["container", "env", "volume", "init"].iter().zip(refused) {
        let answer = admin.post(PODS, &with(name, change)).await;
        assert_eq!(answer.code, 403, "{name}: {}", answer.text());
    }
    let fine = init(env_from("allowed"));
    admin.create(PODS, with("fine", &fine)).await;
    // Ephemeral containers that are added later are checked as well.
    let ephemeral = |secret: &str| {
        json!({"spec": {"ephemeralContainers": [{
            "name": "e", "image": "i", "envFrom": [{"secretRef": {"name": secret}}],
        }]}})
    };
    let path = format!("{PODS}/fine/ephemeralcontainers");
    // UPSTREAM: plugin/pkg/admission/serviceaccount/admission.go, where it is an error, not a denial.
    let answer = admin.patch(&path, "strategic", &ephemeral("other")).await;
    assert_eq!(answer.code, 500, "{}", answer.text());
    let why = "is not allowed because service account robot does not reference that secret";
    assert!(answer.text().contains(why), "{}", answer.text());
    let answer = admin.patch(&path, "strategic", &ephemeral("allowed")).await;
    assert_eq!(answer.code, 200, "{}", answer.text());
    server.stop().await;
}

/// CVE-2025-4563 and CVE-2025-5187: a node claims no devices for its mirror pods, and changes the owner references of
/// neither itself nor other nodes.
#[tokio::test]
async fn nodes_stay_what_they_are() {
    let server = start_with(Settings {
        authorization_mode: AuthorizationMode::NodeAndRbac,
        enable_plugins: vec![String::from("NodeRestriction")],
        ..settings()
    })
    .await;
    let admin = Client::admin(&server).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let node = admin.create("/api/v1/nodes", node).await;
    let kubelet = admin
        .with("impersonate-user", "system:node:n")
        .with("impersonate-group", "system:nodes");
    let mirror = |change: &dyn Fn(&mut Value)| {
        let mut mirror = pod("m-n");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        mirror["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Node", "name": "n", "uid": node["metadata"]["uid"], "controller": true,
        }]);
        mirror["spec"]["nodeName"] = "n".into();
        change(&mut mirror);
        mirror
    };
    let claims = mirror(&|pod| {
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "other"}]);
    });
    let answer = kubelet.post(PODS, &claims).await;
    assert_eq!(answer.code, 403, "{}", answer.text());
    let answer = kubelet.post(PODS, &mirror(&|_| {})).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    let owned = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1",
    }]}});
    for path in ["/api/v1/nodes/n", "/api/v1/nodes/n/status"] {
        let answer = kubelet.patch(path, "merge", &owned).await;
        let after = admin.get("/api/v1/nodes/n").await.expect(200);
        assert_eq!(
            after["metadata"].get("ownerReferences"),
            None,
            "{path}: {}",
            answer.text()
        );
    }
    let answer = kubelet.patch("/api/v1/nodes/n", "merge", &owned).await;
    assert_eq!(answer.code, 403, "{}", answer.text());
    server.stop().await;
}

/// CVE-2019-9512, CVE-2019-9514, CVE-2023-44487, CVE-2023-45288: frame floods close the connection.
#[tokio::test]
async fn floods_of_frames_end_their_connection() {
    let server = start().await;
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    };
    // `GET /livez` of `x` over https, in literals without the dynamic table.
    let head = b"\x82\x87\x04\x06/livez\x01\x01x";
    let start_of = |stream: u32| frame(1, 5, stream, head);
    let mut resets = Vec::new();
    for number in 0..2000 {
        resets.extend(start_of(2 * number + 1));
        resets.extend(frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let mut continued = frame(1, 1, 1, head);
    for _ in 0..2000 {
        continued.extend(frame(
            9,
            0,
            1,
            &[b"\x00\x01a\x7f\xa1\x7f".as_slice(), &[b'x'; 16_288]].concat(),
        ));
    }
    for (name, flood) in [("resets", resets), ("continuations", continued)] {
        let connector = tls(&server, &Credentials::default(), "h2");
        let mut stream = connect(&connector, server.address()).await;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(preface).await.unwrap();
        let (mut reading, mut writing) = tokio::io::split(stream);
        let write = async {
            // The server closes the connection during the write, which is expected.
            let _ = writing.write_all(&flood).await;
            let _ = writing.flush().await;
            std::future::pending::<()>().await;
        };
        let read = async {
            let mut rest = Vec::new();
            let _ = reading.read_to_end(&mut rest).await;
            rest
        };
        let rest = within(async {
            tokio::select! {
                rest = read => rest,
                () = write => Vec::new(),
            }
        })
        .await;
        // GOAWAY (frame type 7) with an error code: ENHANCE_YOUR_CALM or PROTOCOL_ERROR.
        assert!(rest.windows(4).any(|it| it[0] == 7), "{name}: {rest:?}");
        let admin = Client::admin(&server).await;
        assert_eq!(admin.get("/livez").await.code, 200);
    }
    server.stop().await;
}
