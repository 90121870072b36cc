//! `DefaultIngressClass`: sets the default class on Ingresses without one.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/network/defaultingressclass/admission.go

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use serde_json::Value;

use crate::fields::{annotation, at, map_mut};
use crate::lookup::{INGRESS_CLASSES, Lookup, newest};
use crate::rules::{About, CREATE, Refusal, Rules, Verdict};

/// The annotation of the default class.
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The legacy annotation for the class of an Ingress.
const OLD_CLASS: &str = "kubernetes.io/ingress.class";

/// Sets the default class on Ingresses without one.
#[derive(Debug, Clone)]
pub struct DefaultIngressClass {
    lookup: Arc<dyn Lookup>,
}

impl DefaultIngressClass {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }
}

impl Rules for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        const INGRESSES: About = About {
            operations: CREATE,
            group: "networking.k8s.io",
            resources: &["ingresses"],
        };
        &[INGRESSES]
    }

    async fn mutate(&self, _: &mut Admission, ingress: &mut Value) -> Verdict {
        let has_class = at(ingress, &["spec", "ingressClassName"]).is_some()
            || annotation(ingress, OLD_CLASS).is_some();
        if has_class {
            return Ok(());
        }
        let classes = self.lookup.list(INGRESS_CLASSES, "").await;
        let mut classes = classes.map_err(|error| Refusal::forbidden(error.to_string()))?;
        classes.retain(|class| annotation(class, IS_DEFAULT) == Some("true"));
        if let Some(name) = newest(&classes) {
            let spec = map_mut(ingress, &["spec"])?;
            spec.insert(String::from("ingressClassName"), Value::from(name));
        }
        Ok(())
    }
}
