//! Writes in terminating and missing namespaces.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate_admission::call::{Caller, Client, ClientError};
use lockgate_admission::decision::Decision;
use lockgate_admission::host::{BoxFuture, Host, Namespace, NamespaceError, Namespaces};
use lockgate_admission::plugin::{Admission, Plugin};
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_api::registration::hub::ClientConfig;
use lockgate_plugins::{InTree, NamespaceLifecycle};
use serde_json::{Value, json};

struct NoCaller;

impl Caller for NoCaller {
    fn client(&self, _: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        Err(ClientError::Other(String::from("nobody is reached here")))
    }
}

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

fn lifecycle(
    cached: &[(&str, bool)],
    stored: &[(&str, bool)],
) -> (InTree<NamespaceLifecycle>, Arc<Two>) {
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
    (InTree(NamespaceLifecycle::new(host)), two)
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
