//! Source texts and positions in them.

use lockgate_api::document::Span;

/// A named text with its line index.
#[derive(Debug)]
pub struct Source {
    /// The path as given, or `<stdin>`.
    pub name: String,
    /// The text.
    pub text: String,
    line_starts: Vec<u32>,
}

/// A line and column for display: both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Source {
    /// Creates a source with a line index.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = ends.map(|(at, _)| Span::new(at + 1, at + 1).start);
        let line_starts = std::iter::once(0).chain(starts).collect();
        Self {
            name: name.into(),
            text,
            line_starts,
        }
    }

    /// The line and column of a byte offset.
    #[must_use]
    pub fn position(&self, offset: u32) -> Position {
        let line = self.line_of(offset);
        let start = self.line_starts[line] as usize;
        let end = floor_char_boundary(&self.text, (offset as usize).max(start));
        let column = self
            .text
            .get(start..end)
            .map_or(0, |text| text.chars().count());
        Position {
            line: line + 1,
            column: column + 1,
        }
    }

    /// The index of the line of a byte offset.
    #[must_use]
    pub fn line_of(&self, offset: u32) -> usize {
        self.line_starts
            .partition_point(|&start| start <= offset)
            .saturating_sub(1)
    }

    /// The byte offset of a line; past the last line, the end of the text.
    #[must_use]
    pub fn line_start(&self, line: usize) -> usize {
        self.line_starts
            .get(line)
            .map_or(self.text.len(), |&start| start as usize)
    }

    /// The number of lines.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.line_starts.len()
    }
}

fn floor_char_boundary(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_and_characters_from_one() {
        let source = Source::new("x", "ab\né x\n");
        for (offset, line, column) in [
            (0, 1, 1),
            (2, 1, 3),
            (3, 2, 1),
            (5, 2, 2),
            (4, 2, 1),
            (8, 3, 1),
        ] {
            assert_eq!(
                source.position(offset),
                Position { line, column },
                "{offset}"
            );
        }
    }
}
