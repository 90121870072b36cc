//! Checking an IP address as Go's `net/netip` does.

use super::quote::quote_bytes;

/// Which kind of address a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// Checks an address and tells its family.
///
/// UPSTREAM: Go net/netip/netip.go (ParseAddr).
pub(super) fn check_addr(text: &[u8]) -> Result<Family, String> {
    match text.iter().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => check_v4(text, text).map(|()| Family::V4),
        Some(b':') => check_v6(text).map(|()| Family::V6),
        Some(_) => Err(error(text, "missing IPv6 address", b"")),
        None => Err(error(text, "unable to parse IP", b"")),
    }
}

fn error(whole: &[u8], message: &str, at: &[u8]) -> String {
    let place = if at.is_empty() {
        String::new()
    } else {
        format!(" (at {})", quote_bytes(at))
    };
    format!("ParseAddr({}): {message}{place}", quote_bytes(whole))
}

fn check_v4(whole: &[u8], fields: &[u8]) -> Result<(), String> {
    let (mut value, mut digits, mut dots) = (0_u32, 0, 0);
    for (index, &byte) in fields.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(error(whole, "IPv4 field has octet with leading zero", b""));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(error(whole, "IPv4 field has value >255", b""));
                }
            }
            b'.' => {
                if digits == 0 || index == fields.len() - 1 {
                    let message = "IPv4 field must have at least one digit";
                    return Err(error(whole, message, &fields[index..]));
                }
                if dots == 3 {
                    return Err(error(whole, "IPv4 address too long", b""));
                }
                dots += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(error(whole, "unexpected character", &fields[index..])),
        }
    }
    if dots < 3 {
        Err(error(whole, "IPv4 address too short", b""))
    } else {
        Ok(())
    }
}

fn check_v6(whole: &[u8]) -> Result<(), String> {
    let mut rest = whole;
    if let Some(percent) = whole.iter().position(|&byte| byte == b'%') {
        if percent + 1 == whole.len() {
            return Err(error(whole, "zone must be a non-empty string", b""));
        }
        rest = &whole[..percent];
    }
    let mut ellipsis = false;
    if let Some(after) = rest.strip_prefix(b"::") {
        (ellipsis, rest) = (true, after);
        if rest.is_empty() {
            return Ok(());
        }
    }
    // Bytes of the address read so far.
    let mut filled = 0;
    while filled < 16 {
        let group = rest
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if group > 4 {
            return Err(error(whole, "each group must have 4 or less digits", rest));
        }
        if group == 0 {
            let message = "each colon-separated field must have at least one digit";
            return Err(error(whole, message, rest));
        }
        if rest.get(group) == Some(&b'.') {
            if !ellipsis && filled != 12 {
                let message =
                    "embedded IPv4 address must replace the final 2 fields of the address";
                return Err(error(whole, message, rest));
            }
            if filled + 4 > 16 {
                let message =
                    "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err(error(whole, message, rest));
            }
            check_v4(whole, rest)?;
            (rest, filled) = (b"", filled + 4);
            break;
        }
        filled += 2;
        rest = &rest[group..];
        match rest {
            [] => break,
            [b':'] => {
                return Err(error(
                    whole,
                    "colon must be followed by more characters",
                    rest,
                ));
            }
            [b':', after @ ..] => rest = after,
            _ => return Err(error(whole, "unexpected character, want colon", rest)),
        }
        if let Some(after) = rest.strip_prefix(b":") {
            if ellipsis {
                return Err(error(whole, "multiple :: in address", rest));
            }
            (ellipsis, rest) = (true, after);
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(error(whole, "trailing garbage after address", rest));
    }
    match (filled < 16, ellipsis) {
        (true, false) => Err(error(whole, "address string too short", b"")),
        (false, true) => Err(error(
            whole,
            "the :: must expand to at least one field of zeros",
            b"",
        )),
        _ => Ok(()),
    }
}
