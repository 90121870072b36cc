//! Workload controllers and simulated nodes: create the Pods of a Deployment and make them ready without a kubelet.
//!
//! ```text
//!   events of the store ─► cache ─► work queue ─► a controller reconciles one object ─► writes
//!                            ▲                                                            │
//!                            └────────────────────────────────────────────────────────────┘
//! ```
//!
//! A reconciliation first waits until the cache has everything stored before it began. A controller therefore sees
//! its own writes, and needs no expectations. Each reads the latest state and retries on errors, so that none depends
//! on seeing every event.
//!
//! Writes go through [`Api`], so that admission applies to them.

#![warn(missing_docs)]

// Kinds and objects.
mod kind;

mod object;

// The interface to the API server.
mod api;

// The settings.
mod settings;

// The cache and the work queue.
mod cache;
mod queue;

mod addresses;
mod clocks;
mod events;

mod context;

// Shared parts of the controllers.
mod ownership;
mod pod;

mod revision;

// The controllers.
mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod replica_set;
mod stateful_set;

mod certificates;
mod disruption;
mod endpoints;
mod volumes;

// The simulated cluster.
mod plan;

mod kubelet;
mod node;
mod scheduler;

// The main loop.
mod enqueue;

mod run;

pub use api::{Api, Author, Edit, Rejected, SigningTerms, Target};
pub use kind::Kind;
pub use run::run;
pub use settings::Settings;
