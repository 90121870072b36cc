//! The activity of a connection: waiting for a request, reading a request head, responding, or waiting for the client
//! to read.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::Limits;

/// The activity of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    born: Instant,
    idle: Duration,
    head: Duration,
    /// True for HTTP/1; on HTTP/2, received bytes need not be a request.
    has_heads: bool,
    /// True before the first request.
    fresh: AtomicBool,
    /// The number of requests in progress on the server.
    working: AtomicUsize,
    in_head: AtomicBool,
    /// The deadline, in milliseconds since the connection was created.
    until: AtomicU64,
    /// Set while no request is in progress.
    is_idle: Arc<AtomicBool>,
}

impl Activity {
    pub(crate) fn new(limits: &Limits, is_http2: bool, is_idle: Arc<AtomicBool>) -> Self {
        let activity = Self {
            born: Instant::now(),
            idle: limits.idle,
            head: limits.head,
            has_heads: !is_http2,
            fresh: AtomicBool::new(true),
            working: AtomicUsize::new(0),
            in_head: AtomicBool::new(false),
            until: AtomicU64::new(0),
            is_idle,
        };
        // The handshake counts as activity.
        activity.wait(activity.head);
        activity
    }

    /// The interval of idle checks.
    pub(crate) fn tick(&self) -> Duration {
        let shortest = self.idle.min(self.head) / 4;
        shortest.clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    /// Sets the timeout of the first request on a silent connection.
    pub(crate) fn hurry(&self, time: Duration) {
        self.wait(time.min(self.head));
    }

    /// Returns `true` before the first request.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Acquire)
    }

    /// Returns true if the client was inactive for too long. Requests in progress have their own deadline.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over_after(self.elapsed())
    }

    fn is_over_after(&self, milliseconds: u64) -> bool {
        let is_idle = self.working.load(Ordering::Acquire) == 0;
        is_idle && milliseconds > self.until.load(Ordering::Acquire)
    }

    fn elapsed(&self) -> u64 {
        milliseconds(self.born.elapsed())
    }

    fn wait(&self, time: Duration) {
        let until = self.elapsed().saturating_add(milliseconds(time));
        self.until.store(until, Ordering::Release);
    }

    fn bytes_came(&self) {
        let is_idle = self.working.load(Ordering::Acquire) == 0;
        if self.has_heads && is_idle && !self.in_head.swap(true, Ordering::AcqRel) {
            self.wait(self.head);
        }
    }

    fn begin(&self) {
        self.working.fetch_add(1, Ordering::AcqRel);
        self.is_idle.store(false, Ordering::Release);
    }

    fn end(&self) {
        self.wait(self.idle);
        if self.working.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.is_idle.store(true, Ordering::Release);
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A request in progress, until its response is complete or dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    activity: Arc<Activity>,
    /// False while the client must read the response.
    is_working: bool,
}

impl Busy {
    pub(crate) fn begin(activity: &Arc<Activity>) -> Self {
        activity.begin();
        activity.fresh.store(false, Ordering::Release);
        activity.in_head.store(false, Ordering::Release);
        Self {
            activity: Arc::clone(activity),
            is_working: true,
        }
    }

    fn set_working(&mut self, is_working: bool) {
        if self.is_working != is_working {
            self.is_working = is_working;
            if is_working {
                self.activity.begin();
            } else {
                self.activity.end();
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set_working(false);
    }
}

/// The body of a response. The turn depends on polling: after a chunk it is the client's, which must free the window;
/// otherwise it is the server's.
#[derive(Debug)]
pub(crate) struct ResponseBody<B> {
    body: B,
    busy: Option<Busy>,
}

impl<B> ResponseBody<B> {
    pub(crate) fn new(body: B, busy: Busy) -> Self {
        Self {
            body,
            busy: Some(busy),
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(busy) = &mut this.busy {
            busy.set_working(true);
        }
        let polled = Pin::new(&mut this.body).poll_frame(context);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(_))) => {
                if let Some(busy) = &mut this.busy {
                    busy.set_working(false);
                }
            }
            Poll::Ready(_) => this.busy = None,
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The number of bytes that a connection reads or writes per turn: two TLS records. A small request waits for one
/// turn of each large response in progress, and there may be a hundred.
const TURN: usize = 32 << 10;

/// The remaining budget of a connection before it yields to others on its thread.
#[derive(Debug)]
struct Turn(usize);

impl Turn {
    /// Starts a read or write. Pending if the turn is over: the task yields and is polled again after other ready
    /// tasks.
    fn begin(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.0 > 0 {
            return Poll::Ready(());
        }
        self.0 = TURN;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Records read or written bytes. Waiting for more starts a new turn.
    fn spend<T>(&mut self, polled: &Poll<std::io::Result<T>>, bytes: impl FnOnce(&T) -> usize) {
        match polled {
            Poll::Ready(Ok(done)) => self.0 = self.0.saturating_sub(bytes(done)),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.0 = TURN,
        }
    }
}

/// A connection that records received bytes, and takes turns with others.
pub(crate) struct MonitoredStream<S> {
    stream: S,
    activity: Arc<Activity>,
    reading: Turn,
    writing: Turn,
}

impl<S> MonitoredStream<S> {
    pub(crate) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            activity,
            reading: Turn(TURN),
            writing: Turn(TURN),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.reading.begin(context));
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let came = buffer.filled().len().saturating_sub(before);
        self.reading.spend(&read, |()| came);
        if came > 0 {
            self.activity.bytes_came();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        ready!(self.writing.begin(context));
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.writing.spend(&written, |bytes| *bytes);
        written
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        ready!(self.writing.begin(context));
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.writing.spend(&written, |bytes| *bytes);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Accepts all writes immediately.
    struct Sink;

    impl AsyncWrite for Sink {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Ok(bytes.len().min(16 << 10)))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_large_answer_lets_others_go_first() {
        let idle = Arc::new(AtomicBool::new(true));
        let activity = Arc::new(Activity::new(&Limits::default(), false, idle));
        let mut connection = MonitoredStream::new(Sink, activity);
        let bytes = vec![0; 8 * TURN];
        let mut writing = Box::pin(connection.write_all(&bytes));
        let mut turns = 0;
        poll_fn(|context| {
            turns += 1;
            writing.as_mut().poll(context)
        })
        .await
        .unwrap();
        assert_eq!(turns, 8);
    }

    fn after(time: Duration) -> u64 {
        milliseconds(time)
    }

    #[test]
    fn ends_connections_that_say_nothing() {
        let limits = Limits::default();
        let idle = Arc::new(AtomicBool::new(true));
        let activity = Arc::new(Activity::new(&limits, false, Arc::clone(&idle)));
        assert!(!activity.is_over_after(after(limits.head / 2)));
        assert!(activity.is_over_after(after(limits.head * 2)));
        // The response is still in progress after the timeout, and then the idle timeout starts.
        let mut busy = Busy::begin(&activity);
        assert!(!idle.load(Ordering::Acquire));
        assert!(!activity.is_over_after(after(limits.idle * 2)));
        // The timeout runs while the client does not read.
        busy.set_working(false);
        assert!(idle.load(Ordering::Acquire));
        assert!(!activity.is_over_after(after(limits.idle / 2)));
        assert!(activity.is_over_after(after(limits.idle * 2)));
        busy.set_working(true);
        assert!(!activity.is_over_after(after(limits.idle * 2)));
        drop(busy);
        assert!(idle.load(Ordering::Acquire));
        assert!(!activity.is_over_after(after(limits.idle / 2)));
        assert!(activity.is_over_after(after(limits.idle * 2)));
        // The timeout of a request head is shorter, and is not extended by further bytes.
        activity.bytes_came();
        let until = activity.until.load(Ordering::Acquire);
        assert!(until < after(limits.idle / 2));
        activity.bytes_came();
        assert_eq!(activity.until.load(Ordering::Acquire), until);
    }
}
