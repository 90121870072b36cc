//! kube-rs, a third-party client: responses that it parses are parsed by its users.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::discovery::{Discovery, Scope};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client as KubeClient, Config, Resource as _, ResourceExt as _};
use lockgate_apiserver::{Running, TestServer};
use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, Client, config_map, definition, deployment, hook, open_version, pod, start, within,
};

async fn client(server: &Running) -> KubeClient {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    KubeClient::try_from(config).unwrap()
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The code and message of an expected failure.
fn failure<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("{other:?}"),
    }
}

async fn both() -> (TestServer, KubeClient) {
    let server = start().await;
    let client = client(&server).await;
    (server, client)
}

#[tokio::test]
async fn sees_webhooks_deny_mutate_and_warn() {
    let (server, client) = both().await;
    let hooks = WebhookServer::start().await;
    hooks.script(
        "/mutate",
        [Script::patch(&json!([
            {"op": "add", "path": "/metadata/labels", "value": {"stamped": "yes"}},
        ]))],
    );
    hooks.script(
        "/validate",
        [
            Script::respond(json!({"allowed": true, "warnings": ["old colors", "new colors"]})),
            Script::deny("no more colors"),
        ],
    );
    let mutating = hook(
        "MutatingWebhookConfiguration",
        "stamp",
        &hooks.url("/mutate"),
        hooks.ca_pem(),
    );
    let validating = hook(
        "ValidatingWebhookConfiguration",
        "guard",
        &hooks.url("/validate"),
        hooks.ca_pem(),
    );
    Api::<MutatingWebhookConfiguration>::all(client.clone())
        .create(&PostParams::default(), &typed(mutating))
        .await
        .unwrap();
    Api::<ValidatingWebhookConfiguration>::all(client.clone())
        .create(&PostParams::default(), &typed(validating))
        .await
        .unwrap();

    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let events = watcher(maps.clone(), watcher::Config::default());
    let mut events = std::pin::pin!(events);
    assert!(matches!(
        within(events.try_next()).await.unwrap(),
        Some(Event::Init)
    ));
    assert!(matches!(
        within(events.try_next()).await.unwrap(),
        Some(Event::InitDone)
    ));

    // kube-rs does not expose headers, so warnings are read with another client.
    let raw = Client::admin(&server).await;
    let answer = raw.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(answer.code, 201);
    assert_eq!(
        answer
            .headers
            .get_all("warning")
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect::<Vec<_>>(),
        ["299 - \"old colors\"", "299 - \"new colors\""]
    );
    let Some(Event::Apply(seen)) = within(events.try_next()).await.unwrap() else {
        panic!("no event");
    };
    assert_eq!(seen.name_any(), "a");
    assert_eq!(
        seen.labels().get("stamped").map(String::as_str),
        Some("yes")
    );

    let (code, message) = failure(
        maps.create(&PostParams::default(), &typed(config_map("b")))
            .await,
    );
    assert_eq!(code, 403);
    assert_eq!(
        message,
        "admission webhook \"guard.example.com\" denied the request: no more colors"
    );
    hooks.stop().await;
    server.stop().await;
}

/// All watcher events until the next `InitDone`.
async fn initial<S>(mut events: std::pin::Pin<&mut S>) -> Vec<String>
where
    S: futures_util::Stream<Item = watcher::Result<Event<ConfigMap>>>,
{
    let mut names = Vec::new();
    loop {
        match within(events.as_mut().try_next()).await.unwrap().unwrap() {
            Event::InitApply(object) => names.push(object.name_any()),
            Event::InitDone => return names,
            Event::Init => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn watches_with_lists_and_with_streams() {
    let (server, client) = both().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &typed(config_map(name)))
            .await
            .unwrap();
    }
    for (config, next) in [
        (watcher::Config::default().page_size(2), "d"),
        (watcher::Config::default().any_semantic(), "e"),
        (watcher::Config::default().streaming_lists(), "f"),
    ] {
        let events = watcher(maps.clone(), config);
        let mut events = std::pin::pin!(events);
        let names = initial(events.as_mut()).await;
        assert_eq!(names[..3], ["a", "b", "c"], "before {next}");
        maps.create(&PostParams::default(), &typed(config_map(next)))
            .await
            .unwrap();
        let event = within(events.try_next()).await.unwrap();
        assert!(matches!(&event, Some(Event::Apply(map)) if map.name_any() == next));
        maps.delete(next, &DeleteParams::default()).await.unwrap();
        let event = within(events.try_next()).await.unwrap();
        assert!(matches!(&event, Some(Event::Delete(map)) if map.name_any() == next));
    }
    let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(maps.into_client());
    let found = metadata.get("a").await.unwrap();
    assert_eq!(found.name_any(), "a");
    let events = watcher(metadata, watcher::Config::default().labels("x=y"));
    let mut events = std::pin::pin!(events);
    assert!(matches!(
        within(events.try_next()).await.unwrap(),
        Some(Event::Init)
    ));
    assert!(matches!(
        within(events.try_next()).await.unwrap(),
        Some(Event::InitDone)
    ));
    server.stop().await;
}

#[tokio::test]
async fn lists_page_by_page() {
    let (server, client) = both().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for index in 0..7 {
        maps.create(
            &PostParams::default(),
            &typed(config_map(&format!("m{index}"))),
        )
        .await
        .unwrap();
    }
    let mut params = ListParams::default().limit(3);
    let mut sizes = Vec::new();
    loop {
        let page = maps.list(&params).await.unwrap();
        sizes.push(page.items.len());
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    assert_eq!(sizes, [3, 3, 1]);
    let metadata = maps.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(metadata.items.len(), 7);
    let everywhere: Api<ConfigMap> = Api::all(client);
    let found = everywhere
        .list(&ListParams::default().fields("metadata.name=m3"))
        .await
        .unwrap();
    assert_eq!(found.items.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn patches_replaces_and_deletes() {
    let (server, client) = both().await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let made = deployments
        .create(&PostParams::default(), &typed(deployment("d")))
        .await
        .unwrap();
    let manager = PatchParams::default();
    let merge = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let patched = deployments.patch("d", &manager, &merge).await.unwrap();
    assert_eq!(patched.spec.unwrap().replicas, Some(2));
    let strategic = Patch::Strategic(json!({
        "spec": {"template": {"spec": {"containers": [{"name": "side", "image": "s"}]}}},
    }));
    let patched = deployments.patch("d", &manager, &strategic).await.unwrap();
    let containers = patched.spec.unwrap().template.spec.unwrap().containers;
    assert_eq!(containers.len(), 2);
    let status = Patch::Merge(json!({"status": {"replicas": 2}}));
    let patched = deployments
        .patch_status("d", &manager, &status)
        .await
        .unwrap();
    assert_eq!(patched.status.unwrap().replicas, Some(2));
    let scale = deployments.get_scale("d").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
    let scaled = deployments
        .patch_scale(
            "d",
            &manager,
            &Patch::Merge(json!({"spec": {"replicas": 4}})),
        )
        .await
        .unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(4));
    let (code, _) = failure(
        deployments
            .replace("d", &PostParams::default(), &made)
            .await,
    );
    assert_eq!(code, 409);
    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    deployments.delete("d", &dry).await.unwrap();
    assert!(deployments.get_opt("d").await.unwrap().is_some());
    let gone = deployments.delete("d", &DeleteParams::background()).await;
    assert!(gone.unwrap().is_right());
    assert!(deployments.get_opt("d").await.unwrap().is_none());

    // A finalizer blocks the deletion until it is removed.
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut held: Pod = typed(pod("p"));
    held.finalizers_mut().push(String::from("example.com/hold"));
    let held = pods.create(&PostParams::default(), &held).await.unwrap();
    let going = pods.delete("p", &DeleteParams::default()).await.unwrap();
    let going = going.left().unwrap();
    assert!(going.metadata.deletion_timestamp.is_some());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("p", &PatchParams::default(), &free)
        .await
        .unwrap();
    let uid = held.uid().unwrap();
    within(await_condition(pods, "p", conditions::is_deleted(&uid)))
        .await
        .unwrap();

    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["x", "y"] {
        maps.create(&PostParams::default(), &typed(config_map(name)))
            .await
            .unwrap();
    }
    maps.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
    assert!(
        maps.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    server.stop().await;
}

#[tokio::test]
async fn defines_kinds_and_uses_them() {
    let (server, client) = both().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(
            &PostParams::default(),
            &typed(definition(json!([open_version("v1", true)]))),
        )
        .await
        .unwrap();
    within(await_condition(
        definitions.clone(),
        "widgets.example.com",
        conditions::is_crd_established(),
    ))
    .await
    .unwrap();

    for aggregated in [false, true] {
        let discovery = Discovery::new(client.clone()).filter(&["example.com", "apps"]);
        let discovery = if aggregated {
            discovery.run_aggregated().await.unwrap()
        } else {
            discovery.run().await.unwrap()
        };
        let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
        let (resource, capabilities) = discovery.resolve_gvk(&kind).unwrap();
        assert_eq!(resource.plural, "widgets", "aggregated: {aggregated}");
        assert_eq!(capabilities.scope, Scope::Namespaced);
        let widgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        let name = format!("w-{aggregated}");
        let object = DynamicObject::new(&name, &resource).data(json!({"spec": {"size": 3}}));
        let made = widgets
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        assert_eq!(made.data["spec"]["size"], 3);
        let merge = Patch::Merge(json!({"spec": {"size": 4}}));
        let patched = widgets
            .patch(&name, &PatchParams::default(), &merge)
            .await
            .unwrap();
        assert_eq!(patched.data["spec"]["size"], 4);
        let metadata = widgets.get_metadata(&name).await.unwrap();
        assert_eq!(metadata.name_any(), name);
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let events = watcher(widgets, watcher::Config::default().streaming_lists());
    let mut events = std::pin::pin!(events);
    let mut names = Vec::new();
    loop {
        match within(events.try_next()).await.unwrap().unwrap() {
            Event::InitApply(object) => names.push(object.name_any()),
            Event::InitDone => break,
            _ => {}
        }
    }
    assert_eq!(names, ["w-false", "w-true"]);
    definitions
        .delete("widgets.example.com", &DeleteParams::default())
        .await
        .unwrap();
    for _ in names {
        assert!(matches!(
            within(events.try_next()).await.unwrap(),
            Some(Event::Delete(_))
        ));
    }
    server.stop().await;
}

#[tokio::test]
async fn empties_namespaces() {
    let (server, client) = both().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let shop = namespaces
        .create(
            &PostParams::default(),
            &typed(json!({"metadata": {"name": "shop"}})),
        )
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "shop");
    maps.create(&PostParams::default(), &typed(config_map("a")))
        .await
        .unwrap();
    namespaces
        .delete("shop", &DeleteParams::default())
        .await
        .unwrap();
    let uid = shop.uid().unwrap();
    within(await_condition(
        namespaces,
        "shop",
        conditions::is_deleted(&uid),
    ))
    .await
    .unwrap();
    assert!(
        maps.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    server.stop().await;
}

/// Copies a widget's size to a child, updates the status, and cleans up on deletion.
async fn reconcile(widget: Arc<DynamicObject>, context: Arc<KubeClient>) -> Result<Action, Error> {
    let client = KubeClient::clone(&context);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let result = finalizer(&widgets, "example.com/cleanup", widget, |event| async {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        match event {
            finalizer::Event::Apply(widget) => {
                let child = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {
                        "name": widget.name_any(),
                        "ownerReferences": [widget.controller_owner_ref(&kind)],
                    },
                    "data": {"size": widget.data["spec"]["size"].to_string()},
                });
                let apply = PatchParams::apply("widgets").force();
                maps.patch(&widget.name_any(), &apply, &Patch::Apply(child))
                    .await?;
                let status = json!({
                    "apiVersion": "example.com/v1", "kind": "Widget",
                    "status": {"size": widget.data["spec"]["size"]},
                });
                widgets
                    .patch_status(&widget.name_any(), &apply, &Patch::Apply(status))
                    .await?;
            }
            finalizer::Event::Cleanup(widget) => {
                let note = json!({"metadata": {"name": format!("{}-gone", widget.name_any())}});
                maps.create(&PostParams::default(), &typed(note)).await?;
            }
        }
        Ok::<_, kube::Error>(Action::await_change())
    });
    result.await.map_err(Box::new)
}

type Error = Box<finalizer::Error<kube::Error>>;

#[tokio::test]
async fn runs_a_controller() {
    let (server, client) = both().await;
    let mut version = open_version("v1", true);
    version["subresources"] = json!({"status": {}});
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &typed(definition(json!([version]))))
        .await
        .unwrap();
    within(await_condition(
        definitions,
        "widgets.example.com",
        conditions::is_crd_established(),
    ))
    .await
    .unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let controller =
        Controller::new_with(widgets.clone(), watcher::Config::default(), kind.clone())
            .owns(maps.clone(), watcher::Config::default())
            .run(
                reconcile,
                |_, error, _| panic!("{error}"),
                Arc::new(client.clone()),
            );
    let controller = tokio::spawn(controller.for_each(|_| std::future::ready(())));

    let object = DynamicObject::new("w", &kind).data(json!({"spec": {"size": 3}}));
    let made = widgets
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    let told = |size: i64| {
        move |object: Option<&DynamicObject>| {
            object.is_some_and(|object| object.data["status"]["size"] == size)
        }
    };
    let has = |size: &'static str| {
        move |map: Option<&ConfigMap>| {
            let data = map.and_then(|map| map.data.as_ref());
            data.is_some_and(|data| data.get("size").is_some_and(|found| found == size))
        }
    };
    within(await_condition(widgets.clone(), "w", told(3)))
        .await
        .unwrap();
    let child = maps.get("w").await.unwrap();
    assert_eq!(child.owner_references()[0].uid, made.uid().unwrap());

    // A change of the owner is copied to the child; a change of the child is reverted.
    let merge = Patch::Merge(json!({"spec": {"size": 4}}));
    widgets
        .patch("w", &PatchParams::default(), &merge)
        .await
        .unwrap();
    within(await_condition(widgets.clone(), "w", told(4)))
        .await
        .unwrap();
    let spoil = Patch::Merge(json!({"data": {"size": "none"}}));
    maps.patch("w", &PatchParams::default(), &spoil)
        .await
        .unwrap();
    within(await_condition(maps.clone(), "w", has("4")))
        .await
        .unwrap();

    widgets.delete("w", &DeleteParams::default()).await.unwrap();
    let uid = made.uid().unwrap();
    within(await_condition(widgets, "w", conditions::is_deleted(&uid)))
        .await
        .unwrap();
    assert!(maps.get_opt("w-gone").await.unwrap().is_some());
    controller.abort();
    server.stop().await;
}
