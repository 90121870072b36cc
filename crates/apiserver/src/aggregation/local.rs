//! The APIServices of this server's own versions: for built-in versions from the start, for CustomResourceDefinitions
//! on creation.
//!
//! UPSTREAM: kubernetes cmd/kube-apiserver/app/aggregator.go, pkg/controlplane/apiserver/aggregator.go,
//! pkg/controlplane/controller/crdregistration; kube-aggregator pkg/controllers/autoregister

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::registry::Snapshot;

/// The label of APIServices that the server manages.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// The priorities of CustomResourceDefinitions: of the group, and of each version.
const CUSTOM: (i64, i64) = (1_000, 100);

/// A built-in group: name, priority, and versions with their priorities.
type Group = (&'static str, i64, &'static [(&'static str, i64)]);

const GROUPS: &[Group] = &[
    ("", 18_000, &[("v1", 1)]),
    ("apps", 17_800, &[("v1", 15)]),
    ("events.k8s.io", 17_750, &[("v1", 15), ("v1beta1", 5)]),
    (
        "authentication.k8s.io",
        17_700,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("authorization.k8s.io", 17_600, &[("v1", 15)]),
    (
        "autoscaling",
        17_500,
        &[("v1", 15), ("v2", 30), ("v2beta1", 9), ("v2beta2", 1)],
    ),
    (
        "batch",
        17_400,
        &[("v1", 15), ("v1beta1", 9), ("v2alpha1", 9)],
    ),
    (
        "certificates.k8s.io",
        17_300,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("networking.k8s.io", 17_200, &[("v1", 15), ("v1beta1", 9)]),
    ("policy", 17_100, &[("v1", 15), ("v1beta1", 9)]),
    ("rbac.authorization.k8s.io", 17_000, &[("v1", 15)]),
    (
        "storage.k8s.io",
        16_800,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("apiextensions.k8s.io", 16_700, &[("v1", 15)]),
    (
        "admissionregistration.k8s.io",
        16_700,
        &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)],
    ),
    ("scheduling.k8s.io", 16_600, &[("v1", 15), ("v1alpha2", 2)]),
    (
        "coordination.k8s.io",
        16_500,
        &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)],
    ),
    (
        "node.k8s.io",
        16_300,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("discovery.k8s.io", 16_200, &[("v1", 15), ("v1beta1", 12)]),
    (
        "resource.k8s.io",
        16_200,
        &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        16_100,
        &[
            ("v1", 21),
            ("v1beta3", 18),
            ("v1beta2", 15),
            ("v1beta1", 12),
            ("v1alpha1", 9),
        ],
    ),
    ("internal.apiserver.k8s.io", 16_000, &[("v1alpha1", 9)]),
    ("storagemigration.k8s.io", 15_800, &[("v1beta1", 9)]),
];

/// The management mode of an APIService.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Managed {
    /// Created at startup, and not changed afterwards.
    OnStart,
    /// Kept in the desired state.
    Always,
}

/// The contents of an APIService.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) managed: Option<Managed>,
    pub(crate) uid: String,
    priorities: Option<(i64, i64)>,
}

impl Registration {
    pub(super) fn read(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let number = |name: &str| object["spec"][name].as_i64();
        Self {
            managed: match metadata["labels"][MANAGED].as_str() {
                Some("onstart") => Some(Managed::OnStart),
                Some("true") => Some(Managed::Always),
                _ => None,
            },
            uid: text(&metadata["uid"]),
            priorities: number("groupPriorityMinimum").zip(number("versionPriority")),
        }
    }

    /// Returns true for the priorities of CustomResourceDefinitions.
    pub(crate) fn is_custom(&self) -> bool {
        self.priorities == Some(CUSTOM)
    }
}

/// The priority of a built-in or custom group.
pub(super) fn priority(group: &str, is_custom: bool) -> i64 {
    match GROUPS.iter().find(|(name, ..)| *name == group) {
        Some((_, priority, _)) => *priority,
        // The aggregator's own group comes first, and has no APIService.
        None if group == "apiregistration.k8s.io" => 20_000,
        None if is_custom => CUSTOM.0,
        None => 15_000,
    }
}

fn api_service(
    (group, version): (&str, &str),
    managed: &str,
    (group_priority, version_priority): (i64, i64),
) -> Value {
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}"), "labels": {MANAGED: managed}},
        "spec": {
            "version": version,
            "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
        },
    });
    // The core group has an empty name, which is omitted.
    if !group.is_empty() {
        object["spec"]["group"] = group.into();
    }
    object
}

/// The APIServices of the served built-in versions.
pub(crate) fn built_in(snapshot: &Snapshot) -> Vec<Value> {
    let mut found = Vec::new();
    for (group, group_priority, versions) in GROUPS {
        for (version, version_priority) in *versions {
            let is_it = |resource: &str, its: &str| resource == *group && its == *version;
            let mut resources = snapshot.resources().iter();
            if resources.any(|it| !it.is_custom() && is_it(it.group(), &it.version)) {
                let priorities = (*group_priority, *version_priority);
                found.push(api_service((group, version), "onstart", priorities));
            }
        }
    }
    found
}

/// The APIServices of CustomResourceDefinitions, by name.
pub(crate) fn custom(snapshot: &Snapshot) -> BTreeMap<String, Value> {
    let resources = snapshot.resources().iter().filter(|it| it.is_custom());
    resources
        .map(|it| {
            let name = format!("{}.{}", it.version, it.group());
            (name, (it.group(), it.version.as_str()))
        })
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .map(|(name, of)| (name, api_service(of, "true", CUSTOM)))
        .collect()
}
