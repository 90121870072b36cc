//! HorizontalPodAutoscaler conversion: `autoscaling/v1` has one target, everything else is in annotations.
//!
//! Annotations contain JSON as Go encodes it, with fields in struct order, because clients see them.
//!
//! UPSTREAM: pkg/apis/autoscaling/v1/conversion.go.

use serde_json::{Value, json};

use lockgate_api::document::json::parse;
use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_go::json::to_string;
use lockgate_go::quantity::Quantity;

use crate::checks::copy_field;
use crate::object::{Object, get, get_mut, has, list, open, text};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const STATUSES: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const SCALE_DOWN: &str = "autoscaling.alpha.kubernetes.io/scale-down-tolerance";
const SCALE_UP: &str = "autoscaling.alpha.kubernetes.io/scale-up-tolerance";

/// Annotations with parts of the v2 status.
pub(super) const OF_STATUS: [&str; 2] = [STATUSES, CONDITIONS];
/// Annotations with parts of the v2 spec.
pub(super) const OF_SPEC: [&str; 4] = [METRICS, BEHAVIOR, SCALE_DOWN, SCALE_UP];

const TRAVELLING: [&str; 6] = [
    METRICS, STATUSES, CONDITIONS, BEHAVIOR, SCALE_DOWN, SCALE_UP,
];

/// The default target utilization, in percent.
const DEFAULT_CPU: i64 = 80;

/// Replaces these annotations of a v1 object by those of the old object, or removes them.
pub(super) fn take_over_annotations(object: &mut Object, old: Option<&Object>, keys: &[&str]) {
    let former = old
        .and_then(|old| get(get(old, "metadata")?, "annotations"))
        .cloned()
        .unwrap_or_default();
    let Some(metadata) = open(object, "metadata") else {
        return;
    };
    let Some(annotations) = open(metadata, "annotations") else {
        return;
    };
    for key in keys {
        copy_field(annotations, &former, key);
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Converts a v1 object to v2 and back.
pub(super) fn round_trip(object: &mut Object) {
    to_v2(object);
    to_v1(object);
}

pub(super) fn to_v2(object: &mut Object) {
    let annotations = take_annotations(object);
    let annotation = |name: &str| -> Option<Value> {
        let text = annotations.get(name)?.as_str()?;
        let document = parse(text.as_bytes()).ok()?;
        crate::tree::from_document_within(document.root(), crate::tree::MAX_DEPTH)
    };
    if let Some(spec) = get_mut(object, "spec") {
        let own = spec.remove("targetCPUUtilizationPercentage");
        let mut metrics = annotation(METRICS)
            .and_then(|metrics| {
                metrics
                    .as_array()?
                    .iter()
                    .map(metric_to_v2)
                    .collect::<Option<Vec<_>>>()
            })
            .unwrap_or_default();
        metrics.extend(own.filter(|value| !value.is_null()).map(cpu_metric));
        if metrics.is_empty() {
            metrics.push(cpu_metric(Value::from(DEFAULT_CPU)));
        }
        spec.insert("metrics".to_owned(), Value::Array(metrics));
        if let Some(behavior) = annotation(BEHAVIOR).and_then(|value| behavior_to_v2(&value)) {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    let Some(status) = open(object, "status") else {
        return;
    };
    let own = status.remove("currentCPUUtilizationPercentage");
    let mut statuses: Option<Vec<Value>> =
        own.filter(|value| !value.is_null()).map(|utilization| {
            let current = json!({"averageUtilization": utilization});
            vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": current}})]
        });
    if let Some(Value::Array(known)) = annotation(STATUSES)
        && let Some(known) = known.iter().map(status_to_v2).collect::<Option<Vec<_>>>()
    {
        // An average value of zero next to v1's own utilization was written by this conversion for an unset value.
        let is_own = statuses.as_deref().is_some_and(|own| {
            let mut own = own.to_vec();
            for status in &mut own {
                status["resource"]["current"]["averageValue"] = Value::from("0");
            }
            own == known
        });
        if !is_own {
            statuses = Some(known);
        }
    }
    if let Some(statuses) = statuses {
        status.insert("currentMetrics".to_owned(), Value::Array(statuses));
    }
    if let Some(conditions @ Value::Array(_)) = annotation(CONDITIONS) {
        status.insert("conditions".to_owned(), conditions);
    }
}

pub(super) fn to_v1(object: &mut Object) {
    take_annotations(object);
    let mut annotations = Vec::new();
    if let Some(spec) = get_mut(object, "spec") {
        let metrics = spec.remove("metrics").unwrap_or_default();
        let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(target) = metrics.iter().find_map(cpu_target) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), target.clone());
        }
        let others: Vec<String> = metrics
            .iter()
            .filter(|metric| cpu_target(metric).is_none())
            .map(metric_to_v1)
            .collect();
        if !others.is_empty() {
            annotations.push((METRICS, format!("[{}]", others.join(","))));
        }
        if let Some(Value::Object(behavior)) = spec.remove("behavior") {
            annotations.push((BEHAVIOR, behavior_to_v1(&behavior)));
        }
    }
    if let Some(status) = get_mut(object, "status") {
        let statuses = status.remove("currentMetrics").unwrap_or_default();
        let statuses = statuses.as_array().map(Vec::as_slice).unwrap_or_default();
        let utilization = statuses.iter().rev().find_map(cpu_utilization);
        if let Some(utilization) = utilization {
            status.insert(
                "currentCPUUtilizationPercentage".to_owned(),
                utilization.clone(),
            );
        }
        if !statuses.is_empty() {
            let texts: Vec<String> = statuses.iter().map(status_to_v1).collect();
            annotations.push((STATUSES, format!("[{}]", texts.join(","))));
        }
        if let Some(Value::Array(conditions)) = status.remove("conditions")
            && !conditions.is_empty()
        {
            let texts: Vec<String> = conditions.iter().map(condition).collect();
            annotations.push((CONDITIONS, format!("[{}]", texts.join(","))));
        }
    }
    if !annotations.is_empty()
        && let Some(metadata) = open(object, "metadata")
        && let Some(map) = open(metadata, "annotations")
    {
        for (name, text) in annotations {
            map.insert(name.to_owned(), Value::String(text));
        }
    }
}

/// Removes the conversion annotations from an object, and returns them.
fn take_annotations(object: &mut Object) -> Object {
    let mut taken = Object::new();
    let Some(metadata) = get_mut(object, "metadata") else {
        return taken;
    };
    if let Some(annotations) = get_mut(metadata, "annotations") {
        for name in TRAVELLING {
            taken.extend(annotations.remove_entry(name));
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    taken
}

fn cpu_metric(utilization: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": utilization});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// The target CPU utilization of a metric.
fn cpu_target(metric: &Value) -> Option<&Value> {
    cpu(metric)?
        .get("target")?
        .get("averageUtilization")
        .filter(|value| !value.is_null())
}

fn cpu_utilization(status: &Value) -> Option<&Value> {
    cpu(status)?
        .get("current")?
        .get("averageUtilization")
        .filter(|value| !value.is_null())
}

fn cpu(metric: &Value) -> Option<&Value> {
    let resource = metric.get("resource")?;
    let is_cpu = metric.get("type")? == "Resource" && resource.get("name")? == "cpu";
    is_cpu.then_some(resource)
}

/// Serializes an object with fields in this order; `None` is omitted.
fn object_text(members: &[(&str, Option<String>)]) -> String {
    let members: Vec<String> = members
        .iter()
        .filter_map(|(name, value)| Some(format!("{}:{}", to_string(*name), value.as_ref()?)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// A field without `omitempty`.
fn always(object: &Object, key: &str, zero: &str) -> Option<String> {
    Some(optional(object, key).unwrap_or_else(|| zero.to_owned()))
}

/// A field with `omitempty`.
fn optional(object: &Object, key: &str) -> Option<String> {
    object
        .get(key)
        .filter(|value| !value.is_null())
        .map(to_string)
}

/// A string with `omitempty`.
fn optional_text(object: &Object, key: &str) -> Option<String> {
    Some(text(object, key))
        .filter(|text| !text.is_empty())
        .map(to_string)
}

fn selector_text(metric: &Object) -> Option<String> {
    let selector = metric.get("selector").filter(|value| !value.is_null())?;
    Some(to_string(&LabelSelector::read(selector)?))
}

fn reference_text(holder: &Object) -> Option<String> {
    let empty = Object::new();
    let reference = get(holder, "describedObject").unwrap_or(&empty);
    Some(object_text(&[
        ("kind", always(reference, "kind", "\"\"")),
        ("name", always(reference, "name", "\"\"")),
        ("apiVersion", optional_text(reference, "apiVersion")),
    ]))
}

const ZERO: &str = "\"0\"";
const EMPTY: &str = "\"\"";

/// The metric sources, in struct order.
const SOURCES: [&str; 5] = [
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
];

fn each_source(metric: &Value, write: impl Fn(&str, &Object) -> String) -> String {
    let empty = Object::new();
    let metric = metric.as_object().unwrap_or(&empty);
    let mut members = vec![("type", always(metric, "type", EMPTY))];
    for name in SOURCES {
        members.push((name, get(metric, name).map(|source| write(name, source))));
    }
    object_text(&members)
}

fn metric_to_v1(metric: &Value) -> String {
    each_source(metric, |name, source| {
        let empty = Object::new();
        let target = get(source, "target").unwrap_or(&empty);
        let identifier = get(source, "metric").unwrap_or(&empty);
        match name {
            "object" => object_text(&[
                ("target", reference_text(source)),
                ("metricName", always(identifier, "name", EMPTY)),
                ("targetValue", always(target, "value", ZERO)),
                ("selector", selector_text(identifier)),
                ("averageValue", optional(target, "averageValue")),
            ]),
            "pods" => object_text(&[
                ("metricName", always(identifier, "name", EMPTY)),
                ("targetAverageValue", always(target, "averageValue", ZERO)),
                ("selector", selector_text(identifier)),
            ]),
            "external" => object_text(&[
                ("metricName", always(identifier, "name", EMPTY)),
                ("metricSelector", selector_text(identifier)),
                ("targetValue", optional(target, "value")),
                ("targetAverageValue", optional(target, "averageValue")),
            ]),
            _ => object_text(&[
                ("name", always(source, "name", EMPTY)),
                (
                    "targetAverageUtilization",
                    optional(target, "averageUtilization"),
                ),
                ("targetAverageValue", optional(target, "averageValue")),
                (
                    "container",
                    (name == "containerResource")
                        .then(|| always(source, "container", EMPTY))
                        .flatten(),
                ),
            ]),
        }
    })
}

fn status_to_v1(status: &Value) -> String {
    each_source(status, |name, source| {
        let empty = Object::new();
        let current = get(source, "current").unwrap_or(&empty);
        let identifier = get(source, "metric").unwrap_or(&empty);
        match name {
            "object" => object_text(&[
                ("target", reference_text(source)),
                ("metricName", always(identifier, "name", EMPTY)),
                ("currentValue", always(current, "value", ZERO)),
                ("selector", selector_text(identifier)),
                ("averageValue", optional(current, "averageValue")),
            ]),
            "pods" => object_text(&[
                ("metricName", always(identifier, "name", EMPTY)),
                ("currentAverageValue", always(current, "averageValue", ZERO)),
                ("selector", selector_text(identifier)),
            ]),
            "external" => object_text(&[
                ("metricName", always(identifier, "name", EMPTY)),
                ("metricSelector", selector_text(identifier)),
                ("currentValue", always(current, "value", ZERO)),
                ("currentAverageValue", optional(current, "averageValue")),
            ]),
            _ => object_text(&[
                ("name", always(source, "name", EMPTY)),
                (
                    "currentAverageUtilization",
                    optional(current, "averageUtilization"),
                ),
                ("currentAverageValue", always(current, "averageValue", ZERO)),
                (
                    "container",
                    (name == "containerResource")
                        .then(|| always(source, "container", EMPTY))
                        .flatten(),
                ),
            ]),
        }
    })
}

fn condition(condition: &Value) -> String {
    let empty = Object::new();
    let condition = condition.as_object().unwrap_or(&empty);
    object_text(&[
        ("type", always(condition, "type", EMPTY)),
        ("status", always(condition, "status", EMPTY)),
        (
            "lastTransitionTime",
            always(condition, "lastTransitionTime", "null"),
        ),
        ("reason", optional_text(condition, "reason")),
        ("message", optional_text(condition, "message")),
    ])
}

/// Upstream encodes its internal type, whose fields have no JSON names.
fn behavior_to_v1(behavior: &Object) -> String {
    let rules = |key: &str| -> Option<String> {
        let Some(rules) = get(behavior, key) else {
            return Some(String::from("null"));
        };
        let policies: Vec<String> = list(rules, "policies")
            .iter()
            .filter_map(Value::as_object)
            .map(|policy| {
                object_text(&[
                    ("Type", always(policy, "type", EMPTY)),
                    ("Value", always(policy, "value", "0")),
                    ("PeriodSeconds", always(policy, "periodSeconds", "0")),
                ])
            })
            .collect();
        let policies = if has(rules, "policies") {
            format!("[{}]", policies.join(","))
        } else {
            String::from("null")
        };
        Some(object_text(&[
            (
                "StabilizationWindowSeconds",
                always(rules, "stabilizationWindowSeconds", "null"),
            ),
            ("SelectPolicy", always(rules, "selectPolicy", "null")),
            ("Policies", Some(policies)),
            ("Tolerance", always(rules, "tolerance", "null")),
        ]))
    };
    object_text(&[
        ("ScaleUp", rules("scaleUp")),
        ("ScaleDown", rules("scaleDown")),
    ])
}

fn behavior_to_v2(value: &Value) -> Option<Value> {
    let rules = |key: &str| -> Option<Value> {
        let rules = value.get(key)?.as_object()?;
        let mut out = Object::new();
        for (from, to) in [
            ("StabilizationWindowSeconds", "stabilizationWindowSeconds"),
            ("SelectPolicy", "selectPolicy"),
            ("Tolerance", "tolerance"),
        ] {
            if has(rules, from) {
                out.insert(to.to_owned(), rules.get(from)?.clone());
            }
        }
        if has(rules, "Policies") {
            let policies = list(rules, "Policies").iter().map(|policy| {
                json!({"type": policy["Type"], "value": policy["Value"], "periodSeconds": policy["PeriodSeconds"]})
            });
            out.insert("policies".to_owned(), policies.collect());
        }
        Some(Value::Object(out))
    };
    let (up, down) = (rules("ScaleUp"), rules("ScaleDown"));
    if up.is_none() && down.is_none() {
        return None;
    }
    let mut out = Object::new();
    out.extend(up.map(|rules| ("scaleUp".to_owned(), rules)));
    out.extend(down.map(|rules| ("scaleDown".to_owned(), rules)));
    Some(Value::Object(out))
}

/// A quantity in canonical form; `None` if it is invalid.
fn quantity(source: &Object, key: &str) -> Option<Value> {
    let text = match source.get(key)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    Some(Value::String(Quantity::parse(&text).ok()?.to_string()))
}

/// Adds the set fields.
fn with(mut base: Value, members: &[(&str, Option<Value>)]) -> Value {
    for (name, value) in members {
        if let Some(value) = value {
            base[*name] = value.clone();
        }
    }
    base
}

fn source_to_v2(metric: &Value, convert: impl Fn(&str, &Object) -> Value) -> Option<Value> {
    let metric = metric.as_object()?;
    let mut out = Object::new();
    out.insert("type".to_owned(), Value::from(text(metric, "type")));
    for name in SOURCES {
        if let Some(source) = get(metric, name) {
            out.insert(name.to_owned(), convert(name, source));
        }
    }
    Some(Value::Object(out))
}

fn identifier(source: &Object, selector: &str) -> Value {
    let name = json!({"name": text(source, "metricName")});
    let selector = source
        .get(selector)
        .filter(|value| !value.is_null())
        .cloned();
    with(name, &[("selector", selector)])
}

fn set(source: &Object, key: &str) -> Option<Value> {
    source.get(key).filter(|value| !value.is_null()).cloned()
}

fn metric_to_v2(metric: &Value) -> Option<Value> {
    source_to_v2(metric, |name, source| {
        let zero = || Some(Value::from("0"));
        match name {
            "object" => {
                let average = quantity(source, "averageValue");
                let value = quantity(source, "targetValue").or_else(zero);
                let kind = if average.is_some() {
                    "AverageValue"
                } else {
                    "Value"
                };
                // v1 requires a target value; a zero next to an average is ignored.
                let value = value.filter(|value| average.is_none() || value != "0");
                let target = with(
                    json!({"type": kind}),
                    &[("value", value), ("averageValue", average)],
                );
                json!({"describedObject": source.get("target"), "target": target, "metric": identifier(source, "selector")})
            }
            "pods" => {
                let average = quantity(source, "targetAverageValue").or_else(zero);
                json!({"target": {"type": "AverageValue", "averageValue": average}, "metric": identifier(source, "selector")})
            }
            "external" => {
                let value = quantity(source, "targetValue");
                let kind = if value.is_some() {
                    "Value"
                } else {
                    "AverageValue"
                };
                let average = quantity(source, "targetAverageValue");
                let target = with(
                    json!({"type": kind}),
                    &[("value", value), ("averageValue", average)],
                );
                json!({"target": target, "metric": identifier(source, "metricSelector")})
            }
            _ => {
                let utilization = set(source, "targetAverageUtilization");
                let kind = if utilization.is_some() {
                    "Utilization"
                } else {
                    "AverageValue"
                };
                let average = quantity(source, "targetAverageValue");
                let members = [
                    ("averageValue", average),
                    ("averageUtilization", utilization),
                ];
                let target = with(json!({"type": kind}), &members);
                let base = json!({"name": text(source, "name"), "target": target});
                with(base, &[("container", set(source, "container"))])
            }
        }
    })
}

fn status_to_v2(status: &Value) -> Option<Value> {
    source_to_v2(status, |name, source| {
        let zero = || Some(Value::from("0"));
        match name {
            "object" => {
                let value = quantity(source, "currentValue").or_else(zero);
                let members = [
                    ("value", value),
                    ("averageValue", quantity(source, "averageValue")),
                ];
                json!({"describedObject": source.get("target"), "current": with(json!({}), &members), "metric": identifier(source, "selector")})
            }
            "pods" => {
                let average = quantity(source, "currentAverageValue").or_else(zero);
                json!({"current": {"averageValue": average}, "metric": identifier(source, "selector")})
            }
            "external" => {
                let value = quantity(source, "currentValue").or_else(zero);
                let members = [
                    ("value", value),
                    ("averageValue", quantity(source, "currentAverageValue")),
                ];
                json!({"current": with(json!({}), &members), "metric": identifier(source, "metricSelector")})
            }
            _ => {
                let average = quantity(source, "currentAverageValue").or_else(zero);
                let utilization = set(source, "currentAverageUtilization");
                let members = [
                    ("averageValue", average),
                    ("averageUtilization", utilization),
                ];
                let base =
                    json!({"name": text(source, "name"), "current": with(json!({}), &members)});
                with(base, &[("container", set(source, "container"))])
            }
        }
    })
}
