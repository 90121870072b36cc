//! The metrics of admission, counted from traces.
//!
//! Names, labels and buckets are those of kube-apiserver v1.36. One more counter has the name that the enhancement
//! proposal of match conditions first specified.
//!
//! UPSTREAM: apiserver pkg/admission/metrics/metrics.go

pub mod family;
mod summary;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use family::{Family, Histogram};
use foldhash::fast::RandomState;
use summary::Summary;

use lockgate_api::registration::policy::PolicyKind;

use crate::configuration::FailurePolicy;
use crate::matching::ConditionsVerdict;
use crate::request::Operation;
use crate::trace::{
    CallOutcome, CallTrace, EvaluationTrace, HookTrace, LegacyCertificate, PolicyTrace, Step,
    StepTrace,
};

/// Codes above this are reported as this, so that webhooks cannot create arbitrary series.
const MAX_CODE: i32 = 600;

const STEP_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const WEBHOOK_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const POLICY_BUCKETS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];
const CONDITION_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// All metrics of one engine.
#[derive(Debug)]
pub struct Metrics(Mutex<Families>);

#[derive(Debug)]
struct Families {
    step: Family<Histogram>,
    step_summary: Family<Summary>,
    controller: Family<Histogram>,
    /// The series of plugins that allowed the request, in the order of the last run: the next run has the same.
    allowed: HashMap<(Step, Operation), Vec<(&'static str, usize)>, RandomState>,
    webhook: Family<Histogram>,
    rejection: Family<u64>,
    fail_open: Family<u64>,
    request: Family<u64>,
    condition_errors: Family<u64>,
    condition_exclusions: Family<u64>,
    condition_seconds: Family<Histogram>,
    early_condition_exclusions: Family<u64>,
    validating_policy: Family<u64>,
    validating_policy_seconds: Family<Histogram>,
    mutating_policy: Family<u64>,
    mutating_policy_seconds: Family<Histogram>,
    missing_san: Family<u64>,
    insecure_sha1: Family<u64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates it with all counts at zero.
    #[must_use]
    pub fn new() -> Self {
        let condition_labels = &["kind", "name", "operation", "type"];
        Self(Mutex::new(Families {
            step: Family::new(
                "apiserver_admission_step_admission_duration_seconds",
                "[STABLE] Latency of admission steps in seconds, by step and operation.",
                &["operation", "rejected", "type"],
            ),
            step_summary: Family::new(
                "apiserver_admission_step_admission_duration_seconds_summary",
                "[ALPHA] Quantiles of the latency of admission steps in seconds, by step and operation.",
                &["operation", "rejected", "type"],
            ),
            controller: Family::new(
                "apiserver_admission_controller_admission_duration_seconds",
                "[STABLE] Latency of admission plugins in seconds, by plugin, step and operation.",
                &["name", "operation", "rejected", "type"],
            ),
            allowed: HashMap::default(),
            webhook: Family::new(
                "apiserver_admission_webhook_admission_duration_seconds",
                "[STABLE] Latency of webhooks in seconds, by webhook, step and operation.",
                &["name", "operation", "rejected", "type"],
            ),
            rejection: Family::new(
                "apiserver_admission_webhook_rejection_count",
                "[ALPHA] Requests rejected because of a webhook, by webhook, type of error and code; codes \
                 above 600 count as 600.",
                &["error_type", "name", "operation", "rejection_code", "type"],
            ),
            fail_open: Family::new(
                "apiserver_admission_webhook_fail_open_count",
                "[ALPHA] Failed webhook calls that were ignored, by webhook and step.",
                &["name", "type"],
            ),
            request: Family::new(
                "apiserver_admission_webhook_request_total",
                "[ALPHA] Webhook calls, by webhook, step, operation and code; codes above 600 count as \
                 600.",
                &["code", "name", "operation", "rejected", "type"],
            ),
            condition_errors: Family::new(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "[ALPHA] Evaluation errors of match conditions, by resource.",
                condition_labels,
            ),
            condition_exclusions: Family::new(
                "apiserver_admission_match_condition_exclusions_total",
                "[ALPHA] Requests excluded by match conditions, by resource.",
                condition_labels,
            ),
            condition_seconds: Family::new(
                "apiserver_admission_match_condition_evaluation_seconds",
                "[ALPHA] Evaluation time of match conditions in seconds.",
                condition_labels,
            ),
            early_condition_exclusions: Family::new(
                "webhook_admission_match_condition_exclusions_total",
                "[ALPHA] Requests excluded from a webhook by match conditions.",
                &["name", "operation", "type"],
            ),
            // UPSTREAM: apiserver pkg/admission/plugin/policy/{validating,mutating}/metrics/metrics.go
            validating_policy: Family::new(
                "apiserver_validating_admission_policy_check_total",
                "[BETA] Validations of policies that did not simply hold, by policy, binding, kind of \
                 error and what was done.",
                &[
                    "enforcement_action",
                    "error_type",
                    "policy",
                    "policy_binding",
                ],
            ),
            validating_policy_seconds: Family::new(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "[BETA] Latency of policy validations with an outcome other than success, in seconds.",
                &[
                    "enforcement_action",
                    "error_type",
                    "policy",
                    "policy_binding",
                ],
            ),
            mutating_policy: Family::new(
                "apiserver_mutating_admission_policy_check_total",
                "[ALPHA] Mutations by policies, by policy, binding and kind of error.",
                &["error_type", "policy", "policy_binding"],
            ),
            mutating_policy_seconds: Family::new(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "[ALPHA] Latency of policy mutations in seconds.",
                &["error_type", "policy", "policy_binding"],
            ),
            // UPSTREAM: apiserver pkg/util/webhook/metrics.go
            missing_san: Family::counter(
                "apiserver_webhooks_x509_missing_san_total",
                "[ALPHA] Webhook calls that failed because the certificate has no SAN extension.",
            ),
            insecure_sha1: Family::counter(
                "apiserver_webhooks_x509_insecure_sha1_total",
                "[ALPHA] Webhook calls that failed because the certificate is signed with SHA-1.",
            ),
        }))
    }

    /// Counts the results of one step. `now` is its end.
    pub fn record(&self, step: &StepTrace, now: Instant) {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        families.record(step, now);
    }

    /// All metrics in the Prometheus text format.
    #[must_use]
    pub fn render(&self, now: Instant) -> String {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        families.step.render(&mut out);
        families.step_summary.render(&mut out, now);
        families.controller.render(&mut out);
        families.webhook.render(&mut out);
        families.condition_seconds.render(&mut out);
        families.validating_policy_seconds.render(&mut out);
        families.mutating_policy_seconds.render(&mut out);
        for counter in [
            &families.rejection,
            &families.fail_open,
            &families.request,
            &families.condition_errors,
            &families.condition_exclusions,
            &families.early_condition_exclusions,
            &families.validating_policy,
            &families.mutating_policy,
            &families.insecure_sha1,
            &families.missing_san,
        ] {
            counter.render(&mut out);
        }
        out
    }
}

impl Families {
    fn record(&mut self, step: &StepTrace, now: Instant) {
        let operation = step.operation.name();
        let kind = step.step.name();
        let labels = &[operation, bool_label(step.denied.is_some()), kind];
        let seconds = step.elapsed.as_secs_f64();
        self.step.observe(labels, seconds, STEP_BUCKETS);
        self.step_summary.observe(labels, seconds, now);
        let mut allowed =
            std::mem::take(self.allowed.entry((step.step, step.operation)).or_default());
        for (index, plugin) in step.plugins.iter().enumerate() {
            let seconds = plugin.elapsed.as_secs_f64();
            let known = allowed.get(index).filter(|known| known.0 == plugin.name);
            if let (Some((_, at)), false) = (known, plugin.denied) {
                self.controller.observe_at(*at, seconds);
            } else {
                let labels = &[plugin.name, operation, bool_label(plugin.denied), kind];
                let at = self.controller.observe(labels, seconds, STEP_BUCKETS);
                if let (Some(at), false) = (at, plugin.denied) {
                    allowed.truncate(index);
                    if allowed.len() == index {
                        allowed.push((plugin.name, at));
                    }
                }
            }
            for hook in &plugin.hooks {
                self.record_conditions(step.step, operation, hook);
                if let Some(call) = &hook.call {
                    self.record_call(step.step, step.operation, hook, call);
                }
            }
            for policy in &plugin.policies {
                self.record_policy(operation, policy);
            }
        }
        self.allowed.insert((step.step, step.operation), allowed);
    }

    fn record_conditions(&mut self, step: Step, operation: &str, hook: &HookTrace) {
        let Some(conditions) = &hook.conditions else {
            return;
        };
        // UPSTREAM: the two counters of match conditions use different labels for validation.
        let name = hook.hook.name();
        let labels = &["webhook", name, operation, step.webhook_name()];
        for _ in 0..conditions.errors {
            self.condition_errors.count(labels);
        }
        if conditions.verdict != ConditionsVerdict::Matched {
            let seconds = conditions.elapsed.as_secs_f64();
            self.condition_seconds
                .observe(labels, seconds, CONDITION_BUCKETS);
        }
        let excluded = matches!(
            conditions.verdict,
            ConditionsVerdict::Excluded { .. } | ConditionsVerdict::Ignored { .. }
        );
        if excluded {
            self.condition_exclusions
                .count(&["webhook", name, operation, step.name()]);
            self.early_condition_exclusions
                .count(&[name, operation, step.name()]);
        }
    }

    fn record_policy(&mut self, operation: &str, trace: &PolicyTrace) {
        let policy = trace.policy.name();
        for told in &trace.bindings {
            let binding = told.binding.name();
            for evaluation in &told.evaluations {
                self.record_policy_conditions(operation, policy, evaluation);
                for outcome in &evaluation.outcomes {
                    let error_type = error_type(outcome.error.as_deref());
                    let seconds = outcome.elapsed.as_secs_f64();
                    match trace.policy.kind() {
                        PolicyKind::Validating => {
                            let action = outcome.enforcement.name();
                            let labels = &[action, error_type, policy, binding];
                            self.validating_policy.count(labels);
                            self.validating_policy_seconds
                                .observe(labels, seconds, POLICY_BUCKETS);
                        }
                        PolicyKind::Mutating => {
                            let labels = &[error_type, policy, binding];
                            self.mutating_policy.count(labels);
                            self.mutating_policy_seconds
                                .observe(labels, seconds, POLICY_BUCKETS);
                        }
                    }
                }
            }
        }
    }

    /// Conditions of mutating policies are counted like those of validating ones.
    fn record_policy_conditions(
        &mut self,
        operation: &str,
        policy: &str,
        evaluation: &EvaluationTrace,
    ) {
        let Some(conditions) = &evaluation.conditions else {
            return;
        };
        let labels = &["policy", policy, operation, "validate"];
        for _ in 0..conditions.errors {
            self.condition_errors.count(labels);
        }
        if conditions.verdict != ConditionsVerdict::Matched {
            let seconds = conditions.elapsed.as_secs_f64();
            self.condition_seconds
                .observe(labels, seconds, CONDITION_BUCKETS);
        }
    }

    fn record_call(
        &mut self,
        step: Step,
        operation: Operation,
        hook: &HookTrace,
        call: &CallTrace,
    ) {
        let (name, kind) = (hook.hook.name(), step.webhook_name());
        let operation = operation.name();
        let policy = hook.hook.failure_policy();
        if call.failed_open(policy) {
            self.fail_open.count(&[name, kind]);
        }
        let (error_type, code) = match &call.outcome {
            CallOutcome::Allowed => (None, 200),
            CallOutcome::Denied(status) => (Some("no_error"), status.code),
            CallOutcome::Refused(_) => (Some("apiserver_internal_error"), 0),
            CallOutcome::Failed { code, .. } => {
                let rejected = policy == FailurePolicy::Fail;
                (rejected.then_some("calling_webhook_error"), *code)
            }
            // UPSTREAM: a client's disconnect does not count as a failure of the webhook.
            CallOutcome::Canceled => {
                let rejected = policy == FailurePolicy::Fail;
                return self.count_call(name, operation, kind, 503, rejected, call);
            }
            // A panic unwinds past the place where calls are counted.
            CallOutcome::Panicked { .. } => return,
        };
        match call.outcome.legacy_certificate() {
            Some(LegacyCertificate::MissingSan) => self.missing_san.count(&[]),
            Some(LegacyCertificate::InsecureSha1) => self.insecure_sha1.count(&[]),
            None => {}
        }
        if let Some(error_type) = error_type {
            let code = shown(code);
            self.rejection
                .count(&[error_type, name, operation, &code, kind]);
        }
        self.count_call(name, operation, kind, code, error_type.is_some(), call);
    }

    fn count_call(
        &mut self,
        name: &str,
        operation: &str,
        kind: &str,
        code: i32,
        rejected: bool,
        call: &CallTrace,
    ) {
        let rejected = bool_label(rejected);
        self.request
            .count(&[&shown(code), name, operation, rejected, kind]);
        let seconds = call.elapsed.as_secs_f64();
        self.webhook
            .observe(&[name, operation, rejected, kind], seconds, WEBHOOK_BUCKETS);
    }
}

/// The type of an error, derived from its message.
fn error_type(error: Option<&str>) -> &'static str {
    match error {
        None => "no_error",
        Some(text) if text.starts_with("compilation") => "compile_error",
        Some(text) if text.starts_with("validation failed due to running out of cost budget") => {
            "out_of_budget"
        }
        Some(_) => "invalid_error",
    }
}

fn shown(code: i32) -> String {
    code.min(MAX_CODE).to_string()
}

fn bool_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
