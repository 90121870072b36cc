//! The group `resource.k8s.io`.

mod claim;
mod device;
mod selector;
mod slice;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 4] = [
    slice::DEVICE_CLASSES,
    claim::RESOURCE_CLAIMS,
    claim::RESOURCE_CLAIM_TEMPLATES,
    slice::RESOURCE_SLICES,
];
