//! The group `scheduling.k8s.io`.

mod priority_class;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] = [priority_class::PRIORITY_CLASSES];
