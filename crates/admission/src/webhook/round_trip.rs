//! One call of one webhook: its preconditions, the call, and decoding the response. The effect of a failure on the
//! request is decided elsewhere.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lockgate_api::admission::ReviewVersion;
use lockgate_api::admission::request::ReviewBody;
use lockgate_api::admission::response::{
    self, AdmissionDecision, ExpectedResponse, HttpResponse, ResponseError,
};
use lockgate_api::meta::status::Status;
use lockgate_go::mime::parse_media_type;
use lockgate_go::quote::quote;

use super::denial::dry_run_unsupported;
use crate::call::{CallError, Phase, Post, Posted};
use crate::configuration::{CompiledHook, SideEffects};
use crate::host::Host;
use crate::trace::CallOutcome;

/// The maximum duration of a call, even without a deadline.
///
/// UPSTREAM: apiserver pkg/util/webhook/client.go
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The grace period after the deadline before a caller is abandoned. A caller that honours the deadline can report the
/// phase, and should do so first.
const GRACE: Duration = Duration::from_millis(250);

/// A call without a decision.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Failure {
    /// The call failed or its response is malformed. The failure policy applies.
    Call {
        /// The text after `failed calling webhook "…": `.
        reason: String,
        /// The status code for upstream's metrics.
        code: i32,
        phase: Option<Phase>,
    },
    /// The request fails, whatever the failure policy.
    Refused(Box<Status>),
}

impl Failure {
    pub(super) fn call(reason: impl Into<String>, code: i32) -> Self {
        Self::Call {
            reason: reason.into(),
            code,
            phase: None,
        }
    }

    pub(super) fn internal(message: &str) -> Self {
        Self::Refused(Box::new(Status::internal_error(message)))
    }

    pub(super) fn into_outcome(self) -> CallOutcome {
        match self {
            Self::Call {
                reason,
                code,
                phase,
            } => CallOutcome::Failed {
                reason,
                code,
                phase,
            },
            Self::Refused(status) => CallOutcome::Refused(status),
        }
    }
}

/// The status of a failed call with `Fail`.
pub(super) fn failed_call(webhook: &str, reason: &str) -> Status {
    Status::internal_error(&format!(
        "failed calling webhook {}: {reason}",
        quote(webhook)
    ))
}

/// The outcome of one call.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) uid: String,
    pub(super) allowed_time: Option<Duration>,
    /// The duration, from the request until the response was read.
    pub(super) took: Duration,
    pub(super) phases: Vec<(Phase, Duration)>,
    pub(super) result: Result<AdmissionDecision, Failure>,
}

/// Checks the preconditions of a review, and selects its version.
pub(super) fn prepare(hook: &CompiledHook, dry_run: bool) -> Result<ReviewVersion, Failure> {
    if dry_run {
        match hook.side_effects {
            SideEffects::Unsaid => return Err(Failure::call("Webhook SideEffects is nil", 400)),
            SideEffects::Possible => {
                let status = dry_run_unsupported(hook.name());
                return Err(Failure::Refused(Box::new(status)));
            }
            SideEffects::NoneOnDryRun => {}
        }
    }
    hook.review_version()
        .map_err(|none| Failure::call(format!("could not create admission objects: {none}"), 400))
}

/// Calls the webhook and decodes its response.
pub(super) async fn call_webhook(
    host: &Host,
    hook: &CompiledHook,
    request_deadline: Option<Instant>,
    body: &ReviewBody,
    version: ReviewVersion,
    may_patch: bool,
) -> Reply {
    let uid = host.ids.uid();
    tracing::Span::current().record("uid", uid.as_str());
    let mut reply = Reply {
        uid,
        allowed_time: None,
        took: Duration::ZERO,
        phases: Vec::new(),
        result: Ok(AdmissionDecision::default()),
    };
    let client = match hook.client(&*host.caller) {
        Ok(client) => client,
        Err(error) => {
            let reason = format!("could not get REST client: {error}");
            reply.result = Err(Failure::call(reason, 500));
            return reply;
        }
    };
    let now = host.clock.now();
    let own_deadline = hook.timeout().and_then(|timeout| now.checked_add(timeout));
    let deadline = own_deadline.into_iter().chain(request_deadline).min();
    reply.allowed_time = deadline.map(|deadline| deadline.saturating_duration_since(now));

    let post = Post {
        body: Bytes::from(body.with_uid(&reply.uid)),
        deadline,
    };
    let limit = deadline
        .into_iter()
        .chain(now.checked_add(CALL_LIMIT))
        .min()
        .and_then(|limit| limit.checked_add(GRACE));
    let posted = match limit {
        Some(limit) => tokio::time::timeout_at(limit.into(), client.post(post))
            .await
            .unwrap_or_else(|_| overdue()),
        None => client.post(post).await,
    };
    reply.phases = posted.phases;
    let expected = ExpectedResponse {
        version,
        uid: &reply.uid,
        may_patch,
    };
    reply.result = read(posted.result, &expected);
    reply.took = host.clock.now().saturating_duration_since(now);
    if reply.result.is_ok() {
        tracing::debug!("Request completed");
    }
    reply
}

fn overdue() -> Posted {
    Posted {
        result: Err(CallError {
            message: String::from("context deadline exceeded"),
            phase: Phase::Wait,
            timed_out: true,
        }),
        phases: Vec::new(),
    }
}

fn read(
    result: Result<crate::call::HttpResponse, CallError>,
    expected: &ExpectedResponse<'_>,
) -> Result<AdmissionDecision, Failure> {
    let response = result.map_err(|error| Failure::Call {
        reason: format!("failed to call webhook: {}", error.message),
        code: 503,
        phase: Some(error.phase),
    })?;
    let http = HttpResponse {
        code: response.code,
        content_type: response.content_type.as_deref(),
        body: &response.body,
    };
    response::read(&http, expected).map_err(|error| match error {
        ResponseError::Call { message, code } => {
            // An unparsable content type is an internal error to upstream's client.
            let bad_type = http
                .content_type
                .is_some_and(|text| !text.is_empty() && parse_media_type(text).is_err());
            let code = code.unwrap_or(if bad_type { 500 } else { 503 });
            Failure::call(format!("failed to call webhook: {message}"), code)
        }
        other => Failure::call(format!("received invalid webhook response: {other}"), 503),
    })
}
