//! ResourceSlices and DeviceClasses.

use std::collections::BTreeSet;

use serde_json::Value;

use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::check_subdomain;
use lockgate_api::meta::time::Time;
use lockgate_api::meta::validation::{NameRules, validate_metadata_update};
use lockgate_go::quantity::Quantity;
use lockgate_go::quote::quote;

use super::device::{
    CONFIGURATIONS_MAX, binding_conditions, configuration, items, name_of, pool_name,
    qualified_name, selectors, set, taint,
};
use crate::at::At;
use crate::builtin::core::resource_name::{is_extended, is_native};
use crate::builtin::core::volume_source::{driver_name, node_selector};
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{LONG_NAMES, check_label};
use crate::equality::semantically_equal;
use crate::kind::{
    Context, Deletion, FieldSelector, Generation, Kind, NAME, Resource, SPEC, Written, cluster,
    select,
};
use crate::object::{Object, at_mut, each, fill, get, get_mut, list, with};
use crate::typed::{internal_form, member_type};

const GROUP: &str = "resource.k8s.io";

pub(super) const RESOURCE_SLICES: Resource = cluster(
    GROUP,
    "v1",
    "resourceslices",
    "resourceslice",
    "ResourceSlice",
    "ResourceSliceList",
    &ResourceSlice,
)
.generation(Generation::Sent(&["spec"]));

pub(super) const DEVICE_CLASSES: Resource = cluster(
    GROUP,
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

    fn apply_time_defaults(&self, value: &mut Value, now: Time) {
        with(value, |slice| taint_times(slice, now));
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |slice| drop_disabled(slice, None));
    }

    fn prepare_update(
        &self,
        _subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        with(value, |slice| drop_disabled(slice, old.as_object()));
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        let at = At::root(new.object(), "spec");
        let old = old.map(|old| At::root(old.object(), "spec"));
        slice(errors, &at, old.as_ref());
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        driver_warnings(new)
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        driver_warnings(new)
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
    fn name_rules(&self) -> NameRules {
        LONG_NAMES
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        let at = At::root(new.object(), "spec");
        let old = old.map(|old| At::root(old.object(), "spec"));
        class(errors, &at, old.as_ref());
    }

    fn validate_metadata_update(&self, new: &Written<'_>, old: &Written<'_>) -> FieldErrors {
        let path = Path::root("metadata");
        let mut errors = FieldErrors::new();
        if new.metadata.name.is_empty() && !new.metadata.generate_name.is_empty() {
            let prefix = quote(&new.metadata.generate_name);
            let detail =
                format!("generateName was specified ({prefix}), but no name was generated");
            errors.push(FieldError::internal(&path.child("name"), detail));
        }
        errors.extend(self.validate_metadata(new));
        errors.extend(validate_metadata_update(
            &new.metadata,
            &old.metadata,
            &path,
        ));
        self.validate_finalizers(&mut errors, new);
        errors
    }

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

/// Defaults `timeAdded` of taints.
fn taint_times(object: &mut Object, now: Time) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    each(spec, "devices", |device| {
        each(device, "taints", |taint| {
            fill(taint, "timeAdded", now.to_string());
        });
    });
}

const DEVICES_MAX: usize = 128;
/// The maximum number of devices in a slice with taints, counters or lists of values.
const ADVANCED_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const CONSUMPTIONS_MAX: usize = 2;
const TAINTS_MAX: usize = 16;
const ENTRIES_MAX: usize = 32;
const VALUES_MAX: usize = 48;
const VALUE_LENGTH_MAX: usize = 64;
const OPTIONS_MAX: usize = 10;

/// Lists of attribute values, behind the feature gate DRAListTypeAttributes.
const VALUE_LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Drops the fields of disabled feature gates, unless the old object uses them.
fn drop_disabled(slice: &mut Object, old: Option<&Object>) {
    let devices = |object: Option<&Object>| -> Vec<Value> {
        let spec = object.and_then(|object| get(object, "spec"));
        spec.map_or_else(Vec::new, |spec| list(spec, "devices").to_vec())
    };
    let former = devices(old);
    let has_mappings = former
        .iter()
        .any(|device| device.get("nodeAllocatableResourceMappings").is_some());
    let has_lists = former
        .iter()
        .filter_map(|device| device.get("attributes")?.as_object())
        .flat_map(Object::values)
        .any(|attribute| VALUE_LISTS.iter().any(|key| attribute.get(key).is_some()));
    let Some(spec) = get_mut(slice, "spec") else {
        return;
    };
    each(spec, "devices", |device| {
        if !has_mappings {
            device.remove("nodeAllocatableResourceMappings");
        }
        let attributes = get_mut(device, "attributes").filter(|_| !has_lists);
        for attribute in attributes.into_iter().flat_map(Object::values_mut) {
            for key in VALUE_LISTS {
                if let Some(members) = attribute.as_object_mut() {
                    members.remove(key);
                }
            }
        }
    });
}

fn driver_warnings(new: &Written<'_>) -> Vec<String> {
    let spec = At::root(new.object(), "spec");
    let driver = spec.at("driver").text();
    if driver == driver.to_lowercase() {
        return Vec::new();
    }
    let quoted = quote(driver);
    vec![format!(
        "spec.driver: driver names should be lowercase; {quoted} contains uppercase characters"
    )]
}

fn class(errors: &mut FieldErrors, at: &At<'_, '_>, old: Option<&At<'_, '_>>) {
    selectors(errors, &at.at("selectors"));
    let config = at.at("config");
    let is_stored = old.is_some_and(|old| config.same(&old.at("config")));
    items(errors, &config, CONFIGURATIONS_MAX, |errors, config| {
        configuration(errors, config, is_stored);
    });
    let name = at.at("extendedResourceName");
    if name.is_set() && !is_extended(name.text()) {
        name.invalid(errors, "must be a valid extended resource name");
    }
}

fn slice(errors: &mut FieldErrors, at: &At<'_, '_>, old: Option<&At<'_, '_>>) {
    driver_name(errors, &at.at("driver"));
    let pool = at.at("pool");
    pool_name(errors, &pool.at("name"));
    pool.at("resourceSliceCount").positive(errors);
    if pool.at("generation").int() < 0 {
        pool.at("generation")
            .invalid_int(errors, "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        let ty = |path: &[&str]| member_type(GROUP, "ResourceSlice", path);
        pool.at("name").immutable_typed(
            errors,
            &old.at("pool").at("name"),
            ty(&["spec", "pool", "name"]),
        );
        for key in ["driver", "nodeName"] {
            at.at(key)
                .immutable_typed(errors, &old.at(key), ty(&["spec", key]));
        }
    }
    let per_device = at.at("perDeviceNodeSelection");
    nodes(errors, at);
    if at.at("sharedCounters").is_set() && at.at("devices").is_set() {
        at.invalid_as(
            errors,
            Shown::Text(""),
            "only one of `sharedCounters` or `devices` is allowed",
        );
    }
    let devices = at.at("devices");
    let is_advanced = devices.items().any(|device| {
        let has_lists = device
            .at("attributes")
            .entries()
            .any(|(_, attribute)| VALUE_LISTS.iter().any(|key| attribute.at(key).is_set()));
        has_lists || !device.at("taints").is_empty() || !device.at("consumesCounters").is_empty()
    });
    let most = if is_advanced {
        ADVANCED_DEVICES_MAX
    } else {
        DEVICES_MAX
    };
    let former = old.map(|old| old.at("devices"));
    let check = |errors: &mut FieldErrors, at: &At<'_, '_>| {
        let before = former.as_ref().and_then(|former| {
            let name = at.at("name").text();
            former.items().find(|old| old.at("name").text() == name)
        });
        device(errors, at, before.as_ref(), per_device.flag());
    };
    set(errors, &devices, most, check, name_of);
    let counters = at.at("sharedCounters");
    set(errors, &counters, COUNTER_SETS_MAX, counter_set, name_of);
}

/// Validates the node selection of a slice.
fn nodes(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const WANTED: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, \
                          `perDeviceNodeSelection` is required";
    let mut found = Vec::new();
    let name = at.at("nodeName");
    if name.is_set() {
        if name.is_empty() {
            name.invalid(errors, "must be either unset or set to a non-empty string");
        } else {
            found.push("`nodeName`");
            name.check(errors, check_subdomain);
        }
    }
    let selector = at.at("nodeSelector");
    if selector.is_set() {
        found.push("`nodeSelector`");
        node_selector(errors, &selector, false);
        let terms = selector.at("nodeSelectorTerms");
        if terms.len() != 1 {
            let ty = member_type(
                GROUP,
                "ResourceSlice",
                &["spec", "nodeSelector", "nodeSelectorTerms"],
            );
            let shown = ty.map_or_else(String::new, |ty| internal_form(ty, terms.value));
            terms.invalid_as(
                errors,
                Shown::Rendered(&shown),
                "must have exactly one node selector term",
            );
        }
    }
    for (key, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        let flag = at.at(key);
        if flag.flag() {
            found.push(shown);
        } else if flag.is_set() {
            flag.invalid(errors, "must be either unset or set to true");
        }
    }
    match found.len() {
        0 => at.required_because(errors, WANTED),
        1 => {}
        _ => at.invalid_as(
            errors,
            Shown::Text(&format!("{{{}}}", found.join(", "))),
            format!("{WANTED}, but multiple fields are set"),
        ),
    }
}

fn device(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    old: Option<&At<'_, '_>>,
    per_device_nodes: bool,
) {
    at.at("name").check(errors, check_label);
    let (attributes, capacity) = (at.at("attributes"), at.at("capacity"));
    let entries = attributes.len() + capacity.len();
    if entries > ENTRIES_MAX {
        at.invalid_as(
            errors,
            Shown::Integer(entries as i64),
            format!("the total number of attributes and capacities must not exceed {ENTRIES_MAX}"),
        );
    }
    let values: usize = attributes
        .entries()
        .map(|(_, attribute)| {
            let listed: usize = VALUE_LISTS.iter().map(|key| attribute.at(key).len()).sum();
            listed.max(1)
        })
        .sum();
    if values > VALUES_MAX {
        at.invalid_as(
            errors,
            Shown::Integer(values as i64),
            format!("the total number of attribute values must not exceed {VALUES_MAX}"),
        );
    }
    for (name, _) in attributes.entries() {
        qualified_name(errors, &attributes, name);
        attribute(errors, &entry(&attributes, name, &mut String::new()));
    }
    let shares = at.at("allowMultipleAllocations").flag();
    for (name, _) in capacity.entries() {
        qualified_name(errors, &capacity, name);
        let mut key = String::new();
        let amount = entry(&capacity, name, &mut key);
        let policy = amount.at("requestPolicy");
        if !policy.is_set() {
            continue;
        }
        if shares {
            request_policy(errors, &policy, &amount.at("value"));
        } else {
            policy.forbidden(errors, "allowMultipleAllocations must be true");
        }
    }
    let taints = at.at("taints");
    let are_same = old.is_some_and(|old| taints_are_same(&taints, &old.at("taints")));
    if !are_same {
        items(errors, &taints, TAINTS_MAX, taint);
    }
    let consumes = at.at("consumesCounters");
    set(
        errors,
        &consumes,
        CONSUMPTIONS_MAX,
        |errors, at| {
            at.at("counterSet").check_required(errors, check_label);
            counters(errors, &at.at("counters"));
        },
        |at| at.at("counterSet").text().to_owned(),
    );
    device_nodes(errors, at, per_device_nodes);
    binding_conditions(errors, at);
    mappings(errors, at);
}

/// The entry of a map; long keys are shortened in the path.
fn entry<'s, 'v>(at: &'s At<'_, 'v>, name: &'s str, key: &'s mut String) -> At<'s, 'v> {
    /// The length of a domain, a slash and an identifier.
    const KEY_MAX: usize = 63 + 1 + 32;
    let value = at.entry(name).value;
    key.push_str(name);
    if name.len() > KEY_MAX {
        let remaining = KEY_MAX - 3;
        let bytes = name.as_bytes();
        let head = &bytes[..remaining.div_ceil(2)];
        let tail = &bytes[bytes.len() - remaining / 2..];
        *key = format!(
            "{}...{}",
            String::from_utf8_lossy(head),
            String::from_utf8_lossy(tail)
        );
    }
    At::new(at.path.key(key), value)
}

fn taints_are_same(new: &At<'_, '_>, old: &At<'_, '_>) -> bool {
    let value = |at: &At<'_, '_>| at.value.cloned().unwrap_or_default();
    member_type(GROUP, "ResourceSlice", &["spec", "devices"])
        .and_then(|devices| devices.element()?.field("taints"))
        .is_some_and(|field| semantically_equal(field.ty(), &value(new), &value(old)))
}

fn device_nodes(errors: &mut FieldErrors, at: &At<'_, '_>, per_device: bool) {
    const WANTED: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                          `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let (name, selector, all) = (at.at("nodeName"), at.at("nodeSelector"), at.at("allNodes"));
    if !per_device {
        if name.is_set() || selector.is_set() || all.is_set() {
            at.invalid_as(
                errors,
                Shown::Rendered("null"),
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if \
                 `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            );
        }
        return;
    }
    let mut found = Vec::new();
    if name.is_set() {
        if name.is_empty() {
            name.invalid(errors, "must not be empty");
        } else {
            found.push("`nodeName`");
            name.check(errors, check_subdomain);
        }
    }
    if selector.is_set() {
        found.push("`nodeSelector`");
        node_selector(errors, &selector, false);
    }
    if all.flag() {
        found.push("`allNodes`");
    } else if all.is_set() {
        all.invalid(errors, "must be either unset or set to true");
    }
    match found.len() {
        0 => at.required_because(errors, WANTED),
        1 => {}
        _ => at.invalid_as(
            errors,
            Shown::Text(&format!("{{{}}}", found.join(", "))),
            WANTED,
        ),
    }
}

fn mappings(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let capacity = at.at("capacity");
    for (name, mapping) in at.at("nodeAllocatableResourceMappings").entries() {
        if !is_native(name) {
            let detail = "must be a node allocatable resource name";
            mapping.invalid_as(errors, Shown::Text(name), detail);
        }
        let (factor, key) = (
            mapping.at("allocationMultiplier"),
            mapping.at("capacityKey"),
        );
        if let Some(quantity) = factor.quantity().filter(|quantity| quantity.sign() <= 0) {
            let shown = quantity.to_string();
            factor.invalid_as(errors, Shown::Text(&shown), "must be positive");
        }
        if key.is_set() {
            if key.is_empty() {
                key.invalid(errors, "capacityKey must not be an empty string");
            } else if !capacity.entry(key.text()).is_set() {
                key.not_found(errors, "");
            }
        }
    }
}

fn counter_set(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.at("name").check_required(errors, check_label);
    counters(errors, &at.at("counters"));
}

fn counters(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_empty() {
        return at.required(errors);
    }
    if at.len() > COUNTERS_MAX {
        return at.too_many(errors, COUNTERS_MAX);
    }
    for (name, _) in at.entries() {
        for message in check_label(name) {
            at.invalid_as(errors, Shown::Text(name), message);
        }
    }
}

fn attribute(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let mut found = 0;
    for key in ["bool", "int", "string", "version"] {
        let value = at.at(key);
        if value.is_set() {
            found += 1;
            attribute_value(errors, &value, key);
        }
    }
    for key in VALUE_LISTS {
        let values = at.at(key);
        if !values.is_set() {
            continue;
        }
        found += 1;
        if values.is_empty() {
            values.invalid(errors, "must not be empty if specified");
        }
        for value in values.items() {
            attribute_value(errors, &value, key.trim_end_matches('s'));
        }
    }
    let ty = || {
        member_type(GROUP, "ResourceSlice", &["spec", "devices"])?
            .element()?
            .field("attributes")?
            .ty()
            .element()
    };
    let shown = match found {
        0 => String::from("\"\""),
        1 => return,
        _ => ty().map_or_else(String::new, |ty| internal_form(ty, at.value)),
    };
    at.invalid_as(
        errors,
        Shown::Rendered(&shown),
        "exactly one value must be specified",
    );
}

fn attribute_value(errors: &mut FieldErrors, at: &At<'_, '_>, key: &str) {
    if key == "version" && !is_semantic_version(at.text()) {
        let detail = "must be a string compatible with semver.org spec 2.0.0";
        at.invalid(errors, detail);
    }
    if at.text().len() > VALUE_LENGTH_MAX {
        at.too_long(errors, VALUE_LENGTH_MAX);
    }
}

fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = match text.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (text, None),
    };
    let (numbers, pre) = match rest.split_once('-') {
        Some((numbers, pre)) => (numbers, Some(pre)),
        None => (rest, None),
    };
    let is_number = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_digit())
            && !part.is_empty()
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !part.is_empty() && part.bytes().all(good)
    };
    let is_pre = |part: &str| {
        is_number(part) || (is_word(part) && !part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(is_pre))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

/// Validates the request policy of a shared capacity.
fn request_policy(errors: &mut FieldErrors, at: &At<'_, '_>, capacity: &At<'_, '_>) {
    let (options, range) = (at.at("validValues"), at.at("validRange"));
    let Some(capacity) = capacity.quantity().or_else(|| Quantity::parse("0").ok()) else {
        return;
    };
    if !options.is_empty() && range.is_set() {
        return at.forbidden(
            errors,
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" \
             at the same time",
        );
    }
    let key = match (!options.is_empty(), range.is_set()) {
        (true, _) => "validValues",
        (_, true) => "validRange",
        _ => return,
    };
    let Some(default) = at.at("default").quantity() else {
        let detail = format!("required when {key} is defined");
        return at.at("default").required_because(errors, detail);
    };
    if key == "validRange" {
        policy_range(errors, &range, &default, &capacity);
    } else {
        policy_options(errors, &options, &default, &capacity);
    }
}

fn policy_options(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    default: &Quantity,
    capacity: &Quantity,
) {
    let show = |errors: &mut FieldErrors, at: &At<'_, '_>, value: &Quantity, detail: String| {
        at.invalid_as(errors, Shown::Text(&value.to_string()), detail);
    };
    let options: Vec<(At<'_, '_>, Quantity)> = at
        .items()
        .filter_map(|option| Some((option, option.quantity()?)))
        .collect();
    for pair in options.windows(2) {
        if let [(_, before), (at, option)] = pair
            && before.compare(option).is_gt()
        {
            let detail = String::from("values must be sorted in ascending order");
            show(errors, at, option, detail);
        }
    }
    let mut has_default = false;
    if at.len() > OPTIONS_MAX {
        at.too_many(errors, OPTIONS_MAX);
    } else {
        for (at, option) in &options {
            if option.compare(capacity).is_gt() {
                let detail = format!("option is larger than capacity value: {capacity}");
                show(errors, at, option, detail);
            }
            has_default |= option.compare(default).is_eq();
        }
        let mut seen = BTreeSet::new();
        for (at, option) in &options {
            let key = option.rounded_up(0).to_string();
            if !seen.insert(key.clone()) {
                at.duplicate_as(errors, Shown::Text(&key));
            }
        }
    }
    if !has_default {
        let detail = String::from("default value is not valid according to the requestPolicy");
        show(errors, at, default, detail);
    }
}

fn policy_range(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    default: &Quantity,
    capacity: &Quantity,
) {
    let (least, most, step) = (at.at("min"), at.at("max"), at.at("step"));
    let mut refuse = |at: &At<'_, '_>, shown: &Quantity, detail: String| {
        at.invalid_as(errors, Shown::Text(&shown.to_string()), detail);
    };
    let Some(low) = least.quantity() else {
        return least.required_because(errors, "required when validRange is defined");
    };
    if low.compare(capacity).is_gt() {
        let detail = format!("min is larger than capacity value: {capacity}");
        refuse(&least, &low, detail);
    }
    if default.compare(&low).is_lt() {
        refuse(&least, default, format!("default is less than min: {low}"));
    }
    let high = most.quantity();
    if let Some(high) = &high {
        if low.compare(high).is_gt() {
            refuse(&most, &low, format!("min is larger than max: {high}"));
        }
        if high.compare(capacity).is_gt() {
            let detail = format!("max is larger than capacity value: {capacity}");
            refuse(&most, high, detail);
        }
        if default.compare(high).is_gt() {
            refuse(&most, default, format!("default is more than max: {high}"));
        }
    }
    let Some(width) = step.quantity() else {
        return;
    };
    if let Ok(added) = low.add(&width)
        && added.compare(capacity).is_gt()
    {
        let detail = format!("one step {added} is larger than capacity value: {capacity}");
        refuse(&step, &width, detail);
    }
    for value in [Some(default), high.as_ref()].into_iter().flatten() {
        let distance = value.rounded_up(0).saturating_sub(low.rounded_up(0));
        // Upstream divides by zero here, and responds with an internal error.
        if distance.checked_rem(width.rounded_up(0)) != Some(0) {
            let detail = format!("value is not a multiple of a given step ({width}) from ({low})");
            refuse(&step, value, detail);
        }
    }
}
