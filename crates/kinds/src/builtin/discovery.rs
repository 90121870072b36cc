//! The group `discovery.k8s.io`.

mod endpoint_slice;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] = [endpoint_slice::ENDPOINT_SLICES];
