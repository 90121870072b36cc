//! Indents lines that the parser rejects for their indentation.
//!
//! Within brackets and quotes, Kubernetes' library allows a line to start in any column. Later versions of YAML do
//! not, and neither does the parser here: `args: [\n  a,\n]` is rejected in a list. Such a line is indented with
//! spaces, which are not significant there, and all positions refer to the original source.
//!
//! UPSTREAM: go.yaml.in/yaml/v2 scannerc.go (yaml_parser_unroll_indent, yaml_parser_scan_flow_scalar).

use std::borrow::Cow;

use saphyr_parser::Span as Place;

use crate::document::Span;

/// The indentation added to a line at a time.
const SPACES: &str = "                                                                ";

/// A line that the parser rejects for its indentation, by a character in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// The line of a token within brackets.
    Token(usize),
    /// The lines of the quoted scalar that starts here.
    Quoted(usize),
}

/// The line to indent for a parser error at a character.
pub(super) fn line(problem: &str, at: usize) -> Option<Line> {
    match problem {
        "invalid indentation" | "invalid indentation in flow construct" => Some(Line::Token(at)),
        "invalid indentation in quoted scalar" => Some(Line::Quoted(at)),
        _ => None,
    }
}

/// A source, and its indented text for the parser.
pub(super) struct Indented<'s> {
    text: Cow<'s, str>,
    /// The source byte of each character of the text; empty while they are identical.
    offsets: Vec<u32>,
    /// The length of the source.
    len: usize,
}

impl<'s> Indented<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        let offsets = match source.is_ascii() {
            true => Vec::new(),
            false => offsets(source),
        };
        Self {
            text: Cow::Borrowed(source),
            offsets,
            len: source.len(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The source byte of a character of the text.
    pub(super) fn byte(&self, character: usize) -> usize {
        if self.offsets.is_empty() {
            return character.min(self.len);
        }
        self.offsets
            .get(character)
            .map_or(self.len, |&at| at as usize)
    }

    pub(super) fn span(&self, place: Place) -> Span {
        Span::new(self.byte(place.start.index()), self.byte(place.end.index()))
    }

    /// Indents a line. Returns false if there is none to indent.
    pub(super) fn indent(&mut self, line: Line) -> bool {
        let starts = match line {
            Line::Token(at) => self.line_start(at).into_iter().collect(),
            Line::Quoted(at) => self.quoted_lines(at),
        };
        if starts.is_empty() {
            return false;
        }
        if self.offsets.is_empty() {
            self.offsets = offsets(&self.text);
        }
        let mut text = String::with_capacity(self.text.len() + starts.len() * SPACES.len());
        let mut places = Vec::with_capacity(self.offsets.len() + starts.len() * SPACES.len());
        let mut starts = starts.into_iter().peekable();
        for ((number, c), &offset) in self.text.chars().enumerate().zip(&self.offsets) {
            if starts.next_if_eq(&number).is_some() {
                text.push_str(SPACES);
                places.extend(std::iter::repeat_n(offset, SPACES.len()));
            }
            text.push(c);
            places.push(offset);
        }
        self.text = Cow::Owned(text);
        self.offsets = places;
        true
    }

    /// The first character of the line that contains a character.
    fn line_start(&self, at: usize) -> Option<usize> {
        let mut start = 0;
        for (number, c) in self.text.chars().enumerate() {
            if number == at {
                return Some(start);
            }
            if c == '\n' {
                start = number + 1;
            }
        }
        None
    }

    /// The first characters of the continuation lines of a quoted scalar; empty if it is unterminated.
    fn quoted_lines(&self, at: usize) -> Vec<usize> {
        let mut characters = self.text.chars().enumerate().skip(at).peekable();
        let Some((_, quote)) = characters.next() else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        let mut is_escaped = false;
        while let Some((number, c)) = characters.next() {
            let is_doubled =
                quote == '\'' && characters.peek().is_some_and(|(_, next)| *next == quote);
            match c {
                '\n' => {
                    lines.push(number + 1);
                    is_escaped = false;
                }
                _ if is_escaped => is_escaped = false,
                '\\' if quote == '"' => is_escaped = true,
                c if c == quote && is_doubled => {
                    characters.next();
                }
                c if c == quote => return lines,
                _ => {}
            }
        }
        Vec::new()
    }
}

fn offsets(source: &str) -> Vec<u32> {
    let characters = source.char_indices();
    characters.map(|(at, _)| Span::new(at, at).start).collect()
}
