//! The body of a write: read within a bound, parsed once, decoded as the kind it must be of.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/{create,rest}.go

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use lockgate_api::document::{self, Document, Kind, json, yaml};
use lockgate_api::meta::type_meta::TypeMeta;
use lockgate_go::quote::quote;
use lockgate_kinds::protobuf::Envelope;
use serde_json::Value;

use crate::decode::options::FieldValidation;
use crate::error::{Outcome, bad_request, too_large};
use crate::http::limits;
use crate::http::negotiate::Sent;
use crate::registry::{Resource, Shape, api_version};

/// Reads a body to its end.
pub(crate) async fn read(body: &mut Incoming) -> Outcome<Bytes> {
    match Limited::new(body, limits::BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(format!(
            "Request entity too large: limit is {}",
            limits::BODY_BYTES
        ))),
        Err(error) => Err(bad_request(format!("the body could not be read: {error}"))),
    }
}

/// Reads what is left of a body that nobody wants, for a moment, and keeps nothing of it.
pub(crate) async fn drain(body: &mut Incoming) {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    // Whether it ended makes no difference: the answer is known.
    let _ = tokio::time::timeout(limits::DRAIN, rest).await;
}

/// A kind that is expected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'k> {
    pub(crate) group: &'k str,
    pub(crate) version: &'k str,
    pub(crate) kind: &'k str,
    pub(crate) shape: &'k Shape,
}

impl<'k> Expected<'k> {
    /// The kind of the objects of a resource.
    pub(crate) fn of(resource: &'k Resource) -> Self {
        Self {
            group: resource.group(),
            version: &resource.version,
            kind: resource.kind(),
            shape: &resource.shape,
        }
    }

    fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }
}

/// A decoded object, and what is to be said about it.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// Decodes an object of an expected kind, with the defaults of its version.
pub(crate) fn decode(
    body: &[u8],
    sent: Sent,
    expected: Expected<'_>,
    validation: FieldValidation,
) -> Outcome<Decoded> {
    let unrecognized = |error: &str| {
        bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error} ({})",
            expected.kind,
            summary(body)
        ))
    };
    let parsed = Parsed::read(body, sent).map_err(|error| unrecognized(&error))?;
    let mut found = parsed.type_meta().map_err(|error| unrecognized(&error))?;
    if let Shape::Custom(_) = expected.shape {
        // UPSTREAM: apiextensions-apiserver pkg/apiserver/customresource_handler.go decodes without defaults for the type.
        if found.kind.is_empty() {
            let missing = "Object 'Kind' is missing in '";
            return Err(unrecognized(&format!(
                "{missing}{}'",
                String::from_utf8_lossy(body)
            )));
        }
    }
    if found.kind.is_empty() {
        found.kind = expected.kind.to_owned();
    }
    if found.version.is_empty() {
        (found.group, found.version) = (expected.group.to_owned(), expected.version.to_owned());
    }
    let cannot = |error: &str| {
        bad_request(format!(
            "{} in version {} cannot be handled as a {}: {error}",
            found.kind,
            quote(&found.version),
            expected.kind
        ))
    };
    if found.kind != expected.kind {
        return Err(cannot(&wrong_kind(&found, expected)));
    }
    if (found.group.as_str(), found.version.as_str()) != (expected.group, expected.version) {
        return Err(bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            found.api_version(),
            expected.api_version()
        )));
    }
    let decoded = match &parsed {
        Parsed::Document(document) => expected.shape.decode(document.root()),
        // Whatever the wire does not know, nobody minds.
        Parsed::Protobuf(envelope) => expected
            .shape
            .decode_protobuf(envelope.raw)
            .map(|object| (object, Vec::new())),
    };
    let (object, findings) = decoded.map_err(|error| cannot(&error))?;
    match validation {
        FieldValidation::Strict if !findings.is_empty() => Err(cannot(&format!(
            "strict decoding error: {}",
            findings.join(", ")
        ))),
        FieldValidation::Warn => Ok(Decoded {
            object,
            warnings: findings,
        }),
        _ => Ok(Decoded {
            object,
            warnings: Vec::new(),
        }),
    }
}

/// A body that was taken apart as far as its form goes.
#[derive(Debug)]
pub(crate) enum Parsed<'b> {
    Document(Document),
    Protobuf(Envelope<'b>),
}

impl<'b> Parsed<'b> {
    /// Takes a body apart; the error is in upstream's words.
    pub(crate) fn read(body: &'b [u8], sent: Sent) -> Result<Self, String> {
        if sent == Sent::Protobuf {
            return Envelope::open(body).map(Self::Protobuf);
        }
        parse(body, sent)
            .map(Self::Document)
            .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
    }

    /// What the body says it is.
    pub(crate) fn type_meta(&self) -> Result<TypeMeta, String> {
        match self {
            Self::Document(document) => {
                TypeMeta::read(document.root()).map_err(|error| error.to_string())
            }
            Self::Protobuf(envelope) => {
                let (group, version) = envelope.group_version();
                Ok(TypeMeta {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    kind: envelope.kind.clone(),
                })
            }
        }
    }
}

fn wrong_kind(found: &TypeMeta, expected: Expected<'_>) -> String {
    let internal = match expected.group {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    match lockgate_kinds::resource::by_kind(&found.group, &found.version, &found.kind) {
        Some(_) => format!(
            "converting ({}.{}) to ({internal}.{}): unknown conversion",
            found.version, found.kind, expected.kind
        ),
        None => format!(
            "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            quote(&found.kind),
            quote(&found.api_version())
        ),
    }
}

/// Parses a body; the error is in the words of Go's parser.
pub(crate) fn parse(body: &[u8], sent: Sent) -> Result<Document, String> {
    let parsed = match sent {
        Sent::Json => json::parse(body),
        Sent::Protobuf => return Err(String::from("it is no text")),
        Sent::Yaml => match std::str::from_utf8(body) {
            Ok(text) => yaml::parse(text),
            Err(_) => return Err(String::from("yaml: invalid leading UTF-8 octet")),
        },
    };
    let document = parsed.map_err(|error| error.message)?;
    if is_deeper_than(document.root(), limits::BODY_DEPTH) {
        return Err(format!("exceeded max depth of {}", limits::BODY_DEPTH));
    }
    Ok(document)
}

fn is_deeper_than(root: document::Value<'_>, limit: usize) -> bool {
    let is_open = |value: &document::Value<'_>| matches!(value.kind(), Kind::Array | Kind::Object);
    let mut open = vec![(root, 1)];
    while let Some((value, depth)) = open.pop() {
        if depth > limit {
            return true;
        }
        let members = value.members().map(|member| member.value);
        let inner = value.items().chain(members).filter(is_open);
        open.extend(inner.map(|value| (value, depth + 1)));
    }
    false
}

/// The beginning of a body, as far as it can be shown.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let (shown, dots) = match body.get(..SHOWN) {
        Some(start) if body.len() > SHOWN => (start, " ..."),
        _ => (body, ""),
    };
    match body.first() {
        None => String::from("<empty>"),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{dots}")
        }
    }
}
