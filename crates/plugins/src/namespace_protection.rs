//! `NamespaceProtection`: some namespaces stay.
//!
//! This is the part of upstream's `NamespaceLifecycle` that needs no knowledge of the server.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/namespace/lifecycle/admission.go

use std::sync::Arc;

use lockgate_webhook::{Context, Denial, Object, Operation, Validator, Verdict};
use serde::Deserialize;
use serde_json::Value;

use crate::ready::{Hook, ReadyMade, validates};

/// Which namespaces stay.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Configuration {
    /// Their names.
    pub namespaces: Vec<String>,
}

impl Default for Configuration {
    /// Those that upstream never deletes.
    fn default() -> Self {
        let names = ["default", "kube-system", "kube-public"];
        Self {
            namespaces: names.map(String::from).into(),
        }
    }
}

/// Refuses to delete namespaces that everything depends on.
#[derive(Debug, Clone, Default)]
pub struct NamespaceProtection {
    config: Arc<Configuration>,
}

impl NamespaceProtection {
    /// The plugin with a configuration.
    #[must_use]
    pub fn new(config: Configuration) -> Self {
        Self {
            config: Arc::new(config),
        }
    }
}

impl ReadyMade for NamespaceProtection {
    fn name(&self) -> &'static str {
        "NamespaceProtection"
    }

    fn webhooks(&self) -> Vec<Hook> {
        let about = (&[Operation::Delete][..], "", &["namespaces"][..]);
        let (mut registration, handler) = validates("namespace-protection", self.clone(), &[about]);
        // Exempting namespaces would exempt those that are to be protected.
        registration.webhook.namespace_selector = Some(Default::default());
        vec![(registration, handler)]
    }
}

impl Validator<Value> for NamespaceProtection {
    async fn delete(&self, ctx: &Context, _: &Object<Value>) -> Verdict {
        if self.config.namespaces.iter().any(|name| name == ctx.name()) {
            return Err(Denial::forbidden("this namespace may not be deleted").into());
        }
        Ok(())
    }
}
