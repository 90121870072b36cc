//! What runs pods: controllers, jobs, autoscalers, budgets.

use lockgate_api::meta::time::Time;
use serde_json::Value;

use super::cells::{Common, Row, cell, number};
use super::duration::{human_duration, since};
use super::read::{
    first_few, holds, integer, is_deleted, is_true, items, labels, present_or, selector,
    shown_selector, text,
};

/// The names and the images of the containers in a template.
fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    let list = items(object, pointer);
    let joined = |member: &str| {
        let texts: Vec<&str> = list
            .iter()
            .map(|container| text(container, member))
            .collect();
        cell(texts.join(","))
    };
    [joined("/name"), joined("/image")]
}

const TEMPLATE: &str = "/spec/template/spec/containers";

pub(super) fn pod_template(object: &Value) -> Row {
    let [names, images] = containers(object, "/template/spec/containers");
    Row::of(vec![
        cell(text(object, "/metadata/name")),
        names,
        images,
        cell(labels(object, "/template/metadata/labels")),
    ])
}

/// Replica sets and replication controllers, whose selectors differ in form.
pub(super) fn replicas(object: &Value, common: &Common<'_>) -> Row {
    let [names, images] = containers(object, TEMPLATE);
    let is_set = object.pointer("/spec/selector").is_some_and(|selector| {
        selector.get("matchLabels").is_some_and(Value::is_object)
            || selector
                .get("matchExpressions")
                .is_some_and(Value::is_array)
    });
    let selector = if is_set {
        shown_selector(object, "/spec/selector")
    } else {
        labels(object, "/spec/selector")
    };
    Row::of(vec![
        cell(common.name),
        cell(integer(object, "/spec/replicas")),
        cell(integer(object, "/status/replicas")),
        cell(integer(object, "/status/readyReplicas")),
        cell(common.age.as_str()),
        names,
        images,
        cell(selector),
    ])
}

/// How many of the wanted replicas are ready.
fn ready(object: &Value) -> Value {
    let ready = integer(object, "/status/readyReplicas");
    cell(format!("{ready}/{}", integer(object, "/spec/replicas")))
}

pub(super) fn deployment(object: &Value, common: &Common<'_>) -> Row {
    let [names, images] = containers(object, TEMPLATE);
    let selector =
        selector(object, "/spec/selector").unwrap_or_else(|()| String::from("<invalid>"));
    Row::of(vec![
        cell(common.name),
        ready(object),
        cell(integer(object, "/status/updatedReplicas")),
        cell(integer(object, "/status/availableReplicas")),
        cell(common.age.as_str()),
        names,
        images,
        cell(selector),
    ])
}

pub(super) fn stateful_set(object: &Value, common: &Common<'_>) -> Row {
    let [names, images] = containers(object, TEMPLATE);
    Row::of(vec![
        cell(common.name),
        ready(object),
        cell(common.age.as_str()),
        names,
        images,
    ])
}

pub(super) fn daemon_set(object: &Value, common: &Common<'_>) -> Row {
    let [names, images] = containers(object, TEMPLATE);
    Row::of(vec![
        cell(common.name),
        cell(integer(object, "/status/desiredNumberScheduled")),
        cell(integer(object, "/status/currentNumberScheduled")),
        cell(integer(object, "/status/numberReady")),
        cell(integer(object, "/status/updatedNumberScheduled")),
        cell(integer(object, "/status/numberAvailable")),
        cell(labels(object, "/spec/template/spec/nodeSelector")),
        cell(common.age.as_str()),
        names,
        images,
        cell(shown_selector(object, "/spec/selector")),
    ])
}

pub(super) fn controller_revision(object: &Value, common: &Common<'_>) -> Row {
    let owner = items(object, "/metadata/ownerReferences")
        .iter()
        .find(|owner| is_true(owner, "/controller"));
    let controller = owner.map_or_else(
        || String::from("<none>"),
        |owner| {
            let kind = text(owner, "/kind");
            let kind = match text(owner, "/apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{group}"),
                None => kind.to_owned(),
            };
            format!("{}/{}", kind.to_lowercase(), text(owner, "/name"))
        },
    );
    Row::of(vec![
        cell(common.name),
        cell(controller),
        cell(integer(object, "/revision")),
        cell(common.age.as_str()),
    ])
}

pub(super) fn job(object: &Value, common: &Common<'_>, now: Time) -> Row {
    let done = integer(object, "/status/succeeded");
    let wanted = object.pointer("/spec/completions").and_then(Value::as_i64);
    let completions = match (wanted, integer(object, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    };
    let [names, images] = containers(object, TEMPLATE);
    Row::of(vec![
        cell(common.name),
        cell(job_status(object)),
        cell(completions),
        cell(job_duration(object, now)),
        cell(common.age.as_str()),
        names,
        images,
        cell(shown_selector(object, "/spec/selector")),
    ])
}

fn job_status(object: &Value) -> &'static str {
    if holds(object, "Complete") {
        "Complete"
    } else if holds(object, "Failed") {
        "Failed"
    } else if is_deleted(object) {
        "Terminating"
    } else if holds(object, "Suspended") {
        "Suspended"
    } else if holds(object, "FailureTarget") {
        "FailureTarget"
    } else if holds(object, "SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn job_duration(object: &Value, now: Time) -> String {
    let Ok(start) = Time::parse(text(object, "/status/startTime")) else {
        return String::new();
    };
    let end = Time::parse(text(object, "/status/completionTime")).unwrap_or(now);
    human_duration(end.unix_seconds().saturating_sub(start.unix_seconds()))
}

pub(super) fn cron_job(object: &Value, common: &Common<'_>, now: Time) -> Row {
    let suspended = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match text(object, "/status/lastScheduleTime") {
        "" => String::from("<none>"),
        time => since(time, now),
    };
    let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec/containers");
    Row::of(vec![
        cell(common.name),
        cell(text(object, "/spec/schedule")),
        cell(present_or(object, "/spec/timeZone", "<none>")),
        cell(suspended),
        number(items(object, "/status/active").len()),
        cell(last),
        cell(common.age.as_str()),
        names,
        images,
        cell(shown_selector(object, "/spec/jobTemplate/spec/selector")),
    ])
}

pub(super) fn scale(object: &Value, now: Time) -> Row {
    Row::of(vec![
        cell(text(object, "/metadata/name")),
        cell(integer(object, "/spec/replicas")),
        cell(integer(object, "/status/replicas")),
        cell(since(text(object, "/metadata/creationTimestamp"), now)),
    ])
}

pub(super) fn disruption_budget(object: &Value, common: &Common<'_>) -> Row {
    let amount = |pointer: &str| match object.pointer(pointer) {
        Some(Value::String(text)) => cell(text.as_str()),
        Some(Value::Number(number)) => cell(number.to_string()),
        _ => cell("N/A"),
    };
    Row::of(vec![
        cell(common.name),
        amount("/spec/minAvailable"),
        amount("/spec/maxUnavailable"),
        cell(integer(object, "/status/disruptionsAllowed")),
        cell(common.age.as_str()),
    ])
}

pub(super) fn autoscaler(object: &Value, common: &Common<'_>) -> Row {
    let target = object
        .pointer("/spec/scaleTargetRef")
        .unwrap_or(&Value::Null);
    let lowest = match object.pointer("/spec/minReplicas").and_then(Value::as_i64) {
        Some(lowest) => lowest.to_string(),
        None => String::from("<unset>"),
    };
    Row::of(vec![
        cell(common.name),
        cell(format!(
            "{}/{}",
            text(target, "/kind"),
            text(target, "/name")
        )),
        cell(metrics(object)),
        cell(lowest),
        cell(integer(object, "/spec/maxReplicas")),
        cell(integer(object, "/status/currentReplicas")),
        cell(common.age.as_str()),
    ])
}

fn metrics(object: &Value) -> String {
    let wanted = items(object, "/spec/metrics");
    if wanted.is_empty() {
        return String::from("<none>");
    }
    let found = items(object, "/status/currentMetrics");
    let texts: Vec<String> = wanted
        .iter()
        .enumerate()
        .map(|(index, metric)| shown_metric(metric, found.get(index)))
        .collect();
    first_few(&texts, 2, ", ")
}

/// What a metric is, and what it should be.
fn shown_metric(metric: &Value, found: Option<&Value>) -> String {
    let (member, is_named) = match text(metric, "/type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return String::from("<unknown type>"),
    };
    let wanted = metric.get(member).unwrap_or(&Value::Null);
    let found = found
        .and_then(|status| status.get(member))
        .filter(|status| status.is_object());
    let name = if is_named {
        format!("{}: ", text(wanted, "/name"))
    } else {
        String::new()
    };
    let is_average = wanted
        .pointer("/target/averageValue")
        .is_some_and(Value::is_string);
    if is_named && !is_average {
        let percent = |value: Option<&Value>, pointer: &str| {
            let number = value.and_then(|value| value.pointer(pointer))?.as_i64()?;
            Some(format!("{number}%"))
        };
        let current = percent(found, "/current/averageUtilization");
        let target = percent(Some(wanted), "/target/averageUtilization");
        return format!(
            "{name}{}/{}",
            current.unwrap_or_else(|| String::from("<unknown>")),
            target.unwrap_or_else(|| String::from("<auto>"))
        );
    }
    let value = if is_average || member == "pods" {
        "averageValue"
    } else {
        "value"
    };
    // A quantity that is not there prints itself as nothing.
    let quantity = |value: &Value, pointer: String| present_or(value, &pointer, "<nil>");
    let unknown = || String::from("<unknown>");
    let current = match found {
        None => unknown(),
        // Averages of these two are looked at before they are printed.
        Some(found) if is_average && matches!(member, "external" | "object") => {
            present_or(found, "/current/averageValue", "<unknown>")
        }
        Some(found) => quantity(found, format!("/current/{value}")),
    };
    let target = quantity(wanted, format!("/target/{value}"));
    let suffix = if is_average && matches!(member, "external" | "object") {
        " (avg)"
    } else {
        ""
    };
    format!("{name}{current}/{target}{suffix}")
}
