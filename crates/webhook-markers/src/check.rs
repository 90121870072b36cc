//! Validates values, as far as possible without an API server. The generated manifests are validated with all rules of
//! the API.

use std::fmt;

/// The maximum length of a webhook name, in bytes.
const MAX_NAME: usize = 253;

/// Returns true for a domain name in lower case.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= MAX_NAME
        && text.split('.').all(|label| {
            let bytes = label.as_bytes();
            is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().copied().all(allowed)
        })
}

/// Checks the name of a webhook.
pub(crate) fn name(text: &str) -> Result<(), (String, &'static str)> {
    const EXAMPLE: &str = "a name looks like `pods.policy.example.com`";
    if !is_subdomain(text) {
        let message = format!(
            "name `{text}` is not a domain: lower case letters, digits and `-`, in segments joined by `.`"
        );
        return Err((message, EXAMPLE));
    }
    let segments = text.split('.').count();
    if segments < 3 {
        let message = format!("name `{text}` has {segments} of at least 3 segments");
        return Err((message, EXAMPLE));
    }
    Ok(())
}

/// An invalid webhook path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PathError<'t> {
    NoSlash(&'t str),
    Segment { segment: &'t str, path: &'t str },
}

impl fmt::Display for PathError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlash(path) => write!(f, "path `{path}` does not start with `/`"),
            Self::Segment { segment, path } => write!(
                f,
                "segment `{segment}` of path `{path}` is not lower case letters, digits, `-` and `.`"
            ),
        }
    }
}

/// Checks a path.
// UPSTREAM: apiserver pkg/util/webhook/validation.go: each segment must be a domain name.
pub(crate) fn path(text: &str) -> Result<(), PathError<'_>> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(PathError::NoSlash(text));
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() && text.len() == 1 {
        return Ok(());
    }
    let wrong = rest.split('/').find(|segment| !is_subdomain(segment));
    wrong.map_or(Ok(()), |segment| {
        Err(PathError::Segment {
            segment,
            path: text,
        })
    })
}

/// An invalid webhook URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UrlError<'t> {
    NotHttps(&'t str),
    Character { character: char, url: &'t str },
    NoHost(&'t str),
}

impl fmt::Display for UrlError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttps(url) => write!(f, "url `{url}` does not start with `https://`"),
            Self::Character { character, url } => write!(
                f,
                "url `{url}` has a `{character}`: only a host, a port and a path may be given"
            ),
            Self::NoHost(url) => write!(f, "url `{url}` has no host"),
        }
    }
}

/// Checks a URL and returns its path.
pub(crate) fn url(text: &str) -> Result<String, UrlError<'_>> {
    let Some(rest) = text.strip_prefix("https://") else {
        return Err(UrlError::NotHttps(text));
    };
    if let Some(character) = rest
        .chars()
        .find(|c| "?#@".contains(*c) || c.is_whitespace())
    {
        return Err(UrlError::Character {
            character,
            url: text,
        });
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || host.starts_with(':') {
        return Err(UrlError::NoHost(text));
    }
    Ok(format!("/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_domains_with_three_segments() {
        assert_eq!(name("vpod-v1.kb.io"), Ok(()));
        for wrong in ["a.b", "A.b.c", "a..c", "-a.b.c", "a_b.c.d", "", "a.b.c."] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert!(name(&format!("{}.b.c", "a".repeat(250))).is_err());
    }

    #[test]
    fn paths_start_with_a_slash() {
        for right in ["/", "/validate--v1-pod", "/a/b", "/a/"] {
            assert_eq!(path(right), Ok(()), "{right}");
        }
        for wrong in ["", "a", "//", "/a//b", "/A", "/a_b", "/a?b"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn urls_are_secure_and_bare() {
        assert_eq!(url("https://a.example:8443/x/y"), Ok(String::from("/x/y")));
        assert_eq!(url("https://a.example"), Ok(String::from("/")));
        for wrong in [
            "http://a/x",
            "https:///x",
            "https://:1/x",
            "https://u@a/",
            "https://a/?b",
            "https://a/#b",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }
}
