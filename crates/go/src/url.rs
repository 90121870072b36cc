//! URLs, parsed like Go's `net/url`.

mod escape;
mod parse;
#[cfg(test)]
mod tests;

use escape::{Mode, escape, is_valid_encoded, unescape};

use crate::ip;
use crate::quote::{lossy, quote, quote_bytes};

/// The number of query parameters from which Go returns none.
const MAX_PARAMETERS: usize = 10_000;

/// A parsed URL. Decoded parts may contain any bytes.
#[derive(Clone, Debug, Default)]
pub struct Url {
    scheme: String,
    /// The part after the scheme, if it does not start with a slash.
    opaque: String,
    /// The username and the optional password.
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    host: Vec<u8>,
    path: Vec<u8>,
    /// The original path, if it differs from the default encoding.
    raw_path: String,
    raw_query: String,
    /// True for a question mark with an empty query.
    force_query: bool,
    fragment: Vec<u8>,
    raw_fragment: String,
    /// True if the scheme is directly followed by a path.
    omit_host: bool,
}

/// A string that is not a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    text: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    ControlCharacter,
    Empty,
    MissingScheme,
    NoRequestUri,
    ColonInFirstSegment,
    UserInfo,
    IpLiteral,
    MissingBracket,
    Port(String),
    Host(ip::ParseError),
    HostCharacter(char),
    Escape(Vec<u8>),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ControlCharacter => f.write_str("net/url: invalid control character in URL"),
            Self::Empty => f.write_str("empty url"),
            Self::MissingScheme => f.write_str("missing protocol scheme"),
            Self::NoRequestUri => f.write_str("invalid URI for request"),
            Self::ColonInFirstSegment => {
                f.write_str("first path segment in URL cannot contain colon")
            }
            Self::UserInfo => f.write_str("net/url: invalid userinfo"),
            Self::IpLiteral => f.write_str("invalid IP-literal"),
            Self::MissingBracket => f.write_str("missing ']' in host"),
            Self::Port(port) => write!(f, "invalid port {} after host", quote(port)),
            Self::Host(error) => write!(f, "invalid host: {error}"),
            Self::HostCharacter(c) => {
                write!(
                    f,
                    "invalid character {} in host name",
                    quote(c.encode_utf8(&mut [0; 4]))
                )
            }
            Self::Escape(part) => write!(f, "invalid URL escape {}", quote_bytes(part)),
        }
    }
}

impl std::fmt::Display for UrlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "parse {}: {}", quote(&self.text), self.reason)
    }
}

impl std::error::Error for UrlError {}

impl Url {
    /// Parses a URL, which may be relative and have a fragment, like Go's `url.Parse`.
    ///
    /// ```
    /// use lockgate_go::url::Url;
    /// let url = Url::parse("https://user@example.com:8080/a%20b?q=1#f").unwrap();
    /// assert_eq!(url.host(), "example.com:8080");
    /// assert_eq!(url.escaped_path(), "/a%20b");
    /// ```
    ///
    /// # Errors
    ///
    /// A string that is not a URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let error = |text: &str, reason| UrlError {
            text: text.to_owned(),
            reason,
        };
        let (body, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url =
            parse::parse(body, parse::Kind::Reference).map_err(|reason| error(body, reason))?;
        url.set_fragment(fragment)
            .map_err(|reason| error(text, reason))?;
        Ok(url)
    }

    /// Parses a request URI, which is absolute or an absolute path and has no fragment, like Go's
    /// `url.ParseRequestURI`.
    ///
    /// # Errors
    ///
    /// A string that is not a URL, and relative URLs.
    pub fn parse_request_uri(text: &str) -> Result<Self, UrlError> {
        parse::parse(text, parse::Kind::Request).map_err(|reason| UrlError {
            text: text.to_owned(),
            reason,
        })
    }

    /// The scheme in lower case; may be empty.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The host, with the port if any.
    #[must_use]
    pub fn host(&self) -> String {
        lossy(&self.host)
    }

    /// The host without port and brackets.
    #[must_use]
    pub fn hostname(&self) -> String {
        let (host, _) = self.split_host();
        let inner = host
            .strip_prefix(b"[")
            .and_then(|host| host.strip_suffix(b"]"));
        lossy(inner.unwrap_or(host))
    }

    /// The port; may be empty.
    #[must_use]
    pub fn port(&self) -> String {
        lossy(self.split_host().1)
    }

    fn split_host(&self) -> (&[u8], &[u8]) {
        let colon = self.host.iter().rposition(|b| *b == b':');
        if let Some((host, [_, port @ ..])) = colon.and_then(|at| self.host.split_at_checked(at))
            && port.iter().all(u8::is_ascii_digit)
        {
            return (host, port);
        }
        (&self.host, &[])
    }

    /// The original path if its encoding is valid, otherwise the encoded path.
    #[must_use]
    pub fn escaped_path(&self) -> String {
        if !self.raw_path.is_empty() && is_valid_encoded(&self.raw_path, Mode::Path) {
            return self.raw_path.clone();
        }
        if self.path == b"*" {
            return "*".to_owned();
        }
        escape(&self.path, Mode::Path)
    }

    fn escaped_fragment(&self) -> String {
        if !self.raw_fragment.is_empty() && is_valid_encoded(&self.raw_fragment, Mode::Fragment) {
            return self.raw_fragment.clone();
        }
        escape(&self.fragment, Mode::Fragment)
    }

    /// The values of each query parameter, in order of first appearance. Pairs that cannot be
    /// decoded are skipped, as in Go.
    #[must_use]
    pub fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        if self.raw_query.matches('&').count() >= MAX_PARAMETERS {
            return parameters;
        }
        let mut positions = std::collections::HashMap::new();
        for part in self.raw_query.split('&') {
            if part.is_empty() || part.contains(';') {
                continue;
            }
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (Ok(key), Ok(value)) = (unescape(key, Mode::Query), unescape(value, Mode::Query))
            else {
                continue;
            };
            let at = *positions.entry(key.clone()).or_insert_with(|| {
                parameters.push((lossy(&key), Vec::new()));
                parameters.len() - 1
            });
            if let Some((_, values)) = parameters.get_mut(at) {
                values.push(lossy(&value));
            }
        }
        parameters
    }

    /// The raw query, without the question mark.
    #[must_use]
    pub fn raw_query(&self) -> &str {
        &self.raw_query
    }

    /// The decoded fragment.
    #[must_use]
    pub fn fragment(&self) -> &[u8] {
        &self.fragment
    }

    /// `user` or `user:password`, escaped, if any.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        let (name, password) = self.user.as_ref()?;
        let mut user = escape(name, Mode::UserPassword);
        if let Some(password) = password {
            user.push(':');
            user.push_str(&escape(password, Mode::UserPassword));
        }
        Some(user)
    }

    fn set_path(&mut self, path: &str) -> Result<(), Reason> {
        self.path = unescape(path, Mode::Path)?;
        if escape(&self.path, Mode::Path) != path {
            self.raw_path = path.to_owned();
        }
        Ok(())
    }

    fn set_fragment(&mut self, fragment: &str) -> Result<(), Reason> {
        self.fragment = unescape(fragment, Mode::Fragment)?;
        if escape(&self.fragment, Mode::Fragment) != fragment {
            self.raw_fragment = fragment.to_owned();
        }
        Ok(())
    }
}

/// Two URLs are equal if their string forms are equal.
impl PartialEq for Url {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Url {}

/// Formats the URL.
impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if self.opaque.is_empty() {
            self.fmt_hierarchy(f)?;
        } else {
            f.write_str(&self.opaque)?;
        }
        if self.force_query || !self.raw_query.is_empty() {
            write!(f, "?{}", self.raw_query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.escaped_fragment())?;
        }
        Ok(())
    }
}

impl Url {
    fn fmt_hierarchy(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_authority = !self.host.is_empty() || self.user.is_some();
        if has_authority || (!self.scheme.is_empty() && !self.omit_host) {
            if has_authority || !self.path.is_empty() {
                f.write_str("//")?;
            }
            if let Some(user) = self.user() {
                write!(f, "{user}@")?;
            }
            f.write_str(&escape(&self.host, Mode::Host))?;
        }
        let path = self.escaped_path();
        if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
            f.write_str("/")?;
        }
        f.write_str(&path)
    }
}
