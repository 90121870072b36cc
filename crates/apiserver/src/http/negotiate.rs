//! Content negotiation: `Content-Type` and `Accept`.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/negotiation/negotiate.go

use std::borrow::Cow;

use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use lockgate_go::mime;

use crate::error::{
    Failure, Outcome, not_acceptable, unrouted_media_type, unrouted_representation,
    unsupported_media_type,
};
use crate::http::query::Query;

/// The media types of built-in kinds.
pub(crate) const ACCEPTED: [&str; 3] = [JSON, YAML, PROTOBUF];
/// The media types of custom resources.
pub(crate) const ACCEPTED_CUSTOM: [&str; 2] = [JSON, YAML];

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The encoding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json { pretty: bool },
    Yaml,
    Protobuf,
}

/// The part of an object that a response shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// The entire object.
    Object,
    /// Its metadata, in this version of `meta.k8s.io`.
    Metadata(&'static str),
    /// A row of a table, in this version of `meta.k8s.io`.
    Table(&'static str),
}

/// The response that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) encoding: Encoding,
    pub(crate) view: View,
}

impl Negotiated {
    /// The response without an `Accept` header.
    pub(crate) const PLAIN: Self = Self {
        encoding: Encoding::Json { pretty: false },
        view: View::Object,
    };

    /// Returns true if a response can be streamed.
    pub(crate) fn is_compact(self) -> bool {
        self.encoding == Self::PLAIN.encoding
    }
}

/// The media types and views of an endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) accepted: &'static [&'static str],
    /// False for write-only resources, which have no tables either.
    pub(crate) tables: bool,
}

/// Parses the `Accept` header. The first supported media type is used.
pub(crate) fn negotiate(headers: &HeaderMap, query: &Query, offer: Offer) -> Outcome<Negotiated> {
    let text = text(headers, &ACCEPT);
    let text = if text.is_empty() { "*/*" } else { &*text };
    let pretty = is_pretty(headers, query);
    let mut best: Option<(u32, Negotiated)> = None;
    for clause in text.split(',').map(Clause::read) {
        // Of equal weights the first is used.
        if best.is_none_or(|(weight, _)| clause.weight > weight)
            && let Some(wanted) = clause.satisfy(pretty, offer)
        {
            best = Some((clause.weight, wanted));
        }
    }
    let wanted = best.map(|(_, wanted)| wanted);
    wanted.ok_or_else(|| not_acceptable(offer.accepted))
}

/// Parses the `Accept` header for an error response, which has no other view. JSON if no media type is supported.
///
/// UPSTREAM: apiserver pkg/endpoints/handlers/responsewriters/writers.go (ErrorNegotiated)
pub(crate) fn of_failure(headers: &HeaderMap, query: &Query) -> Encoding {
    let text = text(headers, &ACCEPT);
    let text = if text.is_empty() { "*/*" } else { &*text };
    let offer = Offer {
        accepted: &ACCEPTED,
        tables: false,
    };
    let pretty = is_pretty(headers, query);
    let mut best: Option<(u32, Encoding)> = None;
    let clauses = text.split(',').map(Clause::read);
    for clause in clauses.filter(|clause| clause.view.is_empty()) {
        if best.is_none_or(|(weight, _)| clause.weight > weight)
            && let Some(wanted) = clause.satisfy(pretty, offer)
        {
            best = Some((clause.weight, wanted.encoding));
        }
    }
    best.map_or(Negotiated::PLAIN.encoding, |(_, encoding)| encoding)
}

/// Checks the `Accept` header as the routes of built-in resources do: it must contain one of the route's media types or
/// `*/*`. Ranges such as `application/*` do not match.
///
/// UPSTREAM: go-restful route.go (matchesAccept), apiserver pkg/endpoints/installer.go
pub(crate) fn check_route(headers: &HeaderMap, is_list: bool) -> Outcome<()> {
    const STREAMS: [&str; 5] = [
        JSON,
        YAML,
        PROTOBUF,
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf;stream=watch",
    ];
    let text = text(headers, &ACCEPT);
    let mut types = text.split(',').map(|clause| {
        let media_type = clause.split(';').next();
        media_type.unwrap_or_default().trim_matches([' ', '\t'])
    });
    let is_acceptable = |media_type: &str| media_type == "*/*" || ACCEPTED.contains(&media_type);
    if text.is_empty() || types.any(is_acceptable) {
        return Ok(());
    }
    Err(unrouted_representation(match is_list {
        true => &STREAMS,
        false => &ACCEPTED,
    }))
}

/// The format of a debugging page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    Text,
    /// An object, in this version of its group.
    Object {
        version: &'static str,
        encoding: Encoding,
    },
}

/// Parses the `Accept` header for a page: text, or an object of a kind in two versions. Objects have to be requested
/// by group, version and kind.
///
/// UPSTREAM: apiserver pkg/server/statusz/statusz.go
pub(crate) fn page(headers: &HeaderMap, query: &Query, group: &str, kind: &str) -> Outcome<Page> {
    const TEXT: &str = "text/plain";
    let text = text(headers, &ACCEPT);
    if text.trim().is_empty() {
        return Ok(Page::Text);
    }
    let pretty = is_pretty(headers, query);
    let mut best: Option<(u32, Page)> = None;
    for clause in text.split(',').map(Clause::read) {
        let version = ["v1beta1", "v1alpha1"]
            .into_iter()
            .find(|version| clause.version == *version && clause.group == group);
        let object = |encoding| {
            let version = version.filter(|_| clause.view == kind)?;
            Some(Page::Object { version, encoding })
        };
        let asks_for_none = [clause.view, clause.group, clause.version] == [""; 3];
        let any = asks_for_none.then_some(Page::Text);
        let found = match clause.media_type {
            JSON | "application/*" => object(Encoding::Json { pretty }),
            YAML => object(Encoding::Yaml),
            TEXT | "text/*" => any,
            "*/*" => object(Encoding::Json { pretty }).or(any),
            _ => None,
        };
        if let Some(found) = found
            && best.is_none_or(|(weight, _)| clause.weight > weight)
        {
            best = Some((clause.weight, found));
        }
    }
    let found = best.map(|(_, page)| page);
    found.ok_or_else(|| not_acceptable(&[JSON, YAML, TEXT]))
}

fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(pretty) = query.flag("pretty") {
        return pretty;
    }
    let agent = text(headers, &USER_AGENT);
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|browser| agent.starts_with(browser))
}

/// The first header of a name, which is the effective one. An invalid string matches no known value, and is not treated
/// as absent.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Cow<'h, str> {
    let bytes = headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    String::from_utf8_lossy(bytes)
}

/// One alternative of an `Accept` header.
struct Clause<'t> {
    media_type: &'t str,
    weight: u32,
    view: &'t str,
    group: &'t str,
    version: &'t str,
}

impl<'t> Clause<'t> {
    fn read(text: &'t str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Self {
            media_type: parts.next().unwrap_or_default(),
            weight: 1000,
            view: "",
            group: "",
            version: "",
        };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key.trim() {
                "q" => {
                    let weight = value.trim().parse::<f32>().unwrap_or(1.0).clamp(0.0, 1.0);
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "between 0 and 1000"
                    )]
                    let weight = (weight * 1000.0) as u32;
                    clause.weight = weight;
                }
                "as" => clause.view = value,
                "g" => clause.group = value,
                "v" => clause.version = value,
                _ => {}
            }
        }
        clause
    }

    fn satisfy(&self, pretty: bool, offer: Offer) -> Option<Negotiated> {
        let encoding = match self.media_type {
            JSON | "*/*" | "application/*" => Encoding::Json { pretty },
            YAML => Encoding::Yaml,
            PROTOBUF => Encoding::Protobuf,
            _ => return None,
        };
        let is_protobuf = encoding == Encoding::Protobuf;
        let known = self.group == "meta.k8s.io";
        let view = match (self.view, self.version) {
            // Metadata is encodable for any object.
            ("", _) if is_protobuf && !offer.accepted.contains(&PROTOBUF) => return None,
            ("", _) => View::Object,
            ("Table", _) if is_protobuf || !offer.tables => return None,
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1") if known => {
                View::Metadata("v1")
            }
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1beta1") if known => {
                View::Metadata("v1beta1")
            }
            ("Table", "v1") if known => View::Table("v1"),
            ("Table", "v1beta1") if known => View::Table("v1beta1"),
            _ => return None,
        };
        Some(Negotiated { encoding, view })
    }
}

/// The media type of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    Json,
    Yaml,
    Protobuf,
}

/// Parses the `Content-Type` of a write. JSON if absent.
pub(crate) fn body_encoding(headers: &HeaderMap, accepted: &[&str]) -> Outcome<BodyEncoding> {
    match media_type(headers).as_deref() {
        None | Some(JSON) => Ok(BodyEncoding::Json),
        Some(YAML) => Ok(BodyEncoding::Yaml),
        Some(PROTOBUF) if accepted.contains(&PROTOBUF) => Ok(BodyEncoding::Protobuf),
        Some(_) => Err(unsupported_media_type(accepted)),
    }
}

/// The media type of a body without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let text = text(headers, &CONTENT_TYPE);
    if text.is_empty() {
        return None;
    }
    Some(mime::parse_media_type(&text).unwrap_or_else(|_| text.into_owned()))
}

/// The patch types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

const PATCHES: [(&str, PatchType); 4] = [
    ("application/json-patch+json", PatchType::Json),
    ("application/merge-patch+json", PatchType::Merge),
    (
        "application/strategic-merge-patch+json",
        PatchType::Strategic,
    ),
    ("application/apply-patch+yaml", PatchType::Apply),
];

/// Parses the `Content-Type` of a patch. Custom resources do not support strategic merge patches.
pub(crate) fn patch_type(headers: &HeaderMap, is_custom: bool) -> Outcome<PatchType> {
    let allowed = || {
        PATCHES
            .into_iter()
            .filter(move |(_, kind)| !is_custom || *kind != PatchType::Strategic)
    };
    let unsupported = || -> Failure {
        unsupported_media_type(&allowed().map(|(name, _)| name).collect::<Vec<_>>())
    };
    // Parameters are cut off, not parsed. UPSTREAM: apiserver pkg/endpoints/handlers/patch.go
    let text = text(headers, &CONTENT_TYPE);
    let name = text.split(';').next().unwrap_or_default();
    let is_routed = |name: &str| allowed().any(|(known, _)| known == name);
    if !is_custom && !is_routed(name.trim()) {
        return Err(unrouted_media_type());
    }
    allowed()
        .find(|(known, _)| *known == name)
        .map(|(_, kind)| kind)
        .ok_or_else(unsupported)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const OFFER: Offer = Offer {
        accepted: &ACCEPTED,
        tables: true,
    };

    fn accept(text: &str) -> Outcome<Negotiated> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(text).unwrap());
        negotiate(&headers, &Query::default(), OFFER)
    }

    #[test]
    fn gives_the_first_form_it_can() {
        let json = Encoding::Json { pretty: false };
        for (text, want) in [
            ("application/json", (json, View::Object)),
            ("*/*", (json, View::Object)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                (Encoding::Protobuf, View::Object),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                (Encoding::Protobuf, View::Metadata("v1")),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
                (json, View::Object),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                (json, View::Table("v1")),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                (json, View::Table("v1beta1")),
            ),
            (
                "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
                (json, View::Object),
            ),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                (json, View::Metadata("v1")),
            ),
            ("application/yaml", (Encoding::Yaml, View::Object)),
            (
                "application/json;q=0.5, application/yaml",
                (Encoding::Yaml, View::Object),
            ),
        ] {
            let got = accept(text).unwrap();
            assert_eq!((got.encoding, got.view), want, "{text}");
        }
    }

    #[test]
    fn says_what_it_could_give() {
        let failure = accept("application/cbor").unwrap_err();
        assert_eq!(failure.0.code, 406);
        assert_eq!(
            failure.0.message,
            "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf"
        );
    }

    #[test]
    fn takes_nothing_that_is_there_for_absent() {
        let headers = |name: HeaderName| {
            let value = HeaderValue::from_bytes(b"application/json\xff").unwrap();
            HeaderMap::from_iter([(name, value)])
        };
        let refused = body_encoding(&headers(CONTENT_TYPE), &ACCEPTED).unwrap_err();
        assert_eq!(refused.0.code, 415);
        let query = Query::default();
        let refused = negotiate(&headers(ACCEPT), &query, OFFER).unwrap_err();
        assert_eq!(refused.0.code, 406);
        assert!(patch_type(&headers(CONTENT_TYPE), false).is_err());
    }

    #[test]
    fn prints_nicely_for_people() {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("curl/8.0"));
        let of = |query: &str| {
            negotiate(&headers, &Query::parse(query), OFFER)
                .unwrap()
                .encoding
        };
        assert_eq!(of(""), Encoding::Json { pretty: true });
        assert_eq!(of("pretty=false"), Encoding::Json { pretty: false });
    }

    #[test]
    fn tells_patches_apart() {
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/strategic-merge-patch+json; charset=utf-8"),
        );
        assert_eq!(patch_type(&headers, false).unwrap(), PatchType::Strategic);
        let failure = patch_type(&headers, true).unwrap_err();
        assert_eq!(
            failure.0.message,
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        );
    }
}
