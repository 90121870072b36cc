//! A Kubernetes-compatible API server whose every write passes the admission chain.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use lockgate_apiserver::{Settings, TestServer};
//!
//! let server = TestServer::start().await?;
//! println!("kubectl --kubeconfig {} get namespaces", server.kubeconfig_path().display());
//! server.stop().await;
//! # Ok(()) }
//! ```
//!
//! The modules below are the stages of a request, in order; [`pipeline`](self) composes them.

#![warn(missing_docs)]

// All settings, with the reason for each default.
mod config;
mod version;

/// Files that only their owner reads.
pub mod private_file;

// Starting, what requests share, stopping.
mod server;

// The order of the stages.
mod pipeline;

// 1. From a socket to a request with a meaning.
mod http;

// 2. Authentication.
mod authn;

// 3. Authorization.
mod authz;

// 4. From bytes to objects and options.
mod call;
mod decode;

// 5 to 7. Mutate, validate, persist: the recipes of the verbs that write, and of those that read.
mod access_reviews;
mod allocate;
mod apply;
mod encoding;
mod metadata;
mod persist;
mod read;
mod write;

// 8. The audit log.
mod audit;

// 9. The response.
mod error;
mod non_resource;
mod respond;

// The kinds that are served, and what admission asks about them.
mod conversion;
mod host;
mod namespaces;
mod plugins;
mod registry;
mod services;

// Controllers, and what exists from the start.
mod bootstrap;
mod controllers;
mod metrics;

mod test_server;

pub use apply::{Applied, ApplyError};
pub use audit::PolicyError;
pub use authn::tokens::TokenFileError;
pub use config::{
    AuthorizationMode, Controllers, FeatureGates, Observer, Plugins, ServiceMapping, Settings,
};
pub use http::tls::TlsError;
pub use server::{Running, StartError};
pub use test_server::TestServer;
