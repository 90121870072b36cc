//! The form of keys and values in a store that others read too.

use std::fmt;

use bytes::Bytes;

/// Says how keys and values are kept in etcd (feature `etcd`). Keys in etcd are relative: they follow the prefix of the store, and
/// begin with a slash like those of the store.
pub trait Layout: fmt::Debug + Send + Sync + 'static {
    /// The key in etcd.
    fn encode_key(&self, key: &str) -> String;

    /// The key of a key in etcd; none if it is no key of this store.
    fn decode_key(&self, key: &str) -> Option<String>;

    /// The prefix in etcd of the keys with a prefix; none if they have none in common. INVARIANT: keys with the
    /// same prefix have the same order in etcd.
    fn encode_prefix(&self, prefix: &str) -> Option<String>;

    /// The value in etcd.
    fn encode_value(&self, key: &str, value: Bytes) -> Bytes;

    /// The value of a value in etcd. What cannot be read stays as it is, and whoever reads it finds that out.
    fn decode_value(&self, key: &str, value: Bytes) -> Bytes;
}

/// Keys and values as they are.
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
