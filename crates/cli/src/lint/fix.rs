//! Fixes findings in the sources.
//!
//! ```text
//!   check ──► edits ──► new texts ──► read again, and compared with the fixed objects ──► check …
//! ```
//!
//! If a text does not parse to the fixed objects after the edits, it is left unchanged: its layout is unsupported.

use std::collections::BTreeSet;

use lockgate_api::document::{Document, SyntaxError};
use serde_json::Value as Json;

use super::Report;
use super::check::{self, Expressions, Risks};
use super::edit::{Edit, ObjectFixes, edited};
use crate::text::Source;

/// The maximum number of rounds: one fix may make another possible.
const MAX_ROUNDS: usize = 4;

/// The outcome of fixing.
#[derive(Debug)]
pub struct Fixed {
    /// The report after fixing.
    pub report: Report,
    /// The changed sources, by index, with their original text.
    pub before: Vec<(usize, String)>,
    /// The number of fixes.
    pub fixes: usize,
    /// The names of sources with fixes that could not be applied safely.
    pub left: Vec<String>,
}

/// Checks sources, applies fixes, and repeats until there is nothing left to fix.
#[must_use]
pub fn fix(
    sources: Vec<Source>,
    expressions: Expressions<'_>,
    risks: &Risks,
    may_fix: impl Fn(&Source) -> bool,
) -> Fixed {
    let mut fixed = Fixed {
        report: check::check(sources, expressions, Some(risks)),
        before: Vec::new(),
        fixes: 0,
        left: Vec::new(),
    };
    let mut refused: BTreeSet<usize> = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let changed = round(&mut fixed, &mut refused, &may_fix);
        if changed.is_empty() {
            break;
        }
        let sources = std::mem::take(&mut fixed.report.sources);
        fixed.report = check::check(sources, expressions, Some(risks));
    }
    let left: BTreeSet<usize> = fixed
        .report
        .findings
        .iter()
        .filter(|finding| finding.fixable)
        .map(|finding| finding.source)
        .collect();
    let names = left.iter().filter_map(|at| fixed.report.sources.get(*at));
    let names = names.filter(|source| may_fix(source));
    fixed.left = names.map(|source| source.name.clone()).collect();
    fixed
}

/// Fixes each source once, and returns the changed ones.
fn round(
    fixed: &mut Fixed,
    refused: &mut BTreeSet<usize>,
    may_fix: &impl Fn(&Source) -> bool,
) -> Vec<usize> {
    let mut changed = Vec::new();
    for at in 0..fixed.report.sources.len() {
        let of: Vec<&ObjectFixes> = fixed
            .report
            .fixes
            .iter()
            .filter(|fixes| fixes.source == at)
            .collect();
        let Some(source) = fixed.report.sources.get(at) else {
            continue;
        };
        if of.is_empty() || refused.contains(&at) || !may_fix(source) {
            continue;
        }
        let Some(text) = rewritten(source, &of) else {
            refused.insert(at);
            continue;
        };
        fixed.fixes += of.iter().map(|fixes| fixes.fixes.len()).sum::<usize>();
        let name = source.name.clone();
        if let Some(place) = fixed.report.sources.get_mut(at) {
            let old = std::mem::replace(place, Source::new(name, text)).text;
            if !fixed.before.iter().any(|(known, _)| *known == at) {
                fixed.before.push((at, old));
            }
        }
        changed.push(at);
    }
    changed
}

/// The text with the fixes applied, if it differs from the original in nothing but the fixes.
fn rewritten(source: &Source, objects: &[&ObjectFixes]) -> Option<String> {
    let fixes = objects.iter().flat_map(|object| &object.fixes);
    let edits: Vec<Edit> = fixes.map(|(_, edit)| edit.clone()).collect();
    let text = edited(&source.text, &edits)?;
    let mut wanted = documents(source)?;
    for object in objects {
        let mut place = wanted.get_mut(object.document)?;
        for item in &object.trail {
            place = place.get_mut("items")?.get_mut(item)?;
        }
        for (fix, _) in &object.fixes {
            if !fix.apply(place) {
                return None;
            }
        }
    }
    let source = Source::new(source.name.clone(), text);
    (documents(&source)? == wanted).then_some(source.text)
}

/// The documents of a source as JSON; `None` if one cannot be parsed.
fn documents(source: &Source) -> Option<Vec<Json>> {
    let mut all = Vec::new();
    for part in check::parse(source) {
        let read: Result<Vec<Document>, SyntaxError> = part.documents;
        for document in read.ok()? {
            all.push(serde_json::from_str(&document.root().to_json()).ok()?);
        }
    }
    Some(all)
}
