//! The status of a denied request.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/errors/statuserror.go

use lockgate_api::meta::status::Status;
use lockgate_go::quote::quote;

/// The maximum code of an HTTP response.
const MAX_CODE: i32 = 999;

/// The status for the client.
pub(super) fn denial(webhook: &str, status: Option<Status>) -> Status {
    let mut status = status.unwrap_or_default();
    status.kind = String::from("Status");
    status.api_version = String::from("v1");
    status.code = status.code.clamp(400, MAX_CODE);
    if status.status.is_empty() || status.status == "Success" {
        status.status = String::from("Failure");
    }
    let denied = format!("admission webhook {} denied the request", quote(webhook));
    status.message = match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    status
}

/// The status for a webhook with possible side effects in a dry run.
pub(super) fn dry_run_unsupported(webhook: &str) -> Status {
    let webhook = quote(webhook);
    Status::bad_request(format!(
        "admission webhook {webhook} does not support dry run"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_a_failure_of_whatever_the_webhook_said() {
        let said = |code: i32, status: &str, message: &str, reason: &str| Status {
            code,
            status: status.to_owned(),
            message: message.to_owned(),
            reason: reason.to_owned(),
            ..Status::default()
        };
        let none = " without explanation";
        for (answer, code, status, suffix) in [
            (None, 400, "Failure", none),
            (
                Some(said(0, "", "you shall not pass", "")),
                400,
                "Failure",
                ": you shall not pass",
            ),
            (
                Some(said(0, "", "", "Forbidden")),
                400,
                "Failure",
                ": Forbidden",
            ),
            (Some(said(0, "", "no", "Forbidden")), 400, "Failure", ": no"),
            (Some(said(403, "", "", "")), 403, "Failure", none),
            (Some(said(200, "", "", "")), 400, "Failure", none),
            (Some(said(300, "", "", "")), 400, "Failure", none),
            (Some(said(399, "", "", "")), 400, "Failure", none),
            (Some(said(401, "", "", "")), 401, "Failure", none),
            (Some(said(500, "", "", "")), 500, "Failure", none),
            (Some(said(-1, "", "", "")), 400, "Failure", none),
            (Some(said(100_000, "", "", "")), 999, "Failure", none),
            (Some(said(0, "Success", "", "")), 400, "Failure", none),
            (Some(said(0, "Failure", "", "")), 400, "Failure", none),
            (Some(said(0, "custom", "", "")), 400, "custom", none),
        ] {
            let reason = answer
                .as_ref()
                .map(|s| s.reason.clone())
                .unwrap_or_default();
            let got = denial("h.example.com", answer);
            let denied = "admission webhook \"h.example.com\" denied the request";
            assert_eq!(got.message, format!("{denied}{suffix}"));
            assert_eq!(
                (got.code, got.status.as_str(), got.reason),
                (code, status, reason)
            );
            assert_eq!(
                (got.kind.as_str(), got.api_version.as_str()),
                ("Status", "v1")
            );
        }
    }
}
