//! Recorded reviews, and the API server's handling of the responses.

use lockgate_api::admission::request::{Review, ReviewBody};
use lockgate_api::admission::response::{ExpectedResponse, HttpResponse, ResponseError, read};
use lockgate_api::admission::{ReviewVersion, v1};
use lockgate_api::decode::decode;
use lockgate_api::document::{Document, json};
use serde_json::{Value, json};

use crate::gaps::{conformance, run_suite, same};

const UID: &str = "5f3e9f2e-0000-4000-8000-000000000001";

#[test]
fn review_response_vectors_agree() {
    run_suite(
        "review-responses",
        "LOCKGATE_REVIEW_RESPONSE_VECTORS",
        check,
    );
}

fn check(vector: &Value, _: &Document) -> Result<(), String> {
    let want = |key: &str| vector.get(key).cloned().unwrap_or(Value::Null);
    let fail = |outcome: &str, error: String| {
        same("outcome", &json!(outcome), &want("outcome"))?;
        same("error", &json!(error.replace(UID, "<uid>")), &want("error"))
    };
    let offered: Vec<&str> = vector["admissionReviewVersions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let version = match ReviewVersion::choose(&offered) {
        Ok(version) => version,
        Err(error) => return fail("createError", error.to_string()),
    };
    let body = vector["body"].as_str().unwrap().replace("UID", UID);
    let http = HttpResponse {
        code: u16::try_from(vector["httpCode"].as_u64().unwrap()).unwrap(),
        content_type: vector["contentType"].as_str(),
        body: body.as_bytes(),
    };
    let may_patch = vector["mutating"].as_bool().unwrap();
    match read(
        &http,
        &ExpectedResponse {
            version,
            uid: UID,
            may_patch,
        },
    ) {
        Err(ResponseError::Invalid(error)) => fail("verifyError", error),
        Err(error) => fail("callError", error.to_string()),
        Ok(answer) => {
            same("outcome", &json!("ok"), &want("outcome"))?;
            same("allowed", &json!(answer.allowed), &want("allowed"))?;
            same("patch", &json!(lossy(&answer.patch)), &want("patch"))?;
            same("patchType", &json!(answer.patch_type), &want("patchType"))?;
            same(
                "status",
                &serde_json::to_value(&answer.status).unwrap(),
                &want("status"),
            )?;
            // An absent list is equivalent to an empty one.
            let warned = want("warnings").as_array().cloned().unwrap_or_default();
            same("warnings", &json!(answer.warnings), &json!(warned))?;
            if vector
                .get("auditAnnotations")
                .is_some_and(|map| !map.is_null())
            {
                let annotations = json!(answer.audit_annotations);
                same("auditAnnotations", &annotations, &want("auditAnnotations"))?;
            }
            Ok(())
        }
    }
}

/// Bytes as Go encodes them in JSON: each invalid UTF-8 byte is replaced.
fn lossy(bytes: &[u8]) -> String {
    bytes
        .utf8_chunks()
        .flat_map(|chunk| {
            let replaced = "\u{fffd}".repeat(chunk.invalid().len());
            [chunk.valid().to_owned(), replaced]
        })
        .collect()
}

/// Each recorded request is decoded and rebuilt; the bytes must be identical.
#[test]
fn admission_request_vectors_are_rebuilt() {
    let file = conformance().join("vectors/admission-requests.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let mut count = 0;
    for line in text.lines() {
        let line = json::parse(line.as_bytes()).unwrap();
        let recorded = line.root().get("body").unwrap().to_json();
        let document = json::parse(recorded.as_bytes()).unwrap();
        let decoded = decode::<v1::AdmissionReview>(&document).unwrap();
        assert_eq!(decoded.findings, []);
        let review = decoded.value;
        assert_eq!(review.api_version, "admission.k8s.io/v1");
        let request = review.request.as_ref().unwrap();
        let built = ReviewBody::new(
            &Review {
                kind: &request.kind,
                resource: &request.resource,
                sub_resource: &request.sub_resource,
                request_kind: request.request_kind.as_ref().unwrap(),
                request_resource: request.request_resource.as_ref().unwrap(),
                request_sub_resource: &request.request_sub_resource,
                name: &request.name,
                namespace: &request.namespace,
                operation: &request.operation,
                user_info: &request.user_info,
                object: request.object.as_ref().map(|raw| raw.0.as_str()),
                old_object: request.old_object.as_ref().map(|raw| raw.0.as_str()),
                dry_run: request.dry_run.unwrap(),
                options: request.options.as_ref().map(|raw| raw.0.as_str()),
            },
            ReviewVersion::V1,
        );
        let bytes = built.with_uid(&request.uid);
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("{recorded}\n"));
        // The wire type has the same encoding, so webhooks and servers agree.
        assert_eq!(lockgate_go::json::to_string(&review), recorded);
        count += 1;
    }
    assert!(count > 0);
}
