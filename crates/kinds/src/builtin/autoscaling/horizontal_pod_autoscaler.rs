//! HorizontalPodAutoscalers, in two versions.

mod conversion;

use crate::at::At;
use crate::builtin::core::resource_name::container_resource_name;
use crate::cells::{Common, Row, cell, read};
use crate::checks::check_label;
use crate::kind::{CHANGE, Context, Kind, Resource, Written, namespaced, sub};
use crate::object::{Object, fill, get, get_mut, has, is_empty, number, open, text, with};
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::check_path_segment;
use serde_json::{Value, json};

pub(super) const V2: Resource = namespaced(
    "autoscaling",
    "v2",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
    "HorizontalPodAutoscaler",
    "HorizontalPodAutoscalerList",
    &HorizontalPodAutoscaler,
)
.short(&["hpa"])
.categories(&["all"])
.subresources(&[sub(
    "status",
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    CHANGE,
)]);

pub(super) const V1: Resource = namespaced(
    "autoscaling",
    "v1",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
    "HorizontalPodAutoscaler",
    "HorizontalPodAutoscalerList",
    &HorizontalPodAutoscalerV1,
)
.short(&["hpa"])
.categories(&["all"])
.subresources(&[sub(
    "status",
    "autoscaling",
    "v1",
    "HorizontalPodAutoscaler",
    CHANGE,
)])
.stored_as("autoscaling", "v2", "horizontalpodautoscalers");

/// The kind `HorizontalPodAutoscaler` of `autoscaling/v2`, the storage version.
#[derive(Debug)]
pub(super) struct HorizontalPodAutoscaler;

impl Kind for HorizontalPodAutoscaler {
    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, _old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        for key in ["currentReplicas", "desiredReplicas"] {
            at.at(key).non_negative(errors);
        }
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, v2_defaults);
    }

    fn convert(&self, object: &mut Object, _to: &Resource) {
        conversion::to_v2(object);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        autoscaler(errors, new.object(), old.map(Written::object));
    }

    fn columns(&self) -> &'static str {
        "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        autoscaler_row(object, common)
    }
}

/// The kind `HorizontalPodAutoscaler` of `autoscaling/v1`.
#[derive(Debug)]
pub(super) struct HorizontalPodAutoscalerV1;

impl Kind for HorizontalPodAutoscalerV1 {
    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, _old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        for key in ["currentReplicas", "desiredReplicas"] {
            at.at(key).non_negative(errors);
        }
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, v1_defaults);
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        // Resets the status, including its parts in annotations.
        with(value, |object| {
            conversion::take_over_annotations(object, None, &conversion::OF_STATUS);
        });
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        let kept: &[&str] = match subresource {
            "" => &conversion::OF_STATUS,
            "status" => &conversion::OF_SPEC,
            _ => return,
        };
        with(value, |object| {
            conversion::take_over_annotations(object, old.as_object(), kept);
        });
    }

    fn convert(&self, object: &mut Object, _to: &Resource) {
        conversion::to_v1(object);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        // Validation applies to v2, which represents the whole object.
        let converted = |object: &Object| {
            let mut object = object.clone();
            conversion::to_v2(&mut object);
            object
        };
        let former = old.map(|old| converted(old.object()));
        autoscaler(errors, &converted(new.object()), former.as_ref());
    }

    fn columns(&self) -> &'static str {
        "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        autoscaler_row(object, common)
    }
}

/// Annotations that hold fields of newer versions are ignored in v2.
///
/// UPSTREAM: pkg/apis/autoscaling/helpers.go (DropRoundTripHorizontalPodAutoscalerAnnotations)
fn drop_round_trip(object: &mut Object) {
    let Some(metadata) = get_mut(object, "metadata") else {
        return;
    };
    if let Some(annotations) = get_mut(metadata, "annotations") {
        for key in ["metrics", "behavior", "current-metrics", "conditions"] {
            annotations.remove(&format!("autoscaling.alpha.kubernetes.io/{key}"));
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

fn v2_defaults(object: &mut Object) {
    drop_round_trip(object);
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill(spec, "minReplicas", 1);
    if is_empty(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    if let Some(behavior) = get_mut(spec, "behavior") {
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        scaling_rules(behavior, "scaleUp", json!([pods, percent]));
        if let Some(rules) = get_mut(behavior, "scaleUp") {
            fill(rules, "stabilizationWindowSeconds", 0);
        }
        scaling_rules(behavior, "scaleDown", json!([percent]));
    }
}

fn scaling_rules(behavior: &mut Object, key: &str, policies: Value) {
    if let Some(rules) = open(behavior, key) {
        fill(rules, "selectPolicy", "Max");
        fill(rules, "policies", policies);
    }
}

fn v1_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "minReplicas", 1);
    }
    // The default of an unset target depends on the metrics in annotations.
    conversion::round_trip(object);
}

fn autoscaler_row(object: &Value, common: &Common<'_>) -> Row {
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
            read::text(target, "/kind"),
            read::text(target, "/name")
        )),
        cell(metrics(object)),
        cell(lowest),
        cell(read::integer(object, "/spec/maxReplicas")),
        cell(read::integer(object, "/status/currentReplicas")),
        cell(common.age.as_str()),
    ])
}

fn metrics(object: &Value) -> String {
    let wanted = read::items(object, "/spec/metrics");
    if wanted.is_empty() {
        return String::from("<none>");
    }
    let found = read::items(object, "/status/currentMetrics");
    let texts: Vec<String> = wanted
        .iter()
        .enumerate()
        .map(|(index, metric)| shown_metric(metric, found.get(index)))
        .collect();
    read::first_few(&texts, 2, ", ")
}

/// The current value of a metric, and its target.
fn shown_metric(metric: &Value, found: Option<&Value>) -> String {
    let (member, is_named) = match read::text(metric, "/type") {
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
        format!("{}: ", read::text(wanted, "/name"))
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
    // A nil quantity is printed as `<nil>`.
    let quantity = |value: &Value, pointer: String| read::present_or(value, &pointer, "<nil>");
    let unknown = || String::from("<unknown>");
    let current = match found {
        None => unknown(),
        // The averages of these two are checked for nil before printing.
        Some(found) if is_average && matches!(member, "external" | "object") => {
            read::present_or(found, "/current/averageValue", "<unknown>")
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

/// UPSTREAM: pkg/apis/autoscaling/validation/validation.go
fn autoscaler(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let empty = Object::new();
    let old = old.map(|old| get(old, "spec").unwrap_or(&empty));
    let (least, most) = (at.at("minReplicas"), at.at("maxReplicas"));
    // An existing autoscaler with `minReplicas: 0` was created while the feature gate was enabled.
    let had_zero =
        old.is_some_and(|old| has(old, "minReplicas") && number(old, "minReplicas") == 0);
    let bound = i64::from(!had_zero);
    if least.is_set() && least.int() < bound {
        let detail = format!("must be greater than or equal to {bound}");
        least.invalid_int(errors, detail);
    }
    if most.int() == 0 {
        most.required_because(errors, "must be set and greater than 0");
    } else if most.int() < 0 {
        most.invalid_int(errors, "must be greater than or equal to 1");
    }
    if least.is_set() && most.int() < least.int() {
        most.invalid_int(errors, "must be greater than or equal to `minReplicas`");
    }
    let target = at.at("scaleTargetRef");
    let is_same = old
        .and_then(|old| get(old, "scaleTargetRef"))
        .is_some_and(|old| {
            text(old, "apiVersion") == target.at("apiVersion").text()
                && text(old, "kind") == target.at("kind").text()
        });
    // The only scalable kind of the core group.
    let may_lack_group = target.at("kind").text() == "ReplicationController";
    reference(errors, &target, may_lack_group, is_same);
    let metrics = at.at("metrics");
    for metric in metrics.items() {
        metric_spec(errors, &metric);
    }
    let scales_from_zero = metrics
        .items()
        .any(|metric| matches!(metric.at("type").text(), "Object" | "External"));
    if least.is_set() && least.int() == 0 && !scales_from_zero {
        metrics.forbidden(
            errors,
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    let behavior = at.at("behavior");
    for key in ["scaleUp", "scaleDown"] {
        if behavior.at(key).is_set() {
            rules(errors, &behavior.at(key));
        }
    }
}

/// Validates a reference to an object.
fn reference(errors: &mut FieldErrors, at: &At<'_, '_>, may_lack_group: bool, is_known: bool) {
    at.at("kind").check_required(errors, check_path_segment);
    at.at("name").check_required(errors, check_path_segment);
    if is_known {
        return;
    }
    let version = at.at("apiVersion");
    match version.text().matches('/').count() {
        0 | 1 => {
            let group = version
                .text()
                .split_once('/')
                .map_or("", |(group, _)| group);
            if group.is_empty() && !may_lack_group {
                version.invalid(errors, "apiVersion must specify API group");
            }
        }
        _ => {
            let detail = format!("unexpected GroupVersion string: {}", version.text());
            version.invalid(errors, detail);
        }
    }
}

fn rules(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const WINDOW: i64 = 3600;
    const PERIOD: i64 = 1800;
    let window = at.at("stabilizationWindowSeconds");
    if window.int() < 0 {
        window.invalid_int(errors, "must be greater than or equal to zero");
    }
    if window.int() > WINDOW {
        window.invalid_int(errors, format!("must be less than or equal to {WINDOW}"));
    }
    at.at("selectPolicy")
        .known_if_set(errors, &["Disabled", "Max", "Min"]);
    let policies = at.at("policies");
    if policies.is_empty() {
        policies.required_because(errors, "must specify at least one Policy");
    }
    for policy in policies.items() {
        policy.at("type").known(errors, &["Percent", "Pods"]);
        policy.at("value").positive(errors);
        let period = policy.at("periodSeconds");
        period.positive(errors);
        if period.int() > PERIOD {
            period.invalid_int(errors, format!("must be less than or equal to {PERIOD}"));
        }
    }
    let tolerance = at.at("tolerance");
    if let Some(quantity) = tolerance.quantity().filter(|quantity| quantity.sign() < 0) {
        tolerance.invalid_as(
            errors,
            Shown::Text(&quantity.to_string()),
            "must be greater than or equal to 0",
        );
    }
}

const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn metric_spec(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const TYPES: [&str; 5] = [
        "ContainerResource",
        "External",
        "Object",
        "Pods",
        "Resource",
    ];
    let kind = at.at("type");
    if kind.is_empty() {
        kind.required_because(errors, "must specify a metric source type");
    }
    kind.known(errors, &TYPES);
    let present: Vec<&str> = SOURCES
        .iter()
        .map(|(_, key)| *key)
        .filter(|key| at.at(key).is_set())
        .collect();
    if let Some(first) = present.first() {
        metric_source(errors, first, &at.at(first));
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind.text());
    match expected {
        Some((_, key)) => {
            if !at.at(key).is_set() {
                let detail = "must populate information for the given metric source";
                at.at(key).required_because(errors, detail);
            }
        }
        None => kind.not_supported(errors, &TYPES),
    }
    if present.len() != 1 {
        for key in present {
            if expected.is_none_or(|(_, expected)| *expected != key) {
                at.at(key)
                    .forbidden(errors, "must populate the given metric source only");
            }
        }
    }
}

fn metric_source(errors: &mut FieldErrors, kind: &str, at: &At<'_, '_>) {
    let target = at.at("target");
    let (value, average) = (target.at("value"), target.at("averageValue"));
    let utilization = target.at("averageUtilization");
    match kind {
        "object" => {
            reference(errors, &at.at("describedObject"), true, false);
            metric_name(errors, &at.at("metric"));
            metric_target(errors, &target);
            if !value.is_set() && !average.is_set() {
                let detail = "must set either a target value or averageValue";
                average.required_because(errors, detail);
            }
        }
        "external" => {
            metric_name(errors, &at.at("metric"));
            metric_target(errors, &target);
            match (value.is_set(), average.is_set()) {
                (false, false) => average.required_because(
                    errors,
                    "must set either a target value for metric or a per-pod target",
                ),
                (true, true) => value.forbidden(
                    errors,
                    "may not set both a target value for metric and a per-pod target",
                ),
                _ => {}
            }
        }
        "pods" => {
            metric_name(errors, &at.at("metric"));
            metric_target(errors, &target);
            if !average.is_set() {
                let detail = "must specify a positive target averageValue";
                average.required_because(errors, detail);
            }
        }
        _ => {
            let name = at.at("name");
            if name.is_empty() {
                name.required_because(errors, "must specify a resource name");
            } else if kind == "containerResource" {
                container_resource_name(errors, &name, name.text());
            }
            if kind == "containerResource" {
                let container = at.at("container");
                if container.is_empty() {
                    container.required_because(errors, "must specify a container");
                } else {
                    container.check(errors, check_label);
                }
            }
            metric_target(errors, &target);
            match (utilization.is_set(), average.is_set()) {
                (false, false) => utilization.required_because(
                    errors,
                    "must set either a target raw value or a target utilization",
                ),
                (true, true) => average.forbidden(
                    errors,
                    "may not set both a target raw value and a target utilization",
                ),
                _ => {}
            }
        }
    }
}

fn metric_name(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let name = at.at("name");
    if name.is_empty() {
        name.required_because(errors, "must specify a metric name");
    } else {
        name.check(errors, check_path_segment);
    }
}

fn metric_target(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let kind = at.at("type");
    if kind.is_empty() {
        kind.required_because(errors, "must specify a metric target type");
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        kind.invalid(errors, detail);
    }
    for key in ["value", "averageValue"] {
        let value = at.at(key);
        if let Some(quantity) = value.quantity().filter(|quantity| quantity.sign() <= 0) {
            value.invalid_as(
                errors,
                Shown::Text(&quantity.to_string()),
                "must be positive",
            );
        }
    }
    let utilization = at.at("averageUtilization");
    if utilization.is_set() && utilization.int() < 1 {
        utilization.invalid_int(errors, "must be greater than 0");
    }
}
