//! Which policies run again in the second round.
//!
//! A policy that asks for it (`IfNeeded`) runs a second time when a mutation followed it, its own
//! included.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/mutating/reinvocationcontext.go

use std::collections::HashSet;

use crate::object::Object;

/// What is run again: the names of a policy and its binding, and the namespace and name of its
/// parameters.
pub(super) type Key = (String, String, Option<(String, String)>);

/// The state of one request.
#[derive(Debug, Clone, Default)]
pub struct PolicyReinvocation {
    /// Reinvocable policies that ran since the object last changed.
    ran: HashSet<Key>,
    again: HashSet<Key>,
    /// The object as the policies left it last.
    last: Option<Object>,
}

impl PolicyReinvocation {
    /// The object as the policies left it last.
    pub(super) fn last(&self) -> Option<&Object> {
        self.last.as_ref()
    }

    /// The plugin is left.
    pub(super) fn leave(&mut self, object: Option<&Object>) {
        self.last = object.cloned();
    }

    /// There is no other round: the object is needed no more.
    pub(crate) fn end(&mut self) {
        self.last = None;
    }

    pub(super) fn is_due(&self, key: &Key) -> bool {
        self.again.contains(key)
    }

    pub(super) fn ran(&mut self, key: Key) {
        self.ran.insert(key);
    }

    /// The object changed: whatever ran before runs again.
    pub(super) fn rerun(&mut self) {
        self.again.extend(self.ran.drain());
    }
}
