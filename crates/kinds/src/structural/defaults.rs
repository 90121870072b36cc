//! Applying defaults, and removing invalid nulls.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/defaulting

use serde_json::Value as Json;

use super::json::copy;
use super::metadata::{self, Malformed};
use super::path::Path;
use super::schema::{Additional, Node, Schema};

/// The approximate memory that defaults may add to an object, in bytes: several times the largest storable object.
const MAX_FILLED: usize = 32 << 20;

/// The remaining memory for defaults.
struct MemoryBudget(usize);

impl MemoryBudget {
    /// Copies a default, unless the memory is used up.
    fn copy(&mut self, default: &Json) -> Option<Json> {
        if self.0 == 0 {
            return None;
        }
        self.0 = self.0.saturating_sub(weight(default));
        Some(copy(default))
    }
}

/// The approximate memory of a value.
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
    /// Applies the defaults of a custom resource.
    ///
    /// One default of a definition can apply any number of times in an object. Defaulting stops far beyond the size
    /// of any storable object.
    pub fn default(&self, object: &mut Json) {
        self.root.fill(object, &mut MemoryBudget(MAX_FILLED));
    }

    /// Removes nulls of a custom resource that are neither nullable nor replaced by a default.
    pub fn drop_nulls(&self, object: &mut Json) {
        self.root.drop_nulls(object);
    }
}

impl Node {
    fn is_null_in_vain(&self, value: &Json) -> bool {
        value.is_null() && !self.nullable
    }

    fn fill(&self, value: &mut Json, budget: &mut MemoryBudget) {
        match value {
            Json::Object(entries) => {
                for (name, property) in &self.properties {
                    let Some(default) = &property.default else {
                        continue;
                    };
                    let present = entries.get(&**name);
                    if present.is_none_or(|value| property.is_null_in_vain(value))
                        && let Some(default) = budget.copy(default)
                    {
                        entries.insert(String::from(&**name), default);
                    }
                }
                for (name, value) in entries {
                    if let Some(property) = self.properties.get(name.as_str()) {
                        property.fill(value, budget);
                    } else if let Some(schema) = self.entries() {
                        schema.fill_in_place(value, budget);
                    }
                }
            }
            Json::Array(elements) => {
                if let Some(items) = &self.items {
                    for element in elements {
                        items.fill_in_place(element, budget);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_in_place(&self, value: &mut Json, budget: &mut MemoryBudget) {
        if self.is_null_in_vain(value) {
            let default = self.default.as_deref();
            *value = default
                .and_then(|default| budget.copy(default))
                .unwrap_or_default();
        }
        self.fill(value, budget);
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

    /// Prunes the defaults themselves.
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
                // Dropping malformed metadata cannot fail.
                let _ = metadata::coerce(self, &mut default, Malformed::Drop, &Path::ROOT);
                self.prune(&mut default, false);
                return Some(default);
            }
            Place::Metadata | Place::InMetadata(..) => place.steps(),
        };
        // Metadata is only decoded as a whole, so the default is wrapped, decoded, and unwrapped.
        let around = steps.iter().fold(default, |inner, step| match step {
            Step::Field(name) => Json::Object([((*name).to_owned(), inner)].into_iter().collect()),
            Step::Index => Json::Array(vec![inner]),
        });
        if steps.is_empty() && !around.is_object() {
            // Metadata that is not an object is left to validation.
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

/// The position of a default in a resource.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// The root of a resource.
    Root,
    /// Its `apiVersion` or `kind`.
    Type,
    /// Its `metadata`.
    Metadata,
    /// A field within its `metadata`.
    InMetadata(&'a Self, Step<'a>),
    Ordinary,
}

/// A path element.
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

    /// The path within metadata, innermost element first.
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
