//! How long there is to answer.

use std::time::{Duration, Instant};

/// At most this much is kept back for the way home.
const MARGIN: Duration = Duration::from_millis(500);

/// When to give up: the API server says in `?timeout=` how long it waits, and an answer that it no
/// longer waits for is of no use to anybody.
///
/// Some of its patience, a twentieth, is kept back: rather a fault that names this webhook's log than
/// a call that ran out of time.
pub(super) fn deadline(start: Instant, most: Duration, query: Option<&str>) -> Instant {
    let asked = query.and_then(timeout_in).filter(|asked| !asked.is_zero());
    let patience = asked.map_or(most, |asked| asked.min(most));
    start + patience.saturating_sub((patience / 20).min(MARGIN))
}

fn timeout_in(query: &str) -> Option<Duration> {
    let mut pairs = query.split('&');
    let value = pairs.find_map(|pair| pair.strip_prefix("timeout="))?;
    // A Go duration needs no escapes but for the micro sign, which the API server never sends.
    go_duration(value)
}

/// Reads a duration as Go writes it: `10s`, `1m30s`, `1.5h`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0_f64;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, tail) = tail.split_at(unit_end.unwrap_or(tail.len()));
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations_as_go_writes_them() {
        for (text, want) in [
            ("10s", Some(Duration::from_secs(10))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("1h0m0.5s", Some(Duration::from_millis(3_600_500))),
            ("250ms", Some(Duration::from_millis(250))),
            ("1.5s", Some(Duration::from_millis(1500))),
            ("", Some(Duration::ZERO)),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1y", None),
            ("1..5s", None),
            ("99999999999999999999999999999h", None),
        ] {
            assert_eq!(go_duration(text), want, "{text}");
        }
    }

    #[test]
    fn the_shorter_patience_counts_less_a_margin() {
        let start = Instant::now();
        let most = Duration::from_secs(30);
        let given = |query| deadline(start, most, query) - start;
        assert_eq!(given(Some("timeout=10s")), Duration::from_millis(9500));
        assert_eq!(given(Some("a=b&timeout=1s")), Duration::from_millis(950));
        assert_eq!(given(Some("timeout=1h")), Duration::from_millis(29_500));
        for none in [None, Some(""), Some("timeout=0s"), Some("timeout=soon")] {
            assert_eq!(given(none), Duration::from_millis(29_500), "{none:?}");
        }
    }
}
