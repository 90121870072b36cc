//! ServiceCIDRs and IPAddresses.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
use crate::checks::check_ip;
use crate::checks::{check_cidr, parse_cidr_sloppy};
use crate::kind::{CHANGE, Context, Kind, Resource, Written, cluster, sub};
use crate::object::Object;
use crate::typed::member_type;
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::check_path_segment;
use lockgate_api::meta::names::check_subdomain;
use lockgate_api::meta::validation::NameRules;
use lockgate_go::json::to_string;
use serde_json::Value;

pub(super) const SERVICE_CIDRS: Resource = cluster(
    "networking.k8s.io",
    "v1",
    "servicecidrs",
    "servicecidr",
    "ServiceCIDR",
    "ServiceCIDRList",
    &ServiceCidr,
)
.subresources(&[sub(
    "status",
    "networking.k8s.io",
    "v1",
    "ServiceCIDR",
    CHANGE,
)]);

pub(super) const IP_ADDRESSES: Resource = cluster(
    "networking.k8s.io",
    "v1",
    "ipaddresses",
    "ipaddress",
    "IPAddress",
    "IPAddressList",
    &IpAddress,
)
.short(&["ip"]);

/// The kind `ServiceCIDR`.
#[derive(Debug)]
pub(super) struct ServiceCidr;

impl Kind for ServiceCidr {
    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        service_cidr(errors, new.object(), old.map(Written::object));
    }

    fn resets_metadata_on_status_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static str {
        "Name|CIDRs|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        service_cidr_row(object, common)
    }
}

/// The kind `IPAddress`.
#[derive(Debug)]
pub(super) struct IpAddress;

impl Kind for IpAddress {
    fn generates_plain_names(&self) -> bool {
        true
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_create(new, context);
        errors.extend(self.validate_metadata_update(new, old));
        self.validate(&mut errors, new, Some(old), context);
        errors
    }

    fn name_rules(&self) -> NameRules {
        IP_NAMES
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        match old {
            None => ip_address(errors, new.object()),
            Some(old) => {
                let (spec, former) = (
                    At::root(new.object(), "spec"),
                    At::root(old.object(), "spec"),
                );
                let ty = member_type("networking.k8s.io", "IPAddress", &["spec", "parentRef"]);
                spec.at("parentRef")
                    .immutable_typed(errors, &former.at("parentRef"), ty);
            }
        }
    }

    fn columns(&self) -> &'static str {
        "Name|ParentRef"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        ip_address_row(object, common)
    }
}

fn ip_address_row(object: &Value, common: &Common<'_>) -> Row {
    let parent = match object.pointer("/spec/parentRef") {
        Some(parent) if parent.is_object() => {
            let resource = match read::text(parent, "/group") {
                "" => read::text(parent, "/resource").to_owned(),
                group => format!("{}.{group}", read::text(parent, "/resource")),
            };
            let namespace = match read::text(parent, "/namespace") {
                "" => String::new(),
                namespace => format!("/{namespace}"),
            };
            let name = read::text(parent, "/name");
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

fn service_cidr_row(object: &Value, common: &Common<'_>) -> Row {
    Row::of(vec![
        cell(common.name),
        cell(read::joined(object, "/spec/cidrs", ",")),
        cell(common.age.as_str()),
    ])
}

fn service_cidr(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let ranges = at.at("cidrs");
    let Some(old) = old else {
        return cidrs(errors, &ranges);
    };
    let former = At::root(old, "spec");
    let former = former.at("cidrs");
    let changed = |errors: &mut FieldErrors, range: &At<'_, '_>, former: &str| {
        if range.text() != former {
            range.invalid(errors, "field is immutable");
        }
    };
    match (former.len(), ranges.len()) {
        (one, other) if one == other => {
            for (range, former) in ranges.items().zip(former.texts()) {
                changed(errors, &range, former);
            }
        }
        (1, 2) => {
            for (range, former) in ranges.items().zip(former.texts()) {
                changed(errors, &range, former);
            }
            cidrs(errors, &ranges);
        }
        _ => ranges.invalid_or_null(errors, "field is immutable"),
    }
}

fn cidrs(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_empty() {
        return at.required_because(errors, "at least one CIDR required");
    }
    if at.len() > 2 {
        let shown = format!(
            "{{\"CIDRs\":{}}}",
            at.value.map_or_else(|| String::from("null"), to_string)
        );
        return at.invalid_as(
            errors,
            Shown::Rendered(&shown),
            "may only hold up to 2 values",
        );
    }
    for range in at.items() {
        range.check(errors, check_cidr);
    }
    let families: Vec<Option<bool>> = at
        .texts()
        .map(|range| parse_cidr_sloppy(range).map(|(address, _)| address.is_ipv4()))
        .collect();
    if let [Some(one), Some(other)] = families[..]
        && one == other
    {
        at.invalid(
            errors,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and \
             2001:db8::/64",
        );
    }
}

fn ip_address(errors: &mut FieldErrors, object: &Object) {
    let at = At::root(object, "spec");
    let parent = at.at("parentRef");
    if !parent.is_set() {
        return parent.required(errors);
    }
    parent.at("group").check_set(errors, check_subdomain);
    parent
        .at("resource")
        .check_required(errors, check_path_segment);
    parent.at("name").check_required(errors, check_path_segment);
    parent.at("namespace").check_set(errors, check_path_segment);
}

/// The name of an IPAddress is its IP.
const IP_NAMES: NameRules = NameRules {
    name: check_ip,
    prefix: check_ip,
};
