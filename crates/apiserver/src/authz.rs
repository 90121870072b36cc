//! Stage 3: authorization.
//!
//! The same trait authorizes requests and evaluates the variable `authorizer` of match conditions.

mod authorized;
pub(crate) mod node;
pub(crate) mod rbac;

use lockgate_api::access::{AccessObject, AccessRequest, User};
use lockgate_api::admission::UserInfo;
use lockgate_go::quote::quote;

pub(crate) use authorized::{Authorized, RequestedObject};

/// The user for authorization.
pub(crate) fn user(info: &UserInfo) -> User {
    User {
        name: info.username.clone(),
        uid: info.uid.clone(),
        groups: info.groups.clone().unwrap_or_default(),
        extra: info.extra.clone().unwrap_or_default(),
    }
}

/// Converts a user for authorization, without copying.
pub(crate) fn with_authz_user<T>(info: &mut UserInfo, ask: impl FnOnce(&User) -> T) -> T {
    let (has_groups, has_extra) = (info.groups.is_some(), info.extra.is_some());
    let user = User {
        name: std::mem::take(&mut info.username),
        uid: std::mem::take(&mut info.uid),
        groups: info.groups.take().unwrap_or_default(),
        extra: info.extra.take().unwrap_or_default(),
    };
    let answer = ask(&user);
    *info = UserInfo {
        username: user.name,
        uid: user.uid,
        groups: has_groups.then_some(user.groups),
        extra: has_extra.then_some(user.extra),
    };
    answer
}

/// The reason of a denial, with upstream's text.
///
/// UPSTREAM: apiserver pkg/endpoints/handlers/responsewriters/errors.go
pub(crate) fn denied(user: &str, request: &AccessRequest<'_>, reason: &str) -> String {
    let what = without_markup(&forbidden_message(user, request));
    if reason.is_empty() {
        return what;
    }
    format!("{what}: {reason}")
}

/// The text without characters that would be HTML-escaped, except for quotes.
fn without_markup(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

fn forbidden_message(user: &str, request: &AccessRequest<'_>) -> String {
    let user = format!("User {}", quote(user));
    let verb = request.verb;
    match &request.object {
        AccessObject::Path(path) => format!("{user} cannot {verb} path {}", quote(path)),
        AccessObject::Resource {
            group,
            resource,
            subresource,
            namespace,
            ..
        } => {
            let resource = if subresource.is_empty() {
                (*resource).to_owned()
            } else {
                format!("{resource}/{subresource}")
            };
            let what = format!(
                "{user} cannot {verb} resource {} in API group {}",
                quote(&resource),
                quote(group)
            );
            if namespace.is_empty() {
                format!("{what} at the cluster scope")
            } else {
                format!("{what} in the namespace {}", quote(namespace))
            }
        }
    }
}
