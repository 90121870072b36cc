//! The context of a review: its request, and the warnings and annotations of the response.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource, ReviewVersion, UserInfo};
use serde::de::DeserializeOwned;

use crate::denial::Refusal;
use crate::object::Object;

/// The operation on the object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A creation.
    Create,
    /// An update.
    Update,
    /// A deletion.
    Delete,
    /// A connection to a subresource, such as `kubectl exec`.
    Connect,
    /// An operation that this version of the framework does not have.
    Other(String),
}

impl Operation {
    pub(crate) fn from_wire(name: &str) -> Self {
        match name {
            "CREATE" => Self::Create,
            "UPDATE" => Self::Update,
            "DELETE" => Self::Delete,
            "CONNECT" => Self::Connect,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The name in the API.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The facts of one request. Objects stay JSON text until they are decoded.
#[derive(Debug)]
pub(crate) struct RequestData {
    pub(crate) version: ReviewVersion,
    pub(crate) uid: String,
    pub(crate) kind: GroupVersionKind,
    pub(crate) resource: GroupVersionResource,
    pub(crate) sub_resource: String,
    pub(crate) request_kind: Option<GroupVersionKind>,
    pub(crate) request_resource: Option<GroupVersionResource>,
    pub(crate) request_sub_resource: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) operation: Operation,
    pub(crate) user: UserInfo,
    pub(crate) dry_run: bool,
    /// The range of the object in `body`.
    pub(crate) object: Option<Range<usize>>,
    pub(crate) old_object: Option<Range<usize>>,
    pub(crate) options: Option<Range<usize>>,
    pub(crate) body: Bytes,
}

/// One request.
pub struct Context {
    facts: RequestData,
    deadline: Option<Instant>,
    remarks: Mutex<Remarks>,
}

/// Warnings and audit annotations of a webhook.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
}

impl Context {
    pub(crate) fn new(facts: RequestData, deadline: Option<Instant>) -> Self {
        Self {
            facts,
            deadline,
            remarks: Mutex::default(),
        }
    }

    /// The uid of the review, which appears in the logs of both sides.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.facts.uid
    }

    /// The version of the review.
    #[must_use]
    pub fn version(&self) -> ReviewVersion {
        self.facts.version
    }

    /// The operation.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.facts.operation
    }

    /// The kind of the object in the review.
    #[must_use]
    pub fn kind(&self) -> &GroupVersionKind {
        &self.facts.kind
    }

    /// The resource that matched the rule.
    #[must_use]
    pub fn resource(&self) -> &GroupVersionResource {
        &self.facts.resource
    }

    /// The subresource; may be empty.
    #[must_use]
    pub fn sub_resource(&self) -> &str {
        &self.facts.sub_resource
    }

    /// The requested kind, which may be another version of [`kind`](Self::kind).
    #[must_use]
    pub fn request_kind(&self) -> &GroupVersionKind {
        self.facts.request_kind.as_ref().unwrap_or(&self.facts.kind)
    }

    /// The requested resource.
    #[must_use]
    pub fn request_resource(&self) -> &GroupVersionResource {
        let asked = self.facts.request_resource.as_ref();
        asked.unwrap_or(&self.facts.resource)
    }

    /// The requested subresource.
    #[must_use]
    pub fn request_sub_resource(&self) -> &str {
        &self.facts.request_sub_resource
    }

    /// The object's name; empty before the server has generated it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// The namespace; empty for cluster-scoped resources.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.facts.namespace
    }

    /// The requesting user.
    #[must_use]
    pub fn user(&self) -> &UserInfo {
        &self.facts.user
    }

    /// Returns `true` if the user is in a group.
    #[must_use]
    pub fn user_is_in(&self, group: &str) -> bool {
        let groups = self.facts.user.groups.as_deref().unwrap_or_default();
        groups.iter().any(|of_user| of_user == group)
    }

    /// Returns `true` for a dry run, in which webhooks must not have side effects.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.facts.dry_run
    }

    /// The time at which the API server stops waiting.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The remaining time until the deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// The new object as JSON. `None` on DELETE.
    #[must_use]
    pub fn object_text(&self) -> Option<&str> {
        self.text(self.facts.object.as_ref())
    }

    /// The stored object as JSON. `None` on CREATE and CONNECT.
    #[must_use]
    pub fn old_object_text(&self) -> Option<&str> {
        self.text(self.facts.old_object.as_ref())
    }

    /// The options of the operation as JSON: a `CreateOptions`, `DeleteOptions` and so on.
    #[must_use]
    pub fn options_text(&self) -> Option<&str> {
        self.text(self.facts.options.as_ref())
    }

    fn text(&self, range: Option<&Range<usize>>) -> Option<&str> {
        std::str::from_utf8(self.facts.body.get(range?.clone())?).ok()
    }

    /// Decodes the new object.
    ///
    /// # Errors
    ///
    /// The object is not a `K`; the error is a denial with the position.
    pub fn object<K: DeserializeOwned>(&self) -> Result<Option<Object<K>>, Refusal> {
        let object = self.object_text().map(|text| Object::read(text, "object"));
        object.transpose()
    }

    /// Decodes the stored object.
    ///
    /// # Errors
    ///
    /// The object is not a `K`; the error is a denial with the position.
    pub fn old_object<K: DeserializeOwned>(&self) -> Result<Option<Object<K>>, Refusal> {
        let object = self.old_object_text();
        object
            .map(|text| Object::read(text, "oldObject"))
            .transpose()
    }

    /// Decodes the options of the operation.
    ///
    /// # Errors
    ///
    /// The options are not an `O`; the error is a denial with the position.
    pub fn options<O: DeserializeOwned>(&self) -> Result<Option<Object<O>>, Refusal> {
        let options = self.options_text();
        options
            .map(|text| Object::read(text, "options"))
            .transpose()
    }

    /// Adds a warning for the client, with any decision. `kubectl` prints it.
    pub fn warn(&self, text: impl Into<String>) {
        self.remarks().warnings.push(text.into());
    }

    /// Adds an audit annotation. The server adds the webhook's name as a prefix of the key.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        self.remarks().audit_annotations.insert(key, value);
    }

    pub(crate) fn take_remarks(&self) -> Remarks {
        std::mem::take(&mut self.remarks())
    }

    fn remarks(&self) -> std::sync::MutexGuard<'_, Remarks> {
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without objects, which may contain secrets.
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("uid", &self.facts.uid)
            .field("operation", &self.facts.operation)
            .field("resource", &self.facts.resource)
            .field("sub_resource", &self.facts.sub_resource)
            .field("namespace", &self.facts.namespace)
            .field("name", &self.facts.name)
            .finish_non_exhaustive()
    }
}
