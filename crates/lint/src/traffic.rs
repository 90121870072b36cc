//! Captured requests and the webhook calls they made, as rules look at them.
//!
//! Whoever reads a capture makes [`Exchange`]s of it: patches are applied there, and mutated objects validated.

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
    /// The object is the result of mutations that was sent once more.
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
    /// Validation errors of the object that it did not have before this call.
    pub invalid: Vec<String>,
    /// Unknown fields of the object that are gone after this call.
    pub dropped: Vec<String>,
    /// A digest of the object it was called with.
    pub before: u64,
    /// A digest of the object it left.
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
    /// The value, where it has one.
    pub value: Option<Json>,
    /// The kind of value that the patched object had there.
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

/// A field that a patch changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The field, as in `spec.containers[0].image`.
    pub path: String,
    /// The change.
    pub kind: ChangeKind,
}

/// A change of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeKind {
    /// It has this value.
    Set(Json),
    /// It is a list that got these items and kept its own.
    Added(Vec<Json>),
    /// It is gone.
    Removed,
}

impl Exchange {
    /// The request in a few words, as in `CREATE pods shop/web`.
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
    /// The webhook neither changed, denied nor failed the request.
    pub(crate) fn did_nothing(&self) -> bool {
        self.outcome == Outcome::Allowed && self.operations.is_empty()
    }
}
