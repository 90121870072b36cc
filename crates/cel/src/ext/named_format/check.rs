//! One function per format.

use lockgate_go::time::is_date as is_calendar_date;

/// The unit in the error about a string that is too long: two generations of upstream's validations
/// name the same bytes differently.
pub(super) const CHARACTERS: &str = "characters";
const BYTES: &str = "bytes";

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;

const NAME_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// The name with a generated suffix, as far as the validation depends on it.
// UPSTREAM: k8s.io/apimachinery/pkg/api/validation/generic.go (maskTrailingDash) removes one
// character too many.
pub(super) fn masked(name: &[u8]) -> Vec<u8> {
    match name {
        [head @ .., _, b'-'] => [head, b"a"].concat(),
        _ => name.to_vec(),
    }
}

pub(super) fn dns1123_label(text: &[u8]) -> Vec<String> {
    let mut errors = too_long(text, LABEL_LENGTH, CHARACTERS);
    if is_label(text) {
        return errors;
    }
    errors.push(if is_subdomain(text) {
        "must not contain dots".to_owned()
    } else {
        regex_error(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
             '-', and must start and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "123-abc"],
        )
    });
    errors
}

pub(super) fn dns1123_subdomain(text: &[u8], unit: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_LENGTH, unit);
    if !is_subdomain(text) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    errors
}

pub(super) fn dns1035_label(text: &[u8]) -> Vec<String> {
    let mut errors = too_long(text, LABEL_LENGTH, CHARACTERS);
    if !is_label(text) || !text.first().is_some_and(u8::is_ascii_lowercase) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A label key: a name with an optional subdomain before a slash.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let describe = || {
        regex_error(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
             with an alphanumeric character",
            NAME_REGEX,
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut errors = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                let found = dns1123_subdomain(prefix.as_bytes(), BYTES);
                errors.extend(found.iter().map(|error| format!("prefix part {error}")));
            }
            name
        }
        (_, None, _) => text,
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                describe()
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else {
        let found = too_long(name.as_bytes(), LABEL_LENGTH, BYTES);
        errors.extend(found.iter().map(|error| format!("name part {error}")));
    }
    if !is_name(name.as_bytes()) {
        errors.push(format!("name part {}", describe()));
    }
    errors
}

pub(super) fn label_value(text: &[u8]) -> Vec<String> {
    let mut errors = too_long(text, LABEL_LENGTH, BYTES);
    if !text.is_empty() && !is_name(text) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character",
            &format!("({NAME_REGEX})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12, each dash optional.
pub(super) fn is_uuid(text: &[u8]) -> bool {
    let mut rest = text;
    for (at, width) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        match rest.split_at_checked(width) {
            Some((group, after)) if group.iter().all(u8::is_ascii_hexdigit) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// One or more groups of four characters, the last of which may end in padding.
pub(super) fn is_base64(text: &[u8]) -> bool {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return false;
    }
    let body = text.strip_suffix(b"=").unwrap_or(text);
    let body = if body.len() < text.len() {
        body.strip_suffix(b"=").unwrap_or(body)
    } else {
        body
    };
    body.iter()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

pub(super) fn is_date(text: &[u8]) -> bool {
    is_calendar_date(text)
}

/// A date, a `T`, a time and a zone; anything after another `T` is ignored.
// UPSTREAM: kube-openapi pkg/validation/strfmt/time.go (IsDateTime).
pub(super) fn is_date_time(text: &str) -> bool {
    let mut parts = text.split(['t', 'T']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date.as_bytes()) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let [h, h2, b':', m, m2, b':', s, s2, ..] = text.as_bytes() else {
        return false;
    };
    let digits = [h, h2, m, m2, s, s2].into_iter().all(u8::is_ascii_digit);
    if !digits || (*h, *h2) > (b'2', b'3') || *m > b'5' || *s > b'5' {
        return false;
    }
    let rest = text.get(8..).unwrap_or("");
    if is_zone(rest) {
        return true;
    }
    // Any character may precede the fraction.
    let mut after = rest.chars();
    if matches!(after.next(), None | Some('\n')) {
        return false;
    }
    let fraction = after.as_str();
    let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    zone.len() < fraction.len() && is_zone(zone)
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        [b'z' | b'Z'] => true,
        [b'+' | b'-', h, h2, b':', m, m2] => [h, h2, m, m2].into_iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn is_label(text: &[u8]) -> bool {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.first().is_some_and(alphanumeric)
        && text.last().is_some_and(alphanumeric)
        && text.iter().all(|b| alphanumeric(b) || *b == b'-')
}

fn is_subdomain(text: &[u8]) -> bool {
    text.split(|b| *b == b'.').all(is_label)
}

fn is_name(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphanumeric)
        && text.last().is_some_and(u8::is_ascii_alphanumeric)
        && text
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn too_long(text: &[u8], limit: usize, unit: &str) -> Vec<String> {
    if text.len() > limit {
        vec![format!("must be no more than {limit} {unit}")]
    } else {
        Vec::new()
    }
}

fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    let examples = examples.join(" or ");
    format!("{message} (e.g. {examples}regex used for validation is '{regex}')")
}
