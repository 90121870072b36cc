//! Jobs.

use crate::builtin::core::pod::{labels_default, template, template_defaults};
use crate::builtin::template::{NO_MATCH, TEMPLATE, containers};
use crate::cells::read;
use crate::cells::{Common, Row, cell, human_duration};
use crate::checks::{
    immutable, immutable_selector, invalid_json, non_negative, required, selector, template_labels,
};
use crate::kind::{
    CHANGE, Context, Deletion, FieldSelector, Kind, NAME, NAMESPACE, Resource, SPEC, Written,
    namespaced, number_selector, sub,
};
use crate::object::{
    Object, at_mut, each, fill, fill_text, flag, get, get_mut, has, open, text, with,
};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::time::Time;
use serde_json::Value;

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
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, job_selector);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        job(errors, new.object());
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        if !subresource.is_empty() {
            return self.validate_metadata_update(new, old);
        }
        // Jobs are checked like new ones first.
        let mut errors = self.validate_create(new, context);
        errors.extend(self.validate_metadata_update(new, old));
        job(&mut errors, new.object());
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

/// What also applies to the jobs that a cron job will make.
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

/// A job selects its pods by its own uid, unless the client wants to select by hand.
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

fn job(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    job_spec(errors, spec, &path);
    if !has(spec, "selector") {
        required(errors, &path.child("selector"));
    }
    let compiled = selector(errors, spec, &path);
    let (shown, labels) = template_labels(spec);
    if compiled.is_none_or(|selector| !selector.matches(&labels)) {
        let template = path.child("template");
        let metadata = template.child("metadata");
        invalid_json(errors, &metadata.child("labels"), shown, NO_MATCH);
    }
}

pub(super) fn job_spec(errors: &mut FieldErrors, spec: &Object, path: &Path<'_>) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        non_negative(errors, spec, key, path);
    }
    let template_path = path.child("template");
    template(errors, spec, &template_path);
    let empty = Object::new();
    let pod = get(spec, "template")
        .and_then(|template| get(template, "spec"))
        .unwrap_or(&empty);
    let policy = text(pod, "restartPolicy");
    if !matches!(policy, "OnFailure" | "Never") {
        let spec_path = template_path.child("spec");
        let path = spec_path.child("restartPolicy");
        if policy == "Always" || policy.is_empty() {
            errors.push(FieldError::required(
                &path,
                "valid values: \"OnFailure\", \"Never\"",
            ));
        } else {
            errors.push(FieldError::not_supported(
                &path,
                Shown::Named(policy),
                &["OnFailure", "Never"],
            ));
        }
    }
}

/// What of a job may not change.
fn job_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    let path = Path::root("spec");
    immutable_selector(errors, object, old);
    for key in [
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        let member = |object| get(object, "spec").and_then(|spec: &Object| spec.get(key));
        immutable(errors, (member(object), member(old)), &path.child(key));
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
