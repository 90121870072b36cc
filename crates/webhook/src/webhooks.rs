//! A set of webhooks by path.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::conversion::{self, Conversion, Converted};
use crate::handler::Handler;
use crate::mutate::{Mutator, mutating};
use crate::registration::{Marked, Mutates, Registration, Validates};
use crate::review::{Answered, answer};
use crate::validate::{Validator, validating};

/// A webhook: its registration and handler. Clones share it.
#[derive(Debug, Clone)]
pub struct Webhook {
    registration: Arc<Registration>,
    handler: Arc<dyn Handler>,
}

impl Webhook {
    /// Creates a webhook with any handler.
    pub fn new(registration: Registration, handler: impl Handler) -> Self {
        Self {
            registration: Arc::new(registration),
            handler: Arc::new(handler),
        }
    }

    /// The registration.
    #[must_use]
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// Handles the body of a call. A panic or timeout of the handler is a fault.
    pub async fn answer(&self, body: Bytes, deadline: Option<Instant>) -> Answered {
        answer(self.registration.role, &*self.handler, body, deadline).await
    }
}

/// The webhooks of a server.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use lockgate_webhook::{Context, Object, Operation, Registration, Rule, Validator, Verdict, Webhooks, validating};
///
/// struct Guard;
///
/// impl Validator<Pod> for Guard {}
///
/// let webhooks = Webhooks::new().with(
///     Registration::validating("pods.example.com")
///         .path("/pods")
///         .rule(Rule::resources(["pods"]).operations([Operation::Create])),
///     validating::<Pod, _>(Guard),
/// );
/// assert!(webhooks.at("/pods").is_some());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Webhooks {
    all: Vec<Webhook>,
    conversions: Vec<Conversions>,
    by_path: BTreeMap<String, RouteTarget>,
}

/// An index into one of the two lists.
#[derive(Debug, Clone, Copy)]
enum RouteTarget {
    Admission(usize),
    Conversion(usize),
}

/// The webhook at a path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Served<'w> {
    Admission(&'w Webhook),
    Conversion(&'w Conversions),
}

/// The conversions at one path. Clones share them.
#[derive(Debug, Clone)]
pub struct Conversions {
    path: String,
    kinds: Vec<Arc<Conversion>>,
}

impl Conversions {
    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The conversion of each kind.
    #[must_use]
    pub fn kinds(&self) -> &[Arc<Conversion>] {
        &self.kinds
    }

    /// Handles the body of a call. A panic or timeout of a conversion is a failure.
    pub async fn answer(&self, body: Bytes, deadline: Option<Instant>) -> Converted {
        conversion::answer(&self.kinds, body, deadline).await
    }
}

impl Webhooks {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a webhook with any handler.
    ///
    /// # Panics
    ///
    /// Panics if another one has the same path: this is a programming error, detected at startup.
    #[must_use]
    pub fn with(mut self, registration: Registration, handler: impl Handler) -> Self {
        let place = RouteTarget::Admission(self.all.len());
        for path in std::iter::once(&registration.path).chain(&registration.aliases) {
            let taken = self.by_path.insert(path.clone(), place);
            assert!(taken.is_none(), "two webhooks are served at `{path}`");
        }
        self.all.push(Webhook::new(registration, handler));
        self
    }

    /// Adds a mutator with its registration.
    #[must_use]
    pub fn mutating<K, M>(self, mutator: M) -> Self
    where
        K: DeserializeOwned + Serialize + Send + Sync + 'static,
        M: Mutator<K> + Marked<Mutates<K>>,
    {
        self.with(M::registration(), mutating::<K, M>(mutator))
    }

    /// Adds a validator with its registration.
    #[must_use]
    pub fn validating<K, V>(self, validator: V) -> Self
    where
        K: DeserializeOwned + Send + Sync + 'static,
        V: Validator<K> + Marked<Validates<K>>,
    {
        self.with(V::registration(), validating::<K, V>(validator))
    }

    /// Adds the conversion of a kind. Several kinds may be converted at one path.
    ///
    /// # Panics
    ///
    /// Panics if an admission webhook has the same path, or the kind is already converted there: this is a programming
    /// error, detected at startup.
    #[must_use]
    pub fn converting(mut self, conversion: impl Into<Conversion>) -> Self {
        let conversion = conversion.into();
        let path = conversion.path().to_owned();
        let there = self.conversions.iter_mut().find(|one| one.path == path);
        if let Some(there) = there {
            let name = conversion.definition_name();
            let mut kinds = there.kinds.iter();
            let is_taken = kinds.any(|other| other.definition_name() == name);
            assert!(!is_taken, "`{name}` is converted twice at `{path}`");
            there.kinds.push(Arc::new(conversion));
            return self;
        }
        let place = RouteTarget::Conversion(self.conversions.len());
        let taken = self.by_path.insert(path.clone(), place);
        assert!(taken.is_none(), "two webhooks are served at `{path}`");
        self.conversions.push(Conversions {
            path,
            kinds: vec![Arc::new(conversion)],
        });
        self
    }

    /// The admission webhook at a path.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Webhook> {
        match self.placed(path)?.1 {
            Served::Admission(webhook) => Some(webhook),
            Served::Conversion(_) => None,
        }
    }

    /// The conversions at a path.
    #[must_use]
    pub fn conversions_at(&self, path: &str) -> Option<&Conversions> {
        match self.placed(path)?.1 {
            Served::Admission(_) => None,
            Served::Conversion(conversions) => Some(conversions),
        }
    }

    /// The webhook at a path, with its index: conversions come after the others.
    pub(crate) fn placed(&self, path: &str) -> Option<(usize, Served<'_>)> {
        match *self.by_path.get(path)? {
            RouteTarget::Admission(place) => Some((place, Served::Admission(self.all.get(place)?))),
            RouteTarget::Conversion(place) => {
                let conversions = self.conversions.get(place)?;
                Some((self.all.len() + place, Served::Conversion(conversions)))
            }
        }
    }

    /// The conversions, by path, in the order they were added.
    pub fn conversions(&self) -> impl Iterator<Item = &Conversions> {
        self.conversions.iter()
    }

    /// All admission webhooks, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Webhook> {
        self.all.iter()
    }
}
