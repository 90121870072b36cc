//! How many connections there are, and whose.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The places of all connections.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    next: u64,
    by_peer: HashMap<IpAddr, Vec<Seat>>,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    idle: Arc<AtomicBool>,
    lost: Arc<Notify>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    taken: Arc<Mutex<Taken>>,
    peer: IpAddr,
    number: u64,
    idle: Arc<AtomicBool>,
    lost: Arc<Notify>,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            taken: Arc::default(),
        }
    }

    /// A place for a connection of a peer. When there is none, one is made: the peer with the most
    /// connections loses the one of its idle ones that it has had longest. None if every connection
    /// of that peer is busy.
    pub(super) fn take(&self, peer: IpAddr) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.count >= self.most {
            taken.free_one()?;
        }
        let number = taken.next;
        taken.next += 1;
        taken.count += 1;
        let (idle, lost) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        taken.by_peer.entry(peer).or_default().push(Seat {
            number,
            idle: Arc::clone(&idle),
            lost: Arc::clone(&lost),
        });
        Some(Place {
            taken: Arc::clone(&self.taken),
            peer,
            number,
            idle,
            lost,
        })
    }
}

impl Taken {
    fn free_one(&mut self) -> Option<()> {
        let (&peer, seats) = self
            .by_peer
            .iter_mut()
            .max_by_key(|(_, seats)| seats.len())?;
        let at = seats
            .iter()
            .position(|seat| seat.idle.load(Ordering::Acquire))?;
        let seat = seats.remove(at);
        if seats.is_empty() {
            self.by_peer.remove(&peer);
        }
        self.count -= 1;
        seat.lost.notify_one();
        Some(())
    }
}

impl Place {
    /// Set while the connection answers nothing.
    pub(super) fn idle(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.idle)
    }

    /// Returns when the place is given to another.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seats) = taken.by_peer.get_mut(&self.peer) else {
            return;
        };
        let Some(at) = seats.iter().position(|seat| seat.number == self.number) else {
            return;
        };
        seats.remove(at);
        if seats.is_empty() {
            taken.by_peer.remove(&self.peer);
        }
        taken.count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test]
    async fn whoever_has_most_makes_room_for_others() {
        let places = Places::new(4);
        let crowd: Vec<Place> = (0..4).filter_map(|_| places.take(ip(1))).collect();
        assert_eq!(crowd.len(), 4);
        let other = places.take(ip(2)).unwrap();
        crowd[0].lost().await;
        // Those that are being answered stay.
        for place in &crowd {
            place.idle.store(false, Ordering::Release);
        }
        assert!(places.take(ip(3)).is_none());
        drop(other);
        assert!(places.take(ip(3)).is_some());
        drop(crowd);
        assert_eq!(places.taken.lock().unwrap().count, 0);
    }
}
