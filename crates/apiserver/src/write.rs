//! Writing: one short recipe per verb. `stages` is the order that all of them share.

pub(crate) mod admission;
pub(crate) mod bind;
pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod evict;
mod managed_fields;
pub(crate) mod patch;
pub(crate) mod scale;
mod stages;
pub(crate) mod strategy;
pub(crate) mod token_request;
pub(crate) mod update;

use std::sync::Arc;

use lockgate_api::access::Authorizer;

use crate::allocate::Addresses;
use crate::config::FeatureGates;
use crate::persist::Storage;
use crate::registry::Registry;
use crate::write::admission::Admitter;

pub(crate) use stages::{Persisted, Recipe, run};

/// The parts of the server that recipes may touch.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) storage: Storage,
    pub(crate) admitter: Admitter,
    pub(crate) registry: Arc<Registry>,
    /// Asked again when an update creates the object it did not find.
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) gates: FeatureGates,
}

impl Writer {
    /// The same for controllers, whose writes do not wait for controllers.
    pub(crate) fn for_controllers(&self) -> Self {
        Self {
            storage: self.storage.without_waiting(),
            ..self.clone()
        }
    }
}
