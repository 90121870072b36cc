//! CertificateSigningRequests: those that are approved are signed by the authority of the cluster.
//!
//! UPSTREAM: kubernetes pkg/controller/certificates/signer/signer.go

use lockgate_go::base64;
use serde_json::{Value, json};

use crate::api::{Author, SigningTerms};
use crate::context::{Context, Looked};
use crate::kind::Kind;
use crate::object::{is_condition_true, list, now_text, number, text};
use crate::queue::Next;

const AUTHOR: Author = Author::Controller {
    account: "certificate-controller",
    component: "csrsigning-controller",
};
/// The longest and the usual lifetime of a certificate.
///
/// UPSTREAM: kubernetes pkg/controller/certificates/signer/config (ClusterSigningDuration)
const LIFETIME: i64 = 365 * 24 * 3600;
/// The shortest lifetime that can be asked for.
const SHORTEST: i64 = 600;

/// The usages that a signer accepts, and the one that it requires.
fn usages(signer: &str) -> Option<(&'static str, [&'static str; 3])> {
    match signer {
        "kubernetes.io/kube-apiserver-client" | "kubernetes.io/kube-apiserver-client-kubelet" => {
            Some((
                "client auth",
                ["client auth", "digital signature", "key encipherment"],
            ))
        }
        "kubernetes.io/kubelet-serving" => Some((
            "server auth",
            ["server auth", "digital signature", "key encipherment"],
        )),
        _ => None,
    }
}

/// Signs a request that was approved.
pub(crate) async fn look(context: &Context, name: &str) -> Looked {
    let Some(request) = context.cache.at(Kind::CertificateSigningRequest, name) else {
        return Ok(Next::Done);
    };
    let Some((required, accepted)) = usages(text(&request, "/spec/signerName")) else {
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
    let fits = asked.iter().any(|usage| usage == required)
        && asked.iter().all(|usage| accepted.contains(&usage.as_str()));
    let pem = base64::decode(text(&request, "/spec/request"));
    let pem = pem.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let seconds = number(&request, "/spec/expirationSeconds").unwrap_or(LIFETIME);
    let terms = SigningTerms {
        usages: &asked,
        seconds: seconds.clamp(SHORTEST, LIFETIME),
    };
    let signed = pem
        .filter(|_| fits)
        .and_then(|pem| context.api.sign(&pem, terms));
    let mut status = request.get("status").cloned().unwrap_or_else(|| json!({}));
    match signed {
        Some(certificate) => {
            status["certificate"] = base64::encode(certificate.as_bytes()).into();
        }
        None => {
            let mut conditions = crate::object::conditions(&request);
            let why = if fits {
                "the request cannot be signed"
            } else {
                "usages did not match"
            };
            conditions.push(failed(why));
            status["conditions"] = conditions.into();
        }
    }
    context.set_status(&AUTHOR, &request, status).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signers_say_what_they_sign() {
        assert_eq!(
            usages("kubernetes.io/kubelet-serving").map(|one| one.0),
            Some("server auth")
        );
        assert_eq!(usages("example.com/own"), None);
        assert_eq!(usages("kubernetes.io/legacy-unknown"), None);
    }
}
