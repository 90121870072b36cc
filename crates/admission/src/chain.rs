//! Runs plugins in order, and the first step once more if a webhook changed the object.
//!
//! This module only does the sequencing; plugins make the decisions.
//!
//! UPSTREAM: apiserver pkg/admission/{chain,reinvocation}.go

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tracing::Instrument as _;

use crate::configuration::FailurePolicy;
use crate::decision::{Cause, Decision};
use crate::host::Clock;
use crate::object::Object;
use crate::plugin::{Admission, InProgress, Plugin};
use crate::trace::{CallOutcome, CallTrace, PluginTrace, Step, StepTrace};

/// Plugins in the order they run.
#[derive(Clone)]
pub struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
    clock: Arc<dyn Clock>,
}

impl Chain {
    /// Creates a chain of these plugins, in this order.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, plugins: Vec<Arc<dyn Plugin>>) -> Self {
        Self { plugins, clock }
    }

    /// The names of the plugins, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.plugins.iter().map(|plugin| plugin.name())
    }

    /// The names of the plugins with a given step, in order.
    pub fn names_in(&self, step: Step) -> impl Iterator<Item = &'static str> {
        let takes_part = move |plugin: &&Arc<dyn Plugin>| match step {
            Step::Admit => plugin.admits(),
            Step::Validate => plugin.validates(),
        };
        self.plugins
            .iter()
            .filter(takes_part)
            .map(|plugin| plugin.name())
    }

    /// Runs the first step: objects may be changed.
    pub async fn admit(&self, admission: &mut Admission) -> Decision {
        let started = self.start(Step::Admit, admission);
        let span = step_span(Step::Admit, admission);
        let rounds = async {
            let decision = self.run(Step::Admit, admission).await;
            if decision.is_allowed() && admission.reinvocation.begin_second_round() {
                return self.run(Step::Admit, admission).await;
            }
            decision
        };
        let decision = rounds.instrument(span).await;
        self.finish(started, admission, &decision);
        decision
    }

    /// Runs the second step: objects are only validated.
    pub async fn validate(&self, admission: &mut Admission) -> Decision {
        let started = self.start(Step::Validate, admission);
        let span = step_span(Step::Validate, admission);
        let decision = self.run(Step::Validate, admission).instrument(span).await;
        self.finish(started, admission, &decision);
        decision
    }

    fn start(&self, step: Step, admission: &mut Admission) -> Instant {
        admission.trace.steps.push(StepTrace {
            step,
            operation: admission.request.operation,
            elapsed: std::time::Duration::ZERO,
            denied: None,
            status: None,
            object: admission.recorded_object(),
            plugins: Vec::with_capacity(self.plugins.len()),
        });
        let now = self.clock.now();
        admission.in_progress.step = Some(now);
        now
    }

    fn finish(&self, started: Instant, admission: &mut Admission, decision: &Decision) {
        admission.in_progress = InProgress::default();
        if let Some(step) = admission.trace.steps.last_mut() {
            step.elapsed = self.clock.now().saturating_duration_since(started);
            step.denied = match decision {
                Decision::Allow => None,
                Decision::Deny(denial) => Some(denial.cause),
            };
            if let (Decision::Deny(denial), true) = (decision, admission.records_objects) {
                step.status = Some(Box::new(denial.status.clone()));
            }
        }
    }

    /// Completes the trace of a cancelled request. Returns false if nothing was in progress.
    ///
    /// UPSTREAM: a cancelled context fails the calls in progress, with the usual effect of failures. Mutation ends even
    /// if failures are ignored.
    pub(crate) fn abort(&self, admission: &mut Admission) -> bool {
        let InProgress {
            step: Some(step_started),
            plugin,
            calls,
        } = std::mem::take(&mut admission.in_progress)
        else {
            return false;
        };
        let now = self.clock.now();
        let Some(step) = admission.trace.steps.last_mut() else {
            return false;
        };
        let mut running = std::mem::take(&mut admission.running);
        let mut is_refused = step.step == Step::Admit || calls.is_empty();
        for (at, started) in calls {
            let Some(hook) = running.hooks.get_mut(at) else {
                // A call without its webhook: it is unknown if its failure may be ignored.
                is_refused = true;
                continue;
            };
            is_refused |= hook.hook.failure_policy() == FailurePolicy::Fail;
            let (resource, kind) = (&admission.request.resource, &admission.request.kind);
            let mut call = CallTrace::new(resource.clone(), kind.clone(), at);
            call.outcome = CallOutcome::Canceled;
            call.elapsed = now.saturating_duration_since(started);
            hook.call = Some(call);
        }
        if let Some(started) = plugin {
            running.elapsed = now.saturating_duration_since(started);
            running.denied = is_refused;
            step.plugins.push(running);
        }
        step.elapsed = now.saturating_duration_since(step_started);
        step.denied = is_refused.then_some(Cause::Canceled);
        true
    }

    /// Runs one round. The first denial ends it.
    async fn run(&self, step: Step, admission: &mut Admission) -> Decision {
        // Each plugin starts when the previous one ends: one reading of the clock serves both.
        let mut started = self.clock.now();
        for plugin in &self.plugins {
            let takes_part = match step {
                Step::Admit => plugin.admits(),
                Step::Validate => plugin.validates(),
            };
            if !takes_part || !plugin.handles(admission.request.operation) {
                continue;
            }
            let trace = PluginTrace {
                name: plugin.name(),
                round: u8::from(step == Step::Admit && admission.is_reinvocation()),
                ..PluginTrace::default()
            };
            if !plugin.concerns(step, &admission.request) {
                if let Some(step) = admission.trace.steps.last_mut() {
                    step.plugins.push(trace);
                }
                continue;
            }
            admission.running = trace;
            let span = tracing::debug_span!(
                "plugin",
                name = plugin.name(),
                round = admission.running.round
            );
            admission.in_progress.plugin = Some(started);
            let before = admission.recorded_object();
            let run = match step {
                Step::Admit => plugin.admit(admission),
                Step::Validate => plugin.validate(admission),
            };
            let decision = run.instrument(span).await;
            admission.in_progress.plugin = None;
            let mut trace = std::mem::take(&mut admission.running);
            let ended = self.clock.now();
            trace.elapsed = ended.saturating_duration_since(started);
            started = ended;
            trace.denied = !decision.is_allowed();
            if step == Step::Admit {
                trace.object = admission.recorded_object().filter(|after| {
                    let same = |before: &Object| before == after;
                    !before.as_ref().is_some_and(same)
                });
            }
            if let Some(step) = admission.trace.steps.last_mut() {
                step.plugins.push(trace);
            }
            if !decision.is_allowed() {
                return decision;
            }
        }
        Decision::Allow
    }
}

fn step_span(step: Step, admission: &Admission) -> tracing::Span {
    let operation = admission.request.operation.name();
    tracing::debug_span!("admission", step = step.name(), operation)
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
