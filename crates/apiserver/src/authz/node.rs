//! Node authorization: the rules of every node, and access to what the pods bound to it need.
//!
//! UPSTREAM: kubernetes plugin/pkg/auth/authorizer/node

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, Decision, User};
use serde_json::Value;

use super::rbac::Rbac;

/// The role whose rules hold for every node, but for what depends on its pods.
const ROLE: &str = "system:node";

/// Asks what nodes may do, and otherwise roles.
#[derive(Debug)]
pub(crate) struct NodeAuthorizer {
    rbac: Arc<Rbac>,
    graph: RwLock<HashMap<(String, String), Bound>>,
}

/// A pod that runs on a node, and what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound {
    node: String,
    /// Names by resource, all in the namespace of the pod.
    needs: BTreeSet<(&'static str, String)>,
}

impl NodeAuthorizer {
    pub(crate) fn new(rbac: Arc<Rbac>) -> Self {
        Self {
            rbac,
            graph: RwLock::default(),
        }
    }

    /// Learns of a pod.
    pub(crate) fn set_pod(&self, namespace: &str, name: &str, pod: &Value) {
        let key = (namespace.to_owned(), name.to_owned());
        let node = text(pod, "/spec/nodeName");
        let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
        if node.is_empty() {
            graph.remove(&key);
            return;
        }
        let needs = needs_of(name, pod);
        let node = node.to_owned();
        graph.insert(key, Bound { node, needs });
    }

    /// Forgets a pod.
    pub(crate) fn remove_pod(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
        graph.remove(&key);
    }

    /// Returns true if a pod bound to the node refers to the object.
    fn is_needed(&self, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let graph = self.graph.read().unwrap_or_else(PoisonError::into_inner);
        graph.iter().any(|((of, _), bound)| {
            of == namespace
                && bound.node == node
                && bound
                    .needs
                    .iter()
                    .any(|(kind, needed)| *kind == resource && needed == name)
        })
    }

    fn runs_on(&self, node: &str, namespace: &str, name: &str) -> bool {
        let graph = self.graph.read().unwrap_or_else(PoisonError::into_inner);
        let found = graph.get(&(namespace.to_owned(), name.to_owned()));
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
                && self.is_needed(node, resource, namespace, name)
        };
        let own = |member: &str| selects(field_selector, member, node);
        let is_own_name = || name == node || name.is_empty() && verb == "create";
        match (group, resource) {
            ("", "secrets" | "configmaps") => reads && needed(),
            ("", "persistentvolumeclaims") => match subresource {
                "" => verb == "get" && needed(),
                "status" => {
                    matches!(verb, "get" | "update" | "patch")
                        && self.is_needed(node, resource, namespace, name)
                }
                _ => false,
            },
            ("resource.k8s.io", "resourceclaims") => verb == "get" && needed(),
            ("", "serviceaccounts") => {
                let is_token = subresource == "token" && verb == "create";
                is_token && self.is_needed(node, resource, namespace, name)
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

/// The node that a user is.
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

/// The objects that a pod refers to.
fn needs_of(name: &str, pod: &Value) -> BTreeSet<(&'static str, String)> {
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

    fn may(
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
        nodes.set_pod("shop", "p", &pod("n"));
        nodes.set_pod("shop", "q", &pod("other"));
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
            let got = may(&nodes, verb, resource, namespace, name);
            assert_eq!(got, want, "{verb} {resource} {namespace}/{name}");
        }
        nodes.set_pod("shop", "p", &pod("elsewhere"));
        assert!(!may(&nodes, "get", "secrets", "shop", "s"));
        nodes.set_pod("shop", "p", &pod("n"));
        nodes.remove_pod("shop", "p");
        assert!(!may(&nodes, "get", "secrets", "shop", "s"));
    }
}
