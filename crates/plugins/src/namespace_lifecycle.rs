//! `NamespaceLifecycle`: denies creation in missing or terminating namespaces, and deletion of system namespaces.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/namespace/lifecycle/admission.go

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockgate_admission::host::{Host, Namespace, NamespaceError};
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_admission::status;
use lockgate_api::meta::status::StatusCause;
use serde_json::Value;

use crate::rules::{About, Refusal, Rules, Verdict};

/// Namespaces that cannot be deleted.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];
/// The time after a namespace deletion for which the namespace is read from storage.
const FORCE_LIVE_LOOKUP_TTL: Duration = Duration::from_secs(30);
/// The maximum number of remembered namespaces.
const MAX_FORCED_LOOKUPS: usize = 100;
/// The time for a cache to observe a newly created namespace.
const MISSING_NAMESPACE_WAIT: Duration = Duration::from_millis(50);

/// Denies writes that are inconsistent with the state of their namespace.
#[derive(Debug)]
pub struct NamespaceLifecycle {
    host: Host,
    immortal: BTreeSet<String>,
    /// Namespaces on which the cache may be stale, with the time until when.
    forced_lookups: Mutex<Vec<(String, Instant)>>,
}

impl NamespaceLifecycle {
    /// Protects the system namespaces from deletion.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self::protecting(host, IMMORTAL_NAMESPACES)
    }

    /// Protects these namespaces from deletion.
    #[must_use]
    pub fn protecting<'n>(host: Host, names: impl IntoIterator<Item = &'n str>) -> Self {
        Self {
            host,
            immortal: names.into_iter().map(str::to_owned).collect(),
            forced_lookups: Mutex::default(),
        }
    }

    async fn decide(&self, request: &Request) -> Verdict {
        let is_namespace = request.kind.group.is_empty() && request.kind.kind == "Namespace";
        let is_delete = request.operation == Operation::Delete;
        if is_namespace {
            if is_delete && self.immortal.contains(&request.name) {
                let why = "this namespace may not be deleted";
                return Err(Refusal::forbidden(why));
            }
            if is_delete {
                self.force_live_lookup(&request.name);
            }
            return Ok(());
        }
        // Access reviews must not reveal if a namespace exists.
        let is_access_review = request.resource.group == "authorization.k8s.io"
            && request.resource.resource == "localsubjectaccessreviews";
        if request.namespace.is_empty() || is_delete || is_access_review {
            return Ok(());
        }
        if !self.wait_until_ready().await {
            return Err(Refusal::Status(Box::new(status::not_ready(request))));
        }
        match self.look_up(request).await {
            Err(NamespaceError::NotFound(status)) => Err(Refusal::Status(status)),
            Err(NamespaceError::Failed(why)) => Err(Refusal::Fault(why)),
            // Unknown variants of the error are not missing namespaces.
            Err(_) => Err(Refusal::Fault(String::from("the namespace cannot be told"))),
            Ok(namespace) if namespace.terminating && request.operation == Operation::Create => {
                Err(terminating(request))
            }
            Ok(_) => Ok(()),
        }
    }

    async fn look_up(&self, request: &Request) -> Result<Arc<Namespace>, NamespaceError> {
        let name = request.namespace.as_str();
        let namespaces = &self.host.namespaces;
        let mut cached = namespaces.cached(name);
        if cached.is_none() && request.operation == Operation::Create {
            tokio::time::sleep(MISSING_NAMESPACE_WAIT).await;
            cached = namespaces.cached(name);
        }
        match cached {
            // The cache may not have observed the deletion yet.
            Some(namespace) if namespace.terminating || !self.needs_live_lookup(name) => {
                Ok(namespace)
            }
            _ => namespaces.fetch(name).await,
        }
    }

    async fn wait_until_ready(&self) -> bool {
        let wait = async {
            while !self.host.namespaces.synced() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), wait).await;
        waited.is_ok() || self.host.namespaces.synced()
    }

    fn force_live_lookup(&self, name: &str) {
        let until = self.host.clock.now() + FORCE_LIVE_LOOKUP_TTL;
        let mut forced_lookups = self
            .forced_lookups
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        forced_lookups.retain(|(known, _)| known != name);
        if forced_lookups.len() >= MAX_FORCED_LOOKUPS {
            forced_lookups.remove(0);
        }
        forced_lookups.push((name.to_owned(), until));
    }

    fn needs_live_lookup(&self, name: &str) -> bool {
        let now = self.host.clock.now();
        let forced_lookups = self
            .forced_lookups
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        forced_lookups
            .iter()
            .any(|(known, until)| known == name && now < *until)
    }
}

fn terminating(request: &Request) -> Refusal {
    let namespace = &request.namespace;
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let cause = StatusCause {
        reason: String::from("NamespaceTerminating"),
        message: format!("namespace {namespace} is being terminated"),
        field: String::from("metadata.namespace"),
    };
    Refusal::Forbidden(why, vec![cause])
}

/// All operations except CONNECT.
const OPERATIONS: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

impl Rules for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn operations(&self) -> &'static [Operation] {
        OPERATIONS
    }

    fn mutates(&self) -> &'static [About] {
        const EVERYTHING: About = About {
            operations: OPERATIONS,
            group: "*",
            resources: &["*/*"],
        };
        &[EVERYTHING]
    }

    async fn mutate(&self, ask: &mut Admission, _: &mut Value) -> Verdict {
        self.decide(ask.request()).await
    }
}
