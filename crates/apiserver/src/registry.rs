//! The served resources. Built-in kinds and custom resources use the same code; their differences are in [`Shape`].

pub(crate) mod custom;
pub(crate) mod discovery;
pub(crate) mod document;
pub(crate) mod kube_version;
pub(crate) mod openapi;
pub(crate) mod scale;
pub(crate) mod shape;
pub(crate) mod shape_error;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use lockgate_admission::host::Equivalent;
use lockgate_admission::request::{kind, resource};
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_api::kube_version::KubeVersion;
use lockgate_kinds::kind::ServerComponent;
use lockgate_kinds::resource::{is_served, resources};

use openapi::DescriptionText;
pub(crate) use shape::{Shape, go_kind, not_converted};

use crate::encoding::{self, TypeMeta};
use crate::error::{self, Failure};

/// One resource in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) names: Names,
    pub(crate) version: String,
    api_version: String,
    pub(crate) subresources: Vec<Subresource>,
    /// The group and plural in the keys of its objects.
    pub(crate) storage: (String, String),
    /// The group and version in which they are stored.
    pub(crate) storage_version: (String, String),
    pub(crate) rules: Rules,
    pub(crate) shape: Shape,
    /// False for a version that is stored but not served.
    pub(crate) served: bool,
    /// The warning to clients that use this version.
    pub(crate) warning: Option<String>,
}

/// The names of a resource in all versions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: Vec<String>,
}

/// A subresource.
#[derive(Debug, Clone)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) verbs: Vec<String>,
}

/// The rules for writes to a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) create_on_update: bool,
    pub(crate) unconditional_update: bool,
    pub(crate) graceful: bool,
}

impl Resource {
    pub(crate) fn new(
        names: Names,
        version: &str,
        subresources: Vec<Subresource>,
        rules: Rules,
        shape: Shape,
    ) -> Self {
        Self {
            api_version: api_version(&names.group, version),
            version: version.to_owned(),
            storage: (
                match shape {
                    Shape::Custom(_) => encoding::custom_space(&names.group),
                    _ => names.group.clone(),
                },
                names.plural.clone(),
            ),
            storage_version: (names.group.clone(), version.to_owned()),
            names,
            subresources,
            rules,
            shape,
            served: true,
            warning: None,
        }
    }

    pub(crate) fn group(&self) -> &str {
        &self.names.group
    }

    pub(crate) fn plural(&self) -> &str {
        &self.names.plural
    }

    pub(crate) fn kind(&self) -> &str {
        &self.names.kind
    }

    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The key prefix in etcd, relative to that of kube-apiserver.
    pub(crate) fn etcd_prefix(&self) -> Cow<'_, str> {
        match self.shape.row() {
            Some(row) => Cow::Borrowed(row.etcd_prefix),
            None if self.is_custom() => Cow::Owned(format!("{}/{}", self.group(), self.storage.1)),
            None => Cow::Borrowed(&self.storage.1),
        }
    }

    /// The server state that is derived from its objects.
    pub(crate) fn component(&self) -> Option<ServerComponent> {
        self.shape.row()?.rules.component()
    }

    pub(crate) fn is_namespace(&self) -> bool {
        self.is("", "namespaces")
    }

    pub(crate) fn is_definition(&self) -> bool {
        self.is("apiextensions.k8s.io", "customresourcedefinitions")
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.shape, Shape::Custom(_))
    }

    /// Returns true if a webhook converts its objects between versions.
    pub(crate) fn has_conversion_webhook(&self) -> bool {
        let Shape::Custom(custom) = &self.shape else {
            return false;
        };
        matches!(
            custom.conversion(),
            custom::conversion::Conversion::Webhook(_)
        )
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|part| part.name == name)
    }

    /// The `apiVersion` and `kind` of its objects.
    pub(crate) fn type_meta(&self) -> TypeMeta<'_> {
        TypeMeta {
            api_version: &self.api_version,
            kind: &self.names.kind,
        }
    }

    /// The `apiVersion` and `kind` of lists of its objects.
    pub(crate) fn list_type(&self) -> TypeMeta<'_> {
        TypeMeta {
            api_version: &self.api_version,
            kind: &self.names.list_kind,
        }
    }

    pub(crate) fn group_version_kind(&self) -> GroupVersionKind {
        kind(&self.names.group, &self.version, &self.names.kind)
    }

    pub(crate) fn group_version_resource(&self) -> GroupVersionResource {
        resource(&self.names.group, &self.version, &self.names.plural)
    }

    /// The prefix of the keys of its objects, in a namespace or in all.
    pub(crate) fn key_prefix(&self, namespace: &str) -> String {
        let (group, plural) = &self.storage;
        let within = self.names.namespaced && !namespace.is_empty();
        encoding::prefix(group, plural, within.then_some(namespace))
    }

    /// The key of an object.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        let mut key = self.key_prefix(namespace);
        key.push_str(name);
        key
    }

    /// Returns true if clients get exactly the stored bytes.
    pub(crate) fn is_shown_as_stored(&self) -> bool {
        self.is_storage_version() && !self.is_custom()
    }

    /// Returns true if objects are stored in this version.
    pub(crate) fn is_storage_version(&self) -> bool {
        self.storage_version.0 == self.names.group && self.storage_version.1 == self.version
    }
}

/// Failures for an object of the resource.
impl Resource {
    /// Checks that objects can be created: not while the CustomResourceDefinition is being deleted.
    pub(crate) fn check_accepts_objects(&self) -> Result<(), Failure> {
        match &self.shape {
            Shape::Custom(custom) if custom.is_terminating() => {
                Err(error::terminating(self.group(), self.plural()))
            }
            _ => Ok(()),
        }
    }

    /// 404.
    pub(crate) fn not_found(&self, name: &str) -> Failure {
        error::not_found(self.group(), self.plural(), name)
    }

    /// 409: another object has the name.
    pub(crate) fn already_exists(&self, name: &str) -> Failure {
        error::already_exists(self.group(), self.plural(), name)
    }

    /// 409: every generated name was taken.
    pub(crate) fn no_name_found(&self, name: &str) -> Failure {
        error::no_name_found(self.group(), self.plural(), name)
    }

    /// 409 with a custom reason.
    pub(crate) fn conflict(&self, name: &str, why: &str) -> Failure {
        error::conflict(self.group(), self.plural(), name, why)
    }

    /// 409: the object was changed concurrently.
    pub(crate) fn modified(&self, name: &str) -> Failure {
        error::modified(self.group(), self.plural(), name)
    }

    /// 422: an update must carry a resourceVersion.
    pub(crate) fn version_required(&self, name: &str) -> Failure {
        error::version_required(self.group(), self.plural(), name)
    }
}

/// `group/version`, or the version alone in the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// The group and the version of an `apiVersion`.
pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The served resources at one point in time.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// In discovery order.
    resources: Vec<Arc<Resource>>,
    by_plural: ByName,
    by_kind: ByName,
    /// The resources that are not served, by plural.
    hidden: HashMap<String, Arc<Resource>>,
    equivalents: HashMap<String, Arc<[Equivalent]>>,
    discovery: discovery::Cache,
    openapi: openapi::Cache,
}

/// Resources by one of their names, which few share: every request does lookups, which allocate nothing.
type ByName = HashMap<String, Vec<Arc<Resource>>>;

fn find_in<'s>(
    index: &'s ByName,
    group: &str,
    version: &str,
    name: &str,
) -> Option<&'s Arc<Resource>> {
    let is_it =
        |resource: &&Arc<Resource>| resource.group() == group && resource.version == version;
    // The last one is used.
    index.get(name)?.iter().rev().find(is_it)
}

fn key(group: &str, version: &str, name: &str) -> String {
    format!("{group}/{version}/{name}")
}

impl Snapshot {
    fn new(all: Vec<Arc<Resource>>, descriptions: Option<DescriptionText>) -> Self {
        let built_in: HashSet<(String, String)> = all
            .iter()
            .filter(|resource| !resource.is_custom())
            .map(|resource| (resource.group().to_owned(), resource.version.clone()))
            .collect();
        // A CustomResourceDefinition never adds to a built-in API version, or replaces it.
        //
        // UPSTREAM: kube-apiserver's group versions take precedence over apiextensions-apiserver's.
        let is_served = |resource: &Arc<Resource>| {
            let version = (resource.group().to_owned(), resource.version.clone());
            resource.served && !(resource.is_custom() && built_in.contains(&version))
        };
        let (resources, hidden): (Vec<_>, Vec<_>) = all.into_iter().partition(is_served);
        let hidden: HashMap<String, Arc<Resource>> = hidden
            .into_iter()
            .map(|resource| {
                (
                    key(resource.group(), &resource.version, resource.plural()),
                    resource,
                )
            })
            .collect();
        let index = |name: fn(&Resource) -> &str| {
            let mut index = ByName::new();
            for resource in &resources {
                let named = index.entry(name(resource).to_owned()).or_default();
                named.push(Arc::clone(resource));
            }
            index
        };
        // UPSTREAM: apiextensions-apiserver pkg/apiserver/customresource_handler.go registers every version
        // of a CustomResourceDefinition, served or not.
        let mut groups: HashMap<&(String, String), Vec<Equivalent>> = HashMap::new();
        let defined = hidden.values().filter(|it| it.is_custom() && !it.served);
        for resource in resources.iter().chain(defined) {
            groups
                .entry(&resource.storage)
                .or_default()
                .push(Equivalent {
                    resource: resource.group_version_resource(),
                    kind: Some(resource.group_version_kind()),
                });
        }
        let equivalents = resources
            .iter()
            .filter_map(|resource| {
                let group = groups
                    .get(&resource.storage)
                    .filter(|group| group.len() > 1)?;
                let key = key(resource.group(), &resource.version, resource.plural());
                Some((key, group.clone().into()))
            })
            .collect();
        Self {
            by_plural: index(Resource::plural),
            by_kind: index(Resource::kind),
            hidden,
            equivalents,
            discovery: discovery::Cache::default(),
            openapi: openapi::Cache::new(&resources, descriptions),
            resources,
        }
    }

    /// All resources, in discovery order.
    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The resource at a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        find_in(&self.by_plural, group, version, plural)
    }

    /// A storage version that is not served.
    pub(crate) fn hidden(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<&Arc<Resource>> {
        self.hidden.get(&key(group, version, plural))
    }

    /// A resource in another of its versions, served or not.
    pub(crate) fn defined(
        &self,
        group: &str,
        version: &str,
        resource: &Resource,
    ) -> Option<&Arc<Resource>> {
        let found = self
            .find(group, version, resource.plural())
            .or_else(|| self.hidden(group, version, resource.plural()))?;
        (found.storage == resource.storage).then_some(found)
    }

    /// The resources in their storage versions, served or not.
    pub(crate) fn storage_versions(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let all = self.resources.iter().chain(self.hidden.values());
        all.filter(|resource| resource.is_storage_version())
    }

    /// The resource whose objects have this group and plural in their keys, in the storage version.
    pub(crate) fn stored_in(&self, storage: &(String, String)) -> Option<&Arc<Resource>> {
        self.storage_versions()
            .find(|resource| resource.storage == *storage)
    }

    /// The resource of a kind.
    pub(crate) fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        find_in(&self.by_kind, group, version, kind)
    }

    /// The same, served or not.
    pub(crate) fn defined_kind(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Option<&Arc<Resource>> {
        let is_it = |resource: &&Arc<Resource>| {
            (resource.group(), resource.version.as_str(), resource.kind()) == (group, version, kind)
        };
        self.by_kind(group, version, kind)
            .or_else(|| self.hidden.values().find(is_it))
    }

    /// All versions of a resource, including this one. Subresources with a separate kind, such as `scale`, have it in
    /// all of them.
    pub(crate) fn equivalents(
        &self,
        of: &GroupVersionResource,
        subresource: &str,
    ) -> Arc<[Equivalent]> {
        let Some(found) = self
            .equivalents
            .get(&key(&of.group, &of.version, &of.resource))
        else {
            return Arc::default();
        };
        if subresource.is_empty() {
            return Arc::clone(found);
        }
        let parts = found.iter().filter_map(|equivalent| {
            let of = &equivalent.resource;
            let resource = self
                .find(&of.group, &of.version, &of.resource)
                .or_else(|| self.hidden(&of.group, &of.version, &of.resource))?;
            let part = resource.subresource(subresource)?;
            Some(Equivalent {
                resource: of.clone(),
                kind: Some(kind(&part.group, &part.version, &part.kind)),
            })
        });
        parts.collect()
    }
}

/// The served resources: built-in ones, and those of CustomResourceDefinitions.
pub(crate) struct Registry {
    builtin: Vec<Arc<Resource>>,
    /// By the name of the CustomResourceDefinition.
    custom: Mutex<std::collections::BTreeMap<String, Vec<Arc<Resource>>>>,
    snapshot: ArcSwap<Snapshot>,
    descriptions: Option<DescriptionText>,
    version: KubeVersion,
}

impl Registry {
    /// Creates the registry with the built-in kinds of a version.
    pub(crate) fn new(version: KubeVersion, descriptions: Option<DescriptionText>) -> Self {
        let served = resources().filter(|row| is_served(row, version));
        let builtin: Vec<Arc<Resource>> = served.filter_map(built_in).map(Arc::new).collect();
        Self {
            version,
            snapshot: ArcSwap::from_pointee(Snapshot::new(builtin.clone(), descriptions)),
            builtin,
            custom: Mutex::default(),
            descriptions,
        }
    }

    /// The Kubernetes version whose kinds are served.
    pub(crate) fn version(&self) -> KubeVersion {
        self.version
    }

    /// The currently served resources.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Replaces the served resources of a CustomResourceDefinition; none stops serving it.
    pub(crate) fn define(&self, definition: &str, resources: Vec<Arc<Resource>>) {
        let mut custom = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        if resources.is_empty() {
            custom.remove(definition);
        } else {
            custom.insert(definition.to_owned(), resources);
        }
        let all = self
            .builtin
            .iter()
            .chain(custom.values().flatten())
            .cloned();
        let snapshot = Snapshot::new(all.collect(), self.descriptions);
        self.snapshot.store(Arc::new(snapshot));
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn built_in(row: &'static lockgate_kinds::resource::Resource) -> Option<Resource> {
    let names = Names {
        group: row.group.to_owned(),
        plural: row.plural.to_owned(),
        singular: row.singular.to_owned(),
        kind: row.kind.to_owned(),
        list_kind: row.list_kind.to_owned(),
        namespaced: row.namespaced,
        short_names: owned(row.short_names),
        categories: owned(row.categories),
        verbs: owned(row.verbs),
    };
    let subresources = row.subresources.iter().map(|part| Subresource {
        name: part.name.to_owned(),
        group: part.group.to_owned(),
        version: part.version.to_owned(),
        kind: part.kind.to_owned(),
        verbs: owned(part.verbs),
    });
    let rules = Rules {
        create_on_update: row.allow_create_on_update,
        unconditional_update: row.allow_unconditional_update,
        graceful: row.graceful,
    };
    let shape = Shape::built_in(row)?;
    let warning = shape.deprecation_warning();
    let (group, version, plural) = row.storage;
    Some(Resource {
        storage: (group.to_owned(), plural.to_owned()),
        storage_version: (group.to_owned(), version.to_owned()),
        warning,
        ..Resource::new(names, row.version, subresources.collect(), rules, shape)
    })
}
