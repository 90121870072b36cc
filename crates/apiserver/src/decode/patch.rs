//! Patches: decoded from a request body, or created by the server itself.

use std::collections::HashSet;

use lockgate_admission::json_patch::Patch as JsonPatch;
use lockgate_api::document::{self, Kind, Value};
use lockgate_go::quote::quote;
use lockgate_kinds::tree;

use crate::decode::body::{self, ParseError};
use crate::decode::options::FieldValidation;
use crate::error::{Outcome, bad_request, too_large};
use crate::http::limits;
use crate::http::negotiate::{BodyEncoding, PatchType};

/// A decoded patch, and the strict decoding findings in it.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) patch: Patch,
    pub(crate) findings: Vec<String>,
}

/// A decoded patch.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(JsonPatch),
    Merge(serde_json::Value),
    Strategic(serde_json::Value),
    /// The configuration of a server-side apply.
    Apply(serde_json::Value),
}

impl Patch {
    /// Decodes a patch.
    ///
    /// UPSTREAM: apiserver pkg/endpoints/handlers/patch.go (applyJSPatch, strategicPatchObject)
    pub(crate) fn read(
        bytes: &[u8],
        patch_type: PatchType,
        validation: FieldValidation,
    ) -> Outcome<Read> {
        let is_checked = validation != FieldValidation::Ignore;
        let undecodable = |error: &str| match patch_type {
            PatchType::Json | PatchType::Merge if is_checked => {
                bad_request(format!("error decoding patch: {error}"))
            }
            PatchType::Merge => bad_request("Invalid JSON Patch"),
            _ => bad_request(error),
        };
        match patch_type {
            PatchType::Json => {
                let document = body::parse(bytes, BodyEncoding::Json)
                    .map_err(|error| undecodable(&error.to_string()))?;
                if is_checked {
                    check_operations(document.root()).map_err(|error| undecodable(&error))?;
                }
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
                Ok(Read {
                    patch: Self::Json(patch),
                    findings: operation_findings(document.root()),
                })
            }
            PatchType::Merge | PatchType::Strategic => {
                let document = body::parse(bytes, BodyEncoding::Json)
                    .map_err(|error| undecodable(&error.to_string()))?;
                let value = tree::from_document(document.root());
                if !value.is_object() {
                    return Err(undecodable(&format!(
                        "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        type_name(&value)
                    )));
                }
                let patch = if patch_type == PatchType::Merge {
                    Self::Merge(value)
                } else {
                    Self::Strategic(value)
                };
                let findings = document::duplicates(document.root());
                Ok(Read { patch, findings })
            }
            PatchType::Apply => {
                let decoded = body::parse(bytes, BodyEncoding::Yaml);
                let document = decoded.map_err(|error| {
                    let step = match error {
                        ParseError::Yaml(_) => "error converting YAML to JSON: ",
                        _ => "",
                    };
                    bad_request(format!("error decoding YAML: {step}{error}"))
                })?;
                let root = document.root();
                if !matches!(root.kind(), Kind::Object | Kind::Null) {
                    return Err(bad_request(format!(
                        "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: \
                         cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        type_name(&tree::from_document(root))
                    )));
                }
                let text = std::str::from_utf8(bytes).unwrap_or_default();
                Ok(Read {
                    findings: repeated_keys(document.root(), text),
                    patch: Self::Apply(tree::from_document(document.root())),
                })
            }
        }
    }
}

/// Checks that operations match upstream's Go type.
fn check_operations(root: Value<'_>) -> Result<(), String> {
    let cannot = |value: Value<'_>, into: &str| {
        let found = type_name(&tree::from_document(value));
        Err(format!("json: cannot unmarshal {found} into Go {into}"))
    };
    if !matches!(root.kind(), Kind::Array | Kind::Null) {
        return cannot(root, "value of type []handlers.jsonPatchOp");
    }
    for operation in root.items() {
        if !matches!(operation.kind(), Kind::Object | Kind::Null) {
            return cannot(operation, "value of type handlers.jsonPatchOp");
        }
        for member in operation.members() {
            let is_text = matches!(member.value.kind(), Kind::String | Kind::Null);
            if matches!(member.key, "op" | "path" | "from") && !is_text {
                let field = format!("struct field jsonPatchOp.{} of type string", member.key);
                return cannot(member.value, &field);
            }
        }
    }
    Ok(())
}

/// Duplicate and unknown fields of operations.
///
/// UPSTREAM: apiserver pkg/endpoints/handlers/patch.go (jsonPatchOp)
fn operation_findings(root: Value<'_>) -> Vec<String> {
    let mut findings = document::duplicates(root);
    for (index, operation) in root.items().enumerate().take(MAX_FINDINGS) {
        let known = ["op", "path", "from", "value"];
        let unknown = operation
            .members()
            .filter(|member| !known.contains(&member.key));
        findings.extend(unknown.map(|member| {
            let path = format!("[{index}].{}", member.key);
            format!("unknown field {}", quote(&path))
        }));
    }
    let told = findings.iter().take(MAX_FINDINGS);
    told.map(|finding| format!("json patch {finding}"))
        .collect()
}

/// The maximum number of reported findings.
const MAX_FINDINGS: usize = 100;

/// The duplicate keys of a YAML map, with the messages of Go's parser: those within a value precede the key itself,
/// with the line at which the value starts.
fn repeated_keys(root: Value<'_>, text: &str) -> Vec<String> {
    enum Step<'d> {
        Enter(Value<'d>),
        Tell(String),
    }
    let mut found = Vec::new();
    let mut open = vec![Step::Enter(root)];
    while let Some(step) = open.pop() {
        let value = match step {
            Step::Tell(finding) => {
                found.push(finding);
                if found.len() == MAX_FINDINGS {
                    return found;
                }
                continue;
            }
            Step::Enter(value) => value,
        };
        let mut steps = Vec::new();
        let mut seen = HashSet::new();
        for member in value.members() {
            if matches!(member.value.kind(), Kind::Object | Kind::Array) {
                steps.push(Step::Enter(member.value));
            }
            if !seen.insert(member.key) {
                let before = text.get(..member.value.span().range().start);
                let line = before.unwrap_or_default().matches('\n').count() + 1;
                let key = quote(member.key);
                steps.push(Step::Tell(format!(
                    "line {line}: key {key} already set in map"
                )));
            }
        }
        steps.extend(value.items().map(Step::Enter));
        open.extend(steps.into_iter().rev());
    }
    found
}

fn type_name(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "bool",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    }
}
