//! Pod IPs. They are unique, but not reachable.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

/// kubeadm's usual Pod CIDR, 10.244.0.0/16.
const FIRST: u32 = u32::from_be_bytes([10, 244, 0, 1]);
const LAST: u32 = u32::from_be_bytes([10, 244, 255, 254]);

#[derive(Debug)]
struct State {
    next: u32,
    /// The uids of Pods, by Pod IP.
    used: HashMap<Ipv4Addr, String>,
}

/// The allocated Pod IPs.
#[derive(Debug)]
pub(crate) struct Addresses(Mutex<State>);

impl Default for Addresses {
    fn default() -> Self {
        Self(Mutex::new(State {
            next: FIRST,
            used: HashMap::new(),
        }))
    }
}

impl Addresses {
    /// Allocates a Pod IP, until it is released; `None` if all are in use.
    pub(crate) fn allocate(&self, uid: &str) -> Option<Ipv4Addr> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in FIRST..=LAST {
            let address = Ipv4Addr::from(state.next);
            state.next = if state.next == LAST {
                FIRST
            } else {
                state.next + 1
            };
            // An address that looks like a network or broadcast address would look wrong in tests.
            let is_plain = !matches!(address.octets()[3], 0 | 255);
            if is_plain && !state.used.contains_key(&address) {
                state.used.insert(address, uid.to_owned());
                return Some(address);
            }
        }
        None
    }

    /// Records the IP of a Pod.
    pub(crate) fn take(&self, address: &str, uid: &str) {
        if let Ok(address) = address.parse() {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.used.insert(address, uid.to_owned());
        }
    }

    /// Releases an IP, if the Pod still holds it.
    pub(crate) fn release(&self, address: &str, uid: &str) {
        if let Ok(address) = address.parse() {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.used.get(&address).is_some_and(|user| user == uid) {
                state.used.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_distinct() {
        let addresses = Addresses::default();
        addresses.take("10.244.0.2", "old");
        let first = addresses.allocate("a").unwrap();
        assert_eq!(first, Ipv4Addr::new(10, 244, 0, 1));
        assert_eq!(addresses.allocate("b"), Some(Ipv4Addr::new(10, 244, 0, 3)));
        addresses.release("10.244.0.1", "another");
        addresses.release("10.244.0.1", "a");
        assert!(!addresses.0.lock().unwrap().used.contains_key(&first));
    }
}
