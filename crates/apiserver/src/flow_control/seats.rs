//! The seats of priority levels: executing, queued and rejected requests.
//!
//! A level has its own seats, and borrows unused seats that others lend. Without a free seat a request is queued; the
//! flows of a level are spread over its queues, which are served in turn. One user gets at most three quarters of the
//! seats available to a level, so that a slow user cannot exclude others.
//!
//! UPSTREAM: apiserver pkg/util/flowcontrol/fairqueuing/queueset (there requests may take several seats, and
//! lending is adjusted every ten seconds)

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// The limits of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// The number of its own seats.
    pub(super) nominal: usize,
    /// The number of lendable seats.
    pub(super) lendable: usize,
    /// The maximum number of borrowed seats.
    pub(super) borrowing: usize,
    /// The queues; without them requests over the limit are rejected immediately.
    pub(super) queues: Option<Queues>,
}

/// The queues of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Queues {
    pub(super) count: usize,
    /// The hand size of shuffle sharding.
    pub(super) hand: usize,
    pub(super) length: usize,
}

/// The reason that a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RejectReason {
    ConcurrencyLimit,
    QueueFull,
    TimeOut,
}

impl RejectReason {
    pub(super) const ALL: [Self; 3] = [Self::ConcurrencyLimit, Self::QueueFull, Self::TimeOut];

    /// The reason in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// The seats of all levels.
#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    levels: BTreeMap<u64, Level>,
    last_id: u64,
    /// The number of queued requests.
    waiting: usize,
}

#[derive(Debug, Default)]
struct Level {
    /// `None` for an exempt level: it has no seats, lends none and needs none.
    limits: Option<Limits>,
    executing: usize,
    /// The number of seats by user hash.
    holders: HashMap<u64, usize>,
    /// The nonempty queues.
    queues: BTreeMap<usize, VecDeque<Waiter>>,
    waiting: usize,
    /// The queue that was last served.
    turn: usize,
    is_removed: bool,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    holder: u64,
    seat: oneshot::Sender<Seat>,
}

/// The admission result of a request.
#[derive(Debug)]
pub(super) enum Entry {
    Seated(Seat),
    Waiting(QueuedRequest),
    Rejected(RejectReason),
}

/// A seat, released on drop.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    level: u64,
    holder: u64,
}

/// A place in a queue, released on drop.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    seats: Arc<Seats>,
    level: u64,
    queue: usize,
    id: u64,
    seat: oneshot::Receiver<Seat>,
}

/// Seats for queued requests, to be sent without holding the lock.
type GrantedSeats = Vec<(oneshot::Sender<Seat>, Seat)>;

impl Seats {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates the ID of a level.
    pub(super) fn new_level(&self) -> u64 {
        let mut state = self.state();
        state.last_id += 1;
        let id = state.last_id;
        state.levels.insert(id, Level::default());
        id
    }

    /// Sets the limits of a level.
    pub(super) fn set(self: &Arc<Self>, id: u64, limits: Option<Limits>) {
        let given = {
            let mut state = self.state();
            if let Some(level) = state.levels.get_mut(&id) {
                level.limits = limits;
            }
            state.serve(self)
        };
        grant(given);
    }

    /// Removes an unused level.
    pub(super) fn remove(&self, id: u64) {
        let mut state = self.state();
        if let Some(level) = state.levels.get_mut(&id) {
            level.is_removed = true;
        }
        state.forget(id);
    }

    /// The numbers of executing and queued requests of a level.
    pub(super) fn now(&self, id: u64) -> (usize, usize) {
        let state = self.state();
        let level = state.levels.get(&id);
        level.map_or((0, 0), |level| (level.executing, level.waiting))
    }

    /// Returns a seat for a request of a user, or a place in one of the queues of its flow.
    pub(super) fn enter(
        self: &Arc<Self>,
        level: u64,
        holder: u64,
        flow: Option<(Queues, u64)>,
    ) -> Entry {
        let mut state = self.state();
        let limit = state.limit(level);
        state.last_id += 1;
        let id = state.last_id;
        let Some(own) = state.levels.get_mut(&level) else {
            return Entry::Rejected(RejectReason::ConcurrencyLimit);
        };
        if own.waiting == 0 && own.fits(limit, holder) || own.fits(limit, holder) && flow.is_none()
        {
            own.occupy(holder);
            drop(state);
            return Entry::Seated(Seat {
                seats: Arc::clone(self),
                level,
                holder,
            });
        }
        let Some((queues, hash)) = flow else {
            return Entry::Rejected(RejectReason::ConcurrencyLimit);
        };
        let queue = own.shortest(queues, hash);
        let length = own.queues.get(&queue).map_or(0, VecDeque::len);
        if length >= queues.length {
            return Entry::Rejected(RejectReason::QueueFull);
        }
        let (sender, receiver) = oneshot::channel();
        own.queues.entry(queue).or_default().push_back(Waiter {
            id,
            holder,
            seat: sender,
        });
        own.waiting += 1;
        state.waiting += 1;
        // Requests ahead of it may be blocked because their user has too many seats.
        let given = state.serve(self);
        drop(state);
        grant(given);
        Entry::Waiting(QueuedRequest {
            seats: Arc::clone(self),
            level,
            queue,
            id,
            seat: receiver,
        })
    }
}

fn grant(given: GrantedSeats) {
    for (waiter, seat) in given {
        // A cancelled request drops the seat, which serves the next one.
        drop(waiter.send(seat));
    }
}

impl State {
    /// The number of seats that a level could use now.
    fn limit(&self, id: u64) -> usize {
        let Some(limits) = self.levels.get(&id).and_then(|level| level.limits) else {
            return usize::MAX;
        };
        let (mut idle, mut borrowed) = (0_usize, 0_usize);
        for (other, level) in &self.levels {
            if let (true, Some(limits)) = (*other != id, level.limits) {
                let unused = limits.nominal.saturating_sub(level.executing);
                idle = idle.saturating_add(limits.lendable.min(unused));
                borrowed += level.executing.saturating_sub(limits.nominal);
            }
        }
        let borrowing = limits.borrowing.min(idle.saturating_sub(borrowed));
        limits.nominal.saturating_add(borrowing)
    }

    /// Gives free seats to queued requests.
    fn serve(&mut self, seats: &Arc<Seats>) -> GrantedSeats {
        let mut given = GrantedSeats::new();
        if self.waiting == 0 {
            return given;
        }
        let ids: Vec<u64> = self.levels.keys().copied().collect();
        for id in ids {
            loop {
                let limit = self.limit(id);
                let Some(level) = self.levels.get_mut(&id) else {
                    break;
                };
                let Some(waiter) = level.next(limit) else {
                    break;
                };
                level.occupy(waiter.holder);
                self.waiting -= 1;
                let seat = Seat {
                    seats: Arc::clone(seats),
                    level: id,
                    holder: waiter.holder,
                };
                given.push((waiter.seat, seat));
            }
        }
        given
    }

    fn forget(&mut self, id: u64) {
        let level = self.levels.get(&id);
        if level.is_some_and(|it| it.is_removed && it.executing == 0 && it.waiting == 0) {
            self.levels.remove(&id);
        }
    }
}

impl Level {
    /// Returns true if there is a free seat for a user.
    fn fits(&self, limit: usize, holder: u64) -> bool {
        let own = self.holders.get(&holder).copied().unwrap_or_default();
        self.executing < limit && own < limit - limit / 4
    }

    fn occupy(&mut self, holder: u64) {
        self.executing += 1;
        *self.holders.entry(holder).or_default() += 1;
    }

    /// The shortest of the queues in the hand of a flow.
    ///
    /// UPSTREAM: apiserver pkg/util/shufflesharding/dealer.go
    fn shortest(&self, queues: Queues, mut hash: u64) -> usize {
        let mut hand: Vec<usize> = Vec::with_capacity(queues.hand.min(queues.count));
        while hand.len() < queues.hand.min(queues.count) {
            let left = (queues.count - hand.len()) as u64;
            let mut card = usize::try_from(hash % left).unwrap_or_default();
            hash /= left;
            // Cards that are already dealt are skipped.
            let mut dealt = hand.clone();
            dealt.sort_unstable();
            for one in dealt {
                if card >= one {
                    card += 1;
                }
            }
            hand.push(card);
        }
        let length = |queue: &usize| self.queues.get(queue).map_or(0, VecDeque::len);
        hand.into_iter().min_by_key(length).unwrap_or_default()
    }

    /// Removes the next request that may have a seat from its queue, round-robin.
    fn next(&mut self, limit: usize) -> Option<Waiter> {
        if self.waiting == 0 || self.executing >= limit {
            return None;
        }
        let after = self
            .queues
            .range((Bound::Excluded(self.turn), Bound::Unbounded));
        let before = self.queues.range(..=self.turn);
        let found = after.chain(before).find_map(|(queue, waiters)| {
            let first = waiters.front()?;
            self.fits(limit, first.holder).then_some(*queue)
        })?;
        self.turn = found;
        let waiters = self.queues.get_mut(&found)?;
        let waiter = waiters.pop_front();
        if waiters.is_empty() {
            self.queues.remove(&found);
        }
        self.waiting -= usize::from(waiter.is_some());
        waiter
    }
}

impl QueuedRequest {
    /// Waits for a seat.
    pub(super) async fn wait(mut self, max_wait: Duration) -> Option<Seat> {
        let seat = tokio::time::timeout(max_wait, &mut self.seat).await;
        seat.ok().and_then(Result::ok)
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        let mut state = self.seats.state();
        let Some(level) = state.levels.get_mut(&self.level) else {
            return;
        };
        if let Some(waiters) = level.queues.get_mut(&self.queue) {
            let before = waiters.len();
            waiters.retain(|waiter| waiter.id != self.id);
            let gone = before - waiters.len();
            if waiters.is_empty() {
                level.queues.remove(&self.queue);
            }
            level.waiting -= gone;
            state.waiting -= gone;
        }
        state.forget(self.level);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let given = {
            let mut state = self.seats.state();
            if let Some(level) = state.levels.get_mut(&self.level) {
                level.executing = level.executing.saturating_sub(1);
                if let Some(own) = level.holders.get_mut(&self.holder) {
                    *own -= 1;
                    if *own == 0 {
                        level.holders.remove(&self.holder);
                    }
                }
            }
            state.forget(self.level);
            state.serve(&self.seats)
        };
        grant(given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(nominal: usize, queues: Option<Queues>) -> Limits {
        Limits {
            nominal,
            lendable: 0,
            borrowing: 0,
            queues,
        }
    }

    fn seated(entry: Entry) -> Seat {
        match entry {
            Entry::Seated(seat) => seat,
            other => panic!("{other:?}"),
        }
    }

    fn place(entry: Entry) -> QueuedRequest {
        match entry {
            Entry::Waiting(place) => place,
            other => panic!("{other:?}"),
        }
    }

    fn refused(entry: Entry) -> RejectReason {
        match entry {
            Entry::Rejected(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    const QUEUES: Queues = Queues {
        count: 4,
        hand: 1,
        length: 2,
    };

    fn level(seats: &Arc<Seats>, limits: Limits) -> u64 {
        let id = seats.new_level();
        seats.set(id, Some(limits));
        id
    }

    #[test]
    fn a_level_without_queues_sends_away() {
        let seats = Arc::<Seats>::default();
        let level = level(&seats, limits(2, None));
        let one = seated(seats.enter(level, 1, None));
        let _two = seated(seats.enter(level, 2, None));
        assert_eq!(
            refused(seats.enter(level, 3, None)),
            RejectReason::ConcurrencyLimit
        );
        drop(one);
        seated(seats.enter(level, 3, None));
    }

    #[tokio::test]
    async fn queues_take_turns() {
        let seats = Arc::<Seats>::default();
        let level = level(&seats, limits(1, Some(QUEUES)));
        let first = seated(seats.enter(level, 1, Some((QUEUES, 0))));
        // Two requests of one flow, one of another.
        let a = place(seats.enter(level, 1, Some((QUEUES, 0))));
        let b = place(seats.enter(level, 1, Some((QUEUES, 0))));
        let c = place(seats.enter(level, 2, Some((QUEUES, 1))));
        assert_eq!(
            refused(seats.enter(level, 1, Some((QUEUES, 0)))),
            RejectReason::QueueFull
        );
        assert_eq!(seats.now(level), (1, 3));
        drop(first);
        let long = Duration::from_secs(60);
        // The second queue is next: the first was last served.
        let seat = c.wait(long).await.unwrap();
        drop(seat);
        drop(a.wait(long).await.unwrap());
        drop(b.wait(long).await.unwrap());
        assert_eq!(seats.now(level), (0, 0));
    }

    #[tokio::test]
    async fn whoever_leaves_a_queue_gives_up_the_place() {
        let seats = Arc::<Seats>::default();
        let level = level(&seats, limits(1, Some(QUEUES)));
        let first = seated(seats.enter(level, 1, Some((QUEUES, 0))));
        let gone = place(seats.enter(level, 1, Some((QUEUES, 0))));
        let stays = place(seats.enter(level, 2, Some((QUEUES, 0))));
        drop(gone);
        assert_eq!(seats.now(level), (1, 1));
        let late = place(seats.enter(level, 3, Some((QUEUES, 0))));
        assert!(late.wait(Duration::ZERO).await.is_none());
        assert_eq!(seats.now(level), (1, 1));
        drop(first);
        stays.wait(Duration::from_secs(60)).await.unwrap();
        assert_eq!(seats.now(level), (0, 0));
    }

    #[test]
    fn levels_borrow_what_others_lend_and_do_not_use() {
        let seats = Arc::<Seats>::default();
        let lender = level(
            &seats,
            Limits {
                lendable: 2,
                ..limits(4, None)
            },
        );
        let borrower = level(
            &seats,
            Limits {
                borrowing: 10,
                ..limits(1, None)
            },
        );
        let borrowed: Vec<Seat> = (0..3)
            .map(|user| seated(seats.enter(borrower, user, None)))
            .collect();
        assert_eq!(
            refused(seats.enter(borrower, 9, None)),
            RejectReason::ConcurrencyLimit
        );
        // The lender gets its own seats whatever it has lent.
        let own: Vec<Seat> = (0..4)
            .map(|user| seated(seats.enter(lender, user, None)))
            .collect();
        drop(borrowed);
        // Nothing can be borrowed while the lender uses all of its seats.
        let again = seated(seats.enter(borrower, 9, None));
        assert_eq!(
            refused(seats.enter(borrower, 8, None)),
            RejectReason::ConcurrencyLimit
        );
        drop((own, again));
    }

    #[test]
    fn one_user_leaves_a_quarter_of_the_seats() {
        let seats = Arc::<Seats>::default();
        let level = level(&seats, limits(8, None));
        let _ann: Vec<Seat> = (0..6)
            .map(|_| seated(seats.enter(level, 1, None)))
            .collect();
        assert_eq!(
            refused(seats.enter(level, 1, None)),
            RejectReason::ConcurrencyLimit
        );
        let _bob = seated(seats.enter(level, 2, None));
    }

    #[test]
    fn a_level_is_forgotten_when_its_last_request_ends() {
        let seats = Arc::<Seats>::default();
        let level = level(&seats, limits(1, None));
        let seat = seated(seats.enter(level, 1, None));
        seats.remove(level);
        assert_eq!(seats.state().levels.len(), 1);
        drop(seat);
        assert_eq!(seats.state().levels.len(), 0);
        assert_eq!(
            refused(seats.enter(level, 1, None)),
            RejectReason::ConcurrencyLimit
        );
    }

    #[test]
    fn a_hand_has_distinct_queues() {
        let level = Level::default();
        let queues = Queues {
            count: 4,
            hand: 4,
            length: 1,
        };
        for hash in 0..100 {
            assert!(level.shortest(queues, hash * 7919) < 4);
        }
    }
}
