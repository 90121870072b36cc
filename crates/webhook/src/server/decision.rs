//! Metrics and the log line of a decision.
//!
//! The line contains the request and the decision, never the object, which may be a Secret. Denial messages are
//! omitted too, since they often quote the object.

use std::time::Duration;

use super::metrics::{DecisionRequest, Metrics, PerWebhook};
use crate::context::Context;
use crate::response::{Decision, Response};
use crate::review::{Answered, ReviewError};
use crate::webhooks::Webhook;

/// The maximum length of client-provided strings in the log.
const MAX_TEXT: usize = 256;

pub(super) fn record(
    metrics: &Metrics,
    webhook_metrics: &PerWebhook,
    webhook: &Webhook,
    answered: &Answered,
    took: Duration,
) {
    webhook_metrics.duration.observe(took.as_secs_f64());
    let ctx = answered.context.as_ref();
    let (decision, code) = match &answered.outcome {
        Ok(response) => {
            count_response(webhook_metrics, response, answered);
            match response.denial() {
                None => ("allow", 200),
                Some(denial) => ("deny", u16::try_from(denial.status.code).unwrap_or(400)),
            }
        }
        Err(ReviewError::Malformed(_)) => ("error", 400),
        Err(error) => {
            if matches!(error, ReviewError::Panicked(_)) {
                metrics.panics.inc();
            }
            ("error", 500)
        }
    };
    let asked = ctx.map(|ctx| DecisionRequest {
        operation: ctx.operation(),
        resource: ctx.resource(),
        dry_run: ctx.is_dry_run(),
    });
    metrics.decided(webhook_metrics, asked, decision, code);
    let line = DecisionLog {
        webhook: webhook.registration().name(),
        decision,
        code,
        ms: took.as_secs_f64() * 1000.0,
    };
    match (&answered.outcome, ctx) {
        (Ok(response), Some(ctx)) => line.decided(ctx, response),
        (Err(error), Some(ctx)) => line.failed(ctx, error),
        (_, None) => line.unread(answered),
    }
}

fn count_response(webhook_metrics: &PerWebhook, response: &Response, answered: &Answered) {
    webhook_metrics
        .warnings
        .inc_by(response.warnings.len() as u64);
    let operations = response.changes().len();
    if operations > 0 {
        webhook_metrics.patch_operations.observe(operations as f64);
        // The response is hardly larger than its patch.
        webhook_metrics
            .patch_bytes
            .observe(answered.body.len() as f64);
    }
}

struct DecisionLog<'w> {
    webhook: &'w str,
    decision: &'static str,
    code: u16,
    ms: f64,
}

impl DecisionLog<'_> {
    fn decided(&self, ctx: &Context, response: &Response) {
        let (reason, patch) = match &response.decision {
            Decision::Allow(patch) => ("", patch.changes().len()),
            Decision::Deny(denial) => (&*denial.status.reason, 0),
        };
        tracing::info!(
            webhook = self.webhook,
            uid = truncate(ctx.uid()),
            operation = truncate(ctx.operation().as_str()),
            group = truncate(&ctx.resource().group),
            version = truncate(&ctx.resource().version),
            resource = truncate(&ctx.resource().resource),
            subresource = truncate(ctx.sub_resource()),
            namespace = truncate(ctx.namespace()),
            name = truncate(ctx.name()),
            user = truncate(&ctx.user().username),
            dry_run = ctx.is_dry_run(),
            decision = self.decision,
            code = self.code,
            reason = truncate(reason),
            patch,
            warnings = response.warnings.len(),
            ms = self.ms,
            "decided"
        );
    }

    fn failed(&self, ctx: &Context, error: &ReviewError) {
        tracing::error!(
            webhook = self.webhook,
            uid = truncate(ctx.uid()),
            operation = truncate(ctx.operation().as_str()),
            group = truncate(&ctx.resource().group),
            version = truncate(&ctx.resource().version),
            resource = truncate(&ctx.resource().resource),
            subresource = truncate(ctx.sub_resource()),
            namespace = truncate(ctx.namespace()),
            name = truncate(ctx.name()),
            user = truncate(&ctx.user().username),
            dry_run = ctx.is_dry_run(),
            decision = self.decision,
            code = self.code,
            error = %error,
            ms = self.ms,
            "could not decide"
        );
    }

    fn unread(&self, answered: &Answered) {
        let error = answered.outcome.as_ref().err().map(ToString::to_string);
        tracing::warn!(
            webhook = self.webhook,
            decision = self.decision,
            code = self.code,
            error = error.as_deref().map(truncate),
            ms = self.ms,
            "malformed AdmissionReview"
        );
    }
}

/// Truncates a string for the log.
pub(super) fn truncate(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT))
        .unwrap_or(text)
}
