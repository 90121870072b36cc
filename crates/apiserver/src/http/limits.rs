//! Bounds on what comes from outside, each with its origin.

use std::time::Duration;

/// The largest body of a request. UPSTREAM: apiserver pkg/server/config.go
pub(crate) const BODY_BYTES: usize = 3 * 1024 * 1024;
/// How deep a body may nest. Upstream reads 10,000 levels; here trees are copied and freed level by
/// level on the stack, and no object of the API comes near.
pub(crate) const BODY_DEPTH: usize = 500;
/// How deep what is stored and what is answered may nest: an object in a list in a document.
pub(crate) const STORED_DEPTH: usize = BODY_DEPTH + 10;
/// The most operations of a JSON patch. UPSTREAM: apiserver pkg/endpoints/handlers/patch.go
pub(crate) const JSON_PATCH_OPERATIONS: usize = 10_000;
/// Time for a TLS handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time to send the head of a request.
pub(crate) const HEAD: Duration = Duration::from_secs(30);
/// Time between two requests of a connection.
pub(crate) const IDLE: Duration = Duration::from_secs(180);
/// The largest head of a request on HTTP/2. UPSTREAM: Go net/http (DefaultMaxHeaderBytes)
pub(crate) const HEADER_BYTES: u32 = 1 << 20;
/// Time to read the rest of a body whose answer is known.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);
/// Streams of one HTTP/2 connection. UPSTREAM: apiserver pkg/server/secure_serving.go
pub(crate) const STREAMS: u32 = 250;
/// Time for one write, whatever the client asks for. UPSTREAM: apiserver pkg/endpoints/handlers/create.go
pub(crate) const WRITE: Duration = Duration::from_secs(34);
/// Events of a watch that wait for a slow client; then its connection is not read from the store any
/// further, and it falls behind until it is cut off.
pub(crate) const WATCH_BACKLOG: usize = 100;
/// How long a read waits for a version that is not there yet.
/// UPSTREAM: apiserver pkg/storage/cacher/watch_cache.go
pub(crate) const CATCH_UP: Duration = Duration::from_secs(3);
/// The largest object that is stored. UPSTREAM: etcd server/embed/config.go (DefaultMaxRequestBytes)
pub(crate) const STORED_BYTES: usize = 3 * 512 * 1024;

/// How many connections there may be: half of the descriptors a process may have, for the other half
/// is for files and webhooks.
pub(crate) fn connections() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    soft.map_or(512, |files| files / 2).clamp(16, 8192)
}
