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
use crate::context::{Context, Reconciled};
use crate::enqueue::enqueue_affected;
use crate::events::{self, Recorder};
use crate::kind::Kind;
use crate::queue::{ControllerKind, Next, Queue, Work};
use crate::settings::Settings;
use crate::{
    certificates, cron_job, daemon_set, deployment, disruption, endpoints, job, kubelet, node,
    replica_set, scheduler, stateful_set, volumes,
};

const EVERYTHING: &str = "/";
/// The page size of the initial list.
const PAGE: usize = 500;
/// The pause before a failed read of the store is retried.
const STORAGE_RETRY_DELAY: Duration = Duration::from_secs(1);

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
                tokio::time::sleep(STORAGE_RETRY_DELAY).await;
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
        let revision = match self.list_all().await {
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
            self.background
                .spawn(node::renew_leases(Arc::clone(&self.context)));
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

    async fn list_all(&mut self) -> Result<Revision, ReadError> {
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
                    enqueue_affected(&self.context, &mut self.queue, old.as_deref(), Some(&new));
                }
            }
            Event::Delete { .. } => self.forget(kind, event.key()),
        }
    }

    fn forget(&mut self, kind: Kind, key: &str) {
        if let Some(old) = self.context.cache.remove(kind, key) {
            enqueue_affected(&self.context, &mut self.queue, Some(&old), None);
        }
    }

    fn begin_work(&mut self) {
        while let Some(work) = self.queue.take(Instant::now()) {
            let (context, store) = (Arc::clone(&self.context), Arc::clone(&self.store));
            let doing = work.clone();
            let task = self.workers.spawn(async move {
                match reconcile(&context, store.as_ref(), &doing).await {
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
async fn reconcile(context: &Context, store: &dyn Store, work: &Work) -> Reconciled {
    match store.revision().await {
        Ok(revision) => context.cache.wait_for_revision(revision).await,
        Err(error) => {
            tracing::warn!(%error, "workload controllers cannot read the store");
            return Ok(Next::Retry);
        }
    }
    context.api.effects_applied().await;
    let path = &*work.path;
    match work.controller {
        ControllerKind::Certificate => certificates::reconcile(context, path).await,
        ControllerKind::CronJob => cron_job::reconcile(context, path).await,
        ControllerKind::DaemonSet => daemon_set::reconcile(context, path).await,
        ControllerKind::Deployment => deployment::reconcile(context, path).await,
        ControllerKind::Disruption => disruption::reconcile(context, path).await,
        ControllerKind::Endpoints => endpoints::reconcile(context, path).await,
        ControllerKind::EndpointSlice => endpoints::reconcile_slices(context, path).await,
        ControllerKind::Job => job::reconcile(context, path).await,
        ControllerKind::Kubelet => kubelet::reconcile(context, path).await,
        ControllerKind::Node => node::reconcile(context, path).await,
        ControllerKind::PersistentVolume => volumes::reconcile_volume(context, path).await,
        ControllerKind::PodGarbage => kubelet::collect(context, path).await,
        ControllerKind::ReplicaSet => {
            replica_set::reconcile(context, replica_set::REPLICA_SET, path).await
        }
        ControllerKind::ReplicationController => {
            replica_set::reconcile(context, replica_set::REPLICATION_CONTROLLER, path).await
        }
        ControllerKind::Scheduler => scheduler::reconcile(context, path).await,
        ControllerKind::StatefulSet => stateful_set::reconcile(context, path).await,
        ControllerKind::Volume => volumes::reconcile(context, path).await,
    }
}

async fn until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due.into()).await;
    }
}
