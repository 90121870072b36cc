//! Node authorization: the rules of every node, and access to the objects that its Pods refer to.
//!
//! UPSTREAM: kubernetes plugin/pkg/auth/authorizer/node

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, Decision, User};
use lockgate_kinds::kind::NodeGraphObject;
use serde_json::Value;

use super::rbac::Rbac;

/// The role with the rules of every node, except for those that depend on its Pods.
const ROLE: &str = "system:node";

/// Node authorization, followed by RBAC.
#[derive(Debug)]
pub(crate) struct NodeAuthorizer {
    rbac: Arc<Rbac>,
    graph: RwLock<Graph>,
}

/// The related objects.
#[derive(Debug, Default)]
struct Graph {
    /// Pods by namespace and name.
    pods: HashMap<(String, String), BoundPod>,
    volumes: HashMap<String, BoundVolume>,
    /// The nodes of VolumeAttachments by name.
    attachments: HashMap<String, String>,
}

/// A volume that is bound to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BoundVolume {
    /// The namespace and the name of the claim.
    claim: (String, String),
    /// The namespaces and names of its mount Secrets.
    secrets: BTreeSet<(String, String)>,
}

impl Graph {
    /// Returns true if a Pod bound to the node refers to the object.
    fn references(&self, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
        self.pods.iter().any(|((of, _), bound)| {
            of == namespace
                && bound.node == node
                && bound
                    .needs
                    .iter()
                    .any(|(kind, needed)| *kind == resource && needed == name)
        })
    }

    /// Returns true if a Pod bound to the node uses the claim of the volume.
    fn uses(&self, node: &str, volume: &BoundVolume) -> bool {
        let (namespace, name) = &volume.claim;
        self.references(node, "persistentvolumeclaims", namespace, name)
    }

    /// Returns true if the Secret is a mount Secret of a volume that a Pod bound to the node uses.
    fn mounts_with(&self, node: &str, namespace: &str, name: &str) -> bool {
        let secret = (namespace.to_owned(), name.to_owned());
        let mut volumes = self.volumes.values();
        volumes.any(|volume| volume.secrets.contains(&secret) && self.uses(node, volume))
    }
}

/// A Pod bound to a node, and the objects it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BoundPod {
    node: String,
    /// Names by resource, all in the namespace of the Pod.
    needs: BTreeSet<(&'static str, String)>,
}

impl NodeAuthorizer {
    pub(crate) fn new(rbac: Arc<Rbac>) -> Self {
        Self {
            rbac,
            graph: RwLock::default(),
        }
    }

    /// Adds or replaces an object.
    pub(crate) fn set(
        &self,
        related: NodeGraphObject,
        namespace: &str,
        name: &str,
        object: &Value,
    ) {
        let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
        match related {
            NodeGraphObject::Pod => {
                let key = (namespace.to_owned(), name.to_owned());
                match text(object, "/spec/nodeName") {
                    "" => graph.pods.remove(&key),
                    node => {
                        let needs = referenced_objects(name, object);
                        let node = node.to_owned();
                        graph.pods.insert(key, BoundPod { node, needs })
                    }
                };
            }
            NodeGraphObject::Volume => {
                match claimed(object) {
                    Some(claimed) => graph.volumes.insert(name.to_owned(), claimed),
                    None => graph.volumes.remove(name),
                };
            }
            NodeGraphObject::Attachment => {
                let node = text(object, "/spec/nodeName").to_owned();
                graph.attachments.insert(name.to_owned(), node);
            }
        }
    }

    /// Removes an object.
    pub(crate) fn remove(&self, related: NodeGraphObject, namespace: &str, name: &str) {
        let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
        match related {
            NodeGraphObject::Pod => {
                let key = (namespace.to_owned(), name.to_owned());
                graph.pods.remove(&key);
            }
            NodeGraphObject::Volume => drop(graph.volumes.remove(name)),
            NodeGraphObject::Attachment => drop(graph.attachments.remove(name)),
        }
    }

    /// Returns true if a Pod bound to the node refers to the object, directly or through its volumes.
    fn is_referenced(&self, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let graph = self.graph.read().unwrap_or_else(PoisonError::into_inner);
        graph.references(node, resource, namespace, name)
            || resource == "secrets" && graph.mounts_with(node, namespace, name)
    }

    fn uses_volume(&self, node: &str, name: &str) -> bool {
        let graph = self.graph.read().unwrap_or_else(PoisonError::into_inner);
        let volume = graph.volumes.get(name);
        volume.is_some_and(|volume| graph.uses(node, volume))
    }

    fn is_attached(&self, node: &str, attachment: &str) -> bool {
        let graph = self.graph.read().unwrap_or_else(PoisonError::into_inner);
        graph
            .attachments
            .get(attachment)
            .is_some_and(|of| of == node)
    }

    fn runs_on(&self, node: &str, namespace: &str, name: &str) -> bool {
        let graph = self.graph.read().unwrap_or_else(PoisonError::into_inner);
        let found = graph.pods.get(&(namespace.to_owned(), name.to_owned()));
        found.is_some_and(|bound| bound.node == node)
    }

    fn allows(&self, node: &str, request: &AccessRequest<'_>) -> bool {
        let AccessObject::Resource {
            group,
            resource,
            subresource,
            namespace,
            name,
            field_selector,
            ..
        } = request.object
        else {
            return self.rbac.role_allows(ROLE, request);
        };
        let verb = request.verb;
        let reads = matches!(verb, "get" | "list" | "watch");
        let needed = || {
            subresource.is_empty()
                && !name.is_empty()
                && self.is_referenced(node, resource, namespace, name)
        };
        let own = |member: &str| selects(field_selector, member, node);
        let is_own_name = || name == node || name.is_empty() && verb == "create";
        match (group, resource) {
            ("", "secrets" | "configmaps") => reads && needed(),
            ("", "persistentvolumeclaims") => match subresource {
                "" => verb == "get" && needed(),
                "status" => {
                    matches!(verb, "update" | "patch")
                        && self.is_referenced(node, resource, namespace, name)
                }
                _ => false,
            },
            ("", "persistentvolumes") => {
                verb == "get" && subresource.is_empty() && self.uses_volume(node, name)
            }
            ("storage.k8s.io", "volumeattachments") => {
                verb == "get" && subresource.is_empty() && self.is_attached(node, name)
            }
            ("resource.k8s.io", "resourceclaims") => verb == "get" && needed(),
            ("", "serviceaccounts") => {
                let is_token = subresource == "token" && verb == "create";
                is_token && self.is_referenced(node, resource, namespace, name)
            }
            ("", "nodes") if reads && subresource.is_empty() => match verb {
                "get" => name == node,
                _ => name == node || own("metadata.name"),
            },
            ("", "pods") if reads && subresource.is_empty() => match verb {
                "get" => self.runs_on(node, namespace, name),
                _ => own("spec.nodeName") || self.runs_on(node, namespace, name),
            },
            ("coordination.k8s.io", "leases") => {
                let verbs = ["get", "create", "update", "patch", "delete"];
                namespace == "kube-node-lease" && verbs.contains(&verb) && is_own_name()
            }
            ("storage.k8s.io", "csinodes") => {
                let verbs = ["get", "create", "update", "patch", "delete"];
                verbs.contains(&verb) && is_own_name()
            }
            ("resource.k8s.io", "resourceslices") => match verb {
                "list" | "watch" | "deletecollection" => own("spec.nodeName"),
                _ => self.rbac.role_allows(ROLE, request),
            },
            _ => self.rbac.role_allows(ROLE, request),
        }
    }
}

impl Authorizer for NodeAuthorizer {
    fn authorize(&self, request: &AccessRequest<'_>) -> Decision {
        if let Some(node) = node_of(request.user)
            && self.allows(node, request)
        {
            return Decision {
                allowed: true,
                ..Decision::default()
            };
        }
        self.rbac.authorize(request)
    }
}

/// The node of a user.
fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    let is_node = user.groups.iter().any(|group| group == "system:nodes");
    (is_node && !name.is_empty()).then_some(name)
}

/// Returns true if a field selector is restricted to the node.
fn selects(selector: &str, member: &str, node: &str) -> bool {
    selector.split(',').any(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        key == member && value.trim_start_matches('=') == node
    })
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

fn items<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The claim of a volume, and its mount Secrets; `None` if it is not bound.
///
/// UPSTREAM: kubernetes pkg/api/v1/persistentvolume/util.go (VisitPVSecretNames)
fn claimed(volume: &Value) -> Option<BoundVolume> {
    volume.pointer("/spec/claimRef")?.as_object()?;
    let namespace = text(volume, "/spec/claimRef/namespace");
    let claim = (
        namespace.to_owned(),
        text(volume, "/spec/claimRef/name").to_owned(),
    );
    let mut secrets = BTreeSet::new();
    let mut add = |own: &str, otherwise: &str, name: &str| {
        let namespace = if own.is_empty() { otherwise } else { own };
        if !namespace.is_empty() && !name.is_empty() {
            secrets.insert((namespace.to_owned(), name.to_owned()));
        }
    };
    add(
        text(volume, "/spec/azureFile/secretNamespace"),
        namespace,
        text(volume, "/spec/azureFile/secretName"),
    );
    // Their default namespace is that of the claim.
    for (source, otherwise) in [
        ("cephfs/secretRef", namespace),
        ("flexVolume/secretRef", namespace),
        ("rbd/secretRef", namespace),
        ("scaleIO/secretRef", namespace),
        ("iscsi/secretRef", namespace),
        ("cinder/secretRef", ""),
        ("storageos/secretRef", ""),
        ("csi/nodePublishSecretRef", ""),
        ("csi/nodeStageSecretRef", ""),
        ("csi/nodeExpandSecretRef", ""),
    ] {
        let of = |member: &str| text(volume, &format!("/spec/{source}/{member}"));
        add(of("namespace"), otherwise, of("name"));
    }
    Some(BoundVolume { claim, secrets })
}

/// The objects that a Pod refers to.
fn referenced_objects(name: &str, pod: &Value) -> BTreeSet<(&'static str, String)> {
    let mut needs = BTreeSet::new();
    let mut need = |kind: &'static str, name: &str| {
        if !name.is_empty() {
            needs.insert((kind, name.to_owned()));
        }
    };
    need("serviceaccounts", text(pod, "/spec/serviceAccountName"));
    for secret in items(pod, "/spec/imagePullSecrets") {
        need("secrets", text(secret, "/name"));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(pod, &format!("/spec/{list}")) {
            for env in items(container, "/env") {
                need("secrets", text(env, "/valueFrom/secretKeyRef/name"));
                need("configmaps", text(env, "/valueFrom/configMapKeyRef/name"));
            }
            for from in items(container, "/envFrom") {
                need("secrets", text(from, "/secretRef/name"));
                need("configmaps", text(from, "/configMapRef/name"));
            }
        }
    }
    for volume in items(pod, "/spec/volumes") {
        need("secrets", text(volume, "/secret/secretName"));
        need("configmaps", text(volume, "/configMap/name"));
        need(
            "persistentvolumeclaims",
            text(volume, "/persistentVolumeClaim/claimName"),
        );
        if volume
            .get("ephemeral")
            .is_some_and(|source| !source.is_null())
        {
            let claim = format!("{name}-{}", text(volume, "/name"));
            need("persistentvolumeclaims", &claim);
        }
        for kind in [
            "cephfs",
            "cinder",
            "flexVolume",
            "rbd",
            "scaleIO",
            "iscsi",
            "storageos",
        ] {
            need("secrets", text(volume, &format!("/{kind}/secretRef/name")));
        }
        need("secrets", text(volume, "/azureFile/secretName"));
        need("secrets", text(volume, "/csi/nodePublishSecretRef/name"));
        for source in items(volume, "/projected/sources") {
            need("secrets", text(source, "/secret/name"));
            need("configmaps", text(source, "/configMap/name"));
        }
    }
    for claim in items(pod, "/spec/resourceClaims") {
        need("resourceclaims", text(claim, "/resourceClaimName"));
    }
    for claim in items(pod, "/status/resourceClaimStatuses") {
        need("resourceclaims", text(claim, "/resourceClaimName"));
    }
    needs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_allowed(
        nodes: &NodeAuthorizer,
        verb: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> bool {
        let user = User {
            name: String::from("system:node:n"),
            groups: vec![String::from("system:nodes")],
            ..User::default()
        };
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, field_selector) = resource.split_once('?').unwrap_or((resource, ""));
        let request = AccessRequest {
            user: &user,
            verb,
            object: AccessObject::Resource {
                group: "",
                resource,
                subresource,
                namespace,
                name,
                field_selector,
                label_selector: "",
            },
        };
        nodes.authorize(&request).allowed
    }

    #[test]
    fn nodes_read_what_their_pods_need() {
        let nodes = NodeAuthorizer::new(Arc::default());
        let pod = |node: &str| {
            json!({"spec": {"nodeName": node, "serviceAccountName": "a", "volumes": [
                {"secret": {"secretName": "s"}}, {"configMap": {"name": "m"}},
            ]}})
        };
        nodes.set(NodeGraphObject::Pod, "shop", "p", &pod("n"));
        nodes.set(NodeGraphObject::Pod, "shop", "q", &pod("other"));
        for (verb, resource, namespace, name, want) in [
            ("get", "secrets", "shop", "s", true),
            ("get", "secrets", "shop", "t", false),
            ("get", "secrets", "other", "s", false),
            ("list", "secrets", "shop", "", false),
            ("update", "secrets", "shop", "s", false),
            ("get", "configmaps", "shop", "m", true),
            ("create", "serviceaccounts/token", "shop", "a", true),
            ("create", "serviceaccounts/token", "shop", "b", false),
            ("get", "pods", "shop", "p", true),
            ("get", "pods", "shop", "q", false),
            ("list", "pods?spec.nodeName=n", "", "", true),
            ("list", "pods", "", "", false),
            ("get", "nodes", "", "n", true),
            ("get", "nodes", "", "m", false),
        ] {
            let got = is_allowed(&nodes, verb, resource, namespace, name);
            assert_eq!(got, want, "{verb} {resource} {namespace}/{name}");
        }
        nodes.set(NodeGraphObject::Pod, "shop", "p", &pod("elsewhere"));
        assert!(!is_allowed(&nodes, "get", "secrets", "shop", "s"));
        nodes.set(NodeGraphObject::Pod, "shop", "p", &pod("n"));
        nodes.remove(NodeGraphObject::Pod, "shop", "p");
        assert!(!is_allowed(&nodes, "get", "secrets", "shop", "s"));
    }

    #[test]
    fn nodes_read_the_volumes_that_their_pods_use() {
        let nodes = NodeAuthorizer::new(Arc::default());
        let pod = json!({"spec": {"nodeName": "n", "volumes": [
            {"persistentVolumeClaim": {"claimName": "c"}},
        ]}});
        nodes.set(NodeGraphObject::Pod, "shop", "p", &pod);
        let volume = |claim: &str| {
            json!({"spec": {
                "claimRef": {"namespace": "shop", "name": claim},
                "csi": {
                    "nodeStageSecretRef": {"namespace": "keys", "name": "stage"},
                    "controllerPublishSecretRef": {"namespace": "keys", "name": "publish"},
                },
            }})
        };
        nodes.set(NodeGraphObject::Volume, "", "v", &volume("c"));
        nodes.set(NodeGraphObject::Volume, "", "w", &volume("other"));
        for (verb, resource, namespace, name, want) in [
            ("get", "persistentvolumes", "", "v", true),
            ("list", "persistentvolumes", "", "v", false),
            ("get", "persistentvolumes", "", "w", false),
            ("get", "persistentvolumes", "", "gone", false),
            ("get", "persistentvolumeclaims", "shop", "c", true),
            ("patch", "persistentvolumeclaims/status", "shop", "c", true),
            ("get", "persistentvolumeclaims/status", "shop", "c", false),
            ("get", "secrets", "keys", "stage", true),
            ("get", "secrets", "keys", "publish", false),
        ] {
            let got = is_allowed(&nodes, verb, resource, namespace, name);
            assert_eq!(got, want, "{verb} {resource} {namespace}/{name}");
        }
        nodes.set(NodeGraphObject::Volume, "", "v", &json!({"spec": {}}));
        assert!(!is_allowed(&nodes, "get", "persistentvolumes", "", "v"));
        assert!(!is_allowed(&nodes, "get", "secrets", "keys", "stage"));

        let attachment = json!({"spec": {"nodeName": "n"}});
        nodes.set(NodeGraphObject::Attachment, "", "a", &attachment);
        assert!(nodes.is_attached("n", "a") && !nodes.is_attached("m", "a"));
        nodes.remove(NodeGraphObject::Attachment, "", "a");
        assert!(!nodes.is_attached("n", "a"));
    }
}
