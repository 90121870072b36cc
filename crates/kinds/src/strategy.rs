//! The order of a write, the same for every kind: what the rows and [`Kind`](crate::kind::Kind)s of
//! built-in kinds say is put together here.
//!
//! ```text
//! decode ► defaults ► mutating admission ► prepare ► validate ► canonicalize ► validating admission ► store
//! ```
//!
//! By the time of `prepare`, name, uid, creation time and namespace are set. Not here: addresses and
//! ports of services, which need an allocator; scheduling of pods.
//!
//! UPSTREAM: apiserver pkg/registry/rest/{create,update}.go.

mod scale;
#[cfg(test)]
mod tests;

use serde_json::Value;

use lockgate_api::field::{FieldErrors, Path};
use lockgate_api::meta::validation::{
    NameRules, PATH_SEGMENT_NAMES, validate_metadata, validate_metadata_update,
};

use crate::checks::{reset_metadata, take_over};
use crate::equality::semantically_equal;
use crate::kind::{Generation, NewStatus, Resource, Written};
use crate::object::{Object, get, open, text, with};
use crate::typed::{Type, type_of};

pub use crate::builtin::{CLEANUP_FINALIZER, grace_period, quality_of_service};
pub use crate::kind::{Context, Requester};
pub use scale::{apply_scale, scale_of, validate_scale};

/// The rules for names of a resource's objects.
#[must_use]
pub fn name_rules(resource: &Resource) -> NameRules {
    resource.rules.name_rules()
}

/// Prepares an object that is created; its metadata is complete.
pub fn prepare_create(resource: &Resource, value: &mut Value, context: &Context<'_>) {
    if matches!(
        resource.generation,
        Generation::CreateOnly
            | Generation::Members(_)
            | Generation::Sent(_)
            | Generation::Exact(_)
    ) {
        set_generation(value, 1);
    }
    if resource.rules.new_status() == NewStatus::Reset {
        reset_status(resource, value);
    }
    resource.rules.prepare_create(value, context);
}

/// Prepares an object that is updated, as a whole (`subresource` empty) or through a subresource.
/// Afterwards uid, creation time and deletion are those of the old object.
pub fn prepare_update(
    resource: &Resource,
    subresource: &str,
    value: &mut Value,
    old: &Value,
    context: &Context<'_>,
) {
    let Some(old_object) = old.as_object() else {
        return;
    };
    with(value, |object| {
        if let (Some(metadata), Some(old)) = (open(object, "metadata"), get(old_object, "metadata"))
        {
            take_over(metadata, old, "generation");
        }
        match subresource {
            "" if has_status(resource) => take_over(object, old_object, "status"),
            "status" => {
                if resource.rules.resets_metadata_on_status_update() {
                    reset_metadata(object, old_object);
                }
                take_over(object, old_object, "spec");
            }
            _ => {}
        }
    });
    let counts = matches!(subresource, "" | "ephemeralcontainers" | "resize");
    let counts_first = matches!(resource.generation, Generation::Sent(_));
    if counts && counts_first {
        raise_generation(resource, value, old);
    }
    resource
        .rules
        .prepare_update(subresource, value, old, context);
    if counts && !counts_first {
        raise_generation(resource, value, old);
    }
    with(value, |object| restore_metadata(object, old_object));
}

/// Sets what is set right after validation, and removes empty lists and maps that Go does not write.
pub fn canonicalize(resource: &Resource, value: &mut Value) {
    resource.rules.canonicalize(value);
    if let Some(ty) = type_of_resource(resource) {
        let _left_out = ty.take_empties(value);
    }
}

/// The same, and what storage forgets: it is protobuf, which knows no empty lists and maps. Definitions are
/// stored as JSON, which has those that are always written.
pub fn canonicalize_stored(resource: &Resource, value: &mut Value) {
    canonicalize(resource, value);
    if resource.group != "apiextensions.k8s.io"
        && let Some(ty) = type_of_resource(resource)
    {
        ty.forget_empties(value);
    }
}

/// Validates an object that is created.
#[must_use]
pub fn validate_create(resource: &Resource, value: &Value, context: &Context<'_>) -> FieldErrors {
    let new = Written::new(value, resource.namespaced);
    let mut errors = resource.rules.validate_create(&new, context);
    if errors.is_empty() {
        // The rules of every kind, after those of this kind.
        errors = validate_metadata(&new.metadata, PATH_SEGMENT_NAMES, &Path::root("metadata"));
    }
    errors
}

/// Validates an object that is updated, as a whole (`subresource` empty) or through a subresource.
/// The objects are prepared.
#[must_use]
pub fn validate_update(
    resource: &Resource,
    subresource: &str,
    value: &Value,
    old: &Value,
    context: &Context<'_>,
) -> FieldErrors {
    let path = Path::root("metadata");
    let new = Written::new(value, resource.namespaced);
    let old = Written::new(old, resource.namespaced);
    let mut errors = validate_metadata(&new.metadata, PATH_SEGMENT_NAMES, &path);
    errors.extend(validate_metadata_update(
        &new.metadata,
        &old.metadata,
        &path,
    ));
    errors.extend(
        resource
            .rules
            .validate_update(subresource, &new, &old, context),
    );
    errors
}

/// Warnings about an object that is created.
#[must_use]
pub fn warnings_on_create(
    resource: &Resource,
    value: &Value,
    context: &Context<'_>,
) -> Vec<String> {
    let new = Written::new(value, resource.namespaced);
    resource.rules.warnings_on_create(&new, context)
}

/// Warnings about an object that is updated, as a whole (`subresource` empty) or through a
/// subresource.
#[must_use]
pub fn warnings_on_update(
    resource: &Resource,
    subresource: &str,
    value: &Value,
    old: &Value,
    context: &Context<'_>,
) -> Vec<String> {
    let new = Written::new(value, resource.namespaced);
    let old = Written::new(old, resource.namespaced);
    match subresource {
        "" => resource.rules.warnings_on_update(&new, &old, context),
        "status" => resource.rules.warnings_on_status_update(&new),
        _ => Vec::new(),
    }
}

/// Clients write `status` through a subresource of its own and nowhere else.
fn has_status(resource: &Resource) -> bool {
    resource.subresource("status").is_some()
}

fn type_of_resource(resource: &Resource) -> Option<Type> {
    type_of(resource.group, resource.version, resource.kind)
}

fn set_generation(value: &mut Value, generation: i64) {
    with(value, |object| {
        if let Some(metadata) = open(object, "metadata") {
            metadata.insert("generation".to_owned(), Value::from(generation));
        }
    });
}

fn reset_status(resource: &Resource, value: &mut Value) {
    if !has_status(resource) {
        return;
    }
    let zero = type_of_resource(resource)
        .and_then(|ty| ty.field("status"))
        .map(|field| field.ty().zero());
    if let (Some(zero), Some(object)) = (zero, value.as_object_mut()) {
        if zero.is_null() {
            object.remove("status");
        } else {
            object.insert("status".to_owned(), zero);
        }
    }
}

/// Raises the generation if a member that counts has changed.
fn raise_generation(resource: &Resource, value: &mut Value, old: &Value) {
    let (Generation::Members(members)
    | Generation::UpdateOnly(members)
    | Generation::Sent(members)
    | Generation::Exact(members)) = resource.generation
    else {
        return;
    };
    let is_exact = matches!(resource.generation, Generation::Exact(_));
    let changed = members.iter().any(|path| {
        let pointer = format!("/{}", path.replace('.', "/"));
        let find = |value: &Value| value.pointer(&pointer).cloned().unwrap_or_default();
        let ty = path
            .split('.')
            .try_fold(type_of_resource(resource), |ty, name| {
                Some(Some(ty?.field(name)?.ty()))
            });
        match ty.flatten() {
            Some(ty) if !is_exact => !semantically_equal(ty, &find(value), &find(old)),
            _ => find(value) != find(old),
        }
    });
    if !changed {
        return;
    }
    let current = old
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    set_generation(value, current.saturating_add(1));
}

/// Restores the metadata that an update can never change.
fn restore_metadata(object: &mut Object, old: &Object) {
    let (Some(metadata), Some(old)) = (open(object, "metadata"), get(old, "metadata")) else {
        return;
    };
    if text(metadata, "uid").is_empty() {
        take_over(metadata, old, "uid");
    }
    if old.contains_key("creationTimestamp") {
        take_over(metadata, old, "creationTimestamp");
    }
    if old.contains_key("deletionTimestamp") {
        take_over(metadata, old, "deletionTimestamp");
    }
    if !metadata.contains_key("deletionGracePeriodSeconds") {
        take_over(metadata, old, "deletionGracePeriodSeconds");
    }
}
