//! Events of the core group: repeated events are counted, and events are rate limited per object.
//!
//! UPSTREAM: client-go tools/record/event.go, events_cache.go

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::api::{Api, Author, Target};
use crate::kind::Kind;
use crate::object::{Object, now_text};

/// The maximum number of queued events; further events are dropped.
const WAITING_MAX: usize = 4096;
/// The maximum number of recent events kept for counting.
const KNOWN_MAX: usize = 4096;
/// The burst of events per object, and the interval at which one is refilled.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// A queued event.
#[derive(Debug)]
pub(crate) struct Note {
    by: Author,
    about: Value,
    namespace: String,
    warns: bool,
    reason: &'static str,
    message: String,
}

/// An event recorder.
#[derive(Debug)]
pub(crate) struct Recorder(mpsc::Sender<Note>);

impl Recorder {
    /// Creates a recorder and the receiving end of its queue.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Note>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// Records an event of type `Normal`.
    pub(crate) fn normal(
        &self,
        by: &Author,
        about: &Object,
        reason: &'static str,
        message: String,
    ) {
        self.record(by, about, false, reason, message);
    }

    /// Records an event of type `Warning`.
    pub(crate) fn warning(
        &self,
        by: &Author,
        about: &Object,
        reason: &'static str,
        message: String,
    ) {
        self.record(by, about, true, reason, message);
    }

    /// Records an event about a container, identified by its field path.
    pub(crate) fn of_container(
        &self,
        by: &Author,
        pod: &Object,
        field: &str,
        reason: &'static str,
        message: String,
    ) {
        let mut about = pod.as_reference();
        about["fieldPath"] = field.into();
        self.send(by, pod, about, false, reason, message);
    }

    fn record(
        &self,
        by: &Author,
        about: &Object,
        warns: bool,
        reason: &'static str,
        message: String,
    ) {
        self.send(by, about, about.as_reference(), warns, reason, message);
    }

    fn send(
        &self,
        by: &Author,
        object: &Object,
        about: Value,
        warns: bool,
        reason: &'static str,
        message: String,
    ) {
        let namespace = match object.namespace() {
            "" => "default",
            namespace => namespace,
        };
        // Events are best effort: dropped if the queue is full.
        let _ = self.0.try_send(Note {
            by: by.clone(),
            about,
            namespace: namespace.to_owned(),
            warns,
            reason,
            message,
        });
    }
}

/// A recorded event, to increment its count instead of creating another.
#[derive(Debug, Default)]
struct Known {
    written: HashMap<String, (String, u64)>,
    order: VecDeque<String>,
    /// The remaining burst of an object, and when it was last refilled.
    left: HashMap<String, (u32, Instant)>,
}

impl Known {
    fn remember(&mut self, key: String, name: String) {
        if self.written.insert(key.clone(), (name, 1)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.written.remove(&oldest);
        }
    }

    /// Takes one event from an object's burst.
    fn admits(&mut self, uid: &str, now: Instant) -> bool {
        if self.left.len() > KNOWN_MAX {
            self.left
                .retain(|_, (_, since)| now.duration_since(*since) < REFILL);
        }
        let (left, since) = self.left.entry(uid.to_owned()).or_insert((BURST, now));
        let refills = now.duration_since(*since).as_secs() / REFILL.as_secs();
        if refills > 0 {
            let more = u32::try_from(refills).unwrap_or(BURST);
            *left = left.saturating_add(more).min(BURST);
            *since = now;
        }
        let admits = *left > 0;
        *left = left.saturating_sub(1);
        admits
    }
}

/// Writes events until all recorders are dropped.
pub(crate) async fn write(api: Arc<dyn Api>, mut notes: mpsc::Receiver<Note>) {
    let mut known = Known::default();
    while let Some(note) = notes.recv().await {
        let uid = note.about["uid"].as_str().unwrap_or_default().to_owned();
        let field = note.about["fieldPath"].as_str().unwrap_or_default();
        let (component, reason) = (note.by.component(), note.reason);
        let key = format!("{uid} {field} {component} {reason} {}", note.message);
        if !known.admits(&format!("{uid} {}", note.by.component()), Instant::now()) {
            continue;
        }
        if let Some((name, count)) = known.written.get_mut(&key) {
            *count += 1;
            let (name, count) = (name.clone(), *count);
            if again(api.as_ref(), &note, &name, count).await {
                continue;
            }
            known.written.remove(&key);
        }
        let name = event_name(&note);
        let written = api.create(&note.by, Kind::Event, event(&note, &name)).await;
        match written {
            Ok(_) => known.remember(key, name),
            Err(refused) => {
                tracing::debug!(error = refused.message(), "event not recorded");
            }
        }
    }
}

/// Increments the count of an event. Returns false if it no longer exists.
async fn again(api: &dyn Api, note: &Note, name: &str, count: u64) -> bool {
    let at = Target {
        kind: Kind::Event,
        namespace: &note.namespace,
        name,
        uid: "",
        subresource: "",
    };
    let edit = |event: &mut Value| {
        event["count"] = count.into();
        event["lastTimestamp"] = now_text().into();
    };
    api.edit(&note.by, at, &edit).await.is_ok()
}

/// UPSTREAM: client-go tools/record/event.go (makeEvent): the name of the object and the time in hexadecimal.
fn event_name(note: &Note) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    let about = note.about["name"].as_str().unwrap_or_default();
    format!("{about}.{nanos:x}")
}

fn event(note: &Note, name: &str) -> Value {
    let now = now_text();
    let mut source = json!({"component": note.by.component()});
    if let Author::Kubelet(node) = &note.by {
        source["host"] = node.as_str().into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": note.namespace},
        "involvedObject": note.about,
        "type": if note.warns { "Warning" } else { "Normal" },
        "reason": note.reason,
        "message": note.message,
        "source": source,
        "reportingComponent": note.by.component(),
        "reportingInstance": source["host"].as_str().unwrap_or_default(),
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_gets_a_burst_of_events_and_then_few() {
        let (mut known, now) = (Known::default(), Instant::now());
        let admitted = (0..100).filter(|_| known.admits("u", now)).count();
        assert_eq!(admitted, BURST as usize);
        assert!(known.admits("v", now), "another object has its own");
        assert!(known.admits("u", now + REFILL));
        assert!(!known.admits("u", now + REFILL));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = Known::default();
        for number in 0..KNOWN_MAX + 10 {
            known.remember(number.to_string(), String::new());
        }
        assert_eq!(known.written.len(), KNOWN_MAX);
        assert!(!known.written.contains_key("0"));
    }
}
