//! The default roles and bindings. Missing rules and subjects are added to the stored objects; additions are kept,
//! and objects with autoupdate disabled are not changed.
//!
//! UPSTREAM: kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy, component-helpers
//! auth/rbac/reconciliation

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::controllers::role_aggregation;
use crate::error::{Outcome, internal};

/// One object to a line, by plural. Made by `tools/rbac-generator`.
const POLICY: &str = include_str!("rbac.json");
/// The annotation that disables reconciliation of an object.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The plurals, in the order in which the objects are made.
pub(super) const PLURALS: [&str; 4] = [
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
];

/// The default roles and bindings, by plural.
pub(super) fn wanted() -> Outcome<BTreeMap<String, Vec<Value>>> {
    let unreadable = || internal("cannot read the built-in default roles");
    let policy: BTreeMap<String, Vec<Value>> =
        serde_json::from_str(POLICY).map_err(|_| unreadable())?;
    let objects = policy.into_iter().map(|(plural, rows)| {
        let objects = rows.into_iter().map(|row| object(&plural, row));
        let objects: Option<Vec<Value>> = objects.collect();
        Ok((plural, objects.ok_or_else(unreadable)?))
    });
    objects.collect()
}

/// A row as an object.
fn object(plural: &str, row: Value) -> Option<Value> {
    let Value::Object(mut row) = row else {
        return None;
    };
    let kind = match plural {
        "clusterroles" => "ClusterRole",
        "clusterrolebindings" => "ClusterRoleBinding",
        "roles" => "Role",
        _ => "RoleBinding",
    };
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    if let Some(own) = row.remove("labels") {
        merge(&mut labels, &own);
    }
    let mut metadata = json!({
        "name": row.remove("name")?,
        "labels": labels,
        "annotations": {AUTO_UPDATE: "true"},
    });
    if let Some(namespace) = row.remove("namespace") {
        metadata["namespace"] = namespace;
    }
    let mut object = Map::from_iter([
        (
            String::from("apiVersion"),
            format!("{}/v1", role_aggregation::GROUP).into(),
        ),
        (String::from("kind"), kind.into()),
        (String::from("metadata"), metadata),
    ]);
    object.append(&mut row);
    if kind.ends_with("Role") {
        object.entry("rules").or_insert(Value::Null);
    }
    Some(Value::Object(object))
}

/// The object completed by everything that is wanted. None if it is complete, or if it is
/// to be left alone.
pub(super) fn reconciled(found: &Value, wanted: &Value) -> Option<Value> {
    let protected = found
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(AUTO_UPDATE));
    if protected.and_then(Value::as_str) == Some("false") {
        return None;
    }
    let mut object = found.clone();
    for member in ["labels", "annotations"] {
        add_missing(&mut object["metadata"], &wanted["metadata"], member);
    }
    if wanted.get("roleRef").is_some() {
        add_subjects(&mut object, wanted);
    } else {
        add_rules(&mut object, wanted);
        add_selectors(&mut object, wanted);
    }
    (object != *found).then_some(object)
}

/// Returns true if a binding is for another role than the wanted one, which cannot be changed.
pub(super) fn is_for_another_role(found: &Value, wanted: &Value) -> bool {
    wanted.get("roleRef").is_some() && found.get("roleRef") != wanted.get("roleRef")
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        for (key, value) in from {
            into.insert(key.clone(), value.clone());
        }
    }
}

/// Adds missing labels or annotations; existing ones keep their values.
fn add_missing(metadata: &mut Value, wanted: &Value, member: &str) {
    let mut all = wanted.get(member).cloned().unwrap_or_default();
    if let Some(found) = metadata.get(member) {
        merge(&mut all, found);
    }
    if let Some(metadata) = metadata.as_object_mut()
        && all.is_object()
    {
        metadata.insert(member.to_owned(), all);
    }
}

fn list<'v>(object: &'v Value, member: &str) -> &'v [Value] {
    let list = object.get(member).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn extend(object: &mut Value, member: &str, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    let mut all = list(object, member).to_vec();
    all.extend(more);
    object[member] = all.into();
}

fn add_subjects(object: &mut Value, wanted: &Value) {
    let found = list(object, "subjects");
    let missing = list(wanted, "subjects")
        .iter()
        .filter(|subject| !found.contains(subject));
    let missing = missing.cloned().collect();
    extend(object, "subjects", missing);
}

fn add_rules(object: &mut Value, wanted: &Value) {
    let found: Vec<Rule<'_>> = list(object, "rules").iter().map(Rule::read).collect();
    let wanted = list(wanted, "rules");
    if wanted == list(object, "rules") {
        return;
    }
    let parts = wanted.iter().flat_map(|rule| Rule::read(rule).parts());
    let missing = parts
        .filter(|part| !found.iter().any(|rule| rule.covers(part)))
        .map(|part| part.to_value())
        .collect();
    extend(object, "rules", missing);
}

fn add_selectors(object: &mut Value, wanted: &Value) {
    let rule = "aggregationRule";
    let Some(wanted) = wanted.get(rule) else {
        // This role is not expected to be aggregated.
        if let Some(members) = object.as_object_mut() {
            members.remove(rule);
        }
        return;
    };
    let selectors = "clusterRoleSelectors";
    let found = object.get(rule).cloned().unwrap_or_default();
    let missing: Vec<Value> = list(wanted, selectors)
        .iter()
        .filter(|selector| !list(&found, selectors).contains(selector))
        .cloned()
        .collect();
    if missing.is_empty() {
        return;
    }
    if !found.is_object() {
        object[rule] = json!({});
    }
    extend(&mut object[rule], selectors, missing);
}

/// The permissions of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule<'r> {
    verbs: Vec<&'r str>,
    groups: Vec<&'r str>,
    resources: Vec<&'r str>,
    names: Vec<&'r str>,
    paths: Vec<&'r str>,
}

impl<'r> Rule<'r> {
    fn read(rule: &'r Value) -> Self {
        let texts = |member: &str| {
            let items = list(rule, member).iter();
            items.filter_map(Value::as_str).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            paths: texts("nonResourceURLs"),
        }
    }

    /// The same as rules with one of everything.
    fn parts(self) -> Vec<Self> {
        let mut parts = Vec::new();
        let names: Vec<Vec<&str>> = if self.names.is_empty() {
            vec![Vec::new()]
        } else {
            self.names.iter().map(|&name| vec![name]).collect()
        };
        for &verb in &self.verbs {
            for &group in &self.groups {
                for &resource in &self.resources {
                    parts.extend(names.iter().map(|name| Self {
                        verbs: vec![verb],
                        groups: vec![group],
                        resources: vec![resource],
                        names: name.clone(),
                        paths: Vec::new(),
                    }));
                }
            }
            parts.extend(self.paths.iter().map(|&path| Self {
                verbs: vec![verb],
                groups: Vec::new(),
                resources: Vec::new(),
                names: Vec::new(),
                paths: vec![path],
            }));
        }
        parts
    }

    /// Returns true if it allows what a rule with one of everything allows.
    fn covers(&self, part: &Self) -> bool {
        let all = |list: &[&str], wanted: &[&str]| {
            list.contains(&"*") || wanted.iter().all(|item| list.contains(item))
        };
        let resource = |wanted: &&str| {
            let of_any = wanted
                .split_once('/')
                .map(|(_, subresource)| format!("*/{subresource}"));
            self.resources.contains(wanted)
                || of_any.is_some_and(|any| self.resources.contains(&any.as_str()))
        };
        let path = |wanted: &&str| {
            self.paths.iter().any(|path| {
                path == wanted
                    || path.ends_with('*') && wanted.starts_with(path.trim_end_matches('*'))
            })
        };
        let names =
            self.names.is_empty() || !part.names.is_empty() && all(&self.names, &part.names);
        all(&self.verbs, &part.verbs)
            && all(&self.groups, &part.groups)
            && (self.resources.contains(&"*") || part.resources.iter().all(resource))
            && part.paths.iter().all(path)
            && names
    }

    fn to_value(&self) -> Value {
        let mut rule = Map::new();
        for (member, texts) in [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ] {
            if !texts.is_empty() {
                rule.insert(member.to_owned(), texts.clone().into());
            }
        }
        Value::Object(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value) -> Value {
        json!({"metadata": {"name": "r", "labels": {"a": "1"}}, "rules": rules})
    }

    #[test]
    fn knows_what_upstream_makes() {
        let wanted = wanted().unwrap();
        let counts: Vec<usize> = PLURALS.map(|plural| wanted[plural].len()).into();
        assert_eq!(counts, [69, 50, 7, 7]);
        let find = |plural: &str, name: &str| {
            let mut objects = wanted[plural].iter();
            objects.find(|object| object["metadata"]["name"] == name)
        };
        for name in [
            "admin",
            "cluster-admin",
            "edit",
            "system:aggregate-to-edit",
            "system:basic-user",
            "system:controller:generic-garbage-collector",
            "system:discovery",
            "system:monitoring",
            "system:node",
            "system:public-info-viewer",
            "system:service-account-issuer-discovery",
            "view",
        ] {
            let role = find("clusterroles", name).unwrap();
            assert_eq!(
                role["metadata"]["annotations"],
                json!({AUTO_UPDATE: "true"})
            );
            assert!(role.get("rules").is_some(), "{name}");
        }
        assert_eq!(
            find("clusterroles", "system:aggregate-to-edit").unwrap()["metadata"]["labels"],
            json!({
                "kubernetes.io/bootstrapping": "rbac-defaults",
                "rbac.authorization.k8s.io/aggregate-to-edit": "true",
            })
        );
        let binding = find("clusterrolebindings", "cluster-admin").unwrap();
        assert_eq!(binding["subjects"][0]["name"], "system:masters");
    }

    #[test]
    fn adds_rules_that_are_missing_and_takes_none_away() {
        let wanted = role(json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/metrics"]},
        ]));
        let found = role(json!([
            {"verbs": ["*"], "apiGroups": [""], "resources": ["*/log", "secrets"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["one"]},
            {"verbs": ["get"], "nonResourceURLs": ["/health*"]},
        ]));
        let mut want = found.clone();
        want["rules"].as_array_mut().unwrap().extend([
            json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}),
            json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}),
        ]);
        let reconciled = reconciled(&found, &wanted).unwrap();
        assert_eq!(reconciled["rules"], want["rules"]);
        assert_eq!(super::reconciled(&reconciled, &wanted), None);
    }

    #[test]
    fn leaves_alone_what_says_so() {
        let wanted = role(json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}]));
        let mut found = role(json!([]));
        assert!(reconciled(&found, &wanted).is_some());
        found["metadata"]["annotations"] = json!({AUTO_UPDATE: "false"});
        assert_eq!(reconciled(&found, &wanted), None);
    }

    #[test]
    fn adds_labels_selectors_and_subjects_that_are_missing() {
        let mut wanted = role(Value::Null);
        wanted["metadata"]["labels"] = json!({"a": "2", "b": "2"});
        wanted["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"x": "1"}}]});
        let own = json!({"matchLabels": {"own": "1"}});
        let mut found = role(json!([{"verbs": ["get"]}]));
        found["aggregationRule"] = json!({"clusterRoleSelectors": [own]});
        let made = reconciled(&found, &wanted).unwrap();
        assert_eq!(made["metadata"]["labels"], json!({"a": "1", "b": "2"}));
        assert_eq!(
            made["aggregationRule"]["clusterRoleSelectors"],
            json!([own, {"matchLabels": {"x": "1"}}])
        );
        assert_eq!(made["rules"], found["rules"]);
        let binding = |subjects: Value| json!({"metadata": {}, "roleRef": {"name": "r"}, "subjects": subjects});
        let made = reconciled(
            &binding(json!([{"name": "own"}])),
            &binding(json!([{"name": "all"}])),
        );
        assert_eq!(
            made.unwrap()["subjects"],
            json!([{"name": "own"}, {"name": "all"}])
        );
        assert!(is_for_another_role(
            &json!({"roleRef": {"name": "other"}}),
            &binding(json!([]))
        ));
    }
}
