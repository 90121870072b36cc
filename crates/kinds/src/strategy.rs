//! The stages of a write, common to all kinds: combines the rows and [`Kind`](crate::kind::Kind)s of built-in kinds.
//!
//! ```text
//! decode ► defaults ► mutating admission ► prepare ► validate ► canonicalize ► validating admission ► store
//! ```
//!
//! Before `prepare`, name, uid, creation time and namespace are set. Allocation of cluster IPs and node ports, and
//! scheduling of Pods, are elsewhere.
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

use crate::checks::{copy_field, reset_metadata};
use crate::equality::semantically_equal;
use crate::kind::{Generation, NewStatus, Resource, Written};
use crate::object::{Object, get, open, text, with};
use crate::typed::{Type, type_of};

pub use crate::builtin::{CLEANUP_FINALIZER, grace_period, quality_of_service};
pub use crate::kind::{Context, Requester};
pub use scale::{apply_scale, scale_of, validate_scale};

/// The name rules of a resource.
#[must_use]
pub fn name_rules(resource: &Resource) -> NameRules {
    resource.rules.name_rules()
}

/// Prepares a new object, whose metadata is complete.
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

/// Prepares an updated object; `subresource` is empty for the main resource. Keeps uid, creation time and deletion
/// time of the old object.
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
            copy_field(metadata, old, "generation");
        }
        match subresource {
            "" if has_status(resource) => copy_field(object, old_object, "status"),
            "status" => {
                if resource.rules.resets_metadata_on_status_update() {
                    reset_metadata(object, old_object);
                }
                copy_field(object, old_object, "spec");
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

/// Sets fields after validation, and removes empty lists and maps that Go does not encode.
pub fn canonicalize(resource: &Resource, value: &mut Value) {
    resource.rules.canonicalize(value);
    if let Some(ty) = type_of_resource(resource) {
        let _left_out = ty.take_empties(value);
    }
}

/// Like [`canonicalize`], and drops the empty lists and maps that protobuf storage drops. Definitions are stored as JSON,
/// which keeps those without `omitempty`.
pub fn canonicalize_stored(resource: &Resource, value: &mut Value) {
    canonicalize(resource, value);
    if resource.group != "apiextensions.k8s.io"
        && let Some(ty) = type_of_resource(resource)
    {
        ty.drop_empties(value);
    }
}

/// Validates a new object.
#[must_use]
pub fn validate_create(resource: &Resource, value: &Value, context: &Context<'_>) -> FieldErrors {
    let new = Written::new(value, resource.namespaced);
    let mut errors = resource.rules.validate_create(&new, context);
    if errors.is_empty() {
        // The generic validation runs after that of the kind.
        errors = validate_metadata(&new.metadata, PATH_SEGMENT_NAMES, &Path::root("metadata"));
    }
    errors
}

/// Validates an updated object; `subresource` is empty for the main resource. The objects are prepared.
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

/// Warnings about a new object.
#[must_use]
pub fn warnings_on_create(
    resource: &Resource,
    value: &Value,
    context: &Context<'_>,
) -> Vec<String> {
    let new = Written::new(value, resource.namespaced);
    resource.rules.warnings_on_create(&new, context)
}

/// Warnings about an updated object; `subresource` is empty for the main resource.
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

/// Returns true if `status` is a subresource.
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

/// Increments the generation if a relevant field changed.
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

/// Restores immutable metadata.
fn restore_metadata(object: &mut Object, old: &Object) {
    let (Some(metadata), Some(old)) = (open(object, "metadata"), get(old, "metadata")) else {
        return;
    };
    if text(metadata, "uid").is_empty() {
        copy_field(metadata, old, "uid");
    }
    if old.contains_key("creationTimestamp") {
        copy_field(metadata, old, "creationTimestamp");
    }
    if old.contains_key("deletionTimestamp") {
        copy_field(metadata, old, "deletionTimestamp");
    }
    if !metadata.contains_key("deletionGracePeriodSeconds") {
        copy_field(metadata, old, "deletionGracePeriodSeconds");
    }
}
