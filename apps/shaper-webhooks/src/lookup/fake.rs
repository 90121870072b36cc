//! Lookups in a fixed set of objects, for tests.

use lockgate_webhook::BoxFuture;
use serde_json::Value;

use super::{Lookup, LookupError, Which};
use crate::api::{Assignment, Metadata, Profile};
use crate::labels::{self, BUILDARCHS};

/// The objects of a test.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    assignments: Vec<Assignment>,
    profiles: Vec<Profile>,
    broken: bool,
}

impl Fake {
    /// A cluster without objects.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A cluster whose lookups fail.
    pub(crate) fn broken() -> Self {
        Self {
            broken: true,
            ..Self::default()
        }
    }

    pub(crate) fn assignment(mut self, object: Value) -> Self {
        self.assignments
            .push(serde_json::from_value(object).unwrap());
        self
    }

    pub(crate) fn profile(mut self, object: Value) -> Self {
        self.profiles.push(serde_json::from_value(object).unwrap());
        self
    }

    fn found<'f, T: Send + 'f>(&self, value: T) -> BoxFuture<'f, Result<T, LookupError>> {
        let broken = self.broken;
        Box::pin(async move {
            if broken {
                return Err(LookupError::new("list", "connection refused"));
            }
            Ok(value)
        })
    }
}

fn has(metadata: &Metadata, label: &str) -> bool {
    metadata.label(label).is_some()
}

impl Lookup for Fake {
    fn profile_exists<'f>(
        &'f self,
        namespace: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<bool, LookupError>> {
        let is_it = |meta: &Metadata| meta.namespace == namespace && meta.name == name;
        self.found(self.profiles.iter().any(|profile| is_it(&profile.metadata)))
    }

    fn assignments<'f>(
        &'f self,
        which: Which<'f>,
    ) -> BoxFuture<'f, Result<Vec<Assignment>, LookupError>> {
        let is_meant = |one: &&Assignment| match which {
            Which::All => true,
            Which::With(label) => has(&one.metadata, label),
            Which::Unlabelled => !BUILDARCHS
                .iter()
                .any(|arch| has(&one.metadata, &labels::buildarch(arch))),
            Which::In(namespace) => one.metadata.namespace == namespace,
        };
        self.found(self.assignments.iter().filter(is_meant).cloned().collect())
    }

    fn profiles_with<'f>(
        &'f self,
        label: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Profile>, LookupError>> {
        let all = self.profiles.iter();
        self.found(
            all.filter(|one| has(&one.metadata, label))
                .cloned()
                .collect(),
        )
    }
}
