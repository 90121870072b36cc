//! Permission checks of plugins.

use std::sync::Arc;

use lockgate_admission::request::Request;
use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, Decision, User};
use lockgate_api::admission::UserInfo;

/// A resource, as target of a permission check.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResourceAttributes<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Checks a permission of the requesting user.
pub(crate) fn authorize(
    authorizer: &Arc<dyn Authorizer>,
    request: &Request,
    verb: &str,
    attributes: ResourceAttributes<'_>,
) -> Decision {
    authorizer.authorize(&AccessRequest {
        user: &user(&request.user),
        verb,
        object: AccessObject::Resource {
            group: attributes.group,
            resource: attributes.resource,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
            name: attributes.name,
            field_selector: "",
            label_selector: "",
        },
    })
}

fn user(info: &UserInfo) -> User {
    User {
        name: info.username.clone(),
        uid: info.uid.clone(),
        groups: info.groups.clone().unwrap_or_default(),
        extra: info.extra.clone().unwrap_or_default(),
    }
}
