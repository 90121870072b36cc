//! The layout of keys and values in a store that is shared with other programs.

use std::fmt;

use bytes::Bytes;

/// Encodes keys and values for etcd (feature `etcd`). Etcd keys are relative to the prefix of the store, and start with
/// a slash like the store's keys.
pub trait Layout: fmt::Debug + Send + Sync + 'static {
    /// Encodes a key.
    fn encode_key(&self, key: &str) -> String;

    /// Decodes an etcd key; `None` if it is not a key of this store.
    fn decode_key(&self, key: &str) -> Option<String>;

    /// Encodes a key prefix; `None` if its keys have no common prefix in etcd. INVARIANT: keys with the same prefix
    /// have the same order in etcd.
    fn encode_prefix(&self, prefix: &str) -> Option<String>;

    /// Encodes a value.
    fn encode_value(&self, key: &str, value: Bytes) -> Bytes;

    /// Decodes a value. Invalid values are returned unchanged, and fail when they are decoded by the reader.
    fn decode_value(&self, key: &str, value: Bytes) -> Bytes;
}

/// The identity layout.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainLayout;

impl Layout for PlainLayout {
    fn encode_key(&self, key: &str) -> String {
        key.to_owned()
    }

    fn decode_key(&self, key: &str) -> Option<String> {
        Some(key.to_owned())
    }

    fn encode_prefix(&self, prefix: &str) -> Option<String> {
        Some(prefix.to_owned())
    }

    fn encode_value(&self, _: &str, value: Bytes) -> Bytes {
        value
    }

    fn decode_value(&self, _: &str, value: Bytes) -> Bytes {
        value
    }
}
