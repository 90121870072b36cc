//! What every namespace has: the service account `default`, and the certificate of the authority
//! with which the server is verified.
//!
//! UPSTREAM: kubernetes pkg/controller/serviceaccount/serviceaccounts_controller.go,
//! pkg/controller/certificates/rootcacertpublisher

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockgate_admission::host::Namespaces as _;
use lockgate_store::ReadAt;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{account, call, request};
use crate::config::Controllers;
use crate::decode::options::WriteOptions;
use crate::encoding;
use crate::error::{Failure, Outcome, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::server::Server;
use crate::write::create;
use crate::write::update::{Change, New};

pub(super) const SERVICE_ACCOUNT: &str = "default";
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// How long the creation of a namespace waits for what the namespace has. Longer, and a webhook that
/// is slow about service accounts would hold up namespaces.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a namespace is to have: plurals and objects, and who makes them.
pub(crate) fn objects(
    controllers: Controllers,
    namespace: &str,
    ca_pem: &str,
) -> Vec<(&'static str, &'static str, Value)> {
    let mut objects = Vec::new();
    if controllers.service_account {
        let object = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT, "namespace": namespace},
        });
        objects.push(("serviceaccounts", "service-account-controller", object));
    }
    if controllers.root_ca {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": ROOT_CA,
                "namespace": namespace,
                "annotations": {DESCRIPTION: "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."},
            },
            "data": {"ca.crt": ca_pem},
        });
        objects.push(("configmaps", "root-ca-cert-publisher", object));
    }
    objects
}

/// The namespace in the key of an object that every namespace has.
pub(super) fn namespace_of(key: &str) -> Option<&str> {
    let rest = match key.strip_prefix("/core/serviceaccounts/") {
        Some(rest) => rest.strip_suffix(SERVICE_ACCOUNT)?,
        None => key
            .strip_prefix("/core/configmaps/")?
            .strip_suffix(ROOT_CA)?,
    };
    rest.strip_suffix('/')
}

/// Makes what a namespace lacks. Returns whether it lacked anything.
pub(super) async fn look(server: &Server, namespace: &str) -> Outcome<bool> {
    let mut changed = false;
    let mut failed = None;
    for (plural, who, object) in objects(server.settings.controllers, namespace, &server.ca_pem) {
        let known = server.namespaces.cached(namespace);
        if known.is_none_or(|namespace| namespace.terminating) {
            return Ok(false);
        }
        match ensure(server, namespace, plural, who, object).await {
            Ok(was_missing) => changed |= was_missing,
            Err(failure) if is_over(&failure) => {}
            Err(failure) => failed = Some(failure),
        }
    }
    failed.map_or(Ok(changed), Err)
}

/// Whether the namespace went, or somebody else was faster.
fn is_over(Failure(status): &Failure) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 404
        || status.reason == "AlreadyExists"
        || causes
            .flatten()
            .any(|cause| cause.reason == "NamespaceTerminating")
}

async fn ensure(
    server: &Server,
    namespace: &str,
    plural: &str,
    who: &str,
    object: Value,
) -> Outcome<bool> {
    let snapshot = server.registry.snapshot();
    let Some(resource) = snapshot.find("", "v1", plural) else {
        return Ok(false);
    };
    let name = metadata::text(&object, "name").to_owned();
    let key = server.key(resource, namespace, &name);
    let (entry, _) = server
        .store
        .get(&key, ReadAt::Latest)
        .await
        .map_err(|error| read_failed(error, 0))?;
    let Some(entry) = entry else {
        let target = (namespace, "");
        let json = "application/json";
        let mut call = request(account(who), Verb::Create, resource, target, json, &object);
        create::create(server, &mut call, resource).await?;
        return Ok(true);
    };
    let found = encoding::parse_entry(&entry, resource.type_meta());
    let described = |object: &Value| {
        let annotations = metadata::of(object).and_then(|metadata| metadata.get("annotations"));
        let text = annotations.and_then(|annotations| annotations.get(DESCRIPTION)?.as_str());
        text.is_some_and(|text| !text.is_empty())
    };
    // Accounts are anybody's to change; the certificate is not.
    let right = object.get("data").is_none()
        || found.get("data") == object.get("data") && described(&found);
    if right || metadata::is_deleting(&found) {
        return Ok(false);
    }
    let mut call = call(account(who), Verb::Update, resource, namespace, &name, "");
    let options = WriteOptions::default();
    Change::new(resource, &options)
        .apply(server, &mut call, |_, old| {
            let mut changed = old.cloned().unwrap_or_default();
            changed["data"] = object["data"].clone();
            metadata::change(&mut changed, |metadata| {
                let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
                annotations[DESCRIPTION] = object["metadata"]["annotations"][DESCRIPTION].clone();
            });
            Ok(New::Object(changed))
        })
        .await?;
    Ok(true)
}

/// Those who wait until namespaces have what every namespace has.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<HashMap<String, Vec<oneshot::Sender<()>>>>);

impl Waiting {
    fn add(&self, namespace: &str) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting
            .entry(namespace.to_owned())
            .or_default()
            .push(sender);
        receiver
    }

    /// Forgets those who gave up.
    fn tidy(&self, namespace: &str) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(senders) = waiting.get_mut(namespace) {
            senders.retain(|sender| !sender.is_closed());
            if senders.is_empty() {
                waiting.remove(namespace);
            }
        }
    }

    /// Tells them that a namespace was looked at.
    pub(super) fn tell(&self, namespace: &str) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in waiting.remove(namespace).into_iter().flatten() {
            let _ = sender.send(());
        }
    }
}

/// To be made before a namespace is stored: waits afterwards until the namespace has what every
/// namespace has, for a moment at most.
#[derive(Debug)]
pub(crate) struct Settling<'s> {
    server: &'s Server,
    namespace: String,
    told: oneshot::Receiver<()>,
}

impl<'s> Settling<'s> {
    /// None if namespaces have nothing.
    pub(crate) fn new(server: &'s Server, namespace: &str) -> Option<Self> {
        let controllers = server.settings.controllers;
        (controllers.service_account || controllers.root_ca).then(|| Self {
            server,
            namespace: namespace.to_owned(),
            told: server.waiting.add(namespace),
        })
    }

    /// Waits.
    pub(crate) async fn settle(mut self) {
        let _ = tokio::time::timeout(PATIENCE, &mut self.told).await;
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.told.close();
        self.server.waiting.tidy(&self.namespace);
    }
}
