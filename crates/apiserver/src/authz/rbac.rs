//! RBAC: the authorizer of roles and bindings, and the guard against escalation.

pub(crate) mod escalation;

pub(crate) use lockgate_api::access::rbac::{MASTERS, Rbac, Rule};
