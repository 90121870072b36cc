//! Validation shared by many kinds.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::Value;

use lockgate_api::decode::{WireStruct, decode_value};
use lockgate_api::document::tree as document;
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::names::{LABEL_MAX, SUBDOMAIN_MAX, check_subdomain, is_subdomain};
use lockgate_api::meta::validation::NameRules;
use lockgate_go::json::to_string;

use crate::object::{Object, get, number, open};
use crate::tree;

/// Decodes a part of an object as a wire type; invalid fields are omitted.
pub(crate) fn wire<T: WireStruct + Default>(value: &Value) -> T {
    decode_value(document::read(value).root())
        .map(|decoded| decoded.value)
        .unwrap_or_default()
}

/// Reports one invalid-value error per message.
pub(crate) fn invalid_each(
    errors: &mut FieldErrors,
    path: &Path<'_>,
    value: &str,
    messages: Vec<String>,
) {
    for message in messages {
        errors.push(FieldError::invalid(path, Shown::Text(value), message));
    }
}

pub(crate) fn invalid_json(
    errors: &mut FieldErrors,
    path: &Path<'_>,
    value: Option<&Value>,
    detail: &str,
) {
    let shown = to_string(value.unwrap_or(&Value::Null));
    errors.push(FieldError::invalid(path, Shown::Rendered(&shown), detail));
}

/// Like [`invalid_json`] for a label selector, whose fields Go prints in struct order.
pub(crate) fn invalid_selector(
    errors: &mut FieldErrors,
    path: &Path<'_>,
    value: Option<&Value>,
    detail: &str,
) {
    let shown = match value {
        None | Some(Value::Null) => String::from("null"),
        Some(value) => to_string(&wire::<LabelSelector>(value)),
    };
    errors.push(FieldError::invalid(path, Shown::Rendered(&shown), detail));
}

pub(crate) fn required(errors: &mut FieldErrors, path: &Path<'_>) {
    errors.push(FieldError::required(path, ""));
}

/// Reports a negative number.
pub(crate) fn non_negative(errors: &mut FieldErrors, object: &Object, key: &str, path: &Path<'_>) {
    let value = number(object, key);
    if value < 0 {
        errors.push(FieldError::invalid(
            &path.child(key),
            Shown::Integer(value),
            "must be greater than or equal to 0",
        ));
    }
}

pub(crate) fn check_port_name(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut add = |broken: bool, message: &str| {
        if broken {
            messages.push(message.to_owned());
        }
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    add(name.len() > 15, "must be no more than 15 characters");
    add(
        name.is_empty() || !name.bytes().all(plain),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    add(
        !name.bytes().any(|byte| byte.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    add(name.contains("--"), "must not contain consecutive hyphens");
    add(
        name.starts_with('-') || name.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    messages
}

/// Validates a data key of a ConfigMap or Secret.
pub(crate) fn check_config_key(key: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if key.len() > SUBDOMAIN_MAX {
        messages.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(good) {
        messages.push(String::from(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
             'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
             '[-._a-zA-Z0-9]+')",
        ));
    }
    match key {
        "." => messages.push(String::from("must not be '.'")),
        ".." => messages.push(String::from("must not be '..'")),
        _ if key.starts_with("..") => messages.push(String::from("must not start with '..'")),
        _ => {}
    }
    messages
}

/// Reports a change of an immutable field.
pub(crate) fn immutable(
    errors: &mut FieldErrors,
    (new, old): (Option<&Value>, Option<&Value>),
    path: &Path<'_>,
) {
    let (new, old) = (new.unwrap_or(&Value::Null), old.unwrap_or(&Value::Null));
    if !tree::equal(new, old) {
        invalid_json(errors, path, Some(new), "field is immutable");
    }
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// The name rules of kinds whose names are DNS labels.
pub(crate) const LABEL_NAMES: NameRules = NameRules {
    name: check_label,
    prefix: check_label_prefix,
};

/// The name rules of newer validation, whose length errors state the number of bytes.
///
/// UPSTREAM: apimachinery pkg/api/validate/strfmt.go (LongName)
pub(crate) const LONG_NAMES: NameRules = NameRules {
    name: check_long_name,
    // Only the generated name is validated, not the prefix.
    prefix: |_| Vec::new(),
};

fn check_long_name(name: &str) -> Vec<String> {
    let mut messages = check_subdomain(name);
    for message in &mut messages {
        if let Some(start) = message.strip_suffix(" characters") {
            *message = format!("{start} bytes");
        }
    }
    messages
}

/// Validates a DNS-1123 label.
pub(crate) fn check_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let good = value.bytes().all(|byte| plain(byte) || byte == b'-')
        && value.bytes().next().is_some_and(plain)
        && value.bytes().last().is_some_and(plain);
    if !good {
        // A subdomain that is not a label contains dots.
        let message = if is_subdomain(value) {
            "must not contain dots"
        } else {
            LABEL
        };
        messages.push(message.to_owned());
    }
    messages
}

/// Validates the prefix of a generated label: a trailing `-` is valid, since a suffix follows.
fn check_label_prefix(value: &str) -> Vec<String> {
    // UPSTREAM: apimachinery pkg/api/validation/generic.go (maskTrailingDash) replaces the last two
    // bytes with an `a`.
    match value.as_bytes() {
        [stem @ .., _, b'-'] => check_label(&format!("{}a", String::from_utf8_lossy(stem))),
        _ => check_label(value),
    }
}

/// Validates a finalizer name, which is known or has a domain.
pub(crate) fn check_finalizer_name(errors: &mut FieldErrors, name: &str, path: &Path<'_>) {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    if !name.contains('/') && !STANDARD.contains(&name) {
        errors.push(FieldError::invalid(
            path,
            Shown::Text(name),
            "name is neither a standard finalizer name nor is it fully qualified",
        ));
    }
}

/// Copies a field from another object, or removes it if absent there.
pub(crate) fn copy_field(object: &mut Object, from: &Object, key: &str) {
    match from.get(key) {
        Some(value) => {
            object.insert(key.to_owned(), value.clone());
        }
        None => {
            object.remove(key);
        }
    }
}

/// Restores the metadata that a status update cannot change.
///
/// UPSTREAM: apimachinery pkg/apis/meta/v1/meta.go (ResetObjectMetaForStatus).
pub(crate) fn reset_metadata(object: &mut Object, old: &Object) {
    if let (Some(metadata), Some(old)) = (open(object, "metadata"), get(old, "metadata")) {
        for key in [
            "deletionTimestamp",
            "generation",
            "selfLink",
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
        ] {
            copy_field(metadata, old, key);
        }
    }
}

/// Validates a DNS-1123 subdomain whose labels may contain and start with underscores.
pub(crate) fn check_subdomain_with_underscore(value: &str) -> Vec<String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let rest = label.strip_prefix('_').unwrap_or(label).as_bytes();
        rest.first().is_some_and(|&byte| plain(byte))
            && rest.last().is_some_and(|&byte| plain(byte))
            && rest
                .iter()
                .all(|&byte| plain(byte) || matches!(byte, b'-' | b'_'))
    };
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        messages.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if !value.split('.').all(label) {
        messages.push(String::from(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '_', '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is \
             '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
        ));
    }
    messages
}

/// Validates a wildcard host such as `*.example.com`.
pub(crate) fn check_wildcard_subdomain(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        messages.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        messages.push(String::from(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
             which must consist of lower case alphanumeric characters, '-' or '.' and end with an \
             alphanumeric character (e.g. '*.example.com', regex used for validation is \
             '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ));
    }
    messages
}

/// Validates the name of an environment variable, or its prefix.
pub(crate) fn check_environment_name(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.is_empty() {
        messages.push(String::from("environment variable name must be non-empty"));
    }
    if !name
        .bytes()
        .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
    {
        messages.push(String::from(
            "a valid environment variable name must consist only of printable ASCII characters \
             other than '='",
        ));
    }
    messages
}

/// Validates the name of an HTTP header.
pub(crate) fn check_header_name(name: &str) -> Vec<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !name.is_empty() && name.bytes().all(good) {
        return Vec::new();
    }
    vec![String::from(
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
         'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
    )]
}

/// Validates a percentage such as `25%`.
pub(crate) fn check_percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    vec![String::from(
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
         '93%', regex used for validation is '[0-9]+%')",
    )]
}

/// Parses an IP like older releases, which accept leading zeros in octets.
pub(crate) fn parse_ip_sloppy(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        *octet = is_number.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then(|| IpAddr::from(octets))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if six.to_ipv4_mapped().is_some())
}

/// The error of the dual-stack check if one of several IPs is invalid.
///
/// UPSTREAM: k8s.io/utils net/net.go (IsDualStackIPStrings)
pub(crate) fn dual_stack_failure(addresses: &[&str]) -> Option<String> {
    let mut found = addresses.iter().enumerate();
    let (index, address) = found.find(|(_, address)| parse_ip_sloppy(address).is_none())?;
    Some(format!(
        "failed to check for dual stack with error:invalid IP[{index}]: {address}"
    ))
}

/// Validates an IP in a field that predates strict parsing.
///
/// UPSTREAM: apimachinery pkg/util/validation/ip.go (IsValidIPForLegacyField)
pub(crate) fn check_legacy_ip(text: &str) -> Vec<String> {
    let Some(address) = parse_ip_sloppy(text) else {
        return vec![String::from(
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        )];
    };
    let mut messages = Vec::new();
    if text.parse::<IpAddr>().is_err() {
        messages.push(String::from("must not have leading 0s"));
    }
    if is_mapped(address) {
        messages.push(String::from("must not be an IPv4-mapped IPv6 address"));
    }
    messages
}

/// Validates an IP that must be in canonical form.
pub(crate) fn check_ip(text: &str) -> Vec<String> {
    let mut messages = check_legacy_ip(text);
    if let (true, Some(address)) = (messages.is_empty(), parse_ip_sloppy(text))
        && address.to_string() != text
    {
        messages.push(format!(
            "must be in canonical form ({})",
            lockgate_go::quote::quote(&address.to_string())
        ));
    }
    messages
}

/// Parses a CIDR: its address and prefix length.
pub(crate) fn parse_cidr_sloppy(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_ip_sloppy(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length = is_number.then(|| length.parse::<u8>().ok())??;
    (length <= most).then_some((address, length))
}

/// The first address of a CIDR.
pub(crate) fn masked(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            IpAddr::from((u32::from(four) & mask).to_be_bytes())
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            IpAddr::from((u128::from(six) & mask).to_be_bytes())
        }
    }
}

/// Validates a CIDR in a field that predates strict parsing.
///
/// UPSTREAM: apimachinery pkg/util/validation/ip.go (IsValidCIDRForLegacyField)
pub(crate) fn check_legacy_cidr(text: &str) -> Vec<String> {
    let Some((address, length)) = parse_cidr_sloppy(text) else {
        return vec![String::from(
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        )];
    };
    let (own, bits) = text.split_once('/').unwrap_or_default();
    let message = if own.parse::<IpAddr>().is_err() || bits != length.to_string() {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if masked(address, length) != address {
        "must not have bits set beyond the prefix length"
    } else {
        return Vec::new();
    };
    vec![message.to_owned()]
}

/// Validates a CIDR that must be in canonical form.
pub(crate) fn check_cidr(text: &str) -> Vec<String> {
    let mut messages = check_legacy_cidr(text);
    if let (true, Some((address, length))) = (messages.is_empty(), parse_cidr_sloppy(text)) {
        let canonical = format!("{address}/{length}");
        if canonical != text {
            messages.push(format!(
                "must be in canonical form ({})",
                lockgate_go::quote::quote(&canonical)
            ));
        }
    }
    messages
}

/// Validates the IP of an endpoint.
///
/// UPSTREAM: pkg/apis/core/validation/validation.go (ValidateEndpointIP)
pub(crate) fn check_endpoint_ip(text: &str) -> Vec<String> {
    let Some(address) = parse_ip_sloppy(text) else {
        return vec![String::from("must be a valid IP address")];
    };
    let address = match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(four) => {
            let octets = four.octets();
            (four.is_link_local(), octets[..3] == [224, 0, 0])
        }
        IpAddr::V6(six) => {
            let first = six.segments()[0];
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    let mut messages = Vec::new();
    if address.is_unspecified() {
        messages.push(format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        messages.push(String::from(
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ));
    }
    if link_local {
        messages.push(String::from(
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ));
    }
    if link_local_multicast {
        messages.push(String::from(
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ));
    }
    messages
}

/// The warning about a valid IP in non-canonical form.
///
/// UPSTREAM: apimachinery pkg/util/validation/ip.go (GetWarningsForIP)
pub(crate) fn ip_warning(path: &Path<'_>, text: &str) -> Option<String> {
    let quote = lockgate_go::quote::quote;
    let address = parse_ip_sloppy(text)?;
    if text.parse::<IpAddr>().is_err() || is_mapped(address) {
        let shown = match address {
            IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        return Some(format!(
            "{path}: non-standard IP address {} is invalid: use {}",
            quote(text),
            quote(&shown.to_string())
        ));
    }
    (address.is_ipv6() && address.to_string() != text).then(|| {
        format!(
            "{path}: IPv6 address {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&address.to_string())
        )
    })
}

/// The warnings about a valid CIDR in non-canonical form.
///
/// UPSTREAM: apimachinery pkg/util/validation/ip.go (GetWarningsForCIDR)
pub(crate) fn cidr_warnings(path: &Path<'_>, text: &str) -> Vec<String> {
    let quote = lockgate_go::quote::quote;
    let Some((address, length)) = parse_cidr_sloppy(text) else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    let network = format!("{}/{length}", masked(address, length));
    if masked(address, length) != address {
        let whole = if address.is_ipv4() { 32 } else { 128 };
        warnings.push(format!(
            "{path}: CIDR value {} is ambiguous in this context (should be {} or {}?)",
            quote(text),
            quote(&network),
            quote(&format!("{address}/{whole}"))
        ));
    }
    let (own, bits) = text.split_once('/').unwrap_or_default();
    let is_standard = own.parse::<IpAddr>().is_ok() && bits == length.to_string();
    if !is_standard || is_mapped(address) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {} is invalid: use {}",
            quote(text),
            quote(&network)
        ));
    }
    let canonical = format!("{address}/{length}");
    if warnings.is_empty() && address.is_ipv6() && canonical != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&canonical)
        ));
    }
    warnings
}

/// The types of the PEM blocks in an input.
pub(crate) fn pem_types(bytes: &[u8]) -> Vec<String> {
    let blocks = pem_blocks(bytes).into_iter();
    blocks.map(|(kind, _)| kind).collect()
}

/// The PEM blocks in an input, with type and content.
///
/// UPSTREAM: encoding/pem (Decode)
pub(crate) fn pem_blocks(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    const END: &str = "-----";
    let text = String::from_utf8_lossy(bytes);
    let mut blocks = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(kind) = line
            .strip_prefix("-----BEGIN ")
            .and_then(|rest| rest.strip_suffix(END))
        {
            open = Some((kind, String::new()));
        } else if let Some(kind) = line
            .strip_prefix("-----END ")
            .and_then(|rest| rest.strip_suffix(END))
        {
            if let Some((begun, body)) = open.take()
                && begun == kind
                && let Ok(bytes) = lockgate_go::base64::decode(&body)
            {
                blocks.push((kind.to_owned(), bytes));
            }
        } else if let Some((_, body)) = &mut open
            && !line.contains(':')
        {
            body.push_str(line);
        }
    }
    blocks
}

/// Validates the name of a CSI driver, except its presence and length.
pub(crate) fn check_lower_subdomain(value: &str) -> Vec<String> {
    check_subdomain(&value.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_no_dots_and_63_bytes() {
        assert_eq!(check_label("a.b"), ["must not contain dots"]);
        assert_eq!(check_label("A"), [LABEL]);
        assert!(check_label("1a").is_empty());
        assert!(check_label_prefix("a-").is_empty());
        assert_eq!(
            check_label(&"a".repeat(64)),
            ["must be no more than 63 characters"]
        );
    }
}
