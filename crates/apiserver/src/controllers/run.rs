//! The loop of the controllers: reads all stored objects once, then watches every change; a few workers process the
//! resulting work.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockgate_store::{Entry, Event, Filter, List, ReadAt, ReadError, Revision};
use tokio::sync::watch;

use super::owner_graph::{Graph, Meta};
use super::work_queue::{Queue, Result as Came, Work};
use super::workers::Workers;
use super::{
    Context, api_service, definition, flow_control, garbage_collector, namespace,
    namespace_defaults, policy_status, protection, resource_quota, role_aggregation,
};
use crate::config::Controllers as Switches;
use crate::error::Outcome;
use crate::heavy::Heavy;
use crate::tasks::Tasks;

/// The number of workers of a loop.
///
/// UPSTREAM: kubernetes pkg/controller/garbagecollector/config (ConcurrentGCSyncs)
const WORKERS: usize = 20;
/// The page size of the initial list.
const PAGE: usize = 500;
/// The pause before a retry after a storage failure.
const STORAGE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The resync interval of quota usage.
///
/// UPSTREAM: kubernetes pkg/controller/resourcequota/config (ResourceQuotaSyncPeriod, five minutes); counting is
/// in-process here.
const QUOTA_RESYNC: Duration = Duration::from_secs(30);

/// Key prefixes.
const EVERYTHING: &str = "/";
const NAMESPACES: &str = "/core/namespaces/";
const CLUSTER_ROLES: &str = "/rbac.authorization.k8s.io/clusterroles/";
const POLICIES: &str = "/admissionregistration.k8s.io/validatingadmissionpolicies/";
const DEFINITIONS: &str = "/apiextensions.k8s.io/customresourcedefinitions/";
const FLOW_CONTROL: &str = "/flowcontrol.apiserver.k8s.io/";

/// Starts the enabled controllers. CustomResourceDefinitions are always established, and by separate workers: requests
/// wait for them, so they must not queue behind slow work.
///
/// On a shared store, the leader runs the rest.
pub(crate) fn start(
    context: Context,
    leads: watch::Receiver<bool>,
    tasks: &Tasks,
    threads: &Heavy,
) {
    let context = Arc::new(context);
    let on = context.settings.enabled;
    let always = watch::channel(true).1;
    let controllers = |prefix| Controllers {
        context: Arc::clone(&context),
        prefix,
        leads: match prefix {
            EVERYTHING => leads.clone(),
            _ => always.clone(),
        },
        acts: true,
        graph: Arc::default(),
        queue: Queue::default(),
        quotas: resource_quota::Namespaces::default(),
        running: Workers::new(),
    };
    threads.spawn(tasks.until_stopped(controllers(DEFINITIONS).run()));
    // This controller is part of kube-apiserver.
    threads.spawn(tasks.until_stopped(controllers(FLOW_CONTROL).run()));
    // Like kube-apiserver, independent of the enabled controllers.
    threads.spawn(tasks.until_stopped(api_service::run(Arc::clone(&context))));
    if on != Switches::all(false) {
        threads.spawn(tasks.until_stopped(controllers(EVERYTHING).run()));
    }
}

struct Controllers {
    context: Arc<Context>,
    /// The watched key prefix.
    prefix: &'static str,
    /// True while this server is the leader.
    leads: watch::Receiver<bool>,
    acts: bool,
    graph: Arc<Mutex<Graph>>,
    queue: Queue,
    quotas: resource_quota::Namespaces,
    running: Workers<Work, (Came, Vec<Arc<str>>)>,
}

impl Controllers {
    async fn run(mut self) {
        loop {
            let mut leads = self.leads.clone();
            self.acts = *leads.borrow_and_update();
            let changed = async {
                // The sender is dropped: the value is final.
                if leads.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            let ended = tokio::select! {
                error = self.follow() => Some(error),
                () = changed => None,
            };
            match ended {
                // The watch expired: the loop starts again.
                Some(ReadError::Compacted(_)) => {}
                Some(error) => {
                    tracing::warn!(%error, "controllers cannot read the store");
                    tokio::time::sleep(STORAGE_RETRY_DELAY).await;
                }
                // Work in progress is abandoned: another server takes over.
                None => {
                    self.running = Workers::new();
                    self.queue = Queue::default();
                    self.quotas = resource_quota::Namespaces::default();
                    self.graph = Arc::default();
                }
            }
        }
    }

    /// Reads everything, then watches until an error.
    async fn follow(&mut self) -> ReadError {
        let store = Arc::clone(self.context.writer.storage.store());
        let began = match self.acts {
            true => self.list_all().await,
            false => store.revision().await.map_err(ReadError::from),
        };
        let revision = match began {
            Ok(revision) => revision,
            Err(error) => return error,
        };
        // Loops with a few watched resources act on every event.
        let concerns = if self.acts { concerns } else { is_waited_for };
        let filter = (self.prefix == EVERYTHING).then(|| Arc::new(concerns) as Filter);
        let watching = store.watch_if(self.prefix, revision, filter);
        let mut watch = match watching.await {
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
                (work, ended) = self.running.next() => {
                    // Work whose worker panicked is retried like failed work.
                    let (came, look) = ended.unwrap_or((Came::Failed, Vec::new()));
                    self.queue.finish(work, came, Instant::now());
                    self.enqueue_all(look);
                }
                () = until(due), if room && due.is_some() => {}
                // Releases charges of writes that failed afterwards.
                _ = resync.tick() => {
                    for namespace in self.quotas.all() {
                        self.queue.add(Work::Quotas(namespace.into()));
                    }
                }
            }
        }
    }

    /// Reads stored objects into a new graph: busy workers must not see a partial one.
    async fn list_all(&mut self) -> Result<Revision, ReadError> {
        let store = Arc::clone(self.context.writer.storage.store());
        let graph: Arc<Mutex<Graph>> = Arc::default();
        let mut at = ReadAt::Latest;
        let mut last: Option<Arc<str>> = None;
        loop {
            let list = List {
                at,
                after: last.as_deref(),
                limit: Some(PAGE),
                ..List::all(self.prefix)
            };
            let page = store.list(list).await?;
            for entry in &page.entries {
                let event = Event::Put {
                    entry: Entry::clone(entry),
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

    /// Queues the work that follows from an event.
    fn observe(&mut self, graph: &Mutex<Graph>, event: &Event) {
        let key = event.key();
        if self.prefix == DEFINITIONS {
            if let Some(name) = key.strip_prefix(DEFINITIONS) {
                self.queue.add(Work::Definition(name.into()));
            }
            return;
        }
        if self.prefix == FLOW_CONTROL {
            self.queue.add(Work::FlowControl);
            return;
        }
        let on = self.context.settings.enabled;
        if !self.acts {
            self.observe_namespace(event);
            return;
        }
        if on.garbage_collector && !garbage_collector::is_ignored(key) {
            let look = {
                let mut graph = graph.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Event::Put { entry, previous } => graph.stored(entry, previous.as_ref()),
                    Event::Delete { previous, .. } => graph.removed(previous),
                }
            };
            self.enqueue_all(look);
        }
        if on.role_aggregation && key.starts_with(CLUSTER_ROLES) {
            self.queue.add(Work::Aggregate);
        }
        if on.policy_status
            && let Event::Put { .. } = event
            && let Some(name) = key.strip_prefix(POLICIES)
        {
            self.queue.add(Work::PolicyStatus(name.into()));
        }
        if on.resource_quota
            && let Some(namespace) = self.quotas.observe(event)
        {
            self.queue.add(Work::Quotas(namespace.into()));
        }
        if let Some(key) = protection::key_of(&on, event) {
            self.queue.add(Work::Protect(Arc::clone(key)));
        }
        if let Some(prefix) = protection::freed_by(key) {
            self.queue.retry_protected(&prefix);
        }
        if on.namespace {
            self.observe_deletion(event);
        }
        self.observe_namespace(event);
    }

    /// Queues the default objects of a new namespace, or of one that a request waits for.
    fn observe_namespace(&mut self, event: &Event) {
        let on = self.context.settings.enabled;
        if !on.service_account && !on.root_ca {
            return;
        }
        let key = event.key();
        let namespace = match key.strip_prefix(NAMESPACES) {
            Some(name) => matches!(event, Event::Put { .. }).then_some(name),
            None => namespace_defaults::namespace_of(key),
        };
        if let Some(name) = namespace {
            self.queue.add(Work::Namespace(name.into()));
        }
    }

    /// Queues the deletion of a namespace's contents, again when an object in it is deleted.
    fn observe_deletion(&mut self, event: &Event) {
        let key = event.key();
        match event {
            Event::Put { entry, .. } => {
                if let Some(name) = key.strip_prefix(NAMESPACES)
                    && Meta::read(entry).is_some_and(|meta| meta.is_deleting())
                {
                    let at = Instant::now() + self.context.settings.namespace_grace;
                    self.queue.add_later(Work::EmptyNamespace(name.into()), at);
                }
            }
            Event::Delete { .. } => {
                // group, plural, namespace, name
                let mut parts = key.trim_start_matches('/').splitn(4, '/').skip(2);
                if let (Some(namespace), Some(_)) = (parts.next(), parts.next()) {
                    self.queue.retry_now(Work::EmptyNamespace(namespace.into()));
                }
            }
        }
    }

    fn enqueue_all(&mut self, keys: Vec<Arc<str>>) {
        for key in keys {
            self.queue.add(Work::Collect(key));
        }
    }

    fn begin_work(&mut self) {
        while self.running.len() < WORKERS
            && let Some(work) = self.queue.take(Instant::now())
        {
            let (context, graph) = (Arc::clone(&self.context), Arc::clone(&self.graph));
            let acts = self.acts;
            self.running.start(work.clone(), async move {
                match perform(&context, &graph, &work, acts).await {
                    Ok(came) => came,
                    Err(failure) => {
                        let error = failure.0.message;
                        tracing::debug!(?work, error, "controller failed, retrying");
                        (Came::Failed, Vec::new())
                    }
                }
            });
        }
    }
}

/// Returns true if work may follow from an event. Most writes concern no controller, and wake none: that would cost as
/// much as the write.
fn concerns(event: &Event) -> bool {
    let key = event.key();
    let is_watched = || {
        let prefixes = [NAMESPACES, CLUSTER_ROLES, POLICIES];
        prefixes.iter().any(|prefix| key.starts_with(prefix))
            || namespace_defaults::namespace_of(key).is_some()
            || resource_quota::is_watched(key)
            || protection::is_watched(key)
    };
    match event {
        Event::Delete { .. } => true,
        Event::Put { entry, previous } => {
            let mut entries = std::iter::once(entry).chain(previous);
            is_watched() || entries.any(garbage_collector::may_concern)
        }
    }
}

/// Returns true for events that writes on this server may wait for, while another server runs the controllers.
fn is_waited_for(event: &Event) -> bool {
    let key = event.key();
    key.starts_with(NAMESPACES) || namespace_defaults::namespace_of(key).is_some()
}

/// Runs one work item, and notifies its waiters, also on failure.
async fn perform(
    context: &Context,
    graph: &Mutex<Graph>,
    work: &Work,
    acts: bool,
) -> Outcome<(Came, Vec<Arc<str>>)> {
    let storage = &context.writer.storage;
    let revision = storage.store().revision().await?;
    // Events are published before effects are applied, and admission depends on the effects.
    storage.effects_applied().await?;
    let done = match work {
        Work::Collect(key) => {
            let look = garbage_collector::reconcile(context, graph, key).await?;
            return Ok((Came::Done, look));
        }
        Work::Namespace(name) if !acts => {
            if namespace_defaults::exist(context, name).await? {
                let key = format!("{NAMESPACES}{name}");
                storage.reconciled().notify(&key, revision);
            }
            Ok(Came::Done)
        }
        Work::Namespace(name) => {
            let changed = namespace_defaults::reconcile(context, name).await;
            storage
                .reconciled()
                .notify(&format!("{NAMESPACES}{name}"), revision);
            changed.map(changed_or_done)
        }
        // Usage changes whenever there is something to count.
        Work::Quotas(namespace) => resource_quota::reconcile(context, namespace)
            .await
            .map(|_| Came::Done),
        Work::PolicyStatus(name) => policy_status::reconcile(context, name)
            .await
            .map(|()| Came::Done),
        Work::EmptyNamespace(name) => namespace::reconcile(context, name)
            .await
            .map(done_or_failed),
        Work::Definition(name) => {
            let reconciled = definition::reconcile(context, name).await;
            storage
                .reconciled()
                .notify(&format!("{DEFINITIONS}{name}"), revision);
            reconciled.map(done_or_failed)
        }
        Work::Protect(key) => protection::reconcile(context, key)
            .await
            .map(done_or_failed),
        Work::FlowControl => flow_control::reconcile(context).await.map(changed_or_done),
        Work::Aggregate => role_aggregation::reconcile(context)
            .await
            .map(changed_or_done),
    };
    Ok((done?, Vec::new()))
}

/// Incomplete work is retried.
fn done_or_failed(is_done: bool) -> Came {
    if is_done { Came::Done } else { Came::Failed }
}

fn changed_or_done(changed: bool) -> Came {
    if changed { Came::Changed } else { Came::Done }
}

async fn until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due.into()).await;
    }
}
