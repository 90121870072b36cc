//! StorageClasses and VolumeAttributesClasses.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{immutable, invalid_each, required};
use crate::kind::{Context, Deletion, Kind, Resource, Written, cluster};
use crate::object::{Object, fill, text, with};
use lockgate_api::field::{FieldErrors, Path};
use lockgate_api::meta::names::check_qualified_name;
use serde_json::Value;

pub(super) const STORAGE_CLASSES: Resource = cluster(
    "storage.k8s.io",
    "v1",
    "storageclasses",
    "storageclass",
    "StorageClass",
    "StorageClassList",
    &StorageClass,
)
.short(&["sc"]);

pub(super) const VOLUME_ATTRIBUTES_CLASSES: Resource = cluster(
    "storage.k8s.io",
    "v1",
    "volumeattributesclasses",
    "volumeattributesclass",
    "VolumeAttributesClass",
    "VolumeAttributesClassList",
    &VolumeAttributesClass,
)
.short(&["vac"]);

/// The kind `StorageClass`.
#[derive(Debug)]
pub(super) struct StorageClass;

impl Kind for StorageClass {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        storage_class(errors, new.object());
        if let Some(old) = old {
            storage_class_update(errors, new.object(), old.object());
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        class_row(object, common)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `VolumeAttributesClass`.
#[derive(Debug)]
pub(super) struct VolumeAttributesClass;

impl Kind for VolumeAttributesClass {
    fn columns(&self) -> &'static str {
        "Name|DriverName|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [cell(read::text(object, "/driverName"))])
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

fn defaults(object: &mut Object) {
    fill(object, "reclaimPolicy", "Delete");
    fill(object, "volumeBindingMode", "Immediate");
}

fn storage_class(errors: &mut FieldErrors, object: &Object) {
    let provisioner = text(object, "provisioner");
    let path = Path::root("provisioner");
    if provisioner.is_empty() {
        required(errors, &path);
    } else {
        let lower = provisioner.to_lowercase();
        invalid_each(errors, &path, &lower, check_qualified_name(&lower));
    }
}

fn storage_class_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    for key in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        immutable(errors, (object.get(key), old.get(key)), &Path::root(key));
    }
}

fn class_row(object: &Value, common: &Common<'_>) -> Row {
    let is_default = ["storageclass", "storageclass.beta"].iter().any(|prefix| {
        let annotation = format!("/metadata/annotations/{prefix}.kubernetes.io~1is-default-class");
        read::text(object, &annotation) == "true"
    });
    Row::of(vec![
        cell(read::with_default(common.name, is_default)),
        cell(read::text(object, "/provisioner")),
        cell(read::present_or(object, "/reclaimPolicy", "Delete")),
        cell(read::present_or(object, "/volumeBindingMode", "Immediate")),
        cell(read::is_true(object, "/allowVolumeExpansion")),
        cell(common.age.as_str()),
    ])
}
