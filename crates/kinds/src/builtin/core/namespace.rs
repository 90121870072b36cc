//! Namespaces.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::checks::{LABEL_NAMES, check_finalizer_name, copy_field, invalid_each};
use crate::kind::{
    CHANGE, Context, Deletion, FieldSelector, Kind, NAME, Resource, ServerComponent, Written,
    cluster, select, sub,
};
use crate::object::{Object, fill_text, get, get_mut, list, open, text, with};
use lockgate_api::field::{FieldErrors, Path};
use lockgate_api::meta::names::check_qualified_name;
use lockgate_api::meta::validation::NameRules;
use serde_json::{Value, json};

pub(super) const NAMESPACES: Resource = cluster(
    "",
    "v1",
    "namespaces",
    "namespace",
    "Namespace",
    "NamespaceList",
    &Namespace,
)
.short(&["ns"])
.verbs(&[
    "create", "delete", "get", "list", "patch", "update", "watch",
])
.subresources(&[
    sub("finalize", "", "v1", "Namespace", &["update"]),
    sub("status", "", "v1", "Namespace", CHANGE),
]);

const SELECTABLE: &[FieldSelector] = &[NAME, select("status.phase", &["status", "phase"])];

/// The kind `Namespace`.
#[derive(Debug)]
pub(super) struct Namespace;

impl Kind for Namespace {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Namespaces)
    }

    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, _old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        let (wanted, is) = if new.metadata.deletion_timestamp.is_none() {
            ("Active", "empty")
        } else {
            ("Terminating", "not empty")
        };
        let phase = at.at_as("phase", "Phase");
        if phase.text() != wanted {
            let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {is}");
            phase.invalid(errors, detail);
        }
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if subresource.is_empty() {
            errors.extend(self.validate_create(new, context));
        }
        errors.extend(self.validate_metadata_update(new, old));
        match subresource {
            "finalize" => namespace_finalizers(&mut errors, new.object()),
            "status" => self.validate_status(&mut errors, new, old),
            _ => {}
        }
        errors
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn name_rules(&self) -> NameRules {
        LABEL_NAMES
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        value["status"] = json!({"phase": "Active"});
        with(value, namespace_finalizer);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        if old.is_none() {
            namespace(errors, new.object());
        }
    }

    fn canonicalize(&self, value: &mut Value) {
        // Runs after name generation.
        with(value, |object| {
            let Some(metadata) = get_mut(object, "metadata") else {
                return;
            };
            let name = text(metadata, "name").to_owned();
            if let Some(labels) = open(metadata, "labels") {
                labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
            }
        });
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        let Some(old) = old.as_object() else {
            return;
        };
        with(value, |object| match subresource {
            "" => keep_finalizers(object, old),
            "finalize" => copy_field(object, old, "status"),
            _ => {}
        });
    }

    fn columns(&self) -> &'static str {
        "Name|Status|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [cell(read::text(object, "/status/phase"))])
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object().in_steps()
    }

    fn begin_deletion(&self, value: &mut Value, _context: &Context<'_>) {
        value["status"]["phase"] = "Terminating".into();
    }
}

/// Sets the label `kubernetes.io/metadata.name`, so that selectors can match the name.
fn defaults(object: &mut Object) {
    if let Some(metadata) = get_mut(object, "metadata") {
        let name = text(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = open(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
        }
    }
    if let Some(status) = open(object, "status") {
        fill_text(status, "phase", "Active");
    }
}

fn namespace_finalizer(object: &mut Object) {
    let Some(spec) = open(object, "spec") else {
        return;
    };
    let mut finalizers = list(spec, "finalizers").to_vec();
    if !finalizers.iter().any(|name| name == "kubernetes") {
        finalizers.push(Value::from("kubernetes"));
    }
    spec.insert("finalizers".to_owned(), Value::Array(finalizers));
}

/// `spec.finalizers` change through the subresource `finalize` only.
fn keep_finalizers(object: &mut Object, old: &Object) {
    let finalizers = get(old, "spec")
        .and_then(|spec| spec.get("finalizers"))
        .cloned();
    if let Some(spec) = open(object, "spec") {
        spec.remove("finalizers");
        if let Some(finalizers) = finalizers {
            spec.insert("finalizers".to_owned(), finalizers);
        }
    }
}

fn namespace(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = Path::root("spec");
    let path = spec.child("finalizers");
    let spec = get(object, "spec").unwrap_or(&empty);
    for name in list(spec, "finalizers").iter().filter_map(Value::as_str) {
        invalid_each(errors, &path, name, check_qualified_name(name));
        check_finalizer_name(errors, name, &path);
    }
}

/// Validates `spec.finalizers` for `finalize`.
fn namespace_finalizers(errors: &mut FieldErrors, object: &Object) {
    let spec = At::root(object, "spec");
    for name in spec.at("finalizers").items() {
        name.check(errors, check_qualified_name);
        check_finalizer_name(errors, name.text(), &name.path);
    }
}
