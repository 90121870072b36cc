//! A set of webhooks, each at its path.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::handler::Handler;
use crate::mutate::{Mutator, mutating};
use crate::registration::{Marked, Mutates, Registration, Validates};
use crate::review::{Answered, answer};
use crate::validate::{Validator, validating};

/// A webhook: what is registered, and what answers. Clones share it.
#[derive(Debug, Clone)]
pub struct Webhook {
    registration: Arc<Registration>,
    handler: Arc<dyn Handler>,
}

impl Webhook {
    /// A webhook that any handler answers.
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

    /// Answers the body of a call. A handler that panics or is late is a fault, not an end.
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
    by_path: BTreeMap<String, usize>,
}

impl Webhooks {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a webhook that any handler answers.
    ///
    /// # Panics
    ///
    /// Another one has the same path: that is a mistake in the program, found when it starts.
    #[must_use]
    pub fn with(mut self, registration: Registration, handler: impl Handler) -> Self {
        let place = self.all.len();
        for path in std::iter::once(&registration.path).chain(&registration.aliases) {
            let taken = self.by_path.insert(path.clone(), place);
            assert!(taken.is_none(), "two webhooks are served at `{path}`");
        }
        self.all.push(Webhook::new(registration, handler));
        self
    }

    /// Adds a mutator that carries its registration.
    #[must_use]
    pub fn mutating<K, M>(self, mutator: M) -> Self
    where
        K: DeserializeOwned + Serialize + Send + Sync + 'static,
        M: Mutator<K> + Marked<Mutates<K>>,
    {
        self.with(M::registration(), mutating::<K, M>(mutator))
    }

    /// Adds a validator that carries its registration.
    #[must_use]
    pub fn validating<K, V>(self, validator: V) -> Self
    where
        K: DeserializeOwned + Send + Sync + 'static,
        V: Validator<K> + Marked<Validates<K>>,
    {
        self.with(V::registration(), validating::<K, V>(validator))
    }

    /// The webhook at a path.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Webhook> {
        Some(self.placed(path)?.1)
    }

    /// The webhook at a path, with its place among all.
    pub(crate) fn placed(&self, path: &str) -> Option<(usize, &Webhook)> {
        let place = *self.by_path.get(path)?;
        Some((place, self.all.get(place)?))
    }

    /// All of them, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Webhook> {
        self.all.iter()
    }
}
