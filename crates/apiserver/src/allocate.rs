//! Cluster IPs and node ports of services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::registry::Resource;

/// Addresses are from 10.96.0.0/12, the range that most clusters use.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 1]);
const LAST: u32 = u32::from_be_bytes([10, 111, 255, 254]);
/// Ports of nodes are from 30000 to 32767.
const PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// The addresses and ports that are allocated.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<Taken>);

/// The write that needs addresses and ports.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Allocation {
    /// A dry run gets ports that no service can have.
    pub(crate) is_dry_run: bool,
    /// The service is created.
    pub(crate) is_new: bool,
}

#[derive(Debug, Default)]
struct Taken {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<i64>,
}

impl Addresses {
    fn address(&self) -> Option<Ipv4Addr> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub(crate) fn allocate(&self, resource: &Resource, object: &mut Value, how: Allocation) {
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
        let addresses = spec.entry("clusterIPs").or_insert(Value::Null);
        if addresses.as_array().is_none_or(Vec::is_empty) {
            *addresses = json!([address]);
        }
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
        // UPSTREAM: kubernetes pkg/registry/core/service/portallocator/operation.go
        let mut dry = 32_768;
        let mut next_port = || {
            if how.is_dry_run {
                dry += 1;
                return Some(dry);
            }
            self.port()
        };
        let local = spec.get("externalTrafficPolicy").and_then(Value::as_str) == Some("Local");
        let wants_ports = spec
            .get("allocateLoadBalancerNodePorts")
            .and_then(Value::as_bool);
        if kind == "NodePort" || (kind == "LoadBalancer" && wants_ports != Some(false)) {
            // Protocols of a new service share the port of a node.
            let mut known: BTreeMap<i64, i64> = BTreeMap::new();
            let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                let number = |key: &str| port.get(key).and_then(Value::as_i64).unwrap_or_default();
                let (own, mut node) = (number("port"), number("nodePort"));
                if node == 0 {
                    let shared = known.get(&own).copied().filter(|_| how.is_new);
                    let Some(found) = shared.or_else(&mut next_port) else {
                        continue;
                    };
                    node = found;
                    port.insert(String::from("nodePort"), node.into());
                }
                known.entry(own).or_insert(node);
            }
        }
        let checked = spec.get("healthCheckNodePort").and_then(Value::as_i64);
        if kind == "LoadBalancer"
            && local
            && checked.unwrap_or_default() == 0
            && let Some(number) = next_port()
        {
            spec.insert(String::from("healthCheckNodePort"), number.into());
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
}
