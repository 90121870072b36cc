use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::host::{BoxFuture, Host, Namespace, NamespaceError, Namespaces};
use crate::order::PluginError;
use crate::plugin::{Admission, Plugin};
use crate::request::{Operation, Request, kind, resource};
use crate::testing::NoCaller;

fn pods(operation: Operation, pod: Value) -> Request {
    let mut request = Request::new(operation, kind("", "v1", "Pod"), resource("", "v1", "pods"));
    request.name = String::from("p");
    request.namespace = String::from("shop");
    request.object = Some(pod.into());
    request
}

async fn admit(plugin: &dyn Plugin, request: Request) -> (Decision, Option<Value>) {
    let mut admission = Admission::new(request);
    let decision = plugin.admit(&mut admission).await;
    let object = admission.request().object.as_ref();
    (decision, object.map(|object| object.value().clone()))
}

fn refusal(decision: &Decision) -> Option<(i32, &str, &str)> {
    let status = decision.status()?;
    Some((status.code, &status.reason, &status.message))
}

#[tokio::test]
async fn pods_tolerate_nodes_that_are_away() {
    let toleration = |key: &str, seconds: i64| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let not_ready = "node.kubernetes.io/not-ready";
    let unreachable = "node.kubernetes.io/unreachable";
    let both = json!([toleration(not_ready, 300), toleration(unreachable, 300)]);
    let other = json!({"key": "other", "effect": "NoExecute"});
    for (before, after) in [
        (Value::Null, both.clone()),
        (json!([]), both.clone()),
        (both.clone(), both.clone()),
        (
            json!([toleration(not_ready, 7)]),
            json!([toleration(not_ready, 7), toleration(unreachable, 300)]),
        ),
        (
            json!([{"operator": "Exists"}]),
            json!([{"operator": "Exists"}]),
        ),
        (
            json!([{"operator": "Exists", "effect": "NoSchedule"}, other]),
            json!([
                {"operator": "Exists", "effect": "NoSchedule"},
                other,
                toleration(not_ready, 300),
                toleration(unreachable, 300),
            ]),
        ),
        (
            json!([{"key": not_ready}, {"key": unreachable}]),
            json!([{"key": not_ready}, {"key": unreachable}]),
        ),
    ] {
        let plugin = DefaultTolerationSeconds::default();
        let request = pods(Operation::Create, json!({"spec": {"tolerations": before}}));
        let (decision, pod) = admit(&plugin, request).await;
        assert_eq!(decision, Decision::Allow);
        assert_eq!(pod.unwrap()["spec"]["tolerations"], after);
    }
    let mut status = pods(Operation::Update, json!({"spec": {}}));
    status.subresource = String::from("status");
    let (_, pod) = admit(&DefaultTolerationSeconds::default(), status).await;
    assert_eq!(pod.unwrap(), json!({"spec": {}}));
}

fn images(policy: &str) -> Value {
    json!({"spec": {
        "containers": [{"name": "c", "image": "a", "imagePullPolicy": policy}],
        "initContainers": [{"name": "i", "image": "b", "imagePullPolicy": policy}],
        "volumes": [{"name": "v", "image": {"reference": "c", "pullPolicy": policy}}, {"name": "w"}],
    }})
}

#[tokio::test]
async fn images_are_always_pulled() {
    let request = pods(Operation::Create, images("IfNotPresent"));
    let (decision, pod) = admit(&AlwaysPullImages, request).await;
    assert_eq!(
        (decision, pod.unwrap()),
        (Decision::Allow, images("Always"))
    );

    let validate = |pod: Value, old: Option<Value>| async {
        let operation = if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        };
        let mut request = pods(operation, pod);
        request.old_object = old.map(Into::into);
        AlwaysPullImages
            .validate(&mut Admission::new(request))
            .await
    };
    assert_eq!(validate(images("Always"), None).await, Decision::Allow);
    let refused = validate(images("Never"), None).await;
    let wrong = |path: &str| {
        format!(
            "pods \"p\" is forbidden: spec.{path}: Unsupported value: \"Never\": supported values: \
             \"Always\""
        )
    };
    let message = format!(
        "[{}, {}, {}]",
        wrong("initContainers[0].imagePullPolicy"),
        wrong("containers[0].imagePullPolicy"),
        wrong("volumes[0].image.pullPolicy"),
    );
    assert_eq!(refusal(&refused), Some((500, "", message.as_str())));
    let one = json!({"spec": {"containers": [{"image": "a", "imagePullPolicy": "Never"}]}});
    let refused = validate(one, None).await;
    let message = wrong("containers[0].imagePullPolicy");
    assert_eq!(refusal(&refused), Some((500, "", message.as_str())));

    // An update that brings no new image is left alone, in both steps.
    let old = images("Never");
    assert_eq!(
        validate(old.clone(), Some(old.clone())).await,
        Decision::Allow
    );
    let mut update = pods(Operation::Update, old.clone());
    update.old_object = Some(old.clone().into());
    assert_eq!(admit(&AlwaysPullImages, update).await.1, Some(old.clone()));
    let mut new = old.clone();
    new["spec"]["containers"][0]["image"] = json!("z");
    assert!(!validate(new, Some(old)).await.is_allowed());
}

/// Namespaces in a cache and in a store.
#[derive(Default)]
struct Two {
    cached: Mutex<BTreeMap<String, bool>>,
    stored: Mutex<BTreeMap<String, bool>>,
}

fn namespace(terminating: bool) -> Arc<Namespace> {
    Arc::new(Namespace {
        terminating,
        ..Namespace::default()
    })
}

impl Namespaces for Two {
    fn cached(&self, name: &str) -> Option<Arc<Namespace>> {
        self.cached
            .lock()
            .unwrap()
            .get(name)
            .map(|terminating| namespace(*terminating))
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        let found = self
            .stored
            .lock()
            .unwrap()
            .get(name)
            .map(|terminating| namespace(*terminating));
        Box::pin(async move {
            if name == "broken" {
                return Err(NamespaceError::Failed(String::from("etcd is away")));
            }
            found.ok_or_else(|| NamespaceError::not_found(name))
        })
    }
}

fn lifecycle(cached: &[(&str, bool)], stored: &[(&str, bool)]) -> (NamespaceLifecycle, Arc<Two>) {
    let map = |list: &[(&str, bool)]| {
        let entries = list
            .iter()
            .map(|(name, terminating)| (String::from(*name), *terminating));
        Mutex::new(entries.collect())
    };
    let two = Arc::new(Two {
        cached: map(cached),
        stored: map(stored),
    });
    let host = Host {
        namespaces: Arc::<Two>::clone(&two),
        ..Host::new(Arc::new(NoCaller))
    };
    (NamespaceLifecycle::new(host), two)
}

fn in_namespace(operation: Operation, name: &str) -> Request {
    let mut request = pods(operation, json!({"metadata": {"generateName": "p-"}}));
    request.name.clear();
    request.namespace = name.to_owned();
    request
}

fn delete_namespace(name: &str) -> Request {
    let kind = kind("", "v1", "Namespace");
    let mut request = Request::new(Operation::Delete, kind, resource("", "v1", "namespaces"));
    request.name = name.to_owned();
    request.namespace = name.to_owned();
    request
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_where_there_is_no_namespace() {
    let known = [("live", false), ("going", true)];
    let missing = Some((404, "NotFound", "namespaces \"gone\" not found"));
    let going = "pods \"p-\" is forbidden: unable to create new content in namespace going because \
                 it is being terminated";
    let away = Some((
        500,
        "InternalError",
        "Internal error occurred: etcd is away",
    ));
    for (operation, name, want) in [
        (Operation::Create, "live", None),
        (Operation::Update, "live", None),
        (Operation::Create, "stored", None),
        (Operation::Create, "gone", missing),
        (Operation::Update, "gone", missing),
        (Operation::Delete, "gone", None),
        (Operation::Create, "going", Some((403, "Forbidden", going))),
        (Operation::Update, "going", None),
        (Operation::Create, "broken", away),
        (Operation::Create, "", None),
    ] {
        let (plugin, _) = lifecycle(&known, &[("stored", false)]);
        let (decision, _) = admit(&plugin, in_namespace(operation, name)).await;
        assert_eq!(refusal(&decision), want, "{operation:?} {name}");
        if name == "going" && want.is_some() {
            let details = decision.status().unwrap().details.clone().unwrap();
            let cause = &details.causes.unwrap()[0];
            assert_eq!(
                (&*cause.reason, &*cause.message, &*cause.field),
                (
                    "NamespaceTerminating",
                    "namespace going is being terminated",
                    "metadata.namespace"
                )
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_gets_a_moment_to_catch_up() {
    let (plugin, two) = lifecycle(&[], &[]);
    let (result, ()) = tokio::join!(
        admit(&plugin, in_namespace(Operation::Create, "new")),
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            two.cached
                .lock()
                .unwrap()
                .insert(String::from("new"), false);
        }
    );
    assert_eq!(result.0, Decision::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_deleted_is_looked_at_where_it_is_stored() {
    let (plugin, _) = lifecycle(&[("ns", false)], &[("ns", true)]);
    let create = || in_namespace(Operation::Create, "ns");
    assert_eq!(admit(&plugin, create()).await.0, Decision::Allow);
    assert_eq!(
        admit(&plugin, delete_namespace("ns")).await.0,
        Decision::Allow
    );
    assert_eq!(refusal(&admit(&plugin, create()).await.0).unwrap().0, 403);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(admit(&plugin, create()).await.0, Decision::Allow);
}

#[tokio::test]
async fn the_namespaces_a_cluster_lives_on_stay() {
    let (plugin, _) = lifecycle(&[], &[]);
    for name in ["default", "kube-system", "kube-public"] {
        let (decision, _) = admit(&plugin, delete_namespace(name)).await;
        let message =
            format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        assert_eq!(
            refusal(&decision),
            Some((403, "Forbidden", message.as_str()))
        );
    }
    assert!(
        admit(&plugin, delete_namespace("kube-node-lease"))
            .await
            .0
            .is_allowed()
    );
}

#[tokio::test]
async fn access_reviews_do_not_tell_whether_a_namespace_exists() {
    let (plugin, _) = lifecycle(&[], &[]);
    let mut request = in_namespace(Operation::Create, "gone");
    request.resource = resource("authorization.k8s.io", "v1", "localsubjectaccessreviews");
    request.kind = kind("authorization.k8s.io", "v1", "LocalSubjectAccessReview");
    assert!(admit(&plugin, request).await.0.is_allowed());
}

#[test]
fn plugins_run_in_the_built_in_order() {
    let engine = |enable: &[&'static str], disable: &[&'static str]| {
        let host = Host::new(Arc::new(NoCaller));
        Engine::builder(host.clone())
            .plugin(DefaultTolerationSeconds::default())
            .plugin(AlwaysPullImages)
            .plugin(NamespaceLifecycle::new(host))
            .enable(enable.iter().copied())
            .disable(disable.iter().copied())
            .build()
            .map(|engine| engine.plugins().collect::<Vec<_>>())
    };
    let own = [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
    ];
    let with = |first: &[&'static str]| [first, &own].concat();
    let (lifecycle, pull, tolerations) = (
        "NamespaceLifecycle",
        "AlwaysPullImages",
        "DefaultTolerationSeconds",
    );
    assert_eq!(engine(&[], &[]), Ok(with(&[lifecycle, tolerations])));
    assert_eq!(
        engine(&[pull], &[]),
        Ok(with(&[lifecycle, pull, tolerations]))
    );
    assert_eq!(
        engine(&[tolerations], &[lifecycle]),
        Ok(with(&[tolerations]))
    );
    let all = [&[lifecycle, tolerations][..], &own].concat();
    assert_eq!(engine(&[], &all), Ok(vec![]));
    for (enable, disable, want) in [
        (
            &["Odd"][..],
            &[][..],
            "enable-admission-plugins plugin \"Odd\" is unknown",
        ),
        (
            &[],
            &["Odd"],
            "disable-admission-plugins plugin \"Odd\" is unknown",
        ),
        (
            &[pull, lifecycle],
            &[lifecycle, pull],
            "[AlwaysPullImages NamespaceLifecycle] in enable-admission-plugins and \
             disable-admission-plugins overlapped",
        ),
    ] {
        let error: PluginError = engine(enable, disable).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
}

#[tokio::test]
async fn what_is_not_shaped_like_a_pod_is_refused() {
    let odd = [
        json!({"spec": []}),
        json!({"spec": {"containers": {}}}),
        json!({"spec": {"initContainers": ["app"]}}),
        json!({"spec": {"containers": [], "tolerations": "all"}}),
    ];
    let tolerations = DefaultTolerationSeconds::default();
    let plugins: [&dyn Plugin; 2] = [&AlwaysPullImages, &tolerations];
    for plugin in plugins {
        let mut requests: Vec<Request> = odd
            .iter()
            .map(|pod| pods(Operation::Create, pod.clone()))
            .collect();
        let mut nothing = pods(Operation::Create, Value::Null);
        nothing.object = None;
        requests.push(nothing);
        for request in requests {
            let shown = format!("{} {:?}", plugin.name(), request.object);
            let (decision, _) = admit(plugin, request).await;
            let status = decision.status().expect(&shown);
            assert_eq!(
                (status.code, &*status.reason),
                (400, "BadRequest"),
                "{shown}"
            );
        }
    }
}
