//! Establishes definitions of custom resources, and removes the objects of those that are deleted.
//!
//! UPSTREAM: apiextensions-apiserver pkg/controller/{status,establish,finalizer,apiapproval,nonstructuralschema}

use std::sync::Arc;

use lockgate_kinds::crd;
use lockgate_store::List;
use serde_json::Value;

use super::{Context, options, system};
use crate::encoding;
use crate::error::{Outcome, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::Resource;
use crate::request::{ObjectPath, Request};
use crate::write::Writer;
use crate::write::strategy;
use crate::write::update::{Change, New};

/// The most steps a definition takes: its names, its schema, its approval, its establishment.
const STEPS: usize = 4;

/// Brings the status of a definition up to date.
pub(super) async fn look(context: &Context, name: &str) -> Outcome<()> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let Some(definitions) =
        snapshot.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    else {
        return Ok(());
    };
    let key = writer.storage.key(definitions, "", name);
    // Each step is a write of its own, as upstream's controllers make them.
    for _ in 0..STEPS {
        let Some(entry) = writer.storage.entry(&key).await? else {
            return Ok(());
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
            return Ok(());
        }
        let status = definition.get("status").cloned().unwrap_or_default();
        change_status(writer, definitions, name, |definition| {
            definition["status"] = status.clone();
        })
        .await?;
    }
    Ok(())
}

async fn change_status(
    writer: &Writer,
    definitions: &Arc<Resource>,
    name: &str,
    change: impl Fn(&mut Value) + Sync,
) -> Outcome<()> {
    let user = system(
        "system:apiserver",
        &["system:masters", "system:authenticated"],
    );
    let path = ObjectPath {
        resource: definitions,
        namespace: "",
        name,
        subresource: "status",
    };
    let request = Request::internal(user, Verb::Update, path);
    let options = options();
    let changed = Change::new(writer, &request, &options)
        .apply(|old| {
            let mut definition = old.cloned().unwrap_or_default();
            change(&mut definition);
            Ok(New::Object(definition))
        })
        .await;
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

/// Removes the objects of a definition, without admission, and then its finalizer.
async fn remove(writer: &Writer, definitions: &Arc<Resource>, definition: &Value) -> Outcome<()> {
    let has = metadata::finalizers(definition);
    if !has.contains(&strategy::CLEANUP_FINALIZER) {
        return Ok(());
    }
    let text = |pointer: &str| {
        let found = definition.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default()
    };
    let prefix = encoding::prefix(text("/spec/group"), text("/spec/names/plural"), None);
    writer.storage.purge(&prefix).await?;
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
    .await
}
