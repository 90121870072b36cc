//! Source text, positions in it, and how a list of issues is printed.
//!
//! Everything inside the crate counts in bytes. Kubernetes shows lines and
//! code points, so the conversion happens here, when an issue is printed.

use std::fmt::Write as _;

/// A part of a text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// Returns true for a span without bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The part of `source` it is, if it is one.
    #[must_use]
    pub fn of(self, source: &str) -> Option<&str> {
        source.get(self.start as usize..self.end as usize)
    }
}

/// Most issues that are printed; the rest is only counted.
const MAX_REPORTED: usize = 100;
/// Lines longer than this are not echoed below an issue.
const MAX_SNIPPET_BYTES: usize = 16_384;

/// One thing that is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Byte offset where the issue begins; `None` when it concerns the whole text.
    pub offset: Option<u32>,
    /// The text, as Kubernetes words it.
    pub message: String,
    /// True for an issue upstream cannot place and shows in the column before the first.
    unplaced: bool,
}

impl Issue {
    /// An issue at a byte offset.
    #[must_use]
    pub fn at(offset: u32, message: impl Into<String>) -> Self {
        Self {
            offset: Some(offset),
            message: message.into(),
            unplaced: false,
        }
    }

    /// An issue about something upstream does not know the place of, but takes to have one.
    pub(crate) fn unplaced(message: impl Into<String>) -> Self {
        Self {
            unplaced: true,
            ..Self::at(0, message)
        }
    }

    /// An issue about the text as a whole.
    #[must_use]
    pub fn whole(message: impl Into<String>) -> Self {
        Self {
            offset: None,
            message: message.into(),
            unplaced: false,
        }
    }
}

/// A line (from 1) and a column in code points (from 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Line number, counted from one.
    pub line: usize,
    /// Column in code points, counted from zero.
    pub column: usize,
}

/// The line and column of a byte offset in `text`.
#[must_use]
pub fn location(text: &str, offset: u32) -> Location {
    let before = text.get(..offset as usize).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Location {
        line: before.bytes().filter(|b| *b == b'\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count(),
    }
}

/// The text of all issues, sorted by position, each with its line and a pointer.
///
/// UPSTREAM: cel-go common/errors.go, common/error.go
#[must_use]
pub fn render(text: &str, issues: &[Issue]) -> String {
    // Only the first hundred are kept before sorting, as upstream does.
    let mut placed: Vec<(Option<Location>, &Issue)> = issues
        .iter()
        .take(MAX_REPORTED)
        .map(|issue| (issue.offset.map(|at| location(text, at)), issue))
        .collect();
    placed.sort_by_key(|(place, issue)| (*place, !issue.unplaced));
    let mut out = String::new();
    for (place, issue) in placed {
        if !out.is_empty() {
            out.push('\n');
        }
        render_one(&mut out, text, place, issue);
    }
    if issues.len() > MAX_REPORTED {
        let _ = write!(
            out,
            "\n{} more errors were truncated",
            issues.len() - MAX_REPORTED
        );
    }
    out
}

fn render_one(out: &mut String, text: &str, place: Option<Location>, issue: &Issue) {
    let message = &issue.message;
    let Some(place) = place else {
        let _ = write!(out, "ERROR: <input>:-1:0: {message}");
        return;
    };
    // In an empty text not even the first column exists.
    let column = place.column + usize::from(!text.is_empty() && !issue.unplaced);
    let _ = write!(out, "ERROR: <input>:{}:{column}: {message}", place.line);
    let line = text.split('\n').nth(place.line - 1).unwrap_or_default();
    if text.is_empty() || line.len() > MAX_SNIPPET_BYTES {
        return;
    }
    let _ = write!(out, "\n | {}\n | ", line.replace('\t', " "));
    let mut rest = line.chars();
    for c in rest.by_ref().take(place.column) {
        // A wide dot keeps the pointer below wide characters.
        out.push(if c.len_utf8() > 1 { '．' } else { '.' });
    }
    out.push(if rest.next().is_some_and(|c| c.len_utf8() > 1) {
        '＾'
    } else {
        '^'
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_below_wide_characters_with_wide_marks() {
        let issues = [Issue::at(3, "extraneous"), Issue::at(1, "unknown")];
        assert_eq!(
            render("héllo", &issues),
            "ERROR: <input>:1:2: unknown\n | héllo\n | .＾\nERROR: <input>:1:3: extraneous\n | héllo\n | .．^"
        );
    }

    #[test]
    fn counts_lines_and_columns() {
        assert_eq!(location("a\nbé c", 6), Location { line: 2, column: 3 });
    }

    #[test]
    fn an_issue_without_a_place_has_no_snippet() {
        assert_eq!(
            render("x", &[Issue::whole("too deep")]),
            "ERROR: <input>:-1:0: too deep"
        );
    }
}
