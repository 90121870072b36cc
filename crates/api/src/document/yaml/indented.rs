//! Texts with lines that the parser wants indented further.
//!
//! Within brackets and quotes, the library that Kubernetes uses lets a line begin in any column. Later versions of
//! YAML do not, and the parser here follows them: `args: [\n  a,\n]` is refused in a list. Such a line gets spaces in
//! front, which mean nothing there, and everything keeps the place it has in the source.
//!
//! UPSTREAM: go.yaml.in/yaml/v2 scannerc.go (yaml_parser_unroll_indent, yaml_parser_scan_flow_scalar).

use std::borrow::Cow;

use saphyr_parser::Span as Place;

use crate::document::Span;

/// Spaces that a line gets at a time.
const SPACES: &str = "                                                                ";

/// A line that the parser refuses for its indentation, by a character in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// The line of a token within brackets.
    Token(usize),
    /// The lines of a text in quotes that begins here.
    Quoted(usize),
}

/// The line to indent for an error of the parser at a character.
pub(super) fn line(problem: &str, at: usize) -> Option<Line> {
    match problem {
        "invalid indentation" | "invalid indentation in flow construct" => Some(Line::Token(at)),
        "invalid indentation in quoted scalar" => Some(Line::Quoted(at)),
        _ => None,
    }
}

/// A source, and the text that the parser reads for it.
pub(super) struct Indented<'s> {
    text: Cow<'s, str>,
    /// The byte of the source at which each character of the text stands; empty while every character is
    /// one byte at its own place.
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

    /// The byte of the source for a character of the text.
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

    /// The first character of the line of a character.
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

    /// The first characters of the lines on which a text in quotes goes on; none if it does not end.
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
