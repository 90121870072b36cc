//! Replica counts of ReplicaSets during a rollout, and when a Deployment is scaled during one.
//!
//! UPSTREAM: kubernetes pkg/controller/deployment/rolling.go, sync.go (scale), util/deployment_util.go

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::Value;

use super::{DESIRED, MAX, Rollout, replicas};
use crate::object::{Object, annotation, count, scaled, text};

/// The limits of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) replicas: i64,
    pub(super) max_surge: i64,
    pub(super) max_unavailable: i64,
    rolls: bool,
}

impl Sizes {
    pub(super) fn of(deployment: &Value) -> Self {
        let wanted = count(deployment, "/spec/replicas");
        let rolls = text(deployment, "/spec/strategy/type") != "Recreate";
        let bound = |member: &str, rounds_up| {
            let value = deployment.pointer(&format!("/spec/strategy/rollingUpdate/{member}"));
            scaled(value, wanted, rounds_up).unwrap_or_default()
        };
        let (mut surge, mut unavailable) = (0, 0);
        if rolls {
            surge = bound("maxSurge", true);
            unavailable = bound("maxUnavailable", false);
            // A rollout with both zero could not progress.
            if surge == 0 && unavailable == 0 {
                unavailable = 1;
            }
        }
        Self {
            replicas: wanted,
            max_surge: surge,
            max_unavailable: unavailable.min(wanted),
            rolls,
        }
    }

    /// The replicas of the new ReplicaSet, from its current replicas and the total of all ReplicaSets.
    pub(super) fn of_new(self, total: i64, now: i64) -> i64 {
        if !self.rolls || now >= self.replicas {
            return self.replicas;
        }
        let room = self.replicas + self.max_surge - total;
        now + room.clamp(0, self.replicas - now)
    }

    /// The new replicas of old ReplicaSets to scale down: unavailable Pods first.
    pub(super) fn of_old(self, old: &[Arc<Object>], new: &Object) -> Vec<(Arc<Object>, i64)> {
        let available = |set: &Value| count(set, "/status/availableReplicas");
        let total: i64 = old.iter().map(|set| replicas(set)).sum::<i64>() + replicas(new);
        let min_available = self.replicas - self.max_unavailable;
        let new_unavailable = replicas(new) - available(new);
        let mut room = total - min_available - new_unavailable;
        if room <= 0 {
            return Vec::new();
        }
        let mut sizes: Vec<_> = old
            .iter()
            .map(|set| (Arc::clone(set), replicas(set)))
            .collect();
        sizes.sort_by_key(|(set, _)| set.created);
        for (set, size) in &mut sizes {
            let unhealthy = (*size - available(set)).clamp(0, room.max(0));
            *size -= unhealthy;
            room -= unhealthy;
        }
        let all_available: i64 = old.iter().map(|set| available(set)).sum::<i64>() + available(new);
        let mut room = all_available - min_available;
        for (_, size) in &mut sizes {
            let less = (*size).min(room.max(0));
            *size -= less;
            room -= less;
        }
        sizes
    }

    /// The replicas after the Deployment was scaled: active ReplicaSets keep their proportions.
    pub(super) fn proportional(self, rollout: &Rollout<'_>) -> Vec<(Arc<Object>, i64, bool)> {
        let mut active: Vec<_> = rollout
            .all()
            .filter(|set| replicas(set) > 0)
            .cloned()
            .collect();
        let latest = || {
            let newest = rollout.old.iter().max_by_key(|set| set.created);
            rollout.new.as_ref().or(newest)
        };
        let only = match &active[..] {
            [] => latest().cloned(),
            [only] => Some(Arc::clone(only)),
            _ => None,
        };
        if let Some(only) = only {
            // Updates its annotations too; otherwise it would always seem to need scaling.
            return vec![(only, self.replicas, true)];
        }
        if let Some(new) = &rollout.new
            && self.is_saturated(new)
        {
            let old = active.into_iter().filter(|set| set.uid() != new.uid());
            return old.map(|set| (set, 0, true)).collect();
        }
        if !self.rolls {
            return Vec::new();
        }
        let total: i64 = active.iter().map(|set| replicas(set)).sum();
        let allowed = match self.replicas {
            0 => 0,
            wanted => wanted + self.max_surge,
        };
        let to_add = allowed - total;
        if to_add > 0 {
            active.sort_by_key(|set| (Reverse(replicas(set)), Reverse(set.created)));
        } else {
            active.sort_by_key(|set| (Reverse(replicas(set)), set.created));
        }
        let mut added = 0;
        let mut sizes = Vec::new();
        for set in active {
            let more = self.proportion(&set, rollout, to_add, added);
            added += more;
            let size = replicas(&set) + more;
            sizes.push((set, size, true));
        }
        if let Some((_, size, _)) = sizes.first_mut() {
            *size = (*size + to_add - added).max(0);
        }
        sizes
    }

    fn is_saturated(self, set: &Value) -> bool {
        let desired = annotation(set, DESIRED).and_then(|text| text.parse().ok());
        replicas(set) == self.replicas
            && desired == Some(self.replicas)
            && count(set, "/status/availableReplicas") == self.replicas
    }

    fn proportion(self, set: &Value, rollout: &Rollout<'_>, to_add: i64, added: i64) -> i64 {
        if to_add == 0 || to_add == added {
            return 0;
        }
        let fraction = self.fraction(set, rollout);
        let allowed = to_add - added;
        if to_add > 0 {
            fraction.min(allowed)
        } else {
            fraction.max(allowed)
        }
    }

    fn fraction(self, set: &Value, rollout: &Rollout<'_>) -> i64 {
        let size = replicas(set);
        if self.replicas == 0 {
            return -size;
        }
        let before = annotation(set, MAX).and_then(|text| text.parse::<i64>().ok());
        let before = before.filter(|before| *before != 0);
        let before = before.unwrap_or_else(|| count(rollout.deployment, "/status/replicas"));
        if before <= 0 {
            return 0;
        }
        let after = size.saturating_mul(self.replicas + self.max_surge);
        // Rounds half up; both are positive.
        (after * 2 + before) / (before * 2) - size
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Kind;

    fn sizes(replicas: i64, surge: &str, unavailable: &str) -> Sizes {
        Sizes::of(&json!({"spec": {"replicas": replicas, "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}}))
    }

    fn set(name: &str, created: u64, replicas: i64, available: i64) -> Arc<Object> {
        Arc::new(Object {
            kind: Kind::ReplicaSet,
            key: name.into(),
            created,
            value: json!({
                "metadata": {"name": name},
                "spec": {"replicas": replicas},
                "status": {"availableReplicas": available},
            }),
        })
    }

    #[test]
    fn surge_rounds_up_and_unavailability_down() {
        let found = sizes(3, "25%", "25%");
        assert_eq!((found.max_surge, found.max_unavailable), (1, 0));
        let found = sizes(3, "0%", "0%");
        assert_eq!((found.max_surge, found.max_unavailable), (0, 1));
        let found = Sizes::of(&json!({"spec": {"replicas": 3, "strategy": {"type": "Recreate"}}}));
        assert_eq!((found.max_surge, found.max_unavailable), (0, 0));
    }

    #[test]
    fn the_new_set_grows_within_the_surge() {
        let found = sizes(4, "25%", "25%");
        assert_eq!(found.of_new(4, 0), 1);
        assert_eq!(found.of_new(5, 1), 1);
        assert_eq!(found.of_new(3, 1), 3);
        assert_eq!(found.of_new(0, 0), 4);
        assert_eq!(found.of_new(9, 9), 4);
    }

    #[test]
    fn old_sets_shrink_as_new_pods_become_available() {
        let bounds = sizes(4, "25%", "25%");
        let shrunk = |old: &[Arc<Object>], new: &Arc<Object>| {
            let sizes = bounds.of_old(old, new).into_iter();
            sizes.map(|(_, size)| size).collect::<Vec<_>>()
        };
        let old = [set("old", 1, 4, 4)];
        assert_eq!(shrunk(&old, &set("new", 2, 1, 0)), [3]);
        assert_eq!(shrunk(&[set("old", 1, 3, 3)], &set("new", 2, 2, 0)), [0; 0]);
        assert_eq!(shrunk(&[set("old", 1, 3, 3)], &set("new", 2, 2, 2)), [1]);
        // Unavailable Pods are removed first.
        let broken = [set("older", 1, 2, 2), set("broken", 2, 2, 0)];
        assert_eq!(shrunk(&broken, &set("new", 3, 1, 1)), [2, 0]);
    }
}
