//! CronJobs: create a Job at every time of a schedule.
//!
//! UPSTREAM: kubernetes pkg/controller/cronjob

mod schedule;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled};
use crate::job;
use crate::kind::Kind;
use crate::object::{
    Object, flag, is_deleting, list, now, number, set_annotation, text, time, time_text,
};
use crate::queue::Next;
use schedule::Schedule;

const AUTHOR: Author = Author::Controller {
    account: "cronjob-controller",
    component: "cronjob-controller",
};

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The maximum sleep: a longer one could miss changes of the system clock.
const MAX_SLEEP_SECONDS: i64 = 3600;
/// The number of missed start times that is reported by an event.
const MISSED_MAX: usize = 100;

/// A CronJob with its Jobs.
struct Cron<'c> {
    context: &'c Context,
    cron: &'c Object,
    jobs: Vec<Arc<Object>>,
    /// The new status.
    status: Value,
}

/// Reconciles a CronJob.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let Some(cron) = context.cache.at(Kind::CronJob, path) else {
        return Ok(Next::Done);
    };
    let mut jobs = context.cache.controlled(cron.uid(), Kind::Job);
    jobs.sort_by_key(|job| job.created);
    let mut run = Cron {
        context,
        cron: &cron,
        jobs,
        status: cron.get("status").cloned().unwrap_or_else(|| json!({})),
    };
    run.trim_history().await?;
    run.list_active();
    let next = run.step().await;
    let status = run.status.clone();
    context.set_status(&AUTHOR, &cron, status).await?;
    next
}

impl Cron<'_> {
    /// Updates the active Jobs in the status, and records events for finished ones.
    fn list_active(&mut self) {
        let was_active =
            |job: &Object| list(&self.status, "/active").any(|one| text(one, "/uid") == job.uid());
        for job in &self.jobs {
            if let Some(ended) = job::finished(job)
                && was_active(job)
            {
                let message = format!("Saw completed job: {}, condition: {ended}", job.name());
                let events = &self.context.events;
                events.normal(&AUTHOR, self.cron, "SawCompletedJob", message);
            }
        }
        let done = self
            .jobs
            .iter()
            .filter(|job| job::finished(job) == Some("Complete"))
            .filter_map(|job| time(job, "/status/completionTime"))
            .max();
        if let Some(done) = done
            && time(&self.status, "/lastSuccessfulTime") < Some(done)
        {
            self.status["lastSuccessfulTime"] = time_text(done).into();
        }
        let active: Vec<Value> = self.active().map(|job| job.as_reference()).collect();
        self.set_active(active);
    }

    fn set_active(&mut self, active: Vec<Value>) {
        if active.is_empty() {
            if let Some(members) = self.status.as_object_mut() {
                members.remove("active");
            }
        } else {
            self.status["active"] = active.into();
        }
    }

    fn active(&self) -> impl Iterator<Item = &Arc<Object>> {
        let jobs = self.jobs.iter();
        jobs.filter(|job| !job::is_finished(job) && !is_deleting(job))
    }

    async fn step(&mut self) -> Reconciled {
        let cron = self.cron;
        if is_deleting(cron) || flag(cron, "/spec/suspend") {
            return Ok(Next::Done);
        }
        let zone = text(cron, "/spec/timeZone");
        let Some(schedule) = Schedule::parse(text(cron, "/spec/schedule"), zone) else {
            let message = format!("unparseable schedule: {:?}", text(cron, "/spec/schedule"));
            let events = &self.context.events;
            events.warning(&AUTHOR, cron, "UnparseableSchedule", message);
            return Ok(Next::Done);
        };
        let now = now();
        let Some((due, is_late)) = self.due(&schedule, now) else {
            return Ok(sleep(&schedule, now));
        };
        if is_late {
            let message = format!("Missed scheduled time to start a job: {}", time_text(due));
            self.context
                .events
                .warning(&AUTHOR, cron, "MissSchedule", message);
            return Ok(sleep(&schedule, now));
        }
        if !self.may_start().await? {
            return Ok(sleep(&schedule, now));
        }
        self.start(due, zone).await?;
        Ok(sleep(&schedule, now))
    }

    /// The latest due time without a Job, and whether its starting deadline has passed.
    fn due(&self, schedule: &Schedule, now: i64) -> Option<(i64, bool)> {
        let created = time(self.cron, "/metadata/creationTimestamp").unwrap_or(now);
        let last = time(&self.status, "/lastScheduleTime").unwrap_or(created);
        let deadline = number(self.cron, "/spec/startingDeadlineSeconds");
        let from = deadline.map_or(last, |seconds| last.max(now - seconds));
        let mut due = None;
        let mut at = from;
        for missed in 0.. {
            match schedule.next_after(at) {
                Some(next) if next <= now => {
                    due = Some(next);
                    at = next;
                }
                _ => break,
            }
            if missed > MISSED_MAX {
                let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
                let events = &self.context.events;
                events.warning(&AUTHOR, self.cron, "TooManyMissedTimes", message.to_owned());
                // Skips all earlier times at once.
                at = at.max(now - 61);
            }
        }
        let due = due?;
        let is_late = deadline.is_some_and(|seconds| due + seconds < now);
        Some((due, is_late))
    }

    /// Applies the concurrency policy. Returns false if no Job may be created.
    async fn may_start(&self) -> Result<bool, Rejected> {
        let active: Vec<_> = self.active().cloned().collect();
        match text(self.cron, "/spec/concurrencyPolicy") {
            "Forbid" if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                let events = &self.context.events;
                events.normal(&AUTHOR, self.cron, "JobAlreadyActive", message.to_owned());
                Ok(false)
            }
            "Replace" => {
                for job in active {
                    self.remove(&job).await?;
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    async fn remove(&self, job: &Object) -> Result<(), Rejected> {
        self.context.delete(&AUTHOR, job).await?;
        let message = format!("Deleted job {}", job.name());
        let events = &self.context.events;
        events.normal(&AUTHOR, self.cron, "SuccessfulDelete", message);
        Ok(())
    }

    async fn start(&mut self, due: i64, zone: &str) -> Result<(), Rejected> {
        let template = &self.cron["spec"]["jobTemplate"];
        // The name contains the scheduled minute, so that a time gets one Job only.
        let name = format!("{}-{}", self.cron.name(), due.div_euclid(60));
        let mut job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": self.cron.namespace(),
                "ownerReferences": [self.cron.as_owner()],
            },
            "spec": template["spec"],
        });
        for member in ["labels", "annotations"] {
            if let Some(found) = template.pointer(&format!("/metadata/{member}")) {
                job["metadata"][member] = found.clone();
            }
        }
        set_annotation(&mut job, SCHEDULED, &schedule::local_text(due, zone));
        let (events, cron) = (&self.context.events, self.cron);
        match self.context.api.create(&AUTHOR, Kind::Job, job).await {
            Ok(created) => {
                events.normal(
                    &AUTHOR,
                    cron,
                    "SuccessfulCreate",
                    format!("Created job {name}"),
                );
                let mut active: Vec<Value> = list(&self.status, "/active").cloned().collect();
                active.push(json!({
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": name,
                    "namespace": cron.namespace(),
                    "uid": text(&created, "/metadata/uid"),
                    "resourceVersion": text(&created, "/metadata/resourceVersion"),
                }));
                self.set_active(active);
            }
            Err(refused) if refused.is_already_exists() => {}
            Err(refused) if refused.is_namespace_terminating() => return Ok(()),
            Err(refused) => {
                let message = format!("Error creating job: {}", refused.message());
                events.warning(&AUTHOR, cron, "FailedCreate", message);
                return Err(refused);
            }
        }
        self.status["lastScheduleTime"] = time_text(due).into();
        Ok(())
    }

    /// Deletes finished Jobs beyond the history limits.
    async fn trim_history(&self) -> Result<(), Rejected> {
        for (of, limit) in [
            ("Complete", "/spec/successfulJobsHistoryLimit"),
            ("Failed", "/spec/failedJobsHistoryLimit"),
        ] {
            let Some(limit) = number(self.cron, limit) else {
                continue;
            };
            let jobs: Vec<_> = self
                .jobs
                .iter()
                .filter(|job| job::finished(job) == Some(of) && !is_deleting(job))
                .collect();
            let excess = jobs
                .len()
                .saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
            for job in jobs.into_iter().take(excess) {
                self.remove(job).await?;
            }
        }
        Ok(())
    }
}

/// The time until the next Job is due.
fn sleep(schedule: &Schedule, now: i64) -> Next {
    match schedule.next_after(now) {
        None => Next::Done,
        Some(next) => {
            let seconds = (next - now).clamp(1, MAX_SLEEP_SECONDS);
            Next::After(Duration::from_secs(seconds.unsigned_abs()))
        }
    }
}
