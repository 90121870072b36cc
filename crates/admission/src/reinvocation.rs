//! Which webhooks run again, and when.
//!
//! A webhook that asks for it (`IfNeeded`) is called a second time when the object changed after it
//! was called: by a later webhook, or by a compiled-in plugin in the second round. Nobody is called
//! a third time, and nobody is called for the first time in the second round.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/mutating/reinvocationcontext.go

use std::collections::HashSet;
use std::sync::Arc;

use crate::configuration::CompiledHook;
use crate::object::Object;

/// The state of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reinvocation {
    requested: bool,
    second_round: bool,
    /// Reinvocable hooks that were called since the object last changed.
    called: Vec<Arc<CompiledHook>>,
    /// Identities of the hooks that run again.
    again: HashSet<String>,
    /// The object as the webhooks left it last.
    last: Option<Object>,
}

impl Reinvocation {
    pub(crate) fn request(&mut self) {
        self.requested = true;
    }

    pub(crate) fn is_second_round(&self) -> bool {
        self.second_round
    }

    /// Starts the second round, and returns `true`, if one was requested.
    pub(crate) fn begin_second_round(&mut self) -> bool {
        self.second_round = self.requested && !self.second_round;
        self.second_round
    }

    /// The plugin is entered, with an object that may have been changed since it was left.
    pub(crate) fn enter(&mut self, is_changed: impl FnOnce(Option<&Object>) -> bool) {
        if self.second_round && is_changed(self.last.as_ref()) {
            self.rerun_called();
        }
    }

    /// The plugin is left.
    pub(crate) fn leave(&mut self, object: Option<&Object>) {
        self.last = object.cloned();
    }

    /// There is no other round: the object is needed no more.
    pub(crate) fn end(&mut self) {
        self.last = None;
    }

    /// Returns `true` if a matching hook is called in this round.
    pub(crate) fn is_due(&self, hook: &CompiledHook) -> bool {
        !self.second_round || self.again.contains(hook.identity())
    }

    /// A hook was called, whatever came of it.
    pub(crate) fn called(&mut self, hook: &Arc<CompiledHook>, changed: bool) {
        if changed {
            self.rerun_called();
            self.requested = true;
        }
        if hook.reinvocable() {
            self.called.push(Arc::clone(hook));
        }
    }

    fn rerun_called(&mut self) {
        let called = self.called.drain(..);
        self.again
            .extend(called.map(|hook| hook.identity().to_owned()));
    }
}
