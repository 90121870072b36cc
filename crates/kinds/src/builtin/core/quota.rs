//! ResourceQuotas and LimitRanges.

use crate::amounts::round_up;
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{CHANGE, Deletion, Kind, Resource, namespaced, sub};
use crate::object::{Object, each, get, get_mut, open, text, with};
use serde_json::Value;

pub(super) const RESOURCE_QUOTAS: Resource = namespaced(
    "",
    "v1",
    "resourcequotas",
    "resourcequota",
    "ResourceQuota",
    "ResourceQuotaList",
    &ResourceQuota,
)
.short(&["quota"])
.subresources(&[sub("status", "", "v1", "ResourceQuota", CHANGE)]);

pub(super) const LIMIT_RANGES: Resource = namespaced(
    "",
    "v1",
    "limitranges",
    "limitrange",
    "LimitRange",
    "LimitRangeList",
    &LimitRange,
)
.short(&["limits"])
.create_on_update();

/// The kind `ResourceQuota`.
#[derive(Debug)]
pub(super) struct ResourceQuota;

impl Kind for ResourceQuota {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, quota_defaults);
    }

    fn columns(&self) -> &'static str {
        "Name|Request|Limit|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        quota_row(object, common)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `LimitRange`.
#[derive(Debug)]
pub(super) struct LimitRange;

impl Kind for LimitRange {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, limit_range_defaults);
    }
}

fn quota_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        round_up(spec, "hard");
    }
    if let Some(status) = get_mut(object, "status") {
        round_up(status, "hard");
        round_up(status, "used");
    }
}

fn limit_range_defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    each(spec, "limits", |item| {
        if text(item, "type") == "Container" {
            for (from, to) in [
                ("max", "default"),
                ("default", "defaultRequest"),
                ("min", "defaultRequest"),
            ] {
                let values = get(item, from).cloned().unwrap_or_default();
                if values.is_empty() {
                    continue;
                }
                if let Some(target) = open(item, to) {
                    for (name, quantity) in values {
                        target.entry(name).or_insert(quantity);
                    }
                }
            }
        }
        for key in [
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ] {
            round_up(item, key);
        }
    });
}

fn quota_row(object: &Value, common: &Common<'_>) -> Row {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let used = read::members(object, "/status/used");
    for (resource, hard) in read::members(object, "/status/hard").into_iter().flatten() {
        let used = used.and_then(|used| used.get(resource));
        let shown = format!(
            "{resource}: {}/{}",
            used.and_then(Value::as_str).unwrap_or("0"),
            hard.as_str().unwrap_or("0")
        );
        if resource.starts_with("limits.") {
            limits.push(shown);
        } else {
            requests.push(shown);
        }
    }
    Row::of(vec![
        cell(common.name),
        cell(requests.join(", ")),
        cell(limits.join(", ")),
        cell(common.age.as_str()),
    ])
}
