//! JSON patches: built explicitly, or computed from a change.

mod align;
mod diff;
mod merge;

use std::fmt;

use lockgate_go::json;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub use merge::merge;

use crate::denial::Refusal;
use merge::Texts;

/// One operation of a patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Change {
    /// Adds a value, or inserts it before an existing list element.
    Add {
        /// The path.
        path: Pointer,
        /// The value.
        value: Value,
    },
    /// Removes a value.
    Remove {
        /// The path.
        path: Pointer,
    },
    /// Replaces a value.
    Replace {
        /// The path.
        path: Pointer,
        /// The value.
        value: Value,
    },
}

impl Change {
    /// The path.
    #[must_use]
    pub fn path(&self) -> &Pointer {
        match self {
            Self::Add { path, .. } | Self::Remove { path } | Self::Replace { path, .. } => path,
        }
    }
}

/// A JSON pointer to a value in a document.
///
/// ```
/// use lockgate_webhook::patch::Pointer;
///
/// let label = Pointer::root().child("metadata").child("labels").child("example.com/team");
/// assert_eq!(label.to_string(), "/metadata/labels/example.com~1team");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Pointer(String);

impl Pointer {
    /// The root of the document.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// A field of this object.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let mut text = String::with_capacity(self.0.len() + name.len() + 1);
        text.push_str(&self.0);
        text.push('/');
        for character in name.chars() {
            match character {
                '~' => text.push_str("~0"),
                '/' => text.push_str("~1"),
                other => text.push(other),
            }
        }
        Self(text)
    }

    /// An element of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}/{index}", self.0))
    }

    /// The position after the last element of this list.
    #[must_use]
    pub fn end(&self) -> Self {
        Self(format!("{}/-", self.0))
    }

    /// The pointer as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Pointer {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.serialize_str(&self.0)
    }
}

/// A sequence of changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch(Vec<Change>);

impl Patch {
    /// Computes the smallest patch from one document to another.
    ///
    /// ```
    /// use lockgate_webhook::patch::Patch;
    /// use serde_json::json;
    ///
    /// let patch = Patch::between(&json!({"list": ["b", "c"]}), &json!({"list": ["a", "b", "c"]}));
    /// assert_eq!(patch.to_json(), r#"[{"op":"add","path":"/list/0","value":"a"}]"#);
    /// ```
    #[must_use]
    pub fn between(from: &Value, to: &Value) -> Self {
        let mut patch = Self::default();
        diff::diff(from, to, &Pointer::root(), &mut patch.0);
        patch
    }

    /// Computes the patch of `sent` for a change of a typed view of it: the operations that yield the result of
    /// [`merge`]. All three are JSON texts.
    ///
    /// ```
    /// use lockgate_webhook::patch::Patch;
    ///
    /// let patch = Patch::of_view(r#"{"a": 1, "unknown": 2}"#, r#"{"a": 1}"#, r#"{"a": 3}"#).unwrap();
    /// assert_eq!(patch.to_json(), r#"[{"op":"replace","path":"/a","value":3}]"#);
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the texts are not JSON, or are nested more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels deep.
    pub fn of_view(sent: &str, before: &str, after: &str) -> Result<Self, Refusal> {
        let mut patch = Self::default();
        let texts = Texts {
            sent,
            before,
            after,
        };
        texts.changes(&Pointer::root(), &mut patch.0)?;
        Ok(patch)
    }

    /// Adds a value.
    #[must_use]
    pub fn add(mut self, path: Pointer, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.0.push(Change::Add { path, value });
        self
    }

    /// Removes a value.
    #[must_use]
    pub fn remove(mut self, path: Pointer) -> Self {
        self.0.push(Change::Remove { path });
        self
    }

    /// Replaces a value.
    #[must_use]
    pub fn replace(mut self, path: Pointer, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.0.push(Change::Replace { path, value });
        self
    }

    /// Sets a label of `object`, which may not have labels yet.
    #[must_use]
    pub fn set_label(self, object: &Value, key: &str, value: &str) -> Self {
        self.set_in_map(object, "labels", key, value)
    }

    /// Sets an annotation of `object`, which may not have annotations yet.
    #[must_use]
    pub fn set_annotation(self, object: &Value, key: &str, value: &str) -> Self {
        self.set_in_map(object, "annotations", key, value)
    }

    fn set_in_map(self, object: &Value, map: &str, key: &str, value: &str) -> Self {
        let place = Pointer::root().child("metadata").child(map);
        let made = |change: &Change| matches!(change, Change::Add { path, .. } if *path == place);
        let is_there = object.pointer(place.as_str()).is_some_and(Value::is_object);
        let patch = if is_there || self.0.iter().any(made) {
            self
        } else {
            self.add(place.clone(), Map::new())
        };
        patch.add(place.child(key), value)
    }

    /// The changes.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.0
    }

    /// The patch as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::to_string(&self.0)
    }
}
