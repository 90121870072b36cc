//! Endpoints.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{Kind, Resource, namespaced};
use crate::object::{Object, each, fill_text, with};
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
.short(&["ep"])
.create_on_update();

/// The kind `Endpoints`.
#[derive(Debug)]
pub(super) struct Endpoints;

impl Kind for Endpoints {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
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

fn defaults(object: &mut Object) {
    each(object, "subsets", |subset| {
        each(subset, "ports", |port| fill_text(port, "protocol", "TCP"));
    });
}

/// The number of items shown before the count of the rest.
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
