//! Validation of client configs.
//!
//! UPSTREAM: k8s.io/apiserver pkg/util/webhook/validation.go.

use lockgate_go::quote::{quote, quote_bytes};
use lockgate_go::url::Url;

use crate::field::{FieldError, FieldErrors, Path, Shown};
use crate::meta::names;
use crate::registration::hub::{ClientConfig, ServiceReference};

const URL_FORM: &str = "; desired format: https://host[/path]";
const PORTS: std::ops::RangeInclusive<i32> = 1..=65535;

pub(super) fn validate(errors: &mut FieldErrors, config: &ClientConfig, path: &Path<'_>) {
    match (&config.url, &config.service) {
        (Some(url), None) => validate_url(errors, url, &path.child("url")),
        (None, Some(service)) => validate_service(errors, service, &path.child("service")),
        _ => {
            errors.push(FieldError::required(
                path,
                "exactly one of url or service is required",
            ));
        }
    }
}

fn validate_url(errors: &mut FieldErrors, text: &str, path: &Path<'_>) {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(problem) => {
            let detail = format!("url must be a valid URL: {problem}{URL_FORM}");
            errors.push(FieldError::required(path, detail));
            return;
        }
    };
    if url.scheme() != "https" {
        let detail = format!("'https' is the only allowed URL scheme{URL_FORM}");
        errors.push(FieldError::invalid(path, Shown::Text(url.scheme()), detail));
    }
    if url.host().is_empty() {
        let detail = format!("host must be specified{URL_FORM}");
        errors.push(FieldError::invalid(path, Shown::Text(""), detail));
    }
    if let Some(user) = &url.user() {
        let detail = "user information is not permitted in the URL";
        errors.push(FieldError::invalid(path, Shown::Text(user), detail));
    }
    if !url.fragment().is_empty() {
        let shown = quote_bytes(url.fragment());
        let detail = "fragments are not permitted in the URL";
        errors.push(FieldError::invalid(path, Shown::Rendered(&shown), detail));
    }
    if !url.raw_query().is_empty() {
        let detail = "query parameters are not permitted in the URL";
        errors.push(FieldError::invalid(
            path,
            Shown::Text(url.raw_query()),
            detail,
        ));
    }
}

fn validate_service(errors: &mut FieldErrors, service: &ServiceReference, path: &Path<'_>) {
    // Upstream passes name and namespace in the wrong order, which the error messages show.
    if service.namespace.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    if service.name.is_empty() {
        errors.push(FieldError::required(&path.child("namespace"), ""));
    }
    if let Some(port) = service.port
        && !PORTS.contains(&port)
    {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(
            &path.child("port"),
            Shown::Integer(port.into()),
            detail,
        ));
    }
    if let Some(service_path) = &service.path {
        validate_path(errors, service_path, &path.child("path"));
    }
}

fn validate_path(errors: &mut FieldErrors, service_path: &str, path: &Path<'_>) {
    if matches!(service_path, "" | "/") {
        return;
    }
    // Every error contains the whole path, so it is quoted once.
    let shown = quote(service_path);
    let mut invalid = |detail: String| {
        errors.push(FieldError::invalid(path, Shown::Rendered(&shown), detail));
    };
    if service_path == "//" {
        return invalid(String::from("segment[0] may not be empty"));
    }
    if !service_path.starts_with('/') {
        invalid(String::from("must start with a '/'"));
    }
    // The first byte is removed unconditionally; the rest of a multi-byte character is an invalid
    // segment.
    let checked = String::from_utf8_lossy(&service_path.as_bytes()[1..]);
    let checked = checked.strip_suffix('/').unwrap_or(&checked);
    for (index, segment) in checked.split('/').enumerate() {
        if segment.is_empty() {
            invalid(format!("segment[{index}] may not be empty"));
            continue;
        }
        for problem in names::check_subdomain(segment) {
            invalid(format!("segment[{index}]: {problem}"));
        }
    }
}
