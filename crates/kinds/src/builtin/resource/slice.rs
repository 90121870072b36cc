//! ResourceSlices and DeviceClasses.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{Deletion, FieldSelector, Kind, NAME, Resource, SPEC, cluster, select};
use crate::object::{Object, at_mut, each, fill, get, get_mut, with};
use serde_json::Value;

pub(super) const RESOURCE_SLICES: Resource = cluster(
    "resource.k8s.io",
    "v1",
    "resourceslices",
    "resourceslice",
    "ResourceSlice",
    "ResourceSliceList",
    &ResourceSlice,
)
.generation(SPEC);

pub(super) const DEVICE_CLASSES: Resource = cluster(
    "resource.k8s.io",
    "v1",
    "deviceclasses",
    "deviceclass",
    "DeviceClass",
    "DeviceClassList",
    &DeviceClass,
)
.generation(SPEC);

const SELECTABLE: &[FieldSelector] = &[
    NAME,
    select("spec.nodeName", &["spec", "nodeName"]),
    select("spec.driver", &["spec", "driver"]),
];

/// The kind `ResourceSlice`.
#[derive(Debug)]
pub(super) struct ResourceSlice;

impl Kind for ResourceSlice {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn columns(&self) -> &'static str {
        "Name|Node|Driver|Pool|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(
            common,
            ["/spec/nodeName", "/spec/driver", "/spec/pool/name"]
                .map(|pointer| cell(read::text(object, pointer))),
        )
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }

    fn unsupported_field_label(&self, label: &str) -> String {
        format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `DeviceClass`.
#[derive(Debug)]
pub(super) struct DeviceClass;

impl Kind for DeviceClass {
    fn columns(&self) -> &'static str {
        "Name|Age"
    }

    fn row(&self, _object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [])
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

fn defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    each(spec, "devices", |device| {
        let names: Vec<String> = get(device, "nodeAllocatableResourceMappings")
            .map(|mappings| mappings.keys().cloned().collect())
            .unwrap_or_default();
        for name in names {
            if let Some(mapping) =
                at_mut(device, &["nodeAllocatableResourceMappings", name.as_str()])
            {
                fill(mapping, "allocationMultiplier", "1");
            }
        }
    });
}
