//! Reads: lists, watches, discovery and related paths.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use lockgate_apiserver::{Running, Settings};
use lockgate_store::{MemoryOptions, MemoryStore};
use serde_json::{Value, json};

use crate::support::*;

/// A server with a small watch cache, so that history is compacted early.
async fn forgetful() -> Running {
    let store = MemoryStore::with_options(MemoryOptions {
        max_events: 10,
        min_age: Duration::ZERO,
        ..MemoryOptions::default()
    });
    let settings = Settings {
        secure_port: 0,
        ..settings()
    };
    Running::start(settings, Arc::new(store)).await.unwrap()
}

async fn fill(client: &Client, names: &[&str]) -> Vec<Value> {
    let mut made = Vec::new();
    for name in names {
        made.push(client.create(CONFIG_MAPS, config_map(name)).await);
    }
    made
}

#[tokio::test]
async fn lists_page_by_page_in_one_state() {
    let server = start().await;
    let client = Client::admin(&server).await;
    fill(&client, &["a", "b", "c", "d", "e"]).await;

    let first = client
        .get(&format!("{CONFIG_MAPS}?limit=2"))
        .await
        .expect(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    assert_eq!(first["kind"], "ConfigMapList");
    assert_eq!(
        first["items"][0].get("kind"),
        None,
        "items of built-in kinds"
    );
    let token = first["metadata"]["continue"].as_str().unwrap();

    // Changes between pages are not visible.
    client.delete(&format!("{CONFIG_MAPS}/d")).await.expect(200);
    fill(&client, &["bb"]).await;
    let second = client
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = client
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third["metadata"].get("continue"), None);
    assert_eq!(third["metadata"].get("remainingItemCount"), None);
    server.stop().await;
}

#[tokio::test]
async fn counts_no_remaining_items_behind_a_selector() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for (name, value) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        client.create(CONFIG_MAPS, labelled(name, "k", value)).await;
    }
    let first = client
        .get(&format!("{CONFIG_MAPS}?limit=2&labelSelector=k%3Dx"))
        .await
        .expect(200);
    assert_eq!(names(&first), ["a", "c"]);
    assert_eq!(first["metadata"].get("remainingItemCount"), None);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = client
        .get(&format!(
            "{CONFIG_MAPS}?limit=2&labelSelector=k%3Dx&continue={token}"
        ))
        .await
        .expect(200);
    assert_eq!(names(&rest), ["d"]);
    server.stop().await;
}

#[tokio::test]
async fn goes_on_in_the_newest_state_after_a_token_expired() {
    let server = forgetful().await;
    let client = Client::admin(&server).await;
    fill(&client, &["a", "b", "c"]).await;
    let first = client
        .get(&format!("{CONFIG_MAPS}?limit=1"))
        .await
        .expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    for index in 0..20 {
        let patch = json!({"data": {"a": index.to_string()}});
        client
            .patch(&format!("{CONFIG_MAPS}/b"), "merge", &patch)
            .await
            .expect(200);
    }
    let status = client
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await
        .refused(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter, or use the continue token in this \
             response to retrieve the remainder of the results. Continuing with the provided token \
             results in an inconsistent list - objects that were created, modified, or deleted \
             between the time the first chunk was returned and now may show up in the list.",
        );
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = client
        .get(&format!("{CONFIG_MAPS}?continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&rest), ["b", "c"]);
    server.stop().await;
}

#[tokio::test]
async fn reads_the_version_that_is_asked_for() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = fill(&client, &["a", "b", "c"]).await;
    let old = version_of(&made[1]);

    let list = |query: String| {
        let client = client.clone();
        async move { client.get(&format!("{CONFIG_MAPS}?{query}")).await }
    };
    let exact = list(format!("resourceVersion={old}&resourceVersionMatch=Exact"))
        .await
        .expect(200);
    assert_eq!(names(&exact), ["a", "b"]);
    assert_eq!(exact["metadata"]["resourceVersion"], old.to_string());
    for query in [
        String::from("resourceVersion=0"),
        format!("resourceVersion={old}"),
        format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"),
        String::new(),
    ] {
        let found = list(query.clone()).await.expect(200);
        assert_eq!(names(&found), ["a", "b", "c"], "{query}");
    }
    // An exact list continues page by page at the same revision.
    let page = list(format!(
        "resourceVersion={old}&resourceVersionMatch=Exact&limit=1"
    ))
    .await
    .expect(200);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = list(format!("continue={token}")).await.expect(200);
    assert_eq!(names(&rest), ["b"]);

    let got = client
        .get(&format!("{CONFIG_MAPS}/a?resourceVersion={old}"))
        .await
        .expect(200);
    assert_eq!(got["metadata"]["name"], "a");
    server.stop().await;
}

#[tokio::test]
async fn forgets_old_versions() {
    let server = forgetful().await;
    let client = Client::admin(&server).await;
    let made = fill(&client, &["a"]).await;
    let old = version_of(&made[0]);
    for index in 0..20 {
        let patch = json!({"data": {"a": format!("x{index}")}});
        client
            .patch(&format!("{CONFIG_MAPS}/a"), "merge", &patch)
            .await
            .expect(200);
    }
    client
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact"
        ))
        .await
        .refused(
            410,
            "Expired",
            "The resourceVersion for the provided list is too old.",
        );
    // NotOlderThan is always possible.
    client
        .get(&format!("{CONFIG_MAPS}?resourceVersion={old}"))
        .await
        .expect(200);

    let events = client
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={old}"))
        .await
        .rest()
        .await;
    let [(kind, status)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(kind, "ERROR");
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(410), &json!("Expired"))
    );
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with(&format!("too old resource version: {old} (")),
        "{message}"
    );
    server.stop().await;
}

#[tokio::test]
async fn waits_a_moment_for_a_version_of_the_future() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = fill(&client, &["a"]).await;
    let next = version_of(&made[0]) + 1;

    // A future revision is waited for.
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move {
            client
                .get(&format!("{CONFIG_MAPS}?resourceVersion={next}"))
                .await
        })
    };
    fill(&client, &["b"]).await;
    let list = waiting.await.unwrap().expect(200);
    assert_eq!(names(&list), ["a", "b"]);

    // A revision that does not arrive is rejected, for every kind of read.
    let far = next + 1_000_000;
    let paths = [
        format!("{CONFIG_MAPS}?resourceVersion={far}"),
        format!("{CONFIG_MAPS}?resourceVersion={far}&resourceVersionMatch=Exact"),
        format!("{CONFIG_MAPS}?resourceVersion={far}&resourceVersionMatch=NotOlderThan"),
        format!("{CONFIG_MAPS}/a?resourceVersion={far}"),
    ];
    let asked = paths.map(|path| {
        let client = client.clone();
        tokio::spawn(async move { (client.get(&path).await, path) })
    });
    for task in asked {
        let (answer, path) = task.await.unwrap();
        assert_eq!(answer.header("retry-after"), "1", "{path}");
        let status = answer.refused(
            504,
            "Timeout",
            &format!("Timeout: Too large resource version: {far}, current: {next}"),
        );
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        assert_eq!(
            status["details"]["causes"],
            json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}])
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn selects_by_label_and_field() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for (name, labels, node) in [
        ("p1", json!({"app": "web", "tier": "a"}), "n1"),
        ("p2", json!({"app": "web"}), "n2"),
        ("p3", json!({"app": "db", "tier": "b"}), ""),
    ] {
        let mut object = pod(name);
        object["metadata"]["labels"] = labels;
        if !node.is_empty() {
            object["spec"]["nodeName"] = node.into();
        }
        client.create(PODS, object).await;
    }
    for (query, want) in [
        ("labelSelector=app%3Dweb", vec!["p1", "p2"]),
        ("labelSelector=app%3D%3Dweb,tier", vec!["p1"]),
        ("labelSelector=app!%3Dweb", vec!["p3"]),
        ("labelSelector=app+in+(web,db),!tier", vec!["p2"]),
        ("labelSelector=tier+notin+(a)", vec!["p2", "p3"]),
        ("fieldSelector=metadata.name%3Dp2", vec!["p2"]),
        ("fieldSelector=metadata.name!%3Dp2", vec!["p1", "p3"]),
        ("fieldSelector=metadata.namespace%3Dother", vec![]),
        (
            "labelSelector=app%3Dweb&fieldSelector=metadata.name%3Dp1",
            vec!["p1"],
        ),
        ("fieldSelector=spec.nodeName%3Dn1", vec!["p1"]),
        ("fieldSelector=spec.nodeName%3D", vec!["p3"]),
        ("fieldSelector=spec.nodeName!%3D", vec!["p1", "p2"]),
        (
            "fieldSelector=status.phase%3DPending,metadata.namespace%3Ddefault",
            vec!["p1", "p2", "p3"],
        ),
        ("fieldSelector=spec.restartPolicy%3DNever", vec![]),
        (
            "labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dn2",
            vec!["p2"],
        ),
    ] {
        let list = client.get(&format!("{PODS}?{query}")).await.expect(200);
        assert_eq!(names(&list), want, "{query}");
        let all = client
            .get(&format!("/api/v1/pods?{query}"))
            .await
            .expect(200);
        assert_eq!(names(&all), want, "{query} in all namespaces");
    }
    server.stop().await;
}

#[tokio::test]
async fn refuses_lists_that_make_no_sense() {
    let server = start().await;
    let client = Client::admin(&server).await;
    fill(&client, &["a", "b"]).await;
    let token = client
        .get(&format!("{CONFIG_MAPS}?limit=1"))
        .await
        .expect(200)["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    let invalid = |detail: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {detail}");
    for (query, code, reason, message) in [
        (
            String::from("fieldSelector=spec.foo%3D1"),
            400,
            "BadRequest",
            String::from(
                "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ),
        (
            String::from("fieldSelector=x"),
            400,
            "BadRequest",
            String::from("invalid selector: 'x'; can't understand 'x'"),
        ),
        (
            format!("continue={token}&resourceVersion=5"),
            400,
            "BadRequest",
            String::from("specifying resource version is not allowed when using continue"),
        ),
        (
            String::from("limit=many"),
            400,
            "BadRequest",
            String::from("strconv.ParseInt: parsing \"many\": invalid syntax"),
        ),
        (
            String::from("resourceVersionMatch=Exact"),
            422,
            "Invalid",
            invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
        ),
        (
            String::from("resourceVersion=0&resourceVersionMatch=Exact"),
            422,
            "Invalid",
            invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
        ),
        (
            String::from("resourceVersion=1&resourceVersionMatch=Near"),
            422,
            "Invalid",
            invalid(
                "resourceVersionMatch: Unsupported value: \"Near\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
        ),
        (
            String::from("sendInitialEvents=true"),
            422,
            "Invalid",
            invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        (
            String::from("watch=true&sendInitialEvents=true"),
            422,
            "Invalid",
            invalid(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
        ),
        (
            String::from("watch=true&resourceVersionMatch=NotOlderThan"),
            422,
            "Invalid",
            invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
        ),
    ] {
        client
            .get(&format!("{CONFIG_MAPS}?{query}"))
            .await
            .refused(code, reason, &message);
    }
    client
        .get(&format!("{PODS}?fieldSelector=spec.foo%3D1"))
        .await
        .refused(400, "BadRequest", "field label not supported: spec.foo");
    for (query, part) in [
        ("labelSelector=a%3D%3D%3D", "unable to parse requirement"),
        ("continue=nonsense", "continue key is not valid"),
        ("continue=!!!", "continue key is not valid"),
        ("resourceVersion=abc", "Invalid value: \"abc\""),
    ] {
        let answer = client.get(&format!("{CONFIG_MAPS}?{query}")).await;
        let status = answer.json();
        assert_eq!(answer.code, 400, "{query}: {status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(part), "{query}: {message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn tells_changes_from_where_it_is_told_to_start() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = fill(&client, &["a", "b"]).await;
    let first = version_of(&made[0]);

    let mut unset = client.watch(CONFIG_MAPS).await;
    let mut zero = client
        .watch(&format!("{CONFIG_MAPS}?resourceVersion=0"))
        .await;
    let mut after = client
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={first}"))
        .await;
    let patch = json!({"data": {"a": "2"}});
    let changed = client
        .patch(&format!("{CONFIG_MAPS}/a"), "merge", &patch)
        .await
        .expect(200);
    let gone = client.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    assert_eq!(gone["status"], "Success");

    for watch in [&mut unset, &mut zero] {
        assert_eq!(watch.line().await, "ADDED a");
        assert_eq!(watch.line().await, "ADDED b");
    }
    assert_eq!(after.line().await, "ADDED b");
    for watch in [&mut unset, &mut zero, &mut after] {
        let (kind, object) = watch.next().await;
        assert_eq!((kind.as_str(), &object), ("MODIFIED", &changed));
        let (kind, object) = watch.next().await;
        assert_eq!(kind, "DELETED");
        // The last state, with the revision of the deletion.
        assert_eq!(object["data"], made[1]["data"]);
        assert_eq!(object["metadata"]["uid"], made[1]["metadata"]["uid"]);
        assert_eq!(version_of(&object), version_of(&changed) + 1);
    }
    // A watch can resume from the revision of the deletion.
    let last = version_of(&changed) + 1;
    let mut on = client
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={last}"))
        .await;
    fill(&client, &["c"]).await;
    assert_eq!(on.line().await, "ADDED c");
    server.stop().await;
}

#[tokio::test]
async fn tells_what_comes_into_view_and_what_leaves_it() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, labelled("a", "k", "x")).await;
    client.create(CONFIG_MAPS, labelled("b", "k", "y")).await;
    let mut watch = client
        .watch(&format!("{CONFIG_MAPS}?labelSelector=k%3Dx"))
        .await;
    assert_eq!(watch.line().await, "ADDED a");
    let label = |name: &str, value: &str| {
        let (client, path) = (client.clone(), format!("{CONFIG_MAPS}/{name}"));
        let patch = json!({"metadata": {"labels": {"k": value}}});
        async move { client.patch(&path, "merge", &patch).await.expect(200) }
    };
    label("b", "x").await;
    assert_eq!(watch.line().await, "ADDED b");
    let left = label("a", "y").await;
    let (kind, object) = watch.next().await;
    assert_eq!(kind, "DELETED");
    assert_eq!(
        object["metadata"]["labels"]["k"], "x",
        "the state that was last in view"
    );
    assert_eq!(version_of(&object), version_of(&left));
    // No events for objects that do not match the selector.
    label("a", "z").await;
    client.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    label("b", "w").await;
    assert_eq!(watch.line().await, "DELETED b");
    server.stop().await;
}

#[tokio::test]
async fn marks_the_end_of_initial_events() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = fill(&client, &["a", "b"]).await;
    let options =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let version = version_of(&made[1]);
    for query in [
        String::from(options),
        format!("{options}&resourceVersion=0"),
        format!("{options}&resourceVersion={version}"),
    ] {
        let mut watch = client.watch(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(watch.line().await, "ADDED a", "{query}");
        assert_eq!(watch.line().await, "ADDED b");
        let (kind, bookmark) = watch.next().await;
        assert_eq!(kind, "BOOKMARK");
        assert_eq!(bookmark["kind"], "ConfigMap");
        assert_eq!(bookmark["apiVersion"], "v1");
        assert_eq!(
            bookmark["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"})
        );
        assert!(version_of(&bookmark) >= version);
        let name = format!("live-{}", query.len());
        let path = format!("{CONFIG_MAPS}/{name}");
        client.create(CONFIG_MAPS, config_map(&name)).await;
        assert_eq!(watch.line().await, format!("ADDED {name}"));
        client.delete(&path).await.expect(200);
        assert_eq!(watch.line().await, format!("DELETED {name}"));
    }
    // Without sendInitialEvents there are none.
    let mut watch = client
        .watch(&format!(
            "{CONFIG_MAPS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={version}"
        ))
        .await;
    client.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    loop {
        let line = watch.line().await;
        assert!(!line.ends_with(" a"), "{line}");
        if line == "DELETED b" {
            break;
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn ends_a_watch_in_time_and_in_order() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = fill(&client, &["a"]).await;
    let version = version_of(&made[0]);
    let quiet = client
        .watch(&format!(
            "{CONFIG_MAPS}?timeoutSeconds=1&resourceVersion={version}"
        ))
        .await;
    let told = client
        .watch(&format!(
            "{CONFIG_MAPS}?timeoutSeconds=1&resourceVersion={version}&allowWatchBookmarks=true"
        ))
        .await;
    // A write to another resource advances the bookmark.
    client
        .create("/api/v1/namespaces/kube-system/configmaps", config_map("b"))
        .await;
    assert_eq!(quiet.rest().await, []);
    let told = told.rest().await;
    let [(kind, bookmark)] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(kind, "BOOKMARK");
    assert!(version_of(bookmark) >= version);

    // HTTP/1.1 sends events as chunks and ends with the last chunk.
    let request = Request::get(format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"))
        .header("host", "server")
        .body(body(""))
        .unwrap();
    let answer = http1_request(&server, &admin(&server), request).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.header("transfer-encoding"), "chunked");
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(answer.text().starts_with("{\"type\":\"ADDED\""));
    assert!(answer.text().ends_with("}\n"));
    server.stop().await;
}

#[tokio::test]
async fn watches_one_kind_in_one_namespace_only() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut here = client.watch(CONFIG_MAPS).await;
    let mut everywhere = client.watch("/api/v1/configmaps").await;
    client
        .create("/api/v1/namespaces/kube-system/configmaps", config_map("x"))
        .await;
    client
        .create(
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "s"}}),
        )
        .await;
    client.create(CONFIG_MAPS, config_map("y")).await;
    assert_eq!(here.line().await, "ADDED y");
    // The one that is created at startup.
    assert_eq!(
        everywhere.line().await,
        "ADDED extension-apiserver-authentication"
    );
    assert_eq!(everywhere.line().await, "ADDED x");
    assert_eq!(everywhere.line().await, "ADDED y");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_off_a_watcher_that_does_not_read() {
    let server = forgetful().await;
    let client = Client::admin(&server).await;
    let mut big = config_map("big");
    big["data"]["a"] = "x".repeat(10_000).into();
    client.create(CONFIG_MAPS, big).await;
    let slow = client.watch(CONFIG_MAPS).await;
    // More than the buffers hold: writers must not wait for the watch.
    for index in 0..300 {
        let patch = json!({"data": {"n": index.to_string()}});
        client
            .patch(&format!("{CONFIG_MAPS}/big"), "merge", &patch)
            .await
            .expect(200);
    }
    let events = slow.rest().await;
    let (kind, status) = events.last().unwrap();
    assert_eq!(kind, "ERROR", "{} events", events.len());
    assert_eq!(status["code"], 410);
    assert!(events.len() < 300, "{} events", events.len());
    server.stop().await;
}

const NO_RESOURCE: &str = "the server could not find the requested resource";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_BETA: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

async fn discover(client: &Client, path: &str, accept: &str, etag: &str) -> Answer {
    let mut headers = vec![("accept", accept)];
    if !etag.is_empty() {
        headers.push(("if-none-match", etag));
    }
    client.request(Method::GET, path, &headers, "").await
}

#[tokio::test]
async fn tells_what_it_serves_in_one_document() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let accept = format!("{AGGREGATED},{AGGREGATED_BETA},application/json");
    for path in ["/api", "/apis"] {
        let answer = discover(&client, path, &accept, "").await;
        assert_eq!(answer.header("content-type"), AGGREGATED, "{path}");
        assert_eq!(answer.header("vary"), "Accept");
        let etag = answer.header("etag").to_owned();
        assert!(etag.starts_with('"') && etag.len() > 20, "{etag}");
        let document = answer.expect(200);
        assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
        let again = discover(&client, path, &accept, &etag).await;
        assert_eq!((again.code, again.bytes.len()), (304, 0));
        assert_eq!(again.header("etag"), etag);
        let other = discover(&client, path, &accept, "\"other\"").await;
        assert_eq!(other.code, 200);
    }
    // A client that accepts only the removed version gets unaggregated discovery.
    let accept = format!("{AGGREGATED_BETA},application/json");
    let legacy = discover(&client, "/api", &accept, "").await.expect(200);
    assert_eq!(
        (&legacy["kind"], &legacy["versions"]),
        (&json!("APIVersions"), &json!(["v1"]))
    );
    let legacy = discover(&client, "/apis", &accept, "").await.expect(200);
    assert_eq!(legacy["kind"], "APIGroupList");
    server.stop().await;
}

#[tokio::test]
async fn tells_what_it_serves_group_by_group() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let core = client.get("/api/v1").await.expect(200);
    assert_eq!(
        (&core["kind"], &core["groupVersion"]),
        (&json!("APIResourceList"), &json!("v1"))
    );
    let find = |list: &Value, name: &str| {
        let resources = list["resources"].as_array().unwrap();
        resources
            .iter()
            .find(|resource| resource["name"] == name)
            .unwrap_or_else(|| panic!("{name}"))
            .clone()
    };
    let pods = find(&core, "pods");
    assert_eq!(
        (
            &pods["kind"],
            &pods["namespaced"],
            &pods["shortNames"],
            &pods["categories"]
        ),
        (&json!("Pod"), &json!(true), &json!(["po"]), &json!(["all"]))
    );
    assert_eq!(
        pods["verbs"],
        json!([
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch"
        ])
    );
    for name in ["pods/log", "pods/status", "pods/exec"] {
        let part = find(&core, name);
        assert_eq!(
            (part.get("group"), part.get("version")),
            (None, None),
            "{name}"
        );
    }
    let eviction = find(&core, "pods/eviction");
    assert_eq!(
        (&eviction["group"], &eviction["version"], &eviction["kind"]),
        (&json!("policy"), &json!("v1"), &json!("Eviction"))
    );
    let apps = client.get("/apis/apps/v1").await.expect(200);
    let scale = find(&apps, "deployments/scale");
    assert_eq!(
        (&scale["group"], &scale["version"], &scale["kind"]),
        (&json!("autoscaling"), &json!("v1"), &json!("Scale"))
    );
    let group = client.get("/apis/autoscaling").await.expect(200);
    assert_eq!(group["kind"], "APIGroup");
    assert_eq!(group["preferredVersion"]["groupVersion"], "autoscaling/v2");
    for path in ["/apis/none", "/apis/none/v1", "/nowhere"] {
        let answer = client.get(path).await;
        assert_eq!(
            (answer.code, answer.text().as_str()),
            (404, "404 page not found\n"),
            "{path}"
        );
    }
    for path in ["/api/v2", "/apis/apps/v9"] {
        client.get(path).await.refused(404, "NotFound", NO_RESOURCE);
    }
    server.stop().await;
}

#[tokio::test]
async fn discovery_changes_with_definitions() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let accept = format!("{AGGREGATED},application/json");
    let before = discover(&client, "/apis", &accept, "").await;
    assert_eq!(client.get("/apis/example.com/v1").await.code, 404);

    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let during = discover(&client, "/apis", &accept, before.header("etag")).await;
    assert_eq!(during.code, 200);
    assert_ne!(during.header("etag"), before.header("etag"));
    assert!(during.text().contains("example.com"));
    let list = client.get("/apis/example.com/v1").await.expect(200);
    assert_eq!(list["resources"][0]["name"], "widgets");
    assert_eq!(list["resources"][0]["shortNames"], json!(["wg"]));
    let group = client.get("/apis/example.com").await.expect(200);
    assert_eq!(group["versions"][0]["groupVersion"], "example.com/v1");

    client
        .delete(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .expect(200);
    client
        .wait_until_gone(DEFINITIONS, "widgets.example.com")
        .await;
    let after = discover(&client, "/apis", &accept, "").await;
    assert_eq!(after.header("etag"), before.header("etag"));
    assert_eq!(client.get("/apis/example.com/v1").await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn tells_its_version_and_health_to_everybody() {
    let server = start().await;
    let nobody = Client::anonymous(&server).await;
    for path in ["/version", "/version/"] {
        let version = nobody.get(path).await.expect(200);
        assert_eq!(
            (&version["major"], &version["minor"]),
            (&json!("1"), &json!("36"))
        );
        assert!(
            version["gitVersion"]
                .as_str()
                .unwrap()
                .starts_with("v1.36.4+lockgate-")
        );
        for member in [
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ] {
            assert!(version[member].is_string(), "{member}");
        }
    }
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = nobody.get(path).await;
        assert_eq!((answer.code, answer.text().as_str()), (200, "ok"), "{path}");
    }
    let verbose = nobody.get("/readyz?verbose").await;
    assert!(verbose.text().ends_with("readyz check passed\n"));
    // Other paths require permission.
    nobody.get("/metrics").await.refused(
        403,
        "Forbidden",
        "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
    );
    nobody.get("/api").await.refused(
        403,
        "Forbidden",
        "forbidden: User \"system:anonymous\" cannot get path \"/api\"",
    );
    server.stop().await;
}

#[tokio::test]
async fn counts_what_it_does() {
    let server = start().await;
    let client = Client::admin(&server).await;
    fill(&client, &["a"]).await;
    let answer = client.get("/metrics").await;
    assert_eq!(answer.code, 200);
    assert!(answer.header("content-type").starts_with("text/plain"));
    let text = answer.text();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
    }
    for name in [
        "lockgate_requests_total",
        "apiserver_admission_step_admission_duration_seconds",
    ] {
        assert!(text.contains(name), "{name} in\n{text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn answers_in_the_form_that_is_asked_for() {
    let server = start().await;
    let client = Client::admin(&server).await;
    fill(&client, &["a"]).await;
    let path = format!("{CONFIG_MAPS}/a");
    let get = |path: String, accept: &'static str| {
        let client = client.clone();
        async move {
            client
                .request(Method::GET, &path, &[("accept", accept)], "")
                .await
        }
    };
    let yaml = get(path.clone(), "application/yaml").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(
        yaml.text().contains("\nkind: ConfigMap\n"),
        "{}",
        yaml.text()
    );
    let partial = get(
        path.clone(),
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )
    .await
    .expect(200);
    assert_eq!(
        (
            &partial["kind"],
            &partial["apiVersion"],
            partial.get("data")
        ),
        (
            &json!("PartialObjectMetadata"),
            &json!("meta.k8s.io/v1"),
            None
        )
    );
    let list = get(
        CONFIG_MAPS.to_owned(),
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    )
    .await
    .expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0].get("data"), None);
    assert_eq!(names(&list), ["a"]);
    get(path.clone(), "application/cbor").await.refused(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
    );
    let pretty = client.get(&format!("{path}?pretty=true")).await;
    assert!(pretty.text().starts_with("{\n  \""), "{}", pretty.text());
    assert!(!client.get(&path).await.text().contains("\n  "));
    let one = client.get(&path).await;
    let other = client.get(&path).await;
    assert_ne!(one.header("audit-id"), other.header("audit-id"));
    assert_eq!(one.header("cache-control"), "no-cache, private");
    server.stop().await;
}

/// Lists are encoded from stored bytes, single objects from trees: both must be equal.
#[tokio::test]
async fn shows_an_object_alike_alone_and_in_a_list() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for number in 0..3 {
        let name = format!("p{number}");
        let mut object = pod(&name);
        object["metadata"]["annotations"] = json!({"note": "<\u{e9}>\n\"quoted\""});
        client.create(PODS, object).await;
    }
    for (collection, view) in [
        (PODS, "Table;g=meta.k8s.io;v=v1"),
        ("/api/v1/namespaces", "Table;g=meta.k8s.io;v=v1"),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            "Table;g=meta.k8s.io;v=v1",
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "Table;g=meta.k8s.io;v=v1",
        ),
    ] {
        for include in ["Metadata", "Object", "None"] {
            let accept = format!("application/json;as={view}");
            let get = async |path: &str| {
                let path = format!("{path}?includeObject={include}");
                let headers = [("accept", accept.as_str())];
                client
                    .request(Method::GET, &path, &headers, "")
                    .await
                    .expect(200)
            };
            let list = get(collection).await;
            let plain = client.get(collection).await.expect(200);
            assert_eq!(list["metadata"], plain["metadata"], "{collection}");
            let rows = list["rows"].as_array().unwrap();
            assert_eq!(rows.len(), names(&plain).len(), "{collection}");
            for row in rows {
                let name = row["cells"][0].as_str().unwrap();
                let mut alone = get(&format!("{collection}/{name}")).await;
                assert_eq!(list["columnDefinitions"], alone["columnDefinitions"]);
                let mut row = row.clone();
                // Ages may change between the two requests.
                for row in [&mut row, &mut alone["rows"][0]] {
                    for cell in row["cells"].as_array_mut().unwrap() {
                        if cell.as_str().is_some_and(|text| text.ends_with('s')) {
                            *cell = "age".into();
                        }
                    }
                }
                assert_eq!(row, alone["rows"][0], "{collection}/{name} {include}");
            }
        }
    }
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = client
        .request(Method::GET, PODS, &[("accept", partial)], "")
        .await
        .expect(200);
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let path = format!("{PODS}/{name}");
        let alone = client
            .request(Method::GET, &path, &[("accept", accept)], "")
            .await
            .expect(200);
        assert_eq!(*item, alone);
    }
    server.stop().await;
}

#[tokio::test]
async fn component_statuses_are_looked_at_when_asked_for() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let path = "/api/v1/componentstatuses";
    let answer = admin.get(path).await;
    assert_eq!(
        answer.warnings(),
        ["v1 ComponentStatus is deprecated in v1.19+"]
    );
    let list = answer.expect(200);
    assert_eq!(list["kind"], "ComponentStatusList");
    assert_eq!(list["metadata"], json!({}));
    assert_eq!(names(&list), ["scheduler", "controller-manager", "etcd-0"]);
    let storage = admin.get(&format!("{path}/etcd-0")).await.expect(200);
    let healthy = json!([{"type": "Healthy", "status": "True", "message": "ok"}]);
    assert_eq!(storage["conditions"], healthy);
    let selected = admin
        .get(&format!("{path}?fieldSelector=metadata.name%3Detcd-0"))
        .await
        .expect(200);
    assert_eq!(names(&selected), ["etcd-0"]);
    admin.get(&format!("{path}/nope")).await.refused(
        404,
        "NotFound",
        "componentstatus \"nope\" not found",
    );
    server.stop().await;
}

#[tokio::test]
async fn aggregated_discovery_leaves_out_what_is_the_same() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let accept = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    let headers = [("accept", accept)];
    let answer = admin.request(Method::GET, "/apis", &headers, "").await;
    let list = answer.expect(200);
    let groups = list["items"].as_array().unwrap();
    let apps = groups
        .iter()
        .find(|group| group["metadata"]["name"] == "apps")
        .unwrap();
    let resources = apps["versions"][0]["resources"].as_array().unwrap();
    let deployments = resources
        .iter()
        .find(|resource| resource["resource"] == "deployments")
        .unwrap();
    assert_eq!(
        deployments["responseKind"],
        json!({"group": "", "version": "", "kind": "Deployment"})
    );
    let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    let parts = deployments["subresources"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["responseKind"] == scale));
    server.stop().await;
}
