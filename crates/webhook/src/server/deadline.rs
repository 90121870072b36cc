//! The deadline of a review.

use std::time::{Duration, Instant};

/// The maximum time reserved for sending the response.
const MARGIN: Duration = Duration::from_millis(500);

/// The deadline: the API server sends its timeout in `?timeout=`, and a later response is useless.
///
/// A twentieth of the timeout is reserved: a fault that is in this webhook's log is better than a timed-out call.
pub(super) fn deadline(start: Instant, most: Duration, query: Option<&str>) -> Instant {
    let asked = query.and_then(timeout_in).filter(|asked| !asked.is_zero());
    let patience = asked.map_or(most, |asked| asked.min(most));
    start + patience.saturating_sub((patience / 20).min(MARGIN))
}

fn timeout_in(query: &str) -> Option<Duration> {
    let mut pairs = query.split('&');
    let value = pairs.find_map(|pair| pair.strip_prefix("timeout="))?;
    // A Go duration needs no escapes except for the micro sign, which the API server never sends.
    lockgate_go::time::Duration::parse(value).ok()?.to_std()
}

#[cfg(test)]
mod tests {
    use super::*;

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
