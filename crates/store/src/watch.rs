//! Watches: a cursor into the history of the latest state.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;

use crate::published::{Published, Subscriber};
use crate::{Event, Filter, ReadError, Revision, Watch};

pub(crate) struct Cursor {
    published: Arc<Published>,
    subscriber: Arc<Subscriber>,
    /// All matching changes up to this revision were returned.
    position: Revision,
    /// Further changes of the next revision.
    siblings: VecDeque<Event>,
}

impl Cursor {
    /// Starts after a revision.
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
            siblings: VecDeque::new(),
        }))
    }
}

impl Cursor {
    /// Records that a change is returned; the last one of a revision advances the position.
    fn returned(&mut self, event: &Event) {
        let revision = event.revision();
        self.position = match self.siblings.is_empty() {
            true => revision,
            false => Revision(revision.0.saturating_sub(1)),
        };
        if self.siblings.is_empty() {
            self.subscriber.seen(revision);
        }
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
        if let Some(event) = self.siblings.pop_front() {
            self.returned(&event);
            return Ok(event);
        }
        loop {
            let state = self.published.current();
            let Some(first) = self.subscriber.first_unseen(state.revision) else {
                self.position = self.position.max(state.revision);
                self.subscriber.woken().await;
                continue;
            };
            // Changes in between do not match, and need not be in the history.
            self.position = self.position.max(Revision(first.0.saturating_sub(1)));
            state.check_history(self.position)?;
            let subscriber = &self.subscriber;
            let wanted = |event: &Event| subscriber.matches(event);
            let mut events = state.next_events(self.position, subscriber.prefix(), wanted);
            if let Some(event) = events.next() {
                self.siblings.extend(events);
                self.returned(&event);
                return Ok(event);
            }
            drop(events);
            self.position = state.revision;
            self.subscriber.seen(self.position);
        }
    }

    fn progress(&self) -> Revision {
        // The order matters: later marks have later revisions.
        let newest = self.published.revision();
        match self.subscriber.first_unseen(newest) {
            Some(first) => self.position.max(Revision(first.0.saturating_sub(1))),
            None => self.position.max(newest),
        }
    }
}
