//! Stored objects: keys, and the bytes behind them.
//!
//! The bytes are the JSON of the object without `kind` and `metadata.resourceVersion`, and start with its `apiVersion`
//! and metadata: the bytes contain the version, since a CustomResourceDefinition may change its storage version while
//! objects stay. So a response is made by putting three short strings in front of bytes that are never parsed:
//!
//! ```text
//!   {"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7",  "name":"a",…},…}
//!   └────────────── made for the answer ──────────────────────────────┘└─ as stored ──
//! ```
//!
//! Bytes without an `apiVersion` are in an earlier format; they are in the storage version of their resource
//! (`bootstrap` adds it at startup).

pub(crate) mod labels;
pub(crate) mod scan;

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use lockgate_api::meta::time::Time;
use lockgate_go::json;
use lockgate_kinds::cells::Cell;
use lockgate_kinds::table;
use lockgate_store::{Entry, MemoryOptions, Revision};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::error::{Outcome, corrupt};
use crate::http::limits;
use scan::{Members, ScanError};

/// The start of a stored object.
const VERSION: &str = "{\"apiVersion\":\"";
/// The text after the version.
const METADATA: &str = "\",\"metadata\":{";
/// The start of a stored object without a version.
const UNVERSIONED: &str = "{\"metadata\":{";

/// The keys of running servers on a shared store, like kube-apiserver's `masterleases`.
pub(crate) const SERVING: &str = "/lockgate.io/masterleases/";
/// The time after which a server's key expires without renewal.
///
/// UPSTREAM: kubernetes pkg/controlplane/apiserver (DefaultEndpointReconcilerTTL)
pub(crate) const SERVING_SECONDS: u64 = 15;

/// The prefix of the keys of a resource.
pub(crate) fn prefix(group: &str, plural: &str, namespace: Option<&str>) -> String {
    let group = if group.is_empty() { "core" } else { group };
    match namespace {
        None => format!("/{group}/{plural}/"),
        Some(namespace) => format!("/{group}/{plural}/{namespace}/"),
    }
}

/// The lifetime of an object by its key; `None` if it does not expire.
///
/// UPSTREAM: kubernetes cmd/kube-apiserver/app/options (EventTTL)
#[must_use]
pub fn time_to_live(key: &str) -> Option<Duration> {
    let lives = |prefix: &str, seconds| {
        key.starts_with(prefix)
            .then(|| Duration::from_secs(seconds))
    };
    lives("/core/events/", 3600).or_else(|| lives(SERVING, SERVING_SECONDS))
}

/// The store options of this server. Policy bindings can be numerous, are similar, and are rarely read: matching uses a
/// compiled form. Bloom filters contain labels, for lists by label.
#[must_use]
pub fn store_options() -> MemoryOptions {
    MemoryOptions {
        compressed_prefixes: &[
            "/admissionregistration.k8s.io/validatingadmissionpolicybindings/",
            "/admissionregistration.k8s.io/mutatingadmissionpolicybindings/",
        ],
        bloom: labels::bloom,
        ..MemoryOptions::default()
    }
}

/// The prefix of custom resource groups in keys.
pub(crate) const CUSTOM: &str = "custom:";

/// The group of custom resources in keys. No group contains a colon, so a CustomResourceDefinition never shares keys
/// with a built-in resource.
pub(crate) fn custom_space(group: &str) -> String {
    format!("{CUSTOM}{group}")
}

/// Returns true if a text has the stored format, with its version.
pub(crate) fn is_stored_form(text: &str) -> bool {
    let is_versioned = Parts::of(text.as_bytes()).is_some_and(|parts| parts.api_version.is_some());
    is_versioned && text.ends_with('}')
}

/// The bytes to store.
pub(crate) fn encode(object: &Value) -> Bytes {
    let empty = Map::new();
    let members = object.as_object().unwrap_or(&empty);
    let metadata = members
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let version = members.get("apiVersion").and_then(Value::as_str);
    let mut text = Vec::with_capacity(1024);
    match version.filter(|version| is_plain(version)) {
        Some(version) => {
            text.extend_from_slice(VERSION.as_bytes());
            text.extend_from_slice(version.as_bytes());
            text.extend_from_slice(METADATA.as_bytes());
        }
        None => text.extend_from_slice(UNVERSIONED.as_bytes()),
    }
    push_members(&mut text, metadata, &["resourceVersion"], true);
    text.push(b'}');
    push_members(
        &mut text,
        members,
        &["apiVersion", "kind", "metadata"],
        false,
    );
    text.push(b'}');
    // Long-lived buffers keep no spare capacity.
    text.shrink_to_fit();
    text.into()
}

/// Groups and versions are names, which need no escapes.
fn is_plain(version: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'/');
    !version.is_empty() && version.bytes().all(plain)
}

/// The parts of a stored object.
#[derive(Debug, Clone, Copy)]
struct Parts<'b> {
    /// The storage version; `None` in the earlier format.
    api_version: Option<&'b str>,
    /// The fields of the metadata, and everything after them.
    rest: &'b str,
}

impl<'b> Parts<'b> {
    fn of(bytes: &'b [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if let Some(rest) = text.strip_prefix(UNVERSIONED) {
            return Some(Self {
                api_version: None,
                rest,
            });
        }
        let (api_version, _) = text.strip_prefix(VERSION)?.split_once('"')?;
        let rest = text.get(VERSION.len() + api_version.len()..)?;
        Some(Self {
            api_version: Some(api_version),
            rest: rest.strip_prefix(METADATA)?,
        })
    }
}

/// The `apiVersion` of a stored object; `None` if its bytes do not contain it.
pub(crate) fn stored_version(bytes: &[u8]) -> Option<&str> {
    Parts::of(bytes)?.api_version
}

/// Adds the storage version to an object in the earlier format; `None` if it has one already or is not an object.
pub(crate) fn with_version(bytes: &[u8], api_version: &str) -> Option<Bytes> {
    let Parts {
        api_version: None,
        rest,
    } = Parts::of(bytes)?
    else {
        return None;
    };
    is_plain(api_version).then(|| format!("{VERSION}{api_version}{METADATA}{rest}").into())
}

fn push_members(
    text: &mut Vec<u8>,
    members: &Map<String, Value>,
    without: &[&str],
    mut first: bool,
) {
    for (key, value) in members
        .iter()
        .filter(|(key, _)| !without.contains(&key.as_str()))
    {
        if !std::mem::take(&mut first) {
            text.push(b',');
        }
        json::append_str(text, key);
        text.push(b':');
        json::append_value(text, value);
    }
}

/// The `apiVersion` and `kind` of a returned object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypeMeta<'t> {
    pub(crate) api_version: &'t str,
    pub(crate) kind: &'t str,
}

/// Appends a stored object for a client. Items of lists of built-in kinds have no type.
pub(crate) fn render(
    into: &mut String,
    entry: &Entry,
    type_meta: Option<TypeMeta<'_>>,
) -> Outcome<()> {
    render_bytes(into, &entry.value, entry.revision, type_meta)
        .ok_or_else(|| corrupt(&entry.key, entry.revision.0))
}

/// Appends the head of a [`render`]ed list item; the returned stored bytes are the rest.
pub(crate) fn render_head(into: &mut String, entry: &Entry) -> Outcome<Bytes> {
    let parts = Parts::of(&entry.value);
    let Parts { rest, .. } = parts.ok_or_else(|| corrupt(&entry.key, entry.revision.0))?;
    into.push_str("{\"metadata\":");
    append_version(into, entry.revision, rest);
    Ok(entry.value.slice_ref(rest.as_bytes()))
}

/// Renders stored bytes as an object; `None` if they are not one.
pub(crate) fn text_of(bytes: &[u8], revision: Revision, type_meta: TypeMeta<'_>) -> Option<String> {
    let mut text = String::with_capacity(bytes.len() + 96);
    render_bytes(&mut text, bytes, revision, Some(type_meta))?;
    Some(text)
}

fn render_bytes(
    into: &mut String,
    bytes: &[u8],
    revision: Revision,
    type_meta: Option<TypeMeta<'_>>,
) -> Option<()> {
    let Parts { rest, .. } = Parts::of(bytes)?;
    into.push('{');
    if let Some(TypeMeta { api_version, kind }) = type_meta {
        into.push_str("\"kind\":");
        into.push_str(&json::to_string(kind));
        into.push_str(",\"apiVersion\":");
        into.push_str(&json::to_string(api_version));
        into.push(',');
    }
    into.push_str("\"metadata\":");
    append_version(into, revision, rest);
    into.push_str(rest);
    Some(())
}

/// Appends the metadata of a stored object for a client. It is scanned for unless its text is known; the rest of the
/// object is not read.
pub(crate) fn render_metadata(
    into: &mut String,
    entry: &Entry,
    known: Option<&str>,
) -> Outcome<()> {
    let metadata = known.or_else(|| metadata_text(&entry.value)).or_else(|| {
        let metadata: &RawValue = read_metadata(&entry.value)?;
        Some(metadata.get())
    });
    let metadata = metadata.ok_or_else(|| corrupt(&entry.key, entry.revision.0))?;
    let members = metadata.strip_prefix('{').unwrap_or_default();
    append_version(into, entry.revision, members);
    into.push_str(members);
    Ok(())
}

/// Appends the start of the metadata for a client; its fields follow.
fn append_version(into: &mut String, revision: Revision, members: &str) {
    // Writing to a string does not fail.
    let _ = write!(into, "{{\"resourceVersion\":\"{revision}\"");
    if !members.starts_with('}') {
        into.push(',');
    }
}

/// The text of the metadata of a stored object, if a scan finds it.
fn metadata_text(value: &[u8]) -> Option<&str> {
    let text = from_metadata(value)?;
    let after = Members::of(text).ok()?.after().ok()?;
    std::str::from_utf8(text.get(..text.len() - after.len())?).ok()
}

/// The text of a stored object starting at its metadata.
fn from_metadata(value: &[u8]) -> Option<&[u8]> {
    let members = match value.strip_prefix(VERSION.as_bytes()) {
        Some(rest) => {
            let version = memchr::memchr(b'"', rest)?;
            rest.get(version..)?.strip_prefix(METADATA.as_bytes())?
        }
        None => value.strip_prefix(UNVERSIONED.as_bytes())?,
    };
    // The brace before the first field is that of the metadata.
    value.get(value.len() - members.len() - 1..)
}

/// The fields of the metadata of a stored object.
pub(crate) fn metadata_members(value: &[u8]) -> Result<Members<'_>, ScanError> {
    Members::of(from_metadata(value).ok_or(ScanError)?)
}

/// Appends the table cells of a stored object without parsing it, and returns the text of its metadata.
pub(crate) fn render_cells<'v>(
    into: &mut String,
    value: &'v [u8],
    cells: &[Cell],
    now: Time,
) -> Result<&'v str, ScanError> {
    let object = from_metadata(value).ok_or(ScanError)?;
    let mut metadata = Members::of(object)?;
    let (mut name, mut created) = ("", "");
    while let Some((member, value)) = metadata.next()? {
        match member {
            b"name" => name = scan::plain_text(value)?,
            b"creationTimestamp" => created = scan::plain_text(value)?,
            _ => {}
        }
    }
    let rest = metadata.after()?;
    for (index, cell) in cells.iter().enumerate() {
        into.push(if index == 0 { '[' } else { ',' });
        let members = Members::following(rest);
        match cell {
            Cell::Name => into.push_str(&json::to_string(name)),
            Cell::Age => into.push_str(&json::to_string(&table::since(created, now))),
            Cell::Text(member) => {
                let text = members.clone().find(member.as_bytes())?;
                let text = text.map_or(Ok(""), scan::plain_text)?;
                into.push_str(&json::to_string(text));
            }
            Cell::Count(counted) => {
                // Writing to a string does not fail.
                let _ = write!(into, "{}", count_entries(members, counted)?);
            }
        }
    }
    into.push(']');
    let metadata = object.get(..object.len() - rest.len()).unwrap_or_default();
    std::str::from_utf8(metadata).map_err(|_| ScanError)
}

/// The total number of entries in some fields.
fn count_entries(mut members: Members<'_>, counted: &[&str]) -> Result<usize, ScanError> {
    let mut count = 0;
    while let Some((name, value)) = members.next()? {
        if counted.iter().any(|counted| counted.as_bytes() == name) {
            let mut entries = Members::of(value)?;
            while entries.next()?.is_some() {
                count += 1;
            }
        }
    }
    Ok(count)
}

/// Parses an entry without its managed fields, which no column of a built-in kind uses and which are often most of an
/// object.
pub(crate) fn parse_without_managed_fields(entry: &Entry) -> Outcome<Value> {
    let mut reader = serde_json::Deserializer::from_slice(&entry.value);
    // Objects nested deeper than the fast parser's limit are parsed differently.
    let object = WithoutManagedFields::Object.deserialize(&mut reader).ok();
    object
        .or_else(|| tree(&entry.value))
        .filter(|object| object.get("metadata").is_some_and(Value::is_object))
        .ok_or_else(|| corrupt(&entry.key, entry.revision.0))
}

/// Parses a tree without managed fields.
#[derive(Clone, Copy)]
enum WithoutManagedFields {
    Object,
    Metadata,
}

impl<'e> DeserializeSeed<'e> for WithoutManagedFields {
    type Value = Value;

    fn deserialize<D: Deserializer<'e>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'e> Visitor<'e> for WithoutManagedFields {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'e>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = match (self, key.as_str()) {
                (Self::Object, "metadata") => access.next_value_seed(Self::Metadata)?,
                (Self::Metadata, "managedFields") => {
                    access.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => access.next_value()?,
            };
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

/// Parses an entry, with its type and resourceVersion.
pub(crate) fn parse_entry(entry: &Entry, type_meta: TypeMeta<'_>) -> Outcome<Value> {
    let mut object = tree(&entry.value)
        .filter(|object| object.get("metadata").is_some_and(Value::is_object))
        .ok_or_else(|| corrupt(&entry.key, entry.revision.0))?;
    set_type(&mut object, type_meta);
    set_version(&mut object, entry.revision);
    Ok(object)
}

/// Parses a text. The fast parser is limited to 128 levels, and objects may have more.
pub(crate) fn tree(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok().or_else(|| {
        let document = lockgate_api::document::json::parse(text).ok()?;
        lockgate_kinds::tree::from_document_within(document.root(), limits::STORED_DEPTH)
    })
}

/// Parses fields of the metadata. The rest of the object is not parsed.
pub(crate) fn read_metadata<'e, T: Deserialize<'e>>(value: &'e [u8]) -> Option<T> {
    serde_json::Deserializer::from_slice(from_metadata(value)?)
        .into_iter()
        .next()?
        .ok()
}

/// Sets the `apiVersion` and `kind` of an object.
pub(crate) fn set_type(object: &mut Value, type_meta: TypeMeta<'_>) {
    if let Some(members) = object.as_object_mut() {
        members.insert(String::from("apiVersion"), type_meta.api_version.into());
        members.insert(String::from("kind"), type_meta.kind.into());
    }
}

/// The resourceVersion of an object.
pub(crate) fn version(object: &Value) -> Option<Revision> {
    let text = object.pointer("/metadata/resourceVersion")?.as_str()?;
    text.parse().map(Revision).ok()
}

/// Sets the resourceVersion of an object.
pub(crate) fn set_version(object: &mut Value, revision: Revision) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(String::from("resourceVersion"), revision.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONFIG_MAP: TypeMeta<'_> = TypeMeta {
        api_version: "v1",
        kind: "ConfigMap",
    };

    fn entry(value: impl Into<Bytes>) -> Entry {
        Entry {
            key: "/core/configmaps/n/a".into(),
            value: value.into(),
            created: Revision(7),
            revision: Revision(7),
        }
    }

    #[test]
    fn the_rest_of_an_item_is_what_is_stored() {
        let object = json!({"apiVersion": "v1", "metadata": {"name": "a"}, "data": {"b": "c"}});
        let entry = entry(encode(&object));
        let mut whole = String::new();
        render(&mut whole, &entry, None).unwrap();
        let mut head = String::new();
        let rest = render_head(&mut head, &entry).unwrap();
        assert_eq!(whole.as_bytes(), [head.as_bytes(), &rest].concat());
        // It is not a copy.
        assert_eq!(rest.as_ptr_range().end, entry.value.as_ptr_range().end);
    }

    #[test]
    fn shows_what_was_stored_with_type_and_version() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "resourceVersion": "3"},
            "data": {"k": "<v>"},
        });
        let bytes = encode(&object);
        assert_eq!(
            bytes,
            r#"{"apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"\u003cv\u003e"}}"#
        );
        assert_eq!(stored_version(&bytes), Some("v1"));
        let entry = entry(bytes);
        let mut text = String::new();
        render(&mut text, &entry, Some(CONFIG_MAP)).unwrap();
        let mut want = object;
        want["metadata"]["resourceVersion"] = "7".into();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), want);
        assert_eq!(parse_entry(&entry, CONFIG_MAP).unwrap(), want);
        assert_eq!(version(&want), Some(Revision(7)));
        let mut item = String::new();
        render(&mut item, &entry, None).unwrap();
        assert!(item.starts_with(r#"{"metadata":{"resourceVersion":"7","name":"a"}"#));
    }

    #[test]
    fn gives_bytes_of_the_older_form_a_version() {
        let old = br#"{"metadata":{"name":"a"},"spec":{"x":1}}"#;
        assert_eq!(stored_version(old), None);
        let new = with_version(old, "example.com/v1").unwrap();
        assert_eq!(stored_version(&new), Some("example.com/v1"));
        assert_eq!(with_version(&new, "example.com/v2"), None, "it has one");
        assert_eq!(with_version(b"[]", "v1"), None);
        let of = |bytes: &[u8]| parse_entry(&entry(bytes.to_vec()), CONFIG_MAP).unwrap();
        assert_eq!(of(old), of(&new));
        let text = |bytes: &[u8]| text_of(bytes, Revision(7), CONFIG_MAP).unwrap();
        assert_eq!(text(old), text(&new));
        // A version that needs an escape cannot be served.
        let odd = encode(&json!({"apiVersion": "a\"b", "metadata": {}}));
        assert_eq!(odd, r#"{"metadata":{}}"#);
    }

    #[test]
    fn corrupt_bytes_are_an_internal_error() {
        for bytes in [
            &b""[..],
            b"{",
            b"null",
            b"{}",
            b"[1]",
            b"{\"metadata\":1}",
            b"{\"apiVersion\":\"v1\",\"metadata\":1}",
            b"{\"apiVersion\":\"v1",
            b"\xff",
        ] {
            let entry = entry(bytes.to_vec());
            let failure = parse_entry(&entry, CONFIG_MAP).unwrap_err();
            assert_eq!(
                (failure.0.code, failure.0.reason.as_str()),
                (500, "InternalError")
            );
            assert!(
                failure.0.message.contains("Key: /core/configmaps/n/a,"),
                "{failure:?}"
            );
            let failure = render(&mut String::new(), &entry, None).unwrap_err();
            assert_eq!(failure.0.code, 500);
        }
    }

    #[test]
    fn reads_objects_as_deep_as_a_body_can_be() {
        let depth = limits::BODY_DEPTH - 1;
        let deep = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        let text = format!("{{\"metadata\":{{}},\"spec\":{deep}}}");
        let object = tree(text.as_bytes()).unwrap();
        assert_eq!(json::to_string(&object["spec"]), deep);
    }

    #[test]
    fn leaves_managed_fields_out_of_what_is_shown() {
        let object = json!({
            "metadata": {"name": "a", "managedFields": [{"manager": "kubectl"}]},
            "spec": {"managedFields": 1},
        });
        let shown = parse_without_managed_fields(&entry(encode(&object))).unwrap();
        let want = json!({"metadata": {"name": "a"}, "spec": {"managedFields": 1}});
        assert_eq!(shown, want);
        for bytes in [&b""[..], b"{", b"{}", b"[1]", b"{\"metadata\":1}", b"\xff"] {
            assert_eq!(
                parse_without_managed_fields(&entry(bytes.to_vec()))
                    .unwrap_err()
                    .0
                    .code,
                500
            );
        }
    }

    #[test]
    fn cells_are_found_without_parsing() {
        let cells = [
            Cell::Name,
            Cell::Text("type"),
            Cell::Text("other"),
            Cell::Count(&["data", "binaryData"]),
            Cell::Age,
        ];
        let object = json!({
            "apiVersion": "v1",
            "metadata": {
                "name": "a", "labels": {"name": "b"}, "creationTimestamp": "2026-11-18T00:00:00Z",
                "managedFields": [{"manager": "}"}],
            },
            "binaryData": {"z": ""}, "type": "Opaque", "data": {"x": "<\"}", "y": {"z": []}}, "spec": {"data": {"q": 1}},
        });
        let now = Time::parse("2026-11-18T00:01:00Z").unwrap();
        let bytes = encode(&object);
        let mut text = String::from("before ");
        let metadata = render_cells(&mut text, &bytes, &cells, now).unwrap();
        assert_eq!(text, r#"before ["a","Opaque","",3,"60s"]"#);
        let metadata: Value = serde_json::from_str(metadata).unwrap();
        assert_eq!(metadata, object["metadata"]);
        // An empty object has empty cells.
        let mut text = String::new();
        render_cells(&mut text, br#"{"metadata":{}}"#, &cells, now).unwrap();
        assert_eq!(text, r#"["","","",0,"\u003cunknown\u003e"]"#);
        for unclear in [
            &br#"{"metadata":{"name": "a"}}"#[..],
            br#"{"metadata":{"name":"\u0061"}}"#,
            br#"{"metadata":{},"type":1}"#,
            br#"{"metadata":{},"data":[1]}"#,
            br#"{"metadata":{},"data":null}"#,
            br#"{"metadata":{}"#,
        ] {
            let found = render_cells(&mut String::new(), unclear, &cells, now);
            assert_eq!(
                found,
                Err(ScanError),
                "{}",
                String::from_utf8_lossy(unclear)
            );
        }
    }

    #[test]
    fn finds_metadata_that_a_scan_cannot_read() {
        let spaced = entry(br#"{"metadata":{"name": "a"}, "data": {"x": 1}}"#.to_vec());
        let mut metadata = String::new();
        render_metadata(&mut metadata, &spaced, None).unwrap();
        assert_eq!(metadata, r#"{"resourceVersion":"7","name": "a"}"#);
    }

    #[test]
    fn reads_metadata_alone() {
        #[derive(serde::Deserialize)]
        struct Name {
            name: String,
        }
        let bytes = encode(&json!({"metadata": {"name": "a", "labels": {}}, "data": {"k": "v"}}));
        assert_eq!(read_metadata::<Name>(&bytes).unwrap().name, "a");
        assert!(read_metadata::<Name>(b"{\"metadata\":{}}").is_none());
        assert!(read_metadata::<Name>(b"{").is_none());
    }

    #[test]
    fn copes_with_an_object_without_metadata() {
        let mut text = String::new();
        render(&mut text, &entry(encode(&json!({}))), None).unwrap();
        assert_eq!(text, r#"{"metadata":{"resourceVersion":"7"}}"#);
    }
}
