//! An admission chain without a cluster: the engine of the server, with webhook configurations, policies, namespaces,
//! roles and CustomResourceDefinitions from manifests.
//!
//! ```text
//!   manifests ─► Cluster ─► Chain (the engine, webhooks played by `hooks`)
//!   object, operation, user, or a review ─► Request ─► Chain::run ─► Run ─► explanation, test, replay
//! ```
//!
//! The base of `lockgate explain`, `lockgate test` and `lockgate replay`. There is no second matcher and no second
//! evaluator: all results are derived from the engine's trace.
//!
//! ```
//! use lockgate_offline::chain::{Chain, Tracing};
//! use lockgate_offline::cluster::{Cluster, Validation};
//! use lockgate_offline::explanation::explain;
//! use lockgate_offline::hooks::Hooks;
//! use lockgate_offline::manifest;
//! use lockgate_offline::request::RequestSpec;
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let manifests = manifest::read("policy.yaml", "
//! apiVersion: admissionregistration.k8s.io/v1
//! kind: ValidatingAdmissionPolicy
//! metadata: {name: no-latest}
//! spec:
//!   matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
//!   validations: [{expression: \"object.spec.containers.all(c, !c.image.endsWith(':latest'))\"}]
//! ---
//! apiVersion: admissionregistration.k8s.io/v1
//! kind: ValidatingAdmissionPolicyBinding
//! metadata: {name: no-latest}
//! spec: {policyName: no-latest, validationActions: [Deny]}
//! ")?;
//! let cluster = Cluster::from_manifests(manifests, Validation::Strict)?;
//! let wanted = RequestSpec {
//!     object: Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
//!         "spec": {"containers": [{"name": "c", "image": "nginx:latest"}]}})),
//!     ..RequestSpec::default()
//! };
//! let request = wanted.make(&cluster.kinds)?.request;
//! let chain = Chain::new(&cluster, Hooks::default());
//! let run = chain.run(request, Tracing::Explained).await;
//! let explanation = explain(&chain, &run);
//! assert!(!explanation.decision.allowed);
//! # Ok(()) }
//! ```

#![warn(missing_docs)]

// A module uses only those listed before it.
pub mod diff;
pub mod manifest;

pub mod kinds;

pub mod cluster;
pub mod hooks;
pub mod request;

pub mod capture;
pub mod chain;

pub mod audit;
pub mod traffic;

pub mod explanation;

pub mod coverage;
pub mod replay;
pub mod suite;
