//! Kubernetes dynamic admission control as a library: match, call, patch, reinvoke, validate, and explain.
//!
//! An API server submits every write to the [`engine::Engine`] twice. In between it sets its own fields and validates
//! the object:
//!
//! ```text
//!              ┌──────────── second round, once, if a webhook changed the object ───────────┐
//!              ▼                                                                            │
//!   Request ─► plugins ─► mutating webhooks, one by one ─► object ─► validating webhooks ─► Decision
//!              └───────────── admit ──────────────────┘              └── validate, all at once ──┘
//! ```
//!
//! Everything the engine needs from its server is a trait in [`host`], each with a minimal implementation. One of them
//! calls webhooks ([`call::Caller`]); [`https::HttpsCaller`] implements it as the API server does. Everything that
//! happens is recorded in the [`trace::Trace`]: warnings, audit annotations and [`metrics`] are derived from it.
//!
//! # Embedding it
//!
//! ```
//! use std::sync::Arc;
//!
//! use lockgate_admission::call::Local;
//! use lockgate_admission::configuration::from_yaml;
//! use lockgate_admission::engine::Engine;
//! use lockgate_admission::host::Host;
//! use lockgate_admission::plugin::Admission;
//! use lockgate_admission::request::{Operation, Request, kind, resource};
//! use serde_json::{Value, json};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A webhook in this process; `https::HttpsCaller` calls those behind URLs and Services.
//! let host = Host::new(Arc::new(Local::new(|review| {
//!     let review: Value = serde_json::from_slice(review).unwrap_or_default();
//!     let response = json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": "not today"}});
//!     json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
//!         .to_string()
//!         .into_bytes()
//! })));
//! let engine = Engine::new(host);
//! for configuration in from_yaml(
//!     "
//! apiVersion: admissionregistration.k8s.io/v1
//! kind: ValidatingWebhookConfiguration
//! metadata: {name: notes}
//! webhooks:
//! - name: notes.example.com
//!   clientConfig: {url: 'https://notes.example.com/validate'}
//!   rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [notes]}]
//!   sideEffects: None
//!   admissionReviewVersions: [v1]
//! ",
//! )? {
//!     engine.register(&configuration);
//! }
//!
//! let mut request = Request::new(
//!     Operation::Create,
//!     kind("example.com", "v1", "Note"),
//!     resource("example.com", "v1", "notes"),
//! );
//! request.namespace = "shop".into();
//! request.object = Some(json!({"metadata": {"name": "milk"}}).into());
//!
//! let mut admission = Admission::new(request);
//! assert!(engine.admit(&mut admission).await.is_allowed());
//! // Here the server fills in its own fields and validates the object.
//! let decision = engine.validate(&mut admission).await;
//! assert_eq!(
//!     decision.status().map(|status| status.message.as_str()),
//!     Some("admission webhook \"notes.example.com\" denied the request: not today"),
//! );
//! # Ok(()) }
//! ```
//!
//! Registrations are passed to the engine as API objects ([`engine::Engine::register`]) or as a watch delivers them
//! ([`configuration::Configurations`]); requests that start afterwards use them. The example `aggregated` is a small
//! API server whose writes pass the chain; the crate `lockgate-follow` watches the registrations of a live API server.
//!
//! # Following a request
//!
//! The trace is complete at the end of a step. Meanwhile, spans of the crate `tracing` show the plugin and webhook in
//! progress, and a debug event is logged when match conditions exclude a webhook. A request that is dropped, because
//! its client disconnected, cancels the calls in progress and is counted like any other.
//!
//! # What is bounded
//!
//! Calls are bounded by their deadlines and by thirty seconds, patches by the limits of [`json_patch`], expressions by
//! their cost, warnings by the limits of the API server, and metrics by their number of series. A panic in a caller is
//! a failure of that call only.

#![warn(missing_docs)]

// A request, its objects, and its outcome. A module uses only those listed before it.
pub mod object;

pub mod request;

pub mod decision;

pub mod status;

pub mod audit;
pub mod warnings;

// Comparison and patching of objects.
pub mod equality;
pub mod json_patch;

// The interface of the server, as traits.
pub mod host;

// Compiled registrations, and their matching.
pub mod conditions;

pub mod configuration;

pub mod matching;

// The record of one request, and the plugins that use it.
pub mod trace;

mod reinvocation;

pub mod plugin;
pub mod webhook;

pub mod policy;

// The plugin chain.
pub mod chain;
pub mod order;

pub mod metrics;

pub mod engine;

/// The HTTPS client for webhooks.
pub use lockgate_webhook_client as https;
pub use lockgate_webhook_client::call;

#[cfg(test)]
mod testing;
