//! API kinds: the built-in ones as data, and the schemas of custom resources.
//!
//! Objects are JSON values. This crate performs no I/O.
//!
//! The stages of a write of a built-in object:
//!
//! ```text
//! bytes ► typed (normal form, strict findings) ► defaults ► mutating admission
//!       ► strategy (prepare, validate, canonicalize) ► validating admission ► conversion ► store
//! ```
//!
//! ```
//! use lockgate_api::document::json::parse;
//! use lockgate_api::meta::time::Time;
//! use lockgate_kinds::strategy::{Context, Requester};
//! use lockgate_kinds::{defaults, resource, strategy, typed};
//!
//! let body = br#"{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "size": 1}]}}"#;
//! let document = parse(body)?;
//! let ty = typed::type_of("", "v1", "Pod").expect("pods are built in");
//! let decoded = ty.decode(document.root())?;
//! assert_eq!(decoded.findings, [r#"unknown field "spec.containers[0].size""#]);
//!
//! let mut pod = decoded.value;
//! defaults::apply("", "v1", "Pod", &mut pod);
//! assert_eq!(pod["spec"]["restartPolicy"], "Always");
//!
//! let pods = resource::find("", "v1", "pods").expect("pods are served");
//! let extra = Default::default();
//! let alice = Requester { name: "alice", uid: "", groups: &[], extra: &extra };
//! let context = Context::new(Time::from_unix_seconds(0), alice);
//! let errors = strategy::validate_create(pods, &pod, &context);
//! assert_eq!(errors[0].to_string(), "spec.containers[0].image: Required value");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

pub mod tree;
mod unified_diff;
pub mod upstream_error;

pub mod typed;

pub mod equality;

mod object;

pub mod structural;

pub mod crd;

mod amounts;
pub mod cells;
mod checks;

mod at;

pub mod flow_control;
pub mod kind;

mod builtin;

pub mod resource;

pub mod conversion;
pub mod defaults;
pub mod strategy;
pub mod table;

pub mod managed_fields;
pub mod openapi;
pub mod protobuf;
pub mod strategic_merge;
