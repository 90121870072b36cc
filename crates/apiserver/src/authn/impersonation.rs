//! Impersonation.
//!
//! UPSTREAM: apiserver pkg/endpoints/filters/impersonation

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};
use lockgate_api::access::{AccessObject, AccessRequest, Authorizer};
use lockgate_api::admission::UserInfo;
use lockgate_go::quote::quote;

use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use crate::authz;
use crate::error::{Outcome, bad_request, forbidden};
use crate::http::query::unescape;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user to be taken for, or none if nothing of that kind was asked.
pub(crate) fn impersonate(
    user: &UserInfo,
    headers: &HeaderMap,
    authorizer: &dyn Authorizer,
) -> Outcome<Option<UserInfo>> {
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
    let caller = authz::user(user);
    let check = |resource: &str, subresource: &str, group: &str, namespace: &str, name: &str| {
        let request = AccessRequest {
            user: &caller,
            verb: "impersonate",
            object: AccessObject::Resource {
                group,
                resource,
                subresource,
                namespace,
                name,
                field_selector: "",
                label_selector: "",
            },
        };
        let decision = authorizer.authorize(&request);
        if decision.allowed {
            return Ok(());
        }
        let why = authz::denied(&user.username, &request, &decision.reason);
        Err(forbidden(group, resource, name, &why))
    };
    match service_account(&name) {
        Some((namespace, account)) => check("serviceaccounts", "", "", namespace, account)?,
        None => check("users", "", "", "", &name)?,
    }
    if !uid.is_empty() {
        check("uids", "", "authentication.k8s.io", "", &uid)?;
    }
    for group in &groups {
        check("groups", "", "", "", group)?;
    }
    for (key, values) in &extra {
        for value in values {
            check("userextras", key, "authentication.k8s.io", "", value)?;
        }
    }
    Ok(Some(UserInfo {
        groups: Some(effective_groups(&name, groups)),
        username: name,
        uid,
        extra: (!extra.is_empty()).then_some(extra),
    }))
}

/// The text of a header. One that cannot be read is refused: taken for absent, the request would run
/// with the rights of the impersonator.
fn readable(name: &str, value: &HeaderValue) -> Outcome<String> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(bad_request(format!("header {} is not UTF-8", quote(name)))),
    }
}

/// The requested user, as Go shows it.
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

/// The namespace and the name of a service account, by the name of its user.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The groups one is in by one's name are added to those asked for.
fn effective_groups(name: &str, mut groups: Vec<String>) -> Vec<String> {
    if groups.is_empty()
        && let Some((namespace, _)) = service_account(name)
    {
        groups = vec![
            String::from("system:serviceaccounts"),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
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
