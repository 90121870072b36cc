//! Evaluates validating policies, and rejects with the first denial.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/validating/dispatcher.go

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockgate_api::meta::status::{Status, StatusCause};
use lockgate_api::registration::policy::PolicyKind;
use lockgate_go::json;
use serde::Serialize;

use super::evaluate::{Decided, Evaluated, evaluate};
use super::version::{VersionError, Versions};
use super::{Plugin, Run, misconfigured};
use crate::audit::Level;
use crate::conditions::ExpressionRole;
use crate::configuration::{
    Action, BoundPolicy, CompiledBinding, CompiledPolicy, FailurePolicy, Policies,
};
use crate::decision::{Cause, Decision};
use crate::host::{BoxFuture, Host};
use crate::matching::Target;
use crate::plugin::{self, Admission};
use crate::request::{Operation, Request};
use crate::status;
use crate::trace::{Enforcement, EvaluationTrace, PolicyOutcome, PolicyTrace};

/// The annotation for failed validations.
const FAILURE_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The maximum length of annotation values in bytes.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;

/// The plugin `ValidatingAdmissionPolicy`.
#[derive(Debug, Clone)]
pub struct ValidatingPolicies(Plugin);

impl ValidatingPolicies {
    /// Creates a plugin without policies.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self::with_policies(host, Arc::new(Policies::new(PolicyKind::Validating)))
    }

    /// The same, for externally managed policies.
    #[must_use]
    pub fn with_policies(host: Host, policies: Arc<Policies>) -> Self {
        Self(Plugin { host, policies })
    }

    async fn dispatch(&self, admission: &mut Admission) -> Decision {
        let run = match self.0.begin(admission).await {
            Ok(Some(run)) => run,
            Ok(None) => return Decision::Allow,
            Err(refused) => return refused,
        };
        let mut judge = Judge {
            run,
            versions: Versions::default(),
            denial: None,
        };
        let candidates = judge.run.candidates.clone();
        for position in candidates.iter() {
            let snapshot = Arc::clone(&judge.run.snapshot);
            let Some(bound) = snapshot.policies().get(position) else {
                continue;
            };
            let mut trace = PolicyTrace::new(&bound.policy);
            let judged = judge.policy(admission, bound, &mut trace).await;
            admission.running.policies.push(trace);
            if let Err(refused) = judged {
                return refused;
            }
        }
        admission.running.namespace = judge.run.matcher.namespace().cloned();
        match judge.denial {
            None => Decision::Allow,
            Some(denial) => {
                let status = denial.status(&admission.request);
                Decision::deny(status, Cause::Policy)
            }
        }
    }
}

impl plugin::Plugin for ValidatingPolicies {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, _: Operation) -> bool {
        true
    }

    fn validates(&self) -> bool {
        true
    }

    fn validate<'f>(&'f self, admission: &'f mut Admission) -> BoxFuture<'f, Decision> {
        Box::pin(self.dispatch(admission))
    }
}

/// The first denial of a request. All policies are evaluated nevertheless.
struct Denial {
    policy: Arc<CompiledPolicy>,
    binding: Option<CompiledBinding>,
    message: String,
    reason: Option<Box<str>>,
}

impl Denial {
    fn status(&self, request: &Request) -> Status {
        let policy = self.policy.name();
        let message = match &self.binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{}' denied request: {}",
                binding.name(),
                self.message
            ),
            None => format!(
                "ValidatingAdmissionPolicy '{policy}' denied request: {}",
                self.message
            ),
        };
        let mut status = status::forbidden_request(request, &message);
        let reason = self.reason.as_deref().unwrap_or("Invalid");
        status.code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        status.reason = reason.to_owned();
        let details = status.details.get_or_insert_default();
        details.causes.get_or_insert_default().push(StatusCause {
            message,
            ..StatusCause::default()
        });
        status
    }
}

struct Judge<'j> {
    run: Run<'j>,
    versions: Versions,
    denial: Option<Denial>,
}

/// The audit annotation of a failed validation.
#[derive(Serialize)]
struct FailureAnnotation<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    #[serde(rename = "expressionIndex")]
    expression_index: usize,
    #[serde(rename = "validationActions")]
    validation_actions: Vec<&'static str>,
}

/// The audit annotations of one policy by index, each value once.
type Collected = Vec<(usize, Vec<String>)>;

impl Judge<'_> {
    fn deny(
        &mut self,
        policy: &Arc<CompiledPolicy>,
        binding: Option<&CompiledBinding>,
        message: String,
        reason: Option<Box<str>>,
    ) {
        self.denial.get_or_insert_with(|| Denial {
            policy: Arc::clone(policy),
            binding: binding.cloned(),
            message,
            reason,
        });
    }

    /// Records that a policy cannot be evaluated, independent of the actions of its bindings.
    fn fail(
        &mut self,
        policy: &Arc<CompiledPolicy>,
        binding: Option<&CompiledBinding>,
        why: &str,
    ) -> String {
        let message = misconfigured(binding, why);
        if policy.failure_policy() == FailurePolicy::Fail {
            self.deny(policy, binding, message.clone(), None);
        }
        message
    }

    async fn policy(
        &mut self,
        admission: &mut Admission,
        bound: &BoundPolicy,
        trace: &mut PolicyTrace,
    ) -> Result<(), Decision> {
        let policy = &bound.policy;
        let target = match self.run.select(policy, &admission.request, trace).await {
            Ok(Some(target)) => target,
            Ok(None) => return Ok(()),
            Err(why) => {
                trace.failure = Some(self.fail(policy, None, &why));
                return Ok(());
            }
        };
        let mut collected = Collected::new();
        // Bindings with the same parameters have the same result.
        let mut known: HashMap<Option<usize>, Arc<Evaluated>> = HashMap::new();
        for binding in bound.bindings.iter() {
            let selected = self.run.select_binding(binding, &admission.request).await;
            let (mut told, applies) = selected;
            if applies != Ok(true) {
                if let Err(why) = applies {
                    told.failure = Some(self.fail(policy, Some(binding), &why));
                }
                trace.bindings.push(told);
                continue;
            }
            let namespace = &admission.request.namespace;
            let params = self.run.params.collect(policy, binding, namespace).await;
            let params = match params {
                Ok(params) => params,
                Err(why) => {
                    told.failure = Some(self.fail(policy, Some(binding), &why.to_string()));
                    trace.bindings.push(told);
                    continue;
                }
            };
            let at = if params.is_empty() {
                None
            } else {
                match self.version(&admission.request, target).await {
                    Ok(at) => Some(at),
                    Err(why) => {
                        let why = format!("failed to convert object version: {why}");
                        told.failure = Some(self.fail(policy, Some(binding), &why));
                        trace.bindings.push(told);
                        continue;
                    }
                }
            };
            let looks = policy.looks_at_namespace;
            let namespace = self.run.namespace(&admission.request, looks).await?;
            for param in params {
                let Some(version) = at.and_then(|at| self.versions.at(at)) else {
                    break;
                };
                // The lookup keeps them alive, so an address identifies a parameter.
                let key = param.as_ref().map(|param| Arc::as_ptr(param) as usize);
                let evaluated = known.entry(key).or_insert_with(|| {
                    let started = self.run.host.clock.now();
                    let values = param.as_ref().map(|param| param.object.value());
                    let mut evaluated = evaluate(policy, version, namespace.as_deref(), values);
                    let now = self.run.host.clock.now();
                    evaluated.elapsed = now.saturating_duration_since(started);
                    if let Some(conditions) = &mut evaluated.conditions {
                        conditions.elapsed = evaluated.elapsed;
                    }
                    Arc::new(evaluated)
                });
                let evaluated = Arc::clone(evaluated);
                let param = param.as_deref();
                let told_of = self.enforce(admission, policy, binding, &evaluated, &mut collected);
                told.evaluations.push(EvaluationTrace {
                    param: param.map(|param| (param.namespace.clone(), param.name.clone())),
                    conditions: evaluated.conditions.clone(),
                    not_reinvoked: false,
                    outcomes: told_of,
                    expressions: evaluated.expressions.clone(),
                    change: None,
                });
            }
            trace.bindings.push(told);
        }
        for (index, values) in collected {
            if let Some(annotation) = policy.annotations.get(index) {
                let key = format!("{}/{}", policy.name(), annotation.key);
                admission.annotate(key, values.join(", "), Level::Metadata);
            }
        }
        Ok(())
    }

    async fn version(&mut self, request: &Request, target: Target) -> Result<usize, VersionError> {
        let kinds = &*self.run.host.kinds;
        self.versions
            .get(kinds, &mut self.run.matcher, request, target)
            .await
    }

    /// Performs the validation actions of a binding.
    fn enforce(
        &mut self,
        admission: &mut Admission,
        policy: &Arc<CompiledPolicy>,
        binding: &CompiledBinding,
        evaluated: &Evaluated,
        collected: &mut Collected,
    ) -> Vec<PolicyOutcome> {
        let elapsed = evaluated.elapsed;
        let mut outcomes = Vec::new();
        for decided in &evaluated.decisions {
            if decided.is_error && policy.failure_policy() == FailurePolicy::Ignore {
                outcomes.push(policy_outcome(decided, Enforcement::Allow, elapsed));
                continue;
            }
            for action in binding.actions() {
                let enforcement = match action {
                    Action::Deny => {
                        let reason = decided.reason.clone();
                        self.deny(policy, Some(binding), decided.message.clone(), reason);
                        Enforcement::Deny
                    }
                    Action::Warn => {
                        admission.warn(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.name(),
                            binding.name(),
                            decided.message
                        ));
                        Enforcement::Warn
                    }
                    Action::Audit => {
                        let value = json::to_string(&[FailureAnnotation {
                            message: &decided.message,
                            policy: binding.policy(),
                            binding: binding.name(),
                            expression_index: decided.index,
                            validation_actions: binding.actions().map(Action::name).collect(),
                        }]);
                        admission.annotate(FAILURE_KEY, value, Level::Metadata);
                        Enforcement::Audit
                    }
                };
                outcomes.push(policy_outcome(decided, enforcement, elapsed));
            }
        }
        for annotated in &evaluated.annotations {
            match &annotated.value {
                Ok(None) => {}
                Ok(Some(value)) => collect(collected, annotated.index, cut(value)),
                Err(_) if policy.failure_policy() == FailurePolicy::Ignore => {}
                Err(error) => {
                    self.deny(policy, Some(binding), error.to_string(), None);
                    outcomes.push(PolicyOutcome {
                        role: ExpressionRole::AuditAnnotation,
                        index: annotated.index,
                        error: Some(error.to_string()),
                        enforcement: Enforcement::Deny,
                        elapsed,
                    });
                }
            }
        }
        outcomes
    }
}

fn policy_outcome(decided: &Decided, enforcement: Enforcement, elapsed: Duration) -> PolicyOutcome {
    PolicyOutcome {
        role: ExpressionRole::Validation,
        index: decided.index,
        error: Some(decided.message.clone()),
        enforcement,
        elapsed,
    }
}

fn collect(collected: &mut Collected, index: usize, value: &str) {
    let at = collected.iter().position(|(known, _)| *known == index);
    let Some((_, values)) = at.and_then(|at| collected.get_mut(at)) else {
        collected.push((index, vec![value.to_owned()]));
        return;
    };
    if !values.iter().any(|known| known == value) {
        values.push(value.to_owned());
    }
}

/// Truncates at a character boundary; upstream may cut within a character.
fn cut(value: &str) -> &str {
    let mut end = MAX_ANNOTATION_BYTES.min(value.len());
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value.get(..end).unwrap_or(value)
}
