//! Aggregated API servers: requests for the group and version of an APIService with a Service reference are proxied to
//! it, as the requesting user.
//!
//! ```text
//!   APIService ──effect──► Aggregator ◄── availability, documents ── controller
//!                              │
//!   request, authorized ──► Remote ──► Backend ──► Service
//! ```
//!
//! Requests are authorized here before they are proxied. The aggregated server learns the user from request headers,
//! which it trusts because of this server's client certificate. Requests to an unavailable server fail with 503, and
//! its last discovery documents are served as stale: an unavailable server delays only its own clients.
//!
//! UPSTREAM: kube-aggregator pkg/apiserver

mod backend;
mod documents;
mod forward;
pub(crate) mod local;
mod merge;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use lockgate_admission::https::ServiceResolver;
use lockgate_go::base64;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};

use crate::config::RequestHeaders;
use crate::services::{Readiness, ServiceCache};

use backend::Backend;
pub(crate) use backend::ProxyIdentity;
pub(crate) use documents::{Documents, fetch};
pub(crate) use forward::{Forward, forward};
pub(crate) use local::{Managed, Registration};
pub(crate) use merge::{group, group_list, openapi_v2, openapi_v3_index, v2_list};

/// The maximum number of concurrent upgraded connections.
const TUNNELS: usize = 1024;

/// The APIServices, and the connections to their servers.
pub(crate) struct Aggregator {
    resolver: Arc<dyn ServiceResolver>,
    /// Resolves only the Services that settings map to addresses.
    mapped: Arc<dyn ServiceResolver>,
    services_known: ServiceCache,
    identity: ProxyIdentity,
    headers: RequestHeaders,
    tunnels: Arc<Semaphore>,
    /// Serialises changes.
    changing: Mutex<()>,
    services: ArcSwap<BTreeMap<String, ApiService>>,
    /// The APIServices of aggregated servers. Every request reads them, but there are rarely any.
    remotes: ArcSwap<Vec<Arc<Remote>>>,
    changed: Notify,
}

/// An APIService.
#[derive(Debug, Clone)]
pub(crate) struct ApiService {
    pub(crate) registration: Registration,
    /// The aggregated server; `None` for a local APIService.
    pub(crate) remote: Option<Arc<Remote>>,
}

/// An APIService whose requests are proxied.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) group_priority: i64,
    pub(crate) version_priority: i64,
    pub(crate) service: ServiceReference,
    /// The status of the condition `Available`.
    pub(crate) is_available: bool,
    trust: Trust,
    /// The connections, or the error if none are possible.
    backend: Result<Arc<Backend>, String>,
    documents: Arc<ArcSwap<Documents>>,
}

/// The Service behind an APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceReference {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: i32,
}

/// The verification of the Service's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trust {
    ca_bundle: Vec<u8>,
    insecure: bool,
}

impl Remote {
    /// The most recently fetched documents.
    pub(crate) fn documents(&self) -> Arc<Documents> {
        self.documents.load_full()
    }

    /// Replaces the documents.
    pub(crate) fn set_documents(&self, documents: Documents) {
        self.documents.store(Arc::new(documents));
    }

    /// `apis/GROUP/VERSION`, the path of its documents.
    pub(crate) fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("api/{}", self.version),
            group => format!("apis/{group}/{}", self.version),
        }
    }
}

impl Aggregator {
    pub(crate) fn new(
        (resolver, mapped): (Arc<dyn ServiceResolver>, Arc<dyn ServiceResolver>),
        services_known: ServiceCache,
        identity: ProxyIdentity,
        headers: RequestHeaders,
    ) -> Self {
        Self {
            resolver,
            mapped,
            services_known,
            identity,
            headers,
            tunnels: Arc::new(Semaphore::new(TUNNELS)),
            changing: Mutex::default(),
            services: ArcSwap::default(),
            remotes: ArcSwap::default(),
            changed: Notify::new(),
        }
    }

    /// Adds or replaces an APIService.
    pub(crate) fn set(&self, name: &str, object: &Value) {
        self.change(|services| {
            let before = services.get(name).and_then(|before| before.remote.as_ref());
            let remote = self.read(name, object, before).map(Arc::new);
            let registration = Registration::read(object);
            let service = ApiService {
                registration,
                remote,
            };
            services.insert(name.to_owned(), service);
        });
    }

    pub(crate) fn remove(&self, name: &str) {
        self.change(|services| {
            services.remove(name);
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, ApiService>)) {
        let changing = self.changing.lock();
        let _changing = changing.unwrap_or_else(PoisonError::into_inner);
        let mut services = BTreeMap::clone(&self.services.load());
        change(&mut services);
        let remotes = services.values().filter_map(|it| it.remote.clone());
        self.remotes.store(Arc::new(remotes.collect()));
        self.services.store(Arc::new(services));
        self.notify_controller();
    }

    /// Notifies the controller of a changed APIService, Service or endpoint.
    pub(crate) fn notify_controller(&self) {
        self.changed.notify_one();
    }

    /// Waits for a change since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The readiness of the Service of a remote; one that settings map to an address is ready.
    pub(crate) fn readiness(&self, remote: &Remote) -> Readiness {
        let ServiceReference {
            namespace,
            name,
            port,
        } = &remote.service;
        if self.mapped.resolve(namespace, name, *port).is_ok() {
            return Readiness::Ready;
        }
        self.services_known.readiness(namespace, name, *port)
    }

    /// All APIServices by name.
    pub(crate) fn services(&self) -> Arc<BTreeMap<String, ApiService>> {
        self.services.load_full()
    }

    /// The aggregated servers, in the order of discovery.
    pub(crate) fn remotes(&self) -> Arc<Vec<Arc<Remote>>> {
        self.remotes.load_full()
    }

    /// The aggregated server of a group version; `None` if it is local.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<Arc<Remote>> {
        let remotes = self.remotes.load();
        let found = remotes
            .iter()
            .find(|remote| remote.group == group && remote.version == version);
        found.map(Arc::clone)
    }

    /// The server that an APIService refers to, if any.
    fn read(&self, name: &str, object: &Value, before: Option<&Arc<Remote>>) -> Option<Remote> {
        let spec = &object["spec"];
        let text = |value: &Value, member: &str| {
            let found = value.get(member).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let service = spec.get("service").filter(|service| service.is_object())?;
        let number = |value: &Value, member: &str| value[member].as_i64();
        let port = number(service, "port").and_then(|port| i32::try_from(port).ok());
        let service = ServiceReference {
            namespace: text(service, "namespace"),
            name: text(service, "name"),
            port: port.unwrap_or(443),
        };
        let trust = Trust {
            ca_bundle: base64::decode(&text(spec, "caBundle")).unwrap_or_default(),
            insecure: spec["insecureSkipTLSVerify"].as_bool().unwrap_or_default(),
        };
        // Connections and documents are kept if they are for the same server.
        let same = before.filter(|before| before.service == service && before.trust == trust);
        let backend = match same {
            Some(before) => before.backend.clone(),
            None => Backend::new(&service, &trust.ca_bundle, trust.insecure, &self.identity)
                .map(Arc::new)
                .map_err(|error| error.to_string()),
        };
        let documents = match same {
            Some(before) => Arc::clone(&before.documents),
            None => Arc::default(),
        };
        let conditions = object
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        let is_available = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Available" && condition["status"] == "True");
        Some(Remote {
            name: name.to_owned(),
            group: text(spec, "group"),
            version: text(spec, "version"),
            group_priority: number(spec, "groupPriorityMinimum").unwrap_or_default(),
            version_priority: number(spec, "versionPriority").unwrap_or_default(),
            service,
            is_available,
            trust,
            backend,
            documents,
        })
    }
}

impl std::fmt::Debug for Aggregator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aggregator").finish_non_exhaustive()
    }
}
