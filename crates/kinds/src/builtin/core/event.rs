//! Events, of the core group and of `events.k8s.io`.

use crate::cells::read;
use crate::cells::{Common, Row, cell, since};
use crate::kind::{
    Deletion, FieldSelector, Finalizers, Kind, NAME, NAMESPACE, Resource, first_of, namespaced,
    select,
};
use crate::object::Object;
use lockgate_api::meta::time::Time;
use serde_json::Value;

pub(super) const EVENTS: Resource =
    namespaced("", "v1", "events", "event", "Event", "EventList", &Event)
        .short(&["ev"])
        .create_on_update();

pub(in crate::builtin) const NEW_EVENTS: Resource = namespaced(
    "events.k8s.io",
    "v1",
    "events",
    "event",
    "Event",
    "EventList",
    &NewEvent,
)
.short(&["ev"])
.stored_as("", "v1", "events")
.create_on_update();

/// Labels of the core event; each is read in either version's spelling.
const SELECTABLE: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    select("involvedObject.kind", &["involvedObject", "kind"]),
    select("involvedObject.namespace", &["involvedObject", "namespace"]),
    select("involvedObject.name", &["involvedObject", "name"]),
    select("involvedObject.uid", &["involvedObject", "uid"]),
    select(
        "involvedObject.apiVersion",
        &["involvedObject", "apiVersion"],
    ),
    select(
        "involvedObject.resourceVersion",
        &["involvedObject", "resourceVersion"],
    ),
    select("involvedObject.fieldPath", &["involvedObject", "fieldPath"]),
    select("reason", &["reason"]),
    select("reportingComponent", &["reportingComponent"]),
    first_of(
        "source",
        &[&["source", "component"], &["reportingComponent"]],
    ),
    select("type", &["type"]),
];

const NEW_SELECTABLE: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    select("regarding.kind", &["regarding", "kind"]),
    select("regarding.namespace", &["regarding", "namespace"]),
    select("regarding.name", &["regarding", "name"]),
    select("regarding.uid", &["regarding", "uid"]),
    select("regarding.apiVersion", &["regarding", "apiVersion"]),
    select(
        "regarding.resourceVersion",
        &["regarding", "resourceVersion"],
    ),
    select("regarding.fieldPath", &["regarding", "fieldPath"]),
    select("reason", &["reason"]),
    select("reportingController", &["reportingController"]),
    select("type", &["type"]),
];

/// The members of an event in the core group and in `events.k8s.io`.
const MEMBERS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The kind `Event` of the core group.
#[derive(Debug)]
pub(super) struct Event;

impl Kind for Event {
    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn convert(&self, object: &mut Object, _to: &Resource) {
        rename(object, |(core, new)| (new, core));
    }

    fn columns(&self) -> &'static str {
        "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        event_row(object, common.now)
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().without_dependents()
    }
}

/// The kind `Event` of `events.k8s.io`.
#[derive(Debug)]
pub(super) struct NewEvent;

impl Kind for NewEvent {
    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn convert(&self, object: &mut Object, _to: &Resource) {
        rename(object, |(core, new)| (core, new));
    }

    fn columns(&self) -> &'static str {
        "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        event_row(object, common.now)
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(NEW_SELECTABLE)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().without_dependents()
    }
}

fn rename(
    object: &mut Object,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    for (from, to) in MEMBERS.map(direction) {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}

fn event_row(object: &Value, now: Time) -> Row {
    let at = |pointer: &str| since(read::text(object, pointer), now);
    let first = match read::text(object, "/firstTimestamp") {
        "" => at("/eventTime"),
        time => since(time, now),
    };
    let mut last = match read::text(object, "/lastTimestamp") {
        "" => first.clone(),
        time => since(time, now),
    };
    let mut count = read::integer(object, "/count");
    if object.get("series").is_some_and(Value::is_object) {
        last = at("/series/lastObservedTime");
        count = read::integer(object, "/series/count");
    } else if count == 0 {
        // One that never came again has no count.
        count = 1;
    }
    let kind = read::text(object, "/involvedObject/kind").to_lowercase();
    let target = match read::text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = read::text_or(
        object,
        "/source/component",
        read::text(object, "/reportingComponent"),
    );
    let host = read::text_or(
        object,
        "/source/host",
        read::text(object, "/reportingInstance"),
    );
    let source = if host.is_empty() {
        source
    } else {
        format!("{source}, {host}")
    };
    Row::of(vec![
        cell(last),
        cell(read::text(object, "/type")),
        cell(read::text(object, "/reason")),
        cell(target),
        cell(read::text(object, "/involvedObject/fieldPath")),
        cell(source),
        cell(read::text(object, "/message").trim()),
        cell(first),
        cell(count),
        cell(read::text(object, "/metadata/name")),
    ])
}
