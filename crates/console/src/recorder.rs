//! Receives traces from the engine and keeps the newest, bounded by count and size.
//!
//! The engine's requests wait while the recorder receives a trace, so it only queues it. A dedicated thread converts
//! traces to records. When the queue is full, requests are counted and dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Request;
use lockgate_admission::trace::Trace;
use tokio::sync::watch;

use crate::record::Record;
use crate::statistics::Statistics;

/// The capacity of the queue of traces.
const WAITING: usize = 1_024;

/// The bounds of the kept records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of requests.
    pub requests: usize,
    /// The maximum size of all records in bytes.
    pub bytes: usize,
}

impl Default for Limits {
    /// As many as the page can display quickly.
    fn default() -> Self {
        Self {
            requests: 10_000,
            bytes: 128 << 20,
        }
    }
}

struct Observed {
    time: u64,
    request: Request,
    trace: Trace,
}

/// Observes an engine and keeps the newest requests.
#[derive(Debug)]
pub struct Recorder {
    sender: SyncSender<Observed>,
    kept: Arc<Kept>,
}

/// The kept records and the statistics.
#[derive(Debug)]
pub(crate) struct Kept {
    limits: Limits,
    ring: Mutex<Ring>,
    pub(crate) statistics: Mutex<Statistics>,
    /// The number of the newest record.
    newest: watch::Sender<u64>,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<(u64, Arc<Record>)>,
    bytes: usize,
}

impl Recorder {
    /// Creates a recorder and its thread.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn start(limits: Limits) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let kept = Arc::new(Kept {
            limits,
            ring: Mutex::default(),
            statistics: Mutex::default(),
            newest: watch::Sender::new(0),
            lost: AtomicU64::new(0),
        });
        let keeper = Arc::clone(&kept);
        let thread = std::thread::Builder::new().name(String::from("lockgate-console"));
        thread.spawn(move || keeper.keep_all(&receiver))?;
        Ok(Self { sender, kept })
    }

    /// Records the trace of a request without blocking.
    pub fn observe(&self, admission: &Admission) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        // Not the entire admission, which may hold reservations until the write completes.
        let observed = Observed {
            time,
            request: admission.request().clone(),
            trace: admission.trace().clone(),
        };
        if self.sender.try_send(observed).is_err() {
            self.kept.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }
}

impl Kept {
    /// Converts traces until all senders are dropped.
    fn keep_all(&self, receiver: &Receiver<Observed>) {
        let mut number = 0;
        while let Ok(observed) = receiver.recv() {
            number += 1;
            let Observed {
                time,
                request,
                trace,
            } = observed;
            let mut statistics = self
                .statistics
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            statistics.add(&trace, time);
            drop(statistics);
            self.keep(number, Record::new(number, time, &request, &trace));
            self.newest.send_replace(number);
        }
    }

    fn keep(&self, number: u64, record: Record) {
        let mut ring = self.ring();
        ring.bytes += record.bytes();
        ring.records.push_back((number, Arc::new(record)));
        while ring.records.len() > self.limits.requests || ring.bytes > self.limits.bytes {
            let Some((_, oldest)) = ring.records.pop_front() else {
                break;
            };
            ring.bytes -= oldest.bytes();
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records after a number, oldest first, at most `limit`.
    pub(crate) fn after(&self, number: u64, limit: usize) -> Vec<(u64, Arc<Record>)> {
        let ring = self.ring();
        let first = ring.records.partition_point(|(known, _)| *known <= number);
        ring.records.range(first..).take(limit).cloned().collect()
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Record>> {
        let ring = self.ring();
        let at = ring
            .records
            .binary_search_by_key(&number, |(known, _)| *known);
        Some(Arc::clone(&ring.records.get(at.ok()?)?.1))
    }

    /// Removes all records. Counts are kept.
    pub(crate) fn clear(&self) {
        *self.ring() = Ring::default();
    }

    /// The number of the oldest kept record; the next number if there is none.
    pub(crate) fn oldest(&self) -> u64 {
        let ring = self.ring();
        let next = *self.newest.borrow() + 1;
        ring.records.front().map_or(next, |(number, _)| *number)
    }

    /// The number of requests dropped because the queue was full.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Publishes the number of the latest record.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(limits: Limits) -> Kept {
        Kept {
            limits,
            ring: Mutex::default(),
            statistics: Mutex::default(),
            newest: watch::Sender::new(0),
            lost: AtomicU64::new(0),
        }
    }

    fn add(kept: &Kept, number: u64, bytes: usize) {
        let record = Record {
            summary: String::new(),
            detail: "x".repeat(bytes),
        };
        kept.keep(number, record);
        kept.newest.send_replace(number);
    }

    fn numbers(kept: &Kept, after: u64, limit: usize) -> Vec<u64> {
        kept.after(after, limit)
            .into_iter()
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn keeps_the_newest_within_both_bounds() {
        let kept = kept(Limits {
            requests: 3,
            bytes: 100,
        });
        for number in 1..=5 {
            add(&kept, number, 10);
        }
        assert_eq!(numbers(&kept, 0, 10), [3, 4, 5]);
        assert_eq!((kept.oldest(), kept.ring().bytes), (3, 30));
        add(&kept, 6, 85);
        assert_eq!(numbers(&kept, 0, 10), [5, 6]);
        add(&kept, 7, 200);
        assert_eq!(numbers(&kept, 0, 10), [0; 0], "larger than everything");
        assert_eq!((kept.oldest(), kept.ring().bytes), (8, 0));
    }

    #[test]
    fn finds_records_by_number() {
        let kept = kept(Limits::default());
        for number in [4, 5, 9] {
            add(&kept, number, 1);
        }
        assert!(kept.get(5).is_some() && kept.get(6).is_none() && kept.get(10).is_none());
        assert_eq!(numbers(&kept, 4, 1), [5]);
        assert_eq!(numbers(&kept, 5, 9), [9]);
        kept.clear();
        assert_eq!(numbers(&kept, 0, 9), [0; 0]);
        assert_eq!((kept.oldest(), kept.ring().bytes), (10, 0));
    }
}
