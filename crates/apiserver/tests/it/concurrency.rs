//! Concurrent writes: no lost updates, and a write is in effect when it returns.

use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};

use crate::support::*;

const WRITERS: usize = 16;
const ROUNDS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loses_no_update_of_sixteen_writers() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("counter")).await;
    let path = format!("{CONFIG_MAPS}/counter");
    let mut watch = client.watch(CONFIG_MAPS).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (client, path) = (client.clone(), path.clone());
            tokio::spawn(async move {
                let mut conflicts = 0;
                for round in 0..ROUNDS {
                    loop {
                        let mut object = client.get(&path).await.expect(200);
                        let count: usize = object["data"]["a"].as_str().unwrap().parse().unwrap();
                        object["data"]["a"] = (count + 1).to_string().into();
                        object["data"][format!("w{writer}-{round}")] = "done".into();
                        match client.put(&path, &object).await.code {
                            200 => break,
                            409 => conflicts += 1,
                            code => panic!("{code}"),
                        }
                    }
                }
                conflicts
            })
        })
        .collect();
    let mut conflicts = 0;
    for writer in writers {
        conflicts += writer.await.unwrap();
    }
    let last = client.get(&path).await.expect(200);
    let total = WRITERS * ROUNDS;
    assert_eq!(last["data"]["a"], (total + 1).to_string());
    assert_eq!(last["data"].as_object().unwrap().len(), total + 1);
    // A watch delivers each of them once, in order.
    let mut seen = 0;
    let mut version = 0;
    while seen < total {
        let (kind, object) = watch.next().await;
        assert!(version_of(&object) > version);
        version = version_of(&object);
        if kind == "MODIFIED" {
            seen += 1;
            assert_eq!(object["data"]["a"], (seen + 1).to_string());
        }
    }
    println!("{conflicts} conflicts");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loses_no_patch_of_sixteen_writers() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let path = format!("{CONFIG_MAPS}/shared");
    client.create(CONFIG_MAPS, config_map("shared")).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (client, path) = (client.clone(), path.clone());
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let patch = json!({"data": {format!("w{writer}-{round}"): "x"}});
                    client.patch(&path, "merge", &patch).await.expect(200);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let last = client.get(&path).await.expect(200);
    assert_eq!(
        last["data"].as_object().unwrap().len(),
        WRITERS * ROUNDS + 1
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_creates_succeeds() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for round in 0..5 {
        let name = format!("one-{round}");
        let creators: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (client, object) = (client.clone(), config_map(&name));
                tokio::spawn(async move { client.post(CONFIG_MAPS, &object).await.code })
            })
            .collect();
        let mut codes = Vec::new();
        for creator in creators {
            codes.push(creator.await.unwrap());
        }
        codes.sort_unstable();
        assert_eq!(codes[0], 201);
        assert!(codes[1..].iter().all(|&code| code == 409), "{codes:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_counts_from_the_moment_it_is_registered() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    hooks.script("/deny", [Script::deny("no")]);
    let configuration = hook(
        "ValidatingWebhookConfiguration",
        "h",
        &hooks.url("/deny"),
        hooks.ca_pem(),
    );
    let object = config_map("x");
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    for round in 0..200 {
        client.create(VALIDATING, configuration.clone()).await;
        assert_eq!(client.post(&dry, &object).await.code, 403, "{round}");
        client.delete(&format!("{VALIDATING}/h")).await.expect(200);
        assert_eq!(client.post(&dry, &object).await.code, 201, "{round}");
    }
    assert_eq!(hooks.requests().len(), 200);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_label_of_a_namespace_counts_from_the_moment_it_is_set() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    hooks.script("/deny", [Script::deny("no")]);
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "h",
        &hooks.url("/deny"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["namespaceSelector"] = json!({"matchLabels": {"guard": "on"}});
    client.create(VALIDATING, configuration).await;
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    for round in 0..50 {
        for (label, code) in [(json!("on"), 403), (Value::Null, 201)] {
            let patch = json!({"metadata": {"labels": {"guard": label}}});
            client
                .patch("/api/v1/namespaces/default", "merge", &patch)
                .await
                .expect(200);
            let answer = client.post(&dry, &config_map("x")).await;
            assert_eq!(answer.code, code, "{round}");
        }
    }
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_definition_counts_from_the_moment_it_is_created() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    for round in 0..25 {
        client
            .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
            .await;
        assert_eq!(client.post(widgets, &widget).await.code, 201, "{round}");
        // As does a change of its schema.
        let schema = json!([{
            "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema",
            "value": {"type": "object", "properties": {"spec": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}}},
        }]);
        client
            .patch(
                &format!("{DEFINITIONS}/widgets.example.com"),
                "json",
                &schema,
            )
            .await
            .expect(200);
        let mut wrong = widget.clone();
        wrong["metadata"]["name"] = "other".into();
        wrong["spec"] = json!({});
        assert_eq!(client.post(widgets, &wrong).await.code, 422, "{round}");
        client
            .delete(&format!("{DEFINITIONS}/widgets.example.com"))
            .await
            .expect(200);
        client
            .wait_until_gone(DEFINITIONS, "widgets.example.com")
            .await;
        assert_eq!(client.post(widgets, &widget).await.code, 404, "{round}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_race_asks_webhooks_again() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    // During the webhook call for one patch, another patch is stored.
    let rival = client.clone();
    let handle = tokio::runtime::Handle::current();
    let other = format!("{path}/../a").replace("/a/../a", "/a");
    let interfere = Script::review(move |review| {
        let patch = json!({"data": {"rival": "was here"}, "metadata": {"labels": {"skip": "yes"}}});
        tokio::task::block_in_place(|| {
            handle.block_on(async { rival.patch(&other, "merge", &patch).await.expect(200) })
        });
        json!({
            "apiVersion": review["apiVersion"], "kind": review["kind"],
            "response": {"uid": review["request"]["uid"], "allowed": true},
        })
    });
    hooks.script("/race", [interfere, Script::allow()]);
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "h",
        &hooks.url("/race"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["matchConditions"] = json!([
        {"name": "own", "expression": "!('rival' in object.data) || 'mine' in object.data"},
    ]);
    client.create(VALIDATING, configuration).await;
    let patch = json!({"data": {"mine": "too"}});
    let last = client.patch(&path, "merge", &patch).await.expect(200);
    assert_eq!(
        last["data"],
        json!({"a": "1", "mine": "too", "rival": "was here"})
    );
    let reviews: Vec<Value> = hooks
        .requests()
        .iter()
        .map(|request| request.json()["request"]["object"]["data"].clone())
        .collect();
    assert_eq!(
        reviews,
        [
            json!({"a": "1", "mine": "too"}),
            json!({"a": "1", "mine": "too", "rival": "was here"}),
        ]
    );
    hooks.stop().await;
    server.stop().await;
}
