//! The plugin trait, and a request as plugins see it.
//!
//! Two plugins call webhooks; every in-process plugin is another one. All of them share the record of the request, from
//! which they read its facts, and to which they add their results.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use crate::audit::{Annotations, Level};
use crate::decision::Decision;
use crate::host::BoxFuture;
use crate::object::Object;
use crate::reinvocation::{PolicyReinvocation, Reinvocation};
use crate::request::{Operation, Request};
use crate::trace::{PluginTrace, Step, Trace};
use crate::warnings::Warnings;

/// A plugin of the admission chain.
pub trait Plugin: Send + Sync {
    /// The name that enables and disables it.
    fn name(&self) -> &'static str;

    /// Returns `true` if it handles the operation.
    fn handles(&self, operation: Operation) -> bool;

    /// Returns `true` if it has an admit step.
    fn admits(&self) -> bool {
        false
    }

    /// Returns `true` if it has a validate step.
    fn validates(&self) -> bool {
        false
    }

    /// Returns `false` if a step does not apply to the request. The step is counted but not run.
    fn concerns(&self, _: Step, _: &Request) -> bool {
        true
    }

    /// Mutates or validates the object. Runs again if a webhook changed the object.
    fn admit<'f>(&'f self, _: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(async { Decision::Allow })
    }

    /// Validates the final object.
    fn validate<'f>(&'f self, _: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(async { Decision::Allow })
    }
}

impl<P: Plugin + ?Sized> Plugin for Arc<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn handles(&self, operation: Operation) -> bool {
        (**self).handles(operation)
    }

    fn admits(&self) -> bool {
        (**self).admits()
    }

    fn validates(&self) -> bool {
        (**self).validates()
    }

    fn concerns(&self, step: Step, request: &Request) -> bool {
        (**self).concerns(step, request)
    }

    fn admit<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        (**self).admit(admission)
    }

    fn validate<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        (**self).validate(admission)
    }
}

/// One request during admission, with the record of its results so far.
#[derive(Clone)]
pub struct Admission {
    pub(crate) request: Request,
    pub(crate) trace: Trace,
    /// The plugin run in progress.
    pub(crate) running: PluginTrace,
    /// The step, plugin and calls in progress.
    pub(crate) in_progress: InProgress,
    pub(crate) reinvocation: Reinvocation,
    pub(crate) policy_reinvocation: PolicyReinvocation,
    pub(crate) detail: Detail,
    /// True if the trace records the object after every change.
    pub(crate) records_objects: bool,
    held: Vec<Arc<dyn Any + Send + Sync>>,
}

/// The start times of everything in progress, with which the traces of cancelled requests are completed.
#[derive(Debug, Clone, Default)]
pub(crate) struct InProgress {
    pub(crate) step: Option<Instant>,
    pub(crate) plugin: Option<Instant>,
    /// The calls, by the position of their webhook in the running plugin's trace.
    pub(crate) calls: Vec<(usize, Instant)>,
}

/// The webhooks that a trace covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// Webhooks that may match by operation, group and resource.
    #[default]
    Candidates,
    /// All registered webhooks, for explanations.
    Everything,
}

/// The warnings and audit annotations of a plugin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Remarks {
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations: key, value and audit level.
    pub annotations: Vec<(String, String, Level)>,
}

impl Admission {
    /// Creates a request before admission.
    #[must_use]
    pub fn new(request: Request) -> Self {
        Self {
            request,
            trace: Trace::default(),
            running: PluginTrace::default(),
            in_progress: InProgress::default(),
            reinvocation: Reinvocation::default(),
            policy_reinvocation: PolicyReinvocation::default(),
            detail: Detail::Candidates,
            records_objects: false,
            held: Vec::new(),
        }
    }

    /// The same, with a trace of every registered webhook.
    #[must_use]
    pub fn explained(request: Request) -> Self {
        Self {
            detail: Detail::Everything,
            ..Self::new(request)
        }
    }

    /// Records the object in the trace before the first change and after each. Every change then costs a copy.
    #[must_use]
    pub fn record_objects(mut self) -> Self {
        self.records_objects = true;
        self
    }

    /// The facts of the request.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The mutable facts of the request, for updates between the steps: the server sets names and system fields after
    /// mutation and before validation.
    pub fn request_mut(&mut self) -> &mut Request {
        &mut self.request
    }

    /// Replaces the object. For plugins in the first step.
    pub fn set_object(&mut self, object: impl Into<Object>) {
        self.request.set_patched(object.into());
    }

    /// The object before webhooks, policies or plugins replaced it, if any did.
    pub fn take_unpatched(&mut self) -> Option<Object> {
        self.request.take_unpatched()
    }

    /// The mutable object. For plugins in the first step.
    pub fn object_mut(&mut self) -> Option<&mut Value> {
        self.request.object.as_mut().map(Object::value_mut)
    }

    /// The current object, if the trace records objects.
    pub(crate) fn recorded_object(&self) -> Option<Object> {
        self.request.object.clone().filter(|_| self.records_objects)
    }

    /// Holds a value until the write completes, successfully or not: for example a reservation of a plugin for the
    /// object.
    pub fn hold(&mut self, kept: Arc<dyn Any + Send + Sync>) {
        self.held.push(kept);
    }

    /// The held value of this type, if any.
    #[must_use]
    pub fn held<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let mut held = self.held.iter();
        held.find_map(|kept| Arc::clone(kept).downcast().ok())
    }

    /// Takes the object after the first step, for the server to complete it. The server sets it again for the second
    /// step.
    pub fn take_object(&mut self) -> Option<Object> {
        self.reinvocation.end();
        self.policy_reinvocation.end();
        self.request.object.take()
    }

    /// Adds a warning for the client.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.running.warnings.push(text.into());
    }

    /// Adds an audit annotation at this level and above.
    pub fn annotate(&mut self, key: impl Into<String>, value: impl Into<String>, level: Level) {
        self.running
            .annotations
            .push((key.into(), value.into(), level));
    }

    /// Takes the warnings and audit annotations added since the plugin started. For callers that run a plugin without a
    /// chain, as webhooks do.
    pub fn take_remarks(&mut self) -> Remarks {
        let running = std::mem::take(&mut self.running);
        Remarks {
            warnings: running.warnings,
            annotations: running.annotations,
        }
    }

    /// Requests a second round, because the object was changed in a way that other plugins may need to see. Webhooks
    /// do this when they change an object; earlier in-process plugins need not.
    pub fn request_reinvocation(&mut self) {
        self.reinvocation.request();
    }

    /// Returns `true` in the second round.
    #[must_use]
    pub fn is_reinvocation(&self) -> bool {
        self.reinvocation.is_second_round()
    }

    /// The trace so far.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The warnings for the client.
    #[must_use]
    pub fn warnings(&self) -> Warnings {
        self.trace.warnings()
    }

    /// The audit annotations.
    #[must_use]
    pub fn annotations(&self) -> Annotations {
        self.trace.annotations()
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("request", &self.request)
            .field("trace", &self.trace)
            .finish_non_exhaustive()
    }
}
