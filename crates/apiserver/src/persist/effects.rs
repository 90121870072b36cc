//! The effects of a write besides the store: webhook configurations, policies, namespaces, roles,
//! services and their endpoints, definitions, APIServices, flow schemas and priority levels. An effect is prepared before the
//! write, so that what cannot take effect is not stored.

use std::sync::Arc;

use lockgate_admission::engine::Engine;
use lockgate_api::registration::policy::Registered;
use lockgate_api::registration::{Configuration, ConfigurationKind};
use serde_json::Value;

use crate::aggregation::Aggregator;
use crate::allocate::Addresses;
use crate::authz::node::{NodeAuthorizer, Related};
use crate::authz::rbac::Rbac;
use crate::encoding;
use crate::error::{Failure, Outcome, internal};
use crate::flow_control::{FlowControl, suggested};
use crate::metadata;
use crate::namespaces::NamespaceCache;
use crate::policies;
use crate::registry::{Registry, Resource, custom};
use crate::services::ServiceCache;

/// The parts of the server that are made from stored objects.
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
    /// The pods of nodes, where nodes are authorized by them.
    pub(crate) nodes: Option<Arc<NodeAuthorizer>>,
}

/// A kind of object that other parts of the server are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Registration,
    Policy(Registered),
    Namespace,
    Role,
    Binding,
    Definition,
    Service,
    EndpointSlice,
    ApiService,
    FlowSchema,
    PriorityLevel,
    /// Something that nodes are authorized by.
    Node(Related),
}

fn kind(resource: &Resource) -> Option<Kind> {
    if resource.is_custom() {
        return None;
    }
    if let Some(what) = policies::kind_of(resource) {
        return Some(Kind::Policy(what));
    }
    Some(match (resource.group(), resource.plural()) {
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => Kind::Registration,
        ("", "namespaces") => Kind::Namespace,
        ("", "services") => Kind::Service,
        ("discovery.k8s.io", "endpointslices") => Kind::EndpointSlice,
        (suggested::GROUP, suggested::SCHEMAS) => Kind::FlowSchema,
        (suggested::GROUP, suggested::LEVELS) => Kind::PriorityLevel,
        ("", "pods") => Kind::Node(Related::Pod),
        ("", "persistentvolumes") => Kind::Node(Related::Volume),
        ("storage.k8s.io", "volumeattachments") => Kind::Node(Related::Attachment),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => Kind::Role,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => Kind::Binding,
        ("apiextensions.k8s.io", "customresourcedefinitions") => Kind::Definition,
        ("apiregistration.k8s.io", "apiservices") => Kind::ApiService,
        _ => return None,
    })
}

/// An effect that only remains to be applied.
#[derive(Debug)]
pub(crate) enum Effect {
    Register(Box<Configuration>),
    Unregister(ConfigurationKind, Named),
    /// A policy or a binding comes into force.
    Enforce(Box<policies::Read>),
    /// An object as it is stored.
    Put(Kind, Named, Value),
    /// An object is gone.
    Removed(Kind, Named),
}

/// The namespace and the name of an object.
#[derive(Debug)]
pub(crate) struct Named {
    namespace: String,
    name: String,
}

/// Prepares the effect of a write. The object and its resource are in the version that is stored.
pub(crate) fn prepare_write(resource: &Resource, object: Value) -> Outcome<Effect> {
    let named = Named {
        namespace: metadata::text(&object, "namespace").to_owned(),
        name: metadata::text(&object, "name").to_owned(),
    };
    match kind(resource) {
        // What cannot be decoded cannot be in force: better not stored than ignored.
        Some(Kind::Registration) => resource
            .shape
            .configuration(&object)
            .map(|configuration| Effect::Register(Box::new(configuration)))
            .ok_or_else(|| undecodable(resource, &named)),
        Some(Kind::Policy(what)) => policies::read(what, &object)
            .map(|read| Effect::Enforce(Box::new(read)))
            .map_err(|_| undecodable(resource, &named)),
        Some(kind) => Ok(Effect::Put(kind, named, object)),
        None => Err(internal(&format!("{} has no effects", resource.plural()))),
    }
}

fn undecodable(resource: &Resource, named: &Named) -> Failure {
    internal(&format!(
        "the {} {} cannot be decoded as it is stored",
        resource.kind(),
        named.name
    ))
}

/// Prepares the effect of a removal. It cannot fail: the name of what is gone is in its key.
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
    match kind(resource)? {
        Kind::Registration => {
            let kind = match resource.plural() {
                "mutatingwebhookconfigurations" => ConfigurationKind::Mutating,
                _ => ConfigurationKind::Validating,
            };
            Some(Effect::Unregister(kind, named))
        }
        kind => Some(Effect::Removed(kind, named)),
    }
}

impl Effects {
    /// Returns true if writes to a resource have effects. Those of pods and volumes have where nodes are
    /// authorized by the pods that run on them.
    pub(crate) fn has_any(&self, resource: &Resource) -> bool {
        match kind(resource) {
            None => false,
            Some(Kind::Node(_)) => self.nodes.is_some(),
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
            Effect::Put(kind, named, object) => self.put(kind, &named, &object),
            Effect::Removed(kind, named) => self.removed(kind, &named),
        }
    }

    fn put(&self, kind: Kind, Named { namespace, name }: &Named, object: &Value) {
        match kind {
            // Prepared as `Effect::Register` and `Effect::Enforce`.
            Kind::Registration | Kind::Policy(_) => {}
            Kind::Namespace => self.namespaces.set(name, object),
            Kind::Role => self.rbac.set_role(namespace, name, object),
            Kind::Binding => self.rbac.set_binding(namespace, name, object),
            Kind::Definition => {
                self.registry.define(name, custom::resources(object));
                self.aggregator.wake();
            }
            Kind::Service => {
                self.addresses.set(namespace, name, object);
                self.services.set(namespace, name, object);
                self.aggregator.wake();
            }
            Kind::EndpointSlice => {
                self.services.set_slice(namespace, name, object);
                self.aggregator.wake();
            }
            Kind::ApiService => self.aggregator.set(name, object),
            Kind::FlowSchema => self.flow_control.set_schema(name, object),
            Kind::PriorityLevel => self.flow_control.set_level(name, object),
            Kind::Node(related) => {
                if let Some(nodes) = &self.nodes {
                    nodes.set(related, namespace, name, object);
                }
            }
        }
    }

    fn removed(&self, kind: Kind, Named { namespace, name }: &Named) {
        match kind {
            // Prepared as `Effect::Unregister`.
            Kind::Registration => {}
            Kind::Policy(what) => policies::remove(&self.engine, what, name),
            Kind::Namespace => self.namespaces.remove(name),
            Kind::Role => self.rbac.remove_role(namespace, name),
            Kind::Binding => self.rbac.remove_binding(namespace, name),
            Kind::Definition => {
                self.registry.define(name, Vec::new());
                self.aggregator.wake();
            }
            Kind::Service => {
                self.addresses.remove(namespace, name);
                self.services.remove(namespace, name);
                self.aggregator.wake();
            }
            Kind::EndpointSlice => {
                self.services.remove_slice(namespace, name);
                self.aggregator.wake();
            }
            Kind::ApiService => self.aggregator.remove(name),
            Kind::FlowSchema => self.flow_control.remove_schema(name),
            Kind::PriorityLevel => self.flow_control.remove_level(name),
            Kind::Node(related) => {
                if let Some(nodes) = &self.nodes {
                    nodes.remove(related, namespace, name);
                }
            }
        }
    }
}
