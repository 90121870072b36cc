//! Updates the scale of an object. Admission runs for the `Scale`, not for the object.

mod managed_fields;

use std::sync::Arc;

use lockgate_admission::object::Object;
use lockgate_api::admission::UserInfo;
use lockgate_go::quote::quote;
use lockgate_kinds::kind;
use lockgate_kinds::typed::Type;
use serde_json::Value;

use crate::config::FeatureGates;
use crate::decode::body::Expected;
use crate::decode::options::FieldValidation;
use crate::decode::patch::Patch;
use crate::decode::write::{ScaleBody, ScaleChange};
use crate::error::{Failure, Outcome, conflict, plain, timeout};
use crate::metadata;
use crate::registry::scale;
use crate::registry::shape_error::ShapeError;
use crate::registry::{Resource, Shape, not_converted};
use crate::request::{Notes, ObjectPath, Request};
use crate::respond::Reply;
use crate::write::admission::Submission;
use crate::write::managed_fields::unreadable;
use crate::write::update::{check_name, check_stored_uid, set_without_admission};
use crate::write::{Persisted, Recipe, Writer, run, strategy};
use managed_fields::Replicas;

const KIND: (&str, &str) = ("autoscaling/v1", "Scale");

/// Sets the desired replicas of an object.
pub(crate) async fn set(writer: &Writer, request: &Request, mut body: ScaleBody) -> Outcome<Reply> {
    let resource = &request.resource;
    let mut replaced = String::new();
    if let ScaleChange::Replace(scale) = &mut body.change {
        check_name(scale, request.name())?;
        metadata::match_namespace(scale, request.namespace())?;
        if let Some(warning) = metadata::drop_duplicate_owner_references(scale, false) {
            request.notes.warn(&warning);
        }
        metadata::text(scale, "uid").clone_into(&mut replaced);
    }
    let shape = Shape::Plain(body.ty);
    let expected = Expected {
        group: "autoscaling",
        version: "v1",
        kind: "Scale",
        shape: &shape,
    };
    let replicas = Replicas::of(&writer.registry.snapshot(), resource);
    let path = ObjectPath {
        resource,
        namespace: request.namespace(),
        name: request.name(),
        subresource: "",
    };
    let validation = body.options.field_validation();
    loop {
        let mut unknown = Vec::new();
        let old = writer.storage.get(path).await?;
        if !replaced.is_empty() {
            let key = writer.storage.key(resource, path.namespace, path.name);
            check_stored_uid(path, &key, &replaced, &old, body.options.is_dry_run())?;
        }
        let mut old_scale = scale::of(resource, &old)?;
        replicas.to_subresource(&old, &mut old_scale)?;
        let live = scale::to_patch(resource, &old, old_scale.clone());
        let applied = match &body.change {
            ScaleChange::Patch {
                patch: Patch::Apply(configuration),
                ..
            } => {
                let applied = managed_fields::apply(body.ty, &body.options, &live, configuration)?;
                check_name(&applied.object, request.name())?;
                Some(applied)
            }
            _ => None,
        };
        let wanted = match &body.change {
            ScaleChange::Replace(scale) => scale.clone(),
            ScaleChange::Patch { patch, findings } => match &applied {
                Some(applied) => {
                    let decoded = shape.decode_merged(applied.object.clone());
                    let namespace = match patch {
                        Patch::Apply(configuration) => metadata::text(configuration, "namespace"),
                        _ => "",
                    };
                    let place = (namespace, request.name());
                    decoded.map_err(|error| unreadable(place, KIND, &error))?.0
                }
                None => {
                    let (scale, found) =
                        patch.apply_strictly(&live, expected, findings, validation)?;
                    unknown = found;
                    scale
                }
            },
        };
        if validation == FieldValidation::Warn {
            for finding in std::mem::take(&mut unknown) {
                request.notes.warn(&finding);
            }
        }
        let mut wanted = wanted;
        shape.complete_decoded(&mut wanted);
        metadata::match_namespace(&mut wanted, request.namespace())?;
        check_name(&wanted, request.name())?;
        let manager = body.options.manager();
        let (wanted, sets_time) = match applied {
            Some(applied) => (wanted, applied.sets_time),
            None => {
                let managed = managed_fields::track(body.ty, manager, &live, wanted);
                (managed.object, managed.sets_time)
            }
        };
        let submission = Submission::update(request, &body.options, Object::new(old_scale))
            .kind(body.kind.clone())
            .fine_times(sets_time)
            .object(wanted);
        let mut recipe = SetReplicas {
            writer,
            path,
            ty: body.ty,
            user: request.user(),
            notes: &request.notes,
            gates: writer.gates,
            replicas: &replicas,
            old,
            new: Value::Null,
            dry_run: body.options.is_dry_run(),
        };
        match run(&writer.admitter, request, submission, &mut recipe).await? {
            Some(scale) => return Ok(Reply::object(scale)),
            None if request.is_past_deadline() => return Err(timeout()),
            None => {}
        }
    }
}

/// The error for an object whose version differs from that of the scale.
fn mismatch(path: ObjectPath<'_>, version: &str) -> Failure {
    match version.parse::<u64>() {
        Ok(_) => path.resource.modified(path.name),
        Err(_) => plain(format!(
            "strconv.ParseUint: parsing {}: invalid syntax",
            quote(version)
        )),
    }
}

/// The recipe that stores an object with the replicas of an admitted scale. Its output is the new scale, or `None` on a
/// conflict.
struct SetReplicas<'s> {
    writer: &'s Writer,
    path: ObjectPath<'s>,
    ty: Type,
    user: &'s UserInfo,
    notes: &'s Notes,
    gates: FeatureGates,
    replicas: &'s Replicas,
    old: Value,
    /// The object with the replicas of the admitted scale.
    new: Value,
    dry_run: bool,
}

impl SetReplicas<'_> {
    /// The uid and resourceVersion in the admitted scale are preconditions for the object.
    ///
    /// UPSTREAM: pkg/registry/apps/deployment/storage/storage.go (scaleUpdatedObjectInfo)
    fn check_preconditions(&self, scale: &Value) -> Outcome<()> {
        let ObjectPath { resource, name, .. } = self.path;
        let (wanted, uid) = (
            metadata::text(scale, "uid"),
            metadata::text(&self.old, "uid"),
        );
        if !resource.is_custom() && !wanted.is_empty() && wanted != uid {
            let what = format!("{}/scale", resource.plural());
            let why = format!(
                "Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            );
            return Err(conflict(resource.group(), &what, name, &why));
        }
        let version = metadata::text(scale, "resourceVersion");
        match version {
            "" | "0" => Ok(()),
            version if version == metadata::text(&self.old, "resourceVersion") => Ok(()),
            version => Err(mismatch(self.path, version)),
        }
    }

    fn set(&self, object: &mut Value, scale: &Value) -> Outcome<()> {
        let resource: &Arc<Resource> = self.path.resource;
        let old = &self.old;
        scale::apply(resource, object, scale)?;
        self.replicas
            .to_parent(object, old, scale, resource.api_version())?;
        strategy::prepare_update(resource, "", object, old, self.user, self.gates);
        let namespaced = resource.names.namespaced;
        let [new, old] = [&*object, old].map(|object| kind::Written::new(object, namespaced));
        strategy::check_update(resource, "", &new, &old, self.gates)?;
        for warning in strategy::warnings_on_update(resource, "", &new, &old) {
            self.notes.warn(&warning);
        }
        Ok(())
    }
}

impl Recipe for SetReplicas<'_> {
    type Output = Option<Value>;

    fn prepare(&mut self, scale: &mut Value) -> Outcome<()> {
        let ObjectPath { resource, name, .. } = self.path;
        if resource.is_custom() {
            // Webhooks may have left any value.
            let decoded = self.ty.from_unstructured(scale.take());
            let (api_version, kind) = KIND;
            let decoded = decoded.map_err(|error| {
                plain(not_converted(api_version, kind, &ShapeError::from(error)))
            })?;
            *scale = decoded.value;
            let _left_out = self.ty.take_empties(scale);
        }
        if let Some(warning) = metadata::drop_duplicate_owner_references(scale, true) {
            self.notes.warn(&warning);
        }
        scale::check(resource, name, scale)?;
        self.check_preconditions(scale)?;
        let mut new = self.old.clone();
        self.set(&mut new, scale)?;
        // UPSTREAM: pkg/registry/apps/deployment/storage/storage.go (toScaleUpdateValidation): validating
        // admission sees the scale of the changed object, without the rest of the scale that was sent.
        *scale = scale::of(resource, &new)?;
        self.new = new;
        Ok(())
    }

    fn old(&self) -> Outcome<Option<Value>> {
        scale::of(self.path.resource, &self.old).map(Some)
    }

    fn name<'n>(&'n self, _: &'n Value) -> &'n str {
        self.path.name
    }

    async fn persist(&mut self, scale: Value) -> Outcome<Persisted<Option<Value>>> {
        let resource = self.path.resource;
        let mut new = self.new.take();
        let mut scale = scale;
        if resource.is_custom() {
            // Storage drops replicas that the schema does not have.
            let completed = resource.shape.complete(&mut new);
            completed.map_err(|error| plain(error.to_string()))?;
            scale = scale::of(resource, &new)?;
        }
        if self.dry_run {
            return Ok(Persisted::Done(Some(scale)));
        }
        let set = |object: &mut Value| {
            *object = new;
            Ok(())
        };
        let storage = &self.writer.storage;
        let changed = set_without_admission(storage, self.path, &self.old, set).await?;
        let changed = changed.map(|object| scale::of(self.path.resource, &object));
        changed.transpose().map(Persisted::Done)
    }
}
