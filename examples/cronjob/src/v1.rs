//! Version 1, the hub: the schedule is one string.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::JobTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lockgate_webhook::{Hub, conversion};
use serde::{Deserialize, Serialize};

/// A job that runs on a schedule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CronJob {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default)]
    pub spec: CronJobSpec,
}

/// The desired state of a [`CronJob`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CronJobSpec {
    /// A cron schedule with five fields.
    #[serde(default)]
    pub schedule: String,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

/// The fields common to both versions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rest {
    /// The deadline for starting a missed job, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting_deadline_seconds: Option<i64>,
    /// `Allow`, `Forbid` or `Replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<String>,
    /// Suspends the creation of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The template of the jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_template: Option<JobTemplateSpec>,
    /// The number of completed jobs to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successful_jobs_history_limit: Option<i32>,
    /// The number of failed jobs to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_jobs_history_limit: Option<i32>,
}

#[conversion(resource = cronjobs)]
impl Hub for CronJob {
    const KIND: &str = "CronJob";
    const API_VERSION: &str = "batch.tutorial.kubebuilder.io/v1";
}

// The attribute `#[webhook]` takes group, version, resource and scope from these, unless they are given.
impl k8s_openapi::Resource for CronJob {
    const API_VERSION: &'static str = <Self as Hub>::API_VERSION;
    const GROUP: &'static str = "batch.tutorial.kubebuilder.io";
    const KIND: &'static str = <Self as Hub>::KIND;
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "cronjobs";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for CronJob {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
