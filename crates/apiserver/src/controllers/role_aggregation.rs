//! Updates the rules of aggregated ClusterRoles.
//!
//! UPSTREAM: kubernetes pkg/controller/clusterroleaggregation

use std::collections::HashSet;

use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::selector::Selector;
use lockgate_go::json;
use lockgate_store::List;
use serde_json::{Value, json};

use super::{Context, account};
use crate::decode::options::WriteOptions;
use crate::decode::patch::Patch;
use crate::decode::write::PatchBody;
use crate::encoding;
use crate::error::{Outcome, read_failed};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::request::{ObjectPath, Request};
use crate::write::patch;

const ACCOUNT: &str = "clusterrole-aggregation-controller";
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// The aggregated rules of a role; `None` without an aggregation rule. `roles` are all ClusterRoles by name.
pub(crate) fn rules<'r>(
    role: &Value,
    roles: impl Iterator<Item = &'r Value> + Clone,
) -> Option<Vec<Value>> {
    let aggregation = role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let selectors = aggregation
        .get("clusterRoleSelectors")
        .and_then(Value::as_array);
    let name = metadata::text(role, "name");
    let mut rules: Vec<Value> = Vec::new();
    // Rules are compared in their encoded form.
    let mut seen = HashSet::new();
    for selector in selectors.into_iter().flatten().filter_map(compile) {
        let selected = roles.clone().filter(|other| {
            let labels = metadata::of(other).and_then(|metadata| metadata.get("labels"));
            metadata::text(other, "name") != name
                && selector.matches_with(|key| labels?.get(key)?.as_str())
        });
        let given = selected.filter_map(|other| other.get("rules")?.as_array());
        for rule in given.flatten() {
            if seen.insert(json::to_string(rule)) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

fn compile(selector: &Value) -> Option<Selector> {
    LabelSelector::read(selector)?.compile().ok()
}

/// Updates every aggregated role. Returns true if any was changed.
pub(super) async fn reconcile(context: &Context) -> Outcome<bool> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let Some(resource) = snapshot.find(GROUP, "v1", "clusterroles") else {
        return Ok(false);
    };
    let prefix = writer.storage.prefix(resource, "");
    let page = writer.storage.store().list(List::all(&prefix)).await;
    let page = page.map_err(|error| read_failed(error, 0))?;
    // Sorted by key, and therefore by name.
    let roles: Vec<Value> = page
        .entries
        .iter()
        .map(|entry| encoding::parse_entry(entry, resource.type_meta()))
        .collect::<Outcome<_>>()?;
    let mut changed = false;
    let mut failed = None;
    for role in &roles {
        let Some(rules) = rules(role, roles.iter()) else {
            continue;
        };
        let has = role.get("rules").and_then(Value::as_array);
        if has.map(Vec::as_slice).unwrap_or_default() == rules.as_slice() {
            continue;
        }
        let name = metadata::text(role, "name");
        let mut configuration = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind(), "metadata": {"name": name},
        });
        if !rules.is_empty() {
            configuration["rules"] = rules.into();
        }
        let path = ObjectPath {
            resource,
            namespace: "",
            name,
            subresource: "",
        };
        let request = Request::internal(account(ACCOUNT), Verb::Patch, path);
        let body = PatchBody {
            patch: Patch::Apply(configuration),
            findings: Vec::new(),
            options: WriteOptions::of_forced_apply(ACCOUNT),
        };
        match patch::patch(writer, &request, body).await {
            Ok(_) => changed = true,
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => failed = Some(failure),
        }
    }
    failed.map_or(Ok(changed), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_rules_of_those_selected_once_each() {
        let role = |name: &str, label: &str, verb: &str| {
            json!({
                "metadata": {"name": name, "labels": {"to": label}},
                "rules": [{"verbs": [verb]}, {"verbs": ["shared"]}],
            })
        };
        let all = json!({
            "metadata": {"name": "all", "labels": {"to": "x"}},
            "rules": [{"verbs": ["own"]}],
            "aggregationRule": {"clusterRoleSelectors": [
                {"matchLabels": {"to": "y"}},
                {"matchExpressions": [{"key": "to", "operator": "In", "values": ["x"]}]},
            ]},
        });
        let roles = [
            role("a", "x", "one"),
            all.clone(),
            role("b", "y", "two"),
            role("c", "z", "none"),
        ];
        assert_eq!(
            rules(&all, roles.iter()).unwrap(),
            [
                json!({"verbs": ["two"]}),
                json!({"verbs": ["shared"]}),
                json!({"verbs": ["one"]}),
            ]
        );
        assert_eq!(rules(&roles[0], roles.iter()), None);
    }
}
