//! Changes that answer a finding without changing what a webhook is for.
//!
//! A fix is made on the object here; whoever has the text writes the same into it.

use serde_json::{Map, Value as Json, json};

use crate::matching::NAME_LABEL;

/// A change of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fix {
    /// A field gets a value.
    Set {
        /// The index of the webhook.
        webhook: usize,
        /// The field of the webhook, as in `namespaceSelector.matchExpressions[0].key`.
        field: String,
        /// The value, a scalar.
        value: Json,
    },
    /// Namespaces are excluded by name.
    Exclude {
        /// The index of the webhook.
        webhook: usize,
        /// The namespaces.
        namespaces: Vec<String>,
    },
}

/// A place where an [`Exclude`](Fix::Exclude) is written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// The values of the requirement at this index get further ones.
    Values(usize),
    /// The requirements get another.
    Requirement,
    /// The selector gets requirements.
    Requirements,
    /// The webhook gets a selector.
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

    /// Changes the object. Returns false, and changes nothing, if it is not of the expected shape.
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
    /// The place for a webhook; nothing if its selector is not of the expected shape.
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

/// Sets a field that exists, or a member of the webhook itself.
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
