//! Validation of `metadata`, on create and on update.
//!
//! UPSTREAM: k8s.io/apimachinery pkg/api/validation/objectmeta.go, pkg/apis/meta/v1/validation.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_go::json::to_string;
use lockgate_go::quote::{is_printable, quote};

use super::names;
use super::object::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use crate::field::{FieldError, FieldErrors, Path, Shown};

/// The maximum total size of annotations in bytes, keys and values together.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;
const FIELD_MANAGER_MAX_BYTES: usize = 128;
const SUBRESOURCE_MAX_BYTES: usize = 256;

/// The validation of a kind's names.
#[derive(Debug, Clone, Copy)]
pub struct NameRules {
    /// Validates a complete name.
    pub name: fn(&str) -> Vec<String>,
    /// Validates the prefix of a generated name.
    pub prefix: fn(&str) -> Vec<String>,
}

/// Names that are DNS-1123 subdomains.
pub const SUBDOMAIN_NAMES: NameRules = NameRules {
    name: names::check_subdomain,
    prefix: names::check_subdomain_prefix,
};

/// Names that are path segments of a URL, the minimum for any kind.
pub const PATH_SEGMENT_NAMES: NameRules = NameRules {
    name: names::check_path_segment,
    prefix: names::check_path_segment_prefix,
};

/// Validates the metadata of a cluster-scoped object.
#[must_use]
pub fn validate_metadata(meta: &ObjectMeta, rules: NameRules, path: &Path<'_>) -> FieldErrors {
    validate_scoped_metadata(meta, Scope::Cluster, rules, path)
}

/// The scope of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'n> {
    /// Cluster-scoped.
    Cluster,
    /// Namespaced; the namespace is that of the request, not of the metadata.
    Namespaced(&'n str),
}

/// Validates the metadata of an object.
#[must_use]
pub fn validate_scoped_metadata(
    meta: &ObjectMeta,
    scope: Scope<'_>,
    rules: NameRules,
    path: &Path<'_>,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if !meta.generate_name.is_empty() {
        let path = path.child("generateName");
        invalid_each(
            &mut errors,
            &path,
            &meta.generate_name,
            (rules.prefix)(&meta.generate_name),
        );
    }
    let name_path = path.child("name");
    if meta.name.is_empty() {
        errors.push(FieldError::required(
            &name_path,
            "name or generateName is required",
        ));
    } else {
        invalid_each(
            &mut errors,
            &name_path,
            &meta.name,
            (rules.name)(&meta.name),
        );
    }
    let namespace_path = path.child("namespace");
    match scope {
        Scope::Cluster if meta.namespace.is_empty() => {}
        Scope::Cluster => errors.push(FieldError::forbidden(
            &namespace_path,
            "not allowed on this type",
        )),
        Scope::Namespaced("") => errors.push(FieldError::required(&namespace_path, "")),
        Scope::Namespaced(namespace) => invalid_each(
            &mut errors,
            &namespace_path,
            namespace,
            names::check_dns1123_label(namespace),
        ),
    }
    if meta.generation < 0 {
        errors.push(FieldError::invalid(
            &path.child("generation"),
            Shown::Integer(meta.generation),
            "must be greater than or equal to 0",
        ));
    }
    validate_labels(&mut errors, meta.labels.as_ref(), &path.child("labels"));
    validate_annotations(
        &mut errors,
        meta.annotations.as_ref(),
        &path.child("annotations"),
    );
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    validate_owner_references(&mut errors, owners, &path.child("ownerReferences"));
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    validate_finalizers(&mut errors, finalizers, &path.child("finalizers"));
    let managed = meta.managed_fields.as_deref().unwrap_or_default();
    validate_managed_fields(&mut errors, managed, &path.child("managedFields"));
    errors
}

/// Validates updated metadata against the stored metadata.
#[must_use]
pub fn validate_metadata_update(
    new: &ObjectMeta,
    old: &ObjectMeta,
    path: &Path<'_>,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if old.deletion_timestamp.is_some() {
        validate_no_new_finalizers(&mut errors, new, old, &path.child("finalizers"));
    }
    if new.resource_version.is_empty() {
        let path = path.child("resourceVersion");
        errors.push(FieldError::invalid(
            &path,
            Shown::Text(""),
            "must be specified for an update",
        ));
    }
    if new.generation < old.generation {
        let shown = Shown::Integer(new.generation);
        errors.push(FieldError::invalid(
            &path.child("generation"),
            shown,
            "must not be decremented",
        ));
    }
    let mut immutable = |changed: bool, name: &str, shown: Shown<'_>| {
        if changed {
            errors.push(FieldError::invalid(
                &path.child(name),
                shown,
                "field is immutable",
            ));
        }
    };
    immutable(new.name != old.name, "name", Shown::Text(&new.name));
    immutable(
        new.namespace != old.namespace,
        "namespace",
        Shown::Text(&new.namespace),
    );
    immutable(new.uid != old.uid, "uid", Shown::Named(&new.uid));
    let times = [
        (
            "creationTimestamp",
            new.creation_timestamp,
            old.creation_timestamp,
        ),
        (
            "deletionTimestamp",
            new.deletion_timestamp,
            old.deletion_timestamp,
        ),
    ];
    for (name, new, old) in times {
        let shown = to_string(&new);
        immutable(new != old, name, Shown::Rendered(&shown));
    }
    let grace = new.deletion_grace_period_seconds;
    let shown = grace.map_or_else(|| String::from("null"), |seconds| seconds.to_string());
    let changed = grace != old.deletion_grace_period_seconds;
    immutable(
        changed,
        "deletionGracePeriodSeconds",
        Shown::Rendered(&shown),
    );

    validate_labels(&mut errors, new.labels.as_ref(), &path.child("labels"));
    validate_annotations(
        &mut errors,
        new.annotations.as_ref(),
        &path.child("annotations"),
    );
    let owners = new.owner_references.as_deref().unwrap_or_default();
    validate_owner_references(&mut errors, owners, &path.child("ownerReferences"));
    let managed = new.managed_fields.as_deref().unwrap_or_default();
    validate_managed_fields(&mut errors, managed, &path.child("managedFields"));
    errors
}

/// Validates the keys and values of a label map, in key order; upstream iterates over a Go map, in
/// random order.
pub fn validate_labels(
    errors: &mut FieldErrors,
    labels: Option<&BTreeMap<String, String>>,
    path: &Path<'_>,
) {
    for (key, value) in labels.into_iter().flatten() {
        invalid_each(errors, path, key, names::check_qualified_name(key));
        invalid_each(errors, path, value, names::check_label_value(value));
    }
}

pub(crate) fn invalid_each(
    errors: &mut FieldErrors,
    path: &Path<'_>,
    value: &str,
    messages: Vec<String>,
) {
    let invalid = |message| FieldError::invalid(path, Shown::Text(value), message);
    errors.extend(messages.into_iter().map(invalid));
}

/// Validates a domain-prefixed path, such as `acme.io/foo`.
///
/// UPSTREAM: apimachinery pkg/util/validation/validation.go (IsDomainPrefixedPath)
#[must_use]
pub fn check_domain_prefixed_path(path: &Path<'_>, value: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
        return errors;
    }
    let parts = value.split_once('/');
    let Some((host, rest)) = parts.filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid(path, Shown::Text(value), detail));
        return errors;
    };
    invalid_each(&mut errors, path, host, names::check_subdomain(host));
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(good) {
        let detail =
            "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(FieldError::invalid(path, Shown::Text(rest), detail));
    }
    errors
}

/// Validates the keys of annotations, and their total size.
pub fn validate_annotations(
    errors: &mut FieldErrors,
    annotations: Option<&BTreeMap<String, String>>,
    path: &Path<'_>,
) {
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        // The keys of annotations are case-insensitive.
        invalid_each(
            errors,
            path,
            key,
            names::check_qualified_name(&key.to_lowercase()),
        );
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX_BYTES));
    }
}

fn validate_owner_references(errors: &mut FieldErrors, owners: &[OwnerReference], path: &Path<'_>) {
    let mut controller: Option<String> = None;
    // Every error contains all owners, so they are formatted once.
    let mut shown = None;
    for owner in owners {
        validate_owner_reference(errors, owner, path);
        if owner.controller != Some(true) {
            continue;
        }
        let current = format!("{}/{}", owner.kind, owner.name);
        if let Some(first) = &controller {
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references \
                 for {first} and {current}"
            );
            let shown = shown.get_or_insert_with(|| to_string(owners));
            errors.push(FieldError::invalid(path, Shown::Rendered(shown), detail));
        } else {
            controller = Some(current);
        }
    }
}

fn validate_owner_reference(errors: &mut FieldErrors, owner: &OwnerReference, path: &Path<'_>) {
    // A string with more than one slash is not a version.
    let (group, version) = match owner.api_version.matches('/').count() {
        0 => ("", owner.api_version.as_str()),
        1 => owner.api_version.split_once('/').unwrap_or_default(),
        _ => ("", ""),
    };
    let mut check = |empty: bool, name: &str, shown: Shown<'_>, detail: &str| {
        if empty {
            errors.push(FieldError::invalid(&path.child(name), shown, detail));
        }
    };
    let api_version = Shown::Text(&owner.api_version);
    check(
        version.is_empty(),
        "apiVersion",
        api_version,
        "version must not be empty",
    );
    check(
        owner.kind.is_empty(),
        "kind",
        Shown::Text(""),
        "must not be empty",
    );
    check(
        owner.name.is_empty(),
        "name",
        Shown::Text(""),
        "must not be empty",
    );
    check(
        owner.uid.is_empty(),
        "uid",
        Shown::Named(""),
        "must not be empty",
    );
    if (group, version, owner.kind.as_str()) == ("", "v1", "Event") {
        let shown = to_string(owner);
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(FieldError::invalid(path, Shown::Rendered(&shown), detail));
    }
}

fn validate_finalizers(errors: &mut FieldErrors, finalizers: &[String], path: &Path<'_>) {
    for finalizer in finalizers {
        invalid_each(
            errors,
            path,
            finalizer,
            names::check_qualified_name(finalizer),
        );
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, Shown::List(finalizers), detail));
    }
}

fn validate_no_new_finalizers(
    errors: &mut FieldErrors,
    new: &ObjectMeta,
    old: &ObjectMeta,
    path: &Path<'_>,
) {
    let set = |meta: &ObjectMeta| -> BTreeSet<String> {
        meta.finalizers.iter().flatten().cloned().collect()
    };
    let extra: Vec<String> = set(new)
        .difference(&set(old))
        .map(|name| quote(name))
        .collect();
    if !extra.is_empty() {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{{{}}}",
            extra.join(", ")
        );
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn validate_managed_fields(
    errors: &mut FieldErrors,
    entries: &[ManagedFieldsEntry],
    path: &Path<'_>,
) {
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        if !matches!(entry.operation.as_str(), "Apply" | "Update") {
            let shown = Shown::Named(&entry.operation);
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(&path.child("operation"), shown, detail));
        }
        if !matches!(entry.fields_type.as_str(), "" | "FieldsV1") {
            let shown = Shown::Text(&entry.fields_type);
            errors.push(FieldError::invalid(
                &path.child("fieldsType"),
                shown,
                "must be `FieldsV1`",
            ));
        }
        validate_field_manager(errors, &entry.manager, &path.child("manager"));
        if entry.subresource.len() > SUBRESOURCE_MAX_BYTES {
            errors.push(FieldError::too_long(
                &path.child("subresource"),
                SUBRESOURCE_MAX_BYTES,
            ));
        }
    }
}

fn validate_field_manager(errors: &mut FieldErrors, manager: &str, path: &Path<'_>) {
    if manager.len() > FIELD_MANAGER_MAX_BYTES {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_MAX_BYTES));
    }
    let mut shown = None;
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let shown = shown.get_or_insert_with(|| quote(manager));
        let detail = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(c)
        );
        errors.push(FieldError::invalid(path, Shown::Rendered(shown), detail));
    }
}
