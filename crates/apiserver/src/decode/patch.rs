//! Patches: decoded from the body of a request, or made by the server itself.

use lockgate_admission::json_patch::Patch as JsonPatch;
use lockgate_kinds::tree;
use serde_json::Value;

use crate::decode::body;
use crate::error::{Outcome, bad_request, too_large};
use crate::http::limits;
use crate::http::negotiate::{PatchType, Sent};

/// A decoded patch.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(JsonPatch),
    Merge(Value),
    Strategic(Value),
    /// The configuration of a server-side apply.
    Apply(Value),
}

impl Patch {
    /// Decodes a patch.
    pub(crate) fn read(bytes: &[u8], patch_type: PatchType) -> Outcome<Self> {
        let undecodable = |error: &str| bad_request(format!("error decoding patch: {error}"));
        match patch_type {
            PatchType::Json => {
                let document = body::parse(bytes, Sent::Json)
                    .map_err(|error| undecodable(&error.to_string()))?;
                let operations = document.root().items().count();
                if operations > limits::JSON_PATCH_OPERATIONS {
                    return Err(too_large(format!(
                        "Request entity too large: The allowed maximum operations in a JSON patch \
                         is {}, got {operations}",
                        limits::JSON_PATCH_OPERATIONS
                    )));
                }
                let patch =
                    JsonPatch::parse(bytes).map_err(|error| undecodable(&error.to_string()))?;
                Ok(Self::Json(patch))
            }
            PatchType::Merge | PatchType::Strategic => {
                let document = body::parse(bytes, Sent::Json)
                    .map_err(|error| undecodable(&error.to_string()))?;
                let value = tree::from_document(document.root());
                if !value.is_object() {
                    return Err(undecodable(&format!(
                        "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        type_name(&value)
                    )));
                }
                Ok(if patch_type == PatchType::Merge {
                    Self::Merge(value)
                } else {
                    Self::Strategic(value)
                })
            }
            PatchType::Apply => {
                let decoded = body::parse(bytes, Sent::Yaml);
                let document = decoded
                    .map_err(|error| bad_request(format!("error decoding YAML: {error}")))?;
                Ok(Self::Apply(tree::from_document(document.root())))
            }
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
