//! OpenID discovery: the issuer of ServiceAccount tokens, and their public keys.
//!
//! UPSTREAM: kubernetes pkg/serviceaccount/openidmetadata.go, pkg/routes/openidmetadata.go

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue};
use lockgate_go::json;
use lockgate_go::url::Url;
use serde::Serialize;

use crate::authn::keys::{Jwk, VerifyingKey};
use crate::authn::service_account::Signer;
use crate::error::{no_such_resource, unrouted_accept};
use crate::http::body::Response;
use crate::http::negotiate::Negotiated;
use crate::respond::{failed, with_type};

/// The path of the configuration.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// The path of the key set.
pub(crate) const KEYS: &str = "/openid/v1/jwks";

const JSON: &str = "application/json";
/// The media type of a key set (RFC 7517).
const KEY_SET: &str = "application/jwk-set+json";
/// The cache lifetime of the documents: keys change only on restart.
const MAX_AGE: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// The OpenID provider metadata that relying parties need to verify tokens.
#[derive(Serialize)]
struct Metadata<'a> {
    issuer: &'a str,
    jwks_uri: &'a str,
    response_types_supported: [&'static str; 1],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: Vec<&'static str>,
}

#[derive(Serialize)]
struct KeySet {
    keys: Vec<Jwk>,
}

/// The reason that there are no documents.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undiscoverable {
    #[error("empty issuer URL")]
    NoIssuer,
    #[error("{0}")]
    Issuer(String),
    #[error("issuer URL must use https scheme, got: {0}")]
    Scheme(String),
    #[error("issuer URL may not include a query, got: {0}")]
    Query(String),
    #[error("issuer URL may not include a fragment, got: {0}")]
    Fragment(String),
}

/// The encoded documents.
#[derive(Debug)]
pub(crate) struct Discovery {
    configuration: Bytes,
    keys: Bytes,
}

impl Discovery {
    /// Creates the documents of an issuer, unless tokens cannot be verified through its URL. The default JWKS URI is
    /// this server's, at an external address.
    pub(crate) fn new(
        signer: &Signer,
        jwks_uri: Option<&str>,
        external: &str,
    ) -> Result<Self, Undiscoverable> {
        let issuer = signer.issuer();
        check_issuer(issuer)?;
        let own = format!("https://{external}{KEYS}");
        let keys: Vec<Jwk> = signer.keys().iter().filter_map(VerifyingKey::jwk).collect();
        let mut algorithms: Vec<&str> = keys.iter().map(Jwk::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let metadata = Metadata {
            issuer,
            jwks_uri: jwks_uri.unwrap_or(&own),
            response_types_supported: ["id_token"],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: algorithms,
        };
        Ok(Self {
            configuration: json::to_string(&metadata).into(),
            keys: json::to_string(&KeySet { keys }).into(),
        })
    }

    /// Serves a path. Returns `None` for other paths.
    pub(crate) fn serve(&self, segments: &[&str], headers: &HeaderMap) -> Option<Response> {
        let (rest, text, media_type) = match segments {
            [".well-known", "openid-configuration", rest @ ..] => (rest, &self.configuration, JSON),
            ["openid", "v1", "jwks", rest @ ..] => (rest, &self.keys, KEY_SET),
            _ => return None,
        };
        if !rest.is_empty() {
            return Some(failed(&no_such_resource(), Negotiated::PLAIN.encoding));
        }
        if !accepts(headers, media_type) {
            let refused = unrouted_accept(media_type);
            return Some(failed(&refused, Negotiated::PLAIN.encoding));
        }
        let mut response = with_type(200, text.clone(), media_type);
        response.headers_mut().insert(CACHE_CONTROL, MAX_AGE);
        Some(response)
    }
}

/// Returns true if a client accepts this exact media type, or any.
///
/// UPSTREAM: go-restful route.go (matchesAccept)
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let told = headers.get(ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    let mut clauses = told.split(|&byte| byte == b',').map(|clause| {
        let name = clause.split(|&byte| byte == b';').next();
        name.unwrap_or_default().trim_ascii()
    });
    told.is_empty() || clauses.any(|name| name == b"*/*" || name == media_type.as_bytes())
}

fn check_issuer(issuer: &str) -> Result<(), Undiscoverable> {
    if issuer.is_empty() {
        return Err(Undiscoverable::NoIssuer);
    }
    let url = Url::parse(issuer).map_err(|error| Undiscoverable::Issuer(error.to_string()))?;
    let issuer = || issuer.to_owned();
    if url.scheme() != "https" {
        return Err(Undiscoverable::Scheme(issuer()));
    }
    if !url.raw_query().is_empty() {
        return Err(Undiscoverable::Query(issuer()));
    }
    if !url.fragment().is_empty() {
        return Err(Undiscoverable::Fragment(issuer()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::authn::keys::{SigningKey, verifying_keys};

    fn discovery(issuer: &str, jwks_uri: Option<&str>) -> Result<Discovery, Undiscoverable> {
        let key = SigningKey::from_pem(include_str!("../../tests/keys/sec1.key")).unwrap();
        let mut keys = vec![key.verifying().clone()];
        keys.extend(verifying_keys(include_str!("../../tests/keys/rsa.pub")));
        keys.extend(verifying_keys(include_str!("../../tests/keys/p384.pub")));
        let signer = Signer::new(key, keys, vec![issuer.to_owned()], Vec::new());
        Discovery::new(&signer, jwks_uri, "[::1]:6443")
    }

    fn told(headers: &[&'static str], segments: &[&str]) -> Option<u16> {
        let accept = headers.iter().map(|text| HeaderValue::from_static(text));
        let headers: HeaderMap = accept.map(|value| (ACCEPT, value)).collect();
        let discovery = discovery("https://issuer", None).unwrap();
        let served = discovery.serve(segments, &headers);
        served.map(|response| response.status().as_u16())
    }

    #[test]
    fn names_issuer_keys_and_algorithms() {
        let found = discovery("https://issuer/<a>", None).unwrap();
        let text = String::from_utf8(found.configuration.to_vec()).unwrap();
        assert_eq!(
            text,
            r#"{"issuer":"https://issuer/\u003ca\u003e","jwks_uri":"https://[::1]:6443/openid/v1/jwks","#
                .to_owned()
                + r#""response_types_supported":["id_token"],"subject_types_supported":["public"],"#
                + r#""id_token_signing_alg_values_supported":["ES256","ES384","RS256"]}"#
        );
        let keys: Value = serde_json::from_slice(&found.keys).unwrap();
        assert_eq!(keys["keys"].as_array().unwrap().len(), 3);
        let named = discovery("https://issuer", Some("https://keys/set")).unwrap();
        let named: Value = serde_json::from_slice(&named.configuration).unwrap();
        assert_eq!(named["jwks_uri"], json!("https://keys/set"));
    }

    #[test]
    fn has_no_documents_of_issuers_that_are_no_https_urls() {
        for (issuer, want) in [
            ("", "empty issuer URL"),
            (
                "kubernetes/serviceaccount",
                "issuer URL must use https scheme, got: kubernetes/serviceaccount",
            ),
            (
                "http://issuer",
                "issuer URL must use https scheme, got: http://issuer",
            ),
            (
                "https://issuer?a",
                "issuer URL may not include a query, got: https://issuer?a",
            ),
            (
                "https://issuer#a",
                "issuer URL may not include a fragment, got: https://issuer#a",
            ),
            (
                "https://a b",
                "parse \"https://a b\": invalid character \" \" in host name",
            ),
        ] {
            let error = discovery(issuer, None).unwrap_err();
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn gives_what_a_client_takes() {
        let keys = ["openid", "v1", "jwks"];
        let configuration = [".well-known", "openid-configuration"];
        assert_eq!(told(&[], &keys), Some(200));
        assert_eq!(told(&["*/*"], &configuration), Some(200));
        assert_eq!(
            told(&["text/html, application/json;q=0.1"], &keys),
            Some(406)
        );
        assert_eq!(
            told(&["text/html, application/json;q=0.1"], &configuration),
            Some(200)
        );
        assert_eq!(told(&["application/jwk-set+json"], &keys), Some(200));
        assert_eq!(told(&["application/*"], &configuration), Some(406));
        assert_eq!(told(&[], &["openid", "v1", "jwks", "a"]), Some(404));
        assert_eq!(told(&[], &["openid", "v1"]), None);
    }
}
