//! An object of a request: its JSON tree, and its JSON text built at most once.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lockgate_api::go::json;
use serde_json::Value;

/// A JSON object that is shared and never changes.
///
/// Every webhook of a phase is sent the same text, so it is written once, when it is first needed,
/// or never when the host kept the bytes it read.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    value: Value,
    text: OnceLock<Box<str>>,
}

impl Object {
    /// An object whose text is written when it is needed.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self(Arc::new(Inner {
            value,
            text: OnceLock::new(),
        }))
    }

    /// An object whose text is known already. The caller vouches that both say the same.
    #[must_use]
    pub fn with_text(value: Value, text: impl Into<Box<str>>) -> Self {
        Self(Arc::new(Inner {
            value,
            text: OnceLock::from(text.into()),
        }))
    }

    /// The tree.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0
            .text
            .get_or_init(|| json::to_string(&self.0.value).into_boxed_str())
    }

    /// A member of `metadata`, when it is a text.
    #[must_use]
    pub fn metadata_text(&self, member: &str) -> Option<&str> {
        self.value().get("metadata")?.get(member)?.as_str()
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.value()
            .get("metadata")?
            .get("labels")?
            .get(key)?
            .as_str()
    }

    /// Whether both are the very same object, not merely equal ones.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<Value> for Object {
    fn from(value: Value) -> Self {
        Self::new(value)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.same(other) || self.value() == other.value()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.value())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_its_text_once_in_the_form_of_go() {
        let object = Object::new(json!({"a": "<b>"}));
        assert_eq!(object.text(), r#"{"a":"\u003cb\u003e"}"#);
        assert_eq!(object.text().as_ptr(), object.clone().text().as_ptr());
    }

    #[test]
    fn keeps_the_text_it_was_given() {
        let object = Object::with_text(json!({"b": 1, "a": 2}), r#"{"b":1,"a":2}"#);
        assert_eq!(object.text(), r#"{"b":1,"a":2}"#);
    }
}
