//! Metrics with the same name, by labels, in the Prometheus text format.

use std::collections::HashMap;
use std::fmt::Write as _;

use foldhash::fast::RandomState;

/// The maximum number of series per metric; further ones are not counted. Names of webhooks and resources come from
/// users.
const MAX_SERIES: usize = 10_000;

/// The separator of label values in a key. It sorts before all other characters, and occurs in no name.
const SEPARATOR: char = '\0';

/// Metrics with the same name.
#[derive(Debug)]
pub struct Family<V> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    /// Positions in `series`, by label values.
    index: HashMap<Box<str>, usize, RandomState>,
    series: Vec<V>,
    /// The buffer for lookup keys. Every request observes each plugin, so a lookup must not allocate.
    key: String,
}

/// A histogram.
#[derive(Debug, Default)]
pub struct Histogram {
    bounds: &'static [f64],
    /// The number of observations in each bucket.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl<V> Family<V> {
    /// Creates a family without series. Labels are sorted by name.
    #[must_use]
    pub fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self {
            name,
            help,
            labels,
            index: HashMap::default(),
            series: Vec::new(),
            key: String::new(),
        }
    }

    /// The series with these labels, created if missing.
    pub fn series(&mut self, values: &[&str], make: impl FnOnce() -> V) -> Option<&mut V> {
        let at = self.position(values, make)?;
        self.series.get_mut(at)
    }

    /// The stable position of the series with these labels, created if missing.
    fn position(&mut self, values: &[&str], make: impl FnOnce() -> V) -> Option<usize> {
        self.key.clear();
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.key.push(SEPARATOR);
            }
            self.key.push_str(value);
        }
        if let Some(&at) = self.index.get(self.key.as_str()) {
            return Some(at);
        }
        let at = self.series.len();
        if at >= MAX_SERIES {
            return None;
        }
        self.index.insert(self.key.as_str().into(), at);
        self.series.push(make());
        Some(at)
    }

    /// Writes the header, and calls `write` for each series, with a function that formats a line's name.
    pub(super) fn render_with(
        &self,
        out: &mut String,
        kind: &str,
        mut write: impl FnMut(&mut String, &V, &dyn Fn(&str, &str) -> String),
    ) {
        if self.series.is_empty() {
            return;
        }
        let (name, help) = (self.name, self.help);
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let mut sorted: Vec<_> = self.index.iter().collect();
        sorted.sort_unstable();
        for (values, &at) in sorted {
            let Some(series) = self.series.get(at) else {
                continue;
            };
            let labels = self.labels.iter().zip(values.split(SEPARATOR));
            let labels: Vec<String> = labels
                .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
                .collect();
            let labels = labels.join(",");
            let line = |suffix: &str, extra: &str| match (labels.as_str(), extra) {
                ("", "") => format!("{name}{suffix}"),
                (labels, "") => format!("{name}{suffix}{{{labels}}}"),
                (labels, extra) => format!("{name}{suffix}{{{labels},{extra}}}"),
            };
            write(out, series, &line);
        }
    }
}

impl Family<u64> {
    /// A counter without labels, which is present from the start.
    pub(super) fn counter(name: &'static str, help: &'static str) -> Self {
        let mut family = Self::new(name, help, &[]);
        family.series(&[], || 0);
        family
    }

    /// Increments the counter.
    pub fn count(&mut self, values: &[&str]) {
        if let Some(count) = self.series(values, || 0) {
            *count += 1;
        }
    }

    /// Writes all series.
    pub fn render(&self, out: &mut String) {
        self.render_with(out, "counter", |out, count, line| {
            let _ = writeln!(out, "{} {count}", line("", ""));
        });
    }
}

impl Family<i64> {
    /// Adds to a gauge.
    pub fn add(&mut self, values: &[&str], change: i64) {
        if let Some(gauge) = self.series(values, || 0) {
            *gauge += change;
        }
    }

    /// Writes all series.
    pub fn render(&self, out: &mut String) {
        self.render_with(out, "gauge", |out, gauge, line| {
            let _ = writeln!(out, "{} {gauge}", line("", ""));
        });
    }
}

impl Family<Histogram> {
    /// Adds an observation. The bounds of a family are always the same. Returns the position of its series,
    /// for `observe_at`.
    pub fn observe(
        &mut self,
        values: &[&str],
        value: f64,
        bounds: &'static [f64],
    ) -> Option<usize> {
        let make = || Histogram {
            bounds,
            counts: vec![0; bounds.len()],
            ..Histogram::default()
        };
        let at = self.position(values, make)?;
        self.observe_at(at, value);
        Some(at)
    }

    /// Adds an observation to a series at a known position.
    pub(super) fn observe_at(&mut self, at: usize, value: f64) {
        let Some(histogram) = self.series.get_mut(at) else {
            return;
        };
        let bucket = histogram.bounds.iter().position(|bound| value <= *bound);
        if let Some(count) = bucket.and_then(|at| histogram.counts.get_mut(at)) {
            *count += 1;
        }
        histogram.count += 1;
        histogram.sum += value;
    }

    /// Writes all series.
    pub fn render(&self, out: &mut String) {
        self.render_with(out, "histogram", |out, histogram, line| {
            let mut below = 0;
            for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
                below += count;
                let le = format!("le=\"{}\"", float(*bound));
                let _ = writeln!(out, "{} {below}", line("_bucket", &le));
            }
            let count = histogram.count;
            let _ = writeln!(out, "{} {count}", line("_bucket", "le=\"+Inf\""));
            let _ = writeln!(out, "{} {}", line("_sum", ""), float(histogram.sum));
            let _ = writeln!(out, "{} {count}", line("_count", ""));
        });
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// A number in Go's format: with an exponent if it is very small or large.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return String::from("NaN");
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..21).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_numbers_as_go_does() {
        for (value, want) in [
            (0.0, "0"),
            (0.005, "0.005"),
            (2.5, "2.5"),
            (25.0, "25"),
            (0.000_05, "5e-05"),
            (1.25e-7, "1.25e-07"),
            (1e21, "1e+21"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(value), want);
        }
    }

    #[test]
    fn stops_making_series() {
        let mut family: Family<u64> = Family::new("n", "h", &["l"]);
        for n in 0..MAX_SERIES + 5 {
            family.count(&[&n.to_string()]);
        }
        family.count(&["0"]);
        assert_eq!(family.series.len(), MAX_SERIES);
        let mut out = String::new();
        family.render(&mut out);
        assert!(out.starts_with("# HELP n h\n# TYPE n counter\nn{l=\"0\"} 2\n"));
    }
}
