//! The group `networking.k8s.io`.

mod ingress;
mod network_policy;
mod service_cidr;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 5] = [
    ingress::INGRESS_CLASSES,
    ingress::INGRESSES,
    service_cidr::IP_ADDRESSES,
    network_policy::NETWORK_POLICIES,
    service_cidr::SERVICE_CIDRS,
];
