//! Errors of parsers and decoders, which become field errors.

/// An error that consists of upstream's message, which is part of the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UpstreamError(String);

impl From<String> for UpstreamError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for UpstreamError {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<UpstreamError> for String {
    fn from(error: UpstreamError) -> Self {
        error.0
    }
}
