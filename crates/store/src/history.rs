//! A checker of histories: what clients of a store did and saw, and whether one store that keeps the contract
//! can have shown it to them.
//!
//! ```text
//!   Recorded<S>  ──records──►  Recorder  ──►  check  ──►  violations
//! ```
//!
//! Every change of the store has a revision, and so has every state that a read shows. That makes checking
//! cheap where it is hard in general: changes are put in the order of their revisions, and everything that was
//! seen is compared with that one order.
//!
//! - **Linearizable.** Each write did what it says to the state its revision names, and each read shows the
//!   state it names. No operation lies before one that had ended when it began.
//! - **Lists are consistent.** A page shows every key of its range at one revision, and nothing else.
//! - **Watches** are ordered, unique (nothing twice), reliable (nothing left out up to the last event or
//!   bookmark), resumable (the same from the revision they were opened after) and bookmarkable (nothing older
//!   follows a bookmark).
//!
//! An operation that failed without an answer may have happened or not: it is a violation only if it happened
//! twice, or to a state that it did not expect.
//!
//! Time is a counter. Operations of several stores that one recorder records, such as replicas, are compared
//! with each other.

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

/// A point in time: later ones are greater.
pub type Time = u64;

/// An operation as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A key is created, and may expire.
    Create {
        /// The key.
        key: Arc<str>,
        /// The value.
        value: Bytes,
        /// The store may delete the key by itself.
        expires: bool,
    },
    /// A value is changed.
    Update {
        /// The key.
        key: Arc<str>,
        /// The revision that is expected.
        expected: Revision,
        /// The new value.
        value: Bytes,
    },
    /// A key is deleted.
    Delete {
        /// The key.
        key: Arc<str>,
        /// The revision that is expected.
        expected: Revision,
    },
    /// A key is read.
    Get {
        /// The key.
        key: Arc<str>,
        /// The state that is asked for.
        at: ReadAt,
    },
    /// Keys are listed.
    List {
        /// The prefix of the keys.
        prefix: String,
        /// The state that is asked for.
        at: ReadAt,
        /// Only keys after this one.
        after: Option<String>,
        /// At most so many.
        limit: Option<usize>,
    },
}

/// The answer to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was written at this revision; at the expected one if nothing had to be written.
    Written(Revision),
    /// It was not written: this entry is in the way.
    Refused(Entry),
    /// It was not written: there is no such key.
    NotFound,
    /// The entry of the key at this revision.
    Found(Option<Entry>, Revision),
    /// The entries at this revision, and how many more there are.
    Listed(Vec<Arc<Entry>>, Revision, usize),
    /// It did not happen, and says nothing about the store.
    Rejected,
    /// Nobody knows whether it happened.
    Unknown,
}

/// An operation with its answer.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The time it was asked for.
    pub invoked: Time,
    /// The time of its answer.
    pub returned: Time,
    /// The operation.
    pub call: Call,
    /// The answer.
    pub answer: Answer,
}

/// A change as a watch or the answer to a write tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision.
    pub revision: Revision,
    /// The key.
    pub key: Arc<str>,
    /// The new value; none if the key was deleted.
    pub value: Option<Bytes>,
    /// The state before.
    pub before: Before,
}

/// The state of a key before a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// The watch does not say.
    Unknown,
    /// There was no such key.
    Nothing,
    /// The revision and the value.
    Entry(Revision, Bytes),
}

/// Something that a watch returned.
#[derive(Debug, Clone)]
pub enum Seen {
    /// A change.
    Event(Change),
    /// Every change up to this revision was returned.
    Bookmark(Revision),
}

/// A watch from its beginning to its end.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The prefix.
    pub prefix: String,
    /// The revision it was opened after.
    pub after: Revision,
    /// Some changes were not asked for, so that gaps say nothing.
    pub is_filtered: bool,
    /// Everything it returned, with the time.
    pub seen: Vec<(Time, Seen)>,
}

/// Everything that clients did and saw.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The operations, in no order.
    pub operations: Vec<Operation>,
    /// The watches.
    pub watches: Vec<Watched>,
    /// Others write too: a change that no operation explains is no violation.
    pub has_other_writers: bool,
}

/// Records a history. Clones record the same one.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    clock: Arc<AtomicU64>,
    history: Arc<Mutex<History>>,
}

impl Recorder {
    /// A recorder that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time now. Take it before an operation begins.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records an operation that ends now.
    pub fn record(&self, invoked: Time, call: Call, answer: Answer) {
        let returned = self.now();
        self.lock().operations.push(Operation {
            invoked,
            returned,
            call,
            answer,
        });
    }

    /// Records the beginning of a watch; returns its number.
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

    /// Records something that a watch returned now.
    pub fn saw(&self, watch: usize, seen: Seen) {
        let now = self.now();
        if let Some(watch) = self.lock().watches.get_mut(watch) {
            watch.seen.push((now, seen));
        }
    }

    /// Says that others write the same keys.
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
