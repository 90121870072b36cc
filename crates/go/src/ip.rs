//! IP addresses, parsed like Go's `net/netip`, with its error texts.
// UPSTREAM: Go net/netip/netip.go (ParseAddr).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::quote::quote_bytes;

/// A parsed address, without restrictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The address without its zone.
    pub address: IpAddr,
    /// True if the address has a zone such as `%eth0`.
    pub has_zone: bool,
}

/// A string that is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: Vec<u8>,
    message: &'static str,
    /// The rest of the string from the invalid byte; empty if the error has no position.
    at: Vec<u8>,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ParseAddr({}): {}",
            quote_bytes(&self.text),
            self.message
        )?;
        if self.at.is_empty() {
            Ok(())
        } else {
            write!(f, " (at {})", quote_bytes(&self.at))
        }
    }
}

impl std::error::Error for ParseError {}

/// An error message and the rest of the string it refers to.
type Failure<'a> = (&'static str, &'a [u8]);

/// Parses an address of either family, with or without a zone.
///
/// ```
/// use lockgate_go::ip::parse;
/// assert!(parse(b"fe80::1%eth0").unwrap().has_zone);
/// assert_eq!(
///     parse(b"1.2.3").unwrap_err().to_string(),
///     "ParseAddr(\"1.2.3\"): IPv4 address too short",
/// );
/// ```
///
/// # Errors
///
/// A string that is not an address.
pub fn parse(text: &[u8]) -> Result<Parsed, ParseError> {
    let parsed = match text.iter().find(|b| matches!(b, b'.' | b':' | b'%')) {
        Some(b'.') => v4(text).map(|octets| Parsed {
            address: Ipv4Addr::from(octets).into(),
            has_zone: false,
        }),
        Some(b':') => v6_with_zone(text),
        Some(_) => Err(("missing IPv6 address", &b""[..])),
        None => Err(("unable to parse IP", &b""[..])),
    };
    parsed.map_err(|(message, at)| ParseError {
        text: text.to_vec(),
        message,
        at: at.to_vec(),
    })
}

fn v4(text: &[u8]) -> Result<[u8; 4], Failure<'_>> {
    let mut octets = [0u8; 4];
    let mut done = 0;
    let mut value: u16 = 0;
    let mut digits = 0;
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", b""));
                }
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", b""));
                }
            }
            b'.' => {
                if digits == 0 || after.is_empty() {
                    return Err(("IPv4 field must have at least one digit", rest));
                }
                if done == 3 {
                    return Err(("IPv4 address too long", b""));
                }
                set(&mut octets, done, value);
                done += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(("unexpected character", rest)),
        }
        rest = after;
    }
    if done < 3 {
        return Err(("IPv4 address too short", b""));
    }
    set(&mut octets, done, value);
    Ok(octets)
}

fn set(octets: &mut [u8; 4], at: usize, value: u16) {
    octets[at] = u8::try_from(value).expect("an octet above 255 was refused when it was read");
}

fn v6_with_zone(text: &[u8]) -> Result<Parsed, Failure<'_>> {
    let (body, zone) = match text.iter().position(|b| *b == b'%') {
        Some(at) if at + 1 == text.len() => return Err(("zone must be a non-empty string", b"")),
        Some(at) => (&text[..at], true),
        None => (text, false),
    };
    Ok(Parsed {
        address: v6(body)?.into(),
        has_zone: zone,
    })
}

fn v6(text: &[u8]) -> Result<Ipv6Addr, Failure<'_>> {
    let mut segments = [0u16; 8];
    let mut filled = 0;
    // The number of segments before the double colon.
    let mut ellipsis = None;
    let mut rest = text;
    if let Some(after) = rest.strip_prefix(b"::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok(Ipv6Addr::UNSPECIFIED);
        }
    }
    while filled < 8 {
        let (value, after) = hex_group(rest)?;
        if after.starts_with(b".") {
            if ellipsis.is_none() && filled != 6 {
                let message =
                    "embedded IPv4 address must replace the final 2 fields of the address";
                return Err((message, rest));
            }
            if filled > 6 {
                let message =
                    "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err((message, rest));
            }
            let [a, b, c, d] = v4(rest)?;
            segments[filled] = u16::from_be_bytes([a, b]);
            segments[filled + 1] = u16::from_be_bytes([c, d]);
            filled += 2;
            rest = b"";
            break;
        }
        segments[filled] = value;
        filled += 1;
        rest = after;
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(b":") else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(b":") {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(filled);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    let missing = 8 - filled;
    match ellipsis {
        None if missing > 0 => return Err(("address string too short", b"")),
        Some(_) if missing == 0 => {
            return Err(("the :: must expand to at least one field of zeros", b""));
        }
        // The segments after the double colon are moved to the end; the gap is zero.
        Some(at) => segments[at..].rotate_right(missing),
        None => {}
    }
    Ok(Ipv6Addr::from(segments))
}

/// Parses up to four hexadecimal digits.
fn hex_group(text: &[u8]) -> Result<(u16, &[u8]), Failure<'_>> {
    let (mut value, mut end) = (0, 0);
    while let Some(digit) = text.get(end).and_then(|b| char::from(*b).to_digit(16)) {
        if end == 4 {
            return Err(("each group must have 4 or less digits", text));
        }
        value = value << 4 | digit as u16;
        end += 1;
    }
    if end == 0 {
        let message = "each colon-separated field must have at least one digit";
        return Err((message, text));
    }
    Ok((value, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_families() {
        for (text, want) in [
            ("0.0.0.0", "0.0.0.0"),
            ("255.1.20.3", "255.1.20.3"),
            ("::", "::"),
            ("::1", "::1"),
            ("1::", "1::"),
            ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
            ("::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"),
            ("1::8", "1::8"),
            ("2001:DB8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
            ("64:ff9b::192.0.2.33", "64:ff9b::c000:221"),
            ("::1.2.3.4", "::102:304"),
            ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
        ] {
            let parsed = parse(text.as_bytes()).unwrap();
            assert_eq!(parsed.address.to_string(), want, "{text}");
            assert!(!parsed.has_zone, "{text}");
        }
        assert!(parse(b"fe80::1%eth0").unwrap().has_zone);
    }

    #[test]
    fn shows_bytes_that_are_no_text() {
        assert_eq!(
            parse(b"1.2.3.\xff").unwrap_err().to_string(),
            "ParseAddr(\"1.2.3.\\xff\"): unexpected character (at \"\\xff\")"
        );
    }
}
