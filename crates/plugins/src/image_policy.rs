//! `ImagePolicyWebhook`: a backend, or a list, decides which images are allowed.
//!
//! The plugin sends the images of a Pod to a [`Backend`] and caches the decision. [`HttpsBackend`] sends
//! `ImageReview`s to a server, as upstream's plugin does; [`ImageRules`] decides locally.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/imagepolicy. There too, a Pod allowed due to a failed backend has no
//! annotation: the one that upstream sets is lost in a copy. The audit log has it.

mod backend;
mod rules;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockgate_admission::audit::Level;
use lockgate_admission::host::{Clock, SystemClock};
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Request;
use lockgate_go::time::Duration as GoDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::ConfigError;
use crate::fields::{items, text, texts};
use crate::lru::Lru;
use crate::rules::{About, Refusal, Rules, Verdict, WRITE, object};

pub use backend::{Backend, BackendError, HttpsBackend};
pub use rules::{ImageRules, RulesConfiguration};

/// The prefix of audit annotation keys.
const PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";

/// The maximum number of cached decisions.
const CACHE_SIZE: usize = 1024;

/// The number of attempts before a backend call fails.
// UPSTREAM: apiserver pkg/util/webhook/webhook.go (DefaultRetryBackoffWithInitialDelay).
const TRIES: u32 = 5;

/// The configuration file of upstream's plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Its only field.
    #[serde(default)]
    pub image_policy: ImagePolicyConfiguration,
}

/// The configuration of the backend. For durations, zero means the default and -1 none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImagePolicyConfiguration {
    /// The kubeconfig of the backend, for [`HttpsBackend::from_kubeconfig`].
    #[serde(default)]
    pub kube_config_file: String,
    /// The cache time of allowed images in seconds; 300 by default.
    #[serde(default, rename = "allowTTL")]
    pub allow_ttl: i64,
    /// The cache time of denied images in seconds; 30 by default.
    #[serde(default, rename = "denyTTL")]
    pub deny_ttl: i64,
    /// The initial retry backoff in milliseconds; 500 by default. It grows by a factor of 1.5.
    #[serde(default)]
    pub retry_backoff: i64,
    /// Allows Pods when the backend fails.
    #[serde(default)]
    pub default_allow: bool,
}

/// The spec of an `ImageReview`: the request to a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImageReviewSpec {
    /// The containers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ImageReviewContainer>,
    /// The annotations of the Pod for backends.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The namespace of the pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// One container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImageReviewContainer {
    /// Its image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
}

/// The status of an `ImageReview`: the response of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageReviewStatus {
    /// True if all images are allowed.
    #[serde(default)]
    pub allowed: bool,
    /// The reason if not allowed.
    #[serde(default)]
    pub reason: String,
    /// Annotations for the audit log.
    #[serde(default)]
    pub audit_annotations: BTreeMap<String, String>,
}

/// Sends images of Pods to a backend. Clones share the cache.
#[derive(Clone)]
pub struct ImagePolicy {
    settings: Settings,
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    answers: Arc<Mutex<Lru<String, (Instant, ImageReviewStatus)>>>,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    allow_ttl: Duration,
    deny_ttl: Duration,
    retry_backoff: Duration,
    default_allow: bool,
}

impl Settings {
    fn read(config: &ImagePolicyConfiguration) -> Result<Self, ConfigError> {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        Ok(Self {
            allow_ttl: time(config.allow_ttl, second, second..=30 * minute, 5 * minute)?,
            deny_ttl: time(config.deny_ttl, second, second..=30 * minute, second * 30)?,
            retry_backoff: time(
                config.retry_backoff,
                Duration::from_millis(1),
                Duration::from_nanos(1)..=5 * minute,
                Duration::from_millis(500),
            )?,
            default_allow: config.default_allow,
        })
    }
}

impl ImagePolicy {
    /// Creates the plugin with a backend.
    ///
    /// # Errors
    ///
    /// Fails if a duration is out of range.
    pub fn new(
        config: &ImagePolicyConfiguration,
        backend: impl Backend,
    ) -> Result<Self, ConfigError> {
        Self::with_clock(config, backend, Arc::new(SystemClock))
    }

    /// Validates the durations of a configuration.
    ///
    /// # Errors
    ///
    /// Fails if a duration is out of range.
    pub fn check(config: &ImagePolicyConfiguration) -> Result<(), ConfigError> {
        Settings::read(config).map(|_| ())
    }

    /// Creates the plugin with a custom clock.
    ///
    /// # Errors
    ///
    /// Fails if a duration is out of range.
    pub fn with_clock(
        config: &ImagePolicyConfiguration,
        backend: impl Backend,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        let settings = Settings::read(config)?;
        Ok(Self {
            settings,
            backend: Arc::new(backend),
            clock,
            answers: Arc::new(Mutex::new(Lru::new(CACHE_SIZE))),
        })
    }

    async fn decide(&self, ask: &mut Admission) -> Verdict {
        let spec = spec_of(ask.request(), object(ask.request()));
        let status = match self.answer(&spec).await {
            Ok(status) => status,
            Err(_) if self.settings.default_allow => {
                ask.annotate(format!("{PREFIX}failed-open"), "true", Level::Metadata);
                return Ok(());
            }
            Err(error) => return Err(Refusal::forbidden(error.to_string())),
        };
        for (key, value) in &status.audit_annotations {
            ask.annotate(format!("{PREFIX}{key}"), value, Level::Metadata);
        }
        if status.allowed {
            return Ok(());
        }
        let message = if status.reason.is_empty() {
            String::from("one or more images rejected by webhook backend")
        } else {
            let reason = &status.reason;
            format!("image policy webhook backend denied one or more images: {reason}")
        };
        Err(Refusal::forbidden(message))
    }

    /// The response of the backend, or the cached one.
    async fn answer(&self, spec: &ImageReviewSpec) -> Result<ImageReviewStatus, BackendError> {
        let key = lockgate_go::json::to_string(spec);
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let mut wait = self.settings.retry_backoff;
        let mut tries = 1;
        let status = loop {
            match self.backend.review(spec).await {
                Ok(status) => break status,
                Err(error) if error.retry && tries < TRIES => {
                    tokio::time::sleep(wait).await;
                    wait = wait * 3 / 2;
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        };
        let ttl = if status.allowed {
            self.settings.allow_ttl
        } else {
            self.settings.deny_ttl
        };
        if !ttl.is_zero() {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.insert(key, (self.clock.now() + ttl, status.clone()));
        }
        Ok(status)
    }

    fn known(&self, key: &str) -> Option<ImageReviewStatus> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, status) = answers.get_mut(key)?;
        if *until > self.clock.now() {
            return Some(status.clone());
        }
        answers.remove(key);
        None
    }
}

impl std::fmt::Debug for ImagePolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.settings.fmt(f)
    }
}

/// Parses a duration of the configuration.
fn time(
    value: i64,
    unit: Duration,
    bounds: std::ops::RangeInclusive<Duration>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    let time = match value {
        -1 => return Ok(Duration::ZERO),
        0 => return Ok(default),
        value => u32::try_from(value).ok().map(|value| unit * value),
    };
    time.filter(|time| bounds.contains(time)).ok_or_else(|| {
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let shown = |nanoseconds: i64| GoDuration::from_nanos(nanoseconds).go_string();
        let (least, most) = (nanoseconds(*bounds.start()), nanoseconds(*bounds.end()));
        let got = nanoseconds(unit).wrapping_mul(value);
        let (least, most, got) = (shown(least), shown(most), shown(got));
        ConfigError(format!(
            "valid value is between {least} and {most}, got {got}"
        ))
    })
}

fn spec_of(request: &Request, pod: &Value) -> ImageReviewSpec {
    let lists: &[&str] = match request.subresource.as_str() {
        "" => &["containers", "initContainers"],
        _ => &["ephemeralContainers"],
    };
    let containers = lists.iter().flat_map(|list| items(pod, &["spec", list]));
    let containers = containers.map(|container| ImageReviewContainer {
        image: text(container, "image").to_owned(),
    });
    let annotations = texts(pod, &["metadata", "annotations"])
        .filter(|(key, _)| key.contains(".image-policy.k8s.io/"))
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    ImageReviewSpec {
        containers: containers.collect(),
        annotations: annotations.collect(),
        namespace: request.namespace.clone(),
    }
}

impl Rules for ImagePolicy {
    fn name(&self) -> &'static str {
        "ImagePolicyWebhook"
    }

    fn validates(&self) -> &'static [About] {
        const { &[About::core(WRITE, &["pods", "pods/ephemeralcontainers"])] }
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        self.decide(ask).await
    }
}
