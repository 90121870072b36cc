//! One mutation: what its expression makes, and what that makes of the object.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/mutating/patch/{smd,json_patch}.go

use std::sync::Arc;

use lockgate_api::meta::status::Status;
use lockgate_cel::Value;
use lockgate_cel::admission::{PolicyEvaluation, named};
use lockgate_cel::value::Constructed;
use serde_json::{Map, Value as Json};

use super::version::Version;
use crate::configuration::{CompiledMutation, CompiledPolicy, PatchType};
use crate::host::{Kinds, MergeError, unknown_conversion};
use crate::json_patch::Patch;
use crate::object::Object;
use crate::request::Request;
use crate::status;

/// Why a mutation failed.
#[derive(Debug)]
pub(super) enum MutationError {
    /// The failure policy decides.
    Failed(String),
    /// The request is answered with this at once.
    Status(Box<Status>),
}

impl MutationError {
    /// The words of the error.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Failed(text) => text,
            Self::Status(status) => &status.message,
        }
    }
}

impl From<String> for MutationError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

/// The input of a mutation.
pub(super) struct Subject<'s> {
    pub(super) kinds: &'s dyn Kinds,
    pub(super) request: &'s Request,
    pub(super) policy: &'s CompiledPolicy,
    pub(super) namespace: Option<&'s Json>,
    pub(super) params: Option<&'s Json>,
}

/// The result of a mutation's expression.
enum Made {
    Configuration(Json),
    Patch(Vec<u8>),
}

impl Subject<'_> {
    /// The object after a mutation.
    pub(super) fn mutate(
        &self,
        mutation: &CompiledMutation,
        version: &Version,
        object: &Object,
    ) -> Result<Object, MutationError> {
        let kind = &version.versioned.kind;
        if !self.kinds.knows_version(kind) {
            return Err(MutationError::Status(Box::new(status::unavailable(
                &format!(
                    "Resource kind {}/{}, Kind={} not found. There can be a delay between when \
                     CustomResourceDefinitions are created and when they are available.",
                    kind.group, kind.version, kind.kind
                ),
            ))));
        }
        let made = self.evaluate(mutation, version)?;
        let patched = match made {
            Made::Configuration(configuration) => self.merge(version, object, configuration)?,
            Made::Patch(text) => match self.patch(version, object, &text)? {
                Some(patched) => patched,
                None => object.value().clone(),
            },
        };
        let mut patched = patched;
        if self.kinds.is_built_in(kind) && *kind != self.request.kind {
            let patched = Object::new(patched);
            return Err(unknown_conversion(&patched, &self.request.kind).into());
        }
        self.kinds.apply_defaults(&mut patched, kind);
        Ok(Object::new(patched))
    }

    fn evaluate(&self, mutation: &CompiledMutation, version: &Version) -> Result<Made, String> {
        let program = match &mutation.program {
            Ok(program) => program,
            Err(error) => return Err(error.to_string()),
        };
        let named = named(&self.policy.variables);
        let variables = version.variables();
        let inputs = variables.policy_inputs(self.namespace, self.params);
        let mut evaluation = PolicyEvaluation::new(&named, &inputs, None);
        let value = evaluation
            .evaluate(program)
            .map_err(|spent| spent.to_string())?
            .map_err(|error| {
                let expression = &mutation.expression;
                format!("expression '{expression}' resulted in error: {error}")
            })?;
        match (mutation.patch_type, &value) {
            (PatchType::ApplyConfiguration, Value::Object(object)) => {
                check_names(object)?;
                object.to_tree().map(Made::Configuration)
            }
            (PatchType::ApplyConfiguration, other) => Err(format!(
                "unsupported return type from ApplyConfiguration expression: {}",
                other.type_name()
            )),
            (PatchType::JsonPatch, list) if list.is_list() => {
                let operations: Result<Vec<Json>, String> =
                    list.elements().map(|element| operation(&element)).collect();
                let operations = Json::Array(operations?);
                Ok(Made::Patch(
                    lockgate_go::json::to_string(&operations).into_bytes(),
                ))
            }
            (PatchType::JsonPatch, _) => Err(String::from(
                "type mismatch: JSONPatchType.expression should evaluate to array",
            )),
        }
    }

    fn merge(
        &self,
        version: &Version,
        object: &Object,
        mut configuration: Json,
    ) -> Result<Json, MutationError> {
        let live = object.value();
        if let Some(members) = configuration.as_object_mut() {
            for name in ["apiVersion", "kind"] {
                if let Some(value) = live.get(name) {
                    members.insert(name.to_owned(), value.clone());
                }
            }
        }
        let kind = &version.versioned.kind;
        let merged = self.kinds.merge(live, &configuration, kind);
        let merged = merged.map_err(|error| {
            let MergeError(why) = error;
            format!("error applying patch: {why}")
        })?;
        Ok(self.kinds.decode(merged, kind)?)
    }

    /// The patched object; nothing where a `test` failed.
    fn patch(
        &self,
        version: &Version,
        object: &Object,
        text: &[u8],
    ) -> Result<Option<Json>, MutationError> {
        let named = |error: &dyn std::fmt::Display| format!("JSON Patch: {error}");
        let patch = Patch::parse(text).map_err(|error| named(&error))?;
        let patched = match patch.apply(object.value()) {
            Ok(patched) => patched,
            Err(error) if error.is_failed_test() => return Ok(None),
            Err(error) => return Err(named(&error).into()),
        };
        let kind = &version.versioned.kind;
        self.kinds
            .decode_strictly(patched, kind)
            .map(Some)
            .map_err(|why| MutationError::Status(Box::new(Status::internal_error(&why))))
    }
}

fn check_names(object: &Constructed<'_>) -> Result<(), String> {
    object
        .check_type_names()
        .map_err(|why| format!("type mismatch: {why}"))
}

/// A patch operation in the form patches are read in.
fn operation(value: &Value<'_>) -> Result<Json, String> {
    let Value::Object(operation) = value else {
        return Err(format!(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got \
             element of {}",
            value.type_name()
        ));
    };
    let text = |name: &str| {
        let value = operation.field(name).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let mut members = Map::new();
    members.insert(String::from("op"), text("op").into());
    members.insert(String::from("path"), text("path").into());
    let from = text("from");
    if !from.is_empty() {
        members.insert(String::from("from"), from.into());
    }
    if let Some(value) = operation.field("value") {
        if let Value::Object(object) = value {
            check_names(object)?;
        }
        let value = value.to_json().ok_or_else(|| {
            format!(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {}",
                value.type_name()
            )
        })?;
        members.insert(String::from("value"), value);
    }
    Ok(Json::Object(members))
}

/// The parameters as a mutation sees them: without `apiVersion` and `kind` if their kind is built
/// in.
pub(super) fn shown(params: &Arc<crate::host::Param>) -> Json {
    let mut value = params.object.value().clone();
    if params.is_built_in
        && let Some(members) = value.as_object_mut()
    {
        members.remove("apiVersion");
        members.remove("kind");
    }
    value
}
