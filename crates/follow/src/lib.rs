//! Delegation of an aggregated API server to the main API server.
//!
//! ```text
//!   main API server ──► Feed ──► Engine: webhooks that are registered there are called here
//!                   ──► Delegated: who a request is from, and whether they may
//! ```
//!
//! A server behind an APIService gets requests from the main one, which has authenticated and authorized
//! them already; whoever reaches it directly has not been. So it authenticates and authorizes by itself,
//! and asks the main server for both. `examples/aggregated` is a whole server around this.

#![warn(missing_docs)]

mod server;

mod delegated;
mod feed;

pub use delegated::{Delegated, DelegatedError, Identity, Permission};
pub use feed::Feed;
pub use server::{Failure, Server};
