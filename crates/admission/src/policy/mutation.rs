//! One mutation: evaluates its expression, and applies the result to the object.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/mutating/patch/{smd,json_patch}.go

use std::cell::RefCell;
use std::sync::Arc;

use lockgate_api::meta::status::Status;
use lockgate_cel::Value;
use lockgate_cel::admission::{OutOfBudget, PolicyEvaluation, named};
use lockgate_cel::value::{Constructed, Error as EvalError, NotJson, TypeNameMismatches};
use serde_json::{Map, Value as Json};

use super::evaluate::traced;
use super::version::Version;
use crate::conditions::{ExpressionRole, ExpressionTrace};
use crate::configuration::{CompiledMutation, CompiledPolicy, PatchType};
use crate::host::{ConvertError, DecodeError, Kinds, MergeError};
use crate::json_patch::{self, Patch};
use crate::object::Object;
use crate::request::Request;
use crate::status;

/// The maximum size of a mutated object, and of a patch. Each mutation may read the previous result, so objects could
/// double with each.
const MAX_BYTES: usize = 16 << 20;

/// A mutation that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum MutationError {
    /// The failure policy applies.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The request fails with this status.
    #[error("{}", .0.message)]
    Status(Box<Status>),
}

/// The errors of a mutation.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Compilation(Box<str>),
    #[error(transparent)]
    Budget(#[from] OutOfBudget),
    #[error("expression '{expression}' resulted in error: {error}")]
    Evaluation {
        expression: Box<str>,
        error: EvalError,
    },
    #[error("type mismatch: {0}")]
    TypeNames(TypeNameMismatches),
    #[error(transparent)]
    NotJson(#[from] NotJson),
    #[error("unsupported return type from ApplyConfiguration expression: {0}")]
    NotAnObject(String),
    #[error("type mismatch: JSONPatchType.expression should evaluate to array")]
    NotAList,
    #[error(
        "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element \
         of {0}"
    )]
    NotAnOperation(String),
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {0}")]
    OperationValue(String),
    #[error("error applying patch: {0}")]
    Merge(MergeError),
    #[error("JSON Patch: {0}")]
    PatchSyntax(json_patch::DecodeError),
    #[error("JSON Patch: {0}")]
    Patch(json_patch::ApplyError),
    #[error("the mutated object exceeds {MAX_BYTES} bytes")]
    TooLarge,
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

/// The input of a mutation.
pub(super) struct Subject<'s> {
    pub(super) kinds: &'s dyn Kinds,
    pub(super) request: &'s Request,
    pub(super) policy: &'s CompiledPolicy,
    pub(super) namespace: Option<&'s Json>,
    pub(super) params: Option<&'s Json>,
    /// The index of the mutation in its policy.
    pub(super) index: usize,
    /// The evaluated expressions, if recorded.
    pub(super) records: Option<RefCell<Vec<ExpressionTrace>>>,
}

/// The result of a mutation's expression.
enum MutationResult {
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
            MutationResult::Configuration(configuration) => {
                self.merge(version, object, configuration)?
            }
            MutationResult::Patch(text) => match self.patch(version, object, &text)? {
                Some(patched) => patched,
                None => object.value().clone(),
            },
        };
        if bytes(&patched) > MAX_BYTES {
            return Err(Failure::TooLarge.into());
        }
        let mut patched = patched;
        if self.kinds.is_built_in(kind) && *kind != self.request.kind {
            let patched = Object::new(patched);
            return Err(Failure::from(ConvertError::unknown(&patched, &self.request.kind)).into());
        }
        let unwritten = self.kinds.complete(&mut patched, kind);
        Ok(Object::with_unwritten(patched, unwritten))
    }

    fn evaluate(
        &self,
        mutation: &CompiledMutation,
        version: &Version,
    ) -> Result<MutationResult, Failure> {
        let program = match &mutation.program {
            Ok(program) => program,
            Err(error) => return Err(Failure::Compilation(error.clone())),
        };
        let named = named(&self.policy.variables);
        let variables = version.variables();
        let inputs = variables.policy_inputs(self.namespace, self.params);
        let mut evaluation =
            PolicyEvaluation::new(&named, variables.with_known_fields(&inputs), None);
        if self.records.is_some() {
            evaluation = evaluation.recording();
        }
        let evaluated = evaluation.evaluate(program);
        if let Some(records) = &self.records {
            let (role, text) = (ExpressionRole::Mutation, &*mutation.expression);
            let taken = evaluation.take_records();
            let traced = traced(self.policy, role, self.index, text, taken);
            records.borrow_mut().extend(traced);
        }
        let value = evaluated?.map_err(|error| Failure::Evaluation {
            expression: mutation.expression.clone(),
            error,
        })?;
        match (mutation.patch_type, &value) {
            (PatchType::ApplyConfiguration, Value::Object(object)) => {
                value.json_bytes(MAX_BYTES).ok_or(Failure::TooLarge)?;
                check_names(object)?;
                Ok(MutationResult::Configuration(object.to_tree()?))
            }
            (PatchType::ApplyConfiguration, other) => {
                Err(Failure::NotAnObject(other.type_name().to_owned()))
            }
            (PatchType::JsonPatch, list) if list.is_list() => {
                let (mut operations, mut room) = (Vec::new(), MAX_BYTES);
                for element in list.elements() {
                    room -= element.json_bytes(room).ok_or(Failure::TooLarge)?;
                    operations.push(operation(&element)?);
                }
                let operations = Json::Array(operations);
                Ok(MutationResult::Patch(
                    lockgate_go::json::to_string(&operations).into_bytes(),
                ))
            }
            (PatchType::JsonPatch, _) => Err(Failure::NotAList),
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
        let merged = merged.map_err(Failure::Merge)?;
        Ok(self
            .kinds
            .decode_merged(merged, kind)
            .map_err(Failure::from)?)
    }

    /// The patched object; `None` if a `test` failed.
    fn patch(
        &self,
        version: &Version,
        object: &Object,
        text: &[u8],
    ) -> Result<Option<Json>, MutationError> {
        let patch = Patch::parse(text).map_err(Failure::PatchSyntax)?;
        let patched = match patch.apply(object.value()) {
            Ok(patched) => patched,
            Err(error) if error.is_failed_test() => return Ok(None),
            Err(error) => return Err(Failure::Patch(error).into()),
        };
        let kind = &version.versioned.kind;
        self.kinds
            .decode_strictly(patched, kind)
            .map(Some)
            .map_err(|error| {
                MutationError::Status(Box::new(Status::internal_error(&error.to_string())))
            })
    }
}

fn check_names(object: &Constructed<'_>) -> Result<(), Failure> {
    object.check_type_names().map_err(Failure::TypeNames)
}

/// The approximate size of a tree as JSON.
fn bytes(tree: &Json) -> usize {
    let mut pending = vec![tree];
    let mut bytes: usize = 0;
    while let Some(value) = pending.pop() {
        bytes += 2;
        match value {
            Json::String(text) => bytes += text.len(),
            Json::Array(items) => pending.extend(items),
            Json::Object(members) => {
                bytes += members.keys().map(|name| name.len() + 4).sum::<usize>();
                pending.extend(members.values());
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => bytes += 4,
        }
    }
    bytes
}

/// Converts an expression's value to a patch operation.
fn operation(value: &Value<'_>) -> Result<Json, Failure> {
    let Value::Object(operation) = value else {
        return Err(Failure::NotAnOperation(value.type_name().to_owned()));
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
        let value = value
            .to_json()
            .ok_or_else(|| Failure::OperationValue(value.type_name().to_owned()))?;
        members.insert(String::from("value"), value);
    }
    Ok(Json::Object(members))
}

/// The parameters as a mutation sees them: without `apiVersion` and `kind` for built-in kinds.
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
