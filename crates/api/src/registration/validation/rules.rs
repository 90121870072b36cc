//! Validation of rules.

use std::collections::HashSet;

use crate::field::{FieldError, FieldErrors, Path, Shown};
use crate::registration::hub::Rule;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

pub(super) fn validate(errors: &mut FieldErrors, rule: &Rule, path: &Path<'_>) {
    let operations = rule.operations.as_deref().unwrap_or_default();
    let operations_path = path.child("operations");
    list(errors, operations, &operations_path, "operations");
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(&operation.as_str()) {
            let path = operations_path.index(index);
            errors.push(FieldError::not_supported(
                &path,
                Shown::Named(operation),
                &OPERATIONS,
            ));
        }
    }

    // The core group is the empty string, so groups may be empty.
    let groups = rule.api_groups.as_deref().unwrap_or_default();
    list(errors, groups, &path.child("apiGroups"), "API groups");

    let versions = rule.api_versions.as_deref().unwrap_or_default();
    let versions_path = path.child("apiVersions");
    list(errors, versions, &versions_path, "API versions");
    for (index, _) in versions
        .iter()
        .enumerate()
        .filter(|(_, version)| version.is_empty())
    {
        errors.push(FieldError::required(&versions_path.index(index), ""));
    }

    let resources = rule.resources.as_deref().unwrap_or_default();
    validate_resources(errors, resources, &path.child("resources"));

    if let Some(scope) = rule.scope.as_deref()
        && !SCOPES.contains(&scope)
    {
        errors.push(FieldError::not_supported(
            &path.child("scope"),
            Shown::Named(scope),
            &SCOPES,
        ));
    }
}

/// A list must not be empty, and `*` must be the only element.
fn list(errors: &mut FieldErrors, items: &[String], path: &Path<'_>, what: &str) {
    if items.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if items.len() > 1 && items.iter().any(|item| item == "*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(path, Shown::List(items), detail));
    }
}

/// Wildcards must not overlap with elements that they cover.
///
/// The validation depends on the order: a wildcard is only compared with subsequent elements, and
/// the rule for `*` only considers the last element without a subresource. Stored objects depend on
/// it.
fn validate_resources(errors: &mut FieldErrors, resources: &[String], path: &Path<'_>) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let mut with_all_subresources = HashSet::new();
    let mut subresources_of_all = HashSet::new();
    let mut last_plain: Option<&str> = None;
    for (index, element) in resources.iter().enumerate() {
        let path = path.index(index);
        if element.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let Some((resource, subresource)) = element.split_once('/') else {
            last_plain = Some(element);
            continue;
        };
        let mut overlaps = |wildcard: String| {
            let detail = format!("if '{wildcard}' is present, must not specify {element}");
            errors.push(FieldError::invalid(&path, Shown::Text(element), detail));
        };
        if with_all_subresources.contains(resource) {
            overlaps(format!("{resource}/*"));
        }
        if subresources_of_all.contains(subresource) {
            overlaps(format!("*/{subresource}"));
        }
        if subresource == "*" {
            with_all_subresources.insert(resource);
        }
        if resource == "*" {
            subresources_of_all.insert(subresource);
        }
    }
    let has = |wildcard: &str| resources.iter().any(|element| element == wildcard);
    if resources.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, Shown::List(resources), detail));
    }
    if has("*") && last_plain.is_some_and(|plain| plain != "*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, Shown::List(resources), detail));
    }
}
