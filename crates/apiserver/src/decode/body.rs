//! The body of a write: read up to a limit, parsed once, decoded as the expected kind.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/{create,rest}.go

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use lockgate_api::admission::response::GROUP_KINDS;
use lockgate_api::document::{self, Document, Kind, json, tree, yaml};
use lockgate_api::meta::type_meta::{TypeMeta, TypeMetaError};
use lockgate_go::quote::quote;
use lockgate_kinds::protobuf::{self, Envelope};
use lockgate_kinds::typed::Empties;
use serde_json::Value;

use crate::decode::options::FieldValidation;
use crate::error::{Outcome, bad_request, too_large, too_many_requests};
use crate::http::in_flight::{InFlight, Permit, TREE};
use crate::http::limits;
use crate::http::negotiate::BodyEncoding;
use crate::registry::shape_error::ShapeError;
use crate::registry::{Resource, Shape, api_version};

/// The body size from which memory is reserved: the number of requests is limited, and this is their minimum size.
const SMALL: usize = 16 << 10;

/// Reads a body completely, if there is memory for it. A body without Content-Length reserves the maximum, unless it
/// turns out to be small.
pub(crate) async fn read(
    body: &mut Incoming,
    memory: &InFlight,
    user: &str,
) -> Outcome<(Bytes, Option<Permit>)> {
    let too_large = || {
        let text = format!("Request entity too large: limit is {}", limits::BODY_BYTES);
        Err(too_large(text))
    };
    let size = body.size_hint().exact();
    let size = size.map_or(limits::BODY_BYTES, |size| {
        usize::try_from(size).unwrap_or(usize::MAX)
    });
    if size > limits::BODY_BYTES {
        return too_large();
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut permit = None;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| bad_request(format!("the body could not be read: {error}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let so_far = first.len() + rest.len() + data.len();
        if so_far > limits::BODY_BYTES {
            return too_large();
        }
        if so_far > SMALL && permit.is_none() {
            permit = Some(
                memory
                    .take(user, size * TREE)
                    .ok_or_else(too_many_requests)?,
            );
        }
        // Most bodies arrive in a single chunk, which is not copied.
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    if rest.is_empty() {
        return Ok((first, permit));
    }
    let mut all = BytesMut::with_capacity(first.len() + rest.len());
    all.extend_from_slice(&first);
    all.extend_from_slice(&rest);
    Ok((all.freeze(), permit))
}

/// Waits for memory for the object trees of a large body. A text of many tiny objects becomes a tree many times its
/// size, and concurrent bodies of one user are processed in sequence.
pub(crate) async fn reserve_trees(body: &[u8], trees: &InFlight, user: &str) -> Outcome<Permit> {
    let taken = trees.take_timeout(user, tree_bytes(body), limits::TREE_MEMORY_TIMEOUT);
    taken.await.ok_or_else(too_many_requests)
}

/// The approximate memory of the trees of a JSON, YAML or protobuf body during processing.
fn tree_bytes(text: &[u8]) -> usize {
    /// A map of up to eleven fields is one B-tree node.
    const MAP: usize = 640;
    /// A value in its document and in its list, and its key.
    const VALUE: usize = 100;
    /// The original object, and the defaulted or old one.
    const TREES: usize = 2;
    let (mut maps, mut values) = (0_usize, 1_usize);
    if text.starts_with(&protobuf::MAGIC) {
        // A message has a tag and a length, and usually contents.
        maps = text.len() / 16;
        values = text.len() / 4;
    } else {
        let mut in_string = false;
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\\' if in_string => {
                    bytes.next();
                }
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' => maps += 1,
                b',' | b'[' => values += 1,
                // A line of YAML is at most one item that is a map.
                b'\n' => {
                    maps += 1;
                    values += 1;
                }
                _ => {}
            }
        }
    }
    let tree = maps.saturating_mul(MAP).saturating_add(values * VALUE);
    text.len().saturating_add(tree).saturating_mul(TREES)
}

/// Drains the rest of an unwanted body for a short time, without keeping it.
pub(crate) async fn drain(body: &mut Incoming) {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    // The result is irrelevant: the response is already known.
    let _ = tokio::time::timeout(limits::DRAIN, rest).await;
}

/// The expected kind.
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

/// A decoded object, with its findings.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
    /// The empty lists and maps that the object was sent with.
    pub(crate) empties: Empties,
}

/// Decodes a body as an object of an expected kind, with the defaults of its version.
pub(crate) fn decode(
    body: &[u8],
    encoding: BodyEncoding,
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
    let parsed = Parsed::read(body, encoding).map_err(|error| unrecognized(&error.to_string()))?;
    let found = parsed.type_meta();
    let found = found.map_err(|error| unrecognized(&error.to_string()))?;
    // UPSTREAM: apiextensions-apiserver pkg/apiserver/customresource_handler.go decodes without
    // defaults for the type.
    if matches!(expected.shape, Shape::Custom(_)) && found.kind.is_empty() {
        return Err(unrecognized(&format!(
            "Object 'Kind' is missing in '{}'",
            String::from_utf8_lossy(body)
        )));
    }
    decode_typed(found, expected, validation, || match &parsed {
        Parsed::Document(document) => expected.shape.decode_with_empties(document.root()),
        // Protobuf bodies have no unknown-field findings.
        Parsed::Protobuf(envelope) => {
            let decoded = expected.shape.decode_protobuf(envelope.raw);
            decoded.map(|(object, empties)| (object, Vec::new(), empties))
        }
    })
}

/// Decodes an element of a document as an object of an expected kind, with the defaults of its version.
pub(crate) fn decode_element(
    root: document::Value<'_>,
    expected: Expected<'_>,
    validation: FieldValidation,
) -> Outcome<Decoded> {
    if is_deeper_than(root, limits::BODY_DEPTH) {
        return Err(bad_request(ParseError::TooDeep.to_string()));
    }
    let found = TypeMeta::read(root).map_err(|error| bad_request(error.to_string()))?;
    decode_typed(found, expected, validation, || {
        expected.shape.decode_with_empties(root)
    })
}

/// Decodes an object whose own type is `found`.
fn decode_typed(
    mut found: TypeMeta,
    expected: Expected<'_>,
    validation: FieldValidation,
    decode: impl FnOnce() -> Result<(Value, Vec<String>, Empties), ShapeError>,
) -> Outcome<Decoded> {
    if found.kind.is_empty() {
        found.kind = expected.kind.to_owned();
    }
    // Custom resources are decoded without a default type; validation rejects a wrong kind.
    let is_custom = matches!(expected.shape, Shape::Custom(_));
    if found.version.is_empty() && !is_custom {
        (found.group, found.version) = (expected.group.to_owned(), expected.version.to_owned());
    }
    // Evictions are the same in the previous version, which has no other kinds any more.
    if (found.group.as_str(), found.version.as_str()) == ("policy", "v1beta1")
        && expected.kind == "Eviction"
    {
        expected.version.clone_into(&mut found.version);
    }
    let cannot = |error: &str| {
        bad_request(format!(
            "{} in version {} cannot be handled as a {}: {error}",
            found.kind,
            quote(&found.version),
            expected.kind
        ))
    };
    if found.kind != expected.kind && !is_custom {
        return Err(cannot(&wrong_kind(&found, expected)));
    }
    if (found.group.as_str(), found.version.as_str()) != (expected.group, expected.version) {
        return Err(bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            found.api_version(),
            expected.api_version()
        )));
    }
    let (object, findings, empties) = decode().map_err(|error| cannot(&error.to_string()))?;
    match validation {
        FieldValidation::Strict if !findings.is_empty() => Err(cannot(&format!(
            "strict decoding error: {}",
            findings.join(", ")
        ))),
        FieldValidation::Warn => Ok(Decoded {
            object,
            warnings: findings,
            empties,
        }),
        _ => Ok(Decoded {
            object,
            warnings: Vec::new(),
            empties,
        }),
    }
}

/// A body that cannot be parsed, with the message of Go's parsers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("{0}")]
    Syntax(String),
    #[error("couldn't get version/kind; json parse error: {0}")]
    NoType(Box<Self>),
    #[error("{0}")]
    Type(TypeMetaError),
    #[error(transparent)]
    Protobuf(#[from] protobuf::DecodeError),
    #[error("{0}")]
    Yaml(yaml::Problem),
    #[error("a protobuf body cannot be decoded as text")]
    NotText,
    #[error("exceeded max depth of {}", limits::BODY_DEPTH)]
    TooDeep,
}

/// A syntactically parsed body.
#[derive(Debug)]
pub(crate) enum Parsed<'b> {
    Document(Document),
    Protobuf(Envelope<'b>),
}

impl<'b> Parsed<'b> {
    /// Parses a body; errors have upstream's messages.
    pub(crate) fn read(body: &'b [u8], encoding: BodyEncoding) -> Result<Self, ParseError> {
        if encoding == BodyEncoding::Protobuf {
            let envelope = Envelope::open(body).map_err(ParseError::Protobuf);
            return envelope.map(Self::Protobuf);
        }
        parse(body, encoding)
            .map(Self::Document)
            .map_err(|error| match error {
                // YAML is converted to JSON before the type is read.
                ParseError::Yaml(_) => error,
                _ => ParseError::NoType(Box::new(error)),
            })
    }

    /// The apiVersion and kind in the body.
    pub(crate) fn type_meta(&self) -> Result<TypeMeta, ParseError> {
        match self {
            Self::Document(document) => TypeMeta::read(document.root()).map_err(ParseError::Type),
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

/// The type that an object has after a JSON patch or a merge patch.
#[derive(Debug)]
pub(crate) enum PatchedType {
    Expected,
    /// Without a version upstream reads its internal type, whose fields have no JSON names: all members
    /// are unknown.
    Internal {
        findings: Vec<String>,
    },
}

impl PatchedType {
    /// Checks the type of a patched object, with upstream's error.
    ///
    /// UPSTREAM: apimachinery pkg/runtime/serializer/json/json.go (Serializer.Decode)
    pub(crate) fn of(object: &Value, expected: Expected<'_>) -> Result<Self, String> {
        let (Some(members), false) = (
            object.as_object(),
            matches!(expected.shape, Shape::Custom(_)),
        ) else {
            return Ok(Self::Expected);
        };
        let is_type = |name: &&String| {
            name.eq_ignore_ascii_case("apiVersion") || name.eq_ignore_ascii_case("kind")
        };
        let stated = members.iter().filter(|(name, _)| is_type(name));
        let stated = Value::Object(
            stated
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        );
        let found = TypeMeta::read(tree::read(&stated).root());
        let mut found = found.map_err(|error| error.to_string())?;
        if found.kind.is_empty() {
            expected.kind.clone_into(&mut found.kind);
        }
        if found.version.is_empty() && ["", expected.group].contains(&found.group.as_str()) {
            if found.kind != expected.kind {
                return Err(format!(
                    "no kind {} is registered for the internal version of group {} in scheme {}",
                    quote(&found.kind),
                    quote(expected.group),
                    quote(scheme_of(expected.group)),
                ));
            }
            let unknown = members.keys().filter(|name| !is_type(name));
            let findings = unknown.map(|name| format!("unknown field {}", quote(name)));
            return Ok(Self::Internal {
                findings: findings.take(MAX_FINDINGS).collect(),
            });
        }
        let same_kind = found.kind == expected.kind;
        let same_group = same_kind && found.group == expected.group;
        let is_expected = same_group && found.version == expected.version;
        // Events are one internal type in both of their groups.
        let is_other_version = same_group || (same_kind && found.kind == "Event");
        if is_expected || (is_other_version && is_registered(&found)) {
            return Ok(Self::Expected);
        }
        Err(wrong_kind(&found, expected))
    }
}

/// The maximum number of reported findings about one object.
const MAX_FINDINGS: usize = 100;

/// The name of upstream's scheme for a group. CustomResourceDefinitions and APIServices have separate schemes.
fn scheme_of(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" | "apiregistration.k8s.io" => "pkg/runtime/scheme.go:111",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

fn wrong_kind(found: &TypeMeta, expected: Expected<'_>) -> String {
    let internal = match expected.group {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    let scheme = scheme_of(expected.group);
    let is_known = scheme.starts_with("pkg/api")
        || found.group == expected.group
        || UNVERSIONED.contains(&found.kind.as_str());
    if is_known && is_registered(found) {
        format!(
            "converting ({}.{}) to ({internal}.{}): unknown conversion",
            found.version, found.kind, expected.kind
        )
    } else {
        unregistered(found, scheme)
    }
}

fn unregistered(found: &TypeMeta, scheme: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme {}",
        quote(&found.kind),
        quote(&found.api_version()),
        quote(scheme)
    )
}

/// Kinds that exist in every version. UPSTREAM: apimachinery pkg/apis/meta/v1/register.go
const UNVERSIONED: [&str; 5] = [
    "Status",
    "APIVersions",
    "APIGroupList",
    "APIGroup",
    "APIResourceList",
];

/// Returns true if upstream has a Go type for a kind.
fn is_registered(found: &TypeMeta) -> bool {
    use lockgate_kinds::resource::{by_kind, resources};
    let is_list = (
        found.group.as_str(),
        found.version.as_str(),
        found.kind.as_str(),
    );
    if UNVERSIONED.contains(&found.kind.as_str()) || is_list == ("", "v1", "List") {
        return true;
    }
    let (group, version) = (found.group.as_str(), found.version.as_str());
    let item = found.kind.strip_suffix("List").unwrap_or(&found.kind);
    if by_kind(group, version, &found.kind).is_some() || by_kind(group, version, item).is_some() {
        return true;
    }
    let is_known = resources().any(|known| known.group == group && known.version == version);
    is_known && GROUP_KINDS.contains(&found.kind.as_str())
}

/// The error for a delete body that is not `DeleteOptions`.
pub(crate) fn not_delete_options(found: &TypeMeta) -> String {
    if UNVERSIONED.contains(&found.kind.as_str()) {
        return format!(
            "converting ({}.{}) to (v1.DeleteOptions): unknown conversion",
            found.version, found.kind
        );
    }
    // Without a version it is decoded as the version of the options.
    if found.version.is_empty() {
        let found = TypeMeta {
            group: String::from("meta.k8s.io"),
            version: String::from("v1"),
            kind: found.kind.clone(),
        };
        return unregistered(&found, "pkg/runtime/scheme.go:111");
    }
    unregistered(found, "pkg/apis/meta/internalversion/scheme/register.go:26")
}

/// Decodes an object from a tree, with the defaults of its version. Unknown fields are dropped.
pub(crate) fn decode_value(value: Value, resource: &Resource) -> Outcome<Value> {
    let (mut object, _) = resource.shape.decode_value(value).map_err(|error| {
        bad_request(format!(
            "{} in version {} cannot be handled as a {}: {error}",
            resource.kind(),
            quote(&resource.version),
            resource.kind()
        ))
    })?;
    resource.shape.apply_defaults(&mut object);
    Ok(object)
}

/// Parses a body; errors have the messages of Go's parser.
pub(crate) fn parse(body: &[u8], encoding: BodyEncoding) -> Result<Document, ParseError> {
    let document = match encoding {
        BodyEncoding::Json => {
            json::parse(body).map_err(|error| ParseError::Syntax(error.message))?
        }
        BodyEncoding::Protobuf => return Err(ParseError::NotText),
        BodyEncoding::Yaml => yaml::parse_like_kubernetes(body).map_err(ParseError::Yaml)?,
    };
    if is_deeper_than(document.root(), limits::BODY_DEPTH) {
        return Err(ParseError::TooDeep);
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

/// The start of a body, for messages.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_the_memory_of_trees() {
        let tiny = format!(
            "{{\"spec\":{{\"a\":[{}]}}}}",
            ["{\"a\":1}"; 10_000].join(",")
        );
        let numbers = format!("{{\"spec\":{{\"a\":[{}]}}}}", ["1"; 30_000].join(","));
        let text = format!(
            "{{\"data\":{{\"a\":\"{}\"}}}}",
            "{\\\"b\\\",".repeat(10_000)
        );
        for body in [tiny, numbers, text] {
            let info = allocation_counter::measure(|| {
                let document = json::parse(body.as_bytes()).unwrap();
                let tree: Value = serde_json::from_str(&body).unwrap();
                drop((document, tree));
            });
            let actual = usize::try_from(info.bytes_max).unwrap();
            let estimate = tree_bytes(body.as_bytes());
            assert!(
                (actual * 3 / 4..actual * 4).contains(&estimate),
                "{estimate} for {actual} of {}",
                &body[..40]
            );
        }
    }
}
