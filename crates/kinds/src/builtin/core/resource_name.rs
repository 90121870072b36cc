//! Resource names and quantities of containers, quotas and LimitRanges.
//!
//! UPSTREAM: pkg/apis/core/helper/helpers.go, pkg/apis/core/validation/validation.go
//! (validateResourceName and its users)

use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::check_qualified_name;

use crate::at::At;

/// Quota resources with integer values.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Other known resources without a domain.
const MEASURED: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Returns true for a resource without a domain, or with the domain `kubernetes.io`.
pub(in crate::builtin) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns true for an extended resource.
pub(in crate::builtin) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && check_qualified_name(&format!("requests.{name}")).is_empty()
}

/// Returns true if requests may be below limits.
pub(super) fn overcommits(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Returns true for a standard quota resource without a domain.
pub(super) fn is_standard_for_quotas(name: &str) -> bool {
    COUNTED.contains(&name) || MEASURED.contains(&name) || is_quota_huge_page(name)
}

fn invalid(errors: &mut FieldErrors, at: &At<'_, '_>, name: &str, detail: &str) {
    at.invalid_as(errors, Shown::Named(name), detail);
}

/// Validates a resource name, which is known or has a domain.
pub(super) fn resource_name(errors: &mut FieldErrors, at: &At<'_, '_>, name: &str) {
    let messages = check_qualified_name(name);
    let is_known = name.contains('/') || is_standard_for_quotas(name) || name == "storage";
    if messages.is_empty() && !is_known {
        let detail = "must be a standard resource type or fully qualified";
        invalid(errors, at, name, detail);
    }
    for message in messages {
        at.invalid_as(errors, Shown::Named(name), message);
    }
}

/// Validates the resource name of a container.
pub(in crate::builtin) fn container_resource_name(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    name: &str,
) {
    resource_name(errors, at, name);
    if !name.contains('/') {
        let is_known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name);
        if !is_known {
            invalid(
                errors,
                at,
                name,
                "must be a standard resource for containers",
            );
        }
    } else if !is_native(name) && !is_extended(name) {
        let detail = "doesn't follow extended resource name standard";
        invalid(errors, at, name, detail);
    }
}

/// Validates the resource name of a quota.
pub(super) fn quota_resource_name(errors: &mut FieldErrors, at: &At<'_, '_>, name: &str) {
    resource_name(errors, at, name);
    if !name.contains('/') && !is_standard_for_quotas(name) {
        invalid(errors, at, name, "must be a standard resource for quota");
    }
}

/// Validates a quantity: not negative, and an integer for counted resources.
pub(super) fn quantity_value(errors: &mut FieldErrors, at: &At<'_, '_>, name: &str) {
    let Some(quantity) = at.quantity() else {
        return;
    };
    if quantity.sign() < 0 {
        at.invalid_as(
            errors,
            Shown::Text(&quantity.to_string()),
            "must be greater than or equal to 0",
        );
    }
    let is_counted = COUNTED.contains(&name) || is_extended(name);
    if is_counted && quantity.rounded_up(3) % 1000 != 0 {
        at.invalid_as(
            errors,
            Shown::Text(&quantity.to_string()),
            "must be an integer",
        );
    }
}
