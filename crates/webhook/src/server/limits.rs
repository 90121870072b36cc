//! Limits and timeouts of the server.

use std::time::Duration;

/// The limits of a server. Any client that can reach it may send anything, so everything is limited.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum review size, as in controller-runtime: two objects of 3 MiB, and the rest.
    pub body_bytes: usize,
    /// The total size of all reviews in progress.
    pub buffered_bytes: usize,
    /// The maximum size of a request head.
    pub header_bytes: usize,
    /// The timeout of a request head.
    pub header_timeout: Duration,
    /// The timeout of a TLS handshake.
    pub handshake_timeout: Duration,
    /// The idle timeout of a connection.
    pub idle_timeout: Duration,
    /// The maximum duration of a review, including reading it. The API server's own timeout, which it sends, may be
    /// shorter.
    pub request_timeout: Duration,
    /// The maximum number of connections. At the limit, the peer with the most connections loses its oldest idle one;
    /// if none is idle, new connections are closed.
    pub connections: usize,
    /// The maximum number of concurrent reviews per webhook.
    pub in_flight: usize,
    /// The queue length per webhook; further reviews are rejected with 429.
    pub queued: usize,
    /// The maximum number of streams per HTTP/2 connection.
    pub streams: u32,
}

/// The default size of buffered reviews without a memory limit.
const BUFFERED: u64 = 256 << 20;

/// A quarter of the memory: a review is held as bytes, decoded, and in its response.
fn buffered_bytes(memory: Option<u64>) -> usize {
    let most = memory.map_or(BUFFERED, |bytes| (bytes / 4).min(BUFFERED));
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// The memory limit of the container, if any.
fn memory_limit() -> Option<u64> {
    let files = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    files
        .into_iter()
        .find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 7 << 20,
            buffered_bytes: buffered_bytes(memory_limit()),
            header_bytes: 64 << 10,
            header_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            request_timeout: Duration::from_secs(30),
            connections: 1024,
            in_flight: 256,
            queued: 512,
            streams: 64,
        }
    }
}

impl Limits {
    /// Sets the maximum review size.
    #[must_use]
    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Sets the total size of all reviews in progress.
    #[must_use]
    pub fn buffered_bytes(mut self, bytes: usize) -> Self {
        self.buffered_bytes = bytes;
        self
    }

    /// Sets the maximum size of a request head.
    #[must_use]
    pub fn header_bytes(mut self, bytes: usize) -> Self {
        self.header_bytes = bytes;
        self
    }

    /// Sets the timeout of a request head.
    #[must_use]
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// Sets the timeout of a TLS handshake.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets the idle timeout of a connection.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets the maximum duration of a review.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets the maximum number of connections.
    #[must_use]
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// Sets the maximum number of concurrent reviews per webhook.
    #[must_use]
    pub fn in_flight(mut self, count: usize) -> Self {
        self.in_flight = count;
        self
    }

    /// Sets the queue length per webhook.
    #[must_use]
    pub fn queued(mut self, count: usize) -> Self {
        self.queued = count;
        self
    }

    /// The connection limits.
    pub(super) fn listener(&self) -> lockgate_listener::Limits {
        lockgate_listener::Limits {
            connections: self.connections,
            handshake: self.handshake_timeout,
            head: self.header_timeout,
            idle: self.idle_timeout,
            header_bytes: self.header_bytes,
            streams: self.streams,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_no_more_than_a_quarter_of_the_memory() {
        assert_eq!(buffered_bytes(Some(128 << 20)), 32 << 20);
        assert_eq!(buffered_bytes(Some(64 << 30)), 256 << 20);
        assert_eq!(buffered_bytes(None), 256 << 20);
    }
}
