//! Parsing URLs as Go's `net/url` does, as far as the registration API looks at them.
//!
//! A general URL crate follows the WHATWG rules, which accept and normalise what Go refuses, and
//! the texts of Go's refusals are part of the API.

use super::ip::{Family, check_addr};
use super::quote::{quote, quote_bytes};

/// The parts of a URL that the API has rules for, unescaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Url {
    /// In lower case; empty when there is none.
    pub scheme: String,
    /// Host and port.
    pub host: Vec<u8>,
    /// `user[:password]`, escaped again, when there is any.
    pub user: Option<String>,
    /// What follows `?`, as written.
    pub raw_query: String,
    /// What follows `#`.
    pub fragment: Vec<u8>,
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// The text of Go's error, `parse "…": …`.
    ///
    /// UPSTREAM: Go net/url/url.go (Parse).
    pub fn parse(text: &str) -> Result<Self, String> {
        let (head, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::parse_head(head)
            .map_err(|problem| format!("parse {}: {problem}", quote(head)))?;
        if !fragment.is_empty() {
            url.fragment = unescape(fragment.as_bytes(), Part::Other)
                .map_err(|problem| format!("parse {}: {problem}", quote(text)))?;
        }
        Ok(url)
    }

    fn parse_head(text: &str) -> Result<Self, String> {
        let mut url = Self::default();
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(String::from("net/url: invalid control character in URL"));
        }
        if text == "*" {
            return Ok(url);
        }
        let (scheme, mut rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        if let Some((before, query)) = rest.split_once('?') {
            rest = before;
            query.clone_into(&mut url.raw_query);
        }
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                return Ok(url);
            }
            if rest
                .split('/')
                .next()
                .is_some_and(|segment| segment.contains(':'))
            {
                return Err(String::from(
                    "first path segment in URL cannot contain colon",
                ));
            }
        }
        if (!url.scheme.is_empty() || !rest.starts_with("///"))
            && let Some(after) = rest.strip_prefix("//")
        {
            let end = after.find('/').unwrap_or(after.len());
            let authority;
            (authority, rest) = after.split_at(end);
            url.set_authority(authority)?;
        }
        unescape(rest.as_bytes(), Part::Other)?;
        Ok(url)
    }

    fn set_authority(&mut self, authority: &str) -> Result<(), String> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = parse_host(&self.scheme, host)?;
        let Some(user) = user else { return Ok(()) };
        if !user.bytes().all(is_userinfo) {
            return Err(String::from("net/url: invalid userinfo"));
        }
        let shown = match user.split_once(':') {
            Some((name, password)) => {
                let name = escape_user(&unescape(name.as_bytes(), Part::Other)?);
                let password = escape_user(&unescape(password.as_bytes(), Part::Other)?);
                format!("{name}:{password}")
            }
            None => escape_user(&unescape(user.as_bytes(), Part::Other)?),
        };
        self.user = Some(shown);
        Ok(())
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(String::from("missing protocol scheme")),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    match host.rfind('[') {
        Some(0) => return parse_ip_literal(host),
        Some(_) => return Err(String::from("invalid IP-literal")),
        None => {}
    }
    // Web URLs have one colon at most; elsewhere the last one starts the port.
    let colon = if matches!(scheme, "http" | "https") {
        host.find(':')
    } else {
        host.rfind(':')
    };
    if let Some(colon) = colon {
        check_port(&host[colon..])?;
    }
    unescape(host.as_bytes(), Part::Host)
}

fn parse_ip_literal(host: &str) -> Result<Vec<u8>, String> {
    let close = host.rfind(']').ok_or("missing ']' in host")?;
    let (literal, port) = (&host[1..close], &host[close + 1..]);
    check_port(port)?;
    let address = match literal.find("%25") {
        Some(zone) => {
            let (address, zone) = literal.split_at(zone);
            let mut whole = unescape(address.as_bytes(), Part::Host)?;
            whole.extend(unescape(zone.as_bytes(), Part::Zone)?);
            whole
        }
        None => unescape(literal.as_bytes(), Part::Host)?,
    };
    match check_addr(&address) {
        Ok(Family::V6) => Ok(host.as_bytes().to_vec()),
        Ok(Family::V4) => Err(String::from("invalid IP-literal")),
        Err(problem) => Err(format!("invalid host: {problem}")),
    }
}

fn check_port(colon_port: &str) -> Result<(), String> {
    let digits = match colon_port.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => colon_port.is_empty(),
    };
    if digits {
        Ok(())
    } else {
        Err(format!("invalid port {} after host", quote(colon_port)))
    }
}

/// Where a `%` escape stands; the rules differ for hosts.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Host,
    Zone,
    Other,
}

fn unescape(text: &[u8], part: Part) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        if *byte != b'%' {
            if part != Part::Other && byte.is_ascii() && !is_host_byte(*byte) {
                let shown = quote_bytes(&[*byte]);
                return Err(format!("invalid character {shown} in host name"));
            }
            out.push(*byte);
            rest = after;
            continue;
        }
        let invalid = || {
            let shown = quote_bytes(rest.get(..3).unwrap_or(rest));
            Err(format!("invalid URL escape {shown}"))
        };
        let hex = |byte: &u8| {
            char::from(*byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let (Some(high), Some(low)) = (after.first().and_then(hex), after.get(1).and_then(hex))
        else {
            return invalid();
        };
        let decoded = high << 4 | low;
        // In a host only bytes beyond ASCII and the percent sign may be escaped; in a zone also
        // what could be written plainly, and the space.
        let allowed = decoded == b'%'
            || match part {
                Part::Host => high >= 8,
                Part::Zone => decoded == b' ' || is_host_byte(decoded),
                Part::Other => true,
            };
        if !allowed {
            return invalid();
        }
        out.push(decoded);
        rest = &after[2..];
    }
    Ok(out)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

fn is_host_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn is_userinfo(byte: u8) -> bool {
    is_unreserved(byte) || b":!$&'()*+,;=%@".contains(&byte)
}

fn escape_user(text: &[u8]) -> String {
    let mut out = String::new();
    for &byte in text {
        if is_unreserved(byte) || b"$&+,;=".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_urls_apart() {
        let url = Url::parse("HTTPS://u%40:p%20@example.com:8443/a?b=c#d%20e").unwrap();
        assert_eq!(url.scheme, "https");
        assert_eq!(url.host, b"example.com:8443");
        assert_eq!(url.user.as_deref(), Some("u%40:p%20"));
        assert_eq!(url.raw_query, "b=c");
        assert_eq!(url.fragment, b"d e");
    }

    #[test]
    fn refuses_in_the_words_of_go() {
        for (text, want) in [
            (
                "https://[::1",
                "parse \"https://[::1\": missing ']' in host",
            ),
            (
                "https://a[::1]",
                "parse \"https://a[::1]\": invalid IP-literal",
            ),
            (
                "https://[1.2.3.4]",
                "parse \"https://[1.2.3.4]\": invalid IP-literal",
            ),
            (
                "https://[zz]",
                "parse \"https://[zz]\": invalid host: ParseAddr(\"zz\"): unable to parse IP",
            ),
            (
                "https://a:b",
                "parse \"https://a:b\": invalid port \":b\" after host",
            ),
            (
                "https://a:1:2",
                "parse \"https://a:1:2\": invalid port \":1:2\" after host",
            ),
            (
                "https://a b",
                "parse \"https://a b\": invalid character \" \" in host name",
            ),
            (
                "https://a%zz",
                "parse \"https://a%zz\": invalid URL escape \"%zz\"",
            ),
            (
                "https://a/%z",
                "parse \"https://a/%z\": invalid URL escape \"%z\"",
            ),
            (
                "https://a#%zz",
                "parse \"https://a#%zz\": invalid URL escape \"%zz\"",
            ),
            (":x", "parse \":x\": missing protocol scheme"),
            (
                "1:x",
                "parse \"1:x\": first path segment in URL cannot contain colon",
            ),
            (
                "https://a b@c",
                "parse \"https://a b@c\": net/url: invalid userinfo",
            ),
            (
                "a\nb",
                "parse \"a\\nb\": net/url: invalid control character in URL",
            ),
        ] {
            assert_eq!(Url::parse(text).unwrap_err(), want, "{text}");
        }
    }

    #[test]
    fn accepts_what_go_accepts() {
        for text in [
            "",
            "*",
            "mailto:a:b",
            "https://[::1]:443/x",
            "https://[fe80::1%25en0]",
            "https://é",
            "//h",
        ] {
            assert!(Url::parse(text).is_ok(), "{text}");
        }
    }
}
