//! RBAC: the authorizer, and the escalation checks.

pub(crate) mod escalation;

pub(crate) use lockgate_api::access::rbac::{MASTERS, Rbac, Rule};
