//! Establishes CustomResourceDefinitions, and deletes the objects of deleted ones.
//!
//! UPSTREAM: apiextensions-apiserver pkg/controller/{status,establish,finalizer,apiapproval,nonstructuralschema}

use std::sync::Arc;

use lockgate_kinds::crd;
use lockgate_store::{Entry, List};
use serde_json::Value;

use super::Context;
use crate::decode::options::{DeleteOptions, WriteOptions};
use crate::encoding;
use crate::error::{Outcome, internal, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::Resource;
use crate::request::{ObjectPath, Request, api_server};
use crate::write::Writer;
use crate::write::delete::Deletion;
use crate::write::strategy;
use crate::write::update::Change;

/// The maximum number of steps: names, schema, approval, establishment.
const MAX_STEPS: usize = 4;

/// The page size of a removal.
const PAGE: usize = 1000;

/// Updates the status of a CustomResourceDefinition, or removes it. Returns true if complete; objects with finalizers
/// are left.
pub(super) async fn reconcile(context: &Context, name: &str) -> Outcome<bool> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let Some(definitions) =
        snapshot.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    else {
        return Ok(true);
    };
    let key = writer.storage.key(definitions, "", name);
    // Each step is a separate write, as in upstream's controllers.
    for _ in 0..MAX_STEPS {
        let Some(entry) = writer.storage.entry(&key).await? else {
            return Ok(true);
        };
        let mut definition = encoding::parse_entry(&entry, definitions.type_meta())?;
        if metadata::is_deleting(&definition) {
            return remove(writer, definitions, &definition).await;
        }
        let others = others(writer, definitions, name).await?;
        let now = metadata::now();
        let changed = crd::accept_names(&mut definition, &others, now)
            || crd::establish(&mut definition, now)
            || crd::api_approval(&mut definition, now)
            || crd::non_structural_schema(&mut definition, now);
        if !changed {
            return Ok(true);
        }
        let status = definition
            .get("status")
            .cloned()
            .ok_or_else(|| internal("the definition has no status"))?;
        change_status(writer, definitions, name, |definition| {
            definition["status"] = status.clone();
        })
        .await?;
    }
    Ok(true)
}

async fn change_status(
    writer: &Writer,
    definitions: &Arc<Resource>,
    name: &str,
    change: impl Fn(&mut Value) + Sync,
) -> Outcome<()> {
    let path = ObjectPath {
        resource: definitions,
        namespace: "",
        name,
        subresource: "status",
    };
    let request = Request::internal(api_server(), Verb::Update, path);
    // These controllers are part of kube-apiserver.
    let options = WriteOptions::of_program("kube-apiserver");
    let changed = Change::new(writer, &request, &options).edit(change).await;
    match changed {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        Err(failure) => Err(failure),
    }
}

async fn others(writer: &Writer, definitions: &Arc<Resource>, name: &str) -> Outcome<Vec<Value>> {
    let prefix = writer.storage.prefix(definitions, "");
    let page = writer.storage.store().list(List::all(&prefix)).await;
    let page = page.map_err(|error| read_failed(error, 0))?;
    let mut others = Vec::with_capacity(page.entries.len());
    for entry in &page.entries {
        let definition = encoding::parse_entry(entry, definitions.type_meta())?;
        if metadata::text(&definition, "name") != name {
            others.push(definition);
        }
    }
    Ok(others)
}

/// Deletes the objects of a CustomResourceDefinition, without admission, and then removes its finalizer. Returns true
/// if all are gone.
async fn remove(writer: &Writer, definitions: &Arc<Resource>, definition: &Value) -> Outcome<bool> {
    if !metadata::finalizers(definition).contains(&strategy::CLEANUP_FINALIZER) {
        return Ok(true);
    }
    let text = |pointer: &str| {
        let found = definition.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default()
    };
    let place = (
        encoding::custom_space(text("/spec/group")),
        text("/spec/names/plural").to_owned(),
    );
    let prefix = encoding::prefix(&place.0, &place.1, None);
    let resource = writer.registry.snapshot().stored_in(&place).cloned();
    let store = Arc::clone(writer.storage.store());
    let mut are_gone = true;
    let mut last: Option<Arc<str>> = None;
    loop {
        let list = List {
            limit: Some(PAGE),
            after: last.as_deref(),
            ..List::all(&prefix)
        };
        let page = store.list(list).await;
        let page = page.map_err(|error| read_failed(error, 0))?;
        let Some(end) = page.entries.last() else {
            break;
        };
        for entry in &page.entries {
            are_gone &= match &resource {
                Some(resource) => remove_object(writer, resource, &prefix, entry).await?,
                None => {
                    // A CustomResourceDefinition that was never served cannot have finalizers.
                    writer.storage.discard(entry).await?;
                    true
                }
            };
        }
        last = Some(Arc::clone(&end.key));
    }
    if !are_gone {
        return Ok(false);
    }
    let name = metadata::text(definition, "name");
    change_status(writer, definitions, name, |definition| {
        let finalizers: Vec<String> = metadata::finalizers(definition)
            .into_iter()
            .filter(|&finalizer| finalizer != strategy::CLEANUP_FINALIZER)
            .map(str::to_owned)
            .collect();
        metadata::change(definition, |metadata| {
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            } else {
                metadata.insert(String::from("finalizers"), finalizers.into());
            }
        });
    })
    .await?;
    Ok(true)
}

/// Deletes one object of a CustomResourceDefinition like any deletion: finalizers block it, and its dependents are
/// collected. Returns true if it is gone.
async fn remove_object(
    writer: &Writer,
    resource: &Arc<Resource>,
    prefix: &str,
    entry: &Entry,
) -> Outcome<bool> {
    let rest = entry.key.strip_prefix(prefix).unwrap_or_default();
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    let path = ObjectPath {
        resource,
        namespace,
        name,
        subresource: "",
    };
    let request = Request::internal(api_server(), Verb::Delete, path);
    let deletion = Deletion {
        admission_name: None,
        ..Deletion::of(writer, &request)
    };
    match deletion.run(DeleteOptions::default()).await {
        Ok(deleted) => Ok(deleted.gone),
        Err(failure) if failure.is_not_found() => Ok(true),
        Err(failure) => Err(failure),
    }
}
