//! API Priority and Fairness: FlowSchemas classify requests into priority levels, which limit the number of concurrent
//! requests.
//!
//! ```text
//!   request ─► the first matching schema ─► its level ─► a seat, a place in a queue, or 429
//!              (by precedence, then by name)
//! ```
//!
//! Schemas and levels are compiled when they are written; a request uses a snapshot, and its classification allocates
//! nothing. The default objects are in `lockgate_kinds::flow_control`.
//!
//! UPSTREAM: apiserver pkg/util/flowcontrol/apf_controller.go, pkg/server/filters/priority-and-fairness.go

mod retry;
mod schema;
mod seats;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use http::header::{HeaderMap, HeaderName};
use lockgate_api::admission::UserInfo;
use lockgate_kinds::flow_control::{self as suggested, CATCH_ALL};
use serde_json::Value;

use retry::DroppedRequests;
pub(crate) use schema::RequestDigest;
use schema::{Distinguisher, Schema};
use seats::{Entry, Limits, Queues, RejectReason, Seat, Seats};

const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Classifies requests into priority levels, and limits the concurrency of each.
#[derive(Debug)]
pub(crate) struct FlowControl {
    /// The total concurrency limit of all levels; zero means no limit.
    total: usize,
    /// The maximum queueing time.
    max_wait: Duration,
    configured: Mutex<ConfiguredObjects>,
    snapshot: ArcSwap<Snapshot>,
    seats: Arc<Seats>,
    hasher: RandomState,
}

/// The stored objects.
#[derive(Debug, Default)]
struct ConfiguredObjects {
    schemas: BTreeMap<String, Value>,
    levels: BTreeMap<String, Value>,
    /// The levels that survive a change of the objects.
    kept_levels: BTreeMap<String, Arc<Level>>,
    kept_counts: BTreeMap<(String, String), Arc<Counts>>,
    /// True while many objects change, which are compiled together.
    is_held: bool,
}

/// The schemas in matching order.
#[derive(Debug, Default)]
struct Snapshot {
    /// Schemas with resource rules.
    of_resources: Vec<Arc<Flows>>,
    /// Schemas with non-resource rules.
    of_paths: Vec<Arc<Flows>>,
    /// The schema for requests that no other schema matches.
    fallback: Option<Arc<Flows>>,
    all: Vec<Arc<Flows>>,
}

/// A schema with the level of its requests.
#[derive(Debug)]
struct Flows {
    schema: Schema,
    level: Arc<Level>,
    schema_uid: HeaderValue,
    level_uid: HeaderValue,
    limits: Option<Limits>,
    counts: Arc<Counts>,
}

/// The state of a priority level.
#[derive(Debug)]
struct Level {
    name: String,
    /// Its ID in the seats.
    id: u64,
    dropped: Mutex<DroppedRequests>,
}

/// The request counts of a schema in a level, since startup.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    dispatched: AtomicU64,
    rejected: [AtomicU64; RejectReason::ALL.len()],
}

/// The schema and the level of a request.
#[derive(Debug)]
pub(crate) struct Classified(Arc<Flows>);

/// A rejected request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rejected {
    /// The `Retry-After` in seconds.
    pub(crate) retry_after_seconds: u32,
}

impl FlowControl {
    /// Creates it with a total concurrency limit; zero means no limit.
    pub(crate) fn new(total: usize, request_timeout: Duration) -> Self {
        let control = Self {
            total,
            // UPSTREAM: apiserver pkg/server/config.go (a quarter of the request timeout)
            max_wait: request_timeout / 4,
            configured: Mutex::default(),
            snapshot: ArcSwap::default(),
            seats: Arc::default(),
            hasher: RandomState::new(),
        };
        control.compile(&mut control.configured());
        control
    }

    fn configured(&self) -> MutexGuard<'_, ConfiguredObjects> {
        self.configured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Defers compilation until [`release`](Self::release): at startup all objects are loaded at once.
    pub(crate) fn hold(&self) {
        self.configured().is_held = true;
    }

    /// Compiles deferred changes, and from now on every change.
    pub(crate) fn release(&self) {
        let mut configured = self.configured();
        configured.is_held = false;
        self.compile(&mut configured);
    }

    /// Adds or replaces a FlowSchema.
    pub(crate) fn set_schema(&self, name: &str, object: &Value) {
        let mut configured = self.configured();
        configured.schemas.insert(name.to_owned(), object.clone());
        self.compile(&mut configured);
    }

    pub(crate) fn remove_schema(&self, name: &str) {
        let mut configured = self.configured();
        configured.schemas.remove(name);
        self.compile(&mut configured);
    }

    /// Adds or replaces a PriorityLevelConfiguration.
    pub(crate) fn set_level(&self, name: &str, object: &Value) {
        let mut configured = self.configured();
        configured.levels.insert(name.to_owned(), object.clone());
        self.compile(&mut configured);
    }

    pub(crate) fn remove_level(&self, name: &str) {
        let mut configured = self.configured();
        configured.levels.remove(name);
        self.compile(&mut configured);
    }

    /// Builds the snapshot from stored objects. Missing mandatory objects are substituted.
    fn compile(&self, configured: &mut ConfiguredObjects) {
        if configured.is_held {
            return;
        }
        let mut levels: BTreeMap<&str, &Value> = BTreeMap::new();
        let mandatory_levels = suggested::mandatory_levels();
        for level in &mandatory_levels {
            levels.insert(name_of(level), level);
        }
        levels.extend(configured.levels.iter().map(|(name, it)| (&**name, it)));
        let shares: i64 = levels.values().map(|level| shares(level)).sum();
        let mut compiled = BTreeMap::new();
        let mut kept_levels = BTreeMap::new();
        for (&name, &object) in &levels {
            let level = configured.kept_levels.remove(name).unwrap_or_else(|| {
                Arc::new(Level {
                    name: name.to_owned(),
                    id: self.seats.new_level(),
                    dropped: Mutex::default(),
                })
            });
            let limits = limits(object, self.total, shares);
            self.seats.set(level.id, limits);
            kept_levels.insert(name.to_owned(), Arc::clone(&level));
            compiled.insert(name, (level, limits, uid_of(object)));
        }
        for level in std::mem::replace(&mut configured.kept_levels, kept_levels).values() {
            self.seats.remove(level.id);
        }
        let mandatory_schemas = suggested::mandatory_schemas();
        let mut schemas: BTreeMap<&str, &Value> = BTreeMap::new();
        for schema in &mandatory_schemas {
            schemas.insert(name_of(schema), schema);
        }
        schemas.extend(configured.schemas.iter().map(|(name, it)| (&**name, it)));
        let mut kept_counts = BTreeMap::new();
        let mut all = Vec::new();
        for (&name, &object) in &schemas {
            let schema = Schema::read(name, object);
            // A schema without its level is not used.
            let Some((level, limits, level_uid)) = compiled.get(&*schema.level) else {
                continue;
            };
            let key = (level.name.clone(), name.to_owned());
            let counts = configured.kept_counts.get(&key).map(Arc::clone);
            let counts = counts.unwrap_or_default();
            kept_counts.insert(key, Arc::clone(&counts));
            all.push(Arc::new(Flows {
                schema,
                level: Arc::clone(level),
                schema_uid: uid_of(object),
                level_uid: level_uid.clone(),
                limits: *limits,
                counts,
            }));
        }
        configured.kept_counts = kept_counts;
        all.sort_by(|one, other| one.schema.order().cmp(&other.schema.order()));
        let those = |with: fn(&Schema) -> bool| {
            let some = all.iter().filter(|flows| with(&flows.schema));
            some.map(Arc::clone).collect()
        };
        self.snapshot.store(Arc::new(Snapshot {
            of_resources: those(Schema::has_resource_rules),
            of_paths: those(Schema::has_path_rules),
            fallback: all
                .iter()
                .find(|flows| flows.schema.name == CATCH_ALL)
                .map(Arc::clone),
            all,
        }));
    }

    /// Finds the schema and level of a request.
    pub(crate) fn classify(
        &self,
        user: &UserInfo,
        digest: &RequestDigest<'_>,
    ) -> Option<Classified> {
        let snapshot = self.snapshot.load();
        let candidates = match digest {
            RequestDigest::Resource(_) => &snapshot.of_resources,
            RequestDigest::Path { .. } => &snapshot.of_paths,
        };
        let mut candidates = candidates.iter();
        let found = candidates.find(|flows| flows.schema.matches(user, digest));
        let found = found.or(snapshot.fallback.as_ref());
        found.map(|flows| Classified(Arc::clone(flows)))
    }

    /// Waits for a seat. `None` if no seat is needed.
    pub(crate) async fn enter(
        &self,
        classified: &Classified,
        user: &UserInfo,
        digest: &RequestDigest<'_>,
    ) -> Result<Option<Seat>, Rejected> {
        let flows = &classified.0;
        let Some(limits) = &flows.limits else {
            flows.counts.dispatched.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        let holder = self.hasher.hash_one(&user.username);
        let queue = limits.queues.map(|queues| {
            let flow = match flows.schema.distinguisher {
                Distinguisher::None => "",
                Distinguisher::User => user.username.as_str(),
                Distinguisher::Namespace => digest.namespace(),
            };
            (queues, self.hasher.hash_one((&flows.schema.name, flow)))
        });
        let entry = self.seats.enter(flows.level.id, holder, queue);
        let entered = match entry {
            Entry::Seated(seat) => Ok(seat),
            Entry::Rejected(reason) => Err(reason),
            Entry::Waiting(place) => place.wait(self.max_wait).await.ok_or(RejectReason::TimeOut),
        };
        match entered {
            Ok(seat) => {
                flows.counts.dispatched.fetch_add(1, Ordering::Relaxed);
                Ok(Some(seat))
            }
            Err(reason) => {
                flows.counts.rejected[reason as usize].fetch_add(1, Ordering::Relaxed);
                let mut dropped = flows
                    .level
                    .dropped
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                Err(Rejected {
                    retry_after_seconds: dropped.record(unix_seconds()),
                })
            }
        }
    }

    /// The metrics in the Prometheus text format.
    pub(crate) fn render(&self) -> String {
        let snapshot = self.snapshot.load();
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, lines: &[(String, u64)]| {
            let name = format!("apiserver_flowcontrol_{name}");
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in lines {
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        };
        let of_flows = |flows: &Flows| {
            let (level, schema) = (&flows.level.name, &flows.schema.name);
            format!("flow_schema=\"{schema}\",priority_level=\"{level}\"")
        };
        let dispatched: Vec<_> = snapshot
            .all
            .iter()
            .map(|flows| {
                let count = flows.counts.dispatched.load(Ordering::Relaxed);
                (of_flows(flows), count)
            })
            .collect();
        family(
            "dispatched_requests_total",
            "counter",
            "Requests that were served.",
            &dispatched,
        );
        let mut rejected = Vec::new();
        for flows in &snapshot.all {
            for reason in RejectReason::ALL {
                let count = flows.counts.rejected[reason as usize].load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("{},reason=\"{}\"", of_flows(flows), reason.name());
                    rejected.push((labels, count));
                }
            }
        }
        family(
            "rejected_requests_total",
            "counter",
            "Requests that were rejected.",
            &rejected,
        );
        let mut levels = BTreeMap::new();
        for flows in &snapshot.all {
            levels.insert(flows.level.name.as_str(), (flows.level.id, flows.limits));
        }
        let gauge = |value: fn(Limits, (usize, usize)) -> usize| {
            let of_levels = levels.iter().filter_map(|(name, (id, limits))| {
                let value = value((*limits)?, self.seats.now(*id));
                Some((format!("priority_level=\"{name}\""), value as u64))
            });
            of_levels.collect::<Vec<_>>()
        };
        family(
            "current_executing_seats",
            "gauge",
            "Seats that are taken.",
            &gauge(|_, (executing, _)| executing),
        );
        family(
            "current_inqueue_requests",
            "gauge",
            "Requests that wait in a queue.",
            &gauge(|_, (_, waiting)| waiting),
        );
        family(
            "nominal_limit_seats",
            "gauge",
            "Seats of the level.",
            &gauge(|limits, _| limits.nominal),
        );
        family(
            "lower_limit_seats",
            "gauge",
            "Seats that the level keeps for itself.",
            &gauge(|limits, _| limits.nominal - limits.lendable),
        );
        family(
            "upper_limit_seats",
            "gauge",
            "Seats that the level has with those it may borrow.",
            &gauge(|limits, _| limits.nominal.saturating_add(limits.borrowing)),
        );
        text
    }
}

impl Classified {
    /// Adds the headers with the classification of a request.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(FLOW_SCHEMA_UID, self.0.schema_uid.clone());
        headers.insert(PRIORITY_LEVEL_UID, self.0.level_uid.clone());
    }
}

/// The limits of a level; `None` for an exempt one.
///
/// UPSTREAM: apiserver pkg/util/flowcontrol/apf_controller.go (finishQueueSetReconfigsLocked)
fn limits(level: &Value, total: usize, all_shares: i64) -> Option<Limits> {
    let limited = match level.pointer("/spec/type").and_then(Value::as_str) {
        Some("Exempt") => return None,
        _ => level.pointer("/spec/limited").unwrap_or(&Value::Null),
    };
    let nominal = if total == 0 {
        // The maximum that the counters can represent.
        usize::MAX / 1024
    } else {
        let all_shares = usize::try_from(all_shares).unwrap_or_default().max(1);
        let own = usize::try_from(shares(level)).unwrap_or_default();
        total.saturating_mul(own).div_ceil(all_shares)
    };
    let percent = |member: &str| {
        let percent = limited.get(member).and_then(Value::as_u64)?;
        let seats = (nominal as u128 * u128::from(percent) + 50) / 100;
        Some(usize::try_from(seats).unwrap_or(usize::MAX))
    };
    let queuing = limited.pointer("/limitResponse/queuing");
    let number = |member: &str| {
        let number = queuing.and_then(|queuing| queuing.get(member)?.as_u64());
        number.and_then(|number| usize::try_from(number).ok())
    };
    let is_queued = limited
        .pointer("/limitResponse/type")
        .and_then(Value::as_str)
        == Some("Queue");
    Some(Limits {
        nominal,
        lendable: percent("lendablePercent").unwrap_or(0).min(nominal),
        borrowing: percent("borrowingLimitPercent").unwrap_or(total),
        queues: is_queued.then(|| Queues {
            count: number("queues").unwrap_or(1).max(1),
            hand: number("handSize").unwrap_or(1).max(1),
            length: number("queueLengthLimit").unwrap_or(50),
        }),
    })
}

fn shares(level: &Value) -> i64 {
    let (of, otherwise) = match level.pointer("/spec/type").and_then(Value::as_str) {
        Some("Exempt") => ("/spec/exempt/nominalConcurrencyShares", 0),
        _ => ("/spec/limited/nominalConcurrencyShares", 30),
    };
    let shares = level.pointer(of).and_then(Value::as_i64);
    shares.unwrap_or(otherwise).max(0)
}

fn name_of(object: &Value) -> &str {
    let name = object.pointer("/metadata/name");
    name.and_then(Value::as_str).unwrap_or_default()
}

/// The uid as a header; empty for substituted objects.
fn uid_of(object: &Value) -> HeaderValue {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    uid.and_then(|uid| HeaderValue::from_str(uid).ok())
        .unwrap_or_else(|| HeaderValue::from_static(""))
}

fn unix_seconds() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests;
