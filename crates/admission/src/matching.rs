//! Matching: the predicates that decide if a webhook is called.
//!
//! ```text
//!   namespaceSelector ─► objectSelector ─► rules ─► equivalent resources ─► matchConditions
//! ```
//!
//! Every predicate returns a verdict, which the trace records and which determines the outcome of the hook. The first
//! predicate that does not match ends the evaluation. A selector error is only recorded: if no rule matches, it has
//! no effect.
//!
//! Nothing here calls a webhook, and nothing allocates unless there is an error.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/webhook/generic/webhook.go

mod equivalence;
mod namespace_selector;
mod object_selector;
mod refusal;

use std::sync::Arc;

use lockgate_api::admission::{GroupVersionKind, GroupVersionResource};
use lockgate_api::meta::status::Status;
use lockgate_cel::ext::authorizer::AuthorizerValue;

pub use equivalence::RuleVerdict;
pub(crate) use namespace_selector::NamespaceLookup;
pub use namespace_selector::NamespaceVerdict;
pub use object_selector::ObjectVerdict;
pub use refusal::{Refusal, RuleMiss};

use crate::conditions::{self, ConditionInputs};
use crate::configuration::{Candidates, CompiledHook, Criteria, Index, Labels, Snapshot};
use crate::host::{Equivalent, Host, Namespace, NamespaceError};
use crate::object::Object;
use crate::request::Request;

pub use crate::conditions::{ConditionsGate, ConditionsTrace, ConditionsVerdict};

/// The verdicts of the predicates of one webhook. Predicates after the first that does not match are not evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicates {
    /// The namespace selector.
    pub namespace: NamespaceVerdict,
    /// The object selector.
    pub object: Option<ObjectVerdict>,
    /// The rules.
    pub rule: Option<RuleVerdict>,
}

/// The consequence of the predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The webhook does not match the request.
    Skip,
    /// The webhook is called with this resource, if its match conditions are true.
    Call(Target),
    /// A selector failed and the webhook's rules match: the request fails.
    Fail,
}

/// The resource that a webhook is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The requested resource.
    Requested,
    /// An equivalent resource, by its index.
    Equivalent(usize),
}

impl Predicates {
    /// Derives the consequence.
    #[must_use]
    pub fn selection(&self) -> Selection {
        let (Some(object), Some(rule)) = (self.object, self.rule) else {
            return Selection::Skip;
        };
        let target = match rule {
            RuleVerdict::None | RuleVerdict::Excluded { .. } => return Selection::Skip,
            // The kind is looked up when the rule matches, before recorded errors are considered.
            RuleVerdict::UnknownKind { .. } => return Selection::Fail,
            RuleVerdict::Exact { .. } | RuleVerdict::Unrestricted => Target::Requested,
            RuleVerdict::Equivalent { equivalent, .. } => Target::Equivalent(equivalent),
        };
        if self.namespace == NamespaceVerdict::Error || object == ObjectVerdict::Error {
            return Selection::Fail;
        }
        Selection::Call(target)
    }
}

/// A verdict requires the namespace, which is not in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceMissing;

/// Matches the webhooks of one request, caching intermediate results.
#[derive(Debug)]
pub struct Matcher<'m> {
    host: &'m Host,
    namespace: NamespaceLookup,
    equivalents: Arc<[Equivalent]>,
    /// The authorizer value, created when a condition needs it.
    asking: Option<AuthorizerValue>,
    /// Set for explanations: records the predicate that did not match and the values of subexpressions.
    records: bool,
}

impl<'m> Matcher<'m> {
    /// Creates a matcher for this request.
    #[must_use]
    pub fn new(host: &'m Host, request: &Request) -> Self {
        Self {
            host,
            namespace: NamespaceLookup::Unasked,
            equivalents: host
                .kinds
                .equivalents(&request.resource, &request.subresource),
            asking: None,
            records: false,
        }
    }

    /// Records the reasons behind verdicts, for explanations.
    #[must_use]
    pub(crate) fn recording(self, records: bool) -> Self {
        Self { records, ..self }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.records
    }

    /// The first predicate that did not match and its value, if recorded.
    pub(crate) fn refusal(
        &self,
        criteria: &Criteria,
        predicates: &Predicates,
        request: &Request,
        object: Option<&Object>,
    ) -> Option<Refusal> {
        if !self.records {
            return None;
        }
        let (namespace, equivalents) = (&self.namespace, &self.equivalents);
        refusal::refusal(
            criteria,
            predicates,
            request,
            object,
            namespace,
            equivalents,
        )
    }

    /// The webhooks that may match.
    #[must_use]
    pub fn candidates(&self, snapshot: &Snapshot, request: &Request) -> Candidates {
        self.find(snapshot.index(), request)
    }

    /// The candidates of an index for the request.
    pub(crate) fn find(&self, index: &Index, request: &Request) -> Candidates {
        index.candidates(request.operation, &request.resource, &self.equivalents)
    }

    /// The verdicts for one webhook. `object` is the current object, after earlier webhooks.
    pub async fn decide(
        &mut self,
        hook: &CompiledHook,
        request: &Request,
        object: Option<&Object>,
    ) -> Predicates {
        self.decide_about(&hook.criteria, request, object).await
    }

    /// The verdicts for any owner of such criteria.
    pub(crate) async fn decide_about(
        &mut self,
        criteria: &Criteria,
        request: &Request,
        object: Option<&Object>,
    ) -> Predicates {
        loop {
            match self.criteria_from_cache(criteria, request, object) {
                Ok(predicates) => return predicates,
                Err(NamespaceMissing) => {
                    let fetched = self.host.namespaces.fetch(&request.namespace).await;
                    self.namespace = match fetched {
                        Ok(namespace) => NamespaceLookup::Known(namespace),
                        Err(error) => NamespaceLookup::Failed(error),
                    };
                }
            }
        }
    }

    /// The same, using only the cache. A verdict costs no allocation.
    ///
    /// # Errors
    ///
    /// Fails if the namespace is required and not in the cache.
    pub fn decide_from_cache(
        &mut self,
        hook: &CompiledHook,
        request: &Request,
        object: Option<&Object>,
    ) -> Result<Predicates, NamespaceMissing> {
        self.criteria_from_cache(&hook.criteria, request, object)
    }

    fn criteria_from_cache(
        &mut self,
        criteria: &Criteria,
        request: &Request,
        object: Option<&Object>,
    ) -> Result<Predicates, NamespaceMissing> {
        let labels = &criteria.namespace_selector;
        let namespaces = &*self.host.namespaces;
        let namespace =
            namespace_selector::verdict(labels, request, object, &mut self.namespace, namespaces)?;
        let mut predicates = Predicates {
            namespace,
            object: None,
            rule: None,
        };
        if namespace == NamespaceVerdict::Refused {
            return Ok(predicates);
        }
        let object = object_selector::verdict(&criteria.object_selector, request, object);
        predicates.object = Some(object);
        if object != ObjectVerdict::Refused {
            predicates.rule = Some(equivalence::verdict(criteria, request, &self.equivalents));
        }
        Ok(predicates)
    }

    /// The variables of match conditions for the request in one version.
    pub(crate) fn facts(
        &mut self,
        request: &Request,
        kind: &GroupVersionKind,
        resource: &GroupVersionResource,
    ) -> ConditionInputs {
        let host = self.host;
        let asking = self
            .asking
            .get_or_insert_with(|| conditions::asking(request, &host.authorizer));
        ConditionInputs::new(request, kind, resource, asking.clone()).recording(self.records)
    }

    /// The namespace, if it was looked up.
    pub(crate) fn namespace(&self) -> Option<&Arc<Namespace>> {
        match &self.namespace {
            NamespaceLookup::Known(namespace) => Some(namespace),
            NamespaceLookup::Unasked | NamespaceLookup::Failed(_) => None,
        }
    }

    /// The resource and kind of a target; `None` for an equivalent that the request does not have.
    pub(crate) fn resolve<'r>(
        &'r self,
        target: Target,
        request: &'r Request,
    ) -> Option<(&'r GroupVersionResource, &'r GroupVersionKind)> {
        match target {
            Target::Requested => Some((&request.resource, &request.kind)),
            Target::Equivalent(position) => {
                let equivalent = self.equivalents.get(position)?;
                Some((&equivalent.resource, equivalent.kind.as_ref()?))
            }
        }
    }

    /// The status of a request that fails because of these verdicts. The failure policy does not apply.
    pub(crate) fn failure(&self, hook: &CompiledHook, predicates: &Predicates) -> Status {
        self.failure_about(&hook.criteria, predicates)
    }

    /// The failure as text.
    pub(crate) fn failure_text(&self, criteria: &Criteria, predicates: &Predicates) -> String {
        let message = self.failure_about(criteria, predicates).message;
        match predicates.rule {
            Some(RuleVerdict::UnknownKind { .. }) => {
                let plain = message.strip_prefix("Internal error occurred: ");
                plain.unwrap_or(&message).to_owned()
            }
            _ => message,
        }
    }

    fn failure_about(&self, criteria: &Criteria, predicates: &Predicates) -> Status {
        if let Some(RuleVerdict::UnknownKind { equivalent, .. }) = predicates.rule
            && let Some(Equivalent { resource, .. }) = self.equivalents.get(equivalent)
        {
            return Status::internal_error(&format!(
                "unable to convert to {}/{}, Resource={}: unknown kind",
                resource.group, resource.version, resource.resource
            ));
        }
        if predicates.namespace == NamespaceVerdict::Error {
            return match (&criteria.namespace_selector, &self.namespace) {
                (Labels::Broken(why), _) => Status::internal_error(why),
                (_, NamespaceLookup::Failed(NamespaceError::NotFound(status))) => {
                    (**status).clone()
                }
                (_, NamespaceLookup::Failed(NamespaceError::Failed(why))) => {
                    Status::internal_error(why)
                }
                _ => Status::internal_error("namespace is unknown"),
            };
        }
        match &criteria.object_selector {
            Labels::Broken(why) => Status::internal_error(why),
            _ => Status::internal_error("object selector is unknown"),
        }
    }
}

#[cfg(test)]
mod tests;
