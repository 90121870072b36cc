//! Cluster IPs and node ports of services.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::registry::Resource;

/// Addresses are from 10.96.0.0/12, the range that most clusters use.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 1]);
const LAST: u32 = u32::from_be_bytes([10, 111, 255, 254]);
/// Ports of nodes are from 30000 to 32767.
const PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// The addresses and ports that are allocated.
#[derive(Debug, Default, Clone)]
pub(crate) struct Addresses(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<i64>,
    /// Those of stored services, by namespace and name.
    services: HashMap<(String, String), Held>,
}

/// The addresses and ports of one service.
#[derive(Debug, Default, Clone)]
struct Held {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<i64>,
}

impl Held {
    fn of(service: &Value) -> Self {
        let text = service.pointer("/spec/clusterIP").and_then(Value::as_str);
        let address = text.and_then(|text| text.parse::<Ipv4Addr>().ok());
        let ports = service.pointer("/spec/ports").and_then(Value::as_array);
        let ports = ports.into_iter().flatten();
        let checked = service.pointer("/spec/healthCheckNodePort");
        let ports = ports.filter_map(|item| item.get("nodePort")).chain(checked);
        Self {
            addresses: address.map(u32::from).into_iter().collect(),
            ports: ports
                .filter_map(Value::as_i64)
                .filter(|&port| port != 0)
                .collect(),
        }
    }
}

impl Taken {
    fn release(&mut self, held: &Held) {
        self.addresses.retain(|it| !held.addresses.contains(it));
        self.ports.retain(|it| !held.ports.contains(it));
    }
}

/// Addresses and ports that were allocated for a service that is not stored yet. They are free again when
/// this is dropped, unless they are kept.
#[derive(Debug)]
pub(crate) struct Allocation {
    addresses: Addresses,
    held: Held,
}

impl Allocation {
    /// Keeps what was allocated: the service is stored.
    pub(crate) fn keep(allocated: &mut Option<Self>) {
        if let Some(mut allocation) = allocated.take() {
            allocation.held = Held::default();
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.addresses.lock().release(&self.held);
    }
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> Option<Ipv4Addr> {
        let mut taken = self.lock();
        let next = taken.addresses.last().map_or(FIRST, |last| last + 1);
        let free = if next <= LAST {
            Some(next)
        } else {
            (FIRST..=LAST).find(|candidate| !taken.addresses.contains(candidate))
        };
        let free = free?;
        taken.addresses.insert(free);
        Some(Ipv4Addr::from(free))
    }

    fn port(&self) -> Option<i64> {
        let mut taken = self.lock();
        let free = PORTS
            .into_iter()
            .find(|candidate| !taken.ports.contains(candidate))?;
        taken.ports.insert(free);
        Some(free)
    }

    /// Takes note of the address and ports of a stored service, in place of those it had.
    pub(crate) fn set(&self, namespace: &str, name: &str, service: &Value) {
        let new = Held::of(service);
        let mut taken = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(old) = taken.services.insert(key, new.clone()) {
            taken.release(&old);
        }
        taken.addresses.extend(new.addresses);
        taken.ports.extend(new.ports);
    }

    /// Releases the address and ports of a service that is gone.
    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        let mut taken = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(held) = taken.services.remove(&key) {
            taken.release(&held);
        }
    }

    /// Allocates the cluster IP and the node ports of a service that names none.
    ///
    /// What was allocated is given back when it is dropped before the service is stored.
    pub(crate) fn allocate(&self, resource: &Resource, object: &mut Value) -> Option<Allocation> {
        if !resource.is("", "services") {
            return None;
        }
        let mut held = Held::default();
        self.allocate_for(object, &mut held);
        Some(Allocation {
            addresses: self.clone(),
            held,
        })
    }

    fn allocate_for(&self, object: &mut Value, held: &mut Held) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
            return;
        };
        let kind = spec
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("ClusterIP")
            .to_owned();
        if kind == "ExternalName" {
            return;
        }
        let address = match spec.get("clusterIP").and_then(Value::as_str) {
            None | Some("") => match self.address() {
                Some(address) => {
                    held.addresses.insert(address.into());
                    address.to_string()
                }
                None => return,
            },
            Some(address) => address.to_owned(),
        };
        spec.insert(String::from("clusterIP"), address.clone().into());
        spec.entry("clusterIPs").or_insert_with(|| json!([address]));
        // A service without an address has its families decided by its selector, or by nobody.
        if address != "None" || spec.contains_key("selector") {
            spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
            spec.entry("ipFamilyPolicy")
                .or_insert_with(|| "SingleStack".into());
        } else {
            spec.entry("ipFamilies")
                .or_insert_with(|| json!(["IPv4", "IPv6"]));
            spec.entry("ipFamilyPolicy")
                .or_insert_with(|| "RequireDualStack".into());
        }
        let local = spec.get("externalTrafficPolicy").and_then(Value::as_str) == Some("Local");
        let checked = spec.get("healthCheckNodePort").and_then(Value::as_i64);
        if kind == "LoadBalancer"
            && local
            && checked.unwrap_or_default() == 0
            && let Some(number) = self.port()
        {
            held.ports.insert(number);
            spec.insert(String::from("healthCheckNodePort"), number.into());
        }
        let wants_ports = spec
            .get("allocateLoadBalancerNodePorts")
            .and_then(Value::as_bool);
        if kind == "NodePort" || (kind == "LoadBalancer" && wants_ports != Some(false)) {
            let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                let missing = port
                    .get("nodePort")
                    .and_then(Value::as_i64)
                    .unwrap_or_default()
                    == 0;
                if missing
                    && let (Some(number), Some(members)) = (self.port(), port.as_object_mut())
                {
                    held.ports.insert(number);
                    members.insert(String::from("nodePort"), number.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_what_is_free() {
        let addresses = Addresses::default();
        assert_eq!(addresses.address(), Some(Ipv4Addr::new(10, 96, 0, 1)));
        let service = json!({"spec": {"clusterIP": "10.96.0.2", "ports": [{"nodePort": 30000}]}});
        addresses.set("n", "a", &service);
        assert_eq!(addresses.address(), Some(Ipv4Addr::new(10, 96, 0, 3)));
        assert_eq!(addresses.port(), Some(30_001));
        // The service has no port any more, and then is gone.
        addresses.set("n", "a", &json!({"spec": {"clusterIP": "10.96.0.2"}}));
        assert_eq!(addresses.port(), Some(30_000));
        addresses.remove("n", "a");
        assert!(!addresses.lock().addresses.contains(&(FIRST + 1)));
    }

    #[test]
    fn gives_back_what_is_not_kept() {
        let addresses = Addresses::default();
        let make = || {
            let mut held = Held::default();
            let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 1}]}});
            addresses.allocate_for(&mut service, &mut held);
            let allocation = Allocation {
                addresses: addresses.clone(),
                held,
            };
            (service, allocation)
        };
        let (first, allocation) = make();
        assert_eq!(first["spec"]["clusterIP"], "10.96.0.1");
        drop(allocation);
        let (second, allocation) = make();
        assert_eq!(second, first);
        Allocation::keep(&mut Some(allocation));
        assert_eq!(make().0["spec"]["ports"][0]["nodePort"], 30_001);
    }
}
