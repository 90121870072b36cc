//! EndpointSlices.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{Generation, Kind, Resource, namespaced};
use crate::object::{Object, each, fill, with};
use serde_json::Value;

pub(super) const ENDPOINT_SLICES: Resource = namespaced(
    "discovery.k8s.io",
    "v1",
    "endpointslices",
    "endpointslice",
    "EndpointSlice",
    "EndpointSliceList",
    &EndpointSlice,
)
.generation(Generation::Members(&[
    "addressType",
    "endpoints",
    "ports",
    "metadata.labels",
]));

/// The kind `EndpointSlice`.
#[derive(Debug)]
pub(super) struct EndpointSlice;

impl Kind for EndpointSlice {
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

/// The number of items shown before the count of the rest.
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
