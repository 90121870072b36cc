//! Resolves YAML scalars by the rules of YAML 1.1, as in Kubernetes.

use std::borrow::Cow;

use lockgate_go::base64;
use lockgate_go::json::format_float;

use crate::document::Kind;

/// A typed scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Resolved<'t> {
    Null,
    Bool(bool),
    /// An integer in decimal.
    Integer(String),
    Float(f64),
    Text(Cow<'t, str>),
}

impl Resolved<'_> {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::Bool(_) => Kind::Bool,
            Self::Integer(_) | Self::Float(_) => Kind::Number,
            Self::Text(_) => Kind::String,
        }
    }

    /// The representation in a document node: a literal, a JSON number, or the string itself.
    pub(super) fn json_text(&self) -> Cow<'_, str> {
        match self {
            Self::Null => "null".into(),
            Self::Bool(true) => "true".into(),
            Self::Bool(false) => "false".into(),
            Self::Integer(text) => text.into(),
            Self::Float(number) => format_float(*number).into(),
            Self::Text(text) => text.as_ref().into(),
        }
    }

    /// The scalar as a key: JSON keys are strings, so numbers and booleans are converted.
    pub(super) fn key_text(&self) -> Cow<'_, str> {
        match self {
            Self::Float(number) => format_key(*number).into(),
            other => other.json_text(),
        }
    }

    /// The JSON encoder's error for a value that JSON cannot represent.
    pub(super) fn unsupported(&self) -> Option<String> {
        let Self::Float(number) = self else {
            return None;
        };
        let shown = match *number {
            number if number.is_nan() => "NaN",
            f64::INFINITY => "+Inf",
            f64::NEG_INFINITY => "-Inf",
            _ => return None,
        };
        Some(format!("json: unsupported value: {shown}"))
    }
}

/// A scalar that does not match its tag.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TagError {
    #[error("cannot decode !!{found} `{text}` as a !!{wanted}")]
    Mismatch {
        found: &'static str,
        text: String,
        wanted: String,
    },
    #[error("!!binary value contains invalid base64 data")]
    Binary,
}

/// Resolves a scalar. `plain` is false for quoted and block scalars, which are always strings.
pub(super) fn resolve<'t>(
    text: &'t str,
    plain: bool,
    tag: Option<&str>,
) -> Result<Resolved<'t>, TagError> {
    let wanted = match tag.map(|tag| tag.strip_prefix(CORE_TAGS).unwrap_or(tag)) {
        None if plain => return Ok(implicit(text)),
        None | Some("str" | "!") => return Ok(Resolved::Text(text.into())),
        Some("binary") => return binary(text),
        Some(wanted @ ("null" | "bool" | "int" | "float" | "timestamp")) => wanted,
        // Kubernetes has no application tags, so a local tag only changes the type.
        Some(_) => return Ok(Resolved::Text(text.into())),
    };
    let resolved = implicit(text);
    let found = match &resolved {
        Resolved::Null => "null",
        Resolved::Bool(_) => "bool",
        Resolved::Integer(_) => "int",
        Resolved::Float(_) => "float",
        Resolved::Text(_) => "str",
    };
    match (wanted, &resolved) {
        ("float", Resolved::Integer(_)) | ("timestamp", Resolved::Text(_)) => Ok(resolved),
        _ if wanted == found => Ok(resolved),
        _ => Err(TagError::Mismatch {
            found,
            text: text.to_owned(),
            wanted: wanted.to_owned(),
        }),
    }
}

const CORE_TAGS: &str = "tag:yaml.org,2002:";

fn implicit(text: &str) -> Resolved<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Resolved::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.as_bytes().first() {
        Some(b'.') if is_float(text) => parse_float(text),
        Some(b'+' | b'-' | b'0'..=b'9') => number(text),
        _ => None,
    }
    .unwrap_or_else(|| Resolved::Text(text.into()))
}

fn number(text: &str) -> Option<Resolved<'static>> {
    let plain = text.replace('_', "");
    if let Some(integer) = integer(&plain) {
        return Some(Resolved::Integer(integer.to_string()));
    }
    if is_float(&plain) {
        parse_float(&plain)
    } else {
        None
    }
}

/// Parses an integer with Go's base prefixes: `0x`, `0b`, `0o` and a leading `0` for octal.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // `from_str_radix` would accept a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    let value = if negative { -magnitude } else { magnitude };
    let has_plus = text.starts_with('+');
    let fits_signed = i64::try_from(value).is_ok();
    // Beyond the signed range, only an unsigned number without a sign is an integer.
    (fits_signed || (!negative && !has_plus)).then_some(value)
}

fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_ok = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    mantissa_ok && exponent_ok
}

fn parse_float(text: &str) -> Option<Resolved<'static>> {
    let number: f64 = text.parse().ok()?;
    // Go rejects overflow, so the scalar is a string.
    number.is_finite().then_some(Resolved::Float(number))
}

fn binary(text: &str) -> Result<Resolved<'_>, TagError> {
    let bytes = base64::decode(text).map_err(|_| TagError::Binary)?;
    Ok(Resolved::Text(
        String::from_utf8_lossy(&bytes).into_owned().into(),
    ))
}

/// Formats a numeric key: the shortest form that is unique among 32-bit floats, with an exponent
/// for large or small numbers.
///
/// UPSTREAM: sigs.k8s.io/yaml yaml.go (convertToJSONableObject).
#[expect(
    clippy::cast_possible_truncation,
    reason = "upstream prints keys at half the precision they are read at"
)]
fn format_key(number: f64) -> String {
    let number = number as f32;
    if !number.is_finite() {
        let text = if number.is_nan() { ".nan" } else { ".inf" };
        let sign = if number < 0.0 { "-" } else { "" };
        return format!("{sign}{text}");
    }
    let text = format!("{number:e}");
    let exponent = text.split_once('e').and_then(|(mantissa, exponent)| {
        let exponent: i32 = exponent.parse().ok()?;
        (!(-4..6).contains(&exponent)).then_some((mantissa, exponent))
    });
    match exponent {
        Some((mantissa, exponent)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        None => format!("{number}"),
    }
}
