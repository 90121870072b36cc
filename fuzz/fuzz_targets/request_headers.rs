//! Headers: an unreadable one is rejected, and never ignored.
//!
//! The input is lines of `name: value`.

#![no_main]

use std::sync::LazyLock;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use lockgate_apiserver::fuzzing::{self, Accounts};

static ACCOUNTS: LazyLock<Accounts> = LazyLock::new(Accounts::new);

fuzz_target!(|bytes: &[u8]| {
    let headers = headers(bytes);
    impersonation(&headers);
    authorization(&headers);
    forms(&headers);
});

fn headers(bytes: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let Some(at) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..at]);
        let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn impersonation(headers: &HeaderMap) {
    let asks = headers.iter().any(|(name, value)| {
        let name = name.as_str();
        // An empty name or uid impersonates no one; an empty group counts.
        match name {
            "impersonate-user" | "impersonate-uid" => {
                !value.is_empty() && headers.get(name) == Some(value)
            }
            _ => name == "impersonate-group" || name.starts_with("impersonate-extra-"),
        }
    });
    let name = headers.get("impersonate-user");
    match fuzzing::impersonate(headers, false) {
        Ok(None) => assert!(!asks, "{headers:?}"),
        Ok(Some(user)) => panic!("became {user:?} without the right to"),
        Err(code) => {
            assert!(asks, "{headers:?}");
            assert!([400, 403].contains(&code));
        }
    }
    match fuzzing::impersonate(headers, true) {
        Ok(None) => assert!(!asks),
        Ok(Some(user)) => {
            let name = name.expect("somebody is named");
            assert_eq!(user.username.as_bytes(), name.as_bytes());
            let groups = user.groups.unwrap_or_default();
            for group in headers.get_all("impersonate-group") {
                let is_kept = groups.iter().any(|it| it.as_bytes() == group.as_bytes());
                assert!(is_kept, "{group:?} of {headers:?}");
            }
            for (header, value) in headers {
                if header.as_str().starts_with("impersonate-extra-") {
                    let extra = user.extra.as_ref().expect("extra keys are kept");
                    let mut values = extra.values().flatten();
                    assert!(values.any(|it| it.as_bytes() == value.as_bytes()));
                }
            }
        }
        Err(code) => assert_eq!(code, 400),
    }
}

fn authorization(headers: &HeaderMap) {
    let user = ACCOUNTS.authenticate(headers);
    let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let mut words = shown
        .unwrap_or_default()
        .trim_ascii()
        .split(|&it| it == b' ');
    let scheme = words.next().unwrap_or_default();
    let token = words.next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case(b"bearer") || token.is_empty() {
        assert_eq!(user.as_deref(), Some(ACCOUNTS.nobody()), "{headers:?}");
    } else if token == b"known" {
        assert_eq!(user.as_deref(), Some("ann"));
    } else {
        assert_eq!(user, None, "{headers:?}");
    }
}

fn forms(headers: &HeaderMap) {
    let sent = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    if fuzzing::is_json(headers) == Some(true) {
        let start = sent.split(|&it| it == b';').next().unwrap_or_default();
        let is_named = start.trim_ascii().eq_ignore_ascii_case(b"application/json");
        assert!(sent.is_empty() || is_named, "{headers:?}");
    }
    let (can_answer, can_patch) = fuzzing::negotiate(headers, "");
    let accepted = headers.get(ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    if accepted.is_empty() {
        assert!(can_answer);
    }
    let has = |what: &[u8]| accepted.windows(what.len()).any(|it| it == what);
    if can_answer && !accepted.is_empty() {
        assert!(has(b"application/") || has(b"*/*"), "{headers:?}");
    }
    if can_patch {
        assert!(sent.starts_with(b"application/"));
    }
}
