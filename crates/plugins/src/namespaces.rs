//! `NamespaceExists` and `NamespaceAutoProvision`: handling of missing namespaces.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/namespace/{exists,autoprovision}/admission.go

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use serde_json::{Value, json};

use crate::lookup::{Lookup, NAMESPACES, Writes, namespace};
use crate::rules::{About, CREATE, Refusal, Rules, Verdict};

const CHANGES: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

/// Returns true if the request is for a namespaced resource.
fn is_in_namespace(request: &Request) -> bool {
    let is_namespace = request.kind.group.is_empty() && request.kind.kind == "Namespace";
    !request.namespace.is_empty() && !is_namespace
}

/// Denies writes to missing namespaces.
#[derive(Debug, Clone)]
pub struct NamespaceExists {
    lookup: Arc<dyn Lookup>,
}

impl NamespaceExists {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup) -> Self {
        Self {
            lookup: Arc::new(lookup),
        }
    }
}

impl Rules for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn operations(&self) -> &'static [Operation] {
        CHANGES
    }

    fn validates(&self) -> &'static [About] {
        const EVERYTHING: About = About {
            operations: CHANGES,
            group: "*",
            resources: &["*/*"],
        };
        &[EVERYTHING]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        if is_in_namespace(ask.request()) {
            namespace(&*self.lookup, &ask.request().namespace).await?;
        }
        Ok(())
    }
}

/// Creates the missing namespaces of new objects.
#[derive(Debug, Clone)]
pub struct NamespaceAutoProvision {
    lookup: Arc<dyn Lookup>,
    writes: Arc<dyn Writes>,
}

impl NamespaceAutoProvision {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup, writes: Arc<dyn Writes>) -> Self {
        Self {
            lookup: Arc::new(lookup),
            writes,
        }
    }
}

impl Rules for NamespaceAutoProvision {
    fn name(&self) -> &'static str {
        "NamespaceAutoProvision"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        const EVERYTHING: About = About {
            operations: CREATE,
            group: "*",
            resources: &["*/*"],
        };
        &[EVERYTHING]
    }

    async fn mutate(&self, ask: &mut Admission, _: &mut Value) -> Verdict {
        let request = ask.request();
        // Requests that store nothing create no namespace.
        if request.dry_run || !is_in_namespace(request) {
            return Ok(());
        }
        let name = request.namespace.as_str();
        if self.lookup.get(NAMESPACES, "", name).await?.is_some() {
            return Ok(());
        }
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name},
        });
        match self.writes.create(NAMESPACES, "", namespace).await {
            Ok(()) => Ok(()),
            Err(status) if status.reason == "AlreadyExists" => Ok(()),
            Err(status) => Err(Refusal::forbidden(status.message)),
        }
    }
}
