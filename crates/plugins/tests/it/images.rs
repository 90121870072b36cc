//! Image pull policies, and the image policy webhook.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate_admission::https::Settings;
use lockgate_api::decode::Bytes;
use lockgate_api::registration::hub::ClientConfig;
use lockgate_plugins::image_policy::{
    Backend, BackendError, Configuration, HttpsBackend, ImagePolicyConfiguration, ImageReviewSpec,
    ImageReviewStatus, ImageRules,
};
use lockgate_plugins::{AlwaysPullImages, ImagePolicy, config};
use lockgate_testkit::{ScriptedResponse, WebhookServer};
use lockgate_webhook::BoxFuture;
use serde_json::{Value, json};

use crate::events::Stopped;
use crate::kit::{Asked, forbidden, mutate, pod, pod_with, response, validate};

fn images(policy: &str) -> Value {
    pod_with(json!({
        "containers": [{"name": "c", "image": "a", "imagePullPolicy": policy}],
        "initContainers": [{"name": "i", "image": "b", "imagePullPolicy": policy}],
        "ephemeralContainers": [{"name": "e", "image": "d", "imagePullPolicy": policy}],
        "volumes": [{"name": "v", "image": {"reference": "c", "pullPolicy": policy}}, {"name": "w"}],
    }))
}

#[tokio::test]
async fn images_are_always_pulled() {
    let plugin = AlwaysPullImages;
    let create = Asked::create_pod(images("Never"));
    assert_eq!(mutate(&plugin, &create).await, Ok(images("Always")));
    assert_eq!(
        validate(&plugin, &Asked::create_pod(images("Always"))).await,
        Ok(())
    );
    let wrong = |path: &str| {
        format!(
            "pods \"x\" is forbidden: spec.{path}: Unsupported value: \"Never\": supported values: \
             \"Always\""
        )
    };
    // Upstream's aggregate error has no status.
    let refused = (
        500,
        format!(
            "[{}, {}, {}, {}]",
            wrong("initContainers[0].imagePullPolicy"),
            wrong("containers[0].imagePullPolicy"),
            wrong("ephemeralContainers[0].imagePullPolicy"),
            wrong("volumes[0].image.pullPolicy"),
        ),
    );
    assert_eq!(validate(&plugin, &create).await, Err(refused.clone()));
    // An update without new images is not checked.
    let update = Asked::update_pod(images("Never"), images("Never"));
    assert_eq!(mutate(&plugin, &update).await, Ok(images("Never")));
    assert_eq!(validate(&plugin, &update).await, Ok(()));
    let update = Asked::update_pod(pod(), images("Never"));
    assert_eq!(mutate(&plugin, &update).await, Ok(images("Always")));
    assert_eq!(validate(&plugin, &update).await, Err(refused));
}

/// A backend with scripted responses, which records requests.
#[derive(Clone)]
struct Scripted {
    asked: Arc<Mutex<Vec<ImageReviewSpec>>>,
    answer: Arc<Mutex<Result<ImageReviewStatus, BackendError>>>,
}

impl Scripted {
    fn new(answer: Result<ImageReviewStatus, BackendError>) -> Self {
        Self {
            asked: Arc::default(),
            answer: Arc::new(Mutex::new(answer)),
        }
    }

    fn answer(&self, answer: Result<ImageReviewStatus, BackendError>) {
        *self.answer.lock().unwrap() = answer;
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Backend for Scripted {
    fn review<'f>(
        &'f self,
        spec: &'f ImageReviewSpec,
    ) -> BoxFuture<'f, Result<ImageReviewStatus, BackendError>> {
        self.asked.lock().unwrap().push(spec.clone());
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(async move { answer })
    }
}

fn status(allowed: bool, reason: &str) -> ImageReviewStatus {
    ImageReviewStatus {
        allowed,
        reason: reason.to_owned(),
        audit_annotations: [(String::from("seen"), String::from("yes"))].into(),
    }
}

fn failed(retry: bool) -> BackendError {
    BackendError {
        message: String::from("no answer"),
        retry,
    }
}

fn settings(text: &str) -> ImagePolicyConfiguration {
    config::read::<Configuration>(text).unwrap().image_policy
}

#[tokio::test]
async fn the_backend_is_asked_about_every_image() {
    let backend = Scripted::new(Ok(status(true, "")));
    let plugin = ImagePolicy::new(&settings("{}"), backend.clone()).unwrap();
    let mut pod = images("Always");
    pod["metadata"]["annotations"] = json!({"a.image-policy.k8s.io/ticket": "1", "other": "2"});
    let got = response(&plugin, &Asked::create_pod(pod.clone())).await;
    assert!(got.is_allowed());
    assert_eq!(got.audit_annotations()["seen"], "yes");
    let asked = Asked::update_pod(pod.clone(), pod).sub_resource("ephemeralcontainers");
    assert!(response(&plugin, &asked).await.is_allowed());
    let texts: Vec<Value> = backend
        .asked
        .lock()
        .unwrap()
        .iter()
        .map(|spec| serde_json::to_value(spec).unwrap())
        .collect();
    let annotations = json!({"a.image-policy.k8s.io/ticket": "1"});
    assert_eq!(
        texts,
        [
            json!({"containers": [{"image": "a"}, {"image": "b"}], "annotations": annotations, "namespace": "shop"}),
            json!({"containers": [{"image": "d"}], "annotations": annotations, "namespace": "shop"}),
        ]
    );
}

#[tokio::test]
async fn what_the_backend_refuses_is_refused() {
    for (reason, want) in [
        (
            "old",
            "image policy webhook backend denied one or more images: old",
        ),
        ("", "one or more images rejected by webhook backend"),
    ] {
        let backend = Scripted::new(Ok(status(false, reason)));
        let plugin = ImagePolicy::new(&settings("{}"), backend).unwrap();
        let got = validate(&plugin, &Asked::create_pod(pod())).await;
        assert_eq!(got, Err(forbidden(want)));
    }
}

#[tokio::test]
async fn answers_are_remembered_for_a_while() {
    let clock = Stopped::new();
    let backend = Scripted::new(Ok(status(true, "")));
    let config = settings("imagePolicy: {allowTTL: 10, denyTTL: 5}");
    let plugin =
        ImagePolicy::with_clock(&config, backend.clone(), Arc::new(clock.clone())).unwrap();
    let asked = Asked::create_pod(pod());
    for (pass, allowed, count) in [
        (0, true, 1),
        (9, true, 1),
        (1, false, 2),
        (4, false, 2),
        (1, false, 3),
    ] {
        clock.pass(Duration::from_secs(pass));
        assert_eq!(validate(&plugin, &asked).await.is_ok(), allowed, "{count}");
        assert_eq!(backend.count(), count);
        backend.answer(Ok(status(false, "")));
    }
    // -1 disables caching.
    let backend = Scripted::new(Ok(status(true, "")));
    let config = settings("imagePolicy: {allowTTL: -1}");
    let plugin = ImagePolicy::new(&config, backend.clone()).unwrap();
    for count in 1..4 {
        assert_eq!(validate(&plugin, &asked).await, Ok(()));
        assert_eq!(backend.count(), count);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_is_asked_again_and_then_the_default_counts() {
    for (text, retry, count, allowed) in [
        ("{}", false, 1, false),
        ("{}", true, 5, false),
        ("imagePolicy: {defaultAllow: true}", true, 5, true),
    ] {
        let backend = Scripted::new(Err(failed(retry)));
        let plugin = ImagePolicy::new(&settings(text), backend.clone()).unwrap();
        let start = tokio::time::Instant::now();
        let got = response(&plugin, &Asked::create_pod(pod())).await;
        assert_eq!(got.is_allowed(), allowed);
        assert_eq!(backend.count(), count);
        let waited = if retry { 4062 } else { 0 };
        assert!((waited..waited + 3).contains(&start.elapsed().as_millis()));
        if allowed {
            assert_eq!(got.audit_annotations()["failed-open"], "true");
        } else {
            assert_eq!(got.denial().unwrap().to_string(), "no answer");
        }
    }
}

#[test]
fn times_out_of_bounds_are_refused() {
    let backend = || Scripted::new(Ok(status(true, "")));
    for (text, is_good) in [
        (
            "imagePolicy: {allowTTL: 1800, denyTTL: 1800, retryBackoff: 300000}",
            true,
        ),
        ("imagePolicy: {allowTTL: 1801}", false),
        ("imagePolicy: {denyTTL: -2}", false),
        ("imagePolicy: {retryBackoff: 300001}", false),
    ] {
        let made = ImagePolicy::new(&settings(text), backend());
        assert_eq!(made.is_ok(), is_good, "{text}");
    }
}

#[tokio::test]
async fn a_list_says_which_images_may_run() {
    let rules = config::read("{allow: ['r.io/*'], denyTags: [latest]}").unwrap();
    let plugin = ImagePolicy::new(&settings("{}"), ImageRules::new(rules)).unwrap();
    let with = |image: &str| {
        Asked::create_pod(pod_with(
            json!({"containers": [{"name": "a", "image": image}]}),
        ))
    };
    assert_eq!(validate(&plugin, &with("r.io/a:1")).await, Ok(()));
    let refused = forbidden(
        "image policy webhook backend denied one or more images: `nginx:1` is not from an allowed \
         repository",
    );
    assert_eq!(validate(&plugin, &with("nginx:1")).await, Err(refused));
}

#[tokio::test]
async fn a_backend_is_reached_over_https() {
    let server = WebhookServer::start().await;
    let review = |status: Value| {
        let review = json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status});
        ScriptedResponse::http(200, review.to_string())
    };
    server.script(
        "/policy",
        [
            review(json!({"allowed": true})),
            review(json!({"allowed": false, "reason": "old"})),
            ScriptedResponse::http(200, "{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}"),
            ScriptedResponse::http(404, "gone"),
            ScriptedResponse::http(200, "no json"),
        ],
    );
    let config = ClientConfig {
        url: Some(server.url("/policy")),
        ca_bundle: Some(Bytes(server.ca_pem().as_bytes().to_vec())),
        ..ClientConfig::default()
    };
    let backend = HttpsBackend::new(&config, Settings::default()).unwrap();
    let by_file = from_file(&server);
    let spec = ImageReviewSpec {
        namespace: String::from("shop"),
        ..ImageReviewSpec::default()
    };
    assert!(backend.review(&spec).await.unwrap().allowed);
    assert_eq!(by_file.review(&spec).await.unwrap().reason, "old");
    let token = server.requests()[1]
        .header("authorization")
        .map(str::to_owned);
    assert_eq!(token.as_deref(), Some("Bearer secret"));
    for want in [
        "expected an ImageReview",
        "the server could not find the requested resource",
        "expected ident",
    ] {
        let error = backend.review(&spec).await.unwrap_err();
        assert!(error.message.contains(want) && !error.retry, "{error:?}");
    }
    let asked: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert_eq!(
        asked,
        json!({"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "spec": {"namespace": "shop"}})
    );
    server.stop().await;
}

/// The same backend, configured by a kubeconfig.
fn from_file(server: &WebhookServer) -> HttpsBackend {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), server.ca_pem()).unwrap();
    let text = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "images", "user": "me"}}],
        "clusters": [{"name": "images", "cluster": {"server": server.url("/policy"), "certificate-authority": "ca.pem"}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
    });
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, text.to_string()).unwrap();
    let backend = HttpsBackend::from_kubeconfig(&file).unwrap();
    let plain = text.to_string().replace("https://", "http://");
    std::fs::write(&file, plain).unwrap();
    let error = HttpsBackend::from_kubeconfig(&file)
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("must use https"), "{error}");
    std::fs::write(&file, "clusters: []").unwrap();
    let error = HttpsBackend::from_kubeconfig(&file)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "the current context names no cluster");
    backend
}
