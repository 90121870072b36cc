//! Services.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{
    LABEL_NAMES, check_label, check_port_name, invalid_each, one_of, port_number, required,
};
use crate::kind::{
    CHANGE, Context, Deletion, FieldSelector, Kind, NAME, NAMESPACE, PROXY, Resource, Written,
    namespaced, select, sub,
};
use crate::object::{
    Object, at_mut, each, fill, fill_text, get, get_mut, has, is_empty, list, number, text, with,
};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
use lockgate_api::meta::validation::NameRules;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const SERVICES: Resource = namespaced(
    "",
    "v1",
    "services",
    "service",
    "Service",
    "ServiceList",
    &Service,
)
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
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn name_rules(&self) -> NameRules {
        LABEL_NAMES
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        service(errors, new.object());
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

/// Drops what the server filled in for the former type and the client did not touch.
///
/// UPSTREAM: pkg/registry/core/service/strategy.go (dropTypeDependentFields).
fn drop_type_dependent(object: &mut Object, old: &Object) {
    let (Some(old_spec), Some(spec)) = (get(old, "spec"), get_mut(object, "spec")) else {
        return;
    };
    let same = |spec: &Object, key: &str| spec.get(key) == old_spec.get(key);
    if needs_cluster_ip(old_spec) && !needs_cluster_ip(spec) {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, key) {
                spec.remove(key);
            }
        }
    }
    if needs_node_port(old_spec)
        && !needs_node_port(spec)
        && node_ports(spec) == node_ports(old_spec)
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

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

fn service(errors: &mut FieldErrors, object: &Object) {
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

/// The addresses of load balancers, in order. Tables are always made wide, so none is cut off.
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
