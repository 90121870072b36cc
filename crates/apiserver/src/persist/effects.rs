//! The effects of a write beyond the store: webhook configurations, policies, namespaces, roles, Services and their
//! endpoints, CustomResourceDefinitions, APIServices, FlowSchemas and priority levels. An effect is prepared before
//! the write, so that an object that cannot take effect is not stored.

use std::sync::Arc;

use lockgate_admission::engine::Engine;
use lockgate_api::registration::{Configuration, ConfigurationKind};
use lockgate_kinds::kind::ServerComponent;
use serde_json::Value;

use crate::aggregation::Aggregator;
use crate::allocate::Addresses;
use crate::authz::node::NodeAuthorizer;
use crate::authz::rbac::Rbac;
use crate::encoding;
use crate::error::{Failure, Outcome, internal};
use crate::flow_control::FlowControl;
use crate::metadata;
use crate::namespaces::NamespaceCache;
use crate::policies;
use crate::registry::{Registry, Resource, custom};
use crate::services::ServiceCache;

/// The state derived from stored objects.
#[derive(Debug)]
pub(crate) struct Effects {
    pub(crate) engine: Engine,
    pub(crate) registry: Arc<Registry>,
    pub(crate) namespaces: Arc<NamespaceCache>,
    pub(crate) rbac: Arc<Rbac>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) services: ServiceCache,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) flow_control: Arc<FlowControl>,
    /// The Pods of nodes, for node authorization.
    pub(crate) nodes: Option<Arc<NodeAuthorizer>>,
}

/// A prepared effect.
#[derive(Debug)]
pub(crate) enum Effect {
    Register(Box<Configuration>),
    Unregister(ConfigurationKind, Named),
    /// A policy or binding becomes effective.
    Enforce(Box<policies::Read>),
    /// An object in its stored form.
    Put(ServerComponent, Named, Value),
    /// An object is deleted.
    Removed(ServerComponent, Named),
}

/// The namespace and the name of an object.
#[derive(Debug)]
pub(crate) struct Named {
    namespace: String,
    name: String,
}

/// Prepares the effect of a write. The object and its resource are in the storage version.
pub(crate) fn prepare_write(resource: &Resource, object: Value) -> Outcome<Effect> {
    let named = Named {
        namespace: metadata::text(&object, "namespace").to_owned(),
        name: metadata::text(&object, "name").to_owned(),
    };
    match resource.component() {
        // An object that cannot be decoded cannot take effect: it is rejected, not stored and ignored.
        Some(ServerComponent::Webhooks(_)) => resource
            .shape
            .configuration(&object)
            .map(|configuration| Effect::Register(Box::new(configuration)))
            .ok_or_else(|| undecodable(resource, &named)),
        Some(ServerComponent::Policies(what)) => policies::read(what, &object)
            .map(|read| Effect::Enforce(Box::new(read)))
            .map_err(|_| undecodable(resource, &named)),
        Some(part) => Ok(Effect::Put(part, named, object)),
        None => Err(internal(&format!("{} has no effects", resource.plural()))),
    }
}

fn undecodable(resource: &Resource, named: &Named) -> Failure {
    internal(&format!(
        "cannot decode the stored {} {}",
        resource.kind(),
        named.name
    ))
}

/// Prepares the effect of a deletion. It cannot fail: the key contains the name.
pub(crate) fn prepare_removal(resource: &Resource, key: &str) -> Option<Effect> {
    let prefix = encoding::prefix(&resource.storage.0, &resource.storage.1, None);
    let rest = key.strip_prefix(&prefix).unwrap_or(key);
    let (namespace, name) = match rest.split_once('/') {
        Some(parts) if resource.names.namespaced => parts,
        _ => ("", rest),
    };
    let named = Named {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match resource.component()? {
        ServerComponent::Webhooks(kind) => Some(Effect::Unregister(kind, named)),
        part => Some(Effect::Removed(part, named)),
    }
}

impl Effects {
    /// Returns true if writes to a resource have effects. Pods and volumes have effects only with Node authorization.
    pub(crate) fn has_any(&self, resource: &Resource) -> bool {
        match resource.component() {
            None => false,
            Some(ServerComponent::NodeGraph(_)) => self.nodes.is_some(),
            Some(_) => true,
        }
    }

    /// Applies an effect.
    pub(crate) fn apply(&self, effect: Effect) {
        match effect {
            Effect::Register(configuration) => self.engine.register(&configuration),
            Effect::Unregister(kind, named) => {
                self.engine.configurations(kind).remove(&named.name);
            }
            Effect::Enforce(read) => policies::enforce(&self.engine, &read),
            Effect::Put(part, named, object) => self.put(part, &named, &object),
            Effect::Removed(part, named) => self.removed(part, &named),
        }
    }

    fn put(&self, part: ServerComponent, Named { namespace, name }: &Named, object: &Value) {
        match part {
            // Prepared as `Effect::Register` and `Effect::Enforce`.
            ServerComponent::Webhooks(_) | ServerComponent::Policies(_) => {}
            ServerComponent::Namespaces => self.namespaces.set(name, object),
            ServerComponent::Roles => self.rbac.set_role(namespace, name, object),
            ServerComponent::RoleBindings => self.rbac.set_binding(namespace, name, object),
            ServerComponent::Definitions => {
                self.registry.define(name, custom::resources(object));
                self.aggregator.notify_controller();
            }
            ServerComponent::Services => {
                self.addresses.set(namespace, name, object);
                self.services.set(namespace, name, object);
                self.aggregator.notify_controller();
            }
            ServerComponent::EndpointSlices => {
                self.services.set_slice(namespace, name, object);
                self.aggregator.notify_controller();
            }
            ServerComponent::ApiServices => self.aggregator.set(name, object),
            ServerComponent::FlowSchemas => self.flow_control.set_schema(name, object),
            ServerComponent::PriorityLevels => self.flow_control.set_level(name, object),
            ServerComponent::NodeGraph(related) => {
                if let Some(nodes) = &self.nodes {
                    nodes.set(related, namespace, name, object);
                }
            }
        }
    }

    fn removed(&self, part: ServerComponent, Named { namespace, name }: &Named) {
        match part {
            // Prepared as `Effect::Unregister`.
            ServerComponent::Webhooks(_) => {}
            ServerComponent::Policies(what) => policies::remove(&self.engine, what, name),
            ServerComponent::Namespaces => self.namespaces.remove(name),
            ServerComponent::Roles => self.rbac.remove_role(namespace, name),
            ServerComponent::RoleBindings => self.rbac.remove_binding(namespace, name),
            ServerComponent::Definitions => {
                self.registry.define(name, Vec::new());
                self.aggregator.notify_controller();
            }
            ServerComponent::Services => {
                self.addresses.remove(namespace, name);
                self.services.remove(namespace, name);
                self.aggregator.notify_controller();
            }
            ServerComponent::EndpointSlices => {
                self.services.remove_slice(namespace, name);
                self.aggregator.notify_controller();
            }
            ServerComponent::ApiServices => self.aggregator.remove(name),
            ServerComponent::FlowSchemas => self.flow_control.remove_schema(name),
            ServerComponent::PriorityLevels => self.flow_control.remove_level(name),
            ServerComponent::NodeGraph(related) => {
                if let Some(nodes) = &self.nodes {
                    nodes.remove(related, namespace, name);
                }
            }
        }
    }
}
