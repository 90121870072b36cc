//! Finding the address of a service.
//!
//! A resolver only looks things up in what its host already knows; it must not block. Names that
//! it returns are looked up when a connection is made.

use std::collections::HashMap;
use std::sync::Arc;

/// A Service that has no address to connect to. The texts follow `Post "…": `.
///
/// UPSTREAM: k8s.io/apiserver pkg/util/proxy/proxy.go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// There is no such Service.
    #[error("service \"{0}\" not found")]
    NotFound(String),
    /// The Service does not have the port.
    #[error("no service port {port} found for service \"{name}\"")]
    NoPort {
        /// The name of the Service.
        name: String,
        /// The port.
        port: i32,
    },
    /// The Service is headless or has no address.
    #[error("cannot route to service with ClusterIP \"{0}\"")]
    Unroutable(String),
    /// The Service stands for a name outside of the cluster.
    #[error("unsupported service type \"ExternalName\"")]
    ExternalName,
    /// No Pod behind the Service is ready.
    #[error("no endpoints available for service \"{0}\"")]
    NoEndpoints(String),
    /// A failure of another resolver.
    #[error("{0}")]
    Other(String),
}

/// Finds the address behind a service.
pub trait ServiceResolver: Send + Sync + std::fmt::Debug {
    /// The `host:port` to connect to.
    ///
    /// # Errors
    ///
    /// The Service has no address.
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError>;
}

/// Leaves it to DNS: `<name>.<namespace>.svc`. What aggregated API servers do.
#[derive(Debug, Clone, Copy, Default)]
pub struct DnsResolver;

impl ServiceResolver for DnsResolver {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        Ok(format!("{name}.{namespace}.svc:{port}"))
    }
}

/// Sends some services to given addresses and asks another resolver for the rest.
#[derive(Debug)]
pub struct MappedResolver {
    addresses: HashMap<(String, String, Option<i32>), String>,
    rest: Arc<dyn ServiceResolver>,
}

impl MappedResolver {
    /// Maps nothing yet.
    #[must_use]
    pub fn new(rest: Arc<dyn ServiceResolver>) -> Self {
        Self {
            addresses: HashMap::new(),
            rest,
        }
    }

    /// Sends a service to `address`; without a port, on all ports that are not mapped themselves.
    #[must_use]
    pub fn map(mut self, namespace: &str, name: &str, port: Option<i32>, address: &str) -> Self {
        let key = (namespace.to_owned(), name.to_owned(), port);
        self.addresses.insert(key, address.to_owned());
        self
    }
}

impl ServiceResolver for MappedResolver {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        let on = |port| {
            let key = (namespace.to_owned(), name.to_owned(), port);
            self.addresses.get(&key)
        };
        match on(Some(port)).or_else(|| on(None)) {
            Some(address) => Ok(address.clone()),
            None => self.rest.resolve(namespace, name, port),
        }
    }
}

/// A Service as the resolver sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Its address; `None` as text for a headless service, empty when it has none.
    pub cluster_ip: String,
    /// The name it stands for, when it is of type `ExternalName`.
    pub external_name: Option<String>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

/// A port of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// The port of the service.
    pub port: i32,
    /// Addresses of the pods that are ready behind it, `ip:port`, the primary family first.
    pub endpoints: Vec<String>,
}

/// Knows the services of a cluster.
pub trait Services: Send + Sync + std::fmt::Debug {
    /// The service, if there is one.
    fn service(&self, namespace: &str, name: &str) -> Option<Service>;
}

/// Goes to the ClusterIP of a service, as kube-apiserver does.
#[derive(Debug)]
pub struct ClusterIpResolver<S>(pub S);

impl<S: Services> ServiceResolver for ClusterIpResolver<S> {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        let service = find(&self.0, namespace, name)?;
        if let Some(external) = &service.external_name {
            return Ok(join_host_port(external, port));
        }
        // UPSTREAM: k8s.io/apiserver pkg/util/proxy/proxy.go (ResolveCluster): the address is
        // looked at before the port.
        if matches!(service.cluster_ip.as_str(), "" | "None") {
            return Err(ResolveError::Unroutable(service.cluster_ip));
        }
        find_port(&service, name, port)?;
        Ok(join_host_port(&service.cluster_ip, port))
    }
}

/// Goes to a pod behind a service, as kube-apiserver does with `--enable-aggregator-routing`.
#[derive(Debug)]
pub struct EndpointResolver<S>(pub S);

impl<S: Services> ServiceResolver for EndpointResolver<S> {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        let service = find(&self.0, namespace, name)?;
        if service.external_name.is_some() {
            return Err(ResolveError::ExternalName);
        }
        let endpoints = &find_port(&service, name, port)?.endpoints;
        let none = || ResolveError::NoEndpoints(name.to_owned());
        let first = endpoints.first().ok_or_else(none)?;
        let six = first.starts_with('[');
        let primary: Vec<&String> = endpoints
            .iter()
            .filter(|endpoint| endpoint.starts_with('[') == six)
            .collect();
        let chosen = primary.get(random_below(primary.len())).ok_or_else(none)?;
        Ok((*chosen).clone())
    }
}

fn find(services: &impl Services, namespace: &str, name: &str) -> Result<Service, ResolveError> {
    services
        .service(namespace, name)
        .ok_or_else(|| ResolveError::NotFound(name.to_owned()))
}

fn find_port<'s>(
    service: &'s Service,
    name: &str,
    port: i32,
) -> Result<&'s ServicePort, ResolveError> {
    service
        .ports
        .iter()
        .find(|candidate| candidate.port == port)
        .ok_or_else(|| ResolveError::NoPort {
            name: name.to_owned(),
            port,
        })
}

fn join_host_port(host: &str, port: i32) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// A number below `bound`, good enough to spread load. The standard library seeds its hashers at
/// random.
fn random_below(bound: usize) -> usize {
    use std::hash::{BuildHasher as _, RandomState};
    let random = RandomState::new().hash_one(bound);
    usize::try_from(random % (bound.max(1) as u64)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone)]
    struct One(Service);

    impl Services for One {
        fn service(&self, namespace: &str, name: &str) -> Option<Service> {
            (namespace == "ns" && name == "s").then(|| self.0.clone())
        }
    }

    fn service() -> Service {
        Service {
            cluster_ip: String::from("10.0.0.1"),
            external_name: None,
            ports: vec![ServicePort {
                port: 443,
                endpoints: vec![
                    String::from("10.1.0.1:8443"),
                    String::from("[fd00::1]:8443"),
                ],
            }],
        }
    }

    fn resolved(resolver: &dyn ServiceResolver, name: &str, port: i32) -> String {
        resolver
            .resolve("ns", name, port)
            .unwrap_or_else(|problem| problem.to_string())
    }

    #[test]
    fn goes_to_the_cluster_address() {
        let cluster = ClusterIpResolver(One(service()));
        assert_eq!(resolved(&cluster, "s", 443), "10.0.0.1:443");
        assert_eq!(resolved(&cluster, "x", 443), "service \"x\" not found");
        assert_eq!(
            resolved(&cluster, "s", 1),
            "no service port 1 found for service \"s\""
        );
        let headless = ClusterIpResolver(One(Service {
            cluster_ip: String::from("None"),
            ..service()
        }));
        assert_eq!(
            resolved(&headless, "s", 443),
            "cannot route to service with ClusterIP \"None\""
        );
        let external = One(Service {
            external_name: Some(String::from("example.com")),
            ..service()
        });
        assert_eq!(
            resolved(&ClusterIpResolver(external.clone()), "s", 8443),
            "example.com:8443"
        );
        assert_eq!(
            resolved(&EndpointResolver(external), "s", 443),
            "unsupported service type \"ExternalName\""
        );
    }

    #[test]
    fn goes_to_an_endpoint_of_the_primary_family() {
        let endpoints = EndpointResolver(One(service()));
        for _ in 0..20 {
            assert_eq!(resolved(&endpoints, "s", 443), "10.1.0.1:8443");
        }
        let mut empty = service();
        empty.ports[0].endpoints.clear();
        assert_eq!(
            resolved(&EndpointResolver(One(empty)), "s", 443),
            "no endpoints available for service \"s\""
        );
    }

    #[test]
    fn prefers_a_mapped_port() {
        let mapped = MappedResolver::new(Arc::new(DnsResolver))
            .map("ns", "s", None, "127.0.0.1:1")
            .map("ns", "s", Some(8443), "127.0.0.1:2");
        assert_eq!(resolved(&mapped, "s", 443), "127.0.0.1:1");
        assert_eq!(resolved(&mapped, "s", 8443), "127.0.0.1:2");
        assert_eq!(resolved(&mapped, "x", 443), "x.ns.svc:443");
    }
}
