//! Validation against cached objects: a host name belongs to one Service.

#![expect(
    clippy::unwrap_used,
    reason = "what is not there fails the test, also in the helpers"
)]

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use lockgate_apiserver::{Settings, TestServer};
use lockgate_webhook::server::Server;
use lockgate_webhook::{
    Context, Denial, Object, Operation, Registration, Rule, Validator, Verdict, Webhooks,
    validating,
};
use lockgate_webhook_cache::{Cache, CacheError};
use lockgate_webhook_test::Cluster;

const HOST: &str = "example.com/hostname";
const TIMEOUT: Duration = Duration::from_secs(60);

fn host(service: &Service) -> Option<&String> {
    service.metadata.annotations.as_ref()?.get(HOST)
}

fn by_host(api: Api<Service>) -> Cache<Service> {
    let keys = |service: &Service| host(service).into_iter().cloned().collect();
    Cache::of(api).index("hostname", keys).start()
}

/// Denies a host name that is in use by another Service.
struct Hosts(Cache<Service>);

impl Validator<Service> for Hosts {
    async fn create_or_update(
        &self,
        ctx: &Context,
        _: Option<&Object<Service>>,
        new: &Object<Service>,
    ) -> Verdict {
        let Some(host) = host(new) else {
            return Ok(());
        };
        let own = (ctx.namespace(), ctx.name());
        for other in self.0.by_index("hostname", host)? {
            let metadata = &other.metadata;
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let name = metadata.name.as_deref().unwrap_or_default();
            if (namespace, name) != own {
                let message = format!("{host} belongs to {namespace}/{name}");
                return Err(Denial::conflict(message).into());
            }
        }
        Ok(())
    }
}

async fn client(server: &TestServer) -> kube::Client {
    let file = kube::config::Kubeconfig::read_from(server.kubeconfig_path()).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

fn service(name: &str, host: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: default, \
         annotations: {{{HOST}: {host}}}}}, spec: {{ports: [{{port: 80}}]}}}}"
    )
}

async fn until(mut is_true: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_true().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await.unwrap();
}

#[tokio::test]
async fn a_webhook_validates_against_what_is_cached() {
    // The objects are on the API server that calls the webhook.
    let objects = TestServer::start_with(Settings::default()).await.unwrap();
    let cache = by_host(Api::all(client(&objects).await));
    // Before the first list the cache is not synced, which is an error.
    assert_eq!(
        cache.by_index("hostname", "a").unwrap_err(),
        CacheError::NotSynced(String::from("Service"))
    );
    let webhooks = Webhooks::new().with(
        Registration::validating("hosts.example.com")
            .path("/hosts")
            .rule(Rule::resources(["services"]).operations([Operation::Create, Operation::Update])),
        validating::<Service, _>(Hosts(cache.clone())),
    );
    let server = Server::new(webhooks.clone())
        .ready_check("services", cache.ready_check())
        .register(|registry| cache.register(registry));
    let cluster = Cluster::start_with(server, &webhooks, Settings::default())
        .await
        .unwrap();
    cache.until_synced().await;
    until(async || cluster.webhooks().is_ready().await).await;

    objects
        .apply(&service("shop", "shop.example.com"))
        .await
        .unwrap();
    let found = || cache.by_index("hostname", "shop.example.com").unwrap();
    until(async || found().len() == 1).await;
    assert!(cache.get("default", "shop").unwrap().is_some());
    // The same Service may keep its host name, another may not use it.
    cluster
        .apply(&service("shop", "shop.example.com"))
        .await
        .unwrap();
    let refused = cluster
        .apply(&service("other", "shop.example.com"))
        .await
        .unwrap_err();
    assert_eq!(refused.status.code, 409);
    assert!(
        refused
            .status
            .message
            .contains("shop.example.com belongs to default/shop"),
        "{refused}"
    );

    // An update moves it in the index.
    objects
        .apply(&service("shop", "new.example.com"))
        .await
        .unwrap();
    until(async || found().is_empty()).await;
    assert_eq!(
        cache.by_index("hostname", "new.example.com").unwrap().len(),
        1
    );
    cluster
        .apply(&service("other", "shop.example.com"))
        .await
        .unwrap();
    assert!(matches!(
        cache.by_index("nothing", ""),
        Err(CacheError::NoIndex { .. })
    ));
    let metrics = cluster.webhooks().metrics_text();
    for series in [
        "webhook_cache_synced{kind=\"Service\"} 1",
        "webhook_cache_lists_total{kind=\"Service\"} 1",
        "webhook_cache_errors_total{kind=\"Service\"} 0",
    ] {
        assert!(metrics.contains(series), "{series}\n{metrics}");
    }
    cluster.stop().await;
    objects.stop().await;
}

#[tokio::test]
async fn a_server_is_not_ready_before_its_cache_is() {
    let nowhere = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    let cache = by_host(Api::all(kube::Client::try_from(nowhere).unwrap()));
    let server = Server::new(Webhooks::new()).ready_check("services", cache.ready_check());
    let served = lockgate_webhook::testing::serve_with(server).await;
    assert!(!served.is_ready().await);
    assert!(!cache.is_synced());
    served.stop().await;
}
