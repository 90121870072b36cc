//! The static rules of profiles, which need no lookup.

use std::collections::HashSet;

use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_api::meta::names::check_label_value;

use crate::api::{
    AdditionalContent, BasicAuthRef, MtlsRef, ProfileSpec, ResourceRef, Transformer, WebhookConfig,
};
use crate::findings::Findings;
use crate::{jsonpath, template};

/// The maximum length of names of objects that the data plane reads, in bytes.
const MAX_NAME: usize = 63;

/// Checks a spec.
#[must_use]
pub fn check(spec: &ProfileSpec) -> Findings {
    let mut findings = Findings::default();
    let root = Path::root("spec");
    let list = root.child("additionalContent");
    let mut names = HashSet::new();
    for (place, content) in spec.additional_content.iter().enumerate() {
        let path = list.index(place);
        check_name(
            &content.name,
            &path.child("name"),
            &mut names,
            &mut findings,
        );
        check_content(content, &path, &mut findings);
    }
    let names: Vec<_> = spec
        .additional_content
        .iter()
        .map(|content| content.name.as_str())
        .collect();
    let path = root.child("ipxeTemplate");
    if spec.ipxe_template.trim().is_empty() {
        findings.warn(&path, "is empty, machines with this profile boot nothing");
    }
    for remark in template::remarks(&spec.ipxe_template, &names) {
        findings.warn(&path, remark);
    }
    findings
}

/// Checks a name, which becomes a label value and a map key.
fn check_name<'s>(
    name: &'s str,
    path: &Path<'_>,
    names: &mut HashSet<&'s str>,
    findings: &mut Findings,
) {
    if name.is_empty() {
        findings.error(FieldError::required(path, "invalid additionalContent name"));
        return;
    }
    for reason in check_label_value(name) {
        let detail = format!("invalid additionalContent name: {reason}");
        findings.error(FieldError::invalid(path, Shown::Text(name), detail));
    }
    if !names.insert(name) {
        findings.error(FieldError::duplicate(path, Shown::Text(name)));
    }
    let is_identifier = name
        .chars()
        .all(|character| character == '_' || character.is_alphanumeric())
        && !name.starts_with(|character: char| character.is_numeric());
    if !is_identifier {
        let remark = format_args!(
            "`{name}` is no name in Go templates, it is reached as {{{{ index . \"{name}\" }}}}"
        );
        findings.warn(path, remark);
    }
}

fn check_content(content: &AdditionalContent, path: &Path<'_>, findings: &mut Findings) {
    let sources = [
        ("inline", content.inline.is_some()),
        ("objectRef", content.object_ref.is_some()),
        ("webhook", content.webhook.is_some()),
    ];
    let set: Vec<_> = sources
        .into_iter()
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect();
    if set.len() != 1 {
        let detail = format!(
            "additionalContent MUST contain exactly 1 content configuration: one of inline, objectRef and webhook; found {}",
            if set.is_empty() {
                String::from("none")
            } else {
                set.join(", ")
            }
        );
        findings.error(FieldError::invalid(
            path,
            Shown::Text(&content.name),
            detail,
        ));
    }
    let list = path.child("postTransformations");
    for (place, transformer) in content.post_transformations.iter().enumerate() {
        check_transformer(transformer, &list.index(place), findings);
    }
    if let Some(reference) = &content.object_ref {
        let path = path.child("objectRef");
        check_reference(&reference.resource, &path, findings);
        check_path(&reference.jsonpath, &path.child("jsonpath"), findings);
    }
    if let Some(webhook) = &content.webhook {
        check_webhook(webhook, &path.child("webhook"), findings);
    }
}

fn check_transformer(transformer: &Transformer, path: &Path<'_>, findings: &mut Findings) {
    let found = match (transformer.butane_to_ignition, &transformer.webhook) {
        (true, Some(_)) => Some("both"),
        (false, None) => Some("neither"),
        _ => None,
    };
    if let Some(found) = found {
        let detail = format!(
            "a transformer must either enable butaneToIgnition or specify a webhook: a transformer MUST specify exactly one configuration; found {found}"
        );
        findings.error(FieldError::invalid(path, Shown::Rendered(""), detail));
    }
    if let Some(webhook) = &transformer.webhook {
        check_webhook(webhook, &path.child("webhook"), findings);
    }
}

fn check_webhook(webhook: &WebhookConfig, path: &Path<'_>, findings: &mut Findings) {
    let url = path.child("url");
    if webhook.url.is_empty() {
        findings.warn(&url, "is empty, there is nothing to call");
    } else if let Some((scheme, _)) = webhook.url.split_once("://") {
        findings.warn(
            &url,
            format_args!("leave `{scheme}://` out, shaper puts https:// before it"),
        );
    }
    if let Some(MtlsRef {
        resource,
        client_key,
        client_cert,
        ca_bundle,
        tls_insecure_skip_verify,
    }) = &webhook.mtls_ref
    {
        let path = path.child("mTLSRef");
        check_reference(resource, &path, findings);
        check_path(client_key, &path.child("clientKeyJSONPath"), findings);
        check_path(client_cert, &path.child("clientCertJSONPath"), findings);
        if !ca_bundle.is_empty() {
            check_path(ca_bundle, &path.child("caBundleJSONPath"), findings);
        }
        if *tls_insecure_skip_verify {
            let path = path.child("tlsInsecureSkipVerify");
            findings.warn(&path, "anybody on the way can pretend to be this service");
        }
    }
    if let Some(BasicAuthRef {
        resource,
        username,
        password,
    }) = &webhook.basic_auth_ref
    {
        let path = path.child("basicAuthRef");
        check_reference(resource, &path, findings);
        check_path(username, &path.child("usernameJSONPath"), findings);
        check_path(password, &path.child("passwordJSONPath"), findings);
    }
}

fn check_reference(reference: &ResourceRef, path: &Path<'_>, findings: &mut Findings) {
    let name = &reference.name;
    if name.is_empty() || name.len() > MAX_NAME {
        let detail =
            format!("invalid resource reference: invalid name: must have 1 to {MAX_NAME} bytes");
        findings.error(FieldError::invalid(
            &path.child("name"),
            Shown::Text(name),
            detail,
        ));
    }
    for (member, value) in [
        ("version", &reference.version),
        ("resource", &reference.resource),
    ] {
        if value.is_empty() {
            findings.warn(
                &path.child(member),
                "is empty, so there is no object to read",
            );
        }
    }
}

fn check_path(text: &str, path: &Path<'_>, findings: &mut Findings) {
    match jsonpath::check(text) {
        Err(error) => {
            let detail = format!("invalid JSONPath: {error}");
            findings.error(FieldError::invalid(path, Shown::Text(text), detail));
        }
        Ok(()) if text.is_empty() => findings.warn(path, "is empty and yields nothing"),
        Ok(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(contents: &Value) -> (Vec<String>, Vec<String>) {
        let spec = json!({"ipxeTemplate": "#!ipxe", "additionalContent": contents});
        let findings = check(&serde_json::from_value(spec).unwrap());
        (
            findings.errors.iter().map(ToString::to_string).collect(),
            findings.warnings,
        )
    }

    fn reference(extra: &Value) -> Value {
        let mut whole = json!({
            "group": "", "version": "v1", "resource": "secrets", "namespace": "default", "name": "n"
        });
        for (name, value) in extra.as_object().unwrap() {
            whole[name] = value.clone();
        }
        whole
    }

    #[test]
    fn accepts() {
        let mtls = reference(&json!({
            "clientKeyJSONPath": ".data.key", "clientCertJSONPath": "{.data.crt}",
            "tlsInsecureSkipVerify": false,
        }));
        let basic = reference(&json!({
            "usernameJSONPath": ".data.username", "passwordJSONPath": ".data.password",
        }));
        for contents in [
            json!(null),
            json!([]),
            json!([{"name": "a", "inline": ""}]),
            json!([{"name": "a", "inline": "x", "exposed": true, "postTransformations": [{"butaneToIgnition": true}]}]),
            json!([{"name": "a", "objectRef": reference(&json!({"jsonpath": ".data.private\\.key"}))}]),
            json!([{"name": "a", "webhook": {"url": "example.com/x", "mTLSRef": mtls, "basicAuthRef": basic}}]),
            json!([{"name": "a", "inline": "x"}, {"name": "b", "inline": "x", "postTransformations": [
                {"butaneToIgnition": false, "webhook": {"url": "example.com"}}]}]),
        ] {
            assert_eq!(checked(&contents), (vec![], vec![]), "{contents}");
        }
    }

    #[test]
    fn refuses_with_the_place_and_the_reason() {
        let long = "n".repeat(64);
        for (contents, want) in [
            (
                json!([{"name": "a", "inline": "x", "webhook": {"url": "example.com"}}]),
                "spec.additionalContent[0]: Invalid value: \"a\": additionalContent MUST contain exactly 1 content configuration: one of inline, objectRef and webhook; found inline, webhook",
            ),
            (
                json!([{"name": "a"}]),
                "spec.additionalContent[0]: Invalid value: \"a\": additionalContent MUST contain exactly 1 content configuration: one of inline, objectRef and webhook; found none",
            ),
            (
                json!([{"name": "a", "inline": "x"}, {"name": "b", "inline": null}]),
                "spec.additionalContent[1]: Invalid value: \"b\": additionalContent MUST contain exactly 1 content configuration: one of inline, objectRef and webhook; found none",
            ),
            (
                json!([{"name": "", "inline": "x"}]),
                "spec.additionalContent[0].name: Required value: invalid additionalContent name",
            ),
            (
                json!([{"name": long, "inline": "x"}]),
                &format!(
                    "spec.additionalContent[0].name: Invalid value: \"{long}\": invalid additionalContent name: must be no more than 63 bytes"
                ),
            ),
            (
                json!([{"name": "a", "inline": "x"}, {"name": "a", "inline": "y"}]),
                "spec.additionalContent[1].name: Duplicate value: \"a\"",
            ),
            (
                json!([{"name": "a", "inline": "x", "postTransformations": [{"butaneToIgnition": true}, {}]}]),
                "spec.additionalContent[0].postTransformations[1]: Invalid value: a transformer must either enable butaneToIgnition or specify a webhook: a transformer MUST specify exactly one configuration; found neither",
            ),
            (
                json!([{"name": "a", "inline": "x", "postTransformations": [{"butaneToIgnition": true, "webhook": {"url": "e"}}]}]),
                "spec.additionalContent[0].postTransformations[0]: Invalid value: a transformer must either enable butaneToIgnition or specify a webhook: a transformer MUST specify exactly one configuration; found both",
            ),
            (
                json!([{"name": "a", "objectRef": reference(&json!({"name": "", "jsonpath": ".x"}))}]),
                "spec.additionalContent[0].objectRef.name: Invalid value: \"\": invalid resource reference: invalid name: must have 1 to 63 bytes",
            ),
            (
                json!([{"name": "a", "objectRef": reference(&json!({"name": long, "jsonpath": ".x"}))}]),
                &format!(
                    "spec.additionalContent[0].objectRef.name: Invalid value: \"{long}\": invalid resource reference: invalid name: must have 1 to 63 bytes"
                ),
            ),
            (
                json!([{"name": "a", "objectRef": reference(&json!({"jsonpath": "{.data.x"}))}]),
                "spec.additionalContent[0].objectRef.jsonpath: Invalid value: \"{.data.x\": invalid JSONPath: unclosed action",
            ),
            (
                json!([{"name": "a", "objectRef": reference(&json!({"jsonpath": ".data["}))}]),
                "spec.additionalContent[0].objectRef.jsonpath: Invalid value: \".data[\": invalid JSONPath: unterminated array",
            ),
            (
                json!([{"name": "a", "inline": "x"}, {"name": "b", "webhook": {"url": "e", "basicAuthRef":
                    reference(&json!({"usernameJSONPath": "{.u", "passwordJSONPath": ".p"}))}}]),
                "spec.additionalContent[1].webhook.basicAuthRef.usernameJSONPath: Invalid value: \"{.u\": invalid JSONPath: unclosed action",
            ),
            (
                json!([{"name": "a", "inline": "x", "postTransformations": [{"webhook": {"url": "e", "mTLSRef":
                    reference(&json!({"clientKeyJSONPath": ".k", "clientCertJSONPath": ".c", "caBundleJSONPath": ".a[?(@.b)"}))}}]}]),
                "spec.additionalContent[0].postTransformations[0].webhook.mTLSRef.caBundleJSONPath: Invalid value: \".a[?(@.b)\": invalid JSONPath: unclosed array expect ]",
            ),
        ] {
            assert_eq!(checked(&contents).0, [want], "{contents}");
        }
    }

    #[test]
    fn tells_every_problem_of_every_item() {
        let contents = json!([{"name": "a"}, {"name": "b b", "inline": "x"}, {"name": "c", "postTransformations": [{}]}]);
        assert_eq!(checked(&contents).0.len(), 4, "{:?}", checked(&contents).0);
    }

    #[test]
    fn warns_without_refusing() {
        let mtls = reference(&json!({
            "clientKeyJSONPath": "", "clientCertJSONPath": ".c", "tlsInsecureSkipVerify": true, "version": "",
        }));
        let contents = json!([{"name": "cloud-init", "webhook": {"url": "https://example.com", "mTLSRef": mtls}}]);
        let (errors, warnings) = checked(&contents);
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(
            warnings,
            [
                "spec.additionalContent[0].name: `cloud-init` is no name in Go templates, it is reached as {{ index . \"cloud-init\" }}",
                "spec.additionalContent[0].webhook.url: leave `https://` out, shaper puts https:// before it",
                "spec.additionalContent[0].webhook.mTLSRef.version: is empty, so there is no object to read",
                "spec.additionalContent[0].webhook.mTLSRef.clientKeyJSONPath: is empty and yields nothing",
                "spec.additionalContent[0].webhook.mTLSRef.tlsInsecureSkipVerify: anybody on the way can pretend to be this service",
            ]
        );
        let findings = check(&ProfileSpec::default());
        assert!(findings.errors.is_empty());
        assert_eq!(
            findings.warnings,
            ["spec.ipxeTemplate: is empty, machines with this profile boot nothing"]
        );
    }
}
