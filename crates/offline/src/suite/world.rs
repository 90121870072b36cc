//! The world of a case: a cluster, its chain, and optionally a mock authorizer.

use std::sync::Arc;

use lockgate_api::access::{AccessObject, AccessRequest, Authorizer, Decision};
use lockgate_api::registration::Configuration;
use lockgate_api::registration::policy::Binding;
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::cluster::{Cluster, ClusterError, Validation};
use crate::hooks::Hooks;
use crate::kinds::OfflineKinds;
use crate::manifest::Manifest;

/// An error creating a world.
pub type WorldError = ClusterError;

/// Everything of a case except the request. Cases share it.
#[derive(Debug)]
pub struct World {
    cluster: Cluster,
    hooks: Hooks,
    authorizer: Option<Arc<MockAuthorizer>>,
    chain: Chain,
}

/// The decisions of a mock authorizer, as listed in test files. All others are denials.
#[derive(Debug, Clone, Default)]
pub struct MockAuthorizer(pub Vec<MockAccess>);

/// One decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MockAccess {
    /// The API group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name; any if absent.
    pub name: Option<String>,
    /// The path, for non-resource access.
    pub path: Option<String>,
    /// The verb.
    pub verb: String,
    /// `allow`; any other value denies.
    pub decision: String,
    /// The reported reason.
    pub reason: String,
}

impl Authorizer for MockAuthorizer {
    fn authorize(&self, request: &AccessRequest<'_>) -> Decision {
        let is_it = |access: &&MockAccess| {
            access.verb == request.verb
                && match &request.object {
                    AccessObject::Path(path) => access.path.as_deref() == Some(*path),
                    AccessObject::Resource {
                        group,
                        resource,
                        subresource,
                        namespace,
                        name,
                        ..
                    } => {
                        access.path.is_none()
                            && access.group == *group
                            && access.resource == *resource
                            && access.subresource == *subresource
                            && access.namespace == *namespace
                            && access.name.as_deref().is_none_or(|known| known == *name)
                    }
                }
        };
        let found = self.0.iter().find(is_it);
        Decision {
            allowed: found.is_some_and(|access| access.decision.eq_ignore_ascii_case("allow")),
            reason: found
                .map(|access| access.reason.clone())
                .unwrap_or_default(),
            ..Decision::default()
        }
    }
}

impl World {
    /// Creates the world of a cluster.
    #[must_use]
    pub fn new(cluster: Cluster, hooks: Hooks) -> Self {
        let chain = Chain::new(&cluster, hooks.clone());
        Self {
            cluster,
            hooks,
            authorizer: None,
            chain,
        }
    }

    /// Creates a world from manifests of other tools: policies without a binding get a denying one, and fields that
    /// only an API server requires are defaulted.
    ///
    /// # Errors
    ///
    /// Fails if a manifest cannot be decoded.
    pub fn bound(mut manifests: Vec<Manifest>, hooks: Hooks) -> Result<Self, WorldError> {
        for manifest in &mut manifests {
            complete(&mut manifest.value);
        }
        let mut cluster = Cluster::from_manifests(manifests, Validation::Stored)?;
        bind_all(&mut cluster);
        Ok(Self::new(cluster, hooks))
    }

    /// The same with a mock authorizer.
    #[must_use]
    pub fn with_authorizer(self, authorizer: MockAuthorizer) -> Self {
        let authorizer = Arc::new(authorizer);
        let own = Arc::clone(&authorizer);
        let chain = Chain::with_authorizer(&self.cluster, self.hooks.clone(), own);
        Self {
            chain,
            authorizer: Some(authorizer),
            ..self
        }
    }

    /// The chain.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(super) fn kinds(&self) -> &OfflineKinds {
        &self.cluster.kinds
    }

    /// A chain with the mutating webhook configurations in another order.
    pub(super) fn reordered(&self, configurations: Vec<Configuration>) -> Chain {
        let mut cluster = self.cluster.surroundings();
        cluster.configurations = configurations;
        cluster.policies.clone_from(&self.cluster.policies);
        cluster.bindings.clone_from(&self.cluster.bindings);
        let hooks = self.hooks.clone();
        match &self.authorizer {
            Some(authorizer) => Chain::with_authorizer(&cluster, hooks, Arc::clone(authorizer)),
            None => Chain::new(&cluster, hooks),
        }
    }
}

/// Sets fields of policies and bindings that an API server requires.
fn complete(manifest: &mut Value) {
    let kind = manifest["kind"].as_str().unwrap_or_default();
    let is_policy = kind.ends_with("AdmissionPolicy");
    let is_binding = kind.ends_with("AdmissionPolicyBinding");
    if !is_policy && !is_binding {
        return;
    }
    let is_mutating = kind.starts_with("Mutating");
    let Some(spec) = manifest.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let everything = || json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
    if is_policy {
        let constraints = spec
            .entry("matchConstraints")
            .or_insert_with(|| json!({"resourceRules": [everything()]}));
        let rules = constraints
            .get_mut("resourceRules")
            .and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten().filter_map(Value::as_object_mut) {
            rule.entry("operations").or_insert_with(|| json!(["*"]));
        }
    }
    if is_policy && is_mutating {
        spec.entry("reinvocationPolicy")
            .or_insert_with(|| "Never".into());
    }
    if let Some(reference) = spec.get_mut("paramRef").and_then(Value::as_object_mut) {
        reference
            .entry("parameterNotFoundAction")
            .or_insert_with(|| "Allow".into());
    }
    if is_binding && !is_mutating {
        spec.entry("validationActions")
            .or_insert_with(|| json!(["Deny"]));
    }
}

/// Adds bindings to policies without one.
pub(super) fn bind_all(cluster: &mut Cluster) {
    let unbound = cluster.policies.iter().filter(|policy| {
        let name = &policy.metadata.name;
        let mut bindings = cluster.bindings.iter();
        !bindings.any(|binding| binding.kind == policy.kind && binding.policy_name == *name)
    });
    let made: Vec<Binding> = unbound
        .map(|policy| Binding {
            kind: policy.kind,
            metadata: policy.metadata.clone(),
            policy_name: policy.metadata.name.clone(),
            param_ref: None,
            match_resources: None,
            validation_actions: Some(vec![String::from("Deny")]),
        })
        .collect();
    cluster.bindings.extend(made);
}
