//! Deletes what is in a namespace that is being deleted, and then lets it go.
//!
//! UPSTREAM: kubernetes pkg/controller/namespace

use std::sync::Arc;

use lockgate_api::admission::UserInfo;
use lockgate_store::List;
use serde_json::Value;

use super::{Context, account, options};
use crate::decode::options::DeleteOptions;
use crate::encoding;
use crate::error::{Outcome, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::{Resource, Snapshot};
use crate::request::{ObjectPath, Request};
use crate::write::Writer;
use crate::write::delete::Deletion;
use crate::write::strategy;
use crate::write::update::Change;

/// The finalizer in the spec of a namespace that stands for what is in it.
const FINALIZER: &str = "kubernetes";

fn user() -> UserInfo {
    account("namespace-controller")
}

/// Empties a namespace. Returns whether it is done; what finalizers or webhooks hold is left.
pub(super) async fn look(context: &Context, name: &str) -> Outcome<bool> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let Some(namespaces) = snapshot.find("", "v1", "namespaces") else {
        return Ok(true);
    };
    let key = writer.storage.key(namespaces, "", name);
    let Some(entry) = writer.storage.entry(&key).await? else {
        return Ok(true);
    };
    let namespace = encoding::parse_entry(&entry, namespaces.type_meta())?;
    let is_held = strategy::namespace_finalizers(&namespace).contains(&FINALIZER);
    if !metadata::is_deleting(&namespace) || !is_held {
        return Ok(true);
    }
    if empty(writer, &snapshot, name).await? {
        finalize(writer, namespaces, name).await?;
        return Ok(true);
    }
    Ok(false)
}

/// Deletes the objects in a namespace. Returns whether none is left.
async fn empty(writer: &Writer, snapshot: &Snapshot, namespace: &str) -> Outcome<bool> {
    let mut is_empty = true;
    let contents = snapshot.resources().iter();
    for resource in contents.filter(|it| it.names.namespaced && it.is_storage_version()) {
        let prefix = writer.storage.prefix(resource, namespace);
        let page = writer.storage.store().list(List::all(&prefix)).await;
        let page = page.map_err(|error| read_failed(error, 0))?;
        for entry in &page.entries {
            let name = entry.key.rsplit('/').next().unwrap_or_default();
            let path = ObjectPath {
                resource,
                namespace,
                name,
                subresource: "",
            };
            let request = Request::internal(user(), Verb::Delete, path);
            let deletion = Deletion {
                // Upstream deletes the collection, whose items have no name in admission.
                admission_name: Some(""),
                ..Deletion::of(writer, &request)
            };
            let options = DeleteOptions {
                propagation_policy: Some(String::from("Background")),
                ..DeleteOptions::default()
            };
            match deletion.run(options).await {
                Ok(deleted) if deleted.gone => {}
                Ok(_) => is_empty = false,
                Err(failure) if failure.is_not_found() => {}
                Err(failure) => {
                    tracing::debug!(
                        key = &*entry.key,
                        error = failure.0.message,
                        "cannot delete an object in a terminating namespace"
                    );
                    is_empty = false;
                }
            }
        }
    }
    Ok(is_empty)
}

/// Removes the finalizer for the contents. Those of others are theirs to remove.
async fn finalize(writer: &Writer, namespaces: &Arc<Resource>, name: &str) -> Outcome<()> {
    let path = ObjectPath {
        resource: namespaces,
        namespace: name,
        name,
        subresource: "finalize",
    };
    let request = Request::internal(user(), Verb::Update, path);
    let options = options();
    let finalized = Change::new(writer, &request, &options)
        .edit(|namespace| {
            let mut finalizers: Vec<Value> = strategy::namespace_finalizers(namespace)
                .into_iter()
                .map(Value::from)
                .collect();
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            if let Some(spec) = namespace.get_mut("spec").and_then(Value::as_object_mut) {
                if finalizers.is_empty() {
                    spec.remove("finalizers");
                } else {
                    spec.insert(String::from("finalizers"), finalizers.into());
                }
            }
        })
        .await;
    match finalized {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        Err(failure) => Err(failure),
    }
}
