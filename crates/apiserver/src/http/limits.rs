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
/// Time to read the rest of a body whose answer is known.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);
/// Time for one write, whatever the client asks for. UPSTREAM: apiserver pkg/endpoints/handlers/create.go
pub(crate) const WRITE: Duration = Duration::from_secs(34);
/// How long a large write waits until there is room for its trees; then it is to be tried again.
pub(crate) const TREE_ROOM: Duration = Duration::from_secs(30);
/// How long a read waits for a version that is not there yet.
/// UPSTREAM: apiserver pkg/storage/cacher/watch_cache.go
pub(crate) const CATCH_UP: Duration = Duration::from_secs(3);
/// The largest object that is stored. UPSTREAM: etcd server/embed/config.go (DefaultMaxRequestBytes)
pub(crate) const STORED_BYTES: usize = 3 * 512 * 1024;
