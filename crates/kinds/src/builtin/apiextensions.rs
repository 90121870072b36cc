//! The group `apiextensions.k8s.io`: CustomResourceDefinitions, whose validation is in [`crate::crd`].

use serde_json::Value;

use lockgate_api::field::FieldErrors;

use crate::crd;
use crate::kind::{
    CHANGE, Context, Deletion, Finalizers, Kind, NewStatus, Resource, ServerComponent, Written,
    cluster, sub,
};
use crate::object::{list, open, with};

const CUSTOM_RESOURCE_DEFINITIONS: Resource = cluster(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "customresourcedefinition",
    "CustomResourceDefinition",
    "CustomResourceDefinitionList",
    &Definition,
)
.in_etcd_as("apiextensions.k8s.io/customresourcedefinitions")
.short(&["crd", "crds"])
.categories(&["api-extensions"])
.subresources(&[sub(
    "status",
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    CHANGE,
)])
.conditional_update();

pub(super) static RESOURCES: [Resource; 1] = [CUSTOM_RESOURCE_DEFINITIONS];

/// The finalizer that keeps a definition until its custom resources are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The kind `CustomResourceDefinition`.
#[derive(Debug)]
struct Definition;

impl Kind for Definition {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Definitions)
    }

    fn apply_defaults(&self, value: &mut Value) {
        crd::defaults(value);
    }

    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn new_status(&self) -> NewStatus {
        // The strategy resets it.
        NewStatus::Sent
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        crd::prepare_create(value);
    }

    fn validate_create(&self, new: &Written<'_>, _context: &Context<'_>) -> FieldErrors {
        crd::validate_create(new.value)
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        crd::warnings_on_create(new.value)
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        match subresource {
            "status" => crd::prepare_status_update(value, old),
            _ => crd::prepare_update(value, old),
        }
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> FieldErrors {
        match subresource {
            "status" => crd::validate_status_update(new.value, old.value),
            _ => crd::validate_update(new.value, old.value),
        }
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        crd::warnings_on_update(new.value, old.value)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().in_steps()
    }

    fn begin_deletion(&self, value: &mut Value, context: &Context<'_>) {
        with(value, |object| {
            let Some(metadata) = open(object, "metadata") else {
                return;
            };
            let mut finalizers = list(metadata, "finalizers").to_vec();
            if !finalizers.iter().any(|name| name == CLEANUP_FINALIZER) {
                finalizers.push(CLEANUP_FINALIZER.into());
            }
            metadata.insert("finalizers".to_owned(), Value::Array(finalizers));
        });
        let condition = crd::Condition {
            condition_type: "Terminating",
            status: "True",
            reason: "InstanceDeletionPending",
            message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        };
        crd::set_condition(value, &condition, context.now);
    }
}
