//! The two plugins that call webhooks.
//!
//! ```text
//!   MutatingAdmissionWebhook     one at a time, in order; each sees what the earlier ones made
//!   ValidatingAdmissionWebhook   all that match at once; the first refusal to arrive counts
//! ```

mod contain;
mod denial;
mod mutating;
mod patch;
mod reinvocation;
mod round_trip;
mod validating;
mod versioned;

use std::sync::Arc;
use std::time::Duration;

use lockgate_api::registration::ConfigurationKind;

pub use mutating::MutatingWebhooks;
pub use reinvocation::Reinvocation;
pub use validating::ValidatingWebhooks;

use versioned::Versioned;

use crate::configuration::{Candidates, CompiledHook, Configurations, Snapshot};
use crate::decision::{Cause, Decision};
use crate::host::Host;
use crate::matching::{ConditionsTrace, ConditionsVerdict, Matcher};
use crate::plugin::{Admission, Detail};
use crate::request::Request;
use crate::status;

/// How long a request waits for configurations and namespaces to be loaded. Its own deadline does
/// not count here.
///
/// UPSTREAM: apiserver pkg/admission/handler.go
const READY_WITHIN: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(100);

/// What both plugins have.
#[derive(Debug, Clone)]
struct Hooks {
    host: Host,
    configurations: Arc<Configurations>,
}

/// The hooks that one request has to do with.
struct Relevant {
    snapshot: Arc<Snapshot>,
    candidates: Candidates,
}

impl Hooks {
    fn new(host: Host, kind: ConfigurationKind) -> Self {
        Self {
            host,
            configurations: Arc::new(Configurations::new(kind)),
        }
    }

    /// The hooks worth deciding about; none when admission is over already.
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
        let matcher = Matcher::new(&self.host, request);
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
        if self.is_ready() {
            return true;
        }
        let wait = async {
            while !self.is_ready() {
                tokio::time::sleep(READY_POLL).await;
            }
        };
        let waited = tokio::time::timeout(READY_WITHIN, wait).await;
        waited.is_ok() || self.is_ready()
    }
}

/// What follows from match conditions.
enum Follows {
    Call,
    Skip,
    Refuse(Decision),
}

/// Evaluates the conditions of a hook, if it has any.
fn check_conditions(
    host: &Host,
    hook: &CompiledHook,
    request: &Request,
    matcher: &mut Matcher<'_>,
    versioned: &mut Versioned,
) -> Option<ConditionsTrace> {
    if hook.conditions.is_empty() {
        return None;
    }
    let started = host.clock.now();
    let facts = match &mut versioned.facts {
        Some(facts) => facts,
        none => none.insert(matcher.facts(request, &versioned.kind)),
    };
    let (object, old_object) = (versioned.object.as_ref(), versioned.old_object.as_ref());
    let policy = hook.failure_policy();
    let mut trace = hook.conditions.evaluate(facts, object, old_object, policy);
    trace.elapsed = host.clock.now().saturating_duration_since(started);
    Some(trace)
}

fn conditions_follow(request: &Request, trace: &ConditionsTrace) -> Follows {
    match &trace.verdict {
        ConditionsVerdict::Matched => Follows::Call,
        ConditionsVerdict::Excluded { .. } | ConditionsVerdict::Ignored { .. } => Follows::Skip,
        ConditionsVerdict::Refused { error } => {
            let status = status::forbidden(&request.resource, &request.name, error);
            Follows::Refuse(Decision::deny(status, Cause::MatchConditions))
        }
    }
}

fn not_ready(request: &Request) -> Decision {
    Decision::deny(status::not_ready(request), Cause::NotReady)
}
