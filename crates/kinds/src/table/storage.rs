//! Volumes, claims and the classes of both.

use serde_json::Value;

use super::cells::{Common, Row, cell};
use super::networking::with_default;
use super::read::{is_deleted, items, joined, present_or, text, text_or};

/// Where the class of a volume was noted before it had a field.
const OLD_CLASS: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

/// Access modes with their abbreviations, in the order they are shown in.
const MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

fn access_modes(object: &Value, pointer: &str) -> String {
    let modes = items(object, pointer);
    let shown: Vec<&str> = MODES
        .into_iter()
        .filter(|(mode, _)| modes.iter().any(|found| found == mode))
        .map(|(_, short)| short)
        .collect();
    shown.join(",")
}

fn class_name(object: &Value) -> String {
    match object.pointer(OLD_CLASS) {
        Some(Value::String(class)) => class.clone(),
        _ => text(object, "/spec/storageClassName").to_owned(),
    }
}

fn phase(object: &Value) -> Value {
    if is_deleted(object) {
        return cell("Terminating");
    }
    cell(text(object, "/status/phase"))
}

pub(super) fn volume(object: &Value, common: &Common<'_>) -> Row {
    let claim = match object.pointer("/spec/claimRef") {
        Some(claim) if claim.is_object() => {
            format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
        }
        _ => String::new(),
    };
    Row::of(vec![
        cell(common.name),
        cell(text_or(object, "/spec/capacity/storage", "0")),
        cell(access_modes(object, "/spec/accessModes")),
        cell(text(object, "/spec/persistentVolumeReclaimPolicy")),
        phase(object),
        cell(claim),
        cell(class_name(object)),
        cell(present_or(
            object,
            "/spec/volumeAttributesClassName",
            "<unset>",
        )),
        cell(text(object, "/status/reason")),
        cell(common.age.as_str()),
        cell(present_or(object, "/spec/volumeMode", "<unset>")),
    ])
}

pub(super) fn claim(object: &Value, common: &Common<'_>) -> Row {
    let volume = text(object, "/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (
            text_or(object, "/status/capacity/storage", "0"),
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
        cell(present_or(
            object,
            "/spec/volumeAttributesClassName",
            "<unset>",
        )),
        cell(common.age.as_str()),
        cell(present_or(object, "/spec/volumeMode", "<unset>")),
    ])
}

pub(super) fn class(object: &Value, common: &Common<'_>) -> Row {
    let is_default = ["storageclass", "storageclass.beta"].iter().any(|prefix| {
        let annotation = format!("/metadata/annotations/{prefix}.kubernetes.io~1is-default-class");
        text(object, &annotation) == "true"
    });
    Row::of(vec![
        cell(with_default(common.name, is_default)),
        cell(text(object, "/provisioner")),
        cell(present_or(object, "/reclaimPolicy", "Delete")),
        cell(present_or(object, "/volumeBindingMode", "Immediate")),
        cell(flag(object, "/allowVolumeExpansion", false)),
        cell(common.age.as_str()),
    ])
}

/// A flag that is something when nobody says.
fn flag(object: &Value, pointer: &str, otherwise: bool) -> bool {
    let found = object.pointer(pointer).and_then(Value::as_bool);
    found.unwrap_or(otherwise)
}

pub(super) fn driver(object: &Value, common: &Common<'_>) -> Row {
    let audiences = match object.pointer("/spec/tokenRequests") {
        Some(Value::Array(requests)) => {
            let audiences: Vec<&str> = requests
                .iter()
                .map(|request| text(request, "/audience"))
                .collect();
            audiences.join(",")
        }
        _ => String::from("<unset>"),
    };
    let modes = match joined(object, "/spec/volumeLifecycleModes", ",") {
        modes if modes.is_empty() => String::from("<none>"),
        modes => modes,
    };
    Row::of(vec![
        cell(common.name),
        cell(flag(object, "/spec/attachRequired", true)),
        cell(flag(object, "/spec/podInfoOnMount", false)),
        cell(flag(object, "/spec/storageCapacity", false)),
        cell(audiences),
        cell(flag(object, "/spec/requiresRepublish", false)),
        cell(modes),
        cell(common.age.as_str()),
    ])
}

pub(super) fn attachment(object: &Value, common: &Common<'_>) -> Row {
    Row::of(vec![
        cell(common.name),
        cell(text(object, "/spec/attacher")),
        cell(text(object, "/spec/source/persistentVolumeName")),
        cell(text(object, "/spec/nodeName")),
        cell(flag(object, "/status/attached", false)),
        cell(common.age.as_str()),
    ])
}
