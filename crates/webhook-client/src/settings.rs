//! The settings of a client, and the bound of an answer.

use std::sync::Arc;

use crate::credentials::Credentials;
use crate::proxy::Proxies;
use crate::resolve::{DnsResolver, ServiceResolver};

/// The longest answer in bytes, after decompression.
pub const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// What a redirect from a webhook means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redirects {
    /// It is the answer, and not one that counts as success.
    #[default]
    Refuse,
    /// It is followed up to ten times, as upstream does.
    Follow,
}

/// Settings of an [`HttpsCaller`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// Finds services.
    pub resolver: Arc<dyn ServiceResolver>,
    /// What to show to whom.
    pub credentials: Credentials,
    /// Which proxies to use.
    pub proxies: Proxies,
    /// What redirects mean.
    pub redirects: Redirects,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resolver: Arc::new(DnsResolver),
            credentials: Credentials::default(),
            proxies: Proxies::default(),
            redirects: Redirects::default(),
        }
    }
}
