//! The encoding of an entry, with its own checksum: a corrupted entry is rejected.
//!
//! The pages of the file have checksums too, which protect its structure. This one protects an entry end to end,
//! from encoding to decoding.

use std::sync::Arc;

use bytes::Bytes;

use crate::state::Undo;
use crate::{Entry, Revision};

/// Checksum, creation revision, revision, deadline. All integers are little-endian.
const HEADER: usize = 4 + 8 + 8 + 8;

/// The expiry time of an entry, in milliseconds since 1970; zero means never.
pub(crate) type Deadline = u64;

/// Encodes an entry. The key is not included, but part of the checksum.
pub(crate) fn encode(entry: &Entry, deadline: Deadline) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + entry.value.len());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&entry.created.0.to_le_bytes());
    bytes.extend_from_slice(&entry.revision.0.to_le_bytes());
    bytes.extend_from_slice(&deadline.to_le_bytes());
    bytes.extend_from_slice(&entry.value);
    let checksum = checksum(entry.key.as_bytes(), &bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Decodes an entry; `None` if the checksum does not match.
pub(crate) fn decode(key: &[u8], bytes: &[u8]) -> Option<(Entry, Deadline)> {
    let (stored, rest) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*stored) != checksum(key, rest) {
        return None;
    }
    let (created, rest) = rest.split_first_chunk::<8>()?;
    let (revision, rest) = rest.split_first_chunk::<8>()?;
    let (deadline, value) = rest.split_first_chunk::<8>()?;
    let entry = Entry {
        key: Arc::from(str::from_utf8(key).ok()?),
        value: Bytes::copy_from_slice(value),
        created: Revision(u64::from_le_bytes(*created)),
        revision: Revision(u64::from_le_bytes(*revision)),
    };
    Some((entry, u64::from_le_bytes(*deadline)))
}

/// Encodes a change for the history: the replaced entry, to undo the change. The revision is not included, but part
/// of the checksum.
pub(crate) fn encode_change(revision: Revision, key: &str, before: Option<&Entry>) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(key.as_bytes());
    if let Some(before) = before {
        bytes.extend_from_slice(&before.created.0.to_le_bytes());
        bytes.extend_from_slice(&before.revision.0.to_le_bytes());
        bytes.extend_from_slice(&before.value);
    }
    let checksum = checksum(&revision.0.to_le_bytes(), &bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Decodes a change; `None` if the checksum does not match.
pub(crate) fn decode_change(revision: Revision, bytes: &[u8]) -> Option<Undo> {
    let (stored, rest) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*stored) != checksum(&revision.0.to_le_bytes(), rest) {
        return None;
    }
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (key, rest) = rest.split_at_checked(length)?;
    let key: Arc<str> = Arc::from(str::from_utf8(key).ok()?);
    let before = match rest {
        [] => None,
        rest => {
            let (created, rest) = rest.split_first_chunk::<8>()?;
            let (changed, value) = rest.split_first_chunk::<8>()?;
            Some(Entry {
                key: Arc::clone(&key),
                value: Bytes::copy_from_slice(value),
                created: Revision(u64::from_le_bytes(*created)),
                revision: Revision(u64::from_le_bytes(*changed)),
            })
        }
    };
    Some(Undo {
        key,
        revision,
        before,
    })
}

/// Metadata of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The latest revision.
    pub(crate) revision: Revision,
    /// The number of entries.
    pub(crate) entries: u64,
}

impl Summary {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&self.revision.0.to_le_bytes());
        bytes.extend_from_slice(&self.entries.to_le_bytes());
        let checksum = checksum(&[], &bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (stored, rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*stored) != checksum(&[], rest) {
            return None;
        }
        let (revision, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            revision: Revision(u64::from_le_bytes(*revision)),
            entries: u64::from_le_bytes(rest.try_into().ok()?),
        })
    }
}

fn checksum(key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_is_noticed() {
        let entry = Entry {
            key: Arc::from("/pods/a"),
            value: Bytes::from_static(b"some value"),
            created: Revision(7),
            revision: Revision(1 << 40),
        };
        let bytes = encode(&entry, 99);
        assert_eq!(decode(b"/pods/a", &bytes), Some((entry.clone(), 99)));
        assert_eq!(decode(b"/pods/b", &bytes), None);
        assert_eq!(decode(b"/pods/a", &bytes[..20]), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(b"/pods/a", &flipped), None, "bit {bit}");
        }
        for before in [None, Some(entry)] {
            let bytes = encode_change(Revision(9), "/pods/a", before.as_ref());
            let undo = decode_change(Revision(9), &bytes).unwrap();
            assert_eq!((&*undo.key, undo.before), ("/pods/a", before));
            assert!(decode_change(Revision(8), &bytes).is_none());
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_change(Revision(9), &flipped).is_none(), "bit {bit}");
            }
        }
        let summary = Summary {
            revision: Revision(8),
            entries: 3,
        };
        let bytes = summary.encode();
        assert_eq!(Summary::decode(&bytes), Some(summary));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Summary::decode(&flipped), None, "bit {bit}");
        }
    }
}
