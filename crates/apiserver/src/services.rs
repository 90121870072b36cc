//! The Services and endpoints for webhook calls. Writes of Services and EndpointSlices update them before they return.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_admission::https::{Service, ServicePort, Services};
use serde_json::Value;

use crate::metadata;

/// The label of an EndpointSlice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The services by namespace and name.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceCache(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    services: HashMap<(String, String), Stored>,
    /// The EndpointSlices of a Service by name: the order of endpoints is independent of the order of writes.
    slices: HashMap<(String, String), BTreeMap<String, Slice>>,
    /// The Service of a slice, by the slice's namespace and name.
    service_of: HashMap<(String, String), String>,
}

#[derive(Debug)]
struct Stored {
    cluster_ip: String,
    external_name: Option<String>,
    is_cluster_ip: bool,
    /// Port names and numbers.
    ports: Vec<(String, i32)>,
}

/// The readiness of a port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    NoService,
    NoPort,
    NoSlices,
    /// None of the slices has a ready endpoint for the port of this name.
    NoEndpoints(String),
    Ready,
}

/// The ready endpoints of a slice.
#[derive(Debug)]
struct Slice {
    six: bool,
    /// Port names of the Service, and port numbers of the endpoints.
    ports: Vec<(String, u16)>,
    addresses: Vec<String>,
}

fn text(object: &Value, pointer: &str) -> String {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

fn list<'v>(object: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    let found = object.pointer(pointer).and_then(Value::as_array);
    found.into_iter().flatten()
}

impl Slice {
    /// Parses a slice. Names that require DNS are not endpoints, as for kube-proxy.
    fn read(object: &Value) -> Option<Self> {
        let six = match object.get("addressType")?.as_str()? {
            "IPv4" => false,
            "IPv6" => true,
            _ => return None,
        };
        let ports = list(object, "/ports").filter_map(|port| {
            let number = u16::try_from(port.get("port")?.as_i64()?).ok()?;
            Some((text(port, "/name"), number))
        });
        // UPSTREAM: discovery/v1 types.go: an unknown condition counts as ready.
        let ready = list(object, "/endpoints").filter(|endpoint| {
            endpoint
                .pointer("/conditions/ready")
                .and_then(Value::as_bool)
                != Some(false)
        });
        Some(Self {
            six,
            ports: ports.collect(),
            addresses: ready
                .filter_map(|endpoint| Some(endpoint.pointer("/addresses/0")?.as_str()?.to_owned()))
                .collect(),
        })
    }

    fn endpoints<'s>(&'s self, port: &'s str) -> impl Iterator<Item = String> + 's {
        let numbers = self.ports.iter().filter(move |(name, _)| name == port);
        numbers.flat_map(move |(_, number)| {
            self.addresses.iter().map(move |address| match self.six {
                true => format!("[{address}]:{number}"),
                false => format!("{address}:{number}"),
            })
        })
    }
}

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

impl ServiceCache {
    /// Adds or replaces a service.
    pub(crate) fn set(&self, namespace: &str, name: &str, object: &Value) {
        let ports = list(object, "/spec/ports").filter_map(|item| {
            let number = i32::try_from(item.get("port")?.as_i64()?).ok()?;
            Some((text(item, "/name"), number))
        });
        let service = Stored {
            cluster_ip: text(object, "/spec/clusterIP"),
            external_name: (text(object, "/spec/type") == "ExternalName")
                .then(|| text(object, "/spec/externalName")),
            is_cluster_ip: matches!(text(object, "/spec/type").as_str(), "" | "ClusterIP"),
            ports: ports.collect(),
        };
        self.change(|known| {
            known.services.insert(key(namespace, name), service);
        });
    }

    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        self.change(|known| {
            known.services.remove(&key(namespace, name));
        });
    }

    /// Adds or replaces an EndpointSlice.
    pub(crate) fn set_slice(&self, namespace: &str, name: &str, object: &Value) {
        let labels = metadata::of(object).and_then(|metadata| metadata.get("labels"));
        let service = labels.and_then(|labels| labels.get(SERVICE_NAME)?.as_str());
        let slice = Slice::read(object);
        self.change(|known| {
            known.remove_slice(namespace, name);
            if let (Some(service), Some(slice)) = (service, slice) {
                let slices = known.slices.entry(key(namespace, service)).or_default();
                slices.insert(name.to_owned(), slice);
                let of = key(namespace, name);
                known.service_of.insert(of, service.to_owned());
            }
        });
    }

    pub(crate) fn remove_slice(&self, namespace: &str, name: &str) {
        self.change(|known| known.remove_slice(namespace, name));
    }

    /// The readiness of a port of a service.
    ///
    /// UPSTREAM: kube-aggregator pkg/controllers/status/remote (sync, hasAvailableEndpoint)
    pub(crate) fn readiness(&self, namespace: &str, name: &str, port: i32) -> Readiness {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let key = key(namespace, name);
        let Some(service) = known.services.get(&key) else {
            return Readiness::NoService;
        };
        // Addresses of other types are not resolved here.
        if !service.is_cluster_ip {
            return Readiness::Ready;
        }
        let Some((port, _)) = service.ports.iter().find(|(_, number)| *number == port) else {
            return Readiness::NoPort;
        };
        let Some(slices) = known.slices.get(&key) else {
            return Readiness::NoSlices;
        };
        let has_endpoint = slices
            .values()
            .any(|slice| slice.endpoints(port).next().is_some());
        match has_endpoint {
            true => Readiness::Ready,
            false => Readiness::NoEndpoints(port.clone()),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Known {
    fn remove_slice(&mut self, namespace: &str, name: &str) {
        let Some(service) = self.service_of.remove(&key(namespace, name)) else {
            return;
        };
        let service = key(namespace, &service);
        if let Some(slices) = self.slices.get_mut(&service) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        }
    }
}

impl Services for ServiceCache {
    fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let key = key(namespace, name);
        let service = known.services.get(&key)?;
        // The family of the ClusterIP is the primary one.
        let primary = service.cluster_ip.contains(':');
        let slices = || {
            known
                .slices
                .get(&key)
                .into_iter()
                .flat_map(BTreeMap::values)
        };
        let ports = service.ports.iter().map(|(name, port)| {
            let first = slices().filter(|slice| slice.six == primary);
            let second = slices().filter(|slice| slice.six != primary);
            let slices = first.chain(second);
            ServicePort {
                port: *port,
                endpoints: slices.flat_map(|slice| slice.endpoints(name)).collect(),
            }
        });
        Some(Service {
            cluster_ip: service.cluster_ip.clone(),
            external_name: service.external_name.clone(),
            ports: ports.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(service: &str, family: &str, endpoints: Value) -> Value {
        json!({
            "metadata": {"labels": {SERVICE_NAME: service}},
            "addressType": family,
            "ports": [{"name": "hook", "port": 9443}, {"name": "metrics", "port": 8080}],
            "endpoints": endpoints,
        })
    }

    fn endpoints(services: &ServiceCache) -> Vec<String> {
        let service = services.service("shop", "web").unwrap();
        assert!(service.ports[1].endpoints.is_empty());
        service.ports[0].endpoints.clone()
    }

    #[test]
    fn follows_slices() {
        let services = ServiceCache::default();
        let ports = json!([{"name": "hook", "port": 443}, {"name": "other", "port": 80}]);
        let object = json!({"spec": {"clusterIP": "10.0.0.9", "ports": ports}});
        services.set("shop", "web", &object);
        assert!(endpoints(&services).is_empty());
        let readiness = |port| services.readiness("shop", "web", port);
        assert_eq!(readiness(443), Readiness::NoSlices);
        assert_eq!(readiness(1), Readiness::NoPort);
        let six = json!([{"addresses": ["fd00::1"]}]);
        services.set_slice("shop", "a", &slice("web", "IPv6", six));
        let four = json!([
            {"addresses": ["10.1.0.1", "10.1.0.2"], "conditions": {"ready": true}},
            {"addresses": ["10.1.0.3"], "conditions": {"ready": false}},
            {"addresses": ["10.1.0.4"], "conditions": {}},
        ]);
        services.set_slice("shop", "b", &slice("web", "IPv4", four.clone()));
        services.set_slice(
            "shop",
            "c",
            &slice("web", "FQDN", json!([{"addresses": ["a.b"]}])),
        );
        services.set_slice("other", "b", &slice("web", "IPv4", json!([])));
        assert_eq!(
            endpoints(&services),
            ["10.1.0.1:9443", "10.1.0.4:9443", "[fd00::1]:9443"]
        );
        assert_eq!(readiness(443), Readiness::Ready);
        assert_eq!(readiness(80), Readiness::NoEndpoints(String::from("other")));
        services.set_slice("shop", "b", &slice("another", "IPv4", four));
        assert_eq!(endpoints(&services), ["[fd00::1]:9443"]);
        services.remove_slice("shop", "a");
        assert!(endpoints(&services).is_empty());
        services.remove("shop", "web");
        assert_eq!(services.service("shop", "web"), None);
        assert_eq!(services.readiness("shop", "web", 443), Readiness::NoService);
    }
}
