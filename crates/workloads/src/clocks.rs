//! When objects entered their current stage. Timestamps in objects have whole seconds, while stages last
//! milliseconds; after a restart, a stage begins again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The current stages of objects, by uid.
#[derive(Debug, Default)]
pub(crate) struct Clocks(Mutex<HashMap<String, (String, Instant)>>);

impl Clocks {
    /// The remaining time of a stage, which begins now if the object was in another stage.
    pub(crate) fn left(&self, uid: &str, stage: &str, lasts: Duration, now: Instant) -> Duration {
        let mut clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match clocks.get(uid) {
            Some((current, since)) if current == stage => *since,
            _ => {
                clocks.insert(uid.to_owned(), (stage.to_owned(), now));
                now
            }
        };
        (since + lasts).saturating_duration_since(now)
    }

    /// Removes a deleted object.
    pub(crate) fn forget(&self, uid: &str) {
        let mut clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_begins_once() {
        let (clocks, now) = (Clocks::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(clocks.left("u", "starts", second, now), second);
        assert_eq!(
            clocks.left("u", "starts", second, now + second),
            Duration::ZERO
        );
        assert_eq!(clocks.left("u", "runs", second, now + second), second);
        clocks.forget("u");
        assert_eq!(clocks.left("u", "runs", second, now + second * 3), second);
    }
}
