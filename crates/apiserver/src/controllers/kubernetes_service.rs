//! The endpoints of the Service `kubernetes`: the addresses of all running servers.
//!
//! Each server repeatedly writes an expiring key under a new name: the previous one stays until then, so that no
//! address is missing in between. The endpoints contain the addresses of all keys.
//!
//! UPSTREAM: kubernetes pkg/controlplane/controller/kubernetesservice, pkg/controlplane/reconcilers/{lease,endpointsadapter}.go

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use lockgate_store::{List, WriteError};
use serde_json::{Value, json};

use super::own_object::OwnObject;
use crate::encoding::{SERVING, SERVING_SECONDS};
use crate::error::{Outcome, internal, read_failed};
use crate::metadata;
use crate::write::Writer;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
const INTERVAL: Duration = Duration::from_secs(10);
/// The maximum number of attempts on write conflicts.
const ATTEMPTS: usize = 5;

/// The endpoint of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Advertised(pub(crate) SocketAddr);

impl Advertised {
    /// Maintains the endpoint until the server stops.
    pub(super) async fn run(self, writer: Writer) {
        loop {
            if let Err(failure) = self.renew(&writer).await {
                let error = failure.0.message;
                tracing::warn!(error, "endpoints of the kubernetes Service not written");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn renew(self, writer: &Writer) -> Outcome<()> {
        let store = writer.storage.store();
        let key = format!("{}{}", self.prefix(), metadata::new_uid());
        let ttl = Some(Duration::from_secs(SERVING_SECONDS));
        let created = store.create(&key, "{}".into(), ttl).await;
        created.map_err(|error| internal(&error.to_string()))?;
        self.reconcile(writer, false).await
    }

    /// Removes the endpoint at shutdown.
    pub(super) async fn remove(self, writer: &Writer) -> Outcome<()> {
        let store = writer.storage.store();
        let own = store.list(List::all(&self.prefix())).await;
        for entry in own.map_err(|error| read_failed(error, 0))?.entries {
            match store.delete(&entry.key, entry.revision).await {
                Ok(_) | Err(WriteError::NotFound | WriteError::Conflict(_)) => {}
                Err(error) => return Err(internal(&error.to_string())),
            }
        }
        self.reconcile(writer, true).await
    }

    fn prefix(self) -> String {
        format!("{SERVING}{}/", self.0)
    }

    /// Updates the endpoints.
    async fn reconcile(self, writer: &Writer, is_stopping: bool) -> Outcome<()> {
        let page = writer.storage.store().list(List::all(SERVING)).await;
        let page = page.map_err(|error| read_failed(error, 0))?;
        let serving = page.entries.iter().filter_map(|entry| {
            let (address, _) = entry.key.strip_prefix(SERVING)?.split_once('/')?;
            address.parse::<SocketAddr>().ok()
        });
        // This server's key was written a moment ago: a store without it returns stale data.
        if page.entries.is_empty() && !is_stopping {
            return Err(internal("the store knows of no server"));
        }
        // Upstream's servers share one port and address family.
        let addresses: BTreeSet<String> = serving
            .filter(|address| address.is_ipv4() == self.0.is_ipv4())
            .map(|address| address.ip().to_string())
            .collect();
        let objects = [
            (("", "endpoints"), self.endpoints(&addresses)),
            (
                ("discovery.k8s.io", "endpointslices"),
                self.endpoint_slice(&addresses),
            ),
        ];
        for (resource, wanted) in objects {
            let place = OwnObject::new(writer, resource, NAMESPACE, NAME)?;
            let mut is_done = false;
            for _ in 0..ATTEMPTS {
                is_done = create_or_update(&place, &wanted).await?;
                if is_done {
                    break;
                }
            }
            if !is_done {
                return Err(internal("others change the endpoints at the same time"));
            }
        }
        Ok(())
    }

    fn endpoints(self, addresses: &BTreeSet<String>) -> Value {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let mut endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {
                "name": NAME, "namespace": NAMESPACE,
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
        });
        if !addresses.is_empty() {
            endpoints["subsets"] = json!([{
                "addresses": addresses,
                "ports": [{"name": "https", "port": self.0.port(), "protocol": "TCP"}],
            }]);
        }
        endpoints
    }

    fn endpoint_slice(self, addresses: &BTreeSet<String>) -> Value {
        let family = if self.0.is_ipv4() { "IPv4" } else { "IPv6" };
        let endpoints: Vec<Value> = addresses
            .iter()
            .map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}}))
            .collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": NAME, "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": NAME},
            },
            "addressType": family, "endpoints": endpoints,
            "ports": [{"name": "https", "port": self.0.port(), "protocol": "TCP"}],
        })
    }
}

/// Creates or updates an object. Returns false on a conflict with another writer.
async fn create_or_update(place: &OwnObject<'_>, wanted: &Value) -> Outcome<bool> {
    let Some((mut object, revision)) = place.read().await? else {
        return place.create(wanted.clone()).await;
    };
    let mut changed = false;
    for member in ["addressType", "endpoints", "ports", "subsets"] {
        if object.get(member) != wanted.get(member) {
            changed = true;
            match (wanted.get(member), object.as_object_mut()) {
                (Some(value), Some(object)) => {
                    object.insert(member.to_owned(), value.clone());
                }
                (None, Some(object)) => {
                    object.remove(member);
                }
                _ => {}
            }
        }
    }
    let labels = &wanted["metadata"]["labels"];
    if object["metadata"]["labels"] != *labels {
        object["metadata"]["labels"] = labels.clone();
        changed = true;
    }
    if !changed {
        return Ok(true);
    }
    if let Some(generation) = metadata::number(&object, "generation") {
        metadata::set(&mut object, "generation", generation.saturating_add(1));
    }
    place.replace(&object, revision).await
}
