//! PersistentVolumeClaims.

use super::persistent_volume::{access_modes, class_name, phase};
use crate::amounts::{round_up, round_up_requirements};
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::required;
use crate::kind::{CHANGE, Context, Deletion, Kind, Resource, Written, namespaced, sub};
use crate::object::{Object, fill, fill_text, get, get_mut, has, is_empty, list, open, text, with};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
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
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        persistent_volume_claim(errors, new.object());
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
            // Claims are checked like new ones first.
            errors = self.validate_create(new, context);
        }
        errors.extend(self.validate_metadata_update(new, old));
        errors
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

/// The older and the newer way to name where data comes from say the same. The older one never took
/// anything but claims and snapshots, and still drops the rest.
fn data_sources(object: &mut Object, old: Option<&Object>) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    let was_used = old
        .and_then(|old| get(old, "spec"))
        .is_some_and(|old| has(old, "dataSource") || has(old, "dataSourceRef"));
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

fn persistent_volume_claim(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    if is_empty(spec, "accessModes") {
        errors.push(FieldError::required(
            &path.child("accessModes"),
            "at least 1 access mode is required",
        ));
    }
    const MODES: [&str; 4] = [
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOnce",
        "ReadWriteOncePod",
    ];
    for mode in list(spec, "accessModes").iter().filter_map(Value::as_str) {
        if !MODES.contains(&mode) {
            let shown = Shown::Named(mode);
            errors.push(FieldError::not_supported(
                &path.child("accessModes"),
                shown,
                &MODES,
            ));
        }
    }
    let storage = get(spec, "resources")
        .and_then(|resources| get(resources, "requests"))
        .is_some_and(|requests| requests.contains_key("storage"));
    if !storage {
        let resources = path.child("resources");
        required(errors, &resources.key("storage"));
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
