//! The order of a write around admission, the same for every kind: the server's metadata first, then the strategy of
//! the kind ([`Kind`]).
//!
//! UPSTREAM: apiserver pkg/registry/rest/{create,update}.go

use std::borrow::Cow;
use std::collections::BTreeMap;

use lockgate_admission::conditions::RegistrationChecker;
use lockgate_admission::https::is_loopback_http;
use lockgate_api::admission::UserInfo;
use lockgate_api::field::{FieldError, Path};
use lockgate_api::meta::validation::{
    PATH_SEGMENT_NAMES, Scope, validate_metadata_update, validate_scoped_metadata,
};
use lockgate_kinds::kind::Written;
use lockgate_kinds::strategy::{self as built_in, Context, Requester};
use serde_json::{Value, json};

use crate::config::FeatureGates;
use crate::error::{Outcome, invalid};
use crate::metadata;
use crate::policies::{self, Access};
use crate::registry::Resource;

pub(crate) use lockgate_kinds::strategy::CLEANUP_FINALIZER;

/// The scheme that is validated as HTTPS.
const SCHEME: &str = "http";

/// The finalizers in the spec of a namespace.
pub(crate) fn namespace_finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/spec/finalizers").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Returns true for kinds that are marked first and removed later.
pub(crate) fn is_deleted_in_steps(resource: &Resource) -> bool {
    resource.shape.kind().deletion().in_steps
}

/// Marks an object at the start of a deletion in steps.
pub(crate) fn mark_deleted_in_steps(resource: &Resource, object: &mut Value) {
    with_context(&UserInfo::default(), FeatureGates::default(), |context| {
        resource.shape.kind().begin_deletion(object, context);
    });
}

/// Calls back with the facts of a request that strategies use.
fn with_context<T>(
    user: &UserInfo,
    gates: FeatureGates,
    then: impl FnOnce(&Context<'_>) -> T,
) -> T {
    let nothing = BTreeMap::new();
    let requester = Requester {
        name: &user.username,
        uid: &user.uid,
        groups: user.groups.as_deref().unwrap_or_default(),
        extra: user.extra.as_ref().unwrap_or(&nothing),
    };
    let mut context = Context::new(metadata::now(), requester);
    context.expressions = RegistrationChecker::of(gates.kube_version);
    context.policies = RegistrationChecker::of(gates.kube_version);
    context.match_conditions = gates.match_conditions;
    context.static_manifests = gates.static_manifests;
    then(&context)
}

/// The facts for validation, which do not include the user.
fn validating<T>(then: impl FnOnce(&Context<'_>) -> T) -> T {
    with_context(&UserInfo::default(), FeatureGates::default(), then)
}

/// Returns true if the garbage collector never looks for dependents.
pub(crate) fn has_no_dependents(resource: &Resource) -> bool {
    resource.shape.kind().deletion().has_no_dependents
}

/// Returns true if dependents are orphaned by default.
pub(crate) fn orphans_by_default(resource: &Resource) -> bool {
    resource.shape.kind().deletion().orphans_by_default
}

/// Returns true if the response to a delete is the deleted object.
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    resource.shape.kind().deletion().returns_object
}

/// Sets a Pod condition to true, replacing one of the same type.
///
/// UPSTREAM: pkg/api/v1/pod/util.go (UpdatePodCondition)
pub(crate) fn set_condition(pod: &mut Value, name: &str, why: Option<[&str; 2]>) {
    let mut condition = json!({
        "type": name,
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": metadata::now().to_string(),
    });
    if let Some([reason, message]) = why {
        condition["reason"] = reason.into();
        condition["message"] = message.into();
    }
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let is_same = |condition: &&mut Value| condition["type"] == name;
    match conditions.iter_mut().find(is_same) {
        None => conditions.push(condition),
        Some(found) => {
            if found["status"] == condition["status"] {
                condition["lastTransitionTime"] = found["lastTransitionTime"].take();
            }
            *found = condition;
        }
    }
}

/// Sets fields that depend on the cluster, before addresses are allocated; may reject the object.
pub(crate) fn begin(resource: &Resource, object: &mut Value, old: Option<&Value>) -> Outcome<()> {
    let errors = resource.shape.kind().begin(object, old);
    reject(resource, object, &errors)
}

/// Sets the server's fields in a new object.
pub(crate) fn prepare_create(
    resource: &Resource,
    object: &mut Value,
    user: &UserInfo,
    gates: FeatureGates,
) {
    with_context(user, gates, |context| match resource.shape.row() {
        Some(row) => built_in::prepare_create(row, object, context),
        None => resource.shape.kind().prepare_create(object, context),
    });
}

/// The object for validation: if plain HTTP to loopback hosts is allowed, such webhook URLs are validated as if they
/// were HTTPS.
fn for_validation<'o>(
    resource: &Resource,
    object: &'o Value,
    gates: FeatureGates,
) -> Cow<'o, Value> {
    if !gates.http_on_loopback {
        return Cow::Borrowed(object);
    }
    let mut judged = object.clone();
    let secure = |config: Option<&mut Value>| {
        if let Some(Value::String(url)) = config.and_then(|config| config.get_mut("url"))
            && is_loopback_http(url)
        {
            url.replace_range(..SCHEME.len(), "https");
        }
    };
    match (resource.group(), resource.kind()) {
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            let webhooks = judged.get_mut("webhooks").and_then(Value::as_array_mut);
            for webhook in webhooks.into_iter().flatten() {
                secure(webhook.get_mut("clientConfig"));
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            secure(judged.pointer_mut("/spec/conversion/webhook/clientConfig"));
        }
        _ => return Cow::Borrowed(object),
    }
    Cow::Owned(judged)
}

/// Validates a new object.
pub(crate) fn check_create(
    resource: &Resource,
    new: &Written<'_>,
    gates: FeatureGates,
    admin_access: bool,
) -> Outcome<()> {
    let mut errors = with_context(&UserInfo::default(), gates, |context| {
        let mut context = *context;
        context.admin_access = admin_access;
        let judged = for_validation(resource, new.value, gates);
        let new = match &judged {
            Cow::Borrowed(_) => new,
            Cow::Owned(judged) => &Written::new(judged, resource.names.namespaced),
        };
        resource.shape.kind().validate_create(new, &context)
    });
    if errors.is_empty() {
        // Checked last, so that the kind's own errors come first.
        errors = check_scoped_metadata(resource, new);
    }
    reject(resource, new.value, &errors)
}

/// Validates the metadata of any kind, including the namespace.
fn check_scoped_metadata(resource: &Resource, object: &Written<'_>) -> Vec<FieldError> {
    let scope = if resource.names.namespaced {
        Scope::Namespaced(metadata::text(object.value, "namespace"))
    } else {
        Scope::Cluster
    };
    let path = Path::root("metadata");
    validate_scoped_metadata(&object.metadata, scope, PATH_SEGMENT_NAMES, &path)
}

/// Checks that the user may read the parameters that an object references. `old` is the stored object.
pub(crate) fn authorize(
    access: &Access<'_>,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    user: &UserInfo,
) -> Outcome<()> {
    let errors = policies::authorize_params(access, resource, object, old, user)?;
    reject(resource, object, &errors)
}

fn reject(resource: &Resource, object: &Value, errors: &[FieldError]) -> Outcome<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let group = resource.shape.kind().error_group();
    // A webhook's patch may have changed the kind of a custom resource.
    let told = object.get("kind").and_then(Value::as_str);
    let kind = told.filter(|_| resource.is_custom());
    Err(invalid(
        kind.unwrap_or_else(|| resource.kind()),
        group.unwrap_or_else(|| resource.group()),
        metadata::text(object, "name"),
        errors,
    ))
}

/// Warnings about a valid new object.
pub(crate) fn warnings_on_create(resource: &Resource, new: &Written<'_>) -> Vec<String> {
    validating(|context| resource.shape.kind().warnings_on_create(new, context))
}

/// Warnings about a valid updated object.
pub(crate) fn warnings_on_update(
    resource: &Resource,
    subresource: &str,
    new: &Written<'_>,
    old: &Written<'_>,
) -> Vec<String> {
    let kind = resource.shape.kind();
    match subresource {
        "" => validating(|context| kind.warnings_on_update(new, old, context)),
        "status" => kind.warnings_on_status_update(new),
        _ => Vec::new(),
    }
}

/// Sets the fields that are set after validation.
pub(crate) fn canonicalize(resource: &Resource, object: &mut Value) {
    match resource.shape.row() {
        Some(row) => built_in::canonicalize(row, object),
        None => resource.shape.kind().canonicalize(object),
    }
}

/// Restores and sets the server's fields in an updated object.
///
/// UPSTREAM: apiserver pkg/registry/rest/update.go (BeforeUpdate)
pub(crate) fn prepare_update(
    resource: &Resource,
    subresource: &str,
    object: &mut Value,
    old: &Value,
    user: &UserInfo,
    gates: FeatureGates,
) {
    keep(object, old, "generation", Keep::Always);
    with_context(user, gates, |context| match resource.shape.row() {
        Some(row) => built_in::prepare_update(row, subresource, object, old, context),
        None => {
            let kind = resource.shape.kind();
            kind.prepare_update(subresource, object, old, context);
        }
    });
    keep(object, old, "uid", Keep::WhenMissing);
    keep(object, old, "creationTimestamp", Keep::WhenKnown);
    keep(object, old, "deletionTimestamp", Keep::WhenKnown);
    keep(object, old, "deletionGracePeriodSeconds", Keep::WhenMissing);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Restores the old value, present or absent.
    Always,
    /// Restores the old value if present.
    WhenKnown,
    /// Restores the old value if it is absent now.
    WhenMissing,
}

fn keep(object: &mut Value, old: &Value, member: &str, when: Keep) {
    let known = metadata::of(old)
        .and_then(|metadata| metadata.get(member))
        .cloned();
    metadata::change(object, |metadata| {
        let missing = match metadata.get(member) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        match known {
            Some(known) if when != Keep::WhenMissing || missing => {
                metadata.insert(member.to_owned(), known);
            }
            None if when == Keep::Always => {
                metadata.remove(member);
            }
            _ => {}
        }
    });
}

/// Validates an updated object.
pub(crate) fn check_update(
    resource: &Resource,
    subresource: &str,
    new: &Written<'_>,
    old: &Written<'_>,
    gates: FeatureGates,
) -> Outcome<()> {
    let path = Path::root("metadata");
    let mut errors = check_scoped_metadata(resource, new);
    errors.extend(validate_metadata_update(
        &new.metadata,
        &old.metadata,
        &path,
    ));
    let versioned = FeatureGates {
        kube_version: gates.kube_version,
        ..FeatureGates::default()
    };
    errors.extend(with_context(&UserInfo::default(), versioned, |context| {
        let judged = for_validation(resource, new.value, gates);
        let new = match &judged {
            Cow::Borrowed(_) => new,
            Cow::Owned(judged) => &Written::new(judged, resource.names.namespaced),
        };
        let kind = resource.shape.kind();
        kind.validate_update(subresource, new, old, context)
    }));
    reject(resource, new.value, &errors)
}
