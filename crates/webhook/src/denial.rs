//! Denials, which are decisions, and faults, which are not.

use std::error::Error;
use std::fmt;

use lockgate_api::admission::GroupVersionKind;
use lockgate_api::field::{FieldError, aggregate};
use lockgate_api::meta::status::{Status, StatusCause, StatusDetails};

/// The decision of a webhook: `Ok` allows the request.
pub type Verdict = Result<(), Refusal>;

/// The reason that a request is not allowed.
#[derive(Debug)]
pub enum Refusal {
    /// The webhook denies it.
    Denied(Box<Denial>),
    /// The webhook cannot decide, and the `failurePolicy` does.
    Fault(Fault),
}

/// A denial, with the status for the client.
///
/// ```
/// use lockgate_webhook::Denial;
///
/// let denial = Denial::forbidden("only on weekdays").reason("Weekend");
/// assert_eq!(denial.to_string(), "only on weekdays");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub(crate) status: Status,
}

/// A denial built elsewhere; for a code below 400 the API server chooses the code.
impl From<Status> for Denial {
    fn from(status: Status) -> Self {
        Self { status }
    }
}

impl Denial {
    /// A denial with a status code of 400 or more.
    #[must_use]
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status: Status {
                status: String::from("Failure"),
                message: message.into(),
                reason: reason.to_owned(),
                code: i32::from(code.max(400)),
                ..Status::default()
            },
        }
    }

    /// 403: the rules do not allow the request. The usual denial.
    #[must_use]
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    /// 400: the request is malformed.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404: something the object refers to does not exist.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "NotFound", message)
    }

    /// 409: the request conflicts with the current state.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// 429: too many requests; the client may retry after this many seconds.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: i32) -> Self {
        let mut denial = Self::new(429, "TooManyRequests", message);
        denial.details().retry_after_seconds = retry_after_seconds;
        denial
    }

    /// 422: fields of the object are invalid, each with a cause.
    #[must_use]
    pub fn invalid(errors: &[FieldError]) -> Self {
        let mut denial = Self::new(422, "Invalid", aggregate(errors));
        denial.details().causes = Some(
            errors
                .iter()
                .map(|error| StatusCause {
                    reason: error.error_type.reason().to_owned(),
                    message: error.body(),
                    field: error.field.clone(),
                })
                .collect(),
        );
        denial
    }

    /// Sets the reason, which programs evaluate.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.status.reason = reason.into();
        self
    }

    /// Sets the status code.
    #[must_use]
    pub fn code(mut self, code: u16) -> Self {
        self.status.code = i32::from(code.max(400));
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn cause(
        mut self,
        reason: impl Into<String>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let cause = StatusCause {
            reason: reason.into(),
            message: message.into(),
            field: field.into(),
        };
        self.details().causes.get_or_insert_default().push(cause);
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Sets the kind and name of the object if the details lack them: kubectl prints them before causes.
    pub(crate) fn name_object(&mut self, kind: &GroupVersionKind, name: &str) {
        if let Some(details) = &mut self.status.details
            && details.kind.is_empty()
        {
            details.kind.clone_from(&kind.kind);
            details.group.clone_from(&kind.group);
            name.clone_into(&mut details.name);
        }
    }

    /// Joins denials: all messages, the code and reason of the first, and every cause.
    pub(crate) fn join(denials: Vec<Self>) -> Option<Self> {
        let mut denials = denials.into_iter();
        let mut first = denials.next()?;
        for mut other in denials {
            first.status.message.push_str("; ");
            first.status.message.push_str(&other.status.message);
            if let Some(causes) = other.status.details.take().and_then(|more| more.causes) {
                first
                    .details()
                    .causes
                    .get_or_insert_default()
                    .extend(causes);
            }
        }
        Some(first)
    }

    fn details(&mut self) -> &mut StatusDetails {
        self.status.details.get_or_insert_default()
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status.message)
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::Denied(Box::new(denial))
    }
}

/// The webhook could not decide: its database is unavailable, or its code has a bug.
///
/// `?` converts any error into a fault, which keeps it. API clients only see that the webhook failed, and only if the
/// `failurePolicy` is `Fail`; the message is for the log of the webhook. `{fault}` prints the outermost error,
/// `{fault:#}` its causes as well.
///
/// ```
/// use lockgate_webhook::{Fault, Verdict};
///
/// fn check(quota: &str) -> Verdict {
///     let quota: u32 = quota.parse()?;
///     assert!(quota > 0);
///     Ok(())
/// }
/// # assert!(check("ten").is_err());
///
/// let away = std::io::Error::other("connection refused");
/// let fault = Fault::because(away).context("cannot read the quota");
/// assert_eq!(fault.to_string(), "cannot read the quota");
/// assert_eq!(format!("{fault:#}"), "cannot read the quota: connection refused");
/// assert!(fault.find::<std::io::Error>().is_some());
/// ```
pub struct Fault(Box<dyn Error + Send + Sync>);

/// A fault message with its source error.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Message {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Fault {
    /// Creates a fault with a message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Message {
            text: message.into(),
            source: None,
        }))
    }

    /// Creates a fault from its cause.
    #[must_use]
    pub fn because(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    /// Adds a description of the failed operation to the error.
    #[must_use]
    pub fn context(self, text: impl Into<String>) -> Self {
        Self(Box::new(Message {
            text: text.into(),
            source: Some(self.0),
        }))
    }

    /// The chain of errors, from the outermost to the root cause.
    pub fn chain(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        fn cause<'e>(error: &&'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
            (*error).source()
        }
        let first: &(dyn Error + 'static) = &*self.0;
        std::iter::successors(Some(first), cause)
    }

    /// The first error of a type in the chain.
    #[must_use]
    pub fn find<E: Error + 'static>(&self) -> Option<&E> {
        self.chain().find_map(|error| error.downcast_ref())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        if f.alternate() {
            for cause in self.chain().skip(1) {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({:?})", self.0)
    }
}

// `Fault` does not implement `Error`, like the errors of `anyhow`: otherwise not every error could be converted to it.
impl<E: Error + Send + Sync + 'static> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Field errors, collected so that the client gets all of them at once.
///
/// ```
/// use lockgate_webhook::field::{FieldError, Path, Shown};
/// use lockgate_webhook::FieldErrors;
///
/// let spec = Path::root("spec");
/// let mut errors = FieldErrors::default();
/// errors.push(FieldError::invalid(&spec.child("size"), Shown::Text("huge"), "must be a number"));
/// let refused = errors.into_verdict().unwrap_err();
/// # assert!(matches!(refused, lockgate_webhook::Refusal::Denied(denial)
/// #     if denial.to_string() == "spec.size: Invalid value: \"huge\": must be a number"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Adds an error.
    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The errors.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.0.iter()
    }

    /// Allows the request if there are no errors, otherwise denies it with all of them.
    ///
    /// # Errors
    ///
    /// Denies if there are errors.
    pub fn into_verdict(self) -> Verdict {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(Denial::invalid(&self.0).into())
    }
}

impl Extend<FieldError> for FieldErrors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        self.0.extend(errors);
    }
}
