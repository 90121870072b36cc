//! Percent-encoding, which differs between the components of a URL.
// UPSTREAM: Go net/url/url.go and its encoding table.

use super::Reason;

/// A component of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Path,
    Host,
    /// The zone of an IPv6 address.
    Zone,
    UserPassword,
    Query,
    Fragment,
}

/// Returns true for a byte that must be escaped in a component.
fn should_escape(byte: u8, mode: Mode) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    let allowed: &[u8] = match mode {
        Mode::Path => b"$&+,/:;=@",
        Mode::Host | Mode::Zone => b"!\"$&'()*+,:;<=>[]",
        Mode::UserPassword => b"$&+,;=",
        Mode::Query => b"",
        Mode::Fragment => b"!$&()*+,/:;=?@",
    };
    !allowed.contains(&byte)
}

/// Escapes bytes where necessary.
pub(super) fn escape(bytes: &[u8], mode: Mode) -> String {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or('0');
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if should_escape(byte, mode) {
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        } else {
            out.push(char::from(byte));
        }
    }
    out
}

/// Decodes escapes, and a plus sign in a query; rejects invalid characters in a host.
pub(super) fn unescape(text: &str, mode: Mode) -> Result<Vec<u8>, Reason> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'%' => {
                let Some(value) = hex_pair(after) else {
                    return Err(Reason::Escape(rest.iter().take(3).copied().collect()));
                };
                let refused = match mode {
                    Mode::Host => value < 0x80 && value != b'%',
                    Mode::Zone => {
                        value != b'%' && value != b' ' && should_escape(value, Mode::Host)
                    }
                    _ => false,
                };
                if refused {
                    return Err(Reason::Escape(rest.iter().take(3).copied().collect()));
                }
                out.push(value);
                rest = after.get(2..).unwrap_or_default();
                continue;
            }
            b'+' if mode == Mode::Query => out.push(b' '),
            _ => {
                let in_host = matches!(mode, Mode::Host | Mode::Zone);
                if in_host && byte.is_ascii() && should_escape(byte, mode) {
                    return Err(Reason::HostCharacter(char::from(byte)));
                }
                out.push(byte);
            }
        }
        rest = after;
    }
    Ok(out)
}

fn hex_pair(bytes: &[u8]) -> Option<u8> {
    let [high, low, ..] = bytes else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

/// Returns true for a validly encoded path or fragment.
pub(super) fn is_valid_encoded(text: &str, mode: Mode) -> bool {
    text.bytes()
        .all(|b| b"!$&'()*+,;=:@[]%".contains(&b) || !should_escape(b, mode))
}
