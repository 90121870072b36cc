//! The row of a resource: its names, its rules for writes, and the [`Kind`] it points to.
//!
//! UPSTREAM: api/discovery/ for names and verbs, pkg/registry/*/strategy.go for the rules of
//! updates and generations.

use super::Kind;

/// One resource of the API in one version.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version inside the group.
    pub version: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// The name of one object, for clients.
    pub singular: &'static str,
    /// The kind of one object.
    pub kind: &'static str,
    /// The kind of a list.
    pub list_kind: &'static str,
    /// Objects live in namespaces.
    pub namespaced: bool,
    /// Abbreviations, for clients.
    pub short_names: &'static [&'static str],
    /// Groups of resources, for clients: `kubectl get all`.
    pub categories: &'static [&'static str],
    /// The verbs, in alphabetical order.
    pub verbs: &'static [&'static str],
    /// Parts with a path of their own, in alphabetical order.
    pub subresources: &'static [Subresource],
    /// Group, version and plural under which objects are stored. Resources that share it are views
    /// of one set of objects.
    pub storage: (&'static str, &'static str, &'static str),
    /// The prefix of the keys in etcd, below kube-apiserver's own.
    pub etcd_prefix: &'static str,
    /// A PUT on a missing object creates it.
    pub allow_create_on_update: bool,
    /// A PUT without a resourceVersion overwrites whatever is there.
    pub allow_unconditional_update: bool,
    /// The handling of `metadata.generation`.
    pub generation: Generation,
    /// Deletion waits for a grace period.
    pub graceful: bool,
    /// Everything else about the kind.
    pub rules: &'static dyn Kind,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        (self.group, self.version, self.plural) == (other.group, other.version, other.plural)
    }
}

impl Eq for Resource {}

/// A part of an object with a path of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// The last segment of its path.
    pub name: &'static str,
    /// The group of the kind it speaks.
    pub group: &'static str,
    /// The version of the kind it speaks.
    pub version: &'static str,
    /// The kind it speaks.
    pub kind: &'static str,
    /// The verbs, in alphabetical order.
    pub verbs: &'static [&'static str],
}

/// The handling of `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// It is whatever the client sent when the object was created.
    Untouched,
    /// It is 1, for ever.
    CreateOnly,
    /// It starts at 1 and rises when one of these members changes.
    Members(&'static [&'static str]),
    /// It starts with what the client sent and rises when one of these members changes.
    UpdateOnly(&'static [&'static str]),
    /// As [`Self::Members`], also when the change is of a field that is dropped afterwards.
    Sent(&'static [&'static str]),
    /// As [`Self::Members`], also when a list without elements takes the place of none.
    Exact(&'static [&'static str]),
}

impl Resource {
    /// The subresource called `name`.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|part| part.name == name)
    }

    /// `group/version`, or the version alone in the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
pub(crate) const CREATE: &[&str] = &["create"];
pub(crate) const CHANGE: &[&str] = &["get", "patch", "update"];
pub(crate) const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
pub(crate) const STREAM: &[&str] = &["create", "get"];
pub(crate) const SPEC: Generation = Generation::Members(&["spec"]);
pub(crate) const SCALE: Subresource = sub("scale", "autoscaling", "v1", "Scale", CHANGE);

type Name = &'static str;
type Names = &'static [&'static str];

pub(crate) const fn cluster(
    group: Name,
    version: Name,
    plural: Name,
    singular: Name,
    kind: Name,
    list_kind: Name,
    rules: &'static dyn Kind,
) -> Resource {
    Resource {
        group,
        version,
        plural,
        singular,
        kind,
        list_kind,
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: ALL,
        subresources: &[],
        storage: (group, version, plural),
        etcd_prefix: plural,
        allow_create_on_update: false,
        allow_unconditional_update: true,
        generation: Generation::Untouched,
        graceful: false,
        rules,
    }
}

pub(crate) const fn namespaced(
    group: Name,
    version: Name,
    plural: Name,
    singular: Name,
    kind: Name,
    list_kind: Name,
    rules: &'static dyn Kind,
) -> Resource {
    Resource {
        namespaced: true,
        ..cluster(group, version, plural, singular, kind, list_kind, rules)
    }
}

pub(crate) const fn sub(
    name: Name,
    group: Name,
    version: Name,
    kind: Name,
    verbs: Names,
) -> Subresource {
    Subresource {
        name,
        group,
        version,
        kind,
        verbs,
    }
}

impl Resource {
    pub(crate) const fn short(mut self, short_names: Names) -> Self {
        self.short_names = short_names;
        self
    }

    pub(crate) const fn categories(mut self, categories: Names) -> Self {
        self.categories = categories;
        self
    }

    pub(crate) const fn verbs(mut self, verbs: Names) -> Self {
        self.verbs = verbs;
        self
    }

    pub(crate) const fn subresources(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }

    pub(crate) const fn stored_as(mut self, group: Name, version: Name, plural: Name) -> Self {
        self.storage = (group, version, plural);
        self.etcd_prefix = plural;
        self
    }

    /// Stores objects in etcd under another name than the plural.
    ///
    /// UPSTREAM: pkg/kubeapiserver/default_storage_factory_builder.go (SpecialDefaultResourcePrefixes)
    pub(crate) const fn in_etcd_as(mut self, prefix: Name) -> Self {
        self.etcd_prefix = prefix;
        self
    }

    pub(crate) const fn create_on_update(mut self) -> Self {
        self.allow_create_on_update = true;
        self
    }

    pub(crate) const fn conditional_update(mut self) -> Self {
        self.allow_unconditional_update = false;
        self
    }

    pub(crate) const fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    pub(crate) const fn graceful(mut self) -> Self {
        self.graceful = true;
        self
    }
}
