//! Watches.
//!
//! A task reads the store and fills a short queue. When the client does not empty it, the task waits,
//! and falls behind until the store cuts it off: a slow client costs itself only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lockgate_kinds::protobuf;
use lockgate_store::{Entry, Event, ReadAt, ReadError, Revision, Watch};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::decode::selection::Selection;
use crate::encoding;
use crate::error::{Failure, Outcome, expired, plain};
use crate::http::body::{Body, Queued, Response};
use crate::http::in_flight::{InFlight, Permit};
use crate::http::limits;
use crate::http::negotiate::{Encoding, View, Wanted};
use crate::http::query::{Query, int};
use crate::persist::Storage;
use crate::read::list;
use crate::registry::Resource;
use crate::request::Request;
use crate::respond::{self, Tables};
use crate::tasks::Tasks;

/// The interval of bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// The shortest default timeout of a watch.
const DEFAULT_SECONDS: u64 = 1800;
/// The longest that a watch lasts, whatever its client says: 30 years.
const LONGEST_SECONDS: u64 = 30 * 365 * 24 * 3600;

/// The media type of a stream of protobuf.
const STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The form in which a client wants objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) wanted: Wanted,
    pub(crate) tables: Option<Tables>,
}

/// How long it takes until room is asked for again.
const ROOM_PAUSE: Duration = Duration::from_millis(10);

/// Sends the events of one watch to one client.
struct EventStream {
    storage: Storage,
    tasks: Tasks,
    resource: Arc<Resource>,
    selection: Selection,
    events: mpsc::Sender<Queued>,
    /// The memory of events that wait for their clients, and whose it is.
    room: InFlight,
    user: String,
    /// The room of the event that is being made.
    held: Mutex<Option<Permit>>,
    bookmarks: bool,
    /// The version of `meta.k8s.io` if only metadata is shown.
    metadata_only: Option<&'static str>,
    encoding: Encoding,
    tables: Option<Tables>,
    /// True until the first event is sent.
    is_first: AtomicBool,
}

/// Starts a watch.
pub(crate) async fn watch(
    storage: &Storage,
    tasks: &Tasks,
    request: &Request,
    query: &Query,
    (shown, room): (Shown, &InFlight),
) -> Outcome<Response> {
    let resource = &request.resource;
    let selection = Selection::read(query, resource)?;
    let prefix = storage.prefix(resource, request.namespace());
    let seconds = match query.first("timeoutSeconds") {
        None => None,
        Some(text) => int(text).ok(),
    };
    let seconds = seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|&seconds| seconds > 0);
    // A watch that is to last for ever lasts as long as a server does.
    let seconds = seconds.unwrap_or_else(default_seconds).min(LONGEST_SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    let version = query.text("resourceVersion");
    let initial = query.flag("sendInitialEvents");
    let from_scratch = version.is_empty() || version == "0";
    let wanted = if from_scratch {
        Revision::START
    } else {
        // UPSTREAM: a text that is no number is an error without a status of its own.
        list::revision(version).map_err(|error| plain(error.to_string()))?
    };
    let (events, receiver) = mpsc::channel(limits::WATCH_BACKLOG);
    let shows_state = initial.unwrap_or(from_scratch);
    let (first, after) = if shows_state {
        let at = if from_scratch {
            ReadAt::Latest
        } else {
            ReadAt::NotOlderThan(wanted)
        };
        list::read_at(storage, at, || storage.store().get("/", at)).await?;
        let found = list::everything(storage, resource, &selection, &prefix).await?;
        (found.entries, found.revision)
    } else if from_scratch {
        (Vec::new(), storage.store().revision().await?)
    } else {
        (Vec::new(), wanted)
    };
    let current = storage.store().revision().await?;
    let watch = match storage.store().watch(&prefix, after.min(current)).await {
        Ok(watch) => watch,
        Err(ReadError::Compacted(compacted)) => {
            let failure = too_old(after, compacted.oldest);
            return Ok(ended_at_once(&failure, shown.wanted.encoding));
        }
        Err(error) => return Err(crate::error::read_failed(error, after.0)),
    };
    let bookmarks = query.flag("allowWatchBookmarks") == Some(true);
    let teller = EventStream {
        storage: storage.clone(),
        tasks: tasks.clone(),
        resource: Arc::clone(resource),
        selection,
        events,
        room: room.clone(),
        user: request.user().username.clone(),
        held: Mutex::new(None),
        bookmarks,
        metadata_only: match shown.wanted.view {
            View::Metadata(version) => Some(version),
            View::Object | View::Table(_) => None,
        },
        encoding: shown.wanted.encoding,
        tables: shown.tables,
        is_first: AtomicBool::new(true),
    };
    let state = State {
        first,
        ends_with_bookmark: initial == Some(true),
        after,
    };
    tasks.spawn(async move {
        // Whether the client or the watch went first makes no difference.
        let _ = teller.run(watch, state, end).await;
    });
    Ok(stream(Body::stream(receiver), shown.wanted.encoding))
}

/// A time between the default and twice of it, so that many watches do not end at once.
fn default_seconds() -> u64 {
    let mut byte = [0];
    let part = getrandom::fill(&mut byte).map_or(0, |()| u64::from(byte[0]));
    DEFAULT_SECONDS + DEFAULT_SECONDS * part / 256
}

fn too_old(wanted: Revision, oldest: Revision) -> Failure {
    expired(format!("too old resource version: {wanted} ({oldest})"))
}

fn stream(body: Body, encoding: Encoding) -> Response {
    let mut response = Response::new(body);
    // UPSTREAM: apiserver pkg/endpoints/handlers/watch.go. A stream of YAML is one of JSON.
    let media_type = match encoding {
        Encoding::Protobuf => STREAM,
        Encoding::Json { .. } | Encoding::Yaml => "application/json",
    };
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(media_type),
    );
    response
}

/// A watch whose only event is an error.
fn ended_at_once(failure: &Failure, encoding: Encoding) -> Response {
    stream(Body::whole(error_event(failure, encoding)), encoding)
}

fn error_event(failure: &Failure, encoding: Encoding) -> Bytes {
    let status = serde_json::to_value(&failure.0).unwrap_or_default();
    event("ERROR", &status, encoding)
}

/// An event with its object: a line, or a frame.
fn event(kind: &str, object: &Value, encoding: Encoding) -> Bytes {
    if encoding != Encoding::Protobuf {
        let object = respond::object_text(object);
        return format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into();
    }
    match protobuf::encode(object) {
        Ok(body) => protobuf::watch_frame(kind, &body).into(),
        Err(error) => {
            tracing::error!(%error, "an object cannot be written in protobuf");
            Bytes::new()
        }
    }
}

/// The client is gone.
struct Gone;

/// The initial events of a watch.
struct State {
    first: Vec<Arc<Entry>>,
    /// Ends them with a bookmark.
    ends_with_bookmark: bool,
    /// Changes up to here are not told.
    after: Revision,
}

impl EventStream {
    async fn run(self, mut watch: Box<dyn Watch>, state: State, end: Instant) -> Result<(), Gone> {
        let State {
            first,
            ends_with_bookmark,
            after,
        } = state;
        for entry in first {
            self.tell_stored("ADDED", &entry).await?;
        }
        if ends_with_bookmark {
            self.bookmark(after, true).await?;
        }
        let mut next_bookmark = Instant::now() + BOOKMARKS;
        loop {
            let event = tokio::select! {
                event = watch.next() => event,
                () = self.events.closed() => return Err(Gone),
                () = self.tasks.stopped() => return Ok(()),
                () = tokio::time::sleep_until(end) => {
                    let progress = watch.progress().max(after);
                    return self.bookmark(progress, false).await;
                }
                () = tokio::time::sleep_until(next_bookmark) => {
                    let progress = watch.progress().max(after);
                    self.bookmark(progress, false).await?;
                    next_bookmark = Instant::now() + BOOKMARKS;
                    continue;
                }
            };
            match event {
                Ok(event) if event.revision() <= after => {}
                Ok(event) => self.forward(&event).await?,
                Err(ReadError::Compacted(compacted)) => {
                    return self
                        .fail(&too_old(watch.progress(), compacted.oldest))
                        .await;
                }
                Err(error) => {
                    return self.fail(&crate::error::read_failed(error, 0)).await;
                }
            }
        }
    }

    /// Tells a change as the selection sees it: what comes into view is added, what leaves it is
    /// deleted.
    async fn forward(&self, event: &Event) -> Result<(), Gone> {
        let (new, old) = match event {
            Event::Put { entry, previous } => (Some(entry), previous.as_ref()),
            Event::Delete { previous, .. } => (None, Some(previous)),
        };
        let seen = match (self.sees(new).await, self.sees(old).await) {
            (Ok(new), Ok(old)) => (new, old),
            (Err(failure), _) | (_, Err(failure)) => return self.fail(&failure).await,
        };
        match seen {
            (Some(new), Some(_)) => self.tell_stored("MODIFIED", new).await,
            (Some(new), None) => self.tell_stored("ADDED", new).await,
            (None, Some(old)) => {
                // An object that is gone, or out of view, is shown with the version of the change.
                let mut last = old.clone();
                last.revision = event.revision();
                self.tell_stored("DELETED", &last).await
            }
            (None, None) => Ok(()),
        }
    }

    /// The entry, if the selection includes its object.
    async fn sees<'e>(&self, entry: Option<&'e Entry>) -> Outcome<Option<&'e Entry>> {
        let Some(entry) = entry else { return Ok(None) };
        let (selection, resource) = (&self.selection, &self.resource);
        let is_included = if selection.is_everything() {
            true
        } else if resource.is_shown_as_stored() && selection.is_about_metadata() {
            selection.includes_stored(entry)?
        } else {
            let object = self.storage.decode(entry, resource).await?;
            selection.includes(resource, &object)
        };
        Ok(is_included.then_some(entry))
    }

    /// Tells of a stored object, from its bytes where clients are shown those.
    async fn tell_stored(&self, kind: &str, entry: &Entry) -> Result<(), Gone> {
        // Before it is made: many watches may wait at once.
        self.make_room(entry.value.len()).await?;
        let is_text = self.encoding != Encoding::Protobuf;
        if !self.resource.is_shown_as_stored() || self.tables.is_some() || !is_text {
            return match self.storage.decode(entry, &self.resource).await {
                Ok(object) => self.tell(kind, &object).await,
                Err(failure) => self.fail(&failure).await,
            };
        }
        let mut line = String::with_capacity(entry.value.len() + 192);
        line.push_str("{\"type\":\"");
        line.push_str(kind);
        line.push_str("\",\"object\":");
        let rendered = if let Some(version) = self.metadata_only {
            respond::render_partial(&mut line, entry, None, version)
        } else {
            encoding::render(&mut line, entry, Some(self.resource.type_meta()))
        };
        if let Err(failure) = rendered {
            return self.fail(&failure).await;
        }
        line.push_str("}\n");
        self.send(line.into()).await
    }

    async fn fail(&self, failure: &Failure) -> Result<(), Gone> {
        self.send(error_event(failure, self.encoding)).await
    }

    async fn tell(&self, kind: &str, object: &Value) -> Result<(), Gone> {
        let text = if let Some(tables) = self.tables {
            // Only the first table names its columns.
            let tables = match self.is_first.swap(false, Ordering::Relaxed) {
                true => tables,
                false => tables.without_headers(),
            };
            event(
                kind,
                &tables.of_object(&self.resource, object),
                self.encoding,
            )
        } else if let Some(version) = self.metadata_only {
            event(kind, &respond::partial(object, version), self.encoding)
        } else {
            event(kind, object, self.encoding)
        };
        self.send(text).await
    }

    async fn bookmark(&self, revision: Revision, initial: bool) -> Result<(), Gone> {
        if !self.bookmarks {
            return Ok(());
        }
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let shown = self.resource.type_meta();
        let object =
            json!({"kind": shown.kind, "apiVersion": shown.api_version, "metadata": metadata});
        self.tell("BOOKMARK", &object).await
    }

    /// Waits for room for an event. A client that is gone, or whose user keeps all of it for too long,
    /// gets none.
    async fn make_room(&self, bytes: usize) -> Result<(), Gone> {
        let end = Instant::now() + limits::WATCH_ROOM;
        loop {
            if let Some(permit) = self.room.take(&self.user, bytes) {
                *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
                return Ok(());
            }
            tokio::select! {
                () = self.events.closed() => return Err(Gone),
                () = tokio::time::sleep(ROOM_PAUSE) => {}
            }
            if Instant::now() > end {
                tracing::debug!(user = self.user, "a watch reads too slowly");
                return Err(Gone);
            }
        }
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        let queued = Queued {
            bytes,
            _room: self.held_room(),
        };
        self.events.send(queued).await.map_err(|_| Gone)
    }

    fn held_room(&self) -> Option<Permit> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.take()
    }
}
