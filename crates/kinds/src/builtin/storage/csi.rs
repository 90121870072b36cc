//! CSIDrivers, CSINodes and CSIStorageCapacities.

use crate::at::At;
use crate::builtin::core::volume_source::driver_name;
use crate::cells::{Common, Row, cell, count_cell, read};
use crate::equality::semantically_equal;
use crate::kind::{Context, Deletion, Generation, Kind, Resource, Written, cluster, namespaced};
use crate::object::{Object, fill, get_mut, is_empty, with};
use crate::typed::member_type;
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        // The feature gate VolumeLimitScaling is disabled by default.
        with(value, |object| {
            if let Some(spec) = get_mut(object, "spec") {
                spec.remove("preventPodSchedulingIfMissing");
            }
        });
    }

    fn prepare_update(
        &self,
        _subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        const MEMBER: &str = "preventPodSchedulingIfMissing";
        let was_set = old
            .get("spec")
            .is_some_and(|spec| spec.get(MEMBER).is_some());
        with(value, |object| {
            if let (false, Some(spec)) = (was_set, get_mut(object, "spec")) {
                spec.remove(MEMBER);
            }
        });
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        driver_warnings(new.object())
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        let requests = |written: &Written<'_>| {
            let requests = written.value.pointer("/spec/tokenRequests");
            requests.cloned().unwrap_or_default()
        };
        let are_same = member_type("storage.k8s.io", "CSIDriver", &["spec", "tokenRequests"])
            .is_some_and(|ty| semantically_equal(ty, &requests(new), &requests(old)));
        if are_same {
            return Vec::new();
        }
        driver_warnings(new.object())
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        csi_driver(errors, new.object(), old.map(Written::object));
    }

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
    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_create(new, context);
        let (new, old) = (
            At::root(new.object(), "spec"),
            At::root(old.object(), "spec"),
        );
        let drivers = new.at("drivers");
        for former in old.at("drivers").items() {
            for driver in drivers.items() {
                if driver.at("name").text() != former.at("name").text() {
                    continue;
                }
                let bare = |driver: &At<'_, '_>| {
                    let mut driver = driver.value.cloned().unwrap_or_default();
                    with(&mut driver, |members| {
                        members.remove("allocatable");
                    });
                    driver
                };
                let (driver, former) = (bare(&driver), bare(&former));
                let ty = member_type("storage.k8s.io", "CSINode", &["spec", "drivers"])
                    .and_then(|drivers| drivers.element());
                At::new(drivers.path, Some(&driver)).immutable_typed(
                    &mut errors,
                    &At::new(drivers.path, Some(&former)),
                    ty,
                );
            }
        }
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        csi_node(errors, new.object());
    }

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

impl Kind for CsiStorageCapacity {
    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_create(new, context);
        errors.extend(self.validate_metadata_update(new, old));
        for key in ["nodeTopology", "storageClassName"] {
            let former = At::root(old.object(), key);
            let ty = member_type("storage.k8s.io", "CSIStorageCapacity", &[key]);
            At::root(new.object(), key).immutable_typed(&mut errors, &former, ty);
        }
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        storage_capacity(errors, new.object());
    }
}

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

/// A boolean with a default.
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

fn csi_driver(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    for (key, name) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !at.at(key).is_set() {
            at.at(name).required(errors);
        }
    }
    at.at("fsGroupPolicy")
        .known_if_set(errors, &["File", "None", "ReadWriteOnceWithFSType"]);
    let requests = at.at("tokenRequests");
    let mut audiences = BTreeSet::new();
    for request in requests.items() {
        let audience = request.at("audience");
        if !audiences.insert(audience.text()) {
            audience.duplicate(errors);
            continue;
        }
        let expiration = request.at("expirationSeconds");
        if !expiration.is_set() {
            continue;
        }
        if expiration.int() < 10 * 60 {
            expiration.invalid_int(errors, "may not specify a duration less than 10 minutes");
        }
        if expiration.int() > 1 << 32 {
            expiration.invalid_int(
                errors,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
    }
    let modes = at.at("volumeLifecycleModes");
    for mode in modes.items() {
        At::new(modes.path, mode.value).known(errors, &["Persistent", "Ephemeral"]);
    }
    if !at.at("seLinuxMount").is_set() {
        at.at("seLinuxMount").required(errors);
    }
    let period = at.at("nodeAllocatableUpdatePeriodSeconds");
    if period.is_set() && period.int() < 10 {
        period.invalid_int(errors, "must be greater than or equal to 10 seconds");
    }
    let in_secrets = at.at("serviceAccountTokenInSecrets");
    if in_secrets.is_set() && requests.is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        in_secrets.invalid(errors, detail);
    }
    if let Some(old) = old {
        let former = At::root(old, "spec");
        let attach = At::new(
            at.path.child("attachedRequired"),
            at.at("attachRequired").value,
        );
        attach.immutable(errors, &former.at("attachRequired"));
        let ty = member_type(
            "storage.k8s.io",
            "CSIDriver",
            &["spec", "volumeLifecycleModes"],
        );
        modes.immutable_typed(errors, &former.at("volumeLifecycleModes"), ty);
    }
}

fn csi_node(errors: &mut FieldErrors, object: &Object) {
    const ID_MAX: usize = 256;
    let spec = At::root(object, "spec");
    let mut names = BTreeSet::new();
    for driver in spec.at("drivers").items() {
        let (name, id) = (driver.at("name"), driver.at("nodeID"));
        driver_name(errors, &name);
        id.must_be_set(errors);
        if id.text().len() > ID_MAX {
            id.invalid(errors, format!("must be {ID_MAX} characters or less"));
        }
        let allocatable = driver.at("allocatable");
        allocatable.at("count").non_negative(errors);
        if !names.insert(name.text()) {
            name.duplicate(errors);
        }
        let mut keys = BTreeSet::new();
        for key in driver.at("topologyKeys").texts() {
            if key.is_empty() {
                driver.required(errors);
            }
            if !keys.insert(key) {
                driver.duplicate_as(errors, Shown::Text(key));
            }
            for message in check_qualified_name(key) {
                driver.invalid_as(errors, Shown::Text(key), message);
            }
        }
    }
}

fn storage_capacity(errors: &mut FieldErrors, object: &Object) {
    At::root(object, "nodeTopology").label_selector(errors);
    At::root(object, "storageClassName").check(errors, check_subdomain);
    let capacity = At::root(object, "capacity");
    if let Some(quantity) = capacity.quantity().filter(|quantity| quantity.sign() < 0) {
        capacity.invalid_as(
            errors,
            Shown::Text(&quantity.to_string()),
            "must be greater than or equal to 0",
        );
    }
}

fn driver_warnings(object: &Object) -> Vec<String> {
    let spec = At::root(object, "spec");
    if spec.at("tokenRequests").is_empty() || spec.at("serviceAccountTokenInSecrets").is_set() {
        return Vec::new();
    }
    vec![String::from(
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true \
         to prevent possible logging of tokens in volume attributes",
    )]
}
