//! ResourceQuotas and LimitRanges.

use crate::amounts::round_up;
use crate::at::At;
use crate::builtin::core::resource_name::container_resource_name;
use crate::builtin::core::resource_name::overcommits;
use crate::builtin::core::resource_name::resource_name;
use crate::builtin::core::resource_name::{
    is_standard_for_quotas, quantity_value, quota_resource_name,
};
use crate::cells::{Common, Row, cell, read};
use crate::kind::{CHANGE, Context, Deletion, Kind, Resource, Written, namespaced, sub};
use crate::object::{Object, each, get, get_mut, open, text, with};
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::names::check_qualified_name;
use lockgate_go::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeSet;

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
    /// UPSTREAM: kubernetes pkg/registry/core/resourcequota/strategy.go (WarningsOnCreate)
    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        let spec = At::root(new.object(), "spec");
        let hard = spec.at("hard");
        let amount = |name: &str| Quantity::parse(hard.at(name).text()).ok();
        let names = ["cpu", "memory", "storage", "ephemeral-storage"];
        let warnings = names.into_iter().filter_map(|name| {
            let (told, limited) = (format!("requests.{name}"), format!("limits.{name}"));
            let bare = || matches!(name, "cpu" | "memory").then_some(name.to_owned());
            let request = amount(&told).map(|found| (told, found));
            let request =
                request.or_else(|| bare().and_then(|it| Some((it.clone(), amount(&it)?))));
            let ((name, request), limit) = (request?, amount(&limited)?);
            request.compare(&limit).is_gt().then(|| {
                format!("ResourceQuota {name} ({request}) should be less than {limited} ({limit})")
            })
        });
        warnings.collect()
    }

    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, _old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        for part in ["hard", "used"] {
            for (name, amount) in at.at(part).entries() {
                quota_resource_name(errors, &amount, name);
                quantity_value(errors, &amount, name);
            }
        }
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        quota(errors, new.object(), old.map(Written::object));
    }

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
    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| {
            // UPSTREAM: pkg/registry/core/limitrange/strategy.go makes a name.
            let metadata = open(object, "metadata");
            if let Some(metadata) = metadata.filter(|metadata| text(metadata, "name").is_empty()) {
                let uid = text(metadata, "uid").to_owned();
                metadata.insert("name".to_owned(), Value::from(uid));
            }
        });
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        _old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        // An updated LimitRange is validated like a new one.
        self.validate_create(new, context)
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        limit_range(errors, new.object());
    }

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

/// The maximum quantity whose milli-value fits an `i64`.
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

/// Returns true if a scope applies to a resource.
fn scope_applies(scope: &str, resource: &str) -> bool {
    const COMPUTE: [&str; 6] = [
        "cpu",
        "memory",
        "limits.cpu",
        "limits.memory",
        "requests.cpu",
        "requests.memory",
    ];
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => resource == "pods" || COMPUTE.contains(&resource),
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ => true,
    }
}

fn amounts(errors: &mut FieldErrors, at: &At<'_, '_>) {
    for (name, amount) in at.entries() {
        quota_resource_name(errors, &amount, name);
        quantity_value(errors, &amount, name);
    }
}

fn quota(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let hard = at.at("hard");
    amounts(errors, &hard);
    let limited: Vec<&str> = hard.entries().map(|(name, _)| name).collect();
    let excluded = |scope: &str| {
        let foreign = |name: &&&str| is_standard_for_quotas(name) && !scope_applies(scope, name);
        limited.iter().filter(foreign).count()
    };
    let scopes = at.at("scopes");
    for scope in scopes.texts() {
        if !SCOPES.contains(&scope) {
            scopes.invalid(errors, "unsupported scope");
        }
        for _ in 0..excluded(scope) {
            scopes.invalid(errors, "unsupported scope applied to resource");
        }
    }
    let conflicts = |found: &[&str]| {
        let has = |one: &str| found.contains(&one);
        usize::from(has("BestEffort") && has("NotBestEffort"))
            + usize::from(has("Terminating") && has("NotTerminating"))
    };
    for _ in 0..conflicts(&scopes.texts().collect::<Vec<_>>()) {
        scopes.invalid(errors, "conflicting scopes");
    }
    let selector = at.at("scopeSelector");
    let expressions = selector.at("matchExpressions");
    let mut named = Vec::new();
    for expression in expressions.items() {
        let member = |key: &'static str| {
            At::new(
                expressions.path.child(key),
                expression.value.and_then(|value| value.get(key)),
            )
        };
        let (scope, operator, values) = (member("scopeName"), member("operator"), member("values"));
        if !SCOPES.contains(&scope.text()) {
            scope.invalid(errors, "unsupported scope");
        }
        for _ in 0..excluded(scope.text()) {
            let shown: Vec<String> = expressions
                .items()
                .map(|expression| {
                    format!(
                        "{{\"ScopeName\":{},\"Operator\":{},\"Values\":{}}}",
                        Shown::Named(expression.at("scopeName").text()),
                        Shown::Named(expression.at("operator").text()),
                        expression
                            .at("values")
                            .value
                            .map_or_else(|| String::from("null"), lockgate_go::json::to_string),
                    )
                })
                .collect();
            let shown = format!("{{\"MatchExpressions\":[{}]}}", shown.join(","));
            expressions.invalid_as(
                errors,
                Shown::Rendered(&shown),
                "unsupported scope applied to resource",
            );
        }
        let is_plain = matches!(
            scope.text(),
            "BestEffort"
                | "NotBestEffort"
                | "Terminating"
                | "NotTerminating"
                | "CrossNamespacePodAffinity"
        );
        if is_plain && operator.text() != "Exists" {
            operator.invalid(
                errors,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                 ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                 ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => values.required_because(
                errors,
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => values.invalid(
                errors,
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => operator.invalid(errors, "not a valid selector operator"),
        }
        named.push(scope.text());
    }
    for _ in 0..conflicts(&named) {
        At::new(expressions.path, scopes.value).invalid_or_null(errors, "conflicting scopes");
    }
    match old {
        None => {
            let status = At::root(object, "status");
            amounts(errors, &status.at("hard"));
            amounts(errors, &status.at("used"));
        }
        Some(old) => {
            let former = At::root(old, "spec");
            let set = |at: &At<'_, '_>| {
                let mut all: Vec<String> = at.at("scopes").texts().map(str::to_owned).collect();
                all.sort();
                all.dedup();
                all
            };
            if set(&at) != set(&former) {
                scopes.invalid_or_null(errors, "field is immutable");
            }
        }
    }
}

/// UPSTREAM: pkg/apis/core/validation/validation.go (ValidateLimitRange)
fn limit_range(errors: &mut FieldErrors, object: &Object) {
    let spec = At::root(object, "spec");
    let mut seen = BTreeSet::new();
    for item in spec.at("limits").items() {
        let kind = item.at("type");
        let messages = check_qualified_name(kind.text());
        let is_known = matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim");
        if messages.is_empty() && !kind.text().contains('/') && !is_known {
            let detail = "must be a standard limit type or fully qualified";
            kind.invalid(errors, detail);
        }
        for message in messages {
            kind.invalid_as(errors, Shown::Named(kind.text()), message);
        }
        if !seen.insert(kind.text()) {
            kind.duplicate(errors);
        }
        limit_item(errors, &item, kind.text());
    }
}

fn limit_item(errors: &mut FieldErrors, item: &At<'_, '_>, kind: &str) {
    let mut names = BTreeSet::new();
    let mut check_names = |errors: &mut FieldErrors, key: &str| {
        let amounts = item.at(key);
        for (name, amount) in amounts.entries() {
            if matches!(kind, "Pod" | "Container") {
                container_resource_name(errors, &amount, name);
            } else {
                resource_name(errors, &amount, name);
            }
            names.insert(name);
        }
    };
    check_names(errors, "max");
    check_names(errors, "min");
    for key in ["default", "defaultRequest"] {
        if kind != "Pod" {
            check_names(errors, key);
        } else if !item.at(key).is_empty() {
            item.at(key)
                .forbidden(errors, "may not be specified when `type` is 'Pod'");
        }
    }
    let (max, min) = (item.at("max"), item.at("min"));
    if kind == "PersistentVolumeClaim"
        && !max.entry("storage").is_set()
        && !min.entry("storage").is_set()
    {
        item.at("limits").required_because(
            errors,
            "either minimum or maximum storage value is required, but neither was provided",
        );
    }
    check_names(errors, "maxLimitRequestRatio");
    let (limit, request) = (item.at("default"), item.at("defaultRequest"));
    let ratio = item.at("maxLimitRequestRatio");
    for name in names {
        let (max, min) = (max.entry(name), min.entry(name));
        let (limit, request, ratio) = (limit.entry(name), request.entry(name), ratio.entry(name));
        let mut above = |one: (&At<'_, '_>, &str),
                         other: (&At<'_, '_>, &str),
                         at: (&At<'_, '_>, &At<'_, '_>)| {
            if let (Some(first), Some(second)) = (one.0.quantity(), other.0.quantity())
                && first.compare(&second).is_gt()
            {
                let shown =
                    at.1.quantity()
                        .map_or_else(String::new, |own| own.to_string());
                at.0.invalid_as(
                    errors,
                    Shown::Text(&shown),
                    format!(
                        "{} value {first} is greater than {} value {second}",
                        one.1, other.1
                    ),
                );
            }
        };
        let is_pod = kind == "Pod";
        above((&min, "min"), (&max, "max"), (&min, &min));
        if !is_pod {
            above(
                (&min, "min"),
                (&request, "default request"),
                (&request, &request),
            );
            above(
                (&request, "default request"),
                (&max, "max"),
                (&request, &request),
            );
            above(
                (&request, "default request"),
                (&limit, "default limit"),
                (&request, &request),
            );
            above((&min, "min"), (&limit, "default"), (&limit, &min));
            above((&limit, "default"), (&max, "max"), (&limit, &max));
        }
        if let Some(own) = ratio.quantity() {
            let shown = own.to_string();
            if Quantity::parse("1").is_ok_and(|one| own.compare(&one).is_lt()) {
                let detail = format!("ratio {own} is less than 1");
                ratio.invalid_as(errors, Shown::Text(&shown), detail);
            }
            if let (Some(least), Some(most)) = (min.quantity(), max.quantity()) {
                let whole = [&own, &least, &most].map(|it| it.rounded_up(0));
                let [value, least, most] = if whole.iter().all(|it| *it < MAX_MILLI_VALUE) {
                    let milli = [&own, &least, &most].map(|it| it.rounded_up(3) as f64);
                    [milli[0] / 1000.0, milli[1], milli[2]]
                } else {
                    whole.map(|it| it as f64)
                };
                let bound = most / least;
                if value > bound {
                    let detail = format!("ratio {own} is greater than max/min = {bound:.6}");
                    ratio.invalid_as(errors, Shown::Text(&shown), detail);
                }
            }
        }
        if !overcommits(name)
            && !is_pod
            && let (Some(own), Some(wanted)) = (limit.quantity(), request.quantity())
            && own.compare(&wanted).is_ne()
        {
            request.invalid_as(
                errors,
                Shown::Text(&wanted.to_string()),
                format!(
                    "default value {own} must equal to defaultRequest value {wanted} in {name}"
                ),
            );
        }
    }
}
