//! What a write changes besides the store: webhook configurations, namespaces, roles, services, definitions.
//! Each is in force when the write returns.

use serde_json::Value;

use crate::controllers;
use crate::metadata;
use crate::registry::Resource;
use crate::registry::custom;
use crate::server::Server;

/// What an object of a resource is to other parts of the server.
enum Effect {
    Registration,
    Namespace,
    Role,
    Binding,
    Definition,
    Service,
    Pod,
}

fn effect(server: &Server, resource: &Resource) -> Option<Effect> {
    if resource.is_custom() {
        return None;
    }
    Some(match (resource.group(), resource.plural()) {
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => Effect::Registration,
        ("", "namespaces") => Effect::Namespace,
        ("", "services") => Effect::Service,
        // Which node a pod runs on matters where nodes are asked about.
        ("", "pods") if server.nodes.is_some() => Effect::Pod,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => Effect::Role,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => Effect::Binding,
        ("apiextensions.k8s.io", "customresourcedefinitions") => Effect::Definition,
        _ => return None,
    })
}

/// Whether writes to a resource change anything besides the store.
pub(crate) fn has_any(server: &Server, resource: &Resource) -> bool {
    effect(server, resource).is_some()
}

/// Takes note of an object as it was stored.
pub(crate) fn written(server: &Server, resource: &Resource, object: &Value) {
    let (namespace, name) = (
        metadata::text(object, "namespace"),
        metadata::text(object, "name"),
    );
    match effect(server, resource) {
        Some(Effect::Registration) => {
            if let Some(configuration) = stored_configuration(server, resource, object) {
                server.engine.register(&configuration);
            }
        }
        Some(Effect::Namespace) => {
            server.namespaces.set(name, object);
            if metadata::is_deleting(object) {
                controllers::namespace_deleted(server, name);
            }
        }
        Some(Effect::Role) => server.rbac.set_role(namespace, name, object),
        Some(Effect::Binding) => server.rbac.set_binding(namespace, name, object),
        Some(Effect::Definition) => server.registry.define(name, custom::resources(object)),
        Some(Effect::Service) => {
            server.addresses.reserve(object);
            server.services.set(namespace, name, object);
        }
        Some(Effect::Pod) => {
            if let Some(nodes) = &server.nodes {
                nodes.set_pod(namespace, name, object);
            }
        }
        None => {}
    }
}

/// Takes note of an object that is gone.
pub(crate) fn removed(server: &Server, resource: &Resource, object: &Value) {
    let (namespace, name) = (
        metadata::text(object, "namespace"),
        metadata::text(object, "name"),
    );
    match effect(server, resource) {
        Some(Effect::Registration) => {
            if let Some(configuration) = stored_configuration(server, resource, object) {
                server
                    .engine
                    .configurations(configuration.kind)
                    .remove(name);
            }
        }
        Some(Effect::Namespace) => server.namespaces.remove(name),
        Some(Effect::Role) => server.rbac.remove_role(namespace, name),
        Some(Effect::Binding) => server.rbac.remove_binding(namespace, name),
        Some(Effect::Definition) => server.registry.define(name, Vec::new()),
        Some(Effect::Service) => {
            server.addresses.release(object);
            server.services.remove(namespace, name);
        }
        Some(Effect::Pod) => {
            if let Some(nodes) = &server.nodes {
                nodes.remove_pod(namespace, name);
            }
        }
        None => {}
    }
}

/// The configuration in an object, which is in the version that is stored.
fn stored_configuration(
    server: &Server,
    resource: &Resource,
    object: &Value,
) -> Option<lockgate_api::registration::Configuration> {
    let (group, version) = &resource.storage_version;
    let snapshot = server.registry.snapshot();
    let kept = snapshot.find(group, version, resource.plural())?;
    kept.shape.configuration(object)
}
