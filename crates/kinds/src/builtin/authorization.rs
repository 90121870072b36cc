//! The group `authorization.k8s.io`: reviews.

use crate::kind::{CREATE, Kind, Resource, cluster, namespaced};

const LOCAL_SUBJECT_ACCESS_REVIEWS: Resource = namespaced(
    "authorization.k8s.io",
    "v1",
    "localsubjectaccessreviews",
    "localsubjectaccessreview",
    "LocalSubjectAccessReview",
    "LocalSubjectAccessReviewList",
    &Review,
)
.verbs(CREATE);

const SELF_SUBJECT_ACCESS_REVIEWS: Resource = cluster(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "selfsubjectaccessreview",
    "SelfSubjectAccessReview",
    "SelfSubjectAccessReviewList",
    &Review,
)
.verbs(CREATE);

const SELF_SUBJECT_RULES_REVIEWS: Resource = cluster(
    "authorization.k8s.io",
    "v1",
    "selfsubjectrulesreviews",
    "selfsubjectrulesreview",
    "SelfSubjectRulesReview",
    "SelfSubjectRulesReviewList",
    &Review,
)
.verbs(CREATE);

const SUBJECT_ACCESS_REVIEWS: Resource = cluster(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "subjectaccessreview",
    "SubjectAccessReview",
    "SubjectAccessReviewList",
    &Review,
)
.verbs(CREATE);

pub(super) static RESOURCES: [Resource; 4] = [
    LOCAL_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_RULES_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
];

/// A review, which is not stored.
#[derive(Debug)]
struct Review;

impl Kind for Review {}
