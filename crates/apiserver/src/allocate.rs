//! Cluster IPs and node ports of services.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::config::ServiceRange;
use crate::registry::Resource;

/// Ports of nodes are from 30000 to 32767.
const PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// The addresses and ports that are allocated.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    range: ServiceRange,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<i64>,
}

impl Addresses {
    /// All addresses of a range, none of them allocated.
    pub(crate) fn new(range: ServiceRange) -> Self {
        Self {
            range,
            taken: Mutex::default(),
        }
    }

    fn address(&self) -> Option<Ipv4Addr> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = self.range.bounds();
        // Others may have been named by clients.
        let highest = taken.addresses.range(first..=last).next_back();
        let next = highest.map_or(first, |highest| highest + 1);
        let free = if next <= last {
            Some(next)
        } else {
            (first..=last).find(|candidate| !taken.addresses.contains(candidate))
        };
        let free = free?;
        taken.addresses.insert(free);
        Some(Ipv4Addr::from(free))
    }

    fn port(&self) -> Option<i64> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = PORTS
            .into_iter()
            .find(|candidate| !taken.ports.contains(candidate))?;
        taken.ports.insert(free);
        Some(free)
    }

    /// Marks the address and ports of a service as allocated.
    pub(crate) fn reserve(&self, service: &Value) {
        self.each(
            service,
            |taken, address| taken.addresses.insert(address),
            |taken, port| taken.ports.insert(port),
        );
    }

    /// Releases the address and ports of a service.
    pub(crate) fn release(&self, service: &Value) {
        self.each(
            service,
            |taken, address| taken.addresses.remove(&address),
            |taken, port| taken.ports.remove(&port),
        );
    }

    fn each(
        &self,
        service: &Value,
        address: impl Fn(&mut Taken, u32) -> bool,
        port: impl Fn(&mut Taken, i64) -> bool,
    ) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = service.pointer("/spec/clusterIP").and_then(Value::as_str)
            && let Ok(found) = text.parse::<Ipv4Addr>()
        {
            address(&mut taken, found.into());
        }
        let ports = service
            .pointer("/spec/ports")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        for number in ports.filter_map(|item| item.get("nodePort")?.as_i64()) {
            port(&mut taken, number);
        }
    }
}

impl Addresses {
    /// Allocates the cluster IP and the node ports of a service that names none.
    pub(crate) fn allocate(&self, resource: &Resource, object: &mut Value) {
        if !resource.is("", "services") {
            return;
        }
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
                Some(address) => address.to_string(),
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
        addresses
            .reserve(&json!({"spec": {"clusterIP": "10.96.0.2", "ports": [{"nodePort": 30000}]}}));
        assert_eq!(addresses.address(), Some(Ipv4Addr::new(10, 96, 0, 3)));
        assert_eq!(addresses.port(), Some(30_001));
        addresses.release(&json!({"spec": {"ports": [{"nodePort": 30000}]}}));
        assert_eq!(addresses.port(), Some(30_000));
    }

    #[test]
    fn stays_in_its_range() {
        let addresses = Addresses::new(ServiceRange::parse("10.0.0.0/29").unwrap());
        addresses.reserve(&json!({"spec": {"clusterIP": "10.9.9.9"}}));
        let all: Vec<String> =
            std::iter::from_fn(|| Some(addresses.address()?.to_string())).collect();
        assert_eq!(all.len(), 6);
        assert_eq!((all[0].as_str(), all[5].as_str()), ("10.0.0.1", "10.0.0.6"));
        addresses.release(&json!({"spec": {"clusterIP": "10.0.0.3"}}));
        assert_eq!(addresses.address(), Some(Ipv4Addr::new(10, 0, 0, 3)));
    }
}
