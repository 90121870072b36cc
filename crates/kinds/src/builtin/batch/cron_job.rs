//! CronJobs.

mod schedule;

use crate::at::At;
use crate::builtin::batch::job::job_spec;
use crate::builtin::batch::job::job_spec_defaults;
use crate::builtin::batch::job::job_warnings;
use crate::builtin::core::pod::disabled::drop_from_template;
use crate::builtin::template::{containers, name_warning};
use crate::cells::Common;
use crate::cells::Row;
use crate::cells::cell;
use crate::cells::count_cell;
use crate::cells::read;
use crate::cells::since;
use crate::checks::invalid_selector;
use crate::kind::{CHANGE, Context, Kind, Resource, SPEC, Written, namespaced, sub};
use crate::object::Object;
use crate::object::at_mut;
use crate::object::fill;
use crate::object::fill_text;
use crate::object::get;
use crate::object::get_mut;
use crate::object::text;
use crate::object::with;
use lockgate_api::field::FieldError;
use lockgate_api::field::FieldErrors;
use lockgate_api::field::Path;
use lockgate_api::field::Shown;
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
    /// UPSTREAM: kubernetes pkg/registry/batch/cronjob/strategy.go does not validate status updates.
    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        if subresource == "status" {
            return FieldErrors::new();
        }
        let mut errors = self.validate_metadata_update(new, old);
        self.validate(&mut errors, new, Some(old), context);
        errors
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if subresource.is_empty() {
            with(value, |object| {
                drop_from_template(
                    object,
                    old.as_object(),
                    &["spec", "jobTemplate", "spec", "template"],
                )
            });
        }
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| {
            drop_from_template(object, None, &["spec", "jobTemplate", "spec", "template"])
        });
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        let mut warnings = name_warning(&new.metadata.name);
        warnings.extend(spec_warnings(new));
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
        spec_warnings(new)
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        cron_job(errors, new, old);
    }

    fn columns(&self) -> &'static str {
        "Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|+Containers|+Images|+Selector"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        cron_job_row(object, common)
    }
}

fn spec_warnings(new: &Written<'_>) -> Vec<String> {
    let spec = At::root(new.object(), "spec");
    let template = spec.at("jobTemplate");
    let mut warnings = job_warnings(&template.at("spec"));
    if spec.at("schedule").text().contains("TZ") {
        warnings.push(String::from(
            "spec.schedule: cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ));
    }
    warnings
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

fn cron_job(errors: &mut FieldErrors, new: &Written<'_>, old: Option<&Written<'_>>) {
    /// Leaves room for the suffix of Job names.
    const NAME_MAX: usize = 52;
    let at = At::root(new.object(), "spec");
    let empty = Object::new();
    let old_spec = old.map(|old| get(old.object(), "spec").unwrap_or(&empty));
    let schedule = at.at("schedule");
    if schedule.is_empty() {
        schedule.required(errors);
    } else {
        let had_zone = old_spec.is_some_and(|old| text(old, "schedule").contains("TZ"));
        if let Err(reason) = schedule::parse(schedule.text()) {
            schedule.invalid(errors, reason);
        }
        if schedule.text().contains("TZ") {
            if !had_zone {
                let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                schedule.invalid(errors, detail);
            } else if at.at("timeZone").is_set() {
                let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
                schedule.invalid(errors, detail);
            }
        }
    }
    at.at("startingDeadlineSeconds").non_negative(errors);
    let zone = at.at("timeZone");
    if old_spec.is_none_or(|old| old.get("timeZone") != zone.value) && zone.is_set() {
        time_zone(errors, &zone);
    }
    at.at("concurrencyPolicy")
        .one_of(errors, &["Allow", "Forbid", "Replace"]);
    let job_template = at.at("jobTemplate");
    let job = job_template.at("spec");
    let old_template = old_spec
        .and_then(|old| get(old, "jobTemplate"))
        .and_then(|template| get(template, "spec"))
        .and_then(|spec| get(spec, "template"));
    job_spec(errors, &job, old_template);
    let selector = job.at("selector");
    if selector.is_set() {
        let detail = "`selector` will be auto-generated";
        invalid_selector(errors, &selector.path, selector.value, detail);
    }
    if job.at("manualSelector").flag() {
        errors.push(FieldError::not_supported(
            &job.at("manualSelector").path,
            Shown::Rendered("true"),
            &["nil", "false"],
        ));
    }
    at.at("successfulJobsHistoryLimit").non_negative(errors);
    at.at("failedJobsHistoryLimit").non_negative(errors);
    if old.is_none() && new.metadata.name.len() > NAME_MAX {
        let metadata = Path::root("metadata");
        errors.push(FieldError::invalid(
            &metadata.child("name"),
            Shown::Text(&new.metadata.name),
            "must be no more than 52 characters",
        ));
    }
}

fn time_zone(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let name = at.text();
    if name.is_empty() {
        return at.invalid(errors, "timeZone must be nil or non-empty string");
    }
    let good = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
        (1..=14).contains(&part.len())
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
            && part.bytes().all(is_plain)
    };
    if !name.split('/').all(good) {
        return at.invalid(errors, format!("unknown time zone {name}"));
    }
    if name.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in \
                      https://www.iana.org/time-zones";
        at.invalid(errors, detail);
    }
    if let Err(error) = schedule::zone(name) {
        at.invalid(errors, error.to_string());
    }
}
