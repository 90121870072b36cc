//! EndpointSlices.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::checks::{check_endpoint_ip, check_ip, check_label, check_legacy_ip, ip_warning};
use crate::kind::{Context, Generation, Kind, Resource, ServerComponent, Written, namespaced};
use crate::object::{Object, each, fill, with};
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::check_label_value;
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) const ENDPOINT_SLICES: Resource = namespaced(
    "discovery.k8s.io",
    "v1",
    "endpointslices",
    "endpointslice",
    "EndpointSlice",
    "EndpointSliceList",
    &EndpointSlice,
)
.generation(Generation::Sent(&[
    "addressType",
    "endpoints",
    "ports",
    "metadata.labels",
]));

/// The kind `EndpointSlice`.
#[derive(Debug)]
pub(super) struct EndpointSlice;

impl Kind for EndpointSlice {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::EndpointSlices)
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| drop_topology(object, None));
    }

    fn prepare_update(
        &self,
        _subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        with(value, |object| drop_topology(object, old.as_object()));
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        let mut warnings = Vec::new();
        if At::root(new.object(), "addressType").text() == "FQDN" {
            warnings.push(String::from(
                "spec.addressType: FQDN endpoints are deprecated",
            ));
        }
        warnings.extend(address_warnings(new.object()));
        warnings
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        address_warnings(new.object())
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata(new);
        self.validate(&mut errors, new, Some(old), context);
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        endpoint_slice(errors, new.object(), old.map(Written::object));
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn columns(&self) -> &'static str {
        "Name|AddressType|Ports|Endpoints|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        slice_row(object, common)
    }
}

fn defaults(object: &mut Object) {
    each(object, "ports", |port| {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    });
}

/// The maximum number of printed items.
const SHOWN: usize = 3;

fn slice_row(object: &Value, common: &Common<'_>) -> Row {
    let ports: Vec<String> = read::items(object, "/ports")
        .iter()
        .map(|port| match (port.get("port"), port.get("name")) {
            (Some(Value::Number(number)), _) => number.to_string(),
            (_, Some(Value::String(name))) => name.clone(),
            _ => String::from("*"),
        })
        .collect();
    let addresses: Vec<String> = read::items(object, "/endpoints")
        .iter()
        .flat_map(|endpoint| read::items(endpoint, "/addresses"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let shown = |texts: &[String]| match read::first_few(texts, SHOWN, ",") {
        text if text.is_empty() => cell("<unset>"),
        text => cell(text),
    };
    Row::of(vec![
        cell(common.name),
        cell(read::text(object, "/addressType")),
        shown(&ports),
        shown(&addresses),
        cell(common.age.as_str()),
    ])
}

fn endpoint_slice(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let kind = At::root(object, "addressType");
    kind.one_of(errors, &["FQDN", "IPv4", "IPv6"]);
    ports(errors, &At::root(object, "ports"));
    let all = At::root(object, "endpoints");
    let is_same = old.is_some_and(|old| At::root(old, "endpoints").same(&all));
    if !is_same {
        endpoints(errors, &all, kind.text());
    }
    if let Some(old) = old {
        kind.immutable(errors, &At::root(old, "addressType"));
    }
}

fn endpoints(errors: &mut FieldErrors, all: &At<'_, '_>, kind: &str) {
    const ENDPOINTS: usize = 1000;
    const ADDRESSES: usize = 100;
    const LABELS: usize = 16;
    if all.len() > ENDPOINTS {
        return all.too_many(errors, ENDPOINTS);
    }
    for endpoint in all.items() {
        let addresses = endpoint.at("addresses");
        if addresses.is_empty() {
            addresses.required_because(errors, "must contain at least 1 address");
        } else if addresses.len() > ADDRESSES {
            addresses.too_many(errors, ADDRESSES);
        }
        for address in addresses.items() {
            endpoint_address(errors, &addresses, &address, kind);
        }
        if endpoint.at("nodeName").is_set() {
            endpoint.at("nodeName").check(errors, check_subdomain);
        }
        let topology = endpoint.at("deprecatedTopology");
        if topology.len() > LABELS {
            topology.too_many(errors, LABELS);
        }
        topology.labels(errors);
        if endpoint.at("hostname").is_set() {
            endpoint.at("hostname").check(errors, check_label);
        }
        hints(errors, &endpoint.at("hints"));
    }
}

fn endpoint_address(errors: &mut FieldErrors, all: &At<'_, '_>, address: &At<'_, '_>, kind: &str) {
    let before = errors.len();
    let is_six = address.text().contains(':');
    match kind {
        "IPv4" => address.check(errors, check_legacy_ip),
        "IPv6" => address.check(errors, check_ip),
        "FQDN" => return domain_name(errors, address),
        _ => return,
    }
    if errors.len() > before {
        return;
    }
    if is_six != (kind == "IPv6") {
        let detail = format!("must be an {kind} address");
        all.invalid_as(errors, Shown::Text(address.text()), detail);
    }
    address.check(errors, check_endpoint_ip);
}

/// UPSTREAM: apimachinery pkg/util/validation/validation.go (IsFullyQualifiedDomainName)
fn domain_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_empty() {
        return at.required(errors);
    }
    let name = at.text().strip_suffix('.').unwrap_or_else(|| at.text());
    let messages = check_subdomain(name);
    if !messages.is_empty() {
        return at.invalid_as(errors, Shown::Text(name), messages.join(","));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return at.invalid_as(errors, Shown::Text(name), detail);
    }
    for label in name.split('.') {
        let messages = check_label(label);
        if !messages.is_empty() {
            return at.invalid_as(errors, Shown::Text(label), messages.join(","));
        }
    }
}

fn hints(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const HINTS: usize = 8;
    for (key, check) in [
        ("forZones", check_label_value as fn(&str) -> Vec<String>),
        ("forNodes", check_subdomain),
    ] {
        let all = at.at(key);
        if all.len() > HINTS {
            return all.too_many(errors, HINTS);
        }
        let mut seen = BTreeSet::new();
        for hint in all.items() {
            let name = hint.at("name");
            if !seen.insert(name.text()) {
                name.duplicate(errors);
            }
            name.check(errors, check);
        }
    }
}

fn ports(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const PORTS: usize = 20_000;
    if at.len() > PORTS {
        return at.too_many(errors, PORTS);
    }
    let mut names = BTreeSet::new();
    for port in at.items() {
        let name = port.at("name");
        name.check_set(errors, check_label);
        if !names.insert(name.text()) {
            name.duplicate(errors);
        }
        let protocol = port.at("protocol");
        if protocol.is_set() {
            protocol.known(errors, &["SCTP", "TCP", "UDP"]);
        } else {
            protocol.required(errors);
        }
        if port.at("appProtocol").is_set() {
            port.at("appProtocol").check(errors, check_qualified_name);
        }
    }
}

/// Drops `deprecatedTopology`, unless the old object has it and the endpoints are unchanged.
fn drop_topology(object: &mut Object, old: Option<&Object>) {
    let is_same = old.is_some_and(|old| old.get("endpoints") == object.get("endpoints"));
    if !is_same {
        each(object, "endpoints", |endpoint| {
            endpoint.remove("deprecatedTopology");
        });
    }
}

fn address_warnings(object: &Object) -> Vec<String> {
    // UPSTREAM: pkg/registry/discovery/endpointslice/strategy.go (warnOnBadIPs): controllers write valid IPs only.
    let metadata = At::root(object, "metadata");
    let labels = metadata.at("labels");
    let manager = labels.entry("endpointslice.kubernetes.io/managed-by");
    let is_controller = matches!(
        manager.text(),
        "endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io"
    );
    if is_controller {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for endpoint in At::root(object, "endpoints").items() {
        for address in endpoint.at("addresses").items() {
            warnings.extend(ip_warning(&address.path, address.text()));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::address_warnings;

    #[test]
    fn addresses_of_any_type_are_warned_about_unless_a_controller_wrote_them() {
        let slice = |kind: &str, manager: &str| {
            json!({
                "metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": manager}},
                "addressType": kind,
                "endpoints": [{"addresses": ["010.0.0.1", "a.b"]}],
            })
        };
        for (kind, manager, count) in [
            ("IPv4", "me", 1),
            ("FQDN", "me", 1),
            ("IPv4", "endpointslice-controller.k8s.io", 0),
        ] {
            let slice = slice(kind, manager);
            let warnings = address_warnings(slice.as_object().unwrap());
            assert_eq!(warnings.len(), count, "{kind} {manager}: {warnings:?}");
        }
    }
}
