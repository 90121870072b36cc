//! Services and what stands before and behind them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cells::{Common, Row, cell};
use super::read::{first_few, integer, items, joined, labels, shown_selector, text, text_or};

/// How many addresses, ports or hosts are shown.
const SHOWN: usize = 3;

pub(super) fn service(object: &Value, common: &Common<'_>) -> Row {
    let ports: Vec<String> = items(object, "/spec/ports").iter().map(port).collect();
    let ports = match ports.join(",") {
        ports if ports.is_empty() => String::from("<none>"),
        ports => ports,
    };
    Row::of(vec![
        cell(common.name),
        cell(text(object, "/spec/type")),
        cell(text_or(object, "/spec/clusterIPs/0", "<none>")),
        cell(external_address(object)),
        cell(ports),
        cell(common.age.as_str()),
        cell(labels(object, "/spec/selector")),
    ])
}

fn port(port: &Value) -> String {
    let number = integer(port, "/port");
    let protocol = text(port, "/protocol");
    match integer(port, "/nodePort") {
        node if node > 0 => format!("{number}:{node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_address(object: &Value) -> String {
    let own = joined(object, "/spec/externalIPs", ",");
    match text(object, "/spec/type") {
        "ClusterIP" | "NodePort" if own.is_empty() => String::from("<none>"),
        "ClusterIP" | "NodePort" => own,
        "LoadBalancer" => match (balancers(object), own) {
            (given, own) if given.is_empty() && own.is_empty() => String::from("<pending>"),
            (given, own) if own.is_empty() => given,
            (given, own) if given.is_empty() => own,
            (given, own) => format!("{given},{own}"),
        },
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ => String::from("<unknown>"),
    }
}

/// The addresses of load balancers, in order. Tables are always made wide, so none is cut off.
fn balancers(object: &Value) -> String {
    let addresses: BTreeSet<&str> = items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|ingress| match text(ingress, "/ip") {
            "" => text(ingress, "/hostname"),
            address => address,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

pub(super) fn endpoints(object: &Value, common: &Common<'_>) -> Row {
    let subsets = items(object, "/subsets");
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || {
            items(subset, "/addresses")
                .iter()
                .map(|address| text(address, "/ip"))
        };
        let ports = items(subset, "/ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let number = integer(port, "/port");
            all.extend(addresses().map(|address| {
                if address.contains(':') {
                    format!("[{address}]:{number}")
                } else {
                    format!("{address}:{number}")
                }
            }));
        }
    }
    let shown = if subsets.is_empty() {
        String::from("<none>")
    } else {
        first_few(&all, SHOWN, ",")
    };
    Row::of(vec![
        cell(common.name),
        cell(shown),
        cell(common.age.as_str()),
    ])
}

pub(super) fn endpoint_slice(object: &Value, common: &Common<'_>) -> Row {
    let ports: Vec<String> = items(object, "/ports")
        .iter()
        .map(|port| match (port.get("port"), port.get("name")) {
            (Some(Value::Number(number)), _) => number.to_string(),
            (_, Some(Value::String(name))) => name.clone(),
            _ => String::from("*"),
        })
        .collect();
    let addresses: Vec<String> = items(object, "/endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "/addresses"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let shown = |texts: &[String]| match first_few(texts, SHOWN, ",") {
        text if text.is_empty() => cell("<unset>"),
        text => cell(text),
    };
    Row::of(vec![
        cell(common.name),
        cell(text(object, "/addressType")),
        shown(&ports),
        shown(&addresses),
        cell(common.age.as_str()),
    ])
}

pub(super) fn ingress(object: &Value, common: &Common<'_>) -> Row {
    let class = match object.pointer("/spec/ingressClassName") {
        Some(Value::String(class)) => class.as_str(),
        _ => "<none>",
    };
    let ports = if items(object, "/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    Row::of(vec![
        cell(common.name),
        cell(class),
        cell(hosts(object)),
        cell(balancers(object)),
        cell(ports),
        cell(common.age.as_str()),
    ])
}

/// The hosts of an ingress. How many more there are counts rules, with a host or without.
fn hosts(object: &Value) -> String {
    let rules = items(object, "/spec/rules");
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN;
        let host = text(rule, "/host");
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.join(","), more) {
        (hosts, _) if hosts.is_empty() => String::from("*"),
        (hosts, false) => hosts,
        (hosts, true) => format!("{hosts} + {} more...", rules.len().saturating_sub(SHOWN)),
    }
}

pub(super) fn ingress_class(object: &Value, common: &Common<'_>) -> Row {
    let parameters = match object.pointer("/spec/parameters") {
        Some(parameters) if parameters.is_object() => {
            let group = match parameters.get("apiGroup") {
                Some(Value::String(group)) => format!(".{group}"),
                _ => String::new(),
            };
            let (kind, name) = (text(parameters, "/kind"), text(parameters, "/name"));
            format!("{kind}{group}/{name}")
        }
        _ => String::from("<none>"),
    };
    let annotation = "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class";
    Row::of(vec![
        cell(with_default(
            common.name,
            text(object, annotation) == "true",
        )),
        cell(text(object, "/spec/controller")),
        cell(parameters),
        cell(common.age.as_str()),
    ])
}

/// A name that says so if it is used where none is given.
pub(super) fn with_default(name: &str, is_default: bool) -> String {
    let suffix = if is_default { " (default)" } else { "" };
    format!("{name}{suffix}")
}

pub(super) fn network_policy(object: &Value, common: &Common<'_>) -> Row {
    Row::of(vec![
        cell(common.name),
        cell(shown_selector(object, "/spec/podSelector")),
        cell(common.age.as_str()),
    ])
}

pub(super) fn ip_address(object: &Value, common: &Common<'_>) -> Row {
    let parent = match object.pointer("/spec/parentRef") {
        Some(parent) if parent.is_object() => {
            let resource = match text(parent, "/group") {
                "" => text(parent, "/resource").to_owned(),
                group => format!("{}.{group}", text(parent, "/resource")),
            };
            let namespace = match text(parent, "/namespace") {
                "" => String::new(),
                namespace => format!("/{namespace}"),
            };
            let name = text(parent, "/name");
            format!("{}{namespace}/{name}", resource.to_lowercase())
        }
        _ => String::from("<none>"),
    };
    Row::of(vec![
        cell(common.name),
        cell(parent),
        cell(common.age.as_str()),
    ])
}

pub(super) fn service_cidr(object: &Value, common: &Common<'_>) -> Row {
    Row::of(vec![
        cell(common.name),
        cell(joined(object, "/spec/cidrs", ",")),
        cell(common.age.as_str()),
    ])
}
