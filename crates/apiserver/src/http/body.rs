//! Response bodies: complete, a list encoded while it is sent, an event stream, or a proxied body.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use hyper::body::{Frame, Incoming, SizeHint};

use super::in_flight::Permit;

/// A response.
pub(crate) type Response = http::Response<Body>;

/// The size of body chunks: a chunk is produced only when the reader asks for it.
const CHUNK_BYTES: usize = 64 << 10;

/// The body of a response.
#[derive(Debug)]
pub(crate) struct Body {
    content: Content,
    /// The seats and memory of the request, held until the body is sent.
    permits: Vec<Permit>,
    /// Observes the sent bytes, and is dropped when the body is sent.
    meter: Option<Box<dyn Meter>>,
}

#[derive(Debug)]
enum Content {
    /// A complete body.
    Whole(Bytes),
    /// Encoded chunk by chunk.
    Chunks(Box<dyn Chunks>),
    /// Events until the stream ends.
    Stream(Stream),
    /// A proxied body, over a connection that is reused afterwards.
    Forwarded(Incoming, Option<Box<dyn Connection>>),
}

/// A connection to another server.
pub(crate) trait Connection: fmt::Debug + Send + Sync {
    /// Called when the body has been read completely.
    fn ended(self: Box<Self>);
}

/// Measures a body while it is sent.
pub(crate) trait Meter: fmt::Debug + Send + Sync {
    /// Called with the number of bytes sent.
    fn sent(&mut self, bytes: usize);
}

/// Chunks produced on demand. The polling task owns it: the lock is never contended, and only makes it `Sync`.
struct Stream(Mutex<BoxStream<'static, Bytes>>);

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl Stream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let stream = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        stream.as_mut().poll_next(context)
    }
}

/// A body that is encoded while it is sent.
pub(crate) trait Chunks: fmt::Debug + Send + Sync {
    /// The next chunk, of about this size. `None` at the end.
    fn next(&mut self, size: usize) -> Option<Bytes>;
}

impl Body {
    /// Creates a complete body.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self {
            content: Content::Whole(bytes.into()),
            permits: Vec::new(),
            meter: None,
        }
    }

    /// Creates a body that is encoded while it is sent.
    pub(crate) fn chunks(pieces: impl Chunks + 'static) -> Self {
        Self {
            content: Content::Chunks(Box::new(pieces)),
            permits: Vec::new(),
            meter: None,
        }
    }

    /// Creates a body that ends with its stream.
    pub(crate) fn stream(stream: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Self {
        Self {
            content: Content::Stream(Stream(Mutex::new(Box::pin(stream)))),
            permits: Vec::new(),
            meter: None,
        }
    }

    /// Creates a proxied body.
    pub(crate) fn forwarded(incoming: Incoming, connection: Option<Box<dyn Connection>>) -> Self {
        Self {
            content: Content::Forwarded(incoming, connection),
            permits: Vec::new(),
            meter: None,
        }
    }

    /// Holds a seat until the entire body is sent.
    pub(crate) fn hold(&mut self, permit: Permit) {
        let is_small = matches!(&self.content, Content::Whole(bytes) if bytes.len() <= CHUNK_BYTES);
        if !is_small {
            permit.release_in_time();
        }
        self.permits.push(permit);
    }

    /// Holds a value until a streamed body is sent.
    pub(crate) fn keep(&mut self, kept: impl Any + Send) {
        if !matches!(&self.content, Content::Whole(_)) {
            self.permits.push(Permit::holding(kept));
        }
    }

    /// Measures the body while it is sent.
    pub(crate) fn measure(&mut self, meter: impl Meter + 'static) {
        self.meter = Some(Box::new(meter));
    }

    /// Holds the memory reservation until the entire body is sent. Small and streamed bodies release it.
    pub(crate) fn hold_permit(&mut self, permit: Permit) {
        if self.kept_bytes() > 0 {
            self.permits.push(permit);
        }
    }

    /// The memory of a large complete body.
    pub(crate) fn kept_bytes(&self) -> usize {
        match &self.content {
            Content::Whole(bytes) if bytes.len() > CHUNK_BYTES => bytes.len(),
            _ => 0,
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let piece = match &mut this.content {
            Content::Whole(bytes) if bytes.is_empty() => None,
            Content::Whole(bytes) => Some(bytes.split_to(bytes.len().min(CHUNK_BYTES))),
            Content::Chunks(pieces) => pieces.next(CHUNK_BYTES),
            Content::Stream(stream) => ready!(stream.poll_next(context)),
            Content::Forwarded(incoming, connection) => {
                let frame = match Pin::new(incoming).poll_frame(context) {
                    Poll::Ready(frame) => frame,
                    Poll::Pending => return Poll::Pending,
                };
                if frame.is_none() {
                    this.permits.clear();
                    this.meter = None;
                    if let Some(connection) = connection.take() {
                        connection.ended();
                    }
                }
                return Poll::Ready(frame);
            }
        };
        match (&piece, &mut this.meter) {
            (Some(bytes), Some(meter)) => meter.sent(bytes.len()),
            (Some(_), None) => {}
            (None, _) => {
                this.permits.clear();
                this.meter = None;
            }
        }
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Forwarded(incoming, _) => incoming.is_end_stream(),
            Content::Chunks(_) | Content::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Forwarded(incoming, _) => incoming.size_hint(),
            Content::Chunks(_) | Content::Stream(_) => SizeHint::default(),
        }
    }
}
