//! The core group.

mod component_status;
mod config_map;
mod endpoints;
pub(super) mod event;
mod namespace;
mod node;
pub(super) mod persistent_volume;
pub(super) mod persistent_volume_claim;
pub(super) mod pod;
mod quota;
mod replication_controller;
pub(super) mod resource_name;
mod secret;
pub(super) mod service;
mod service_account;
pub(super) mod volume_source;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 17] = [
    pod::BINDINGS,
    component_status::COMPONENT_STATUSES,
    config_map::CONFIG_MAPS,
    endpoints::ENDPOINTS,
    event::EVENTS,
    quota::LIMIT_RANGES,
    namespace::NAMESPACES,
    node::NODES,
    persistent_volume_claim::PERSISTENT_VOLUME_CLAIMS,
    persistent_volume::PERSISTENT_VOLUMES,
    pod::PODS,
    pod::POD_TEMPLATES,
    replication_controller::REPLICATION_CONTROLLERS,
    quota::RESOURCE_QUOTAS,
    secret::SECRETS,
    service_account::SERVICE_ACCOUNTS,
    service::SERVICES,
];
