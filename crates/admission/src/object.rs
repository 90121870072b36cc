//! An object of a request: its JSON tree, and its JSON text, encoded at most once.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use lockgate_go::json;
use serde_json::{Map, Value};

/// A shared, immutable JSON object.
///
/// Every webhook of a phase receives the same text, so it is encoded once, on first use, or never if the host provides
/// the bytes it read.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    value: Value,
    text: OnceLock<Box<str>>,
    unwritten: Option<Unwritten>,
}

/// Host-specific state of an object that its tree does not represent, such as empty lists.
pub type Unwritten = Arc<dyn Any + Send + Sync>;

/// A clone is made in order to be changed: it has no text yet.
impl Clone for Inner {
    fn clone(&self) -> Self {
        Self {
            value: self.value.clone(),
            text: OnceLock::new(),
            unwritten: self.unwritten.clone(),
        }
    }
}

impl Object {
    /// Creates an object whose text is encoded on first use.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self(Arc::new(Inner {
            value,
            text: OnceLock::new(),
            unwritten: None,
        }))
    }

    /// Creates an object with host-specific state.
    #[must_use]
    pub fn with_unwritten(value: Value, unwritten: Option<Unwritten>) -> Self {
        Self(Arc::new(Inner {
            value,
            text: OnceLock::new(),
            unwritten,
        }))
    }

    /// Creates an object with its text. The caller guarantees that they are equivalent.
    #[must_use]
    pub fn with_text(value: Value, text: impl Into<Box<str>>) -> Self {
        Self(Arc::new(Inner {
            value,
            text: OnceLock::from(text.into()),
            unwritten: None,
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
            .get_or_init(|| json::value_to_string(&self.0.value).into_boxed_str())
    }

    /// The state that the tree does not represent.
    #[must_use]
    pub fn unwritten(&self) -> Option<&Unwritten> {
        self.0.unwritten.as_ref()
    }

    /// The tree, copied only if it is shared.
    #[must_use]
    pub fn into_value(self) -> Value {
        Arc::try_unwrap(self.0).map_or_else(|shared| shared.value.clone(), |inner| inner.value)
    }

    /// The mutable tree, copied only if it is shared.
    pub fn value_mut(&mut self) -> &mut Value {
        let inner = Arc::make_mut(&mut self.0);
        inner.text.take();
        &mut inner.value
    }

    /// A string field of `metadata`.
    #[must_use]
    pub fn metadata_text(&self, member: &str) -> Option<&str> {
        self.value().get("metadata")?.get(member)?.as_str()
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        find(self.labels()?, key)?.as_str()
    }

    /// The labels, if any.
    pub(crate) fn labels(&self) -> Option<&Map<String, Value>> {
        let metadata = find(self.value().as_object()?, "metadata")?.as_object()?;
        find(metadata, "labels")?.as_object()
    }

    /// Returns `true` if both are the same allocation, not merely equal.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A field of a map whose few keys mostly differ in length. A tree search compares whole keys, in order.
pub(crate) fn find<'m>(map: &'m Map<String, Value>, key: &str) -> Option<&'m Value> {
    if map.len() > SMALL {
        return map.get(key);
    }
    first_named(map.iter(), key)
}

/// Maps up to this size are searched linearly.
pub(crate) const SMALL: usize = 32;

/// The first value of a key. Selectors look up labels for every webhook, so a special search is worthwhile.
#[inline]
pub(crate) fn first_named<'m, V>(
    mut entries: impl Iterator<Item = (&'m String, &'m V)>,
    key: &str,
) -> Option<&'m V> {
    entries
        .find(|(known, _)| same_text(known, key))
        .map(|(_, value)| value)
}

/// Compares two short strings inline.
#[inline]
pub(crate) fn same_text(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let (words, rest) = one.as_chunks::<8>();
    let (other_words, other_rest) = other.as_chunks::<8>();
    let pairs = words.iter().zip(other_words);
    let same =
        |(one, other): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*one) == u64::from_ne_bytes(*other);
    let mut pairs = pairs.map(same);
    pairs.all(|same| same) && rest.iter().zip(other_rest).all(|(one, other)| one == other)
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
    fn finds_labels_among_few_and_many() {
        let many: Map<String, Value> = (0..2 * SMALL)
            .map(|n| (format!("label-{n}"), json!(n.to_string())))
            .collect();
        for labels in [
            json!({"a": "1", "b": "2", "app.kubernetes.io/name": "web", "label-7": "7"}),
            Value::Object(many),
        ] {
            let object = Object::new(json!({"kind": "Pod", "metadata": {"labels": labels}}));
            assert_eq!(object.label("label-7"), Some("7"));
            assert_eq!(object.label("label-x"), None);
            assert_eq!(object.label(""), None);
            let known = labels.get("app.kubernetes.io/name").and(Some("web"));
            assert_eq!(object.label("app.kubernetes.io/name"), known);
        }
        for odd in [
            json!({}),
            json!({"metadata": 1}),
            json!({"metadata": {"labels": []}}),
            json!({"metadata": {"labels": {"label-7": 7}}}),
        ] {
            assert_eq!(Object::new(odd).label("label-7"), None);
        }
    }

    #[test]
    fn compares_texts_of_every_length() {
        let text = "abcdefghijklmnopqrstuvwxyz";
        for length in 0..=text.len() {
            let one = &text[..length];
            assert!(same_text(one, one));
            assert!(!same_text(one, &format!("{one}a")));
            for at in 0..length {
                let mut other = one.to_owned();
                other.replace_range(at..=at, "Z");
                assert!(!same_text(one, &other), "{one} {other}");
            }
        }
    }

    #[test]
    fn changes_its_tree_and_leaves_others_theirs() {
        let mut object = Object::new(json!({"a": 1}));
        let other = object.clone();
        assert_eq!(object.text(), r#"{"a":1}"#);
        object.value_mut()["a"] = json!(2);
        assert_eq!(object.text(), r#"{"a":2}"#);
        assert_eq!(other.text(), r#"{"a":1}"#);
        let before: *const Value = object.value();
        object.value_mut()["a"] = json!(3);
        assert!(std::ptr::eq(before, object.value()), "copied for nobody");
        assert_eq!(object.text(), r#"{"a":3}"#);
    }

    #[test]
    fn gives_its_tree_away_and_leaves_others_theirs() {
        let tree = json!({"a": ["b"]});
        let object = Object::new(tree.clone());
        let other = object.clone();
        assert_eq!(object.into_value(), tree);
        assert_eq!(other.value(), &tree);
        assert_eq!(other.into_value(), tree);
    }

    #[test]
    fn keeps_the_text_it_was_given() {
        let object = Object::with_text(json!({"b": 1, "a": 2}), r#"{"b":1,"a":2}"#);
        assert_eq!(object.text(), r#"{"b":1,"a":2}"#);
    }
}
