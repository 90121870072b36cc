//! Applies the patches that webhooks of this framework send.

use serde_json::Value;

/// A patch that cannot be applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The patch is not a list.
    #[error("a patch is a list")]
    NotAList,
    /// An operation cannot be applied.
    #[error("{operation}: {reason}")]
    Operation {
        /// The operation.
        operation: Value,
        /// The reason.
        reason: &'static str,
    },
}

/// Applies a JSON Patch with `add`, `remove` and `replace`, the only operations of this framework.
///
/// # Errors
///
/// Fails if an operation cannot be applied.
///
/// ```
/// use lockgate_webhook::testing::apply;
/// use serde_json::json;
///
/// let patch = json!([{"op": "add", "path": "/list/-", "value": 2}]);
/// assert_eq!(apply(&json!({"list": [1]}), &patch), Ok(json!({"list": [1, 2]})));
/// ```
pub fn apply(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let mut object = object.clone();
    let operations = patch.as_array().ok_or(PatchError::NotAList)?;
    for operation in operations {
        change(&mut object, operation).map_err(|reason| PatchError::Operation {
            operation: operation.clone(),
            reason,
        })?;
    }
    Ok(object)
}

fn change(object: &mut Value, operation: &Value) -> Result<(), &'static str> {
    let text = |member: &str| operation.get(member).and_then(Value::as_str);
    let op = text("op").ok_or("it has no op")?;
    let path = text("path").ok_or("it has no path")?;
    let value = || operation.get("value").cloned().ok_or("it has no value");
    let Some((parent, last)) = path.rsplit_once('/') else {
        // The root of the document.
        *object = match op {
            "add" | "replace" => value()?,
            _ => return Err("this cannot be done to the whole document"),
        };
        return Ok(());
    };
    let parent = object.pointer_mut(parent).ok_or("there is nothing there")?;
    let name = last.replace("~1", "/").replace("~0", "~");
    match (parent, op) {
        (Value::Object(members), "add") => {
            members.insert(name, value()?);
        }
        (Value::Object(members), "replace") => {
            *members
                .get_mut(&name)
                .ok_or("there is nothing to replace")? = value()?;
        }
        (Value::Object(members), "remove") => {
            members.remove(&name).ok_or("there is nothing to remove")?;
        }
        (Value::Array(items), "add") => {
            let place = match &*name {
                "-" => items.len(),
                index => index.parse().map_err(|_| "this is no index")?,
            };
            if place > items.len() {
                return Err("the list is not that long");
            }
            items.insert(place, value()?);
        }
        (Value::Array(items), "replace" | "remove") => {
            let place: usize = name.parse().map_err(|_| "this is no index")?;
            let item = items.get_mut(place).ok_or("the list is not that long")?;
            if op == "replace" {
                *item = value()?;
            } else {
                items.remove(place);
            }
        }
        (Value::Object(_) | Value::Array(_), _) => return Err("this operation is not known"),
        _ => return Err("there is nothing to change there"),
    }
    Ok(())
}
