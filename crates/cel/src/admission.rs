//! The environment of match conditions.

use std::sync::LazyLock;

use crate::check::{self, Environment};
use crate::source::render;
use crate::syntax;
use crate::types::Type;

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
});

/// The environment match conditions are checked in.
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

/// The result type of an expression, or why Kubernetes refuses it.
pub fn check_expression(expression: &str) -> Result<Type, String> {
    let failed = |issues: Vec<_>| format!("compilation failed: {}", render(expression, &issues));
    let ast = syntax::parse(expression).map_err(failed)?;
    let checked = check::check(ast, match_condition_environment()).map_err(failed)?;
    Ok(checked.output().clone())
}

/// Whether an expression can be a match condition, or why Kubernetes refuses it.
///
/// The text is what follows `Invalid value: "<expression>": ` in an API error.
pub fn check_condition(expression: &str) -> Result<(), String> {
    match check_expression(expression)? {
        Type::Bool => Ok(()),
        other => Err(format!("must evaluate to bool but got {other}")),
    }
}
