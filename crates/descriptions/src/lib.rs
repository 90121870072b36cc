//! The descriptions of Kubernetes' types and their members, as `kubectl explain` shows them.
//!
//! They are read from `k8s-openapi` while this crate is built, and are part of the binary in compressed
//! form: none of them is in this repository, and none of that crate is linked.
//!
//! ```text
//!   k8s-openapi ──(build.rs)──► lines ──► deflate ──► binary ──► text(), when somebody asks
//! ```
//!
//! One line per type and member: `TYPE \t MEMBER \t DESCRIPTION`, with the member empty for the type itself.
//! `\\` and `\n` stand for a backslash and the end of a line.

use std::io::Read as _;

use flate2::read::DeflateDecoder;

/// The lines, compressed.
static LINES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.deflate"));

/// The lines. It takes some milliseconds, and keeps nothing.
#[must_use]
pub fn text() -> String {
    let mut text = String::new();
    // What the build script has written can be read; without it nothing is described.
    if DeflateDecoder::new(LINES)
        .read_to_string(&mut text)
        .is_err()
    {
        text.clear();
    }
    text
}

/// The size in the binary, in bytes.
#[must_use]
pub fn compressed_len() -> usize {
    LINES.len()
}
