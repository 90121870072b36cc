//! Completed indexes of a Job, in the form `1,3-5`.
//!
//! UPSTREAM: kubernetes pkg/controller/job/indexed_job_utils.go

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::object::annotation;

/// The annotation and label with the index of a Pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The maximum number of parsed indexes; Jobs have the same limit.
const INDEXES_MAX: i64 = 100_000;

/// A set of indexes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<i64>);

/// The index of a Pod.
pub(super) fn of(pod: &Value) -> Option<i64> {
    annotation(pod, INDEX)?
        .parse()
        .ok()
        .filter(|index| *index >= 0)
}

impl Indexes {
    pub(super) fn parse(text: &str) -> Self {
        let mut found = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
                found.extend(first.max(0)..=last.min(INDEXES_MAX));
            }
        }
        Self(found)
    }

    pub(super) fn insert(&mut self, index: i64) {
        self.0.insert(index);
    }

    pub(super) fn contains(&self, index: i64) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for index in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => ranges.push((*index, *index)),
            }
        }
        let texts: Vec<String> = ranges
            .iter()
            .map(|(first, last)| match last - first {
                0 => first.to_string(),
                1 => format!("{first},{last}"),
                _ => format!("{first}-{last}"),
            })
            .collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_ranges() {
        let mut indexes = Indexes::parse("1,3-5");
        assert_eq!(indexes.to_string(), "1,3-5");
        indexes.insert(7);
        indexes.insert(8);
        assert_eq!(indexes.to_string(), "1,3-5,7,8");
        indexes.insert(2);
        assert_eq!(indexes.to_string(), "1-5,7,8");
        assert_eq!(indexes.len(), 7);
        assert_eq!(Indexes::parse("").to_string(), "");
    }
}
