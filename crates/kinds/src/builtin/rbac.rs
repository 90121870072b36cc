//! The group `rbac.authorization.k8s.io`.

mod binding;
mod role;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 4] = [
    binding::CLUSTER_ROLE_BINDINGS,
    role::CLUSTER_ROLES,
    binding::ROLE_BINDINGS,
    role::ROLES,
];
