//! Endpoints.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::checks::{check_endpoint_ip, check_label, check_legacy_ip, ip_warning};
use crate::kind::{Context, Kind, Resource, Written, namespaced};
use crate::object::{Object, each, fill_text, with};
use lockgate_api::field::FieldErrors;
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
use serde_json::Value;

pub(super) const ENDPOINTS: Resource = namespaced(
    "",
    "v1",
    "endpoints",
    "endpoints",
    "Endpoints",
    "EndpointsList",
    &Endpoints,
)
.in_etcd_as("services/endpoints")
.short(&["ep"])
.create_on_update();

/// The kind `Endpoints`.
#[derive(Debug)]
pub(super) struct Endpoints;

impl Kind for Endpoints {
    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        errors.extend(self.validate_metadata(new));
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
        let all = At::root(new.object(), "subsets");
        let is_same = old.is_some_and(|old| At::root(old.object(), "subsets").same(&all));
        if !is_same {
            subsets(errors, &all);
        }
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        address_warnings(new.object())
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        address_warnings(new.object())
    }

    fn deprecation_warning(&self) -> Option<&'static str> {
        // UPSTREAM: api core/v1/zz_generated.prerelease-lifecycle.go
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
    }

    fn columns(&self) -> &'static str {
        "Name|Endpoints|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        endpoints_row(object, common)
    }
}

/// UPSTREAM: pkg/registry/core/endpoint/strategy.go (endpointsWarnings)
fn address_warnings(object: &Object) -> Vec<String> {
    let metadata = At::root(object, "metadata");
    let manager = metadata.at("labels");
    let manager = manager.entry("endpoints.kubernetes.io/managed-by");
    if manager.text() == "endpoint-controller" {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for subset in At::root(object, "subsets").items() {
        for key in ["addresses", "notReadyAddresses"] {
            for address in subset.at(key).items() {
                let ip = address.at("ip");
                warnings.extend(ip_warning(&ip.path, ip.text()));
            }
        }
    }
    warnings
}

fn defaults(object: &mut Object) {
    each(object, "subsets", |subset| {
        each(subset, "ports", |port| fill_text(port, "protocol", "TCP"));
    });
}

/// The maximum number of printed items.
const SHOWN: usize = 3;

fn endpoints_row(object: &Value, common: &Common<'_>) -> Row {
    let subsets = read::items(object, "/subsets");
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || {
            read::items(subset, "/addresses")
                .iter()
                .map(|address| read::text(address, "/ip"))
        };
        let ports = read::items(subset, "/ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let number = read::integer(port, "/port");
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
        read::first_few(&all, SHOWN, ",")
    };
    Row::of(vec![
        cell(common.name),
        cell(shown),
        cell(common.age.as_str()),
    ])
}

fn subsets(errors: &mut FieldErrors, all: &At<'_, '_>) {
    for subset in all.items() {
        let (ready, other) = (subset.at("addresses"), subset.at("notReadyAddresses"));
        if ready.is_empty() && other.is_empty() {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            subset.required_because(errors, detail);
        }
        for address in ready.items().chain(other.items()) {
            let ip = address.at("ip");
            ip.check(errors, check_legacy_ip);
            address.at("hostname").check_set(errors, check_label);
            if address.at("nodeName").is_set() {
                address.at("nodeName").check(errors, check_subdomain);
            }
            ip.check(errors, check_endpoint_ip);
        }
        let ports = subset.at("ports");
        for port in ports.items() {
            let name = port.at("name");
            if name.is_empty() {
                if ports.len() > 1 {
                    name.required(errors);
                }
            } else {
                name.check(errors, check_label);
            }
            port.at("port").within(errors, 1, 65535);
            port.at("protocol").one_of(errors, &["SCTP", "TCP", "UDP"]);
            if port.at("appProtocol").is_set() {
                port.at("appProtocol").check(errors, check_qualified_name);
            }
        }
    }
}
