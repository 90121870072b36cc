//! The settings of a client, and the bound of an answer.

use std::sync::Arc;

use crate::credentials::Credentials;
use crate::proxy::Proxies;
use crate::resolve::{DnsResolver, ServiceResolver};

/// The longest answer in bytes, after decompression.
pub const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// The handling of redirects from webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redirects {
    /// It is the answer, and not one that counts as success.
    #[default]
    Refuse,
    /// It is followed up to ten times, as upstream does.
    Follow,
}

/// The webhooks that are called over plain HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlainHttp {
    /// Any URL that has it: the URL is from a file of the administrator.
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
    /// Finds services.
    pub resolver: Arc<dyn ServiceResolver>,
    /// Credentials by host.
    pub credentials: Credentials,
    /// The proxies.
    pub proxies: Proxies,
    /// The handling of redirects.
    pub redirects: Redirects,
    /// Plain HTTP.
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
