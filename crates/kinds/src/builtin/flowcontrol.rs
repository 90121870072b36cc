//! The group `flowcontrol.apiserver.k8s.io`.

mod flow_schema;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 2] = [
    flow_schema::FLOW_SCHEMAS,
    flow_schema::PRIORITY_LEVEL_CONFIGURATIONS,
];
