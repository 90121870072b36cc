//! Events, of the core group and of `events.k8s.io`.

use crate::at::At;
use crate::cells::{Common, Row, cell, read, since};
use crate::kind::{
    Context, Deletion, FieldSelector, Finalizers, Kind, NAME, NAMESPACE, Resource, Written,
    first_of, namespaced, select,
};
use crate::object::Object;
use crate::typed::member_type;
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::{check_qualified_name, check_subdomain};
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

/// Field selectors of the core group's Event; both versions' field names are accepted.
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

/// Field names in the core group and in `events.k8s.io`.
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
    fn validate_create(&self, new: &Written<'_>, _context: &Context<'_>) -> FieldErrors {
        let mut errors = FieldErrors::new();
        event(&mut errors, new.object(), "reportingComponent");
        errors
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        _old: &Written<'_>,
        _context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = FieldErrors::new();
        event(&mut errors, new.object(), "reportingComponent");
        errors
    }

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
    fn error_group(&self) -> Option<&'static str> {
        // Upstream's internal type is the core group's.
        Some("")
    }

    fn validate_create(&self, new: &Written<'_>, _context: &Context<'_>) -> FieldErrors {
        let object = in_core(new.object());
        let mut errors = FieldErrors::new();
        event(&mut errors, &object, "reportingController");
        errors.extend(self.validate_metadata(new));
        new_event(&mut errors, &object);
        errors
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> FieldErrors {
        let (object, former) = (in_core(new.object()), in_core(old.object()));
        let mut errors = FieldErrors::new();
        event(&mut errors, &object, "reportingController");
        errors.extend(self.validate_metadata_update(new, old));
        event_update(&mut errors, &object, &former);
        errors
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
        // An event without a count occurred once.
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

/// Renames fields to those of the core group, which validation uses.
fn in_core(object: &Object) -> Object {
    let mut object = object.clone();
    rename(&mut object, |(core, new)| (new, core));
    object
}

/// UPSTREAM: pkg/apis/core/validation/events.go (legacyValidateEvent)
fn event(errors: &mut FieldErrors, object: &Object, controller: &str) {
    const SHORT: usize = 128;
    const NOTE: usize = 1024;
    let metadata = At::root(object, "metadata");
    let namespace = metadata.at("namespace").text();
    let involved = At::root(object, "involvedObject");
    let own = involved.at("namespace");
    let mismatch = "does not match event.namespace";
    if At::root(object, "eventTime").is_set() {
        if own.is_empty() && !matches!(namespace, "default" | "kube-system") {
            own.invalid(errors, mismatch);
        }
        let reporter = At::new(Path::root(controller), object.get("reportingComponent"));
        reporter.must_be_set(errors);
        reporter.check(errors, check_qualified_name);
        for (key, most, needed) in [
            ("reportingInstance", SHORT, true),
            ("action", SHORT, true),
            ("reason", SHORT, true),
            ("message", NOTE, false),
        ] {
            let member = At::root(object, key);
            if needed {
                member.must_be_set(errors);
            }
            if member.text().len() > most {
                let detail = format!("can have at most {most} characters");
                member.invalid_as(errors, Shown::Text(""), detail);
            }
        }
    } else if own.is_empty() {
        if !matches!(namespace, "" | "default") {
            own.invalid(errors, mismatch);
        }
    } else if namespace != own.text() {
        own.invalid(errors, mismatch);
    }
    At::new(Path::root("namespace"), metadata.at("namespace").value).check(errors, check_subdomain);
}

fn series(errors: &mut FieldErrors, object: &Object) {
    let series = At::root(object, "series");
    if !series.is_set() {
        return;
    }
    if series.at("count").int() < 2 {
        errors.push(FieldError::invalid(
            &Path::root("series.count"),
            Shown::Text(""),
            "should be at least 2",
        ));
    }
    if !series.at("lastObservedTime").is_set() {
        errors.push(FieldError::required(
            &Path::root("series.lastObservedTime"),
            "",
        ));
    }
}

fn new_event(errors: &mut FieldErrors, object: &Object) {
    series(errors, object);
    let time = At::root(object, "eventTime");
    if !time.is_set() {
        time.required(errors);
    }
    let kind = At::root(object, "type");
    if !matches!(kind.text(), "Normal" | "Warning") {
        let detail = format!("has invalid value: {}", kind.text());
        kind.invalid_as(errors, Shown::Text(""), detail);
    }
    for key in ["firstTimestamp", "lastTimestamp", "count"] {
        let member = At::root(object, key);
        if member.is_set() && (key != "count" || member.int() != 0) {
            member.invalid_as(errors, Shown::Text(""), "needs to be unset");
        }
    }
    let source = At::root(object, "source");
    if !source.at("component").is_empty() || !source.at("host").is_empty() {
        source.invalid_as(errors, Shown::Text(""), "needs to be unset");
    }
}

fn event_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    if !At::root(object, "series").same(&At::root(old, "series")) {
        series(errors, object);
    }
    for (key, name) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let member = At::new(Path::root(name), object.get(key));
        let former = At::root(old, key);
        if member.same(&former) {
            continue;
        }
        member.immutable_typed(errors, &former, member_type("", "Event", &[key]));
    }
}
