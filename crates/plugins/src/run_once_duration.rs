//! `RunOnceDuration`: limits the run time of Pods that are not restarted.
//!
//! This is OpenShift's plugin `autoscaling.openshift.io/RunOnceDuration`.

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Request;
use serde::Deserialize;
use serde_json::Value;

use crate::fields::{annotation, at, is_mirror, map_mut, text_at};
use crate::lookup::{Lookup, namespace};
use crate::rules::{About, NEW_PODS, Refusal, Rules, Verdict};

/// The annotation of a namespace.
const ANNOTATION: &str = "openshift.io/active-deadline-seconds-override";

/// The maximum run time of Pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// The limit in seconds for Pods in namespaces without an annotation.
    #[serde(default)]
    pub active_deadline_seconds_limit: Option<i64>,
}

/// Limits `activeDeadlineSeconds` of Pods that are not restarted.
#[derive(Debug, Clone)]
pub struct RunOnceDuration {
    config: Configuration,
    lookup: Arc<dyn Lookup>,
}

impl RunOnceDuration {
    /// Creates the plugin.
    pub fn new(config: Configuration, lookup: impl Lookup) -> Self {
        Self {
            config,
            lookup: Arc::new(lookup),
        }
    }

    async fn limit(&self, request: &Request) -> Result<Option<i64>, Refusal> {
        let namespace = namespace(&*self.lookup, &request.namespace).await?;
        let Some(text) = annotation(&namespace, ANNOTATION) else {
            return Ok(self.config.active_deadline_seconds_limit);
        };
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
        let wrong = || Refusal::Fault(format!("annotation {ANNOTATION} is `{text}`"));
        Ok(Some(seconds.ok_or_else(wrong)?))
    }
}

impl Rules for RunOnceDuration {
    fn name(&self) -> &'static str {
        "RunOnceDuration"
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        let policy = text_at(pod, &["spec", "restartPolicy"]);
        if !matches!(policy, "Never" | "OnFailure") || is_mirror(pod) {
            return Ok(());
        }
        let Some(limit) = self.limit(ask.request()).await? else {
            return Ok(());
        };
        let member = "activeDeadlineSeconds";
        let own = at(pod, &["spec", member]).and_then(Value::as_i64);
        if own.is_none_or(|own| own > limit) {
            map_mut(pod, &["spec"])?.insert(member.to_owned(), limit.into());
        }
        Ok(())
    }
}
