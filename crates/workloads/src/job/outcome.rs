//! The outcome of a Job: whether it continues, succeeded or failed, and why.
//!
//! UPSTREAM: kubernetes pkg/controller/job/job_controller.go (syncJob), pod_failure_policy.go

use std::sync::Arc;

use serde_json::Value;

use crate::object::{Object, count, is_condition_true, list, number, text, time};
use crate::pod;

/// The outcome of a Job so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Continues {
        /// The seconds until its deadline.
        deadline: Option<i64>,
    },
    Ends {
        /// The condition set immediately, and the condition set when all Pods have terminated.
        met: &'static str,
        ends: &'static str,
        reason: &'static str,
        message: String,
    },
}

fn failed(reason: &'static str, message: String) -> Outcome {
    Outcome::Ends {
        met: "FailureTarget",
        ends: "Failed",
        reason,
        message,
    }
}

/// The number of counted Pods of a kind, including uids that are still to be counted.
fn total(status: &Value, member: &str) -> i64 {
    let uncounted = list(status, &format!("/uncountedTerminatedPods/{member}")).count();
    count(status, &format!("/{member}")) + i64::try_from(uncounted).unwrap_or(i64::MAX)
}

pub(super) fn succeeded(status: &Value) -> i64 {
    total(status, "succeeded")
}

/// Determines the outcome of a Job.
pub(super) fn of(job: &Value, status: &Value, pods: &[Arc<Object>], now: i64) -> Outcome {
    // An outcome is final.
    for (met, ends) in [
        ("FailureTarget", "Failed"),
        ("SuccessCriteriaMet", "Complete"),
    ] {
        if is_condition_true(job, met)
            && let Some(condition) = crate::object::condition(job, met)
        {
            return Outcome::Ends {
                met,
                ends,
                reason: known_reason(text(condition, "/reason")),
                message: text(condition, "/message").to_owned(),
            };
        }
    }
    if let Some(message) = pods.iter().find_map(|pod| fails_job(job, pod)) {
        return failed("PodFailurePolicy", message);
    }
    let limit = number(job, "/spec/backoffLimit").unwrap_or(6);
    let message = "Job has reached the specified backoff limit";
    if total(status, "failed") > limit || is_past_restarts(job, pods, limit) {
        return failed("BackoffLimitExceeded", message.to_owned());
    }
    let done = succeeded(status);
    let runs = pods.iter().any(|pod| pod::is_active(pod));
    let is_complete = match number(job, "/spec/completions") {
        Some(completions) => done >= completions,
        None => done > 0 && !runs,
    };
    if is_complete && !crate::object::flag(job, "/spec/suspend") {
        return Outcome::Ends {
            met: "SuccessCriteriaMet",
            ends: "Complete",
            reason: "CompletionsReached",
            message: String::from("Reached expected number of succeeded pods"),
        };
    }
    let deadline = number(job, "/spec/activeDeadlineSeconds")
        .filter(|_| !crate::object::flag(job, "/spec/suspend"))
        .zip(time(status, "/startTime"))
        .map(|(seconds, start)| start + seconds - now);
    if deadline.is_some_and(|left| left <= 0) {
        let message = "Job was active longer than specified deadline";
        return failed("DeadlineExceeded", message.to_owned());
    }
    Outcome::Continues { deadline }
}

fn known_reason(reason: &str) -> &'static str {
    [
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "PodFailurePolicy",
        "CompletionsReached",
    ]
    .into_iter()
    .find(|known| *known == reason)
    .unwrap_or("CompletionsReached")
}

/// Container restarts within Pods count as failures.
fn is_past_restarts(job: &Value, pods: &[Arc<Object>], limit: i64) -> bool {
    if text(job, "/spec/template/spec/restartPolicy") != "OnFailure" {
        return false;
    }
    let statuses = pods.iter().flat_map(|pod| {
        let init = list(pod, "/status/initContainerStatuses");
        init.chain(list(pod, "/status/containerStatuses"))
    });
    let restarts: i64 = statuses.map(|status| count(status, "/restartCount")).sum();
    if limit == 0 {
        restarts > 0
    } else {
        restarts >= limit
    }
}

/// The rule of the Pod failure policy that matches a failed Pod, with its index.
fn rule<'j>(job: &'j Value, pod: &Value) -> Option<(usize, &'j Value)> {
    if pod::phase(pod) != "Failed" {
        return None;
    }
    let mut rules = list(job, "/spec/podFailurePolicy/rules").enumerate();
    rules.find(|(_, rule)| {
        let by_code = rule
            .get("onExitCodes")
            .is_some_and(|codes| exit_code(codes, pod).is_some());
        let mut conditions = list(rule, "/onPodConditions");
        by_code
            || conditions.any(|wanted| {
                let found = crate::object::condition(pod, text(wanted, "/type"));
                let status = match text(wanted, "/status") {
                    "" => "True",
                    status => status,
                };
                found.is_some_and(|found| text(found, "/status") == status)
            })
    })
}

/// The container and exit code that matched a rule.
fn exit_code<'p>(rule: &Value, pod: &'p Value) -> Option<(&'p str, i64)> {
    let name = text(rule, "/containerName");
    let statuses = list(pod, "/status/containerStatuses");
    let ended = statuses.filter_map(|status| {
        let code = number(status, "/state/terminated/exitCode")?;
        Some((text(status, "/name"), code))
    });
    let mut ended = ended.filter(|(of, code)| *code != 0 && (name.is_empty() || *of == name));
    ended.find(|(_, code)| {
        let mut values = list(rule, "/values").filter_map(Value::as_i64);
        let listed = values.any(|value| value == *code);
        listed == (text(rule, "/operator") == "In")
    })
}

/// The message about a Pod whose failure makes the Job fail.
fn fails_job(job: &Value, pod: &Object) -> Option<String> {
    let (number, rule) = rule(job, pod)?;
    if text(rule, "/action") != "FailJob" {
        return None;
    }
    let found = rule
        .get("onExitCodes")
        .and_then(|codes| exit_code(codes, pod));
    let (namespace, name) = (pod.namespace(), pod.name());
    Some(match found {
        Some((container, code)) => format!(
            "Container {container} for pod {namespace}/{name} failed with exit code {code} matching FailJob rule at index {number}"
        ),
        None => {
            format!("Pod {namespace}/{name} has condition matching FailJob rule at index {number}")
        }
    })
}

/// Returns true if the Pod failure policy ignores the failure.
pub(super) fn is_ignored(job: &Value, pod: &Value) -> bool {
    rule(job, pod).is_some_and(|(_, rule)| text(rule, "/action") == "Ignore")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Kind;

    fn ends(outcome: &Outcome) -> Option<(&'static str, &'static str)> {
        match outcome {
            Outcome::Ends { ends, reason, .. } => Some((*ends, *reason)),
            Outcome::Continues { .. } => None,
        }
    }

    fn pod(value: Value) -> Arc<Object> {
        Arc::new(Object {
            kind: Kind::Pod,
            key: "/core/pods/n/p".into(),
            created: 1,
            value,
        })
    }

    #[test]
    fn a_job_is_complete_with_its_completions() {
        let job = json!({"spec": {"completions": 2}});
        let decided = |status: Value| ends(&of(&job, &status, &[], 0));
        assert_eq!(decided(json!({"succeeded": 1})), None);
        let uncounted = json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["u"]}});
        assert_eq!(decided(uncounted), Some(("Complete", "CompletionsReached")));
    }

    #[test]
    fn a_job_fails_beyond_its_limits() {
        let job =
            json!({"spec": {"completions": 1, "backoffLimit": 1, "activeDeadlineSeconds": 10}});
        let decided = |status: Value, now| ends(&of(&job, &status, &[], now));
        assert_eq!(decided(json!({"failed": 1}), 0), None);
        assert_eq!(
            decided(json!({"failed": 2}), 0),
            Some(("Failed", "BackoffLimitExceeded"))
        );
        let started = json!({"startTime": "1970-01-01T00:00:05Z"});
        let continues = of(&job, &started, &[], 10);
        assert_eq!(continues, Outcome::Continues { deadline: Some(5) });
        assert_eq!(decided(started, 15), Some(("Failed", "DeadlineExceeded")));
        let restarting = json!({"spec": {"backoffLimit": 2, "template": {"spec": {"restartPolicy": "OnFailure"}}}});
        let restarted = |count: i64| {
            let pod = pod(
                json!({"status": {"phase": "Running", "containerStatuses": [{"restartCount": count}]}}),
            );
            ends(&of(&restarting, &json!({}), &[pod], 0))
        };
        assert_eq!(restarted(1), None);
        assert_eq!(restarted(2), Some(("Failed", "BackoffLimitExceeded")));
    }

    #[test]
    fn the_failure_policy_decides_about_a_pod() {
        let job = json!({"spec": {"backoffLimit": 6, "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        ]}}});
        let failed = |code: i64, conditions: Value| {
            pod(
                json!({"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Failed",
                "conditions": conditions,
                "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}]}}),
            )
        };
        let disrupted = failed(1, json!([{"type": "DisruptionTarget", "status": "True"}]));
        assert!(is_ignored(&job, &disrupted));
        assert!(!is_ignored(&job, &failed(1, json!([]))));
        let outcome = of(&job, &json!({}), &[failed(42, json!([]))], 0);
        assert_eq!(ends(&outcome), Some(("Failed", "PodFailurePolicy")));
        assert_eq!(
            ends(&of(&job, &json!({}), &[failed(1, json!([]))], 0)),
            None
        );
    }

    #[test]
    fn a_decision_stays() {
        let job = json!({
            "spec": {"completions": 1, "backoffLimit": 0},
            "status": {"conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached"}]},
        });
        let outcome = of(&job, &json!({"failed": 9}), &[], 0);
        assert_eq!(ends(&outcome), Some(("Complete", "CompletionsReached")));
    }
}
