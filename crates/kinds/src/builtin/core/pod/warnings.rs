//! Warnings about Pods and Pod templates.
//!
//! UPSTREAM: pkg/api/pod/warnings.go

use std::collections::{BTreeMap, BTreeSet};

use lockgate_api::meta::names::check_label_value;
use lockgate_go::quote::quote;
use serde_json::Value;

use crate::at::At;
use crate::checks::{check_label, ip_warning};
use crate::object::Object;

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Warnings about a Pod.
pub(super) fn of_pod(object: &Object, name: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let messages = check_label(name);
    if !messages.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising \
             behavior; a DNS label is recommended: [{}]",
            messages.join(" ")
        ));
    }
    let metadata = At::root(object, "metadata");
    warnings.extend(of_spec(
        &At::root(object, "spec"),
        &metadata.at("annotations"),
        false,
    ));
    warnings
}

/// Warnings about a Pod template.
pub(in crate::builtin) fn of_template(template: &At<'_, '_>) -> Vec<String> {
    let metadata = template.at("metadata");
    of_spec(&template.at("spec"), &metadata.at("annotations"), true)
}

/// The deprecation message of a node label.
pub(in crate::builtin) fn deprecated_node_label(label: &str) -> Option<&'static str> {
    Some(match label {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}

/// Warnings about a node selector term.
pub(in crate::builtin) fn of_term(term: &At<'_, '_>, checks_values: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for expression in term.at("matchExpressions").items() {
        let key = expression.at("key");
        if let Some(reason) = deprecated_node_label(key.text()) {
            warnings.push(format!("{}: {} is {reason}", key.path, key.text()));
        }
        if checks_values {
            for value in expression.at("values").items() {
                for message in check_label_value(value.text()) {
                    warnings.push(format!(
                        "{}: {} is invalid, {message}",
                        value.path,
                        value.text()
                    ));
                }
            }
        }
    }
    warnings
}

fn fractional(amounts: &At<'_, '_>, name: &str) -> Option<String> {
    let amount = amounts.entry(name);
    let quantity = amount.quantity()?;
    (quantity.rounded_up(3) % 1000 != 0).then(|| {
        format!(
            "{}: fractional byte value {} is invalid, must be an integer",
            amount.path,
            quote(&quantity.to_string())
        )
    })
}

/// Warnings about a claim spec.
pub(in crate::builtin) fn of_claim(spec: &At<'_, '_>) -> Vec<String> {
    let resources = spec.at("resources");
    let mut warnings = Vec::new();
    for what in ["requests", "limits"] {
        warnings.extend(fractional(&resources.at(what), "storage"));
    }
    warnings
}

fn of_spec(spec: &At<'_, '_>, annotations: &At<'_, '_>, is_template: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, label) in spec.at("nodeSelector").entries() {
        if let Some(reason) = deprecated_node_label(key) {
            warnings.push(format!("{}: {reason}", label.path));
        }
    }
    let affinity = spec.at("affinity");
    let nodes = affinity.at("nodeAffinity");
    let required = nodes.at("requiredDuringSchedulingIgnoredDuringExecution");
    for term in required.at("nodeSelectorTerms").items() {
        warnings.extend(of_term(&term, false));
    }
    for term in nodes
        .at("preferredDuringSchedulingIgnoredDuringExecution")
        .items()
    {
        warnings.extend(of_term(&term.at("preference"), true));
    }
    for constraint in spec.at("topologySpreadConstraints").items() {
        let key = constraint.at("topologyKey");
        if let Some(reason) = deprecated_node_label(key.text()) {
            warnings.push(format!("{}: {} is {reason}", key.path, key.text()));
        }
        if !constraint.at("labelSelector").is_set() {
            let path = constraint.at("labelSelector").path.to_string();
            warnings.push(format!("{path}: {NULL_SELECTOR}"));
        }
    }
    for (key, reason) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/unsafe-sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
    ] {
        if annotations.entry(key).is_set() {
            warnings.push(format!("{}: {reason}", annotations.entry(key).path));
        }
    }
    volumes(&mut warnings, &spec.at("volumes"));
    overlaps(&mut warnings, &spec.at("volumes"));
    names(&mut warnings, spec);
    for name in ["memory", "ephemeral-storage"] {
        warnings.extend(fractional(&spec.at("overhead"), name));
    }
    profiles(&mut warnings, spec, annotations, is_template);
    containers(&mut warnings, spec, annotations);
    ports(&mut warnings, spec);
    let grace = spec.at("terminationGracePeriodSeconds");
    if grace.int() < 0 {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            grace.path
        ));
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.at(key);
        for term in pods
            .at("requiredDuringSchedulingIgnoredDuringExecution")
            .items()
        {
            if !term.at("labelSelector").is_set() {
                let path = term.at("labelSelector").path.to_string();
                warnings.push(format!("{path}: {NULL_SELECTOR}"));
            }
        }
        for weighted in pods
            .at("preferredDuringSchedulingIgnoredDuringExecution")
            .items()
        {
            let term = weighted.at("podAffinityTerm");
            if !term.at("labelSelector").is_set() {
                let path = term.at("labelSelector").path.to_string();
                warnings.push(format!("{path}: {NULL_SELECTOR}"));
            }
        }
    }
    let dns = spec.at("dnsConfig");
    for server in dns.at("nameservers").items() {
        warnings.extend(ip_warning(&server.path, server.text()));
    }
    for alias in spec.at("hostAliases").items() {
        let ip = alias.at("ip");
        warnings.extend(ip_warning(&ip.path, ip.text()));
    }
    warnings
}

/// Deprecated volume types, with their names in warnings and versions.
const DEPRECATED: [(&str, &str, &str); 9] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "flocker",
        "flocker",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "quobyte",
        "quobyte",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];

fn volumes(warnings: &mut Vec<String>, all: &At<'_, '_>) {
    for volume in all.items() {
        for (key, name, reason) in DEPRECATED {
            if volume.at(key).is_set() {
                warnings.push(format!("{}: {reason}", volume.at(name).path));
            }
        }
        let ephemeral = volume.at("ephemeral");
        let template = ephemeral.at("volumeClaimTemplate");
        if template.is_set() {
            warnings.extend(of_claim(&template.at("spec")));
        }
    }
}

/// Warns about paths that a volume contains twice.
fn overlaps(warnings: &mut Vec<String>, all: &At<'_, '_>) {
    for volume in all.items() {
        let name = quote(volume.at("name").text());
        for (key, title) in [
            ("configMap", "name"),
            ("secret", "secretName"),
            ("downwardAPI", ""),
        ] {
            let source = volume.at(key);
            let what = match key {
                "configMap" => format!("ConfigMap {}", quote(source.at(title).text())),
                "secret" => format!("Secret {}", quote(source.at(title).text())),
                _ => String::from("DownwardAPI"),
            };
            let mut seen: Vec<(String, String)> = Vec::new();
            for item in source.at("items").items() {
                let path = item.at("path").text().trim_end_matches('/').to_owned();
                for other in overlapping(&seen, &path) {
                    warnings.push(format!(
                        "volume {name} ({what}): overlapping paths: {} with {}",
                        quote(&path),
                        quote(&other.0)
                    ));
                }
                seen.push((path, String::new()));
            }
        }
        let mut seen: Vec<(String, String)> = Vec::new();
        let projected = volume.at("projected");
        for source in projected.at("sources").items() {
            if source
                .object()
                .is_none_or(|members| members.values().all(Value::is_null))
            {
                warnings.push(format!("volume {name} (Projected) has no sources provided"));
                continue;
            }
            for (path, from) in projected_paths(&source) {
                let path = path.trim_end_matches('/').to_owned();
                for (other, other_from) in overlapping(&seen, &path) {
                    warnings.push(format!(
                        "volume {name} (Projected): overlapping paths: {} ({from}) with {} \
                         ({other_from})",
                        quote(&path),
                        quote(&other),
                    ));
                }
                seen.push((path, from));
            }
        }
    }
}

fn overlapping(seen: &[(String, String)], path: &str) -> Vec<(String, String)> {
    if path.is_empty() {
        return Vec::new();
    }
    let path = format!("{path}/");
    seen.iter()
        .filter(|(other, _)| {
            let other = format!("{other}/");
            other.len() > 1 && (other.starts_with(&path) || path.starts_with(&other))
        })
        .cloned()
        .collect()
}

fn projected_paths(source: &At<'_, '_>) -> Vec<(String, String)> {
    for (key, title) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        let from = source.at(key);
        if from.at("items").is_set() {
            let from_name = format!("{title} {}", quote(from.at("name").text()));
            return from
                .at("items")
                .items()
                .map(|item| (item.at("path").text().to_owned(), from_name.clone()))
                .collect();
        }
    }
    let downward = source.at("downwardAPI");
    if downward.at("items").is_set() {
        return downward
            .at("items")
            .items()
            .map(|item| {
                (
                    item.at("path").text().to_owned(),
                    String::from("DownwardAPI"),
                )
            })
            .collect();
    }
    let token = source.at("serviceAccountToken");
    if token.is_set() {
        let path = token.at("path").text().to_owned();
        return vec![(path, String::from("ServiceAccountToken"))];
    }
    Vec::new()
}

fn names(warnings: &mut Vec<String>, spec: &At<'_, '_>) {
    let mut seen = BTreeSet::new();
    for alias in spec.at("hostAliases").items() {
        let ip = alias.at("ip");
        if !seen.insert(ip.text()) {
            warnings.push(format!("{}: duplicate ip {}", ip.path, quote(ip.text())));
        }
    }
    let mut seen = BTreeSet::new();
    let secrets = spec.at("imagePullSecrets");
    for secret in secrets.items() {
        let name = secret.at("name");
        if !seen.insert(name.text()) {
            warnings.push(format!(
                "{}: duplicate name {}",
                name.path,
                quote(name.text())
            ));
        }
    }
    for secret in secrets.items() {
        let name = secret.at("name");
        if name.is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", name.path));
        }
    }
}

/// Warns about annotations that fields replaced.
fn profiles(
    warnings: &mut Vec<String>,
    spec: &At<'_, '_>,
    annotations: &At<'_, '_>,
    is_template: bool,
) {
    const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
    let context = spec.at("securityContext");
    let noted = annotations.entry(SECCOMP);
    if noted.is_set() && !context.at("seccompProfile").is_set() {
        warnings.push(format!(
            "{}: non-functional in v1.27+; use the \"seccompProfile\" field instead",
            noted.path
        ));
    }
    if !is_template {
        return;
    }
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            let key = format!(
                "container.apparmor.security.beta.kubernetes.io/{}",
                container.at("name").text()
            );
            let own = container.at("securityContext");
            let noted = annotations.entry(&key);
            if noted.is_set()
                && !own.at("appArmorProfile").is_set()
                && !context.at("appArmorProfile").is_set()
            {
                warnings.push(format!(
                    "{}: deprecated since v1.30; use the \"appArmorProfile\" field instead",
                    noted.path
                ));
            }
        }
    }
}

fn containers(warnings: &mut Vec<String>, spec: &At<'_, '_>, annotations: &At<'_, '_>) {
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            let key = format!(
                "container.seccomp.security.alpha.kubernetes.io/{}",
                container.at("name").text()
            );
            let context = container.at("securityContext");
            let noted = annotations.entry(&key);
            if noted.is_set() && !context.at("seccompProfile").is_set() {
                warnings.push(format!(
                    "{}: non-functional in v1.27+; use the \"seccompProfile\" field instead",
                    noted.path
                ));
            }
            let resources = container.at("resources");
            for name in ["memory", "ephemeral-storage"] {
                for what in ["limits", "requests"] {
                    warnings.extend(fractional(&resources.at(what), name));
                }
            }
            let mut seen = BTreeSet::new();
            for variable in container.at("env").items() {
                let name = variable.at("name").text();
                if seen.insert(name) {
                    continue;
                }
                let reference = format!("$({name})");
                let value = variable.at("value").text();
                let refers = value != reference && value.contains(&reference);
                if variable.at("valueFrom").is_set() || !refers {
                    warnings.push(format!(
                        "{}: hides previous definition of {}, which may be dropped when using apply",
                        variable.path,
                        quote(name)
                    ));
                }
            }
        }
    }
}

struct Port {
    path: String,
    host_ip: String,
    host_port: i64,
}

fn ports(warnings: &mut Vec<String>, spec: &At<'_, '_>) {
    let mut by_port: BTreeMap<(i64, &str), Vec<Port>> = BTreeMap::new();
    let mut by_name: BTreeMap<&str, String> = BTreeMap::new();
    let mut repeated = Vec::new();
    for list in CONTAINER_LISTS {
        for container in spec.at(list).items() {
            for port in container.at("ports").items() {
                let (number, protocol) =
                    (port.at("containerPort").int(), port.at("protocol").text());
                let (host_ip, host_port) = (port.at("hostIP").text(), port.at("hostPort").int());
                let (path, name) = (port.path.to_string(), port.at("name").text());
                if !host_ip.is_empty() && host_port == 0 {
                    warnings.push(format!(
                        "{path}: hostIP set without hostPort: {{Name:{name} HostPort:0 \
                         ContainerPort:{number} Protocol:{protocol} HostIP:{host_ip}}}"
                    ));
                }
                let others = by_port.entry((number, protocol)).or_default();
                for other in others.iter() {
                    let same_ip = host_ip == other.host_ip;
                    let one_any = host_ip.is_empty() != other.host_ip.is_empty();
                    let what = if same_ip && host_port == other.host_port {
                        "duplicate"
                    } else if host_port == 0 || other.host_port == 0 {
                        "overlapping"
                    } else if host_port == other.host_port && one_any {
                        "dangerously ambiguous"
                    } else {
                        continue;
                    };
                    warnings.push(format!(
                        "{path}: {what} port definition with {}",
                        other.path
                    ));
                }
                others.push(Port {
                    path: path.clone(),
                    host_ip: host_ip.to_owned(),
                    host_port,
                });
                if name.is_empty() {
                    continue;
                }
                if let Some(other) = by_name.get(name) {
                    repeated.push(format!(
                        "{path}: duplicate port name {} with {other}, services and probes that \
                         select ports by name will use {other}",
                        quote(name)
                    ));
                } else {
                    by_name.insert(name, path);
                }
            }
        }
    }
    warnings.extend(repeated);
}
