//! The default objects of every namespace: the ServiceAccount `default`, and the ConfigMap `kube-root-ca.crt` with
//! which clients verify the server.
//!
//! UPSTREAM: kubernetes pkg/controller/serviceaccount/serviceaccounts_controller.go,
//! pkg/controller/certificates/rootcacertpublisher

use std::sync::Arc;

use serde_json::{Value, json};

use super::owner_graph::Meta;
use super::{Context, account, options};
use crate::config::Controllers;
use crate::decode::body;
use crate::decode::write::Body;
use crate::encoding;
use crate::error::Outcome;
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::Resource;
use crate::request::{ObjectPath, Request};
use crate::write::Writer;
use crate::write::create;
use crate::write::update::Change;

pub(super) const SERVICE_ACCOUNT: &str = "default";
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";

/// The default objects of a namespace, with their plurals and the names of their controllers.
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

/// The namespace in the key of a default object.
pub(super) fn namespace_of(key: &str) -> Option<&str> {
    let rest = match key.strip_prefix("/core/serviceaccounts/") {
        Some(rest) => rest.strip_suffix(SERVICE_ACCOUNT)?,
        None => key
            .strip_prefix("/core/configmaps/")?
            .strip_suffix(ROOT_CA)?,
    };
    rest.strip_suffix('/')
}

/// Returns true if a namespace has its default objects, created by any server.
pub(super) async fn exist(context: &Context, namespace: &str) -> Outcome<bool> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    for (plural, _, object) in objects(context.settings.enabled, namespace, "") {
        let Some(resource) = snapshot.find("", "v1", plural) else {
            continue;
        };
        let name = metadata::text(&object, "name");
        let key = writer.storage.key(resource, namespace, name);
        if writer.storage.entry(&key).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Creates missing default objects. Returns true if any were missing.
pub(super) async fn reconcile(context: &Context, namespace: &str) -> Outcome<bool> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let mut changed = false;
    let mut failed = None;
    for (plural, controller, object) in objects(
        context.settings.enabled,
        namespace,
        &context.settings.ca_pem,
    ) {
        let (Some(namespaces), Some(resource)) = (
            snapshot.find("", "v1", "namespaces"),
            snapshot.find("", "v1", plural),
        ) else {
            return Ok(false);
        };
        // A terminating namespace accepts no new objects.
        let key = writer.storage.key(namespaces, "", namespace);
        let found = writer.storage.entry(&key).await?;
        if found.is_none_or(|entry| Meta::read(&entry).is_none_or(|meta| meta.is_deleting())) {
            return Ok(false);
        }
        let default = Default {
            writer,
            resource,
            namespace,
            controller,
            object,
        };
        match default.ensure().await {
            Ok(was_missing) => changed |= was_missing,
            Err(failure) => failed = Some(failure),
        }
    }
    failed.map_or(Ok(changed), Err)
}

/// A default object of a namespace.
struct Default<'d> {
    writer: &'d Writer,
    resource: &'d Arc<Resource>,
    namespace: &'d str,
    controller: &'d str,
    object: Value,
}

/// Returns true if the object has its description annotation.
fn is_described(object: &Value) -> bool {
    let annotations = metadata::of(object).and_then(|metadata| metadata.get("annotations"));
    let text = annotations.and_then(|annotations| annotations.get(DESCRIPTION)?.as_str());
    text.is_some_and(|text| !text.is_empty())
}

impl Default<'_> {
    fn request(&self, verb: Verb, name: &str) -> Request {
        let path = ObjectPath {
            resource: self.resource,
            namespace: self.namespace,
            name,
            subresource: "",
        };
        Request::internal(account(self.controller), verb, path)
    }

    /// Creates or corrects the object. Returns true if that was necessary.
    async fn ensure(self) -> Outcome<bool> {
        let storage = &self.writer.storage;
        let name = metadata::text(&self.object, "name").to_owned();
        let key = storage.key(self.resource, self.namespace, &name);
        let Some(entry) = storage.entry(&key).await? else {
            let request = self.request(Verb::Create, "");
            let body = Body {
                object: body::decode_value(self.object, self.resource)?,
                options: options(),
            };
            create::create(self.writer, &request, body).await?;
            return Ok(true);
        };
        let found = encoding::parse_entry(&entry, self.resource.type_meta())?;
        let object = &self.object;
        // Users may change the service account, but not the CA certificate.
        let is_right = object.get("data").is_none()
            || found.get("data") == object.get("data") && is_described(&found);
        if is_right || metadata::is_deleting(&found) {
            return Ok(false);
        }
        let request = self.request(Verb::Update, &name);
        let options = options();
        Change::new(self.writer, &request, &options)
            .edit(|changed| {
                changed["data"] = object["data"].clone();
                metadata::change(changed, |metadata| {
                    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
                    annotations[DESCRIPTION] =
                        object["metadata"]["annotations"][DESCRIPTION].clone();
                });
            })
            .await?;
        Ok(true)
    }
}
