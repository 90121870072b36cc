//! The connection slots per peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The slots of all connections.
#[derive(Debug)]
pub(crate) struct Places {
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

/// The slot of one connection, released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Arc<Mutex<Taken>>,
    peer: IpAddr,
    number: u64,
    idle: Arc<AtomicBool>,
    lost: Arc<Notify>,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            taken: Arc::default(),
        }
    }

    /// Reserves a slot for a peer's connection. At the limit, one is freed: the peer with the most connections loses
    /// its oldest idle one. If none is idle, the new peer loses one of its own, or if it has much fewer, the other
    /// peer its newest. `None` if no connection can be closed.
    pub(crate) fn take(&self, address: IpAddr) -> Option<Place> {
        let peer = peer(address);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.count >= self.most {
            taken.free_one(peer)?;
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

/// The peer of an address: an owner of one IPv6 address owns its /64 network.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

impl Taken {
    fn free_one(&mut self, newcomer: IpAddr) -> Option<()> {
        let (&largest, seats) = self.by_peer.iter().max_by_key(|(_, seats)| seats.len())?;
        let own: &[Seat] = self.by_peer.get(&newcomer).map_or(&[], Vec::as_slice);
        let (peer, at) = if let Some(at) = oldest_idle(seats) {
            (largest, at)
        } else if let Some(at) = oldest_idle(own) {
            (newcomer, at)
        } else if own.len() < seats.len() / 2 {
            (largest, seats.len() - 1)
        } else {
            return None;
        };
        let seat = self.remove(peer, at)?;
        seat.lost.notify_one();
        Some(())
    }

    fn remove(&mut self, peer: IpAddr, at: usize) -> Option<Seat> {
        let seats = self.by_peer.get_mut(&peer)?;
        let seat = seats.remove(at);
        if seats.is_empty() {
            self.by_peer.remove(&peer);
        }
        self.count -= 1;
        Some(seat)
    }
}

fn oldest_idle(seats: &[Seat]) -> Option<usize> {
    seats
        .iter()
        .position(|seat| seat.idle.load(Ordering::Acquire))
}

impl Place {
    /// Set while the connection has no request in progress.
    pub(crate) fn idle(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.idle)
    }

    /// Waits until the slot is reassigned to another connection.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let seats = taken.by_peer.get(&self.peer);
        let at = seats.and_then(|seats| seats.iter().position(|seat| seat.number == self.number));
        if let Some(at) = at {
            taken.remove(self.peer, at);
        }
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
        let first = places.take(ip(2)).unwrap();
        crowd[0].lost().await;
        // Busy connections are kept, unless another peer has none at all.
        for place in &crowd {
            place.idle.store(false, Ordering::Release);
        }
        assert!(places.take(ip(1)).is_none());
        let other = places.take(ip(2)).unwrap();
        first.lost().await;
        other.idle.store(false, Ordering::Release);
        assert!(places.take(ip(2)).is_none());
        let third = places.take(ip(3)).unwrap();
        crowd[3].lost().await;
        assert!(places.take(ip(1)).is_none());
        drop((other, third));
        assert!(places.take(ip(1)).is_some());
        drop(crowd);
        assert_eq!(places.taken.lock().unwrap().count, 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let same = ["2001:db8::1", "2001:db8::ffff:1"].map(|text| peer(text.parse().unwrap()));
        assert_eq!(same[0], same[1]);
        assert_ne!(same[0], peer("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(peer("::ffff:10.0.0.1".parse().unwrap()), ip(1));
    }
}
