//! The Common Expression Language as Kubernetes runs it.
//!
//! Expressions are parsed, checked and evaluated with the verdicts, values,
//! error texts and costs of kube-apiserver v1.36, on borrowed JSON and, for
//! common conditions, without allocating.
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
//! | [`admission`] | match conditions: environment, request, what a list of them decides; policies |
//! | [`crd`] | validation rules of custom resources: schemas as types and sizes |
//! | [`program`] | text to program, programs shared by text |
//! | [`syntax`] | text to tree: lexer, parser, macros, syntax errors |
//! | [`check`] | types, overloads, validators |
//! | [`eval`] | planning, evaluation, cost |
//! | [`value`] | values at run time, their equality and order, JSON with and without a schema, errors |
//! | [`schema`] | structural schemas, as far as expressions depend on them |
//! | [`ext`] | the values of Kubernetes' libraries |
//! | [`source`] | positions, and how issues are printed |
//! | [`strings`] | what Go means by strings |
//!
//! # What holds
//!
//! Texts and inputs are taken to be hostile: no panic, no unsafe code, bounded
//! recursion, nothing built before it is paid for. A program is immutable and
//! can be shared between threads.

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
