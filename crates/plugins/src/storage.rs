//! `DefaultStorageClass`, `PersistentVolumeClaimResize` and `StorageObjectInUseProtection`: classes, sizes and
//! finalizers of storage objects.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/storage/{storageclass/setdefault,persistentvolume/resize}

use std::cmp::Ordering;
use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use serde_json::{Value, json};

use crate::amounts::amounts;
use crate::fields::{annotation, at, is_on, list_mut, map_mut, text_at};
use crate::lookup::{Lookup, STORAGE_CLASSES, newest};
use crate::rules::{About, CREATE, Refusal, Rules, UPDATE, Verdict, object, old_object};

/// The legacy annotation for the class of a claim.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The annotations of the default class.
const IS_DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// Storage objects, and the finalizers that protect them while in use.
const PROTECTED: [(&str, &str); 3] = [
    ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("persistentvolumes", "kubernetes.io/pv-protection"),
    ("volumeattributesclasses", "kubernetes.io/vac-protection"),
];

/// Sets the default class on claims without one.
#[derive(Debug, Clone)]
pub struct DefaultStorageClass {
    lookup: Arc<dyn Lookup>,
}

impl DefaultStorageClass {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }
}

fn is_default(class: &Arc<Value>) -> bool {
    let mut keys = IS_DEFAULT.iter();
    keys.any(|key| annotation(class, key) == Some("true"))
}

impl Rules for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        const { &[About::core(CREATE, &["persistentvolumeclaims"])] }
    }

    async fn mutate(&self, _: &mut Admission, claim: &mut Value) -> Verdict {
        let has_class = at(claim, &["spec", "storageClassName"]).is_some()
            || annotation(claim, BETA_CLASS).is_some();
        if has_class {
            return Ok(());
        }
        let classes = self.lookup.list(STORAGE_CLASSES, "").await;
        let mut classes = classes.map_err(|error| Refusal::forbidden(error.to_string()))?;
        classes.retain(is_default);
        if let Some(name) = newest(&classes) {
            let spec = map_mut(claim, &["spec"])?;
            spec.insert(String::from("storageClassName"), Value::from(name));
        }
        Ok(())
    }
}

/// Denies the expansion of claims unless their class allows it.
#[derive(Debug, Clone)]
pub struct PersistentVolumeClaimResize {
    lookup: Arc<dyn Lookup>,
}

impl PersistentVolumeClaimResize {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }

    async fn can_grow(&self, old: &Value, new: &Value) -> bool {
        let class = class_of(new);
        if class.is_empty() || class != class_of(old) {
            return false;
        }
        let class = self.lookup.get(STORAGE_CLASSES, "", class).await;
        matches!(class, Ok(Some(class)) if is_on(&class, &["allowVolumeExpansion"]))
    }
}

fn class_of(claim: &Value) -> &str {
    annotation(claim, BETA_CLASS).unwrap_or_else(|| text_at(claim, &["spec", "storageClassName"]))
}

impl Rules for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn operations(&self) -> &'static [Operation] {
        UPDATE
    }

    fn validates(&self) -> &'static [About] {
        const { &[About::core(UPDATE, &["persistentvolumeclaims"])] }
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let (old, new) = (old_object(ask.request()), object(ask.request()));
        let path = ["spec", "resources", "requests"];
        let (before, after) = (amounts(old, &path)?, amounts(new, &path)?);
        let grows = match (before.get("storage"), after.get("storage")) {
            (_, None) => false,
            (None, Some(after)) => after.sign() > 0,
            (Some(before), Some(after)) => after.compare(before) == Ordering::Greater,
        };
        if !grows {
            return Ok(());
        }
        if text_at(old, &["status", "phase"]) != "Bound" {
            let message = "Only bound persistent volume claims can be expanded";
            return Err(Refusal::forbidden(message));
        }
        if self.can_grow(old, new).await {
            return Ok(());
        }
        let message = "only dynamically provisioned pvc can be resized and the storageclass that \
                       provisions the pvc must support resize";
        Err(Refusal::forbidden(message))
    }
}

/// Adds the finalizers that protect claims, volumes and VolumeAttributesClasses while in use.
///
/// UPSTREAM: kubernetes plugin/pkg/admission/storage/storageobjectinuseprotection
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageObjectInUseProtection;

impl Rules for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        const CLASSES: About = About {
            operations: CREATE,
            group: "storage.k8s.io",
            resources: &["volumeattributesclasses"],
        };
        const OBJECTS: About =
            About::core(CREATE, &["persistentvolumeclaims", "persistentvolumes"]);
        &[OBJECTS, CLASSES]
    }

    async fn mutate(&self, ask: &mut Admission, object: &mut Value) -> Verdict {
        let plural = ask.request().resource.resource.as_str();
        let Some((_, finalizer)) = PROTECTED.iter().find(|(name, _)| *name == plural) else {
            return Ok(());
        };
        let finalizers = list_mut(object, &["metadata", "finalizers"])?;
        if !finalizers.iter().any(|known| known == finalizer) {
            finalizers.push(json!(finalizer));
        }
        Ok(())
    }
}
