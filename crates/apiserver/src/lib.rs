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

// Starting, what requests share, stopping.
mod server;

// The order of the stages.
mod pipeline;

// 1. From a socket to a request with a meaning.
mod http;

// 2. Who asks.
mod authn;
mod token;

// 3. Whether they may.
mod authz;

// 4. From bytes to objects and options.
mod call;
mod decode;

// 5 to 7. Mutate, validate, persist: the recipes of the verbs that write, and of those that read.
mod allocate;
mod apply;
mod effects;
mod read;
mod reviews;
mod stored;
mod write;

// 8. Who did what.
mod audit;

// 9. The answer.
mod error;
mod other;
mod respond;

// Which kinds there are, and what admission asks about them.
mod custom;
mod host;
mod namespaces;
mod plugins;
mod registry;
mod services;

// What goes on when nobody asks.
mod bootstrap;
mod controllers;
mod observe;

mod test_server;

pub use apply::ApplyError;
pub use audit::PolicyError;
pub use authn::tokens::TokenFileError;
pub use config::{
    AuthorizationMode, Controllers, FeatureGates, Observer, Plugins, ServiceMapping, Settings,
};
pub use http::tls::TlsError;
pub use server::{Running, StartError};
pub use test_server::TestServer;
