//! Roles and bindings.

use serde_json::Value;

use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_path_segment, check_subdomain};
use lockgate_go::json::to_string;

use crate::defaults::object::{Object, get, is_empty, list, text};

use super::common::{invalid_each, invalid_json, required};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn create(errors: &mut FieldErrors, object: &Object, plural: &str) {
    match plural {
        "roles" => rules(errors, object, true),
        "clusterroles" => rules(errors, object, false),
        "rolebindings" => binding(errors, object, true),
        "clusterrolebindings" => binding(errors, object, false),
        _ => {}
    }
}

/// The role a binding grants may not change.
pub(super) fn update(errors: &mut FieldErrors, object: &Object, old: &Object, plural: &str) {
    if plural.ends_with("bindings") && object.get("roleRef") != old.get("roleRef") {
        let role = get(object, "roleRef").cloned().unwrap_or_default();
        // Upstream prints its internal form, whose members have no JSON names.
        let shown = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            to_string(text(&role, "apiGroup")),
            to_string(text(&role, "kind")),
            to_string(text(&role, "name"))
        );
        errors.push(FieldError::invalid(
            &Path::root("roleRef"),
            Shown::Rendered(&shown),
            "cannot change roleRef",
        ));
    }
}

fn rules(errors: &mut FieldErrors, object: &Object, namespaced: bool) {
    let path = Path::root("rules");
    for (index, rule) in list(object, "rules")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        let path = path.index(index);
        if is_empty(rule, "verbs") {
            errors.push(FieldError::required(
                &path.child("verbs"),
                "verbs must contain at least one value",
            ));
        }
        if !is_empty(rule, "nonResourceURLs") {
            let urls = path.child("nonResourceURLs");
            if namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                invalid_json(errors, &urls, rule.get("nonResourceURLs"), detail);
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|key| !is_empty(rule, key))
            {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                invalid_json(errors, &urls, rule.get("nonResourceURLs"), detail);
            }
            continue;
        }
        for (key, detail) in [
            (
                "apiGroups",
                "resource rules must supply at least one api group",
            ),
            (
                "resources",
                "resource rules must supply at least one resource",
            ),
        ] {
            if is_empty(rule, key) {
                errors.push(FieldError::required(&path.child(key), detail));
            }
        }
    }
    if let Some(aggregation) = get(object, "aggregationRule")
        && is_empty(aggregation, "clusterRoleSelectors")
    {
        let path = Path::root("aggregationRule");
        errors.push(FieldError::required(
            &path.child("clusterRoleSelectors"),
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
}

fn binding(errors: &mut FieldErrors, object: &Object, namespaced: bool) {
    let empty = Object::new();
    let role = get(object, "roleRef").unwrap_or(&empty);
    let path = Path::root("roleRef");
    if text(role, "apiGroup") != GROUP {
        let shown = Shown::Text(text(role, "apiGroup"));
        errors.push(FieldError::not_supported(
            &path.child("apiGroup"),
            shown,
            &[GROUP],
        ));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&text(role, "kind")) {
        let shown = Shown::Text(text(role, "kind"));
        errors.push(FieldError::not_supported(&path.child("kind"), shown, kinds));
    }
    let name = text(role, "name");
    if name.is_empty() {
        required(errors, &path.child("name"));
    } else {
        invalid_each(errors, &path.child("name"), name, check_path_segment(name));
    }
    let path = Path::root("subjects");
    for (index, subject) in list(object, "subjects")
        .iter()
        .filter_map(Value::as_object)
        .enumerate()
    {
        subject_of(errors, subject, namespaced, &path.index(index));
    }
}

fn subject_of(errors: &mut FieldErrors, subject: &Object, namespaced: bool, path: &Path<'_>) {
    let name = text(subject, "name");
    if name.is_empty() {
        required(errors, &path.child("name"));
    }
    let group = text(subject, "apiGroup");
    let group_must_be = |errors: &mut FieldErrors, want: &str| {
        if group != want {
            let path = path.child("apiGroup");
            errors.push(FieldError::not_supported(
                &path,
                Shown::Text(group),
                &[want],
            ));
        }
    };
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                invalid_each(errors, &path.child("name"), name, check_subdomain(name));
            }
            group_must_be(errors, "");
            if !namespaced && text(subject, "namespace").is_empty() {
                required(errors, &path.child("namespace"));
            }
        }
        "User" | "Group" => group_must_be(errors, GROUP),
        kind => errors.push(FieldError::not_supported(
            &path.child("kind"),
            Shown::Text(kind),
            &["ServiceAccount", "User", "Group"],
        )),
    }
}
