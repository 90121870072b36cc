//! Watching: a cursor into the history of the newest state.

use std::sync::Arc;

use async_trait::async_trait;

use crate::published::Published;
use crate::{Event, ReadError, Revision, Unavailable, Watch};

pub(crate) struct Cursor {
    published: Arc<Published>,
    newest: tokio::sync::watch::Receiver<Revision>,
    prefix: String,
    /// Every change under the prefix up to here was returned.
    position: Revision,
}

impl Cursor {
    /// Starts right after a revision.
    pub(crate) fn open(
        published: &Arc<Published>,
        prefix: &str,
        after: Revision,
    ) -> Result<Box<dyn Watch>, ReadError> {
        Ok(Box::new(Self {
            newest: published.subscribe(after)?,
            published: Arc::clone(published),
            prefix: prefix.to_owned(),
            position: after,
        }))
    }
}

#[async_trait]
impl Watch for Cursor {
    async fn next(&mut self) -> Result<Event, ReadError> {
        loop {
            // Marked as seen before looking, so that a state put in place meanwhile wakes us.
            self.newest.borrow_and_update();
            let state = self.published.current();
            state.check_history(self.position)?;
            if let Some(event) = state.next_event(&self.prefix, self.position) {
                self.position = event.revision();
                return Ok(event.clone());
            }
            self.position = state.revision;
            if self.newest.changed().await.is_err() {
                return Err(Unavailable(String::from("the store is gone")).into());
            }
        }
    }

    fn progress(&self) -> Revision {
        self.position
    }
}
