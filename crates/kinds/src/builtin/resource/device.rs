//! Validation shared by claims, classes and slices: names, sets, configurations, taints.
//!
//! UPSTREAM: pkg/apis/resource/validation/validation.go

use std::collections::BTreeSet;

use serde_json::Value;

use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::{check_label_value, check_qualified_name, check_subdomain};
use lockgate_go::json::to_string;

use super::selector::selector;
use crate::at::At;
use crate::builtin::core::volume_source::driver_name;
use crate::checks::{check_label, check_lower_subdomain};

pub(super) const SELECTORS_MAX: usize = 32;
pub(super) const CONFIGURATIONS_MAX: usize = 32;
pub(super) const TAINT_EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const ID_MAX: usize = 32;
const DOMAIN_MAX: usize = 63;
const PARAMETERS_MAX: usize = 10 * 1024;
const POOL_NAME_MAX: usize = 253;
const BINDING_CONDITIONS_MAX: usize = 4;

/// Validates a list with at most `most` items.
pub(super) fn items<'v>(
    errors: &mut FieldErrors,
    at: &At<'_, 'v>,
    most: usize,
    mut check: impl FnMut(&mut FieldErrors, &At<'_, 'v>),
) {
    if at.len() > most {
        return at.too_many(errors, most);
    }
    for item in at.items() {
        check(errors, &item);
    }
}

/// Validates a list of at most `most` items with unique keys.
pub(super) fn set<'v>(
    errors: &mut FieldErrors,
    at: &At<'_, 'v>,
    most: usize,
    check: impl FnMut(&mut FieldErrors, &At<'_, 'v>),
    key: impl Fn(&At<'_, 'v>) -> String,
) {
    // Composite keys are printed as objects.
    let shown = |key: &str| match key.starts_with('{') {
        true => key.to_owned(),
        false => Shown::Text(key).to_string(),
    };
    items(errors, at, most, check);
    if at.len() > most {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in at.items() {
        let key = key(&item);
        if seen.contains(&key) {
            item.duplicate_as(errors, Shown::Rendered(&shown(&key)));
        } else {
            seen.insert(key);
        }
    }
}

/// The key of a set of named objects.
pub(super) fn name_of(at: &At<'_, '_>) -> String {
    at.at("name").text().to_owned()
}

/// The key of a set of strings.
pub(super) fn text_of(at: &At<'_, '_>) -> String {
    at.text().to_owned()
}

/// Validates the selectors of a class or request.
pub(super) fn selectors(errors: &mut FieldErrors, at: &At<'_, '_>) {
    items(errors, at, SELECTORS_MAX, selector);
}

/// Validates the opaque parameters of a driver.
pub(super) fn configuration(errors: &mut FieldErrors, at: &At<'_, '_>, is_stored: bool) {
    let opaque = at.at("opaque");
    if !opaque.is_set() {
        return opaque.required(errors);
    }
    driver_name(errors, &opaque.at("driver"));
    raw_object(errors, &opaque.at("parameters"), is_stored, PARAMETERS_MAX);
}

/// Validates a JSON object of limited length.
pub(super) fn raw_object(errors: &mut FieldErrors, at: &At<'_, '_>, is_stored: bool, most: usize) {
    let Some(value) = at.value else {
        return at.required(errors);
    };
    if !is_stored && to_string(value).len() > most {
        return at.too_long(errors, most);
    }
    if !value.is_object() {
        let shown = Shown::Text("<value omitted>");
        at.invalid_as(errors, shown, "must be a valid JSON object");
    }
}

/// Validates a pool name: subdomains separated by slashes.
pub(super) fn pool_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_empty() {
        return at.required(errors);
    }
    if at.text().len() > POOL_NAME_MAX {
        at.too_long(errors, POOL_NAME_MAX);
    }
    for part in at.text().split('/') {
        for message in check_subdomain(part) {
            at.invalid_as(errors, Shown::Text(part), message);
        }
    }
}

fn identifier(errors: &mut FieldErrors, at: &At<'_, '_>, id: &str) {
    if id.len() > ID_MAX {
        at.too_long(errors, ID_MAX);
    }
    let start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let good = id.bytes().next().is_some_and(start)
        && id.bytes().all(|byte| start(byte) || byte.is_ascii_digit());
    if !good {
        at.invalid_as(
            errors,
            Shown::Text(id),
            "a valid C identifier must start with alphabetic character or '_', followed by a string \
             of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex \
             used for validation is '[A-Za-z_][A-Za-z0-9_]*')",
        );
    }
}

/// Validates the name of an attribute or capacity, with or without domain, and reports errors at `at`.
pub(super) fn qualified_name(errors: &mut FieldErrors, at: &At<'_, '_>, name: &str) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [id] => identifier(errors, at, id),
        [domain, id] => {
            if domain.is_empty() {
                at.invalid_as(errors, Shown::Text(""), "the domain must not be empty");
            } else {
                if domain.len() > DOMAIN_MAX {
                    at.too_long(errors, DOMAIN_MAX);
                }
                for message in check_lower_subdomain(domain) {
                    at.invalid_as(errors, Shown::Text(domain), message);
                }
            }
            if id.is_empty() {
                at.invalid_as(errors, Shown::Text(""), "the name must not be empty");
            } else {
                identifier(errors, at, id);
            }
        }
        // Upstream accepts names with more slashes.
        _ => {}
    }
}

/// Validates the fully qualified name of an attribute.
pub(super) fn full_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    qualified_name(errors, at, at.text());
    if !at.text().contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        at.invalid(errors, detail);
    }
}

/// Validates the name of a claim's request, or of a request and subrequest.
pub(super) fn request_reference(errors: &mut FieldErrors, at: &At<'_, '_>, requests: &At<'_, '_>) {
    const DETAIL: &str = "must be the name of a request in the claim or the name of a request and a \
                          subrequest separated by '/'";
    let segments: Vec<&str> = at.text().split('/').collect();
    if segments.len() > 2 {
        return at.invalid(errors, DETAIL);
    }
    for segment in &segments {
        for message in check_label(segment) {
            at.invalid_as(errors, Shown::Text(segment), message);
        }
    }
    // Of requests with the same name, the last one counts.
    let named = |list: &[Value], name: &str| {
        let found = list
            .iter()
            .rfind(|item| item.get("name").and_then(Value::as_str).unwrap_or_default() == name);
        found.cloned()
    };
    let is_known = match segments[..] {
        [request] => named(requests.list(), request).is_some(),
        [request, alternative] => named(requests.list(), request).is_some_and(|request| {
            let alternatives = request.get("firstAvailable").and_then(Value::as_array);
            alternatives.is_some_and(|list| named(list, alternative).is_some())
        }),
        _ => false,
    };
    if !is_known {
        at.invalid(errors, DETAIL);
    }
}

/// Validates a device taint.
pub(super) fn taint(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.at("key").check(errors, check_qualified_name);
    at.at("value").check_set(errors, check_label_value);
    at.at("effect").one_of(errors, &TAINT_EFFECTS);
}

/// Validates a device toleration.
pub(super) fn toleration(errors: &mut FieldErrors, at: &At<'_, '_>) {
    at.at("key").check_set(errors, check_qualified_name);
    let (operator, value) = (at.at("operator"), at.at("value"));
    match operator.text() {
        "Exists" => {
            if !value.is_empty() {
                value.invalid(errors, "must be empty for operator `Exists`");
            }
        }
        "Equal" => value.check(errors, check_label_value),
        "" => operator.required(errors),
        _ => operator.not_supported(errors, &["Equal", "Exists"]),
    }
    if !at.at("effect").is_empty() {
        at.at("effect").known(errors, &TAINT_EFFECTS);
    }
}

/// Validates binding conditions and binding failure conditions.
pub(super) fn binding_conditions(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let (wanted, failures) = (
        at.at("bindingConditions"),
        at.at("bindingFailureConditions"),
    );
    for conditions in [&wanted, &failures] {
        items(
            errors,
            conditions,
            BINDING_CONDITIONS_MAX,
            |errors, name| {
                name.check(errors, check_qualified_name);
            },
        );
    }
    let mut seen = BTreeSet::new();
    for condition in wanted.items() {
        if !seen.insert(condition.text()) {
            condition.duplicate(errors);
        }
    }
    let mut failed = BTreeSet::new();
    for condition in failures.items() {
        if !failed.insert(condition.text()) {
            condition.duplicate(errors);
        }
        if seen.contains(condition.text()) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            condition.invalid(errors, detail);
        }
    }
    if wanted.is_empty() && !failures.is_empty() {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        wanted.invalid_or_null(errors, detail);
    }
    if failures.is_empty() && !wanted.is_empty() {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        failures.invalid_or_null(errors, detail);
    }
}
