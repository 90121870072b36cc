//! A web console that shows how requests pass admission.
//!
//! ```text
//!   Admission (trace) ──► Recorder ──► Record (redacted JSON) ──► ring, bounded by count and bytes
//!                                          │                        │
//!                                     Statistics                 Service: pages, /api/*
//!                                                                   │
//!                               Cluster: authentication, authorization, objects
//! ```
//!
//! Nothing is recorded unless a [`Recorder`] observes the engine. The pages are static files, compiled into the
//! library; they load no external resources, and render everything as text. Of a Secret's data only the keys are
//! recorded.

#![warn(missing_docs)]
#![doc = include_str!("../README.md")]

// From a trace to the page's JSON.
mod redact;

mod changes;

mod record;

// Aggregates over requests.
mod statistics;

mod recorder;

// The endpoints of the page.
pub mod cluster;

mod guard;

mod capture;
mod playground;
mod registered;

mod body;

mod service;

pub use guard::Token;
pub use recorder::{Limits, Recorder};
pub use service::{Serving, serve};
