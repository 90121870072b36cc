//! The descriptions of Kubernetes' types and fields, as `kubectl explain` prints them.
//!
//! The build script extracts them from `k8s-openapi` and embeds them compressed: this repository contains no
//! descriptions, and that crate is not linked.
//!
//! ```text
//!   k8s-openapi ──(build.rs)──► lines ──► deflate ──► binary ──► text(), on demand
//! ```
//!
//! One line per type and field: `TYPE \t FIELD \t DESCRIPTION`, with an empty field for the type itself.
//! `\\` and `\n` are escapes of a backslash and a line break.

use std::io::Read as _;

use flate2::read::DeflateDecoder;

/// The compressed lines.
static LINES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.deflate"));

/// Decompresses the lines, in a few milliseconds; the result is not cached.
#[must_use]
pub fn text() -> String {
    let mut text = String::new();
    // The build script's output is always valid; otherwise there would be no descriptions.
    if DeflateDecoder::new(LINES)
        .read_to_string(&mut text)
        .is_err()
    {
        text.clear();
    }
    text
}

/// The compressed size, in bytes.
#[must_use]
pub fn compressed_len() -> usize {
    LINES.len()
}
