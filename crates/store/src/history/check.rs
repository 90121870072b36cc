//! Checks a history against the order of its revisions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::{Before, Call, Change, History, Operation, OperationResult, Seen, Time, Watched};
use crate::{Entry, ReadAt, Revision};

/// A violation of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A key has two values at one revision.
    Contradiction(Arc<str>, Revision),
    /// Two acknowledged writes have the same revision.
    SharedRevision(Revision),
    /// There is no write of this value.
    Unexplained(Arc<str>, Revision),
    /// A write was applied to an unexpected state.
    Precondition(Arc<str>, Revision),
    /// A write is ordered before something that was observed before its invocation, or was itself observed
    /// before it.
    Reordered(Arc<str>, Revision),
    /// A state differs from the writes up to it.
    WrongState(Arc<str>, Revision),
    /// A read returned an older state than an earlier one, or another one than requested.
    StaleRead(String, Revision),
    /// A write was rejected without a reason.
    WrongRefusal(Arc<str>),
    /// A watch returned events out of order, or from before its start revision.
    Unordered(String, Revision),
    /// A watch returned an event twice.
    Repeated(String, Revision),
    /// A watch missed an event.
    Gap(String, Revision),
    /// A watch returned an event that an earlier bookmark covers, or its bookmarks go backwards.
    WrongBookmark(String, Revision),
    /// A watch returned an event with a wrong previous state.
    WrongPrevious(String, Revision),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction(key, at) => write!(f, "`{key}` has two values at revision {at}"),
            Self::SharedRevision(at) => write!(f, "two writes have revision {at}"),
            Self::Unexplained(key, at) => {
                write!(f, "nobody wrote what `{key}` is at revision {at}")
            }
            Self::Precondition(key, at) => {
                write!(
                    f,
                    "the write of `{key}` at revision {at} expected another state"
                )
            }
            Self::Reordered(key, at) => {
                write!(
                    f,
                    "the write of `{key}` at revision {at} is ordered too early"
                )
            }
            Self::WrongState(key, at) => {
                write!(
                    f,
                    "the state at revision {at} does not show `{key}` as it was written"
                )
            }
            Self::StaleRead(what, at) => write!(f, "a read of `{what}` shows revision {at}"),
            Self::WrongRefusal(key) => write!(f, "a write of `{key}` was refused without reason"),
            Self::Unordered(prefix, at) => {
                write!(
                    f,
                    "the watch of `{prefix}` returned revision {at} out of order"
                )
            }
            Self::Repeated(prefix, at) => {
                write!(f, "the watch of `{prefix}` returned revision {at} twice")
            }
            Self::Gap(prefix, at) => {
                write!(f, "the watch of `{prefix}` did not return revision {at}")
            }
            Self::WrongBookmark(prefix, at) => {
                write!(
                    f,
                    "the watch of `{prefix}` has a wrong bookmark at revision {at}"
                )
            }
            Self::WrongPrevious(prefix, at) => write!(
                f,
                "the watch of `{prefix}` returned revision {at} with a wrong previous state"
            ),
        }
    }
}

/// The violations of a history.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut checker = Checker {
        history,
        facts: BTreeMap::new(),
        keys: BTreeMap::new(),
        horizon: horizon(history),
        found: Vec::new(),
    };
    checker.collect();
    checker.explain();
    for operation in &history.operations {
        checker.operation(operation);
    }
    for watch in &history.watches {
        checker.watch(watch);
    }
    checker.found
}

/// An observed value of a key.
#[derive(Debug)]
struct Fact {
    value: Option<Bytes>,
    /// The time of the first observation.
    seen: Time,
    /// The index of its acknowledged write.
    write: Option<usize>,
}

/// A value in the sequence of a key's changes.
#[derive(Debug)]
struct Version {
    revision: Revision,
    value: Option<Bytes>,
    /// The creation revision, if known.
    created: Option<Revision>,
    /// The entry may have been deleted without an observation.
    may_vanish: bool,
}

struct Checker<'h> {
    history: &'h History,
    facts: BTreeMap<(Arc<str>, Revision), Fact>,
    keys: BTreeMap<Arc<str>, Vec<Version>>,
    /// The greatest revision observed up to a time.
    horizon: Vec<(Time, Revision)>,
    found: Vec<Violation>,
}

/// The greatest revisions observed, by time.
fn horizon(history: &History) -> Vec<(Time, Revision)> {
    let mut seen = Vec::new();
    for operation in &history.operations {
        let revision = match &operation.answer {
            OperationResult::Written(revision)
            | OperationResult::Found(_, revision)
            | OperationResult::Listed(_, revision, _) => *revision,
            OperationResult::Conflict(entry) => entry.revision,
            OperationResult::NotFound | OperationResult::Rejected | OperationResult::Unknown => {
                continue;
            }
        };
        seen.push((operation.returned, revision));
    }
    for (time, item) in history.watches.iter().flat_map(|watch| &watch.seen) {
        let revision = match item {
            Seen::Event(change) => change.revision,
            Seen::Bookmark(revision) => *revision,
        };
        seen.push((*time, revision));
    }
    seen.sort_unstable();
    let mut greatest = Revision::START;
    for (_, revision) in &mut seen {
        greatest = greatest.max(*revision);
        *revision = greatest;
    }
    seen
}

impl Checker<'_> {
    /// The greatest revision observed before a time.
    fn seen_before(&self, time: Time) -> Revision {
        let later = self.horizon.partition_point(|(seen, _)| *seen < time);
        let last = later.checked_sub(1).and_then(|last| self.horizon.get(last));
        last.map_or(Revision::START, |(_, revision)| *revision)
    }

    /// Collects all observed values.
    fn collect(&mut self) {
        let mut by_revision = BTreeMap::new();
        for (index, operation) in self.history.operations.iter().enumerate() {
            let (time, answer) = (operation.returned, &operation.answer);
            match (answer, &operation.call) {
                (OperationResult::Written(revision), call) => {
                    let (key, value) = match call {
                        Call::Create { key, value, .. } => (key, Some(value)),
                        // A no-op.
                        Call::Update { expected, .. } if expected == revision => continue,
                        Call::Update { key, value, .. } => (key, Some(value)),
                        Call::Delete { key, .. } => (key, None),
                        Call::Get { .. } | Call::List { .. } => continue,
                    };
                    if by_revision.insert(*revision, index).is_some() {
                        self.found.push(Violation::SharedRevision(*revision));
                    }
                    self.fact(key, *revision, value.cloned(), time, Some(index));
                }
                (OperationResult::Conflict(entry) | OperationResult::Found(Some(entry), _), _) => {
                    self.entry(entry, time);
                }
                (OperationResult::Listed(entries, ..), _) => {
                    for entry in entries {
                        self.entry(entry, time);
                    }
                }
                _ => {}
            }
        }
        for (time, item) in self.history.watches.iter().flat_map(|watch| &watch.seen) {
            if let Seen::Event(change) = item {
                self.fact(
                    &change.key,
                    change.revision,
                    change.value.clone(),
                    *time,
                    None,
                );
            }
        }
    }

    fn entry(&mut self, entry: &Entry, time: Time) {
        let value = Some(entry.value.clone());
        self.fact(&entry.key, entry.revision, value, time, None);
    }

    fn fact(
        &mut self,
        key: &Arc<str>,
        revision: Revision,
        value: Option<Bytes>,
        seen: Time,
        write: Option<usize>,
    ) {
        let at = (Arc::clone(key), revision);
        let fact = self.facts.entry(at).or_insert_with(|| Fact {
            value: value.clone(),
            seen,
            write,
        });
        if fact.value != value {
            let violation = Violation::Contradiction(Arc::clone(key), revision);
            self.found.push(violation);
        }
        fact.seen = fact.seen.min(seen);
        fact.write = fact.write.or(write);
    }

    /// Finds the write of each value, and checks its precondition.
    fn explain(&mut self) {
        let mut unknown: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in &self.history.operations {
            let key = match &operation.call {
                Call::Create { key, .. } | Call::Update { key, .. } | Call::Delete { key, .. } => {
                    key
                }
                Call::Get { .. } | Call::List { .. } => continue,
            };
            if operation.answer == OperationResult::Unknown {
                unknown.entry(key).or_default().push(operation);
            }
        }
        let facts = std::mem::take(&mut self.facts);
        for ((key, revision), fact) in &facts {
            let versions = self.keys.get(key).map_or(&[][..], Vec::as_slice);
            let last = versions.last();
            let live = last.filter(|version| version.value.is_some());
            let vanishes = live.is_some_and(|version| version.may_vanish);
            let fits = |call: &Call| match call {
                Call::Create { value, .. } => {
                    Some(value) == fact.value.as_ref() && (live.is_none() || vanishes)
                }
                Call::Update {
                    expected, value, ..
                } => {
                    Some(value) == fact.value.as_ref()
                        && live.is_some_and(|live| live.revision == *expected)
                }
                Call::Delete { expected, .. } => {
                    fact.value.is_none() && live.is_some_and(|live| live.revision == *expected)
                }
                Call::Get { .. } | Call::List { .. } => false,
            };
            let acknowledged = fact
                .write
                .and_then(|index| self.history.operations.get(index));
            let write = match acknowledged {
                Some(operation) => Some(operation),
                None => {
                    let maybe = unknown.get_mut(&**key);
                    maybe.and_then(|maybe| {
                        let index = maybe.iter().position(|operation| {
                            fits(&operation.call) && operation.invoked < fact.seen
                        })?;
                        Some(maybe.swap_remove(index))
                    })
                }
            };
            let is_expiry = fact.value.is_none() && vanishes;
            let mut violation = None;
            match write {
                Some(operation) => {
                    if !fits(&operation.call) {
                        violation = Some(Violation::Precondition(Arc::clone(key), *revision));
                    } else if fact.seen < operation.invoked
                        || fact.write.is_some() && *revision <= self.seen_before(operation.invoked)
                    {
                        violation = Some(Violation::Reordered(Arc::clone(key), *revision));
                    }
                }
                None if is_expiry || self.history.has_other_writers => {}
                None => violation = Some(Violation::Unexplained(Arc::clone(key), *revision)),
            }
            let created = match write.map(|operation| &operation.call) {
                Some(Call::Create { .. }) => Some(*revision),
                Some(Call::Update { .. }) => live.and_then(|live| live.created),
                _ => None,
            };
            let expires = match write.map(|operation| &operation.call) {
                Some(Call::Create { expires, .. }) => *expires,
                Some(Call::Update { .. }) => live.is_some_and(|live| live.may_vanish),
                _ => self.history.has_other_writers,
            };
            let is_deleted_by_unknown = unknown.get(&**key).is_some_and(|operations| {
                operations.iter().any(|operation| {
                    matches!(&operation.call, Call::Delete { expected, .. } if expected == revision)
                })
            });
            let version = Version {
                revision: *revision,
                value: fact.value.clone(),
                created,
                may_vanish: expires || is_deleted_by_unknown,
            };
            self.found.extend(violation);
            self.keys.entry(Arc::clone(key)).or_default().push(version);
        }
        self.facts = facts;
    }

    /// The version of a key at a revision.
    fn version(&self, key: &str, at: Revision) -> Option<&Version> {
        let versions = self.keys.get(key)?;
        let later = versions.partition_point(|version| version.revision <= at);
        versions.get(later.checked_sub(1)?)
    }

    /// The entry of a key at a revision.
    fn live(&self, key: &str, at: Revision) -> Option<&Version> {
        self.version(key, at)
            .filter(|version| version.value.is_some())
    }

    /// Returns true if this entry of a key is possible in a state.
    fn shows(&self, key: &str, at: Revision, entry: Option<&Entry>) -> bool {
        match (self.live(key, at), entry) {
            (None, None) => true,
            (Some(version), None) => version.may_vanish,
            (None, Some(_)) => false,
            (Some(version), Some(entry)) => {
                version.revision == entry.revision
                    && version.value.as_ref() == Some(&entry.value)
                    // Clients of a server do not know its creation revision.
                    && (entry.created == Revision::START
                        || version.created.is_none_or(|created| created == entry.created))
            }
        }
    }

    fn operation(&mut self, operation: &Operation) {
        let before = self.seen_before(operation.invoked);
        let is_stale = |at: ReadAt, shown: Revision| match at {
            ReadAt::Latest => shown < before,
            ReadAt::NotOlderThan(wanted) => shown < wanted,
            ReadAt::Exact(wanted) => shown != wanted,
        };
        match (&operation.call, &operation.answer) {
            (Call::Get { key, at }, OperationResult::Found(entry, shown)) => {
                if is_stale(*at, *shown) {
                    self.found
                        .push(Violation::StaleRead(key.to_string(), *shown));
                } else if !self.shows(key, *shown, entry.as_ref()) {
                    self.found
                        .push(Violation::WrongState(Arc::clone(key), *shown));
                }
            }
            (
                Call::List {
                    prefix,
                    at,
                    after,
                    limit,
                },
                OperationResult::Listed(entries, shown, remaining),
            ) => {
                if is_stale(*at, *shown) {
                    self.found
                        .push(Violation::StaleRead(prefix.clone(), *shown));
                }
                self.page(
                    (prefix, after.as_deref(), *limit),
                    entries,
                    *shown,
                    *remaining,
                );
            }
            // A no-op update is a read.
            (
                Call::Update {
                    key,
                    expected,
                    value,
                },
                OperationResult::Written(revision),
            ) if expected == revision => {
                let version = self.version(key, before.max(*expected));
                let is_so = version.is_some_and(|version| {
                    version.revision == *expected && version.value.as_ref() == Some(value)
                });
                if !is_so {
                    self.found
                        .push(Violation::WrongState(Arc::clone(key), *expected));
                }
            }
            (call, OperationResult::Conflict(entry)) => {
                let (key, is_wrong) = match call {
                    Call::Create { key, .. } => (key, false),
                    Call::Update { key, expected, .. } | Call::Delete { key, expected } => {
                        (key, entry.revision == *expected)
                    }
                    Call::Get { .. } | Call::List { .. } => return,
                };
                let newest = self.version(key, before);
                if is_wrong || newest.is_some_and(|newest| newest.revision > entry.revision) {
                    self.found.push(Violation::WrongRefusal(Arc::clone(key)));
                }
            }
            (Call::Update { key, .. } | Call::Delete { key, .. }, OperationResult::NotFound) => {
                let later = self.keys.get(key).into_iter().flatten();
                let mut later = later.filter(|version| version.revision > before);
                let may_be_gone = self.shows(key, before, None)
                    || later.any(|version| version.value.is_none() || version.may_vanish);
                if !may_be_gone {
                    self.found.push(Violation::WrongRefusal(Arc::clone(key)));
                }
            }
            _ => {}
        }
    }

    /// Checks a page of a list against its state.
    fn page(
        &mut self,
        (prefix, after, limit): (&str, Option<&str>, Option<usize>),
        entries: &[Arc<Entry>],
        shown: Revision,
        remaining: usize,
    ) {
        let mut listed = BTreeMap::new();
        let mut last: Option<&str> = None;
        for entry in entries {
            let in_order = last.is_none_or(|last| last < &*entry.key)
                && after.is_none_or(|after| after < &*entry.key);
            if !in_order || !entry.key.starts_with(prefix) {
                let key = Arc::clone(&entry.key);
                self.found.push(Violation::WrongState(key, shown));
            }
            last = Some(&entry.key);
            listed.insert(&*entry.key, &**entry);
        }
        if limit.is_some_and(|limit| entries.len() > limit) {
            self.found.push(Violation::WrongState(prefix.into(), shown));
        }
        // A full page ends at its last key.
        let end = if remaining > 0 { last } else { None };
        let mut wrong = Vec::new();
        let mut missing = 0;
        let start: Bound<Arc<str>> = match after {
            Some(after) if after >= prefix => Bound::Excluded(after.into()),
            _ => Bound::Included(prefix.into()),
        };
        for key in self
            .keys
            .range((start, Bound::Unbounded))
            .map(|(key, _)| key)
        {
            if !key.starts_with(prefix) {
                break;
            }
            let is_within = end.is_none_or(|end| &**key <= end) && limit != Some(0);
            if is_within {
                if !self.shows(key, shown, listed.get(&**key).copied()) {
                    wrong.push(Violation::WrongState(Arc::clone(key), shown));
                }
            } else if self.live(key, shown).is_some_and(|live| !live.may_vanish) {
                missing += 1;
            }
        }
        if missing > remaining {
            wrong.push(Violation::WrongState(prefix.into(), shown));
        }
        self.found.extend(wrong);
    }

    fn watch(&mut self, watch: &Watched) {
        let prefix = || watch.prefix.clone();
        let mut wrong = Vec::new();
        let mut returned = BTreeSet::new();
        let mut bookmark = watch.after;
        let mut last = watch.after;
        for (_, item) in &watch.seen {
            let change = match item {
                Seen::Event(change) => change,
                Seen::Bookmark(revision) => {
                    if *revision < bookmark || *revision < last {
                        wrong.push(Violation::WrongBookmark(prefix(), *revision));
                    }
                    bookmark = bookmark.max(*revision);
                    continue;
                }
            };
            let revision = change.revision;
            if !returned.insert((revision, Arc::clone(&change.key))) {
                wrong.push(Violation::Repeated(prefix(), revision));
                continue;
            }
            if revision < last || revision <= watch.after {
                wrong.push(Violation::Unordered(prefix(), revision));
            } else if revision <= bookmark {
                wrong.push(Violation::WrongBookmark(prefix(), revision));
            }
            if !self.follows(change) {
                wrong.push(Violation::WrongPrevious(prefix(), revision));
            }
            last = last.max(revision);
        }
        if !watch.is_filtered {
            let end = Revision(last.0.saturating_sub(1)).max(bookmark);
            for (key, revision) in self.facts.keys() {
                let is_due =
                    key.starts_with(&watch.prefix) && *revision > watch.after && *revision <= end;
                if is_due && !returned.contains(&(*revision, Arc::clone(key))) {
                    wrong.push(Violation::Gap(prefix(), *revision));
                }
            }
        }
        self.found.extend(wrong);
    }

    /// Returns true if the previous state of a change is correct.
    fn follows(&self, change: &Change) -> bool {
        let before = Revision(change.revision.0.saturating_sub(1));
        match (self.live(&change.key, before), &change.before) {
            (_, Before::Unknown) | (None, Before::Nothing) => true,
            (Some(version), Before::Nothing) => version.may_vanish && change.value.is_some(),
            // Its write was not observed, and is older than the history.
            (None, Before::Entry(revision, _)) => {
                self.history.has_other_writers && *revision < change.revision
            }
            (Some(version), Before::Entry(revision, value)) => {
                version.revision == *revision && version.value.as_ref() == Some(value)
            }
        }
    }
}
