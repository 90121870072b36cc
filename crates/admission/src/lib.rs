//! Kubernetes dynamic admission control as a library: match, call, patch, reinvoke, validate, and say
//! why.
//!
//! An API server hands every write to the [`engine::Engine`] twice. In between it fills in its own
//! fields and validates the object:
//!
//! ```text
//!              ┌──────────── second round, once, if a webhook changed the object ───────────┐
//!              ▼                                                                            │
//!   Request ─► plugins ─► mutating webhooks, one by one ─► object ─► validating webhooks ─► Decision
//!              └───────────── admit ──────────────────┘              └── validate, all at once ──┘
//! ```
//!
//! Everything the engine needs from the server around it is a trait in [`host`], and each has an
//! implementation for a server that has nothing. How webhooks are reached is one of them
//! ([`call::Caller`]); [`https::HttpsCaller`] reaches them as the API server does. Everything that
//! happens is told by one value, the [`trace::Trace`]: warnings, audit annotations and [`metrics`]
//! are read from it.
//!
//! # Embedding it
//!
//! ```
//! use std::sync::Arc;
//!
//! use lockgate_admission::engine::Engine;
//! use lockgate_admission::host::Host;
//! use lockgate_admission::https::{HttpsCaller, Settings};
//! use lockgate_admission::plugin::Admission;
//! use lockgate_admission::plugins::NamespaceLifecycle;
//! use lockgate_admission::request::{Operation, Request, kind, resource};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::new(Arc::new(HttpsCaller::new(Settings::default())));
//! let engine = Engine::builder(host.clone()).plugin(NamespaceLifecycle::new(host)).build()?;
//!
//! let mut request = Request::new(
//!     Operation::Create,
//!     kind("example.com", "v1", "Note"),
//!     resource("example.com", "v1", "notes"),
//! );
//! request.namespace = "shop".into();
//! request.object = Some(json!({"metadata": {"generateName": "note-"}}).into());
//!
//! let mut admission = Admission::new(request);
//! assert!(engine.admit(&mut admission).await.is_allowed());
//! // Here the server makes up the name, fills in its own fields and checks the object.
//! admission.request_mut().name = "note-x7k2p".into();
//! assert!(engine.validate(&mut admission).await.is_allowed());
//! for header in admission.warnings().headers() {
//!     println!("Warning: {header}");
//! }
//! # Ok(()) }
//! ```
//!
//! Registrations are told to the engine as they are written ([`engine::Engine::register`]) or as a
//! watch brings them ([`configuration::Configurations`]); a request that begins afterwards sees them.
//! Two examples of the crate show both at length: `aggregated` is a small API server whose writes pass
//! the chain, and `watch_registrations` follows the registrations of a live API server.
//!
//! # Following a request
//!
//! The trace tells everything once a step is over. While it runs, spans of the crate `tracing` say
//! which plugin and which webhook it waits for, and a line at debug level says when match conditions
//! kept a webhook from being called. A request that is dropped, because its client went away, ends
//! the calls under way and is counted like any other.
//!
//! # What is bounded
//!
//! Calls by their deadlines and by thirty seconds, patches by the limits of [`json_patch`],
//! expressions by their cost, warnings by the limits of the API server, and series of a metric by
//! their number. A panic in a caller is the failure of that call and of nothing else.

#![warn(missing_docs)]

// A request, its objects, and its outcome. A module uses only those listed before it.
pub mod object;

pub mod request;

pub mod decision;

pub mod status;

pub mod audit;
pub mod warnings;

// Comparing and patching objects.
pub mod equality;
pub mod json_patch;

// The server around the engine, as traits.
pub mod host;

// Registrations, compiled, and which of them match a request.
pub mod conditions;

pub mod configuration;

pub mod matching;

// The record of one request, and the plugins that read and write it.
pub mod trace;

mod reinvocation;

pub mod plugin;

pub mod plugins;

pub mod webhook;

pub mod policy;

// Plugins in order.
pub mod chain;
pub mod order;

pub mod metrics;

pub mod engine;

/// The HTTPS client, for embedders who need no other.
pub use lockgate_webhook_client as https;
pub use lockgate_webhook_client::call;

#[cfg(test)]
mod testing;
