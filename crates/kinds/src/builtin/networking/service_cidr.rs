//! ServiceCIDRs and IPAddresses.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{CHANGE, Kind, Resource, cluster, sub};
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
