//! The user in the headers of an authenticating proxy.
//!
//! UPSTREAM: apiserver pkg/authentication/request/headerrequest/requestheader.go

use std::collections::BTreeMap;

use http::HeaderMap;
use lockgate_api::admission::UserInfo;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::RequestHeaders;
use crate::error::{Outcome, unauthorized};
use crate::http::query::unescape;

/// The user of a proxied request; `None` without a username. The certificate is verified; its common name must be
/// allowed.
pub(super) fn user(
    names: &RequestHeaders,
    certificate: &CertificateDer<'_>,
    headers: &HeaderMap,
) -> Outcome<Option<UserInfo>> {
    if !is_allowed(names, certificate) {
        return Err(unauthorized());
    }
    // Values that are not valid strings are ignored.
    let texts = |name: &str| -> Outcome<Vec<String>> {
        let values = headers.get_all(name).into_iter();
        let texts = values.map(|value| std::str::from_utf8(value.as_bytes()).map(str::to_owned));
        texts.collect::<Result<_, _>>().map_err(|_| unauthorized())
    };
    let first = |known: &[String]| -> Outcome<String> {
        for name in known {
            let found = texts(name)?.into_iter().next().unwrap_or_default();
            let found = found.trim();
            if !found.is_empty() {
                return Ok(found.to_owned());
            }
        }
        Ok(String::new())
    };
    let username = first(&names.username)?;
    if username.is_empty() {
        return Ok(None);
    }
    let mut groups = Vec::new();
    for name in &names.group {
        groups.extend(texts(name)?.into_iter().filter(|group| !group.is_empty()));
    }
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in &names.extra_prefix {
        let prefix = prefix.to_ascii_lowercase();
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(&prefix) else {
                continue;
            };
            // An invalid escape is kept unchanged.
            let key = unescape(key, false).unwrap_or_else(|| key.to_owned());
            let key = key.to_lowercase();
            extra.entry(key).or_default().extend(texts(name.as_str())?);
        }
    }
    Ok(Some(UserInfo {
        username,
        uid: first(&names.uid)?,
        groups: Some(groups),
        extra: (!extra.is_empty()).then_some(extra),
    }))
}

fn is_allowed(names: &RequestHeaders, certificate: &CertificateDer<'_>) -> bool {
    if names.allowed_names.is_empty() {
        return true;
    }
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let mut common_names = parsed.subject().iter_common_name();
    let name = common_names.next().and_then(|name| name.as_str().ok());
    name.is_some_and(|name| names.allowed_names.iter().any(|allowed| allowed == name))
}
