//! Jobs.

mod status;

use crate::at::At;
use crate::builtin::core::pod::disabled::drop_from_template;
use crate::builtin::core::pod::warnings::of_template;
use crate::builtin::core::pod::{labels_default, template, template_defaults};
use crate::builtin::template::{
    TEMPLATE, compiled, containers, labels_do_not_match, labels_of, name_warning,
};
use crate::cells::{Common, Row, cell, human_duration, read};
use crate::checks::copy_field;
use crate::checks::{check_label, invalid_selector};
use crate::equality::semantically_equal;
use crate::kind::{
    CHANGE, Context, Deletion, FieldSelector, Kind, NAME, NAMESPACE, Resource, SPEC, Written,
    namespaced, number_selector, sub,
};
use crate::object::list;
use crate::object::{
    Object, at_mut, each, fill, fill_text, flag, get, get_mut, has, open, text, with,
};
use crate::typed::{internal_form, member_type, type_of};
use crate::upstream_error::UpstreamError;
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::names::check_qualified_name;
use lockgate_api::meta::time::Time;
use lockgate_api::meta::validation::check_domain_prefixed_path;
use lockgate_go::json::to_string;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

pub(super) const JOBS: Resource = namespaced("batch", "v1", "jobs", "job", "Job", "JobList", &Job)
    .categories(&["all"])
    .subresources(&[sub("status", "batch", "v1", "Job", CHANGE)])
    .generation(SPEC);

const SELECTABLE: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    number_selector("status.successful", &["status", "succeeded"]),
];

/// The kind `Job`.
#[derive(Debug)]
pub(super) struct Job;

impl Kind for Job {
    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if subresource.is_empty() {
            with(value, |object| {
                drop_from_template(object, old.as_object(), &["spec", "template"])
            });
        }
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        let mut warnings = name_warning(&new.metadata.name);
        warnings.extend(job_warnings(&At::root(new.object(), "spec")));
        warnings
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        if new.metadata.generation == old.metadata.generation {
            return Vec::new();
        }
        job_warnings(&At::root(new.object(), "spec"))
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn shares_labels(&self, value: &Value) -> bool {
        let is_given = |labels: &Value| labels.as_object().is_some_and(|labels| !labels.is_empty());
        let labels = value.pointer("/metadata/labels");
        let of_template = value.pointer("/spec/template/metadata/labels");
        !labels.is_some_and(is_given) && of_template.is_some_and(Value::is_object)
    }

    fn follow_template(&self, value: &mut Value) {
        with(value, |job| {
            let labels = at_mut(job, &["spec", "template", "metadata", "labels"]).cloned();
            if let (Some(metadata), Some(labels)) = (get_mut(job, "metadata"), labels) {
                metadata.insert("labels".to_owned(), Value::Object(labels));
            }
        });
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| {
            drop_from_template(object, None, &["spec", "template"])
        });
        with(value, job_selector);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        job(errors, new, old.map(Written::object));
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        if !subresource.is_empty() {
            let mut errors = self.validate_metadata_update(new, old);
            if subresource == "status" {
                status::job_status(&mut errors, new.object(), old.object());
            }
            return errors;
        }
        let mut errors = self.validate_metadata(new);
        self.validate(&mut errors, new, Some(old), context);
        errors.extend(self.validate_metadata_update(new, old));
        selected_spec(&mut errors, new.object(), Some(old.object()));
        job_update(&mut errors, new.object(), old.object());
        errors
    }

    fn columns(&self) -> &'static str {
        "Name|Status|Completions|Duration|Age|+Containers|+Images|+Selector"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        job_row(object, common)
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }

    fn unsupported_field_label(&self, label: &str) -> String {
        let quoted = lockgate_go::quote::quote(label);
        format!("field label {quoted} not supported for Job")
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().orphaning()
    }
}

fn defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        if !has(spec, "completions") && !has(spec, "parallelism") {
            fill(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let limit = if has(spec, "backoffLimitPerIndex") {
            i32::MAX
        } else {
            6
        };
        fill(spec, "backoffLimit", limit);
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        let replacement = if has(spec, "podFailurePolicy") {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        fill(spec, "podReplacementPolicy", replacement);
        fill(spec, "manualSelector", false);
        job_spec_defaults(spec);
    }
    let labels = at_mut(object, &["spec", "template", "metadata", "labels"]).cloned();
    if let Some(labels) = labels {
        labels_default(object, labels);
    }
}

/// The defaults shared with CronJobs' templates.
pub(super) fn job_spec_defaults(spec: &mut Object) {
    if let Some(policy) = get_mut(spec, "podFailurePolicy") {
        each(policy, "rules", |rule| {
            each(rule, "onPodConditions", |pattern| {
                fill_text(pattern, "status", "True");
            });
        });
    }
    template_defaults(spec, "template");
}

/// Generates the selector by the Job's uid, unless `manualSelector` is set.
fn job_selector(object: &mut Object) {
    let metadata = |key| {
        get(object, "metadata")
            .map_or("", |metadata| text(metadata, key))
            .to_owned()
    };
    let (name, uid) = (metadata("name"), metadata("uid"));
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    if flag(spec, "manualSelector") {
        return;
    }
    if let Some(template) = open(spec, "template")
        && let Some(metadata) = open(template, "metadata")
        && let Some(labels) = open(metadata, "labels")
    {
        for (label, value) in [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("batch.kubernetes.io/controller-uid", &uid),
        ] {
            labels
                .entry(label)
                .or_insert_with(|| Value::from(value.as_str()));
        }
    }
    if let Some(selector) = open(spec, "selector")
        && let Some(labels) = open(selector, "matchLabels")
    {
        labels
            .entry("batch.kubernetes.io/controller-uid")
            .or_insert_with(|| Value::from(uid));
    }
}

fn job_row(object: &Value, common: &Common<'_>) -> Row {
    let done = read::integer(object, "/status/succeeded");
    let wanted = object.pointer("/spec/completions").and_then(Value::as_i64);
    let completions = match (wanted, read::integer(object, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    };
    let [names, images] = containers(object, TEMPLATE);
    Row::of(vec![
        cell(common.name),
        cell(job_status(object)),
        cell(completions),
        cell(job_duration(object, common.now)),
        cell(common.age.as_str()),
        names,
        images,
        cell(read::shown_selector(object, "/spec/selector")),
    ])
}

fn job_status(object: &Value) -> &'static str {
    if read::holds(object, "Complete") {
        "Complete"
    } else if read::holds(object, "Failed") {
        "Failed"
    } else if read::is_deleted(object) {
        "Terminating"
    } else if read::holds(object, "Suspended") {
        "Suspended"
    } else if read::holds(object, "FailureTarget") {
        "FailureTarget"
    } else if read::holds(object, "SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn job_duration(object: &Value, now: Time) -> String {
    let Ok(start) = Time::parse(read::text(object, "/status/startTime")) else {
        return String::new();
    };
    let end = Time::parse(read::text(object, "/status/completionTime")).unwrap_or(now);
    human_duration(end.unix_seconds().saturating_sub(start.unix_seconds()))
}

/// Validates a Job.
///
/// UPSTREAM: pkg/apis/batch/validation/validation.go (ValidateJob)
fn job(errors: &mut FieldErrors, new: &Written<'_>, old: Option<&Object>) {
    generated_selector(errors, new, old);
    selected_spec(errors, new.object(), None);
    let at = At::root(new.object(), "spec");
    let completions = at.at("completions").int();
    if at.at("completionMode").text() == "Indexed" && completions > 0 {
        let host = format!("{}-{}", new.metadata.name, completions - 1);
        if !check_label(&host).is_empty() {
            let metadata = Path::root("metadata");
            errors.push(FieldError::invalid(
                &metadata.child("name"),
                Shown::Text(&new.metadata.name),
                format!("will not able to create pod with invalid DNS label: {host}"),
            ));
        }
    }
}

/// A generated selector must select the Job's uid.
fn generated_selector(errors: &mut FieldErrors, new: &Written<'_>, old: Option<&Object>) {
    let at = At::root(new.object(), "spec");
    let selector = at.at("selector");
    if at.at("manualSelector").flag() || !selector.is_set() {
        return;
    }
    let template = at.at("template");
    let metadata = template.at("metadata");
    let labels = metadata.at("labels");
    let (name, uid) = (&new.metadata.name, &new.metadata.uid);
    let wanted = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    // Jobs of old releases have unprefixed labels only.
    let needs_prefixed = old.is_none_or(|old| {
        let spec = At::root(old, "spec");
        let template = spec.at("template");
        let former = labels_of(&template);
        former.contains_key("batch.kubernetes.io/job-name")
            && former.contains_key("batch.kubernetes.io/controller-uid")
    });
    let needed = if needs_prefixed { 4 } else { 2 };
    for (key, value) in wanted.into_iter().take(needed) {
        let label = labels.entry(key);
        let detail = format!("must be '{value}'");
        if !label.is_set() {
            label.required_because(errors, detail);
        } else if label.text() != value {
            let shown = to_string(&labels.value);
            label.invalid_as(errors, Shown::Rendered(&shown), detail);
        }
    }
    let expected: BTreeMap<String, String> = wanted
        .into_iter()
        .take(needed)
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect();
    if compiled(&at).is_some_and(|matcher| !matcher.matches(&expected)) {
        let detail = "`selector` not auto-generated";
        invalid_selector(errors, &selector.path, selector.value, detail);
    }
}

/// Warnings about a Job spec.
pub(super) fn job_warnings(at: &At<'_, '_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let is_big = at.at("completions").int() > 100_000 && at.at("parallelism").int() > 10_000;
    if at.at("completionMode").text() == "Indexed" && is_big {
        warnings.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism \
             higher than 10^4, Kubernetes might not be able to track completedIndexes when a big \
             number of indexes fail",
            at.path
        ));
    }
    warnings.extend(of_template(&at.at("template")));
    warnings
}

/// Validates a spec whose selector is set.
fn selected_spec(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let old_template = old
        .and_then(|old| get(old, "spec"))
        .and_then(|spec| get(spec, "template"));
    job_spec(errors, &at, old_template);
    let selector = at.at("selector");
    if selector.is_set() {
        selector.label_selector(errors);
    } else {
        selector.required(errors);
    }
    let template = at.at("template");
    // An absent selector selects nothing; an invalid one is already reported.
    let selects = match compiled(&at) {
        Some(matcher) => matcher.matches(&labels_of(&template)),
        None => selector.is_set(),
    };
    if !selects {
        labels_do_not_match(errors, &template);
    }
}

/// Validates the spec of a Job, or of a Job template.
pub(super) fn job_spec(errors: &mut FieldErrors, at: &At<'_, '_>, old_template: Option<&Object>) {
    const MANAGED_BY_MAX: usize = 63;
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        at.at(key).non_negative(errors);
    }
    let (per_index, failed) = (at.at("backoffLimitPerIndex"), at.at("maxFailedIndexes"));
    if failed.is_set() && !per_index.is_set() {
        per_index.required_because(errors, "when maxFailedIndexes is specified");
    }
    let manager = at.at("managedBy");
    if manager.is_set() {
        domain_prefixed_path(errors, &manager);
        if manager.text().len() > MANAGED_BY_MAX {
            manager.too_long(errors, MANAGED_BY_MAX);
        }
    }
    let mode = at.at("completionMode");
    mode.known_if_set(errors, &["NonIndexed", "Indexed"]);
    if mode.text() == "Indexed" {
        indexed(errors, at);
    }
    if !mode.is_set() || mode.text() == "NonIndexed" {
        for member in [&per_index, &failed] {
            if member.is_set() {
                member.invalid_int(errors, "requires indexed completion mode");
            }
        }
    }
    if at.at("podFailurePolicy").is_set() {
        failure_policy(errors, at);
    }
    let success = at.at("successPolicy");
    if success.is_set() {
        if mode.text() == "Indexed" {
            success_policy(errors, &success, at);
        } else {
            // Upstream prints its internal type, whose fields have no JSON names.
            let member = |at: &At<'_, '_>| at.value.map_or_else(|| String::from("null"), to_string);
            let rules: Vec<String> = success
                .at("rules")
                .items()
                .map(|rule| {
                    format!(
                        "{{\"SucceededIndexes\":{},\"SucceededCount\":{}}}",
                        member(&rule.at("succeededIndexes")),
                        member(&rule.at("succeededCount"))
                    )
                })
                .collect();
            let rules = if success.at("rules").is_set() {
                format!("[{}]", rules.join(","))
            } else {
                String::from("null")
            };
            let shown = format!("{{\"Rules\":{rules}}}");
            success.invalid_as(
                errors,
                Shown::Rendered(&shown),
                "requires indexed completion mode",
            );
        }
    }
    let replacement = at.at("podReplacementPolicy");
    if replacement.is_set() {
        if at.at("podFailurePolicy").is_set() {
            replacement.known(errors, &["Failed"]);
        } else {
            replacement.known(errors, &["Failed", "TerminatingOrFailed"]);
        }
    }
    let template_at = at.at("template");
    template(errors, &template_at, old_template);
    let spec = template_at.at("spec");
    let policy = spec.at("restartPolicy");
    match policy.text() {
        "Always" | "" => {
            policy.required_because(errors, "valid values: \"OnFailure\", \"Never\"");
        }
        "OnFailure" if at.at("podFailurePolicy").is_set() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            policy.invalid(errors, detail);
        }
        _ => policy.known(errors, &["OnFailure", "Never"]),
    }
}

/// Validates a domain-prefixed path, such as `acme.io/foo`.
pub(in crate::builtin) fn domain_prefixed_path(errors: &mut FieldErrors, at: &At<'_, '_>) {
    errors.extend(check_domain_prefixed_path(&at.path, at.text()));
}

fn indexed(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const MAX: i64 = 100_000;
    const MAX_WITH_MANY_PODS: i64 = 10_000;
    let (completions, parallelism) = (at.at("completions"), at.at("parallelism"));
    let (failed, per_index) = (at.at("maxFailedIndexes"), at.at("backoffLimitPerIndex"));
    if !completions.is_set() {
        completions.required_because(errors, "when completion mode is Indexed");
    }
    if parallelism.int() > MAX {
        parallelism.invalid_int(
            errors,
            format!("must be less than or equal to {MAX} when completion mode is Indexed"),
        );
    }
    if completions.is_set() && failed.is_set() && failed.int() > completions.int() {
        failed.invalid_int(errors, "must be less than or equal to completions");
    }
    if failed.int() > MAX {
        failed.invalid_int(errors, format!("must be less than or equal to {MAX}"));
    }
    if completions.int() <= MAX || !per_index.is_set() {
        return;
    }
    if !failed.is_set() {
        let detail = format!("must be specified when completions is above {MAX}");
        failed.required_because(errors, detail);
    }
    for member in [parallelism, failed] {
        if member.int() > MAX_WITH_MANY_PODS {
            let detail = format!(
                "must be less than or equal to {MAX_WITH_MANY_PODS} when completions are above {MAX} \
                 and used with backoff limit per index"
            );
            member.invalid_int(errors, detail);
        }
    }
}

/// An invalid-value error that prints no value.
fn invalid_without_value(errors: &mut FieldErrors, at: &At<'_, '_>, detail: &str) {
    at.invalid_as(errors, Shown::Rendered(""), detail);
}

fn failure_policy(errors: &mut FieldErrors, at: &At<'_, '_>) {
    const RULES: usize = 20;
    const PATTERNS: usize = 20;
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let policy = at.at("podFailurePolicy");
    let rules = policy.at("rules");
    if rules.len() > RULES {
        rules.too_many(errors, RULES);
    }
    let template = at.at("template");
    let pod = template.at("spec");
    let names: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|key| pod.at(key).list())
        .filter_map(|container| container["name"].as_str())
        .collect();
    for rule in rules.items() {
        let action = rule.at("action");
        if action.is_empty() {
            let detail = r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#;
            action.required_because(errors, detail);
        } else if action.text() == "FailIndex" {
            if !at.at("backoffLimitPerIndex").is_set() {
                action.invalid(errors, "requires the backoffLimitPerIndex to be set");
            }
        } else {
            action.known(errors, &ACTIONS);
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.is_set() {
            exit_codes(errors, &codes, &names);
        }
        if conditions.len() > PATTERNS {
            conditions.too_many(errors, PATTERNS);
        }
        for pattern in conditions.items() {
            pattern.at("type").check(errors, check_qualified_name);
            let status = pattern.at("status");
            if status.is_empty() {
                let detail = r#"valid values: ["False" "True" "Unknown"]"#;
                status.required_because(errors, detail);
            } else {
                status.known(errors, &["False", "True", "Unknown"]);
            }
        }
        let detail = match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        invalid_without_value(errors, &rule, detail);
    }
}

fn exit_codes(errors: &mut FieldErrors, at: &At<'_, '_>, names: &BTreeSet<&str>) {
    const VALUES: usize = 255;
    let operator = at.at("operator");
    if operator.is_empty() {
        operator.required_because(errors, r#"valid values: ["In" "NotIn"]"#);
    } else {
        operator.known(errors, &["In", "NotIn"]);
    }
    let container = at.at("containerName");
    if container.is_set() && !names.contains(container.text()) {
        let detail = "must be one of the container or initContainer names in the pod template";
        container.invalid(errors, detail);
    }
    let values = at.at("values");
    if values.is_empty() {
        values.invalid_or_null(errors, "at least one value is required");
    } else if values.len() > VALUES {
        values.too_many(errors, VALUES);
    }
    let mut seen = BTreeSet::new();
    for value in values.items() {
        if operator.text() == "In" && value.int() == 0 {
            value.invalid_int(errors, "must not be 0 for the In operator");
        }
        if !seen.insert(value.int()) {
            value.duplicate_as(errors, Shown::Integer(value.int()));
        }
    }
    let numbers: Vec<i64> = values.list().iter().filter_map(Value::as_i64).collect();
    if !numbers.is_sorted() {
        values.invalid(errors, "must be ordered");
    }
}

fn success_policy(errors: &mut FieldErrors, at: &At<'_, '_>, spec: &At<'_, '_>) {
    const RULES: usize = 20;
    const INDEXES_MAX: usize = 64 * 1024;
    let rules = at.at("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        rules.required_because(errors, detail);
    }
    if rules.len() > RULES {
        rules.too_many(errors, RULES);
    }
    let completions = spec.at("completions").int();
    for rule in rules.items() {
        let (count, indexes) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            rule.required_because(errors, detail);
        }
        let mut total = 0;
        if indexes.is_set() {
            if indexes.text().len() > INDEXES_MAX {
                indexes.too_long(errors, INDEXES_MAX);
            }
            match count_indexes(indexes.text(), completions) {
                Ok(found) => total = found,
                Err(reason) => {
                    indexes.invalid(errors, format!("error parsing succeededIndexes: {reason}"));
                }
            }
        }
        if !count.is_set() {
            continue;
        }
        count.non_negative(errors);
        if count.int() > completions {
            let detail = format!(
                "must be less than or equal to {completions} (the number of specified completions)"
            );
            count.invalid_int(errors, detail);
        }
        if indexes.is_set() && count.int() > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified \
                 succeededIndexes field)"
            );
            count.invalid_int(errors, detail);
        }
    }
}

/// Counts indexes such as `0,3-5`.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, UpstreamError> {
    let mut total = 0;
    let mut last = None;
    if text.is_empty() {
        return Ok(0);
    }
    for interval in text.split(',') {
        let quoted = lockgate_go::quote::quote(interval);
        let limits: Vec<&str> = interval.split('-').collect();
        if limits.len() > 2 {
            return Err(format!(
                "the fragment {quoted} violates the requirement that an index interval can have \
                 at most two parts separated by '-'"
            )
            .into());
        }
        let mut bounds = Vec::new();
        for limit in &limits {
            let quoted = lockgate_go::quote::quote(limit);
            let number: i64 = limit
                .parse()
                .map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
            if number >= completions {
                return Err(format!("too large index: {quoted}").into());
            }
            bounds.push(number);
        }
        let (first, end) = match bounds[..] {
            [first, end] if first >= end => {
                return Err(
                    format!("non-increasing order, previous: {first}, current: {end}").into(),
                );
            }
            [first, end] => (first, end),
            [first] => (first, first),
            _ => return Ok(total),
        };
        if let Some(last) = last
            && last >= first
        {
            return Err(format!("non-increasing order, previous: {last}, current: {first}").into());
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Validates which fields of a Job change.
fn job_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    let (at, former) = (At::root(object, "spec"), At::root(old, "spec"));
    let completions = at.at("completions");
    if at.at("completionMode").text() == "Indexed" {
        let differs = !completions.same(&former.at("completions"));
        if differs && completions.is_set() && completions.int() != at.at("parallelism").int() {
            let detail = "can only be modified in tandem with spec.parallelism";
            completions.invalid_int(errors, detail);
        }
    } else {
        completions.immutable(errors, &former.at("completions"));
    }
    At::root(object, "spec")
        .at("selector")
        .immutable_selector(errors, &At::root(old, "spec").at("selector"));
    template_update(errors, &at, &former, old);
    for key in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        let ty = member_type("batch", "Job", &["spec", key]);
        at.at(key).immutable_typed(errors, &former.at(key), ty);
    }
}

/// The scheduling directives of unstarted Jobs are mutable, and the resources of suspended ones.
fn template_update(errors: &mut FieldErrors, at: &At<'_, '_>, former: &At<'_, '_>, old: &Object) {
    let (Some(new), Some(old_template)) = (at.at("template").value, former.at("template").value)
    else {
        return;
    };
    let mut expected = old_template.clone();
    let is_suspended = former.at("suspend").flag();
    let started = get(old, "status").is_some_and(|status| has(status, "startTime"));
    if is_suspended && !started {
        for (parent, keys) in [
            ("metadata", &["annotations", "labels"][..]),
            (
                "spec",
                &["nodeSelector", "tolerations", "schedulingGates"][..],
            ),
        ] {
            let source = new.get(parent).and_then(Value::as_object);
            if let (Some(target), Some(source)) = (
                expected.get_mut(parent).and_then(Value::as_object_mut),
                source,
            ) {
                for key in keys {
                    copy_field(target, source, key);
                }
            }
        }
        let nodes = new.pointer("/spec/affinity/nodeAffinity").cloned();
        if let Some(spec) = expected.get_mut("spec").and_then(Value::as_object_mut) {
            if let (Some(nodes), Some(affinity)) = (nodes, open(spec, "affinity")) {
                affinity.insert("nodeAffinity".to_owned(), nodes);
            } else if let Some(affinity) = get_mut(spec, "affinity") {
                affinity.remove("nodeAffinity");
                if affinity.is_empty() {
                    spec.remove("affinity");
                }
            }
        }
    }
    let ty = type_of("batch", "v1", "Job").and_then(|ty| ty.field("spec")?.ty().field("template"));
    if is_suspended && !started {
        let spec = new.get("spec").and_then(Value::as_object);
        if let (Some(target), Some(source)) = (
            expected.get_mut("spec").and_then(Value::as_object_mut),
            spec,
        ) {
            take_resources(target, source);
        }
        let same = ty
            .and_then(|field| field.ty().field("spec"))
            .is_some_and(|field| {
                let nothing = Value::Null;
                let (new, expected) = (new.get("spec"), expected.get("spec"));
                semantically_equal(
                    field.ty(),
                    new.unwrap_or(&nothing),
                    expected.unwrap_or(&nothing),
                )
            });
        if !same && let Some(field) = ty.and_then(|field| field.ty().field("spec")) {
            let shown = internal_form(field.ty(), new.get("spec"));
            At::new(at.path.child("template.spec"), new.get("spec")).invalid_as(
                errors,
                Shown::Rendered(&shown),
                "field is immutable",
            );
        }
    } else {
        let expected = At::new(at.path, Some(&expected));
        let ty = ty.map(|field| field.ty());
        at.at("template").immutable_typed(errors, &expected, ty);
    }
}

/// Copies the resources of containers with the same name and index.
fn take_resources(target: &mut Object, source: &Object) {
    for key in ["containers", "initContainers"] {
        let new = list(source, key);
        if new.len() != list(target, key).len() {
            continue;
        }
        let mut containers = new.iter();
        each(target, key, |container| {
            let new = containers.next().and_then(Value::as_object);
            if let Some(new) = new.filter(|new| text(new, "name") == text(container, "name")) {
                copy_field(container, new, "resources");
            }
        });
    }
}
