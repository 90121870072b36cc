//! The interface between the server and a kind: one object-safe trait.
//!
//! Built-in kinds, webhook configurations, CustomResourceDefinitions and custom resources implement [`Kind`]; the row
//! of a built-in kind ([`Resource`]) points to its implementation. All methods have defaults, so that a kind
//! implements only its differences.
//!
//! ```text
//! decode ► apply_defaults ► mutating admission ► prepare_* ► validate_* ► warnings_* ► canonicalize
//!        ► validating admission ► store
//! ```
//!
//! UPSTREAM: apiserver pkg/registry/rest/{create,update}.go for the order.

mod field_selector;
mod resource;
mod server_component;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use serde_json::map::Map;

use lockgate_api::field::{FieldErrors, Path};
use lockgate_api::meta::object::{ManagedFieldsEntry, ObjectMeta};
use lockgate_api::meta::time::Time;
use lockgate_api::meta::validation::{
    NameRules, SUBDOMAIN_NAMES, validate_metadata, validate_metadata_update,
};
use lockgate_api::registration::validation::policies::PolicyExpressions;
use lockgate_api::registration::validation::{ExpressionChecker, Unchecked};

use crate::cells::{Cell, Common, Row};
use crate::checks::{check_finalizer_name, wire};
use crate::object::Object;

pub use field_selector::FieldSelector;
pub(crate) use field_selector::{
    NAME, NAMESPACE, absent, first_of, flag_selector, number_selector, select,
};
pub(crate) use resource::{CHANGE, CREATE, PROXY, SCALE, SPEC, STREAM, cluster, namespaced, sub};
pub use resource::{Generation, Resource, Subresource};
pub use server_component::{NodeGraphObject, ServerComponent};

/// The behaviour of a kind.
///
/// Objects are in normal form and, from `prepare_create` on, have complete metadata.
pub trait Kind: fmt::Debug + Send + Sync {
    /// Applies the defaults of the version.
    fn apply_defaults(&self, _value: &mut Value) {}

    /// Returns true if defaulting will make the object's labels alias those of its template: later changes of one
    /// apply to both.
    fn shares_labels(&self, _value: &Value) -> bool {
        false
    }

    /// Updates labels that alias those of the template.
    fn follow_template(&self, _value: &mut Value) {}

    /// Applies defaults that depend on the time of the request.
    fn apply_time_defaults(&self, _value: &mut Value, _now: Time) {}

    /// Converts the fields of an object of another version to those of `to`. The caller sets `apiVersion`.
    fn convert(&self, _object: &mut Object, _to: &Resource) {}

    /// The deprecation warning of the kind.
    fn deprecation_warning(&self) -> Option<&'static str> {
        None
    }

    /// The name rules.
    fn name_rules(&self) -> NameRules {
        SUBDOMAIN_NAMES
    }

    /// The kind's own validation of finalizers.
    fn finalizers(&self) -> Finalizers {
        Finalizers::Qualified
    }

    /// Returns true if `generateName` is used as name, without a random suffix.
    fn generates_plain_names(&self) -> bool {
        false
    }

    /// The status of a new object. By default, it is reset if `status` is a subresource.
    fn new_status(&self) -> NewStatus {
        NewStatus::Reset
    }

    /// Sets fields that depend on the cluster, before allocation and `prepare_*`. Errors end the request before
    /// validation.
    fn begin(&self, _value: &mut Value, _old: Option<&Value>) -> FieldErrors {
        FieldErrors::new()
    }

    /// Warnings about fields that [`Kind::prepare_create`] will change. They are returned even if the object is
    /// rejected later.
    fn warnings_on_prepare(&self, _value: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Sets server-managed fields of a new object.
    fn prepare_create(&self, _value: &mut Value, _context: &Context<'_>) {}

    /// Validates a new object: by default, its metadata and then [`Kind::validate`].
    fn validate_create(&self, new: &Written<'_>, context: &Context<'_>) -> FieldErrors {
        let mut errors = self.validate_metadata(new);
        self.validate(&mut errors, new, None, context);
        errors
    }

    /// Validates a created or updated object, except its metadata.
    fn validate(
        &self,
        _errors: &mut FieldErrors,
        _new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
    }

    /// Validates the metadata of a new object by the kind's rules.
    fn validate_metadata(&self, new: &Written<'_>) -> FieldErrors {
        let path = Path::root("metadata");
        let mut errors = validate_metadata(&new.metadata, self.name_rules(), &path);
        self.validate_finalizers(&mut errors, new);
        errors
    }

    /// Validates the metadata of an updated object by the kind's rules.
    fn validate_metadata_update(&self, new: &Written<'_>, old: &Written<'_>) -> FieldErrors {
        let path = Path::root("metadata");
        let mut errors = validate_metadata_update(&new.metadata, &old.metadata, &path);
        self.validate_finalizers(&mut errors, new);
        errors
    }

    /// Validates that finalizers without a domain are known to Kubernetes.
    ///
    /// UPSTREAM: pkg/apis/core/validation/validation.go (validateKubeFinalizerName)
    fn validate_finalizers(&self, errors: &mut FieldErrors, new: &Written<'_>) {
        if self.finalizers() == Finalizers::Any {
            return;
        }
        let metadata = Path::root("metadata");
        let path = metadata.child("finalizers");
        for (index, name) in new.metadata.finalizers.iter().flatten().enumerate() {
            check_finalizer_name(errors, name, &path.index(index));
        }
    }

    /// Validates a status update, except its metadata.
    fn validate_status(&self, _errors: &mut FieldErrors, _new: &Written<'_>, _old: &Written<'_>) {}

    /// The API group in errors about invalid objects, if it differs from the resource's.
    fn error_group(&self) -> Option<&'static str> {
        None
    }

    /// Warnings about a valid new object.
    fn warnings_on_create(&self, _new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Sets fields after validation.
    fn canonicalize(&self, _value: &mut Value) {}

    /// Returns true if an update of `status` keeps labels, annotations, finalizers and owner references.
    ///
    /// UPSTREAM: apimachinery pkg/apis/meta/v1/meta.go (ResetObjectMetaForStatus)
    fn resets_metadata_on_status_update(&self) -> bool {
        false
    }

    /// The field paths that an endpoint resets, which field managers do not own. Not called for a status without
    /// subresource.
    ///
    /// UPSTREAM: the strategies' GetResetFields. Those of `ephemeralcontainers` and `resize` are
    /// not used.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "" | "finalize" => &[&["status"]],
            "status" if self.resets_metadata_on_status_update() => &[&["metadata"], &["spec"]],
            "status" => &[&["spec"]],
            _ => &[],
        }
    }

    /// Restores and sets server-managed fields of an updated object; `subresource` is empty for the main resource.
    fn prepare_update(
        &self,
        _subresource: &str,
        _value: &mut Value,
        _old: &Value,
        _context: &Context<'_>,
    ) {
    }

    /// Validates an updated object after the generic metadata validation: by default, its metadata by the kind's
    /// rules, then [`Kind::validate`] for the main resource or [`Kind::validate_status`] for its status.
    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        match subresource {
            "" => self.validate(&mut errors, new, Some(old), context),
            "status" => self.validate_status(&mut errors, new, old),
            _ => {}
        }
        errors
    }

    /// Warnings about a valid updated object.
    fn warnings_on_update(
        &self,
        _new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        Vec::new()
    }

    /// Warnings about a valid status update.
    fn warnings_on_status_update(&self, _new: &Written<'_>) -> Vec<String> {
        Vec::new()
    }

    /// The columns of tables, separated by `|`: a `+` prefix marks columns of wide tables, and a colon precedes a
    /// type other than `string`.
    fn columns(&self) -> &'static str {
        "Name|Created At:date"
    }

    /// The cells of an object, for kinds with declarative rows: their rows are created without parsing objects.
    fn cells(&self) -> Option<&'static [Cell]> {
        None
    }

    /// The row of an object.
    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        match self.cells() {
            Some(cells) => Row::with_cells(cells, object, common),
            None => Row::created_at(object, common),
        }
    }

    /// The sort key of rows, for all objects of the kind; with `None`, rows are not sorted.
    fn sort_key(&self, _object: &Value) -> Option<(i64, String)> {
        None
    }

    /// The supported field selectors, in addition to name and namespace.
    ///
    /// UPSTREAM: pkg/apis/*/conversion.go (`AddFieldLabelConversionFunc`) for the labels,
    /// pkg/registry/*/strategy.go (`ToSelectableFields`) for what they read.
    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        None
    }

    /// The error message of an unsupported field selector.
    fn unsupported_field_label(&self, label: &str) -> String {
        if self.field_selectors().is_some() {
            return format!("field label not supported: {label}");
        }
        format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            lockgate_go::quote::quote(label)
        )
    }

    /// The deletion behaviour.
    fn deletion(&self) -> Deletion {
        Deletion::default()
    }

    /// The component of the server that follows these objects.
    fn component(&self) -> Option<ServerComponent> {
        None
    }

    /// Marks an object at the beginning of a deletion in steps.
    fn begin_deletion(&self, _value: &mut Value, _context: &Context<'_>) {}
}

/// A kind's own validation of `metadata.finalizers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finalizers {
    /// Names without a domain must be known to Kubernetes.
    Qualified,
    /// Only the generic validation applies.
    Any,
}

/// The status of a new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewStatus {
    /// It is reset to its zero value if `status` is a subresource.
    Reset,
    /// It is set by the client.
    Sent,
}

/// The deletion behaviour of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deletion {
    /// The response is the deleted object instead of a `Status`.
    pub returns_object: bool,
    /// Dependents are orphaned by default.
    pub orphans_by_default: bool,
    /// Objects are marked first and removed later.
    pub in_steps: bool,
    /// Garbage collection never searches for dependents.
    pub has_no_dependents: bool,
}

impl Deletion {
    /// Responds with the deleted object.
    #[must_use]
    pub const fn returning_object(mut self) -> Self {
        self.returns_object = true;
        self
    }

    /// Orphans dependents by default.
    #[must_use]
    pub const fn orphaning(mut self) -> Self {
        self.orphans_by_default = true;
        self
    }

    /// Marks objects first and removes them later.
    #[must_use]
    pub const fn in_steps(mut self) -> Self {
        self.in_steps = true;
        self
    }

    /// Never searches for dependents.
    #[must_use]
    pub const fn without_dependents(mut self) -> Self {
        self.has_no_dependents = true;
        self
    }
}

/// The properties of a request that kinds use.
#[derive(Clone, Copy)]
pub struct Context<'r> {
    /// The time of the write.
    pub now: Time,
    /// The user, which a CertificateSigningRequest records.
    pub requester: Requester<'r>,
    /// Compiles match conditions.
    pub expressions: &'r dyn ExpressionChecker,
    /// Compiles the expressions of policies.
    pub policies: &'r dyn PolicyExpressions,
    /// True if the feature gate AdmissionWebhookMatchConditions is enabled.
    pub match_conditions: bool,
    /// True if configurations are loaded from manifest files, whose names are reserved.
    pub static_manifests: bool,
    /// True if the namespace of the object has the label for admin access to devices.
    pub admin_access: bool,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("now", &self.now)
            .field("requester", &self.requester)
            .finish_non_exhaustive()
    }
}

impl<'r> Context<'r> {
    /// A context without expressions, feature gates or manifest files.
    #[must_use]
    pub fn new(now: Time, requester: Requester<'r>) -> Self {
        Self {
            now,
            requester,
            expressions: &Unchecked,
            policies: &Unchecked,
            match_conditions: true,
            static_manifests: false,
            admin_access: false,
        }
    }
}

/// The user who sent a request.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'r> {
    /// The name of the user.
    pub name: &'r str,
    /// The uid of the user; may be empty.
    pub uid: &'r str,
    /// The groups of the user.
    pub groups: &'r [String],
    /// The extra fields of the user.
    pub extra: &'r BTreeMap<String, Vec<String>>,
}

/// An object under validation, with its metadata decoded once.
#[derive(Debug)]
pub struct Written<'o> {
    /// The object.
    pub value: &'o Value,
    /// Its metadata, without the namespace of a namespaced kind, which is validated elsewhere.
    pub metadata: ObjectMeta,
    nothing: Object,
}

impl<'o> Written<'o> {
    /// Decodes the metadata of an object.
    #[must_use]
    pub fn new(value: &'o Value, namespaced: bool) -> Self {
        Self {
            value,
            metadata: metadata(value, namespaced),
            nothing: Object::new(),
        }
    }

    /// The fields of the object.
    #[must_use]
    pub fn object(&self) -> &Map<String, Value> {
        self.value.as_object().unwrap_or(&self.nothing)
    }
}

/// Decodes the metadata of an object.
///
/// This is called several times per write, so simple fields are copied one by one rather than serialized and decoded.
fn metadata(value: &Value, namespaced: bool) -> ObjectMeta {
    let nothing = Map::new();
    let members = value
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&nothing);
    let text = |name: &str| {
        let text = members.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let texts = |name: &str| {
        let map = members.get(name)?.as_object()?;
        let entry =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        map.iter().map(entry).collect::<Option<BTreeMap<_, _>>>()
    };
    let number = |name: &str| members.get(name).and_then(Value::as_i64);
    let time = |name: &str| Time::parse(members.get(name)?.as_str()?).ok();
    let namespace = text("namespace");
    ObjectMeta {
        name: text("name"),
        generate_name: text("generateName"),
        namespace: if namespaced { String::new() } else { namespace },
        self_link: text("selfLink"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        generation: number("generation").unwrap_or_default(),
        creation_timestamp: time("creationTimestamp"),
        deletion_timestamp: time("deletionTimestamp"),
        deletion_grace_period_seconds: number("deletionGracePeriodSeconds"),
        labels: texts("labels"),
        annotations: texts("annotations"),
        owner_references: (members.get("ownerReferences"))
            .and_then(Value::as_array)
            .map(|owners| owners.iter().map(wire).collect()),
        finalizers: (members.get("finalizers"))
            .and_then(Value::as_array)
            .map(|list| {
                list.iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect()
            }),
        managed_fields: (members.get("managedFields"))
            .and_then(Value::as_array)
            .map(|entries| entries.iter().map(managed_fields).collect()),
    }
}

/// An entry of the managed fields without its field set, which validation does not read.
fn managed_fields(entry: &Value) -> ManagedFieldsEntry {
    let text = |name: &str| {
        let text = entry.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    ManagedFieldsEntry {
        manager: text("manager"),
        operation: text("operation"),
        api_version: text("apiVersion"),
        fields_type: text("fieldsType"),
        subresource: text("subresource"),
        ..ManagedFieldsEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    #[test]
    fn metadata_is_what_reading_it_would_give() {
        let all = json!({"metadata": {
            "name": "a", "generateName": "g-", "namespace": "n", "selfLink": "/a", "uid": "u",
            "resourceVersion": "3", "generation": 4, "deletionGracePeriodSeconds": 30,
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
            "labels": {"k": "v"}, "annotations": {"k": "v", "l": ""}, "finalizers": ["f", "g"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}],
            "managedFields": [{
                "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "subresource": "status",
            }],
        }});
        for object in [
            all,
            json!({"metadata": {"creationTimestamp": null}}),
            json!({}),
        ] {
            let want: ObjectMeta = object.get("metadata").map(wire).unwrap_or_default();
            assert_eq!(metadata(&object, false), want);
        }
        let object = json!({"metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(metadata(&object, true).namespace, "");
    }
}
