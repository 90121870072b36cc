//! ComponentStatuses: components on this host, checked on request. They are not stored.
//!
//! The storage status is the server's own. For kube-scheduler and kube-controller-manager, only their default ports on
//! this host are checked, not their health endpoints.
//!
//! UPSTREAM: kubernetes pkg/registry/core/componentstatus, pkg/controlplane/instance.go (componentStatusStorage)

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::decode::selection::Selection;
use crate::error::{Outcome, not_found};
use crate::http::query::Query;
use crate::persist::Storage;
use crate::registry::Resource;
use crate::request::Request;
use crate::respond::{Reply, list_head, object_text};

/// Components and their ports.
const COMPONENTS: [(&str, u16); 2] = [("scheduler", 10259), ("controller-manager", 10257)];
const STORAGE: &str = "etcd-0";
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns true for the kind ComponentStatus, which is never stored.
pub(crate) fn is_component(resource: &Resource) -> bool {
    resource.is("", "componentstatuses")
}

/// The status of the requested component.
pub(crate) async fn get(storage: &Storage, request: &Request) -> Outcome<Reply> {
    let name = request.name();
    let Some(mut object) = status(storage, name).await else {
        return Err(not_found("", "componentstatus", name));
    };
    object["kind"] = json!(request.resource.kind());
    object["apiVersion"] = json!(request.resource.api_version());
    Ok(Reply::object(object))
}

/// The statuses of all matching components.
pub(crate) async fn list(storage: &Storage, request: &Request, query: &Query) -> Outcome<Reply> {
    let resource = &request.resource;
    let selection = Selection::read(query, resource)?;
    let mut text = list_head(resource.list_type(), &json!({}));
    let mut comma = "";
    for name in COMPONENTS
        .map(|(name, _)| name)
        .into_iter()
        .chain([STORAGE])
    {
        let object = status(storage, name).await;
        if let Some(object) = object.filter(|object| selection.includes(resource, object)) {
            text.push_str(comma);
            text.push_str(&object_text(&object));
            comma = ",";
        }
    }
    text.push_str("]}");
    Ok(Reply::list(text))
}

async fn status(storage: &Storage, name: &str) -> Option<Value> {
    let (status, message) = match COMPONENTS.iter().find(|(known, _)| *known == name) {
        Some((_, port)) => probe(*port).await,
        None if name == STORAGE => match storage.store().revision().await {
            Ok(_) => ("True", String::from("ok")),
            Err(error) => ("False", error.to_string()),
        },
        None => return None,
    };
    let condition = json!({"type": "Healthy", "status": status, "message": message});
    Some(json!({"metadata": {"name": name}, "conditions": [condition]}))
}

/// Checks for a listener on a port of this host.
async fn probe(port: u16) -> (&'static str, String) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let failed = |why: &str| {
        let text = format!("Get \"https://{address}/healthz\": dial tcp {address}: {why}");
        ("False", text)
    };
    match tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => ("Unknown", String::from("something listens there")),
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            failed("connect: connection refused")
        }
        Ok(Err(error)) => failed(&error.to_string()),
        Err(_) => failed("i/o timeout"),
    }
}
