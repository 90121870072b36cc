//! Fixes that remove a finding without changing the purpose of a webhook.
//!
//! A fix is applied to the object here; the owner of the source text applies the same edit to it.

use serde_json::{Map, Value as Json, json};

use crate::matching::NAME_LABEL;

/// A change to a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fix {
    /// Sets a field.
    Set {
        /// The index of the webhook.
        webhook: usize,
        /// The field of the webhook, such as `namespaceSelector.matchExpressions[0].key`.
        field: String,
        /// The value, a scalar.
        value: Json,
    },
    /// Excludes namespaces by name.
    Exclude {
        /// The index of the webhook.
        webhook: usize,
        /// The namespaces.
        namespaces: Vec<String>,
    },
}

/// The edit that makes an [`Exclude`](Fix::Exclude).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// Append to the values of the requirement at this index.
    Values(usize),
    /// Append a requirement.
    Requirement,
    /// Add requirements to the selector.
    Requirements,
    /// Add a selector to the webhook.
    Selector,
}

impl Fix {
    /// The index of the webhook.
    #[must_use]
    pub fn webhook(&self) -> usize {
        match self {
            Self::Set { webhook, .. } | Self::Exclude { webhook, .. } => *webhook,
        }
    }

    /// Changes the object. Returns false, and changes nothing, if the object does not have the expected shape.
    pub fn apply(&self, object: &mut Json) -> bool {
        let index = self.webhook();
        let Some(hook) = object
            .get_mut("webhooks")
            .and_then(|list| list.get_mut(index))
        else {
            return false;
        };
        match self {
            Self::Set { field, value, .. } => set(hook, field, value),
            Self::Exclude { namespaces, .. } => exclude(hook, namespaces),
        }
    }
}

impl Exclusion {
    /// The edit for a webhook; `None` if its selector does not have the expected shape.
    #[must_use]
    pub fn of(webhook: &Json) -> Option<Self> {
        let selector = match webhook.get("namespaceSelector") {
            None | Some(Json::Null) => return Some(Self::Selector),
            Some(Json::Object(selector)) => selector,
            Some(_) => return None,
        };
        let requirements = match selector.get("matchExpressions") {
            None | Some(Json::Null) => return Some(Self::Requirements),
            Some(Json::Array(requirements)) => requirements,
            Some(_) => return None,
        };
        let excludes = |requirement: &Json| {
            requirement["key"] == NAME_LABEL
                && requirement["operator"] == "NotIn"
                && requirement["values"].is_array()
        };
        Some(match requirements.iter().position(excludes) {
            Some(index) => Self::Values(index),
            None => Self::Requirement,
        })
    }
}

/// The requirement that excludes namespaces by name.
#[must_use]
pub fn requirement(namespaces: &[String]) -> Json {
    json!({"key": NAME_LABEL, "operator": "NotIn", "values": namespaces})
}

fn exclude(hook: &mut Json, namespaces: &[String]) -> bool {
    let Some(place) = Exclusion::of(hook) else {
        return false;
    };
    let Some(hook) = hook.as_object_mut() else {
        return false;
    };
    let selector = hook
        .entry("namespaceSelector")
        .or_insert_with(|| Map::new().into());
    if selector.is_null() {
        *selector = Map::new().into();
    }
    match place {
        Exclusion::Values(index) => {
            let values = selector["matchExpressions"][index]["values"].as_array_mut();
            let Some(values) = values else {
                return false;
            };
            let new = namespaces
                .iter()
                .filter(|name| !values.iter().any(|value| value == *name))
                .map(|name| Json::from(name.as_str()));
            let new: Vec<Json> = new.collect();
            values.splice(0..0, new);
        }
        Exclusion::Requirement => {
            if let Some(list) = selector["matchExpressions"].as_array_mut() {
                list.insert(0, requirement(namespaces));
            }
        }
        Exclusion::Requirements | Exclusion::Selector => {
            selector["matchExpressions"] = json!([requirement(namespaces)]);
        }
    }
    true
}

/// Sets an existing field, or a top-level field of the webhook.
fn set(hook: &mut Json, field: &str, value: &Json) -> bool {
    let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
    if let Some(place) = hook.pointer_mut(&pointer) {
        *place = value.clone();
        return true;
    }
    match hook.as_object_mut() {
        Some(members) if !field.contains(['.', '[']) => {
            members.insert(field.to_owned(), value.clone());
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(selector: Json) -> Json {
        let mut object = json!({"webhooks": [{"name": "a"}]});
        if !selector.is_null() {
            object["webhooks"][0]["namespaceSelector"] = selector;
        }
        let fix = Fix::Exclude {
            webhook: 0,
            namespaces: vec![String::from("kube-system")],
        };
        assert!(fix.apply(&mut object));
        object["webhooks"][0]["namespaceSelector"].take()
    }

    #[test]
    fn an_exclusion_joins_the_selector_there_is() {
        let wanted = json!({"key": NAME_LABEL, "operator": "NotIn", "values": ["kube-system"]});
        assert_eq!(excluded(Json::Null), json!({"matchExpressions": [wanted]}));
        assert_eq!(excluded(json!({})), json!({"matchExpressions": [wanted]}));
        assert_eq!(
            excluded(json!({"matchLabels": {"a": "b"}})),
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [wanted]})
        );
        let other = json!({"key": "a", "operator": "Exists"});
        assert_eq!(
            excluded(json!({"matchExpressions": [other]})),
            json!({"matchExpressions": [wanted, other]})
        );
        let known = json!({"key": NAME_LABEL, "operator": "NotIn", "values": ["a"]});
        assert_eq!(
            excluded(json!({"matchExpressions": [other, known]})),
            json!({"matchExpressions": [other,
                {"key": NAME_LABEL, "operator": "NotIn", "values": ["kube-system", "a"]}]})
        );
    }

    #[test]
    fn what_has_another_shape_is_left_alone() {
        let fix = Fix::Exclude {
            webhook: 0,
            namespaces: Vec::new(),
        };
        for object in [
            json!({}),
            json!({"webhooks": []}),
            json!({"webhooks": [{"namespaceSelector": 1}]}),
            json!({"webhooks": [{"namespaceSelector": {"matchExpressions": {}}}]}),
        ] {
            let mut changed = object.clone();
            assert!(!fix.apply(&mut changed), "{object}");
            assert_eq!(changed, object);
        }
        let deep = Fix::Set {
            webhook: 0,
            field: String::from("namespaceSelector.matchExpressions[0].key"),
            value: json!("x"),
        };
        assert!(!deep.apply(&mut json!({"webhooks": [{}]})));
    }
}
