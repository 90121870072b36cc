//! Workload controllers and a simulated node: what makes the Pods of a Deployment appear and become ready
//! where no kubelet runs.
//!
//! ```text
//!   events of the store ─► cache ─► work queue ─► a controller looks at one object ─► writes
//!                            ▲                                                          │
//!                            └──────────────────────────────────────────────────────────┘
//! ```
//!
//! A reconciliation first waits until the cache has everything stored before it began. A controller therefore sees
//! its own writes, and needs no expectations. Each reads the latest state and retries on errors, so that none depends
//! on seeing every event.
//!
//! Writes go through [`Api`], so that they pass admission like all others.

#![warn(missing_docs)]

// The kinds that are followed, and their objects.
mod kind;

mod object;

// What the server around this crate does for it.
mod api;

// The settings.
mod settings;

// The latest state, and the work queue.
mod cache;
mod queue;

mod addresses;
mod clocks;
mod events;

mod context;

// What several controllers share.
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

// The loop.
mod wake;

mod run;

pub use api::{Api, Author, Edit, Refused, SigningTerms, Target};
pub use kind::Kind;
pub use run::run;
pub use settings::Settings;
