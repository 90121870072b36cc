//! The results of health checks, at `/metrics/slis`.
//!
//! UPSTREAM: component-base pkg/metrics/prometheus/slis

use std::sync::{Mutex, PoisonError};

use lockgate_admission::metrics::family::Family;

use super::process;

/// The results of health checks: the last one of each, and their counts.
#[derive(Debug)]
pub(crate) struct HealthChecks(Mutex<Results>);

#[derive(Debug)]
struct Results {
    last: Family<i64>,
    all: Family<u64>,
}

impl Default for HealthChecks {
    fn default() -> Self {
        Self(Mutex::new(Results {
            last: Family::new(
                "kubernetes_healthcheck",
                "Result of the last run of a health check; 1 means success.",
                &["name", "type"],
            ),
            all: Family::new(
                "kubernetes_healthchecks_total",
                "Results of health checks.",
                &["name", "status", "type"],
            ),
        }))
    }
}

impl HealthChecks {
    /// Counts the result of a health check.
    pub(crate) fn observe(&self, check: &str, probe: &str, is_good: bool) {
        let mut results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = results.last.series(&[check, probe], || 0) {
            *last = i64::from(is_good);
        }
        let status = if is_good { "success" } else { "error" };
        results.all.count(&[check, status, probe]);
    }

    /// Writes the metrics, with the start time of the process.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        let results = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        results.last.render(&mut text);
        results.all.render(&mut text);
        process::start_time(&mut text);
        text
    }
}
