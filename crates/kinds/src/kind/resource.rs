//! The row of a resource: its names, its write rules, and its [`Kind`].
//!
//! UPSTREAM: api/discovery/ for names and verbs, pkg/registry/*/strategy.go for update
//! rules and generations.

use super::Kind;

/// One resource of the API in one version.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The plural name, as in paths.
    pub plural: &'static str,
    /// The singular name.
    pub singular: &'static str,
    /// The kind of one object.
    pub kind: &'static str,
    /// The kind of a list.
    pub list_kind: &'static str,
    /// True for a namespaced resource.
    pub namespaced: bool,
    /// The short names.
    pub short_names: &'static [&'static str],
    /// The categories, such as `all` in `kubectl get all`.
    pub categories: &'static [&'static str],
    /// The verbs, in alphabetical order.
    pub verbs: &'static [&'static str],
    /// The subresources, in alphabetical order.
    pub subresources: &'static [Subresource],
    /// The group, version and plural under which objects are stored. Resources with the same storage are views of the
    /// same objects.
    pub storage: (&'static str, &'static str, &'static str),
    /// The etcd key prefix, below kube-apiserver's own.
    pub etcd_prefix: &'static str,
    /// True if a PUT on a missing object creates it.
    pub allow_create_on_update: bool,
    /// True if a PUT without resourceVersion overwrites the object unconditionally.
    pub allow_unconditional_update: bool,
    /// The handling of `metadata.generation`.
    pub generation: Generation,
    /// True for graceful deletion.
    pub graceful: bool,
    /// The behaviour of the kind.
    pub rules: &'static dyn Kind,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        (self.group, self.version, self.plural) == (other.group, other.version, other.plural)
    }
}

impl Eq for Resource {}

/// A subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// The last segment of its path.
    pub name: &'static str,
    /// The group of its kind.
    pub group: &'static str,
    /// The version of its kind.
    pub version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// The verbs, in alphabetical order.
    pub verbs: &'static [&'static str],
}

/// The handling of `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// It keeps the value that the client set on create.
    Untouched,
    /// It is always 1.
    CreateOnly,
    /// It starts at 1, and is incremented when one of these fields changes.
    Members(&'static [&'static str]),
    /// It starts with the client's value, and is incremented when one of these fields changes.
    UpdateOnly(&'static [&'static str]),
    /// Like [`Self::Members`], but also incremented when a changed field is dropped afterwards.
    Sent(&'static [&'static str]),
    /// Like [`Self::Members`], but an empty list differs from an absent one.
    Exact(&'static [&'static str]),
}

impl Resource {
    /// The subresource with this name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|part| part.name == name)
    }

    /// `group/version`, or only the version in the core group.
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

    /// Sets an etcd key prefix that differs from the plural.
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
