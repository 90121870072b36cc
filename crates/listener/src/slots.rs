//! The connection slots per peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The slots of all connections.
#[derive(Debug)]
pub(crate) struct Slots {
    limit: usize,
    table: Arc<Mutex<SlotTable>>,
}

#[derive(Debug, Default)]
struct SlotTable {
    count: usize,
    next: u64,
    by_peer: HashMap<IpAddr, Vec<SlotEntry>>,
}

#[derive(Debug)]
struct SlotEntry {
    number: u64,
    idle: Arc<AtomicBool>,
    lost: Arc<Notify>,
}

/// The slot of one connection, released on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    table: Arc<Mutex<SlotTable>>,
    peer: IpAddr,
    number: u64,
    idle: Arc<AtomicBool>,
    lost: Arc<Notify>,
}

impl Slots {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            table: Arc::default(),
        }
    }

    /// Reserves a slot for a peer's connection. At the limit, one is freed: the peer with the most connections loses
    /// its oldest idle one. If none is idle, the new peer loses one of its own, or if it has much fewer, the other
    /// peer its newest. `None` if no connection can be closed.
    pub(crate) fn reserve(&self, address: IpAddr) -> Option<Slot> {
        let peer = peer(address);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.count >= self.limit {
            table.free_one(peer)?;
        }
        let number = table.next;
        table.next += 1;
        table.count += 1;
        let (idle, lost) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        table.by_peer.entry(peer).or_default().push(SlotEntry {
            number,
            idle: Arc::clone(&idle),
            lost: Arc::clone(&lost),
        });
        Some(Slot {
            table: Arc::clone(&self.table),
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

impl SlotTable {
    fn free_one(&mut self, newcomer: IpAddr) -> Option<()> {
        let (&largest, entries) = self
            .by_peer
            .iter()
            .max_by_key(|(_, entries)| entries.len())?;
        let own: &[SlotEntry] = self.by_peer.get(&newcomer).map_or(&[], Vec::as_slice);
        let (peer, at) = if let Some(at) = oldest_idle(entries) {
            (largest, at)
        } else if let Some(at) = oldest_idle(own) {
            (newcomer, at)
        } else if own.len() < entries.len() / 2 {
            (largest, entries.len() - 1)
        } else {
            return None;
        };
        let entry = self.remove(peer, at)?;
        entry.lost.notify_one();
        Some(())
    }

    fn remove(&mut self, peer: IpAddr, at: usize) -> Option<SlotEntry> {
        let entries = self.by_peer.get_mut(&peer)?;
        let entry = entries.remove(at);
        if entries.is_empty() {
            self.by_peer.remove(&peer);
        }
        self.count -= 1;
        Some(entry)
    }
}

fn oldest_idle(entries: &[SlotEntry]) -> Option<usize> {
    entries
        .iter()
        .position(|entry| entry.idle.load(Ordering::Acquire))
}

impl Slot {
    /// Set while the connection has no request in progress.
    pub(crate) fn idle(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.idle)
    }

    /// Waits until the slot is reassigned to another connection.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = table.by_peer.get(&self.peer);
        let at = entries
            .and_then(|entries| entries.iter().position(|entry| entry.number == self.number));
        if let Some(at) = at {
            table.remove(self.peer, at);
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
        let slots = Slots::new(4);
        let crowd: Vec<Slot> = (0..4).filter_map(|_| slots.reserve(ip(1))).collect();
        assert_eq!(crowd.len(), 4);
        let first = slots.reserve(ip(2)).unwrap();
        crowd[0].lost().await;
        // Busy connections are kept, unless another peer has none at all.
        for slot in &crowd {
            slot.idle.store(false, Ordering::Release);
        }
        assert!(slots.reserve(ip(1)).is_none());
        let other = slots.reserve(ip(2)).unwrap();
        first.lost().await;
        other.idle.store(false, Ordering::Release);
        assert!(slots.reserve(ip(2)).is_none());
        let third = slots.reserve(ip(3)).unwrap();
        crowd[3].lost().await;
        assert!(slots.reserve(ip(1)).is_none());
        drop((other, third));
        assert!(slots.reserve(ip(1)).is_some());
        drop(crowd);
        assert_eq!(slots.table.lock().unwrap().count, 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let same = ["2001:db8::1", "2001:db8::ffff:1"].map(|text| peer(text.parse().unwrap()));
        assert_eq!(same[0], same[1]);
        assert_ne!(same[0], peer("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(peer("::ffff:10.0.0.1".parse().unwrap()), ip(1));
    }
}
