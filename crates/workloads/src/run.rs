//! The loop: lists all stored objects once, then watches changes, and runs reconciliations.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_store::{Entry, Event, List, ReadAt, ReadError, Revision, Store};
use tokio::task::{Id, JoinSet};

use crate::addresses::Addresses;
use crate::api::Api;
use crate::cache::Cache;
use crate::clocks::Clocks;
use crate::context::{Context, Looked};
use crate::events::{self, Recorder};
use crate::kind::Kind;
use crate::queue::{Lane, Next, Queue, Work};
use crate::settings::Settings;
use crate::wake::wake;
use crate::{
    certificates, cron_job, daemon_set, deployment, disruption, endpoints, job, kubelet, node,
    replica_set, scheduler, stateful_set, volumes,
};

const EVERYTHING: &str = "/";
/// The page size of the initial list.
const PAGE: usize = 500;
/// The pause before a failed read of the store is retried.
const STORAGE_PAUSE: Duration = Duration::from_secs(1);

/// Runs the controllers and the simulated cluster until dropped.
pub async fn run(api: Arc<dyn Api>, store: Arc<dyn Store>, settings: Settings) {
    let (events, notes) = Recorder::new();
    let context = Arc::new(Context {
        api: Arc::clone(&api),
        cache: Cache::default(),
        events,
        settings,
        clocks: Clocks::default(),
        addresses: Addresses::default(),
    });
    // These tasks end with this future.
    let mut background = JoinSet::new();
    background.spawn(events::write(api, notes));
    let mut controllers = Controllers {
        context: Arc::clone(&context),
        store,
        queue: Queue::default(),
        workers: JoinSet::new(),
        busy: HashMap::new(),
        is_registered: false,
        background,
    };
    loop {
        // Relists if the watch fell behind compaction.
        match controllers.follow().await {
            ReadError::Compacted(_) => {}
            error => {
                tracing::warn!(%error, "workload controllers cannot read the store");
                tokio::time::sleep(STORAGE_PAUSE).await;
            }
        }
    }
}

struct Controllers {
    context: Arc<Context>,
    store: Arc<dyn Store>,
    queue: Queue,
    workers: JoinSet<Next>,
    /// The work of each task, by task ID, which is available even if the task panics.
    busy: HashMap<Id, Work>,
    is_registered: bool,
    background: JoinSet<()>,
}

impl Controllers {
    /// Lists all objects, then watches until the watch fails.
    async fn follow(&mut self) -> ReadError {
        let revision = match self.read_everything().await {
            Ok(revision) => revision,
            Err(error) => return error,
        };
        let store = Arc::clone(&self.store);
        let mut watch = match store.watch(EVERYTHING, revision).await {
            Ok(watch) => watch,
            Err(error) => return error,
        };
        self.context.cache.advance(revision);
        if !self.is_registered {
            self.is_registered = true;
            self.background.spawn(node::keep(Arc::clone(&self.context)));
        }
        loop {
            self.context.cache.advance(watch.progress());
            self.begin_work();
            let due = self.queue.next_due();
            tokio::select! {
                event = watch.next() => match event {
                    Ok(event) => {
                        self.observe(&event);
                        self.context.cache.advance(event.revision());
                    }
                    Err(error) => return error,
                },
                ended = self.workers.join_next_with_id(), if !self.workers.is_empty() => {
                    self.finish(ended);
                }
                () = until(due), if due.is_some() => {}
            }
        }
    }

    async fn read_everything(&mut self) -> Result<Revision, ReadError> {
        let store = Arc::clone(&self.store);
        let mut gone: HashSet<_> = self.context.cache.keys().into_iter().collect();
        let mut at = ReadAt::Latest;
        let mut last: Option<Arc<str>> = None;
        let revision = loop {
            let list = List {
                at,
                after: last.as_deref(),
                limit: Some(PAGE),
                ..List::all(EVERYTHING)
            };
            let page = store.list(list).await?;
            for entry in &page.entries {
                if let Some(kind) = Kind::cached(&entry.key) {
                    gone.remove(&(kind, Arc::clone(&entry.key)));
                }
                let event = Event::Put {
                    entry: Entry::clone(entry),
                    previous: None,
                };
                self.observe(&event);
            }
            at = ReadAt::Exact(page.revision);
            match page.entries.last() {
                Some(entry) if page.remaining > 0 => last = Some(Arc::clone(&entry.key)),
                _ => break page.revision,
            }
            tokio::task::yield_now().await;
        };
        for (kind, key) in gone {
            self.forget(kind, &key);
        }
        Ok(revision)
    }

    fn observe(&mut self, event: &Event) {
        let Some(kind) = Kind::cached(event.key()) else {
            return;
        };
        match event {
            Event::Put { entry, .. } => {
                if let Some((old, new)) = self.context.cache.put(kind, entry) {
                    wake(&self.context, &mut self.queue, old.as_deref(), Some(&new));
                }
            }
            Event::Delete { .. } => self.forget(kind, event.key()),
        }
    }

    fn forget(&mut self, kind: Kind, key: &str) {
        if let Some(old) = self.context.cache.remove(kind, key) {
            wake(&self.context, &mut self.queue, Some(&old), None);
        }
    }

    fn begin_work(&mut self) {
        while let Some(work) = self.queue.take(Instant::now()) {
            let (context, store) = (Arc::clone(&self.context), Arc::clone(&self.store));
            let doing = work.clone();
            let task = self.workers.spawn(async move {
                match look(&context, store.as_ref(), &doing).await {
                    Ok(next) => next,
                    Err(refused) => {
                        let error = refused.message();
                        tracing::debug!(?doing, error, "controller failed, retrying");
                        Next::Retry
                    }
                }
            });
            self.busy.insert(task.id(), work);
        }
    }

    fn finish(&mut self, ended: Option<Result<(Id, Next), tokio::task::JoinError>>) {
        let (id, next) = match ended {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => {
                tracing::error!(%error, "controller worker exited unexpectedly");
                (error.id(), Next::Retry)
            }
            None => return,
        };
        if let Some(work) = self.busy.remove(&id) {
            self.queue.finish(work, next, Instant::now());
        }
    }
}

/// Reconciles one object, after the cache has everything stored before.
async fn look(context: &Context, store: &dyn Store, work: &Work) -> Looked {
    match store.revision().await {
        Ok(revision) => context.cache.reach(revision).await,
        Err(error) => {
            tracing::warn!(%error, "workload controllers cannot read the store");
            return Ok(Next::Retry);
        }
    }
    context.api.settled().await;
    let path = &*work.path;
    match work.lane {
        Lane::Certificate => certificates::look(context, path).await,
        Lane::CronJob => cron_job::look(context, path).await,
        Lane::DaemonSet => daemon_set::look(context, path).await,
        Lane::Deployment => deployment::look(context, path).await,
        Lane::Disruption => disruption::look(context, path).await,
        Lane::Endpoints => endpoints::look(context, path).await,
        Lane::EndpointSlice => endpoints::look_at_slices(context, path).await,
        Lane::Job => job::look(context, path).await,
        Lane::Kubelet => kubelet::look(context, path).await,
        Lane::Node => node::look(context, path).await,
        Lane::PersistentVolume => volumes::look_at_volume(context, path).await,
        Lane::PodGarbage => kubelet::collect(context, path).await,
        Lane::ReplicaSet => replica_set::look(context, replica_set::REPLICA_SET, path).await,
        Lane::ReplicationController => {
            replica_set::look(context, replica_set::REPLICATION_CONTROLLER, path).await
        }
        Lane::Scheduler => scheduler::look(context, path).await,
        Lane::StatefulSet => stateful_set::look(context, path).await,
        Lane::Volume => volumes::look(context, path).await,
    }
}

async fn until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due.into()).await;
    }
}
