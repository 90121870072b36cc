//! ResourceClaims and ResourceClaimTemplates.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::check_subdomain;

use super::device::{
    CONFIGURATIONS_MAX, binding_conditions, configuration, full_name, items, name_of, pool_name,
    raw_object, request_reference, selectors, set, text_of, toleration,
};
use crate::at::At;
use crate::builtin::core::volume_source::{driver_name, node_selector, template_metadata};
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{check_label, parse_cidr_sloppy};
use crate::kind::{CHANGE, Context, Deletion, Kind, Resource, Written, namespaced, sub};
use crate::object::{Object, at_mut, each, fill_number, fill_text, get, get_mut, has, text, with};
use crate::typed::member_type;
use crate::upstream_error::UpstreamError;

const GROUP: &str = "resource.k8s.io";

pub(super) const RESOURCE_CLAIMS: Resource = namespaced(
    GROUP,
    "v1",
    "resourceclaims",
    "resourceclaim",
    "ResourceClaim",
    "ResourceClaimList",
    &ResourceClaim,
)
.subresources(&[sub("status", GROUP, "v1", "ResourceClaim", CHANGE)]);

pub(super) const RESOURCE_CLAIM_TEMPLATES: Resource = namespaced(
    GROUP,
    "v1",
    "resourceclaimtemplates",
    "resourceclaimtemplate",
    "ResourceClaimTemplate",
    "ResourceClaimTemplateList",
    &ResourceClaimTemplate,
);

/// The kind `ResourceClaim`.
#[derive(Debug)]
pub(super) struct ResourceClaim;

impl Kind for ResourceClaim {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, claim_defaults);
    }

    fn resets_metadata_on_status_update(&self) -> bool {
        true
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if let ("status", Some(old)) = (subresource, old.as_object()) {
            with(value, |claim| drop_deallocated(claim, old));
        }
    }

    fn validate_create(&self, new: &Written<'_>, context: &Context<'_>) -> FieldErrors {
        let at = At::root(new.object(), "spec");
        let mut errors = FieldErrors::new();
        admin_access(&mut errors, &at, context);
        errors.extend(self.validate_metadata(new));
        spec(&mut errors, &at);
        errors
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if subresource.is_empty() {
            errors.extend(self.validate_metadata(new));
        }
        errors.extend(self.validate_metadata_update(new, old));
        let (new, old) = (new.object(), old.object());
        match subresource {
            "" => {
                let (at, former) = (At::root(new, "spec"), At::root(old, "spec"));
                let ty = member_type(GROUP, "ResourceClaim", &["spec"]);
                at.immutable_typed(&mut errors, &former, ty);
            }
            "status" => status(&mut errors, new, old),
            _ => {}
        }
        errors
    }

    fn columns(&self) -> &'static str {
        "Name|State|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        claim_row(object, common)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `ResourceClaimTemplate`.
#[derive(Debug)]
pub(super) struct ResourceClaimTemplate;

impl Kind for ResourceClaimTemplate {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, template_defaults);
    }

    fn validate_create(&self, new: &Written<'_>, context: &Context<'_>) -> FieldErrors {
        let at = At::root(new.object(), "spec");
        let mut errors = FieldErrors::new();
        admin_access(&mut errors, &at.at("spec"), context);
        errors.extend(self.validate_template(new));
        errors
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_template(new);
        errors.extend(self.validate_metadata_update(new, old));
        let (at, former) = (
            At::root(new.object(), "spec"),
            At::root(old.object(), "spec"),
        );
        let ty = member_type(GROUP, "ResourceClaimTemplate", &["spec"]);
        at.immutable_typed(&mut errors, &former, ty);
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

impl ResourceClaimTemplate {
    fn validate_template(&self, new: &Written<'_>) -> FieldErrors {
        let mut errors = self.validate_metadata(new);
        let at = At::root(new.object(), "spec");
        template_metadata(&mut errors, &at.at("metadata"));
        spec(&mut errors, &at.at("spec"));
        errors
    }
}

const EXACT: &str = "ExactCount";

fn claim_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        claim_spec(spec);
    }
    if let Some(devices) = at_mut(object, &["status", "allocation", "devices"]) {
        each(devices, "results", toleration_defaults);
    }
}

fn template_defaults(object: &mut Object) {
    if let Some(spec) = at_mut(object, &["spec", "spec"]) {
        claim_spec(spec);
    }
}

fn claim_spec(spec: &mut Object) {
    let Some(devices) = get_mut(spec, "devices") else {
        return;
    };
    each(devices, "requests", |request| {
        if let Some(exactly) = get_mut(request, "exactly") {
            request_defaults(exactly);
        }
        each(request, "firstAvailable", request_defaults);
    });
}

fn request_defaults(request: &mut Object) {
    fill_text(request, "allocationMode", EXACT);
    if text(request, "allocationMode") == EXACT {
        fill_number(request, "count", 1);
    }
    toleration_defaults(request);
}

fn toleration_defaults(holder: &mut Object) {
    each(holder, "tolerations", |toleration| {
        fill_text(toleration, "operator", "Equal");
    });
}

fn claim_row(object: &Value, common: &Common<'_>) -> Row {
    let is_allocated = object
        .pointer("/status/allocation")
        .is_some_and(Value::is_object);
    let mut states = Vec::new();
    if read::is_deleted(object) {
        states.push("deleted");
    } else if !is_allocated {
        states.push("pending");
    }
    if is_allocated {
        states.push("allocated");
        if !read::items(object, "/status/reservedFor").is_empty() {
            states.push("reserved");
        }
    }
    Row::of(vec![
        cell(common.name),
        cell(states.join(",")),
        cell(common.age.as_str()),
    ])
}

const REQUESTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const CONSTRAINTS_MAX: usize = 32;
const RESULTS_MAX: usize = 32;
const RESERVED_MAX: usize = 256;
const CONDITIONS_MAX: usize = 8;
const DATA_MAX: usize = 10 * 1024;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_NAME_MAX: usize = 256;
const HARDWARE_ADDRESS_MAX: usize = 128;

/// Validates the spec of a claim.
fn spec(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let devices = at.at("devices");
    let requests = devices.at("requests");
    set(errors, &requests, REQUESTS_MAX, request, name_of);
    items(
        errors,
        &devices.at("constraints"),
        CONSTRAINTS_MAX,
        |errors, at| constraint(errors, at, &requests),
    );
    items(
        errors,
        &devices.at("config"),
        CONFIGURATIONS_MAX,
        |errors, at| {
            references(errors, at, &requests);
            configuration(errors, at, false);
        },
    );
}

fn references(errors: &mut FieldErrors, at: &At<'_, '_>, requests: &At<'_, '_>) {
    set(
        errors,
        &at.at("requests"),
        REQUESTS_MAX,
        |errors, name| request_reference(errors, name, requests),
        text_of,
    );
}

fn request(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.at("name").check(errors, check_label);
    let (exactly, alternatives) = (at.at("exactly"), at.at("firstAvailable"));
    match (exactly.is_set(), !alternatives.is_empty()) {
        (false, false) => at.required_because(
            errors,
            "exactly one of `exactly` or `firstAvailable` is required",
        ),
        (true, true) => at.invalid_as(
            errors,
            Shown::Rendered("null"),
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (true, false) => device_request(errors, &exactly),
        (false, true) => {
            let check = |errors: &mut FieldErrors, at: &At<'_, '_>| {
                at.at("name").check(errors, check_label);
                device_request(errors, at);
            };
            set(errors, &alternatives, ALTERNATIVES_MAX, check, name_of);
        }
    }
}

fn device_request(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.at("deviceClassName")
        .check_required(errors, check_subdomain);
    selectors(errors, &at.at("selectors"));
    let (mode, count) = (at.at("allocationMode"), at.at("count"));
    match mode.text() {
        "All" => {
            if count.int() != 0 {
                let detail = "must not be specified when allocationMode is 'All'";
                count.invalid_int(errors, detail);
            }
        }
        EXACT => count.positive(errors),
        _ => mode.not_supported(errors, &["All", EXACT]),
    }
    for item in at.at("tolerations").items() {
        toleration(errors, &item);
    }
}

fn constraint(errors: &mut FieldErrors, at: &At<'_, '_>, requests: &At<'_, '_>) {
    references(errors, at, requests);
    let (equal, distinct) = (at.at("matchAttribute"), at.at("distinctAttribute"));
    if equal.is_set() {
        full_name(errors, &equal);
    } else if distinct.is_set() {
        full_name(errors, &distinct);
    } else {
        at.required_because(
            errors,
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple \
             fields are set",
        );
    }
}

/// Admin access requires a label of the namespace.
///
/// UPSTREAM: pkg/registry/resource/utils.go (AuthorizedForAdmin), whose path has no `exactly`
fn admin_access(errors: &mut FieldErrors, spec: &At<'_, '_>, context: &Context<'_>) {
    if context.admin_access {
        return;
    }
    let devices = spec.at("devices");
    let requests = devices.at("requests");
    let asks = |at: &At<'_, '_>| at.at("exactly").at("adminAccess").flag();
    let Some(index) = requests.items().position(|request| asks(&request)) else {
        return;
    };
    let path = Path::root("spec");
    let (path, requests) = (path.child("devices"), "requests");
    let path = path.child(requests);
    let request = path.index(index);
    errors.push(FieldError::forbidden(
        &request.child("adminAccess"),
        "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on \
         the containing namespace",
    ));
}

/// The identifying fields of a device, as upstream prints them.
fn device_id(at: &At<'_, '_>) -> String {
    let member = |key: &str| Shown::Named(at.at(key).text()).to_string();
    format!(
        "{{\"Driver\":{},\"Pool\":{},\"Device\":{},\"ShareID\":{}}}",
        member("driver"),
        member("pool"),
        member("device"),
        member("shareID")
    )
}

fn status(errors: &mut FieldErrors, new: &Object, old: &Object) {
    let (at, former) = (At::root(new, "status"), At::root(old, "status"));
    let spec = At::root(new, "spec");
    let devices = spec.at("devices");
    let requests = devices.at("requests");
    let reserved = at.at("reservedFor");
    set(
        errors,
        &reserved,
        RESERVED_MAX,
        |errors, consumer| {
            for key in ["resource", "name", "uid"] {
                consumer.at(key).must_be_set(errors);
            }
        },
        |consumer| consumer.at("uid").text().to_owned(),
    );
    let allocation = at.at("allocation");
    let allocated_devices = allocation.at("devices");
    let allocated: BTreeSet<String> = allocated_devices
        .at("results")
        .items()
        .map(|result| device_id(&result))
        .collect();
    set(
        errors,
        &at.at("devices"),
        usize::MAX,
        |errors, device| device_status(errors, device, &allocated),
        device_id,
    );
    if !reserved.is_empty() {
        if !allocation.is_set() {
            reserved.forbidden(errors, "may not be specified when `allocated` is not set");
        } else if get(new, "metadata").is_some_and(|metadata| has(metadata, "deletionTimestamp")) {
            let before = former.at("reservedFor");
            if reserved
                .list()
                .iter()
                .any(|consumer| !before.list().contains(consumer))
            {
                reserved.forbidden(
                    errors,
                    "new entries may not be added while `deallocationRequested` or \
                     `deletionTimestamp` are set",
                );
            }
        }
    }
    let before = former.at("allocation");
    if before.is_set() && allocation.is_set() {
        let ty = member_type(GROUP, "ResourceClaim", &["status", "allocation"]);
        allocation.immutable_typed(errors, &before, ty);
    } else if allocation.is_set() {
        allocation_result(errors, &allocation, &requests);
    }
}

fn allocation_result(errors: &mut FieldErrors, at: &At<'_, '_>, requests: &At<'_, '_>) {
    let devices = at.at("devices");
    items(
        errors,
        &devices.at("results"),
        RESULTS_MAX,
        |errors, result| {
            request_reference(errors, &result.at("request"), requests);
            driver_name(errors, &result.at("driver"));
            pool_name(errors, &result.at("pool"));
            result.at("device").check(errors, check_label);
            binding_conditions(errors, result);
            if result.at("shareID").is_set() {
                uid(errors, &result.at("shareID"));
            }
        },
    );
    items(
        errors,
        &devices.at("config"),
        2 * CONFIGURATIONS_MAX,
        |errors, config| {
            config
                .at("source")
                .one_of(errors, &["FromClaim", "FromClass"]);
            references(errors, config, requests);
            configuration(errors, config, false);
        },
    );
    if at.at("nodeSelector").is_set() {
        node_selector(errors, &at.at("nodeSelector"), false);
    }
}

fn device_status(errors: &mut FieldErrors, at: &At<'_, '_>, allocated: &BTreeSet<String>) {
    driver_name(errors, &at.at("driver"));
    pool_name(errors, &at.at("pool"));
    at.at("device").check(errors, check_label);
    if at.at("shareID").is_set() {
        uid(errors, &at.at("shareID"));
    }
    let id = device_id(at);
    if !allocated.contains(&id) {
        at.invalid_as(
            errors,
            Shown::Rendered(&id),
            "must be an allocated device in the claim",
        );
    }
    let conditions = at.at("conditions");
    if conditions.len() > CONDITIONS_MAX {
        conditions.too_many(errors, CONDITIONS_MAX);
    }
    conditions.conditions(errors);
    if at.at("data").is_set() {
        raw_object(errors, &at.at("data"), false, DATA_MAX);
    }
    let network = at.at("networkData");
    for (key, most) in [
        ("interfaceName", INTERFACE_NAME_MAX),
        ("hardwareAddress", HARDWARE_ADDRESS_MAX),
    ] {
        if network.at(key).text().len() > most {
            network.at(key).too_long(errors, most);
        }
    }
    set(
        errors,
        &network.at("ips"),
        ADDRESSES_MAX,
        |errors, address| address.check(errors, check_interface_address),
        text_of,
    );
}

/// Validates an IP with prefix length.
///
/// UPSTREAM: apimachinery pkg/util/validation/ip.go (IsValidInterfaceAddress)
fn check_interface_address(text: &str) -> Vec<String> {
    let Some((address, length)) = parse_cidr_sloppy(text) else {
        return vec![String::from(
            "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)",
        )];
    };
    let canonical = match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            let four = six.to_ipv4_mapped().map_or(address, IpAddr::V4);
            let length = if length > 32 {
                length.saturating_sub(96)
            } else {
                length
            };
            format!("{four}/{length}")
        }
        _ => format!("{address}/{length}"),
    };
    if canonical == text {
        return Vec::new();
    }
    let quoted = lockgate_go::quote::quote(&canonical);
    vec![format!("must be in canonical form ({quoted})")]
}

fn uid(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let text = at.text();
    if let Err(reason) = parse_uuid(text) {
        at.invalid(errors, format!("error validating uid: {reason}"));
    } else if text.len() != 36 || text != text.to_lowercase() {
        at.invalid(
            errors,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with \
             lowercase hexadecimal characters",
        );
    }
}

/// Parses a UUID in the formats of upstream's library.
///
/// UPSTREAM: github.com/google/uuid uuid.go (Validate)
fn parse_uuid(text: &str) -> Result<(), UpstreamError> {
    const FORMAT: &str = "invalid UUID format";
    let plain = match text.len() {
        36 => text,
        45 => {
            let (prefix, rest) = text.split_at_checked(9).ok_or(FORMAT)?;
            if !prefix.eq_ignore_ascii_case("urn:uuid:") {
                let quoted = lockgate_go::quote::quote(prefix);
                return Err(format!("invalid urn prefix: {quoted}").into());
            }
            rest
        }
        38 => {
            let inner = text
                .strip_prefix('{')
                .and_then(|text| text.strip_suffix('}'));
            inner.ok_or("invalid bracketed UUID format")?
        }
        32 => {
            let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            return if is_hex { Ok(()) } else { Err(FORMAT.into()) };
        }
        length => return Err(format!("invalid UUID length: {length}").into()),
    };
    let good = plain.bytes().enumerate().all(|(index, byte)| {
        if matches!(index, 8 | 13 | 18 | 23) {
            byte == b'-'
        } else {
            byte.is_ascii_hexdigit()
        }
    });
    if good { Ok(()) } else { Err(FORMAT.into()) }
}

/// Drops the status of deallocated devices.
fn drop_deallocated(object: &mut Object, old: &Object) {
    let results = |object: &Object| -> BTreeSet<String> {
        let status = At::root(object, "status");
        let allocation = status.at("allocation");
        let devices = allocation.at("devices");
        let results = devices.at("results");
        results.items().map(|result| device_id(&result)).collect()
    };
    let kept = results(object);
    let gone: BTreeSet<String> = results(old)
        .into_iter()
        .filter(|id| !kept.contains(id))
        .collect();
    let Some(status) = get_mut(object, "status") else {
        return;
    };
    let path = Path::root("");
    if let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) {
        devices.retain(|device| !gone.contains(&device_id(&At::new(path, Some(device)))));
        if devices.is_empty() {
            status.remove("devices");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::kind::Requester;
    use lockgate_api::meta::time::Time;

    fn errors(claim: &Value, admin_access: bool) -> Vec<String> {
        let (groups, extra) = (Vec::new(), BTreeMap::new());
        let requester = Requester {
            name: "alice",
            uid: "",
            groups: &groups,
            extra: &extra,
        };
        let mut context = Context::new(Time::from_unix_seconds(0), requester);
        context.admin_access = admin_access;
        let errors = ResourceClaim.validate_create(&Written::new(claim, true), &context);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn admin_access_needs_the_label_of_the_namespace() {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{
            "name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 1,
                "allocationMode": "ExactCount", "adminAccess": true},
        }]}}});
        assert_eq!(errors(&claim, true), [""; 0]);
        let refused = errors(&claim, false);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].starts_with("spec.devices.requests[0].adminAccess: Forbidden: "));
    }

    #[test]
    fn selectors_are_compiled() {
        let claim = |expression: &str| {
            json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{
                "name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 1,
                    "allocationMode": "ExactCount",
                    "selectors": [{"cel": {"expression": expression}}]},
            }]}}})
        };
        assert_eq!(errors(&claim("device.driver == 'a'"), false), [""; 0]);
        assert_eq!(
            errors(&claim("1 + 1"), false),
            [
                "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: \
                 \"1 + 1\": must evaluate to bool or the unknown type, not int"
            ]
        );
    }

    #[test]
    fn uids_are_parsed_as_upstream_parses_them() {
        assert!(parse_uuid("6f9e0c5e-0000-4000-8000-000000000001").is_ok());
        assert!(parse_uuid("{6f9e0c5e-0000-4000-8000-000000000001}").is_ok());
        assert_eq!(
            parse_uuid("x").unwrap_err().to_string(),
            "invalid UUID length: 1"
        );
    }
}
