//! The backend of `ImagePolicyWebhook`: the image names determine its responses.

use lockgate_testkit::{Recorded, ScriptedResponse, WebhookServer};
use serde_json::{Value, json};

/// A server that responds to `ImageReview`s.
pub(crate) struct ImagePolicy(WebhookServer);

impl ImagePolicy {
    pub(crate) async fn start() -> Self {
        Self(WebhookServer::builder().respond(answer).start().await)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.0.address().port())
    }

    pub(crate) async fn stop(self) {
        self.0.stop().await;
    }
}

fn answer(request: &Recorded) -> ScriptedResponse {
    let review: Value = serde_json::from_slice(&request.body).unwrap();
    let spec = &review["spec"];
    let images: Vec<&str> = spec["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|container| container["image"].as_str())
        .collect();
    let has = |kind: &str| {
        images
            .iter()
            .any(|image| image.split('/').next() == Some(kind))
    };
    let mut annotations = spec["annotations"].as_object().into_iter().flatten();
    let glass = annotations.any(|(key, _)| key.ends_with(".image-policy.k8s.io/break-glass"));
    let status = if has("fail") {
        return ScriptedResponse::http(500, "");
    } else if glass {
        json!({"allowed": true})
    } else if has("deny") {
        json!({"allowed": false, "reason": format!("not from here: {}", images.join(","))})
    } else if has("bare") {
        json!({"allowed": false})
    } else if has("audit") {
        let namespace = &spec["namespace"];
        json!({"allowed": true, "auditAnnotations": {"seen": "yes", "namespace": namespace}})
    } else {
        json!({"allowed": true})
    };
    let review = json!({
        "apiVersion": "imagepolicy.k8s.io/v1alpha1",
        "kind": "ImageReview",
        "status": status,
    });
    ScriptedResponse::http(200, review.to_string())
}
