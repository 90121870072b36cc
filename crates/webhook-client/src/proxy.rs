//! Proxies, configured by environment variables.
//!
//! UPSTREAM: golang.org/x/net/http/httpproxy; k8s.io/apimachinery pkg/util/net/http.go adds CIDRs
//! to `NO_PROXY`.

use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lockgate_go::url::Url;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::call::Phase;
use crate::clock::Clock;
use crate::tap::{Ends, Notes};
use crate::target::{Scheme, split_authority};
use crate::wire::{self, USER_AGENT};
use crate::wording::{self, Failure};

/// The proxy settings.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    exempt: Vec<Exempt>,
}

/// A proxy for connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Proxy {
    /// `host:port`
    authority: String,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

#[derive(Debug, Clone)]
enum Exempt {
    All,
    /// A domain with its subdomains, or only its subdomains, on any port or one.
    Domain {
        suffix: String,
        itself: bool,
        port: Option<u16>,
    },
    Address(IpAddr, Option<u16>),
    Network(IpAddr, u8),
}

/// An invalid proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The address does not parse.
    #[error("invalid proxy address \"{address}\": {problem}")]
    Address {
        /// The address as configured.
        address: String,
        /// The parse error.
        problem: String,
    },
    /// The proxy's URL is not HTTP.
    #[error("proxy scheme \"{0}\" is not supported, only http is")]
    Scheme(String),
}

impl Proxies {
    /// Reads the variables `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` (in either case, upper case first) from the
    /// given environment, never from the process's.
    ///
    /// # Errors
    ///
    /// Fails if a proxy is not an HTTP URL.
    pub fn from_values<N, V>(values: impl IntoIterator<Item = (N, V)>) -> Result<Self, ProxyError>
    where
        N: AsRef<str>,
        V: Into<String>,
    {
        let values: Vec<(String, String)> = values
            .into_iter()
            .map(|(name, value)| (name.as_ref().to_owned(), value.into()))
            .collect();
        let value = |upper: &str| {
            [upper.to_owned(), upper.to_ascii_lowercase()]
                .iter()
                .find_map(|name| {
                    values
                        .iter()
                        .find(|(candidate, value)| candidate == name && !value.is_empty())
                })
                .map(|(_, value)| value.as_str())
        };
        Ok(Self {
            http: value("HTTP_PROXY").map(Proxy::parse).transpose()?,
            https: value("HTTPS_PROXY").map(Proxy::parse).transpose()?,
            exempt: value("NO_PROXY")
                .unwrap_or_default()
                .split(',')
                .filter_map(|entry| Exempt::parse(entry.trim()))
                .collect(),
        })
    }

    /// The proxy for a target, if any.
    pub(super) fn find(&self, scheme: Scheme, host: &str, port: u16) -> Option<&Proxy> {
        let proxy = match scheme {
            Scheme::Http => self.http.as_ref(),
            Scheme::Https => self.https.as_ref(),
        }?;
        let host = host.to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        let local = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let exempt = self
            .exempt
            .iter()
            .any(|exempt| exempt.covers(&host, address, port));
        (!local && !exempt).then_some(proxy)
    }
}

impl Proxy {
    fn parse(text: &str) -> Result<Self, ProxyError> {
        // Go parses an invalid URL as a host, with the scheme as its name.
        let url = if text.contains("://") {
            Url::parse(text)
        } else {
            Url::parse(&format!("http://{text}"))
        };
        let url = url.map_err(|problem| ProxyError::Address {
            address: text.to_owned(),
            problem: problem.to_string(),
        })?;
        if url.scheme() != "http" {
            return Err(ProxyError::Scheme(url.scheme().to_owned()));
        }
        let host = url.host();
        Ok(Self {
            authority: match split_authority(&host) {
                (_, Some(_)) => host,
                (_, None) => format!("{host}:80"),
            },
            authorization: url.user().map(|user| {
                let user = if user.contains(':') {
                    user
                } else {
                    format!("{user}:")
                };
                format!("Basic {}", BASE64_STANDARD.encode(user))
            }),
        })
    }

    /// Requests a tunnel to `authority` from the proxy.
    pub(super) async fn connect(
        &self,
        authority: &str,
        clock: &Clock,
    ) -> Result<TcpStream, Failure> {
        let stream = wire::dial(&self.authority, false, clock)
            .await
            .map_err(|failure| Failure {
                message: failure
                    .message
                    .replacen("dial tcp", "proxyconnect tcp: dial tcp", 1),
                ..failure
            })?;
        let ends = Ends::of(&stream);
        let failed = |error: &hyper::Error| {
            Failure::new(
                Phase::Connect,
                wording::exchange(error, &ends, &Notes::default()),
            )
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let mut request = Request::builder()
            .method("CONNECT")
            .uri(authority)
            .header("host", authority)
            .header("user-agent", USER_AGENT);
        if let Some(authorization) = &self.authorization {
            request = request.header("proxy-authorization", authorization);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|error| Failure::new(Phase::Connect, error.to_string()))?;
        // The connection is upgraded once the proxy accepts; until then it is dropped with this future.
        let driver = tokio::spawn(connection.with_upgrades());
        let _guard = AbortOnDrop(driver.abort_handle());
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| failed(&error))?;
        if response.status() != StatusCode::OK {
            return Err(refused(response.status()));
        }
        let upgraded = hyper::upgrade::on(response)
            .await
            .map_err(|error| failed(&error))?;
        upgraded
            .downcast::<TokioIo<TcpStream>>()
            .map(|parts| parts.io.into_inner())
            .map_err(|_| Failure::new(Phase::Connect, "unexpected proxy connection"))
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn refused(status: StatusCode) -> Failure {
    let reason = status.canonical_reason().unwrap_or("unknown status code");
    Failure::new(Phase::Connect, reason)
}

impl Exempt {
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.to_ascii_lowercase();
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            return Some(Self::All);
        }
        if let Some((network, bits)) = entry.split_once('/')
            && let (Ok(network), Ok(bits)) = (network.parse(), bits.parse())
        {
            return Some(Self::Network(network, bits));
        }
        if let Ok(address) = entry.parse() {
            return Some(Self::Address(address, None));
        }
        let (host, port) = split_authority(&entry);
        if let Ok(address) = host.parse() {
            return Some(Self::Address(address, port));
        }
        let (suffix, itself) = match host.strip_prefix("*.").or_else(|| host.strip_prefix('.')) {
            Some(suffix) => (suffix, false),
            None => (host, true),
        };
        Some(Self::Domain {
            suffix: suffix.to_owned(),
            itself,
            port,
        })
    }

    fn covers(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let on = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
        match self {
            Self::All => true,
            Self::Domain {
                suffix,
                itself,
                port,
            } => {
                let below = host
                    .strip_suffix(suffix.as_str())
                    .is_some_and(|before| before.ends_with('.'));
                on(port) && (below || (*itself && host == suffix))
            }
            Self::Address(exempt, port) => on(port) && address == Some(*exempt),
            Self::Network(network, bits) => {
                address.is_some_and(|address| is_inside(address, *network, *bits))
            }
        }
    }
}

fn is_inside(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let same = |address: u128, network: u128, width: u32| {
        let shift = width.saturating_sub(u32::from(bits));
        address.checked_shr(shift).unwrap_or_default()
            == network.checked_shr(shift).unwrap_or_default()
    };
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            same(address.to_bits().into(), network.to_bits().into(), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            same(address.to_bits(), network.to_bits(), 128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied(no_proxy: &str, host: &str, port: u16) -> bool {
        let values = [
            ("HTTPS_PROXY", "http://u:p@proxy:3128"),
            ("NO_PROXY", no_proxy),
        ];
        let proxies = Proxies::from_values(values).unwrap();
        proxies.find(Scheme::Https, host, port).is_some()
    }

    #[test]
    fn exempts_what_no_proxy_says() {
        assert!(proxied("", "example.com", 443));
        assert!(!proxied("", "localhost", 443));
        assert!(!proxied("", "127.0.0.1", 443));
        assert!(!proxied("*", "example.com", 443));
        assert!(!proxied("example.com", "a.example.com", 443));
        assert!(!proxied("example.com", "example.com", 443));
        assert!(proxied("example.com", "notexample.com", 443));
        assert!(proxied(".svc", "svc", 443));
        assert!(!proxied(" .svc ,x", "a.ns.svc", 443));
        assert!(proxied("example.com:8443", "example.com", 443));
        assert!(!proxied("10.0.0.0/8", "10.1.2.3", 443));
        assert!(proxied("10.0.0.0/8", "11.1.2.3", 443));
        assert!(!proxied("fd00::/8", "fd00::1", 443));
        assert!(!proxied("10.1.2.3", "10.1.2.3", 443));
    }

    #[test]
    fn reads_proxies() {
        let proxies = Proxies::from_values([("https_proxy", "proxy")]).unwrap();
        assert_eq!(proxies.https.unwrap().authority, "proxy:80");
        assert!(Proxies::from_values([("HTTPS_PROXY", "socks5://proxy:1")]).is_err());
        assert!(
            Proxies::from_values([("OTHER", "x")])
                .unwrap()
                .https
                .is_none()
        );
    }
}
