//! Adoption and release: a controller adopts selected orphans, and releases objects that no longer match.
//!
//! UPSTREAM: kubernetes pkg/controller/controller_ref_manager.go

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::Context;
use crate::kind::Kind;
use crate::object::{self, Object, entry, flag, text};

/// The objects of a kind that a controller owns, after adoption and release.
pub(crate) async fn claim(
    context: &Context,
    by: &Author,
    owner: &Object,
    kind: Kind,
    selects: impl Fn(&Object) -> bool,
) -> Result<Vec<Arc<Object>>, Rejected> {
    let mut claimed = Vec::new();
    let is_deleting = object::is_deleting(owner);
    for object in context.cache.controlled(owner.uid(), kind) {
        if selects(&object) {
            claimed.push(object);
        } else if !is_deleting {
            release(context, by, owner, &object).await?;
        }
    }
    if is_deleting {
        return Ok(claimed);
    }
    for object in context.cache.orphans(kind, owner.namespace()) {
        if selects(&object) && !object::is_deleting(&object) {
            adopt(context, by, owner, &object).await?;
            claimed.push(object);
        }
    }
    Ok(claimed)
}

async fn adopt(
    context: &Context,
    by: &Author,
    owner: &Object,
    object: &Object,
) -> Result<(), Rejected> {
    let reference = owner.as_owner();
    let edit = |object: &mut Value| {
        let metadata = entry(object, "metadata");
        let references = metadata
            .entry("ownerReferences")
            .or_insert_with(|| json!([]));
        let Some(references) = references.as_array_mut() else {
            return;
        };
        let taken = references.iter().any(|owner| flag(owner, "/controller"));
        if !taken {
            references.push(reference.clone());
        }
    };
    context.edit(by, object, &edit).await
}

async fn release(
    context: &Context,
    by: &Author,
    owner: &Object,
    object: &Object,
) -> Result<(), Rejected> {
    let uid = owner.uid();
    let edit = |object: &mut Value| {
        let metadata = entry(object, "metadata");
        let references = metadata.get_mut("ownerReferences");
        if let Some(references) = references.and_then(Value::as_array_mut) {
            references.retain(|owner| text(owner, "/uid") != uid);
            if references.is_empty() {
                metadata.remove("ownerReferences");
            }
        }
    };
    context.edit(by, object, &edit).await
}
