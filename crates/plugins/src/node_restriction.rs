//! `NodeRestriction`: restricts kubelets to their own Node and the objects of its Pods.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/noderestriction/admission.go

use std::collections::BTreeSet;
use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::access::Authorizer;
use lockgate_api::meta::status::{Status, StatusDetails};
use lockgate_go::quote::quote;
use serde_json::Value;

use crate::access::{ResourceAttributes, authorize as ask_authorizer};
use crate::certificates::subject_of_request;
use crate::fields::{at, is_mirror, is_on, items, text, text_at, texts};
use crate::lookup::{CLAIMS, CSI_DRIVERS, Lookup, NODES, PODS, VOLUMES, name_of};
use crate::rules::{About, Refusal, Rules, Verdict, old_object};
use crate::service_account::refers_to_secrets;

const CHANGES: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

/// The signers of kubelet certificates.
const KUBELET_SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];

/// The labels that kubelets set on their Node.
///
/// UPSTREAM: kubelet pkg/apis/well_known_labels.go
const KUBELET_LABELS: [&str; 13] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "kubernetes.io/os-distribution",
];

/// The label prefixes that kubelets may set.
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

const RESTRICTED_DOMAIN: &str = "node-restriction.kubernetes.io";

/// Restricts the writes of kubelets.
#[derive(Debug, Clone)]
pub struct NodeRestriction {
    lookup: Arc<dyn Lookup>,
    authorizer: Arc<dyn Authorizer>,
}

/// The node of a user; empty if the username does not contain it.
fn node_of(request: &Request) -> Option<&str> {
    let groups = request.user.groups.as_deref().unwrap_or_default();
    let name = request.user.username.strip_prefix("system:node:");
    name.filter(|_| groups.iter().any(|group| group == "system:nodes"))
}

fn deny(text: impl Into<String>) -> Verdict {
    Err(Refusal::forbidden(text))
}

/// The not-found error of upstream's caches, which contains the kind.
fn not_found(kind: &str, name: &str) -> Refusal {
    let message = format!("{kind} {} not found", quote(name));
    let mut refusal = Refusal::status(404, "NotFound", message);
    if let Refusal::Status(status) = &mut refusal {
        let status: &mut Status = status;
        status.details = Some(StatusDetails {
            name: name.to_owned(),
            kind: kind.to_owned(),
            ..StatusDetails::default()
        });
    }
    refusal
}

impl NodeRestriction {
    /// Creates the plugin.
    pub fn new(lookup: impl Lookup, authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            lookup: Arc::new(lookup),
            authorizer,
        }
    }

    async fn decide(&self, request: &Request, object: &Value) -> Verdict {
        let Some(node) = node_of(request) else {
            return Ok(());
        };
        if node.is_empty() {
            let user = quote(&request.user.username);
            return deny(format!("could not determine node from user {user}"));
        }
        let resource = &request.resource;
        let subresource = request.subresource.as_str();
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "pods") => match subresource {
                "" => self.pod(node, request, object).await,
                "status" => pod_status(node, request, object),
                "eviction" => self.eviction(node, request, object).await,
                other => deny(format!(
                    "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                    quote(other)
                )),
            },
            ("", "nodes") => own_node(node, request, object),
            ("", "persistentvolumeclaims") => match subresource {
                "status" => claim_status(node, request, object),
                _ => deny("may only update PVC status"),
            },
            ("", "serviceaccounts") => self.token(node, request, object).await,
            ("coordination.k8s.io", "leases") => lease(node, request, object),
            ("storage.k8s.io", "csinodes") => {
                let name = match request.operation {
                    Operation::Create => name_of(object),
                    _ => &request.name,
                };
                if name == node {
                    return Ok(());
                }
                deny("can only access CSINode with the same name as the requesting node")
            }
            ("resource.k8s.io", "resourceslices") => slice(node, request, object),
            ("certificates.k8s.io", "certificatesigningrequests") => signing(node, request, object),
            ("certificates.k8s.io", "podcertificaterequests") => {
                deny("PodCertificateRequest feature gate is disabled")
            }
            _ => Ok(()),
        }
    }

    async fn existing_pod(&self, request: &Request, name: &str) -> Result<Arc<Value>, Refusal> {
        let found = self.lookup.get(PODS, &request.namespace, name).await;
        let found = found.map_err(|error| Refusal::forbidden(error.to_string()))?;
        found.ok_or_else(|| not_found("pod", name))
    }

    async fn pod(&self, node: &str, request: &Request, pod: &Value) -> Verdict {
        let shown = quote(node);
        match request.operation {
            Operation::Create => self.mirror_pod(node, pod).await,
            Operation::Delete => {
                let existing = self.existing_pod(request, &request.name).await?;
                if text_at(&existing, &["spec", "nodeName"]) == node {
                    return Ok(());
                }
                deny(format!(
                    "node {shown} can only delete pods with spec.nodeName set to itself"
                ))
            }
            other => deny(format!(
                "unexpected operation {}, node {shown} can only create and delete mirror pods",
                quote(other.name())
            )),
        }
    }

    async fn mirror_pod(&self, node: &str, pod: &Value) -> Verdict {
        let shown = quote(node);
        if !is_mirror(pod) {
            return deny(format!(
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node {shown} can only \
                 create mirror pods"
            ));
        }
        if text_at(pod, &["spec", "nodeName"]) != node {
            return deny(format!(
                "node {shown} can only create pods with spec.nodeName set to itself"
            ));
        }
        let owners = items(pod, &["metadata", "ownerReferences"]);
        let not_itself = || {
            deny(format!(
                "node {shown} can only create pods with an owner reference set to itself"
            ))
        };
        let owner = match owners {
            [] => return not_itself(),
            [owner] => owner,
            _ => {
                return deny(format!(
                    "node {shown} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        let of_owner = ["apiVersion", "kind", "name"].map(|member| text(owner, member));
        if of_owner != ["v1", "Node", node] {
            return not_itself();
        }
        if !is_on(owner, &["controller"]) {
            return deny(format!(
                "node {shown} can only create pods with a controller owner reference set to itself"
            ));
        }
        if is_on(owner, &["blockOwnerDeletion"]) {
            return deny(format!(
                "node {shown} must not set blockOwnerDeletion on an owner reference"
            ));
        }
        let found = self.lookup.get(NODES, "", node).await.map_err(|error| {
            Refusal::forbidden(format!(
                "error looking up node {node} to verify uid: {error}"
            ))
        })?;
        let found = found.ok_or_else(|| not_found("node", node))?;
        let (told, known) = (text(owner, "uid"), text_at(&found, &["metadata", "uid"]));
        if told != known {
            return deny(format!(
                "node {node} UID mismatch: expected {told} got {known}"
            ));
        }
        match referenced(pod) {
            None => Ok(()),
            Some(what) => deny(format!(
                "node {shown} can not create pods that reference {what}"
            )),
        }
    }

    async fn eviction(&self, node: &str, request: &Request, eviction: &Value) -> Verdict {
        if request.operation != Operation::Create {
            return deny(format!("unexpected operation {}", request.operation.name()));
        }
        let name = match request.name.as_str() {
            "" => name_of(eviction),
            name => name,
        };
        if name.is_empty() {
            return deny("could not determine pod from request data");
        }
        let existing = self.existing_pod(request, name).await?;
        if text_at(&existing, &["spec", "nodeName"]) == node {
            return Ok(());
        }
        deny(format!(
            "node {node} can only evict pods with spec.nodeName set to itself"
        ))
    }

    async fn token(&self, node: &str, request: &Request, token: &Value) -> Verdict {
        if request.operation != Operation::Create || request.subresource != "token" {
            return Ok(());
        }
        let reference = at(token, &["spec", "boundObjectRef"]).unwrap_or(&Value::Null);
        let kind = ["apiVersion", "kind"].map(|member| text(reference, member));
        let name = text(reference, "name");
        if kind != ["v1", "Pod"] || name.is_empty() {
            return deny("node requested token not bound to a pod");
        }
        let uid = text(reference, "uid");
        if uid.is_empty() {
            return deny("node requested token with a pod binding without a uid");
        }
        let pod = self.existing_pod(request, name).await?;
        if text_at(&pod, &["metadata", "uid"]) != uid {
            return deny(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The \
                 object might have been deleted and then recreated"
            ));
        }
        if text_at(&pod, &["spec", "nodeName"]) != node {
            return deny("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(request, token, &pod).await
    }

    /// The audience of a token must be used by the Pod or allowed for the node.
    async fn audience(&self, request: &Request, token: &Value, pod: &Value) -> Verdict {
        let audience = match items(token, &["spec", "audiences"]) {
            [] => "",
            [audience] => audience.as_str().unwrap_or_default(),
            _ => return deny("node may only request 0 or 1 audiences"),
        };
        for volume in items(pod, &["spec", "volumes"]) {
            let mut sources = items(volume, &["projected", "sources"]).iter();
            let in_token = sources.any(|source| {
                let token = at(source, &["serviceAccountToken"]);
                token.is_some_and(|token| text(token, "audience") == audience)
            });
            if in_token
                || self
                    .driver_wants(&request.namespace, pod, volume, audience)
                    .await?
            {
                return Ok(());
            }
        }
        let attributes = ResourceAttributes {
            resource: audience,
            namespace: &request.namespace,
            name: &request.name,
            ..ResourceAttributes::default()
        };
        let verb = "request-serviceaccounts-token-audience";
        if ask_authorizer(&self.authorizer, request, verb, attributes).allowed {
            return Ok(());
        }
        deny(format!(
            "audience {} not found in pod spec volume, {} is not authorized to request tokens for this \
             audience",
            quote(audience),
            request.user.username
        ))
    }

    /// Returns true if the CSI driver of a volume requests tokens for the audience.
    async fn driver_wants(
        &self,
        namespace: &str,
        pod: &Value,
        volume: &Value,
        audience: &str,
    ) -> Result<bool, Refusal> {
        let claim = if at(volume, &["ephemeral", "volumeClaimTemplate"]).is_some() {
            format!("{}-{}", name_of(pod), text(volume, "name"))
        } else {
            text_at(volume, &["persistentVolumeClaim", "claimName"]).to_owned()
        };
        let mut driver = text_at(volume, &["csi", "driver"]).to_owned();
        if !claim.is_empty() {
            let Some(claim) = self.lookup.get(CLAIMS, namespace, &claim).await? else {
                return Ok(false);
            };
            let name = text_at(&claim, &["spec", "volumeName"]);
            let Some(volume) = self.lookup.get(VOLUMES, "", name).await? else {
                return Ok(false);
            };
            text_at(&volume, &["spec", "csi", "driver"]).clone_into(&mut driver);
        }
        if driver.is_empty() {
            return Ok(false);
        }
        let Some(driver) = self.lookup.get(CSI_DRIVERS, "", &driver).await? else {
            return Ok(false);
        };
        let mut requests = items(&driver, &["spec", "tokenRequests"]).iter();
        Ok(requests.any(|request| text(request, "audience") == audience))
    }
}

/// The first type of resource that a Pod refers to.
///
/// UPSTREAM: kubernetes pkg/api/pod/util.go (HasAPIObjectReference)
fn referenced(pod: &Value) -> Option<&'static str> {
    if !text_at(pod, &["spec", "serviceAccountName"]).is_empty() {
        return Some("serviceaccounts");
    }
    if refers_to_secrets(pod) {
        return Some("secrets");
    }
    if refers_to_config_maps(pod) {
        return Some("configmaps");
    }
    if !items(pod, &["spec", "resourceClaims"]).is_empty() {
        return Some("resourceclaims");
    }
    const VOLUMES: [(&str, &str); 5] = [
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        (
            "ephemeral",
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    const SOURCES: [(&str, &str); 3] = [
        (
            "serviceAccountToken",
            "serviceaccounts (via projected volumes)",
        ),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let first = |of: &Value, kinds: &[(&str, &'static str)]| {
        let mut kinds = kinds.iter();
        let found = kinds.find(|(kind, _)| at(of, &[kind]).is_some());
        found.map(|(_, what)| *what)
    };
    items(pod, &["spec", "volumes"]).iter().find_map(|volume| {
        let mut sources = items(volume, &["projected", "sources"]).iter();
        first(volume, &VOLUMES).or_else(|| sources.find_map(|source| first(source, &SOURCES)))
    })
}

fn refers_to_config_maps(pod: &Value) -> bool {
    let lists = crate::fields::CONTAINER_LISTS.into_iter();
    let mut containers = lists.flat_map(|list| items(pod, &["spec", list]));
    let in_container = |container: &Value| {
        let mut env = items(container, &["env"]).iter();
        let mut from = items(container, &["envFrom"]).iter();
        env.any(|env| at(env, &["valueFrom", "configMapKeyRef"]).is_some())
            || from.any(|from| at(from, &["configMapRef"]).is_some())
    };
    let in_volume = |volume: &Value| {
        let mut sources = items(volume, &["projected", "sources"]).iter();
        at(volume, &["configMap"]).is_some()
            || sources.any(|source| at(source, &["configMap"]).is_some())
    };
    containers.any(in_container) || items(pod, &["spec", "volumes"]).iter().any(in_volume)
}

fn pod_status(node: &str, request: &Request, new: &Value) -> Verdict {
    if request.operation != Operation::Update {
        let operation = quote(request.operation.name());
        return deny(format!("unexpected operation {operation}"));
    }
    let (shown, old) = (quote(node), old_object(request));
    if text_at(old, &["spec", "nodeName"]) != node {
        return deny(format!(
            "node {shown} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    let labels = |pod: &Value| -> BTreeSet<(String, String)> {
        let labels = texts(pod, &["metadata", "labels"]);
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    };
    if labels(old) != labels(new) {
        return deny(format!(
            "node {shown} cannot update labels through pod status"
        ));
    }
    let of = |pod: &'_ Value, member: &str| at(pod, &["status", member]).cloned();
    if of(old, "resourceClaimStatuses") != of(new, "resourceClaimStatuses") {
        return deny(format!("node {shown} cannot update resource claim statues"));
    }
    let extended = "extendedResourceClaimStatus";
    if of(old, extended) != of(new, extended) {
        return deny(format!(
            "node {shown} cannot update extended resource claim status"
        ));
    }
    Ok(())
}

fn claim_status(node: &str, request: &Request, new: &Value) -> Verdict {
    if request.operation != Operation::Update {
        let operation = quote(request.operation.name());
        return deny(format!("unexpected operation {operation}"));
    }
    let essence = |claim: &Value| {
        let mut claim = claim.clone();
        for (part, members) in [
            ("metadata", &["resourceVersion", "managedFields"][..]),
            (
                "status",
                &[
                    "capacity",
                    "conditions",
                    "allocatedResourceStatuses",
                    "allocatedResources",
                ][..],
            ),
        ] {
            if let Some(part) = claim.get_mut(part).and_then(Value::as_object_mut) {
                part.retain(|member, _| !members.contains(&member.as_str()));
            }
        }
        claim
    };
    if essence(old_object(request)) == essence(new) {
        return Ok(());
    }
    let node = quote(node);
    deny(format!(
        "node {node} is not allowed to update fields other than status.quantity and status.conditions"
    ))
}

fn own_node(node: &str, request: &Request, new: &Value) -> Verdict {
    let shown = quote(node);
    let name = match request.name.as_str() {
        "" => name_of(new),
        name => name,
    };
    if name != node {
        let name = quote(name);
        return deny(format!("node {shown} is not allowed to modify node {name}"));
    }
    let old = old_object(request);
    let changed = |path: &[&str]| at(old, path) != at(new, path);
    let config = ["spec", "configSource"];
    let labels = forbidden_labels(old, new);
    match request.operation {
        Operation::Create => {
            if at(new, &config).is_some() {
                return deny(format!(
                    "node {shown} is not allowed to create pods with a non-nil configSource"
                ));
            }
            if !labels.is_empty() {
                let labels = labels.join(", ");
                return deny(format!(
                    "node {shown} is not allowed to set the following labels: {labels}"
                ));
            }
        }
        Operation::Update => {
            if at(new, &config).is_some() && changed(&config) {
                return deny(format!(
                    "node {shown} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if changed(&["spec", "taints"]) {
                return deny(format!("node {shown} is not allowed to modify taints"));
            }
            if changed(&["metadata", "ownerReferences"]) {
                return deny(format!(
                    "node {shown} is not allowed to modify ownerReferences"
                ));
            }
            if !labels.is_empty() {
                let labels = labels.join(", ");
                return deny(format!("is not allowed to modify labels: {labels}"));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Changed labels that a kubelet may not set, sorted.
fn forbidden_labels(old: &Value, new: &Value) -> Vec<String> {
    let path = ["metadata", "labels"];
    let value = |of: &'_ Value, key: &str| crate::fields::label(of, key).map(str::to_owned);
    let keys: BTreeSet<&str> = texts(old, &path)
        .chain(texts(new, &path))
        .map(|(key, _)| key)
        .collect();
    let changed = keys
        .into_iter()
        .filter(|key| value(old, key) != value(new, key));
    let within = |domain: &str, of: &str| {
        domain == of
            || domain
                .strip_suffix(of)
                .is_some_and(|rest| rest.ends_with('.'))
    };
    let is_forbidden = |key: &&str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_kubernetes = within(domain, "kubernetes.io") || within(domain, "k8s.io");
        let is_kubelet = KUBELET_LABELS.contains(key)
            || KUBELET_DOMAINS.iter().any(|known| within(domain, known));
        within(domain, RESTRICTED_DOMAIN) || is_kubernetes && !is_kubelet
    };
    changed.filter(is_forbidden).map(str::to_owned).collect()
}

fn lease(node: &str, request: &Request, object: &Value) -> Verdict {
    if request.namespace != "kube-node-lease" {
        return deny("can only access leases in the \"kube-node-lease\" system namespace");
    }
    let name = match request.operation {
        Operation::Create => name_of(object),
        _ => &request.name,
    };
    if name == node {
        return Ok(());
    }
    deny("can only access node lease with the same name as the requesting node")
}

fn slice(node: &str, request: &Request, object: &Value) -> Verdict {
    let is_own = |slice: &Value| text_at(slice, &["spec", "nodeName"]) == node;
    match request.operation {
        Operation::Create if !is_own(object) => {
            deny("can only create ResourceSlice with the same NodeName as the requesting node")
        }
        Operation::Delete if !is_own(old_object(request)) => {
            deny("can only delete ResourceSlice with the same NodeName as the requesting node")
        }
        _ => Ok(()),
    }
}

fn signing(node: &str, request: &Request, csr: &Value) -> Verdict {
    let signer = text_at(csr, &["spec", "signerName"]);
    if request.operation != Operation::Create || !KUBELET_SIGNERS.contains(&signer) {
        return Ok(());
    }
    let subject = subject_of_request(text_at(csr, &["spec", "request"]));
    let subject =
        subject.map_err(|error| Refusal::forbidden(format!("unable to parse csr: {error}")))?;
    if subject.common_name == format!("system:node:{node}") {
        return Ok(());
    }
    deny(format!(
        "can only create a node CSR with CN=system:node:{node}"
    ))
}

impl Rules for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn operations(&self) -> &'static [Operation] {
        CHANGES
    }

    fn mutates(&self) -> &'static [About] {
        const EVERYTHING: About = About {
            operations: CHANGES,
            group: "*",
            resources: &["*/*"],
        };
        &[EVERYTHING]
    }

    async fn mutate(&self, ask: &mut Admission, object: &mut Value) -> Verdict {
        self.decide(ask.request(), object).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_by_its_kind() {
        let Refusal::Status(status) = not_found("pod", "gone") else {
            unreachable!("a refusal with a status")
        };
        assert_eq!(status.message, "pod \"gone\" not found");
        assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
        assert_eq!(status.details.unwrap_or_default().kind, "pod");
    }
}
