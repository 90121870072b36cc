//! CertificateSigningRequests: approved requests are signed by the cluster's CA.
//!
//! UPSTREAM: kubernetes pkg/controller/certificates/signer/signer.go

mod signer;

use lockgate_go::base64;
use serde_json::{Value, json};

use crate::api::{Author, SigningTerms};
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{Object, is_condition_true, list, now_text, number, text};
use crate::queue::Next;
use signer::{Requested, Signer};

const AUTHOR: Author = Author::Controller {
    account: "certificate-controller",
    component: "csrsigning-controller",
};
/// The default and maximum lifetime of a certificate.
///
/// UPSTREAM: kubernetes pkg/controller/certificates/signer/config (ClusterSigningDuration)
const LIFETIME: i64 = 365 * 24 * 3600;
/// The minimum lifetime.
const SHORTEST: i64 = 600;

/// Signs an approved request.
pub(crate) async fn reconcile(context: &Context, name: &str) -> Reconciled {
    let Some(request) = context.cache.at(Kind::CertificateSigningRequest, name) else {
        return Ok(Next::Done);
    };
    let Some(signer) = Signer::of(text(&request, "/spec/signerName")) else {
        return Ok(Next::Done);
    };
    let is_open = is_condition_true(&request, "Approved")
        && !is_condition_true(&request, "Denied")
        && !is_condition_true(&request, "Failed")
        && text(&request, "/status/certificate").is_empty();
    if !is_open {
        return Ok(Next::Done);
    }
    let asked: Vec<String> = list(&request, "/spec/usages")
        .filter_map(|usage| usage.as_str().map(str::to_owned))
        .collect();
    let pem = base64::decode(text(&request, "/spec/request"));
    let pem = pem.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let Some((requested, pem)) = pem.as_deref().and_then(Requested::read) else {
        return fail(context, &request, "the request cannot be read").await;
    };
    if let Err(refusal) = signer.check(&requested, &asked) {
        return fail(context, &request, &refusal.to_string()).await;
    }
    let seconds = number(&request, "/spec/expirationSeconds").unwrap_or(LIFETIME);
    let terms = SigningTerms {
        usages: &asked,
        seconds: seconds.clamp(SHORTEST, LIFETIME),
    };
    let Some(certificate) = context.api.sign(&pem, terms) else {
        return fail(context, &request, "the request cannot be signed").await;
    };
    let mut status = request.get("status").cloned().unwrap_or_else(|| json!({}));
    status["certificate"] = base64::encode(certificate.as_bytes()).into();
    context.set_status(&AUTHOR, &request, status).await?;
    Ok(Next::Done)
}

/// Sets the condition `Failed`, with the reason.
async fn fail(context: &Context, request: &Object, why: &str) -> Reconciled {
    let mut status = request.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut conditions = crate::object::conditions(request);
    conditions.push(failed(why));
    status["conditions"] = conditions.into();
    context.set_status(&AUTHOR, request, status).await?;
    Ok(Next::Done)
}

fn failed(why: &str) -> Value {
    json!({
        "type": "Failed",
        "status": "True",
        "reason": "SignerValidationFailure",
        "message": why,
        "lastTransitionTime": now_text(),
        "lastUpdateTime": now_text(),
    })
}
