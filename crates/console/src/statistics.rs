//! Statistics of webhooks and policies: calls, rejections, failures, latency.

use std::collections::BTreeMap;
use std::time::Duration;

use lockgate_admission::configuration::FailurePolicy;
use lockgate_admission::trace::{CallOutcome, Enforcement, Step, Trace};
use serde_json::{Value, json};

/// The maximum number of counted webhooks and policies; later ones are not counted.
const MAX_SUBJECTS: usize = 4_096;
/// Latency buckets: the first ends at 50 µs, each further one at twice the previous bound.
const BUCKETS: usize = 24;
const FIRST_BUCKET: f64 = 0.05;
/// The number of latest outcomes that determine the health.
const RECENT: u32 = 32;

/// A webhook or a policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Webhook {
        step: Step,
        configuration: String,
        name: String,
    },
    Policy {
        kind: &'static str,
        name: String,
    },
}

/// All counts.
#[derive(Debug, Default)]
pub(crate) struct Statistics(BTreeMap<Subject, Counts>);

/// The counts of one webhook or policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    calls: u64,
    denied: u64,
    failed: u64,
    changed: u64,
    skipped: u64,
    buckets: [u64; BUCKETS],
    total: Duration,
    /// One bit for each recent outcome; set for failures.
    recent: u32,
    recorded: u32,
    last_failure: Option<String>,
    last_time: u64,
}

impl Statistics {
    /// Adds the results of one request. `time` is in milliseconds since 1970.
    pub(crate) fn add(&mut self, trace: &Trace, time: u64) {
        for (step, plugin) in trace.plugins() {
            for hook in &plugin.hooks {
                let subject = Subject::Webhook {
                    step,
                    configuration: hook.hook.configuration().to_owned(),
                    name: hook.hook.name().to_owned(),
                };
                let Some(counts) = self.counts(subject) else {
                    continue;
                };
                let Some(call) = &hook.call else {
                    counts.skipped += 1;
                    continue;
                };
                let failure = match &call.outcome {
                    CallOutcome::Failed { reason, .. } => Some(reason.clone()),
                    CallOutcome::Panicked { message } => Some(message.clone()),
                    CallOutcome::Refused(status) => Some(status.message.clone()),
                    _ => None,
                };
                counts.add(call.elapsed, failure, time);
                counts.denied += u64::from(matches!(call.outcome, CallOutcome::Denied(_)));
                let patch = call.patch.as_ref();
                counts.changed += u64::from(patch.is_some_and(|patch| patch.changed));
            }
            for trace in &plugin.policies {
                let subject = Subject::Policy {
                    kind: trace.policy.kind().name(),
                    name: trace.policy.name().to_owned(),
                };
                let Some(counts) = self.counts(subject) else {
                    continue;
                };
                let evaluations = trace
                    .bindings
                    .iter()
                    .flat_map(|binding| &binding.evaluations);
                let mut is_evaluated = false;
                for evaluation in evaluations {
                    is_evaluated = true;
                    let outcomes = &evaluation.outcomes;
                    let elapsed = outcomes.iter().map(|outcome| outcome.elapsed).max();
                    let conditions = evaluation.conditions.as_ref();
                    let conditions = conditions.map_or(Duration::ZERO, |one| one.elapsed);
                    counts.add(elapsed.unwrap_or_default() + conditions, None, time);
                    let denies = |enforcement| enforcement == Enforcement::Deny;
                    let mut enforced = outcomes.iter().map(|outcome| outcome.enforcement);
                    counts.denied += u64::from(enforced.any(denies));
                    counts.changed += u64::from(evaluation.change.is_some());
                }
                let bindings = trace.bindings.iter().map(|binding| &binding.failure);
                let failures = bindings.chain([&trace.failure]).flatten();
                for failure in failures {
                    is_evaluated = true;
                    counts.add(Duration::ZERO, Some(failure.clone()), time);
                    let denies = trace.policy.failure_policy() == FailurePolicy::Fail;
                    counts.denied += u64::from(denies);
                }
                counts.skipped += u64::from(!is_evaluated);
            }
        }
    }

    fn counts(&mut self, subject: Subject) -> Option<&mut Counts> {
        if self.0.len() >= MAX_SUBJECTS && !self.0.contains_key(&subject) {
            return None;
        }
        Some(self.0.entry(subject).or_default())
    }

    /// The counts of a webhook or policy as JSON.
    pub(crate) fn of(&self, subject: &Subject) -> Value {
        self.0
            .get(subject)
            .map_or_else(|| Counts::default().to_value(), Counts::to_value)
    }
}

impl Counts {
    fn add(&mut self, elapsed: Duration, failure: Option<String>, time: u64) {
        self.calls += 1;
        self.total = self.total.saturating_add(elapsed);
        let mut end = FIRST_BUCKET;
        let milliseconds = elapsed.as_secs_f64() * 1e3;
        let bucket = (0..BUCKETS - 1).find(|_| {
            let is_within = milliseconds <= end;
            end *= 2.0;
            is_within
        });
        if let Some(count) = self.buckets.get_mut(bucket.unwrap_or(BUCKETS - 1)) {
            *count += 1;
        }
        self.recent = self.recent << 1 | u32::from(failure.is_some());
        self.recorded = (self.recorded + 1).min(RECENT);
        self.failed += u64::from(failure.is_some());
        self.last_failure = failure.or_else(|| self.last_failure.take());
        self.last_time = time;
    }

    /// The upper bound of the bucket that contains the quantile.
    fn quantile(&self, part: f64) -> Option<f64> {
        if self.calls == 0 {
            return None;
        }
        let wanted = (self.calls as f64 * part).ceil() as u64;
        let mut seen = 0;
        let mut end = FIRST_BUCKET;
        for count in self.buckets {
            seen += count;
            if seen >= wanted {
                return Some(end);
            }
            end *= 2.0;
        }
        Some(end)
    }

    /// The health according to the recent outcomes.
    fn health(&self) -> &'static str {
        match (self.recorded, self.recent.count_ones()) {
            (0, _) => "idle",
            (_, 0) => "healthy",
            (recorded, failed) if failed * 2 >= recorded => "failing",
            _ => "degraded",
        }
    }

    fn to_value(&self) -> Value {
        let mean = self.total.as_secs_f64() * 1e3 / self.calls.max(1) as f64;
        json!({
            "calls": self.calls,
            "denied": self.denied,
            "failed": self.failed,
            "changed": self.changed,
            "skipped": self.skipped,
            "health": self.health(),
            "meanMs": (mean * 1e3).round() / 1e3,
            "p50Ms": self.quantile(0.5),
            "p95Ms": self.quantile(0.95),
            "p99Ms": self.quantile(0.99),
            "lastFailure": self.last_failure,
            "lastTime": self.last_time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(milliseconds: &[u64], failures: usize) -> Counts {
        let mut counts = Counts::default();
        for (at, span) in milliseconds.iter().enumerate() {
            let failure = (at < failures).then(|| format!("failure {at}"));
            counts.add(Duration::from_millis(*span), failure, at as u64);
        }
        counts
    }

    #[test]
    fn tells_where_most_calls_are() {
        let mut spans = vec![1; 90];
        spans.extend([100; 10]);
        let told = counts(&spans, 0).to_value();
        assert_eq!(
            (&told["p50Ms"], &told["p95Ms"]),
            (&json!(1.6), &json!(102.4))
        );
        assert_eq!(told["meanMs"], 10.9);
        assert_eq!(
            counts(&[u64::MAX / 1_000_000], 0).quantile(0.5),
            Some(FIRST_BUCKET * 2f64.powi(23))
        );
        assert_eq!(Counts::default().to_value()["p50Ms"], Value::Null);
    }

    #[test]
    fn health_is_about_the_last_calls() {
        assert_eq!(Counts::default().health(), "idle");
        assert_eq!(counts(&[1; 4], 0).health(), "healthy");
        assert_eq!(counts(&[1; 4], 2).health(), "failing");
        assert_eq!(counts(&[1; 5], 2).health(), "degraded");
        assert_eq!(counts(&[1; 40], 8).health(), "healthy", "long ago");
        assert_eq!(counts(&[1; 40], 8).last_failure.unwrap(), "failure 7");
    }
}
