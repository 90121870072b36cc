//! Validation of `spec.conversion`.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go
//! (validateCustomResourceConversion), apiserver pkg/util/webhook/validation.go

use std::collections::HashSet;

use lockgate_api::field::FieldErrors;
use lockgate_api::meta::names;
use lockgate_go::base64;
use lockgate_go::quote::{quote, quote_bytes, quote_json, quote_json_list};
use lockgate_go::url::Url;

use super::{Options, validate_choice};
use crate::structural::error;
use crate::structural::path::Path;
use crate::structural::props::Props;

const RECOGNIZED: [&str; 2] = ["v1", "v1beta1"];
const URL_FORM: &str = "; desired format: https://host[/path]";

/// The parts of `spec.conversion`.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'j> {
    conversion: Option<Props<'j>>,
    webhook: Option<Props<'j>>,
    client: Option<Props<'j>>,
}

impl<'j> View<'j> {
    pub(super) fn of(spec: Props<'j>) -> Self {
        let conversion = spec.schema("conversion");
        let webhook = conversion.and_then(|conversion| conversion.schema("webhook"));
        Self {
            conversion,
            webhook,
            client: webhook.and_then(|webhook| webhook.schema("clientConfig")),
        }
    }

    fn review_versions(self) -> Vec<&'j str> {
        let webhook = self.webhook.into_iter();
        webhook
            .flat_map(|webhook| webhook.texts("conversionReviewVersions"))
            .collect()
    }

    pub(super) fn has_recognized_version_or_none(self) -> bool {
        let versions = self.review_versions();
        versions.is_empty() || versions.iter().any(|version| RECOGNIZED.contains(version))
    }

    fn ca_bundle(self) -> &'j str {
        self.client
            .map(|client| client.text("caBundle"))
            .unwrap_or_default()
    }

    pub(super) fn has_invalid_ca_bundle(self) -> bool {
        ca_bundle_error(self.ca_bundle()).is_some()
    }
}

pub(super) fn validate(
    spec: Props<'_>,
    options: &Options,
    preserves: bool,
    errors: &mut FieldErrors,
) {
    let view = View::of(spec);
    let Some(conversion) = view.conversion else {
        return;
    };
    let place = Path::printed("spec.conversion");
    let strategy = conversion.text("strategy");
    let strategy_place = place.child("strategy");
    if strategy != "None" && preserves {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(error::invalid(
            &strategy_place,
            &quote_json(strategy),
            detail,
        ));
    }
    errors.extend(validate_choice(
        &strategy_place,
        strategy,
        &["None", "Webhook"],
        quote,
    ));
    let client_place = place.child("webhookClientConfig");
    let versions_place = place.child("conversionReviewVersions");
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if view.client.is_some() {
            errors.push(error::forbidden(&client_place, detail));
        }
        if !view.review_versions().is_empty() {
            errors.push(error::forbidden(&versions_place, detail));
        }
        return;
    }
    match view.client {
        None => {
            let detail = "required when strategy is set to Webhook";
            errors.push(error::required(&client_place, detail));
        }
        Some(client) => {
            validate_client(client, &client_place, errors);
            if !options.invalid_ca_bundle
                && let Some(reason) = ca_bundle_error(view.ca_bundle())
            {
                let place = client_place.child("caBundle");
                errors.push(error::invalid(&place, &quote(view.ca_bundle()), reason));
            }
        }
    }
    validate_review_versions(&view.review_versions(), options, &versions_place, errors);
}

fn validate_client(client: Props<'_>, place: &Path<'_>, errors: &mut FieldErrors) {
    match (client.opt_text("url"), client.schema("service")) {
        (Some(url), None) => validate_url(url, &place.child("url"), errors),
        (None, Some(service)) => validate_service(service, &place.child("service"), errors),
        _ => errors.push(error::required(
            place,
            "exactly one of url or service is required",
        )),
    }
}

fn validate_url(text: &str, place: &Path<'_>, errors: &mut FieldErrors) {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(problem) => {
            let detail = format!("url must be a valid URL: {problem}{URL_FORM}");
            errors.push(error::required(place, detail));
            return;
        }
    };
    if url.scheme() != "https" {
        let detail = format!("'https' is the only allowed URL scheme{URL_FORM}");
        errors.push(error::invalid_text(place, url.scheme(), detail));
    }
    if url.host().is_empty() {
        let detail = format!("host must be specified{URL_FORM}");
        errors.push(error::invalid_text(place, "", detail));
    }
    if let Some(user) = &url.user() {
        let detail = "user information is not permitted in the URL";
        errors.push(error::invalid_text(place, user, detail));
    }
    if !url.fragment().is_empty() {
        let detail = "fragments are not permitted in the URL";
        errors.push(error::invalid(place, &quote_bytes(url.fragment()), detail));
    }
    if !url.raw_query().is_empty() {
        let detail = "query parameters are not permitted in the URL";
        errors.push(error::invalid_text(place, url.raw_query(), detail));
    }
}

fn validate_service(service: Props<'_>, place: &Path<'_>, errors: &mut FieldErrors) {
    // Upstream swaps the arguments name and namespace, which is visible in its errors.
    if service.text("namespace").is_empty() {
        errors.push(error::required(&place.child("name"), ""));
    }
    if service.text("name").is_empty() {
        errors.push(error::required(&place.child("namespace"), ""));
    }
    let port = service.integer("port").unwrap_or(0);
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(error::invalid(
            &place.child("port"),
            &port.to_string(),
            detail,
        ));
    }
    if let Some(path) = service.opt_text("path") {
        validate_path(path, &place.child("path"), errors);
    }
}

fn validate_path(path: &str, place: &Path<'_>, errors: &mut FieldErrors) {
    let mut invalid = |detail: String| errors.push(error::invalid_text(place, path, detail));
    match path {
        "" | "/" => return,
        "//" => return invalid("segment[0] may not be empty".to_owned()),
        _ => {}
    }
    if !path.starts_with('/') {
        invalid("must start with a '/'".to_owned());
    }
    // The first byte is skipped, whatever it is; the rest of a multi-byte character is an invalid segment.
    let checked = String::from_utf8_lossy(path.as_bytes().get(1..).unwrap_or_default());
    let checked = checked.strip_suffix('/').unwrap_or(&checked);
    for (at, segment) in checked.split('/').enumerate() {
        if segment.is_empty() {
            invalid(format!("segment[{at}] may not be empty"));
            continue;
        }
        for problem in names::check_subdomain(segment) {
            invalid(format!("segment[{at}]: {problem}"));
        }
    }
}

fn validate_review_versions(
    versions: &[&str],
    options: &Options,
    place: &Path<'_>,
    errors: &mut FieldErrors,
) {
    if versions.is_empty() {
        errors.push(error::required(place, ""));
        return;
    }
    let mut seen = HashSet::new();
    for (at, version) in versions.iter().enumerate() {
        let place = place.index(at);
        if !seen.insert(version) {
            errors.push(error::invalid_text(&place, version, "duplicate version"));
            continue;
        }
        for message in names::check_dns1035_label(version) {
            errors.push(error::invalid_text(&place, version, message));
        }
    }
    let is_recognized = versions.iter().any(|version| RECOGNIZED.contains(version));
    if options.recognized_review_version && !is_recognized {
        let detail = format!("must include at least one of {}", RECOGNIZED.join(", "));
        errors.push(error::invalid(place, &quote_json_list(versions), detail));
    }
}

/// The error of a webhook's invalid CA bundle. Certificates are parsed only as far as their outer structure.
///
/// UPSTREAM: client-go transport/transport.go (createErrorParsingCAData)
pub(in crate::crd) fn ca_bundle_error(encoded: &str) -> Option<String> {
    let bundle = base64::decode(encoded).unwrap_or_default();
    if bundle.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(&bundle);
    let mut rest = &*text;
    let mut found = false;
    let failed = |reason: &str| Some(format!("unable to load root certificates: {reason}"));
    while !rest.is_empty() {
        let Some((kind, body, after)) = next_block(rest) else {
            if found {
                return None;
            }
            return failed("unable to parse bytes as PEM block");
        };
        rest = after;
        if kind != "CERTIFICATE" || body.contains(':') {
            continue;
        }
        let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        match base64::decode(&body).as_deref() {
            // A certificate is a DER sequence.
            Ok([0x30, ..]) => found = true,
            _ => return failed("failed to parse certificate: x509: malformed certificate"),
        }
    }
    if found {
        None
    } else {
        failed("no valid certificate authority data seen")
    }
}

/// The next PEM block: its type, its content, and the rest of the input.
fn next_block(text: &str) -> Option<(&str, &str, &str)> {
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (kind, rest) = rest.split_once("-----")?;
    let (body, rest) = rest.split_once(&format!("-----END {kind}-----"))?;
    Some((kind, body, rest.strip_prefix(['\r', '\n']).unwrap_or(rest)))
}
