//! One of several servers runs the controllers: the one that holds a Lease.
//!
//! The holder renews the Lease. Others take it over when it has not changed for its duration, measured by their own
//! monotonic clocks; timestamps in the Lease are ignored. A holder that cannot renew it stops before that.
//!
//! UPSTREAM: client-go tools/leaderelection/leaderelection.go

use std::time::Duration;

use lockgate_store::Revision;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::own_object::OwnObject;
use crate::error::Outcome;
use crate::metadata;
use crate::write::Writer;

const NAMESPACE: &str = "kube-system";
/// The Lease of the controllers, distinct from kube-controller-manager's, which may run too.
pub(super) const NAME: &str = "lockgate-controller-manager";

/// The timing of an election.
///
/// UPSTREAM: component-base config/v1alpha1/defaults.go (RecommendedDefaultLeaderElectionConfiguration)
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Others take over after this time without a change.
    pub(super) lease: Duration,
    /// The holder stops after this time without a renewal.
    pub(super) renew: Duration,
    /// The interval of attempts.
    pub(super) retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A participant in the leader election.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    times: Times,
    /// The last change of the Lease, and when it was observed.
    observed: Option<(Revision, Instant)>,
}

impl Candidate {
    pub(super) fn new(identity: &str, times: Times) -> Self {
        Self {
            identity: identity.to_owned(),
            times,
            observed: None,
        }
    }

    /// Participates in the leader election until the server stops. `leads` is true while this server holds the Lease.
    pub(super) async fn run(mut self, writer: Writer, leads: watch::Sender<bool>) {
        let mut renewed = Instant::now();
        loop {
            let began = Instant::now();
            let attempt = tokio::time::timeout(self.times.renew, self.attempt(&writer));
            match attempt.await {
                Ok(Ok(true)) => {
                    // Others measure from when they observe it, which is later.
                    renewed = began;
                    set(&leads, true);
                }
                Ok(Ok(false)) => set(&leads, false),
                Ok(Err(failure)) => {
                    tracing::warn!(error = failure.0.message, "controller lease not renewed");
                }
                Err(_) => tracing::warn!("controller lease renewal timed out"),
            }
            let due = renewed + self.times.renew;
            if *leads.borrow() && Instant::now() + self.times.retry >= due {
                // Before the next attempt completes, another server may lead.
                tokio::time::sleep_until(due).await;
                set(&leads, false);
                continue;
            }
            tokio::time::sleep(self.times.retry).await;
        }
    }

    /// Acquires or renews the Lease. Returns true if this server holds it.
    async fn attempt(&mut self, writer: &Writer) -> Outcome<bool> {
        let lease = place(writer)?;
        let found = lease.read().await?;
        match (self.decide(found.as_ref(), Instant::now()), found) {
            (None, _) => Ok(false),
            (Some(object), None) => lease.create(object).await,
            (Some(object), Some((_, revision))) => lease.replace(&object, revision).await,
        }
    }

    /// The Lease to write, if this server may.
    fn decide(&mut self, found: Option<&(Value, Revision)>, now: Instant) -> Option<Value> {
        let Some((object, revision)) = found else {
            return Some(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": NAME, "namespace": NAMESPACE},
                "spec": self.spec(0),
            }));
        };
        if self.observed.is_none_or(|(seen, _)| seen != *revision) {
            self.observed = Some((*revision, now));
        }
        let since = self.observed.map_or(now, |(_, since)| since);
        let mut object = object.clone();
        let spec = &object["spec"];
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        if holder == self.identity {
            object["spec"]["renewTime"] = metadata::now_to_microsecond().into();
            return Some(object);
        }
        let seconds = spec["leaseDurationSeconds"].as_u64().unwrap_or_default();
        if !holder.is_empty() && now < since + Duration::from_secs(seconds) {
            return None;
        }
        tracing::info!(
            identity = self.identity,
            holder,
            "became leader, starting controllers"
        );
        let transitions = spec["leaseTransitions"].as_i64().unwrap_or_default();
        object["spec"] = self.spec(transitions.saturating_add(1));
        Some(object)
    }

    fn spec(&self, transitions: i64) -> Value {
        let now = metadata::now_to_microsecond();
        json!({
            "holderIdentity": self.identity, "leaseDurationSeconds": self.times.lease.as_secs(),
            "acquireTime": now, "renewTime": now, "leaseTransitions": transitions,
        })
    }
}

/// Releases the Lease, if this identity holds it.
pub(super) async fn release(writer: &Writer, identity: &str) -> Outcome<()> {
    let lease = place(writer)?;
    let Some((mut object, revision)) = lease.read().await? else {
        return Ok(());
    };
    if object["spec"]["holderIdentity"] != identity {
        return Ok(());
    }
    let now = metadata::now_to_microsecond();
    let transitions = object["spec"]["leaseTransitions"].take();
    object["spec"] = json!({
        "holderIdentity": "", "leaseDurationSeconds": 1,
        "acquireTime": now, "renewTime": now, "leaseTransitions": transitions,
    });
    lease.replace(&object, revision).await.map(|_| ())
}

fn place(writer: &Writer) -> Outcome<OwnObject<'_>> {
    OwnObject::new(writer, ("coordination.k8s.io", "leases"), NAMESPACE, NAME)
}

fn set(leads: &watch::Sender<bool>, now: bool) {
    leads.send_if_modified(|leads| std::mem::replace(leads, now) != now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, renewed: &str) -> Value {
        json!({"metadata": {"name": NAME}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 4,
            "acquireTime": renewed, "renewTime": renewed,
        }})
    }

    fn holder(object: &Value) -> (&str, i64) {
        let spec = &object["spec"];
        let transitions = spec["leaseTransitions"].as_i64().unwrap();
        (spec["holderIdentity"].as_str().unwrap(), transitions)
    }

    #[test]
    fn takes_a_lease_that_nobody_has_and_renews_its_own() {
        let mut candidate = Candidate::new("me", Times::default());
        let now = Instant::now();
        let made = candidate.decide(None, now).unwrap();
        assert_eq!(holder(&made), ("me", 0));
        assert_eq!(made["spec"]["leaseDurationSeconds"], 15);
        // A released Lease.
        let released = (lease("", "2026-01-01T00:00:00.000000Z"), Revision(7));
        let taken = candidate.decide(Some(&released), now).unwrap();
        assert_eq!(holder(&taken), ("me", 5));
        let own = (lease("me", "2026-01-01T00:00:00.000000Z"), Revision(8));
        let renewed = candidate.decide(Some(&own), now).unwrap();
        assert_eq!(holder(&renewed), ("me", 4));
        assert_eq!(
            renewed["spec"]["acquireTime"],
            "2026-01-01T00:00:00.000000Z"
        );
        assert_ne!(renewed["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
    }

    /// Independent of the other server's clock and of clock jumps: only the time without an observed change counts.
    #[test]
    fn takes_over_after_the_time_without_a_change_and_not_before() {
        for renewed in [
            "1970-01-01T00:00:00.000000Z",
            "2999-01-01T00:00:00.000000Z",
            "never",
        ] {
            let mut candidate = Candidate::new("me", Times::default());
            let start = Instant::now();
            let after = |seconds| start + Duration::from_secs(seconds);
            let mut others = (lease("other", renewed), Revision(7));
            for (seconds, revision) in [(0, 7), (14, 7), (14, 8), (28, 8)] {
                others.1 = Revision(revision);
                let decided = candidate.decide(Some(&others), after(seconds));
                assert_eq!(decided, None, "{renewed}: after {seconds} s");
            }
            let taken = candidate.decide(Some(&others), after(29)).unwrap();
            assert_eq!(holder(&taken), ("me", 5));
        }
    }
}
