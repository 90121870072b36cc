//! The formats of strings and numbers.
//!
//! UPSTREAM: kube-openapi pkg/validation/strfmt, apiextensions-apiserver
//! pkg/apiserver/validation/formats.go

mod email;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use lockgate_cel::ext::named_format::NamedFormat;
use lockgate_go::regex::Regex;
use lockgate_go::time::Duration;

use super::schema::Type;

/// A supported format, as spelled in the schema.
#[derive(Debug)]
pub(crate) struct Format {
    name: Box<str>,
    check: Check,
}

/// The validator of a format.
type Check = Option<fn(&str) -> bool>;

impl Format {
    /// Parses a format; `None` if it does not apply to the type, and is ignored.
    pub(crate) fn read(name: &str, kind: &Type, int_or_string: bool) -> Option<Self> {
        let check: Check = match kind {
            _ if int_or_string => Some(text_check(name)?),
            Type::Any | Type::String => Some(text_check(name)?),
            Type::Integer if matches!(name, "int32" | "int64") => None,
            Type::Number if matches!(name, "float" | "double") => None,
            _ => return None,
        };
        Some(Self {
            name: name.into(),
            check,
        })
    }

    /// Parses any format, known or unknown.
    pub(crate) fn read_any(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self {
            name: name.into(),
            check: text_check(name),
        })
    }

    /// The name as spelled in the schema.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns true for a string format.
    pub(crate) fn is_of_text(&self) -> bool {
        self.check.is_some()
    }

    /// Returns true if a string has the format.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.check.is_none_or(|check| check(text))
    }
}

/// Returns true if a format is recognized for values of a type.
pub(crate) fn is_recognized(name: &str, kind: &str) -> bool {
    match kind {
        "" | "string" => text_check(name).is_some(),
        "integer" => matches!(name, "int32" | "int64"),
        "number" => matches!(name, "float" | "double"),
        _ => false,
    }
}

fn text_check(name: &str) -> Option<fn(&str) -> bool> {
    let name = name.replace('-', "");
    Some(match name.as_str() {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => |text| NamedFormat::Uri.validate(text).is_empty(),
        "email" => email::is_address,
        "hostname" => is_hostname,
        "ipv4" => |text| text.contains('.') && sloppy_ip(text).is_some(),
        "ipv6" => |text| text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_sloppy_cidr,
        "mac" => is_mac,
        "uuid" => |text| NamedFormat::Uuid.validate(text).is_empty(),
        "uuid3" => |text| is_uuid_of(text, b'3', false),
        "uuid4" => |text| is_uuid_of(text, b'4', true),
        "uuid5" => |text| is_uuid_of(text, b'5', true),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => is_ssn,
        "hexcolor" => is_hex_color,
        "rgbcolor" => is_rgb_color,
        "byte" => |text| NamedFormat::Byte.validate(text).is_empty(),
        "password" => |_| true,
        "date" => |text| NamedFormat::Date.validate(text).is_empty(),
        "datetime" => |text| NamedFormat::DateTime.validate(text).is_empty(),
        "duration" => is_duration,
        "k8sshortname" => |text| NamedFormat::Dns1123Label.validate(text).is_empty(),
        "k8slongname" => |text| NamedFormat::Dns1123Subdomain.validate(text).is_empty(),
        _ => return None,
    })
}

/// A host name: one label, or labels of which the last one consists of letters. Symbols count as letters.
fn is_hostname(text: &str) -> bool {
    const CHAR: &str = r"[a-zA-Z0-9\p{S}\p{L}]";
    static HOSTNAME: OnceLock<Option<Regex>> = OnceLock::new();
    let regex = HOSTNAME.get_or_init(|| {
        let inner = r"[a-zA-Z0-9-\p{S}\p{L}]";
        let single = format!("{CHAR}((-?{CHAR}{{0,62}})?)");
        let several =
            format!(r"({CHAR}(({inner}{{0,61}}{CHAR})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}}");
        Regex::new(&format!("^({single}|{several})$")).ok()
    });
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
        && text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
}

/// An IP whose octets may have leading zeros, which Kubernetes accepts for existing data.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    let mut plain = String::with_capacity(text.len());
    let mut number = String::new();
    for c in text.chars().map(Some).chain([None]) {
        match c {
            Some(c) if c.is_ascii_hexdigit() => number.push(c),
            other => {
                let stripped = number.trim_start_matches('0');
                if stripped.is_empty() && !number.is_empty() {
                    plain.push('0');
                }
                plain.push_str(stripped);
                number.clear();
                plain.extend(other);
            }
        }
    }
    match plain
        .find(['.', ':'])
        .and_then(|at| plain.as_bytes().get(at))?
    {
        b'.' => plain.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        _ => plain.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
    }
}

fn is_sloppy_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let max = match sloppy_ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    let is_number = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    is_number && bits.parse::<u32>().is_ok_and(|bits| bits <= max)
}

/// Hexadecimal digits in pairs separated by `:` or `-`, in fours separated by `.`, or without separators.
fn is_mac(text: &str) -> bool {
    let (separator, width) = match text.as_bytes() {
        [_, _, separator @ (b':' | b'-'), ..] => (Some(*separator), 2),
        [_, _, _, _, b'.', ..] => (Some(b'.'), 4),
        _ => (None, 2),
    };
    let groups: Vec<&[u8]> = match separator {
        Some(separator) => text.as_bytes().split(|b| *b == separator).collect(),
        None => text.as_bytes().chunks(2).collect(),
    };
    let is_group = |group: &&[u8]| group.len() == width && group.iter().all(u8::is_ascii_hexdigit);
    matches!(groups.len() * width / 2, 6 | 8 | 20) && groups.iter().all(is_group)
}

/// A UUID of a version; if `strict`, of the variant of RFC 4122.
fn is_uuid_of(text: &str, version: u8, strict: bool) -> bool {
    if !NamedFormat::Uuid.validate(text).is_empty() {
        return false;
    }
    let mut digits = text.bytes().filter(|b| *b != b'-');
    let at_version = digits.nth(12);
    let at_variant = digits.nth(3).map(|b| b.to_ascii_lowercase());
    at_version == Some(version)
        && (!strict || matches!(at_variant, Some(b'8' | b'9' | b'a' | b'b')))
}

/// The digits of an ISBN, without whitespace and dashes; any other character is kept and invalid.
fn isbn_digits(text: &str) -> Vec<u8> {
    let is_filler = |b: &u8| matches!(b, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r' | b'-');
    text.bytes().filter(|b| !is_filler(b)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    let [first @ .., last] = digits.as_slice() else {
        return false;
    };
    if first.len() != 9 || !first.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let check = match last {
        b'X' => 10,
        b'0'..=b'9' => u32::from(last - b'0'),
        _ => return false,
    };
    let sum: u32 = (1_u32..)
        .zip(first)
        .map(|(weight, digit)| weight * u32::from(digit - b'0'))
        .sum();
    (sum + 10 * check).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = isbn_digits(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weighted = digits.iter().zip([1, 3].into_iter().cycle());
    let sum: u32 = weighted
        .map(|(digit, weight)| u32::from(digit - b'0') * weight)
        .sum();
    sum.is_multiple_of(10)
}

/// A credit card number of a known issuer with a valid check digit; other characters are ignored.
fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u8> = text
        .bytes()
        .filter(u8::is_ascii_digit)
        .map(|b| b - b'0')
        .collect();
    let is_issued = matches!(
        (digits.as_slice(), digits.len()),
        ([4, ..], 13 | 16)
            | ([5, 1..=5, ..], 16)
            | ([6, 0, 1, 1, ..] | [6, 5, ..], 16)
            | ([3, 4 | 7, ..], 15)
            | ([3, 0, 0..=5, ..] | [3, 6 | 8, ..], 14)
            | ([2, 1, 3, 1, ..] | [1, 8, 0, 0, ..], 15)
            | ([3, 5, ..], 16)
    );
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2, u32::from(*digit) * 2) {
            (0, doubled) => doubled / 2,
            (_, doubled) => doubled / 10 + doubled % 10,
        })
        .sum();
    is_issued && sum.is_multiple_of(10)
}

/// Three, two and four digits, separated by dashes or spaces.
fn is_ssn(text: &str) -> bool {
    // The pattern's separators are optional, but the length must be 11.
    let [a, b, c, x, d, e, y, f, g, h, i] = text.as_bytes() else {
        return false;
    };
    [a, b, c, d, e, f, g, h, i]
        .into_iter()
        .all(u8::is_ascii_digit)
        && [x, y].into_iter().all(|b| matches!(b, b'-' | b' '))
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let inner = text
        .strip_prefix("rgb(")
        .and_then(|rest| rest.strip_suffix(')'));
    let Some(inner) = inner else {
        return false;
    };
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\x0c' | '\r');
    let is_value = |value: &str| {
        let value = value.trim_matches(is_space);
        let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        let is_plain = value == "0" || !value.starts_with('0');
        is_number && is_plain && value.parse::<u8>().is_ok()
    };
    let values: Vec<&str> = inner.split(',').collect();
    values.len() == 3 && values.into_iter().all(is_value)
}

/// A Go duration, or a string that contains numbers with units, such as `3 days`.
fn is_duration(text: &str) -> bool {
    /// Units that must match exactly, and the one that must match as a prefix.
    const UNITS: [(&[&str], &str); 8] = [
        (&["ns"], "nano"),
        (&["us", "µs"], "micro"),
        (&["ms"], "milli"),
        (&["s"], "sec"),
        (&["m"], "min"),
        (&["h", "hr"], "hour"),
        (&["d"], "day"),
        (&["w", "wk"], "week"),
    ];
    if Duration::parse(text).is_ok() {
        return true;
    }
    let mut found = false;
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (_, from_number) = rest.split_at(at);
        let after = from_number.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = from_number.strip_suffix(after).unwrap_or_default();
        let is_space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\x0c' | '\r');
        let unit = after.trim_start_matches(is_space);
        rest = unit.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == 'µ');
        let unit = unit.strip_suffix(rest).unwrap_or_default().to_lowercase();
        if unit.is_empty() {
            rest = after;
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        found |= UNITS
            .iter()
            .any(|(exact, start)| exact.contains(&unit.as_str()) || unit.starts_with(start));
    }
    found
}
