//! Managed fields of the subresource `scale`.
//!
//! UPSTREAM: apimachinery pkg/util/managedfields/scalehandler.go

use std::collections::BTreeMap;

use serde_json::Value;

use super::element::Element;
use super::field_set::FieldSet;
use super::managers::{self, Id, ManagedFieldsError, Manager, Managers};

const SCALE_VERSION: &str = "autoscaling/v1";

/// The paths of the replica count in the versions of a kind.
#[derive(Debug, Clone, Copy)]
pub struct ScalePaths<'a> {
    /// The versions, with the path of the replica count. Entries in other versions are dropped. The path is empty for
    /// a version without the subresource.
    pub versions: &'a [(&'a str, &'a [&'a str])],
}

fn steps(path: &[&str]) -> Vec<Element> {
    path.iter().map(|name| Element::field(name)).collect()
}

fn replicas() -> FieldSet {
    FieldSet::of(&[&["spec", "replicas"]])
}

impl ScalePaths<'_> {
    fn path(&self, api_version: &str) -> Option<Vec<Element>> {
        let found = self.versions.iter().find(|(name, _)| *name == api_version);
        found.map(|(_, path)| steps(path))
    }

    /// The managed fields of an object's scale.
    ///
    /// # Errors
    ///
    /// The managed fields of the object cannot be decoded.
    pub fn to_scale(&self, parent: &Value) -> Result<Option<Value>, ManagedFieldsError> {
        let mut managers = Managers::decode(managers::list_of(parent).unwrap_or_default())?;
        managers.list.retain_mut(|field_manager| {
            let path = self.path(&field_manager.api_version);
            let owns = path.is_some_and(|path| field_manager.fields.contains(&path));
            field_manager.fields = replicas();
            SCALE_VERSION.clone_into(&mut field_manager.api_version);
            owns
        });
        Ok(managers.encode())
    }

    /// The managed fields of an object after a write to its scale, in the version of the request.
    ///
    /// # Errors
    ///
    /// The managed fields of the object or of the scale cannot be decoded.
    pub fn to_parent(
        &self,
        parent: &Value,
        scale: &Value,
        api_version: &str,
    ) -> Result<Option<Value>, ManagedFieldsError> {
        let before = Managers::decode(managers::list_of(parent).unwrap_or_default())?;
        let of_scale = Managers::decode(managers::list_of(scale).unwrap_or_default())?;
        let mut of_scale = of_scale.into_map();
        let times: BTreeMap<Id, _> = before
            .list
            .iter()
            .map(|field_manager| (field_manager.id.clone(), field_manager.time))
            .collect();
        let mut after = BTreeMap::new();
        for mut field_manager in before.list {
            let Some(path) = self.path(&field_manager.api_version) else {
                continue;
            };
            if field_manager.fields.contains(&path) && of_scale.remove(&field_manager.id).is_none()
            {
                // Another manager now owns the replicas.
                let mut stolen = FieldSet::default();
                stolen.insert(path);
                field_manager.fields = field_manager.fields.difference(&stolen);
            }
            if !field_manager.fields.is_empty() {
                after.insert(field_manager.id.clone(), field_manager);
            }
        }
        let here = [Element::field("spec"), Element::field("replicas")];
        for field_manager in of_scale.into_values() {
            if !field_manager.fields.contains(&here) {
                continue;
            }
            let mut fields = FieldSet::default();
            fields.insert(self.path(api_version).unwrap_or_default());
            let field_manager = Manager {
                time: times.get(&field_manager.id).copied().flatten(),
                api_version: api_version.to_owned(),
                fields,
                ..field_manager
            };
            after.insert(field_manager.id.clone(), field_manager);
        }
        Ok(Managers::from(after).encode())
    }
}
