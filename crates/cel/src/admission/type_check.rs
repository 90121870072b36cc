//! Type checking of a policy's expressions against the schemas of the kinds it matches.
//!
//! ```
//! use lockgate_cel::admission::{Params, TypeCheck};
//! use lockgate_cel::schema::Schema;
//!
//! let schema = Schema::from_json(&serde_json::json!({
//!     "type": "object",
//!     "properties": { "replicas": { "type": "integer" } },
//! })).unwrap();
//! let mut check = TypeCheck::new("Deployment", &schema, Params::None);
//! check.declare("replicas", "object.replicas");
//! assert_eq!(check.issues("variables.replicas > 1"), None);
//! let issues = check.issues("variables.replicas > '1'").unwrap();
//! assert!(issues.contains("no matching overload for '_>_' applied to '(int, string)'"));
//! ```
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/validating/typechecking.go

use super::policy::declared;
use super::{VARIABLES, namespace_types, request_types};
use crate::check::Environment;
use crate::crd::{Declared, with_messages};
use crate::program::{self, CompileError};
use crate::schema::Schema;
use crate::types::Type;

/// The parameters of a policy.
#[derive(Debug, Clone, Copy)]
pub enum Params<'s> {
    /// The policy has no parameters.
    None,
    /// The schema of the parameter kind is unknown.
    Unknown,
    /// The kind and its schema.
    Known(&'s str, &'s Schema),
}

/// Type checks the expressions of one policy against the schema of one kind.
#[derive(Debug)]
pub struct TypeCheck {
    environment: Environment,
}

impl TypeCheck {
    /// Creates a check without variables. `kind` is the type name of `object` in messages.
    #[must_use]
    pub fn new(kind: &str, schema: &Schema, params: Params<'_>) -> Self {
        let base = request_types(namespace_types(Environment::new()))
            .variable("namespaceObject", Type::object("kubernetes.Namespace"))
            .variable("request", Type::object("kubernetes.AdmissionRequest"));
        let (base, object) = with_schema(base, kind, schema);
        let base = base
            .variable("object", object.clone())
            .variable("oldObject", object);
        let base = match params {
            Params::None => base,
            Params::Unknown => base.variable("params", Type::Dyn),
            Params::Known(kind, schema) => {
                let (base, of) = with_schema(base, &format!("{kind}Params"), schema);
                base.variable("params", of)
            }
        };
        // Upstream does not declare `authorizer.requestResource` here, so policies that use it get a
        // warning.
        let base = base.variable(
            "authorizer",
            Type::object("kubernetes.authorization.Authorizer"),
        );
        let environment = base
            .object(VARIABLES, [])
            .variable("variables", Type::object(VARIABLES));
        Self { environment }
    }

    /// Adds a variable, which subsequent expressions can refer to. A variable with issues is of type
    /// `dyn`.
    pub fn declare(&mut self, name: &str, expression: &str) {
        let of = match program::type_of(expression, &self.environment) {
            Ok(of) => declared(&of),
            Err(_) => Type::Dyn,
        };
        self.environment.declare_field(VARIABLES, name, of);
    }

    /// The issues of an expression as Kubernetes prints them; `None` without issues.
    #[must_use]
    pub fn issues(&self, expression: &str) -> Option<String> {
        match program::type_of(expression, &self.environment) {
            Ok(_) => None,
            Err(CompileError::Issues { rendered, .. }) => Some(rendered),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Adds the types of a schema to an environment; also returns the root type, `dyn` if there is none.
fn with_schema(env: Environment, kind: &str, schema: &Schema) -> (Environment, Type) {
    // Upstream's type names end in a timestamp.
    match Declared::named(schema, &format!("{kind}0")) {
        Some((declared, messages)) => (with_messages(env, &messages), declared.type_of().clone()),
        None => (env, Type::Dyn),
    }
}
