//! The effects of a write besides the store: webhook configurations, namespaces, roles, services,
//! definitions. An effect is prepared before the write, so that what cannot take effect is not stored.

use std::sync::Arc;

use lockgate_admission::engine::Engine;
use lockgate_api::registration::Configuration;
use lockgate_store::Entry;
use serde_json::Value;

use crate::allocate::Addresses;
use crate::authz::rbac::Rbac;
use crate::encoding;
use crate::error::{Outcome, internal};
use crate::metadata;
use crate::namespaces::NamespaceCache;
use crate::plugins::PriorityClasses;
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
    pub(crate) priority_classes: Arc<PriorityClasses>,
}

/// A kind of object that other parts of the server are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Registration,
    Namespace,
    Role,
    Binding,
    Definition,
    Service,
    PriorityClass,
}

fn kind(resource: &Resource) -> Option<Kind> {
    if resource.is_custom() {
        return None;
    }
    Some(match (resource.group(), resource.plural()) {
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => Kind::Registration,
        ("", "namespaces") => Kind::Namespace,
        ("", "services") => Kind::Service,
        ("scheduling.k8s.io", "priorityclasses") => Kind::PriorityClass,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => Kind::Role,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => Kind::Binding,
        ("apiextensions.k8s.io", "customresourcedefinitions") => Kind::Definition,
        _ => return None,
    })
}

/// Returns true if writes to a resource have effects.
pub(crate) fn has_any(resource: &Resource) -> bool {
    kind(resource).is_some()
}

/// An effect that only remains to be applied.
#[derive(Debug)]
pub(crate) struct Effect {
    kind: Option<Kind>,
    change: Change,
    namespace: String,
    name: String,
}

#[derive(Debug)]
enum Change {
    /// The object as it is stored.
    Put(Value),
    Register(Box<Configuration>),
    Removed {
        /// The last state of the object; null if it cannot be read.
        last: Value,
        /// The kind of a webhook configuration, by its resource.
        mutating: bool,
    },
}

/// Prepares the effect of a write. The object and its resource are in the version that is stored.
pub(crate) fn prepare_write(resource: &Resource, object: Value) -> Outcome<Effect> {
    let kind = kind(resource);
    let (namespace, name) = (
        metadata::text(&object, "namespace").to_owned(),
        metadata::text(&object, "name").to_owned(),
    );
    let change = if kind == Some(Kind::Registration) {
        // What cannot be read cannot be in force: better not stored than ignored.
        let configuration = resource.shape.configuration(&object);
        let configuration = configuration.ok_or_else(|| {
            internal(&format!(
                "the webhook configuration {name} cannot be decoded as it would be stored"
            ))
        })?;
        Change::Register(Box::new(configuration))
    } else {
        Change::Put(object)
    };
    Ok(Effect {
        kind,
        change,
        namespace,
        name,
    })
}

/// Prepares the effect of a removal. It cannot fail: the name of what is gone is in its key.
pub(crate) fn prepare_removal(resource: &Resource, entry: &Entry) -> Effect {
    let last = encoding::parse_entry(entry, resource.type_meta()).unwrap_or_default();
    let prefix = encoding::prefix(&resource.storage.0, &resource.storage.1, None);
    let rest = entry.key.strip_prefix(&prefix).unwrap_or(&entry.key);
    let (namespace, name) = match rest.split_once('/') {
        Some(parts) if resource.names.namespaced => parts,
        _ => ("", rest),
    };
    Effect {
        kind: kind(resource),
        change: Change::Removed {
            last,
            mutating: resource.plural() == "mutatingwebhookconfigurations",
        },
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

impl Effects {
    /// Applies an effect.
    pub(crate) fn apply(&self, effect: Effect) {
        let Effect {
            kind,
            change,
            namespace,
            name,
        } = effect;
        let Some(kind) = kind else { return };
        match change {
            Change::Register(configuration) => self.engine.register(&configuration),
            Change::Put(object) => self.put(kind, &namespace, &name, &object),
            Change::Removed { last, mutating } => {
                self.removed(kind, &namespace, &name, &last, mutating)
            }
        }
    }

    fn put(&self, kind: Kind, namespace: &str, name: &str, object: &Value) {
        match kind {
            // Prepared as `Change::Register`.
            Kind::Registration => {}
            Kind::Namespace => self.namespaces.set(name, object),
            Kind::Role => self.rbac.set_role(namespace, name, object),
            Kind::Binding => self.rbac.set_binding(namespace, name, object),
            Kind::Definition => self.registry.define(name, custom::resources(object)),
            Kind::Service => {
                self.addresses.reserve(object);
                self.services.set(namespace, name, object);
            }
            Kind::PriorityClass => self.priority_classes.set(name, object),
        }
    }

    fn removed(&self, kind: Kind, namespace: &str, name: &str, last: &Value, mutating: bool) {
        use lockgate_api::registration::ConfigurationKind;
        match kind {
            Kind::Registration => {
                let kind = if mutating {
                    ConfigurationKind::Mutating
                } else {
                    ConfigurationKind::Validating
                };
                self.engine.configurations(kind).remove(name);
            }
            Kind::Namespace => self.namespaces.remove(name),
            Kind::Role => self.rbac.remove_role(namespace, name),
            Kind::Binding => self.rbac.remove_binding(namespace, name),
            Kind::Definition => self.registry.define(name, Vec::new()),
            Kind::Service => {
                self.addresses.release(last);
                self.services.remove(namespace, name);
            }
            Kind::PriorityClass => self.priority_classes.remove(name),
        }
    }
}
