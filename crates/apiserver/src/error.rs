//! Failures as `Status` objects, with upstream's messages.
//!
//! UPSTREAM: apimachinery pkg/api/errors/errors.go

use lockgate_admission::decision::Denial;
use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_api::meta::names::check_path_segment;
use lockgate_api::meta::status::{Status, StatusCause, StatusDetails};
use lockgate_go::quote::quote;
use lockgate_store::{ReadError, Unavailable};

/// The failure of a request, as returned to the client.
#[derive(Debug, Clone)]
pub(crate) struct Failure(pub(crate) Box<Status>);

impl Failure {
    /// Like upstream's `IsNotFound`, for failures of any origin.
    ///
    /// UPSTREAM: apimachinery pkg/api/errors/errors.go
    pub(crate) fn is_not_found(&self) -> bool {
        self.0.code == 404
    }

    /// Like upstream's `IsAlreadyExists`.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.0.reason == ALREADY_EXISTS
    }
}

/// The result of a stage.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

impl From<Box<Denial>> for Failure {
    fn from(denial: Box<Denial>) -> Self {
        denial.status.into()
    }
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        tracing::error!(%error, "storage failed");
        Status::internal_error(&error.to_string()).into()
    }
}

const ALREADY_EXISTS: &str = "AlreadyExists";

/// The message for a conflict with another writer.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn failure(code: i32, reason: &str, message: String, details: Option<StatusDetails>) -> Failure {
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
    .into()
}

/// `pods`, or `deployments.apps`.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

fn details(group: &str, kind: &str, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..StatusDetails::default()
    }
}

/// 400.
pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
    Status::bad_request(message).into()
}

/// Validates the name in a lookup.
///
/// UPSTREAM: apiserver pkg/registry/generic/registry/store.go (NamespaceKeyFunc, NoNamespaceKeyFunc)
pub(crate) fn check_key(name: &str) -> Outcome<()> {
    if name.is_empty() {
        return Err(bad_request("Name parameter required."));
    }
    let messages = check_path_segment(name);
    if messages.is_empty() {
        return Ok(());
    }
    let why = messages.join(";");
    Err(bad_request(format!(
        "Name parameter invalid: {}: {why}",
        quote(name)
    )))
}

/// 500 with the cause in the message.
pub(crate) fn internal(message: &str) -> Failure {
    Status::internal_error(message).into()
}

/// 500 for an error without a status.
pub(crate) fn plain(message: impl Into<String>) -> Failure {
    failure(500, "", message.into(), None)
}

/// 404.
pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Failure {
    let message = format!("{} {} not found", qualified(group, plural), quote(name));
    failure(404, "NotFound", message, Some(details(group, plural, name)))
}

/// 409: the name exists.
pub(crate) fn already_exists(group: &str, plural: &str, name: &str) -> Failure {
    let what = qualified(group, plural);
    let message = format!("{what} {} already exists", quote(name));
    failure(
        409,
        ALREADY_EXISTS,
        message,
        Some(details(group, plural, name)),
    )
}

/// 409: no unique name could be generated.
pub(crate) fn no_name_found(group: &str, plural: &str, name: &str) -> Failure {
    let what = qualified(group, plural);
    let message = format!(
        "{what} {} already exists, the server was not able to generate a unique name for the object",
        quote(name)
    );
    let details = StatusDetails {
        retry_after_seconds: 1,
        ..details(group, plural, name)
    };
    failure(409, ALREADY_EXISTS, message, Some(details))
}

/// 409, with a custom description of the kind.
pub(crate) fn conflict(group: &str, what: &str, name: &str, why: &str) -> Failure {
    let message = format!(
        "Operation cannot be fulfilled on {} {}: {why}",
        qualified(group, what),
        quote(name)
    );
    failure(409, "Conflict", message, Some(details(group, what, name)))
}

/// 409: a conflict with another writer.
pub(crate) fn modified(group: &str, plural: &str, name: &str) -> Failure {
    conflict(group, plural, name, MODIFIED)
}

/// 409: a server-side apply conflicts with other field managers.
pub(crate) fn apply_conflict(message: String, causes: Vec<StatusCause>) -> Failure {
    let details = StatusDetails {
        causes: Some(causes),
        ..StatusDetails::default()
    };
    failure(409, "Conflict", message, Some(details))
}

/// 422: the object is invalid.
pub(crate) fn invalid(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Failure {
    Status::invalid(kind, group, name, errors).into()
}

/// 422: an update of this kind must contain a resourceVersion.
pub(crate) fn version_required(group: &str, plural: &str, name: &str) -> Failure {
    let metadata = Path::root("metadata");
    let path = metadata.child("resourceVersion");
    let error = FieldError::invalid(&path, Shown::Integer(0), "must be specified for an update");
    // UPSTREAM: apiserver pkg/registry/generic/registry/store.go: the error contains the resource, not the kind.
    invalid(plural, group, name, &[error])
}

/// 403: the user lacks a permission.
pub(crate) fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Failure {
    let what = qualified(group, resource);
    let message = match (what.is_empty(), name.is_empty()) {
        (true, _) => format!("forbidden: {why}"),
        (false, true) => format!("{what} is forbidden: {why}"),
        (false, false) => format!("{what} {} is forbidden: {why}", quote(name)),
    };
    failure(
        403,
        "Forbidden",
        message,
        Some(details(group, resource, name)),
    )
}

/// 401.
pub(crate) fn unauthorized() -> Failure {
    failure(401, "Unauthorized", String::from("Unauthorized"), None)
}

/// 405.
pub(crate) fn method_not_allowed() -> Failure {
    failure(
        405,
        "MethodNotAllowed",
        String::from("the server does not allow this method on the requested resource"),
        Some(StatusDetails::default()),
    )
}

/// 405 for creates of a terminating CustomResourceDefinition.
pub(crate) fn terminating(group: &str, plural: &str) -> Failure {
    failure(
        405,
        "MethodNotAllowed",
        String::from("create not allowed while custom resource definition is terminating"),
        Some(details(group, plural, "")),
    )
}

/// 404 for a known path with an unknown resource.
pub(crate) fn no_such_resource() -> Failure {
    failure(
        404,
        "NotFound",
        String::from("the server could not find the requested resource"),
        Some(StatusDetails::default()),
    )
}

/// 406 in the format of built-in resources' routes.
pub(crate) fn unrouted_representation(available: &[&str]) -> Failure {
    failure(
        406,
        "NotAcceptable",
        format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            available.join(", ")
        ),
        Some(StatusDetails::default()),
    )
}

/// 406.
pub(crate) fn not_acceptable(accepted: &[&str]) -> Failure {
    let message = format!(
        "only the following media types are accepted: {}",
        accepted.join(", ")
    );
    failure(406, "NotAcceptable", message, None)
}

/// 413.
pub(crate) fn too_large(message: String) -> Failure {
    failure(413, "RequestEntityTooLarge", message, None)
}

/// 415.
pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Failure {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    failure(415, "UnsupportedMediaType", message, None)
}

/// 415 for a patch without a route.
///
/// UPSTREAM: go-restful, for built-in kinds
pub(crate) fn unrouted_media_type() -> Failure {
    failure(
        415,
        "UnsupportedMediaType",
        String::from("415: Unsupported Media Type"),
        Some(StatusDetails::default()),
    )
}

/// 406 for a path with one media type.
///
/// UPSTREAM: go-restful jsr311.go (detectRoute)
pub(crate) fn unrouted_accept(available: &str) -> Failure {
    failure(
        406,
        "NotAcceptable",
        format!("406: Not Acceptable\n\nAvailable representations: {available}"),
        Some(StatusDetails::default()),
    )
}

/// 405 for a verb that custom resources do not have.
pub(crate) fn method_not_supported(group: &str, plural: &str, verb: &str) -> Failure {
    let name = format!("{plural}.{group}");
    let details = StatusDetails {
        group: group.to_owned(),
        kind: plural.to_owned(),
        ..StatusDetails::default()
    };
    failure(
        405,
        "MethodNotAllowed",
        format!(
            "{verb} is not supported on resources of kind {}",
            quote(&name)
        ),
        Some(details),
    )
}

/// 422 for a patch that cannot be applied: the reason is omitted, as upstream.
pub(crate) fn unprocessable() -> Failure {
    failure(
        422,
        "Invalid",
        String::from("the server rejected our request due to an error in our request"),
        Some(StatusDetails::default()),
    )
}

/// 410: the history is compacted.
pub(crate) fn expired(message: impl Into<String>) -> Failure {
    failure(410, "Expired", message.into(), None)
}

/// 429: out of memory for the request.
///
/// UPSTREAM: apimachinery pkg/api/errors/errors.go (NewTooManyRequests)
pub(crate) fn too_many_requests() -> Failure {
    let details = StatusDetails {
        retry_after_seconds: 1,
        ..StatusDetails::default()
    };
    let message = String::from("Too many requests, please try again later.");
    failure(429, "TooManyRequests", message, Some(details))
}

/// 429: the disruption budget of a Pod does not allow its eviction.
pub(crate) fn budget_exhausted(why: &str, retry_after_seconds: i32) -> Failure {
    let details = StatusDetails {
        retry_after_seconds,
        causes: Some(vec![StatusCause {
            reason: String::from("DisruptionBudget"),
            message: why.to_owned(),
            ..StatusCause::default()
        }]),
        ..StatusDetails::default()
    };
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    failure(429, "TooManyRequests", message.to_owned(), Some(details))
}

/// 504: the timeout expired.
pub(crate) fn timeout() -> Failure {
    lockgate_admission::status::request_timeout().into()
}

/// 504: the requested resourceVersion is not available yet.
pub(crate) fn version_too_large(wanted: u64, current: u64) -> Failure {
    let cause = StatusCause {
        reason: String::from("ResourceVersionTooLarge"),
        message: String::from("Too large resource version"),
        ..StatusCause::default()
    };
    let details = StatusDetails {
        causes: Some(vec![cause]),
        retry_after_seconds: 1,
        ..StatusDetails::default()
    };
    let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
    failure(504, "Timeout", message, Some(details))
}

/// 500: stored bytes that cannot be decoded.
///
/// UPSTREAM: apiserver pkg/storage/errors.go (NewCorruptObjError)
pub(crate) fn corrupt(key: &str, revision: u64) -> Failure {
    let message = format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: {revision}, \
         AdditionalErrorMsg: data from the storage is not decodable"
    );
    tracing::error!(key, revision, "stored object is corrupt");
    internal(&message)
}

/// The failure of a read.
pub(crate) fn read_failed(error: ReadError, wanted: u64) -> Failure {
    match error {
        ReadError::Compacted(compacted) => expired(format!(
            "The resourceVersion for the provided list is too old. (oldest available: {})",
            compacted.oldest
        )),
        ReadError::Future { current } => version_too_large(wanted, current.0),
        ReadError::Unavailable(error) => error.into(),
        other => internal(&other.to_string()),
    }
}
