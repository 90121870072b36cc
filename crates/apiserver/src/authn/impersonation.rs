//! Impersonation, for all requests or constrained to some.
//!
//! The permission `impersonate` applies to all requests. Constrained impersonation requires two permissions: to
//! impersonate in a mode (`impersonate:MODE`), and for the request in that mode (`impersonate-on:MODE:VERB`).
//!
//! UPSTREAM: apiserver pkg/endpoints/filters/impersonation

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, HeaderValue};
use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, User};
use lockgate_api::admission::UserInfo;
use lockgate_api::field::{Path, aggregate};
use lockgate_api::meta::names::{check_dns1123_label, check_subdomain};
use lockgate_api::meta::validation::check_domain_prefixed_path;
use lockgate_go::quote::quote;

use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use crate::authz;
use crate::authz::rbac::MASTERS;
use crate::error::{Failure, Outcome, bad_request, forbidden};
use crate::http::query::unescape;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const NODE: &str = "system:node:";
/// The group of all nodes.
const NODES: &str = "system:nodes";
/// The extra value with the node of a ServiceAccount token, or of its Pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// The extra value for all extra values of a user who impersonates its own node.
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
const GROUP_NAME: &str = "authentication.k8s.io";

/// The number of groups or extra values from which a permission for all of them is checked first.
const BULK_CHECK_THRESHOLD: usize = 4;
/// The maximum number of users whose last mode is cached.
const MODE_CACHE_SIZE: usize = 10_000;

/// A mode of impersonation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

impl Mode {
    /// The modes in the order in which they are tried.
    const ALL: [Self; 5] = [
        Self::AssociatedNode,
        Self::ArbitraryNode,
        Self::ServiceAccount,
        Self::UserInfo,
        Self::Legacy,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    /// Returns true if a user can be impersonated in this mode. The modes for nodes and ServiceAccounts only accept
    /// usernames: the server derives the other attributes.
    fn applies(self, caller: &UserInfo, wanted: &UserInfo) -> bool {
        let has_name_alone =
            wanted.uid.is_empty() && wanted.groups.is_none() && wanted.extra.is_none();
        let node = node(&wanted.username);
        let is_account = service_account(&wanted.username).is_some();
        match self {
            Self::AssociatedNode => {
                let is_own = node.is_some() && node == own_node(caller);
                has_name_alone && is_own && service_account(&caller.username).is_some()
            }
            Self::ArbitraryNode => has_name_alone && node.is_some(),
            Self::ServiceAccount => has_name_alone && is_account,
            Self::UserInfo => node.is_none() && !is_account,
            Self::Legacy => true,
        }
    }
}

/// The requested action.
#[derive(Debug, Clone)]
pub(crate) struct Action<'a> {
    pub(crate) verb: &'a str,
    pub(crate) object: AccessObject<'a>,
}

/// An impersonated user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Impersonated {
    pub(crate) user: UserInfo,
    /// The verb of constrained impersonation that allowed it.
    pub(crate) constraint: Option<String>,
}

/// Authorizes impersonation.
#[derive(Debug)]
pub(crate) struct Impersonator {
    is_constrained: bool,
    /// The mode in which a user last succeeded, by a hash of the name. It is tried first, so that its error is the
    /// reported one.
    last: Mutex<HashMap<u64, Mode>>,
    hasher: RandomState,
}

impl Impersonator {
    /// Creates it with all modes, or with the permission `impersonate` alone.
    pub(crate) fn new(is_constrained: bool) -> Self {
        Self {
            is_constrained,
            last: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// The impersonated user; `None` without impersonation headers.
    pub(crate) fn impersonate(
        &self,
        caller: &UserInfo,
        headers: &HeaderMap,
        authorizer: &dyn Authorizer,
        action: &Action<'_>,
    ) -> Outcome<Option<Impersonated>> {
        let Some(wanted) = requested_user(headers)? else {
            return Ok(None);
        };
        if !self.is_constrained {
            let user = attempt(Mode::Legacy, caller, &wanted, authorizer, action)?;
            return Ok(Some(user));
        }
        let key = self.hasher.hash_one(&caller.username);
        let last = self.last().get(&key).copied();
        let others = Mode::ALL.into_iter().filter(|mode| Some(*mode) != last);
        let mut refused = None;
        for mode in last.into_iter().chain(others) {
            if !mode.applies(caller, &wanted) {
                continue;
            }
            match attempt(mode, caller, &wanted, authorizer, action) {
                Ok(user) => {
                    self.cache_mode(key, mode, last);
                    return Ok(Some(user));
                }
                Err(failure) => {
                    refused.get_or_insert(failure);
                }
            }
        }
        // The last mode applies to all users, so an error was recorded.
        Err(refused.unwrap_or_else(|| forbidden("", "", "", "all impersonation modes failed")))
    }

    fn last(&self) -> MutexGuard<'_, HashMap<u64, Mode>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache_mode(&self, key: u64, mode: Mode, before: Option<Mode>) {
        if before == Some(mode) {
            return;
        }
        let mut last = self.last();
        if last.len() >= MODE_CACHE_SIZE {
            last.clear();
        }
        last.insert(key, mode);
    }
}

/// Returns true if a request may have impersonation headers. Most have none and need no further check.
pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    let mut names = headers.keys();
    names.any(|name| name.as_str().starts_with("impersonate-"))
}

/// The user in the impersonation headers.
fn requested_user(headers: &HeaderMap) -> Outcome<Option<UserInfo>> {
    let text = |name: &str| match headers.get(name) {
        Some(value) => readable(name, value),
        None => Ok(String::new()),
    };
    let name = text(USER)?;
    let uid = text(UID)?;
    let groups: Vec<String> = headers
        .get_all(GROUP)
        .iter()
        .map(|value| readable(GROUP, value))
        .collect::<Outcome<_>>()?;
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        let Some(key) = header.as_str().strip_prefix(EXTRA) else {
            continue;
        };
        let key = unescape(key, false).unwrap_or_else(|| key.to_owned());
        let value = readable(header.as_str(), value)?;
        extra.entry(key).or_default().push(value);
    }
    if name.is_empty() {
        if uid.is_empty() && groups.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        return Err(bad_request(format!(
            "requested {} without impersonating a user name",
            requested(&uid, &groups, &extra)
        )));
    }
    Ok(Some(UserInfo {
        username: name,
        uid,
        groups: (!groups.is_empty()).then_some(groups),
        extra: (!extra.is_empty()).then_some(extra),
    }))
}

/// Impersonates in one mode, if the requesting user has every required permission.
fn attempt(
    mode: Mode,
    caller: &UserInfo,
    wanted: &UserInfo,
    authorizer: &dyn Authorizer,
    action: &Action<'_>,
) -> Outcome<Impersonated> {
    let mut caller = authz::user(caller);
    if mode == Mode::AssociatedNode {
        // The permission is for any node, so the node's name is hidden from authorizers.
        let keys = std::mem::take(&mut caller.extra).into_keys().collect();
        caller.extra.insert(NODE_KEYS.to_owned(), keys);
    }
    let verb = match mode {
        Mode::Legacy => String::from("impersonate"),
        mode => format!("impersonate:{}", mode.name()),
    };
    let check = Check {
        mode,
        caller: &caller,
        verb: &verb,
        authorizer,
    };
    if mode != Mode::Legacy {
        let verb = format!("impersonate-on:{}:{}", mode.name(), action.verb);
        check.ask(&verb, action.object.clone())?;
    }
    let groups = check.username(wanted)?;
    check.uid(&wanted.uid)?;
    check.groups(wanted.groups.as_deref().unwrap_or_default())?;
    if let Some(extra) = &wanted.extra {
        check.extra(extra)?;
    }
    let groups = groups.or_else(|| wanted.groups.clone()).unwrap_or_default();
    Ok(Impersonated {
        user: UserInfo {
            groups: Some(with_own_group(&wanted.username, groups)),
            ..wanted.clone()
        },
        constraint: (mode != Mode::Legacy).then_some(verb),
    })
}

/// The checks of one mode.
struct Check<'c> {
    mode: Mode,
    caller: &'c User,
    verb: &'c str,
    authorizer: &'c dyn Authorizer,
}

/// A part of the impersonated user.
#[derive(Debug, Clone, Copy, Default)]
struct Part<'p> {
    group: &'p str,
    resource: &'p str,
    subresource: &'p str,
    namespace: &'p str,
    name: &'p str,
}

impl<'p> Part<'p> {
    fn object(self) -> AccessObject<'p> {
        AccessObject::Resource {
            group: self.group,
            resource: self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name: self.name,
            field_selector: "",
            label_selector: "",
        }
    }
}

impl Check<'_> {
    fn is_constrained(&self) -> bool {
        self.mode != Mode::Legacy
    }

    /// The API group of the resource; users and groups were once in the core group.
    fn group(&self) -> &'static str {
        if self.is_constrained() {
            GROUP_NAME
        } else {
            ""
        }
    }

    /// Checks a permission.
    fn ask(&self, verb: &str, object: AccessObject<'_>) -> Outcome<()> {
        let request = AccessRequest {
            user: self.caller,
            verb,
            object,
        };
        let decision = self.authorizer.authorize(&request);
        match decision.allowed {
            true => Ok(()),
            false => Err(refused(&request, &decision.reason)),
        }
    }

    /// Checks the permission to impersonate a part of a user.
    fn allow(&self, mut part: Part<'_>) -> Outcome<()> {
        if self.mode == Mode::AssociatedNode {
            part.name = "*";
        }
        self.ask(self.verb, part.object())
    }

    /// The error for a missing permission.
    fn reject(&self, part: Part<'_>, why: &str) -> Outcome<()> {
        let request = AccessRequest {
            user: self.caller,
            verb: self.verb,
            object: part.object(),
        };
        Err(refused(&request, why))
    }

    /// Checks the permission for the name. Returns the groups of the name, if they are fixed.
    fn username(&self, wanted: &UserInfo) -> Outcome<Option<Vec<String>>> {
        let name = wanted.username.as_str();
        let mut part = Part {
            group: self.group(),
            resource: "users",
            name,
            ..Part::default()
        };
        let mut groups = None;
        let node = node(name).filter(|_| self.is_constrained());
        if let Some(node) = node {
            (part.resource, part.name) = ("nodes", node);
            groups = Some(vec![NODES.to_owned()]);
        } else if let Some((namespace, account)) = service_account(name) {
            part.resource = "serviceaccounts";
            (part.namespace, part.name) = (namespace, account);
            groups = Some(vec![
                String::from("system:serviceaccounts"),
                format!("system:serviceaccounts:{namespace}"),
            ]);
        }
        if groups.is_some() && wanted.groups.is_some() {
            // The modes for nodes and ServiceAccounts do not apply to requests with groups, so they were not tried.
            if self.is_constrained() {
                return self
                    .reject(part, "cannot impersonate groups")
                    .map(|()| None);
            }
            groups = None;
        }
        self.allow(part)?;
        Ok(groups)
    }

    fn uid(&self, uid: &str) -> Outcome<()> {
        if uid.is_empty() {
            return Ok(());
        }
        self.allow(Part {
            group: GROUP_NAME,
            resource: "uids",
            name: uid,
            ..Part::default()
        })
    }

    fn groups(&self, groups: &[String]) -> Outcome<()> {
        let part = Part {
            group: self.group(),
            resource: "groups",
            ..Part::default()
        };
        if self.is_constrained() {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return self.reject(part, why);
            }
            if groups.iter().any(|group| group == MASTERS) {
                let part = Part {
                    name: MASTERS,
                    ..part
                };
                let why = "impersonating the system:masters group is not allowed";
                return self.reject(part, why);
            }
            if groups.len() >= BULK_CHECK_THRESHOLD
                && self.allow(Part { name: "*", ..part }).is_ok()
            {
                return Ok(());
            }
        }
        let mut groups = groups.iter();
        groups.try_for_each(|name| self.allow(Part { name, ..part }))
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Outcome<()> {
        let part = Part {
            group: GROUP_NAME,
            resource: "userextras",
            ..Part::default()
        };
        if self.is_constrained() {
            if let Some(why) = extra_error(extra) {
                return self.reject(part, &why);
            }
            let values: usize = extra.values().map(Vec::len).sum();
            let all = Part {
                subresource: "*",
                name: "*",
                ..part
            };
            if extra.len().max(values) >= BULK_CHECK_THRESHOLD && self.allow(all).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.allow(Part {
                    subresource: key,
                    name: value,
                    ..part
                })?;
            }
        }
        Ok(())
    }
}

fn refused(request: &AccessRequest<'_>, why: &str) -> Failure {
    let why = authz::denied(&request.user.name, request, why);
    match request.object {
        AccessObject::Path(_) => forbidden("", "", "", &why),
        AccessObject::Resource {
            group,
            resource,
            name,
            ..
        } => forbidden(group, resource, name, &why),
    }
}

/// The validation error of extra values under the rules of constrained impersonation.
fn extra_error(extra: &BTreeMap<String, Vec<String>>) -> Option<String> {
    let (parent, mut why) = (Path::root("extra"), None);
    for (key, values) in extra {
        let errors = check_domain_prefixed_path(&parent.child("key"), key);
        if key.is_empty() {
            why = Some(String::from(
                "impersonating the empty string key in extra is not allowed",
            ));
        } else if !errors.is_empty() {
            let errors = aggregate(&errors);
            why = Some(format!(
                "impersonating an invalid key in extra is not allowed: {errors}"
            ));
        } else if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            let key = quote(key);
            why = Some(format!(
                "impersonating a non-lowercase key in extra is not allowed: {key}"
            ));
        } else if values.is_empty() {
            why = Some(String::from(
                "impersonating empty values in extra is not allowed",
            ));
        } else if values.iter().any(String::is_empty) {
            why = Some(String::from(
                "impersonating the empty string value in extra is not allowed",
            ));
        }
        if why.is_some() {
            break;
        }
    }
    why
}

/// The name of a node, from its username.
fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix(NODE)?;
    check_subdomain(name).is_empty().then_some(name)
}

/// The node in the user's token.
fn own_node(user: &UserInfo) -> Option<&str> {
    match user.extra.as_ref()?.get(NODE_NAME)?.as_slice() {
        [node] => Some(node),
        _ => None,
    }
}

/// The value of a header. An unreadable one is rejected: if it were ignored, the request would run with the permissions
/// of the impersonator.
fn readable(name: &str, value: &HeaderValue) -> Outcome<String> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(bad_request(format!("header {} is not UTF-8", quote(name)))),
    }
}

/// The impersonated user, in Go's format.
fn requested(uid: &str, groups: &[String], extra: &BTreeMap<String, Vec<String>>) -> String {
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
        format!("[]string{{{}}}", texts.join(", "))
    };
    let groups = if groups.is_empty() {
        String::from("[]string(nil)")
    } else {
        list(groups)
    };
    let extra = if extra.is_empty() {
        String::from("map[string][]string(nil)")
    } else {
        let pairs: Vec<String> = extra
            .iter()
            .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
            .collect();
        format!("map[string][]string{{{}}}", pairs.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:\"\", UID:{}, Groups:{groups}, Extra:{extra}}}",
        quote(uid)
    )
}

/// The namespace and name of a ServiceAccount, from its username.
///
/// UPSTREAM: apiserver pkg/authentication/serviceaccount/util.go (SplitUsername)
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_valid = check_dns1123_label(namespace).is_empty() && check_subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}

/// Adds the group of authenticated or of unauthenticated users.
fn with_own_group(name: &str, mut groups: Vec<String>) -> Vec<String> {
    let has = |wanted: &str| groups.iter().any(|group| group == wanted);
    if name == ANONYMOUS {
        if !has(UNAUTHENTICATED) {
            groups.push(UNAUTHENTICATED.to_owned());
        }
    } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    groups
}
