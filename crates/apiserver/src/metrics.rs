//! Request metrics, besides those of admission.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Method;

/// Requests by method and code. Both sets are closed, so the number of series is.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<BTreeMap<(&'static str, u16), Series>>);

#[derive(Debug, Default, Clone, Copy)]
struct Series {
    count: u64,
    seconds: f64,
}

impl Requests {
    /// Counts a request that was answered.
    pub(crate) fn count(&self, method: &Method, code: u16, took: Duration) {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let series = all.entry((method, code)).or_default();
        series.count += 1;
        series.seconds += took.as_secs_f64();
    }

    /// The counts in the text format of Prometheus.
    pub(crate) fn render(&self) -> String {
        let all = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut text = String::from(
            "# HELP lockgate_requests_total Completed requests by method and code.\n# TYPE lockgate_requests_total counter\n",
        );
        for ((method, code), series) in &all {
            let _ = writeln!(
                text,
                "lockgate_requests_total{{method=\"{method}\",code=\"{code}\"}} {}",
                series.count
            );
        }
        text.push_str("# HELP lockgate_request_seconds_total Time from request to response in seconds, summed.\n# TYPE lockgate_request_seconds_total counter\n");
        for ((method, code), series) in &all {
            let _ = writeln!(
                text,
                "lockgate_request_seconds_total{{method=\"{method}\",code=\"{code}\"}} {}",
                series.seconds
            );
        }
        text
    }
}
