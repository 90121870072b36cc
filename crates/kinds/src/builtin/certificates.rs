//! The group `certificates.k8s.io`.

mod certificate_signing_request;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] =
    [certificate_signing_request::CERTIFICATE_SIGNING_REQUESTS];
