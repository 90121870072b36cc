//! The Common Expression Language, as in Kubernetes.
//!
//! Expressions are parsed, checked and evaluated with the results, error texts and costs of
//! kube-apiserver v1.36, on borrowed JSON and, for common conditions, without allocating.
//!
//! ```
//! use lockgate_cel::{Environment, Limits, Type, Value, compile, evaluate};
//!
//! let environment = Environment::new().variable("pod", Type::Dyn);
//! let program = compile("pod.spec.containers.all(c, c.image.startsWith('registry.example/'))",
//!     &environment, Some(&Type::Bool)).unwrap();
//! let pod = serde_json::json!({ "spec": { "containers": [{ "image": "registry.example/web" }] } });
//! let inputs = [Value::from(&pod)];
//! let outcome = evaluate(&program, &inputs, Limits::default());
//! assert!(matches!(outcome.value, Ok(Value::Bool(true))));
//! assert_eq!(outcome.cost, 11);
//! ```
//!
//! # Map
//!
//! | module | is responsible for |
//! |---|---|
//! | [`admission`] | match conditions: environment, request, evaluation; policies |
//! | [`crd`] | validation rules of custom resources: schema types and size bounds |
//! | [`program`] | compilation, program cache |
//! | [`syntax`] | lexer, parser, macros, syntax errors |
//! | [`check`] | type checking, overloads, validators |
//! | [`eval`] | planning, evaluation, cost |
//! | [`value`] | runtime values, equality and ordering, JSON with and without a schema, errors |
//! | [`schema`] | structural schemas, as far as expressions depend on them |
//! | [`ext`] | the types of Kubernetes' libraries |
//! | [`source`] | positions, and printing of issues |
//! | [`strings`] | the string functions of cel-go |
//!
//! # Guarantees
//!
//! Expressions and inputs are untrusted: no panics, no unsafe code, bounded recursion, and allocations
//! are charged first. A program is immutable and can be shared between threads.

#![deny(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    missing_docs
)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, reason = "a panic in a test is a failure")
)]

pub mod ext;
pub mod limits;
pub mod source;
pub mod strings;
pub mod types;

pub mod syntax;

pub mod schema;

pub mod value;

pub mod check;

pub mod eval;

pub mod program;

pub mod crd;

pub mod admission;

pub use check::{Environment, Libraries};
pub use eval::{Evaluation, Limits, Program, evaluate};
pub use program::{CompileError, compile};
pub use types::Type;
pub use value::Value;
