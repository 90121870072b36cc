//! Histories of deliberately faulty stores are violations; correct ones are not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::{
    Event, Filter, List, MemoryStore, Page, ReadError, Store, Unavailable, Watch, WriteError,
};

/// The fault of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A write is acknowledged but not applied.
    LostUpdate,
    LostCreate,
    LostDelete,
    /// An update ignores the expected revision.
    BlindUpdate,
    /// A read returns the state before the last change.
    StaleGet,
    StaleList,
    /// A list misses an entry.
    TornList,
    /// A list mixes two states.
    MixedList,
    /// A watch returns an event twice.
    Repeat,
    /// A watch misses an event.
    Gap,
    /// A resumed watch misses its first event.
    GapAfterResume,
    /// A watch returns two events in the wrong order.
    Swap,
    /// A watch reports too much progress.
    EarlyBookmark,
    /// A watch returns an event without the previous entry.
    NoPrevious,
    /// A write is applied but not acknowledged.
    Ambiguous,
    /// A conflict without a reason.
    FalseConflict,
    /// A conflict contains an old entry.
    StaleConflict,
    /// A value that was never written.
    Garbled,
    /// A no-op that drops a change.
    FalseNoOp,
}

/// The fault occurs at the third opportunity.
const TURN: usize = 2;

struct Broken {
    store: MemoryStore,
    fault: Fault,
    turn: AtomicUsize,
    old: Mutex<Option<Entry>>,
}

impl Broken {
    fn is_turn(&self, fault: Fault) -> bool {
        self.fault == fault && self.turn.fetch_add(1, Ordering::SeqCst) == TURN
    }
}

#[async_trait]
impl Store for Broken {
    async fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Revision, WriteError> {
        if self.is_turn(Fault::LostCreate) {
            return Ok(Revision(self.store.revision().await?.0 + 1));
        }
        let value = if self.is_turn(Fault::Garbled) {
            "?".into()
        } else {
            value
        };
        self.store.create(key, value, ttl).await
    }

    async fn update(
        &self,
        key: &str,
        expected: Revision,
        value: Bytes,
    ) -> Result<Revision, WriteError> {
        let current = self.store.get(key, ReadAt::Latest).await.unwrap().0;
        if self.is_turn(Fault::LostUpdate) {
            return Ok(Revision(self.store.revision().await?.0 + 1));
        }
        if self.is_turn(Fault::FalseNoOp) {
            return Ok(expected);
        }
        if let Some(current) = &current {
            if self.is_turn(Fault::FalseConflict) {
                return Err(WriteError::Conflict(Box::new(current.clone())));
            }
            if current.revision != expected {
                if self.fault == Fault::BlindUpdate {
                    return self.store.update(key, current.revision, value).await;
                }
                if self.fault == Fault::StaleConflict {
                    let old = self.old.lock().unwrap().clone().unwrap();
                    return Err(WriteError::Conflict(Box::new(old)));
                }
            } else {
                *self.old.lock().unwrap() = Some(current.clone());
            }
        }
        let result = self.store.update(key, expected, value).await;
        if self.is_turn(Fault::Ambiguous) {
            return Err(Unavailable(String::from("no answer")).into());
        }
        result
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<(Revision, Entry), WriteError> {
        if self.fault == Fault::LostDelete
            && let Some(entry) = self.store.get(key, ReadAt::Latest).await.unwrap().0
        {
            return Ok((Revision(self.store.revision().await?.0 + 1), entry));
        }
        self.store.delete(key, expected).await
    }

    async fn get(&self, key: &str, at: ReadAt) -> Result<(Option<Entry>, Revision), ReadError> {
        if self.is_turn(Fault::StaleGet) {
            let old = Revision(self.store.revision().await?.0 - 1);
            return self.store.get(key, ReadAt::Exact(old)).await;
        }
        self.store.get(key, at).await
    }

    async fn list(&self, list: List<'_>) -> Result<Page, ReadError> {
        let mut page = self.store.list(list).await?;
        if self.is_turn(Fault::StaleList) {
            let at = ReadAt::Exact(Revision(page.revision.0 - 1));
            page = self.store.list(List { at, ..list }).await?;
        }
        if self.is_turn(Fault::TornList) {
            page.entries.remove(1);
        }
        if self.fault == Fault::MixedList && page.revision == Revision(8) {
            let at = ReadAt::Exact(Revision(4));
            let mut old = self.store.list(List { at, ..list }).await?;
            std::mem::swap(&mut page.entries[0], &mut old.entries[0]);
        }
        Ok(page)
    }

    async fn watch_if(
        &self,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn Watch>, ReadError> {
        let resumes = self.fault == Fault::GapAfterResume && after > Revision(3);
        let from = Revision(after.0 + u64::from(resumes));
        Ok(Box::new(BrokenWatch {
            watch: self.store.watch_if(prefix, from, filter).await?,
            fault: self.fault,
            turn: 0,
            queued: None,
        }))
    }

    async fn revision(&self) -> Result<Revision, Unavailable> {
        self.store.revision().await
    }

    async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        self.store.compact(oldest).await
    }
}

struct BrokenWatch {
    watch: Box<dyn Watch>,
    fault: Fault,
    turn: usize,
    queued: Option<Event>,
}

#[async_trait]
impl Watch for BrokenWatch {
    async fn next(&mut self) -> Result<Event, ReadError> {
        if let Some(queued) = self.queued.take() {
            return Ok(queued);
        }
        let mut event = self.watch.next().await?;
        self.turn += 1;
        if self.turn == TURN {
            match self.fault {
                Fault::Repeat => self.queued = Some(event.clone()),
                Fault::Gap => return self.watch.next().await,
                Fault::Swap => {
                    self.queued = Some(event);
                    return self.watch.next().await;
                }
                Fault::NoPrevious => {
                    if let Event::Put { previous, .. } = &mut event {
                        *previous = None;
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }

    fn progress(&self) -> Revision {
        let early = u64::from(self.fault == Fault::EarlyBookmark);
        Revision(self.watch.progress().0 + early)
    }
}

/// A sequence of operations as by several clients, recorded.
async fn history_of(fault: Fault) -> Vec<Violation> {
    let store = Recorded::new(Broken {
        store: MemoryStore::new(),
        fault,
        turn: AtomicUsize::new(0),
        old: Mutex::default(),
    });
    let mut watch = store.watch("/k/", Revision::START).await.unwrap();
    for round in 0..4 {
        for key in ["/k/a", "/k/b", "/k/c"] {
            let value = Bytes::from(format!("{key}-{round}"));
            let (entry, _) = store.get(key, ReadAt::Latest).await.unwrap();
            match entry {
                None => drop(store.create(key, value, None).await),
                Some(entry) => {
                    let _ = store.update(key, entry.revision, value).await;
                    // A late writer.
                    let late = Bytes::from(format!("late-{key}-{round}"));
                    let _ = store.update(key, entry.revision, late).await;
                }
            }
            let _ = store.list(List::all("/k/")).await;
        }
    }
    let (entry, _) = store.get("/k/a", ReadAt::Latest).await.unwrap();
    let _ = store.delete("/k/a", entry.unwrap().revision).await;
    store.create("/k/z", "1".into(), None).await.unwrap();
    store.get("/k/a", ReadAt::Latest).await.unwrap();
    let last = store.list(List::all("/k/")).await.unwrap().revision;
    let mut seen = Revision::START;
    for _ in 0..6 {
        seen = watch.next().await.unwrap().revision();
    }
    drop(watch);
    let mut resumed = store.watch("/k/", seen).await.unwrap();
    while resumed.next().await.unwrap().revision() < store.inner().store.revision().await.unwrap() {
    }
    assert!(resumed.progress() >= Revision(last.0.saturating_sub(1)));
    store.violations()
}

#[tokio::test]
async fn finds_nothing_in_a_sound_history() {
    assert_eq!(history_of(Fault::None).await, []);
    // An applied write without an acknowledgement is not a violation.
    assert_eq!(history_of(Fault::Ambiguous).await, []);
}

#[tokio::test]
async fn catches_every_fault() {
    type Check = fn(&Violation) -> bool;
    let faults: [(Fault, Check); 18] = [
        (Fault::LostUpdate, |v| {
            matches!(v, Violation::WrongState(..))
        }),
        (Fault::LostCreate, |v| {
            matches!(v, Violation::WrongState(..))
        }),
        (Fault::LostDelete, |v| {
            matches!(v, Violation::WrongState(..))
        }),
        (Fault::BlindUpdate, |v| {
            matches!(v, Violation::Precondition(..))
        }),
        (Fault::StaleGet, |v| matches!(v, Violation::StaleRead(..))),
        (Fault::StaleList, |v| matches!(v, Violation::StaleRead(..))),
        (Fault::TornList, |v| matches!(v, Violation::WrongState(..))),
        (Fault::MixedList, |v| matches!(v, Violation::WrongState(..))),
        (Fault::Repeat, |v| matches!(v, Violation::Repeated(..))),
        (Fault::Gap, |v| matches!(v, Violation::Gap(..))),
        (Fault::GapAfterResume, |v| matches!(v, Violation::Gap(..))),
        (Fault::Swap, |v| matches!(v, Violation::Unordered(..))),
        (Fault::EarlyBookmark, |v| {
            matches!(v, Violation::WrongBookmark(..))
        }),
        (Fault::NoPrevious, |v| {
            matches!(v, Violation::WrongPrevious(..))
        }),
        (Fault::FalseConflict, |v| {
            matches!(v, Violation::WrongRefusal(..))
        }),
        (Fault::StaleConflict, |v| {
            matches!(v, Violation::WrongRefusal(..))
        }),
        (Fault::Garbled, |v| {
            matches!(v, Violation::Contradiction(..))
        }),
        (Fault::FalseNoOp, |v| matches!(v, Violation::WrongState(..))),
    ];
    for (fault, is_expected) in faults {
        let found = history_of(fault).await;
        assert!(found.iter().any(is_expected), "{fault:?}: {found:?}");
    }
}

fn entry(key: &str, value: &'static str, revision: u64) -> Entry {
    Entry {
        key: key.into(),
        value: value.into(),
        created: Revision(revision),
        revision: Revision(revision),
    }
}

fn create(key: &str, value: &'static str) -> Call {
    Call::Create {
        key: key.into(),
        value: value.into(),
        expires: false,
    }
}

fn operation((invoked, returned): (Time, Time), call: Call, answer: OperationResult) -> Operation {
    Operation {
        invoked,
        returned,
        call,
        answer,
    }
}

fn found(operations: Vec<Operation>) -> Vec<Violation> {
    check(&History {
        operations,
        ..History::default()
    })
}

#[test]
fn writes_are_in_the_order_of_time() {
    let first = operation(
        (0, 1),
        create("/a", "1"),
        OperationResult::Written(Revision(7)),
    );
    let second = operation(
        (2, 3),
        create("/b", "1"),
        OperationResult::Written(Revision(6)),
    );
    assert_eq!(
        found(vec![first.clone(), second.clone()]),
        [Violation::Reordered("/b".into(), Revision(6))]
    );
    // Concurrent operations may be in any order.
    let second = Operation {
        invoked: 0,
        ..second
    };
    assert_eq!(found(vec![first.clone(), second]), []);
    let same = operation(
        (0, 3),
        create("/b", "1"),
        OperationResult::Written(Revision(7)),
    );
    assert_eq!(
        found(vec![first, same]),
        [Violation::SharedRevision(Revision(7))]
    );
}

#[test]
fn what_nobody_wrote_is_found() {
    let get = Call::Get {
        key: "/a".into(),
        at: ReadAt::Latest,
    };
    let seen = OperationResult::Found(Some(entry("/a", "1", 3)), Revision(3));
    let read = operation((4, 5), get, seen);
    assert_eq!(
        found(vec![read.clone()]),
        [Violation::Unexplained("/a".into(), Revision(3))]
    );
    let unknown = operation((0, 9), create("/a", "1"), OperationResult::Unknown);
    assert_eq!(found(vec![unknown, read.clone()]), []);
    // The write was invoked after its value was observed.
    let late = operation((6, 9), create("/a", "1"), OperationResult::Unknown);
    assert_eq!(
        found(vec![late, read.clone()]),
        [Violation::Unexplained("/a".into(), Revision(3))]
    );
    let history = History {
        operations: vec![read],
        has_other_writers: true,
        ..History::default()
    };
    assert_eq!(check(&history), []);
}

#[test]
fn an_unknown_write_happens_once() {
    let unknown = operation((0, 1), create("/a", "1"), OperationResult::Unknown);
    let delete = Call::Delete {
        key: "/a".into(),
        expected: Revision(3),
    };
    let delete = operation((4, 5), delete, OperationResult::Written(Revision(4)));
    let get = |at: u64| {
        let call = Call::Get {
            key: "/a".into(),
            at: ReadAt::Latest,
        };
        let answer = OperationResult::Found(Some(entry("/a", "1", at)), Revision(at));
        operation((at * 2, at * 2 + 1), call, answer)
    };
    let once = vec![
        unknown,
        Operation {
            invoked: 2,
            returned: 3,
            ..get(3)
        },
        delete,
    ];
    assert_eq!(found(once.clone()), []);
    let mut twice = once;
    twice.push(get(5));
    assert_eq!(
        found(twice),
        [Violation::Unexplained("/a".into(), Revision(5))]
    );
}

#[test]
fn an_unknown_delete_may_have_happened() {
    let created = operation(
        (0, 1),
        create("/a", "1"),
        OperationResult::Written(Revision(1)),
    );
    let delete = Call::Delete {
        key: "/a".into(),
        expected: Revision(1),
    };
    let deleted = operation((2, 3), delete, OperationResult::Unknown);
    let get = Call::Get {
        key: "/a".into(),
        at: ReadAt::Latest,
    };
    let gone = operation((4, 5), get, OperationResult::Found(None, Revision(2)));
    let again = operation(
        (6, 7),
        create("/a", "2"),
        OperationResult::Written(Revision(3)),
    );
    assert_eq!(
        found(vec![created.clone(), deleted, gone.clone(), again.clone()]),
        []
    );
    let without = found(vec![created, gone, again]);
    assert_eq!(without.len(), 2, "{without:?}");
}
