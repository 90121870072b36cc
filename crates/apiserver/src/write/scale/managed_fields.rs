//! Who owns how many replicas there are: owners of an object, seen from its scale, and back.

use lockgate_kinds::managed_fields::{FieldManager, OneVersion, ScalePaths, Shape as Owned};
use lockgate_kinds::typed::Type;
use serde_json::Value;

use crate::call::Call;
use crate::decode::options::WriteOptions;
use crate::error::{Outcome, internal};
use crate::metadata;
use crate::registry::{Resource, Shape};
use crate::server::Server;
use crate::write::managed_fields;

/// Where the number of replicas stands, in every version of a resource.
pub(crate) struct Replicas(Vec<(String, Vec<String>)>);

impl Replicas {
    /// Those of a resource.
    pub(crate) fn of(server: &Server, resource: &Resource) -> Self {
        let snapshot = server.registry.snapshot();
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

    fn with<T>(&self, then: impl FnOnce(&ScalePaths<'_>) -> Result<T, String>) -> Outcome<T> {
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
        then(&paths).map_err(|error| internal(&error))
    }

    /// Shows the owners of the replicas of an object as owners of its scale.
    pub(crate) fn show(&self, parent: &Value, scale: &mut Value) -> Outcome<()> {
        let entries = self.with(|owners| owners.to_scale(parent))?;
        set(scale, entries);
        Ok(())
    }

    /// Takes the owners of a scale that was written back to its object.
    pub(crate) fn take_over(
        &self,
        object: &mut Value,
        old: &Value,
        scale: &Value,
        api_version: &str,
    ) -> Outcome<()> {
        let entries = self.with(|owners| owners.to_parent(old, scale, api_version))?;
        set(object, entries);
        Ok(())
    }
}

/// Notes who changed a scale.
pub(crate) fn track(
    call: &Call,
    ty: Type,
    options: &WriteOptions,
    live: &Value,
    new: Value,
) -> Value {
    let manager = FieldManager {
        shape: Owned::BuiltIn(ty),
        api_version: "autoscaling/v1",
        kind: "Scale",
        subresource: "scale",
        reset: None,
        versions: &OneVersion,
    };
    manager.update(
        Some(live),
        new,
        &managed_fields::name(call, options),
        metadata::now(),
    )
}

fn set(object: &mut Value, entries: Option<Value>) {
    metadata::change(object, |metadata| {
        match entries {
            Some(entries) => metadata.insert(String::from("managedFields"), entries),
            None => metadata.remove("managedFields"),
        };
    });
}
