//! PersistentVolumeClaims.

use crate::amounts::{round_up, round_up_requirements};
use crate::at::At;
use crate::builtin::core::persistent_volume::{
    VOLUME_MODES, access_mode_rules, access_modes, class_name, phase, positive_quantity,
};
use crate::builtin::core::pod::warnings::of_claim;
use crate::builtin::core::resource_name::{is_native, quantity_value};
use crate::cells::{Common, Row, cell, read};
use crate::checks::{check_label, copy_field};
use crate::equality::semantically_equal;
use crate::kind::{CHANGE, Context, Deletion, Kind, Resource, Written, namespaced, sub};
use crate::object::{Object, at_mut, fill, fill_text, get, get_mut, has, open, text, with};
use crate::typed::{internal_diff, type_of};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::label_selector::ExpressionValues;
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
use lockgate_go::quantity::Quantity;
use serde_json::Value;

pub(super) const PERSISTENT_VOLUME_CLAIMS: Resource = namespaced(
    "",
    "v1",
    "persistentvolumeclaims",
    "persistentvolumeclaim",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimList",
    &PersistentVolumeClaim,
)
.short(&["pvc"])
.subresources(&[sub("status", "", "v1", "PersistentVolumeClaim", CHANGE)]);

/// The kind `PersistentVolumeClaim`.
#[derive(Debug)]
pub(super) struct PersistentVolumeClaim;

impl Kind for PersistentVolumeClaim {
    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, _old: &Written<'_>) {
        let (spec, at) = (
            At::new(Path::root("Spec"), new.value.get("spec")),
            At::root(new.object(), "status"),
        );
        spec.at("accessModes").must_be_set(errors);
        for (_, amount) in at.at("capacity").entries() {
            not_negative(errors, &amount);
        }
        let states = at.at("allocatedResourceStatuses");
        for (name, state) in states.entries() {
            claim_resource(errors, &states, name);
            if !RESIZE_STATES.contains(&state.text()) {
                let error =
                    FieldError::not_supported(&states.path, Shown::Text(name), &RESIZE_STATES);
                errors.push(error);
            }
        }
        let amounts = at.at("allocatedResources");
        for (name, amount) in amounts.entries() {
            let before = errors.len();
            claim_resource(errors, &amounts, name);
            if errors.len() == before {
                not_negative(errors, &amount);
            }
            if errors.len() == before {
                quantity_value(errors, &amount, "storage");
            }
        }
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        claim_warnings(new.object())
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        claim_warnings(new.object())
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        if subresource.is_empty() {
            errors.extend(self.validate_metadata(new));
            self.validate(&mut errors, new, Some(old), context);
            claim_update(&mut errors, new.object(), old.object());
        } else if subresource == "status" {
            self.validate_status(&mut errors, new, old);
        }
        errors
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| data_sources(object, None));
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if subresource.is_empty() {
            with(value, |object| data_sources(object, old.as_object()));
        }
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        let spec = At::root(new.object(), "spec");
        let old_spec = old.and_then(|old| get(old.object(), "spec"));
        claim_spec(errors, &spec, old_spec);
    }

    fn columns(&self) -> &'static str {
        "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|+VolumeMode"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        claim_row(object, common)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

pub(in crate::builtin) fn defaults(object: &mut Object) {
    if let Some(status) = open(object, "status") {
        fill_text(status, "phase", "Pending");
        round_up(status, "capacity");
        round_up(status, "allocatedResources");
    }
    if let Some(spec) = get_mut(object, "spec") {
        claim_spec_defaults(spec);
    }
}

pub(super) fn claim_spec_defaults(spec: &mut Object) {
    fill(spec, "volumeMode", "Filesystem");
    round_up_requirements(spec, "resources");
}

/// Synchronizes `dataSource` with `dataSourceRef`. `dataSource` accepts claims and snapshots only, and drops all
/// other kinds.
fn data_sources(object: &mut Object, old: Option<&Object>) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    let was_used = old
        .and_then(|old| get(old, "spec"))
        .is_some_and(|old| has(old, "dataSource") || has(old, "dataSourceRef"));
    // Cross-namespace sources require the feature gate CrossNamespaceVolumeDataSource.
    let had_reference = old
        .and_then(|old| get(old, "spec"))
        .is_some_and(|old| has(old, "dataSourceRef"));
    let is_distant = get(spec, "dataSourceRef")
        .is_some_and(|reference| !text(reference, "namespace").is_empty());
    if is_distant && !had_reference {
        spec.remove("dataSourceRef");
    }
    let is_foreign = get(spec, "dataSource").is_some_and(|source| {
        let pair = (text(source, "apiGroup"), text(source, "kind"));
        !matches!(
            pair,
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    });
    if is_foreign && !was_used && !has(spec, "dataSourceRef") {
        spec.remove("dataSource");
    }
    match (
        get(spec, "dataSource").cloned(),
        get(spec, "dataSourceRef").cloned(),
    ) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), Value::Object(source));
        }
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => {
            let mut source = reference;
            source.remove("namespace");
            source.entry("apiGroup").or_insert(Value::Null);
            spec.insert("dataSource".to_owned(), Value::Object(source));
        }
        _ => {}
    }
}

fn claim_row(object: &Value, common: &Common<'_>) -> Row {
    let volume = read::text(object, "/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (
            read::text_or(object, "/status/capacity/storage", "0"),
            access_modes(object, "/status/accessModes"),
        )
    };
    Row::of(vec![
        cell(common.name),
        phase(object),
        cell(volume),
        cell(capacity),
        cell(modes),
        cell(class_name(object)),
        cell(read::present_or(
            object,
            "/spec/volumeAttributesClassName",
            "<unset>",
        )),
        cell(common.age.as_str()),
        cell(read::present_or(object, "/spec/volumeMode", "<unset>")),
    ])
}

/// Validates the spec of a claim, or of an ephemeral volume's claim template.
///
/// UPSTREAM: pkg/apis/core/validation/validation.go (ValidatePersistentVolumeClaimSpec)
pub(in crate::builtin) fn claim_spec(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    old: Option<&Object>,
) {
    if at.at("accessModes").is_empty() {
        let detail = "at least 1 access mode is required";
        at.at("accessModes").required_because(errors, detail);
    }
    let selector_was_invalid = old.is_some_and(|old| {
        let mut found = FieldErrors::new();
        At::root(old, "selector").label_selector(&mut found);
        !found.is_empty()
    });
    let values = if selector_was_invalid {
        ExpressionValues::Unchecked
    } else {
        ExpressionValues::Checked
    };
    at.at("selector").label_selector_with(errors, values);
    access_mode_rules(errors, &at.at("accessModes"));
    let resources = at.at("resources");
    let requests = resources.at("requests");
    let storage = At::new(
        resources.path.key("storage"),
        requests.value.and_then(|requests| requests.get("storage")),
    );
    if storage.is_set() {
        positive_quantity(errors, &storage);
    } else {
        storage.required(errors);
    }
    at.at("storageClassName").check_set(errors, check_subdomain);
    at.at("volumeMode").known_if_set(errors, &VOLUME_MODES);
    let allows_group = old.is_some_and(|old| {
        ["dataSource", "dataSourceRef"]
            .iter()
            .any(|key| get(old, key).is_some_and(|source| has(source, "apiGroup")))
    });
    let (source, reference) = (at.at("dataSource"), at.at("dataSourceRef"));
    for data in [&source, &reference] {
        if !data.is_set() {
            continue;
        }
        data.at("name").must_be_set(errors);
        data.at("kind").must_be_set(errors);
        let (group, kind) = (data.at("apiGroup"), data.at("kind"));
        if group.is_empty() && kind.text() != "PersistentVolumeClaim" {
            data.invalid_as(
                errors,
                Shown::Text(kind.text()),
                "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            );
        }
        if !allows_group {
            group.check_set(errors, check_subdomain);
        }
    }
    reference.at("namespace").check_set(errors, check_label);
    // Upstream prints the `field.Path`, a struct without exported fields.
    let shown = Shown::Rendered("{}");
    if !reference.at("namespace").is_empty() {
        if source.is_set() {
            let detail = "may not be specified when dataSourceRef.namespace is specified";
            at.invalid_as(errors, shown, detail);
        }
    } else if source.is_set() && reference.is_set() {
        let same = |key| source.at(key).text() == reference.at(key).text();
        // An empty group differs from a nil one.
        let has_group = |at: &At<'_, '_>| at.at("apiGroup").is_set();
        let same_group = same("apiGroup") && has_group(&source) == has_group(&reference);
        if !same_group || !same("kind") || !same("name") {
            at.invalid_as(errors, shown, "must match dataSourceRef");
        }
    }
    at.at("volumeAttributesClassName")
        .check_set(errors, check_subdomain);
}

/// Validates which fields of a claim change: its size and attributes once it is bound.
fn claim_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    let empty = Object::new();
    let (spec, old_spec) = (
        get(object, "spec").unwrap_or(&empty),
        get(old, "spec").unwrap_or(&empty),
    );
    let annotation = |object: &Object| {
        get(object, "metadata")
            .and_then(|metadata| get(metadata, "annotations"))
            .and_then(|annotations| annotations.get(CLASS))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (mut new, mut former) = (spec.clone(), old_spec.clone());
    if text(old_spec, "volumeName").is_empty() {
        copy_field(&mut former, spec, "volumeName");
    }
    let (class, old_class) = (annotation(object), annotation(old));
    let is_upgrade = !has(old_spec, "storageClassName") && has(spec, "storageClassName");
    let new_name = text(spec, "storageClassName");
    let from_annotation = is_upgrade
        && old_class.as_deref() == Some(new_name)
        && class.as_ref().is_none_or(|class| class == new_name);
    if from_annotation {
        new.remove("storageClassName");
    } else {
        let (class, old_class) = (class.unwrap_or_default(), old_class.unwrap_or_default());
        if class != old_class {
            let metadata = Path::root("metadata");
            let annotations = metadata.child("annotations");
            errors.push(FieldError::invalid(
                &annotations.child(CLASS),
                Shown::Text(&class),
                "field is immutable",
            ));
        }
        if is_upgrade && old_class.is_empty() {
            copy_field(&mut new, old_spec, "storageClassName");
        }
    }
    let is_bound = get(object, "status").is_some_and(|status| text(status, "phase") == "Bound");
    let size = |spec: &Object| {
        get(spec, "resources")
            .and_then(|resources| get(resources, "requests"))
            .and_then(|requests| Quantity::parse(text(requests, "storage")).ok())
    };
    if is_bound {
        let requests = |spec: &mut Object| {
            at_mut(spec, &["resources", "requests"]).map(|requests| requests.remove("storage"))
        };
        requests(&mut new);
        requests(&mut former);
        copy_field(&mut new, old_spec, "volumeAttributesClassName");
    }
    let (new, former) = (Value::Object(new), Value::Object(former));
    let is_same = type_of("", "v1", "PersistentVolumeClaim")
        .and_then(|ty| ty.field("spec"))
        .is_some_and(|field| semantically_equal(field.ty(), &new, &former));
    let path = Path::root("spec");
    if !is_same {
        let diff = internal_diff("PersistentVolumeClaimSpec", &former, &new);
        errors.push(FieldError::forbidden(
            &path,
            format!(
                "spec is immutable after creation except resources.requests and \
                 volumeAttributesClassName for bound claims\n{diff}"
            ),
        ));
    }
    let zero = || Quantity::parse("0").ok();
    if let (Some(new), Some(former)) = (size(spec).or_else(zero), size(old_spec).or_else(zero))
        && new.compare(&former).is_lt()
    {
        let capacity = get(old, "status")
            .and_then(|status| get(status, "capacity"))
            .and_then(|capacity| Quantity::parse(text(capacity, "storage")).ok());
        let is_below = match capacity {
            Some(capacity) => !new.compare(&capacity).is_gt(),
            None => new.sign() <= 0,
        };
        if is_below {
            let resources = path.child("resources");
            let requests = resources.child("requests");
            let detail = "field can not be less than status.capacity";
            errors.push(FieldError::forbidden(&requests.child("storage"), detail));
        }
    }
    At::new(Path::root("volumeMode"), spec.get("volumeMode")).immutable(
        errors,
        &At::new(Path::root("volumeMode"), old_spec.get("volumeMode")),
    );
    let class = "volumeAttributesClassName";
    let has_current =
        get(old, "status").is_some_and(|status| has(status, "currentVolumeAttributesClassName"));
    if has_current && spec.get(class) != old_spec.get(class) && text(spec, class).is_empty() {
        let what = if has(spec, class) {
            "empty string"
        } else {
            "nil"
        };
        let detail = format!(
            "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        );
        errors.push(FieldError::forbidden(&path.child(class), detail));
    }
}

fn claim_warnings(object: &Object) -> Vec<String> {
    const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    let mut warnings = Vec::new();
    let metadata = At::root(object, "metadata");
    let annotations = metadata.at("annotations");
    if annotations.entry(CLASS).is_set() {
        warnings.push(format!(
            "{}: deprecated since v1.8; use \"storageClassName\" attribute instead",
            annotations.entry(CLASS).path
        ));
    }
    warnings.extend(of_claim(&At::root(object, "spec")));
    warnings
}

/// The statuses of an unfinished resize, by name.
const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// The resources of a claim are `storage`, or have a domain.
///
/// UPSTREAM: pkg/apis/core/validation/validation.go (validatePersistentVolumeClaimResourceKey)
fn claim_resource(errors: &mut FieldErrors, at: &At<'_, '_>, name: &str) {
    let messages = check_qualified_name(name);
    if messages.is_empty() && is_native(name) && name != "storage" {
        let set = &["storage"];
        errors.push(FieldError::not_supported(&at.path, Shown::Text(name), set));
    }
    for message in messages {
        at.invalid_as(errors, Shown::Text(name), message);
    }
}

fn not_negative(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let Some(quantity) = at.quantity() else {
        return;
    };
    let value = quantity.rounded_up(0);
    if value < 0 {
        let shown = value.to_string();
        at.invalid_as(
            errors,
            Shown::Rendered(&shown),
            "must be a valid resource quantity",
        );
    }
}
