//! The settings of a client, and the size limit of responses.

use std::sync::Arc;

use crate::credentials::Credentials;
use crate::proxy::Proxies;
use crate::resolve::{DnsResolver, ServiceResolver};

/// The maximum size of a response in bytes, after decompression.
pub const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// The handling of redirects from webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redirects {
    /// The redirect is the response, which counts as a failed call.
    #[default]
    Refuse,
    /// They are followed up to ten times, as upstream does.
    Follow,
}

/// The webhooks that are called over plain HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlainHttp {
    /// All with an `http` URL, as the URLs are from an administrator's file.
    #[default]
    Anywhere,
    /// Webhooks on a loopback address, such as a sidecar or a static Pod on this host.
    Loopback,
    /// None.
    Refuse,
}

/// Settings of an [`HttpsCaller`](crate::HttpsCaller).
#[derive(Debug, Clone)]
pub struct Settings {
    /// Resolves Services.
    pub resolver: Arc<dyn ServiceResolver>,
    /// Credentials by host.
    pub credentials: Credentials,
    /// The proxies.
    pub proxies: Proxies,
    /// The handling of redirects.
    pub redirects: Redirects,
    /// The webhooks that may be called over plain HTTP.
    pub plain_http: PlainHttp,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resolver: Arc::new(DnsResolver),
            credentials: Credentials::default(),
            proxies: Proxies::default(),
            redirects: Redirects::default(),
            plain_http: PlainHttp::default(),
        }
    }
}
