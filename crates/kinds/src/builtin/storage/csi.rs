//! CSIDrivers, CSINodes and CSIStorageCapacities.

use crate::cells::read;
use crate::cells::{Common, Row, cell, count_cell};
use crate::kind::{Deletion, Generation, Kind, Resource, cluster, namespaced};
use crate::object::{Object, fill, get_mut, is_empty, with};
use serde_json::{Value, json};

pub(super) const CSI_DRIVERS: Resource = cluster(
    "storage.k8s.io",
    "v1",
    "csidrivers",
    "csidriver",
    "CSIDriver",
    "CSIDriverList",
    &CsiDriver,
)
.conditional_update()
.generation(Generation::UpdateOnly(&["spec"]));

pub(super) const CSI_NODES: Resource = cluster(
    "storage.k8s.io",
    "v1",
    "csinodes",
    "csinode",
    "CSINode",
    "CSINodeList",
    &CsiNode,
)
.conditional_update();

pub(super) const CSI_STORAGE_CAPACITIES: Resource = namespaced(
    "storage.k8s.io",
    "v1",
    "csistoragecapacities",
    "csistoragecapacity",
    "CSIStorageCapacity",
    "CSIStorageCapacityList",
    &CsiStorageCapacity,
)
.conditional_update();

/// The kind `CSIDriver`.
#[derive(Debug)]
pub(super) struct CsiDriver;

impl Kind for CsiDriver {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, driver_defaults);
    }

    fn columns(&self) -> &'static str {
        "Name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests|RequiresRepublish:boolean|Modes|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        driver_row(object, common)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `CSINode`.
#[derive(Debug)]
pub(super) struct CsiNode;

impl Kind for CsiNode {
    fn columns(&self) -> &'static str {
        "Name|Drivers:integer|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [count_cell(read::count(object, "/spec/drivers"))])
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `CSIStorageCapacity`.
#[derive(Debug)]
pub(super) struct CsiStorageCapacity;

impl Kind for CsiStorageCapacity {}

fn driver_defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill(spec, "attachRequired", true);
    fill(spec, "podInfoOnMount", false);
    fill(spec, "storageCapacity", false);
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if is_empty(spec, "volumeLifecycleModes") {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
    fill(spec, "requiresRepublish", false);
    fill(spec, "seLinuxMount", false);
}

/// A flag that is something when nobody says.
fn flag_or(object: &Value, pointer: &str, otherwise: bool) -> bool {
    let found = object.pointer(pointer).and_then(Value::as_bool);
    found.unwrap_or(otherwise)
}

fn driver_row(object: &Value, common: &Common<'_>) -> Row {
    let audiences = match object.pointer("/spec/tokenRequests") {
        Some(Value::Array(requests)) => {
            let audiences: Vec<&str> = requests
                .iter()
                .map(|request| read::text(request, "/audience"))
                .collect();
            audiences.join(",")
        }
        _ => String::from("<unset>"),
    };
    let modes = match read::joined(object, "/spec/volumeLifecycleModes", ",") {
        modes if modes.is_empty() => String::from("<none>"),
        modes => modes,
    };
    Row::of(vec![
        cell(common.name),
        cell(flag_or(object, "/spec/attachRequired", true)),
        cell(flag_or(object, "/spec/podInfoOnMount", false)),
        cell(flag_or(object, "/spec/storageCapacity", false)),
        cell(audiences),
        cell(flag_or(object, "/spec/requiresRepublish", false)),
        cell(modes),
        cell(common.age.as_str()),
    ])
}
