//! Validation of Pods and Pod templates.
//!
//! UPSTREAM: pkg/apis/core/validation/validation.go (ValidatePodSpec), pkg/api/pod/util.go (which rules
//! accept stored invalid values)

mod container;
mod scheduling;
mod security;
mod status;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use lockgate_api::field::{FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};

use super::strategy::APP_ARMOR;
use crate::at::At;
use crate::builtin::core::volume_source::{
    Holder, OF_PODS, annotations, ephemeral_claim_name, iscsi_portal, one_source,
};
use crate::checks::{check_label, check_legacy_ip, check_subdomain_with_underscore};
use crate::object::{Object, get, list, text};

pub(in crate::builtin) use container::{overhead as overhead_amounts, port_or_name};
pub(in crate::builtin) use scheduling::{taint_effect, tolerations};
pub(super) use status::{drop_disabled as drop_disabled_status, status_update};
pub(super) use update::{ephemeral_containers, resize, update};

/// Validation options, which depend on the owner of a Pod spec and on the old object.
#[derive(Clone, Copy)]
struct Rules<'r> {
    /// True for a Pod, false for a template.
    is_pod: bool,
    /// The name of the Pod, if known.
    pod: &'r str,
    /// True for the mirror Pod of a static Pod.
    is_mirror: bool,
    /// The old spec.
    old: Option<&'r Object>,
}

/// A spec and its validation options.
struct Spec<'r, 'p, 'v> {
    at: At<'p, 'v>,
    rules: Rules<'r>,
}

const MIRROR: &str = "kubernetes.io/config.mirror";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// The lists of containers, in validation order.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Validates a new Pod, except its metadata.
pub(super) fn create(errors: &mut FieldErrors, object: &Object) {
    metadata_and_spec(errors, object, None);
    let at = At::root(object, "spec");
    if !at.at("ephemeralContainers").is_empty() {
        at.at("ephemeralContainers")
            .forbidden(errors, "cannot be set on create");
    }
    if !at.at("nodeName").is_empty() && !at.at("schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        at.at("nodeName").forbidden(errors, detail);
    }
    security::annotations_match(errors, get(object, "metadata"), &at);
}

/// Validates the annotations and the spec of a Pod.
fn metadata_and_spec(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let empty = Object::new();
    let metadata = get(object, "metadata").unwrap_or(&empty);
    let at = At::root(object, "spec");
    let path = Path::root("metadata");
    let noted = At::new(path.child("annotations"), metadata.get("annotations"));
    pod_annotations(errors, &noted, &at, old);
    let spec = Spec {
        at,
        rules: Rules {
            is_pod: true,
            pod: text(metadata, "name"),
            is_mirror: get(metadata, "annotations").is_some_and(|map| map.contains_key(MIRROR)),
            old: old.and_then(|old| get(old, "spec")),
        },
    };
    pod_spec(errors, &spec);
    if at.at("serviceAccountName").is_empty() {
        for volume in at.at("volumes").items() {
            for source in volume.at("projected").at("sources").items() {
                let token = source.at("serviceAccountToken");
                if token.is_set() {
                    let detail = "must not be specified when serviceAccountName is not set";
                    token.forbidden(errors, detail);
                }
            }
        }
    }
    for key in ["containers", "initContainers"] {
        for container in at.at(key).items() {
            let image = container.at("image");
            if image.text().trim().len() != image.text().len() {
                image.invalid(errors, "must not have leading or trailing whitespace");
            }
        }
    }
}

/// Validates a PodTemplate.
pub(super) fn pod_template(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    template(
        errors,
        &At::root(object, "template"),
        old.and_then(|old| get(old, "template")),
    );
}

/// Validates a Pod template.
pub(in crate::builtin) fn template(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    old: Option<&Object>,
) {
    let metadata = at.value.and_then(|value| value.get("metadata"));
    let member = |key: &str| metadata.and_then(|metadata| metadata.get(key));
    At::new(at.path.child("labels"), member("labels")).labels(errors);
    let noted = At::new(at.path.child("annotations"), member("annotations"));
    annotations(errors, &noted);
    let spec = at.at("spec");
    pod_annotations(errors, &noted, &spec, old);
    pod_spec(
        errors,
        &Spec {
            at: spec,
            rules: Rules {
                is_pod: false,
                pod: "",
                is_mirror: false,
                old: old.and_then(|old| get(old, "spec")),
            },
        },
    );
    security::annotations_match(errors, metadata.and_then(Value::as_object), &spec);
    if !spec.at("ephemeralContainers").is_empty() {
        spec.at("ephemeralContainers")
            .forbidden(errors, "ephemeral containers not allowed in pod template");
    }
}

/// Validates the metadata of a template again, as upstream does for StatefulSets.
pub(in crate::builtin) fn template_metadata_again(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    old: Option<&Object>,
) {
    let metadata = at.value.and_then(|value| value.get("metadata"));
    let member = |key: &str| metadata.and_then(|metadata| metadata.get(key));
    At::new(at.path.child("labels"), member("labels")).labels(errors);
    let noted = At::new(at.path.child("annotations"), member("annotations"));
    annotations(errors, &noted);
    pod_annotations(errors, &noted, &at.at("spec"), old);
}

/// Validates the annotations that Kubernetes uses.
fn pod_annotations(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    spec: &At<'_, '_>,
    old: Option<&Object>,
) {
    const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    if at.entry(MIRROR).is_set() && spec.at("nodeName").is_empty() {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        at.entry(MIRROR).invalid(errors, detail);
    }
    let cost = at.entry(DELETION_COST);
    let old_cost = old
        .and_then(|old| get(old, "metadata"))
        .and_then(|metadata| get(metadata, "annotations"))
        .map_or("", |annotations| text(annotations, DELETION_COST));
    let is_cost = |text: &str| {
        // A canonical integer, without plus sign or leading zeros.
        text.parse::<i32>()
            .is_ok_and(|cost| cost.to_string() == text)
    };
    if cost.is_set() && !is_cost(cost.text()) && (old_cost.is_empty() || is_cost(old_cost)) {
        cost.invalid(errors, "must be a 32bit integer");
    }
    security::annotations(errors, at, spec);
}

fn pod_spec(errors: &mut FieldErrors, spec: &Spec<'_, '_, '_>) {
    let at = &spec.at;
    if !at.at("terminationGracePeriodSeconds").is_set() {
        at.at("terminationGracePeriodSeconds").required(errors);
    }
    let volumes = volumes(errors, spec);
    let claims = resource_claims(errors, spec);
    let context = container::Context::new(spec, &volumes, &claims);
    container::containers(errors, &context);
    container::init_containers(errors, &context);
    container::ephemeral_containers(errors, &context);
    container::pod_resources(errors, spec, &claims);
    host_ports(errors, spec);
    at.at("restartPolicy")
        .one_of(errors, &["Always", "OnFailure", "Never"]);
    at.at("dnsPolicy").one_of(
        errors,
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    at.at("nodeSelector").labels(errors);
    security::pod_context(errors, spec);
    scheduling::affinity(errors, spec);
    dns_config(errors, at);
    for gate in at.at("readinessGates").items() {
        gate.at("conditionType").check(errors, check_qualified_name);
    }
    scheduling_gates(errors, at);
    scheduling::topology_spread(errors, spec);
    security::windows_host_process(errors, at);
    security::host_users(errors, spec);
    host_name(errors, at);
    at.at("serviceAccountName")
        .check_set(errors, check_subdomain);
    at.at("nodeName").check_set(errors, check_subdomain);
    if at.at("activeDeadlineSeconds").is_set() {
        at.at("activeDeadlineSeconds")
            .within(errors, 1, i64::from(i32::MAX));
    }
    at.at("hostname").check_set(errors, check_label);
    at.at("subdomain").check_set(errors, check_label);
    tolerations(errors, &at.at("tolerations"), spec.rules.old);
    for alias in at.at("hostAliases").items() {
        alias.at("ip").check(errors, check_legacy_ip);
        for name in alias.at("hostnames").items() {
            name.check(errors, check_subdomain);
        }
    }
    at.at("priorityClassName")
        .check_set(errors, check_subdomain);
    if at.at("runtimeClassName").is_set() {
        at.at("runtimeClassName").check(errors, check_subdomain);
    }
    if at.at("preemptionPolicy").is_set() {
        at.at("preemptionPolicy")
            .one_of(errors, &["PreemptLowerPriority", "Never"]);
    }
    if at.at("overhead").is_set() {
        container::overhead(errors, &at.at("overhead"));
    }
    security::operating_system(errors, at);
    let group = at.at("schedulingGroup");
    if group.is_set() {
        let name = group.at("podGroupName");
        if name.is_set() {
            name.check(errors, check_subdomain);
        } else {
            name.invalid_or_null(errors, "must specify one of: `podGroupName`");
        }
    }
    container::file_references(errors, at);
}

/// Validates the volumes, and returns them by name.
fn volumes<'v>(errors: &mut FieldErrors, spec: &Spec<'_, '_, 'v>) -> BTreeMap<&'v str, &'v Object> {
    let list_at = spec.at.at("volumes");
    let pod = spec.rules.pod;
    let mut created = BTreeSet::new();
    if !pod.is_empty() {
        for volume in list_at.items() {
            if volume.at("ephemeral").is_set() {
                created.insert(format!("{pod}-{}", volume.at("name").text()));
            }
        }
    }
    let allows_distant_token = spec.rules.old.is_some_and(has_token_outside_volume);
    let mut valid = BTreeMap::new();
    for volume in list_at.items() {
        let name = volume.at("name");
        let mut found = FieldErrors::new();
        let holder = Holder {
            name: name.text(),
            is_pod: spec.rules.is_pod,
            allows_distant_token,
        };
        one_source(
            &mut found,
            &volume,
            &OF_PODS,
            &holder,
            |errors, key| match key {
                "ephemeral" => ephemeral_claim_name(errors, &volume, pod),
                "iscsi" => iscsi_portal(errors, &volume),
                _ => {}
            },
        );
        name.check_required(&mut found, check_label);
        if valid.contains_key(name.text()) {
            name.duplicate(&mut found);
        }
        if let (true, Some(object)) = (found.is_empty(), volume.object()) {
            valid.insert(name.text(), object);
        }
        errors.extend(found);
        let source = volume.at("persistentVolumeClaim");
        let claim = source.at("claimName");
        if source.is_set() && created.contains(claim.text()) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            claim.invalid(errors, detail);
        }
    }
    valid
}

/// Returns true if the path of a projected token is outside its volume.
fn has_token_outside_volume(spec: &Object) -> bool {
    let sources = list(spec, "volumes")
        .iter()
        .filter_map(|volume| volume.pointer("/projected/sources")?.as_array())
        .flatten();
    sources
        .filter_map(|source| source.pointer("/serviceAccountToken/path")?.as_str())
        .any(|path| path.starts_with('/') || path.starts_with(".."))
}

/// Validates the resource claims of a Pod, and returns their names.
fn resource_claims<'v>(errors: &mut FieldErrors, spec: &Spec<'_, '_, 'v>) -> BTreeSet<&'v str> {
    let mut names = BTreeSet::new();
    let claims = spec.at.at("resourceClaims");
    for claim in claims.items() {
        if spec.rules.is_mirror {
            At::new(Path::root(""), None)
                .forbidden(errors, "static pods do not support resource claims");
            continue;
        }
        let name = claim.at("name");
        if name.is_empty() {
            name.required(errors);
        } else if !names.insert(name.text()) {
            name.duplicate(errors);
        } else {
            name.check(errors, check_label);
        }
        let (own, template) = (
            claim.at("resourceClaimName"),
            claim.at("resourceClaimTemplateName"),
        );
        let detail = match (own.is_set(), template.is_set()) {
            (true, true) => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            (false, false) => {
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            }
            _ => "",
        };
        if !detail.is_empty() {
            // Upstream prints its internal type, whose fields have no JSON names.
            let shown = serde_json::json!({
                "Name": name.text(), "ResourceClaimName": own.value,
                "ResourceClaimTemplateName": template.value,
            });
            claim.invalid_as(errors, Shown::Rendered(&shown.to_string()), detail);
        }
        for reference in [own, template] {
            if reference.is_set() {
                reference.check(errors, check_subdomain);
            }
        }
    }
    claims
        .items()
        .map(|claim| claim.at("name").text())
        .filter(|name| !name.is_empty())
        .collect()
}

/// With `hostNetwork`, host ports equal container ports.
fn host_ports(errors: &mut FieldErrors, spec: &Spec<'_, '_, '_>) {
    if !spec.at.at("hostNetwork").flag() {
        return;
    }
    for container in spec.at.at("containers").items() {
        for port in container.at("ports").items() {
            let (host, own) = (port.at("hostPort"), port.at("containerPort").int());
            if (spec.rules.is_pod || host.int() != 0) && host.int() != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                host.invalid_int(errors, detail);
            }
        }
    }
}

fn dns_config(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const NAMESERVERS: usize = 3;
    const SEARCHES: usize = 32;
    const SEARCH_LENGTH: usize = 2048;
    let config = at.at("dnsConfig");
    let servers = config.at("nameservers");
    if at.at("dnsPolicy").text() == "None" {
        if !config.is_set() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            return config.required_because(errors, detail);
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return servers.required_because(errors, detail);
        }
    }
    if servers.len() > NAMESERVERS {
        servers.invalid(
            errors,
            format!("must not have more than {NAMESERVERS} nameservers"),
        );
    }
    for server in servers.items() {
        server.check(errors, check_legacy_ip);
    }
    let searches = config.at("searches");
    if searches.len() > SEARCHES {
        searches.invalid(
            errors,
            format!("must not have more than {SEARCHES} search paths"),
        );
    }
    if searches.texts().collect::<Vec<_>>().join(" ").len() > SEARCH_LENGTH {
        let detail = format!(
            "must not have more than {SEARCH_LENGTH} characters (including spaces) in the search list"
        );
        searches.invalid(errors, detail);
    }
    for search in searches.items() {
        if search.text() != "." {
            let name = search
                .text()
                .strip_suffix('.')
                .unwrap_or_else(|| search.text());
            for message in check_subdomain_with_underscore(name) {
                search.invalid_as(errors, Shown::Text(name), message);
            }
        }
    }
    for option in config.at("options").items() {
        if option.at("name").is_empty() {
            option.required_because(errors, "must not be empty");
        }
    }
}

fn scheduling_gates(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let mut seen = BTreeSet::new();
    for gate in at.at("schedulingGates").items() {
        let name = gate.at("name").text();
        for message in check_qualified_name(name) {
            gate.invalid_as(errors, Shown::Text(name), message);
        }
        if !seen.insert(name) {
            gate.duplicate_as(errors, Shown::Text(name));
        }
    }
}

fn host_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const LENGTH: usize = 64;
    let name = at.at("hostnameOverride");
    if !name.is_set() {
        return;
    }
    if at.at("setHostnameAsFQDN").flag() {
        name.forbidden(
            errors,
            "may not be specified when setHostnameAsFQDN is true",
        );
    }
    if at.at("hostNetwork").flag() {
        name.forbidden(errors, "may not be specified when hostNetwork is true");
    }
    if name.text().len() > LENGTH {
        name.too_long(errors, LENGTH);
    }
    name.check(errors, check_subdomain);
}
