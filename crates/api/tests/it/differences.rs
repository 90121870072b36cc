//! Regression tests for differences from upstream that were found with generated input.

use lockgate_api::admission::ReviewVersion;
use lockgate_api::admission::response::{ExpectedResponse, HttpResponse, read};
use lockgate_api::document::json;
use lockgate_api::registration::strategy::{Request, prepare_create};
use lockgate_api::registration::validation::{
    Environment, ExpressionChecker, ExpressionError, Unchecked, validate,
};
use lockgate_api::registration::{ConfigurationKind, Version, codec};

/// The error of creating a configuration with this metadata, or the stored object.
fn create(metadata: &str) -> Result<String, String> {
    let text = format!("{{\"metadata\":{metadata}}}");
    let document = json::parse(text.as_bytes()).unwrap();
    let decoded = codec::decode(document.root(), ConfigurationKind::Validating, Version::V1);
    let mut configuration = decoded.map_err(|error| error.message)?.value;
    let request = Request {
        version: Version::V1,
        expressions: &Unchecked,
        static_manifests: false,
    };
    prepare_create(&mut configuration, &request).map_err(|status| status.message)?;
    Ok(codec::to_json(configuration, Version::V1)["metadata"].to_string())
}

#[test]
fn metadata_is_read_and_checked_like_upstream() {
    let invalid =
        "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"c\" is invalid: metadata";
    for (metadata, want) in [
        (
            r#"{"creationTimestamp":1}"#,
            Err(String::from(
                "json: cannot unmarshal number into Go struct field \
                 ObjectMeta.metadata.creationTimestamp of type string",
            )),
        ),
        (
            // A type mismatch of a time is reported even after other errors.
            r#"{"name":1,"managedFields":[{"time":[]}]}"#,
            Err(String::from(
                "json: cannot unmarshal array into Go struct field \
                 ManagedFieldsEntry.metadata.managedFields.time of type string",
            )),
        ),
        (
            r#"{"name":"c","creationTimestamp":"0001-01-01T00:00:00Z","managedFields":[{"operation":"Apply","time":"0001-01-01T01:00:00+01:00"}]}"#,
            Ok(String::from(
                r#"{"generation":1,"managedFields":[{"operation":"Apply","time":null}],"name":"c"}"#,
            )),
        ),
        (
            r#"{"name":"c","ownerReferences":[{"apiVersion":"/v1","kind":"Event","name":"<n>","uid":"u"}]}"#,
            Err(format!(
                "{invalid}.ownerReferences: Invalid value: {{\"apiVersion\":\"/v1\",\
                 \"kind\":\"Event\",\"name\":\"\\u003cn\\u003e\",\"uid\":\"u\"}}: /v1, Kind=Event is \
                 disallowed from being an owner"
            )),
        ),
    ] {
        assert_eq!(create(metadata), want, "{metadata}");
    }
}

/// Rejects every expression with the same error.
struct Refusing(ExpressionError);

impl ExpressionChecker for Refusing {
    fn check(&self, _: &str, _: Environment) -> Result<(), ExpressionError> {
        Err(self.0.clone())
    }
}

#[test]
fn expressions_that_make_no_program_are_internal_errors() {
    let text = r#"{"metadata":{"name":"c"},"webhooks":[{"matchConditions":[{"name":"a","expression":"e"}]}]}"#;
    let document = json::parse(text.as_bytes()).unwrap();
    let decoded = codec::decode(document.root(), ConfigurationKind::Validating, Version::V1);
    let configuration = decoded.unwrap().value;
    for (problem, want) in [
        (
            ExpressionError::Compilation(String::from("no")),
            "Invalid value: \"e\": no",
        ),
        (
            ExpressionError::Program(String::from("no")),
            "Internal error: program instantiation failed: no",
        ),
    ] {
        let errors = validate(&configuration, Version::V1, &Refusing(problem));
        let bodies: Vec<String> = errors
            .iter()
            .filter(|error| error.field.ends_with("expression"))
            .map(|error| error.body())
            .collect();
        assert_eq!(bodies, [want]);
    }
}

const SCHEME: &str = "in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"";

fn answer(code: u16, content_type: &str, body: &[u8], version: ReviewVersion) -> String {
    let http = HttpResponse {
        code,
        content_type: Some(content_type),
        body,
    };
    let expected = ExpectedResponse {
        version,
        uid: "u",
        may_patch: true,
    };
    read(&http, &expected).map_or_else(
        |error| error.to_string(),
        |answer| format!("allowed: {}, {:?}", answer.allowed, answer.status),
    )
}

#[test]
fn bodies_are_read_like_upstream() {
    for (body, want) in [
        (
            r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"uid":1}}"#,
            String::from(
                "json: cannot unmarshal number into Go struct field \
                 AdmissionResponse.response.uid of type types.UID",
            ),
        ),
        (
            r#"{"apiVersion":"any.group/v9","kind":"Status"}"#,
            String::from("converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
        ),
        (
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"WatchEvent"}"#,
            String::from("converting (v1.WatchEvent) to (v1.AdmissionReview): unknown conversion"),
        ),
        (
            r#"{"apiVersion":"admission.k8s.io/__internal","kind":"AdmissionReview"}"#,
            format!(
                "no kind \"AdmissionReview\" is registered for the internal version of group \
                 \"admission.k8s.io\" {SCHEME}"
            ),
        ),
        (
            r#"{"apiVersion":"foo.io/"}"#,
            String::from("Object 'apiVersion' is missing in '{\"apiVersion\":\"foo.io/\"}'"),
        ),
        (
            r#"{"response":{"allowed":tru"#,
            String::from(
                "couldn't get version/kind; json parse error: invalid character ' ' in literal \
                 true (expecting 'e')",
            ),
        ),
        (
            r#"{"apiVersion":"admission.k8s.io/v1","response":{"patch":"YQ=a"}}"#,
            String::from("illegal base64 data at input byte 2"),
        ),
        (
            "a: 'x\nb: {\n",
            String::from("yaml: line 3: found unexpected end of stream"),
        ),
        (
            "a: b\nc: d: e\n",
            String::from("yaml: line 2: mapping values are not allowed in this context"),
        ),
        (
            "response: *x\n",
            String::from("yaml: unknown anchor 'x' referenced"),
        ),
        ("a: .inf\n", String::from("json: unsupported value: +Inf")),
        (
            "a: \u{1}\n",
            String::from("yaml: control characters are not allowed"),
        ),
        (
            // The last of duplicate keys replaces the others, without merging.
            "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse: {uid: u}\n\
             response: {allowed: true}\n",
            String::from("expected response.uid=\"u\", got \"\""),
        ),
    ] {
        let got = answer(200, "application/json", body.as_bytes(), ReviewVersion::V1);
        assert_eq!(got, want, "{body}");
    }
}

#[test]
fn failed_calls_are_told_like_upstream() {
    let error = |shown: &str| {
        format!("an error on the server ({shown}) has prevented the request from succeeding")
    };
    for (code, content_type, body, want) in [
        // A `Status` body is the error in any version, but only if its kind is `Status`.
        (
            500,
            "text/plain",
            &br#"{"kind":"Status","apiVersion":"v9","status":"Failure","message":"no"}"#[..],
            String::from("no"),
        ),
        (
            500,
            "application/json",
            br#"{"apiVersion":"v1","status":"Failure","message":"no"}"#,
            error("\"unknown\""),
        ),
        (
            500,
            "text/plain",
            b" cut \xc3\xff",
            error(r#""cut \xc3\xff""#),
        ),
        (
            403,
            "text/plain",
            b"a\xe2\x82",
            String::from("a\u{fffd}\u{fffd}"),
        ),
        (
            204,
            "application/json",
            b"{}",
            String::from(
                "0-length response with status code: 204 and content type: application/json",
            ),
        ),
        (
            200,
            "text plain",
            b"{}",
            String::from("Internal error occurred: mime: expected slash after first token"),
        ),
        (
            200,
            "text/plain; a=b; a=b",
            b"{}",
            String::from("webhook response was absent"),
        ),
    ] {
        let got = answer(code, content_type, body, ReviewVersion::V1);
        assert_eq!(got, want, "{code} {content_type}");
    }
}
