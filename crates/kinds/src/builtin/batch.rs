//! The group `batch`.

mod cron_job;
mod job;

pub(super) use job::domain_prefixed_path;

use crate::kind::Resource;

pub(super) static RESOURCES: [Resource; 2] = [cron_job::CRON_JOBS, job::JOBS];
