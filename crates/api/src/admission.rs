//! `admission.k8s.io`: the AdmissionReview protocol between the API server and webhooks.
//!
//! [`request`] builds requests, [`response`] verifies responses, and [`v1`] and [`v1beta1`] are the
//! wire types of both, for servers and for webhooks.

pub mod request;
pub mod response;
mod review;

pub use review::{GroupVersionKind, GroupVersionResource, UserInfo, v1, v1beta1};

/// The API group.
pub const GROUP: &str = "admission.k8s.io";

/// A version of `AdmissionReview`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `v1`: responses are verified.
    V1,
    /// `v1beta1`: responses are not verified.
    V1beta1,
}

impl ReviewVersion {
    /// The version in `apiVersion`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }

    /// The first supported version of a webhook's `admissionReviewVersions`.
    ///
    /// # Errors
    ///
    /// None is supported.
    pub fn choose<S: AsRef<str>>(offered: &[S]) -> Result<Self, NoKnownVersion> {
        offered
            .iter()
            .find_map(|version| match version.as_ref() {
                "v1" => Some(Self::V1),
                "v1beta1" => Some(Self::V1beta1),
                _ => None,
            })
            .ok_or(NoKnownVersion)
    }
}

/// A webhook accepts no supported version of `AdmissionReview`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("webhook does not accept known AdmissionReview versions (v1, v1beta1)")]
pub struct NoKnownVersion;
