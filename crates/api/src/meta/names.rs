//! Name validation: DNS labels and subdomains, qualified names, label values, with upstream's error
//! texts.
//!
//! Each function returns the errors of one value; an empty list means that it is valid.
//!
//! UPSTREAM: k8s.io/apimachinery pkg/util/validation/validation.go, pkg/api/validate/content.

/// The maximum length of a DNS-1123 subdomain, in bytes.
pub const SUBDOMAIN_MAX: usize = 253;
/// The maximum length of a DNS-1035 label, in bytes.
pub const LABEL_MAX: usize = 63;
/// The maximum length of a label value and of the name part of a qualified name, in bytes.
pub const QUALIFIED_NAME_MAX: usize = 63;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
    '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
    'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
    and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
    used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Validates a DNS-1123 subdomain.
#[must_use]
pub fn check_subdomain(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        messages.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if !is_subdomain(value) {
        messages.push(SUBDOMAIN.to_owned());
    }
    messages
}

/// Validates the prefix of a generated name: a trailing `-` is allowed, since a suffix follows.
#[must_use]
pub fn check_subdomain_prefix(value: &str) -> Vec<String> {
    // UPSTREAM: apimachinery pkg/api/validation/generic.go (maskTrailingDash) replaces the last
    // *two* bytes by an `a`, so the byte before the dash is not validated.
    match value.as_bytes() {
        [stem @ .., _, b'-'] => check_subdomain(&format!("{}a", String::from_utf8_lossy(stem))),
        _ => check_subdomain(value),
    }
}

/// Validates a DNS-1123 label.
#[must_use]
pub fn check_dns1123_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    if !is_lower_label(value) {
        messages.push(LABEL_1123.to_owned());
    }
    messages
}

/// Validates a DNS-1035 label.
#[must_use]
pub fn check_dns1035_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    if !(value.starts_with(|c: char| c.is_ascii_lowercase()) && is_lower_label(value)) {
        messages.push(LABEL_1035.to_owned());
    }
    messages
}

/// Validates a qualified name: `name` or `prefix/name`. Label keys have this form.
#[must_use]
pub fn check_qualified_name(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                messages.push(String::from("prefix part must be non-empty"));
            } else {
                if prefix.len() > SUBDOMAIN_MAX {
                    messages.push(format!(
                        "prefix part must be no more than {SUBDOMAIN_MAX} bytes"
                    ));
                }
                if !is_subdomain(prefix) {
                    messages.push(format!("prefix part {SUBDOMAIN}"));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        messages.push(String::from("name part must be non-empty"));
    } else if name.len() > QUALIFIED_NAME_MAX {
        messages.push(format!(
            "name part must be no more than {QUALIFIED_NAME_MAX} bytes"
        ));
    }
    if !is_name_part(name) {
        messages.push(format!("name part {NAME_PART}"));
    }
    messages
}

/// Validates a label value, which may be empty.
#[must_use]
pub fn check_label_value(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > QUALIFIED_NAME_MAX {
        messages.push(format!("must be no more than {QUALIFIED_NAME_MAX} bytes"));
    }
    if !value.is_empty() && !is_name_part(value) {
        messages.push(LABEL_VALUE.to_owned());
    }
    messages
}

/// Validates a name as a path segment of a URL.
#[must_use]
pub fn check_path_segment(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    check_path_segment_prefix(value)
}

/// Validates the prefix of a generated name as a path segment of a URL.
#[must_use]
pub fn check_path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"]
        .into_iter()
        .filter(|illegal| value.contains(illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// Returns true for lower-case labels separated by dots.
#[must_use]
pub fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_lower_label)
}

/// Returns true for lower-case alphanumerics with inner dashes.
fn is_lower_label(value: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_shape(value, edge, |byte| edge(byte) || byte == b'-')
}

fn is_name_part(value: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_alphanumeric();
    has_shape(value, edge, |byte| {
        edge(byte) || matches!(byte, b'-' | b'_' | b'.')
    })
}

/// Returns true if the first and last bytes are `edge` and all are `inner`; false for an empty
/// string.
fn has_shape(value: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => edge(first) && edge(last) && bytes.iter().all(|&b| inner(b)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_good_names() {
        for good in ["a", "a.b", "a-b.c1", "0", &"a".repeat(253)] {
            assert_eq!(check_subdomain(good), [""; 0], "{good}");
        }
        for good in ["a", "a/b", "example.com/My_Name.x", &"a".repeat(63)] {
            assert_eq!(check_qualified_name(good), [""; 0], "{good}");
        }
        for good in ["", "A", "my_value", "1.2"] {
            assert_eq!(check_label_value(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn rejects_bad_names_with_each_message() {
        for bad in ["", "A", "-a", "a-", "a..b", ".a", "a.", "a_b", "é"] {
            assert_eq!(check_subdomain(bad), [SUBDOMAIN], "{bad}");
        }
        assert_eq!(
            check_subdomain(&"a".repeat(254)),
            ["must be no more than 253 characters"]
        );
        assert_eq!(check_dns1035_label("0v"), [LABEL_1035]);
        assert_eq!(
            check_qualified_name("/x"),
            ["prefix part must be non-empty"]
        );
        let empty = check_qualified_name("");
        assert_eq!(empty[0], "name part must be non-empty");
        assert_eq!(empty[1], format!("name part {NAME_PART}"));
        assert_eq!(check_qualified_name("a/b/c").len(), 1);
        assert_eq!(
            check_label_value(&"a".repeat(64)),
            ["must be no more than 63 bytes"]
        );
        assert_eq!(check_path_segment(".."), ["may not be '..'"]);
        assert_eq!(
            check_path_segment("a/%"),
            ["may not contain '/'", "may not contain '%'"]
        );
    }

    #[test]
    fn masks_the_trailing_dash_of_a_prefix() {
        assert_eq!(check_subdomain_prefix("foo-"), [""; 0]);
        assert_eq!(check_subdomain_prefix("fooX-"), [""; 0]);
        assert_eq!(check_subdomain_prefix("Foo-"), [SUBDOMAIN]);
        assert_eq!(check_subdomain_prefix("-"), [SUBDOMAIN]);
    }
}
