//! HorizontalPodAutoscalers, in two versions.

mod conversion;

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{invalid_each, required};
use crate::kind::{CHANGE, Context, Kind, Resource, Written, namespaced, sub};
use crate::object::{Object, fill, get, get_mut, has, is_empty, list, number, open, text, with};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
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

/// The kind `HorizontalPodAutoscaler` of `autoscaling/v2`, in which objects are stored.
#[derive(Debug)]
pub(super) struct HorizontalPodAutoscaler;

impl Kind for HorizontalPodAutoscaler {
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
    fn apply_defaults(&self, value: &mut Value) {
        with(value, v1_defaults);
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
        autoscaler(errors, new.object(), old.map(Written::object));
    }

    fn columns(&self) -> &'static str {
        "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        autoscaler_row(object, common)
    }
}

fn v2_defaults(object: &mut Object) {
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
    // What a target of none means depends on the metrics that annotations carry.
    conversion::round_trip(object);
}

fn autoscaler(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let old = old.and_then(|old| get(old, "spec"));
    let path = Path::root("spec");
    let (least, most) = (number(spec, "minReplicas"), number(spec, "maxReplicas"));
    let has_least = has(spec, "minReplicas");
    // An autoscaler that may scale to zero came from a server that allowed it.
    let had_zero =
        old.is_some_and(|old| has(old, "minReplicas") && number(old, "minReplicas") == 0);
    let bound = i64::from(!had_zero);
    if has_least && least < bound {
        errors.push(FieldError::invalid(
            &path.child("minReplicas"),
            Shown::Integer(least),
            format!("must be greater than or equal to {bound}"),
        ));
    }
    let most_path = path.child("maxReplicas");
    if most == 0 {
        errors.push(FieldError::required(
            &most_path,
            "must be set and greater than 0",
        ));
    } else if most < 0 {
        let detail = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(
            &most_path,
            Shown::Integer(most),
            detail,
        ));
    }
    if has_least && most < least {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(
            &most_path,
            Shown::Integer(most),
            detail,
        ));
    }
    scale_target(errors, spec, old, &path.child("scaleTargetRef"));
    let scales_from_zero = list(spec, "metrics")
        .iter()
        .any(|metric| metric["type"] == "Object" || metric["type"] == "External");
    if has_least && least == 0 && has(spec, "metrics") && !scales_from_zero {
        errors.push(FieldError::forbidden(
            &path.child("metrics"),
            "must specify at least one Object or External metric to support scaling to zero replicas",
        ));
    }
}

fn scale_target(errors: &mut FieldErrors, spec: &Object, old: Option<&Object>, path: &Path<'_>) {
    let empty = Object::new();
    let target = get(spec, "scaleTargetRef").unwrap_or(&empty);
    for key in ["kind", "name"] {
        match text(target, key) {
            "" => required(errors, &path.child(key)),
            value => invalid_each(errors, &path.child(key), value, check_path_segment(value)),
        }
    }
    let version = text(target, "apiVersion");
    let is_same = old
        .and_then(|old| get(old, "scaleTargetRef"))
        .is_some_and(|old| {
            text(old, "apiVersion") == version && text(old, "kind") == text(target, "kind")
        });
    if is_same {
        return;
    }
    let problem = match version.matches('/').count() {
        0 | 1 => {
            let has_group = version
                .split_once('/')
                .is_some_and(|(group, _)| !group.is_empty());
            // The core group has one kind that scales.
            let may_lack_group = text(target, "kind") == "ReplicationController";
            (!has_group && !may_lack_group)
                .then(|| String::from("apiVersion must specify API group"))
        }
        _ => Some(format!("unexpected GroupVersion string: {version}")),
    };
    if let Some(problem) = problem {
        errors.push(FieldError::invalid(
            &path.child("apiVersion"),
            Shown::Text(version),
            problem,
        ));
    }
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

/// What a metric is, and what it should be.
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
    // A quantity that is not there prints itself as nothing.
    let quantity = |value: &Value, pointer: String| read::present_or(value, &pointer, "<nil>");
    let unknown = || String::from("<unknown>");
    let current = match found {
        None => unknown(),
        // Averages of these two are looked at before they are printed.
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
