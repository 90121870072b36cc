//! A history checker: verifies that the operations and results of a store's clients are possible for a store
//! with the contract's guarantees.
//!
//! ```text
//!   Recorded<S>  ──records──►  Recorder  ──►  check  ──►  violations
//! ```
//!
//! Every change of the store has a revision, and so has every state that a read returns. That makes checking
//! efficient, which is hard in general: changes are ordered by revision, and everything that was observed is
//! compared with that order.
//!
//! - **Linearizable.** Each write was applied to the state of its revision, and each read returns the state of
//!   its revision. No operation is ordered before one that had returned when it was invoked.
//! - **Consistent lists.** A page contains every key of its range at one revision, and nothing else.
//! - **Watches** are ordered, unique (no event twice), reliable (no event missing up to the last event or
//!   bookmark), resumable (the same events from their start revision) and bookmarkable (no older event after a
//!   bookmark).
//!
//! An operation with an unknown outcome may have been applied or not: it is a violation only if it was applied
//! twice, or to an unexpected state.
//!
//! Time is a logical clock. Operations on several stores with a shared recorder, such as replicas, are
//! compared with each other.

mod check;
mod recorded;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::{Entry, ReadAt, Revision};

pub use check::{Violation, check};
pub use recorded::Recorded;

/// A logical timestamp.
pub type Time = u64;

/// An invoked operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Creates a key, which may expire.
    Create {
        /// The key.
        key: Arc<str>,
        /// The value.
        value: Bytes,
        /// True if the store may delete the key by expiry.
        expires: bool,
    },
    /// Updates a value.
    Update {
        /// The key.
        key: Arc<str>,
        /// The expected revision.
        expected: Revision,
        /// The new value.
        value: Bytes,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: Arc<str>,
        /// The expected revision.
        expected: Revision,
    },
    /// Reads a key.
    Get {
        /// The key.
        key: Arc<str>,
        /// The requested state.
        at: ReadAt,
    },
    /// Lists keys.
    List {
        /// The prefix of the keys.
        prefix: String,
        /// The requested state.
        at: ReadAt,
        /// Only keys after this one.
        after: Option<String>,
        /// The maximum number of entries.
        limit: Option<usize>,
    },
}

/// The result of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationResult {
    /// Written at this revision, or the expected one for a no-op.
    Written(Revision),
    /// Rejected: this is the current entry.
    Conflict(Entry),
    /// Rejected: the key does not exist.
    NotFound,
    /// The entry of the key at this revision.
    Found(Option<Entry>, Revision),
    /// The entries at this revision, and the number of remaining ones.
    Listed(Vec<Arc<Entry>>, Revision, usize),
    /// Not applied, without information about the store.
    Rejected,
    /// Unknown whether it was applied.
    Unknown,
}

/// An operation with its result.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The time of its invocation.
    pub invoked: Time,
    /// The time of its result.
    pub returned: Time,
    /// The operation.
    pub call: Call,
    /// The result.
    pub answer: OperationResult,
}

/// A change, from a watch or the result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision.
    pub revision: Revision,
    /// The key.
    pub key: Arc<str>,
    /// The new value; `None` for a deletion.
    pub value: Option<Bytes>,
    /// The previous state.
    pub before: Before,
}

/// The state of a key before a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// Not included in the watch.
    Unknown,
    /// The key did not exist.
    Nothing,
    /// The revision and the value.
    Entry(Revision, Bytes),
}

/// An event or bookmark of a watch.
#[derive(Debug, Clone)]
pub enum Seen {
    /// A change.
    Event(Change),
    /// All changes up to this revision were returned.
    Bookmark(Revision),
}

/// A watch from start to end.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The prefix.
    pub prefix: String,
    /// The start revision, exclusive.
    pub after: Revision,
    /// True if some changes were filtered, so that gaps are not violations.
    pub is_filtered: bool,
    /// Everything it returned, with timestamps.
    pub seen: Vec<(Time, Seen)>,
}

/// All operations and watches of the clients.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The operations, in any order.
    pub operations: Vec<Operation>,
    /// The watches.
    pub watches: Vec<Watched>,
    /// True with other writers: a change without an operation is not a violation.
    pub has_other_writers: bool,
}

/// Records a history. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    clock: Arc<AtomicU64>,
    history: Arc<Mutex<History>>,
}

impl Recorder {
    /// Creates a recorder with an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The current time. Take it before invoking an operation.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records an operation that returns now.
    pub fn record(&self, invoked: Time, call: Call, answer: OperationResult) {
        let returned = self.now();
        self.lock().operations.push(Operation {
            invoked,
            returned,
            call,
            answer,
        });
    }

    /// Records the start of a watch; returns its index.
    #[must_use]
    pub fn watch(&self, prefix: &str, after: Revision, is_filtered: bool) -> usize {
        let mut history = self.lock();
        history.watches.push(Watched {
            prefix: prefix.to_owned(),
            after,
            is_filtered,
            seen: Vec::new(),
        });
        history.watches.len() - 1
    }

    /// Records an item that a watch returned now.
    pub fn saw(&self, watch: usize, seen: Seen) {
        let now = self.now();
        if let Some(watch) = self.lock().watches.get_mut(watch) {
            watch.seen.push((now, seen));
        }
    }

    /// Records that there are other writers of the same keys.
    pub fn expect_other_writers(&self) {
        self.lock().has_other_writers = true;
    }

    /// The history so far.
    #[must_use]
    pub fn history(&self) -> History {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
