//! The group `apps`.

mod controller_revision;
mod daemon_set;
pub(super) mod deployment;
mod stateful_set;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 5] = [
    controller_revision::CONTROLLER_REVISIONS,
    daemon_set::DAEMON_SETS,
    deployment::DEPLOYMENTS,
    deployment::REPLICA_SETS,
    stateful_set::STATEFUL_SETS,
];
