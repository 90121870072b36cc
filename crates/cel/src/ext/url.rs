//! The function `url`.

use std::fmt;

use lockgate_go::url::{Url, UrlError};

/// A text that is no absolute URL and no absolute path.
#[derive(Debug)]
pub(crate) struct ConversionError(UrlError);

// UPSTREAM: k8s.io/apiserver/pkg/cel/library/urls.go (stringToUrl).
impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        write!(f, "URL parse error during conversion from string: {error}")
    }
}

/// `url(text)`: upstream checks the text as a request would carry it, and parses it as a reference.
pub(crate) fn parse(text: &str) -> Result<Url, ConversionError> {
    Url::parse_request_uri(text).map_err(ConversionError)?;
    Url::parse(text).map_err(ConversionError)
}

/// `isURL(text)`, which accepts fragments that [`parse`] refuses.
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
            // These two pass as requests, but not when read again.
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
