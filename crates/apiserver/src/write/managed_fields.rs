//! `metadata.managedFields`, updated on every write.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/{create,update,patch}.go, and GetResetFields of the
//! strategies

use std::cell::RefCell;
use std::sync::Arc;

use lockgate_api::admission::GroupVersionKind;
use lockgate_api::meta::status::StatusCause;
use lockgate_kinds::managed_fields::{
    ApplyError, BoxError, FieldManager, FieldSet, Managed, OneVersion, Reset, Shape as Owned,
    Versions,
};
use lockgate_kinds::typed::type_of;
use serde_json::Value;

use crate::conversion::invalid_version;
use crate::decode::options::WriteOptions;
use crate::encoding;
use crate::error::{Failure, Outcome, apply_conflict, bad_request, internal, plain};
use crate::metadata;
use crate::persist::Storage;
use crate::registry::shape_error::ShapeError;
use crate::registry::{
    Resource, Shape, Snapshot, api_version, go_kind, not_converted, split_api_version,
};
use crate::request::Request;
use crate::write::Writer;

/// An object with its managed fields.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) object: Value,
    /// True if this write set the time of an entry. Its timestamp then has a higher resolution than its JSON.
    pub(crate) fine_times: bool,
}

/// The endpoint of a write, with the versions of its resource.
pub(crate) struct Endpoint<'e> {
    snapshot: Arc<Snapshot>,
    storage: &'e Storage,
    resource: &'e Resource,
    subresource: &'e str,
}

impl<'e> Endpoint<'e> {
    pub(crate) fn of(writer: &'e Writer, request: &'e Request) -> Self {
        Self {
            snapshot: writer.registry.snapshot(),
            storage: &writer.storage,
            resource: &request.resource,
            subresource: request.subresource(),
        }
    }

    /// Updates the managed fields of a created or updated object. `live` is the object before the write.
    pub(crate) async fn track(
        &self,
        manager: &str,
        live: Option<&Value>,
        object: Value,
    ) -> Tracked {
        let now = metadata::now();
        let managed = self
            .with_manager(live, object, |fields, live, object| match fields {
                Some(fields) => fields.timed_update(live, object, manager, now),
                None => Managed {
                    object,
                    sets_time: false,
                },
            })
            .await;
        self.tracked(managed)
    }

    /// Applies a configuration: its manager owns the fields in it, and fields of its previous configuration that are
    /// absent now are removed.
    pub(crate) async fn apply(
        &self,
        options: &WriteOptions,
        live: Option<&Value>,
        configuration: &Value,
    ) -> Outcome<Tracked> {
        let force = options.force.unwrap_or_default();
        let now = metadata::now();
        let applied = self
            .with_manager(live, configuration, |fields, live, configuration| {
                let fields = fields.ok_or_else(|| internal("the type of the object is unknown"))?;
                fields
                    .timed_apply(live, configuration, &options.field_manager, force, now)
                    .map_err(not_applied)
            })
            .await?;
        Ok(self.tracked(applied))
    }

    fn tracked(&self, managed: Managed) -> Tracked {
        Tracked {
            fine_times: managed.sets_time && !self.resource.is_custom(),
            object: managed.object,
        }
    }

    /// Calls `then` with the field manager of the endpoint; `None` if fields are not managed. If conversions by a
    /// webhook are missing, calls the webhook and then `then` again, until none is missing.
    async fn with_manager<N: Clone, T>(
        &self,
        live: Option<&Value>,
        new: N,
        then: impl Fn(Option<FieldManager<'_>>, Option<&Value>, N) -> T,
    ) -> T {
        let Some(shape) = owned(&self.resource.shape) else {
            return then(None, live, new);
        };
        let reset = reset(self.resource, self.subresource);
        let mut known = Vec::new();
        loop {
            let (result, missing) = {
                let versions = OtherVersions {
                    snapshot: &self.snapshot,
                    resource: self.resource,
                    reset: reset.as_ref(),
                    known: &known,
                    missing: RefCell::default(),
                };
                let fields = FieldManager {
                    shape,
                    api_version: self.resource.api_version(),
                    kind: self.resource.kind(),
                    subresource: self.subresource,
                    reset: reset.as_ref(),
                    versions: &versions,
                };
                if !self.resource.has_conversion_webhook() {
                    return then(Some(fields), live, new);
                }
                let result = then(Some(fields), live, new.clone());
                (result, versions.missing.into_inner())
            };
            // The first missing conversion ended the run, and is now provided.
            let Some((object, from, to)) = missing else {
                return result;
            };
            let converted = self.storage.convert(object.clone(), &from, &to).await;
            known.push(Conversion {
                object,
                to: to.api_version().to_owned(),
                result: converted.map_err(|failure| failure.0.message),
            });
        }
    }
}

/// Updates the managed fields of an object that is sent to a subresource and not stored, such as a Binding.
pub(crate) fn track_part(
    request: &Request,
    kind: &GroupVersionKind,
    manager: &str,
    object: Value,
) -> Tracked {
    let Some(ty) = type_of(&kind.group, &kind.version, &kind.kind) else {
        return Tracked {
            object,
            fine_times: false,
        };
    };
    let fields = FieldManager {
        shape: Owned::BuiltIn(ty),
        api_version: &api_version(&kind.group, &kind.version),
        kind: &kind.kind,
        subresource: request.subresource(),
        reset: None,
        versions: &OneVersion,
    };
    let managed = fields.timed_update(None, object, manager, metadata::now());
    Tracked {
        fine_times: managed.sets_time,
        object: managed.object,
    }
}

/// The result of a conversion webhook.
struct Conversion {
    object: Value,
    to: String,
    result: Result<Value, String>,
}

pub(super) fn not_applied(error: ApplyError) -> Failure {
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

/// The error of decoding an applied object at this namespace and name.
pub(super) fn unreadable(
    (namespace, name): (&str, &str),
    (api_version, kind): (&str, &str),
    error: &ShapeError,
) -> Failure {
    plain(format!(
        "failed to convert new object ({namespace}/{name}; {}) to proper version: {}",
        go_kind(api_version, kind),
        not_converted(api_version, kind, error)
    ))
}

fn owned(shape: &Shape) -> Option<Owned<'_>> {
    shape.owned()
}

/// The fields that an endpoint resets.
fn reset(resource: &Resource, subresource: &str) -> Option<Reset> {
    let is_whole = matches!(subresource, "" | "finalize");
    if is_whole && resource.subresource("status").is_none() {
        return None;
    }
    let paths = resource.shape.kind().reset_fields(subresource);
    (!paths.is_empty()).then(|| Reset::Fields(FieldSet::of(paths)))
}

/// The other versions of a resource, served or not.
struct OtherVersions<'v> {
    snapshot: &'v Snapshot,
    resource: &'v Resource,
    reset: Option<&'v Reset>,
    /// The conversions by a webhook so far.
    known: &'v [Conversion],
    /// The first missing conversion.
    missing: RefCell<Option<Wanted>>,
}

/// A conversion to be done: an object, its version and the target version.
type Wanted = (Value, Arc<Resource>, Arc<Resource>);

impl OtherVersions<'_> {
    fn find(&self, api_version: &str) -> Option<Arc<Resource>> {
        let (group, version) = split_api_version(api_version);
        self.snapshot
            .defined(group, version, self.resource)
            .cloned()
    }

    /// Converts a custom resource to another version. Upstream rejects versions that the CustomResourceDefinition does
    /// not have.
    fn convert_custom(
        &self,
        object: &Value,
        from: Option<Arc<Resource>>,
        to: &str,
    ) -> Result<Value, String> {
        let target = self.find(to);
        let target = target.ok_or_else(|| invalid_version("to", to).0.message)?;
        let Some(from) = from else {
            return Err(invalid_version("from", api_version_of(object)).0.message);
        };
        if !target.has_conversion_webhook() {
            let mut object = object.clone();
            encoding::set_type(&mut object, target.type_meta());
            return Ok(object);
        }
        let mut known = self.known.iter();
        match known.find(|known| known.to == to && known.object == *object) {
            Some(known) => known.result.clone(),
            None => {
                let missing = (object.clone(), from, target);
                self.missing.borrow_mut().get_or_insert(missing);
                Err(String::from("the conversion webhook was not called yet"))
            }
        }
    }
}

fn api_version_of(object: &Value) -> &str {
    let told = object.get("apiVersion").and_then(Value::as_str);
    told.unwrap_or_default()
}

impl Versions for OtherVersions<'_> {
    fn shape(&self, api_version: &str) -> Option<Owned<'_>> {
        let (group, version) = split_api_version(api_version);
        owned(&self.snapshot.defined(group, version, self.resource)?.shape)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Option<Value>, BoxError> {
        let from = self.find(api_version_of(object));
        if self.resource.is_custom() {
            return Ok(Some(self.convert_custom(object, from, api_version)?));
        }
        match (from, self.find(api_version)) {
            (Some(from), Some(to)) => Ok(Some(from.shape.convert(object, &to.shape)?)),
            _ => Ok(None),
        }
    }

    /// The reset fields of the endpoint have the same names in every version.
    fn reset(&self, _: &str) -> Option<&Reset> {
        self.reset
    }
}
