//! A target together with the proof of its authorization.

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, User};
use lockgate_api::admission::UserInfo;

use super::{denied, user, with_authz_user};
use crate::error::{Outcome, forbidden};
use crate::http::request_info::Target;

/// An authorized target of a user. It is immutable, so that the authorized request is the one that is executed and
/// audited.
#[derive(Debug)]
pub(crate) struct Authorized {
    target: Target,
    user: UserInfo,
}

/// The requested part of a target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestedObject<'s> {
    /// The name in the path, or the only one that a field selector matches.
    pub(crate) name: &'s str,
    pub(crate) field_selector: &'s str,
    pub(crate) label_selector: &'s str,
}

impl Authorized {
    /// Checks the user's permission for the target.
    pub(crate) fn authorize(
        authorizer: &dyn Authorizer,
        target: Target,
        mut user: UserInfo,
        requested: RequestedObject<'_>,
    ) -> Outcome<Self> {
        let verb = target.verb.name();
        with_authz_user(&mut user, |user| {
            check(authorizer, user, verb, &target, requested)
        })?;
        Ok(Self { target, user })
    }

    /// A target of the server itself, which needs no permission: for controllers, and for manifests at startup.
    pub(crate) fn internal(target: Target, user: UserInfo) -> Self {
        Self { target, user }
    }

    /// Checks the permission to create an object that an update did not find.
    pub(crate) fn may_create(&self, authorizer: &dyn Authorizer) -> Outcome<()> {
        let requested = RequestedObject {
            name: &self.target.name,
            field_selector: "",
            label_selector: "",
        };
        let user = user(&self.user);
        check(authorizer, &user, "create", &self.target, requested)
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn user(&self) -> &UserInfo {
        &self.user
    }
}

fn check(
    authorizer: &dyn Authorizer,
    user: &User,
    verb: &str,
    target: &Target,
    requested: RequestedObject<'_>,
) -> Outcome<()> {
    let request = AccessRequest {
        user,
        verb,
        object: AccessObject::Resource {
            group: &target.group,
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name: requested.name,
            field_selector: requested.field_selector,
            label_selector: requested.label_selector,
        },
    };
    let decision = authorizer.authorize(&request);
    if decision.allowed {
        return Ok(());
    }
    let why = denied(&user.name, &request, &decision.reason);
    Err(forbidden(
        &target.group,
        &target.resource,
        requested.name,
        &why,
    ))
}
