//! Resolves the address of a Service.
//!
//! A resolver uses only data its host already has; it must not block. Returned host names are resolved when a
//! connection is made.

use std::collections::HashMap;
use std::sync::Arc;

/// A Service without an address. The messages follow `Post "…": `.
///
/// UPSTREAM: k8s.io/apiserver pkg/util/proxy/proxy.go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The Service does not exist.
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
    /// The Service is of type ExternalName.
    #[error("unsupported service type \"ExternalName\"")]
    ExternalName,
    /// No Pod behind the Service is ready.
    #[error("no endpoints available for service \"{0}\"")]
    NoEndpoints(String),
    /// An error of another resolver.
    #[error("{0}")]
    Other(String),
}

/// Resolves the address of a Service.
pub trait ServiceResolver: Send + Sync + std::fmt::Debug {
    /// The `host:port` to connect to.
    ///
    /// # Errors
    ///
    /// The Service has no address.
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError>;
}

/// Resolves through DNS, as `<name>.<namespace>.svc`, like aggregated API servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct DnsResolver;

impl ServiceResolver for DnsResolver {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        Ok(format!("{name}.{namespace}.svc:{port}"))
    }
}

/// Maps some Services to given addresses and delegates the rest to another resolver.
#[derive(Debug)]
pub struct MappedResolver {
    addresses: HashMap<(String, String, Option<i32>), String>,
    /// Mappings with a pattern, in order of precedence.
    patterns: Vec<Pattern>,
    rest: Arc<dyn ServiceResolver>,
}

#[derive(Debug)]
struct Pattern {
    namespace: String,
    name: String,
    port: Option<i32>,
    address: String,
}

impl MappedResolver {
    /// Creates a resolver without mappings.
    #[must_use]
    pub fn new(rest: Arc<dyn ServiceResolver>) -> Self {
        Self {
            addresses: HashMap::new(),
            patterns: Vec::new(),
            rest,
        }
    }

    /// Maps a Service to `address`; without a port, for all ports without a mapping of their own. A `*` in namespace or
    /// name matches any text. Exact names take precedence over patterns, and of several patterns the first match is
    /// used.
    #[must_use]
    pub fn map(mut self, namespace: &str, name: &str, port: Option<i32>, address: &str) -> Self {
        if namespace.contains('*') || name.contains('*') {
            self.patterns.push(Pattern {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port,
                address: address.to_owned(),
            });
        } else {
            let key = (namespace.to_owned(), name.to_owned(), port);
            self.addresses.insert(key, address.to_owned());
        }
        self
    }
}

impl ServiceResolver for MappedResolver {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        let on = |port| {
            let key = (namespace.to_owned(), name.to_owned(), port);
            self.addresses.get(&key)
        };
        let pattern = || {
            let mut patterns = self.patterns.iter();
            let found = patterns.find(|pattern| {
                pattern.port.is_none_or(|mapped| mapped == port)
                    && matches(&pattern.namespace, namespace)
                    && matches(&pattern.name, name)
            });
            found.map(|pattern| &pattern.address)
        };
        match on(Some(port)).or_else(|| on(None)).or_else(pattern) {
            Some(address) => Ok(address.clone()),
            None => self.rest.resolve(namespace, name, port),
        }
    }
}

/// Returns true if a text matches a pattern, in which `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The fields of a Service that resolvers need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Its address; the string `None` for a headless Service, empty if it has none.
    pub cluster_ip: String,
    /// The external name, for type `ExternalName`.
    pub external_name: Option<String>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

/// A port of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// The port of the service.
    pub port: i32,
    /// Addresses of its ready Pods, `ip:port`, the primary family first.
    pub endpoints: Vec<String>,
}

/// Access to the Services of a cluster.
pub trait Services: Send + Sync + std::fmt::Debug {
    /// The Service, if it exists.
    fn service(&self, namespace: &str, name: &str) -> Option<Service>;
}

/// Resolves to the ClusterIP of a Service, like kube-apiserver.
#[derive(Debug)]
pub struct ClusterIpResolver<S>(pub S);

impl<S: Services> ServiceResolver for ClusterIpResolver<S> {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        cluster_ip(&find(&self.0, namespace, name)?, name, port)
    }
}

fn cluster_ip(service: &Service, name: &str, port: i32) -> Result<String, ResolveError> {
    if let Some(external) = &service.external_name {
        return Ok(join_host_port(external, port));
    }
    // UPSTREAM: k8s.io/apiserver pkg/util/proxy/proxy.go (ResolveCluster): the address is checked before the port.
    if matches!(service.cluster_ip.as_str(), "" | "None") {
        return Err(ResolveError::Unroutable(service.cluster_ip.clone()));
    }
    find_port(service, name, port)?;
    Ok(join_host_port(&service.cluster_ip, port))
}

/// Resolves to a ready endpoint of a Service, or to the ClusterIP without one: the combined behaviour of
/// kube-apiserver and kube-proxy, for a server without kube-proxy.
#[derive(Debug)]
pub struct ProxyResolver<S>(pub S);

impl<S: Services> ServiceResolver for ProxyResolver<S> {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        let service = find(&self.0, namespace, name)?;
        let address = cluster_ip(&service, name, port)?;
        let endpoint = find_port(&service, name, port).ok().and_then(endpoint);
        Ok(endpoint.unwrap_or(address))
    }
}

/// Resolves to an endpoint of a Service, like kube-apiserver with `--enable-aggregator-routing`.
#[derive(Debug)]
pub struct EndpointResolver<S>(pub S);

impl<S: Services> ServiceResolver for EndpointResolver<S> {
    fn resolve(&self, namespace: &str, name: &str, port: i32) -> Result<String, ResolveError> {
        let service = find(&self.0, namespace, name)?;
        if service.external_name.is_some() {
            return Err(ResolveError::ExternalName);
        }
        let port = find_port(&service, name, port)?;
        endpoint(port).ok_or_else(|| ResolveError::NoEndpoints(name.to_owned()))
    }
}

/// A random endpoint of the primary family.
fn endpoint(port: &ServicePort) -> Option<String> {
    let six = port.endpoints.first()?.starts_with('[');
    let endpoints = port.endpoints.iter();
    let primary: Vec<&String> = endpoints
        .filter(|endpoint| endpoint.starts_with('[') == six)
        .collect();
    let chosen = primary.get(random_below(primary.len()))?;
    Some((*chosen).clone())
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

/// A random number below `bound`, good enough to spread load. The standard library seeds its hashers randomly.
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
    fn goes_where_kube_proxy_would() {
        assert_eq!(
            resolved(&ProxyResolver(One(service())), "s", 443),
            "10.1.0.1:8443"
        );
        let mut service = service();
        service.ports[0].endpoints.clear();
        let empty = ProxyResolver(One(service.clone()));
        assert_eq!(resolved(&empty, "s", 443), "10.0.0.1:443");
        assert_eq!(
            resolved(&empty, "s", 1),
            "no service port 1 found for service \"s\""
        );
        service.cluster_ip = String::from("None");
        assert_eq!(
            resolved(&ProxyResolver(One(service)), "s", 443),
            "cannot route to service with ClusterIP \"None\""
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

    #[test]
    fn maps_by_pattern() {
        let mapped = MappedResolver::new(Arc::new(DnsResolver))
            .map("*", "hook-*", Some(443), "127.0.0.1:1")
            .map("n*", "*", None, "127.0.0.1:2")
            .map("ns", "s", None, "127.0.0.1:3");
        for (name, port, expected) in [
            ("hook-a", 443, "127.0.0.1:1"),
            ("hook-a", 8443, "127.0.0.1:2"),
            ("s", 443, "127.0.0.1:3"),
            ("x", 1, "127.0.0.1:2"),
        ] {
            assert_eq!(resolved(&mapped, name, port), expected);
        }
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a", "ab", false),
            ("*b", "ab", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
