//! Roles and ClusterRoles.

use crate::at::At;
use crate::checks::invalid_json;
use crate::checks::wire;
use crate::kind::{Context, Kind, Resource, ServerComponent, Written, cluster, namespaced};
use crate::object::{Object, is_empty, list};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::label_selector::{ExpressionValues, LabelSelector};
use lockgate_api::meta::validation::NameRules;

use super::NAMES;
use serde_json::Value;

pub(super) const ROLES: Resource = namespaced(
    "rbac.authorization.k8s.io",
    "v1",
    "roles",
    "role",
    "Role",
    "RoleList",
    &Role,
)
.create_on_update();

pub(super) const CLUSTER_ROLES: Resource = cluster(
    "rbac.authorization.k8s.io",
    "v1",
    "clusterroles",
    "clusterrole",
    "ClusterRole",
    "ClusterRoleList",
    &ClusterRole,
)
.create_on_update();

/// The kind `Role`.
#[derive(Debug)]
pub(super) struct Role;

impl Kind for Role {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Roles)
    }

    fn name_rules(&self) -> NameRules {
        NAMES
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        rules(errors, new.object(), true);
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata(new);
        self.validate(&mut errors, new, None, context);
        errors.extend(self.validate_metadata_update(new, old));
        errors
    }
}

/// The kind `ClusterRole`.
#[derive(Debug)]
pub(super) struct ClusterRole;

impl Kind for ClusterRole {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Roles)
    }

    fn name_rules(&self) -> NameRules {
        NAMES
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        rules(errors, new.object(), false);
        aggregation(errors, new.object(), old.map(Written::object));
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata(new);
        self.validate(&mut errors, new, Some(old), context);
        errors.extend(self.validate_metadata_update(new, old));
        errors
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
}

fn aggregation(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "aggregationRule");
    if !at.is_set() {
        return;
    }
    let was_invalid = old.is_some_and(|old| {
        let mut found = FieldErrors::new();
        for selector in At::root(old, "aggregationRule")
            .at("clusterRoleSelectors")
            .items()
        {
            selector.label_selector(&mut found);
        }
        !found.is_empty()
    });
    let values = if was_invalid {
        ExpressionValues::Unchecked
    } else {
        ExpressionValues::Checked
    };
    let selectors = at.at("clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        selectors.required_because(errors, detail);
    }
    for selector in selectors.items() {
        selector.label_selector_with(errors, values);
        if let Some(value) = selector.value
            && wire::<LabelSelector>(value).compile().is_err()
        {
            let detail = "invalid label selector.";
            selector.invalid_as(errors, Shown::Rendered("null"), detail);
        }
    }
}
