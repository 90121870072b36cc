//! Watches.
//!
//! The connection of a watch requests the next event when it can send it, so at most one encoded event waits for a slow
//! client. All of them share the memory of unread responses. A client that does not read falls behind until its watch expires.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use bytes::Bytes;
use futures_util::stream;
use lockgate_go::number::int;
use lockgate_kinds::protobuf;
use lockgate_store::{Entry, Event, ReadAt, ReadError, Revision, Watch};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::decode::selection::Selection;
use crate::encoding;
use crate::error::{Failure, Outcome, expired, plain};
use crate::http::body::{Body, Response};
use crate::http::in_flight::{InFlight, Permit};
use crate::http::limits;
use crate::http::negotiate::{Encoding, Negotiated, View};
use crate::http::query::Query;
use crate::persist::Storage;
use crate::read::list;
use crate::registry::Resource;
use crate::request::Request;
use crate::respond::{self, Tables};
use crate::tasks::Tasks;

/// The interval of bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// The minimum default timeout of a watch.
const DEFAULT_SECONDS: u64 = 1800;
/// The maximum timeout of a watch, whatever the client requests: 30 years.
const MAX_TIMEOUT_SECONDS: u64 = 30 * 365 * 24 * 3600;

/// The media type of a protobuf stream.
const STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The representation of objects for a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Representation {
    pub(crate) wanted: Negotiated,
    pub(crate) tables: Option<Tables>,
}

/// Events up to this size are encoded without a reservation: they take no more memory than the watch itself.
const UNRESERVED: usize = 4 << 10;

/// The events of one watch, each encoded when its connection can send it.
struct EventStream {
    storage: Storage,
    resource: Arc<Resource>,
    selection: Selection,
    /// The initial objects.
    first: vec::IntoIter<Arc<Entry>>,
    /// A bookmark follows the initial objects.
    ends_with_bookmark: bool,
    /// Changes up to this revision are part of the initial objects.
    after: Revision,
    watch: Box<dyn Watch>,
    /// The time of the next bookmark or of the timeout, whichever is first.
    timer: Pin<Box<Sleep>>,
    end: Instant,
    /// Completes when the server stops.
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The memory of responses, and the user who is charged.
    memory: InFlight,
    user: String,
    /// The reservation of the event that was encoded last, until the next one is requested.
    reserved: Option<Permit>,
    bookmarks: bool,
    /// The version of `meta.k8s.io` if the client requested metadata only.
    metadata_only: Option<&'static str>,
    encoding: Encoding,
    tables: Option<Tables>,
    /// True after the last event.
    is_over: bool,
}

/// Starts a watch.
pub(crate) async fn watch(
    storage: &Storage,
    tasks: &Tasks,
    request: &Request,
    query: &Query,
    (shown, memory): (Representation, &InFlight),
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
    // An unlimited watch ends with the server.
    let seconds = seconds
        .unwrap_or_else(default_seconds)
        .min(MAX_TIMEOUT_SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    let version = query.text("resourceVersion");
    let initial = query.flag("sendInitialEvents");
    let from_scratch = version.is_empty() || version == "0";
    let wanted = if from_scratch {
        Revision::START
    } else {
        // UPSTREAM: an invalid number is an error without a status.
        list::revision(version).map_err(|error| plain(error.to_string()))?
    };
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
    let tasks = tasks.clone();
    let events = EventStream {
        storage: storage.clone(),
        resource: Arc::clone(resource),
        selection,
        first: first.into_iter(),
        ends_with_bookmark: bookmarks && initial == Some(true),
        after,
        watch,
        timer: Box::pin(sleep_until(next_bookmark(bookmarks, end))),
        end,
        stopped: Box::pin(async move { tasks.stopped().await }),
        memory: memory.clone(),
        user: request.user().username.clone(),
        reserved: None,
        bookmarks,
        metadata_only: match shown.wanted.view {
            View::Metadata(version) => Some(version),
            View::Object | View::Table(_) => None,
        },
        encoding: shown.wanted.encoding,
        tables: shown.tables,
        is_over: false,
    };
    let events = stream::unfold(Box::new(events), |mut events| async move {
        let event = events.next().await?;
        Some((event, events))
    });
    Ok(streamed(Body::stream(events), shown.wanted.encoding))
}

/// The time of the next bookmark, or of the timeout.
fn next_bookmark(bookmarks: bool, end: Instant) -> Instant {
    match bookmarks {
        true => end.min(Instant::now() + BOOKMARKS),
        false => end,
    }
}

/// A random time between the default and twice the default, so that watches do not all end at once.
fn default_seconds() -> u64 {
    let mut byte = [0];
    let part = getrandom::fill(&mut byte).map_or(0, |()| u64::from(byte[0]));
    DEFAULT_SECONDS + DEFAULT_SECONDS * part / 256
}

fn too_old(wanted: Revision, oldest: Revision) -> Failure {
    expired(format!("too old resource version: {wanted} ({oldest})"))
}

fn streamed(body: Body, encoding: Encoding) -> Response {
    let mut response = Response::new(body);
    // UPSTREAM: apiserver pkg/endpoints/handlers/watch.go. YAML watches are streamed as JSON.
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
    streamed(Body::whole(error_event(failure, encoding)), encoding)
}

fn error_event(failure: &Failure, encoding: Encoding) -> Bytes {
    let status = serde_json::to_value(&failure.0).unwrap_or_default();
    event("ERROR", &status, encoding)
}

/// An event with its object: a line, or a length-prefixed frame.
fn event(kind: &str, object: &Value, encoding: Encoding) -> Bytes {
    if encoding != Encoding::Protobuf {
        let object = respond::object_text(object);
        return format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into();
    }
    match protobuf::encode(object) {
        Ok(body) => protobuf::watch_frame(kind, &body).into(),
        Err(error) => {
            tracing::error!(%error, "cannot encode an object in protobuf");
            Bytes::new()
        }
    }
}

impl EventStream {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        self.reserved = None;
        if let Some(entry) = self.first.next() {
            return self.stored_event("ADDED", &entry).await;
        }
        if std::mem::take(&mut self.ends_with_bookmark) {
            return Some(self.bookmark(self.after, true));
        }
        while !self.is_over {
            // In this order, so that a watch ends however many changes there are.
            let event = tokio::select! {
                biased;
                () = &mut self.stopped => return None,
                () = &mut self.timer => {
                    let now = Instant::now();
                    self.is_over = now >= self.end;
                    self.timer.as_mut().reset(next_bookmark(self.bookmarks, self.end));
                    if !self.bookmarks {
                        continue;
                    }
                    let progress = self.watch.progress().max(self.after);
                    return Some(self.bookmark(progress, false));
                }
                event = self.watch.next() => event,
            };
            match event {
                Ok(event) if event.revision() <= self.after => {}
                Ok(event) => {
                    if let Some(event) = self.seen_event(&event).await {
                        return Some(event);
                    }
                }
                Err(error) => {
                    self.is_over = true;
                    let failure = match error {
                        ReadError::Compacted(compacted) => {
                            too_old(self.watch.progress(), compacted.oldest)
                        }
                        error => crate::error::read_failed(error, 0),
                    };
                    return Some(error_event(&failure, self.encoding));
                }
            }
        }
        None
    }

    /// The event of a change for the selection: an object that enters the selection is added, one that leaves it is deleted.
    async fn seen_event(&mut self, event: &Event) -> Option<Bytes> {
        let (new, old) = match event {
            Event::Put { entry, previous } => (Some(entry), previous.as_ref()),
            Event::Delete { previous, .. } => (None, Some(previous)),
        };
        let seen = match (self.sees(new).await, self.sees(old).await) {
            (Ok(new), Ok(old)) => (new, old),
            (Err(failure), _) | (_, Err(failure)) => {
                return Some(error_event(&failure, self.encoding));
            }
        };
        match seen {
            (Some(new), Some(_)) => self.stored_event("MODIFIED", new).await,
            (Some(new), None) => self.stored_event("ADDED", new).await,
            (None, Some(old)) => {
                // A deleted or no longer matching object has the resourceVersion of the change.
                let mut last = old.clone();
                last.revision = event.revision();
                self.stored_event("DELETED", &last).await
            }
            (None, None) => None,
        }
    }

    /// The entry, if the selection includes its object.
    async fn sees<'e>(&mut self, entry: Option<&'e Entry>) -> Outcome<Option<&'e Entry>> {
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

    /// The event of a stored object, from its bytes if possible; `None` if the watch ends instead.
    async fn stored_event(&mut self, kind: &str, entry: &Entry) -> Option<Bytes> {
        if !self.reserve(entry.value.len()).await {
            self.is_over = true;
            return None;
        }
        let event = self.encode_stored(kind, entry).await;
        Some(event.unwrap_or_else(|failure| error_event(&failure, self.encoding)))
    }

    /// Reserves memory for an event before it is encoded. Returns false if the server stops, or if the unread responses
    /// of the user leave no memory for too long.
    async fn reserve(&mut self, bytes: usize) -> bool {
        if bytes <= UNRESERVED {
            return true;
        }
        tokio::select! {
            biased;
            () = &mut self.stopped => return false,
            memory = self.memory.take_timeout(&self.user, bytes, limits::WATCH_MEMORY_TIMEOUT) => self.reserved = memory,
        }
        if self.reserved.is_none() {
            tracing::debug!(
                user = self.user,
                "no memory for a watch event, watch closed"
            );
        }
        self.reserved.is_some()
    }

    async fn encode_stored(&mut self, kind: &str, entry: &Entry) -> Outcome<Bytes> {
        let is_text = self.encoding != Encoding::Protobuf;
        if !self.resource.is_shown_as_stored() || self.tables.is_some() || !is_text {
            let object = self.storage.decode(entry, &self.resource).await?;
            return Ok(self.event(kind, &object));
        }
        let mut line = String::with_capacity(entry.value.len() + 192);
        line.push_str("{\"type\":\"");
        line.push_str(kind);
        line.push_str("\",\"object\":");
        match self.metadata_only {
            Some(version) => respond::render_partial(&mut line, entry, None, version)?,
            None => encoding::render(&mut line, entry, Some(self.resource.type_meta()))?,
        }
        line.push_str("}\n");
        Ok(line.into())
    }

    fn event(&mut self, kind: &str, object: &Value) -> Bytes {
        if let Some(tables) = &mut self.tables {
            let table = tables.of_object(&self.resource, object);
            // Only the first table contains column definitions.
            *tables = tables.without_headers();
            event(kind, &table, self.encoding)
        } else if let Some(version) = self.metadata_only {
            event(kind, &respond::partial(object, version), self.encoding)
        } else {
            event(kind, object, self.encoding)
        }
    }

    fn bookmark(&mut self, revision: Revision, initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let shown = self.resource.type_meta();
        let object =
            json!({"kind": shown.kind, "apiVersion": shown.api_version, "metadata": metadata});
        self.event("BOOKMARK", &object)
    }
}
