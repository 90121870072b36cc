//! StorageClasses and VolumeAttributesClasses.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::kind::{Context, Deletion, Kind, Resource, Written, cluster};
use crate::object::{Object, fill, with};
use crate::typed::member_type;
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::check_qualified_name;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

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
    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_create(new, context);
        errors.extend(self.validate_metadata_update(new, old));
        for key in [
            "parameters",
            "provisioner",
            "reclaimPolicy",
            "volumeBindingMode",
        ] {
            let former = At::root(old.object(), key);
            let ty = member_type("storage.k8s.io", "StorageClass", &[key]);
            At::root(new.object(), key).immutable_typed(&mut errors, &former, ty);
        }
        errors
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        storage_class(errors, new.object());
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
    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        for key in ["driverName", "parameters"] {
            let (member, former) = (At::root(new.object(), key), At::root(old.object(), key));
            if !member.same(&former) {
                member.forbidden(&mut errors, format!("updates to {key} are forbidden."));
            }
        }
        errors.extend(self.validate_create(new, context));
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        provisioner(errors, &At::root(new.object(), "driverName"));
        parameters(errors, &At::root(new.object(), "parameters"), false);
    }

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

fn class_row(object: &Value, common: &Common<'_>) -> Row {
    let is_default = ["storageclass", "storageclass.beta"].iter().any(|prefix| {
        read::annotation(object, &format!("{prefix}.kubernetes.io/is-default-class")) == "true"
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

fn storage_class(errors: &mut FieldErrors, object: &Object) {
    provisioner(errors, &At::root(object, "provisioner"));
    parameters(errors, &At::root(object, "parameters"), true);
    let policy = At::root(object, "reclaimPolicy");
    if !policy.is_empty() {
        policy.known(errors, &["Delete", "Retain"]);
    }
    let mode = At::root(object, "volumeBindingMode");
    if mode.is_set() {
        mode.known(errors, &["Immediate", "WaitForFirstConsumer"]);
    } else {
        mode.required(errors);
    }
    let mut terms: Vec<BTreeMap<&str, BTreeSet<&str>>> = Vec::new();
    for term in At::root(object, "allowedTopologies").items() {
        let expressions = term.at("matchLabelExpressions");
        let mut found = BTreeMap::new();
        for expression in expressions.items() {
            let (key, values) = (expression.at("key"), expression.at("values"));
            values.must_be_set(errors);
            let mut set = BTreeSet::new();
            for value in values.items() {
                if !set.insert(value.text()) {
                    value.duplicate(errors);
                }
            }
            key.check(errors, check_qualified_name);
            if found.contains_key(key.text()) {
                key.duplicate(errors);
            }
            found.insert(key.text(), set);
        }
        // Upstream's list of seen terms is preallocated with as many empty terms as there are terms.
        let repeats = terms.iter().filter(|other| **other == found).count();
        let empties = if found.is_empty() {
            At::root(object, "allowedTopologies").len()
        } else {
            0
        };
        for _ in 0..repeats + empties {
            expressions.duplicate_as(errors, Shown::Text(""));
        }
        terms.push(found);
    }
}

fn provisioner(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_empty() {
        return at.required(errors);
    }
    let lower = at.text().to_lowercase();
    for message in check_qualified_name(&lower) {
        at.invalid_as(errors, Shown::Text(&lower), message);
    }
}

fn parameters(errors: &mut FieldErrors, at: &At<'_, '_>, may_be_empty: bool) {
    const COUNT: usize = 512;
    const SIZE: usize = 256 * 1024;
    if at.len() > COUNT {
        return at.too_long(errors, COUNT);
    }
    let mut total = 0;
    for (key, value) in at.entries() {
        if key.is_empty() {
            at.invalid_as(errors, Shown::Text(""), "field can not be empty.");
        }
        total += key.len() + value.text().len();
    }
    if total > SIZE {
        at.too_long(errors, SIZE);
    }
    if !may_be_empty && at.is_empty() {
        at.required_because(errors, "must contain at least one key/value pair");
    }
}
