//! The shared state of all controllers.

use std::sync::Arc;

use serde_json::Value;

use crate::addresses::Addresses;
use crate::api::{Api, Author, Edit, Rejected};
use crate::cache::Cache;
use crate::clocks::Clocks;
use crate::events::Recorder;
use crate::kind::Kind;
use crate::object::Object;
use crate::queue::Next;
use crate::settings::Settings;

/// The result of a reconciliation.
pub(crate) type Reconciled = Result<Next, Rejected>;

/// The shared state of all controllers.
pub(crate) struct Context {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) cache: Cache,
    pub(crate) events: Recorder,
    pub(crate) settings: Settings,
    pub(crate) clocks: Clocks,
    pub(crate) addresses: Addresses,
}

impl Context {
    /// Updates the status of an object if it differs. If the object has changed since it was read, nothing is
    /// written: the change is an event that triggers another reconciliation.
    pub(crate) async fn set_status(
        &self,
        by: &Author,
        object: &Object,
        status: Value,
    ) -> Result<(), Rejected> {
        if object.get("status") == Some(&status) {
            return Ok(());
        }
        let seen = &object["metadata"]["resourceVersion"];
        let edit = |object: &mut Value| {
            object["metadata"]["resourceVersion"] = seen.clone();
            object["status"] = status.clone();
        };
        let edited = self.api.edit(by, object.status(), &edit).await;
        ignore_not_found(edited.map(drop))
    }

    /// Updates an object, if it still exists.
    pub(crate) async fn edit(
        &self,
        by: &Author,
        object: &Object,
        edit: Edit<'_>,
    ) -> Result<(), Rejected> {
        let edited = self.api.edit(by, object.target(), edit).await;
        ignore_not_found(edited.map(drop))
    }

    /// Deletes an object, if it still exists.
    pub(crate) async fn delete(&self, by: &Author, object: &Object) -> Result<(), Rejected> {
        ignore_not_found(self.api.delete(by, object.target(), None).await)
    }

    /// Creates an object. Returns false if one with this name exists.
    pub(crate) async fn create_missing(
        &self,
        by: &Author,
        kind: Kind,
        object: Value,
    ) -> Result<bool, Rejected> {
        match self.api.create(by, kind, object).await {
            Ok(_) => Ok(true),
            Err(refused) if refused.is_already_exists() => Ok(false),
            Err(refused) => Err(refused),
        }
    }
}

/// A deleted or recreated object needs no processing.
pub(crate) fn ignore_not_found(result: Result<(), Rejected>) -> Result<(), Rejected> {
    match result {
        Err(refused) if refused.is_not_found() || refused.is_conflict() => Ok(()),
        other => other,
    }
}
