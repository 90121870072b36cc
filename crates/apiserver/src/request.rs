//! A request after authorization. It is independent of the transport: recipes, controllers and startup manifests never
//! see headers, a query or bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockgate_admission::audit::{Annotations, Level};
use lockgate_admission::plugin::Admission;
use lockgate_admission::warnings::Warnings;
use lockgate_api::admission::UserInfo;
use lockgate_kinds::typed::Empties;
use serde_json::Value;

use crate::authz::Authorized;
use crate::http::request_info::{Target, Verb};
use crate::registry::Resource;

/// A request with an authorized target.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) resource: Arc<Resource>,
    pub(crate) authorized: Authorized,
    /// `None` for long-running requests, such as a watch.
    pub(crate) deadline: Option<Instant>,
    pub(crate) notes: Notes,
}

/// The path of an object: its resource, namespace, name and subresource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectPath<'o> {
    pub(crate) resource: &'o Arc<Resource>,
    pub(crate) namespace: &'o str,
    pub(crate) name: &'o str,
    pub(crate) subresource: &'o str,
}

/// The user of the server itself.
pub(crate) fn api_server() -> UserInfo {
    let groups = ["system:masters", "system:authenticated"];
    UserInfo {
        username: String::from("system:apiserver"),
        groups: Some(groups.map(String::from).to_vec()),
        ..UserInfo::default()
    }
}

impl Request {
    /// Warns the client if the kind is deprecated.
    pub(crate) fn warn_of_deprecation(&self) {
        if let Some(warning) = &self.resource.warning {
            self.notes.warn(warning);
        }
    }

    pub(crate) fn new(authorized: Authorized, resource: Arc<Resource>) -> Self {
        Self {
            resource,
            authorized,
            deadline: None,
            notes: Notes::default(),
        }
    }

    /// A request of the server itself.
    pub(crate) fn internal(user: UserInfo, verb: Verb, path: ObjectPath<'_>) -> Self {
        let resource = Arc::clone(path.resource);
        let target = Target {
            verb,
            group: resource.group().to_owned(),
            version: resource.version.clone(),
            namespace: path.namespace.to_owned(),
            resource: resource.plural().to_owned(),
            name: path.name.to_owned(),
            subresource: path.subresource.to_owned(),
            rest: Vec::new(),
        };
        Self::new(Authorized::internal(target, user), resource)
    }

    pub(crate) fn target(&self) -> &Target {
        self.authorized.target()
    }

    pub(crate) fn user(&self) -> &UserInfo {
        self.authorized.user()
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.target().namespace
    }

    pub(crate) fn name(&self) -> &str {
        &self.target().name
    }

    pub(crate) fn subresource(&self) -> &str {
        &self.target().subresource
    }

    /// The namespace that objects of the request must have.
    pub(crate) fn object_namespace(&self) -> &str {
        if self.resource.names.namespaced {
            self.namespace()
        } else {
            ""
        }
    }

    pub(crate) fn is_past_deadline(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// Warnings and audit annotations of a request.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Recorded>);

/// The recorded warnings and annotations.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) warnings: Warnings,
    pub(crate) annotations: Vec<Annotations>,
    empties: Empties,
    webhook_latency: Duration,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a warning to the response.
    pub(crate) fn warn(&self, text: &str) {
        self.lock().warnings.add(text);
    }

    /// Records the empty lists and maps in the request or from admission, which only validation uses.
    pub(crate) fn sent_with(&self, empties: Empties) {
        self.lock().empties = empties;
    }

    /// Restores empty lists and maps for validation.
    pub(crate) fn restore_empties(&self, object: &mut Value) {
        self.lock().empties.restore(object);
    }

    /// Returns true if the object was sent with an empty list of managed fields.
    pub(crate) fn resets_managed_fields(&self) -> bool {
        self.lock().empties.resets_managed_fields()
    }

    /// Returns true if labels that the server adds to the object's template are also labels of the object.
    pub(crate) fn shares_labels(&self) -> bool {
        self.lock().empties.shares_labels()
    }

    /// Adds an audit annotation of the server itself.
    pub(crate) fn annotate(&self, key: &str, value: &str) {
        let mut annotations = Annotations::default();
        // Keys of the server are well-formed.
        let _ = annotations.add(key, value, Level::Metadata);
        self.lock().annotations.push(annotations);
    }

    /// Adds the warnings and annotations of an admission run.
    pub(crate) fn add(&self, admission: &Admission) {
        let mut recorded = self.lock();
        for text in admission.warnings().texts() {
            recorded.warnings.add(text);
        }
        recorded.annotations.push(admission.annotations());
        let (mutating, validating) = admission.trace().webhook_latencies();
        recorded.webhook_latency += mutating + validating;
    }

    /// The time spent in webhooks so far.
    pub(crate) fn webhook_latency(&self) -> Duration {
        self.lock().webhook_latency
    }

    pub(crate) fn into_recorded(self) -> Recorded {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
