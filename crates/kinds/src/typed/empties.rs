//! Empty lists and maps.
//!
//! Clients can send them, and validation sees them, but Go omits most of them when encoding, and storage omits all.

use serde_json::{Value, json};

use super::{Form, Type};

/// In-memory state of an object that its JSON does not represent: empty lists and maps that Go omits, and labels that
/// alias those of the template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Empties {
    places: Vec<Empty>,
    shares_labels: bool,
    resets_managed_fields: bool,
}

/// The path of the parent object, the field, and whether it is a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Empty {
    parent: String,
    key: String,
    is_list: bool,
}

impl Empties {
    /// Restores empty lists and maps, unless the field has a value.
    pub fn restore(&self, value: &mut Value) {
        for empty in &self.places {
            let parent = value.pointer_mut(&empty.parent);
            if let Some(members) = parent.and_then(Value::as_object_mut) {
                members
                    .entry(empty.key.as_str())
                    .or_insert_with(|| if empty.is_list { json!([]) } else { json!({}) });
            }
        }
    }

    /// Records whether the managed fields were an empty list, as opposed to absent.
    #[must_use]
    pub fn with_reset_managed_fields(mut self, resets: bool) -> Self {
        self.resets_managed_fields = resets;
        self
    }

    /// Returns true if the managed fields were an empty list, which ends tracking.
    #[must_use]
    pub fn resets_managed_fields(&self) -> bool {
        self.resets_managed_fields
    }

    /// Records whether the labels alias those of the template.
    #[must_use]
    pub fn with_shared_labels(mut self, shares_labels: bool) -> Self {
        self.shares_labels = shares_labels;
        self
    }

    /// Returns true if the labels alias those of the template, so that changes apply to both.
    #[must_use]
    pub fn shares_labels(&self) -> bool {
        self.shares_labels
    }
}

/// Handles empty lists and maps.
trait Visit {
    fn omitted(&mut self, path: &str, key: &str, is_list: bool);
    fn written(&mut self, member: &mut Value);
    /// A null entry of a map of bytes.
    fn null_bytes(&mut self, _: &mut Value) {}
}

impl Visit for Empties {
    fn omitted(&mut self, path: &str, key: &str, is_list: bool) {
        // Validation does not depend on it.
        if (path, key) == ("/metadata", "managedFields") {
            self.resets_managed_fields = true;
            return;
        }
        self.places.push(Empty {
            parent: path.to_owned(),
            key: key.to_owned(),
            is_list,
        });
    }

    fn written(&mut self, _: &mut Value) {}
}

/// The storage encoding, protobuf, does not distinguish empty from nil.
struct Storage;

impl Visit for Storage {
    fn omitted(&mut self, _: &str, _: &str, _: bool) {}

    fn written(&mut self, member: &mut Value) {
        *member = Value::Null;
    }

    fn null_bytes(&mut self, member: &mut Value) {
        *member = json!("");
    }
}

impl Type {
    /// Removes empty lists and maps that Go omits, and returns their positions.
    #[must_use]
    pub fn take_empties(self, value: &mut Value) -> Empties {
        let mut empties = Empties::default();
        if has_empty(value) {
            self.visit(value, &mut String::new(), &mut empties);
        }
        empties
    }

    /// Removes empty lists and maps like storage; those that Go encodes become null.
    pub(crate) fn drop_empties(self, value: &mut Value) {
        if has_empty(value) {
            self.visit(value, &mut String::new(), &mut Storage);
        }
    }

    /// Recurses to the depth of the type, which is finite except for schemas; the decoder bounds the depth of
    /// objects.
    fn visit(self, value: &mut Value, path: &mut String, visit: &mut impl Visit) {
        let length = path.len();
        match (self.form(), value) {
            (Form::Struct, Value::Object(members)) => {
                members.retain(|key, member| {
                    let Some(field) = self.field(key) else {
                        return true;
                    };
                    let form = field.ty().form();
                    let is_list = matches!(form, Form::List(_));
                    let is_empty = match member {
                        Value::Array(items) => items.is_empty() && is_list,
                        Value::Object(members) => {
                            members.is_empty() && matches!(form, Form::Map(_))
                        }
                        _ => false,
                    };
                    if is_empty && field.omits_empty() && !field.is_pointer() {
                        visit.omitted(path, key, is_list);
                        return false;
                    }
                    if is_empty {
                        visit.written(member);
                    } else if has_members(member) {
                        push(path, key);
                        field.ty().visit(member, path, visit);
                        path.truncate(length);
                    }
                    true
                });
            }
            (Form::List(element), Value::Array(items)) => {
                let items = items.iter_mut().enumerate();
                for (index, item) in items.filter(|(_, item)| has_members(item)) {
                    push(path, &index.to_string());
                    element.visit(item, path, visit);
                    path.truncate(length);
                }
            }
            (Form::Map(element), Value::Object(members)) => {
                for (key, member) in members {
                    if member.is_null() && element.form() == Form::Bytes {
                        visit.null_bytes(member);
                    }
                    if has_members(member) {
                        push(path, key);
                        element.visit(member, path, visit);
                        path.truncate(length);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Appends a segment of a JSON pointer.
fn push(path: &mut String, key: &str) {
    path.push('/');
    // Keys rarely need escapes.
    if key.contains(['~', '/']) {
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
    } else {
        path.push_str(key);
    }
}

/// Returns true if any value is empty or null, except in managed fields. Most objects have none, and this check costs
/// a tenth of a typed traversal.
pub(super) fn has_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty),
        Value::Object(members) => {
            let mut others = members.iter().filter(|(key, _)| *key != "fieldsV1");
            members.is_empty() || others.any(|(_, member)| has_empty(member))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns true for a list or map: scalars have no nested values.
fn has_members(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::typed::type_of;

    #[test]
    fn empty_members_come_back_where_nothing_took_their_place() {
        let ty = type_of("", "v1", "Pod").unwrap();
        let sent = json!({"metadata": {"labels": {}}, "spec": {"volumes": [], "containers": []}});
        let mut pod = sent.clone();
        let empties = ty.take_empties(&mut pod);
        assert_eq!(pod, json!({"metadata": {}, "spec": {"containers": []}}));
        pod["metadata"]["labels"] = json!({"a": "b"});
        empties.restore(&mut pod);
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(pod["spec"], sent["spec"]);
    }

    #[test]
    fn storage_knows_no_empty_lists() {
        let ty = type_of("discovery.k8s.io", "v1", "EndpointSlice").unwrap();
        let mut slice = json!({"endpoints": [], "ports": [], "metadata": {"labels": {}}});
        ty.drop_empties(&mut slice);
        assert_eq!(
            slice,
            json!({"endpoints": null, "ports": null, "metadata": {}})
        );
    }
}
