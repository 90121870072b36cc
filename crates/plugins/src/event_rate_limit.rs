//! `EventRateLimit`: limits the rate of events.
//!
//! Buckets are kept per process: with several replicas of a webhook each of them allows the full rate.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/eventratelimit

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lockgate_admission::host::{Clock, SystemClock};
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Request;
use serde::Deserialize;
use serde_json::Value;

use crate::config::ConfigError;
use crate::fields::text_at;
use crate::lru::Lru;
use crate::rules::{About, Refusal, Rules, Verdict, WRITE, object};
use crate::texts::aggregate;

/// The default number of buckets per limit.
const CACHE_SIZE: usize = 4096;

/// The configuration file of upstream's plugin, `eventratelimit.admission.k8s.io/v1alpha1`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Configuration {
    /// The limits, all of which apply; at least one.
    #[serde(default)]
    pub limits: Vec<Limit>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The unit of counting, each with its own bucket.
    #[serde(rename = "type")]
    pub limit_type: LimitType,
    /// The number of events per second.
    pub qps: i32,
    /// The maximum burst.
    pub burst: i32,
    /// The maximum number of buckets; 4096 if zero. The least recently used buckets are evicted, and start full when
    /// they return.
    #[serde(default)]
    pub cache_size: i32,
}

/// The unit of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum LimitType {
    /// The entire server.
    Server,
    /// Every namespace.
    Namespace,
    /// Every user.
    User,
    /// Per event source component and involved object.
    SourceAndObject,
}

impl LimitType {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Namespace => "Namespace",
            Self::User => "User",
            Self::SourceAndObject => "SourceAndObject",
        }
    }

    fn key(self, request: &Request, event: &Value) -> String {
        match self {
            Self::Server => String::new(),
            Self::Namespace => request.namespace.clone(),
            Self::User => request.user.username.clone(),
            Self::SourceAndObject => [
                text_at(event, &["source", "component"]),
                text_at(event, &["source", "host"]),
                text_at(event, &["involvedObject", "kind"]),
                text_at(event, &["involvedObject", "namespace"]),
                text_at(event, &["involvedObject", "name"]),
                text_at(event, &["involvedObject", "uid"]),
                text_at(event, &["involvedObject", "apiVersion"]),
            ]
            .concat(),
        }
    }
}

/// Denies events above their rate. Clones share the buckets.
#[derive(Clone)]
pub struct EventRateLimit {
    enforcers: Arc<[Enforcer]>,
    clock: Arc<dyn Clock>,
}

struct Enforcer {
    limit: Limit,
    buckets: Mutex<Lru<String, Bucket>>,
}

/// The tokens in a bucket, and the time of the last update.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl EventRateLimit {
    /// Creates the plugin.
    ///
    /// # Errors
    ///
    /// No limit is set, or a limit is invalid.
    pub fn new(config: Configuration) -> Result<Self, ConfigError> {
        Self::with_clock(config, Arc::new(SystemClock))
    }

    /// Creates the plugin with a custom clock.
    ///
    /// # Errors
    ///
    /// No limit is set, or a limit is invalid.
    pub fn with_clock(config: Configuration, clock: Arc<dyn Clock>) -> Result<Self, ConfigError> {
        if config.limits.is_empty() {
            return Err(ConfigError(String::from(
                "limits: Invalid value: null: must not be empty",
            )));
        }
        let mut problems = Vec::new();
        for (n, limit) in config.limits.iter().enumerate() {
            for (member, value) in [("burst", limit.burst), ("qps", limit.qps)] {
                if value <= 0 {
                    problems.push(format!(
                        "limits[{n}].{member}: Invalid value: {value}: must be positive"
                    ));
                }
            }
            if limit.cache_size < 0 && limit.limit_type != LimitType::Server {
                problems.push(format!(
                    "limits[{n}].cacheSize: Invalid value: {}: must not be negative",
                    limit.cache_size
                ));
            }
        }
        if let Some(problem) = aggregate(problems) {
            return Err(ConfigError(problem));
        }
        let enforcers = config.limits.into_iter().map(Enforcer::new);
        Ok(Self {
            enforcers: enforcers.collect(),
            clock,
        })
    }

    fn check(&self, request: &Request, event: &Value) -> Verdict {
        // Nothing is written, so nothing is charged.
        if request.dry_run {
            return Ok(());
        }
        let now = self.clock.now();
        // Every limit counts the event, independently of the others.
        let over = self.enforcers.iter().filter_map(|enforcer| {
            let kind = enforcer.limit.limit_type;
            let key = kind.key(request, event);
            let name = kind.name();
            let message = || format!("limit reached on type {name} for key {key}");
            (!enforcer.take(&key, now)).then(message)
        });
        match aggregate(over.collect()) {
            None => Ok(()),
            Some(message) => {
                let message = format!("Too many requests: {message}");
                Err(Refusal::status(429, "TooManyRequests", message))
            }
        }
    }
}

impl std::fmt::Debug for EventRateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limits = self.enforcers.iter().map(|enforcer| &enforcer.limit);
        f.debug_list().entries(limits).finish()
    }
}

impl Enforcer {
    fn new(limit: Limit) -> Self {
        let size = match usize::try_from(limit.cache_size) {
            _ if limit.limit_type == LimitType::Server => 1,
            Ok(0) | Err(_) => CACHE_SIZE,
            Ok(size) => size,
        };
        Self {
            limit,
            buckets: Mutex::new(Lru::new(size)),
        }
    }

    /// Takes a token from a bucket, if available.
    fn take(&self, key: &str, now: Instant) -> bool {
        let full = f64::from(self.limit.burst);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get_mut(key) {
            let waited = now.saturating_duration_since(bucket.at).as_secs_f64();
            let tokens = bucket.tokens + waited * f64::from(self.limit.qps);
            bucket.tokens = tokens.min(full);
            bucket.at = bucket.at.max(now);
            let is_left = bucket.tokens >= 1.0;
            if is_left {
                bucket.tokens -= 1.0;
            }
            return is_left;
        }
        let bucket = Bucket {
            tokens: full - 1.0,
            at: now,
        };
        buckets.insert(key.to_owned(), bucket);
        true
    }
}

impl Rules for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn validates(&self) -> &'static [About] {
        // Events of `events.k8s.io` are of another kind, which upstream does not limit.
        const { &[About::core(WRITE, &["events"])] }
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        self.check(ask.request(), object(ask.request()))
    }
}
