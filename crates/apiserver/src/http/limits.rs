//! Limits on input, each with its origin.

use std::time::Duration;

/// The maximum size of a request body. UPSTREAM: apiserver pkg/server/config.go
pub(crate) const BODY_BYTES: usize = 3 * 1024 * 1024;
/// The maximum nesting depth of a body. Upstream accepts 10,000 levels; here trees are copied and freed recursively,
/// and no API object comes near the limit.
pub(crate) const BODY_DEPTH: usize = 500;
/// The maximum nesting depth of stored objects and responses: an object in a list in a document.
pub(crate) const STORED_DEPTH: usize = BODY_DEPTH + 10;
/// The maximum number of operations in a JSON patch. UPSTREAM: apiserver pkg/endpoints/handlers/patch.go
pub(crate) const JSON_PATCH_OPERATIONS: usize = 10_000;
/// The time to read the rest of a body whose response is known.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);
/// The timeout of a write, whatever the client requests. UPSTREAM: apiserver pkg/endpoints/handlers/create.go
pub(crate) const WRITE: Duration = Duration::from_secs(34);
/// The time an event of a watch waits for memory; then the watch ends.
pub(crate) const WATCH_MEMORY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time a large write waits for memory for its trees; then the client must retry.
pub(crate) const TREE_MEMORY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time a read waits for a resourceVersion that the cache does not have yet. UPSTREAM: apiserver
/// pkg/storage/cacher/watch_cache.go
pub(crate) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum size of a stored object. UPSTREAM: etcd server/embed/config.go (DefaultMaxRequestBytes)
pub(crate) const STORED_BYTES: usize = 3 * 512 * 1024;
