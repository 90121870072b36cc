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
//! The modules below form a DAG: each uses only those of its own group and of the groups above it.
//! [`pipeline`](self) composes them into the stages of a request.

#![warn(missing_docs)]

// All settings, with the reason for each default.
mod config;
mod heavy;
mod in_order;
mod tasks;
mod version;

/// Files that are readable by their owner only.
pub mod private_file;

// Failures as `Status` objects, with upstream's messages.
mod error;

// The metadata that every object has.
mod metadata;

// 1. From a socket to a parsed request.
mod http;

// Stored bytes, and the served kinds.
mod encoding;

mod registry;

mod etcd_layout;

mod conversion;

// 3. Authorization.
mod authz;

// 2. Authentication, which authorizes impersonation.
mod authn;

// Concurrency limits: FlowSchemas and priority levels.
mod flow_control;

// A request after authorization.
mod request;

// 4. From bytes to typed writes.
mod decode;

// State derived from stored objects, as used by admission.
mod allocate;
mod host;
mod namespaces;
mod policies;
mod services;

// Requests for aggregated API servers.
mod aggregation;

// 7. The bridge to the store.
mod persist;

// 9. The response.
mod respond;

// The recipes of the read verbs.
mod read;

// 5 to 7. Mutate, validate, persist: the recipes of the write verbs.
mod write;

mod access_reviews;
mod plugins;

// 8. The audit log.
mod audit;

// Writes of the server itself: controllers, initial objects, manifests.
mod apply;
mod controllers;

mod bootstrap;

// Non-resource paths.
mod metrics;

mod non_resource;

// The order of the stages.
mod pipeline;

// Startup and shutdown.
mod server;

mod test_server;

#[doc(hidden)]
pub mod fuzzing;

pub use apply::{Applied, ApplyError};
pub use audit::PolicyError;
pub use authn::tokens::TokenFileError;
pub use config::{
    AdmissionConsistency, AuthorizationMode, Controllers, FeatureGates, Observer, Plugins,
    RequestHeaders, ServiceAccounts, ServiceMapping, ServiceRange, ServiceRouting, ServingFiles,
    Settings, SharedCertificates,
};
pub use encoding::{store_options, time_to_live};
pub use etcd_layout::KubernetesLayout;
pub use http::tls::TlsError;
pub use lockgate_api::kube_version::KubeVersion;
pub use lockgate_listener::Limits as ConnectionLimits;
pub use lockgate_workloads::Settings as WorkloadSettings;
pub use server::{Access, Running, StartError};
pub use test_server::TestServer;
pub use version::KUBERNETES_VERSION;
