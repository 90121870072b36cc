//! A document about the API, with a hash for client caches.

use bytes::Bytes;
use sha2::{Digest as _, Sha512};

/// A document and its hash.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) text: Bytes,
    pub(crate) hash: String,
}

impl Document {
    pub(crate) fn new(text: String) -> Self {
        Self {
            hash: hex(&Sha512::digest(text.as_bytes())),
            text: text.into(),
        }
    }
}

/// The hexadecimal digits of a digest.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}
