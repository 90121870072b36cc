//! `NamespaceProtection`: protects namespaces from deletion.
//!
//! This is the part of upstream's `NamespaceLifecycle` that needs no server state.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/namespace/lifecycle/admission.go

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Operation;
use serde::Deserialize;

use crate::rules::{About, Refusal, Rules, Verdict};

const DELETE: &[Operation] = &[Operation::Delete];

/// The protected namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Configuration {
    /// Their names.
    pub namespaces: Vec<String>,
}

impl Default for Configuration {
    /// The namespaces that upstream never deletes.
    fn default() -> Self {
        let names = ["default", "kube-system", "kube-public"];
        Self {
            namespaces: names.map(String::from).into(),
        }
    }
}

/// Denies the deletion of essential namespaces.
#[derive(Debug, Clone, Default)]
pub struct NamespaceProtection {
    config: Arc<Configuration>,
}

impl NamespaceProtection {
    /// Creates the plugin.
    #[must_use]
    pub fn new(config: Configuration) -> Self {
        Self {
            config: Arc::new(config),
        }
    }
}

impl Rules for NamespaceProtection {
    fn name(&self) -> &'static str {
        "NamespaceProtection"
    }

    fn operations(&self) -> &'static [Operation] {
        DELETE
    }

    fn validates(&self) -> &'static [About] {
        const { &[About::core(DELETE, &["namespaces"])] }
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let mut protected = self.config.namespaces.iter();
        if protected.any(|name| *name == ask.request().name) {
            return Err(Refusal::forbidden("this namespace may not be deleted"));
        }
        Ok(())
    }
}
