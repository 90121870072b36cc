//! Captured requests and their webhook calls, as input of rules.
//!
//! The reader of a capture builds [`Exchange`]s: it applies patches and validates mutated objects.

use serde_json::Value as Json;

/// A request and its webhook calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exchange {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The group of the resource.
    pub group: String,
    /// The plural of the resource.
    pub resource: String,
    /// The subresource; may be empty.
    pub subresource: String,
    /// The namespace; may be empty.
    pub namespace: String,
    /// The name; may be empty.
    pub name: String,
    /// The user.
    pub username: String,
    /// True if the object is a mutation result that was sent again.
    pub again: bool,
    /// The calls, in order.
    pub calls: Vec<Call>,
}

/// A webhook call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Call {
    /// The configuration; empty where it is not known.
    pub configuration: String,
    /// The webhook.
    pub webhook: String,
    /// The round, from 1.
    pub round: u8,
    /// The outcome.
    pub outcome: Outcome,
    /// The operations of its patch.
    pub operations: Vec<PatchOperation>,
    /// The fields that its patch changed.
    pub changes: Vec<Change>,
    /// Validation errors of the object introduced by this call.
    pub invalid: Vec<String>,
    /// Unknown fields of the object dropped by this call.
    pub dropped: Vec<String>,
    /// A digest of the object in the request.
    pub before: u64,
    /// A digest of the resulting object.
    pub after: u64,
}

/// The outcome of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The webhook allowed the request.
    #[default]
    Allowed,
    /// The webhook denied the request with this message.
    Denied(String),
    /// The call failed with this error.
    Failed(String),
}

/// An operation of a JSON patch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PatchOperation {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
    pub op: String,
    /// A JSON pointer.
    pub path: String,
    /// The value, if any.
    pub value: Option<Json>,
    /// The kind of value at that path before the patch.
    pub replaced: Replaced,
}

/// The kind of value that a patch operation overwrites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replaced {
    /// None.
    #[default]
    Nothing,
    /// A scalar.
    Scalar,
    /// A list.
    List,
    /// A map.
    Map,
}

/// A field changed by a patch.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The field, such as `spec.containers[0].image`.
    pub path: String,
    /// The change.
    pub kind: ChangeKind,
}

/// A change to a field.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeKind {
    /// It was set to this value.
    Set(Json),
    /// These items were appended to the list.
    Added(Vec<Json>),
    /// It was removed.
    Removed,
}

impl Exchange {
    /// A short form of the request, such as `CREATE pods shop/web`.
    #[must_use]
    pub fn title(&self) -> String {
        let subresource = match self.subresource.as_str() {
            "" => String::new(),
            name => format!("/{name}"),
        };
        let object = match (self.namespace.as_str(), self.name.as_str()) {
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        let title = format!("{} {}{subresource} {object}", self.operation, self.resource);
        title.trim_end().to_owned()
    }
}

impl Call {
    /// Returns true if the webhook neither changed, denied nor failed the request.
    pub(crate) fn did_nothing(&self) -> bool {
        self.outcome == Outcome::Allowed && self.operations.is_empty()
    }
}
