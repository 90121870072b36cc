//! Managed fields of the subresource `scale`.
//!
//! UPSTREAM: apimachinery pkg/util/managedfields/scalehandler.go

use std::collections::BTreeMap;

use serde_json::Value;

use super::element::Element;
use super::field_set::FieldSet;
use super::owners::{self, Id, ManagedFieldsError, Owner, Owners};

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
        let mut owners = Owners::decode(owners::list_of(parent).unwrap_or_default())?;
        owners.list.retain_mut(|owner| {
            let path = self.path(&owner.api_version);
            let owns = path.is_some_and(|path| owner.fields.contains(&path));
            owner.fields = replicas();
            SCALE_VERSION.clone_into(&mut owner.api_version);
            owns
        });
        Ok(owners.encode())
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
        let before = Owners::decode(owners::list_of(parent).unwrap_or_default())?;
        let of_scale = Owners::decode(owners::list_of(scale).unwrap_or_default())?;
        let mut of_scale = of_scale.into_map();
        let times: BTreeMap<Id, _> = before
            .list
            .iter()
            .map(|owner| (owner.id.clone(), owner.time))
            .collect();
        let mut after = BTreeMap::new();
        for mut owner in before.list {
            let Some(path) = self.path(&owner.api_version) else {
                continue;
            };
            if owner.fields.contains(&path) && of_scale.remove(&owner.id).is_none() {
                // Another manager now owns the replicas.
                let mut stolen = FieldSet::default();
                stolen.insert(path);
                owner.fields = owner.fields.difference(&stolen);
            }
            if !owner.fields.is_empty() {
                after.insert(owner.id.clone(), owner);
            }
        }
        let here = [Element::field("spec"), Element::field("replicas")];
        for owner in of_scale.into_values() {
            if !owner.fields.contains(&here) {
                continue;
            }
            let mut fields = FieldSet::default();
            fields.insert(self.path(api_version).unwrap_or_default());
            let owner = Owner {
                time: times.get(&owner.id).copied().flatten(),
                api_version: api_version.to_owned(),
                fields,
                ..owner
            };
            after.insert(owner.id.clone(), owner);
        }
        Ok(Owners::from(after).encode())
    }
}
