//! RBAC: Roles and bindings, evaluated from their API objects.
//!
//! UPSTREAM: kubernetes plugin/pkg/auth/authorizer/rbac/rbac.go

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{PoisonError, RwLock};

use lockgate_go::quote::quote;
use serde_json::{Value, json};

use super::{AccessObject, AccessRequest, Authorizer, Decision, User};

/// The group with unrestricted access.
pub const MASTERS: &str = "system:masters";

/// An RBAC authorizer. Members of `system:masters` have unrestricted access.
#[derive(Default)]
pub struct Rbac(RwLock<State>);

#[derive(Default)]
struct State {
    /// By namespace and name; ClusterRoles have an empty namespace.
    roles: HashMap<(String, String), Vec<Rule>>,
    /// By namespace, then by name; ClusterRoleBindings have an empty namespace.
    bindings: HashMap<String, BTreeMap<String, Binding>>,
}

/// A rule of a role.
#[derive(Debug, Clone)]
pub struct Rule {
    /// `verbs`
    pub verbs: Vec<String>,
    /// `apiGroups`
    pub groups: Vec<String>,
    /// `resources`
    pub resources: Vec<String>,
    /// `resourceNames`; empty means all.
    pub names: Vec<String>,
    /// `nonResourceURLs`
    pub paths: Vec<String>,
}

#[derive(Debug)]
struct Binding {
    subjects: Vec<Subject>,
    /// The namespace and name of the role.
    role: (String, String),
}

#[derive(Debug, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

impl Rbac {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds or replaces a Role or a ClusterRole.
    pub fn set_role(&self, namespace: &str, name: &str, role: &Value) {
        let rules = objects(role, "rules").map(Rule::read).collect();
        self.change(|state| {
            state
                .roles
                .insert((namespace.to_owned(), name.to_owned()), rules);
        });
    }

    /// Removes a Role or a ClusterRole.
    pub fn remove_role(&self, namespace: &str, name: &str) {
        self.change(|state| {
            state.roles.remove(&(namespace.to_owned(), name.to_owned()));
        });
    }

    /// Adds or replaces a binding.
    pub fn set_binding(&self, namespace: &str, name: &str, binding: &Value) {
        let reference = binding.get("roleRef").unwrap_or(&Value::Null);
        let in_cluster = text(reference, "kind") == "ClusterRole";
        let role_namespace = if in_cluster { "" } else { namespace };
        let compiled = Binding {
            subjects: objects(binding, "subjects")
                .filter_map(|subject| Subject::read(subject, namespace))
                .collect(),
            role: (
                role_namespace.to_owned(),
                text(reference, "name").to_owned(),
            ),
        };
        self.change(|state| {
            state
                .bindings
                .entry(namespace.to_owned())
                .or_default()
                .insert(name.to_owned(), compiled);
        });
    }

    /// Removes a binding.
    pub fn remove_binding(&self, namespace: &str, name: &str) {
        self.change(|state| {
            if let Some(bindings) = state.bindings.get_mut(namespace) {
                bindings.remove(name);
                if bindings.is_empty() {
                    state.bindings.remove(namespace);
                }
            }
        });
    }
}

/// The rules that apply to a user in a namespace.
#[derive(Debug, Default)]
pub struct Rules {
    /// In the order of bindings, ClusterRoleBindings first.
    pub rules: Vec<Rule>,
    /// Errors about bindings to missing roles, with upstream's texts.
    pub errors: Vec<String>,
}

impl Rbac {
    /// The rules of a Role, or of a ClusterRole for an empty namespace.
    #[must_use]
    pub fn rules_of_role(&self, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let role = (namespace.to_owned(), name.to_owned());
        state.roles.get(&role).cloned()
    }

    /// The rules that apply to a user in a namespace.
    ///
    /// UPSTREAM: kubernetes pkg/registry/rbac/validation/rule.go (VisitRulesFor)
    #[must_use]
    pub fn rules_for(&self, user: &User, namespace: &str) -> Rules {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Rules::default();
        let scopes = if namespace.is_empty() {
            vec![""]
        } else {
            vec!["", namespace]
        };
        for scope in scopes {
            for (_, binding) in state.bindings.get(scope).into_iter().flatten() {
                if !binding.subjects.iter().any(|it| it.is(user)) {
                    continue;
                }
                match state.roles.get(&binding.role) {
                    Some(rules) => found.rules.extend(rules.iter().cloned()),
                    None => add(&mut found.errors, binding.role_not_found()),
                }
            }
        }
        found
    }
}

impl Rbac {
    /// Returns true if a ClusterRole has a rule that allows the request.
    #[must_use]
    pub fn role_allows(&self, name: &str, request: &AccessRequest<'_>) -> bool {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let rules = state.roles.get(&(String::new(), name.to_owned()));
        rules.is_some_and(|rules| rules.iter().any(|rule| rule.allows(request)))
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, request: &AccessRequest<'_>) -> Decision {
        let yes = Decision {
            allowed: true,
            ..Decision::default()
        };
        if request.user.groups.iter().any(|group| group == MASTERS) {
            return yes;
        }
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let namespace = match request.object {
            AccessObject::Resource { namespace, .. } => namespace,
            AccessObject::Path(_) => "",
        };
        // ClusterRoleBindings apply to all namespaces, RoleBindings to their own.
        let scopes = if namespace.is_empty() {
            vec![""]
        } else {
            vec!["", namespace]
        };
        let mut errors = Vec::new();
        for scope in scopes {
            for (name, binding) in state.bindings.get(scope).into_iter().flatten() {
                let mut subjects = binding.subjects.iter();
                let Some(subject) = subjects.find(|subject| subject.is(request.user)) else {
                    continue;
                };
                match state.roles.get(&binding.role) {
                    Some(rules) if rules.iter().any(|rule| rule.allows(request)) => {
                        let reason = binding.reason(scope, name, subject);
                        return Decision { reason, ..yes };
                    }
                    Some(_) => {}
                    None => add(&mut errors, binding.role_not_found()),
                }
            }
        }
        let reason = match errors.as_slice() {
            [] => String::new(),
            [error] => format!("RBAC: {error}"),
            errors => format!("RBAC: [{}]", errors.join(", ")),
        };
        Decision {
            reason,
            ..Decision::default()
        }
    }
}

/// Adds an error unless it is a duplicate.
fn add(errors: &mut Vec<String>, error: String) {
    if !errors.contains(&error) {
        errors.push(error);
    }
}

impl Binding {
    fn role_not_found(&self) -> String {
        let (of, name) = &self.role;
        let kind = if of.is_empty() { "clusterrole" } else { "role" };
        format!("{kind}.rbac.authorization.k8s.io {} not found", quote(name))
    }

    /// The reason of a decision that is allowed by this binding.
    ///
    /// UPSTREAM: kubernetes pkg/registry/rbac/validation/rule.go (describeSubject)
    fn reason(&self, namespace: &str, name: &str, subject: &Subject) -> String {
        let (of, role) = &self.role;
        let role_kind = if of.is_empty() { "ClusterRole" } else { "Role" };
        let (kind, name) = match namespace {
            "" => ("ClusterRoleBinding", name.to_owned()),
            namespace => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let (subject_kind, subject) = match subject {
            Subject::User(name) => ("User", name.clone()),
            Subject::Group(name) => ("Group", name.clone()),
            Subject::ServiceAccount { namespace, name } => {
                ("ServiceAccount", format!("{name}/{namespace}"))
            }
        };
        format!(
            "RBAC: allowed by {kind} {} of {role_kind} {} to {subject_kind} {}",
            quote(&name),
            quote(role),
            quote(&subject)
        )
    }
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rbac").finish_non_exhaustive()
    }
}

impl Rule {
    /// The rule as in SelfSubjectRulesReviews: the resource rule and the non-resource rule.
    #[must_use]
    pub fn to_review_rules(&self) -> (Option<Value>, Option<Value>) {
        let about_resources = (!self.resources.is_empty()).then(|| {
            let mut rule = json!({
                "verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources,
            });
            if !self.names.is_empty() {
                rule["resourceNames"] = self.names.clone().into();
            }
            rule
        });
        let about_paths = (!self.paths.is_empty())
            .then(|| json!({"verbs": self.verbs, "nonResourceURLs": self.paths}));
        (about_resources, about_paths)
    }

    /// Parses a rule of a role.
    #[must_use]
    pub fn read(value: &Value) -> Self {
        Self {
            verbs: string_list(value, "verbs"),
            groups: string_list(value, "apiGroups"),
            resources: string_list(value, "resources"),
            names: string_list(value, "resourceNames"),
            paths: string_list(value, "nonResourceURLs"),
        }
    }

    fn allows(&self, request: &AccessRequest<'_>) -> bool {
        let any =
            |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        if !any(&self.verbs, request.verb) {
            return false;
        }
        match &request.object {
            AccessObject::Path(path) => {
                self.paths
                    .iter()
                    .any(|pattern| match pattern.strip_suffix('*') {
                        Some(prefix) => path.starts_with(prefix),
                        None => pattern == path,
                    })
            }
            AccessObject::Resource {
                group,
                resource,
                subresource,
                name,
                ..
            } => {
                any(&self.groups, group)
                    && self
                        .resources
                        .iter()
                        .any(|rule| is_resource(rule, resource, subresource))
                    && (self.names.is_empty() || self.names.iter().any(|known| known == name))
            }
        }
    }
}

/// Matches `pods`, `pods/log`, `*/scale` and `*`.
fn is_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((wanted, sub)) => {
            sub == subresource && !sub.is_empty() && (wanted == "*" || wanted == resource)
        }
    }
}

impl Subject {
    fn read(value: &Value, namespace: &str) -> Option<Self> {
        let name = text(value, "name").to_owned();
        Some(match text(value, "kind") {
            "User" => Self::User(name),
            "Group" => Self::Group(name),
            "ServiceAccount" => {
                let own = text(value, "namespace");
                let namespace = if own.is_empty() { namespace } else { own };
                Self::ServiceAccount {
                    namespace: namespace.to_owned(),
                    name,
                }
            }
            _ => return None,
        })
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => *name == user.name,
            Self::Group(name) => user.groups.contains(name),
            Self::ServiceAccount { namespace, name } => user
                .name
                .strip_prefix("system:serviceaccount:")
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(in_namespace, account)| {
                    in_namespace == namespace && account == name
                }),
        }
    }
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn string_list(value: &Value, member: &str) -> Vec<String> {
    let items = value
        .get(member)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn objects<'v>(value: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> {
    value
        .get(member)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(
        rbac: &Rbac,
        user: &str,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let user = User {
            name: user.to_owned(),
            groups: vec![String::from("dev")],
            ..User::default()
        };
        let object = AccessObject::Resource {
            group,
            resource,
            subresource,
            namespace,
            name,
            field_selector: "",
            label_selector: "",
        };
        rbac.authorize(&AccessRequest {
            user: &user,
            verb,
            object,
        })
        .allowed
    }

    #[test]
    fn grants_what_roles_grant() {
        let rbac = Rbac::default();
        rbac.set_role("shop", "editor", &json!({"rules": [
            {"verbs": ["get", "create"], "apiGroups": [""], "resources": ["configmaps", "pods/log"]},
            {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*/scale"]},
            {"verbs": ["delete"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["old"]},
        ]}));
        rbac.set_binding(
            "shop",
            "b",
            &json!({
                "roleRef": {"kind": "Role", "name": "editor"},
                "subjects": [{"kind": "User", "name": "ann"}],
            }),
        );
        for (verb, group, resource, namespace, name, want) in [
            ("get", "", "configmaps", "shop", "", true),
            ("get", "", "configmaps", "bank", "", false),
            ("get", "", "configmaps", "", "", false),
            ("update", "", "configmaps", "shop", "", false),
            ("get", "", "pods/log", "shop", "p", true),
            ("get", "", "pods", "shop", "p", false),
            ("patch", "apps", "deployments/scale", "shop", "d", true),
            ("patch", "apps", "deployments", "shop", "d", false),
            ("delete", "", "secrets", "shop", "old", true),
            ("delete", "", "secrets", "shop", "new", false),
        ] {
            assert_eq!(
                may(&rbac, "ann", verb, group, resource, namespace, name),
                want,
                "{verb} {resource}"
            );
            assert!(!may(&rbac, "bob", verb, group, resource, namespace, name));
        }
        rbac.remove_binding("shop", "b");
        assert!(!may(&rbac, "ann", "get", "", "configmaps", "shop", ""));
    }

    #[test]
    fn binds_groups_accounts_and_the_cluster() {
        let rbac = Rbac::default();
        rbac.set_role(
            "",
            "reader",
            &json!({"rules": [
                {"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/healthz/*"]},
            ]}),
        );
        let reference = json!({"kind": "ClusterRole", "name": "reader"});
        rbac.set_binding(
            "",
            "all",
            &json!({"roleRef": reference, "subjects": [{"kind": "Group", "name": "dev"}]}),
        );
        rbac.set_binding("shop", "sa", &json!({"roleRef": reference, "subjects": [{"kind": "ServiceAccount", "name": "robot"}]}));
        assert!(may(&rbac, "any", "get", "apps", "deployments", "", ""));
        let robot = User {
            name: String::from("system:serviceaccount:shop:robot"),
            ..User::default()
        };
        let object = AccessObject::Resource {
            group: "",
            resource: "pods",
            subresource: "",
            namespace: "shop",
            name: "",
            field_selector: "",
            label_selector: "",
        };
        assert!(
            rbac.authorize(&AccessRequest {
                user: &robot,
                verb: "get",
                object
            })
            .allowed
        );
        let dev = User {
            groups: vec![String::from("dev")],
            ..User::default()
        };
        for (path, want) in [
            ("/metrics", true),
            ("/healthz/etcd", true),
            ("/metrics/x", false),
        ] {
            let object = AccessObject::Path(path);
            assert_eq!(
                rbac.authorize(&AccessRequest {
                    user: &dev,
                    verb: "get",
                    object
                })
                .allowed,
                want
            );
        }
    }

    #[test]
    fn lets_masters_do_everything() {
        let master = User {
            groups: vec![MASTERS.to_owned()],
            ..User::default()
        };
        let object = AccessObject::Path("/anything");
        assert!(
            Rbac::default()
                .authorize(&AccessRequest {
                    user: &master,
                    verb: "get",
                    object
                })
                .allowed
        );
    }
}
