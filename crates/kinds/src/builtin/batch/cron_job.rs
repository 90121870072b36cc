//! CronJobs.

use super::job::{job_spec, job_spec_defaults};
use crate::builtin::template::containers;
use crate::cells::read;
use crate::cells::{Common, Row, cell, count_cell, since};
use crate::checks::{non_negative, one_of, required};
use crate::kind::{CHANGE, Context, Kind, Resource, SPEC, Written, namespaced, sub};
use crate::object::{Object, at_mut, fill, fill_text, get, get_mut, text, with};
use lockgate_api::field::{FieldErrors, Path};
use serde_json::Value;

pub(super) const CRON_JOBS: Resource = namespaced(
    "batch",
    "v1",
    "cronjobs",
    "cronjob",
    "CronJob",
    "CronJobList",
    &CronJob,
)
.short(&["cj"])
.categories(&["all"])
.subresources(&[sub("status", "batch", "v1", "CronJob", CHANGE)])
.generation(SPEC);

/// The kind `CronJob`.
#[derive(Debug)]
pub(super) struct CronJob;

impl Kind for CronJob {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        cron_job(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|+Containers|+Images|+Selector"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        cron_job_row(object, common)
    }
}

fn defaults(object: &mut Object) {
    let Some(spec) = get_mut(object, "spec") else {
        return;
    };
    fill_text(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
    if let Some(job) = at_mut(spec, &["jobTemplate", "spec"]) {
        job_spec_defaults(job);
    }
}

fn cron_job(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    if text(spec, "schedule").is_empty() {
        required(errors, &path.child("schedule"));
    }
    one_of(
        errors,
        spec,
        "concurrencyPolicy",
        &path,
        &["Allow", "Forbid", "Replace"],
    );
    let job_template = path.child("jobTemplate");
    if let Some(job) = get(spec, "jobTemplate").and_then(|template| get(template, "spec")) {
        job_spec(errors, job, &job_template.child("spec"));
    }
    non_negative(errors, spec, "successfulJobsHistoryLimit", &path);
    non_negative(errors, spec, "failedJobsHistoryLimit", &path);
}

fn cron_job_row(object: &Value, common: &Common<'_>) -> Row {
    let suspended = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match read::text(object, "/status/lastScheduleTime") {
        "" => String::from("<none>"),
        time => since(time, common.now),
    };
    let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec/containers");
    Row::of(vec![
        cell(common.name),
        cell(read::text(object, "/spec/schedule")),
        cell(read::present_or(object, "/spec/timeZone", "<none>")),
        cell(suspended),
        count_cell(read::items(object, "/status/active").len()),
        cell(last),
        cell(common.age.as_str()),
        names,
        images,
        cell(read::shown_selector(
            object,
            "/spec/jobTemplate/spec/selector",
        )),
    ])
}
