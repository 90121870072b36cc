//! Access checks: the attributes of a check, and the authorizer trait.
//!
//! The API server's authorization, access reviews and the CEL variable `authorizer` use this trait.
//! It is synchronous: authorizers decide from memory.

pub mod rbac;

use std::collections::BTreeMap;
use std::fmt;

/// The user of an access check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The username, such as `system:admin`.
    pub name: String,
    /// The UID of the user, which is never reused.
    pub uid: String,
    /// The groups the user belongs to.
    pub groups: Vec<String>,
    /// Extra attributes from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a ServiceAccount.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
            ..Self::default()
        }
    }
}

/// The attributes of an access check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRequest<'a> {
    /// The user.
    pub user: &'a User,
    /// The verb, such as `create`, or an HTTP method in lower case for non-resource paths.
    pub verb: &'a str,
    /// The resource or path.
    pub object: AccessObject<'a>,
}

/// The resource or non-resource path of an [`AccessRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessObject<'a> {
    /// A non-resource path, such as `/healthz`.
    Path(&'a str),
    /// A resource, in any version.
    Resource {
        /// The API group.
        group: &'a str,
        /// The plural name of the resource.
        resource: &'a str,
        /// The subresource; may be empty.
        subresource: &'a str,
        /// The namespace; empty for all namespaces, and for cluster-scoped resources.
        namespace: &'a str,
        /// The name of the object; empty for all.
        name: &'a str,
        /// The field selector string; may be empty.
        field_selector: &'a str,
        /// The label selector string; may be empty.
        label_selector: &'a str,
    },
}

/// The decision of an authorizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// True if access is allowed; otherwise it is denied.
    pub allowed: bool,
    /// A human-readable reason.
    pub reason: String,
    /// An evaluation error, such as a missing role.
    pub error: Option<String>,
}

/// Authorizes access checks.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides one access check.
    fn authorize(&self, request: &AccessRequest<'_>) -> Decision;
}

/// An authorizer with a constant decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixedAuthorizer {
    /// Allows everything.
    AllowAll,
    /// Denies everything.
    DenyAll,
}

impl Authorizer for FixedAuthorizer {
    fn authorize(&self, _: &AccessRequest<'_>) -> Decision {
        Decision {
            allowed: *self == Self::AllowAll,
            ..Decision::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_belong_to_their_groups() {
        let user = User::service_account("ci", "robot");
        assert_eq!(user.name, "system:serviceaccount:ci:robot");
        assert_eq!(
            user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:ci"]
        );
    }

    #[test]
    fn a_decision_denies_by_default() {
        assert!(!Decision::default().allowed);
    }

    #[test]
    fn fixed_authorizers_give_one_answer() {
        let user = User::default();
        let request = AccessRequest {
            user: &user,
            verb: "get",
            object: AccessObject::Path("/healthz"),
        };
        assert!(FixedAuthorizer::AllowAll.authorize(&request).allowed);
        assert!(!FixedAuthorizer::DenyAll.authorize(&request).allowed);
    }
}
