//! Watches the webhook configurations and namespaces of the main API server for an engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use lockgate_admission::configuration::Configurations;
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{BoxFuture, Host, Namespace, NamespaceError, Namespaces};
use lockgate_admission::https::{HttpsCaller, Settings};
use lockgate_api::document::{Value, json};
use lockgate_api::registration::{ConfigurationKind, Version, codec};
use tokio::sync::watch;

use crate::server::{Failure, Server};

const MAX_LIST_BYTES: usize = 256 * 1024 * 1024;
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// The initial and the maximum backoff.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// An engine, and the watches that update it.
pub struct Feed {
    /// The engine.
    pub engine: Engine,
    server: Arc<Server>,
    namespaces: Arc<KnownNamespaces>,
    changes: Arc<watch::Sender<u64>>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl Feed {
    /// Creates an empty engine; requests wait until it is synced.
    ///
    /// # Errors
    ///
    /// Fails if the engine cannot be created.
    pub fn new(server: Arc<Server>) -> Result<Self, Failure> {
        let namespaces = Arc::new(KnownNamespaces {
            server: Arc::clone(&server),
            namespaces: Mutex::default(),
        });
        let mut host = Host::new(Arc::new(HttpsCaller::new(Settings::default())));
        host.namespaces = namespaces.clone();
        let mut builder = Engine::builder(host);
        for kind in [ConfigurationKind::Mutating, ConfigurationKind::Validating] {
            builder = builder.configurations(Arc::new(Configurations::unsynced(kind)));
        }
        Ok(Self {
            engine: builder.build()?,
            server,
            namespaces,
            changes: Arc::new(watch::Sender::new(0)),
        })
    }

    /// A counter of the applied changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Keeps the engine up to date while it is polled.
    pub async fn run(&self, report: impl Fn(&str) + Sync) {
        let registrations = "/apis/admissionregistration.k8s.io/v1";
        let mutating = format!("{registrations}/mutatingwebhookconfigurations");
        let validating = format!("{registrations}/validatingwebhookconfigurations");
        let sink = |kind| &**self.engine.configurations(kind);
        tokio::join!(
            self.follow(&mutating, sink(ConfigurationKind::Mutating), &report),
            self.follow(&validating, sink(ConfigurationKind::Validating), &report),
            self.follow("/api/v1/namespaces", &*self.namespaces, &report),
        );
    }

    /// Lists and then watches one collection, and relists when the watch expires.
    async fn follow(&self, path: &str, sink: &dyn Sink, report: &(impl Fn(&str) + Sync)) {
        let mut version = None;
        let mut pause = BACKOFF.0;
        loop {
            let step = match version.take() {
                None => self.list(path, sink).await,
                Some(since) => self.watch(path, sink, since).await,
            };
            match step {
                Ok(step) => {
                    version = step.version;
                    if step.progress {
                        pause = BACKOFF.0;
                        continue;
                    }
                }
                Err(problem) => report(&format!("{path}: {problem}")),
            }
            tokio::time::sleep(pause).await;
            pause = BACKOFF.1.min(pause * 2);
        }
    }

    async fn list(&self, path: &str, sink: &dyn Sink) -> Result<Step, Failure> {
        let response = self.server.get(path).await?;
        if !response.status().is_success() {
            return Err(format!("the list was refused: {}", response.status()).into());
        }
        let body = Limited::new(response.into_body(), MAX_LIST_BYTES);
        let body = body.collect().await?.to_bytes();
        let list = json::parse(&body).map_err(|error| error.to_string())?;
        let items: Vec<Value<'_>> = list
            .root()
            .get("items")
            .into_iter()
            .flat_map(|items| items.items())
            .collect();
        sink.replace(&items)?;
        self.changes.send_modify(|changes| *changes += 1);
        Ok(Step {
            version: resource_version(list.root()),
            progress: true,
        })
    }

    /// Reads one watch until it ends.
    async fn watch(&self, path: &str, sink: &dyn Sink, since: String) -> Result<Step, Failure> {
        let query = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={since}");
        let response = self.server.get(&query).await?;
        let expired = Step {
            version: None,
            progress: false,
        };
        if response.status() == http::StatusCode::GONE {
            return Ok(expired);
        }
        if !response.status().is_success() {
            return Err(format!("the watch was refused: {}", response.status()).into());
        }
        let mut step = Step {
            version: Some(since),
            progress: false,
        };
        let mut lines = Lines::new(response.into_body());
        // An interrupted watch resumes from the last event.
        while let Ok(Some(line)) = lines.next().await {
            let event = json::parse(&line).map_err(|error| error.to_string())?;
            let event = event.root();
            let kind = event.get("type").and_then(|kind| kind.as_str());
            let object = event.get("object").ok_or("an event without an object")?;
            match kind.unwrap_or_default() {
                "ADDED" | "MODIFIED" => sink.put(object)?,
                "DELETED" => sink.remove(name(object)),
                "BOOKMARK" => {}
                // The watch expired: relist.
                "ERROR" => return Ok(expired),
                other => return Err(format!("an event of type `{other}`").into()),
            }
            step.version = resource_version(object).or(step.version);
            step.progress = true;
            self.changes.send_modify(|changes| *changes += 1);
        }
        Ok(step)
    }
}

/// The state of a followed collection.
struct Step {
    /// The resourceVersion to watch from; `None` to list again.
    version: Option<String>,
    /// True if any event was received.
    progress: bool,
}

/// The receiver of a collection's objects.
trait Sink: Sync {
    fn replace(&self, all: &[Value<'_>]) -> Result<(), Failure>;
    fn put(&self, object: Value<'_>) -> Result<(), Failure>;
    fn remove(&self, name: &str);
}

impl Sink for Configurations {
    fn replace(&self, all: &[Value<'_>]) -> Result<(), Failure> {
        let decode = |value: &Value<'_>| codec::decode(*value, self.kind(), Version::V1);
        let all: Result<Vec<_>, _> = all.iter().map(decode).collect();
        let all = all.map_err(|error| error.message)?;
        Self::replace(self, all.iter().map(|decoded| &decoded.value));
        Ok(())
    }

    fn put(&self, object: Value<'_>) -> Result<(), Failure> {
        let decoded = codec::decode(object, self.kind(), Version::V1);
        self.upsert(&decoded.map_err(|error| error.message)?.value);
        Ok(())
    }

    fn remove(&self, name: &str) {
        Self::remove(self, name);
    }
}

/// The namespaces of the server; `None` before the first list.
struct KnownNamespaces {
    server: Arc<Server>,
    namespaces: Mutex<Option<HashMap<String, Arc<Namespace>>>>,
}

impl KnownNamespaces {
    fn with<T>(&self, act: impl FnOnce(&mut Option<HashMap<String, Arc<Namespace>>>) -> T) -> T {
        act(&mut self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for KnownNamespaces {
    fn replace(&self, all: &[Value<'_>]) -> Result<(), Failure> {
        let all = all
            .iter()
            .map(|object| (name(*object).to_owned(), namespace(*object)));
        self.with(|known| *known = Some(all.collect()));
        Ok(())
    }

    fn put(&self, object: Value<'_>) -> Result<(), Failure> {
        let (name, namespace) = (name(object).to_owned(), namespace(object));
        self.with(|known| known.get_or_insert_default().insert(name, namespace));
        Ok(())
    }

    fn remove(&self, name: &str) {
        self.with(|known| known.get_or_insert_default().remove(name));
    }
}

impl Namespaces for KnownNamespaces {
    fn synced(&self) -> bool {
        self.with(|known| known.is_some())
    }

    fn cached(&self, name: &str) -> Option<Arc<Namespace>> {
        self.with(|known| known.as_ref()?.get(name).cloned())
    }

    fn fetch<'f>(&'f self, name: &'f str) -> BoxFuture<'f, Result<Arc<Namespace>, NamespaceError>> {
        Box::pin(async move {
            let failed = |problem: Failure| NamespaceError::Failed(problem.to_string());
            let path = format!("/api/v1/namespaces/{name}");
            let response = self.server.get(&path).await.map_err(failed)?;
            if response.status() == http::StatusCode::NOT_FOUND {
                return Err(NamespaceError::not_found(name));
            }
            let is_found = response.status().is_success();
            let body = Limited::new(response.into_body(), MAX_EVENT_BYTES);
            let body = body.collect().await.map_err(failed)?.to_bytes();
            match json::parse(&body) {
                Ok(found) if is_found => Ok(namespace(found.root())),
                _ => Err(NamespaceError::Failed(format!(
                    "namespace `{name}` is not told"
                ))),
            }
        })
    }
}

fn metadata<'d>(object: Value<'d>, member: &str) -> Option<Value<'d>> {
    object.get("metadata")?.get(member)
}

fn name(object: Value<'_>) -> &str {
    let name = metadata(object, "name").and_then(|name| name.as_str());
    name.unwrap_or_default()
}

fn resource_version(object: Value<'_>) -> Option<String> {
    let version = metadata(object, "resourceVersion")?.as_str()?;
    Some(version.to_owned())
}

fn namespace(object: Value<'_>) -> Arc<Namespace> {
    let labels = metadata(object, "labels").into_iter();
    let labels = labels.flat_map(|labels| labels.members());
    let labels: BTreeMap<String, String> = labels
        .filter_map(|label| Some((label.key.to_owned(), label.value.as_str()?.to_owned())))
        .collect();
    Arc::new(Namespace {
        labels,
        terminating: metadata(object, "deletionTimestamp").is_some_and(|time| !time.is_null()),
    })
}

/// The lines of a streamed body.
struct Lines {
    body: Incoming,
    rest: BytesMut,
}

impl Lines {
    fn new(body: Incoming) -> Self {
        Self {
            body,
            rest: BytesMut::new(),
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1).freeze();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            if self.rest.len() > MAX_EVENT_BYTES {
                return Err("an event is too large".into());
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame?.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
