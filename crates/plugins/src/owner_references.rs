//! `OwnerReferencesPermissionEnforcement`: setting owner references requires the permissions that follow from them.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/gc/gc_admission.go

use std::fmt;
use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::access::{Authorizer, Decision};
use lockgate_go::quote::quote;
use serde_json::Value;

use crate::access::{ResourceAttributes, authorize};
use crate::fields::{is_on, items, text};
use crate::rules::{About, Refusal, Rules, Verdict, WRITE, object, old_object};

/// The resource of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The plural name.
    pub plural: String,
    /// True if the resource is namespaced.
    pub namespaced: bool,
}

/// Resolves a kind to its resource.
pub trait Mapper: Send + Sync + 'static {
    /// The resource, if the kind is known.
    fn resource_of(&self, group: &str, version: &str, kind: &str) -> Option<Mapping>;
}

impl fmt::Debug for dyn Mapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mapper")
    }
}

/// Denies owner references to users who may not delete the object or block the deletion of the owner.
#[derive(Debug, Clone)]
pub struct OwnerReferencesPermissionEnforcement {
    authorizer: Arc<dyn Authorizer>,
    mapper: Arc<dyn Mapper>,
}

fn owners(object: &Value) -> &[Value] {
    items(object, &["metadata", "ownerReferences"])
}

fn blocks(owner: &Value) -> bool {
    is_on(owner, &["blockOwnerDeletion"])
}

/// The owners whose deletion is newly blocked.
fn newly_blocked<'v>(new: &'v Value, old: &Value) -> Vec<&'v Value> {
    let was_blocked = |owner: &Value| {
        let mut known = owners(old).iter();
        known.any(|known| text(known, "uid") == text(owner, "uid") && blocks(known))
    };
    let new = owners(new).iter();
    new.filter(|owner| blocks(owner) && !was_blocked(owner))
        .collect()
}

/// The reason and error of an authorizer's decision, in Go's format.
fn decision_text(decision: &Decision) -> String {
    let error = decision.error.as_deref().unwrap_or("<nil>");
    format!("{}, {error}", decision.reason)
}

impl OwnerReferencesPermissionEnforcement {
    /// Creates the plugin.
    #[must_use]
    pub fn new(authorizer: Arc<dyn Authorizer>, mapper: Arc<dyn Mapper>) -> Self {
        Self { authorizer, mapper }
    }

    fn check_delete(&self, request: &Request) -> Verdict {
        let attributes = ResourceAttributes {
            group: &request.resource.group,
            resource: &request.resource.resource,
            subresource: &request.subresource,
            namespace: &request.namespace,
            name: &request.name,
        };
        let decision = authorize(&self.authorizer, request, "delete", attributes);
        if decision.allowed {
            return Ok(());
        }
        Err(Refusal::forbidden(format!(
            "cannot set an ownerRef on a resource you can't delete: {}",
            decision_text(&decision)
        )))
    }

    fn check_owner(&self, request: &Request, owner: &Value) -> Verdict {
        let (api_version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some(mapping) = self.mapper.resource_of(group, version, kind) else {
            return Err(Refusal::forbidden(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for \
                 APIVersion {api_version} Kind {kind}: no matches for kind {} in version {}",
                quote(kind),
                quote(api_version)
            )));
        };
        let attributes = ResourceAttributes {
            group,
            resource: &mapping.plural,
            subresource: "finalizers",
            namespace: if mapping.namespaced {
                &request.namespace
            } else {
                ""
            },
            name: text(owner, "name"),
        };
        let decision = authorize(&self.authorizer, request, "update", attributes);
        if decision.allowed {
            return Ok(());
        }
        Err(Refusal::forbidden(format!(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set \
             finalizers on: {}",
            decision_text(&decision)
        )))
    }
}

impl Rules for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn validates(&self) -> &'static [About] {
        const EVERYTHING: About = About {
            operations: WRITE,
            group: "*",
            resources: &["*/*"],
        };
        &[EVERYTHING]
    }

    async fn validate(&self, ask_about: &mut Admission) -> Verdict {
        let request = ask_about.request();
        let resource = &request.resource;
        let is_pod_status = resource.group.is_empty()
            && resource.resource == "pods"
            && request.subresource == "status";
        let (old, new) = (old_object(request), object(request));
        if is_pod_status || owners(old) == owners(new) {
            return Ok(());
        }
        // Creating an object with owner references requires no permission to delete it.
        if request.operation != Operation::Create {
            self.check_delete(request)?;
        }
        let blocked = newly_blocked(new, old);
        if blocked.is_empty() {
            return Ok(());
        }
        let everything = ResourceAttributes {
            group: "*",
            resource: "*",
            subresource: "finalizers",
            namespace: "",
            name: "*",
        };
        if authorize(&self.authorizer, request, "update", everything).allowed {
            return Ok(());
        }
        blocked
            .into_iter()
            .try_for_each(|owner| self.check_owner(request, owner))
    }
}
