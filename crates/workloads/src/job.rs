//! Jobs: run Pods until enough of them succeeded, or too many failed.
//!
//! A finished Pod is counted exactly once: its uid is written to the status, then its finalizer is removed, then the
//! counter is incremented.
//!
//! UPSTREAM: kubernetes pkg/controller/job

mod indexes;
mod outcome;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Author, Rejected};
use crate::context::{Context, Reconciled};
use crate::kind::Kind;
use crate::object::{
    Object, condition, count, entry, flag, is_condition_true, is_deleting, list, now, now_text,
    number, selects, set_annotation, set_condition, set_label, text, time,
};
use crate::ownership::claim;
use crate::pod;
use crate::queue::Next;
use crate::replica_set::set_count;
use indexes::{INDEX, Indexes};
use outcome::Outcome;

const AUTHOR: Author = Author::Controller {
    account: "job-controller",
    component: "job-controller",
};

/// The finalizer of Pods that are not counted yet.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The initial backoff after a failure, doubled each time. Upstream's is ten seconds up to ten minutes; simulated
/// Pods take milliseconds.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// A Job with its Pods.
struct Run<'r> {
    context: &'r Context,
    job: &'r Object,
    pods: Vec<Arc<Object>>,
    /// The new status.
    status: Value,
}

/// Reconciles a Job.
pub(crate) async fn reconcile(context: &Context, path: &str) -> Reconciled {
    let job = context.cache.at(Kind::Job, path);
    free_orphans(context, path, job.as_deref().map(Object::uid)).await?;
    let Some(job) = job else {
        return Ok(Next::Done);
    };
    let managed_by = text(&job, "/spec/managedBy");
    if !matches!(managed_by, "" | "kubernetes.io/job-controller") {
        return Ok(Next::Done);
    }
    let selector = job.pointer("/spec/selector");
    let pods = claim(context, &AUTHOR, &job, Kind::Pod, |pod| {
        selects(selector, pod)
    })
    .await?;
    let run = Run {
        context,
        job: &job,
        pods,
        status: job.get("status").cloned().unwrap_or_else(|| json!({})),
    };
    if is_finished(&job) {
        return run.clean_up().await;
    }
    run.step().await
}

/// The terminal condition of a Job.
pub(crate) fn finished(job: &Value) -> Option<&'static str> {
    ["Complete", "Failed"]
        .into_iter()
        .find(|of| is_condition_true(job, of))
}

pub(crate) fn is_finished(job: &Value) -> bool {
    finished(job).is_some()
}

fn has_finalizer(pod: &Value) -> bool {
    list(pod, "/metadata/finalizers").any(|one| one.as_str() == Some(TRACKING))
}

async fn free(context: &Context, pod: &Object) -> Result<(), Rejected> {
    let edit = |pod: &mut Value| {
        let metadata = entry(pod, "metadata");
        let finalizers = metadata.get_mut("finalizers").and_then(Value::as_array_mut);
        if let Some(finalizers) = finalizers {
            finalizers.retain(|one| one.as_str() != Some(TRACKING));
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            }
        }
    };
    context.edit(&AUTHOR, pod, &edit).await
}

/// Removes the finalizers of Pods of deleted Jobs at a path, whether or not another Job has the same name: the Pods
/// are no longer counted.
///
/// UPSTREAM: pkg/controller/job/job_controller.go (syncOrphanPod).
async fn free_orphans(context: &Context, path: &str, live: Option<&str>) -> Result<(), Rejected> {
    let gone = context.cache.jobs_with_pods(path).into_iter();
    for uid in gone.filter(|uid| Some(uid.as_str()) != live) {
        for pod in context.cache.controlled(&uid, Kind::Pod) {
            if has_finalizer(&pod) {
                free(context, &pod).await?;
            }
        }
    }
    Ok(())
}

/// A Pod that is deleted before it finished counts as failed.
fn has_failed(pod: &Value) -> bool {
    pod::phase(pod) == "Failed" || is_deleting(pod) && pod::phase(pod) != "Succeeded"
}

impl Run<'_> {
    async fn step(mut self) -> Reconciled {
        if is_deleting(self.job) {
            self.free_all().await?;
            return Ok(Next::Done);
        }
        self.account().await?;
        let suspended = flag(self.job, "/spec/suspend");
        let mut conditions = crate::object::conditions(self.job);
        self.set_suspended_condition(suspended, &mut conditions);
        let mut next = Next::Done;
        let mut managed = Ok(());
        let outcome = outcome::of(self.job, &self.status, &self.pods, now());
        match &outcome {
            Outcome::Continues { deadline } => {
                if let Some(seconds) = deadline {
                    next = Next::After(Duration::from_secs(seconds.unsigned_abs()));
                }
                if suspended {
                    managed = self.delete_active().await;
                } else {
                    match self.manage().await {
                        Ok(later) => next = next.or(later),
                        Err(refused) => managed = Err(refused),
                    }
                }
            }
            Outcome::Ends {
                met,
                reason,
                message,
                ..
            } => {
                set_job_condition(&mut conditions, met, reason, message);
                self.delete_active().await?;
                if self.is_settled() {
                    self.end(&outcome, &mut conditions);
                }
            }
        }
        self.count();
        if !conditions.is_empty() {
            self.status["conditions"] = conditions.into();
        }
        self.context
            .set_status(&AUTHOR, self.job, self.status.clone())
            .await?;
        managed?;
        Ok(next)
    }

    /// Returns true if all Pods are deleted or finished, and counted.
    fn is_settled(&self) -> bool {
        let waits = |pod: &Arc<Object>| has_finalizer(pod) || !pod::is_finished(pod);
        !self.pods.iter().any(waits) && self.uncounted_is_empty()
    }

    fn uncounted_is_empty(&self) -> bool {
        ["succeeded", "failed"].iter().all(|member| {
            let pointer = format!("/uncountedTerminatedPods/{member}");
            list(&self.status, &pointer).next().is_none()
        })
    }

    fn end(&mut self, outcome: &Outcome, conditions: &mut Vec<Value>) {
        let Outcome::Ends {
            ends,
            reason,
            message,
            ..
        } = outcome
        else {
            return;
        };
        set_job_condition(conditions, ends, reason, message);
        let events = &self.context.events;
        if *ends == "Complete" {
            self.status["completionTime"] = now_text().into();
            events.normal(
                &AUTHOR,
                self.job,
                "Completed",
                String::from("Job completed"),
            );
        } else {
            events.warning(&AUTHOR, self.job, reason, message.clone());
        }
    }

    fn set_suspended_condition(&mut self, suspended: bool, conditions: &mut Vec<Value>) {
        let was = is_condition_true(self.job, "Suspended");
        let known = condition(self.job, "Suspended").is_some();
        let events = &self.context.events;
        if suspended && !was {
            set_job_condition(conditions, "Suspended", "JobSuspended", "Job suspended");
            entry_remove(&mut self.status, "startTime");
            events.normal(
                &AUTHOR,
                self.job,
                "Suspended",
                String::from("Job suspended"),
            );
        } else if !suspended && was && known {
            set_condition(
                conditions,
                "Suspended",
                "False",
                "JobResumed",
                "Job resumed",
            );
            self.status["startTime"] = now_text().into();
            events.normal(&AUTHOR, self.job, "Resumed", String::from("Job resumed"));
        }
        if !suspended && self.status.get("startTime").is_none() {
            self.status["startTime"] = now_text().into();
        }
    }

    /// Counts finished Pods. The status is written before finalizers are removed.
    async fn account(&mut self) -> Result<(), Rejected> {
        let mut lists = [Vec::<String>::new(), Vec::new()];
        let mut added = [0_i64; 2];
        let mut to_free = Vec::new();
        for (place, member) in ["succeeded", "failed"].into_iter().enumerate() {
            let pointer = format!("/uncountedTerminatedPods/{member}");
            for uid in list(&self.status, &pointer).filter_map(Value::as_str) {
                let pod = self.pods.iter().find(|pod| pod.uid() == uid);
                match pod.filter(|pod| has_finalizer(pod)) {
                    Some(pod) => {
                        to_free.push(Arc::clone(pod));
                        lists[place].push(uid.to_owned());
                    }
                    None => added[place] += 1,
                }
            }
        }
        let is_indexed = text(self.job, "/spec/completionMode") == "Indexed";
        let mut completed = Indexes::parse(text(&self.status, "/completedIndexes"));
        let ignores = |pod: &Value| outcome::is_ignored(self.job, pod);
        for pod in self.pods.iter().filter(|pod| has_finalizer(pod)) {
            let known = lists.iter().flatten().any(|uid| uid == pod.uid());
            if known {
                continue;
            }
            if pod::phase(pod) == "Succeeded" {
                match (is_indexed, indexes::of(pod)) {
                    (true, Some(index)) => {
                        // Each completed index is counted once.
                        completed.insert(index);
                        to_free.push(Arc::clone(pod));
                    }
                    _ => lists[0].push(pod.uid().to_owned()),
                }
            } else if has_failed(pod) {
                if ignores(pod) {
                    to_free.push(Arc::clone(pod));
                } else {
                    lists[1].push(pod.uid().to_owned());
                }
            }
        }
        let mut status = self.status.clone();
        let [succeeded, failed] = lists;
        let mut uncounted = json!({});
        if !succeeded.is_empty() {
            uncounted["succeeded"] = succeeded.into();
        }
        if !failed.is_empty() {
            uncounted["failed"] = failed.into();
        }
        status["uncountedTerminatedPods"] = uncounted;
        for (member, more) in ["succeeded", "failed"].into_iter().zip(added) {
            let total = count(&status, &format!("/{member}")) + more;
            set_count(&mut status, member, total);
        }
        if is_indexed {
            status["completedIndexes"] = completed.to_string().into();
            set_count(&mut status, "succeeded", completed.len());
        }
        let is_told = self.status.get("completedIndexes") == status.get("completedIndexes")
            && self.status.get("uncountedTerminatedPods") == status.get("uncountedTerminatedPods");
        self.status = status;
        // A finalizer is removed only if the uid is already in the stored status.
        if is_told {
            for pod in to_free {
                free(self.context, &pod).await?;
            }
        }
        Ok(())
    }

    async fn free_all(&self) -> Result<(), Rejected> {
        for pod in self.pods.iter().filter(|pod| has_finalizer(pod)) {
            free(self.context, pod).await?;
        }
        Ok(())
    }

    fn active(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.pods.iter().filter(|pod| pod::is_active(pod))
    }

    async fn delete_active(&self) -> Result<(), Rejected> {
        for pod in self.active() {
            pod::delete(self.context, &AUTHOR, self.job, pod).await?;
        }
        Ok(())
    }

    /// Creates missing Pods, and deletes surplus ones.
    async fn manage(&mut self) -> Reconciled {
        let parallelism = number(self.job, "/spec/parallelism").unwrap_or(1);
        let completions = number(self.job, "/spec/completions");
        let succeeded = outcome::succeeded(&self.status);
        let active = i64::try_from(self.active().count()).unwrap_or(i64::MAX);
        let wanted = match completions {
            None if succeeded > 0 => active,
            None => parallelism,
            Some(completions) => parallelism.min(completions - succeeded),
        };
        if active > wanted {
            let mut surplus: Vec<_> = self.active().cloned().collect();
            pod::sort_for_deletion(&mut surplus);
            let excess = usize::try_from(active - wanted.max(0)).unwrap_or_default();
            for pod in surplus.iter().take(excess) {
                pod::delete(self.context, &AUTHOR, self.job, pod).await?;
            }
            return Ok(Next::Done);
        }
        let missing = usize::try_from(wanted - active)
            .unwrap_or_default()
            .min(pod::BURST_REPLICAS);
        if missing == 0 {
            return Ok(Next::Done);
        }
        // Finished Pods that are not counted yet would be replaced twice.
        if self
            .pods
            .iter()
            .any(|pod| pod::is_finished(pod) && has_finalizer(pod))
        {
            return Ok(Next::Done);
        }
        if let Some(left) = self.backoff() {
            return Ok(Next::After(left));
        }
        let pods = self.new_pods(missing);
        pod::create_all(self.context, &AUTHOR, self.job, pods).await?;
        Ok(Next::Done)
    }

    /// The remaining backoff before failed Pods are replaced.
    fn backoff(&self) -> Option<Duration> {
        let failed = count(&self.status, "/failed");
        let doublings = u32::try_from(failed - 1).ok()?.min(16);
        let pause = (FIRST_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF);
        let stage = format!("failed {failed}");
        let clocks = &self.context.clocks;
        let left = clocks.left(self.job.uid(), &stage, pause, Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn new_pods(&self, missing: usize) -> Vec<Value> {
        let template = &self.job["spec"]["template"];
        let mut pod = pod::from_template(template, self.job);
        let metadata = entry(&mut pod, "metadata");
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut() {
            finalizers.push(TRACKING.into());
        }
        if text(self.job, "/spec/completionMode") != "Indexed" {
            return vec![pod; missing];
        }
        let completions = count(self.job, "/spec/completions");
        let mut taken = Indexes::parse(text(&self.status, "/completedIndexes"));
        for index in self.active().filter_map(|pod| indexes::of(pod)) {
            taken.insert(index);
        }
        (0..completions)
            .filter(|index| !taken.contains(*index))
            .take(missing)
            .map(|index| self.indexed(pod.clone(), index))
            .collect()
    }

    fn indexed(&self, mut pod: Value, index: i64) -> Value {
        let name = self.job.name();
        pod["metadata"]["generateName"] = format!("{name}-{index}-").into();
        set_annotation(&mut pod, INDEX, &index.to_string());
        set_label(&mut pod, INDEX, &index.to_string());
        pod["spec"]["hostname"] = format!("{name}-{index}").into();
        let variable = json!({
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {
                "apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']")}},
        });
        for member in ["containers", "initContainers"] {
            let containers = pod["spec"].get_mut(member).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let env = container
                    .as_object_mut()
                    .map(|members| members.entry("env").or_insert_with(|| json!([])));
                if let Some(env) = env.and_then(Value::as_array_mut) {
                    env.push(variable.clone());
                }
            }
        }
        pod
    }

    /// Sets the Pod counts in the status.
    fn count(&mut self) {
        let as_count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let active = as_count(self.active().count());
        let ready = as_count(self.active().filter(|pod| pod::is_ready(pod)).count());
        let terminating = self
            .pods
            .iter()
            .filter(|pod| is_deleting(pod) && !pod::is_finished(pod));
        let terminating = as_count(terminating.count());
        set_count(&mut self.status, "active", active);
        self.status["ready"] = ready.into();
        self.status["terminating"] = terminating.into();
    }

    /// Removes the finalizers of a finished Job's Pods, and deletes the Job after its TTL.
    async fn clean_up(self) -> Reconciled {
        self.free_all().await?;
        let Some(ttl) = number(self.job, "/spec/ttlSecondsAfterFinished") else {
            return Ok(Next::Done);
        };
        if is_deleting(self.job) {
            return Ok(Next::Done);
        }
        let ended = finished(self.job).and_then(|of| condition(self.job, of));
        let ended = ended.and_then(|ended| time(ended, "/lastTransitionTime"));
        let left = ended.unwrap_or_else(now) + ttl - now();
        if left > 0 {
            return Ok(Next::After(Duration::from_secs(left.unsigned_abs())));
        }
        let by = Author::Controller {
            account: "ttl-after-finished-controller",
            component: "ttl-after-finished-controller",
        };
        self.context.delete(&by, self.job).await?;
        Ok(Next::Done)
    }
}

fn entry_remove(status: &mut Value, member: &str) {
    if let Some(members) = status.as_object_mut() {
        members.remove(member);
    }
}

/// Sets a condition of a Job to true, with its probe time.
fn set_job_condition(conditions: &mut Vec<Value>, of: &str, reason: &str, message: &str) {
    if set_condition(conditions, of, "True", reason, message)
        && let Some(one) = conditions.iter_mut().find(|one| text(one, "/type") == of)
    {
        one["lastProbeTime"] = now_text().into();
    }
}
