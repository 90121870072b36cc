//! What is particular to a kind around a write: members the server sets or takes back, and the rules
//! of validation. The rules of built-in kinds are in the crate `kinds`, those of webhook configurations
//! in `api`, those of custom resources in their definitions; here is decided which apply.

use std::collections::BTreeMap;

use lockgate_admission::conditions::MatchConditionChecker;
use lockgate_api::admission::UserInfo;
use lockgate_api::field::{FieldError, Path};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::validation::{
    PATH_SEGMENT_NAMES, Scope, validate_metadata_update, validate_scoped_metadata,
};
use lockgate_api::registration::strategy as registration;
use lockgate_api::registration::validation as registration_rules;
use lockgate_kinds::crd;
use lockgate_kinds::strategy::{self as built_in, Context, Requester};
use serde_json::{Value, json};

use crate::config::FeatureGates;
use crate::error::{Outcome, invalid};
use crate::metadata;
use crate::policies;
use crate::registry::{Resource, Shape};
use crate::server::Server;

/// What holds a definition until its objects are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether objects are namespaces.
pub(crate) fn is_namespace(resource: &Resource) -> bool {
    resource.is("", "namespaces")
}

/// Whether objects are definitions of custom resources.
pub(crate) fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// What must be done before a namespace goes.
pub(crate) fn namespace_finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/spec/finalizers").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Whether objects are marked when they are deleted, and go later.
pub(crate) fn is_deleted_in_steps(resource: &Resource) -> bool {
    is_namespace(resource) || is_definition(resource)
}

/// Marks an object whose deletion begins.
pub(crate) fn mark_deleted_in_steps(resource: &Resource, object: &mut Value) {
    if is_namespace(resource) {
        object["status"]["phase"] = "Terminating".into();
    } else if is_definition(resource) {
        let mut finalizers: Vec<String> = metadata::finalizers(object)
            .into_iter()
            .map(str::to_owned)
            .collect();
        if !finalizers
            .iter()
            .any(|finalizer| finalizer == CLEANUP_FINALIZER)
        {
            finalizers.push(CLEANUP_FINALIZER.to_owned());
        }
        metadata::set(object, "finalizers", finalizers);
        let condition = crd::Condition {
            condition_type: "Terminating",
            status: "True",
            reason: "InstanceDeletionPending",
            message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        };
        crd::set_condition(object, &condition, metadata::now());
    }
}

/// Calls back with what strategies may ask about a request.
fn with_context<T>(user: &UserInfo, then: impl FnOnce(&Context<'_>) -> T) -> T {
    let nothing = BTreeMap::new();
    then(&Context {
        now: metadata::now(),
        requester: Requester {
            name: &user.username,
            uid: &user.uid,
            groups: user.groups.as_deref().unwrap_or_default(),
            extra: user.extra.as_ref().unwrap_or(&nothing),
        },
    })
}

/// Whether dependents are never looked for.
pub(crate) fn has_no_dependents(resource: &Resource) -> bool {
    resource.storage.1 == "events"
}

/// Whether dependents stay when nobody says what is to become of them.
pub(crate) fn orphans_by_default(resource: &Resource) -> bool {
    resource.is("", "replicationcontrollers") || resource.is("batch", "jobs")
}

/// Whether a deletion is answered with the object that was deleted.
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    const CORE: [&str; 8] = [
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
    ];
    const STORAGE: [&str; 5] = [
        "csidrivers",
        "csinodes",
        "storageclasses",
        "volumeattachments",
        "volumeattributesclasses",
    ];
    let plural = resource.plural();
    match resource.group() {
        "" => CORE.contains(&plural),
        "storage.k8s.io" => STORAGE.contains(&plural),
        "resource.k8s.io" => true,
        _ => false,
    }
}

/// Says in a pod's status that it has a node.
pub(crate) fn mark_scheduled(object: &mut Value) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": metadata::now().to_string(),
    });
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| {
            condition.get("type").and_then(Value::as_str) != Some("PodScheduled")
        });
        conditions.push(condition);
    }
}

/// Sets and takes back what is the server's in a new object.
pub(crate) fn prepare_create(
    resource: &Resource,
    object: &mut Value,
    user: &UserInfo,
    gates: FeatureGates,
) {
    match &resource.shape {
        Shape::BuiltIn { .. } if is_definition(resource) => crd::prepare_create(object),
        Shape::BuiltIn { row, .. } => with_context(user, |context| {
            built_in::prepare_create(row, object, context)
        }),
        Shape::Registration { .. } => {
            if !gates.match_conditions {
                drop_conditions(object);
            }
            metadata::set(object, "generation", 1);
        }
        Shape::Custom(custom) => custom.prepare_create(object),
        Shape::Plain(_) => {}
    }
}

/// Drops the match conditions of a configuration.
fn drop_conditions(object: &mut Value) {
    let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        webhook.remove("matchConditions");
    }
}

fn has_conditions(object: &Value) -> bool {
    let webhooks = object.get("webhooks").and_then(Value::as_array);
    webhooks
        .into_iter()
        .flatten()
        .any(|webhook| webhook.get("matchConditions").is_some())
}

/// Checks a new object.
pub(crate) fn check_create(
    resource: &Resource,
    object: &Value,
    gates: FeatureGates,
) -> Outcome<()> {
    let mut errors = match &resource.shape {
        Shape::BuiltIn { .. } if is_definition(resource) => crd::validate_create(object),
        Shape::BuiltIn { .. } if policies::kind_of(resource).is_some() => {
            policies::errors_on_create(resource, object)?
        }
        Shape::BuiltIn { row, .. } => built_in::validate_create(row, object),
        Shape::Registration { version, .. } => {
            let request = registration::Request {
                version: *version,
                expressions: &MatchConditionChecker,
                static_manifests: gates.static_manifests,
            };
            let configuration = resource.shape.configuration(object);
            configuration
                .map(|configuration| registration::errors_on_create(&configuration, &request))
                .unwrap_or_default()
        }
        Shape::Custom(custom) => custom.validate_create(object),
        Shape::Plain(_) => Vec::new(),
    };
    if errors.is_empty() {
        // Only then, so that the kind's own messages come first.
        let meta = match &resource.shape {
            // All but the namespace was part of the kind's own rules.
            Shape::BuiltIn { .. } if !is_definition(resource) => ObjectMeta {
                name: metadata::text(object, "name").to_owned(),
                namespace: metadata::text(object, "namespace").to_owned(),
                ..ObjectMeta::default()
            },
            _ => metadata::typed(object),
        };
        errors = validate_scoped_metadata(
            &meta,
            scope(resource),
            PATH_SEGMENT_NAMES,
            &Path::root("metadata"),
        );
    }
    refuse(resource, object, &errors)
}

fn scope(resource: &Resource) -> Scope {
    if resource.names.namespaced {
        Scope::Namespaced
    } else {
        Scope::Cluster
    }
}

/// Checks that the user may read what an object would read for them. `old` is what is stored.
pub(crate) async fn authorize(
    server: &Server,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    user: &UserInfo,
) -> Outcome<()> {
    let errors = policies::authorize_params(server, resource, object, old, user).await?;
    refuse(resource, object, &errors)
}

fn refuse(resource: &Resource, object: &Value, errors: &[FieldError]) -> Outcome<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(invalid(
        resource.kind(),
        resource.group(),
        metadata::text(object, "name"),
        errors,
    ))
}

/// What a client is told about a new object that is fine.
pub(crate) fn warnings_on_create(resource: &Resource, object: &Value) -> Vec<String> {
    match &resource.shape {
        Shape::Registration { version, .. } => {
            let request = registration::Request {
                version: *version,
                expressions: &MatchConditionChecker,
                static_manifests: false,
            };
            let configuration = resource.shape.configuration(object);
            configuration
                .map(|configuration| registration::warnings_on_create(&configuration, &request))
                .unwrap_or_default()
        }
        Shape::BuiltIn { .. } if is_definition(resource) => crd::warnings_on_create(object),
        Shape::BuiltIn { .. } if policies::kind_of(resource).is_some() => {
            policies::warnings(resource, object)
        }
        Shape::BuiltIn { row, .. } => built_in::warnings_on_create(row, object),
        _ => Vec::new(),
    }
}

/// What a client is told about a changed object that is fine.
pub(crate) fn warnings_on_update(resource: &Resource, object: &Value, old: &Value) -> Vec<String> {
    match &resource.shape {
        Shape::BuiltIn { .. } if is_definition(resource) => crd::warnings_on_update(object, old),
        Shape::BuiltIn { .. } => policies::warnings(resource, object),
        _ => warnings_on_create(resource, object),
    }
}

/// Sets what is set last: a namespace carries its name as a label.
pub(crate) fn canonicalize(resource: &Resource, object: &mut Value) {
    if let Shape::BuiltIn { row, .. } = &resource.shape {
        built_in::canonicalize(row, object);
    }
}

/// Restores and sets what is the server's in a changed object.
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
    match &resource.shape {
        Shape::BuiltIn { .. } if is_definition(resource) => match subresource {
            "status" => crd::prepare_status_update(object, old),
            _ => crd::prepare_update(object, old),
        },
        Shape::BuiltIn { row, .. } => {
            with_context(user, |context| {
                built_in::prepare_update(row, subresource, object, old, context)
            });
        }
        Shape::Registration { .. } => {
            // Conditions that are stored already may stay, so that an update does not lose them.
            if !gates.match_conditions && !has_conditions(old) {
                drop_conditions(object);
            }
            // An absent list and an empty one are different on purpose: upstream compares them so.
            if object.get("webhooks") != old.get("webhooks") {
                let generation = metadata::number(old, "generation").unwrap_or_default();
                metadata::set(object, "generation", generation + 1);
            }
        }
        Shape::Custom(custom) => custom.prepare_update(subresource, object, old),
        Shape::Plain(_) => {}
    }
    keep(object, old, "uid", Keep::WhenMissing);
    keep(object, old, "creationTimestamp", Keep::WhenKnown);
    keep(object, old, "deletionTimestamp", Keep::WhenKnown);
    keep(object, old, "deletionGracePeriodSeconds", Keep::WhenMissing);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// As it was, absent or not.
    Always,
    /// As it was, if it was there.
    WhenKnown,
    /// As it was, if it is not there now.
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

/// Checks a changed object.
pub(crate) fn check_update(
    resource: &Resource,
    subresource: &str,
    object: &Value,
    old: &Value,
) -> Outcome<()> {
    let is_policy = policies::kind_of(resource).is_some() && subresource.is_empty();
    if let Shape::BuiltIn { row, .. } = &resource.shape
        && !is_definition(resource)
        && !is_policy
    {
        let errors = built_in::validate_update(row, subresource, object, old);
        return refuse(resource, object, &errors);
    }
    let path = Path::root("metadata");
    let (meta, old_meta) = (metadata::typed(object), metadata::typed(old));
    let mut errors = validate_scoped_metadata(&meta, scope(resource), PATH_SEGMENT_NAMES, &path);
    errors.extend(validate_metadata_update(&meta, &old_meta, &path));
    match &resource.shape {
        Shape::BuiltIn { .. } if is_policy => {
            errors.extend(policies::errors_on_update(
                resource,
                subresource,
                object,
                old,
            )?);
        }
        Shape::BuiltIn { .. } => errors.extend(match subresource {
            "status" => crd::validate_status_update(object, old),
            _ => crd::validate_update(object, old),
        }),
        Shape::Registration { version, .. } => {
            let parsed = (
                resource.shape.configuration(object),
                resource.shape.configuration(old),
            );
            if let (Some(new), Some(old)) = parsed {
                errors.extend(registration_rules::validate_update(
                    &new,
                    &old,
                    *version,
                    &MatchConditionChecker,
                ));
            }
        }
        Shape::Custom(custom) => errors.extend(custom.validate_update(subresource, object, old)),
        Shape::Plain(_) => {}
    }
    refuse(resource, object, &errors)
}
