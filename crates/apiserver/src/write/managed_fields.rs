//! `metadata.managedFields`, updated on every write.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/{create,update,patch}.go, and GetResetFields of the
//! strategies

use std::sync::Arc;

use lockgate_api::meta::status::StatusCause;
use lockgate_kinds::managed_fields::{
    ApplyError, BoxError, FieldManager, FieldSet, Reset, Shape as Owned, Versions,
};
use serde_json::Value;

use crate::decode::options::WriteOptions;
use crate::encoding;
use crate::error::{Failure, Outcome, apply_conflict, bad_request, internal, plain};
use crate::metadata;
use crate::registry::{Resource, Shape, Snapshot, split_api_version};
use crate::request::Request;
use crate::write::Writer;

/// An object with its managed fields.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) object: Value,
    /// Set if this write added an entry. Its time is then finer than JSON shows it.
    pub(crate) fine_times: bool,
}

/// A path to which objects are written, with the versions of its resource.
pub(crate) struct Endpoint<'e> {
    snapshot: Arc<Snapshot>,
    resource: &'e Resource,
    subresource: &'e str,
}

impl<'e> Endpoint<'e> {
    pub(crate) fn of(writer: &Writer, request: &'e Request) -> Self {
        Self {
            snapshot: writer.registry.snapshot(),
            resource: &request.resource,
            subresource: request.subresource(),
        }
    }

    /// Updates the managed fields of a new or changed object. `live` is the object before.
    pub(crate) fn track(&self, manager: &str, live: Option<&Value>, object: Value) -> Tracked {
        let before = live.map(entries).unwrap_or_default();
        let object = self.with_manager(|fields| match fields {
            Some(fields) => fields.update(live, object, manager, metadata::now()),
            None => object,
        });
        self.tracked(object, before)
    }

    /// Applies a configuration: its manager owns the fields in it, and fields that were in it before
    /// and are not any more are removed.
    pub(crate) fn apply(
        &self,
        options: &WriteOptions,
        live: Option<&Value>,
        configuration: &Value,
    ) -> Outcome<Tracked> {
        let before = live.map(entries).unwrap_or_default();
        let force = options.force.unwrap_or_default();
        let applied = self.with_manager(|fields| {
            let fields = fields.ok_or_else(|| internal("the type of the object is unknown"))?;
            let now = metadata::now();
            fields
                .apply(live, configuration, &options.field_manager, force, now)
                .map_err(not_applied)
        })?;
        Ok(self.tracked(applied, before))
    }

    fn tracked(&self, object: Value, before: &[Value]) -> Tracked {
        let is_new = entries(&object).iter().any(|entry| !before.contains(entry));
        Tracked {
            fine_times: is_new && !self.resource.is_custom(),
            object,
        }
    }

    /// Calls back with the field manager of the endpoint; none where fields are not managed.
    fn with_manager<T>(&self, then: impl FnOnce(Option<FieldManager<'_>>) -> T) -> T {
        let Some(shape) = owned(&self.resource.shape) else {
            return then(None);
        };
        let reset = reset(self.resource, self.subresource);
        let versions = OtherVersions {
            snapshot: &self.snapshot,
            resource: self.resource,
            reset: reset.as_ref(),
        };
        then(Some(FieldManager {
            shape,
            api_version: self.resource.api_version(),
            kind: self.resource.kind(),
            subresource: self.subresource,
            reset: reset.as_ref(),
            versions: &versions,
        }))
    }
}

fn not_applied(error: ApplyError) -> Failure {
    match error {
        ApplyError::Conflicts { message, causes } => {
            let causes = causes.into_iter().map(|cause| StatusCause {
                reason: String::from("FieldManagerConflict"),
                message: cause.message,
                field: cause.field,
            });
            apply_conflict(message, causes.collect())
        }
        ApplyError::BadRequest(message) => bad_request(message),
        ApplyError::Other(message) => plain(message),
    }
}

/// The managed fields of an object.
fn entries(object: &Value) -> &[Value] {
    let list = metadata::of(object).and_then(|metadata| metadata.get("managedFields"));
    list.and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn owned(shape: &Shape) -> Option<Owned<'_>> {
    shape.owned()
}

/// Fields that an endpoint does not let clients set.
fn reset(resource: &Resource, subresource: &str) -> Option<Reset> {
    let has_status = resource.subresource("status").is_some();
    let paths: &[&[&str]] = match subresource {
        "" | "finalize" if has_status => &[&["status"]],
        "status" if resource.is_custom() => &[&["metadata"], &["spec"]],
        "status" => &[&["spec"]],
        _ => return None,
    };
    Some(Reset::Fields(FieldSet::of(paths)))
}

/// The other versions of a resource, as they are served.
struct OtherVersions<'v> {
    snapshot: &'v Snapshot,
    resource: &'v Resource,
    reset: Option<&'v Reset>,
}

impl OtherVersions<'_> {
    fn find(&self, api_version: &str) -> Option<&Arc<Resource>> {
        let (group, version) = split_api_version(api_version);
        let found = self
            .snapshot
            .by_kind(group, version, self.resource.kind())?;
        (found.storage == self.resource.storage).then_some(found)
    }
}

impl Versions for OtherVersions<'_> {
    fn shape(&self, api_version: &str) -> Option<Owned<'_>> {
        owned(&self.find(api_version)?.shape)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Option<Value>, BoxError> {
        let Some(to) = self.find(api_version) else {
            return Ok(None);
        };
        if to.is_custom() {
            // Fields are tracked by name; the conversion webhook is not called.
            let mut object = object.clone();
            encoding::set_type(&mut object, to.type_meta());
            return Ok(Some(object));
        }
        let told = object
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match self.find(told) {
            Some(from) => Ok(Some(from.shape.convert(object, &to.shape)?)),
            None => Ok(None),
        }
    }

    /// The fields that the endpoint resets have the same names in every version.
    fn reset(&self, _: &str) -> Option<&Reset> {
        self.reset
    }
}
