//! Match conditions: environment, variables and evaluation. [`Composition`] adds the variables of
//! admission policies.
//!
//! ```
//! use lockgate_cel::admission::{FailurePolicy, MatchConditions, Outcome, Request, Variables};
//!
//! let conditions = MatchConditions::compile([
//!     ("not-leases", "request.resource.resource != 'leases'"),
//!     ("has-team", "has(object.metadata.labels.team)"),
//! ]);
//! let request = Request { operation: "CREATE".to_owned(), ..Request::default() }.to_json();
//! let object = serde_json::json!({ "metadata": { "labels": { "team": "payments" } } });
//! let variables = Variables::new(&request).object(Some(&object));
//! let outcome = conditions.matches(&variables.evaluator(), FailurePolicy::Fail);
//! assert_eq!(outcome, Outcome::Match);
//! ```

mod conditions;
mod policy;
mod request;
mod type_check;

use std::sync::LazyLock;

pub use conditions::{Condition, Evaluated, FailurePolicy, MatchConditions, Outcome};
pub use policy::{Composition, OutOfBudget, PolicyEvaluation, Role, Variable, named};
pub use request::{
    Evaluator, GroupVersionKind, GroupVersionResource, Request, RequestVariable, Variables,
};
pub use type_check::{Params, TypeCheck};

use crate::check::{Environment, Libraries};
use crate::eval::Program;
use crate::program::{self, CompileError};
use crate::types::Type;

/// The type of `variables`; its fields are the variables of the policy.
const VARIABLES: &str = "kubernetes.variables";

/// The variables and types of match conditions.
///
/// UPSTREAM: apiserver pkg/admission/plugin/cel/compile.go
static MATCH_CONDITIONS: LazyLock<Environment> = LazyLock::new(|| {
    request_types(namespace_types(Environment::new()))
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("namespaceObject", Type::object("kubernetes.Namespace"))
        .variable("request", Type::object("kubernetes.AdmissionRequest"))
        .variable(
            "authorizer",
            Type::object("kubernetes.authorization.Authorizer"),
        )
        .variable(
            "authorizer.requestResource",
            Type::object("kubernetes.authorization.ResourceCheck"),
        )
        .known_fields(&request::KNOWN_FIELDS)
});

/// The environment of match conditions.
#[must_use]
pub fn match_condition_environment() -> &'static Environment {
    &MATCH_CONDITIONS
}

fn request_types(env: Environment) -> Environment {
    let strings = |names: &[&'static str]| -> Vec<(&'static str, Type)> {
        names.iter().map(|name| (*name, Type::String)).collect()
    };
    let texts = Type::list(Type::String);
    let mut request = strings(&[
        "subResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
    ]);
    request.extend([
        ("kind", Type::object("kubernetes.GroupVersionKind")),
        ("resource", Type::object("kubernetes.GroupVersionResource")),
        ("requestKind", Type::object("kubernetes.GroupVersionKind")),
        (
            "requestResource",
            Type::object("kubernetes.GroupVersionResource"),
        ),
        ("userInfo", Type::object("kubernetes.UserInfo")),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ]);
    let mut user = strings(&["username", "uid"]);
    user.extend([
        ("groups", texts.clone()),
        ("extra", Type::map(Type::String, texts)),
    ]);
    env.object(
        "kubernetes.GroupVersionKind",
        strings(&["group", "version", "kind"]),
    )
    .object(
        "kubernetes.GroupVersionResource",
        strings(&["group", "version", "resource"]),
    )
    .object("kubernetes.UserInfo", user)
    .object("kubernetes.AdmissionRequest", request)
}

fn namespace_types(env: Environment) -> Environment {
    let texts = Type::list(Type::String);
    let labels = Type::map(Type::String, Type::String);
    let condition = Type::list(Type::object("kubernetes.NamespaceCondition"));
    env.object("kubernetes.NamespaceSpec", [("finalizers", texts.clone())])
        .object(
            "kubernetes.NamespaceCondition",
            [
                ("status", Type::String),
                ("type", Type::String),
                ("lastTransitionTime", Type::Timestamp),
                ("message", Type::String),
                ("reason", Type::String),
            ],
        )
        .object(
            "kubernetes.NamespaceStatus",
            [("conditions", condition), ("phase", Type::String)],
        )
        .object(
            "kubernetes.NamespaceMetadata",
            [
                ("name", Type::String),
                ("generateName", Type::String),
                ("namespace", Type::String),
                ("labels", labels.clone()),
                ("annotations", labels),
                ("UID", Type::String),
                ("creationTimestamp", Type::Timestamp),
                ("deletionGracePeriodSeconds", Type::Int),
                ("deletionTimestamp", Type::Timestamp),
                ("generation", Type::Int),
                ("resourceVersion", Type::String),
                ("finalizers", texts),
            ],
        )
        .object(
            "kubernetes.Namespace",
            [
                ("metadata", Type::object("kubernetes.NamespaceMetadata")),
                ("spec", Type::object("kubernetes.NamespaceSpec")),
                ("status", Type::object("kubernetes.NamespaceStatus")),
            ],
        )
}

/// The environment of admission policies, with parameters and the variables of the policy.
///
/// `variables` are the policy's variables with their result types, in order.
#[must_use]
pub fn policy_environment<'v>(
    has_params: bool,
    variables: impl IntoIterator<Item = (&'v str, Type)>,
) -> Environment {
    let env = match_condition_environment()
        .clone()
        .object(VARIABLES, variables)
        .variable("variables", Type::object(VARIABLES));
    if has_params {
        env.variable("params", Type::Dyn)
    } else {
        env
    }
}

/// Compiles an expression with any result type; the error is kube-apiserver's.
pub fn compile_expression(expression: &str) -> Result<Program, CompileError> {
    program::compile(expression, match_condition_environment(), None)
}

/// Compiles a match condition; the error is kube-apiserver's.
pub fn compile_condition(expression: &str) -> Result<Program, CompileError> {
    program::compile(expression, match_condition_environment(), Some(&Type::Bool))
}

/// Validates a match condition.
///
/// The error text is the detail of the field error.
pub fn check_condition(expression: &str) -> Result<(), CompileError> {
    compile_condition(expression).map(drop)
}

/// Validates a match condition against the given libraries only.
///
/// # Errors
///
/// The error text is the detail of the field error.
pub fn check_condition_with(expression: &str, libraries: Libraries) -> Result<(), CompileError> {
    let environment = match_condition_environment()
        .clone()
        .with_libraries(libraries);
    program::compile(expression, &environment, Some(&Type::Bool)).map(drop)
}
