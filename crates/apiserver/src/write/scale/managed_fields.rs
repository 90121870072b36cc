//! The managed fields of a scale, derived from those of its object's replicas.

use lockgate_kinds::managed_fields::{
    FieldManager, Managed, ManagedFieldsError, OneVersion, ScalePaths, Shape as Owned,
};
use lockgate_kinds::typed::Type;
use serde_json::Value;

use crate::decode::options::WriteOptions;
use crate::error::{Outcome, internal};
use crate::metadata;
use crate::registry::{Resource, Shape, Snapshot};
use crate::write::managed_fields::not_applied;

/// The path of the replicas in every version of a resource.
pub(crate) struct Replicas(Vec<(String, Vec<String>)>);

impl Replicas {
    pub(crate) fn of(snapshot: &Snapshot, resource: &Resource) -> Self {
        let versions = snapshot
            .resources()
            .iter()
            .filter(|other| other.storage == resource.storage);
        let paths = versions.map(|version| {
            let path = match &version.shape {
                Shape::Custom(custom) => custom
                    .scale_paths()
                    .map(|paths| paths.spec_replicas.as_str()),
                _ => Some(".spec.replicas"),
            };
            let steps = path
                .unwrap_or_default()
                .split('.')
                .filter(|step| !step.is_empty());
            (
                version.api_version().to_owned(),
                steps.map(str::to_owned).collect(),
            )
        });
        Self(paths.collect())
    }

    fn with<T>(
        &self,
        then: impl FnOnce(&ScalePaths<'_>) -> Result<T, ManagedFieldsError>,
    ) -> Outcome<T> {
        let paths: Vec<(&str, Vec<&str>)> = self
            .0
            .iter()
            .map(|(version, path)| (version.as_str(), path.iter().map(String::as_str).collect()))
            .collect();
        let versions: Vec<(&str, &[&str])> = paths
            .iter()
            .map(|(version, path)| (*version, path.as_slice()))
            .collect();
        let paths = ScalePaths {
            versions: &versions,
        };
        then(&paths).map_err(|error| internal(&error.to_string()))
    }

    /// Sets the managed fields of a scale from those of its object's replicas.
    pub(crate) fn to_subresource(&self, parent: &Value, scale: &mut Value) -> Outcome<()> {
        let entries = self.with(|paths| paths.to_scale(parent))?;
        set(scale, entries);
        Ok(())
    }

    /// Sets the managed fields of an object from those of its written scale.
    pub(crate) fn to_parent(
        &self,
        object: &mut Value,
        old: &Value,
        scale: &Value,
        api_version: &str,
    ) -> Outcome<()> {
        let entries = self.with(|paths| paths.to_parent(old, scale, api_version))?;
        set(object, entries);
        Ok(())
    }
}

/// The field manager of scales.
fn manager(ty: Type) -> FieldManager<'static> {
    FieldManager {
        shape: Owned::BuiltIn(ty),
        api_version: "autoscaling/v1",
        kind: "Scale",
        subresource: "scale",
        reset: None,
        versions: &OneVersion,
    }
}

/// Updates the managed fields of a scale.
pub(crate) fn track(ty: Type, name: &str, live: &Value, new: Value) -> Managed {
    manager(ty).timed_update(Some(live), new, name, metadata::now())
}

/// Applies a configuration to a scale.
pub(crate) fn apply(
    ty: Type,
    options: &WriteOptions,
    live: &Value,
    configuration: &Value,
) -> Outcome<Managed> {
    let force = options.force.unwrap_or_default();
    let now = metadata::now();
    manager(ty)
        .timed_apply(
            Some(live),
            configuration,
            &options.field_manager,
            force,
            now,
        )
        .map_err(not_applied)
}

fn set(object: &mut Value, entries: Option<Value>) {
    metadata::change(object, |metadata| {
        match entries {
            Some(entries) => metadata.insert(String::from("managedFields"), entries),
            None => metadata.remove("managedFields"),
        };
    });
}
