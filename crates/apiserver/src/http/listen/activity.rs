//! Connection activity: waiting for a request, reading its head, or answering.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::limits;

/// How often a connection is looked at.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// The activity of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    born: Instant,
    /// False on HTTP/2, where not every byte belongs to a request.
    has_heads: bool,
    answering: AtomicUsize,
    in_head: AtomicBool,
    /// In milliseconds since it was born.
    until: AtomicU64,
    /// Told whether nothing is being answered.
    idle: Arc<AtomicBool>,
}

impl Activity {
    pub(super) fn new(is_http2: bool, idle: Arc<AtomicBool>) -> Self {
        let activity = Self {
            born: Instant::now(),
            has_heads: !is_http2,
            answering: AtomicUsize::new(0),
            in_head: AtomicBool::new(false),
            until: AtomicU64::new(0),
            idle,
        };
        // Whoever shakes hands has something to say.
        activity.wait(limits::HEAD);
        activity
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wait(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let until = self.elapsed().saturating_add(time);
        self.until.store(until, Ordering::Release);
    }

    fn bytes_came(&self) {
        let is_idle = self.answering.load(Ordering::Acquire) == 0;
        if self.has_heads && is_idle && !self.in_head.swap(true, Ordering::AcqRel) {
            self.wait(limits::HEAD);
        }
    }

    /// Returns true if the connection has been idle for too long. An answer has a deadline of its
    /// own.
    pub(super) fn is_over(&self) -> bool {
        self.is_over_after(self.elapsed())
    }

    fn is_over_after(&self, milliseconds: u64) -> bool {
        let is_idle = self.answering.load(Ordering::Acquire) == 0;
        is_idle && milliseconds > self.until.load(Ordering::Acquire)
    }
}

/// A request that is being answered, until its answer is handed over or dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Busy {
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        activity.answering.fetch_add(1, Ordering::AcqRel);
        activity.in_head.store(false, Ordering::Release);
        activity.idle.store(false, Ordering::Release);
        Self(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.wait(limits::IDLE);
        if self.0.answering.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.store(true, Ordering::Release);
        }
    }
}

/// Notices when something comes.
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_came();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
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
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(time: Duration) -> u64 {
        u64::try_from(time.as_millis()).unwrap()
    }

    #[test]
    fn ends_connections_that_say_nothing() {
        let idle = Arc::new(AtomicBool::new(true));
        let activity = Arc::new(Activity::new(false, Arc::clone(&idle)));
        assert!(!activity.is_over_after(after(limits::HEAD / 2)));
        assert!(activity.is_over_after(after(limits::HEAD * 2)));
        // An answer may take its time, and then there is time for another request.
        let busy = Busy::begin(&activity);
        assert!(!idle.load(Ordering::Acquire));
        assert!(!activity.is_over_after(after(limits::IDLE * 2)));
        drop(busy);
        assert!(idle.load(Ordering::Acquire));
        assert!(!activity.is_over_after(after(limits::IDLE / 2)));
        assert!(activity.is_over_after(after(limits::IDLE * 2)));
        // The head of a request has less time than that, however often a byte of it comes.
        activity.bytes_came();
        let until = activity.until.load(Ordering::Acquire);
        assert!(until < after(limits::IDLE / 2));
        activity.bytes_came();
        assert_eq!(activity.until.load(Ordering::Acquire), until);
    }
}
