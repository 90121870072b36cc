//! One look at everything that is stored, then every change of it, in order; and the work that
//! follows from them, some of it at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockgate_store::{Event, List, ReadAt, ReadError, Revision};
use tokio::task::JoinSet;

use super::owner_graph::Graph;
use super::work_queue::{Queue, Result as Came, Work};
use super::{garbage_collector, namespace_defaults, resource_quota, role_aggregation};
use crate::config::Controllers as Switches;
use crate::error::Outcome;
use crate::server::Server;

/// How much is done at once.
///
/// UPSTREAM: kubernetes pkg/controller/garbagecollector/config (ConcurrentGCSyncs)
const WORKERS: usize = 20;
/// How many objects are read at once in the beginning.
const PAGE: usize = 500;
/// How long to wait before storage that failed is asked again.
const STORAGE_PAUSE: Duration = Duration::from_secs(1);
/// How often quotas are counted though nothing happened.
///
/// UPSTREAM: kubernetes pkg/controller/resourcequota/config (ResourceQuotaSyncPeriod, five minutes); what is
/// counted here is in this process.
const QUOTA_RESYNC: Duration = Duration::from_secs(30);
/// What all keys begin with.
const EVERYTHING: &str = "/";

/// Where namespaces and cluster roles are.
const NAMESPACES: &str = "/core/namespaces/";
const CLUSTER_ROLES: &str = "/rbac.authorization.k8s.io/clusterroles/";

/// Starts whatever the settings ask for.
pub(crate) fn start(server: &Arc<Server>) {
    let on = server.settings.controllers;
    if on != Switches::all(false) {
        let controllers = Controllers {
            server: Arc::clone(server),
            graph: Arc::default(),
            queue: Queue::default(),
            quotas: resource_quota::Namespaces::default(),
            running: JoinSet::new(),
        };
        server.spawn(controllers.run());
    }
}

struct Controllers {
    server: Arc<Server>,
    graph: Arc<Mutex<Graph>>,
    queue: Queue,
    quotas: resource_quota::Namespaces,
    running: JoinSet<(Work, Came, Vec<Arc<str>>)>,
}

impl Controllers {
    async fn run(mut self) {
        loop {
            // Whoever falls behind what storage keeps begins anew.
            match self.follow().await {
                ReadError::Compacted(_) => {}
                error => {
                    tracing::warn!(%error, "the controllers cannot read what is stored");
                    tokio::time::sleep(STORAGE_PAUSE).await;
                }
            }
        }
    }

    /// Looks at everything, then follows the changes until that fails.
    async fn follow(&mut self) -> ReadError {
        let revision = match self.read_everything().await {
            Ok(revision) => revision,
            Err(error) => return error,
        };
        let mut watch = match self.server.store.watch(EVERYTHING, revision).await {
            Ok(watch) => watch,
            Err(error) => return error,
        };
        let graph = Arc::clone(&self.graph);
        let mut resync = tokio::time::interval(QUOTA_RESYNC);
        resync.reset();
        loop {
            self.begin_work();
            let due = self.queue.next_due();
            let room = self.running.len() < WORKERS;
            tokio::select! {
                event = watch.next() => match event {
                    Ok(event) => self.observe(&graph, &event),
                    Err(error) => return error,
                },
                Some(ended) = self.running.join_next() => {
                    if let Ok((work, came, look)) = ended {
                        self.queue.finish(work, came, Instant::now());
                        self.look_at(look);
                    }
                }
                () = until(due), if room && due.is_some() => {}
                // What was charged for a write that failed afterwards is given back.
                _ = resync.tick() => {
                    for namespace in self.quotas.all() {
                        self.queue.add(Work::Quotas(namespace.into()));
                    }
                }
            }
        }
    }

    /// Reads what is stored into a graph of its own: whoever is at work still must not take half of
    /// one for all there is.
    async fn read_everything(&mut self) -> Result<Revision, ReadError> {
        let graph: Arc<Mutex<Graph>> = Arc::default();
        let mut at = ReadAt::Latest;
        let mut last: Option<Arc<str>> = None;
        loop {
            let list = List {
                at,
                after: last.as_deref(),
                limit: Some(PAGE),
                ..List::all(EVERYTHING)
            };
            let page = self.server.store.list(list).await?;
            for entry in &page.entries {
                let event = Event::Put {
                    entry: entry.clone(),
                    previous: None,
                };
                self.observe(&graph, &event);
            }
            at = ReadAt::Exact(page.revision);
            match page.entries.last() {
                Some(entry) if page.remaining > 0 => last = Some(Arc::clone(&entry.key)),
                _ => {
                    self.graph = graph;
                    return Ok(page.revision);
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Notes what follows from a change.
    fn observe(&mut self, graph: &Mutex<Graph>, event: &Event) {
        let on = self.server.settings.controllers;
        let key = event.key();
        if on.garbage_collector && !garbage_collector::is_ignored(key) {
            let look = {
                let mut graph = graph.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Event::Put { entry, previous } => graph.stored(entry, previous.as_ref()),
                    Event::Delete { previous, .. } => graph.removed(previous),
                }
            };
            self.look_at(look);
        }
        if on.role_aggregation && key.starts_with(CLUSTER_ROLES) {
            self.queue.add(Work::Aggregate);
        }
        if on.resource_quota
            && let Some(namespace) = self.quotas.observe(event)
        {
            self.queue.add(Work::Quotas(namespace.into()));
        }
        if on.service_account || on.root_ca {
            let namespace = match key.strip_prefix(NAMESPACES) {
                Some(name) => matches!(event, Event::Put { .. }).then_some(name),
                None => namespace_defaults::namespace_of(key),
            };
            if let Some(name) = namespace {
                self.queue.add(Work::Namespace(name.into()));
            }
        }
    }

    fn look_at(&mut self, keys: Vec<Arc<str>>) {
        for key in keys {
            self.queue.add(Work::Collect(key));
        }
    }

    fn begin_work(&mut self) {
        while self.running.len() < WORKERS
            && let Some(work) = self.queue.take(Instant::now())
        {
            let (server, graph) = (Arc::clone(&self.server), Arc::clone(&self.graph));
            self.running.spawn(async move {
                let (came, look) = match perform(&server, &graph, &work).await {
                    Ok(came) => came,
                    Err(failure) => {
                        tracing::debug!(?work, error = failure.0.message, "tried again later");
                        (Came::Failed, Vec::new())
                    }
                };
                if let Work::Namespace(name) = &work {
                    server.waiting.tell(name);
                }
                (work, came, look)
            });
        }
    }
}

async fn perform(
    server: &Server,
    graph: &Mutex<Graph>,
    work: &Work,
) -> Outcome<(Came, Vec<Arc<str>>)> {
    let changed = match work {
        Work::Collect(key) => {
            let look = garbage_collector::look(server, graph, key).await?;
            return Ok((Came::Done, look));
        }
        Work::Namespace(name) => namespace_defaults::look(server, name).await?,
        Work::Quotas(namespace) => {
            // Usage changes as often as there is something to count.
            resource_quota::look(server, namespace).await?;
            return Ok((Came::Done, Vec::new()));
        }
        Work::Aggregate => role_aggregation::look(server).await?,
    };
    let came = if changed { Came::Changed } else { Came::Done };
    Ok((came, Vec::new()))
}

async fn until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due.into()).await;
    }
}
