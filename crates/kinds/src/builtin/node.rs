//! The group `node.k8s.io`.

mod runtime_class;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] = [runtime_class::RUNTIME_CLASSES];
