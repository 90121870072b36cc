//! PersistentVolumes.

use crate::amounts::round_up;
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::take_over;
use crate::kind::{CHANGE, Context, Deletion, Kind, Resource, cluster, sub};
use crate::object::{Object, fill, fill_text, get, get_mut, open, text, with};
use serde_json::{Value, json};

pub(super) const PERSISTENT_VOLUMES: Resource = cluster(
    "",
    "v1",
    "persistentvolumes",
    "persistentvolume",
    "PersistentVolume",
    "PersistentVolumeList",
    &PersistentVolume,
)
.short(&["pv"])
.subresources(&[sub("status", "", "v1", "PersistentVolume", CHANGE)]);

/// The kind `PersistentVolume`.
#[derive(Debug)]
pub(super) struct PersistentVolume;

impl Kind for PersistentVolume {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn prepare_create(&self, value: &mut Value, context: &Context<'_>) {
        let now = context.now.to_string();
        value["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        context: &Context<'_>,
    ) {
        if let ("status", Some(old)) = (subresource, old.as_object()) {
            with(value, |object| phase_transition(object, old, context));
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|+VolumeMode"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        volume_row(object, common)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

fn defaults(object: &mut Object) {
    if let Some(status) = open(object, "status") {
        fill_text(status, "phase", "Pending");
    }
    if let Some(spec) = get_mut(object, "spec") {
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        round_up(spec, "capacity");
        volume_source(spec);
    }
}

/// Sources that pods and persistent volumes have in common.
pub(in crate::builtin) fn volume_source(holder: &mut Object) {
    if let Some(source) = get_mut(holder, "hostPath") {
        fill(source, "type", "");
    }
    if let Some(source) = get_mut(holder, "iscsi") {
        fill_text(source, "iscsiInterface", "default");
    }
    if let Some(source) = get_mut(holder, "rbd") {
        fill_text(source, "pool", "rbd");
        fill_text(source, "user", "admin");
        fill_text(source, "keyring", "/etc/ceph/keyring");
    }
    if let Some(source) = get_mut(holder, "azureDisk") {
        fill(source, "cachingMode", "ReadWrite");
        fill(source, "fsType", "ext4");
        fill(source, "readOnly", false);
        fill(source, "kind", "Shared");
    }
    if let Some(source) = get_mut(holder, "scaleIO") {
        fill_text(source, "storageMode", "ThinProvisioned");
        fill_text(source, "fsType", "xfs");
    }
}

/// Notes when the phase of a volume changed, if the client did not.
fn phase_transition(object: &mut Object, old: &Object, context: &Context<'_>) {
    const TIME: &str = "lastPhaseTransitionTime";
    let old_status = get(old, "status").cloned().unwrap_or_default();
    let Some(status) = get_mut(object, "status") else {
        return;
    };
    let is_unset = !status.contains_key(TIME);
    if text(status, "phase") == text(&old_status, "phase") {
        if is_unset {
            take_over(status, &old_status, TIME);
        }
    } else if is_unset || status.get(TIME) == old_status.get(TIME) {
        status.insert(TIME.to_owned(), Value::from(context.now.to_string()));
    }
}

/// Where the class of a volume was noted before it had a field.
const OLD_CLASS: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

/// Access modes with their abbreviations, in the order they are shown in.
const MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

pub(super) fn access_modes(object: &Value, pointer: &str) -> String {
    let modes = read::items(object, pointer);
    let shown: Vec<&str> = MODES
        .into_iter()
        .filter(|(mode, _)| modes.iter().any(|found| found == mode))
        .map(|(_, short)| short)
        .collect();
    shown.join(",")
}

pub(super) fn class_name(object: &Value) -> String {
    match object.pointer(OLD_CLASS) {
        Some(Value::String(class)) => class.clone(),
        _ => read::text(object, "/spec/storageClassName").to_owned(),
    }
}

pub(super) fn phase(object: &Value) -> Value {
    if read::is_deleted(object) {
        return cell("Terminating");
    }
    cell(read::text(object, "/status/phase"))
}

fn volume_row(object: &Value, common: &Common<'_>) -> Row {
    let claim = match object.pointer("/spec/claimRef") {
        Some(claim) if claim.is_object() => {
            format!(
                "{}/{}",
                read::text(claim, "/namespace"),
                read::text(claim, "/name")
            )
        }
        _ => String::new(),
    };
    Row::of(vec![
        cell(common.name),
        cell(read::text_or(object, "/spec/capacity/storage", "0")),
        cell(access_modes(object, "/spec/accessModes")),
        cell(read::text(object, "/spec/persistentVolumeReclaimPolicy")),
        phase(object),
        cell(claim),
        cell(class_name(object)),
        cell(read::present_or(
            object,
            "/spec/volumeAttributesClassName",
            "<unset>",
        )),
        cell(read::text(object, "/status/reason")),
        cell(common.age.as_str()),
        cell(read::present_or(object, "/spec/volumeMode", "<unset>")),
    ])
}
