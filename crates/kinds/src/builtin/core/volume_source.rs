//! Validation of volume sources, shared by Pods and PersistentVolumes.
//!
//! UPSTREAM: pkg/apis/core/validation/validation.go (validateVolumeSource,
//! ValidatePersistentVolumeSpec)

use std::collections::BTreeSet;

use lockgate_api::field::{FieldError, FieldErrors, Shown};
use lockgate_api::meta::names::{check_label_value, check_qualified_name, check_subdomain};
use serde_json::Value;

use crate::at::At;
use crate::checks::{check_label, check_lower_subdomain};
use crate::object::{Object, get};

/// The maximum length of a CSI driver name, in bytes.
const DRIVER_NAME_MAX: usize = 63;
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const MORE_THAN_ONE: &str = "may not specify more than 1 volume type";

/// A volume type.
pub(super) struct Source {
    /// The field name.
    pub(super) key: &'static str,
    /// The field name in the error about a second volume type.
    pub(super) second: &'static str,
    /// The field name in errors about its own fields.
    pub(super) path: &'static str,
    /// True if it is validated even next to another volume type.
    beside_others: bool,
    /// Validates its fields.
    pub(super) check: fn(&mut FieldErrors, &At<'_, '_>, &Holder<'_>),
}

/// The owner of a volume source.
pub(super) struct Holder<'h> {
    /// The name of the volume.
    pub(super) name: &'h str,
    /// The volume belongs to a pod rather than to a template.
    pub(super) is_pod: bool,
    /// True if the path of a projected token may be outside the volume, as in the old object.
    pub(super) allows_distant_token: bool,
}

const fn source(
    key: &'static str,
    check: fn(&mut FieldErrors, &At<'_, '_>, &Holder<'_>),
) -> Source {
    Source {
        key,
        second: key,
        path: key,
        beside_others: false,
        check,
    }
}

/// The volume types of Pods, in validation order.
pub(super) static OF_PODS: [Source; 30] = [
    source("emptyDir", empty_dir),
    source("hostPath", host_path),
    source("gitRepo", git_repo),
    Source {
        path: "persistentDisk",
        ..source("gcePersistentDisk", gce_disk)
    },
    source("awsElasticBlockStore", aws_disk),
    source("secret", |e, at, _| named_files(e, at, "secretName")),
    source("nfs", nfs),
    source("iscsi", iscsi),
    source("glusterfs", |e, at, _| {
        require(e, at, &["endpoints", "path"])
    }),
    source("flocker", flocker),
    source("persistentVolumeClaim", |e, at, _| {
        require(e, at, &["claimName"]);
    }),
    source("rbd", |e, at, _| require(e, at, &["monitors", "image"])),
    source("cinder", cinder),
    Source {
        second: "cephFS",
        ..source("cephfs", |e, at, _| require(e, at, &["monitors"]))
    },
    source("quobyte", quobyte),
    Source {
        second: "downwarAPI",
        ..source("downwardAPI", downward)
    },
    source("fc", fibre_channel),
    source("flexVolume", flex),
    source("configMap", |e, at, _| named_files(e, at, "name")),
    source("azureFile", |e, at, _| {
        require(e, at, &["secretName", "shareName"]);
    }),
    source("vsphereVolume", |e, at, _| require(e, at, &["volumePath"])),
    source("photonPersistentDisk", |e, at, _| {
        require(e, at, &["pdID"]);
    }),
    source("portworxVolume", |e, at, _| require(e, at, &["volumeID"])),
    source("azureDisk", azure_disk),
    source("storageos", storage_os),
    source("projected", projected),
    source("scaleIO", |e, at, _| {
        require(e, at, &["gateway", "system", "volumeName"]);
    }),
    source("csi", csi),
    source("ephemeral", ephemeral),
    source("image", image),
];

/// The volume types of PersistentVolumes, in validation order.
pub(super) static OF_PERSISTENT_VOLUMES: [Source; 22] = [
    source("hostPath", host_path),
    Source {
        path: "persistentDisk",
        ..source("gcePersistentDisk", gce_disk)
    },
    source("awsElasticBlockStore", aws_disk),
    source("glusterfs", persistent_glusterfs),
    source("flocker", flocker),
    source("nfs", nfs),
    source("rbd", |e, at, _| require(e, at, &["monitors", "image"])),
    source("quobyte", quobyte),
    Source {
        second: "cephFS",
        ..source("cephfs", |e, at, _| require(e, at, &["monitors"]))
    },
    source("iscsi", persistent_iscsi),
    source("cinder", persistent_cinder),
    source("fc", fibre_channel),
    Source {
        beside_others: true,
        ..source("flexVolume", flex)
    },
    source("azureFile", persistent_azure_file),
    source("vsphereVolume", |e, at, _| require(e, at, &["volumePath"])),
    source("photonPersistentDisk", |e, at, _| {
        require(e, at, &["pdID"]);
    }),
    source("portworxVolume", |e, at, _| require(e, at, &["volumeID"])),
    source("azureDisk", azure_disk),
    source("scaleIO", |e, at, _| {
        require(e, at, &["gateway", "system", "volumeName"]);
    }),
    source("local", local),
    source("storageos", persistent_storage_os),
    source("csi", persistent_csi),
];

/// Validates that exactly one source is set, and its fields.
pub(super) fn one_source(
    errors: &mut FieldErrors,
    volume: &At<'_, '_>,
    sources: &[Source],
    holder: &Holder<'_>,
    mut each: impl FnMut(&mut FieldErrors, &str),
) {
    let mut found = 0;
    for source in sources {
        if !volume.at(source.key).is_set() {
            continue;
        }
        if found > 0 && !source.beside_others {
            volume.at(source.second).forbidden(errors, MORE_THAN_ONE);
        } else {
            (source.check)(errors, &volume.at_as(source.key, source.path), holder);
            found += 1;
            each(errors, source.key);
        }
    }
    if found == 0 {
        volume.required_because(errors, "must specify a volume type");
    }
}

/// Reports empty required fields.
fn require(errors: &mut FieldErrors, at: &At<'_, '_>, members: &[&str]) {
    for member in members {
        at.at(member).must_be_set(errors);
    }
}

fn empty_dir(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    let limit = at.at("sizeLimit");
    if limit.quantity().is_some_and(|limit| limit.sign() < 0) {
        limit.forbidden(errors, "SizeLimit field must be a valid resource quantity");
    }
}

fn host_path(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    const TYPES: [&str; 8] = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    if at.at("path").is_empty() {
        return at.at("path").required(errors);
    }
    no_backsteps(errors, &at.at("path"));
    at.at("type").known_if_set(errors, &TYPES);
}

fn git_repo(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    at.at("repository").must_be_set(errors);
    descending(errors, &at.at("directory"));
}

fn partition(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let partition = at.at("partition");
    if !(0..=255).contains(&partition.int()) {
        partition.invalid_int(errors, "must be between 1 and 255, inclusive");
    }
}

fn gce_disk(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    at.at("pdName").must_be_set(errors);
    partition(errors, at);
}

fn aws_disk(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    at.at("volumeID").must_be_set(errors);
    partition(errors, at);
}

fn file_mode(errors: &mut FieldErrors, mode: &At<'_, '_>) {
    if mode.is_set() && !(0..=0o777).contains(&mode.int()) {
        mode.invalid_int(errors, FILE_MODE);
    }
}

/// Validates Secret and ConfigMap volumes.
fn named_files(errors: &mut FieldErrors, at: &At<'_, '_>, name: &str) {
    at.at(name).must_be_set(errors);
    file_mode(errors, &at.at("defaultMode"));
    for item in at.at("items").items() {
        key_to_path(errors, &item);
    }
}

fn key_to_path(errors: &mut FieldErrors, item: &At<'_, '_>) {
    item.at("key").must_be_set(errors);
    item.at("path").must_be_set(errors);
    not_reserved(errors, &item.at("path"));
    file_mode(errors, &item.at("mode"));
}

fn nfs(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    require(errors, at, &["server", "path"]);
    if !at.at("path").text().starts_with('/') {
        at.at("path").invalid(errors, "must be an absolute path");
    }
}

/// Matches `iqn.yyyy-mm.domain:name`.
fn is_iqn(text: &str) -> bool {
    let is_domain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let parts = text
        .strip_prefix("iqn.")
        .and_then(|rest| rest.split_once(':'));
    let Some((authority, name)) = parts else {
        return false;
    };
    let (date, domain) = authority.split_at_checked(8).unwrap_or_default();
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        4 => byte == b'-',
        7 => byte == b'.',
        _ => byte.is_ascii_digit(),
    });
    is_date
        && !domain.is_empty()
        && domain.bytes().all(is_domain)
        && !name.is_empty()
        && !name.contains([',', ';', '*', '&', '$', '|'])
        && !name.contains([' ', '\t', '\n', '\r', '\x0c'])
}

/// Matches a prefix of three letters, any character, and `length` letters and digits.
fn has_identifier(text: &str, length: usize) -> bool {
    let mut rest = text.chars().skip(4);
    text.chars().count() == length + 4 && rest.all(|c| c.is_ascii_alphanumeric())
}

/// Validates the qualified name of an iSCSI target or initiator.
fn qualified_name(errors: &mut FieldErrors, at: &At<'_, '_>, unknown: &str) {
    let text = at.text();
    let is_good = match text.get(..3) {
        Some("iqn") => is_iqn(text),
        Some("eui") => has_identifier(text, 16),
        Some("naa") => has_identifier(text, 32),
        _ => return at.invalid(errors, unknown),
    };
    if !is_good {
        at.invalid(errors, "must be valid format");
    }
}

const PORTAL_TOO_LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 \
    characters if iscsi.initiatorName is specified.";

fn is_portal_too_long(at: &At<'_, '_>, name: &str) -> bool {
    at.at("initiatorName").is_set() && name.len() + 1 + at.at("targetPortal").text().len() > 64
}

fn iscsi_members(errors: &mut FieldErrors, at: &At<'_, '_>, unknown: &str, needs_name: bool) {
    if at.at("iqn").is_empty() {
        at.at("iqn").required(errors);
    } else {
        qualified_name(errors, &at.at("iqn"), unknown);
    }
    at.at("lun").within(errors, 0, 255);
    let authenticates = at.at("chapAuthDiscovery").flag() || at.at("chapAuthSession").flag();
    let secret = at.at("secretRef");
    if authenticates && !secret.is_set() {
        secret.required(errors);
    }
    if needs_name && secret.is_set() {
        secret.at("name").must_be_set(errors);
    }
    if at.at("initiatorName").is_set() {
        qualified_name(errors, &at.at_as("initiatorName", "initiatorname"), unknown);
    }
}

fn iscsi(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    at.at("targetPortal").must_be_set(errors);
    let unknown = "must be valid format starting with iqn, eui, or naa";
    iscsi_members(errors, at, unknown, false);
}

/// Validates the length of portal and volume name, independently of other errors.
pub(super) fn iscsi_portal(errors: &mut FieldErrors, volume: &At<'_, '_>) {
    let name = volume.at("name");
    if is_portal_too_long(&volume.at("iscsi"), name.text()) {
        name.invalid(errors, PORTAL_TOO_LONG);
    }
}

fn persistent_iscsi(errors: &mut FieldErrors, at: &At<'_, '_>, holder: &Holder<'_>) {
    at.at("targetPortal").must_be_set(errors);
    if is_portal_too_long(at, holder.name) {
        at.at_as("targetPortal", "targetportal")
            .invalid(errors, PORTAL_TOO_LONG);
    }
    iscsi_members(errors, at, "must be valid format", true);
}

fn persistent_glusterfs(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    require(errors, at, &["endpoints", "path"]);
    let namespace = at.at("endpointsNamespace");
    if namespace.is_set() {
        if namespace.text().is_empty() {
            let detail = "if the endpointnamespace is set, it must be a valid namespace name";
            namespace.invalid(errors, detail);
        } else {
            namespace.check(errors, check_label);
        }
    }
}

fn flocker(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    let (name, uuid) = (at.at("datasetName"), at.at("datasetUUID"));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => {
            at.required_because(errors, "one of datasetName and datasetUUID is required");
        }
        (false, false) => at.invalid_as(
            errors,
            Shown::Text("resource"),
            "datasetName and datasetUUID can not be specified simultaneously",
        ),
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid(errors, "must not contain '/'");
    }
}

fn cinder(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    at.at("volumeID").must_be_set(errors);
    if at.at("secretRef").is_set() {
        require(errors, &at.at("secretRef"), &["name"]);
    }
}

fn persistent_cinder(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    at.at("volumeID").must_be_set(errors);
    if at.at("secretRef").is_set() {
        require(errors, &at.at("secretRef"), &["name", "namespace"]);
    }
}

fn quobyte(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (at.at("registry"), at.at("tenant"));
    if registry.is_empty() {
        registry.required_because(errors, PAIRS);
    } else if tenant.text().len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        tenant.required_because(errors, detail);
    } else {
        for pair in registry.text().split(',') {
            if !is_host_and_port(pair) {
                registry.invalid(errors, PAIRS);
            }
        }
    }
    at.at("volume").must_be_set(errors);
}

/// UPSTREAM: Go net/ipsock.go (SplitHostPort)
fn is_host_and_port(pair: &str) -> bool {
    if let Some(rest) = pair.strip_prefix('[') {
        return rest
            .split_once(']')
            .is_some_and(|(host, port)| !host.contains('[') && is_plain_port(port));
    }
    let Some((host, port)) = pair.rsplit_once(':') else {
        return false;
    };
    !host.contains([':', '[', ']']) && !port.contains(['[', ']'])
}

fn is_plain_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| !port.contains([':', '[', ']']))
}

const FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const LABELS_OF_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Splits a path with a subscript: `metadata.labels['a']`.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (name, subscript) = path.strip_suffix("']")?.split_once("['")?;
    (!name.is_empty()).then_some((name, subscript))
}

/// Validates a `fieldRef`.
pub(super) fn field_reference(errors: &mut FieldErrors, at: &At<'_, '_>, fields: &[&str]) {
    for member in ["apiVersion", "fieldPath"] {
        if at.at(member).is_empty() {
            return at.at(member).required(errors);
        }
    }
    let path = at.at("fieldPath");
    let label = path.text();
    let reason = match subscripted(label) {
        _ if at.at("apiVersion").text() != "v1" => {
            format!("unsupported pod version: {}", at.at("apiVersion").text())
        }
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            for message in check_qualified_name(&key) {
                at.invalid_as(errors, Shown::Text(&key), message);
            }
            return;
        }
        Some(("metadata.labels", key)) => {
            for message in check_qualified_name(key) {
                at.invalid_as(errors, Shown::Text(key), message);
            }
            return;
        }
        Some(_) => format!("field label does not support subscript: {label}"),
        None if !LABELS_OF_FIELDS.contains(&label) && label != "spec.host" => {
            format!("field label not supported: {label}")
        }
        None => {
            let known = if label == "spec.host" {
                "spec.nodeName"
            } else {
                label
            };
            if !fields.contains(&known) {
                errors.push(FieldError::not_supported(
                    &path.path,
                    Shown::Text(known),
                    fields,
                ));
            }
            return;
        }
    };
    path.invalid(errors, format!("error converting fieldPath: {reason}"));
}

/// Validates a `resourceFieldRef`.
pub(super) fn resource_reference(errors: &mut FieldErrors, at: &At<'_, '_>, in_volume: bool) {
    let resource = at.at("resource");
    let name = resource.text();
    let is_huge = ["requests.hugepages-", "limits.hugepages-"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if in_volume && at.at("containerName").is_empty() {
        at.at("containerName").required(errors);
    } else if name.is_empty() {
        resource.required(errors);
    } else if !RESOURCES.contains(&name) && !is_huge {
        errors.push(FieldError::not_supported(
            &resource.path,
            Shown::Text(name),
            &RESOURCES,
        ));
    }
    let divisor = at.at("divisor");
    let Some(amount) = divisor.quantity().filter(|amount| amount.sign() != 0) else {
        return;
    };
    const UNITS: [&str; 13] = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    let amount = amount.to_string();
    let (is_good, units, what) = match name.split_once('.').map_or("", |(_, what)| what) {
        _ if is_huge => (UNITS.contains(&amount.as_str()), "", "hugepages"),
        "cpu" => (matches!(amount.as_str(), "1m" | "1"), "1m and 1", "cpu"),
        "memory" => (UNITS.contains(&amount.as_str()), "", "memory"),
        "ephemeral-storage" => (
            UNITS.contains(&amount.as_str()),
            "",
            "local ephemeral storage",
        ),
        _ => return,
    };
    if !is_good {
        let units = if units.is_empty() {
            UNITS.join(", ")
        } else {
            units.to_owned()
        };
        let detail =
            format!("only divisor's values {units} are supported with the {what} resource");
        divisor.invalid_as(errors, Shown::Text(name), detail);
    }
}

/// Validates downward API files; upstream's error paths are those of the volume.
fn downward_file(errors: &mut FieldErrors, volume: &At<'_, '_>, file: &Value) {
    let file = At::new(volume.path, Some(file));
    file.at("path").must_be_set(errors);
    not_reserved(errors, &file.at("path"));
    let (field, resource) = (file.at("fieldRef"), file.at("resourceFieldRef"));
    if field.is_set() {
        field_reference(errors, &field, &FIELDS);
        if resource.is_set() {
            file.invalid_as(
                errors,
                Shown::Text("resource"),
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
    } else if resource.is_set() {
        resource_reference(errors, &resource, true);
    } else {
        let detail = "one of fieldRef and resourceFieldRef is required";
        file.required_because(errors, detail);
    }
    file_mode(errors, &file.at("mode"));
}

fn downward(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    file_mode(errors, &at.at("defaultMode"));
    for file in at.at("items").list() {
        downward_file(errors, at, file);
    }
}

fn fibre_channel(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    let (names, ids, lun) = (at.at("targetWWNs"), at.at("wwids"), at.at("lun"));
    if names.is_empty() && ids.is_empty() {
        let detail = "must specify either targetWWNs or wwids, but not both";
        names.required_because(errors, detail);
    }
    if names.is_empty() {
        return;
    }
    if !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        names.invalid(errors, detail);
    }
    if lun.is_set() {
        lun.within(errors, 0, 255);
    } else {
        lun.required_because(errors, "lun is required if targetWWNs is specified");
    }
}

fn flex(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    at.at("driver").must_be_set(errors);
    for (key, option) in at.at("options").entries() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            option.invalid_as(errors, Shown::Text(key), detail);
        }
    }
}

fn persistent_azure_file(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    require(errors, at, &["secretName", "shareName"]);
    if at.at("secretNamespace").is_set() {
        at.at("secretNamespace").must_be_set(errors);
    }
}

fn azure_disk(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    const MANAGED: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str =
        "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    require(errors, at, &["diskName", "diskURI"]);
    at.at("cachingMode")
        .known_if_set(errors, &["None", "ReadOnly", "ReadWrite"]);
    let kind = at.at("kind");
    kind.known_if_set(errors, &["Dedicated", "Managed", "Shared"]);
    let uri = at.at("diskURI");
    if !kind.is_set() {
        return;
    }
    let (start, form) = match kind.text() {
        "Managed" => ("/subscriptions/", MANAGED),
        _ => ("https://", BLOB),
    };
    if !uri.text().starts_with(start) {
        errors.push(FieldError::not_supported(
            &uri.path,
            Shown::Text(uri.text()),
            &[form],
        ));
    }
}

fn storage_os(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    storage_os_names(errors, at);
    if at.at("secretRef").is_set() {
        require(errors, &at.at("secretRef"), &["name"]);
    }
}

fn persistent_storage_os(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    storage_os_names(errors, at);
    if at.at("secretRef").is_set() {
        require(errors, &at.at("secretRef"), &["name", "namespace"]);
    }
}

fn storage_os_names(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.at("volumeName").check_required(errors, check_label);
    at.at("volumeNamespace").check_set(errors, check_label);
}

fn local(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    if at.at("path").is_empty() {
        return at.at("path").required(errors);
    }
    no_backsteps(errors, &at.at("path"));
}

/// Validates the name of a CSI driver.
pub(in crate::builtin) fn driver_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_empty() {
        return at.required(errors);
    }
    if at.text().len() > DRIVER_NAME_MAX {
        at.too_long(errors, DRIVER_NAME_MAX);
    }
    at.check(errors, check_lower_subdomain);
}

fn csi(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    driver_name(errors, &at.at("driver"));
    let secret = at.at("nodePublishSecretRef");
    if !secret.is_set() {
        return;
    }
    let name = secret.at("name");
    if name.is_empty() {
        return name.required(errors);
    }
    for message in check_subdomain(name.text()) {
        at.at("name")
            .invalid_as(errors, Shown::Text(name.text()), message);
    }
}

fn persistent_csi(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    driver_name(errors, &at.at("driver"));
    at.at("volumeHandle").must_be_set(errors);
    for member in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let secret = at.at(member);
        if secret.is_set() {
            secret.at("name").check_required(errors, check_subdomain);
            secret.at("namespace").check_required(errors, check_label);
        }
    }
}

fn ephemeral(errors: &mut FieldErrors, at: &At<'_, '_>, _: &Holder<'_>) {
    let template = at.at("volumeClaimTemplate");
    if template.is_set() {
        template_metadata(errors, &template.at("metadata"));
        super::persistent_volume_claim::claim_spec(errors, &template.at("spec"), None);
    } else {
        template.required(errors);
    }
}

/// Validates the metadata of a claim template, which may have annotations and labels only.
///
/// UPSTREAM: pkg/apis/core/validation/validation.go (ValidateTemplateObjectMeta)
pub(in crate::builtin) fn template_metadata(errors: &mut FieldErrors, at: &At<'_, '_>) {
    /// The other fields, in struct order.
    const OTHERS: [&str; 13] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    annotations(errors, &at.at("annotations"));
    at.at("labels").labels(errors);
    for key in OTHERS {
        let member = at.at(key);
        let is_zero = match member.value {
            None => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Number(number)) => number.as_i64() == Some(0) && key == "generation",
            Some(_) => false,
        };
        if !is_zero {
            // Upstream lowercases the first letter of the Go field name.
            let name = if key == "uid" { "uID" } else { key };
            At::new(at.path.child(name), None).forbidden(errors, "cannot be set");
        }
    }
}

/// Validates the name of an ephemeral volume's claim, which is composed of Pod and volume name.
pub(super) fn ephemeral_claim_name(errors: &mut FieldErrors, volume: &At<'_, '_>, pod: &str) {
    let name = volume.at("name");
    if pod.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", name.text());
    for message in check_subdomain(&claim) {
        let quoted = lockgate_go::quote::quote(&claim);
        name.invalid(errors, format!("PVC name {quoted}: {message}"));
    }
}

/// Validates the keys of annotations and their total size.
pub(in crate::builtin) fn annotations(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const MAX: usize = 256 * 1024;
    let mut total = 0;
    for (key, value) in at.object().into_iter().flatten() {
        let key_to_check = key.to_lowercase();
        for message in check_qualified_name(&key_to_check) {
            at.invalid_as(errors, Shown::Text(key), message);
        }
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > MAX {
        at.too_long(errors, MAX);
    }
}

fn image(errors: &mut FieldErrors, at: &At<'_, '_>, holder: &Holder<'_>) {
    if holder.is_pod {
        at.at("reference").must_be_set(errors);
    }
    at.at("pullPolicy")
        .one_of(errors, &["Always", "IfNotPresent", "Never"]);
}

/// Validates a relative path without `..`.
pub(super) fn descending(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.text().starts_with('/') {
        at.invalid(errors, "must be a relative path");
    }
    no_backsteps(errors, at);
}

pub(super) fn no_backsteps(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if has_backsteps(at.text()) {
        at.invalid(errors, "must not contain '..'");
    }
}

pub(super) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

fn not_reserved(errors: &mut FieldErrors, at: &At<'_, '_>) {
    descending(errors, at);
    if at.text().starts_with("..") && !at.text().starts_with("../") {
        at.invalid(errors, "must not start with '..'");
    }
}

fn projected(errors: &mut FieldErrors, at: &At<'_, '_>, holder: &Holder<'_>) {
    file_mode(errors, &at.at("defaultMode"));
    let mut paths = BTreeSet::new();
    let mut claim = |errors: &mut FieldErrors, path: &str, shown: &str| {
        if !paths.insert(path.to_owned()) {
            at.invalid_as(errors, Shown::Text(shown), "conflicting duplicate paths");
        }
    };
    for source in at.at("sources").items() {
        let mut found = 0;
        for member in ["secret", "configMap"] {
            let projection = source.at(member);
            if !projection.is_set() {
                continue;
            }
            found += 1;
            projection.at("name").must_be_set(errors);
            for item in projection.at("items").items() {
                key_to_path(errors, &item);
                if !item.at("path").is_empty() {
                    claim(errors, item.at("path").text(), projection.at("name").text());
                }
            }
        }
        let projection = source.at("downwardAPI");
        if projection.is_set() {
            found += 1;
            for file in projection.at("items").list() {
                downward_file(errors, &projection, file);
                let path = file.get("path").and_then(Value::as_str).unwrap_or_default();
                if !path.is_empty() {
                    claim(errors, path, path);
                }
            }
        }
        let projection = source.at("serviceAccountToken");
        if projection.is_set() {
            found += 1;
            token(errors, at, &projection, holder);
        }
        let projection = source.at("clusterTrustBundle");
        if projection.is_set() {
            found += 1;
            trust_bundle(errors, &projection);
            let path = projection.at("path").text();
            claim(errors, path, path);
        }
        let projection = source.at("podCertificate");
        if projection.is_set() {
            found += 1;
            pod_certificate(errors, &projection);
            let members = ["credentialBundlePath", "keyPath", "certificateChainPath"];
            let mut is_given = false;
            for member in members {
                let path = projection.at(member);
                if !path.is_empty() {
                    is_given = true;
                    not_reserved(errors, &path);
                    claim(errors, path.text(), path.text());
                }
            }
            if !is_given {
                projection.required_because(
                    errors,
                    "specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
                );
            }
        }
        if found > 1 {
            let detail = "may not specify more than 1 volume type per source";
            source.forbidden(errors, detail);
        }
    }
}

fn token(
    errors: &mut FieldErrors,
    volume: &At<'_, '_>,
    projection: &At<'_, '_>,
    holder: &Holder<'_>,
) {
    let expiration = projection.at("expirationSeconds");
    if expiration.int() < 10 * 60 {
        expiration.invalid_int(errors, "may not specify a duration less than 10 minutes");
    }
    if expiration.int() > 1 << 32 {
        expiration.invalid_int(
            errors,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    // Upstream reports the path of the volume.
    let path = At::new(
        volume.path.child("path"),
        projection.value.and_then(|value| value.get("path")),
    );
    if path.is_empty() {
        path.required(errors);
    } else if !holder.allows_distant_token {
        not_reserved(errors, &path);
    }
}

fn trust_bundle(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let (name, signer, selector) = (at.at("name"), at.at("signerName"), at.at("labelSelector"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => {
            let detail = "only one of name and signerName may be used";
            at.invalid(errors, detail);
        }
        (true, false) => {
            if name.is_empty() {
                name.required_because(errors, "must be a valid object name");
            }
            // Names of ClusterTrustBundles with a signer have the signer name as prefix.
            let rest = name
                .text()
                .rsplit_once(':')
                .map_or_else(|| name.text(), |(_, rest)| rest);
            for message in check_subdomain(rest) {
                name.invalid(
                    errors,
                    format!("not a valid clustertrustbundlename: {message}"),
                );
            }
            if selector.is_set() {
                selector.invalid(errors, "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if signer.is_empty() {
                signer.required_because(errors, "must be a valid signer name");
            }
            crate::builtin::certificates::signer_name(errors, &signer);
            selector.label_selector(errors);
        }
        (false, false) => {
            let detail = "either name or signerName must be specified";
            at.required_because(errors, detail);
        }
    }
    at.at("path").must_be_set(errors);
    not_reserved(errors, &at.at("path"));
}

fn pod_certificate(errors: &mut FieldErrors, at: &At<'_, '_>) {
    crate::builtin::certificates::signer_name(errors, &at.at("signerName"));
    at.at("keyType").known(
        errors,
        &[
            "RSA3072",
            "RSA4096",
            "ECDSAP256",
            "ECDSAP384",
            "ECDSAP521",
            "ED25519",
        ],
    );
    let most = at.at("maxExpirationSeconds");
    if !most.is_set() {
        return;
    }
    if most.int() < 3600 {
        most.invalid_int(errors, "if provided, maxExpirationSeconds must be >= 3600");
    }
    let is_own = at.at("signerName").text().starts_with("kubernetes.io/");
    let limit = if is_own { 86400 } else { 91 * 86400 };
    if most.int() > limit {
        most.invalid_int(
            errors,
            format!("if provided, maxExpirationSeconds must be <= {limit}"),
        );
    }
}

/// Returns true if a container can use the volume as a block device.
pub(super) fn is_claim(volume: &Object) -> bool {
    get(volume, "persistentVolumeClaim").is_some() || get(volume, "ephemeral").is_some()
}

/// Validates a node selector requirement.
fn node_requirement(errors: &mut FieldErrors, at: &At<'_, '_>, allows_values: bool) {
    let (operator, values) = (at.at("operator"), at.at("values"));
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => values.required_because(
            errors,
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        "Exists" | "DoesNotExist" if !values.is_empty() => values.forbidden(
            errors,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "Gt" | "Lt" if values.len() != 1 => values.required_because(
            errors,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => operator.invalid(errors, "not a valid selector operator"),
    }
    at.at("key").check(errors, check_qualified_name);
    if !allows_values {
        for value in values.items() {
            value.check(errors, check_label_value);
        }
    }
}

/// Validates a node field requirement; the only field is `metadata.name`.
fn node_field(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let (operator, values, key) = (at.at("operator"), at.at("values"), at.at("key"));
    match operator.text() {
        "In" | "NotIn" if values.len() != 1 => values.required_because(
            errors,
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        "In" | "NotIn" => {}
        _ => operator.invalid(errors, "not a valid selector operator"),
    }
    if key.text() != "metadata.name" {
        return key.invalid(errors, "not a valid field selector key");
    }
    for value in values.items() {
        value.check(errors, check_subdomain);
    }
}

/// Validates a node selector term.
pub(super) fn node_selector_term(errors: &mut FieldErrors, at: &At<'_, '_>, allows_values: bool) {
    for requirement in at.at("matchExpressions").items() {
        node_requirement(errors, &requirement, allows_values);
    }
    for requirement in at.at("matchFields").items() {
        node_field(errors, &requirement);
    }
}

/// Validates a node selector.
pub(in crate::builtin) fn node_selector(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    allows_values: bool,
) {
    let terms = at.at("nodeSelectorTerms");
    if terms.is_empty() {
        return terms.required_because(errors, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_selector_term(errors, &term, allows_values);
    }
}
