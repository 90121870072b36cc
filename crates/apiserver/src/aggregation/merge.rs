//! Merges the documents of this server and of aggregated servers.
//!
//! UPSTREAM: kube-aggregator pkg/apiserver/handler_apis.go, apiserver
//! pkg/endpoints/discovery/aggregated/handler.go, kube-openapi pkg/aggregator

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::local::priority;
use super::{Documents, Remote};

/// The groups of aggregated servers, each with its versions by priority.
fn groups(remotes: &[Arc<Remote>]) -> Vec<(i64, &str, Vec<&Arc<Remote>>)> {
    let mut groups: Vec<(i64, &str, Vec<&Arc<Remote>>)> = Vec::new();
    for remote in remotes.iter().filter(|remote| !remote.group.is_empty()) {
        match groups
            .iter_mut()
            .find(|(_, group, _)| *group == remote.group)
        {
            Some((priority, _, versions)) => {
                *priority = remote.group_priority.max(*priority);
                versions.push(remote);
            }
            None => groups.push((remote.group_priority, &remote.group, vec![remote])),
        }
    }
    for (_, _, versions) in &mut groups {
        versions.sort_by_key(|remote| Reverse(remote.version_priority));
    }
    groups
}

/// Merges groups of aggregated servers into those of this server. `own` returns the group name; for a group on both
/// sides, `join` merges the versions.
fn insert(
    mut all: Vec<Value>,
    remotes: &[Arc<Remote>],
    is_custom: &dyn Fn(&str) -> bool,
    own: fn(&Value) -> &str,
    made: fn(&str, &[&Arc<Remote>]) -> Value,
    join: fn(&mut Value, Value),
) -> Vec<Value> {
    for (of_remote, group, versions) in groups(remotes) {
        let value = made(group, &versions);
        if let Some(there) = all.iter_mut().find(|there| own(there) == group) {
            join(there, value);
            continue;
        }
        let place = all.iter().position(|there| {
            let name = own(there);
            let known = remotes.iter().find(|remote| remote.group == name);
            let of_there = match known {
                Some(remote) => remote.group_priority,
                None => priority(name, is_custom(name)),
            };
            of_there < of_remote || (of_there == of_remote && name > group)
        });
        all.insert(place.unwrap_or(all.len()), value);
    }
    all
}

fn group_version(remote: &Remote) -> Value {
    let version = &remote.version;
    json!({"groupVersion": format!("{}/{version}", remote.group), "version": version})
}

fn legacy(group: &str, versions: &[&Arc<Remote>]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|remote| group_version(remote))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// Adds missing versions; the other server's replaces a version on both sides.
fn join_versions(there: &mut Value, mut other: Value) {
    let (Value::Array(theirs), Some(ours)) =
        (other["versions"].take(), there["versions"].as_array_mut())
    else {
        return;
    };
    for version in theirs {
        match ours
            .iter_mut()
            .find(|ours| ours["version"] == version["version"])
        {
            Some(same) => *same = version,
            None => ours.push(version),
        }
    }
}

/// `/apis` in the unaggregated format.
pub(crate) fn group_list(
    mut own: Value,
    remotes: &[Arc<Remote>],
    is_custom: &dyn Fn(&str) -> bool,
) -> Value {
    if let Value::Array(groups) = own["groups"].take() {
        let name: fn(&Value) -> &str = |group| group["name"].as_str().unwrap_or_default();
        own["groups"] = insert(groups, remotes, is_custom, name, legacy, join_versions).into();
    }
    own
}

/// `/apis/GROUP`.
pub(crate) fn group(own: Option<Value>, remotes: &[Arc<Remote>], name: &str) -> Option<Value> {
    let found = groups(remotes)
        .into_iter()
        .find(|(_, group, _)| *group == name);
    let Some((_, _, versions)) = found else {
        return own;
    };
    let mut remote = legacy(name, &versions);
    match own {
        Some(mut own) => {
            join_versions(&mut own, remote);
            Some(own)
        }
        None => {
            remote["kind"] = "APIGroup".into();
            remote["apiVersion"] = "v1".into();
            Some(remote)
        }
    }
}

/// `/apis` in the aggregated format.
pub(crate) fn v2_list(
    mut own: Value,
    remotes: &[Arc<Remote>],
    is_custom: &dyn Fn(&str) -> bool,
) -> Value {
    let made: fn(&str, &[&Arc<Remote>]) -> Value = |group, versions| {
        let versions: Vec<Value> = versions
            .iter()
            .map(|remote| {
                let documents = remote.documents();
                let is_current = !documents.is_stale && documents.resources.is_some();
                let mut version = json!({
                    "version": remote.version,
                    "freshness": if is_current { "Current" } else { "Stale" },
                });
                if let Some(resources) = &documents.resources {
                    version["resources"] = resources.clone().into();
                }
                version
            })
            .collect();
        json!({"metadata": {"name": group}, "versions": versions})
    };
    if let Value::Array(groups) = own["items"].take() {
        let name: fn(&Value) -> &str =
            |group| group["metadata"]["name"].as_str().unwrap_or_default();
        own["items"] = insert(groups, remotes, is_custom, name, made, join_versions).into();
    }
    own
}

/// The index of OpenAPI v3.
pub(crate) fn openapi_v3_index(mut own: Value, remotes: &[Arc<Remote>]) -> Value {
    if let Some(paths) = own["paths"].as_object_mut() {
        for remote in remotes {
            match &remote.documents().openapi_v3 {
                Some(url) => paths.insert(remote.path(), json!({"serverRelativeURL": url})),
                None => paths.remove(&remote.path()),
            };
        }
    }
    own
}

/// The merged OpenAPI v2 document. This server's definitions take precedence.
pub(crate) fn openapi_v2(mut own: Value, others: &[Arc<Documents>]) -> Value {
    let mut add = |member: &str, more: &Map<String, Value>| {
        if let Some(members) = own[member].as_object_mut() {
            for (name, value) in more {
                if !members.contains_key(name) {
                    members.insert(name.clone(), value.clone());
                }
            }
        }
    };
    for other in others {
        if let Some((paths, definitions)) = &other.openapi_v2 {
            add("paths", paths);
            add("definitions", definitions);
        }
    }
    own
}
