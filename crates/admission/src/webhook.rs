//! The two plugins that call webhooks.
//!
//! ```text
//!   MutatingAdmissionWebhook     one at a time, in order; each receives the result of the previous one
//!   ValidatingAdmissionWebhook   all that match in parallel; the first denial to arrive is returned
//! ```

mod broken;
mod catch_panic;
mod denial;
mod mutating;
mod patch;
mod round_trip;
mod validating;
mod versioned;

use std::sync::Arc;
use std::time::Duration;

pub use mutating::MutatingWebhooks;
pub use validating::ValidatingWebhooks;

use broken::BrokenInvariant;
pub(crate) use versioned::{Versioned, convert};

use crate::configuration::{Candidates, CompiledHook, Configurations, Snapshot};
use crate::decision::{Cause, Decision};
use crate::host::Host;
use crate::matching::{ConditionsGate, ConditionsTrace, ConditionsVerdict, Matcher};
use crate::plugin::{Admission, Detail};
use crate::request::Request;
use crate::status;

/// The time a request waits for configurations and namespaces to load, independent of its own deadline.
///
/// UPSTREAM: apiserver pkg/admission/handler.go
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(100);

/// The common state of both plugins.
#[derive(Debug, Clone)]
struct Hooks {
    host: Host,
    configurations: Arc<Configurations>,
    conditions: ConditionsGate,
}

/// The webhooks that may match a request.
struct Relevant {
    snapshot: Arc<Snapshot>,
    candidates: Candidates,
}

impl Relevant {
    /// The webhook at a position of the candidates.
    fn hook(&self, position: usize) -> Result<&Arc<CompiledHook>, BrokenInvariant> {
        let hooks = self.snapshot.hooks();
        hooks.get(position).ok_or(BrokenInvariant::Index(position))
    }
}

impl Hooks {
    fn new(host: Host, configurations: Arc<Configurations>) -> Self {
        Self {
            host,
            configurations,
            conditions: ConditionsGate::default(),
        }
    }

    /// Returns `true` if the webhook has conditions and they are enabled.
    fn has_conditions(&self, hook: &CompiledHook) -> bool {
        self.conditions == ConditionsGate::Enabled && !hook.conditions.is_empty()
    }

    /// The webhooks that may match; `None` if there are none.
    async fn relevant(
        &self,
        admission: &mut Admission,
    ) -> Result<Option<(Relevant, Matcher<'_>)>, Decision> {
        let request = &admission.request;
        let exempt = request.is_exempt();
        if exempt && !self.configurations.has_statics() {
            return Ok(None);
        }
        let ready = if exempt {
            self.configurations.statics_synced()
        } else {
            self.wait_until_ready().await
        };
        if !ready {
            return Err(not_ready(request));
        }
        let snapshot = self.configurations.snapshot();
        admission.running.registered = snapshot.hooks().len();
        if snapshot.hooks().is_empty() {
            return Ok(None);
        }
        let records = admission.detail == Detail::Everything || admission.records_objects;
        let matcher = Matcher::new(&self.host, request).recording(records);
        let candidates = match admission.detail {
            Detail::Candidates => matcher.candidates(&snapshot, request),
            Detail::Everything => Candidates::all(snapshot.hooks().len()),
        };
        let candidates = if exempt {
            candidates.below(snapshot.static_hooks().len())
        } else {
            candidates
        };
        Ok(Some((
            Relevant {
                snapshot,
                candidates,
            },
            matcher,
        )))
    }

    fn is_ready(&self) -> bool {
        self.host.namespaces.synced() && self.configurations.synced()
    }

    async fn wait_until_ready(&self) -> bool {
        wait_until(|| self.is_ready()).await
    }
}

/// Waits until the data for a decision is loaded, up to the limit.
pub(crate) async fn wait_until(is_ready: impl Fn() -> bool) -> bool {
    if is_ready() {
        return true;
    }
    let wait = async {
        while !is_ready() {
            tokio::time::sleep(READY_POLL).await;
        }
    };
    let waited = tokio::time::timeout(READY_TIMEOUT, wait).await;
    waited.is_ok() || is_ready()
}

/// The span of one call.
///
/// UPSTREAM: apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go
macro_rules! call_span {
    ($name:literal, $hook:expr, $operation:expr, $resource:expr, $subresource:expr) => {
        tracing::debug_span!(
            $name,
            configuration = ?$hook.configuration(),
            webhook = ?$hook.name(),
            resource = ?$resource,
            subresource = ?$subresource,
            operation = $operation.name(),
            uid = tracing::field::Empty,
        )
    };
}
use call_span;

/// The consequence of match conditions.
enum NextStep {
    Call,
    Skip,
    Deny(Decision),
}

/// Evaluates the conditions of a webhook.
fn check_conditions(
    host: &Host,
    hook: &CompiledHook,
    request: &Request,
    matcher: &mut Matcher<'_>,
    versioned: &mut Versioned,
) -> ConditionsTrace {
    let started = host.clock.now();
    let facts = match &mut versioned.facts {
        Some(facts) => facts,
        none => none.insert(matcher.facts(request, &versioned.kind, &request.resource)),
    };
    let (object, old_object) = (versioned.object.as_ref(), versioned.old_object.as_ref());
    let policy = hook.failure_policy();
    let mut trace = hook.conditions.evaluate(facts, object, old_object, policy);
    trace.elapsed = host.clock.now().saturating_duration_since(started);
    log_exclusion(hook, request, &trace.verdict);
    trace
}

/// Logs why a webhook was not called. User-provided strings are quoted.
fn log_exclusion(hook: &CompiledHook, request: &Request, verdict: &ConditionsVerdict) {
    let (condition, error) = match verdict {
        ConditionsVerdict::Matched | ConditionsVerdict::Refused { .. } => return,
        ConditionsVerdict::Excluded { condition } => (Some(condition), None),
        ConditionsVerdict::Ignored { error } => (None, Some(error)),
    };
    tracing::debug!(
        configuration = ?hook.configuration(),
        webhook = ?hook.name(),
        condition = condition.map(tracing::field::debug),
        error = error.map(tracing::field::debug),
        operation = request.operation.name(),
        group = ?request.resource.group,
        resource = ?request.resource.resource,
        subresource = ?request.subresource,
        namespace = ?request.namespace,
        name = ?request.name,
        "match conditions exclude the webhook",
    );
}

fn after_conditions(request: &Request, trace: &ConditionsTrace) -> NextStep {
    match &trace.verdict {
        ConditionsVerdict::Matched => NextStep::Call,
        ConditionsVerdict::Excluded { .. } | ConditionsVerdict::Ignored { .. } => NextStep::Skip,
        ConditionsVerdict::Refused { error } => {
            let status = status::forbidden(&request.resource, &request.name, error);
            NextStep::Deny(Decision::deny(status, Cause::MatchConditions))
        }
    }
}

pub(crate) fn not_ready(request: &Request) -> Decision {
    Decision::deny(status::not_ready(request), Cause::NotReady)
}
