//! The work queue: each object once per controller, again if it changed meanwhile, and after a delay on failure or
//! request.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The initial backoff after a failure, doubled each time.
///
/// UPSTREAM: client-go util/workqueue/default_rate_limiters.go begins with 5 ms.
const INITIAL_BACKOFF: Duration = Duration::from_millis(10);
/// The maximum backoff. Upstream's is 1,000 seconds; here, tests wait for it.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The maximum number of concurrent reconciliations per controller: a slow webhook for one kind does not delay
/// others.
const RUNNING: usize = 10;

/// A controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ControllerKind {
    Certificate,
    CronJob,
    DaemonSet,
    Deployment,
    Disruption,
    Endpoints,
    EndpointSlice,
    Job,
    Kubelet,
    Node,
    PersistentVolume,
    PodGarbage,
    ReplicaSet,
    ReplicationController,
    Scheduler,
    StatefulSet,
    Volume,
}

/// An object to reconcile by a controller, by path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Work {
    pub(crate) controller: ControllerKind,
    pub(crate) path: Arc<str>,
}

/// The result of a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// No work until something changes.
    Done,
    /// Reconcile again after a delay.
    After(Duration),
    /// It failed, and is retried.
    Retry,
}

impl Next {
    /// The earlier of two.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Retry, _) | (_, Self::Retry) => Self::Retry,
            (Self::Done, other) => other,
            (own, Self::Done) => own,
            (Self::After(own), Self::After(other)) => Self::After(own.min(other)),
        }
    }
}

#[derive(Debug)]
struct Item {
    state: State,
    /// The number of consecutive failures.
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Running { again: bool },
    Later(Instant),
}

/// The objects to reconcile.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ready: HashMap<ControllerKind, VecDeque<Arc<str>>>,
    running: HashMap<ControllerKind, usize>,
    later: BTreeSet<(Instant, Work)>,
    items: HashMap<Work, Item>,
}

impl Queue {
    /// Adds an object that changed.
    pub(crate) fn add(&mut self, controller: ControllerKind, path: &str) {
        self.enqueue(controller, path, true);
    }

    /// Adds an object that its own controller may have changed. After a failure, the backoff still applies: otherwise
    /// a controller's own writes would bypass it.
    pub(crate) fn add_rate_limited(&mut self, controller: ControllerKind, path: &str) {
        self.enqueue(controller, path, false);
    }

    fn enqueue(&mut self, controller: ControllerKind, path: &str, hurries: bool) {
        let work = Work {
            controller,
            path: path.into(),
        };
        let state = match self.items.get_mut(&work) {
            None => {
                self.items.insert(
                    work.clone(),
                    Item {
                        state: State::Ready,
                        failures: 0,
                    },
                );
                State::Ready
            }
            Some(item) => match &mut item.state {
                State::Ready => return,
                State::Running { again } => {
                    *again = true;
                    return;
                }
                State::Later(at) => {
                    let at = *at;
                    if item.failures > 0 && !hurries {
                        return;
                    }
                    self.later.remove(&(at, work.clone()));
                    item.state = State::Ready;
                    State::Ready
                }
            },
        };
        if state == State::Ready {
            self.ready
                .entry(controller)
                .or_default()
                .push_back(work.path);
        }
    }

    /// The next object to reconcile now, of a controller below its concurrency limit.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Work> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
            && let Some((_, work)) = self.later.pop_first()
        {
            if let Some(item) = self.items.get_mut(&work) {
                item.state = State::Ready;
            }
            self.ready
                .entry(work.controller)
                .or_default()
                .push_back(work.path);
        }
        let running = &self.running;
        let has_room = |controller: &ControllerKind| {
            running.get(controller).is_none_or(|count| *count < RUNNING)
        };
        let (controller, path) = self
            .ready
            .iter_mut()
            .filter(|(controller, _)| has_room(controller))
            .find_map(|(controller, paths)| Some((*controller, paths.pop_front()?)))?;
        *self.running.entry(controller).or_default() += 1;
        let work = Work { controller, path };
        if let Some(item) = self.items.get_mut(&work) {
            item.state = State::Running { again: false };
        }
        Some(work)
    }

    /// When the next delayed object is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Records the result of a reconciliation.
    pub(crate) fn finish(&mut self, work: Work, next: Next, now: Instant) {
        if let Some(count) = self.running.get_mut(&work.controller) {
            *count = count.saturating_sub(1);
        }
        let Some(item) = self.items.get_mut(&work) else {
            return;
        };
        let again = item.state == State::Running { again: true };
        let pause = match next {
            Next::Retry => {
                item.failures = item.failures.saturating_add(1);
                Some(pause(item.failures))
            }
            Next::Done | Next::After(_) if again => {
                item.failures = 0;
                None
            }
            Next::After(pause) => {
                item.failures = 0;
                Some(pause)
            }
            Next::Done => {
                self.items.remove(&work);
                return;
            }
        };
        match pause {
            None => {
                item.state = State::Ready;
                self.ready
                    .entry(work.controller)
                    .or_default()
                    .push_back(work.path);
            }
            Some(pause) => {
                let at = now + pause;
                item.state = State::Later(at);
                self.later.insert((at, work));
            }
        }
    }
}

fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (INITIAL_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(path: &str) -> Work {
        Work {
            controller: ControllerKind::Kubelet,
            path: path.into(),
        }
    }

    #[test]
    fn looks_once_and_again_when_told_meanwhile() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add(ControllerKind::Kubelet, "a");
        queue.add(ControllerKind::Kubelet, "a");
        assert_eq!(queue.take(now), Some(pod("a")));
        assert_eq!(queue.take(now), None);
        queue.add(ControllerKind::Kubelet, "a");
        assert_eq!(queue.take(now), None, "one at a time");
        queue.finish(pod("a"), Next::Done, now);
        assert_eq!(queue.take(now), Some(pod("a")));
        queue.finish(pod("a"), Next::Done, now);
        assert_eq!(queue.take(now), None);
        assert!(queue.items.is_empty());
    }

    #[test]
    fn news_do_not_wait_but_echoes_do() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add(ControllerKind::Kubelet, "a");
        let work = queue.take(now).unwrap();
        queue.finish(work, Next::After(Duration::from_secs(9)), now);
        queue.add(ControllerKind::Kubelet, "a");
        let work = queue.take(now).unwrap();
        queue.finish(work, Next::Retry, now);
        queue.add_rate_limited(ControllerKind::Kubelet, "a");
        assert_eq!(queue.take(now), None);
        assert_eq!(queue.next_due(), Some(now + INITIAL_BACKOFF));
        queue.add(ControllerKind::Kubelet, "a");
        let work = queue.take(now).unwrap();
        queue.finish(work, Next::Retry, now);
        let mut due = now;
        for _ in 0..30 {
            due = queue.next_due().unwrap();
            let work = queue.take(due).unwrap();
            queue.finish(work, Next::Retry, due);
        }
        assert_eq!(queue.next_due(), Some(due + MAX_BACKOFF));
    }

    #[test]
    fn a_busy_controller_holds_up_no_other() {
        let now = Instant::now();
        let mut queue = Queue::default();
        for number in 0..=RUNNING {
            queue.add(ControllerKind::Kubelet, &number.to_string());
        }
        for _ in 0..RUNNING {
            assert!(queue.take(now).is_some());
        }
        assert_eq!(queue.take(now), None);
        queue.add(ControllerKind::Job, "j");
        assert_eq!(
            queue.take(now).map(|work| work.controller),
            Some(ControllerKind::Job)
        );
        queue.finish(pod("0"), Next::Done, now);
        assert_eq!(queue.take(now), Some(pod(&RUNNING.to_string())));
    }

    #[test]
    fn the_earlier_of_two_looks_is_due() {
        let second = Next::After(Duration::from_secs(1));
        assert_eq!(Next::Done.or(second), second);
        assert_eq!(
            second.or(Next::After(Duration::ZERO)),
            Next::After(Duration::ZERO)
        );
        assert_eq!(second.or(Next::Retry), Next::Retry);
    }
}
