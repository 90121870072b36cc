//! The group `authentication.k8s.io`: reviews.

use crate::kind::{CREATE, Kind, Resource, cluster};

const SELF_SUBJECT_REVIEWS: Resource = cluster(
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    "selfsubjectreview",
    "SelfSubjectReview",
    "SelfSubjectReviewList",
    &Review,
)
.verbs(CREATE);

const TOKEN_REVIEWS: Resource = cluster(
    "authentication.k8s.io",
    "v1",
    "tokenreviews",
    "tokenreview",
    "TokenReview",
    "TokenReviewList",
    &Review,
)
.verbs(CREATE);

pub(super) static RESOURCES: [Resource; 2] = [SELF_SUBJECT_REVIEWS, TOKEN_REVIEWS];

/// A review, which is not stored.
#[derive(Debug)]
struct Review;

impl Kind for Review {}
