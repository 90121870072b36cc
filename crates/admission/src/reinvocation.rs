//! The webhooks and policies to reinvoke.
//!
//! A webhook with `IfNeeded` is called a second time if the object changed after its call: by a later webhook, or by
//! an in-process plugin in the second round. No webhook is called a third time, and none is called for the first time
//! in the second round.
//!
//! A mutating policy with `IfNeeded` runs a second time if a mutation followed it, including its own.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/mutating/reinvocationcontext.go and
//! pkg/admission/plugin/policy/mutating/reinvocationcontext.go

use std::collections::HashSet;
use std::sync::Arc;

use crate::configuration::CompiledHook;
use crate::object::Object;

/// The state of the webhooks of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reinvocation {
    requested: bool,
    second_round: bool,
    /// Reinvocable webhooks that were called since the object last changed.
    called: Vec<Arc<CompiledHook>>,
    /// Identities of the webhooks to reinvoke.
    again: HashSet<String>,
    /// The object after the last webhook.
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

    /// Enters the plugin, with an object that may have changed since it last ran.
    pub(crate) fn enter(&mut self, is_changed: impl FnOnce(Option<&Object>) -> bool) {
        if self.second_round && is_changed(self.last.as_ref()) {
            self.rerun_called();
        }
    }

    /// Leaves the plugin.
    pub(crate) fn leave(&mut self, object: Option<&Object>) {
        self.last = object.cloned();
    }

    /// Ends the last round: the object is no longer needed.
    pub(crate) fn end(&mut self) {
        self.last = None;
    }

    /// Returns `true` if a matching hook is called in this round.
    pub(crate) fn is_due(&self, hook: &CompiledHook) -> bool {
        !self.second_round || self.again.contains(hook.identity())
    }

    /// Records that a webhook was called, with any outcome.
    pub(crate) fn record_call(&mut self, hook: &Arc<CompiledHook>, changed: bool) {
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

/// The unit of reinvocation: the names of a policy and its binding, and the namespace and name of
/// its parameters.
pub(crate) type PolicyKey = (String, String, Option<(String, String)>);

/// The state of the policies of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyReinvocation {
    /// Reinvocable policies that ran since the object last changed.
    ran: HashSet<PolicyKey>,
    again: HashSet<PolicyKey>,
    /// The object after the last policy.
    last: Option<Object>,
}

impl PolicyReinvocation {
    /// The object after the last policy.
    pub(crate) fn last(&self) -> Option<&Object> {
        self.last.as_ref()
    }

    /// Leaves the plugin.
    pub(crate) fn leave(&mut self, object: Option<&Object>) {
        self.last = object.cloned();
    }

    /// Ends the last round: the object is no longer needed.
    pub(crate) fn end(&mut self) {
        self.last = None;
    }

    pub(crate) fn is_due(&self, key: &PolicyKey) -> bool {
        self.again.contains(key)
    }

    pub(crate) fn record_run(&mut self, key: PolicyKey) {
        self.ran.insert(key);
    }

    /// Records a change of the object: all earlier policies are reinvoked.
    pub(crate) fn rerun(&mut self) {
        self.again.extend(self.ran.drain());
    }
}
