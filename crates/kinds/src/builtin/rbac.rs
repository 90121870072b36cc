//! The group `rbac.authorization.k8s.io`.

mod binding;
mod role;

use lockgate_api::meta::names::check_path_segment;
use lockgate_api::meta::validation::NameRules;

use crate::kind::Resource;

/// Names and name prefixes must be valid path segments.
///
/// UPSTREAM: pkg/apis/rbac/validation/validation.go (ValidateRBACName)
const NAMES: NameRules = NameRules {
    name: check_path_segment,
    prefix: check_path_segment,
};

pub(super) static RESOURCES: [Resource; 4] = [
    binding::CLUSTER_ROLE_BINDINGS,
    role::CLUSTER_ROLES,
    binding::ROLE_BINDINGS,
    role::ROLES,
];
