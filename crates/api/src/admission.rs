//! `admission.k8s.io`: what is said between the API server and a webhook.
//!
//! [`request`] builds what is sent, [`answer`] reads what comes back, and [`v1`] and [`v1beta1`] are
//! the wire types of both, which webhooks use the other way round.

pub mod answer;
pub mod request;
mod review;

pub use review::{GroupVersionKind, GroupVersionResource, UserInfo, v1, v1beta1};

/// The API group.
pub const GROUP: &str = "admission.k8s.io";

/// A version of `AdmissionReview`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// `v1`: answers are held to the protocol.
    V1,
    /// `v1beta1`: answers are taken as they come.
    V1beta1,
}

impl ReviewVersion {
    /// The name as it stands in `apiVersion` after the group.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }

    /// The first of a webhook's `admissionReviewVersions` that is known here.
    ///
    /// # Errors
    ///
    /// None is known.
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

/// A webhook reads no version of `AdmissionReview` that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("webhook does not accept known AdmissionReview versions (v1, v1beta1)")]
pub struct NoKnownVersion;
