//! How names are checked, kind by kind.

use lockgate_api::meta::names::{
    LABEL_MAX, check_path_segment, check_path_segment_prefix, is_subdomain,
};
use lockgate_api::meta::validation::{NameRules, SUBDOMAIN_NAMES};

use crate::resource::Resource;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// The rules for names of a resource's objects.
#[must_use]
pub fn name_rules(resource: &Resource) -> NameRules {
    match (resource.group, resource.plural) {
        ("", "namespaces" | "services") => NameRules {
            name: check_label,
            prefix: check_label_prefix,
        },
        ("apps", "statefulsets") => NameRules {
            name: check_label,
            prefix: check_label_prefix,
        },
        // Budgets are checked no further than any object.
        ("rbac.authorization.k8s.io", _) | ("policy", "poddisruptionbudgets") => NameRules {
            name: check_path_segment,
            prefix: check_path_segment_prefix,
        },
        _ => SUBDOMAIN_NAMES,
    }
}

/// Checks a DNS-1123 label.
pub(super) fn check_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let good = value.bytes().all(|byte| plain(byte) || byte == b'-')
        && value.bytes().next().is_some_and(plain)
        && value.bytes().last().is_some_and(plain);
    if !good {
        // A subdomain that is no label has dots.
        let message = if is_subdomain(value) {
            "must not contain dots"
        } else {
            LABEL
        };
        messages.push(message.to_owned());
    }
    messages
}

/// Checks the beginning of a generated label: a trailing `-` is fine, since more follows.
fn check_label_prefix(value: &str) -> Vec<String> {
    // UPSTREAM: apimachinery pkg/api/validation/generic.go (maskTrailingDash) puts an `a` in place
    // of the last two bytes.
    match value.as_bytes() {
        [stem @ .., _, b'-'] => check_label(&format!("{}a", String::from_utf8_lossy(stem))),
        _ => check_label(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::find;

    #[test]
    fn kinds_have_their_own_rules() {
        let check = |group: &str, plural: &str, name: &str| {
            (name_rules(find(group, "v1", plural).unwrap()).name)(name)
        };
        assert!(check("", "configmaps", "a.b").is_empty());
        assert_eq!(check("", "namespaces", "a.b"), ["must not contain dots"]);
        assert_eq!(check("", "namespaces", "A"), [LABEL]);
        assert!(check("", "services", "1a").is_empty());
        assert!(check("rbac.authorization.k8s.io", "roles", "system:Node").is_empty());
        assert_eq!(
            check("rbac.authorization.k8s.io", "roles", "a/b"),
            ["may not contain '/'"]
        );
        assert!(check_label_prefix("a-").is_empty());
        assert_eq!(
            check_label(&"a".repeat(64)),
            ["must be no more than 63 characters"]
        );
    }
}
