//! Tolerations: coverage, and lists without covered tolerations.
//!
//! UPSTREAM: kubernetes pkg/util/tolerations/tolerations.go

use serde_json::Value;

use crate::fields::{at, text};

/// The compared fields of a toleration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Toleration<'v> {
    pub(crate) key: &'v str,
    operator: &'v str,
    value: &'v str,
    effect: &'v str,
    seconds: Option<i64>,
}

impl<'v> Toleration<'v> {
    pub(crate) fn of(value: &'v Value) -> Self {
        Self {
            key: text(value, "key"),
            operator: text(value, "operator"),
            value: text(value, "value"),
            effect: text(value, "effect"),
            seconds: at(value, &["tolerationSeconds"]).and_then(Value::as_i64),
        }
    }

    /// Returns true if it tolerates every taint that the other one does.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let every_key = self.key.is_empty() && self.operator == "Exists";
        if self.key != other.key && !every_key {
            return false;
        }
        if self.effect != other.effect && !self.effect.is_empty() {
            return false;
        }
        if self.effect == "NoExecute"
            && let Some(seconds) = self.seconds
            && other.seconds.is_none_or(|other| other > seconds)
        {
            return false;
        }
        match self.operator {
            "Equal" | "" => other.operator == "Equal" && other.value == self.value,
            "Exists" => true,
            _ => false,
        }
    }
}

/// Both lists without covered tolerations. Of equal ones the first is kept.
pub(crate) fn merge(all: Vec<Value>) -> Vec<Value> {
    let mut kept = vec![false; all.len()];
    for (at, one) in all.iter().enumerate() {
        let one = Toleration::of(one);
        let mut before = all.iter().zip(&kept).take(at).filter(|(_, kept)| **kept);
        let mut after = all.iter().skip(at + 1).map(Toleration::of);
        let is_covered = before.any(|(other, _)| Toleration::of(other).covers(&one))
            || after.any(|other| other != one && other.covers(&one));
        if let Some(kept) = kept.get_mut(at) {
            *kept = !is_covered;
        }
    }
    let pairs = all.into_iter().zip(kept);
    pairs
        .filter_map(|(one, kept)| kept.then_some(one))
        .collect()
}
