//! `ExtendedResourceToleration`: Pods that request a device tolerate the taints of nodes reserved for it.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/extendedresourcetoleration/admission.go

use std::collections::BTreeSet;

use lockgate_admission::plugin::Admission;
use lockgate_api::meta::names::check_qualified_name;
use serde_json::{Value, json};

use crate::fields::{CONTAINERS, items, list_mut, members, text};
use crate::rules::{About, PODS, Rules, Verdict};

/// Adds a toleration for every extended resource that a pod requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtendedResourceToleration;

/// Returns true for the name of an extended resource.
///
/// UPSTREAM: kubernetes pkg/apis/core/helper/helpers.go (IsExtendedResourceName)
pub(crate) fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native
        && !name.starts_with("requests.")
        && check_qualified_name(&format!("requests.{name}")).is_empty()
}

impl Rules for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn mutates(&self) -> &'static [About] {
        &[PODS]
    }

    async fn mutate(&self, _: &mut Admission, pod: &mut Value) -> Verdict {
        let containers = CONTAINERS
            .iter()
            .flat_map(|list| items(pod, &["spec", list]));
        let requested =
            containers.flat_map(|container| members(container, &["resources", "requests"]));
        let extended: BTreeSet<String> = requested
            .map(|(name, _)| name)
            .filter(|name| is_extended(name))
            .map(str::to_owned)
            .collect();
        for resource in extended {
            let toleration = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
            let tolerations = list_mut(pod, &["spec", "tolerations"])?;
            let same = |known: &&mut Value| {
                ["key", "operator", "value", "effect"]
                    .iter()
                    .all(|member| text(known, member) == text(&toleration, member))
            };
            match tolerations.iter_mut().find(same) {
                Some(known) => *known = toleration,
                None => tolerations.push(toleration),
            }
        }
        Ok(())
    }
}
