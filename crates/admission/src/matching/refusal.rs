//! The first predicate that excluded a webhook or policy, with the compared value.
//!
//! Verdicts decide; this module explains a predicate that did not match, with the same compiled criteria.

use std::fmt;

use lockgate_api::meta::selector::Selector;

use super::{NamespaceLookup, NamespaceVerdict, ObjectVerdict, Predicates, RuleVerdict};
use crate::configuration::{Criteria, Labels, RulePart};
use crate::host::Equivalent;
use crate::object::Object;
use crate::request::Request;

/// The first predicate that did not match, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// `namespaceSelector`.
    NamespaceSelector {
        /// The requirement that does not match; `None` for a missing selector, which selects nothing.
        requirement: Option<String>,
        /// The namespace.
        namespace: String,
        /// The value of the requirement's label.
        value: Option<String>,
    },
    /// `objectSelector`.
    ObjectSelector {
        /// The requirement that does not match.
        requirement: Option<String>,
        /// The value of the label on the new object, otherwise on the old one.
        value: Option<String>,
    },
    /// No rule matches: the part of each that does not match.
    Rules(Vec<RuleMiss>),
    /// A rule of `excludeResourceRules` matches.
    Excluded {
        /// The index of the rule.
        rule: usize,
    },
}

/// A rule that does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMiss {
    /// The index of the rule.
    pub rule: usize,
    /// The first part that does not match.
    pub part: RulePart,
    /// The compared value.
    pub saw: String,
    /// True if the rule matches another version of the resource, but `matchPolicy` is `Exact`.
    pub exact: bool,
}

impl Refusal {
    /// The API field of the predicate.
    #[must_use]
    pub fn predicate(&self) -> &'static str {
        match self {
            Self::NamespaceSelector { .. } => "namespaceSelector",
            Self::ObjectSelector { .. } => "objectSelector",
            Self::Rules(misses) if misses.iter().any(|miss| miss.exact) => "matchPolicy",
            Self::Rules(_) => "rules",
            Self::Excluded { .. } => "excludeResourceRules",
        }
    }
}

fn shown(value: Option<&String>) -> String {
    value.map_or_else(
        || String::from("no such label"),
        |value| format!("`{value}`"),
    )
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NamespaceSelector {
                requirement: Some(requirement),
                namespace,
                value,
            } => write!(
                f,
                "namespaceSelector requires `{requirement}`, namespace `{namespace}` has {}",
                shown(value.as_ref())
            ),
            Self::ObjectSelector {
                requirement: Some(requirement),
                value,
            } => write!(
                f,
                "objectSelector requires `{requirement}`, the object has {}",
                shown(value.as_ref())
            ),
            Self::NamespaceSelector { .. } => {
                f.write_str("there is no namespaceSelector, which selects nothing")
            }
            Self::ObjectSelector { .. } => {
                f.write_str("there is no objectSelector, which selects nothing")
            }
            Self::Rules(misses) => match misses.as_slice() {
                [] => f.write_str("there are no rules"),
                [one] => one.fmt(f),
                many => {
                    f.write_str("no rule matches: ")?;
                    for (nth, miss) in many.iter().enumerate() {
                        f.write_str(if nth == 0 { "" } else { "; " })?;
                        miss.fmt(f)?;
                    }
                    Ok(())
                }
            },
            Self::Excluded { rule } => write!(f, "excludeResourceRules[{rule}] matches"),
        }
    }
}

impl fmt::Display for RuleMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, saw, .. } = self;
        let member = self.part.member();
        match self.exact {
            true => write!(
                f,
                "rules[{rule}] matches another version of the resource, and matchPolicy is Exact"
            ),
            false => write!(f, "rules[{rule}].{member} does not match `{saw}`"),
        }
    }
}

pub(super) fn refusal(
    criteria: &Criteria,
    predicates: &Predicates,
    request: &Request,
    object: Option<&Object>,
    lookup: &NamespaceLookup,
    equivalents: &[Equivalent],
) -> Option<Refusal> {
    if predicates.namespace == NamespaceVerdict::Refused {
        let label = |key: &str| match lookup {
            NamespaceLookup::Known(namespace) => namespace.labels.get(key).cloned(),
            _ => object.and_then(|object| object.label(key).map(str::to_owned)),
        };
        let (requirement, value) = first_unmet(&criteria.namespace_selector, label);
        let namespace = request.namespace.clone();
        return Some(Refusal::NamespaceSelector {
            requirement,
            namespace,
            value,
        });
    }
    if predicates.object == Some(ObjectVerdict::Refused) {
        let seen = object.or(request.old_object.as_ref());
        let label = |key: &str| seen?.label(key).map(str::to_owned);
        let (requirement, value) = first_unmet(&criteria.object_selector, label);
        return Some(Refusal::ObjectSelector { requirement, value });
    }
    match predicates.rule? {
        RuleVerdict::None => Some(Refusal::Rules(misses(criteria, request, equivalents))),
        RuleVerdict::Excluded { rule } => Some(Refusal::Excluded { rule }),
        _ => None,
    }
}

/// The first requirement of a selector that does not match, and the value of its label.
fn first_unmet(
    labels: &Labels,
    label: impl Fn(&str) -> Option<String>,
) -> (Option<String>, Option<String>) {
    let Labels::Selected(selector) = labels else {
        return (None, None);
    };
    let unmet = |selector: &Selector| {
        selector.requirements().iter().find_map(|requirement| {
            let value = label(requirement.key());
            let holds = requirement.matches(value.as_deref());
            (!holds).then(|| (Some(requirement.to_string()), value))
        })
    };
    // An object without metadata matches no selector, though each requirement might.
    unmet(selector).unwrap_or_else(|| (Some(selector.to_string()), None))
}

fn misses(criteria: &Criteria, request: &Request, equivalents: &[Equivalent]) -> Vec<RuleMiss> {
    let rules = criteria.rules.iter().enumerate();
    rules
        .filter_map(|(rule, tested)| {
            let (part, saw) = tested.first_miss(request, &request.resource)?;
            let others = equivalents.iter().map(|other| &other.resource);
            let mut others = others.filter(|other| **other != request.resource);
            // With `Equivalent`, a rule for another version would have matched.
            let exact = others.any(|other| tested.first_miss(request, other).is_none());
            Some(RuleMiss {
                rule,
                part,
                saw,
                exact,
            })
        })
        .collect()
}
