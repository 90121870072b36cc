//! Volumes, claims, and the kinds of `storage.k8s.io`.

use serde_json::{Value, json};

use super::object::{Object, at_mut, fill, fill_text, get_mut, is_empty, open};
use super::resources::{round_up, round_up_requirements};

/// Sources that pods and persistent volumes have in common.
pub(super) fn volume_source(holder: &mut Object) {
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

pub(super) fn persistent_volume(object: &mut Object) {
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

pub(super) fn persistent_volume_claim(object: &mut Object) {
    if let Some(status) = open(object, "status") {
        fill_text(status, "phase", "Pending");
        round_up(status, "capacity");
        round_up(status, "allocatedResources");
    }
    if let Some(spec) = get_mut(object, "spec") {
        claim_spec(spec);
    }
}

pub(super) fn claim_spec(spec: &mut Object) {
    fill(spec, "volumeMode", "Filesystem");
    round_up_requirements(spec, "resources");
}

pub(super) fn storage_class(object: &mut Object) {
    fill(object, "reclaimPolicy", "Delete");
    fill(object, "volumeBindingMode", "Immediate");
}

pub(super) fn csi_driver(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill(spec, "attachRequired", true);
    fill(spec, "podInfoOnMount", false);
    fill(spec, "storageCapacity", false);
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if is_empty(spec, "volumeLifecycleModes") {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
    fill(spec, "requiresRepublish", false);
    fill(spec, "seLinuxMount", false);
}

pub(super) fn volume_attachment(object: &mut Object) {
    if let Some(spec) = at_mut(object, &["spec", "source", "inlineVolumeSpec"]) {
        round_up(spec, "capacity");
        volume_source(spec);
    }
}

/// A node reports what pods may use; unsaid, it is everything.
pub(super) fn node(object: &mut Object) {
    if let Some(status) = get_mut(object, "status") {
        if let Some(capacity) = status.get("capacity").cloned() {
            fill(status, "allocatable", capacity);
        }
        round_up(status, "capacity");
        round_up(status, "allocatable");
    }
    if let Some(spec) = get_mut(object, "spec") {
        pod_cidrs(spec);
    }
}

/// The single range is the first of the list; where both are given and differ, the single one wins.
fn pod_cidrs(spec: &mut Object) {
    let listed = super::object::list(spec, "podCIDRs");
    let is_listed = !listed.is_empty();
    let first = listed
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let single = super::object::text(spec, "podCIDR").to_owned();
    if !single.is_empty() && (!is_listed || first != single) {
        spec.insert("podCIDRs".to_owned(), json!([single]));
    } else if single.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".to_owned(), Value::from(first));
    }
}
