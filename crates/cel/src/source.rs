//! Source text, positions, and the printing of issues.
//!
//! Offsets inside the crate are in bytes. Kubernetes shows lines and code points, so issues are
//! converted when they are printed.

use std::fmt::Write as _;

/// A byte range of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The start, inclusive.
    pub start: u32,
    /// The end, exclusive.
    pub end: u32,
}

impl Span {
    /// Returns true for an empty span.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The spanned part of `source`, if the span is valid.
    #[must_use]
    pub fn of(self, source: &str) -> Option<&str> {
        source.get(self.start as usize..self.end as usize)
    }
}

/// The maximum number of printed issues; the rest is only counted.
const MAX_REPORTED: usize = 100;
/// Lines longer than this are not printed below an issue.
const MAX_SNIPPET_BYTES: usize = 16_384;

/// A problem of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The byte offset of the issue; `None` if it concerns the whole expression.
    pub offset: Option<u32>,
    /// The message, as Kubernetes words it.
    pub message: String,
    /// True for an issue whose position upstream does not know; it is printed one column before the
    /// first.
    unplaced: bool,
}

impl Issue {
    /// Creates an issue at a byte offset.
    #[must_use]
    pub fn at(offset: u32, message: impl Into<String>) -> Self {
        Self {
            offset: Some(offset),
            message: message.into(),
            unplaced: false,
        }
    }

    /// Creates an issue whose position upstream does not know, but prints.
    pub(crate) fn unplaced(message: impl Into<String>) -> Self {
        Self {
            unplaced: true,
            ..Self::at(0, message)
        }
    }

    /// Creates an issue of the whole expression.
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

/// Prints issues, sorted by position, each with its line and a pointer.
///
/// UPSTREAM: cel-go common/errors.go, common/error.go
#[must_use]
pub fn render(text: &str, issues: &[Issue]) -> String {
    // Only the first hundred are kept before sorting, as in upstream.
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
    // In an empty source, even the first column does not exist.
    let column = place.column + usize::from(!text.is_empty() && !issue.unplaced);
    let _ = write!(out, "ERROR: <input>:{}:{column}: {message}", place.line);
    let line = text.split('\n').nth(place.line - 1).unwrap_or_default();
    if text.is_empty() || line.len() > MAX_SNIPPET_BYTES {
        return;
    }
    let _ = write!(out, "\n | {}\n | ", line.replace('\t', " "));
    let mut rest = line.chars();
    for c in rest.by_ref().take(place.column) {
        // A full-width dot aligns the pointer with wide characters.
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
