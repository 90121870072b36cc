//! The traits through which the engine and CRD conversion call a webhook.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockgate_api::registration::hub::ClientConfig;
use lockgate_go::quote::quote;

/// Makes clients for webhooks.
pub trait Caller: Send + Sync {
    /// Makes the client for a webhook, or returns the one that equal configurations share.
    ///
    /// # Errors
    ///
    /// The configuration cannot be used. The text is what follows `could not get REST client: `.
    fn client(&self, config: &ClientConfig) -> Result<Arc<dyn Client>, ClientError>;
}

/// Posts reviews to one webhook.
pub trait Client: Send + Sync {
    /// Posts one review and reads the answer to its end.
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

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    /// The status code.
    pub code: u16,
    /// The `Content-Type`, when there is one.
    pub content_type: Option<String>,
    /// The body, unzipped.
    pub body: Bytes,
}

/// A client that cannot be made. The texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Neither a service nor a URL is configured.
    #[error("webhook configuration must have either service or URL")]
    NoAddress,
    /// The URL does not parse.
    #[error("Unparsable URL: {0}")]
    UnparsableUrl(String),
    /// The URL has no host; its scheme is kept.
    #[error("host must be a URL or a host:port pair: {}", quote(&format!("{}://", .0)))]
    NoHost(String),
    /// The CA bundle, the client certificate or other credentials cannot be used.
    #[error("{0}")]
    Credentials(String),
    /// A failure of another caller.
    #[error("{0}")]
    Other(String),
}

/// A call that got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The text upstream shows after `failed to call webhook: `, such as `Post "…?timeout=1s": …`.
    pub message: String,
    /// The phase of the failure.
    pub phase: Phase,
    /// `true` if the deadline of the call ended it.
    pub timed_out: bool,
}

/// A phase of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Finding the address.
    Resolve,
    /// Reaching it.
    Connect,
    /// Shaking hands.
    Tls,
    /// Sending the review.
    Write,
    /// Waiting for the answer to begin.
    Wait,
    /// Reading the answer.
    Read,
}

/// A caller whose webhooks are a function of this process: review in, review out. For examples, tests
/// and embedders whose webhooks need no network.
#[derive(Debug, Clone)]
pub struct Local<F>(Arc<F>);

impl<F> Local<F>
where
    F: Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
{
    /// Answers the reviews of every webhook with this function.
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
