//! The traits through which the engine and CRD conversion call a webhook.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockgate_api::registration::hub::ClientConfig;
use lockgate_go::quote::quote;

/// Creates clients for webhooks.
pub trait Caller: Send + Sync {
    /// Returns the client of a webhook; equal configurations share one.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid. The message follows `could not get REST client: `.
    fn client(&self, config: &ClientConfig) -> Result<Arc<dyn Client>, ClientError>;
}

/// Posts reviews to one webhook.
pub trait Client: Send + Sync {
    /// Posts one review and reads the entire response.
    fn post(&self, post: Post) -> Pin<Box<dyn Future<Output = Posted> + Send + '_>>;
}

/// One call.
#[derive(Debug, Clone)]
pub struct Post {
    /// The review.
    pub body: Bytes,
    /// The deadline of the call; `None` without one.
    pub deadline: Option<Instant>,
}

/// The outcome of a call, with the duration of each phase.
#[derive(Debug)]
pub struct Posted {
    /// The response, or the error.
    pub result: Result<HttpResponse, CallError>,
    /// The completed phases, in order.
    pub phases: Vec<(Phase, Duration)>,
}

/// A complete response.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    /// The status code.
    pub code: u16,
    /// The `Content-Type`, if any.
    pub content_type: Option<String>,
    /// The decompressed body.
    pub body: Bytes,
}

/// An error creating a client. The messages are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Neither a service nor a URL is configured.
    #[error("webhook configuration must have either service or URL")]
    NoAddress,
    /// The URL does not parse.
    #[error("Unparsable URL: {0}")]
    UnparsableUrl(String),
    /// The URL has no host; contains its scheme.
    #[error("host must be a URL or a host:port pair: {}", quote(&format!("{}://", .0)))]
    NoHost(String),
    /// The CA bundle, the client certificate or other credentials are invalid.
    #[error("{0}")]
    Credentials(String),
    /// An error of another caller.
    #[error("{0}")]
    Other(String),
}

/// A call without a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The text that follows `failed to call webhook: ` in upstream's errors, such as `Post "…?timeout=1s": …`.
    pub message: String,
    /// The phase of the failure.
    pub phase: Phase,
    /// `true` if the deadline of the call expired.
    pub timed_out: bool,
}

/// A phase of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Resolving the address.
    Resolve,
    /// Connecting.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Sending the review.
    Write,
    /// Waiting for the response.
    Wait,
    /// Reading the response.
    Read,
}

/// A caller whose webhooks are an in-process function from review to review. For examples, tests and embedders without
/// network webhooks.
#[derive(Debug, Clone)]
pub struct Local<F>(Arc<F>);

impl<F> Local<F>
where
    F: Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
{
    /// Handles the reviews of every webhook with this function.
    pub fn new(answer: F) -> Self {
        Self(Arc::new(answer))
    }
}

impl<F> Caller for Local<F>
where
    F: Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
{
    fn client(&self, _: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }
}

impl<F> Client for Local<F>
where
    F: Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
{
    fn post(&self, post: Post) -> Pin<Box<dyn Future<Output = Posted> + Send + '_>> {
        let answer = HttpResponse {
            code: 200,
            content_type: Some(String::from("application/json")),
            body: Bytes::from((self.0)(&post.body)),
        };
        Box::pin(std::future::ready(Posted {
            result: Ok(answer),
            phases: Vec::new(),
        }))
    }
}
