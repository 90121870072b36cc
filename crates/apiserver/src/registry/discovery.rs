//! Discovery documents: aggregated (one document for all groups) and unaggregated.
//!
//! Aggregated documents are built once per snapshot of the registry, on request.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lockgate_go::json;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::document::Document;
use super::kube_version::VersionRank;
use super::{Resource, Snapshot, Subresource, api_version};

/// Aggregated documents built so far.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    core: OnceLock<Document>,
    groups: OnceLock<Document>,
}

impl Snapshot {
    /// The aggregated document of `/api` or `/apis`.
    pub(crate) fn aggregated_discovery(&self, core: bool) -> &Document {
        let cache = &self.discovery;
        let cell = if core { &cache.core } else { &cache.groups };
        cell.get_or_init(|| Document::new(json::to_string(&aggregate(self, core))))
    }
}

/// Groups in discovery order, each with its versions and their resources.
type Groups<'s> = Vec<(&'s str, Vec<(&'s str, Vec<&'s Resource>)>)>;

fn grouped(snapshot: &Snapshot) -> Groups<'_> {
    let mut groups: Groups<'_> = Vec::new();
    for resource in snapshot.resources() {
        let versions = match groups
            .iter()
            .position(|(group, _)| *group == resource.group())
        {
            Some(index) => &mut groups[index].1,
            None => {
                groups.push((resource.group(), Vec::new()));
                let last = groups.len() - 1;
                &mut groups[last].1
            }
        };
        match versions
            .iter_mut()
            .find(|(version, _)| *version == resource.version)
        {
            Some((_, resources)) => resources.push(resource),
            None => versions.push((&resource.version, vec![resource])),
        }
    }
    // CustomResourceDefinitions of one group may have different versions.
    for (_, versions) in &mut groups {
        let mut resources = versions.iter().flat_map(|(_, resources)| resources);
        if resources.all(|resource| resource.is_custom()) {
            versions.sort_by_key(|(version, _)| VersionRank::of(version));
        }
    }
    groups
}

/// The aggregated document of `/api` or `/apis`, as a tree.
pub(crate) fn aggregate(snapshot: &Snapshot, core: bool) -> Value {
    let groups = grouped(snapshot)
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core);
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|(version, resources)| {
                    let resources: Vec<Value> =
                        resources.into_iter().map(aggregated_resource).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({"name": group})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// The kind of a response. Built-in resources omit their own group and version.
///
/// UPSTREAM: apiserver pkg/endpoints/installer.go (ConvertGroupVersionIntoToDiscovery)
fn response_kind(resource: &Resource, [group, version, kind]: [&str; 3]) -> Value {
    let is_own = (group, version) == (resource.group(), resource.version.as_str());
    match is_own && !resource.is_custom() {
        true => json!({"group": "", "version": "", "kind": kind}),
        false => json!({"group": group, "version": version, "kind": kind}),
    }
}

fn aggregated_resource(resource: &Resource) -> Value {
    let names = &resource.names;
    let mut value = json!({
        "resource": names.plural,
        "responseKind": response_kind(resource, [resource.group(), &resource.version, resource.kind()]),
        "scope": if names.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": names.singular,
        "verbs": names.verbs,
    });
    if !names.short_names.is_empty() {
        value["shortNames"] = json!(names.short_names);
    }
    if !names.categories.is_empty() {
        value["categories"] = json!(names.categories);
    }
    let parts: Vec<Value> = resource
        .subresources
        .iter()
        .map(|part| {
            json!({
                "subresource": part.name,
                "responseKind": response_kind(resource, [&part.group, &part.version, &part.kind]),
                "verbs": part.verbs,
            })
        })
        .collect();
    if !parts.is_empty() {
        value["subresources"] = parts.into();
    }
    value
}

/// `/api`, unaggregated.
pub(crate) fn versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`, unaggregated.
pub(crate) fn group_list(snapshot: &Snapshot) -> Value {
    let groups = grouped(snapshot)
        .into_iter()
        .filter(|(group, _)| !group.is_empty());
    let groups: Vec<Value> = groups
        .map(|(group, versions)| group_value(group, &versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`.
pub(crate) fn group(snapshot: &Snapshot, name: &str) -> Option<Value> {
    let groups = grouped(snapshot);
    let (group, versions) = groups
        .iter()
        .find(|(group, _)| *group == name && !name.is_empty())?;
    let mut value = group_value(group, versions);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

fn group_value(group: &str, versions: &[(&str, Vec<&Resource>)]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(
            |(version, _)| json!({"groupVersion": api_version(group, version), "version": version}),
        )
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// `/api/v1` or `/apis/{group}/{version}`.
pub(crate) fn resource_list(snapshot: &Snapshot, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<&Resource> = snapshot
        .resources()
        .iter()
        .map(AsRef::as_ref)
        .filter(|resource| resource.group() == group && resource.version == version)
        .collect();
    if resources.is_empty() {
        return None;
    }
    let listed = resources.into_iter().flat_map(|resource| {
        std::iter::once(listed_resource(resource)).chain(
            resource
                .subresources
                .iter()
                .map(|part| listed_part(resource, part)),
        )
    });
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": api_version(group, version),
        "resources": listed.collect::<Vec<_>>(),
    });
    // UPSTREAM: apiserver pkg/endpoints/discovery/util.go: clients of the core group do not expect one there.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn listed_resource(resource: &Resource) -> Value {
    let names = &resource.names;
    let mut value = json!({
        "name": names.plural,
        "singularName": names.singular,
        "namespaced": names.namespaced,
        "kind": names.kind,
        "verbs": names.verbs,
    });
    if !names.short_names.is_empty() {
        value["shortNames"] = json!(names.short_names);
    }
    if !names.categories.is_empty() {
        value["categories"] = json!(names.categories);
    }
    // Only for stored resources.
    if names.verbs.iter().any(|verb| verb == "create") && names.verbs.len() > 1 {
        value["storageVersionHash"] = storage_version_hash(resource).into();
    }
    value
}

/// The hash of a resource's storage version.
///
/// UPSTREAM: apiserver pkg/endpoints/discovery/storageversionhash.go
fn storage_version_hash(resource: &Resource) -> String {
    let (group, version) = &resource.storage_version;
    let digest = Sha256::digest(format!("{group}/{version}/{}", resource.kind()));
    BASE64_STANDARD.encode(digest.get(..8).unwrap_or_default())
}

fn listed_part(resource: &Resource, part: &Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", resource.plural(), part.name),
        "singularName": "",
        "namespaced": resource.names.namespaced,
        "kind": part.kind,
        "verbs": part.verbs,
    });
    // Included only if it differs from the list's.
    if (part.group.as_str(), part.version.as_str()) != (resource.group(), resource.version.as_str())
    {
        if !part.group.is_empty() {
            value["group"] = part.group.clone().into();
        }
        value["version"] = part.version.clone().into();
    }
    value
}
