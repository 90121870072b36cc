//! The stream under a connection, which records what error messages need.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tls;

/// The number of response bytes kept for error messages.
const HEAD: usize = 512;

/// The two addresses of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
}

impl Ends {
    pub(super) fn of(stream: &TcpStream) -> Self {
        Self {
            local: stream.local_addr().ok(),
            peer: stream.peer_addr().ok(),
        }
    }
}

/// A recording stream.
pub(super) struct Tap<S> {
    stream: S,
    notes: Arc<Notes>,
    /// The recorded bytes: the first ones ever, or the first ones after each write.
    keeps: Keeps,
}

#[derive(Clone, Copy, PartialEq)]
enum Keeps {
    First,
    FirstAfterWrite,
}

/// The recorded data of a [`Tap`].
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The first bytes read.
    head: Mutex<Vec<u8>>,
    /// The TLS error at the end of the connection, which HTTP/2 would obscure.
    refusal: Mutex<Option<String>>,
    /// The time of the last write.
    written: Mutex<Option<Instant>>,
    /// `true` while writes are blocked by the peer.
    blocked: AtomicBool,
}

impl Notes {
    pub(super) fn head(&self) -> Vec<u8> {
        lock(&self.head).clone()
    }

    pub(super) fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    pub(super) fn last_write(&self) -> Option<Instant> {
        *lock(&self.written)
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    fn note_write<T>(&self, outcome: &Poll<io::Result<T>>) {
        self.blocked.store(outcome.is_pending(), Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Tap<S> {
    /// Records the start of each response.
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            notes: Arc::default(),
            keeps: Keeps::FirstAfterWrite,
        }
    }

    /// Records the first bytes of the peer.
    pub(super) fn keeping_first(stream: S) -> Self {
        Self {
            keeps: Keeps::First,
            ..Self::new(stream)
        }
    }

    pub(super) fn notes(&self) -> Arc<Notes> {
        Arc::clone(&self.notes)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let tap = self.get_mut();
        let before = buffer.filled().len();
        match ready!(Pin::new(&mut tap.stream).poll_read(context, buffer)) {
            // Like Go, treat a connection that ends without `close_notify` as a regular end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => {
                *lock(&tap.notes.refusal) = tls::refusal(&error);
                return Poll::Ready(Err(error));
            }
            Ok(()) => {}
        }
        let fresh = &buffer.filled()[before..];
        let mut head = lock(&tap.notes.head);
        let room = HEAD.saturating_sub(head.len()).min(fresh.len());
        head.extend_from_slice(&fresh[..room]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let tap = self.get_mut();
        let outcome = Pin::new(&mut tap.stream).poll_write(context, bytes);
        tap.notes.note_write(&outcome);
        if outcome.is_ready() {
            *lock(&tap.notes.written) = Some(Instant::now());
            if tap.keeps == Keeps::FirstAfterWrite {
                lock(&tap.notes.head).clear();
            }
        }
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tap = self.get_mut();
        let outcome = Pin::new(&mut tap.stream).poll_flush(context);
        tap.notes.note_write(&outcome);
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
