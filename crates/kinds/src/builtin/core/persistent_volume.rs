//! PersistentVolumes.

use crate::amounts::round_up;
use crate::at::At;
use crate::builtin::core::pod::warnings::of_term;
use crate::builtin::core::volume_source::{
    Holder, OF_PERSISTENT_VOLUMES, node_selector, one_source,
};
use crate::cells::{Common, Row, cell, read};
use crate::checks::copy_field;
use crate::equality::semantically_equal;
use crate::kind::{
    CHANGE, Context, Deletion, Kind, NodeGraphObject, Resource, ServerComponent, Written, cluster,
    sub,
};
use crate::object::{Object, fill, fill_text, get, get_mut, open, text, with};
use crate::typed::{internal_diff, internal_form, member_type};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_label_value, check_subdomain};
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
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::NodeGraph(NodeGraphObject::Volume))
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        volume_warnings(new.object())
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        volume_warnings(new.object())
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        if subresource == "status" {
            return self.validate_metadata_update(new, old);
        }
        // Upstream validates the whole volume twice: the second time as part of the update validation.
        let mut errors = self.validate_metadata(new);
        self.validate(&mut errors, new, Some(old), context);
        errors.extend(self.validate_metadata(new));
        self.validate(&mut errors, new, Some(old), context);
        volume_update(&mut errors, new.object(), old.object());
        errors
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
        volume_spec(errors, &spec, &new.metadata.name, false, old_spec);
    }

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

/// Defaults volume sources shared by Pods and PersistentVolumes.
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

/// Sets `lastPhaseTransitionTime` if the phase changed and the client did not set it.
fn phase_transition(object: &mut Object, old: &Object, context: &Context<'_>) {
    const TIME: &str = "lastPhaseTransitionTime";
    let old_status = get(old, "status").cloned().unwrap_or_default();
    let Some(status) = get_mut(object, "status") else {
        return;
    };
    let is_unset = !status.contains_key(TIME);
    if text(status, "phase") == text(&old_status, "phase") {
        if is_unset {
            copy_field(status, &old_status, TIME);
        }
    } else if is_unset || status.get(TIME) == old_status.get(TIME) {
        status.insert(TIME.to_owned(), Value::from(context.now.to_string()));
    }
}

/// The beta annotation of the storage class.
const OLD_CLASS: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

/// Access modes and their abbreviations, in printing order.
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

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
pub(super) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Validates access modes, which are optional here.
pub(super) fn access_mode_rules(errors: &mut FieldErrors, at: &At<'_, '_>) {
    for mode in at.texts().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.push(FieldError::not_supported(
            &at.path,
            Shown::Named(mode),
            &ACCESS_MODES,
        ));
    }
    let is_single = |mode: &str| mode == "ReadWriteOncePod";
    let is_other = |mode: &str| ACCESS_MODES.contains(&mode) && !is_single(mode);
    if at.texts().any(is_single) && at.texts().any(is_other) {
        let detail = "may not use ReadWriteOncePod with other access modes";
        at.forbidden(errors, detail);
    }
}

/// Validates the spec of a volume, which may be inline in a VolumeAttachment.
///
/// UPSTREAM: pkg/apis/core/validation/validation.go (ValidatePersistentVolumeSpec)
pub(in crate::builtin) fn volume_spec(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    name: &str,
    inline: bool,
    old: Option<&Object>,
) {
    const INLINE: &str = "may not be specified in the context of inline volumes";
    let capacity = at.at("capacity");
    if inline {
        if at.at("claimRef").is_set() {
            at.at("claimRef").forbidden(errors, INLINE);
        }
        if !capacity.is_empty() {
            capacity.forbidden(errors, INLINE);
        }
        if !at.at("csi").is_set() {
            let detail = "has to be specified in the context of inline volumes";
            at.at("csi").required_because(errors, detail);
        }
    }
    at.at("accessModes").must_be_set(errors);
    access_mode_rules(errors, &at.at("accessModes"));
    if !inline {
        capacity.must_be_set(errors);
        if !capacity.entry("storage").is_set() || capacity.len() > 1 {
            let shown = capacity
                .value
                .map_or_else(|| String::from("null"), lockgate_go::json::to_string);
            errors.push(FieldError::not_supported(
                &capacity.path,
                Shown::Rendered(&shown),
                &["storage"],
            ));
        }
        for (_, amount) in capacity.entries() {
            if let Some(quantity) = amount.quantity() {
                let value = quantity.rounded_up(0);
                if value < 0 {
                    amount.invalid_as(
                        errors,
                        Shown::Integer(value),
                        "must be a valid resource quantity",
                    );
                }
                positive_quantity(errors, &amount);
            }
        }
    }
    let policy = at.at("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        if inline {
            if policy.text() != "Retain" {
                let detail = "may only be Retain in the context of inline volumes";
                policy.forbidden(errors, detail);
            }
        } else {
            policy.known(errors, &["Delete", "Recycle", "Retain"]);
        }
    }
    let affinity = at.at("nodeAffinity");
    if affinity.is_set() {
        if inline {
            affinity.forbidden(errors, INLINE);
        } else if affinity.at("required").is_set() {
            let required = affinity.at("required");
            let did_before = old.is_some_and(has_invalid_values);
            node_selector(errors, &required, did_before);
        } else {
            let detail = "must specify required node constraints";
            affinity.at("required").required_because(errors, detail);
        }
    }
    let holder = Holder {
        name,
        is_pod: false,
        allows_distant_token: false,
    };
    one_source(
        errors,
        at,
        &OF_PERSISTENT_VOLUMES,
        &holder,
        |errors, key| {
            if key == "local" && (inline || !affinity.is_set()) {
                let detail = "Local volume requires node affinity";
                affinity.required_because(errors, detail);
            }
        },
    );
    let host_path = at.at("hostPath");
    if host_path.is_set() && is_root(host_path.at("path").text()) && policy.text() == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        policy.forbidden(errors, detail);
    }
    let class = at.at("storageClassName");
    if !class.is_empty() {
        if inline {
            class.forbidden(errors, INLINE);
        } else {
            class.check(errors, check_subdomain);
        }
    }
    let mode = at.at("volumeMode");
    if mode.is_set() {
        if !inline {
            mode.known(errors, &VOLUME_MODES);
        } else if mode.text() != "Filesystem" {
            mode.forbidden(
                errors,
                "may not specify volumeMode other than Filesystem in the context of inline volumes",
            );
        }
    }
    let attributes = at.at("volumeAttributesClassName");
    if attributes.is_set() && !inline {
        if attributes.is_empty() {
            attributes.required_because(errors, "an empty string is disallowed");
        } else {
            attributes.check(errors, check_subdomain);
        }
        if !at.at("csi").is_set() {
            let detail = "has to be specified when using volumeAttributesClassName";
            at.at("csi").required_because(errors, detail);
        }
    }
}

/// UPSTREAM: Go path/path.go (Clean)
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn has_invalid_values(spec: &Object) -> bool {
    const TERMS: &str = "/required/nodeSelectorTerms";
    let terms = spec
        .get("nodeAffinity")
        .and_then(|affinity| affinity.pointer(TERMS)?.as_array());
    terms
        .into_iter()
        .flatten()
        .filter_map(|term| term.get("matchExpressions")?.as_array())
        .flatten()
        .filter_map(|requirement| requirement.get("values")?.as_array())
        .flatten()
        .any(|value| !check_label_value(value.as_str().unwrap_or_default()).is_empty())
}

pub(super) fn positive_quantity(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if let Some(quantity) = at.quantity().filter(|quantity| quantity.sign() <= 0) {
        at.invalid_as(
            errors,
            Shown::Text(&quantity.to_string()),
            "must be greater than zero",
        );
    }
}

/// Validates which fields of a volume change.
fn volume_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let old_spec = get(old, "spec").unwrap_or(&empty);
    let sources = |spec: &Object| -> Object {
        OF_PERSISTENT_VOLUMES
            .iter()
            .filter_map(|source| Some((source.key.to_owned(), spec.get(source.key)?.clone())))
            .collect()
    };
    let (mut new, former) = (sources(spec), sources(old_spec));
    // The secret for volume expansion may be added.
    const EXPAND: &str = "controllerExpandSecretRef";
    let had_secret = former
        .get("csi")
        .is_some_and(|csi| csi.get(EXPAND).is_some());
    if former.contains_key("csi")
        && !had_secret
        && let Some(csi) = get_mut(&mut new, "csi")
    {
        csi.remove(EXPAND);
    }
    let path = Path::root("");
    let is_same = {
        let (new, former) = (Value::Object(new.clone()), Value::Object(former.clone()));
        At::new(path, Some(&new)).same(&At::new(path, Some(&former)))
    };
    if !is_same {
        let spec = Path::root("spec");
        let (former, new) = (Value::Object(former), Value::Object(new));
        let diff = internal_diff("PersistentVolumeSource", &former, &new);
        errors.push(FieldError::forbidden(
            &spec.child("persistentvolumesource"),
            format!("spec.persistentvolumesource is immutable after creation\n{diff}"),
        ));
    }
    let mode = |spec: &'static str| Path::root(spec);
    At::new(mode("volumeMode"), spec.get("volumeMode")).immutable(
        errors,
        &At::new(mode("volumeMode"), old_spec.get("volumeMode")),
    );
    let affinity = old_spec
        .get("nodeAffinity")
        .filter(|affinity| !affinity.is_null());
    if let Some(former) = affinity
        && !same_affinity(spec.get("nodeAffinity"), former)
    {
        let affinity = spec.get("nodeAffinity");
        let ty = member_type("", "PersistentVolume", &["spec", "nodeAffinity"]);
        let shown = ty.map_or_else(String::new, |ty| internal_form(ty, affinity));
        At::new(Path::root("nodeAffinity"), affinity).invalid_as(
            errors,
            Shown::Rendered(&shown),
            "field is immutable, except for updating from beta label to GA",
        );
    }
    let class = "volumeAttributesClassName";
    let is_set = |spec: &Object| spec.get(class).is_some_and(|class| !class.is_null());
    if is_set(old_spec) && !is_set(spec) {
        let path = Path::root("spec");
        let detail = "update from non-nil value to nil is forbidden";
        errors.push(FieldError::forbidden(&path.child(class), detail));
    }
}

/// Beta node labels may be replaced by their GA labels.
fn same_affinity(new: Option<&Value>, old: &Value) -> bool {
    const NEWER: [(&str, &str); 5] = [
        (
            "failure-domain.beta.kubernetes.io/zone",
            "topology.kubernetes.io/zone",
        ),
        (
            "failure-domain.beta.kubernetes.io/region",
            "topology.kubernetes.io/region",
        ),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        (
            "beta.kubernetes.io/instance-type",
            "node.kubernetes.io/instance-type",
        ),
    ];
    let Some(new) = new else {
        return false;
    };
    let mut old = old.clone();
    let mut at = |pointer: &str| {
        old.pointer_mut(pointer)
            .and_then(|terms| terms.as_array_mut().map(std::mem::take))
    };
    let Some(mut terms) = at("/required/nodeSelectorTerms") else {
        return same_by_type(new, &old);
    };
    for (index, term) in terms.iter_mut().enumerate() {
        let requirements = term
            .get_mut("matchExpressions")
            .and_then(|list| list.as_array_mut());
        for (inner, requirement) in requirements.into_iter().flatten().enumerate() {
            let pointer =
                format!("/required/nodeSelectorTerms/{index}/matchExpressions/{inner}/key");
            let wanted = new.pointer(&pointer).and_then(|key| key.as_str());
            let former = requirement["key"].as_str().unwrap_or_default().to_owned();
            // Upstream looks the newer key up in a map, which returns an empty string for other keys.
            let newer = NEWER.iter().find(|(beta, _)| *beta == former);
            let newer = newer.map_or("", |(_, newer)| *newer);
            if wanted.unwrap_or_default() == newer {
                requirement["key"] = newer.into();
            }
        }
    }
    if let Some(slot) = old.pointer_mut("/required/nodeSelectorTerms") {
        *slot = Value::Array(terms);
    }
    same_by_type(new, &old)
}

fn same_by_type(new: &Value, old: &Value) -> bool {
    member_type("", "PersistentVolume", &["spec", "nodeAffinity"])
        .is_some_and(|ty| semantically_equal(ty, new, old))
}

/// UPSTREAM: pkg/api/persistentvolume/util.go (GetWarningsForPersistentVolume)
fn volume_warnings(object: &Object) -> Vec<String> {
    let mut warnings = Vec::new();
    let metadata = At::root(object, "metadata");
    let annotations = metadata.at("annotations");
    for (key, reason) in [
        (
            "volume.beta.kubernetes.io/storage-class",
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        ),
        (
            "volume.beta.kubernetes.io/mount-options",
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ] {
        if annotations.entry(key).is_set() {
            warnings.push(format!("{}: {reason}", annotations.entry(key).path));
        }
    }
    let spec = At::root(object, "spec");
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if policy.text() == "Recycle" {
        warnings.push(format!(
            "{}: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to \
             use dynamic provisioning.",
            policy.path
        ));
    }
    let affinity = spec.at("nodeAffinity");
    let required = affinity.at("required");
    for term in required.at("nodeSelectorTerms").items() {
        warnings.extend(of_term(&term, false));
    }
    for (key, name, reason) in [
        (
            "cephfs",
            "cephfs",
            "deprecated in v1.28, non-functional in v1.31+",
        ),
        (
            "photonPersistentDisk",
            "photonPersistentDisk",
            "deprecated in v1.11, non-functional in v1.16+",
        ),
        (
            "scaleIO",
            "scaleIO",
            "deprecated in v1.16, non-functional in v1.22+",
        ),
        (
            "storageos",
            "storageOS",
            "deprecated in v1.22, non-functional in v1.25+",
        ),
        (
            "glusterfs",
            "glusterfs",
            "deprecated in v1.25, non-functional in v1.26+",
        ),
        (
            "rbd",
            "rbd",
            "deprecated in v1.28, non-functional in v1.31+",
        ),
    ] {
        if spec.at(key).is_set() {
            warnings.push(format!("{}: {reason}", spec.at(name).path));
        }
    }
    warnings
}
