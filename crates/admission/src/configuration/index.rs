//! Finds the webhooks that may match, so that the others cost nothing.
//!
//! A webhook is indexed under every operation, group and resource in its rules. A request looks up its own resource and
//! the equivalent ones and gets all webhooks that may match, in calling order, with some false positives. Webhooks that
//! the index omits would be skipped without effect: none of their rules match.

use std::collections::HashMap;

use lockgate_api::admission::GroupVersionResource;

use super::rule::{Names, Rule};
use crate::host::Equivalent;
use crate::request::Operation;

/// Positions of webhooks, ascending.
type Positions = Vec<u32>;

/// The index of webhooks by operation, group and resource.
#[derive(Debug, Default)]
pub(crate) struct Index([Level; 4]);

/// The webhooks of one operation. The key `None` means `*`.
#[derive(Debug, Default)]
struct Level {
    any_group: Resources,
    groups: HashMap<Box<str>, Resources>,
}

#[derive(Debug, Default)]
struct Resources {
    any: Positions,
    named: HashMap<Box<str>, Positions>,
}

/// The webhooks that may match a request: positions in the list of webhooks, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates(Vec<u32>);

impl Candidates {
    /// The positions of all webhooks.
    #[must_use]
    pub fn all(count: usize) -> Self {
        Self((0..u32::try_from(count).unwrap_or(u32::MAX)).collect())
    }

    /// The positions below `end`.
    pub(crate) fn below(mut self, end: usize) -> Self {
        self.0.retain(|position| (*position as usize) < end);
        self
    }

    /// The positions.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|position| *position as usize)
    }

    /// The number of webhooks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Index {
    /// Builds the index of webhooks or policies from their rules.
    pub(super) fn new<'r>(all: impl IntoIterator<Item = &'r [Rule]>) -> Self {
        let mut index = Self::default();
        for (position, rules) in (0_u32..).zip(all) {
            for rule in rules {
                for (operation, level) in Operation::ALL.into_iter().zip(&mut index.0) {
                    if rule.covers(operation) {
                        level.add(rule, position);
                    }
                }
            }
        }
        index
    }

    /// Returns `true` if a webhook may match a request for this resource with any operation.
    pub(crate) fn concerns(&self, group: &str, resource: &str) -> bool {
        let lists = self.0.iter().flat_map(|level| level.lists(group, resource));
        lists.flatten().any(|positions| !positions.is_empty())
    }

    /// The webhooks that may match a request for `resource`, or for any of its equivalents.
    pub(crate) fn candidates(
        &self,
        operation: Operation,
        resource: &GroupVersionResource,
        equivalents: &[Equivalent],
    ) -> Candidates {
        // By name, so that every operation has a level.
        let [create, update, delete, connect] = &self.0;
        let level = match operation {
            Operation::Create => create,
            Operation::Update => update,
            Operation::Delete => delete,
            Operation::Connect => connect,
        };
        let mut found = Vec::new();
        let others = equivalents.iter().map(|other| &other.resource);
        for resource in std::iter::once(resource).chain(others) {
            for list in level
                .lists(&resource.group, &resource.resource)
                .into_iter()
                .flatten()
            {
                found.extend_from_slice(list);
            }
        }
        // Each list is sorted, so this merges a few runs.
        found.sort();
        found.dedup();
        Candidates(found)
    }
}

impl Level {
    fn add(&mut self, rule: &Rule, position: u32) {
        match rule.groups() {
            Names::Any => self.any_group.add(rule, position),
            Names::Listed(groups) => {
                for group in groups {
                    self.groups
                        .entry(group.clone())
                        .or_default()
                        .add(rule, position);
                }
            }
        }
    }

    fn lists(&self, group: &str, resource: &str) -> [Option<&Positions>; 4] {
        let named = self.groups.get(group);
        [
            Some(&self.any_group.any),
            self.any_group.named.get(resource),
            named.map(|resources| &resources.any),
            named.and_then(|resources| resources.named.get(resource)),
        ]
    }
}

impl Resources {
    fn add(&mut self, rule: &Rule, position: u32) {
        for name in rule.resources() {
            let list = match &name.resource {
                None => &mut self.any,
                Some(resource) => self.named.entry(resource.clone()).or_default(),
            };
            // Webhooks are added in order, so a duplicate is at the end.
            if list.last() != Some(&position) {
                list.push(position);
            }
        }
    }
}
