//! API Priority and Fairness: classification, and the responses of a full priority level.

use http::Method;
use lockgate_apiserver::Settings;
use serde_json::{Value, json};

use crate::support::{Client, settings, start, start_with, within};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
const PRIORITY_LEVEL: &str = "x-kubernetes-pf-prioritylevel-uid";

async fn uid(admin: &Client, path: &str) -> String {
    let object = admin.get(path).await.expect(200);
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn schema(name: &str, level: &str, user: &str) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                    "clusterScope": true,
                }],
            }],
        },
    })
}

fn level(name: &str, shares: i32, response: Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": shares, "borrowingLimitPercent": 0,
                "limitResponse": response,
            },
        },
    })
}

#[tokio::test]
async fn answers_name_the_schema_and_the_level() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let exempt = uid(&admin, &format!("{SCHEMAS}/exempt")).await;
    let exempt_level = uid(&admin, &format!("{LEVELS}/exempt")).await;
    let answer = admin.get("/api/v1/namespaces/nope").await;
    assert_eq!(answer.code, 404);
    assert_eq!(answer.header(FLOW_SCHEMA), exempt);
    assert_eq!(answer.header(PRIORITY_LEVEL), exempt_level);
    // Requests are classified before authorization.
    let ann = admin.taken_for("ann");
    let forbidden = ann.get("/api/v1/secrets").await;
    assert_eq!(forbidden.code, 403);
    let own = uid(&admin, &format!("{SCHEMAS}/global-default")).await;
    assert_eq!(forbidden.header(FLOW_SCHEMA), own);
    let probes = uid(&admin, &format!("{SCHEMAS}/probes")).await;
    assert_eq!(ann.get("/livez").await.header(FLOW_SCHEMA), probes);
    // A custom FlowSchema is in effect when its write returns, and its level can be deleted.
    let made = admin.create(SCHEMAS, schema("own", "mine", "ann")).await;
    assert_eq!(ann.get("/api/v1/secrets").await.header(FLOW_SCHEMA), own);
    let mine = admin
        .create(LEVELS, level("mine", 10, json!({"type": "Reject"})))
        .await;
    let answer = ann.get("/api/v1/secrets").await;
    let uids = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(answer.header(FLOW_SCHEMA), uids(&made));
    assert_eq!(answer.header(PRIORITY_LEVEL), uids(&mine));
    admin.delete(&format!("{SCHEMAS}/own")).await;
    assert_eq!(ann.get("/api/v1/secrets").await.header(FLOW_SCHEMA), own);
    server.stop().await;
}

#[tokio::test]
async fn schemas_tell_whether_their_level_is_there() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let condition = |object: &Value| object["status"]["conditions"][0].clone();
    let default = admin.get(&format!("{SCHEMAS}/global-default")).await;
    let found = condition(&default.expect(200));
    assert_eq!(found["type"], "Dangling");
    assert_eq!(found["status"], "False");
    assert_eq!(found["reason"], "Found");
    admin.create(SCHEMAS, schema("own", "mine", "ann")).await;
    let until = |status: &'static str| {
        let admin = admin.clone();
        within(async move {
            loop {
                let schema = admin.get(&format!("{SCHEMAS}/own")).await.expect(200);
                if condition(&schema)["status"] == status {
                    return condition(&schema);
                }
                tokio::task::yield_now().await;
            }
        })
    };
    let missing = until("True").await;
    assert_eq!(missing["reason"], "NotFound");
    assert_eq!(
        missing["message"],
        "This FlowSchema references the PriorityLevelConfiguration object named \"mine\" but there \
         is no such object"
    );
    admin
        .create(LEVELS, level("mine", 10, json!({"type": "Reject"})))
        .await;
    until("False").await;
    admin.delete(&format!("{LEVELS}/mine")).await;
    until("True").await;
    server.stop().await;
}

#[tokio::test]
async fn what_must_be_there_comes_back() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let path = format!("{LEVELS}/catch-all");
    let before = uid(&admin, &path).await;
    admin.delete(&path).await;
    within(async {
        loop {
            let found = admin.get(&path).await;
            if found.code == 200 && found.json()["metadata"]["uid"] != before.as_str() {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    // A suggested level is not reset, unless its annotation enables that.
    let path = format!("{LEVELS}/workload-low");
    let shares = |count: i32| json!({"spec": {"limited": {"nominalConcurrencyShares": count}}});
    admin.patch(&path, "merge", &shares(7)).await.expect(200);
    let now = || async {
        let level = admin.get(&path).await.expect(200);
        level["spec"]["limited"]["nominalConcurrencyShares"].clone()
    };
    within(async {
        while now().await != 100 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut own = shares(7);
    own["metadata"] = json!({"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}});
    admin.patch(&path, "merge", &own).await.expect(200);
    // The controller has processed the change when it has updated the status of a later object.
    admin.create(SCHEMAS, schema("own", "mine", "ann")).await;
    within(async {
        loop {
            let own = admin.get(&format!("{SCHEMAS}/own")).await.expect(200);
            if own["status"]["conditions"][0]["status"] == "True" {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(now().await, 7);
    server.stop().await;
}

#[tokio::test]
async fn a_level_without_seats_sends_away() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let ann = admin.taken_for("ann");
    admin
        .create(LEVELS, level("mine", 0, json!({"type": "Reject"})))
        .await;
    let made = admin.create(SCHEMAS, schema("own", "mine", "ann")).await;
    let answer = ann.get("/api/v1/secrets").await;
    assert_eq!(answer.code, 429);
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(
        answer.text(),
        "Too many requests, please try again later.\n"
    );
    assert_eq!(answer.header(FLOW_SCHEMA), made["metadata"]["uid"]);
    // Other users are not affected.
    assert_eq!(admin.taken_for("bob").get("/livez").await.code, 200);
    let metrics = admin.get("/metrics").await.text().to_owned();
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"own\",\
                    priority_level=\"mine\",reason=\"concurrency-limit\"} 1\n";
    assert!(metrics.contains(rejected), "{metrics}");
    let counted = "apiserver_request_total{code=\"429\",component=\"apiserver\",dry_run=\"\",group=\"\",\
                   resource=\"secrets\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    // Rejected requests create no metric series either.
    assert_eq!(ann.get("/api/v1/made-up").await.code, 429);
    assert!(!admin.get("/metrics").await.text().contains("made-up"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_for_a_seat() {
    let server = start_with(Settings {
        max_requests_inflight: 4,
        max_mutating_requests_inflight: 2,
        ..settings()
    })
    .await;
    let admin = Client::admin(&server).await;
    let ann = admin.taken_for("ann");
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": 1});
    let response = json!({"type": "Queue", "queuing": queuing});
    admin.create(LEVELS, level("mine", 1, response)).await;
    admin.create(SCHEMAS, schema("own", "mine", "ann")).await;
    // All of ann's requests queue for the one seat, and are executed one after the other.
    let answers = futures_util::future::join_all((0..2).map(|_| {
        let ann = ann.clone();
        async move { ann.get("/version").await.code }
    }));
    assert_eq!(answers.await, [200, 200]);
    server.stop().await;
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let server = start_with(Settings {
        priority_and_fairness: false,
        ..settings()
    })
    .await;
    let admin = Client::admin(&server).await;
    let answer = admin
        .request(Method::GET, "/api/v1/namespaces", &[], "")
        .await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.header(FLOW_SCHEMA), "");
    let metrics = admin.get("/metrics").await;
    assert!(!metrics.text().contains("apiserver_flowcontrol_"));
    server.stop().await;
}

#[tokio::test]
async fn nobody_changes_what_every_server_needs() {
    let server = start().await;
    let admin = Client::admin(&server).await;
    let everybody = json!([{
        "subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }]);
    let more = json!({"limited": {"nominalConcurrencyShares": 500}});
    for (path, spec) in [
        (format!("{SCHEMAS}/exempt"), json!({"rules": everybody})),
        (
            format!("{SCHEMAS}/catch-all"),
            json!({"matchingPrecedence": 5}),
        ),
        (format!("{LEVELS}/catch-all"), more),
    ] {
        let answer = admin.patch(&path, "merge", &json!({"spec": spec})).await;
        assert_eq!(answer.code, 422, "{path}: {}", answer.text());
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("is invalid: spec: Invalid value: {\""),
            "{message}"
        );
        assert!(message.ends_with("must equal the fixed value"), "{message}");
    }
    // Anyone may set labels.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let path = format!("{SCHEMAS}/exempt");
    admin.patch(&path, "merge", &labels).await.expect(200);
    server.stop().await;
}
