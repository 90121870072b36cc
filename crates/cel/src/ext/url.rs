//! The function `url`.

use std::fmt;

use lockgate_go::url::{Url, UrlError};

/// A string that is neither an absolute URL nor an absolute path.
#[derive(Debug)]
pub(crate) struct ConversionError(UrlError);

// UPSTREAM: k8s.io/apiserver/pkg/cel/library/urls.go (stringToUrl).
impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        write!(f, "URL parse error during conversion from string: {error}")
    }
}

/// `url(text)`: upstream validates the string as a request URI, and parses it as a reference.
pub(crate) fn parse(text: &str) -> Result<Url, ConversionError> {
    Url::parse_request_uri(text).map_err(ConversionError)?;
    Url::parse(text).map_err(ConversionError)
}

/// `isURL(text)`, which accepts fragments that [`parse`] rejects.
pub(crate) fn is_valid(text: &str) -> bool {
    Url::parse_request_uri(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_either_reading_refuses() {
        for (text, want) in [
            ("a", "parse \"a\": invalid URI for request"),
            // These two are valid request URIs, but not when parsed again.
            (
                "//a b",
                "parse \"//a b\": invalid character \" \" in host name",
            ),
            ("/?#%zz", "parse \"/?#%zz\": invalid URL escape \"%zz\""),
        ] {
            assert_eq!(
                parse(text).unwrap_err().to_string(),
                format!("URL parse error during conversion from string: {want}")
            );
        }
        assert!(is_valid("//a b"));
        assert!(!is_valid("a"));
    }
}
