//! Checks that many kinds share.

use std::collections::BTreeMap;

use serde_json::Value;

use lockgate_api::decode::{WireStruct, decode_value};
use lockgate_api::document::json::parse;
use lockgate_api::field::{ErrorType, FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::label_selector::{ExpressionValues, LabelSelector};
use lockgate_api::meta::names::{LABEL_MAX, SUBDOMAIN_MAX, is_subdomain};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::validation::{NameRules, PATH_SEGMENT_NAMES, validate_metadata};
use lockgate_go::json::to_string;

use crate::object::{Object, get, number, open, text};
use crate::tree;

/// Reads a part of an object as a wire type; what does not fit is left out.
pub(crate) fn wire<T: WireStruct + Default>(value: &Value) -> T {
    parse(to_string(value).as_bytes())
        .ok()
        .and_then(|document| decode_value(document.root()).ok())
        .map(|decoded| decoded.value)
        .unwrap_or_default()
}

/// An error per message.
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

/// As [`invalid_json`] for a label selector, whose members Go writes in its own order.
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

/// The value names something that is not there.
pub(crate) fn not_found(errors: &mut FieldErrors, path: &Path<'_>, value: &str) {
    let mut error = FieldError::invalid(path, Shown::Text(value), "");
    error.error_type = ErrorType::NotFound;
    errors.push(error);
}

/// A member of a closed set that must be there.
pub(crate) fn one_of(
    errors: &mut FieldErrors,
    object: &Object,
    key: &str,
    path: &Path<'_>,
    set: &[&str],
) {
    let value = text(object, key);
    let path = path.child(key);
    if value.is_empty() {
        required(errors, &path);
    } else if !set.contains(&value) {
        errors.push(FieldError::not_supported(&path, Shown::Named(value), set));
    }
}

/// A number that must not be negative.
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

pub(crate) fn port_number(errors: &mut FieldErrors, value: i64, path: &Path<'_>) {
    if !(1..=65535).contains(&value) {
        errors.push(FieldError::invalid(
            path,
            Shown::Integer(value),
            "must be between 1 and 65535, inclusive",
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

/// Keys of the data of config maps and secrets.
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

/// Labels and annotations of a template, which has no name to check.
pub(crate) fn template_metadata(errors: &mut FieldErrors, template: &Object, path: &Path<'_>) {
    let source: ObjectMeta = template.get("metadata").map(wire).unwrap_or_default();
    let checked = ObjectMeta {
        name: String::from("x"),
        labels: source.labels,
        annotations: source.annotations,
        ..ObjectMeta::default()
    };
    errors.extend(validate_metadata(&checked, PATH_SEGMENT_NAMES, path));
}

/// A label selector, checked; none if it cannot be used.
pub(crate) fn selector(
    errors: &mut FieldErrors,
    spec: &Object,
    path: &Path<'_>,
) -> Option<lockgate_api::meta::selector::Selector> {
    let value = spec.get("selector").filter(|value| !value.is_null())?;
    let selector: LabelSelector = wire(value);
    errors.extend(selector.validate(ExpressionValues::Checked, &path.child("selector")));
    selector.compile().ok()
}

/// The labels of the template in a spec.
pub(crate) fn template_labels(spec: &Object) -> (Option<&Value>, BTreeMap<String, String>) {
    let labels = get(spec, "template")
        .and_then(|template| get(template, "metadata"))
        .and_then(|metadata| metadata.get("labels"));
    let map = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    (labels, map)
}

/// A member that may not change, by whatever path of objects.
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

/// `spec.selector` may not change.
pub(crate) fn immutable_selector(errors: &mut FieldErrors, object: &Object, old: &Object) {
    let selector = |object| {
        let selector = get(object, "spec").and_then(|spec: &Object| spec.get("selector"));
        selector.unwrap_or(&Value::Null)
    };
    let (new, old) = (selector(object), selector(old));
    if !tree::equal(new, old) {
        let spec = Path::root("spec");
        let detail = "field is immutable";
        invalid_selector(errors, &spec.child("selector"), Some(new), detail);
    }
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// The rules for names that are DNS labels.
pub(crate) const LABEL_NAMES: NameRules = NameRules {
    name: check_label,
    prefix: check_label_prefix,
};

/// Checks a DNS-1123 label.
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

/// A finalizer is one that is known, or belongs to a domain.
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

/// Replaces a member by that of another object, absence included.
pub(crate) fn take_over(object: &mut Object, from: &Object, key: &str) {
    match from.get(key) {
        Some(value) => {
            object.insert(key.to_owned(), value.clone());
        }
        None => {
            object.remove(key);
        }
    }
}

/// Metadata that a status update cannot change.
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
            take_over(metadata, old, key);
        }
    }
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
