//! The group `coordination.k8s.io`.

mod lease;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] = [lease::LEASES];
