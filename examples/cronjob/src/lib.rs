//! The webhooks of kubebuilder's tutorial: defaulting and validation of CronJobs, and conversion between their two
//! versions.

pub mod schedule;
pub mod v1;
pub mod v2;

use lockgate_webhook::field::{FieldError, Path, Shown};
use lockgate_webhook::{
    Context, Conversion, FieldErrors, Mutator, Object, Validator, Verdict, Webhooks, webhook,
};

/// Jobs are named after the CronJob with a suffix of 11 characters.
const MAX_NAME_LENGTH: usize = 63 - 11;

/// The CustomResourceDefinition, without its conversion settings.
pub const DEFINITION: &str = include_str!("../crd.yaml");

/// Defaults and validates CronJobs. Requests in v2 are converted to v1 before the call (`matchPolicy` is `Equivalent`),
/// so that the logic is written once.
#[derive(Debug, Clone, Copy)]
pub struct CronJobs;

#[webhook(
    name = "mcronjob-v1.kb.io",
    path = "/mutate-batch-tutorial-kubebuilder-io-v1-cronjob",
    groups = batch.tutorial.kubebuilder.io,
    versions = v1,
    resources = cronjobs,
    scope = namespaced,
    match_policy = equivalent
)]
impl Mutator<v1::CronJob> for CronJobs {
    async fn mutate(&self, _: &Context, job: &mut v1::CronJob) -> Verdict {
        let rest = &mut job.spec.rest;
        rest.concurrency_policy
            .get_or_insert_with(|| "Allow".into());
        rest.suspend.get_or_insert(false);
        rest.successful_jobs_history_limit.get_or_insert(3);
        rest.failed_jobs_history_limit.get_or_insert(1);
        // One space between fields: v2 cannot represent more.
        let fields: Vec<&str> = job.spec.schedule.split_whitespace().collect();
        job.spec.schedule = fields.join(" ");
        Ok(())
    }
}

#[webhook(
    name = "vcronjob-v1.kb.io",
    path = "/validate-batch-tutorial-kubebuilder-io-v1-cronjob",
    groups = batch.tutorial.kubebuilder.io,
    versions = v1,
    resources = cronjobs,
    scope = namespaced,
    match_policy = equivalent
)]
impl Validator<v1::CronJob> for CronJobs {
    async fn create_or_update(
        &self,
        ctx: &Context,
        _: Option<&Object<v1::CronJob>>,
        new: &Object<v1::CronJob>,
    ) -> Verdict {
        let mut errors = FieldErrors::default();
        if ctx.name().len() > MAX_NAME_LENGTH {
            let metadata = Path::root("metadata");
            errors.push(FieldError::invalid(
                &metadata.child("name"),
                Shown::Text(ctx.name()),
                format!("must be no more than {MAX_NAME_LENGTH} characters"),
            ));
        }
        if let Err(problem) = schedule::check(&new.spec.schedule) {
            let spec = Path::root("spec");
            errors.push(FieldError::invalid(
                &spec.child("schedule"),
                Shown::Text(&new.spec.schedule),
                problem.to_string(),
            ));
        }
        errors.into_verdict()
    }
}

/// The webhooks of this server.
#[must_use]
pub fn webhooks() -> Webhooks {
    Webhooks::new()
        .mutating(CronJobs)
        .validating(CronJobs)
        .converting(Conversion::marked::<v1::CronJob>().spoke::<v2::CronJob>())
}
