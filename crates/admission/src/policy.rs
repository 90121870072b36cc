//! The two plugins that evaluate admission policies.
//!
//! ```text
//!   MutatingAdmissionPolicy     before mutating webhooks: match all, then mutate in sequence
//!   ValidatingAdmissionPolicy   before validating webhooks: match and evaluate in sequence
//! ```
//!
//! A policy is like a webhook without a call: it is found by the same index, matched by the same predicates and
//! conditions, and recorded in the same trace.

mod evaluate;
mod mutating;
mod mutation;
mod params;
mod validating;
mod version;

use std::sync::Arc;

use lockgate_api::registration;
use lockgate_api::registration::policy::Registered;
use serde_json::Value as Json;

pub use mutating::MutatingPolicies;
pub use validating::ValidatingPolicies;

use crate::configuration::{
    Candidates, CompiledBinding, CompiledPolicy, Criteria, Policies, PolicySnapshot,
};
use crate::decision::{Cause, Decision};
use crate::host::{Host, NamespaceError};
use crate::matching::{Matcher, Predicates, Selection, Target};
use crate::object::Object;
use crate::plugin::{Admission, Detail};
use crate::request::Request;
use crate::status;
use crate::trace::{BindingTrace, PolicyTrace};
use crate::webhook::{not_ready, wait_until};
use params::{ParamLookup, unknown_kind};

/// Resources that are exempt from policies.
///
/// UPSTREAM: kubernetes pkg/kubeapiserver/admission/exclusion/resources.go
const EXCLUDED_RESOURCES: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Returns true if no policy applies to the resource.
fn is_exempt(request: &Request) -> bool {
    let (group, plural) = (&*request.resource.group, &*request.resource.resource);
    (group == registration::GROUP && Registered::of_resource(plural).is_some())
        || EXCLUDED_RESOURCES.contains(&(group, plural))
}

/// The parts that both plugins share.
#[derive(Debug, Clone)]
struct Plugin {
    host: Host,
    policies: Arc<Policies>,
}

/// One run over the policies that may match a request.
struct Run<'r> {
    host: &'r Host,
    snapshot: Arc<PolicySnapshot>,
    candidates: Candidates,
    matcher: Matcher<'r>,
    params: ParamLookup<'r>,
    /// The namespace object for expressions, on first use.
    namespace: Option<Option<Arc<Json>>>,
}

/// The result of matching a policy or a binding.
enum Matched {
    No(Predicates),
    Yes(Predicates, Target),
    /// Matching failed.
    Error(Predicates, String),
}

impl Plugin {
    /// The relevant policies; `None` if there are none.
    async fn begin(&self, admission: &mut Admission) -> Result<Option<Run<'_>>, Decision> {
        let request = &admission.request;
        if is_exempt(request) {
            return Ok(None);
        }
        let is_ready = || self.host.namespaces.synced() && self.policies.synced();
        if !wait_until(is_ready).await {
            return Err(not_ready(request));
        }
        let snapshot = self.policies.snapshot();
        admission.running.registered = snapshot.policies().len();
        if snapshot.policies().is_empty() {
            return Ok(None);
        }
        let records = admission.detail == Detail::Everything || admission.records_objects;
        let matcher = Matcher::new(&self.host, request).recording(records);
        let candidates = match admission.detail {
            Detail::Candidates => matcher.find(snapshot.index(), request),
            Detail::Everything => Candidates::all(snapshot.policies().len()),
        };
        if candidates.is_empty() {
            return Ok(None);
        }
        Ok(Some(Run {
            host: &self.host,
            snapshot,
            candidates,
            matcher,
            params: ParamLookup::new(&*self.host.params),
            namespace: None,
        }))
    }
}

impl Run<'_> {
    async fn matches(
        &mut self,
        criteria: &Criteria,
        request: &Request,
        object: Option<&Object>,
    ) -> Matched {
        let predicates = self.matcher.decide_about(criteria, request, object).await;
        match predicates.selection() {
            Selection::Skip => Matched::No(predicates),
            Selection::Call(target) => Matched::Yes(predicates, target),
            Selection::Fail => {
                let why = self.matcher.failure_text(criteria, &predicates);
                Matched::Error(predicates, why)
            }
        }
    }

    /// The target of a policy that applies to a request; `None` if it does not apply. The error explains why that is
    /// unknown, or why the policy cannot be evaluated.
    async fn select(
        &mut self,
        policy: &CompiledPolicy,
        request: &Request,
        trace: &mut PolicyTrace,
    ) -> Result<Option<Target>, String> {
        let object = request.object.as_ref();
        let (predicates, target) = match self.matches(&policy.criteria, request, object).await {
            Matched::No(predicates) => (predicates, Ok(None)),
            Matched::Yes(predicates, target) => (predicates, Ok(Some(target))),
            Matched::Error(predicates, why) => (predicates, Err(why)),
        };
        trace.refusal = self
            .matcher
            .refusal(&policy.criteria, &predicates, request, object);
        trace.predicates = Some(predicates);
        let Some(target) = target? else {
            return Ok(None);
        };
        let unknown = policy
            .param_kind()
            .filter(|kind| self.params.scope(kind).is_none());
        let broken = policy.unreadable.as_deref().map(str::to_owned);
        match broken.or_else(|| unknown.map(|kind| unknown_kind(kind).to_string())) {
            Some(why) => Err(why),
            None => Ok(Some(target)),
        }
    }

    /// The trace of a binding, with true if it applies to a request; the error explains why that is unknown.
    async fn select_binding(
        &mut self,
        binding: &CompiledBinding,
        request: &Request,
    ) -> (BindingTrace, Result<bool, String>) {
        let Some(criteria) = binding.criteria() else {
            return (BindingTrace::matched(binding), Ok(true));
        };
        let object = request.object.as_ref();
        match self.matches(criteria, request, object).await {
            Matched::Yes(..) => (BindingTrace::matched(binding), Ok(true)),
            Matched::No(predicates) => {
                let refusal = self.matcher.refusal(criteria, &predicates, request, object);
                let trace = BindingTrace::unmatched(binding, predicates, refusal);
                (trace, Ok(false))
            }
            Matched::Error(predicates, why) => {
                let trace = BindingTrace::unmatched(binding, predicates, None);
                (trace, Err(why))
            }
        }
    }

    /// Checks that the namespace of the object exists, and looks it up if expressions use it.
    async fn namespace(
        &mut self,
        request: &Request,
        is_looked_at: bool,
    ) -> Result<Option<Arc<Json>>, Decision> {
        let kind = &request.kind;
        let is_namespace = (&*kind.group, &*kind.version, &*kind.kind) == ("", "v1", "Namespace");
        if request.namespace.is_empty() || is_namespace {
            return Ok(None);
        }
        if !is_looked_at {
            if self.host.namespaces.cached(&request.namespace).is_none() {
                let fetched = self.host.namespaces.fetch(&request.namespace).await;
                fetched.map_err(|error| no_namespace(&request.namespace, error))?;
            }
            return Ok(None);
        }
        if let Some(known) = &self.namespace {
            return Ok(known.clone());
        }
        let found = self.params.namespace(&request.namespace).await;
        let found = match found {
            Ok(Some(namespace)) => namespace,
            Ok(None) => {
                let missing = NamespaceError::not_found(&request.namespace);
                return Err(no_namespace(&request.namespace, missing));
            }
            Err(why) => {
                return Err(no_namespace(
                    &request.namespace,
                    NamespaceError::Failed(why.to_string()),
                ));
            }
        };
        self.namespace = Some(Some(Arc::clone(&found)));
        Ok(Some(found))
    }
}

/// The message about a policy, or one of its bindings, that cannot be evaluated.
fn misconfigured(binding: Option<&CompiledBinding>, why: &str) -> String {
    let what = match binding {
        Some(_) => "binding",
        None => "policy",
    };
    format!("failed to configure {what}: {why}")
}

fn no_namespace(name: &str, error: NamespaceError) -> Decision {
    let status = match error {
        NamespaceError::NotFound(status) => *status,
        NamespaceError::Failed(_) => status::namespace_not_found(name),
    };
    Decision::deny(status, Cause::Matching)
}

#[cfg(test)]
mod tests;
