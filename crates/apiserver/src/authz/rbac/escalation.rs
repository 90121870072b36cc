//! Privilege escalation checks: roles and bindings are checked against the author's permissions, unless the author
//! has the verb `escalate` on the role or `bind` on the referenced role.
//!
//! UPSTREAM: kubernetes pkg/registry/rbac/escalation_check.go, pkg/registry/rbac/validation/rule.go,
//! pkg/registry/rbac/clusterrole/policybased/storage.go, component-helpers auth/rbac/validation

use std::collections::{BTreeMap, BTreeSet, HashSet};

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, User};
use lockgate_api::admission::UserInfo;
use lockgate_go::quote::quote;
use serde_json::Value;

use super::{MASTERS, Rbac, Rule};
use crate::authz;
use crate::error::{Outcome, bad_request, check_key, forbidden, not_found, plain};
use crate::http::request_info::Target;

/// The group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// The maximum number of comparisons between single permissions and rules. Upstream has no bound, but a role of 3 MiB
/// has more permissions than can be compared in a day.
const COMPARISONS: usize = 5_000_000;

/// Metadata fields that the garbage collector changes on any object.
const COLLECTED: [&str; 4] = ["ownerReferences", "finalizers", "selfLink", "managedFields"];

/// Checks that the written object grants no more permissions than its author has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard<'g> {
    pub(crate) rbac: &'g Rbac,
    pub(crate) authorizer: &'g dyn Authorizer,
    pub(crate) user: &'g UserInfo,
    pub(crate) target: &'g Target,
}

impl Guard<'_> {
    /// Checks an object after mutating admission and before validation. `old` is the object before an update.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> Outcome<()> {
        let Target {
            group, resource, ..
        } = self.target;
        if group != GROUP {
            return Ok(());
        }
        let user = authz::user(self.user);
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        match resource.as_str() {
            "roles" | "clusterroles" => self.check_role(&user, object, old),
            "rolebindings" | "clusterrolebindings" => self.check_binding(&user, object, old),
            _ => Ok(()),
        }
    }

    fn check_role(&self, user: &User, object: &Value, old: Option<&Value>) -> Outcome<()> {
        let Target {
            resource,
            name,
            namespace,
            ..
        } = self.target;
        if self.is_allowed(user, "escalate", resource, namespace, name) {
            return Ok(());
        }
        if old.is_some_and(|old| changes_owners_only(object, old)) {
            return Ok(());
        }
        let rules: Vec<Rule> = object["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Rule::read)
            .collect();
        self.confirm(user, object, &rules)?;
        if is_aggregated(object) || old.is_some_and(is_aggregated) {
            // The aggregated rules are unknown, so the author must have all permissions.
            if self.confirm(user, object, &everything()).is_err() {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                return Err(self.reject(object, why));
            }
        }
        Ok(())
    }

    fn check_binding(&self, user: &User, object: &Value, old: Option<&Value>) -> Outcome<()> {
        if old.is_some_and(|old| changes_owners_only(object, old)) {
            return Ok(());
        }
        let reference = object.get("roleRef").unwrap_or(&Value::Null);
        let (kind, name) = (text(reference, "kind"), text(reference, "name"));
        let namespace = self.target.namespace.as_str();
        let (resource, namespace_of_role) = match kind {
            "ClusterRole" => ("clusterroles", ""),
            "Role" => ("roles", namespace),
            other => {
                let why = format!("unsupported role reference kind: {}", quote(other));
                return Err(plain(why));
            }
        };
        let group = match text(reference, "apiGroup") {
            "" => GROUP,
            group => group,
        };
        if group == GROUP && self.is_allowed(user, "bind", resource, namespace, name) {
            return Ok(());
        }
        // The role is read through storage, which validates its name.
        if kind == "Role" && namespace.is_empty() {
            return Err(bad_request("Namespace parameter required."));
        }
        check_key(name)?;
        let Some(rules) = self.rbac.rules_of_role(namespace_of_role, name) else {
            // UPSTREAM: apiserver pkg/registry/generic/registry/store.go (qualifiedResourceFromContext): the
            // resource is that of the request.
            return Err(not_found(GROUP, &self.target.resource, name));
        };
        self.confirm(user, object, &rules)
    }

    fn is_allowed(
        &self,
        user: &User,
        verb: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> bool {
        let object = AccessObject::Resource {
            group: GROUP,
            resource,
            subresource: "",
            namespace,
            name,
            field_selector: "",
            label_selector: "",
        };
        let request = AccessRequest { user, verb, object };
        self.authorizer.authorize(&request).allowed
    }

    fn reject(&self, object: &Value, why: &str) -> crate::error::Failure {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default();
        forbidden(GROUP, &self.target.resource, name, why)
    }

    /// Checks that the user has all permissions of these rules.
    fn confirm(&self, user: &User, object: &Value, rules: &[Rule]) -> Outcome<()> {
        let held = self.rbac.rules_for(user, &self.target.namespace);
        let groups: Vec<String> = user.groups.iter().map(|group| quote(group)).collect();
        let who = format!("user {} (groups=[{}])", quote(&user.name), groups.join(" "));
        let Some(missing) = missing(&held.rules, rules) else {
            let why = format!("{who} is attempting to grant too many RBAC permissions to compare");
            return Err(self.reject(object, &why));
        };
        if missing.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = missing.into_iter().collect();
        let mut why = format!(
            "{who} is attempting to grant RBAC permissions not currently held:\n{}",
            lines.join("\n")
        );
        let errors: Vec<String> = held.errors.iter().map(|error| in_plural(error)).collect();
        match errors.as_slice() {
            [] => {}
            [error] => why.push_str(&format!("; resolution errors: [{error}]")),
            errors => why.push_str(&format!("; resolution errors: [[{}]]", errors.join(", "))),
        }
        Err(self.reject(object, &why))
    }
}

/// Storage errors contain the resource, lister errors the kind.
fn in_plural(error: &str) -> String {
    match error.split_once('.') {
        Some((kind, rest)) => format!("{kind}s.{rest}"),
        None => error.to_owned(),
    }
}

fn is_aggregated(role: &Value) -> bool {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors");
    selectors
        .and_then(Value::as_array)
        .is_some_and(|selectors| !selectors.is_empty())
}

fn changes_owners_only(object: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| !COLLECTED.contains(&key.as_str()));
        }
        object
    };
    rest(object) == rest(old)
}

fn everything() -> [Rule; 2] {
    let star = || vec![String::from("*")];
    let nothing = Rule {
        verbs: star(),
        groups: Vec::new(),
        resources: Vec::new(),
        names: Vec::new(),
        paths: Vec::new(),
    };
    [
        Rule {
            groups: star(),
            resources: star(),
            ..nothing.clone()
        },
        Rule {
            paths: star(),
            ..nothing
        },
    ]
}

/// A held rule, prepared for many comparisons.
struct HeldRule<'r> {
    verbs: HashSet<&'r str>,
    groups: HashSet<&'r str>,
    resources: HashSet<&'r str>,
    names: HashSet<&'r str>,
    paths: &'r [String],
}

impl<'r> HeldRule<'r> {
    fn new(rule: &'r Rule) -> Self {
        let set = |texts: &'r [String]| texts.iter().map(String::as_str).collect();
        Self {
            verbs: set(&rule.verbs),
            groups: set(&rule.groups),
            resources: set(&rule.resources),
            names: set(&rule.names),
            paths: &rule.paths,
        }
    }

    fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains("*") || self.verbs.contains(verb)
    }

    fn has_group(&self, group: &str) -> bool {
        self.groups.contains("*") || self.groups.contains(group)
    }

    fn has_resource(&self, resource: &str) -> bool {
        let of_any = |resource: &str| {
            let (_, subresource) = resource.split_once('/')?;
            Some(self.resources.contains(format!("*/{subresource}").as_str()))
        };
        self.resources.contains("*")
            || self.resources.contains(resource)
            || of_any(resource).unwrap_or(false)
    }

    /// No names means all names.
    fn has_name(&self, name: Option<&str>) -> bool {
        self.names.is_empty() || name.is_some_and(|name| self.names.contains(name))
    }

    fn has_path(&self, path: &str) -> bool {
        self.paths.iter().any(|held| {
            held == path || held.ends_with('*') && path.starts_with(held.trim_end_matches('*'))
        })
    }

    fn covers(&self, wanted: &Permission<'_>) -> bool {
        self.has_verb(wanted.verb)
            && match wanted.of {
                Of::Resource {
                    group,
                    resource,
                    name,
                } => self.has_group(group) && self.has_resource(resource) && self.has_name(name),
                Of::Path(path) => self.names.is_empty() && self.has_path(path),
            }
    }

    /// Returns true if all permissions of a resource rule are covered by this rule alone.
    fn covers_resources(&self, rule: &Rule) -> bool {
        rule.verbs.iter().all(|verb| self.has_verb(verb))
            && rule.groups.iter().all(|group| self.has_group(group))
            && rule.resources.iter().all(|it| self.has_resource(it))
            && match rule.names.as_slice() {
                [] => self.has_name(None),
                names => names.iter().all(|name| self.has_name(Some(name))),
            }
    }
}

/// The smallest part of a rule: one verb on one resource or path.
#[derive(Debug, Clone, Copy)]
struct Permission<'r> {
    verb: &'r str,
    of: Of<'r>,
}

#[derive(Debug, Clone, Copy)]
enum Of<'r> {
    Resource {
        group: &'r str,
        resource: &'r str,
        name: Option<&'r str>,
    },
    Path(&'r str),
}

/// The granted permissions that the author does not hold, as upstream describes them; `None` if there are too many to
/// compare.
fn missing(held: &[Rule], wanted: &[Rule]) -> Option<BTreeSet<String>> {
    let held: Vec<HeldRule<'_>> = held.iter().map(HeldRule::new).collect();
    let each: usize = held.iter().map(|rule| 1 + rule.paths.len()).sum();
    let mut left = COMPARISONS;
    let mut found = BTreeSet::new();
    // Verbs on one resource, or on one object of it, are listed together, in the order of the first missing one.
    let mut verbs: BTreeMap<(&str, &str, Option<&str>), Vec<&str>> = BTreeMap::new();
    for rule in wanted {
        for verb in &rule.verbs {
            for path in &rule.paths {
                left = left.checked_sub(each.max(1))?;
                let permission = Permission {
                    verb,
                    of: Of::Path(path),
                };
                if !held.iter().any(|held| held.covers(&permission)) {
                    found.insert(format!(
                        "{{NonResourceURLs:[{}], Verbs:[{}]}}",
                        quote(path),
                        quote(verb)
                    ));
                }
            }
        }
        if held.iter().any(|held| held.covers_resources(rule)) {
            continue;
        }
        let names: Vec<Option<&str>> = match rule.names.as_slice() {
            [] => vec![None],
            names => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        for group in &rule.groups {
            for resource in &rule.resources {
                for verb in &rule.verbs {
                    for &name in &names {
                        left = left.checked_sub(each.max(1))?;
                        let of = Of::Resource {
                            group,
                            resource,
                            name,
                        };
                        if held
                            .iter()
                            .any(|held| held.covers(&Permission { verb, of }))
                        {
                            continue;
                        }
                        let verbs = verbs.entry((group, resource, name)).or_default();
                        verbs.push(verb);
                    }
                }
            }
        }
    }
    for ((group, resource, name), verbs) in verbs {
        let verbs: Vec<String> = verbs.into_iter().map(quote).collect();
        let names = name.map(|name| format!(", ResourceNames:[{}]", quote(name)));
        found.insert(format!(
            "{{APIGroups:[{}], Resources:[{}]{}, Verbs:[{}]}}",
            quote(group),
            quote(resource),
            names.unwrap_or_default(),
            verbs.join(" ")
        ));
    }
    Some(found)
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    let member = value.get(member).and_then(Value::as_str);
    member.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(value: Value) -> Vec<Rule> {
        value.as_array().unwrap().iter().map(Rule::read).collect()
    }

    fn format_rules(held: Value, wanted: Value) -> Vec<String> {
        let missing = missing(&rules(held), &rules(wanted)).unwrap();
        missing.into_iter().collect()
    }

    #[test]
    fn tells_what_is_missing() {
        let pods = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
        assert!(format_rules(pods.clone(), pods.clone()).is_empty());
        assert_eq!(
            format_rules(
                pods.clone(),
                json!([{"verbs": ["get", "delete", "*"], "apiGroups": ["", "apps"], "resources": ["pods"]}])
            ),
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete" "*"]}"#,
                r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "delete" "*"]}"#,
            ]
        );
        let named = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
        assert!(format_rules(pods, named.clone()).is_empty());
        assert_eq!(
            format_rules(
                named.clone(),
                json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
            ),
            [r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#]
        );
        assert_eq!(
            format_rules(json!([]), named),
            [r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}"#]
        );
        assert_eq!(
            format_rules(
                json!([]),
                json!([{"verbs": ["watch", "use"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["b", "a"]}])
            ),
            [
                r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["watch" "use"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["watch" "use"]}"#,
            ]
        );
    }

    #[test]
    fn knows_what_stars_cover() {
        let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
        let scale =
            json!([{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments/scale"]}]);
        assert!(format_rules(all.clone(), scale.clone()).is_empty());
        let scales = json!([{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*/scale"]}]);
        assert!(format_rules(scales.clone(), scale).is_empty());
        assert_eq!(format_rules(scales, all.clone()).len(), 1);
        let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}]);
        let path = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz/etcd"]}]);
        assert!(format_rules(paths.clone(), path).is_empty());
        assert_eq!(
            format_rules(all, paths),
            [r#"{NonResourceURLs:["/healthz/*"], Verbs:["get"]}"#]
        );
    }

    #[test]
    fn gives_up_on_more_than_can_be_compared() {
        let many: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        let wanted = rules(json!([{"verbs": many, "apiGroups": many, "resources": many}]));
        assert!(missing(&[], &wanted).is_none());
        let all = rules(json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
        assert_eq!(missing(&all, &wanted), Some(BTreeSet::new()));
    }
}
