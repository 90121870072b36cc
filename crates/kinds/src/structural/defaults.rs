//! Filling in defaults, and removing nulls that may not be.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/defaulting

use serde_json::Value as Json;

use super::json::copy;
use super::metadata::{self, Malformed};
use super::path::Path;
use super::schema::{Additional, Node, Schema};

/// About how many bytes of memory defaults may add to an object, several times what is ever stored of one.
const MAX_FILLED: usize = 32 << 20;

/// The memory that is left for defaults.
struct Room(usize);

impl Room {
    /// A copy of a default, while there is room.
    fn copy(&mut self, default: &Json) -> Option<Json> {
        if self.0 == 0 {
            return None;
        }
        self.0 = self.0.saturating_sub(weight(default));
        Some(copy(default))
    }
}

/// About how much memory a value takes.
fn weight(value: &Json) -> usize {
    let mut bytes = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        bytes += size_of::<Json>();
        match value {
            Json::String(text) => bytes += text.len(),
            Json::Array(items) => open.extend(items),
            Json::Object(entries) => {
                bytes += entries.keys().map(|key| 64 + key.len()).sum::<usize>();
                open.extend(entries.values());
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }
    bytes
}

impl Schema {
    /// Fills in the defaults of a custom resource.
    ///
    /// A default stands in a definition once and in an object as often as the author of the object
    /// likes. What is far larger than any object that is stored is not filled in any further.
    pub fn default(&self, object: &mut Json) {
        self.root.fill(object, &mut Room(MAX_FILLED));
    }

    /// Removes the nulls of a custom resource that are neither allowed nor replaced by a default.
    pub fn drop_nulls(&self, object: &mut Json) {
        self.root.drop_nulls(object);
    }
}

impl Node {
    fn is_null_in_vain(&self, value: &Json) -> bool {
        value.is_null() && !self.nullable
    }

    fn fill(&self, value: &mut Json, room: &mut Room) {
        match value {
            Json::Object(entries) => {
                for (name, property) in &self.properties {
                    let Some(default) = &property.default else {
                        continue;
                    };
                    let present = entries.get(&**name);
                    if present.is_none_or(|value| property.is_null_in_vain(value))
                        && let Some(default) = room.copy(default)
                    {
                        entries.insert(String::from(&**name), default);
                    }
                }
                for (name, value) in entries {
                    if let Some(property) = self.properties.get(name.as_str()) {
                        property.fill(value, room);
                    } else if let Some(schema) = self.entries() {
                        schema.fill_in_place(value, room);
                    }
                }
            }
            Json::Array(elements) => {
                if let Some(items) = &self.items {
                    for element in elements {
                        items.fill_in_place(element, room);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_in_place(&self, value: &mut Json, room: &mut Room) {
        if self.is_null_in_vain(value) {
            let default = self.default.as_deref();
            *value = default
                .and_then(|default| room.copy(default))
                .unwrap_or_default();
        }
        self.fill(value, room);
    }

    fn drop_nulls(&self, value: &mut Json) {
        match value {
            Json::Object(entries) => entries.retain(|name, value| {
                let Some(schema) = self.member(name) else {
                    return true;
                };
                if schema.is_null_in_vain(value) && schema.default.is_none() {
                    return false;
                }
                schema.drop_nulls(value);
                true
            }),
            Json::Array(elements) => {
                if let Some(items) = &self.items {
                    for element in elements {
                        items.drop_nulls(element);
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes from the defaults what the schema would remove from an object.
    pub(crate) fn prune_defaults(&mut self, place: &Place<'_>) {
        if let Some(default) = self.default.take() {
            self.default = self.pruned(*default, place).map(Box::new);
        }
        let embedded = self.embedded || matches!(place, Place::Root);
        if let Additional::Schema(schema) = &mut self.additional {
            schema.prune_defaults(&place.below(Step::Field("*")));
        }
        if let Some(items) = &mut self.items {
            items.prune_defaults(&place.below(Step::Index));
        }
        for (name, property) in &mut self.properties {
            let place = match &**name {
                "metadata" if embedded => Place::Metadata,
                "apiVersion" | "kind" if embedded => Place::Type,
                name => place.below(Step::Field(name)),
            };
            property.prune_defaults(&place);
        }
    }

    fn pruned(&self, mut default: Json, place: &Place<'_>) -> Option<Json> {
        let steps = match place {
            Place::Type => return default.is_string().then_some(default),
            Place::Root | Place::Ordinary => {
                // With malformed parts dropped, nothing is left to complain about.
                let _ = metadata::coerce(self, &mut default, Malformed::Drop, &Path::ROOT);
                self.prune(&mut default, false);
                return Some(default);
            }
            Place::Metadata | Place::InMetadata(..) => place.steps(),
        };
        // Only whole metadata can be read, so the default is put where it belongs and taken out.
        let around = steps.iter().fold(default, |inner, step| match step {
            Step::Field(name) => Json::Object([((*name).to_owned(), inner)].into_iter().collect()),
            Step::Index => Json::Array(vec![inner]),
        });
        if steps.is_empty() && !around.is_object() {
            // What is no metadata at all is left for validation to refuse.
            return Some(around);
        }
        let mut found = metadata::tidy(around, Malformed::Drop, &Path::ROOT)
            .ok()?
            .metadata;
        for step in steps.iter().rev() {
            found = match step {
                Step::Field(name) => found.get_mut(name)?.take(),
                Step::Index => found.get_mut(0)?.take(),
            };
        }
        Some(found)
    }
}

/// The position of a schema with regard to defaults.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// At the root of a resource.
    Root,
    /// At the `apiVersion` or `kind` of one.
    Type,
    /// At its `metadata`.
    Metadata,
    /// Somewhere in that.
    InMetadata(&'a Self, Step<'a>),
    Ordinary,
}

/// A step down in an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    Field(&'a str),
    Index,
}

impl<'a> Place<'a> {
    fn below(&'a self, step: Step<'a>) -> Self {
        match self {
            Self::Root | Self::Type | Self::Ordinary => Self::Ordinary,
            Self::Metadata | Self::InMetadata(..) => Self::InMetadata(self, step),
        }
    }

    /// The steps down from the metadata, the last one first.
    fn steps(&self) -> Vec<Step<'a>> {
        let mut steps = Vec::new();
        let mut place = self;
        while let Self::InMetadata(parent, step) = place {
            steps.push(*step);
            place = parent;
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_of_many_items_stay_in_bounds() {
        let schema = Schema::parse(&json!({
            "type": "object",
            "properties": {"list": {"type": "array", "items": {
                "type": "object",
                "properties": {"text": {"type": "string", "default": "x".repeat(100_000)}},
            }}},
        }))
        .unwrap();
        let mut object = json!({"list": vec![json!({}); 100_000]});
        schema.default(&mut object);
        let total = weight(&object);
        assert!(total > MAX_FILLED, "{total}");
        assert!(total < 3 * MAX_FILLED, "{total}");
        let mut few = json!({"list": vec![json!({}); 10]});
        schema.default(&mut few);
        let list = few["list"].as_array().unwrap();
        assert!(
            list.iter()
                .all(|item| item["text"].as_str().unwrap().len() == 100_000)
        );
    }
}
