//! `ClusterResourceOverride`: sets the overcommit ratios of the cluster.
//!
//! OpenShift's plugin. Memory limits are kept; everything else is derived from them. Defaults of LimitRanges are
//! applied first, since everything is derived from limits.

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_go::quantity::Quantity;
use serde::Deserialize;
use serde_json::Value;

use crate::amounts::amount;
use crate::config::ConfigError;
use crate::fields::{CONTAINERS, annotation, at, is_mirror, items_mut, map_mut};
use crate::limit_ranger::LimitRanger;
use crate::lookup::{Lookup, namespace};
use crate::rules::{About, NEW_PODS, Refusal, Rules, Verdict};

/// A namespace opts out with a value other than `true`.
const ENABLED: &str = "quota.openshift.io/cluster-resource-override-enabled";

const MEBIBYTE: i64 = 1 << 20;
const MEGABYTE: i64 = 1_000_000;

/// Percentages; zero disables the override.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// The CPU limit per GiB of the memory limit, in percent of a core.
    #[serde(default, rename = "limitCPUToMemoryPercent")]
    pub limit_cpu_to_memory_percent: i64,
    /// The CPU request, in percent of the limit.
    #[serde(default, rename = "cpuRequestToLimitPercent")]
    pub cpu_request_to_limit_percent: i64,
    /// The memory request, in percent of the limit.
    #[serde(default, rename = "memoryRequestToLimitPercent")]
    pub memory_request_to_limit_percent: i64,
}

/// Sets requests and CPU limits in proportion to limits.
#[derive(Debug, Clone)]
pub struct ClusterResourceOverride {
    config: Configuration,
    lookup: Arc<dyn Lookup>,
    limits: LimitRanger,
}

impl ClusterResourceOverride {
    /// Creates the plugin.
    ///
    /// # Errors
    ///
    /// Fails if nothing is overridden, or a percentage is invalid.
    pub fn new(config: Configuration, lookup: impl Lookup) -> Result<Self, ConfigError> {
        let of_limits = [
            config.cpu_request_to_limit_percent,
            config.memory_request_to_limit_percent,
        ];
        let all = [
            config.limit_cpu_to_memory_percent,
            of_limits[0],
            of_limits[1],
        ];
        if all == [0; 3] {
            let message = "no percentage is given, so there is nothing to override";
            return Err(ConfigError(String::from(message)));
        }
        let is_wrong = all.iter().any(|percent| *percent < 0)
            || of_limits.iter().any(|percent| *percent > 100)
            || config.limit_cpu_to_memory_percent > 1_000_000;
        if is_wrong {
            let message =
                "requests are between 0 and 100 percent of limits, and limits not negative";
            return Err(ConfigError(String::from(message)));
        }
        let lookup: Arc<dyn Lookup> = Arc::new(lookup);
        Ok(Self {
            config,
            limits: LimitRanger::sharing(Arc::clone(&lookup)),
            lookup,
        })
    }

    fn set(&self, container: &mut Value) -> Verdict {
        let config = self.config;
        if let Some(memory) = limit(container, "memory")? {
            let bytes = memory.rounded_up(0);
            if config.memory_request_to_limit_percent != 0 {
                let request = percent(bytes, config.memory_request_to_limit_percent);
                let is_binary = memory.to_string().ends_with('i') || bytes % MEBIBYTE == 0;
                let (unit, suffix) = if is_binary {
                    (MEBIBYTE, "Mi")
                } else {
                    (MEGABYTE, "M")
                };
                let rounded = request / unit;
                let text = if rounded == 0 {
                    String::from("1Mi")
                } else {
                    format!("{rounded}{suffix}")
                };
                put(container, "requests", "memory", &text)?;
            }
            if config.limit_cpu_to_memory_percent != 0 {
                let milli =
                    i128::from(bytes) * i128::from(config.limit_cpu_to_memory_percent) * 1000;
                let milli = milli / (100 * i128::from(1_i64 << 30));
                put(container, "limits", "cpu", &format!("{}m", milli.max(1)))?;
            }
        }
        if config.cpu_request_to_limit_percent != 0
            && let Some(cpu) = limit(container, "cpu")?
        {
            let milli = percent(cpu.rounded_up(3), config.cpu_request_to_limit_percent);
            put(container, "requests", "cpu", &format!("{}m", milli.max(1)))?;
        }
        Ok(())
    }
}

fn percent(value: i64, percent: i64) -> i64 {
    let share = i128::from(value) * i128::from(percent) / 100;
    i64::try_from(share).unwrap_or(i64::MAX)
}

fn limit(container: &Value, name: &str) -> Result<Option<Quantity>, Refusal> {
    at(container, &["resources", "limits", name])
        .map(amount)
        .transpose()
}

/// Sets a quantity in canonical form.
fn put(container: &mut Value, part: &str, name: &str, text: &str) -> Verdict {
    let canonical = amount(&Value::from(text))?.to_string();
    let amounts = map_mut(container, &["resources", part])?;
    amounts.insert(name.to_owned(), Value::String(canonical));
    Ok(())
}

impl Rules for ClusterResourceOverride {
    fn name(&self) -> &'static str {
        "ClusterResourceOverride"
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        if is_mirror(pod) {
            return Ok(());
        }
        let request = ask.request();
        let namespace = namespace(&*self.lookup, &request.namespace).await?;
        if annotation(&namespace, ENABLED).is_some_and(|enabled| enabled != "true") {
            return Ok(());
        }
        self.limits.fill_in(request, pod).await?;
        for list in CONTAINERS {
            for container in items_mut(pod, &["spec", list]) {
                self.set(container)?;
            }
        }
        Ok(())
    }
}
