//! The target of a webhook call: URL, path and server name.

use std::net::IpAddr;

use lockgate_api::registration::hub::ClientConfig;
use lockgate_go::quote::quote;
use lockgate_go::url::{Url, UrlError};

use crate::call::ClientError;

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) scheme: Scheme,
    /// The scheme, if not supported.
    unsupported: Option<String>,
    /// Host and port as in the URL.
    pub(super) authority: String,
    /// The cleaned and escaped path.
    pub(super) path: String,
    /// The Service, if it is one.
    pub(super) service: Option<Service>,
}

/// A Service by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) port: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl Target {
    /// Creates the target of a client configuration; a service takes precedence over a URL.
    ///
    /// UPSTREAM: k8s.io/apiserver pkg/util/webhook/client.go (hookClientConfig).
    pub(super) fn of(config: &ClientConfig) -> Result<Self, ClientError> {
        if let Some(service) = &config.service {
            let port = service.port.filter(|port| *port != 0).unwrap_or(443);
            return Ok(Self {
                scheme: Scheme::Https,
                unsupported: None,
                authority: format!("{}.{}.svc:{port}", service.name, service.namespace),
                path: clean_path(service.path.as_deref().unwrap_or_default().as_bytes()),
                service: Some(Service {
                    namespace: service.namespace.clone(),
                    name: service.name.clone(),
                    port,
                }),
            });
        }
        let text = config.url.as_deref().unwrap_or_default();
        if text.is_empty() {
            return Err(ClientError::NoAddress);
        }
        let (target, scheme) =
            Self::read(text).map_err(|error| ClientError::UnparsableUrl(error.to_string()))?;
        if target.authority.is_empty() {
            // UPSTREAM: k8s.io/client-go rest/url_utils.go (DefaultServerURL).
            return Err(ClientError::NoHost(scheme));
        }
        Ok(target)
    }

    /// Parses a URL, ignoring its query and fragment. Returns its scheme too.
    fn read(text: &str) -> Result<(Self, String), UrlError> {
        let url = Url::parse(text)?;
        let (scheme, unsupported) = match url.scheme() {
            "https" => (Scheme::Https, None),
            "http" => (Scheme::Http, None),
            other => (Scheme::Https, Some(other.to_owned())),
        };
        let text = text.split(['?', '#']).next().unwrap_or_default();
        let path = text
            .split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]))
            .unwrap_or_default();
        let target = Self {
            scheme,
            unsupported,
            authority: url.host(),
            path: clean_path(&unescape(path)),
            service: None,
        };
        Ok((target, url.scheme().to_owned()))
    }

    /// The error of a target that cannot be dialed at all.
    pub(super) fn problem(&self) -> Option<String> {
        if let Some(scheme) = &self.unsupported {
            return Some(format!("unsupported protocol scheme {}", quote(scheme)));
        }
        let port = port_text(&self.authority);
        let is_bad = !port.is_empty() && port.parse::<u16>().is_err();
        is_bad.then(|| format!("dial tcp: address {port}: invalid port"))
    }

    /// The host without port and brackets.
    pub(super) fn host(&self) -> &str {
        split_authority(&self.authority).0
    }

    pub(super) fn port(&self) -> u16 {
        split_authority(&self.authority)
            .1
            .unwrap_or_else(|| self.scheme.default_port())
    }

    /// `host:port`, the key of credentials.
    pub(super) fn host_port(&self) -> String {
        match split_authority(&self.authority) {
            (_, Some(_)) => self.authority.clone(),
            (_, None) => format!("{}:443", self.authority),
        }
    }

    /// Returns `true` if HTTP/2 may be used: on loopback only, where there is no load to spread.
    pub(super) fn is_loopback_url(&self) -> bool {
        self.service.is_none() && is_loopback(self.host())
    }

    pub(super) fn url(&self, query: &str) -> String {
        let Self {
            authority, path, ..
        } = self;
        let scheme = self.unsupported.as_deref();
        let scheme = scheme.unwrap_or_else(|| self.scheme.as_str());
        if query.is_empty() {
            format!("{scheme}://{authority}{path}")
        } else {
            format!("{scheme}://{authority}{path}?{query}")
        }
    }

    /// Returns true if both have the same scheme, host and port.
    pub(super) fn is_same_host(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.authority.eq_ignore_ascii_case(&other.authority)
    }

    /// Resolves a `Location` header against this target, with its query.
    pub(super) fn redirected(&self, location: &str) -> Result<(Self, String), UrlError> {
        let absolute = if location.contains("://") {
            location.to_owned()
        } else if location.starts_with("//") {
            format!("{}:{location}", self.scheme.as_str())
        } else if location.starts_with('/') {
            format!("{}://{}{location}", self.scheme.as_str(), self.authority)
        } else {
            let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let scheme = self.scheme.as_str();
            format!("{scheme}://{}{folder}/{location}", self.authority)
        };
        let (mut target, _) = Self::read(&absolute)?;
        if target.authority == self.authority && target.scheme == self.scheme {
            target.service.clone_from(&self.service);
        }
        let url = Url::parse(&absolute)?;
        Ok((target, url.raw_query().to_owned()))
    }
}

/// Returns true if a host is `localhost` or a loopback address. Other names are not allowed, whatever they resolve
/// to, since the resolution may change.
fn is_loopback(host: &str) -> bool {
    let address: Result<IpAddr, _> = host.parse();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns true if a URL is plain HTTP to a loopback host.
#[must_use]
pub fn is_loopback_http(url: &str) -> bool {
    match Target::read(url) {
        Ok((target, _)) => {
            let is_http = target.scheme == Scheme::Http && target.unsupported.is_none();
            is_http && target.is_loopback_url()
        }
        Err(_) => false,
    }
}

/// The port as a string, if any.
fn port_text(authority: &str) -> &str {
    let after_host = match authority.rsplit_once(']') {
        Some((_, after)) => after,
        None => authority,
    };
    after_host.rsplit_once(':').map_or("", |(_, port)| port)
}

/// Splits `host:port`; brackets around an IPv6 address are removed.
#[must_use]
pub fn split_authority(authority: &str) -> (&str, Option<u16>) {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').unwrap_or((rest, ""));
        return (
            host,
            after.strip_prefix(':').and_then(|port| port.parse().ok()),
        );
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (authority, None),
    }
}

/// Cleans a path as upstream's client does: absolute, without empty or dot segments or a trailing slash.
fn clean_path(path: &[u8]) -> String {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let mut out = String::new();
    for segment in &segments {
        out.push('/');
        for &byte in *segment {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,:;=@".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    if out.is_empty() {
        out.push('/');
    }
    out
}

/// Decodes the percent escapes of a parsed path, which are all valid.
fn unescape(path: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let escaped = (*byte == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_api::registration::hub::ServiceReference;

    fn url(text: &str) -> Target {
        Target::read(text).unwrap().0
    }

    #[test]
    fn only_localhost_and_literal_addresses_are_loopback() {
        for url in [
            "http://localhost/x",
            "http://LOCALHOST:8080",
            "HTTP://127.0.0.1:1/x",
            "http://127.200.0.9",
            "http://[::1]:8080/x",
        ] {
            assert!(is_loopback_http(url), "{url}");
        }
        for url in [
            "https://localhost",
            "http://localhost.example.com",
            "http://localhost.",
            "http://127.0.0.1.nip.io",
            "http://127.1",
            "http://2130706433",
            "http://0.0.0.0",
            "http://[::]",
            "http://[::ffff:127.0.0.1]",
            "http://[::1%25lo]",
            "http://example.com@127.0.0.1.example.com",
            "http://127.0.0.1@example.com/",
            "http://example.com/?http://localhost",
            "http://example.com#@localhost",
            "http://example.com\\@localhost",
            "ftp://localhost",
            "//localhost",
            "localhost:80",
            "",
        ] {
            assert!(!is_loopback_http(url), "{url}");
        }
    }

    #[test]
    fn cleans_paths() {
        for (text, want) in [
            ("https://a", "https://a/"),
            ("https://a/", "https://a/"),
            ("https://a/x/", "https://a/x"),
            ("https://a/x/../y//z/.", "https://a/y/z"),
            ("https://a/../..", "https://a/"),
            ("https://a:8443/x%20y%2Fz?q=1#f", "https://a:8443/x%20y/z"),
            ("https://u:p@a/é", "https://a/%C3%A9"),
            ("https://[::1]:1/x", "https://[::1]:1/x"),
        ] {
            assert_eq!(url(text).url(""), want, "{text}");
        }
    }

    #[test]
    fn prefers_the_service() {
        let config = ClientConfig {
            url: Some(String::from("https://a")),
            service: Some(ServiceReference {
                namespace: String::from("ns"),
                name: String::from("svc"),
                path: Some(String::from("x/")),
                port: None,
            }),
            ca_bundle: None,
        };
        let target = Target::of(&config).unwrap();
        assert_eq!(
            target.url("timeout=1s"),
            "https://svc.ns.svc:443/x?timeout=1s"
        );
        assert!(!target.is_loopback_url());
    }

    #[test]
    fn refuses_what_is_no_target() {
        let refused = |url: Option<&str>| {
            let config = ClientConfig {
                url: url.map(str::to_owned),
                ..ClientConfig::default()
            };
            Target::of(&config).unwrap_err().to_string()
        };
        assert_eq!(
            refused(None),
            "webhook configuration must have either service or URL"
        );
        assert_eq!(
            refused(Some("https://a:b")),
            "Unparsable URL: parse \"https://a:b\": invalid port \":b\" after host"
        );
    }

    #[test]
    fn knows_this_machine() {
        assert!(url("https://LocalHost:1/").is_loopback_url());
        assert!(url("https://127.9.9.9").is_loopback_url());
        assert!(url("https://[::1]:1").is_loopback_url());
        assert!(!url("https://example.com").is_loopback_url());
    }

    #[test]
    fn names_the_port_for_credentials() {
        assert_eq!(url("https://a").host_port(), "a:443");
        assert_eq!(url("https://a:8443").host_port(), "a:8443");
        assert_eq!(url("https://[::1]").host_port(), "[::1]:443");
    }

    #[test]
    fn follows_locations() {
        let from = url("https://a:1/x/y");
        for (location, want) in [
            ("https://b/z?q=1", "https://b/z?q=1"),
            ("//b/z", "https://b/z"),
            ("/z", "https://a:1/z"),
            ("z", "https://a:1/x/z"),
        ] {
            let (target, query) = from.redirected(location).unwrap();
            assert_eq!(target.url(&query), want);
        }
    }
}
