//! A target together with the proof that its user may do what was asked.

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer};
use lockgate_api::admission::UserInfo;

use super::{denied, user};
use crate::error::{Outcome, forbidden};
use crate::http::request_info::Target;

/// A target that was authorized for a user. It is made once and never changes, so that what was
/// authorized is what is executed and audited.
#[derive(Debug)]
pub(crate) struct Authorized {
    target: Target,
    user: UserInfo,
}

/// The selectors of a request, which authorization may look at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Selectors<'s> {
    pub(crate) field: &'s str,
    pub(crate) label: &'s str,
}

impl Authorized {
    /// Asks whether the user may do what the target says.
    pub(crate) fn authorize(
        authorizer: &dyn Authorizer,
        target: Target,
        user: UserInfo,
        selectors: Selectors<'_>,
    ) -> Outcome<Self> {
        let verb = target.verb.name();
        let authorized = Self { target, user };
        authorized.check(authorizer, verb, selectors)?;
        Ok(authorized)
    }

    /// A target of the server itself, which needs no permission: of controllers, and of manifests at
    /// start.
    pub(crate) fn internal(target: Target, user: UserInfo) -> Self {
        Self { target, user }
    }

    /// Asks whether the user may create the object that an update found missing.
    pub(crate) fn may_create(&self, authorizer: &dyn Authorizer) -> Outcome<()> {
        self.check(authorizer, "create", Selectors::default())
    }

    fn check(
        &self,
        authorizer: &dyn Authorizer,
        verb: &str,
        selectors: Selectors<'_>,
    ) -> Outcome<()> {
        let target = &self.target;
        let asking = user(&self.user);
        let request = AccessRequest {
            user: &asking,
            verb,
            object: AccessObject::Resource {
                group: &target.group,
                resource: &target.resource,
                subresource: &target.subresource,
                namespace: &target.namespace,
                name: &target.name,
                field_selector: selectors.field,
                label_selector: selectors.label,
            },
        };
        if authorizer.authorize(&request).allowed {
            return Ok(());
        }
        let why = denied(&self.user.username, &request);
        Err(forbidden(
            &target.group,
            &target.resource,
            &target.name,
            &why,
        ))
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn user(&self) -> &UserInfo {
        &self.user
    }
}
