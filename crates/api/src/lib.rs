//! Wire types and rules of Kubernetes dynamic admission control.
//!
//! This crate contains the API: the objects of `admissionregistration.k8s.io` and `admission.k8s.io`,
//! their defaults, their validation, and the exact error texts for clients. It performs no I/O and
//! makes no admission decisions.
//!
//! ```
//! use lockgate_api::document::yaml;
//! use lockgate_api::registration::strategy::{Request, errors_on_create};
//! use lockgate_api::registration::validation::Unchecked;
//! use lockgate_api::registration::codec;
//!
//! let document = yaml::parse("
//! apiVersion: admissionregistration.k8s.io/v1
//! kind: ValidatingWebhookConfiguration
//! metadata: {name: images}
//! webhooks:
//! - name: images.example.com
//!   clientConfig: {url: 'https://example.com/validate'}
//!   admissionReviewVersions: [v1]
//! ")?;
//! let (kind, version) =
//!     codec::identify("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration").unwrap();
//! let configuration = codec::decode(document.root(), kind, version)?.value;
//!
//! let request = Request { version, expressions: &Unchecked, static_manifests: false };
//! let errors = errors_on_create(&configuration, &request);
//! assert_eq!(
//!     errors[0].to_string(),
//!     "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

pub mod access;
pub mod document;
pub mod field;
pub mod kube_version;

pub mod decode;

pub mod meta;

pub mod admission;
pub mod registration;
