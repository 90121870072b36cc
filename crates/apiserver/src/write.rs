//! Write recipes, one per verb. `stages` has the order common to all.

pub(crate) mod admission;
pub(crate) mod bind;
mod budget;
pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod evict;
pub(crate) mod managed_fields;
pub(crate) mod patch;
pub(crate) mod scale;
mod stages;
pub(crate) mod strategy;
pub(crate) mod token_request;
pub(crate) mod update;

use std::sync::Arc;

use lockgate_admission::host::Namespaces as _;
use lockgate_api::access::Authorizer;
use serde_json::Value;

use crate::allocate::Addresses;
use crate::authz::rbac::Rbac;
use crate::authz::rbac::escalation::Guard;
use crate::config::FeatureGates;
use crate::error::Outcome;
use crate::namespaces::NamespaceCache;
use crate::persist::Storage;
use crate::policies::Access;
use crate::registry::Registry;
use crate::request::Request;
use crate::write::admission::Admitter;

pub(crate) use stages::{Persisted, Recipe, run};

/// The parts of the server that recipes use.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) storage: Storage,
    pub(crate) admitter: Admitter,
    pub(crate) registry: Arc<Registry>,
    /// Authorized again if an update creates a missing object.
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// The permissions of users, for escalation checks.
    pub(crate) rbac: Arc<Rbac>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) namespaces: Arc<NamespaceCache>,
    pub(crate) gates: FeatureGates,
}

impl Writer {
    /// Returns true if the namespace has the label for admin access to devices.
    fn grants_admin_access(&self, namespace: &str) -> bool {
        let namespace = self.namespaces.cached(namespace);
        namespace.is_some_and(|namespace| {
            let label = namespace.labels.get("resource.kubernetes.io/admin-access");
            label.is_some_and(|label| label == "true")
        })
    }

    /// Rejects roles and bindings that grant more permissions than their author has.
    fn confirm_no_escalation(
        &self,
        request: &Request,
        object: &Value,
        old: Option<&Value>,
    ) -> Outcome<()> {
        let guard = Guard {
            rbac: &self.rbac,
            authorizer: self.authorizer.as_ref(),
            user: request.user(),
            target: request.target(),
        };
        guard.check(object, old)
    }

    /// What is needed to check if a user may read policy parameters.
    fn access(&self) -> Access<'_> {
        Access {
            registry: &self.registry,
            authorizer: self.authorizer.as_ref(),
            engine: &self.admitter.engine,
        }
    }

    /// The same for controllers, whose writes do not wait for controllers.
    pub(crate) fn for_controllers(&self) -> Self {
        Self {
            storage: self.storage.without_waiting(),
            ..self.clone()
        }
    }
}
