//! Standard base64, with the error positions of Go's decoder.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Invalid base64 at this byte position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct CorruptInput(pub usize);

/// Decodes padded standard base64; line breaks are ignored.
///
/// # Errors
///
/// The byte position of Go's decoding error.
pub fn decode(text: &str) -> Result<Vec<u8>, CorruptInput> {
    // Valid input is decoded at full speed by the crate; only invalid input is decoded again like
    // in Go, for the position.
    STANDARD
        .decode(text)
        .or_else(|_| decode_like_go(text.as_bytes()))
}

/// Encodes as padded standard base64.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// UPSTREAM: encoding/base64 (decodeQuantum) determines the reported position.
fn decode_like_go(text: &[u8]) -> Result<Vec<u8>, CorruptInput> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut at = 0;
    loop {
        let mut quantum = [0_u8; 4];
        let mut filled = 0;
        while filled < 4 {
            let Some(&byte) = text.get(at) else {
                return if filled == 0 {
                    Ok(out)
                } else {
                    Err(CorruptInput(at - filled))
                };
            };
            at += 1;
            if let Some(value) = sextet(byte) {
                quantum[filled] = value;
                filled += 1;
            } else if byte == b'=' {
                return finish(text, at, &quantum[..filled], out);
            } else if !matches!(byte, b'\n' | b'\r') {
                return Err(CorruptInput(at - 1));
            }
        }
        let [a, b, c, d] = quantum;
        out.extend([a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]);
    }
}

/// Parses the rest of the padding after its first `=`, up to the end of input.
fn finish(
    text: &[u8],
    mut at: usize,
    quantum: &[u8],
    mut out: Vec<u8>,
) -> Result<Vec<u8>, CorruptInput> {
    let skip_line_ends = |mut at: usize| {
        while matches!(text.get(at), Some(b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    match *quantum {
        [a, b] => {
            at = skip_line_ends(at);
            match text.get(at) {
                None => return Err(CorruptInput(text.len())),
                Some(b'=') => at += 1,
                // Upstream reports the byte before the invalid one.
                Some(_) => return Err(CorruptInput(at - 1)),
            }
            out.push(a << 2 | b >> 4);
        }
        [a, b, c] => out.extend([a << 2 | b >> 4, b << 4 | c >> 2]),
        _ => return Err(CorruptInput(at - 1)),
    }
    at = skip_line_ends(at);
    if at < text.len() {
        Err(CorruptInput(at))
    } else {
        Ok(out)
    }
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_byte_go_names() {
        for (text, want) in [
            ("%%%", 0),
            ("[{}]", 0),
            ("W10_", 3),
            ("W10", 0),
            ("AAAAW1", 4),
            ("AAAAW", 4),
            ("W===", 1),
            ("W1=x", 2),
            ("W1=", 3),
            ("W10=x", 4),
            ("=", 0),
            ("AAAA=", 4),
        ] {
            assert_eq!(decode(text), Err(CorruptInput(want)), "{text}");
        }
    }

    #[test]
    fn accepts_what_go_accepts() {
        for (text, want) in [
            ("", ""),
            ("W10=", "[]"),
            ("W1\n0=\r\n", "[]"),
            ("aGVsbG8=", "hello"),
            ("aGk=", "hi"),
        ] {
            assert_eq!(decode(text).as_deref(), Ok(want.as_bytes()), "{text:?}");
        }
        // Unused bits of the last character are not checked.
        assert_eq!(decode("W1==").as_deref(), Ok(&b"["[..]));
    }
}
