//! Cluster IPs and node ports of Services.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_store::{Store, WriteError};
use serde_json::{Map, Value, json};

use crate::config::ServiceRange;
use crate::error::{Failure, Outcome, internal, invalid};
use crate::metadata;
use crate::registry::Resource;

/// The range of node ports.
const PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// The allocated addresses and ports.
#[derive(Debug, Default, Clone)]
pub(crate) struct Addresses {
    range: ServiceRange,
    taken: Arc<Mutex<AllocatorState>>,
}

#[derive(Debug, Default)]
struct AllocatorState {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<i64>,
    /// The allocations of stored Services, by namespace and name.
    services: HashMap<(String, String), ServiceAllocation>,
}

/// The addresses and ports of one Service.
#[derive(Debug, Default, Clone)]
struct ServiceAllocation {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<i64>,
}

impl ServiceAllocation {
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

impl AllocatorState {
    fn release(&mut self, held: &ServiceAllocation) {
        self.addresses.retain(|it| !held.addresses.contains(it));
        self.ports.retain(|it| !held.ports.contains(it));
    }
}

/// The purpose of an allocation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Purpose {
    /// Set for dry runs, which get ports outside of the range.
    pub(crate) is_dry_run: bool,
    /// Set if the Service is created.
    pub(crate) is_new: bool,
    /// Set if other servers allocate from the same range: they should choose different addresses.
    pub(crate) is_shared: bool,
}

/// Addresses and ports allocated for a Service before it is stored. They are released on drop, unless they are kept.
#[derive(Debug)]
pub(crate) struct Allocation {
    addresses: Addresses,
    held: ServiceAllocation,
}

impl Allocation {
    /// Keeps the allocation: the Service is stored.
    pub(crate) fn commit(allocated: &mut Option<Self>) {
        if let Some(mut allocation) = allocated.take() {
            allocation.held = ServiceAllocation::default();
        }
    }

    /// Claims the allocation in the store against other servers, until they have observed the Service.
    pub(crate) async fn claim(&self, store: &dyn Store) -> Result<(), ClaimError> {
        if !store.is_shared() {
            return Ok(());
        }
        let addresses = self.held.addresses.iter().copied().map(Ipv4Addr::from);
        let addresses = addresses.map(|address| address.to_string());
        let ports = self.held.ports.iter().map(i64::to_string);
        for claimed in addresses.chain(ports) {
            let key = format!("{CLAIMS}{claimed}");
            match store.create(&key, Bytes::new(), Some(CLAIMED)).await {
                Ok(_) => {}
                Err(WriteError::AlreadyExists(_)) => return Err(ClaimError::Taken(claimed)),
                Err(error) => return Err(ClaimError::Failed(error)),
            }
        }
        Ok(())
    }
}

/// The keys of claims.
const CLAIMS: &str = "/-/claims/";
/// The validity of a claim: much longer than other servers need to see the Service.
const CLAIMED: Duration = Duration::from_secs(120);

/// A failed claim.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    /// Another server has claimed it.
    #[error("{0} was allocated by another server, try again")]
    Taken(String),
    #[error(transparent)]
    Failed(WriteError),
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.addresses.lock().release(&self.held);
    }
}

impl Addresses {
    /// Creates the allocator of a range, without allocations.
    pub(crate) fn new(range: ServiceRange) -> Self {
        Self {
            range,
            taken: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, AllocatorState> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self, is_shared: bool) -> Option<Ipv4Addr> {
        let mut taken = self.lock();
        let (first, last) = self.range.bounds();
        // Clients may have specified others.
        let highest = taken.addresses.range(first..=last).next_back();
        let next = match is_shared {
            true => first + random() % (last - first + 1),
            false => highest.map_or(first, |highest| highest + 1),
        };
        let next = match taken.addresses.contains(&next) {
            true => last + 1,
            false => next,
        };
        let free = if next <= last {
            Some(next)
        } else {
            (first..=last).find(|candidate| !taken.addresses.contains(candidate))
        };
        let free = free?;
        taken.addresses.insert(free);
        Some(Ipv4Addr::from(free))
    }

    fn port(&self, is_shared: bool) -> Option<i64> {
        let mut taken = self.lock();
        let start = match is_shared {
            true => PORTS.start() + i64::from(random()) % (PORTS.end() - PORTS.start() + 1),
            false => *PORTS.start(),
        };
        let free = (start..=*PORTS.end())
            .chain(PORTS)
            .find(|candidate| !taken.ports.contains(candidate))?;
        taken.ports.insert(free);
        Some(free)
    }

    /// Records the addresses and ports of a stored Service, replacing its previous ones.
    pub(crate) fn set(&self, namespace: &str, name: &str, service: &Value) {
        let new = ServiceAllocation::of(service);
        let mut taken = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(old) = taken.services.insert(key, new.clone()) {
            taken.release(&old);
        }
        taken.addresses.extend(new.addresses);
        taken.ports.extend(new.ports);
    }

    /// Releases the addresses and ports of a deleted Service.
    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        let mut taken = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(held) = taken.services.remove(&key) {
            taken.release(&held);
        }
    }

    /// Allocates the cluster IP and the node ports of a Service that specifies none, and the node ports that it
    /// specifies. `old` is the Service before an update.
    ///
    /// Allocations are released when dropped before the service is stored.
    pub(crate) fn allocate(
        &self,
        resource: &Resource,
        object: &mut Value,
        old: Option<&Value>,
        purpose: Purpose,
    ) -> Outcome<Option<Allocation>> {
        if !resource.is("", "services") {
            return Ok(None);
        }
        let mut allocation = Allocation {
            addresses: self.clone(),
            held: ServiceAllocation::default(),
        };
        let allocated = self.allocate_for(object, old, &mut allocation.held, purpose);
        allocated.map_err(|refused| refused.into_failure(object))?;
        Ok(Some(allocation))
    }

    /// Allocates a specified port. A dry run checks if it is free, but not if it is in the range.
    ///
    /// UPSTREAM: kubernetes pkg/registry/core/service/portallocator (Allocate)
    fn take(
        &self,
        port: i64,
        seen: &mut BTreeSet<i64>,
        held: Option<&mut ServiceAllocation>,
    ) -> Result<(), &'static str> {
        let is_dry_run = held.is_none();
        if !is_dry_run && !PORTS.contains(&port) {
            return Err(NOT_IN_RANGE);
        }
        let mut taken = self.lock();
        if taken.ports.contains(&port) || !seen.insert(port) {
            return Err("provided port is already allocated");
        }
        if let Some(held) = held {
            taken.ports.insert(port);
            held.ports.insert(port);
        }
        Ok(())
    }

    fn allocate_for(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        held: &mut ServiceAllocation,
        purpose: Purpose,
    ) -> Result<(), PortError> {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
            return Ok(());
        };
        let kind = spec
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("ClusterIP")
            .to_owned();
        if kind == "ExternalName" {
            return Ok(());
        }
        let address = match spec.get("clusterIP").and_then(Value::as_str) {
            None | Some("") => match self.address(purpose.is_shared) {
                Some(address) => {
                    held.addresses.insert(address.into());
                    address.to_string()
                }
                None => return Ok(()),
            },
            Some(address) => address.to_owned(),
        };
        spec.insert(String::from("clusterIP"), address.clone().into());
        let addresses = spec.entry("clusterIPs").or_insert(Value::Null);
        if addresses.as_array().is_none_or(Vec::is_empty) {
            *addresses = json!([address]);
        }
        // A headless Service without a selector gets both IP families.
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
        let mut next_port = |held: &mut ServiceAllocation| {
            if purpose.is_dry_run {
                dry += 1;
                return Some(dry);
            }
            let port = self.port(purpose.is_shared)?;
            held.ports.insert(port);
            Some(port)
        };
        // The specified ports; those of a dry run are not reserved.
        let mut seen = BTreeSet::new();
        let is_balancer = kind == "LoadBalancer";
        let wants_ports = spec
            .get("allocateLoadBalancerNodePorts")
            .and_then(Value::as_bool);
        let wants_ports = kind == "NodePort" || wants_ports != Some(false);
        if kind == "NodePort" || is_balancer {
            let before = old.map(ServiceAllocation::of).unwrap_or_default();
            let named = named_ports(spec.get("ports"));
            // Ports of a new Service that differ only in the protocol share a node port.
            let mut known: BTreeMap<i64, i64> = BTreeMap::new();
            let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
            let ports = ports.into_iter().flatten().enumerate();
            for (index, port) in ports {
                let Some(port) = port.as_object_mut() else {
                    continue;
                };
                let (own, node) = (number(port, "port"), number(port, "nodePort"));
                if node == 0 && !wants_ports {
                    continue;
                }
                let shared = known.get(&own).copied().filter(|_| purpose.is_new);
                let asked = match (node, shared) {
                    // The first of these ports gets the node port that any of them specifies.
                    (_, None) if purpose.is_new => named.get(&own).copied().unwrap_or_default(),
                    (0, Some(shared)) => {
                        port.insert(String::from("nodePort"), shared.into());
                        continue;
                    }
                    (node, _) => node,
                };
                let is_old =
                    !purpose.is_new && (before.ports.contains(&asked) || seen.contains(&asked));
                let taken = match asked {
                    0 => next_port(held),
                    asked if is_old || shared == Some(asked) => Some(asked),
                    asked => {
                        let refused = |why| PortError::Port(index, asked, why);
                        let held = (!purpose.is_dry_run).then_some(&mut *held);
                        self.take(asked, &mut seen, held).map_err(refused)?;
                        Some(asked)
                    }
                };
                let Some(taken) = taken else {
                    continue;
                };
                if node == 0 || node != taken {
                    port.insert(String::from("nodePort"), taken.into());
                }
                known.entry(own).or_insert(taken);
            }
        }
        let needed = old.and_then(|old| old.get("spec")?.as_object());
        if needs_health_check(spec) && !needed.is_some_and(needs_health_check) {
            match number(spec, "healthCheckNodePort") {
                0 => {
                    if let Some(port) = next_port(held) {
                        spec.insert(String::from("healthCheckNodePort"), port.into());
                    }
                }
                asked => {
                    let held = (!purpose.is_dry_run).then_some(held);
                    let taken = self.take(asked, &mut seen, held);
                    taken.map_err(|why| PortError::HealthCheck(asked, why))?;
                }
            }
        }
        Ok(())
    }
}

const NOT_IN_RANGE: &str =
    "provided port is not in the valid range. The range of valid ports is 30000-32767";

/// A specified port that is unavailable: its index, number, and the reason.
#[derive(Debug)]
enum PortError {
    Port(usize, i64, &'static str),
    HealthCheck(i64, &'static str),
}

impl PortError {
    fn into_failure(self, service: &Value) -> Failure {
        match self {
            Self::Port(index, port, why) => {
                let spec = Path::root("spec");
                let (ports, name) = (spec.child("ports"), metadata::text(service, "name"));
                let item = ports.index(index);
                let path = item.child("nodePort");
                let error = FieldError::invalid(&path, Shown::Integer(port), why.to_owned());
                invalid("Service", "", name, &[error])
            }
            Self::HealthCheck(port, why) => internal(&format!(
                "failed to allocate requested HealthCheck NodePort {port}: {why}"
            )),
        }
    }
}

fn number(members: &Map<String, Value>, key: &str) -> i64 {
    let member = members.get(key).and_then(Value::as_i64);
    member.unwrap_or_default()
}

/// The first node port specified for each port.
fn named_ports(ports: Option<&Value>) -> BTreeMap<i64, i64> {
    let ports = ports.and_then(Value::as_array).into_iter().flatten();
    let mut named = BTreeMap::new();
    for port in ports.filter_map(Value::as_object) {
        let node = number(port, "nodePort");
        if node != 0 {
            named.entry(number(port, "port")).or_insert(node);
        }
    }
    named
}

fn needs_health_check(spec: &Map<String, Value>) -> bool {
    let says = |key: &str, wanted: &str| spec.get(key).is_some_and(|value| value == wanted);
    says("type", "LoadBalancer") && says("externalTrafficPolicy", "Local")
}

/// A random number, which differs from those of other servers.
fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without entropy the numbers may collide, which claims resolve.
    getrandom::fill(&mut bytes).map_or(0, |()| u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_what_is_free() {
        let addresses = Addresses::default();
        assert_eq!(addresses.address(false), Some(Ipv4Addr::new(10, 96, 0, 1)));
        let service = json!({"spec": {"clusterIP": "10.96.0.2", "ports": [{"nodePort": 30000}]}});
        addresses.set("n", "a", &service);
        assert_eq!(addresses.address(false), Some(Ipv4Addr::new(10, 96, 0, 3)));
        assert_eq!(addresses.port(false), Some(30_001));
        // The Service loses its ports, and is then deleted.
        addresses.set("n", "a", &json!({"spec": {"clusterIP": "10.96.0.2"}}));
        assert_eq!(addresses.port(false), Some(30_000));
        addresses.remove("n", "a");
        let given_back = u32::from(Ipv4Addr::new(10, 96, 0, 2));
        assert!(!addresses.lock().addresses.contains(&given_back));
    }

    #[test]
    fn stays_in_its_range() {
        let addresses = Addresses::new(ServiceRange::parse("10.0.0.0/29").unwrap());
        addresses.set("shop", "far", &json!({"spec": {"clusterIP": "10.9.9.9"}}));
        let all: Vec<String> =
            std::iter::from_fn(|| Some(addresses.address(false)?.to_string())).collect();
        assert_eq!(all.len(), 6);
        assert_eq!((all[0].as_str(), all[5].as_str()), ("10.0.0.1", "10.0.0.6"));
        addresses.set("shop", "web", &json!({"spec": {"clusterIP": "10.0.0.3"}}));
        addresses.remove("shop", "web");
        assert_eq!(addresses.address(false), Some(Ipv4Addr::new(10, 0, 0, 3)));
    }

    #[test]
    fn gives_back_what_is_not_kept() {
        let addresses = Addresses::default();
        let make = || {
            let mut held = ServiceAllocation::default();
            let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 1}]}});
            addresses
                .allocate_for(&mut service, None, &mut held, Purpose::default())
                .unwrap();
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
        Allocation::commit(&mut Some(allocation));
        assert_eq!(make().0["spec"]["ports"][0]["nodePort"], 30_001);
    }
}
