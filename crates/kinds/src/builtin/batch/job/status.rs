//! Validation of Job status, which third-party controllers may write.
//!
//! Most rules apply to changed fields only, so that an existing status can still be updated.
//!
//! UPSTREAM: pkg/apis/batch/validation/validation.go (ValidateJobStatusUpdate),
//! pkg/registry/batch/job/strategy.go (getStatusValidationOptions)

use std::collections::BTreeSet;

use lockgate_api::field::FieldErrors;
use lockgate_api::meta::time::Time;

use super::{count_indexes, invalid_without_value};
use crate::at::At;
use crate::object::Object;

fn is_true(status: &At<'_, '_>, kind: &str) -> bool {
    status.at("conditions").items().any(|condition| {
        condition.at("type").text() == kind && condition.at("status").text() == "True"
    })
}

fn is_finished(status: &At<'_, '_>) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

/// Validates a status update.
pub(super) fn job_status(errors: &mut FieldErrors, object: &Object, old: &Object) {
    let spec = At::root(object, "spec");
    let (at, former) = (At::root(object, "status"), At::root(old, "status"));
    counts(errors, &at);
    let changed = |key: &str| !at.at(key).same(&former.at(key));
    let turned = |kind: &str| is_true(&at, kind) != is_true(&former, kind);
    let conditions = at.at("conditions");
    let mut refuse = |detail: &str| invalid_without_value(errors, &conditions, detail);
    let (complete, failed) = (is_true(&at, "Complete"), is_true(&at, "Failed"));
    let (target, met) = (
        is_true(&at, "FailureTarget"),
        is_true(&at, "SuccessCriteriaMet"),
    );
    if (turned("Complete") || turned("Failed")) && complete && failed {
        refuse("cannot set Complete=True and Failed=true conditions");
    }
    let (start, completion) = (at.at("startTime"), at.at("completionTime"));
    if turned("Complete") || changed("completionTime") {
        if completion.is_set() && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            completion.invalid(errors, detail);
        }
        if !completion.is_set() && complete {
            let detail = "completionTime is required for Complete jobs";
            completion.required_because(errors, detail);
        }
    }
    if changed("startTime") || changed("completionTime") {
        let times = [&start, &completion].map(|time| Time::parse(time.text()).ok());
        if let [Some(start), Some(end)] = times
            && end < start
        {
            completion.invalid(errors, "must be equal to or after `startTime`");
        }
    }
    let mut refuse = |detail: &str| invalid_without_value(errors, &conditions, detail);
    if (turned("Failed") || changed("failedIndexes")) && failed && !target {
        refuse("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (turned("Complete") || turned("SuccessCriteriaMet")) && complete && !met {
        refuse("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    let finished = is_finished(&at);
    let ended = finished != is_finished(&former);
    finished_counts(errors, &at, &spec, finished, |key| ended || changed(key));
    indexes(errors, &at, &spec, changed);
    let (ready, active, terminating) = (at.at("ready"), at.at("active"), at.at("terminating"));
    if (ended || changed("terminating")) && terminating.int() > 0 && finished {
        terminating.invalid_int(errors, "terminating>0 is invalid for finished job");
    }
    if (changed("ready") || changed("active")) && ready.is_set() && ready.int() > active.int() {
        ready.invalid_int(errors, "cannot set more ready pods than active");
    }
    let mut refuse = |detail: &str| invalid_without_value(errors, &conditions, detail);
    if met && failed {
        refuse("cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if met && target {
        refuse("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if spec.at("successPolicy").is_set() && !met && complete {
        refuse(
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        );
    }
    transitions(errors, &at, &former, &spec);
}

/// Counts are not negative, and uncounted uids are unique.
fn counts(errors: &mut FieldErrors, at: &At<'_, '_>) {
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        at.at(key).non_negative(errors);
    }
    let uncounted = at.at("uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for key in ["succeeded", "failed"] {
        for uid in uncounted.at(key).items() {
            if uid.is_empty() {
                uid.invalid(errors, "must not be empty");
            } else if !seen.insert(uid.text()) {
                uid.duplicate(errors);
            }
        }
    }
}

fn finished_counts(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    spec: &At<'_, '_>,
    finished: bool,
    applies: impl Fn(&str) -> bool,
) {
    if !finished {
        return;
    }
    let (active, start) = (at.at("active"), at.at("startTime"));
    if applies("active") && active.int() > 0 {
        active.invalid_int(errors, "active>0 is invalid for finished job");
    }
    let (suspend, completions) = (spec.at("suspend"), spec.at("completions"));
    let never_started = suspend.flag() && completions.is_set() && completions.int() == 0;
    if applies("startTime") && !never_started && !start.is_set() {
        start.required_because(errors, "startTime is required for finished job");
    }
    let uncounted = at.at("uncountedTerminatedPods");
    let pods = uncounted.at("failed").len() + uncounted.at("succeeded").len();
    if applies("uncountedTerminatedPods") && pods > 0 {
        uncounted.invalid(errors, "must be empty for finished job");
    }
}

fn indexes(
    errors: &mut FieldErrors,
    at: &At<'_, '_>,
    spec: &At<'_, '_>,
    changed: impl Fn(&str) -> bool,
) {
    let (done, failed) = (at.at("completedIndexes"), at.at("failedIndexes"));
    let (completions, limit) = (spec.at("completions"), spec.at("backoffLimitPerIndex"));
    let mut parse = |at: &At<'_, '_>, key: &str| {
        if let Err(reason) = count_indexes(at.text(), completions.int()) {
            at.invalid(errors, format!("error parsing {key}: {reason}"));
        }
    };
    if changed("completedIndexes") && completions.is_set() {
        parse(&done, "completedIndexes");
    }
    if changed("failedIndexes") && completions.is_set() && limit.is_set() && failed.is_set() {
        parse(&failed, "failedIndexes");
    }
    let is_indexed = spec.at("completionMode").text() == "Indexed";
    if changed("completedIndexes") && !done.is_empty() && !is_indexed {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        done.invalid(errors, detail);
    }
    if changed("failedIndexes") && !limit.is_set() && failed.is_set() {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        failed.invalid(errors, detail);
    }
    let either = changed("failedIndexes") || changed("completedIndexes");
    if either
        && completions.is_set()
        && let Some(index) = overlap(done.text(), failed.text(), completions.int())
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        failed.invalid(errors, detail);
    }
}

/// The first index in both lists; unparsable intervals are skipped.
fn overlap(done: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        let parse = |interval: &str| {
            count_indexes(interval, completions).ok()?;
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        text.split(',').filter_map(parse).collect()
    };
    let (done, failed) = (intervals(done), intervals(failed));
    let (mut done, mut failed) = (done.iter().peekable(), failed.iter().peekable());
    while let (Some((a, b)), Some((c, d))) = (done.peek(), failed.peek()) {
        if a <= d && c <= b {
            return Some(*a.max(c));
        }
        if a <= c {
            done.next();
        } else {
            failed.next();
        }
    }
    None
}

/// Rejects invalid transitions from the old status.
fn transitions(errors: &mut FieldErrors, at: &At<'_, '_>, old: &At<'_, '_>, spec: &At<'_, '_>) {
    let conditions = at.at("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(at, kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            invalid_without_value(errors, &conditions, &detail);
        }
    }
    let is_indexed = spec.at("completionMode").text() == "Indexed";
    let scales = is_indexed && spec.at("completions").same(&spec.at("parallelism"));
    for (key, applies) in [("failed", true), ("succeeded", !scales)] {
        if applies && at.at(key).int() < old.at(key).int() {
            let detail = format!("cannot decrease the {key} counter");
            at.at(key).invalid_int(errors, detail);
        }
    }
    let (end, former_end) = (at.at("completionTime"), old.at("completionTime"));
    if end.is_set() && former_end.is_set() && !end.same(&former_end) {
        end.invalid(errors, "field is immutable");
    }
    let (start, former_start) = (at.at("startTime"), old.at("startTime"));
    let was_suspended = is_true(old, "Suspended");
    let resumes = was_suspended
        && conditions.items().any(|condition| {
            condition.at("type").text() == "Suspended" && condition.at("status").text() == "False"
        });
    if former_start.is_set() && !start.same(&former_start) && !resumes && !spec.at("suspend").flag()
    {
        let detail = "field is immutable for unsuspended job once set";
        start.invalid_or_null(errors, detail);
    }
    let met = is_true(at, "SuccessCriteriaMet");
    let was_met = is_true(old, "SuccessCriteriaMet");
    if was_met && !met {
        let detail = "cannot disable the SuccessCriteriaMet=True condition";
        invalid_without_value(errors, &conditions, detail);
    }
    if is_true(old, "Complete") && !was_met && met {
        let detail =
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        invalid_without_value(errors, &conditions, detail);
    }
}
