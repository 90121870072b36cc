//! Services, config maps, secrets, storage classes.

use std::collections::BTreeSet;

use serde_json::Value;

use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
use lockgate_go::base64;

use crate::defaults::object::{Object, flag, get, is_empty, list, number, text};

use super::super::names::check_label;
use super::common::{
    check_config_key, check_port_name, immutable, invalid_each, one_of, port_number, required,
};

/// The most data a config map or a secret may hold, in bytes.
///
/// UPSTREAM: pkg/apis/core/types.go (MaxSecretSize).
const MAX_DATA: usize = 1024 * 1024;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

pub(super) fn service(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = list(spec, "ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        required(errors, &path.child("ports"));
    }
    if kind == "ExternalName" {
        if !text(spec, "clusterIP").is_empty() || !is_empty(spec, "clusterIPs") {
            errors.push(FieldError::forbidden(
                &path.child("clusterIPs"),
                "may not be set for ExternalName services",
            ));
        }
        let name = text(spec, "externalName");
        let name_path = path.child("externalName");
        match name.strip_suffix('.').unwrap_or(name) {
            "" => required(errors, &name_path),
            name => invalid_each(errors, &name_path, name, check_subdomain(name)),
        }
    }
    let ports_path = path.child("ports");
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().filter_map(Value::as_object).enumerate() {
        service_port(
            errors,
            port,
            ports.len() > 1,
            &mut names,
            &ports_path.index(index),
        );
    }
    one_of(
        errors,
        spec,
        "sessionAffinity",
        &path,
        &["ClientIP", "None"],
    );
    one_of(
        errors,
        spec,
        "type",
        &path,
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    if kind == "ClusterIP" {
        for (index, port) in ports.iter().filter_map(Value::as_object).enumerate() {
            if number(port, "nodePort") != 0 {
                let port_path = ports_path.index(index);
                errors.push(FieldError::forbidden(
                    &port_path.child("nodePort"),
                    "may not be used when `type` is 'ClusterIP'",
                ));
            }
        }
    }
    duplicate_ports(errors, ports, &ports_path);
}

fn service_port(
    errors: &mut FieldErrors,
    port: &Object,
    named: bool,
    names: &mut BTreeSet<String>,
    path: &Path<'_>,
) {
    let name = text(port, "name");
    let name_path = path.child("name");
    if named && name.is_empty() {
        required(errors, &name_path);
    } else if !name.is_empty() {
        invalid_each(errors, &name_path, name, check_label(name));
        if !names.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(&name_path, Shown::Text(name)));
        }
    }
    port_number(errors, number(port, "port"), &path.child("port"));
    one_of(errors, port, "protocol", path, PROTOCOLS);
    let target = path.child("targetPort");
    match port.get("targetPort") {
        Some(Value::String(name)) => invalid_each(errors, &target, name, check_port_name(name)),
        Some(Value::Number(number)) => {
            port_number(errors, number.as_i64().unwrap_or_default(), &target);
        }
        _ => {}
    }
    let protocol = text(port, "appProtocol");
    if !protocol.is_empty() {
        invalid_each(
            errors,
            &path.child("appProtocol"),
            protocol,
            check_qualified_name(protocol),
        );
    }
}

fn duplicate_ports(errors: &mut FieldErrors, ports: &[Value], path: &Path<'_>) {
    let (mut node_ports, mut own_ports) = (BTreeSet::new(), BTreeSet::new());
    let mut own_errors = Vec::new();
    for (index, port) in ports.iter().filter_map(Value::as_object).enumerate() {
        let path = path.index(index);
        let protocol = text(port, "protocol");
        let node_port = number(port, "nodePort");
        if node_port != 0 && !node_ports.insert((protocol, node_port)) {
            errors.push(FieldError::duplicate(
                &path.child("nodePort"),
                Shown::Integer(node_port),
            ));
        }
        let own = number(port, "port");
        if !own_ports.insert((protocol, own)) {
            // The port in upstream's internal form, all members included.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":{own},\
                 \"TargetPort\":0,\"NodePort\":0}}"
            );
            own_errors.push(FieldError::duplicate(&path, Shown::Rendered(&shown)));
        }
    }
    errors.extend(own_errors);
}

pub(super) fn config_map(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let data = get(object, "data").unwrap_or(&empty);
    let binary = get(object, "binaryData").unwrap_or(&empty);
    let mut size = 0;
    let path = Path::root("data");
    for (key, value) in data {
        let key_path = path.key(key);
        invalid_each(errors, &key_path, key, check_config_key(key));
        if binary.contains_key(key) {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(&key_path, Shown::Text(key), detail));
        }
        size += value.as_str().map_or(0, str::len);
    }
    size += bytes(errors, binary, &Path::root("binaryData"));
    if size > MAX_DATA {
        // Upstream's path of nothing.
        errors.push(FieldError::too_long(&Path::root("[]"), MAX_DATA));
    }
}

/// Checks the keys of binary data and tells its size.
fn bytes(errors: &mut FieldErrors, data: &Object, path: &Path<'_>) -> usize {
    let mut size = 0;
    for (key, value) in data {
        invalid_each(errors, &path.key(key), key, check_config_key(key));
        let text = value.as_str().unwrap_or_default();
        size += base64::decode(text).map_or(0, |bytes| bytes.len());
    }
    size
}

pub(super) fn config_map_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    sealed(errors, object, old, &["data", "binaryData"]);
}

/// What is marked immutable stays as it is, mark included.
fn sealed(errors: &mut FieldErrors, object: &Object, old: &Object, members: &[&str]) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !flag(old, "immutable") {
        return;
    }
    if !flag(object, "immutable") {
        errors.push(FieldError::forbidden(&Path::root("immutable"), DETAIL));
    }
    for member in members {
        if object.get(*member) != old.get(*member) {
            errors.push(FieldError::forbidden(&Path::root(member), DETAIL));
        }
    }
}

pub(super) fn secret(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let data = get(object, "data").unwrap_or(&empty);
    let path = Path::root("data");
    if bytes(errors, data, &path) > MAX_DATA {
        errors.push(FieldError::too_long(&path, MAX_DATA));
    }
    let kind = text(object, "type");
    let must = |errors: &mut FieldErrors, key: &str| {
        if !data.contains_key(key) {
            required(errors, &path.key(key));
        }
    };
    match kind {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            let annotated = get(object, "metadata")
                .and_then(|metadata| get(metadata, "annotations"))
                .is_some_and(|annotations| !text(annotations, NAME).is_empty());
            if !annotated {
                let metadata = Path::root("metadata");
                let annotations = metadata.child("annotations");
                required(errors, &annotations.key(NAME));
            }
        }
        "kubernetes.io/dockercfg" => must(errors, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => must(errors, ".dockerconfigjson"),
        "kubernetes.io/basic-auth"
            if !data.contains_key("username") && !data.contains_key("password") =>
        {
            must(errors, "username");
            must(errors, "password");
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            required(errors, &path.key("ssh-privatekey"));
        }
        "kubernetes.io/tls" => {
            must(errors, "tls.crt");
            must(errors, "tls.key");
        }
        _ => {}
    }
}

pub(super) fn secret_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    immutable(
        errors,
        (object.get("type"), old.get("type")),
        &Path::root("type"),
    );
    sealed(errors, object, old, &["data"]);
}

pub(super) fn storage_class(errors: &mut FieldErrors, object: &Object) {
    let provisioner = text(object, "provisioner");
    let path = Path::root("provisioner");
    if provisioner.is_empty() {
        required(errors, &path);
    } else {
        let lower = provisioner.to_lowercase();
        invalid_each(errors, &path, &lower, check_qualified_name(&lower));
    }
}

pub(super) fn storage_class_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    for key in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        immutable(errors, (object.get(key), old.get(key)), &Path::root(key));
    }
}

pub(super) fn priority_class_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    if object.get("value") != old.get("value") {
        let detail = "may not be changed in an update.";
        errors.push(FieldError::forbidden(&Path::root("value"), detail));
    }
    let key = "preemptionPolicy";
    immutable(errors, (object.get(key), old.get(key)), &Path::root(key));
}

/// A finalizer is one that is known, or belongs to a domain.
pub(super) fn check_finalizer_name(errors: &mut FieldErrors, name: &str, path: &Path<'_>) {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    if !name.contains('/') && !STANDARD.contains(&name) {
        errors.push(FieldError::invalid(
            path,
            Shown::Text(name),
            "name is neither a standard finalizer name nor is it fully qualified",
        ));
    }
}

pub(super) fn namespace(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = Path::root("spec");
    let path = spec.child("finalizers");
    let spec = get(object, "spec").unwrap_or(&empty);
    for name in list(spec, "finalizers").iter().filter_map(Value::as_str) {
        invalid_each(errors, &path, name, check_qualified_name(name));
        check_finalizer_name(errors, name, &path);
    }
}

pub(super) fn persistent_volume_claim(errors: &mut FieldErrors, object: &Object) {
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
