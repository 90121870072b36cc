//! Request lines: the authorization attributes are those of upstream.
//!
//! The input is a method, a space, and a request target.

#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use lockgate_apiserver::fuzzing::{Meaning, meaning};

fuzz_target!(|text: &str| {
    let (method, target) = text.split_once(' ').unwrap_or(("GET", text));
    let Ok(method) = method.parse::<Method>() else {
        return;
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let read = meaning(&method, path, query);
    let Some(decoded) = decode(path) else {
        assert_eq!(read, Meaning::Unreadable, "{path}");
        return;
    };
    match (model(&method, &decoded, query), read) {
        (None, Meaning::Path(read)) => assert_eq!(read, decoded),
        (
            Some(model),
            Meaning::Resource {
                is_served,
                parts,
                asked_name,
            },
        ) => {
            assert_eq!(parts, model, "{method} {target}");
            let [verb, group, _, namespace, resource, _, name] = &parts;
            // A name in the path is authorized; without one, only verbs on collections may authorize a name.
            if !name.is_empty() {
                assert_eq!(&asked_name, name);
            } else if !asked_name.is_empty() {
                assert!(["list", "watch"].contains(&verb.as_str()), "{target}");
                assert!(!asked_name.contains('/'));
            }
            // Nothing is served at a namespace within another.
            if is_served && group.is_empty() && resource == "namespaces" && !namespace.is_empty() {
                assert_eq!(namespace, name, "{target}");
            }
        }
        (model, read) => panic!("{method} {target}: {model:?} and {read:?}"),
    }
});

/// Decodes a path as Go does; invalid UTF-8 is rejected here.
fn decode(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let [high, low, after @ ..] = after else {
            return None;
        };
        let digits = [*high, *low];
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// Verb, group, version, namespace, resource, subresource and name. None for other paths.
///
/// UPSTREAM: apiserver pkg/endpoints/request/requestinfo.go (NewRequestInfo)
fn model(method: &Method, path: &str, query: &str) -> Option<[String; 7]> {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if parts.len() < 3 {
        return None;
    }
    let group = match parts.remove(0) {
        "api" => "",
        "apis" if parts.len() > 2 => parts.remove(0),
        _ => return None,
    };
    let version = parts.remove(0);
    let mut has_verb = false;
    let mut verb = match method.as_str() {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    };
    if ["proxy", "watch"].contains(&parts[0]) && parts.len() > 1 {
        verb = parts.remove(0);
        has_verb = true;
    }
    let mut namespace = "";
    if parts[0] == "namespaces" && parts.len() > 1 {
        namespace = parts[1];
        if parts.len() > 2 && !["status", "finalize"].contains(&parts[2]) {
            parts.drain(..2);
        }
    }
    let resource = parts[0];
    let name = parts.get(1).copied().unwrap_or_default();
    let subresource = match verb {
        "proxy" => "",
        _ => parts.get(2).copied().unwrap_or_default(),
    };
    if name.is_empty() && !has_verb {
        verb = match verb {
            "get" if watches(query) => "watch",
            "get" => "list",
            "delete" => "deletecollection",
            other => other,
        };
    }
    Some([verb, group, version, namespace, resource, subresource, name].map(str::to_owned))
}

/// The first `watch` parameter is anything but false.
fn watches(query: &str) -> bool {
    let pairs = query.split('&').filter(|pair| !pair.contains(';'));
    let mut pairs = pairs.filter(|pair| !pair.is_empty()).filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let blank = |text: &str| text.replace('+', " ");
        Some((decode(&blank(key))?, decode(&blank(value))?))
    });
    let first = pairs.find(|(key, _)| key == "watch");
    first.is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
}
