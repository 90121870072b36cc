//! Delegation of an aggregated API server to the main API server.
//!
//! ```text
//!   main API server ──► Feed ──► Engine: webhooks that are registered there are called here
//!                   ──► Delegated: authentication and authorization of requests
//! ```
//!
//! An aggregated server receives requests from the main one, which has authenticated and authorized them; direct
//! requests are not. So it authenticates and authorizes by itself, by delegation to the main server.
//! `examples/aggregated` is a complete server.

#![warn(missing_docs)]

mod server;

mod delegated;
mod feed;

pub use delegated::{Delegated, DelegatedError, Identity, Permission};
pub use feed::Feed;
pub use server::{Failure, Server};
