//! Parses a pattern by Go's rules into a syntax tree.
//!
//! Parses iteratively with a stack of open groups, because Go's result for `a(?i)*` or `\Q\E*`
//! follows from its stack and not from a grammar.
// UPSTREAM: Go regexp/syntax/parse.go defines every rule and limit in this file.

use regex_syntax::hir::{Class, ClassUnicode, Dot, Hir, Look};

use super::node::{Kind, Node, join, repeated};
use super::{Error, ErrorKind, class};

/// The maximum repetition count, also as a product of nested ones.
const MAX_REPEAT: u64 = 1000;
/// The maximum height of the tree.
const MAX_HEIGHT: u32 = 1000;
/// The maximum number of instructions of a compiled pattern in Go.
const MAX_SIZE: u64 = (128 << 20) / 40;
/// The maximum number of range bounds of all classes together.
const MAX_RUNES: usize = (128 << 20) / 4;

/// Parses a pattern.
pub(super) fn parse(pattern: &str) -> Result<Hir, Error> {
    Parser::new(pattern).parse()
}

#[derive(Clone, Copy)]
pub(super) struct Flags {
    pub(super) fold_case: bool,
    multi_line: bool,
    dot_newline: bool,
    non_greedy: bool,
}

/// An open group, or the pattern itself.
struct Group {
    alternatives: Vec<Node>,
    sequence: Vec<Node>,
    /// The flags to restore at its end.
    flags: Flags,
    captures: bool,
}

impl Group {
    fn new(flags: Flags, captures: bool) -> Self {
        Self {
            alternatives: Vec::new(),
            sequence: Vec::new(),
            flags,
            captures,
        }
    }
}

pub(super) struct Parser<'p> {
    pub(super) pattern: &'p str,
    /// The byte position of the next character.
    pub(super) at: usize,
    pub(super) flags: Flags,
    /// The groups enclosing the innermost one.
    outer: Vec<Group>,
    group: Group,
    runes: usize,
}

impl<'p> Parser<'p> {
    fn new(pattern: &'p str) -> Self {
        let flags = Flags {
            fold_case: false,
            multi_line: false,
            dot_newline: false,
            non_greedy: false,
        };
        let group = Group::new(flags, false);
        Self {
            pattern,
            at: 0,
            flags,
            outer: Vec::new(),
            group,
            runes: 0,
        }
    }

    fn parse(mut self) -> Result<Hir, Error> {
        // The start of the previous item, if it was a repetition.
        let mut last_repeat = None;
        while let Some(c) = self.peek() {
            let start = self.at;
            let mut repeat = None;
            match c {
                '(' if self.rest().starts_with("(?") => self.perl_group()?,
                '(' => {
                    self.at += 1;
                    self.open(true);
                }
                '|' => {
                    self.at += 1;
                    self.end_alternative()?;
                }
                ')' => {
                    self.close()?;
                    self.at += 1;
                }
                '^' if self.flags.multi_line => self.look(1, Look::StartLF)?,
                '^' => self.look(1, Look::Start)?,
                '$' if self.flags.multi_line => self.look(1, Look::EndLF)?,
                '$' => self.look(1, Look::End)?,
                '.' => {
                    self.at += 1;
                    let dot = if self.flags.dot_newline {
                        Dot::AnyChar
                    } else {
                        Dot::AnyCharExceptLF
                    };
                    self.push(Node::leaf(Hir::dot(dot), Kind::Class))?;
                }
                '[' => {
                    let class = self.class()?;
                    self.push_class(class)?;
                }
                '*' | '+' | '?' => {
                    self.at += 1;
                    let (min, max) = match c {
                        '*' => (0, None),
                        '+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    self.repeat(start, last_repeat, min, max, false)?;
                    repeat = Some(start);
                }
                '{' => match self.count()? {
                    Some((min, max)) => {
                        self.repeat(start, last_repeat, min, max, true)?;
                        repeat = Some(start);
                    }
                    None => {
                        self.at += 1;
                        self.literal('{')?;
                    }
                },
                '\\' => self.backslash()?,
                c => {
                    self.at += c.len_utf8();
                    self.literal(c)?;
                }
            }
            last_repeat = repeat;
        }
        let node = self.end_group()?;
        if !self.outer.is_empty() {
            return Err(self.error(ErrorKind::MissingParen, 0, self.pattern.len()));
        }
        Ok(node.hir)
    }

    pub(super) fn rest(&self) -> &'p str {
        self.pattern.get(self.at..).unwrap_or("")
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    pub(super) fn error(&self, kind: ErrorKind, from: usize, to: usize) -> Error {
        Error {
            kind,
            part: self.pattern.get(from..to).unwrap_or("").to_owned(),
        }
    }

    fn whole(&self, kind: ErrorKind) -> Error {
        Error {
            kind,
            part: self.pattern.to_owned(),
        }
    }

    // ---- the stack ----

    fn check(&self, node: &Node) -> Result<(), Error> {
        if node.size > MAX_SIZE || self.runes > MAX_RUNES {
            return Err(self.whole(ErrorKind::Large));
        }
        if node.height > MAX_HEIGHT {
            return Err(self.whole(ErrorKind::NestingDepth));
        }
        Ok(())
    }

    pub(super) fn push(&mut self, node: Node) -> Result<(), Error> {
        self.check(&node)?;
        self.group.sequence.push(node);
        Ok(())
    }

    pub(super) fn look(&mut self, width: usize, look: Look) -> Result<(), Error> {
        self.at += width;
        self.push(Node::leaf(Hir::look(look), Kind::Other))
    }

    pub(super) fn literal(&mut self, c: char) -> Result<(), Error> {
        let hir = if self.flags.fold_case {
            let mut class = class::of(&[(c, c)]);
            let _ = class.try_case_fold_simple();
            Hir::class(Class::Unicode(class))
        } else {
            Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes())
        };
        self.push(Node::leaf(hir, Kind::Class))
    }

    pub(super) fn push_class(&mut self, class: ClassUnicode) -> Result<(), Error> {
        self.runes += 2 * class.ranges().len();
        self.push(Node::leaf(Hir::class(Class::Unicode(class)), Kind::Class))
    }

    fn open(&mut self, captures: bool) {
        let group = Group::new(self.flags, captures);
        self.outer.push(std::mem::replace(&mut self.group, group));
    }

    fn close(&mut self) -> Result<(), Error> {
        let mut node = self.end_group()?;
        let Some(outer) = self.outer.pop() else {
            return Err(self.whole(ErrorKind::UnexpectedParen));
        };
        let inner = std::mem::replace(&mut self.group, outer);
        self.flags = inner.flags;
        if inner.captures {
            node.height += 1;
            node.size += 2;
            node.kind = Kind::Other;
        }
        self.push(node)
    }

    /// Makes the current sequence an alternative.
    fn end_alternative(&mut self) -> Result<(), Error> {
        let sequence = std::mem::take(&mut self.group.sequence);
        let node = join(sequence, Kind::Concat);
        self.check(&node)?;
        self.group.alternatives.push(node);
        Ok(())
    }

    fn end_group(&mut self) -> Result<Node, Error> {
        self.end_alternative()?;
        let node = join(
            std::mem::take(&mut self.group.alternatives),
            Kind::Alternate,
        );
        self.check(&node)?;
        Ok(node)
    }

    // ---- repetitions ----

    /// Applies a repetition operator that started at `start` to the last item.
    fn repeat(
        &mut self,
        start: usize,
        last_repeat: Option<usize>,
        min: u32,
        max: Option<u32>,
        counted: bool,
    ) -> Result<(), Error> {
        let mut greedy = !self.flags.non_greedy;
        if self.peek() == Some('?') {
            self.at += 1;
            greedy = !greedy;
        }
        if let Some(last) = last_repeat {
            return Err(self.error(ErrorKind::InvalidRepeatOp, last, self.at));
        }
        let Some(sub) = self.group.sequence.pop() else {
            return Err(self.error(ErrorKind::MissingRepeatArgument, start, self.at));
        };
        let node = repeated(sub, min, max, greedy, counted);
        self.check(&node)?;
        let checked = counted && (min >= 2 || max.is_some_and(|max| max >= 2));
        if checked && node.repeats > MAX_REPEAT {
            return Err(self.error(ErrorKind::InvalidRepeatSize, start, self.at));
        }
        self.group.sequence.push(node);
        Ok(())
    }

    /// Parses `{2}`, `{2,}` or `{2,5}`; anything else is not consumed and not a repetition.
    fn count(&mut self) -> Result<Option<(u32, Option<u32>)>, Error> {
        let start = self.at;
        let Some((min, max, length)) = counts(self.rest()) else {
            return Ok(None);
        };
        self.at += length;
        let largest = u32::try_from(MAX_REPEAT).unwrap_or(u32::MAX);
        if min > largest || max.is_some_and(|max| max > largest || min > max) {
            return Err(self.error(ErrorKind::InvalidRepeatSize, start, self.at));
        }
        Ok(Some((min, max)))
    }

    // ---- groups ----

    /// Parses a group that starts with `(?`: a named group, flags, or a group with flags.
    fn perl_group(&mut self) -> Result<(), Error> {
        let start = self.at;
        let rest = self.rest();
        let name_at = match rest.as_bytes() {
            [_, _, b'P', b'<', _, ..] => Some(4),
            [_, _, b'<', _, ..] => Some(3),
            _ => None,
        };
        if let Some(name_at) = name_at {
            let Some(end) = rest.find('>') else {
                return Err(self.error(ErrorKind::InvalidNamedCapture, start, self.pattern.len()));
            };
            let name = rest.get(name_at..end).unwrap_or("");
            self.at += end + 1;
            if name.is_empty() || !name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
                return Err(self.error(ErrorKind::InvalidNamedCapture, start, self.at));
            }
            self.open(true);
            return Ok(());
        }
        self.at += 2;
        self.group_flags(start)
    }

    fn group_flags(&mut self, start: usize) -> Result<(), Error> {
        let mut flags = self.flags;
        let mut on = true;
        let mut saw_flag = false;
        while let Some(c) = self.take() {
            match c {
                'i' => flags.fold_case = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_newline = on,
                'U' => flags.non_greedy = on,
                '-' if on => {
                    on = false;
                    saw_flag = false;
                    continue;
                }
                ':' | ')' if on || saw_flag => {
                    if c == ':' {
                        self.open(false);
                    }
                    self.flags = flags;
                    return Ok(());
                }
                _ => break,
            }
            saw_flag = true;
        }
        Err(self.error(ErrorKind::InvalidPerlOp, start, self.at))
    }
}

/// Parses `{min}`, `{min,}` or `{min,max}`; also returns its length in bytes.
fn counts(text: &str) -> Option<(u32, Option<u32>, usize)> {
    let body = text.strip_prefix('{')?;
    let (min, rest) = number(body)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => {
            let (max, rest) = number(rest)?;
            (Some(max), rest)
        }
    };
    let rest = rest.strip_prefix('}')?;
    Some((min, max, text.len() - rest.len()))
}

/// Parses a decimal number without leading zeros; overflow saturates.
fn number(text: &str) -> Option<(u32, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.get(..text.len() - rest.len())?;
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}
