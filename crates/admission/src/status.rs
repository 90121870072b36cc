//! The engine's statuses, with the messages of the API server.
//!
//! UPSTREAM: apimachinery pkg/api/errors/errors.go

use lockgate_api::admission::GroupVersionResource;
use lockgate_api::meta::status::{Status, StatusDetails};
use lockgate_go::quote::quote;

use crate::request::Request;

/// The message of an expired request.
const REQUEST_TIMEOUT: &str = "Timeout: request did not complete within requested timeout";

fn failure(code: i32, reason: &str, message: String, details: Option<StatusDetails>) -> Status {
    Status {
        kind: String::from("Status"),
        api_version: String::from("v1"),
        status: String::from("Failure"),
        message,
        reason: reason.to_owned(),
        details,
        code,
        ..Status::default()
    }
}

/// `pods`, or `deployments.apps`.
fn qualified(resource: &GroupVersionResource) -> String {
    if resource.group.is_empty() {
        resource.resource.clone()
    } else {
        format!("{}.{}", resource.resource, resource.group)
    }
}

fn about(resource: &GroupVersionResource, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: resource.group.clone(),
        kind: resource.resource.clone(),
        ..StatusDetails::default()
    }
}

/// 403, with the name in the URL.
#[must_use]
pub fn forbidden(resource: &GroupVersionResource, name: &str, why: &str) -> Status {
    let what = qualified(resource);
    let message = if name.is_empty() {
        format!("{what} is forbidden: {why}")
    } else {
        format!("{what} {} is forbidden: {why}", quote(name))
    };
    failure(403, "Forbidden", message, Some(about(resource, name)))
}

/// 403, with the best available name.
#[must_use]
pub fn forbidden_request(request: &Request, why: &str) -> Status {
    forbidden(&request.resource, request.display_name(), why)
}

/// 403: the data for a decision is not loaded yet.
#[must_use]
pub fn not_ready(request: &Request) -> Status {
    forbidden_request(request, "not yet ready to handle request")
}

/// 404 for a namespace.
#[must_use]
pub fn namespace_not_found(name: &str) -> Status {
    let details = StatusDetails {
        name: name.to_owned(),
        kind: String::from("namespaces"),
        ..StatusDetails::default()
    };
    let message = format!("namespaces {} not found", quote(name));
    failure(404, "NotFound", message, Some(details))
}

/// 504: the deadline of the request expired.
#[must_use]
pub fn request_timeout() -> Status {
    let details = Some(StatusDetails::default());
    failure(504, "Timeout", String::from(REQUEST_TIMEOUT), details)
}

/// 503: the data for a decision is not available yet.
#[must_use]
pub fn unavailable(why: &str) -> Status {
    failure(503, "ServiceUnavailable", why.to_owned(), None)
}

/// 500 for an error without a status.
#[must_use]
pub fn raw_error(message: String) -> Status {
    failure(500, "", message, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::resource;

    #[test]
    fn says_what_the_api_server_says() {
        let deployments = resource("apps", "v1", "deployments");
        let pods = resource("", "v1", "pods");
        for (status, want) in [
            (
                forbidden(&pods, "p", "why"),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"p\" is forbidden: why","reason":"Forbidden","details":{"name":"p","kind":"pods"},"code":403}"#,
            ),
            (
                forbidden(&deployments, "", "why"),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps is forbidden: why","reason":"Forbidden","details":{"group":"apps","kind":"deployments"},"code":403}"#,
            ),
            (
                namespace_not_found("gone"),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"namespaces \"gone\" not found","reason":"NotFound","details":{"name":"gone","kind":"namespaces"},"code":404}"#,
            ),
            (
                request_timeout(),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: request did not complete within requested timeout","reason":"Timeout","details":{},"code":504}"#,
            ),
            (
                raw_error(String::from("no")),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","code":500}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&status).unwrap(), want);
        }
    }
}
