//! A cluster from manifests: registrations, policies, namespaces, roles, CustomResourceDefinitions and policy
//! parameters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lockgate_admission::conditions::RegistrationChecker;
use lockgate_admission::host::{
    BoxFuture, Namespace, NamespaceError, Namespaces, Param, ParamError, ParamScope, Params,
};
use lockgate_admission::object::Object;
use lockgate_admission::request::kind as group_version_kind;
use lockgate_api::access::rbac::Rbac;
use lockgate_api::decode::strict_error;
use lockgate_api::document::tree;
use lockgate_api::field::{FieldErrors, aggregate};
use lockgate_api::kube_version::KubeVersion;
use lockgate_api::registration::policy::{
    Binding, ParamKind, Policy, Registered, decode_binding, decode_policy,
};
use lockgate_api::registration::validation::policies::{validate_binding, validate_policy};
use lockgate_api::registration::validation::validate;
use lockgate_api::registration::{Configuration, GROUP, codec};
use lockgate_kinds::resource;
use serde_json::{Value, json};

use crate::kinds::{OfflineKinds, Placement};
use crate::manifest::{Manifest, split_api_version};

/// The label that every namespace has.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A manifest that an API server would reject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A field has a value of the wrong type, or is unknown.
    #[error("{source_name}: {title} cannot be decoded: {message}")]
    Decode {
        /// The file.
        source_name: String,
        /// The kind and name.
        title: String,
        /// The error.
        message: String,
    },
    /// An API server would reject the object.
    #[error("{source_name}: {title} is invalid: {message}")]
    Invalid {
        /// The file.
        source_name: String,
        /// The kind and name.
        title: String,
        /// All field errors.
        message: String,
    },
}

/// The strictness of decoding manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validation {
    /// Like an API server for `kubectl apply`: unknown fields and invalid values are errors.
    #[default]
    Strict,
    /// The same for an API server of this version: resources that it does not serve are errors, too.
    Version(KubeVersion),
    /// Like an API server for stored objects.
    Stored,
}

impl Validation {
    fn is_strict(self) -> bool {
        self != Self::Stored
    }

    fn version(self) -> KubeVersion {
        match self {
            Self::Version(version) => version,
            Self::Strict | Self::Stored => KubeVersion::REFERENCE,
        }
    }
}

/// A cluster from manifests.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The webhook configurations.
    pub configurations: Vec<Configuration>,
    /// The policies.
    pub policies: Vec<Policy>,
    /// The bindings.
    pub bindings: Vec<Binding>,
    /// The kinds.
    pub kinds: Arc<OfflineKinds>,
    /// The roles and role bindings.
    pub rbac: Arc<Rbac>,
    /// All objects, by kind, and by namespace and name.
    objects: Objects,
    has_rbac: bool,
}

type Objects = BTreeMap<(String, String), BTreeMap<(String, String), Arc<Param>>>;

impl Cluster {
    /// Creates a cluster from manifests.
    ///
    /// # Errors
    ///
    /// Fails with the first manifest that an API server would reject.
    pub fn from_manifests(
        manifests: impl IntoIterator<Item = Manifest>,
        validation: Validation,
    ) -> Result<Self, ClusterError> {
        let mut cluster = Self::default();
        cluster.extend(manifests, validation)?;
        Ok(cluster)
    }

    /// Adds manifests; objects of the same kind and name are replaced.
    ///
    /// # Errors
    ///
    /// Fails with the first manifest that an API server would reject.
    pub fn extend(
        &mut self,
        manifests: impl IntoIterator<Item = Manifest>,
        validation: Validation,
    ) -> Result<(), ClusterError> {
        let is_definition = |it: &Manifest| it.text("kind") == "CustomResourceDefinition";
        // CustomResourceDefinitions apply to objects before and after them.
        let (definitions, others): (Vec<Manifest>, Vec<Manifest>) =
            manifests.into_iter().partition(is_definition);
        for manifest in definitions.into_iter().chain(others) {
            self.add(manifest, validation)?;
        }
        Ok(())
    }

    /// Adds an object; one of the same kind and name is replaced.
    ///
    /// # Errors
    ///
    /// Fails if an API server would reject it.
    pub fn add(&mut self, manifest: Manifest, validation: Validation) -> Result<(), ClusterError> {
        let (api_version, kind) = (manifest.text("apiVersion"), manifest.text("kind"));
        let (group, version) = manifest.group_version();
        let served = resource::by_kind(group, version, kind);
        let asked = validation.version();
        if served.is_some_and(|row| !resource::is_served(row, asked)) {
            let message =
                format!("no matches for kind \"{kind}\" in version \"{api_version}\" of {asked}");
            return Err(invalid(&manifest, message));
        }
        if group == GROUP {
            // Policies have the same fields in every version.
            if let Some(registered) = Registered::identify(&format!("{GROUP}/v1"), kind) {
                return self.add_policy(&manifest, registered, validation);
            }
            if codec::identify(api_version, kind).is_some() {
                return self.add_configuration(&manifest, validation);
            }
        }
        match (group, kind) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                let failed = |message: String| invalid(&manifest, message);
                let defined = Arc::make_mut(&mut self.kinds).define(&manifest.value);
                defined.map_err(|error| failed(error.to_string()))?;
            }
            ("rbac.authorization.k8s.io", _) => self.add_rbac(&manifest),
            _ => {}
        }
        self.add_object(manifest);
        Ok(())
    }

    fn add_configuration(
        &mut self,
        manifest: &Manifest,
        validation: Validation,
    ) -> Result<(), ClusterError> {
        let identified = codec::identify(manifest.text("apiVersion"), manifest.text("kind"));
        let Some((kind, version)) = identified else {
            return Ok(());
        };
        let document = tree::read(&manifest.value);
        let decoded = codec::decode(document.root(), kind, version);
        let decoded = decoded.map_err(|error| undecodable(manifest, error.message))?;
        if validation.is_strict() {
            if !decoded.findings.is_empty() {
                return Err(undecodable(manifest, strict_error(&decoded.findings)));
            }
            let errors = validate(
                &decoded.value,
                version,
                RegistrationChecker::of(validation.version()),
            );
            check(manifest, &errors)?;
        }
        let name = &decoded.value.metadata.name;
        let is_other = |known: &Configuration| known.kind != kind || known.metadata.name != *name;
        self.configurations.retain(is_other);
        self.configurations.push(decoded.value);
        Ok(())
    }

    fn add_policy(
        &mut self,
        manifest: &Manifest,
        registered: Registered,
        validation: Validation,
    ) -> Result<(), ClusterError> {
        let document = tree::read(&manifest.value);
        let is_strict = validation.is_strict();
        match registered {
            Registered::Policy(kind) => {
                let decoded = decode_policy(document.root(), kind);
                let decoded = decoded.map_err(|error| undecodable(manifest, error.message))?;
                if is_strict && !decoded.findings.is_empty() {
                    return Err(undecodable(manifest, strict_error(&decoded.findings)));
                }
                if is_strict {
                    let errors = validate_policy(
                        &decoded.value,
                        RegistrationChecker::of(validation.version()),
                    );
                    check(manifest, &errors)?;
                }
                let name = &decoded.value.metadata.name;
                let is_other = |known: &Policy| known.kind != kind || known.metadata.name != *name;
                self.policies.retain(is_other);
                self.policies.push(decoded.value);
            }
            Registered::Binding(kind) => {
                let decoded = decode_binding(document.root(), kind);
                let decoded = decoded.map_err(|error| undecodable(manifest, error.message))?;
                if is_strict && !decoded.findings.is_empty() {
                    return Err(undecodable(manifest, strict_error(&decoded.findings)));
                }
                if is_strict {
                    check(manifest, &validate_binding(&decoded.value))?;
                }
                let name = &decoded.value.metadata.name;
                let is_other = |known: &Binding| known.kind != kind || known.metadata.name != *name;
                self.bindings.retain(is_other);
                self.bindings.push(decoded.value);
            }
        }
        Ok(())
    }

    fn add_rbac(&mut self, manifest: &Manifest) {
        let name = manifest.name();
        let namespace = match manifest.namespace() {
            "" => "default",
            namespace => namespace,
        };
        match manifest.text("kind") {
            "ClusterRole" => self.rbac.set_role("", name, &manifest.value),
            "Role" => self.rbac.set_role(namespace, name, &manifest.value),
            "ClusterRoleBinding" => self.rbac.set_binding("", name, &manifest.value),
            "RoleBinding" => self.rbac.set_binding(namespace, name, &manifest.value),
            _ => return,
        }
        self.has_rbac = true;
    }

    /// Returns true if there are RBAC roles, which `authorizer` evaluates.
    #[must_use]
    pub fn has_rbac(&self) -> bool {
        self.has_rbac
    }

    fn add_object(&mut self, manifest: Manifest) {
        let Manifest { value, .. } = &manifest;
        let (group, version) = manifest.group_version();
        let of = group_version_kind(group, version, manifest.text("kind"));
        // Objects that cannot be decoded as their kind are kept untyped: expressions may still read them.
        let object = match self.kinds.read(value.clone(), &of) {
            Ok((object, _)) => object,
            Err(_) => value.clone(),
        };
        let (mut namespace, name) = (manifest.namespace(), manifest.name());
        // Like kubectl for objects without a namespace.
        if namespace.is_empty() && self.kinds.of_kind(&of).placement == Placement::Namespaced {
            namespace = "default";
        }
        let object = match (group, of.kind.as_str()) {
            ("", "Namespace") => named_namespace(object, name),
            _ => object,
        };
        let param = Param {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            object: Object::new(object),
            is_built_in: resource::by_kind(group, version, &of.kind).is_some(),
        };
        let place = (namespace.to_owned(), name.to_owned());
        let of = (manifest.text("apiVersion").to_owned(), of.kind);
        let kind = self.objects.entry(of).or_default();
        kind.insert(place, Arc::new(param));
    }

    /// The same cluster without configurations, policies and bindings.
    pub(crate) fn surroundings(&self) -> Self {
        Self {
            kinds: Arc::clone(&self.kinds),
            rbac: Arc::clone(&self.rbac),
            objects: self.objects.clone(),
            has_rbac: self.has_rbac,
            ..Self::default()
        }
    }

    /// An object, by kind, namespace and name.
    #[must_use]
    pub fn object(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<&Value> {
        let of = (api_version.to_owned(), kind.to_owned());
        let place = (namespace.to_owned(), name.to_owned());
        let found = self.objects.get(&of)?.get(&place)?;
        Some(found.object.value())
    }

    /// The Namespace object, with its labels; `None` without a manifest.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&Value> {
        self.object("v1", "Namespace", "", name)
    }

    /// The engine's access to namespaces and parameters.
    #[must_use]
    pub fn lookup(&self) -> Lookup {
        let namespaces = self
            .objects
            .get(&(String::from("v1"), String::from("Namespace")));
        let namespaces = namespaces.into_iter().flat_map(BTreeMap::values);
        let namespaces = namespaces.map(|namespace| {
            let labels = namespace.object.value()["metadata"]["labels"].as_object();
            let labels = labels.into_iter().flatten();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let labels = labels.map(|(key, value)| (key.clone(), text(value)));
            let phase = &namespace.object.value()["status"]["phase"];
            let facts = Namespace {
                labels: labels.collect(),
                terminating: phase == "Terminating",
            };
            (namespace.name.clone(), Arc::new(facts))
        });
        Lookup {
            namespaces: namespaces.collect(),
            objects: self.objects.clone(),
            kinds: Arc::clone(&self.kinds),
            assumed: Mutex::default(),
        }
    }
}

fn undecodable(manifest: &Manifest, message: String) -> ClusterError {
    ClusterError::Decode {
        source_name: manifest.source.clone(),
        title: manifest.title(),
        message,
    }
}

fn invalid(manifest: &Manifest, message: String) -> ClusterError {
    ClusterError::Invalid {
        source_name: manifest.source.clone(),
        title: manifest.title(),
        message,
    }
}

fn check(manifest: &Manifest, errors: &FieldErrors) -> Result<(), ClusterError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(invalid(manifest, aggregate(errors)))
}

/// A namespace with the label that the server adds.
fn named_namespace(mut object: Value, name: &str) -> Value {
    if let Some(members) = object.as_object_mut() {
        let metadata = members.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(NAME_LABEL.to_owned(), name.into());
            }
        }
        let status = members.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.entry("phase").or_insert_with(|| "Active".into());
        }
    }
    object
}

/// Namespaces and objects by name, for the engine. A namespace without a manifest is assumed to exist with only the
/// name label.
#[derive(Debug)]
pub struct Lookup {
    namespaces: BTreeMap<String, Arc<Namespace>>,
    objects: Objects,
    kinds: Arc<OfflineKinds>,
    assumed: Mutex<BTreeMap<String, Arc<Namespace>>>,
}

impl Lookup {
    /// The requested namespaces without a manifest.
    #[must_use]
    pub fn assumed(&self) -> Vec<String> {
        let assumed = self.assumed.lock().unwrap_or_else(PoisonError::into_inner);
        assumed.keys().cloned().collect()
    }

    fn assume(&self, name: &str) -> Arc<Namespace> {
        let mut assumed = self.assumed.lock().unwrap_or_else(PoisonError::into_inner);
        let namespace = assumed.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Namespace {
                labels: BTreeMap::from([(NAME_LABEL.to_owned(), name.to_owned())]),
                terminating: false,
            })
        });
        Arc::clone(namespace)
    }
}

impl Namespaces for Lookup {
    fn cached(&self, name: &str) -> Option<Arc<Namespace>> {
        match self.namespaces.get(name) {
            Some(known) => Some(Arc::clone(known)),
            None => Some(self.assume(name)),
        }
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        Box::pin(async move {
            self.cached(name)
                .ok_or_else(|| NamespaceError::not_found(name))
        })
    }
}

impl Params for Lookup {
    fn scope(&self, kind: &ParamKind) -> Option<ParamScope> {
        let (group, version) = split_api_version(&kind.api_version);
        let known = self
            .kinds
            .of_kind(&group_version_kind(group, version, &kind.kind));
        match known.placement {
            Placement::Namespaced => Some(ParamScope::Namespaced),
            Placement::Cluster => Some(ParamScope::Cluster),
            // Without a CustomResourceDefinition, the scope is derived from the objects.
            Placement::Unknown => {
                let of = (kind.api_version.clone(), kind.kind.clone());
                let (namespace, _) = self.objects.get(&of)?.keys().next()?;
                Some(if namespace.is_empty() {
                    ParamScope::Cluster
                } else {
                    ParamScope::Namespaced
                })
            }
        }
    }

    fn get<'f>(
        &'f self,
        kind: &'f ParamKind,
        namespace: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<Option<Arc<Param>>, ParamError>> {
        let of = (kind.api_version.clone(), kind.kind.clone());
        let place = (namespace.to_owned(), name.to_owned());
        let mut found = self
            .objects
            .get(&of)
            .and_then(|all| all.get(&place))
            .cloned();
        if found.is_none() && of.0 == "v1" && of.1 == "Namespace" {
            self.assume(name);
            let assumed =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            found = Some(Arc::new(Param {
                namespace: String::new(),
                name: name.to_owned(),
                object: Object::new(named_namespace(assumed, name)),
                is_built_in: true,
            }));
        }
        Box::pin(async move { Ok(found) })
    }

    fn list<'f>(
        &'f self,
        kind: &'f ParamKind,
        namespace: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Arc<Param>>, ParamError>> {
        let of = (kind.api_version.clone(), kind.kind.clone());
        let all = self.objects.get(&of).into_iter().flatten();
        let within = all.filter(|((own, _), _)| own == namespace);
        let listed: Vec<Arc<Param>> = within.map(|(_, param)| Arc::clone(param)).collect();
        Box::pin(async move { Ok(listed) })
    }
}
