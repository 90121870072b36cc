//! The interface of the engine to its server, as traits with minimal implementations.
//!
//! ```text
//!   Namespaces   the labels of namespaces                EveryNamespace
//!   Kinds        conversion, equivalence, defaults       PlainKinds
//!   Params       parameters of policies                  NoParams
//!   Authorizer   authorization checks of expressions     FixedAuthorizer::DenyAll
//!   Clock, Ids   the time, the uids of calls             SystemClock, RandomIds
//!   Caller       webhook calls                           (see the module `call`)
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::hash::BuildHasher as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use lockgate_api::access::{Authorizer, FixedAuthorizer};
use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_api::meta::status::Status;
use lockgate_api::registration::policy::ParamKind;
use serde_json::Value;

use crate::call::Caller;
use crate::equality;
use crate::object::{Object, Unwritten};

/// A boxed future.
pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// The interface of the server.
#[derive(Clone)]
pub struct Host {
    /// Access to namespaces.
    pub namespaces: Arc<dyn Namespaces>,
    /// Access to kinds.
    pub kinds: Arc<dyn Kinds>,
    /// Access to policy parameters.
    pub params: Arc<dyn Params>,
    /// Calls webhooks.
    pub caller: Arc<dyn Caller>,
    /// The authorizer for expressions. Denies everything by default.
    pub authorizer: Arc<dyn Authorizer>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Generates the uids of calls.
    pub ids: Arc<dyn Ids>,
}

impl Host {
    /// Creates a host that can only call webhooks.
    #[must_use]
    pub fn new(caller: Arc<dyn Caller>) -> Self {
        Self {
            namespaces: Arc::new(EveryNamespace),
            kinds: Arc::new(PlainKinds),
            params: Arc::new(NoParams),
            caller,
            authorizer: Arc::new(FixedAuthorizer::DenyAll),
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

/// The facts of a namespace that admission uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `true` while it is terminating.
    pub terminating: bool,
}

/// A failed namespace lookup.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The namespace does not exist; the status is returned to the client unchanged.
    NotFound(Box<Status>),
    /// The lookup failed.
    Failed(String),
}

impl NamespaceError {
    /// The namespace does not exist.
    #[must_use]
    pub fn not_found(name: &str) -> Self {
        Self::NotFound(Box::new(crate::status::namespace_not_found(name)))
    }
}

/// Access to namespaces.
pub trait Namespaces: Send + Sync {
    /// Returns `true` once the cache is filled. Requests wait for it.
    fn synced(&self) -> bool {
        true
    }

    /// The namespace in the cache.
    fn cached(&self, name: &str) -> Option<Arc<Namespace>>;

    /// The stored namespace. Called if the cache, which may be stale, has none.
    ///
    /// An error must never be treated as a namespace without labels: requests would bypass webhooks that select by
    /// label.
    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>>;
}

/// Every namespace exists and has only the name label.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryNamespace;

impl Namespaces for EveryNamespace {
    fn cached(&self, name: &str) -> Option<Arc<Namespace>> {
        let label = (String::from("kubernetes.io/metadata.name"), name.to_owned());
        Some(Arc::new(Namespace {
            labels: BTreeMap::from([label]),
            terminating: false,
        }))
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        Box::pin(async move {
            self.cached(name)
                .ok_or_else(|| NamespaceError::not_found(name))
        })
    }
}

/// An equivalent resource: another version, or another group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equivalent {
    /// The resource.
    pub resource: GroupVersionResource,
    /// Its kind, if known.
    pub kind: Option<GroupVersionKind>,
}

/// Access to kinds. Every object is a JSON tree; this trait provides the type-specific operations.
pub trait Kinds: Send + Sync {
    /// The resources equivalent to this one, in the order of registration, with or without the resource itself.
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Arc<[Equivalent]>;

    /// Converts an object to another version.
    fn convert<'f>(
        &'f self,
        object: &'f Object,
        to: &'f GroupVersionKind,
    ) -> BoxFuture<'f, Result<Object, ConvertError>>;

    /// Decodes a patched object: built-in kinds drop unknown fields and reject fields of the wrong type.
    /// [`Kinds::complete`] follows.
    ///
    /// # Errors
    ///
    /// Fails if the tree is not a valid object of the kind.
    fn decode(&self, value: Value, kind: &GroupVersionKind) -> Result<Value, DecodeError>;

    /// Applies the defaults of the version.
    fn apply_defaults(&self, value: &mut Value, kind: &GroupVersionKind);

    /// Applies the defaults to a decoded object, and removes what its JSON omits, such as empty lists: webhooks and
    /// expressions do not see them, but validation does.
    fn complete(&self, value: &mut Value, kind: &GroupVersionKind) -> Option<Unwritten> {
        self.apply_defaults(value, kind);
        None
    }

    /// Compares two objects of a kind semantically.
    fn semantically_equal(&self, kind: &GroupVersionKind, one: &Value, other: &Value) -> bool;

    /// Merges an apply configuration into an object by the schema of its kind. Used by mutating policies.
    ///
    /// # Errors
    ///
    /// Fails if the configuration does not match the kind.
    fn merge(
        &self,
        _live: &Value,
        _configuration: &Value,
        kind: &GroupVersionKind,
    ) -> Result<Value, MergeError> {
        Err(MergeError::no_type(kind))
    }

    /// Decodes an object after merging a configuration. Go converts it instead of decoding: numbers lose the bits that
    /// do not fit into their type. [`Kinds::complete`] follows.
    ///
    /// # Errors
    ///
    /// Fails if the tree is not a valid object of the kind.
    fn decode_merged(&self, value: Value, kind: &GroupVersionKind) -> Result<Value, DecodeError> {
        self.decode(value, kind)
    }

    /// Decodes a patched object, rejecting unknown fields.
    ///
    /// # Errors
    ///
    /// Fails if the tree is not a valid object of the kind.
    fn decode_strictly(&self, value: Value, kind: &GroupVersionKind) -> Result<Value, DecodeError> {
        self.decode(value, kind)
    }

    /// Returns true if there are schemas for the group version of a kind.
    fn knows_version(&self, _: &GroupVersionKind) -> bool {
        true
    }

    /// Returns true for subresources of custom resources with a built-in kind, such as a scale: their patched objects
    /// are decoded without its schema, which is applied afterwards.
    fn is_read_untyped(&self, _: &GroupVersionResource, _: &GroupVersionKind) -> bool {
        false
    }

    /// Decodes a patched object without a schema.
    ///
    /// # Errors
    ///
    /// Fails if the object has no kind.
    fn decode_untyped(&self, value: Value) -> Result<Value, DecodeError> {
        Ok(value)
    }

    /// Returns true if a kind is built in rather than a custom resource.
    fn is_built_in(&self, _: &GroupVersionKind) -> bool {
        false
    }
}

/// An error of the server.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// An object that cannot be converted to another version.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The conversion does not exist.
    #[error("converting ({from}) to ({to}): unknown conversion")]
    Unknown {
        /// The version and kind of the object.
        from: String,
        /// The requested version and kind.
        to: String,
    },
    /// The conversion failed.
    #[error(transparent)]
    Failed(HostError),
}

impl ConvertError {
    /// The object cannot be converted.
    #[must_use]
    pub fn unknown(object: &Object, to: &GroupVersionKind) -> Self {
        let member = |name: &str| object.value().get(name).and_then(Value::as_str);
        let api_version = member("apiVersion").unwrap_or_default();
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let kind = member("kind").unwrap_or_default();
        Self::Unknown {
            from: format!("{version}.{kind}"),
            to: format!("{}.{}", to.version, to.kind),
        }
    }

    /// The conversion failed.
    pub fn failed(error: impl Into<HostError>) -> Self {
        Self::Failed(error.into())
    }
}

/// An object that cannot be decoded. The message follows `Internal error occurred: `.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The value is not an object.
    #[error(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {0} into Go value of \
         type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
         \"json:\\\"kind,omitempty\\\"\" }}"
    )]
    NotAnObject(&'static str),
    /// The object has unknown or duplicate fields, which are rejected.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
    /// The object is invalid for its kind.
    #[error(transparent)]
    Invalid(HostError),
}

impl DecodeError {
    /// The object is invalid for its kind.
    pub fn invalid(error: impl Into<HostError>) -> Self {
        Self::Invalid(error.into())
    }
}

/// A failed parameter lookup.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ParamError(HostError);

impl ParamError {
    /// Creates the error from its cause.
    pub fn new(error: impl Into<HostError>) -> Self {
        Self(error.into())
    }
}

/// The reason an apply configuration cannot be merged into an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MergeError(pub String);

impl MergeError {
    /// Objects of this kind have no schema.
    #[must_use]
    pub fn no_type(kind: &GroupVersionKind) -> Self {
        Self(format!(
            "failed to convert patch object to typed object: no corresponding type for {}/{}, Kind={}",
            kind.group, kind.version, kind.kind
        ))
    }
}

/// A parameter of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The object, with its `apiVersion` and `kind`.
    pub object: Object,
    /// True if its kind is built in.
    pub is_built_in: bool,
}

/// The scope of a kind of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamScope {
    /// Cluster-scoped.
    Cluster,
    /// Namespaced.
    Namespaced,
}

/// Access to policy parameters.
pub trait Params: Send + Sync {
    /// The scope of a parameter kind; `None` if the kind does not exist.
    fn scope(&self, kind: &ParamKind) -> Option<ParamScope>;

    /// One object. The namespace is empty for cluster-scoped kinds.
    fn get<'f>(
        &'f self,
        kind: &'f ParamKind,
        namespace: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<Option<Arc<Param>>, ParamError>>;

    /// All objects of a kind in a namespace, sorted by name. The namespace is empty for cluster-scoped kinds.
    fn list<'f>(
        &'f self,
        kind: &'f ParamKind,
        namespace: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Arc<Param>>, ParamError>>;
}

/// No parameter kinds exist.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoParams;

impl Params for NoParams {
    fn scope(&self, _: &ParamKind) -> Option<ParamScope> {
        None
    }

    fn get<'f>(
        &'f self,
        _: &'f ParamKind,
        _: &'f str,
        _: &'f str,
    ) -> BoxFuture<'f, Result<Option<Arc<Param>>, ParamError>> {
        Box::pin(async { Ok(None) })
    }

    fn list<'f>(
        &'f self,
        _: &'f ParamKind,
        _: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Arc<Param>>, ParamError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Untyped kinds: each has one version, preserves all fields and has no defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainKinds;

impl Kinds for PlainKinds {
    fn equivalents(&self, _: &GroupVersionResource, _: &str) -> Arc<[Equivalent]> {
        Arc::default()
    }

    fn convert<'f>(
        &'f self,
        object: &'f Object,
        to: &'f GroupVersionKind,
    ) -> BoxFuture<'f, Result<Object, ConvertError>> {
        Box::pin(async move { Err(ConvertError::unknown(object, to)) })
    }

    fn decode(&self, value: Value, _: &GroupVersionKind) -> Result<Value, DecodeError> {
        check_is_object(&value)?;
        Ok(value)
    }

    fn apply_defaults(&self, _: &mut Value, _: &GroupVersionKind) {}

    fn semantically_equal(&self, _: &GroupVersionKind, one: &Value, other: &Value) -> bool {
        equality::typed(one, other)
    }
}

/// Checks that a tree is a JSON object.
///
/// # Errors
///
/// Fails if it is not.
pub fn check_is_object(value: &Value) -> Result<(), DecodeError> {
    let found = match value {
        Value::Object(_) => return Ok(()),
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Err(DecodeError::NotAnObject(found))
}

/// The clock.
pub trait Clock: Send + Sync {
    /// The current time, on the clock of deadlines.
    fn now(&self) -> Instant;
}

/// The clock of the Tokio runtime, which tests can pause.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// Generates the uids of calls.
pub trait Ids: Send + Sync {
    /// A unique identifier.
    fn uid(&self) -> String;
}

/// Random UUIDs (version 4).
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn uid(&self) -> String {
        let bytes = RANDOM.with_borrow_mut(RandomBytes::take);
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        let uid = uuid::Builder::from_random_bytes(bytes).into_uuid();
        uid.as_hyphenated().encode_lower(&mut text).to_owned()
    }
}

thread_local! {
    static RANDOM: RefCell<RandomBytes> = const { RefCell::new(RandomBytes { bytes: [0; 1024], used: 1024 }) };
}

/// Random bytes from the system, read by the kilobyte: every request and every object needs an ID, and a system call
/// for each would double the cost.
struct RandomBytes {
    bytes: [u8; 1024],
    used: usize,
}

impl RandomBytes {
    fn take(&mut self) -> [u8; 16] {
        if self.used >= self.bytes.len() {
            if getrandom::fill(&mut self.bytes).is_err() {
                return seeds();
            }
            self.used = 0;
        }
        let taken = self.bytes.get_mut(self.used..self.used + 16);
        self.used += 16;
        match taken.and_then(|taken| <&mut [u8; 16]>::try_from(taken).ok()) {
            Some(taken) => std::mem::take(taken),
            None => seeds(),
        }
    }
}

/// The hasher's seeds, which differ per call even without a system entropy source.
fn seeds() -> [u8; 16] {
    let seed = |n: u64| u128::from(std::hash::RandomState::new().hash_one(n));
    (seed(0) << 64 | seed(1)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::request::kind;

    #[test]
    fn names_calls_by_random_uuids() {
        // More than one buffer.
        let uids: BTreeSet<String> = (0..1000).map(|_| RandomIds.uid()).collect();
        assert_eq!(uids.len(), 1000);
        for uid in uids {
            let groups: Vec<&str> = uid.split('-').collect();
            assert_eq!(
                groups.iter().map(|g| g.len()).collect::<Vec<_>>(),
                [8, 4, 4, 4, 12]
            );
            assert!(groups[2].starts_with('4'), "{uid}");
            assert!(groups[3].starts_with(['8', '9', 'a', 'b']), "{uid}");
        }
    }

    #[test]
    fn says_what_it_cannot_convert() {
        let secret = Object::new(json!({"apiVersion": "example.com/v1", "kind": "Secret"}));
        assert_eq!(
            ConvertError::unknown(&secret, &kind("", "v2", "ConfigMap")).to_string(),
            "converting (v1.Secret) to (v2.ConfigMap): unknown conversion"
        );
    }

    #[test]
    fn knows_every_namespace_by_its_name() {
        let namespace = EveryNamespace.cached("shop").unwrap();
        assert_eq!(namespace.labels["kubernetes.io/metadata.name"], "shop");
    }
}
