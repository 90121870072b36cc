//! `metav1.Status`: the result of an API request.

use lockgate_go::quote::quote;

use super::object::ListMeta;
use crate::decode::wire_struct;
use crate::field::{FieldError, aggregate};

wire_struct! {
    /// The result of an API request.
    pub struct Status = "v1.Status" {
        /// `Status`.
        kind: String = "kind" in "TypeMeta", omit_empty, text("string");
        /// `v1`.
        api_version: String = "apiVersion" in "TypeMeta", omit_empty, text("string");
        /// List metadata, usually empty but always encoded.
        metadata: ListMeta = "metadata", always, object;
        /// `Success` or `Failure`.
        status: String = "status", omit_empty, text("string");
        /// The human-readable message.
        message: String = "message", omit_empty, text("string");
        /// The machine-readable reason.
        reason: String = "reason", omit_empty, text("v1.StatusReason");
        /// Details of the result.
        details: Option<StatusDetails> = "details", omit_empty, opt_object;
        /// The HTTP status code.
        code: i32 = "code", omit_empty, int32;
    }
}

wire_struct! {
    /// The object and the causes of a result.
    pub struct StatusDetails = "v1.StatusDetails" {
        /// The object's name.
        name: String = "name", omit_empty, text("string");
        /// The object's API group.
        group: String = "group", omit_empty, text("string");
        /// The object's kind, or the resource.
        kind: String = "kind", omit_empty, text("string");
        /// The object's UID.
        uid: String = "uid", omit_empty, text("types.UID");
        /// The causes, one per error.
        causes: Option<Vec<StatusCause>> = "causes", omit_empty, objects;
        /// Seconds after which to retry.
        retry_after_seconds: i32 = "retryAfterSeconds", omit_empty, int32;
    }
}

wire_struct! {
    /// A cause of an error.
    pub struct StatusCause = "v1.StatusCause" {
        /// The type of the cause.
        reason: String = "reason", omit_empty, text("v1.CauseType");
        /// The human-readable message.
        message: String = "message", omit_empty, text("string");
        /// The path of the field.
        field: String = "field", omit_empty, text("string");
    }
}

impl Status {
    fn failure(code: i32, reason: &str, message: String) -> Self {
        Self {
            kind: String::from("Status"),
            api_version: String::from("v1"),
            status: String::from("Failure"),
            message,
            reason: reason.to_owned(),
            code,
            ..Self::default()
        }
    }

    /// 422: the object is invalid. `kind` and `group` are those of the object.
    #[must_use]
    pub fn invalid(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let what = format!(
            "{qualified} {} is invalid: {}",
            quote(name),
            aggregate(errors)
        );
        let causes = errors.iter().map(|error| StatusCause {
            reason: error.error_type.reason().to_owned(),
            message: error.body(),
            field: error.field.clone(),
        });
        let details = StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: Some(causes.collect()),
            ..StatusDetails::default()
        };
        Self {
            details: Some(details),
            ..Self::failure(422, "Invalid", what)
        }
    }

    /// 400: the request is invalid.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message.into())
    }

    /// 500: an internal error.
    #[must_use]
    pub fn internal_error(message: &str) -> Self {
        let causes = vec![StatusCause {
            message: message.to_owned(),
            ..StatusCause::default()
        }];
        let details = StatusDetails {
            causes: Some(causes),
            ..StatusDetails::default()
        };
        let message = format!("Internal error occurred: {message}");
        Self {
            details: Some(details),
            ..Self::failure(500, "InternalError", message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{Path, Shown};

    #[test]
    fn lists_each_cause_and_each_distinct_text() {
        let path = Path::root("metadata");
        let error = FieldError::invalid(&path, Shown::Text("x"), "bad");
        let status = Status::invalid("Pod", "", "p", &[error.clone(), error]);
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Pod \"p\" is invalid: metadata: Invalid value: \"x\": bad","reason":"Invalid","details":{"name":"p","kind":"Pod","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"x\": bad","field":"metadata"},{"reason":"FieldValueInvalid","message":"Invalid value: \"x\": bad","field":"metadata"}]},"code":422}"#
        );
    }
}
