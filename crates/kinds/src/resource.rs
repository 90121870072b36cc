//! The built-in resources, in discovery order.

use lockgate_api::kube_version::KubeVersion;

use crate::builtin::GROUPS;

pub use crate::kind::{FieldSelector, Generation, Resource, Subresource};
use crate::kind::{NAME, NAMESPACE};

/// The field selectors common to all kinds.
const COMMON_FIELDS: &[FieldSelector] = &[NAME, NAMESPACE];

/// All resources, in discovery order: the core group, then by group priority, version priority and name.
pub fn resources() -> impl Iterator<Item = &'static Resource> + Clone {
    GROUPS.iter().copied().flatten()
}

/// Resources that are newer than the oldest version, with the first version that serves them by default.
///
/// UPSTREAM: the discovery of kube-apiserver v1.36.4 with --emulated-version=1.33, 1.34 and 1.35
const SINCE: [(&str, &str, &str, KubeVersion); 7] = [
    (
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicies",
        KubeVersion::V1_36,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicybindings",
        KubeVersion::V1_36,
    ),
    ("resource.k8s.io", "v1", "deviceclasses", KubeVersion::V1_34),
    (
        "resource.k8s.io",
        "v1",
        "resourceclaims",
        KubeVersion::V1_34,
    ),
    (
        "resource.k8s.io",
        "v1",
        "resourceclaimtemplates",
        KubeVersion::V1_34,
    ),
    (
        "resource.k8s.io",
        "v1",
        "resourceslices",
        KubeVersion::V1_34,
    ),
    (
        "storage.k8s.io",
        "v1",
        "volumeattributesclasses",
        KubeVersion::V1_34,
    ),
];

/// Returns true if a server of this version serves a resource.
#[must_use]
pub fn is_served(resource: &Resource, version: KubeVersion) -> bool {
    let row = (resource.group, resource.version, resource.plural);
    let mut newer = SINCE.iter().filter(|(.., since)| *since > version);
    !newer.any(|(group, version, plural, _)| (*group, *version, *plural) == row)
}

/// The resource with this plural.
#[must_use]
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    resources().find(|resource| {
        resource.plural == plural && resource.group == group && resource.version == version
    })
}

/// The resource of this kind.
#[must_use]
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    resources().find(|resource| {
        resource.kind == kind && resource.group == group && resource.version == version
    })
}

/// The deprecation warning of a kind.
#[must_use]
pub fn deprecation_warning(resource: &Resource) -> Option<&'static str> {
    resource.rules.deprecation_warning()
}

/// The field selectors of a resource.
#[must_use]
pub fn field_selectors(resource: &Resource) -> &'static [FieldSelector] {
    resource.rules.field_selectors().unwrap_or(COMMON_FIELDS)
}

/// The field with this label, if it is selectable.
#[must_use]
pub fn field_selector(resource: &Resource, label: &str) -> Option<&'static FieldSelector> {
    field_selectors(resource)
        .iter()
        .find(|field| field.label == label)
}

/// The error message of an unsupported field selector.
#[must_use]
pub fn unsupported_field_label(resource: &Resource, label: &str) -> String {
    resource.rules.unsupported_field_label(label)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

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

    #[test]
    fn reads_fields_of_pods() {
        let pods = find("", "v1", "pods").unwrap();
        let pod = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"nodeName": "w", "hostNetwork": true},
            "status": {"podIPs": [{"ip": "10.0.0.1"}]},
        });
        for (label, want) in [
            ("metadata.name", "a"),
            ("spec.host", "w"),
            ("spec.hostNetwork", "true"),
            ("status.podIP", "10.0.0.1"),
            ("status.phase", ""),
        ] {
            assert_eq!(
                field_selector(pods, label).unwrap().read(&pod),
                want,
                "{label}"
            );
        }
        assert_eq!(
            field_selector(pods, "spec.hostNetwork")
                .unwrap()
                .read(&json!({})),
            "false"
        );
    }

    #[test]
    fn refuses_other_labels_in_the_words_of_the_kind() {
        let pods = find("", "v1", "pods").unwrap();
        assert!(field_selector(pods, "spec.foo").is_none());
        assert_eq!(
            unsupported_field_label(pods, "spec.foo"),
            "field label not supported: spec.foo"
        );
        assert_eq!(
            unsupported_field_label(find("", "v1", "configmaps").unwrap(), "spec.foo"),
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
    }

    #[test]
    fn events_answer_in_both_spellings() {
        let core = find("", "v1", "events").unwrap();
        let event = json!({"source": {"component": "kubelet"}, "involvedObject": {"name": "p"}});
        assert_eq!(
            field_selector(core, "source").unwrap().read(&event),
            "kubelet"
        );
        let new = find("events.k8s.io", "v1", "events").unwrap();
        assert!(field_selector(new, "involvedObject.name").is_none());
        assert!(field_selector(new, "regarding.name").is_some());
    }
}
