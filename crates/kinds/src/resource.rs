//! The resources that are served: one line each, in discovery order.
//!
//! Nothing here is derived at run time, and nothing here says what an object contains.

mod fields;
mod table;

pub use fields::{FieldSelector, field_selector, field_selectors, unsupported_field_label};

/// One resource of the API in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version inside the group.
    pub version: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// The name of one object, for clients.
    pub singular: &'static str,
    /// The kind of one object.
    pub kind: &'static str,
    /// The kind of a list.
    pub list_kind: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Abbreviations, for clients.
    pub short_names: &'static [&'static str],
    /// Groups of resources, for clients: `kubectl get all`.
    pub categories: &'static [&'static str],
    /// What can be done, in alphabetical order.
    pub verbs: &'static [&'static str],
    /// Parts with a path of their own, in alphabetical order.
    pub subresources: &'static [Subresource],
    /// Group, version and plural under which objects are stored. Resources that share it are views
    /// of one set of objects.
    pub storage: (&'static str, &'static str, &'static str),
    /// Whether a PUT on a missing object creates it.
    pub allow_create_on_update: bool,
    /// Whether a PUT without a resourceVersion overwrites whatever is there.
    pub allow_unconditional_update: bool,
    /// How `metadata.generation` is kept.
    pub generation: Generation,
    /// Whether deletion waits for a grace period.
    pub graceful: bool,
}

/// A part of an object with a path of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// The last segment of its path.
    pub name: &'static str,
    /// The group of the kind it speaks.
    pub group: &'static str,
    /// The version of the kind it speaks.
    pub version: &'static str,
    /// The kind it speaks.
    pub kind: &'static str,
    /// What can be done, in alphabetical order.
    pub verbs: &'static [&'static str],
}

/// How `metadata.generation` is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// It is whatever the client sent when the object was created.
    Untouched,
    /// It is 1, for ever.
    CreateOnly,
    /// It starts at 1 and rises when one of these members changes.
    Members(&'static [&'static str]),
    /// It starts with what the client sent and rises when one of these members changes.
    UpdateOnly(&'static [&'static str]),
}

impl Resource {
    /// The subresource called `name`.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|part| part.name == name)
    }

    /// `group/version`, or the version alone in the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Every resource, in discovery order: the core group, then groups by priority, versions by
/// priority, resources by name.
#[must_use]
pub fn resources() -> &'static [Resource] {
    &table::RESOURCES
}

/// The resource with this plural.
#[must_use]
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    resources().iter().find(|resource| {
        resource.plural == plural && resource.group == group && resource.version == version
    })
}

/// The resource whose objects are of this kind.
#[must_use]
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    resources().iter().find(|resource| {
        resource.kind == kind && resource.group == group && resource.version == version
    })
}

/// What clients of a kind are told that will not be there for ever.
///
/// UPSTREAM: api core/v1/zz_generated.prerelease-lifecycle.go
#[must_use]
pub fn deprecation_warning(resource: &Resource) -> Option<&'static str> {
    match (resource.group, resource.plural) {
        ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        ("", "endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_resource_is_found_by_plural_and_by_kind() {
        for resource in resources() {
            let Resource { group, version, .. } = *resource;
            assert_eq!(find(group, version, resource.plural), Some(resource));
            assert_eq!(by_kind(group, version, resource.kind), Some(resource));
        }
        assert_eq!(find("", "v2", "pods"), None);
    }

    #[test]
    fn sixty_one_resources_can_be_listed_beside_the_older_registrations() {
        let listable = resources()
            .iter()
            .filter(|resource| resource.verbs.contains(&"list") && resource.version != "v1beta1");
        assert_eq!(listable.count(), 61);
    }

    #[test]
    fn storage_names_a_resource_that_is_served() {
        for resource in resources() {
            let (group, version, plural) = resource.storage;
            assert!(find(group, version, plural).is_some(), "{resource:?}");
        }
        let hpa = find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        assert_eq!(hpa.storage.1, "v2");
    }

    #[test]
    fn short_names_are_unique_within_what_is_stored_once() {
        let mut seen = HashSet::new();
        for resource in resources() {
            for name in resource.short_names {
                let first = seen.insert((name, resource.storage));
                let shared =
                    resource.storage != (resource.group, resource.version, resource.plural);
                assert!(first || shared, "{name}");
            }
        }
    }

    #[test]
    fn verbs_and_subresources_are_sorted() {
        for resource in resources() {
            assert!(resource.verbs.is_sorted(), "{}", resource.plural);
            assert!(resource.subresources.is_sorted_by_key(|part| part.name));
            for part in resource.subresources {
                assert!(part.verbs.is_sorted());
                assert_eq!(resource.subresource(part.name), Some(part));
            }
        }
    }

    #[test]
    fn only_some_kinds_demand_a_resource_version() {
        let conditional = |group, plural| {
            !find(group, "v1", plural)
                .unwrap()
                .allow_unconditional_update
        };
        assert!(conditional("coordination.k8s.io", "leases"));
        assert!(conditional("policy", "poddisruptionbudgets"));
        assert!(!conditional("", "configmaps"));
        assert!(find("", "v1", "services").unwrap().allow_create_on_update);
        assert!(!find("", "v1", "pods").unwrap().allow_create_on_update);
    }
}
