//! Webhooks of the framework behind the API server: matched, called, applied, validated.

use k8s_openapi::api::core::v1::ConfigMap;
use lockgate_apiserver::{FeatureGates, Settings, TestServer};
use lockgate_webhook::server::Server;
use lockgate_webhook::{
    Context, Denial, ManifestOptions, Mutator, Object, Operation, Registration, Rule, Validator,
    Verdict, Webhooks, mutating, validating,
};
use lockgate_webhook_test::{Cluster, ClusterError};

struct Labels;

impl Mutator<ConfigMap> for Labels {
    async fn mutate(&self, ctx: &Context, object: &mut ConfigMap) -> Verdict {
        let labels = object.metadata.labels.get_or_insert_default();
        labels.insert("owner".into(), ctx.user().username.replace(':', "."));
        Ok(())
    }
}

/// Validates the object after mutation, and denies one without the label.
impl Validator<ConfigMap> for Labels {
    async fn create(&self, ctx: &Context, object: &Object<ConfigMap>) -> Verdict {
        ctx.warn("seen");
        if object
            .metadata
            .labels
            .as_ref()
            .is_none_or(|labels| !labels.contains_key("owner"))
        {
            return Err(Denial::forbidden("nobody owns it").into());
        }
        Ok(())
    }

    async fn delete(&self, _: &Context, _: &Object<ConfigMap>) -> Verdict {
        Err(Denial::forbidden("it stays").into())
    }
}

fn registration(registration: Registration) -> Registration {
    registration
        .rule(Rule::resources(["configmaps"]).operations([Operation::Create, Operation::Delete]))
        .match_condition("not-exempt", "request.namespace != 'exempt'")
}

fn validator() -> (Registration, impl lockgate_webhook::Handler) {
    let registration = registration(Registration::validating("owner-check.example.com"));
    (
        registration.path("/validate"),
        validating::<ConfigMap, _>(Labels),
    )
}

const MAP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}";

#[tokio::test]
async fn a_write_goes_the_whole_way() {
    let (check, checking) = validator();
    let webhooks = Webhooks::new()
        .with(
            registration(Registration::mutating("owner.example.com")).path("/mutate"),
            mutating::<ConfigMap, _>(Labels),
        )
        .with(check, checking);
    let cluster = Cluster::start(webhooks).await.unwrap();
    let applied = cluster.apply(MAP).await.unwrap();
    assert_eq!(applied.objects[0]["metadata"]["labels"]["owner"], "admin");
    assert_eq!(applied.warnings, ["seen"]);
    let text = cluster.webhooks().metrics_text();
    for webhook in ["owner.example.com", "owner-check.example.com"] {
        let series = format!("admission_webhook_duration_seconds_count{{webhook=\"{webhook}\"}} 1");
        assert!(text.contains(&series), "{text}");
    }
    assert!(cluster.kubeconfig_path().exists());
    cluster.stop().await;
}

#[tokio::test]
async fn a_denial_reaches_the_client_and_a_condition_keeps_the_webhook_out() {
    let (check, checking) = validator();
    let cluster = Cluster::start(Webhooks::new().with(check, checking))
        .await
        .unwrap();
    let refused = cluster.apply(MAP).await.unwrap_err();
    assert_eq!(
        (refused.status.code, refused.status.message.as_str()),
        (
            403,
            "admission webhook \"owner-check.example.com\" denied the request: nobody owns it"
        )
    );
    let elsewhere = "{apiVersion: v1, kind: Namespace, metadata: {name: exempt}}\n---\n\
        {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: exempt}}";
    assert_eq!(cluster.apply(elsewhere).await.unwrap().objects.len(), 2);
    cluster.stop().await;
}

#[tokio::test]
async fn a_registration_that_is_wrong_is_found() {
    let registration = Registration::validating("owner.example.com").match_condition("bad", "1 +");
    let webhooks = Webhooks::new().with(
        registration
            .path("/")
            .rule(Rule::resources(["configmaps"]).operations([Operation::Create])),
        validating::<ConfigMap, _>(Labels),
    );
    let error = Cluster::start(webhooks).await.unwrap_err();
    let ClusterError::Register(error) = error else {
        panic!("{error}");
    };
    assert!(error.status.message.contains("matchConditions"), "{error}");
}

#[tokio::test]
async fn a_cluster_that_is_dropped_leaves_nothing_behind() {
    use std::os::unix::fs::PermissionsExt as _;

    let cluster = Cluster::start(Webhooks::new()).await.unwrap();
    let (folder, address) = (cluster.folder().to_owned(), cluster.address());
    let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    drop(cluster);
    assert!(!folder.exists());
    let refused = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(30), refused);
    waited.await.expect("the server stops");
}

#[tokio::test]
async fn a_webhook_on_loopback_needs_no_certificate_where_http_is_allowed() {
    let (check, checking) = validator();
    let webhooks = Webhooks::new().with(check, checking);
    let running = Server::new(webhooks.clone())
        .listen(([127, 0, 0, 1], 0))
        .plain_http()
        .start()
        .await
        .unwrap();
    let port = running.address().port();
    for host in ["localhost", "127.0.0.1"] {
        let settings = Settings {
            feature_gates: FeatureGates {
                http_on_loopback: true,
                ..FeatureGates::default()
            },
            ..Settings::default()
        };
        let server = TestServer::start_with(settings).await.unwrap();
        let options = ManifestOptions::new().url(format!("http://{host}:{port}"));
        let manifests = webhooks.manifests(&options).to_yaml();
        server.apply(&manifests).await.unwrap();
        let refused = server.apply(MAP).await.unwrap_err();
        assert_eq!(
            refused.status.message,
            "admission webhook \"owner-check.example.com\" denied the request: nobody owns it"
        );
        server.stop().await;
    }
}
