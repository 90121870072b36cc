//! `metadata.managedFields`: who owns which fields of an object, kept on every write.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/{create,update,patch}.go, and GetResetFields of the
//! strategies

use std::sync::Arc;

use lockgate_api::meta::status::StatusCause;
use lockgate_kinds::managed_fields::{
    ApplyError, FieldManager, FieldSet, Reset, Shape as Owned, Versions,
};
use serde_json::Value;

use crate::call::Call;
use crate::decode::options::WriteOptions;
use crate::error::{Failure, Outcome, apply_conflict, bad_request, internal, plain};
use crate::metadata;
use crate::registry::{Resource, Shape, Snapshot, split_api_version};
use crate::server::Server;

/// The longest name of an owner.
const MANAGER_MAX: usize = 128;

/// An object with its owners.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) object: Value,
    /// Whether this write is told of in them. Its time is then finer than JSON shows it.
    pub(crate) fine_times: bool,
}

/// Notes who owns the fields of a new or changed object. `live` is the object before.
pub(crate) fn track(
    server: &Server,
    call: &Call,
    resource: &Resource,
    options: &WriteOptions,
    live: Option<&Value>,
    object: Value,
) -> Tracked {
    let before = live.map(entries).unwrap_or_default().to_vec();
    let object = with_manager(server, call, resource, |manager| match manager {
        Some(manager) => manager.update(live, object, &name(call, options), metadata::now()),
        None => object,
    });
    Tracked::new(resource, object, &before)
}

/// Applies a configuration: the fields in it are its owner's from now on, and those that were in it
/// before and are not any more go.
pub(crate) fn apply(
    server: &Server,
    call: &Call,
    resource: &Resource,
    options: &WriteOptions,
    live: Option<&Value>,
    configuration: &Value,
) -> Outcome<Tracked> {
    let before = live.map(entries).unwrap_or_default().to_vec();
    let force = options.force.unwrap_or_default();
    let applied = with_manager(server, call, resource, |manager| {
        let manager = manager.ok_or_else(|| internal("the type of the object is unknown"))?;
        let now = metadata::now();
        manager
            .apply(live, configuration, &options.field_manager, force, now)
            .map_err(not_applied)
    })?;
    Ok(Tracked::new(resource, applied, &before))
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

/// Calls back with the field manager of an endpoint; none where owners are not tracked.
fn with_manager<T>(
    server: &Server,
    call: &Call,
    resource: &Resource,
    then: impl FnOnce(Option<FieldManager<'_>>) -> T,
) -> T {
    let Some(shape) = owned(&resource.shape) else {
        return then(None);
    };
    let subresource = call.target.subresource.as_str();
    let reset = reset(resource, subresource);
    let versions = OtherVersions {
        snapshot: server.registry.snapshot(),
        resource,
        reset: reset.as_ref(),
    };
    then(Some(FieldManager {
        shape,
        api_version: resource.api_version(),
        kind: resource.kind(),
        subresource,
        reset: reset.as_ref(),
        versions: &versions,
    }))
}

impl Tracked {
    fn new(resource: &Resource, object: Value, before: &[Value]) -> Self {
        let is_new = entries(&object).iter().any(|entry| !before.contains(entry));
        Self {
            fine_times: is_new && !resource.is_custom(),
            object,
        }
    }
}

/// The owners of an object.
pub(crate) fn entries(object: &Value) -> &[Value] {
    let list = metadata::of(object).and_then(|metadata| metadata.get("managedFields"));
    list.and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// What a client calls itself, or what it looks like.
pub(crate) fn name(call: &Call, options: &WriteOptions) -> String {
    if !options.field_manager.is_empty() {
        return options.field_manager.clone();
    }
    let agent = call
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok());
    let program = agent
        .unwrap_or_default()
        .split('/')
        .next()
        .unwrap_or_default();
    program
        .chars()
        .filter(|letter| !letter.is_control())
        .take(MANAGER_MAX)
        .collect()
}

/// The shape that owners of fields go by.
pub(crate) fn owned(shape: &Shape) -> Option<Owned<'_>> {
    match shape {
        Shape::Custom(custom) => Some(Owned::Custom(custom.schema())),
        _ => shape.merge_type().map(Owned::BuiltIn),
    }
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
    snapshot: Arc<Snapshot>,
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

    fn convert(&self, object: &Value, api_version: &str) -> Result<Option<Value>, String> {
        let Some(to) = self.find(api_version) else {
            return Ok(None);
        };
        if to.is_custom() {
            // Owners are tracked by name; what a webhook would make of the object is not asked.
            let mut object = object.clone();
            crate::encoding::set_type(&mut object, to.type_meta());
            return Ok(Some(object));
        }
        let told = object
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match self.find(told) {
            Some(from) => from.shape.convert(object, &to.shape).map(Some),
            None => Ok(None),
        }
    }

    /// What the endpoint resets has the same name in every version.
    fn reset(&self, _: &str) -> Option<&Reset> {
        self.reset
    }
}
