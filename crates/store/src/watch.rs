//! Watching: a cursor into the history of the newest state.

use std::sync::Arc;

use async_trait::async_trait;

use crate::published::{Published, Subscriber};
use crate::{Event, Filter, ReadError, Revision, Watch};

pub(crate) struct Cursor {
    published: Arc<Published>,
    subscriber: Arc<Subscriber>,
    /// Every change it is about up to here was returned.
    position: Revision,
}

impl Cursor {
    /// Starts right after a revision.
    pub(crate) fn open(
        published: &Arc<Published>,
        prefix: &str,
        after: Revision,
        filter: Option<Filter>,
    ) -> Result<Box<dyn Watch>, ReadError> {
        Ok(Box::new(Self {
            subscriber: published.subscribe(prefix, after, filter)?,
            published: Arc::clone(published),
            position: after,
        }))
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.published.unsubscribe(&self.subscriber);
    }
}

#[async_trait]
impl Watch for Cursor {
    async fn next(&mut self) -> Result<Event, ReadError> {
        loop {
            let state = self.published.current();
            let Some(first) = self.subscriber.first_unseen(state.revision) else {
                self.position = self.position.max(state.revision);
                self.subscriber.woken().await;
                continue;
            };
            // What lies between concerns others, and need not be in the history any more.
            self.position = self.position.max(Revision(first.0.saturating_sub(1)));
            state.check_history(self.position)?;
            let subscriber = &self.subscriber;
            let mut events = state.events_after(self.position, subscriber.prefix());
            let event = events.find(|event| subscriber.is_about(event));
            self.position = event.as_ref().map_or(state.revision, Event::revision);
            self.subscriber.seen(self.position);
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    fn progress(&self) -> Revision {
        // In this order: what is marked later is of a later revision.
        let newest = self.published.revision();
        match self.subscriber.first_unseen(newest) {
            Some(first) => self.position.max(Revision(first.0.saturating_sub(1))),
            None => self.position.max(newest),
        }
    }
}
