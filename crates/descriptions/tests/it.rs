//! Coverage and cost of the descriptions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lockgate_kinds::openapi::Descriptions;
use lockgate_kinds::resource::resources;
use lockgate_kinds::typed::type_of;

#[test]
fn every_kind_that_is_served_is_described() {
    let descriptions = Descriptions::parse(lockgate_descriptions::text());
    let mut missing = Vec::new();
    for resource in resources() {
        let Some(ty) = type_of(resource.group, resource.version, resource.kind) else {
            continue;
        };
        let name = ty.model_name();
        // Upstream does not describe the metadata of every kind.
        for member in ["", "kind", "spec"] {
            let has = member.is_empty() || ty.field(member).is_some();
            if has && descriptions.of(name, member).is_none() {
                missing.push(format!("{name} {member}"));
            }
        }
    }
    // Versions that upstream no longer serves are not in k8s-openapi.
    missing.retain(|name| !name.contains("v1beta1"));
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn members_are_described_in_kubernetes_words() {
    let descriptions = Descriptions::parse(lockgate_descriptions::text());
    let image = descriptions.of("io.k8s.api.core.v1.Container", "image");
    assert!(image.unwrap().starts_with("Container image name."));
    // A description with several lines and quotes.
    let operator = descriptions.of("io.k8s.api.core.v1.NodeSelectorRequirement", "operator");
    assert!(operator.is_some());
    let time = descriptions.of("io.k8s.api.core.v1.PodCondition", "lastTransitionTime");
    assert!(time.is_some());
}

#[test]
fn descriptions_are_small_until_somebody_asks() {
    assert!(lockgate_descriptions::compressed_len() < 300_000);
    let text = lockgate_descriptions::text();
    assert!(text.len() > 500_000, "{}", text.len());
}
