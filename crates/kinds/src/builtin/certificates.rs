//! The group `certificates.k8s.io`.

mod certificate_signing_request;

use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::check_subdomain;
use lockgate_go::quote::quote;

use crate::at::At;
use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] =
    [certificate_signing_request::CERTIFICATE_SIGNING_REQUESTS];

/// The name of a signer: a domain and a path.
///
/// UPSTREAM: pkg/apis/core/validation/names.go (ValidateSignerName)
pub(super) fn signer_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_empty() {
        return at.required(errors);
    }
    let Some((domain, path)) = at.text().split_once('/') else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return at.invalid(errors, detail);
    };
    for message in check_subdomain(domain) {
        let detail = format!("validating label {}: {message}", quote(domain));
        at.invalid_as(errors, Shown::Text(domain), detail);
    }
    if path.is_empty() {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        at.invalid(errors, detail);
    }
}
