//! Limits and timeouts of connections.

use std::time::Duration;

/// The limits of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of connections.
    pub connections: usize,
    /// The handshake timeout.
    pub handshake: Duration,
    /// The timeout for a request head, and for the first request after the handshake.
    pub head: Duration,
    /// The timeout between two requests, and between two reads of a response by its client.
    pub idle: Duration,
    /// The maximum size of a request head.
    pub header_bytes: usize,
    /// The maximum number of streams per HTTP/2 connection.
    pub streams: u32,
}

impl Limits {
    /// The open file limit of the process, if known.
    #[must_use]
    pub fn open_files() -> Option<usize> {
        let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
        let mut lines = limits.lines();
        let line = lines.find(|line| line.starts_with("Max open files"))?;
        line.split_whitespace().nth(3)?.parse().ok()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: connections(),
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            idle: Duration::from_secs(180),
            // Go's limit is 1 MiB. Half a request head is buffered per client, and a thousand clients may send
            // one; proxies in front of an API server allow half of this.
            header_bytes: 128 << 10,
            // UPSTREAM: apiserver pkg/server/secure_serving.go
            streams: 250,
        }
    }
}

/// Half of the open file limit; the other half is for files and for outgoing connections.
fn connections() -> usize {
    Limits::open_files()
        .map_or(512, |files| files / 2)
        .clamp(16, 8192)
}
