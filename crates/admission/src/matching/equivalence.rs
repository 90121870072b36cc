//! The rules, for the resource the client addressed and then for equivalent ones.

use crate::configuration::{CompiledHook, MatchPolicy};
use crate::host::Equivalent;
use crate::request::Request;

/// The verdict of the rules, which are named by their position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleVerdict {
    /// A rule matches the resource the client addressed.
    Exact {
        /// The rule.
        rule: usize,
    },
    /// A rule matches an equivalent resource.
    Equivalent {
        /// The rule.
        rule: usize,
        /// The resource, by its position among the equivalents.
        equivalent: usize,
    },
    /// A rule matches an equivalent resource whose kind nobody knows.
    UnknownKind {
        /// The rule.
        rule: usize,
        /// The resource, by its position among the equivalents.
        equivalent: usize,
    },
    /// No rule matches.
    None,
}

/// An exact match of any rule comes before every equivalent one; then the first rule wins.
pub(super) fn verdict(
    hook: &CompiledHook,
    request: &Request,
    equivalents: &[Equivalent],
) -> RuleVerdict {
    let exact = hook
        .rules()
        .iter()
        .position(|rule| rule.matches(request, &request.resource));
    if let Some(rule) = exact {
        return RuleVerdict::Exact { rule };
    }
    if hook.match_policy() == MatchPolicy::Exact {
        return RuleVerdict::None;
    }
    for (rule, tested) in hook.rules().iter().enumerate() {
        // The requested resource may be among them, but no rule matches that one.
        let equivalent = equivalents
            .iter()
            .position(|other| tested.matches(request, &other.resource));
        if let Some(equivalent) = equivalent {
            let known = equivalents
                .get(equivalent)
                .is_some_and(|other| other.kind.is_some());
            return if known {
                RuleVerdict::Equivalent { rule, equivalent }
            } else {
                RuleVerdict::UnknownKind { rule, equivalent }
            };
        }
    }
    RuleVerdict::None
}
