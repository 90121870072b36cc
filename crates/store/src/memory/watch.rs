//! Watching: a cursor into the history of the newest state.

use std::sync::Arc;

use async_trait::async_trait;

use super::Shared;
use crate::{Event, ReadError, Revision, Unavailable, Watch};

pub(super) struct MemoryWatch {
    shared: Arc<Shared>,
    newest: tokio::sync::watch::Receiver<Revision>,
    prefix: String,
    /// Every change of the prefix up to here was returned.
    cursor: Revision,
}

impl MemoryWatch {
    pub(super) fn new(
        shared: Arc<Shared>,
        newest: tokio::sync::watch::Receiver<Revision>,
        prefix: &str,
        after: Revision,
    ) -> Self {
        Self {
            shared,
            newest,
            prefix: prefix.to_owned(),
            cursor: after,
        }
    }
}

#[async_trait]
impl Watch for MemoryWatch {
    async fn next(&mut self) -> Result<Event, ReadError> {
        loop {
            // Marked as seen before looking, so that a state put in place meanwhile wakes us.
            self.newest.borrow_and_update();
            let state = self.shared.state.load_full();
            state.check_history(self.cursor)?;
            if let Some(event) = state.next_event(&self.prefix, self.cursor) {
                self.cursor = event.revision();
                return Ok(event.clone());
            }
            self.cursor = state.revision;
            if self.newest.changed().await.is_err() {
                return Err(Unavailable(String::from("the store is gone")).into());
            }
        }
    }

    fn progress(&self) -> Revision {
        self.cursor
    }
}
