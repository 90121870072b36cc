//! Reads an address by the rules and with the words of Go's `net/netip`.
// UPSTREAM: Go net/netip/netip.go (ParseAddr).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::quote::quote;

/// An address as read, before anything is forbidden.
pub(in crate::ext) struct Parsed {
    pub(in crate::ext) address: IpAddr,
    pub(in crate::ext) has_zone: bool,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ext) struct ParseError {
    text: String,
    message: &'static str,
    /// The rest of the text from where the trouble starts; empty if it is no one place.
    at: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ParseAddr({}): {}", quote(&self.text), self.message)?;
        if self.at.is_empty() {
            Ok(())
        } else {
            write!(f, " (at {})", quote(&self.at))
        }
    }
}

/// A message and the rest of the text it is about.
type Failure<'a> = (&'static str, &'a str);

/// Parses an address of either family, possibly with a zone.
pub(in crate::ext) fn parse(text: &str) -> Result<Parsed, ParseError> {
    let parsed = match text.bytes().find(|b| matches!(b, b'.' | b':' | b'%')) {
        Some(b'.') => v4(text).map(|octets| Parsed {
            address: Ipv4Addr::from(octets).into(),
            has_zone: false,
        }),
        Some(b':') => v6_with_zone(text),
        Some(_) => Err(("missing IPv6 address", "")),
        None => Err(("unable to parse IP", "")),
    };
    parsed.map_err(|(message, at)| ParseError {
        text: text.into(),
        message,
        at: at.into(),
    })
}

fn v4(text: &str) -> Result<[u8; 4], Failure<'_>> {
    let mut octets = [0u8; 4];
    let mut done = 0;
    let mut value: u16 = 0;
    let mut digits = 0;
    for (at, c) in text.char_indices() {
        let rest = text.get(at..).unwrap_or("");
        match c {
            '0'..='9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + (c as u16 - '0' as u16);
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", ""));
                }
            }
            '.' => {
                if digits == 0 || rest.len() == 1 {
                    return Err(("IPv4 field must have at least one digit", rest));
                }
                if done == 3 {
                    return Err(("IPv4 address too long", ""));
                }
                set(&mut octets, done, value);
                done += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(("unexpected character", rest)),
        }
    }
    if done < 3 {
        return Err(("IPv4 address too short", ""));
    }
    set(&mut octets, done, value);
    Ok(octets)
}

fn set(octets: &mut [u8; 4], at: usize, value: u16) {
    if let Some(octet) = octets.get_mut(at) {
        *octet = u8::try_from(value).unwrap_or(u8::MAX);
    }
}

fn v6_with_zone(text: &str) -> Result<Parsed, Failure<'_>> {
    let (body, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(("zone must be a non-empty string", "")),
        Some((body, _)) => (body, true),
        None => (text, false),
    };
    Ok(Parsed {
        address: v6(body)?.into(),
        has_zone: zone,
    })
}

fn v6(text: &str) -> Result<Ipv6Addr, Failure<'_>> {
    let mut segments: Vec<u16> = Vec::with_capacity(8);
    // Where in the segments the double colon stands.
    let mut ellipsis = None;
    let mut rest = text;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok(Ipv6Addr::UNSPECIFIED);
        }
    }
    while segments.len() < 8 {
        let (value, after) = hex_group(rest)?;
        if after.starts_with('.') {
            if ellipsis.is_none() && segments.len() != 6 {
                let message =
                    "embedded IPv4 address must replace the final 2 fields of the address";
                return Err((message, rest));
            }
            if segments.len() > 6 {
                let message =
                    "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err((message, rest));
            }
            let [a, b, c, d] = v4(rest)?;
            segments.push(u16::from_be_bytes([a, b]));
            segments.push(u16::from_be_bytes([c, d]));
            rest = "";
            break;
        }
        segments.push(value);
        rest = after;
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(segments.len());
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    let missing = 8usize.saturating_sub(segments.len());
    match ellipsis {
        None if missing > 0 => return Err(("address string too short", "")),
        Some(_) if missing == 0 => {
            return Err(("the :: must expand to at least one field of zeros", ""));
        }
        Some(at) => {
            let tail = segments.split_off(at);
            segments.extend(std::iter::repeat_n(0, missing));
            segments.extend(tail);
        }
        None => {}
    }
    let segments: [u16; 8] = segments
        .try_into()
        .map_err(|_| ("address string too short", ""))?;
    Ok(Ipv6Addr::from(segments))
}

/// Reads up to four hexadecimal digits.
fn hex_group(text: &str) -> Result<(u16, &str), Failure<'_>> {
    let end = text
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(text.len());
    if end > 4 {
        return Err(("each group must have 4 or less digits", text));
    }
    let (digits, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    match u16::from_str_radix(digits, 16) {
        Ok(value) => Ok((value, rest)),
        Err(_) => Err((
            "each colon-separated field must have at least one digit",
            text,
        )),
    }
}
