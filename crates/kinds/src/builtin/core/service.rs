//! Services.

mod families;

use crate::at::At;
use crate::builtin::core::pod::port_or_name;
use crate::cells::{Common, Row, cell, read};
use crate::checks::{
    LABEL_NAMES, check_endpoint_ip, check_label, check_legacy_cidr, check_legacy_ip, cidr_warnings,
    copy_field, dual_stack_failure, ip_warning, parse_ip_sloppy,
};
use crate::kind::{
    CHANGE, Context, Deletion, FieldSelector, Kind, NAME, NAMESPACE, PROXY, Resource,
    ServerComponent, Written, namespaced, select, sub,
};
use crate::object::{
    Object, at_mut, each, fill, fill_text, get, get_mut, has, is_empty, list, number, text, with,
};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
use lockgate_api::meta::validation::NameRules;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const SERVICES: Resource = namespaced(
    "",
    "v1",
    "services",
    "service",
    "Service",
    "ServiceList",
    &Service,
)
.in_etcd_as("services/specs")
.short(&["svc"])
.categories(&["all"])
.subresources(&[
    sub("proxy", "", "v1", "ServiceProxyOptions", PROXY),
    sub("status", "", "v1", "Service", CHANGE),
])
.create_on_update();

const SELECTABLE: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    select("spec.clusterIP", &["spec", "clusterIP"]),
    select("spec.type", &["spec", "type"]),
];

/// The kind `Service`.
#[derive(Debug)]
pub(super) struct Service;

impl Kind for Service {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Services)
    }

    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, old: &Written<'_>) {
        let (spec, at) = (
            At::root(new.object(), "spec"),
            At::root(new.object(), "status"),
        );
        let balancer = at.at("loadBalancer");
        let ingress = balancer.at("ingress");
        if spec.at("type").text() != "LoadBalancer" && !ingress.is_empty() {
            let detail = "may only be used when `spec.type` is 'LoadBalancer'";
            return ingress.forbidden(errors, detail);
        }
        balancer_addresses(errors, &ingress, old.object(), |errors, address| {
            let (ip, mode) = (address.at("ip"), address.at("ipMode"));
            match (ip.is_empty(), mode.is_set()) {
                (false, false) => {
                    mode.required_because(errors, "must be specified when `ip` is set");
                }
                (true, true) => {
                    mode.forbidden(errors, "may not be specified when `ip` is not set");
                }
                (false, true) => mode.known(errors, &["Proxy", "VIP"]),
                (true, false) => {}
            }
        });
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        service_warnings(new.object())
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        service_warnings(new.object())
    }

    fn warnings_on_status_update(&self, new: &Written<'_>) -> Vec<String> {
        balancer_warnings(new.object())
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn begin(&self, value: &mut Value, old: Option<&Value>) -> FieldErrors {
        let old = old.and_then(Value::as_object);
        let members = value.as_object_mut();
        members.map_or_else(FieldErrors::new, |service| families::begin(service, old))
    }

    fn name_rules(&self) -> NameRules {
        LABEL_NAMES
    }

    fn canonicalize(&self, value: &mut Value) {
        with(value, |object| {
            // UPSTREAM: pkg/registry/core/service/storage/storage.go (defaultOnReadService)
            let spec = get_mut(object, "spec");
            if let Some(spec) = spec.filter(|spec| !needs_cluster_ip(spec)) {
                spec.remove("internalTrafficPolicy");
            }
        });
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        if let Some(old) = old {
            service_update(errors, new.object(), old.object());
        }
        service(errors, new.object(), old.map(Written::object));
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if let (true, Some(old)) = (subresource.is_empty(), old.as_object()) {
            with(value, |object| drop_type_dependent(object, old));
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Type|Cluster-IP|External-IP|Port(s)|Age|+Selector"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        service_row(object, common)
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

fn defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let is_set = at_mut(spec, &["sessionAffinityConfig", "clientIP"])
                .is_some_and(|config| has(config, "timeoutSeconds"));
            if !is_set {
                let config = json!({"clientIP": {"timeoutSeconds": 10800}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
    fill_text(spec, "type", "ClusterIP");
    each(spec, "ports", |port| {
        fill_text(port, "protocol", "TCP");
        let unset = match port.get("targetPort") {
            Some(Value::Number(target)) => target.as_i64() == Some(0),
            Some(Value::String(name)) => name.is_empty(),
            _ => true,
        };
        if unset {
            port.insert("targetPort".to_owned(), Value::from(number(port, "port")));
        }
    });
    let kind = text(spec, "type").to_owned();
    let is_external = matches!(kind.as_str(), "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && !is_empty(spec, "externalIPs"));
    if is_external {
        fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        if let Some(balancer) = at_mut(object, &["status", "loadBalancer"]) {
            each(balancer, "ingress", |ingress| {
                if !text(ingress, "ip").is_empty() {
                    fill(ingress, "ipMode", "VIP");
                }
            });
        }
    }
}

/// Drops fields that were allocated for the old type and that the client did not change.
///
/// UPSTREAM: pkg/registry/core/service/strategy.go (dropTypeDependentFields).
fn drop_type_dependent(object: &mut Object, old: &Object) {
    let (Some(old_spec), Some(spec)) = (get(old, "spec"), get_mut(object, "spec")) else {
        return;
    };
    let same = |spec: &Object, key: &str| spec.get(key) == old_spec.get(key);
    if needs_cluster_ip(old_spec) && !needs_cluster_ip(spec) {
        if text(spec, "clusterIP") == text(old_spec, "clusterIP")
            && list(spec, "clusterIPs") == list(old_spec, "clusterIPs")
        {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, key) {
                spec.remove(key);
            }
        }
    }
    // UPSTREAM: pkg/registry/core/service/strategy.go (needsNodePort checks the type only)
    let has_node_ports = |spec: &Object| matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    let former = node_ports(old_spec);
    if has_node_ports(old_spec)
        && !has_node_ports(spec)
        && node_ports(spec)
            .iter()
            .all(|port| *port == 0 || former.contains(port))
    {
        each(spec, "ports", |port| {
            port.remove("nodePort");
        });
    }
    let drop_if = |spec: &mut Object, applied: bool, applies: bool, key: &str| {
        if applied && !applies && spec.get(key) == old_spec.get(key) {
            spec.remove(key);
        }
    };
    let health =
        |spec: &Object| is_balancer(spec) && text(spec, "externalTrafficPolicy") == "Local";
    let (applied, applies) = (health(old_spec), health(spec));
    drop_if(spec, applied, applies, "healthCheckNodePort");
    let (applied, applies) = (is_balancer(old_spec), is_balancer(spec));
    drop_if(spec, applied, applies, "allocateLoadBalancerNodePorts");
    drop_if(spec, applied, applies, "loadBalancerClass");
    let (applied, applies) = (is_external(old_spec), is_external(spec));
    drop_if(spec, applied, applies, "externalTrafficPolicy");
    if !is_balancer(spec)
        && let Some(status) = get_mut(object, "status")
    {
        status.insert("loadBalancer".to_owned(), json!({}));
    }
}

fn needs_cluster_ip(spec: &Object) -> bool {
    text(spec, "type") != "ExternalName"
}

fn needs_node_port(spec: &Object) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => {
            spec.get("allocateLoadBalancerNodePorts")
                .and_then(Value::as_bool)
                != Some(false)
        }
        _ => false,
    }
}

fn is_balancer(spec: &Object) -> bool {
    text(spec, "type") == "LoadBalancer"
}

fn is_external(spec: &Object) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !is_empty(spec, "externalIPs"),
        _ => false,
    }
}

fn node_ports(spec: &Object) -> Vec<i64> {
    let mut ports: Vec<i64> = list(spec, "ports")
        .iter()
        .filter_map(Value::as_object)
        .map(|port| number(port, "nodePort"))
        .collect();
    ports.sort_unstable();
    ports
}

fn service_row(object: &Value, common: &Common<'_>) -> Row {
    let ports: Vec<String> = read::items(object, "/spec/ports")
        .iter()
        .map(shown_port)
        .collect();
    let ports = match ports.join(",") {
        ports if ports.is_empty() => String::from("<none>"),
        ports => ports,
    };
    Row::of(vec![
        cell(common.name),
        cell(read::text(object, "/spec/type")),
        cell(read::text_or(object, "/spec/clusterIPs/0", "<none>")),
        cell(external_address(object)),
        cell(ports),
        cell(common.age.as_str()),
        cell(read::labels(object, "/spec/selector")),
    ])
}

fn shown_port(port: &Value) -> String {
    let number = read::integer(port, "/port");
    let protocol = read::text(port, "/protocol");
    match read::integer(port, "/nodePort") {
        node if node > 0 => format!("{number}:{node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_address(object: &Value) -> String {
    let own = read::joined(object, "/spec/externalIPs", ",");
    match read::text(object, "/spec/type") {
        "ClusterIP" | "NodePort" if own.is_empty() => String::from("<none>"),
        "ClusterIP" | "NodePort" => own,
        "LoadBalancer" => match (balancers(object), own) {
            (given, own) if given.is_empty() && own.is_empty() => String::from("<pending>"),
            (given, own) if own.is_empty() => given,
            (given, own) if given.is_empty() => own,
            (given, own) => format!("{given},{own}"),
        },
        "ExternalName" => read::text(object, "/spec/externalName").to_owned(),
        _ => String::from("<unknown>"),
    }
}

/// The addresses of load balancers, in order, never truncated: tables always include wide columns.
pub(in crate::builtin) fn balancers(object: &Value) -> String {
    let addresses: BTreeSet<&str> = read::items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|ingress| match read::text(ingress, "/ip") {
            "" => read::text(ingress, "/hostname"),
            address => address,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const ONLY_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn is_headless(spec: &At<'_, '_>) -> bool {
    let mut addresses = spec.at("clusterIPs").texts();
    addresses.next() == Some("None") && addresses.next().is_none()
}

/// Validates a Service.
///
/// UPSTREAM: pkg/apis/core/validation/validation.go (validateService)
fn service(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    let empty = Object::new();
    let metadata = Path::root("metadata");
    let annotations = At::new(
        metadata.child("annotations"),
        get(object, "metadata").and_then(|metadata| metadata.get("annotations")),
    );
    let (hints, mode) = (annotations.entry(HINTS), annotations.entry(MODE));
    if hints.is_set() && mode.is_set() && hints.text() != mode.text() {
        let detail = format!("must match annotations[{HINTS}] when both are specified");
        mode.invalid(errors, detail);
    }
    let at = At::root(object, "spec");
    let old_spec = old.map(|old| get(old, "spec").unwrap_or(&empty));
    let (kind, ports) = (at.at("type"), at.at("ports"));
    if ports.is_empty() && !is_headless(&at) && kind.text() != "ExternalName" {
        ports.required(errors);
    }
    match kind.text() {
        "LoadBalancer" | "NodePort" if is_headless(&at) => {
            let addresses = at.at("clusterIPs");
            for first in addresses.items() {
                let detail = format!("may not be set to 'None' for {} services", kind.text());
                first.invalid(errors, detail);
            }
        }
        "ExternalName" => external_name(errors, &at),
        _ => {}
    }
    let mut names = BTreeSet::new();
    for port in ports.items() {
        service_port(errors, &port, ports.len() > 1, &mut names);
    }
    at.at("selector").labels(errors);
    session_affinity(errors, &at);
    cluster_ips(errors, &at, old_spec);
    let known = |key: &str| -> Vec<String> {
        old_spec
            .map_or(&[][..], |old| list(old, key))
            .iter()
            .filter_map(|value| value.as_str().map(|text| text.trim().to_owned()))
            .collect()
    };
    let known_ips = known("externalIPs");
    for address in at.at("externalIPs").items() {
        let before = errors.len();
        if !known_ips.iter().any(|known| known == address.text()) {
            address.check(errors, check_legacy_ip);
        }
        if errors.len() == before {
            address.check(errors, check_endpoint_ip);
        }
    }
    kind.one_of(
        errors,
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    if kind.text() == "ClusterIP" {
        for port in ports.items() {
            if port.at("nodePort").int() != 0 {
                let detail = "may not be used when `type` is 'ClusterIP'";
                port.at("nodePort").forbidden(errors, detail);
            }
        }
    }
    duplicate_ports(errors, &ports);
    source_ranges(
        errors,
        &at,
        &annotations,
        &known("loadBalancerSourceRanges"),
        old,
    );
    let allocates = at.at("allocateLoadBalancerNodePorts");
    if allocates.is_set() && kind.text() != "LoadBalancer" {
        allocates.forbidden(errors, ONLY_BALANCERS);
    }
    if kind.text() == "LoadBalancer" && !allocates.is_set() {
        errors.push(FieldError::required(
            &Path::root("allocateLoadBalancerNodePorts"),
            "",
        ));
    }
    balancer_class(errors, &at, None);
    traffic_policies(errors, &at);
    at.at("trafficDistribution")
        .known_if_set(errors, &["PreferClose", "PreferSameZone", "PreferSameNode"]);
}

fn external_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let member = at.at(key);
        if member.is_set() && (key == "ipFamilyPolicy" || !member.is_empty()) {
            member.forbidden(errors, "may not be set for ExternalName services");
        }
    }
    let name = at.at("externalName");
    match name.text().strip_suffix('.').unwrap_or_else(|| name.text()) {
        "" => name.required(errors),
        host => {
            for message in check_subdomain(host) {
                name.invalid_as(errors, Shown::Text(host), message);
            }
        }
    }
}

fn service_port<'v>(
    errors: &mut FieldErrors,
    port: &At<'_, 'v>,
    needs_name: bool,
    names: &mut BTreeSet<&'v str>,
) {
    let name = port.at("name");
    if needs_name && name.is_empty() {
        name.required(errors);
    } else if !name.is_empty() {
        name.check(errors, check_label);
        if !names.insert(name.text()) {
            name.duplicate(errors);
        }
    }
    port.at("port").within(errors, 1, 65535);
    port.at("protocol").one_of(errors, &PROTOCOLS);
    port_or_name(errors, &port.at("targetPort"));
    if port.at("appProtocol").is_set() {
        port.at("appProtocol").check(errors, check_qualified_name);
    }
}

fn duplicate_ports(errors: &mut FieldErrors, ports: &At<'_, '_>) {
    let mut node_ports = BTreeSet::new();
    for port in ports.items() {
        let node = port.at("nodePort");
        if node.int() != 0 && !node_ports.insert((port.at("protocol").text(), node.int())) {
            node.duplicate_as(errors, Shown::Integer(node.int()));
        }
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.at("protocol").text(), port.at("port").int());
        if !seen.insert((protocol, number)) {
            // Upstream prints its internal type, whose fields have no JSON names.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\
                 \"TargetPort\":0,\"NodePort\":0}}",
                Shown::Named(protocol)
            );
            port.duplicate_as(errors, Shown::Rendered(&shown));
        }
    }
}

fn session_affinity(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let (affinity, config) = (at.at("sessionAffinity"), at.at("sessionAffinityConfig"));
    affinity.one_of(errors, &["ClientIP", "None"]);
    match affinity.text() {
        "ClientIP" => {
            let client = config.at("clientIP");
            let timeout = client.at("timeoutSeconds");
            for member in [&config, &client, &timeout] {
                if !member.is_set() {
                    let detail = "when session affinity type is ClientIP";
                    return member.required_because(errors, detail);
                }
            }
            if !(1..=86400).contains(&timeout.int()) {
                timeout.invalid_int(errors, "must be greater than 0 and less than 86400");
            }
        }
        "None" if config.is_set() => {
            config.forbidden(errors, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn is_ipv6(text: &str) -> bool {
    text.contains(':')
}

fn cluster_ips(errors: &mut FieldErrors, at: &At<'_, '_>, old: Option<&Object>) {
    if at.at("type").text() == "ExternalName" {
        return;
    }
    let (single, all) = (at.at("clusterIP"), at.at("clusterIPs"));
    let families = at.at("ipFamilies");
    let addresses: Vec<&str> = all.texts().collect();
    if single.is_empty() {
        if !all.is_empty() {
            all.invalid(errors, "must be empty when `clusterIP` is not specified");
        }
    } else if all.is_empty() {
        all.required(errors);
    } else if addresses.first() != Some(&single.text()) {
        all.invalid(errors, "first value must match `clusterIP`");
    }
    let mut seen = BTreeSet::new();
    for family in families.items() {
        family.known(errors, &["IPv4", "IPv6"]);
        if !seen.insert(family.text()) {
            family.duplicate(errors);
        }
    }
    at.at("ipFamilyPolicy").known_if_set(
        errors,
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
    let known = old.map_or(&[][..], |old| list(old, "clusterIPs"));
    let mut has_invalid = false;
    for (index, address) in all.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.len() > 1 {
                has_invalid = true;
                all.invalid(errors, "'None' must be the first and only value");
            }
            continue;
        }
        let before = errors.len();
        if !known.iter().any(|known| known == address.text()) {
            address.check(errors, check_legacy_ip);
        }
        has_invalid |= errors.len() > before;
    }
    if all.len() > 2 {
        all.invalid(errors, "may only hold up to 2 values");
    }
    if has_invalid {
        return;
    }
    let kinds: BTreeSet<bool> = addresses.iter().map(|address| is_ipv6(address)).collect();
    // Existing addresses are not validated, and may be invalid.
    let failure = dual_stack_failure(&addresses).filter(|_| all.len() > 1);
    let is_dual = kinds.len() == 2 && failure.is_none();
    if let Some(detail) = failure {
        all.internal(errors, detail);
    }
    if all.len() > 1 && !is_dual {
        all.invalid(errors, "may specify no more than one IP for each IP family");
    }
    if is_headless(at) {
        return;
    }
    for (index, (address, family)) in all.items().zip(families.texts()).enumerate() {
        let is_wrong = match family {
            "IPv4" => is_ipv6(address.text()),
            "IPv6" => !is_ipv6(address.text()),
            _ => false,
        };
        if is_wrong {
            let detail =
                format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            address.invalid(errors, detail);
        }
    }
}

fn source_ranges(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    annotations: &At<'_, '_>,
    known: &[String],
    old: Option<&Object>,
) {
    let ranges = at.at_as("loadBalancerSourceRanges", "LoadBalancerSourceRanges");
    let is_balancer = at.at("type").text() == "LoadBalancer";
    let check = |errors: &mut FieldErrors, at: &At<'_, '_>, range: &str| {
        for message in check_legacy_cidr(range) {
            at.invalid_as(errors, Shown::Text(range), message);
        }
    };
    if !ranges.is_empty() {
        if !is_balancer {
            ranges.forbidden(errors, ONLY_BALANCERS);
        }
        for range in ranges.items() {
            let text = range.text().trim();
            if !known.iter().any(|known| known == text) {
                check(errors, &range, text);
            }
        }
        return;
    }
    let noted = annotations.entry(SOURCE_RANGES);
    if !noted.is_set() {
        return;
    }
    if !is_balancer {
        noted.forbidden(errors, ONLY_BALANCERS);
    }
    let before = old
        .and_then(|old| get(old, "metadata"))
        .and_then(|metadata| get(metadata, "annotations"))
        .and_then(|annotations| annotations.get(SOURCE_RANGES)?.as_str());
    if before != Some(noted.text()) && !noted.text().trim().is_empty() {
        for range in noted.text().trim().split(',') {
            check(errors, &noted, range.trim());
        }
    }
}

fn balancer_class(errors: &mut FieldErrors, at: &At<'_, '_>, old: Option<&Object>) {
    let class = at.at("loadBalancerClass");
    let is_balancer = at.at("type").text() == "LoadBalancer";
    if let Some(old) = old
        && is_balancer
        && text(old, "type") == "LoadBalancer"
        && old
            .get("loadBalancerClass")
            .filter(|class| !class.is_null())
            != class.value
    {
        class.invalid_or_null(errors, "may not change once set");
    }
    if class.is_set() {
        if is_balancer {
            class.check(errors, check_qualified_name);
        } else {
            class.forbidden(errors, ONLY_BALANCERS);
        }
    }
}

fn traffic_policies(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let kind = at.at("type").text();
    let (external, health) = (at.at("externalTrafficPolicy"), at.at("healthCheckNodePort"));
    let is_external = matches!(kind, "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && !at.at("externalIPs").is_empty());
    if is_external {
        external.one_of(errors, &["Cluster", "Local"]);
    } else if !external.is_empty() {
        external.invalid(errors, "may only be set for externally-accessible services");
    }
    let needs_health = kind == "LoadBalancer" && external.text() == "Local";
    if needs_health {
        if health.int() == 0 {
            health.required(errors);
        } else {
            health.within(errors, 1, 65535);
        }
    } else if health.int() != 0 {
        health.invalid_int(
            errors,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        );
    }
    let internal = at.at("internalTrafficPolicy");
    if !internal.is_set() && matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        internal.required(errors);
    }
    internal.known_if_set(errors, &["Cluster", "Local"]);
}

/// Validates which fields of a Service change.
fn service_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    let empty = Object::new();
    let at = At::root(object, "spec");
    let old_spec = get(old, "spec").unwrap_or(&empty);
    let former = At::root(old, "spec");
    let is_named = |at: &At<'_, '_>| at.at("type").text() == "ExternalName";
    if !is_named(&at) && !is_named(&former) {
        let (was, is) = (is_headless(&former), is_headless(&at));
        if !(was && is) {
            changed_addresses(errors, &at, &former, "clusterIPs", "clusterIP");
        }
        if !was && !is {
            changed_addresses(errors, &at, &former, "ipFamilies", "ipFamily");
        }
    }
    balancer_class(errors, &at, Some(old_spec));
    let needs_health = |at: &At<'_, '_>| {
        at.at("type").text() == "LoadBalancer" && at.at("externalTrafficPolicy").text() == "Local"
    };
    let port = at.at("healthCheckNodePort");
    if needs_health(&at)
        && needs_health(&former)
        && port.int() != former.at("healthCheckNodePort").int()
    {
        port.forbidden(errors, "field is immutable");
    }
}

/// Validates cluster IPs and IP families: the first is immutable, the second can be added and removed.
fn changed_addresses(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    old: &At<'_, '_>,
    key: &str,
    what: &str,
) {
    const FIXED: &str = "may not change once set";
    let (new, former) = (at.at(key), old.at(key));
    let first = At::new(new.path.index(0), new.value);
    let is_first_changed =
        !new.is_empty() && !former.is_empty() && new.list().first() != former.list().first();
    if former.len() == new.len() {
        for (index, (one, other)) in former.texts().zip(new.texts()).enumerate() {
            if one != other {
                let index = if key == "clusterIPs" { index } else { 0 };
                At::new(new.path.index(index), new.value).invalid(errors, FIXED);
            }
        }
    } else if former.len() > new.len() {
        if at.at("clusterIPs").is_empty() {
            let detail = format!("primary {what} can not be unset");
            first.invalid_or_null(errors, detail);
        }
        if is_first_changed {
            At::new(first.path, at.at("clusterIPs").value).invalid_or_null(errors, FIXED);
        }
        let policy = at.at("ipFamilyPolicy");
        if new.len() == 1 && policy.text() != "SingleStack" {
            let detail =
                format!("must be set to 'SingleStack' when releasing the secondary {what}");
            policy.invalid_or_null(errors, detail);
        }
    } else if is_first_changed {
        At::new(first.path, at.at("clusterIPs").value).invalid_or_null(errors, FIXED);
    }
}

/// UPSTREAM: pkg/api/service/warnings.go
fn service_warnings(object: &Object) -> Vec<String> {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let mut warnings = Vec::new();
    let metadata = At::root(object, "metadata");
    if metadata.at("annotations").entry(HINTS).is_set() {
        warnings.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let at = At::root(object, "spec");
    let (kind, own) = (at.at("type").text(), at.at("clusterIP").text());
    if !own.is_empty() && own != "None" {
        for address in at.at("clusterIPs").items() {
            warnings.extend(ip_warning(&address.path, address.text()));
        }
    }
    let external = at.at("externalIPs");
    let is_headless = kind == "ClusterIP" && own == "None";
    if is_headless {
        if !at.at("loadBalancerIP").is_empty() {
            warnings.push(String::from(
                "spec.loadBalancerIP is ignored for headless services",
            ));
        }
        if !external.is_empty() {
            warnings.push(String::from(
                "spec.externalIPs is ignored for headless services",
            ));
        }
        if at.at("sessionAffinity").text() != "None" {
            warnings.push(String::from(
                "spec.SessionAffinity is ignored for headless services",
            ));
        }
    }
    for address in external.items() {
        warnings.extend(ip_warning(&address.path, address.text()));
    }
    if !external.is_empty() && !is_headless && kind != "ExternalName" {
        warnings.push(String::from(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ));
    }
    let balancer = at.at("loadBalancerIP");
    if !balancer.is_empty() {
        warnings.extend(ip_warning(&balancer.path, balancer.text()));
    }
    for range in at.at("loadBalancerSourceRanges").items() {
        warnings.extend(cidr_warnings(&range.path, range.text()));
    }
    if kind == "ExternalName" && !external.is_empty() {
        warnings.push(String::from(
            "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
        ));
    }
    if kind != "ExternalName" && !at.at("externalName").is_empty() {
        warnings.push(String::from(
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ));
    }
    if at.at("trafficDistribution").text() == "PreferClose" {
        warnings.push(String::from(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ));
    }
    warnings
}

/// Keeps allocated addresses and ports that the client omitted.
///
/// UPSTREAM: pkg/registry/core/service/storage/storage.go (patchAllocatedValues, normalizeClusterIPs)
fn keep_allocated(object: &mut Object, old: &Object) {
    let (Some(old_spec), Some(spec)) = (get(old, "spec"), get_mut(object, "spec")) else {
        return;
    };
    if needs_cluster_ip(old_spec) && needs_cluster_ip(spec) {
        if text(spec, "clusterIP").is_empty() {
            copy_field(spec, old_spec, "clusterIP");
        }
        if is_empty(spec, "clusterIPs") && !is_empty(old_spec, "clusterIPs") {
            copy_field(spec, old_spec, "clusterIPs");
        }
    }
    let address = text(spec, "clusterIP").to_owned();
    let former = text(old_spec, "clusterIP");
    if address == former {
        if is_empty(spec, "clusterIPs") && !is_empty(old_spec, "clusterIPs") {
            copy_field(spec, old_spec, "clusterIPs");
        }
    } else if list(spec, "clusterIPs") == list(old_spec, "clusterIPs") {
        // A client of the singular field changes or clears it only.
        if address.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs".to_owned(), json!([address]));
        }
    }
    if needs_node_port(old_spec) && needs_node_port(spec) {
        keep_node_ports(spec, old_spec);
    }
    let needs_health =
        |spec: &Object| is_balancer(spec) && text(spec, "externalTrafficPolicy") == "Local";
    if needs_health(old_spec) && needs_health(spec) && number(spec, "healthCheckNodePort") == 0 {
        copy_field(spec, old_spec, "healthCheckNodePort");
    }
}

/// Gives ports without a node port the one of the old port of the same name, if it is unused.
fn keep_node_ports(spec: &mut Object, old_spec: &Object) {
    let now = node_ports(spec);
    let kept: Vec<i64> = node_ports(old_spec)
        .into_iter()
        .filter(|port| *port != 0 && now.contains(port))
        .collect();
    let known: BTreeMap<&str, i64> = list(old_spec, "ports")
        .iter()
        .filter_map(Value::as_object)
        .map(|port| (text(port, "name"), number(port, "nodePort")))
        .collect();
    each(spec, "ports", |port| {
        let former = known.get(text(port, "name")).copied().unwrap_or_default();
        if number(port, "nodePort") == 0 && former != 0 && !kept.contains(&former) {
            port.insert("nodePort".to_owned(), Value::from(former));
        }
    });
}

/// Warnings about load balancer addresses.
pub(in crate::builtin) fn balancer_warnings(object: &Object) -> Vec<String> {
    let status = At::root(object, "status");
    let balancer = status.at("loadBalancer");
    let all = balancer.at("ingress");
    let warnings = all
        .items()
        .filter_map(|address| ip_warning(&address.path, address.at("ip").text()));
    warnings.collect()
}

/// Validates load balancer addresses; existing ones are accepted.
pub(in crate::builtin) fn balancer_addresses(
    errors: &mut FieldErrors,
    ingress: &At<'_, '_>,
    old: &Object,
    check_mode: impl Fn(&mut FieldErrors, &At<'_, '_>),
) {
    let former = At::root(old, "status");
    let balancer = former.at("loadBalancer");
    let known: Vec<&str> = balancer
        .at("ingress")
        .items()
        .map(|address| address.at("ip").text())
        .collect();
    for address in ingress.items() {
        let (ip, host) = (address.at("ip"), address.at("hostname"));
        if !known.contains(&ip.text()) {
            ip.check_set(errors, check_legacy_ip);
        }
        check_mode(errors, &address);
        host.check_set(errors, check_subdomain);
        if parse_ip_sloppy(host.text()).is_some() {
            host.invalid(errors, "must be a DNS name, not an IP address");
        }
    }
}
