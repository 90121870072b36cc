//! Matches the rules, first for the requested resource and then for equivalent ones.

use crate::configuration::{Criteria, MatchPolicy, Rule, WithoutRules};
use crate::host::Equivalent;
use crate::request::Request;

/// The verdict of the rules, which are identified by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleVerdict {
    /// A rule matches the requested resource.
    Exact {
        /// The rule.
        rule: usize,
    },
    /// A rule matches an equivalent resource.
    Equivalent {
        /// The rule.
        rule: usize,
        /// The index of the equivalent resource.
        equivalent: usize,
    },
    /// A rule matches an equivalent resource whose kind is unknown.
    UnknownKind {
        /// The rule.
        rule: usize,
        /// The index of the equivalent resource.
        equivalent: usize,
    },
    /// There are no rules, which matches everything.
    Unrestricted,
    /// An exclusion rule matches.
    Excluded {
        /// The index of the exclusion rule.
        rule: usize,
    },
    /// No rule matches.
    None,
}

/// Exclusions are checked before the rules.
pub(super) fn verdict(
    criteria: &Criteria,
    request: &Request,
    equivalents: &[Equivalent],
) -> RuleVerdict {
    if !criteria.exclusions.is_empty() {
        match first_match(
            &criteria.exclusions,
            criteria.match_policy,
            request,
            equivalents,
        ) {
            RuleVerdict::Exact { rule } | RuleVerdict::Equivalent { rule, .. } => {
                return RuleVerdict::Excluded { rule };
            }
            unknown @ RuleVerdict::UnknownKind { .. } => return unknown,
            _ => {}
        }
    }
    if criteria.rules.is_empty() && criteria.without_rules == WithoutRules::Everything {
        return RuleVerdict::Unrestricted;
    }
    first_match(&criteria.rules, criteria.match_policy, request, equivalents)
}

/// An exact match of any rule takes precedence over equivalent ones; then the first rule is used.
fn first_match(
    rules: &[Rule],
    match_policy: MatchPolicy,
    request: &Request,
    equivalents: &[Equivalent],
) -> RuleVerdict {
    let exact = rules
        .iter()
        .position(|rule| rule.matches(request, &request.resource) && rule.has_name(&request.name));
    if let Some(rule) = exact {
        return RuleVerdict::Exact { rule };
    }
    if match_policy == MatchPolicy::Exact {
        return RuleVerdict::None;
    }
    for (rule, tested) in rules.iter().enumerate() {
        let others = equivalents.iter().enumerate();
        // The requested resource may be among them; it has been tried already.
        let others = others.filter(|(_, other)| other.resource != request.resource);
        for (equivalent, other) in others {
            if !tested.matches(request, &other.resource) {
                continue;
            }
            if other.kind.is_none() {
                return RuleVerdict::UnknownKind { rule, equivalent };
            }
            if tested.has_name(&request.name) {
                return RuleVerdict::Equivalent { rule, equivalent };
            }
        }
    }
    RuleVerdict::None
}
