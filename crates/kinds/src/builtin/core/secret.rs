//! Secrets.

use crate::builtin::core::config_map::{MAX_DATA, bytes, validate_immutable};
use crate::cells::Cell;
use crate::checks::{immutable, pem_types, required};
use crate::kind::NAME;
use crate::kind::{Context, FieldSelector, Kind, NAMESPACE, Resource, Written, namespaced, select};
use crate::object::{Object, fill_text, get, open, text, with};
use lockgate_api::document::Kind as JsonKind;
use lockgate_api::document::json::parse;
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_go::base64;
use serde_json::Value;

pub(super) const SECRETS: Resource = namespaced(
    "",
    "v1",
    "secrets",
    "secret",
    "Secret",
    "SecretList",
    &Secret,
);

const SELECTABLE: &[FieldSelector] = &[NAME, NAMESPACE, select("type", &["type"])];

/// The kind `Secret`.
#[derive(Debug)]
pub(super) struct Secret;

impl Kind for Secret {
    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        secret_warnings(new.object())
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        secret_warnings(new.object())
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        if subresource.is_empty() {
            secret_update(&mut errors, new.object(), old.object());
            errors.extend(self.validate_create(new, context));
        }
        errors
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        secret(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Type|Data|Age"
    }

    fn cells(&self) -> Option<&'static [Cell]> {
        Some(&[
            Cell::Name,
            Cell::Text("type"),
            Cell::Count(&["data"]),
            Cell::Age,
        ])
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }
}

/// Merges `stringData` into `data`; it is write-only.
fn defaults(object: &mut Object) {
    fill_text(object, "type", "Opaque");
    if let Some(Value::Object(texts)) = object.remove("stringData")
        && !texts.is_empty()
        && let Some(data) = open(object, "data")
    {
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or_default().as_bytes();
            data.insert(key, Value::String(base64::encode(bytes)));
        }
    }
}

fn secret(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let data = get(object, "data").unwrap_or(&empty);
    let path = Path::root("data");
    if bytes(errors, data, &path) > MAX_DATA {
        errors.push(FieldError::too_long(&path, MAX_DATA));
    }
    let kind = text(object, "type");
    let must = |errors: &mut FieldErrors, key: &str| {
        if !data.contains_key(key) {
            required(errors, &path.key(key));
        }
    };
    match kind {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            let annotated = get(object, "metadata")
                .and_then(|metadata| get(metadata, "annotations"))
                .is_some_and(|annotations| !text(annotations, NAME).is_empty());
            if !annotated {
                let metadata = Path::root("metadata");
                let annotations = metadata.child("annotations");
                required(errors, &annotations.key(NAME));
            }
        }
        "kubernetes.io/dockercfg" => docker_config(errors, data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_config(errors, data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth"
            if !data.contains_key("username") && !data.contains_key("password") =>
        {
            must(errors, "username");
            must(errors, "password");
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            required(errors, &path.key("ssh-privatekey"));
        }
        "kubernetes.io/tls" => {
            must(errors, "tls.crt");
            must(errors, "tls.key");
        }
        _ => {}
    }
}

/// Validates that a Docker configuration is a JSON object.
fn docker_config(errors: &mut FieldErrors, data: &Object, key: &str) {
    let path = Path::root("data");
    let path = path.key(key);
    if !data.contains_key(key) {
        return required(errors, &path);
    }
    let decoded = base64::decode(text(data, key)).unwrap_or_default();
    let problem = match parse(&decoded) {
        Err(error) => Some(error.message),
        Ok(document) => {
            let found = match document.root().kind() {
                JsonKind::Null | JsonKind::Object => None,
                JsonKind::Array => Some("array"),
                JsonKind::String => Some("string"),
                JsonKind::Number => Some("number"),
                JsonKind::Bool => Some("bool"),
            };
            found.map(|found| {
                format!(
                    "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
                )
            })
        }
    };
    if let Some(problem) = problem {
        let shown = Shown::Text("<secret contents redacted>");
        errors.push(FieldError::invalid(&path, shown, problem));
    }
}

/// Warnings about a TLS certificate and its key.
///
/// UPSTREAM: crypto/tls (X509KeyPair), only its search for PEM blocks
fn secret_warnings(object: &Object) -> Vec<String> {
    if text(object, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let empty = Object::new();
    let data = get(object, "data").unwrap_or(&empty);
    let types = |key: &str| pem_types(&base64::decode(text(data, key)).unwrap_or_default());
    let (certificates, keys) = (types("tls.crt"), types("tls.key"));
    let is_key = |kind: &String| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    let warning = if !certificates.iter().any(|kind| kind == "CERTIFICATE") {
        match &certificates[..] {
            [] => String::from("tls: failed to find any PEM data in certificate input"),
            [kind] if kind.ends_with("PRIVATE KEY") => String::from(
                "tls: failed to find certificate PEM data in certificate input, but did find a \
                 private key; PEM inputs may have been switched",
            ),
            skipped => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping \
                 PEM blocks of the following types: [{}]",
                skipped.join(" ")
            ),
        }
    } else if !keys.iter().any(is_key) {
        match &keys[..] {
            [] => String::from("tls: failed to find any PEM data in key input"),
            [kind] if kind == "CERTIFICATE" => String::from(
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
            skipped => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input \
                 after skipping PEM blocks of the following types: [{}]",
                skipped.join(" ")
            ),
        }
    } else {
        return Vec::new();
    };
    vec![warning]
}

fn secret_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    immutable(
        errors,
        (object.get("type"), old.get("type")),
        &Path::root("type"),
    );
    validate_immutable(errors, object, old, &["data"]);
}
