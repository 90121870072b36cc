//! Forwarding reviews to a webhook, and its responses to the API server.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lockgate_admission::call::{Caller as _, Client, Post};
use lockgate_admission::json_patch;
use lockgate_api::admission::request::{Review, ReviewBody};
use lockgate_api::admission::response::{self, AdmissionDecision, ExpectedResponse, HttpResponse};
use lockgate_offline::capture::RecordedCall;
use lockgate_webhook::patch::Patch;
use lockgate_webhook::{Context, Denial, Fault, Response};
use serde_json::{Value, json};

use crate::commands::CommandError;
use crate::offline::{live_caller, webhook_at};

/// The webhook behind the capturing one.
#[derive(Debug, Args)]
pub(super) struct ForwardArgs {
    /// URL of a webhook to forward reviews to; its responses are recorded and returned to the API server
    #[arg(long, value_name = "URL")]
    forward: Option<String>,

    /// CA bundle that verifies the webhook [default: the system's]
    #[arg(long, value_name = "FILE", requires = "forward")]
    forward_ca_file: Option<PathBuf>,

    /// Name of the webhook in the capture
    #[arg(long, value_name = "NAME", requires = "forward")]
    forward_name: Option<String>,
}

/// A webhook to forward reviews to.
pub(super) struct Forward {
    client: Arc<dyn Client>,
    name: String,
}

impl ForwardArgs {
    /// The webhook behind `--forward`, if set.
    pub(super) fn open(&self, default_name: &str) -> Result<Option<Forward>, CommandError> {
        let Some(url) = &self.forward else {
            return Ok(None);
        };
        if !url.starts_with("https://") {
            let message = format!("`{url}` is not a webhook URL: it must begin with https://");
            return Err(CommandError::usage(message));
        }
        let config = webhook_at(url, self.forward_ca_file.as_deref())?;
        let client = live_caller().client(&config).map_err(|error| {
            CommandError::usage(format!("cannot call `{url}`: {error}"))
                .with_help("pass the URL of the webhook, and its CA with --forward-ca-file")
        })?;
        let name = self.forward_name.clone();
        Ok(Some(Forward {
            client,
            name: name.unwrap_or_else(|| default_name.to_owned()),
        }))
    }
}

impl Forward {
    /// Forwards a review. Returns the call for the capture, and the response for the API server: an error
    /// if there is none, so that the failure policy applies as it would without the capture.
    pub(super) async fn call(&self, ctx: &Context) -> (RecordedCall, Result<Response, Fault>) {
        let mut recorded = RecordedCall {
            webhook: self.name.clone(),
            round: 1,
            ..RecordedCall::default()
        };
        let answered = self.ask(ctx).await;
        let answered = answered.and_then(|answer| {
            recorded.response = Some(recorded_response(&answer));
            response(&answer, ctx.object_text())
        });
        let answered = answered.map_err(|message| {
            recorded.error = Some(message.clone());
            recorded.response = None;
            Fault::new(message)
        });
        (recorded, answered)
    }

    async fn ask(&self, ctx: &Context) -> Result<AdmissionDecision, String> {
        let user = ctx.user();
        let operation = ctx.operation();
        let review = Review {
            kind: ctx.kind(),
            resource: ctx.resource(),
            sub_resource: ctx.sub_resource(),
            request_kind: ctx.request_kind(),
            request_resource: ctx.request_resource(),
            request_sub_resource: ctx.request_sub_resource(),
            name: ctx.name(),
            namespace: ctx.namespace(),
            operation: operation.as_str(),
            user_info: user,
            object: ctx.object_text(),
            old_object: ctx.old_object_text(),
            dry_run: ctx.is_dry_run(),
            options: ctx.options_text(),
        };
        let body = ReviewBody::new(&review, ctx.version()).with_uid(ctx.uid());
        let posted = self.client.post(Post {
            body: body.into(),
            deadline: ctx.deadline(),
        });
        let http = posted.await.result.map_err(|error| error.to_string())?;
        let answer = HttpResponse {
            code: http.code,
            content_type: http.content_type.as_deref(),
            body: &http.body,
        };
        let expected = ExpectedResponse {
            version: ctx.version(),
            uid: ctx.uid(),
            // Only the API server knows whether the webhook is a mutating one.
            may_patch: true,
        };
        response::read(&answer, &expected).map_err(|error| error.to_string())
    }
}

/// The response in the form of a capture.
fn recorded_response(answer: &AdmissionDecision) -> Value {
    let mut response = json!({"allowed": answer.allowed});
    if let Some(status) = answer.status.as_ref().filter(|_| !answer.allowed) {
        response["status"] =
            json!({"code": status.code, "message": status.message, "reason": status.reason});
    }
    if !answer.patch.is_empty() {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = lockgate_go::base64::encode(&answer.patch).into();
    }
    if !answer.warnings.is_empty() {
        response["warnings"] = answer.warnings.clone().into();
    }
    if !answer.audit_annotations.is_empty() {
        response["auditAnnotations"] = json!(answer.audit_annotations);
    }
    response
}

/// The response for the API server. Its patch has the effect of the webhook's patch.
fn response(answer: &AdmissionDecision, object: Option<&str>) -> Result<Response, String> {
    let mut response = match answer.allowed {
        false => Response::deny(Denial::from(answer.status.clone().unwrap_or_default())),
        true if answer.patch.is_empty() => Response::allow(),
        true => {
            let object: Value = serde_json::from_str(object.unwrap_or("null"))
                .map_err(|error| format!("cannot read the object: {error}"))?;
            let patch =
                json_patch::Patch::parse(&answer.patch).map_err(|error| error.to_string())?;
            let after = patch.apply(&object).map_err(|error| error.to_string())?;
            Response::patch(Patch::between(&object, &after))
        }
    };
    for warning in &answer.warnings {
        response = response.warning(warning);
    }
    for (key, value) in &answer.audit_annotations {
        response = response.audit_annotation(key, value);
    }
    Ok(response)
}
