//! RoleBindings and ClusterRoleBindings.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{invalid_each, required};
use crate::kind::{Context, Kind, Resource, ServerComponent, Written, cluster, namespaced};
use crate::object::{Object, each, fill_text, get, get_mut, list, text, with};
use crate::typed::{internal_form, member_type};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_path_segment, check_subdomain};
use lockgate_api::meta::validation::NameRules;

use super::NAMES;
use serde_json::Value;

pub(super) const ROLE_BINDINGS: Resource = namespaced(
    "rbac.authorization.k8s.io",
    "v1",
    "rolebindings",
    "rolebinding",
    "RoleBinding",
    "RoleBindingList",
    &Binding { namespaced: true },
)
.create_on_update();

pub(super) const CLUSTER_ROLE_BINDINGS: Resource = cluster(
    "rbac.authorization.k8s.io",
    "v1",
    "clusterrolebindings",
    "clusterrolebinding",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    &Binding { namespaced: false },
)
.create_on_update();

/// The kinds `RoleBinding` and `ClusterRoleBinding`.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) namespaced: bool,
}

impl Kind for Binding {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::RoleBindings)
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
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
        binding(errors, new.object(), self.namespaced);
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
        same_role(&mut errors, new.object(), old.object());
        errors
    }

    fn columns(&self) -> &'static str {
        "Name|Role|Age|+Users|+Groups|+ServiceAccounts"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        binding_row(object, common)
    }
}

const GROUP: &str = "rbac.authorization.k8s.io";

fn defaults(object: &mut Object) {
    if let Some(role) = get_mut(object, "roleRef") {
        fill_text(role, "apiGroup", GROUP);
    }
    each(object, "subjects", |subject| {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill_text(subject, "apiGroup", GROUP);
        }
    });
}

/// The `roleRef` is immutable.
fn same_role(errors: &mut FieldErrors, object: &Object, old: &Object) {
    if object.get("roleRef") != old.get("roleRef") {
        let ty = member_type(GROUP, "RoleBinding", &["roleRef"]);
        let shown = ty.map_or_else(String::new, |ty| internal_form(ty, object.get("roleRef")));
        errors.push(FieldError::invalid(
            &Path::root("roleRef"),
            Shown::Rendered(&shown),
            "cannot change roleRef",
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

fn binding_row(object: &Value, common: &Common<'_>) -> Row {
    let subjects = |kind: &str| {
        let names: Vec<String> = read::items(object, "/subjects")
            .iter()
            .filter(|subject| read::text(subject, "/kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!(
                        "{}/{}",
                        read::text(subject, "/namespace"),
                        read::text(subject, "/name")
                    )
                }
                _ => read::text(subject, "/name").to_owned(),
            })
            .collect();
        cell(names.join(", "))
    };
    let role = format!(
        "{}/{}",
        read::text(object, "/roleRef/kind"),
        read::text(object, "/roleRef/name")
    );
    Row::of(vec![
        cell(common.name),
        cell(role),
        cell(common.age.as_str()),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ])
}
