//! Version 2: the schedule has a field for each of its parts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lockgate_webhook::{Fault, Spoke};
use serde::{Deserialize, Serialize};

use crate::schedule;
use crate::v1;

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
pub struct CronJobSpec {
    /// The schedule.
    #[serde(default)]
    pub schedule: Schedule,
    /// All other fields.
    #[serde(flatten)]
    pub rest: v1::Rest,
}

/// A schedule with separate fields. The schema defaults each to `*`, so that conversion through v1 is lossless: v1
/// cannot distinguish an absent field from `*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Schedule {
    /// 0 to 59.
    pub minute: String,
    /// 0 to 23.
    pub hour: String,
    /// 1 to 31.
    pub day_of_month: String,
    /// 1 to 12, or a name.
    pub month: String,
    /// 0 to 7, or a name.
    pub day_of_week: String,
}

impl Default for Schedule {
    fn default() -> Self {
        let [minute, hour, day_of_month, month, day_of_week] =
            std::array::from_fn(|_| String::from("*"));
        Self {
            minute,
            hour,
            day_of_month,
            month,
            day_of_week,
        }
    }
}

impl Spoke for CronJob {
    type Hub = v1::CronJob;
    const API_VERSION: &str = "batch.tutorial.kubebuilder.io/v2";

    fn to_hub(self) -> Result<v1::CronJob, Fault> {
        let Schedule {
            minute,
            hour,
            day_of_month,
            month,
            day_of_week,
        } = self.spec.schedule;
        Ok(v1::CronJob {
            metadata: self.metadata,
            spec: v1::CronJobSpec {
                schedule: [minute, hour, day_of_month, month, day_of_week].join(" "),
                rest: self.spec.rest,
            },
        })
    }

    fn from_hub(hub: v1::CronJob) -> Result<Self, Fault> {
        let [minute, hour, day_of_month, month, day_of_week] = schedule::split(&hub.spec.schedule)?;
        Ok(Self {
            metadata: hub.metadata,
            spec: CronJobSpec {
                schedule: Schedule {
                    minute,
                    hour,
                    day_of_month,
                    month,
                    day_of_week,
                },
                rest: hub.spec.rest,
            },
        })
    }
}
