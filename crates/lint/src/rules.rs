//! The rule catalogue, one family per file.

mod access;
mod address;
mod backend;
mod bypass;
mod calls;
mod condition;
mod custom;
mod dependency;
mod failure;
mod patches;
mod policy;
mod resource;
mod scope;
mod time;
mod trust;
mod wire;

use crate::finding::{Levels, Severity};
use crate::rule::Rule;

/// Every rule, by its identifier.
pub static RULES: &[&Rule] = &[
    &time::W001,
    &time::W002,
    &time::W003,
    &scope::W004,
    &scope::W005,
    &scope::W006,
    &scope::W007,
    &scope::W008,
    &scope::W009,
    &dependency::W010,
    &dependency::W011,
    &backend::W012,
    &failure::W013,
    &failure::W014,
    &bypass::W015,
    &bypass::W016,
    &resource::W017,
    &bypass::W018,
    &resource::W019,
    &wire::W020,
    &wire::W021,
    &trust::W023,
    &address::W024,
    &address::W025,
    &condition::W026,
    &condition::W027,
    &calls::W028,
    &patches::W029,
    &patches::W030,
    &patches::W031,
    &patches::W032,
    &patches::W033,
    &scope::W034,
    &calls::W035,
    &wire::W036,
    &custom::W037,
    &calls::W038,
    &time::W039,
    &access::W040,
    &backend::W041,
    &backend::W042,
    &scope::W043,
    &wire::W044,
    &bypass::W045,
    &policy::W046,
    &resource::W047,
    &custom::W048,
];

/// The rule with an identifier, case-insensitive.
#[must_use]
pub fn find(id: &str) -> Option<&'static Rule> {
    RULES
        .iter()
        .find(|rule| rule.id.eq_ignore_ascii_case(id))
        .copied()
}

const OFF: Option<Severity> = None;
const NOTE: Option<Severity> = Some(Severity::Note);
const WARNING: Option<Severity> = Some(Severity::Warning);
const ERROR: Option<Severity> = Some(Severity::Error);

/// The severities in the profiles balanced, availability and security.
const fn levels(
    balanced: Option<Severity>,
    availability: Option<Severity>,
    security: Option<Severity>,
) -> Levels {
    Levels {
        balanced,
        availability,
        security,
    }
}

/// `a, b and 3 more`, with at most this many by name.
fn list(names: &[String], most: usize) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        names if names.len() > most => {
            let shown = names.get(..most).unwrap_or_default().join(", ");
            format!("{shown} and {} more", names.len() - most)
        }
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
