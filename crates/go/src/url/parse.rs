//! Parses URLs.
// UPSTREAM: Go net/url/url.go (parse, parseAuthority, parseHost).

use super::escape::{Mode, unescape};
use super::{Reason, Url};
use crate::ip;

/// The kind of a URL to parse.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request URI, which is not relative; a number sign is an ordinary character.
    Request,
    /// A reference, possibly relative, without its fragment.
    Reference,
}

pub(super) fn parse(text: &str, kind: Kind) -> Result<Url, Reason> {
    if text.bytes().any(|b| b.is_ascii_control()) {
        return Err(Reason::ControlCharacter);
    }
    if text.is_empty() && kind == Kind::Request {
        return Err(Reason::Empty);
    }
    let mut url = Url::default();
    if text == "*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let rest = match rest.split_once('?') {
        Some((rest, "")) => {
            url.force_query = true;
            rest
        }
        Some((rest, query)) => {
            url.raw_query = query.to_owned();
            rest
        }
        None => rest,
    };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if kind == Kind::Request {
            return Err(Reason::NoRequestUri);
        }
        if rest
            .split('/')
            .next()
            .is_some_and(|segment| segment.contains(':'))
        {
            return Err(Reason::ColonInFirstSegment);
        }
    }
    let may_have_authority =
        !scheme.is_empty() || (kind == Kind::Reference && !rest.starts_with("///"));
    let mut path = rest;
    if may_have_authority && let Some(body) = rest.strip_prefix("//") {
        let end = body.find('/').unwrap_or(body.len());
        let (authority, rest) = body.split_at_checked(end).unwrap_or((body, ""));
        path = rest;
        set_authority(&mut url, authority)?;
    } else if !scheme.is_empty() {
        url.omit_host = true;
    }
    url.set_path(path)?;
    Ok(url)
}

/// Splits off the scheme; it is empty if there is no valid one.
fn split_scheme(text: &str) -> Result<(&str, &str), Reason> {
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err(Reason::MissingScheme),
            b':' => return Ok(text.split_once(':').unwrap_or(("", text))),
            _ => break,
        }
    }
    Ok(("", text))
}

fn set_authority(url: &mut Url, authority: &str) -> Result<(), Reason> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        url.host = parse_host(&url.scheme, authority)?;
        return Ok(());
    };
    url.host = parse_host(&url.scheme, host)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(allowed) {
        return Err(Reason::UserInfo);
    }
    let decode = |text| unescape(text, Mode::UserPassword);
    url.user = Some(match user.split_once(':') {
        Some((name, password)) => (decode(name)?, Some(decode(password)?)),
        None => (decode(user)?, None),
    });
    Ok(())
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, Reason> {
    match host.rfind('[') {
        Some(0) => return parse_ip_literal(host),
        Some(_) => return Err(Reason::IpLiteral),
        None => {}
    }
    // Outside of HTTP, several colons are allowed, as database URLs list several hosts.
    let colon = if matches!(scheme, "http" | "https") {
        host.find(':')
    } else {
        host.rfind(':')
    };
    if let Some(port) = colon.and_then(|at| host.get(at..)) {
        check_port(port)?;
    }
    unescape(host, Mode::Host)
}

fn parse_ip_literal(host: &str) -> Result<Vec<u8>, Reason> {
    let (inner, port) = host.rsplit_once(']').ok_or(Reason::MissingBracket)?;
    check_port(port)?;
    let inner = inner.strip_prefix('[').unwrap_or(inner);
    let mut name = match inner.find("%25").and_then(|at| inner.split_at_checked(at)) {
        Some((address, zone)) => {
            let mut name = unescape(address, Mode::Host)?;
            name.extend(unescape(zone, Mode::Zone)?);
            name
        }
        None => unescape(inner, Mode::Host)?,
    };
    let parsed = ip::parse(&name).map_err(Reason::Host)?;
    if parsed.address.is_ipv4() {
        return Err(Reason::IpLiteral);
    }
    name.insert(0, b'[');
    name.push(b']');
    name.extend(port.bytes());
    Ok(name)
}

/// Rejects ports that are neither empty nor a colon followed by digits.
fn check_port(port: &str) -> Result<(), Reason> {
    let digits = port.strip_prefix(':');
    if port.is_empty() || digits.is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit())) {
        return Ok(());
    }
    Err(Reason::Port(port.to_owned()))
}
