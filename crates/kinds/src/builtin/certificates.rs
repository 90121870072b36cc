//! The group `certificates.k8s.io`.

mod certificate_signing_request;
mod pkcs10;

use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::{LABEL_MAX, SUBDOMAIN_MAX, check_subdomain};
use lockgate_go::quote::quote;

use crate::at::At;
use crate::checks::check_label;
use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 1] =
    [certificate_signing_request::CERTIFICATE_SIGNING_REQUESTS];

/// Validates a signer name: a domain and a path.
///
/// UPSTREAM: pkg/apis/core/validation/names.go (ValidateSignerName)
pub(super) fn signer_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    if at.is_empty() {
        return at.required(errors);
    }
    let segments: Vec<&str> = at.text().split('/').collect();
    let [domain, path] = segments[..] else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return at.invalid(errors, detail);
    };
    if domain.len() > SUBDOMAIN_MAX {
        at.too_long(errors, SUBDOMAIN_MAX);
    }
    let labels = |errors: &mut FieldErrors, part: &str, check: fn(&str) -> Vec<String>| {
        // Only the first invalid label is reported.
        let wrong = part.split('.').find(|label| !check(label).is_empty());
        for message in wrong.map_or_else(Vec::new, check) {
            let detail = format!("validating label {}: {message}", quote(wrong.unwrap_or("")));
            at.invalid_as(errors, Shown::Text(part), detail);
        }
    };
    labels(errors, domain, check_label);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        at.invalid_as(errors, Shown::Text(domain), detail);
    }
    labels(errors, path, check_subdomain);
    // A domain, and a path of a domain and a label.
    let most = SUBDOMAIN_MAX + 1 + SUBDOMAIN_MAX + 1 + LABEL_MAX;
    if at.text().len() > most {
        at.too_long(errors, most);
    }
}
