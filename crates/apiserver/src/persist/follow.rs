//! The effects of writes to a shared store: applied from a watch, in the order of revisions, for writes of any
//! server.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use lockgate_store::{
    Entry, Event, Filter, List, ReadAt, ReadError, Revision, Store, Unavailable, Watch,
};
use tokio::sync::{Notify, watch};

use super::{Shared, effects};
use crate::encoding;
use crate::error::Failure;
use crate::registry::Resource;

/// The maximum wait for the watch.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The retry interval after a storage failure.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// A prefix without keys.
const EMPTY_PREFIX: &str = "/-/none/";

/// The revision up to which effects are applied.
#[derive(Debug)]
pub(crate) struct Followed {
    reached: watch::Sender<Revision>,
    /// Wakes the follower to request the progress of the watch.
    wanted: Notify,
}

impl Default for Followed {
    fn default() -> Self {
        Self {
            reached: watch::Sender::new(Revision::START),
            wanted: Notify::new(),
        }
    }
}

impl Followed {
    /// Waits until the effects of a write are applied.
    pub(super) async fn wait(&self, revision: Revision) {
        if !self.reaches(revision).await {
            tracing::warn!(%revision, "write stored, but its effects are not applied yet");
        }
    }

    async fn reaches(&self, revision: Revision) -> bool {
        let mut reached = self.reached.subscribe();
        let waiting = reached.wait_for(|reached| *reached >= revision);
        tokio::time::timeout(WATCH_TIMEOUT, waiting).await.is_ok()
    }

    /// Waits until the effects of everything acknowledged before are applied.
    pub(super) async fn catch_up(&self, store: &dyn Store) -> Result<(), Unavailable> {
        let newest = store.revision().await?;
        if *self.reached.borrow() < newest {
            // Opening a watch after the latest revision shows that other watches can deliver everything before it.
            if let Err(ReadError::Unavailable(error)) = store.watch(EMPTY_PREFIX, newest).await {
                return Err(error);
            }
            self.wanted.notify_one();
            if !self.reaches(newest).await {
                let behind = "the effects of other servers' writes are not applied yet";
                return Err(Unavailable(String::from(behind)));
            }
        }
        Ok(())
    }

    fn advance(&self, revision: Revision) {
        self.reached.send_if_modified(|reached| {
            let is_later = *reached < revision;
            *reached = (*reached).max(revision);
            is_later
        });
    }
}

/// Applies effects.
pub(super) struct Follower {
    shared: Arc<Shared>,
    /// The resources with effects, by key prefix.
    resources: HashMap<String, Arc<Resource>>,
    /// The keys whose effects are applied.
    known: BTreeSet<Arc<str>>,
}

impl Follower {
    pub(super) fn new(shared: Arc<Shared>, resources: impl Iterator<Item = Arc<Resource>>) -> Self {
        let by_prefix = resources.map(|resource| (resource.key_prefix(""), resource));
        Self {
            shared,
            resources: by_prefix.collect(),
            known: BTreeSet::new(),
        }
    }

    /// Follows the store until the server stops.
    pub(super) async fn run(mut self) {
        loop {
            match self.follow().await {
                // The watch expired: everything is read again.
                ReadError::Compacted(_) => {}
                error => {
                    tracing::warn!(%error, "cannot watch the writes of other servers");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    async fn follow(&mut self) -> ReadError {
        let mut watch = match self.begin().await {
            Ok(watch) => watch,
            Err(error) => return error,
        };
        let shared = Arc::clone(&self.shared);
        let followed = &shared.followed;
        loop {
            tokio::select! {
                biased;
                event = watch.next() => match event {
                    Ok(event) => {
                        self.apply(&event);
                        followed.advance(event.revision());
                    }
                    Err(error) => return error,
                },
                // No event is pending, so the progress is complete.
                () = followed.wanted.notified() => followed.advance(watch.progress()),
            }
        }
    }

    /// Applies the effects of the current state, and watches from there.
    async fn begin(&mut self) -> Result<Box<dyn Watch>, ReadError> {
        let store = Arc::clone(&self.shared.store);
        let revision = store.revision().await?;
        let mut entries = Vec::new();
        for prefix in self.resources.keys() {
            let list = List {
                at: ReadAt::Exact(revision),
                ..List::all(prefix)
            };
            entries.extend(store.list(list).await?.entries);
        }
        let keys = entries.iter().map(|entry| Arc::clone(&entry.key)).collect();
        for gone in std::mem::replace(&mut self.known, keys) {
            if !self.known.contains(&gone) {
                self.remove(&gone);
            }
        }
        for entry in &entries {
            self.put(entry);
        }
        let prefixes: BTreeSet<String> = self.resources.keys().cloned().collect();
        let filter: Filter = Arc::new(move |event: &Event| {
            prefix(event.key()).is_some_and(|prefix| prefixes.contains(prefix))
        });
        let watch = store.watch_if("/", revision, Some(filter)).await?;
        self.shared.followed.advance(revision);
        Ok(watch)
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Put { entry, .. } => {
                self.known.insert(Arc::clone(&entry.key));
                self.put(entry);
            }
            Event::Delete { previous, .. } => {
                self.known.remove(&previous.key);
                self.remove(&previous.key);
            }
        }
    }

    fn put(&self, entry: &Entry) {
        let Some(resource) = prefix(&entry.key).and_then(|prefix| self.resources.get(prefix))
        else {
            return;
        };
        let object = encoding::parse_entry(entry, resource.type_meta());
        let effect = object.and_then(|object| effects::prepare_write(resource, object));
        match effect {
            Ok(effect) => self.shared.apply(effect),
            // The previous state stays in effect, which is safer than none.
            Err(Failure(status)) => {
                let (key, error) = (&entry.key, status.message);
                tracing::error!(%key, error, "cannot apply a stored object");
            }
        }
    }

    fn remove(&self, key: &Arc<str>) {
        let resource = prefix(key).and_then(|prefix| self.resources.get(prefix));
        let effect = resource.and_then(|resource| effects::prepare_removal(resource, key));
        if let Some(effect) = effect {
            self.shared.apply(effect);
        }
    }
}

/// The group and resource of a key.
fn prefix(key: &str) -> Option<&str> {
    let (end, _) = key.match_indices('/').nth(2)?;
    key.get(..=end)
}
