//! Quantiles over the last hours, in bounded memory.
//!
//! Observations are counted in buckets whose bounds grow by two percent, so a quantile is accurate to one percent.
//! The window consists of five spans of one hour; the oldest span is dropped as a whole.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::family::{Family, float};

const SPAN: Duration = Duration::from_secs(60 * 60);
const SPANS: usize = 5;
const GROWTH: f64 = 1.02;
/// Less than the resolution of any clock.
const SMALLEST: f64 = 1e-9;
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Recent observations.
#[derive(Debug, Default)]
pub(super) struct Summary {
    spans: VecDeque<(Instant, BTreeMap<i32, u64>)>,
    count: u64,
    sum: f64,
}

impl Summary {
    fn observe(&mut self, value: f64, now: Instant) {
        self.count += 1;
        self.sum += value;
        let is_current = |begun: &Instant| now.saturating_duration_since(*begun) < SPAN;
        if !self
            .spans
            .back()
            .is_some_and(|(begun, _)| is_current(begun))
        {
            self.spans.push_back((now, BTreeMap::new()));
            if self.spans.len() > SPANS {
                self.spans.pop_front();
            }
        }
        if let Some((_, buckets)) = self.spans.back_mut() {
            *buckets.entry(bucket(value)).or_default() += 1;
        }
    }

    fn quantile(&self, quantile: f64, now: Instant) -> f64 {
        let window = SPAN * SPANS as u32;
        let mut merged: BTreeMap<i32, u64> = BTreeMap::new();
        for (begun, buckets) in &self.spans {
            if now.saturating_duration_since(*begun) < window {
                for (bucket, count) in buckets {
                    *merged.entry(*bucket).or_default() += count;
                }
            }
        }
        let total: u64 = merged.values().sum();
        let rank = (quantile * total as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in merged {
            seen += count;
            if seen >= rank.max(1) {
                return if bucket == i32::MIN {
                    0.0
                } else {
                    GROWTH.powf(f64::from(bucket) - 0.5)
                };
            }
        }
        f64::NAN
    }
}

fn bucket(value: f64) -> i32 {
    if value < SMALLEST {
        i32::MIN
    } else {
        (value.ln() / GROWTH.ln()).ceil() as i32
    }
}

impl Family<Summary> {
    pub(super) fn observe(&mut self, values: &[&str], value: f64, now: Instant) {
        if let Some(summary) = self.series(values, Summary::default) {
            summary.observe(value, now);
        }
    }

    pub(super) fn render(&self, out: &mut String, now: Instant) {
        self.render_with(out, "summary", |out, summary, line| {
            for quantile in QUANTILES {
                let label = format!("quantile=\"{}\"", float(quantile));
                let value = float(summary.quantile(quantile, now));
                let _ = writeln!(out, "{} {value}", line("", &label));
            }
            let _ = writeln!(out, "{} {}", line("_sum", ""), float(summary.sum));
            let _ = writeln!(out, "{} {}", line("_count", ""), summary.count);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_quantiles_within_a_hundredth() {
        let now = Instant::now();
        let mut summary = Summary::default();
        for n in 1..=1000 {
            summary.observe(f64::from(n) / 1000.0, now);
        }
        for quantile in QUANTILES {
            let told = summary.quantile(quantile, now);
            assert!((told / quantile - 1.0).abs() < 0.011, "{quantile} {told}");
        }
    }

    #[test]
    fn forgets_after_five_hours() {
        let start = Instant::now();
        let mut summary = Summary::default();
        summary.observe(1.0, start);
        assert!(!summary.quantile(0.5, start + SPAN * 4).is_nan());
        assert!(summary.quantile(0.5, start + SPAN * 5).is_nan());
        for hour in 0..48 {
            summary.observe(1.0, start + SPAN * hour);
        }
        assert_eq!(summary.spans.len(), SPANS);
        assert_eq!(summary.count, 49);
    }
}
