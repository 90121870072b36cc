//! Resource limits per client: work, memory, connections and seats.

use std::time::{Duration, Instant};

use http::Method;
use lockgate_apiserver::{Settings, TestServer};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::*;

/// The slowest response of `/livez` while a hostile request is served.
async fn slowest_health_check(server: &TestServer, hostile: impl Future<Output = ()>) -> Duration {
    let probe = Client::admin(server).await;
    let mut slowest = Duration::ZERO;
    let checks = async {
        loop {
            let asked = Instant::now();
            assert_eq!(probe.get("/livez").await.code, 200);
            slowest = slowest.max(asked.elapsed());
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = checks => {}
        () = hostile => {}
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_by_the_thousand_delay_nobody() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let owners: Vec<Value> = (0..20_000)
        .map(|number| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": format!("u{number}")}))
        .collect();
    let mut object = config_map("owned");
    object["metadata"]["ownerReferences"] = owners.into();
    let text = object.to_string();
    let hostile = async {
        let path = format!("{CONFIG_MAPS}?dryRun=All");
        let json = [("content-type", "application/json")];
        for _ in 0..3 {
            let answer = client
                .request(Method::POST, &path, &json, text.clone())
                .await;
            assert_eq!(answer.code, 201, "{}", answer.text());
        }
    };
    let slowest = slowest_health_check(&server, hostile).await;
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_by_the_thousand_delay_nobody() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let properties: serde_json::Map<String, Value> = (0..3000)
        .map(|number| {
            let schema = json!({"type": "string", "pattern": "^[a-z\\pL]{1,900}$"});
            (format!("p{number}"), schema)
        })
        .collect();
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    });
    let definition = definition(json!([version]));
    let hostile = async {
        let answer = client.post(DEFINITIONS, &definition).await;
        assert_eq!(answer.code, 201, "{}", answer.text());
    };
    let slowest = slowest_health_check(&server, hostile).await;
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_grows_no_further_than_etcd_would_let_it() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |size: usize| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"text": "x".repeat(size)},
        })
    };
    let too_large = client.post(widgets, &widget(1_600_000)).await;
    too_large.refused(500, "", "etcdserver: request is too large");
    client.create(widgets, widget(10)).await;
    let grown = json!({"spec": {"text": "x".repeat(1_600_000)}});
    let too_large = client.patch(&format!("{widgets}/w"), "merge", &grown).await;
    too_large.refused(500, "", "etcdserver: request is too large");
    // Field managers accumulate too.
    let mut last = 0;
    for manager in 0..26 {
        let fields: serde_json::Map<String, Value> = (0..12_000)
            .map(|number| (format!("a-long-name-of-a-field-{number}"), manager.into()))
            .collect();
        let applied = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": fields,
        });
        let path = format!("{widgets}/w?fieldManager=m{manager}&force=true");
        last = client.patch(&path, "apply", &applied).await.code;
        if last != 200 {
            break;
        }
    }
    let stored = client.get(&format!("{widgets}/w")).await;
    assert!(
        stored.bytes.len() < 2 << 20,
        "{} after {last}",
        stored.bytes.len()
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_flight_are_limited_for_each_and_all() {
    let server = start_with(Settings {
        max_requests_inflight: 4,
        max_mutating_requests_inflight: 2,
        priority_and_fairness: false,
        ..settings()
    })
    .await;
    let admin = Client::admin(&server).await;
    let all = json!({
        "metadata": {"name": "all"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    admin.create(&format!("{rbac}/clusterroles"), all).await;
    let binding = json!({
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}],
    });
    admin
        .create(&format!("{rbac}/clusterrolebindings"), binding)
        .await;
    for number in 0..8 {
        let mut object = config_map(&format!("large-{number}"));
        object["data"]["a"] = "x".repeat(900_000).into();
        admin.create(CONFIG_MAPS, object).await;
    }
    let (ann, bob) = (admin.taken_for("ann"), admin.taken_for("bob"));
    // Unread responses: windows are small, and stay full.
    let get = |client: &Client| {
        let client = client.clone();
        async move { client.send(&Method::GET, CONFIG_MAPS, &[], body("")).await }
    };
    let first = get(&ann).await;
    let second = get(&ann).await;
    assert_eq!(
        (first.status().as_u16(), second.status().as_u16()),
        (200, 200)
    );
    let third = read(get(&ann).await).await;
    assert_eq!(third.code, 429);
    assert_eq!(third.header("retry-after"), "1");
    assert_eq!(third.text(), "Too many requests, please try again later.\n");
    // Other users keep their share, and health checks and watches need none.
    let (own, also) = (get(&bob).await, get(&bob).await);
    assert_eq!((own.status().as_u16(), also.status().as_u16()), (200, 200));
    let eve = admin.taken_for("eve");
    assert_eq!(eve.get("/api/v1/namespaces/default").await.code, 429);
    assert_eq!(eve.get("/livez").await.code, 200);
    eve.watch(CONFIG_MAPS).await;
    admin.get("/api/v1/namespaces/default").await.expect(200);
    // Reading on, or closing, releases the seat.
    let list = read(first).await;
    assert_eq!(names(&list.json()).len(), 8);
    drop(second);
    within(async {
        while eve.get("/api/v1/namespaces/default").await.code != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn large_lists_are_whole() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    for number in 0..40 {
        let mut object = config_map(&format!("c{number:03}"));
        object["data"]["a"] = "\u{e4}<".repeat(5_000).into();
        admin.create(CONFIG_MAPS, object).await;
    }
    let list = admin.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(names(&list).len(), 40);
    assert_eq!(list["items"][39]["data"]["a"], "\u{e4}<".repeat(5_000));
    let yaml = admin
        .request(
            Method::GET,
            CONFIG_MAPS,
            &[("accept", "application/yaml")],
            "",
        )
        .await;
    assert!(yaml.text().contains("name: c039"));
    server.stop().await;
}

#[tokio::test]
async fn times_of_any_length_do_no_harm() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let longest = i64::MAX;
    let mut watch = admin
        .watch(&format!("{CONFIG_MAPS}?timeoutSeconds={longest}"))
        .await;
    admin.create(CONFIG_MAPS, config_map("seen")).await;
    assert_eq!(watch.line().await, "ADDED seen");
    let mut held = pod("held");
    held["spec"]["nodeName"] = "n".into();
    admin.create(PODS, held).await;
    let answer = admin
        .delete_with(
            &format!("{PODS}/held"),
            &json!({"gracePeriodSeconds": longest}),
        )
        .await
        .expect(200);
    let time = answer["metadata"]["deletionTimestamp"].as_str().unwrap();
    assert_eq!(time.len(), "2026-01-01T00:00:00Z".len(), "{time}");
    let answer = admin
        .delete_with(&format!("{PODS}/held"), &json!({"gracePeriodSeconds": 5}))
        .await;
    assert_eq!(answer.code, 200, "{}", answer.text());
    server.stop().await;
}

#[tokio::test]
async fn numbers_that_no_double_holds_are_refused() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    admin
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let text = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"n":1e400}}"#;
    let json = [("content-type", "application/json")];
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let answer = admin.request(Method::POST, widgets, &json, text).await;
    assert_eq!(answer.code, 400, "{}", answer.text());
    assert!(
        answer.text().contains("cannot unmarshal number 1e400"),
        "{}",
        answer.text()
    );
    server.stop().await;
}

#[tokio::test]
async fn a_connection_with_half_a_head_is_still_served_when_it_goes_on() {
    let server = start().await;
    let credentials = admin(&server);
    let mut stream = connect(&tls(&server, &credentials, "http/1.1"), server.address()).await;
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nho")
        .await
        .unwrap();
    stream.flush().await.unwrap();
    tokio::task::yield_now().await;
    stream
        .write_all(b"st: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    within(tokio::io::AsyncReadExt::read_to_string(
        &mut stream,
        &mut answer,
    ))
    .await
    .ok();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_make_no_object_without_end() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"list": {
            "type": "array",
            "items": {"type": "object", "properties": {
                "text": {"type": "string", "default": "x".repeat(200_000)},
            }},
        }}}},
    });
    client
        .create(DEFINITIONS, definition(json!([version])))
        .await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |count: usize| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "list": vec![json!({}); count],
        })
    };
    // 60 GB without a limit.
    let answer = client.post(widgets, &widget(300_000)).await;
    answer.refused(500, "", "etcdserver: request is too large");
    client.create(widgets, widget(3)).await;
    server.stop().await;
}

/// A user with the permissions for ConfigMaps.
async fn eve(server: &TestServer) -> Client {
    let admin = Client::admin(server).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "eve"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "watch", "create"]},
    ]});
    admin.create(&format!("{rbac}/clusterroles"), role).await;
    let binding = json!({
        "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "eve"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    });
    let bindings = format!("{rbac}/clusterrolebindings");
    admin.create(&bindings, binding).await;
    admin.with("impersonate-user", "eve")
}

fn large(name: &str) -> Value {
    let mut object = config_map(name);
    object["data"] = json!({"text": "x".repeat(900_000)});
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_nobody_reads_stay_in_bounds() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let eve = eve(&server).await;
    let mut unread = Vec::new();
    for _ in 0..120 {
        unread.push(eve.watch(CONFIG_MAPS).await);
    }
    let mut read = admin.watch(CONFIG_MAPS).await;
    let before = crate::hostile::resident_bytes();
    // 3 GB, if each watch kept its events.
    for number in 0..30 {
        admin
            .create(CONFIG_MAPS, large(&format!("large-{number}")))
            .await;
        assert_eq!(read.line().await, format!("ADDED large-{number}"));
    }
    let grown = crate::hostile::resident_bytes().saturating_sub(before);
    assert!(grown < 700_000_000, "{grown} bytes more");
    drop(unread);
    server.stop().await;
}

/// Each connection holds an encoded event as long as its client does not read. They are charged to their user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_events_take_the_memory_of_their_user() {
    let server = start().await;
    let eve = eve(&server).await;
    let admin = Client::admin(&server).await;
    // More than the kernel buffers for a connection.
    for number in 0..14 {
        admin
            .create(CONFIG_MAPS, large(&format!("large-{number}")))
            .await;
    }
    let tls = tls(&server, &crate::support::admin(&server), "http/1.1");
    let request = format!(
        "GET {CONFIG_MAPS}?watch=true HTTP/1.1\r\nhost: x\r\nimpersonate-user: eve\r\n\r\n"
    );
    let mut unread = Vec::new();
    for _ in 0..60 {
        let mut stream = connect(&tls, server.address()).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        unread.push(stream);
    }
    let creates = async |code: u16| {
        let path = format!("{CONFIG_MAPS}?dryRun=All");
        within(async { while eve.post(&path, &large("more")).await.code != code {} }).await;
    };
    creates(429).await;
    // Other users have their own share.
    admin.create(CONFIG_MAPS, large("other")).await;
    drop(unread);
    creates(201).await;
    server.stop().await;
}
