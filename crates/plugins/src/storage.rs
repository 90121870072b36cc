//! `DefaultStorageClass` and `PersistentVolumeClaimResize`: what claims get their storage from.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/storage/{storageclass/setdefault,persistentvolume/resize}

use std::cmp::Ordering;
use std::sync::Arc;

use lockgate_webhook::{Context, Denial, Mutator, Object, Operation, Validator, Verdict};
use serde_json::Value;

use crate::amounts::amounts;
use crate::fields::{annotation, at, is_on, map_mut, text_at};
use crate::lookup::{Lookup, STORAGE_CLASSES, name_of};
use crate::ready::{Hook, ReadyMade, mutates, validates};

/// The class of a claim, in the days before it had a member of its own.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Which class is the default.
const IS_DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

const CLAIMS: &[&str] = &["persistentvolumeclaims"];

/// Gives claims without a class the default one.
#[derive(Debug, Clone)]
pub struct DefaultStorageClass {
    lookup: Arc<dyn Lookup>,
}

impl DefaultStorageClass {
    /// The plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }
}

/// The newest default class. Of those that are equally old, the first by name.
fn default_class(classes: &[Arc<Value>]) -> Option<&str> {
    let is_default = |class: &&Arc<Value>| {
        IS_DEFAULT
            .iter()
            .any(|key| annotation(class, key) == Some("true"))
    };
    // The API writes times so that they sort as texts do.
    let age = |class: &Value| text_at(class, &["metadata", "creationTimestamp"]).to_owned();
    let newest = classes.iter().filter(is_default).max_by(|one, other| {
        let by_name = name_of(other).cmp(name_of(one));
        age(one).cmp(&age(other)).then(by_name)
    });
    newest.map(|class| name_of(class))
}

impl ReadyMade for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn webhooks(&self) -> Vec<Hook> {
        let about = (&[Operation::Create][..], "", CLAIMS);
        vec![mutates("default-storage-class", self.clone(), &[about])]
    }
}

impl Mutator<Value> for DefaultStorageClass {
    async fn mutate(&self, _: &Context, claim: &mut Value) -> Verdict {
        let has_class = at(claim, &["spec", "storageClassName"]).is_some()
            || annotation(claim, BETA_CLASS).is_some();
        if has_class {
            return Ok(());
        }
        let classes = self.lookup.list(STORAGE_CLASSES, "").await;
        let classes = classes.map_err(|error| Denial::forbidden(error.to_string()))?;
        if let Some(name) = default_class(&classes) {
            let spec = map_mut(claim, &["spec"])?;
            spec.insert(String::from("storageClassName"), Value::from(name));
        }
        Ok(())
    }
}

/// Lets claims grow only where their class can do that.
#[derive(Debug, Clone)]
pub struct PersistentVolumeClaimResize {
    lookup: Arc<dyn Lookup>,
}

impl PersistentVolumeClaimResize {
    /// The plugin.
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

impl ReadyMade for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn webhooks(&self) -> Vec<Hook> {
        let about = (&[Operation::Update][..], "", CLAIMS);
        vec![validates(
            "persistent-volume-claim-resize",
            self.clone(),
            &[about],
        )]
    }
}

impl Validator<Value> for PersistentVolumeClaimResize {
    async fn update(&self, _: &Context, old: &Object<Value>, new: &Object<Value>) -> Verdict {
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
            return Err(Denial::forbidden(message).into());
        }
        if self.can_grow(old, new).await {
            return Ok(());
        }
        let message = "only dynamically provisioned pvc can be resized and the storageclass that \
                       provisions the pvc must support resize";
        Err(Denial::forbidden(message).into())
    }
}
