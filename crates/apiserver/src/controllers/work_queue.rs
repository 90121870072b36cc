//! The work queue of the controllers: items are deduplicated, and retried with backoff.
//!
//! ```text
//!   add ─► ready ─► running ─► done
//!            ▲         │
//!            │         ├─ failed: retried with backoff
//!            └─────────┴─ added again meanwhile: immediately
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The initial backoff; it doubles with every failure.
const INITIAL_BACKOFF: Duration = Duration::from_millis(10);
/// The maximum backoff: a write that a webhook rejects is retried about once a minute.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The maximum backoff of a deletion blocked by finalizers: their removal is not a separate event.
const MAX_DELETION_BACKOFF: Duration = Duration::from_secs(10);
/// The number of consecutive changes that suggests that another writer reverts them.
const REVERT_THRESHOLD: u32 = 8;

/// A work item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    /// The object with this key: collect it, or its dependents.
    Collect(Arc<str>),
    /// The default objects of a namespace.
    Namespace(Arc<str>),
    /// The usage of the quotas of a namespace.
    Quotas(Arc<str>),
    /// The contents of a terminating namespace.
    EmptyNamespace(Arc<str>),
    /// The status of a CustomResourceDefinition.
    Definition(Arc<str>),
    /// The status of a ValidatingAdmissionPolicy.
    PolicyStatus(Arc<str>),
    /// The volume, claim or attributes class with this key: check if it is still in use.
    Protect(Arc<str>),
    /// The default FlowSchemas and priority levels, and the conditions of schemas.
    FlowControl,
    /// The rules of aggregated ClusterRoles.
    Aggregate,
}

/// The result of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Result {
    /// No work until the next event.
    Done,
    /// Something was changed; it is checked once more.
    Changed,
    /// It failed and is retried.
    Failed,
}

#[derive(Debug)]
struct Item {
    state: State,
    /// The number of consecutive failures or changes.
    tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Running { again: bool },
    Later(Instant),
}

/// The queued work items.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<Work>,
    later: BTreeSet<(Instant, Work)>,
    items: HashMap<Work, Item>,
}

impl Queue {
    /// Adds a work item.
    pub(super) fn add(&mut self, work: Work) {
        let Some(item) = self.items.get_mut(&work) else {
            let (state, tries) = (State::Ready, 0);
            self.items.insert(work.clone(), Item { state, tries });
            self.ready.push_back(work);
            return;
        };
        match &mut item.state {
            State::Ready => {}
            State::Running { again } => *again = true,
            State::Later(at) => {
                // The garbage collector gets only external events. The other controllers also get their own writes,
                // and would loop with a writer that reverts them.
                let hears_itself = matches!(
                    work,
                    Work::Namespace(_) | Work::Quotas(_) | Work::Aggregate | Work::FlowControl
                );
                if hears_itself && item.tries > REVERT_THRESHOLD {
                    return;
                }
                let at = *at;
                item.state = State::Ready;
                self.later.remove(&(at, work.clone()));
                self.ready.push_back(work);
            }
        }
    }

    /// Schedules a work item. An existing item keeps its time.
    pub(super) fn add_later(&mut self, work: Work, at: Instant) {
        match self.items.get_mut(&work) {
            None => {
                let (state, tries) = (State::Later(at), 0);
                self.items.insert(work.clone(), Item { state, tries });
                self.later.insert((at, work));
            }
            Some(item) => {
                if let State::Running { again } = &mut item.state {
                    *again = true;
                }
            }
        }
    }

    /// Retries a failed item immediately.
    pub(super) fn retry_now(&mut self, work: Work) {
        let failed = |item: &Item| item.tries > 0 && matches!(item.state, State::Later(_));
        if self.items.get(&work).is_some_and(failed) {
            self.add(work);
        }
    }

    /// The same for all protected objects with a key prefix.
    pub(super) fn retry_protected(&mut self, prefix: &str) {
        let later = self.later.iter().map(|(_, work)| work);
        let those =
            later.filter(|work| matches!(work, Work::Protect(key) if key.starts_with(prefix)));
        for work in those.cloned().collect::<Vec<_>>() {
            self.retry_now(work);
        }
    }

    /// The next item that is due, if any.
    pub(super) fn take(&mut self, now: Instant) -> Option<Work> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
            && let Some((_, work)) = self.later.pop_first()
        {
            if let Some(item) = self.items.get_mut(&work) {
                item.state = State::Ready;
            }
            self.ready.push_back(work);
        }
        let work = self.ready.pop_front()?;
        if let Some(item) = self.items.get_mut(&work) {
            item.state = State::Running { again: false };
        }
        Some(work)
    }

    /// The time of the next delayed item.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Records the result of a work item.
    pub(super) fn finish(&mut self, work: Work, result: Result, now: Instant) {
        let Some(item) = self.items.get_mut(&work) else {
            return;
        };
        let again = item.state == State::Running { again: true };
        let pause = match result {
            Result::Done => {
                item.tries = 0;
                if !again {
                    self.items.remove(&work);
                    return;
                }
                None
            }
            Result::Changed => {
                item.tries = item.tries.saturating_add(1);
                (item.tries > REVERT_THRESHOLD)
                    .then(|| backoff(&work, item.tries - REVERT_THRESHOLD))
            }
            Result::Failed => {
                item.tries = item.tries.saturating_add(1);
                Some(backoff(&work, item.tries))
            }
        };
        match pause {
            None => {
                item.state = State::Ready;
                self.ready.push_back(work);
            }
            Some(pause) => {
                let at = now + pause;
                item.state = State::Later(at);
                self.later.insert((at, work));
            }
        }
    }
}

fn backoff(work: &Work, tries: u32) -> Duration {
    let doublings = tries.saturating_sub(1).min(16);
    let longest = match work {
        Work::EmptyNamespace(_) | Work::Definition(_) | Work::Protect(_) => MAX_DELETION_BACKOFF,
        Work::Collect(_)
        | Work::Namespace(_)
        | Work::Quotas(_)
        | Work::PolicyStatus(_)
        | Work::FlowControl
        | Work::Aggregate => MAX_BACKOFF,
    };
    (INITIAL_BACKOFF * 2_u32.pow(doublings)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str) -> Work {
        Work::Collect(key.into())
    }

    #[test]
    fn does_a_thing_once_and_again_when_told_meanwhile() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add(object("a"));
        queue.add(object("a"));
        assert_eq!(queue.take(now), Some(object("a")));
        assert_eq!(queue.take(now), None);
        queue.add(object("a"));
        assert_eq!(queue.take(now), None, "it runs already");
        queue.finish(object("a"), Result::Done, now);
        assert_eq!(queue.take(now), Some(object("a")));
        queue.finish(object("a"), Result::Done, now);
        assert_eq!(queue.take(now), None);
        assert!(queue.items.is_empty());
    }

    #[test]
    fn hurries_only_what_failed() {
        let now = Instant::now();
        let at = now + Duration::from_secs(1);
        let mut queue = Queue::default();
        queue.retry_now(object("a"));
        assert_eq!(queue.take(at), None, "nobody asked for it");
        queue.add_later(object("a"), at);
        queue.retry_now(object("a"));
        assert_eq!(queue.take(now), None, "it waits for its time");
        assert_eq!(queue.take(at), Some(object("a")));
        queue.finish(object("a"), Result::Failed, at);
        queue.retry_now(object("a"));
        assert_eq!(queue.take(at), Some(object("a")));
    }

    #[test]
    fn hurries_what_is_protected_in_one_place() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for key in ["/claims/a/x", "/claims/b/x"] {
            queue.add(Work::Protect(key.into()));
            let work = queue.take(now).unwrap();
            queue.finish(work, Result::Failed, now);
        }
        queue.retry_protected("/claims/a/");
        assert_eq!(queue.take(now), Some(Work::Protect("/claims/a/x".into())));
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn puts_off_what_fails_for_longer_and_longer() {
        let mut now = Instant::now();
        let mut queue = Queue::default();
        queue.add(object("a"));
        let mut before = Duration::ZERO;
        for _ in 0..20 {
            assert_eq!(queue.take(now), Some(object("a")));
            queue.finish(object("a"), Result::Failed, now);
            assert_eq!(queue.take(now), None);
            let due = queue.next_due().unwrap();
            let pause = due - now;
            assert!(pause >= before && pause <= MAX_BACKOFF);
            before = pause;
            now = due;
        }
        assert_eq!(before, MAX_BACKOFF);
        // New events are not delayed.
        assert_eq!(queue.take(now), Some(object("a")));
        queue.finish(object("a"), Result::Failed, now);
        queue.add(object("a"));
        assert_eq!(queue.take(now), Some(object("a")));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn tires_of_changes_that_do_not_stay() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add(Work::Aggregate);
        let mut looks = 0;
        while queue.take(now).is_some() {
            looks += 1;
            queue.add(Work::Aggregate);
            queue.finish(Work::Aggregate, Result::Changed, now);
            queue.add(Work::Aggregate);
        }
        assert_eq!(looks, REVERT_THRESHOLD + 1);
        assert!(queue.next_due().is_some());
    }
}
