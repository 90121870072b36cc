//! Saying no, and failing to say anything.

use std::fmt;

use lockgate_api::admission::GroupVersionKind;
use lockgate_api::field::{FieldError, aggregate};
use lockgate_api::meta::status::{Status, StatusCause, StatusDetails};

/// What a webhook made of a request: nothing against it, or a reason to stop.
pub type Verdict = Result<(), Refusal>;

/// Why a request does not go on.
#[derive(Debug)]
pub enum Refusal {
    /// The webhook says no.
    Denied(Box<Denial>),
    /// The webhook cannot say.
    Fault(Fault),
}

/// A no, with everything the client is told about it.
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

    /// 403: the rules do not allow it. The usual denial.
    #[must_use]
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    /// 400: the request makes no sense.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404: something the object refers to does not exist.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "NotFound", message)
    }

    /// 409: it does not go together with the present state.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// 429: too often; the client may try again after this many seconds.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: i32) -> Self {
        let mut denial = Self::new(429, "TooManyRequests", message);
        denial.details().retry_after_seconds = retry_after_seconds;
        denial
    }

    /// 422: fields of the object are wrong, each with a cause that names it.
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

    /// Another reason, for programs that read it.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.status.reason = reason.into();
        self
    }

    /// Another status code.
    #[must_use]
    pub fn code(mut self, code: u16) -> Self {
        self.status.code = i32::from(code.max(400));
        self
    }

    /// One more cause.
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

    /// What it is, as the API describes outcomes.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Names the object where there are details and they do not: kubectl shows causes under its name.
    pub(crate) fn is_about(&mut self, kind: &GroupVersionKind, name: &str) {
        if let Some(details) = &mut self.status.details
            && details.kind.is_empty()
        {
            details.kind.clone_from(&kind.kind);
            details.group.clone_from(&kind.group);
            name.clone_into(&mut details.name);
        }
    }

    /// What several say together: the texts of all in the words of the first, and every cause.
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

/// The webhook could not decide: its database is away, its own code is wrong.
///
/// The client of the API sees no more than that the webhook failed, and only if the `failurePolicy`
/// is `Fail`; the text is for the logs of the webhook and of the API server.
#[derive(Debug)]
pub struct Fault {
    message: String,
}

impl Fault {
    /// A fault, in words.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }

    /// A fault that another error caused, with all that caused that one.
    #[must_use]
    pub fn because(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self { message }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Problems with fields, collected so that the client sees all of them at once.
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
    /// Records a problem.
    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The problems.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.0.iter()
    }

    /// Allows without problems, and denies with all of them otherwise.
    ///
    /// # Errors
    ///
    /// There are problems.
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
