//! The Retry-After of rejected requests of a level, which grows with their number.
//!
//! UPSTREAM: apiserver pkg/util/flowcontrol/dropped_requests_tracker.go

use std::collections::VecDeque;

/// The maximum time.
const MAX_RETRY_AFTER: i64 = 32;

/// The recent rejections of a level.
#[derive(Debug)]
pub(super) struct DroppedRequests {
    /// Previous seconds with their number of rejections.
    past: VecDeque<(i64, i64)>,
    now: (i64, i64),
    retry_after: i64,
    raised_at: i64,
}

impl Default for DroppedRequests {
    fn default() -> Self {
        Self {
            past: VecDeque::new(),
            now: (0, 0),
            retry_after: 1,
            raised_at: 0,
        }
    }
}

impl DroppedRequests {
    /// Counts a rejection. Returns the number of seconds after which to retry.
    pub(super) fn record(&mut self, second: i64) -> u32 {
        if self.now.0 == second {
            self.now.1 += 1;
        } else {
            self.past.push_back(self.now);
            let span = MAX_RETRY_AFTER.min(2 * self.retry_after);
            while let Some((oldest, _)) = self.past.front()
                && self.now.0 - oldest > span
            {
                self.past.pop_front();
            }
            self.now = (second, 1);
            self.adjust(second);
        }
        u32::try_from(self.retry_after).unwrap_or(1)
    }

    fn adjust(&mut self, second: i64) {
        let recent = self.past.iter().rev();
        let recent = recent.take_while(|(at, _)| second - at <= self.retry_after);
        let dropped: i64 = recent.map(|(_, count)| count).sum();
        if second - self.raised_at >= self.retry_after && dropped >= 3 * self.retry_after {
            self.retry_after = MAX_RETRY_AFTER.min(2 * self.retry_after);
            self.raised_at = second;
        } else if dropped < self.retry_after && self.retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_under_load_and_sinks_again() {
        let mut dropped = DroppedRequests::default();
        let mut told = Vec::new();
        for second in 100..104 {
            for _ in 0..9 {
                told.push(dropped.record(second));
            }
        }
        // One at first, two after a second with nine rejections, four two seconds later.
        assert_eq!((told[0], told[9], told[18], told[27]), (1, 2, 2, 4));
        assert_eq!(dropped.record(200), 3);
        assert_eq!(dropped.record(300), 2);
        assert_eq!(dropped.record(400), 1);
        assert_eq!(dropped.record(500), 1);
    }

    #[test]
    fn has_a_longest_time() {
        let mut dropped = DroppedRequests::default();
        let mut last = 0;
        for second in 1..200 {
            for _ in 0..200 {
                last = dropped.record(second);
            }
        }
        assert_eq!(last, 32);
        assert!(dropped.past.len() <= 40);
    }
}
