//! Proxies one request to the server of an APIService.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, StatusCode, Uri, Version};
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use lockgate_api::admission::UserInfo;
use lockgate_go::quote::quote;

use super::{Aggregator, Remote};
use crate::config::RequestHeaders;
use crate::http::body::{Body, Response};

/// Hop-by-hop headers, which are not forwarded.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The timeout for the response head of a long-running request.
const RESPONSE_HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// An authorized request.
#[derive(Debug)]
pub(crate) struct Forward<'r> {
    pub(crate) method: &'r Method,
    pub(crate) uri: &'r Uri,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) user: &'r UserInfo,
    pub(crate) peer: SocketAddr,
    pub(crate) body: Bytes,
    /// The client's side of the connection, if it may be upgraded.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// The deadline for the response head; `None` for long-running requests.
    pub(crate) deadline: Option<std::time::Instant>,
}

/// The reason that a request was not sent.
#[derive(Debug, thiserror::Error)]
enum ForwardError {
    #[error("the path or a header of the request cannot be forwarded")]
    Request,
    #[error("the user's name, a group or an extra value cannot be sent in a header")]
    User,
}

/// Proxies a request and its response.
///
/// UPSTREAM: kube-aggregator pkg/apiserver/handler_proxy.go (ServeHTTP)
pub(crate) async fn forward(
    aggregator: &Aggregator,
    remote: &Remote,
    mut request: Forward<'_>,
) -> Response {
    if !remote.is_available {
        return unavailable("service unavailable");
    }
    let backend = match &remote.backend {
        Ok(backend) => backend,
        Err(error) => return plain(StatusCode::INTERNAL_SERVER_ERROR, error),
    };
    let service = &remote.service;
    let resolver = &aggregator.resolver;
    let address = match resolver.resolve(&service.namespace, &service.name, service.port) {
        Ok(address) => address,
        Err(error) => {
            tracing::debug!(%error, api_service = remote.name, "service not resolved");
            return unavailable("service unavailable");
        }
    };
    let protocol = upgrade_protocol(request.headers).filter(|_| request.upgrade.is_some());
    let outgoing = match outgoing(&request, &aggregator.headers, &address, protocol.as_ref()) {
        Ok(outgoing) => outgoing,
        Err(error) => return plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let first_byte_deadline = tokio::time::Instant::now() + RESPONSE_HEADER_TIMEOUT;
    let deadline = request.deadline.map_or(first_byte_deadline, Into::into);
    if let (Some(_), Some(client)) = (&protocol, request.upgrade.take()) {
        let answering = backend.send_upgrade(&address, outgoing);
        return match tokio::time::timeout_at(deadline, answering).await {
            Ok(Ok(response)) => upgraded(aggregator, client, response),
            Ok(Err(error)) => unavailable(&error.to_string()),
            Err(_) => timed_out(),
        };
    }
    match tokio::time::timeout_at(deadline, backend.send(&address, outgoing)).await {
        Ok(Ok((response, lease))) => {
            if let Some(refused) = refused(&response) {
                return refused;
            }
            let (mut head, body) = response.into_parts();
            sanitize_response(&mut head.headers);
            head.version = Version::default();
            http::Response::from_parts(head, Body::forwarded(body, Some(Box::new(lease))))
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, api_service = remote.name, "aggregated API server failed");
            unavailable(&error.to_string())
        }
        Err(_) => timed_out(),
    }
}

/// The response in place of a redirect, which would send the client elsewhere with its credentials, or of an
/// unrequested protocol upgrade.
///
/// UPSTREAM: apimachinery pkg/util/proxy/upgradeaware.go (RejectForwardingRedirects, CVE-2022-3172), Go's
/// net/http/httputil/reverseproxy.go (handleUpgradeResponse)
fn refused<B>(response: &http::Response<B>) -> Option<Response> {
    let headers = response.headers();
    let status = response.status();
    if status.is_redirection() && headers.get(LOCATION).is_some_and(|it| !it.is_empty()) {
        let text = "the backend attempted to redirect this request, which is not permitted";
        return Some(plain(StatusCode::BAD_GATEWAY, text));
    }
    (status == StatusCode::SWITCHING_PROTOCOLS).then(|| {
        let protocol = headers.get(UPGRADE).and_then(|it| it.to_str().ok());
        let protocol = quote(protocol.unwrap_or_default());
        unavailable(&format!(
            "backend tried to switch protocol {protocol} when \"\" was requested"
        ))
    })
}

/// Replaces hop-by-hop headers with those of this connection, and prevents intermediaries from caching a user's
/// response.
///
/// UPSTREAM: apiserver pkg/endpoints/filters/cachecontrol.go
fn sanitize_response(headers: &mut HeaderMap) {
    // A Content-Length together with chunked encoding would be ambiguous.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    drop_hop_by_hop(headers);
    let private = HeaderValue::from_static("no-cache, private");
    if !headers
        .get_all(CACHE_CONTROL)
        .iter()
        .any(|it| it == private)
    {
        headers.append(CACHE_CONTROL, private);
    }
}

/// A plain-text response, in the format of Go's `http.Error`.
fn plain(code: StatusCode, text: &str) -> Response {
    let mut response = http::Response::new(Body::whole(format!("{text}\n")));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(http::header::CONTENT_TYPE, kind);
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

fn unavailable(text: &str) -> Response {
    plain(StatusCode::SERVICE_UNAVAILABLE, text)
}

fn timed_out() -> Response {
    plain(
        StatusCode::GATEWAY_TIMEOUT,
        "the aggregated server did not answer in time",
    )
}

/// The requested upgrade protocol.
///
/// UPSTREAM: apimachinery pkg/util/httpstream/httpstream.go (IsUpgradeRequest)
fn upgrade_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut connection = headers.get_all(CONNECTION).into_iter();
    let asks = connection.any(|value| {
        let text = value.to_str().unwrap_or_default();
        text.to_ascii_lowercase().contains("upgrade")
    });
    headers.get(UPGRADE).filter(|_| asks).cloned()
}

/// Creates the request for the backend. The client's own identity headers are not forwarded.
fn outgoing(
    request: &Forward<'_>,
    names: &RequestHeaders,
    address: &str,
    protocol: Option<&HeaderValue>,
) -> Result<Request<Full<Bytes>>, ForwardError> {
    let mut headers = request.headers.clone();
    drop_hop_by_hop(&mut headers);
    headers.remove(HOST);
    headers.remove(http::header::AUTHORIZATION);
    headers.remove(CONTENT_LENGTH);
    let identity: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_identity(name.as_str(), names))
        .cloned()
        .collect();
    for name in identity {
        headers.remove(name);
    }
    identify(&mut headers, request.user)?;
    let peer = request.peer.ip().to_string();
    let before = headers.get("x-forwarded-for");
    let before = before.and_then(|value| value.to_str().ok());
    let through = before.map_or_else(|| peer.clone(), |before| format!("{before}, {peer}"));
    let through = HeaderValue::from_str(&through).map_err(|_| ForwardError::Request)?;
    headers.insert("x-forwarded-for", through);
    let path = request.uri.path_and_query().ok_or(ForwardError::Request)?;
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| ForwardError::Request);
    // UPSTREAM: apimachinery pkg/util/proxy/transport.go (RoundTrip)
    headers.insert("x-forwarded-host", value(address)?);
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    headers.insert("x-forwarded-uri", value(path.path())?);
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    headers.insert(HOST, value(address)?);
    let mut outgoing = Request::new(Full::new(request.body.clone()));
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = path.clone().into();
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}

/// Identity headers: of proxies in front of this server, of this server, and of impersonation, which has been
/// applied.
fn is_identity(name: &str, names: &RequestHeaders) -> bool {
    let is = |known: &String| known.eq_ignore_ascii_case(name);
    let starts = |prefix: &str| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    starts("x-remote-")
        || starts("impersonate-")
        || names.username.iter().any(is)
        || names.uid.iter().any(is)
        || names.group.iter().any(is)
        || names.extra_prefix.iter().any(|prefix| starts(prefix))
}

/// Sets the identity headers for the aggregated server.
///
/// UPSTREAM: client-go transport/round_trippers.go (SetAuthProxyHeaders)
fn identify(headers: &mut HeaderMap, user: &UserInfo) -> Result<(), ForwardError> {
    let value =
        |text: &str| HeaderValue::from_bytes(text.as_bytes()).map_err(|_| ForwardError::User);
    headers.insert("x-remote-user", value(&user.username)?);
    if !user.uid.is_empty() {
        headers.insert("x-remote-uid", value(&user.uid)?);
    }
    for group in user.groups.iter().flatten() {
        headers.append("x-remote-group", value(group)?);
    }
    for (key, values) in user.extra.iter().flatten() {
        let name = format!("x-remote-extra-{}", escape_key(key));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| ForwardError::User)?;
        for one in values {
            headers.append(name.clone(), value(one)?);
        }
    }
    Ok(())
}

/// Escapes a key for a header name.
///
/// UPSTREAM: client-go transport/round_trippers.go (headerKeyEscape)
fn escape_key(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        let is_token = byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
        match is_token {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Joins both sides of an upgraded connection, or returns the error.
fn upgraded(
    aggregator: &Aggregator,
    client: OnUpgrade,
    response: http::Response<hyper::body::Incoming>,
) -> Response {
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        // UPSTREAM: apimachinery pkg/util/proxy/upgradeaware.go (tryUpgrade): only errors are returned to the client.
        if status.as_u16() < 400 {
            let code = status.as_u16();
            return unavailable(&format!("invalid upgrade response: status code {code}"));
        }
        let (mut head, body) = response.into_parts();
        sanitize_response(&mut head.headers);
        return http::Response::from_parts(head, Body::forwarded(body, None));
    }
    let Ok(permit) = Arc::clone(&aggregator.tunnels).try_acquire_owned() else {
        return plain(
            StatusCode::TOO_MANY_REQUESTS,
            "too many upgraded connections",
        );
    };
    let mut answer = http::Response::new(Body::whole(Bytes::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in response.headers() {
        let is_hop = HOP_BY_HOP.contains(&name.as_str());
        if !is_hop || name == CONNECTION || name == UPGRADE {
            answer.headers_mut().append(name.clone(), value.clone());
        }
    }
    tokio::spawn(async move {
        let _permit = permit;
        let server = hyper::upgrade::on(response);
        let (Ok(client), Ok(server)) = tokio::join!(client, server) else {
            return;
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        // If one side closes the connection, both are closed.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    });
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(headers: &[(&str, &str)], user: &UserInfo) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let names = RequestHeaders {
            username: vec![String::from("X-Proxied-User")],
            ..RequestHeaders::default()
        };
        let uri = "/apis/g/v/x?a=b%20c".parse().unwrap();
        let forward = Forward {
            method: &Method::GET,
            uri: &uri,
            headers: &map,
            user,
            peer: ([192, 0, 2, 1], 7).into(),
            body: Bytes::new(),
            upgrade: None,
            deadline: None,
        };
        let request = outgoing(&forward, &names, "10.0.0.1:443", None).unwrap();
        assert_eq!(request.uri(), "/apis/g/v/x?a=b%20c");
        request.headers().clone()
    }

    #[test]
    fn nothing_that_a_client_says_of_its_user_gets_through() {
        let user = UserInfo {
            username: String::from("ann"),
            uid: String::from("u1"),
            groups: Some(vec![String::from("dev"), String::from("ops")]),
            extra: Some(
                [(
                    String::from("example.com/Scopes%"),
                    vec![String::from("a"), String::from("b")],
                )]
                .into(),
            ),
        };
        let headers = sent(
            &[
                ("X-Remote-User", "admin"),
                ("x-remote-group", "system:masters"),
                ("X-Remote-Extra-Scopes", "all"),
                ("X-Remote-Uid", "0"),
                ("X-Remote-Whatever", "x"),
                ("X-Proxied-User", "admin"),
                ("Impersonate-User", "admin"),
                ("Authorization", "Bearer secret"),
                ("Connection", "keep-alive, X-Hop"),
                ("X-Hop", "1"),
                ("Transfer-Encoding", "chunked"),
                ("Proxy-Authorization", "Basic x"),
                ("X-Forwarded-For", "198.51.100.1"),
                ("X-Forwarded-Host", "mallory.example"),
                ("X-Forwarded-Proto", "http"),
                ("X-Forwarded-Uri", "/elsewhere"),
                ("Accept", "application/json"),
            ],
            &user,
        );
        let mut shown: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        shown.sort();
        let wanted = [
            ("accept", "application/json"),
            ("host", "10.0.0.1:443"),
            ("x-forwarded-for", "198.51.100.1, 192.0.2.1"),
            ("x-forwarded-host", "10.0.0.1:443"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-uri", "/apis/g/v/x"),
            ("x-remote-extra-example.com%2fscopes%25", "a"),
            ("x-remote-extra-example.com%2fscopes%25", "b"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "ops"),
            ("x-remote-uid", "u1"),
            ("x-remote-user", "ann"),
        ];
        let shown: Vec<(&str, &str)> = shown
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_length_beside_chunks_is_not_passed_on_and_nothing_is_kept_on_the_way() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("2"));
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        sanitize_response(&mut headers);
        assert!(!headers.contains_key(CONTENT_LENGTH), "{headers:?}");
        assert!(!headers.contains_key(TRANSFER_ENCODING), "{headers:?}");
        let caching: Vec<_> = headers.get_all(CACHE_CONTROL).iter().collect();
        assert_eq!(caching, ["public", "no-cache, private"]);
        sanitize_response(&mut headers);
        assert_eq!(headers.get_all(CACHE_CONTROL).iter().count(), 2);
    }

    #[test]
    fn a_user_that_no_header_can_name_is_not_sent_on() {
        let user = UserInfo {
            username: String::from("ann\r\nX-Remote-Group: system:masters"),
            ..UserInfo::default()
        };
        assert!(identify(&mut HeaderMap::new(), &user).is_err());
    }
}
