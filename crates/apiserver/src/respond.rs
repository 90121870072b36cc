//! Stage 9: the response in the negotiated format.

mod stored_list;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, StatusCode};
use hyper::body::Body as _;
use lockgate_api::document::yaml;
use lockgate_go::json;
use lockgate_kinds::protobuf;
use lockgate_kinds::table::{self, Headers, Include};
use lockgate_kinds::typed::type_of;
use serde_json::{Value, json};

use crate::encoding;
use crate::error::{Failure, Outcome, bad_request, internal};
use crate::http::body::{Body, Response};
use crate::http::negotiate::{Encoding, Negotiated, PROTOBUF, View};
use crate::http::query::Query;
use crate::registry::{Resource, split_api_version};
use crate::request::Recorded;
pub(crate) use stored_list::{StoredList, list_head, render_partial};

/// The response to a request, before encoding.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    payload: Payload,
}

#[derive(Debug)]
enum Payload {
    /// Encoded JSON.
    Text(String),
    /// An encoded JSON list.
    List(String),
    /// A list of stored objects, not yet encoded.
    Stored(StoredList),
    Object(Value),
    /// Plain text.
    Plain(String),
}

impl Reply {
    pub(crate) fn plain(text: String) -> Self {
        Self {
            code: 200,
            payload: Payload::Plain(text),
        }
    }

    pub(crate) fn text(text: String) -> Self {
        Self {
            code: 200,
            payload: Payload::Text(text),
        }
    }

    pub(crate) fn list(text: String) -> Self {
        Self {
            code: 200,
            payload: Payload::List(text),
        }
    }

    pub(crate) fn stored(list: StoredList) -> Self {
        Self {
            code: 200,
            payload: Payload::Stored(list),
        }
    }

    pub(crate) fn object(object: Value) -> Self {
        Self {
            code: 200,
            payload: Payload::Object(object),
        }
    }

    /// The same with the code 201.
    pub(crate) fn created(mut self) -> Self {
        self.code = 201;
        self
    }

    /// The response as a tree.
    pub(crate) fn into_object(self) -> Outcome<Value> {
        match self.payload {
            Payload::Object(object) => Ok(object),
            Payload::Text(text) | Payload::List(text) => parse(&text),
            Payload::Stored(list) => parse(&list.text()?),
            Payload::Plain(text) => Ok(Value::String(text)),
        }
    }

    /// The response as JSON.
    pub(crate) fn json(&self) -> String {
        match &self.payload {
            Payload::Text(text) | Payload::List(text) | Payload::Plain(text) => text.clone(),
            // A list that cannot be encoded is omitted.
            Payload::Stored(list) => list.text().unwrap_or_default(),
            Payload::Object(object) => object_text(object),
        }
    }

    /// The response as a table, if it is an object or list of a resource.
    pub(crate) fn into_table(mut self, resource: &Resource, tables: Tables) -> Outcome<Self> {
        let (object, is_list) = match self.payload {
            Payload::Object(object) => (object, false),
            Payload::Text(text) => (parse(&text)?, false),
            Payload::List(text) => (parse(&text)?, true),
            Payload::Stored(list) if list.has_rows() => {
                self.payload = Payload::Stored(list.into_table(tables));
                return Ok(self);
            }
            Payload::Stored(list) => (parse(&list.text()?)?, true),
            plain @ Payload::Plain(_) => {
                self.payload = plain;
                return Ok(self);
            }
        };
        let kind = object.get("kind").and_then(Value::as_str);
        self.payload = Payload::Object(if is_list {
            let metadata = list_metadata(&object);
            let items = object.get("items").and_then(Value::as_array);
            tables.render(resource.table_kind(), metadata, items.into_iter().flatten())
        } else if kind == Some(resource.kind()) {
            tables.of_object(resource, &object)
        } else if kind == Some("Scale") && !resource.is_custom() {
            tables.of_kind(table::Kind::Scale, &object)
        } else {
            object
        });
        Ok(self)
    }

    /// The response in the negotiated format.
    pub(crate) fn into_response(self, wanted: Negotiated) -> Outcome<Response> {
        let text = match (self.payload, wanted.view) {
            (Payload::Stored(list), view) => {
                let list = match view {
                    View::Metadata(version) => list.of_metadata(version),
                    View::Object | View::Table(_) => list,
                };
                let as_is = wanted.encoding == Encoding::Json { pretty: false };
                if as_is && list.size() > STREAMED {
                    return Ok(headed(self.code, Body::chunks(list), "application/json"));
                }
                list.text()?
            }
            // Tables have been built before; everything else has no rows.
            (Payload::Text(text) | Payload::List(text), View::Object | View::Table(_)) => text,
            (Payload::Object(object), View::Object | View::Table(_)) => object_text(&object),
            (Payload::Object(object), View::Metadata(version)) => {
                object_text(&partial(&object, version))
            }
            (Payload::Text(text), View::Metadata(version)) => {
                object_text(&partial(&parse(&text)?, version))
            }
            (Payload::List(text), View::Metadata(version)) => {
                object_text(&partial_list(&parse(&text)?, version))
            }
            (Payload::Plain(text), _) => return Ok(plain_text(self.code, text)),
        };
        encoded(self.code, text, wanted.encoding)
    }
}

/// The size from which a list is streamed.
const STREAMED: usize = 256 << 10;

/// The table options of one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    version: &'static str,
    include: Include,
    headers: Headers,
}

impl Tables {
    /// The requested table options; `None` if the client wants objects.
    pub(crate) fn wanted(wanted: Negotiated, query: &Query) -> Outcome<Option<Self>> {
        let View::Table(version) = wanted.view else {
            return Ok(None);
        };
        Ok(Some(Self {
            version,
            include: Include::parse(query.text("includeObject"))
                .map_err(|error| bad_request(error.to_string()))?,
            headers: Headers::Shown,
        }))
    }

    /// The same for further events of a watch, which omit the column definitions.
    pub(crate) fn without_headers(self) -> Self {
        Self {
            headers: Headers::Omitted,
            ..self
        }
    }

    /// The table of one object.
    pub(crate) fn of_object(self, resource: &Resource, object: &Value) -> Value {
        self.of_kind(resource.table_kind(), object)
    }

    fn of_kind(self, kind: table::Kind<'_>, object: &Value) -> Value {
        let version = object.pointer("/metadata/resourceVersion");
        let metadata =
            version.map_or_else(|| json!({}), |version| json!({"resourceVersion": version}));
        self.render(kind, metadata, [object])
    }

    fn render<'v>(
        self,
        kind: table::Kind<'_>,
        metadata: Value,
        objects: impl IntoIterator<Item = &'v Value>,
    ) -> Value {
        table::render(kind, metadata, objects, self.options())
    }

    fn options(self) -> table::Options<'static> {
        table::Options {
            include: self.include,
            headers: self.headers,
            version: self.version,
            now: crate::metadata::now(),
        }
    }
}

/// Parses an encoded response to convert it. Stored bytes are not parsed before.
fn parse(text: &str) -> Outcome<Value> {
    let parsed = encoding::tree(text.as_bytes());
    parsed.ok_or_else(|| internal("the stored object is not valid JSON"))
}

/// The metadata of an object as a PartialObjectMetadata.
pub(crate) fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object.get("metadata"),
    })
}

/// The metadata of a list for its table: only lists of custom resources have an empty continue token.
fn list_metadata(list: &Value) -> Value {
    let mut metadata = list.get("metadata").cloned().unwrap_or_default();
    if let Some(members) = metadata.as_object_mut()
        && members.get("continue").is_some_and(|token| token == "")
    {
        members.remove("continue");
    }
    metadata
}

fn partial_list(list: &Value, version: &str) -> Value {
    let items = list
        .get("items")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let items: Vec<Value> = items.map(|item| partial(item, version)).collect();
    // An empty list is null, as for built-in kinds.
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": list_metadata(list),
        "items": match items.is_empty() {
            true => Value::Null,
            false => items.into(),
        },
    })
}

/// The JSON of an object. Built-in kinds start with their type like Go's structs; custom resources are Go maps, whose
/// keys are sorted.
pub(crate) fn object_text(object: &Value) -> String {
    let told = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (told("apiVersion"), told("kind"));
    let (group, version) = split_api_version(api_version);
    let is_built_in =
        matches!(group, "" | "meta.k8s.io") || type_of(group, version, kind).is_some();
    let Some(members) = object.as_object().filter(|_| is_built_in) else {
        return json::value_to_string(object);
    };
    let mut text = Vec::with_capacity(1024);
    let named = ["kind", "apiVersion"];
    let first = named.iter().filter_map(|name| members.get_key_value(*name));
    let rest = members
        .iter()
        .filter(|(name, _)| !named.contains(&name.as_str()));
    for (index, (name, value)) in first.chain(rest).enumerate() {
        text.push(if index == 0 { b'{' } else { b',' });
        json::append_str(&mut text, name);
        text.push(b':');
        json::append_value(&mut text, value);
    }
    text.push(b'}');
    String::from_utf8(text).unwrap_or_else(|_| json::value_to_string(object))
}

/// Encodes a JSON response in protobuf.
fn to_protobuf(text: &str) -> Outcome<Vec<u8>> {
    protobuf::encode(&parse(text)?).map_err(|error| internal(&error.to_string()))
}

fn encoded(code: u16, text: String, encoding: Encoding) -> Outcome<Response> {
    let (text, media_type) = match encoding {
        Encoding::Protobuf => return Ok(with_type(code, to_protobuf(&text)?, PROTOBUF)),
        Encoding::Json { pretty: false } => (text, "application/json"),
        Encoding::Json { pretty: true } => {
            let pretty = serde_json::to_string_pretty(&parse(&text)?).unwrap_or(text);
            (pretty + "\n", "application/json")
        }
        Encoding::Yaml => (yaml::write(&parse(&text)?), "application/yaml"),
    };
    Ok(with_type(code, text, media_type))
}

/// Wraps encoded JSON, which is valid.
pub(crate) fn written(code: u16, text: String, encoding: Encoding) -> Response {
    encoded(code, text, encoding)
        .unwrap_or_else(|failure| plain_text(500, failure.0.message.clone()))
}

/// A response with any media type.
pub(crate) fn with_type(code: u16, body: impl Into<Bytes>, media_type: &'static str) -> Response {
    headed(code, Body::whole(body), media_type)
}

fn headed(code: u16, body: Body, media_type: &'static str) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// JSON for non-resource paths.
pub(crate) fn document(value: &Value, pretty: bool) -> Response {
    written(200, object_text(value), Encoding::Json { pretty })
}

/// Plain text.
pub(crate) fn plain_text(code: u16, text: impl Into<Bytes>) -> Response {
    with_type(code, text, "text/plain; charset=utf-8")
}

/// 404 for paths that do not exist.
pub(crate) fn page_not_found() -> Response {
    let mut response = plain_text(404, "404 page not found\n");
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// The response to a request over the limit of requests in flight.
///
/// UPSTREAM: apiserver pkg/server/filters/maxinflight.go (tooManyRequests)
pub(crate) fn too_many_requests(retry_after_seconds: u32) -> Response {
    let mut response = plain_text(429, "Too many requests, please try again later.\n");
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_seconds));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// A rejected authorization, as plain text that browsers do not interpret.
///
/// UPSTREAM: apiserver pkg/endpoints/handlers/responsewriters/errors.go (Forbidden)
pub(crate) fn refused(failure: &Failure, encoding: Encoding) -> Response {
    let mut response = failed(failure, encoding);
    if failure.0.code == 403 {
        let nosniff = HeaderValue::from_static("nosniff");
        let headers = response.headers_mut();
        headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

/// An error response.
pub(crate) fn failed(failure: &Failure, encoding: Encoding) -> Response {
    let status = &failure.0;
    let code = u16::try_from(status.code).unwrap_or(500);
    let mut response = written(code, json::to_string(status), encoding);
    let retry = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// Removes the body of a response but keeps its length, for HEAD.
pub(crate) fn drop_body(response: &mut Response) {
    let length = response.body().size_hint().exact();
    if let Some(length) = length {
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = Body::whole(Bytes::new());
}

/// Adds the warnings of a request.
pub(crate) fn add_warnings(response: &mut Response, notes: &Recorded) {
    for text in notes.warnings.headers() {
        if let Ok(value) =
            HeaderValue::from_str(&text).or_else(|_| HeaderValue::from_bytes(text.as_bytes()))
        {
            response.headers_mut().append(WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_metadata_alone() {
        let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "3"}, "items": [{"metadata": {"name": "a"}, "spec": {}}]});
        assert_eq!(
            partial_list(&list, "v1"),
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": "3"},
                "items": [{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}],
            })
        );
    }
}
