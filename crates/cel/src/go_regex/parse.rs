//! Reads a pattern by Go's rules into a syntax tree.
//!
//! Works from left to right on a stack of open groups, without recursion, because what Go does
//! with `a(?i)*` or `\Q\E*` follows from its stack and from no grammar.
// UPSTREAM: Go regexp/syntax/parse.go decides every rule and limit in this file.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Dot, Hir, Look, Repetition};

use super::{Error, ErrorKind, class};

/// The largest count of a repetition, also multiplied through nesting.
const MAX_REPEAT: u64 = 1000;
/// The highest tree.
const MAX_HEIGHT: u32 = 1000;
/// The most instructions a compiled pattern may have in Go.
const MAX_SIZE: u64 = (128 << 20) / 40;
/// The most ends of ranges all classes may have together.
const MAX_RUNES: usize = (128 << 20) / 4;

/// Parses a pattern.
pub(super) fn parse(pattern: &str) -> Result<Hir, Error> {
    Parser::new(pattern).parse()
}

#[derive(Clone, Copy)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_newline: bool,
    non_greedy: bool,
}

/// What a node is to the rules about its neighbours.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// One character out of a class.
    Class,
    Concat,
    Alternate,
    Other,
}

/// A subtree with what Go's limits ask about it.
struct Node {
    hir: Hir,
    kind: Kind,
    height: u32,
    size: u64,
    /// The largest product of counted repetitions on a path down.
    repeats: u64,
}

impl Node {
    fn leaf(hir: Hir, kind: Kind) -> Self {
        Self {
            hir,
            kind,
            height: 1,
            size: 1,
            repeats: 1,
        }
    }
}

/// An open group, or the pattern itself.
struct Group {
    alternatives: Vec<Node>,
    sequence: Vec<Node>,
    /// The flags to restore when it closes.
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

struct Parser<'p> {
    pattern: &'p str,
    /// The byte position of what comes next.
    at: usize,
    flags: Flags,
    /// Open groups around the innermost one.
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
        // Where the previous item started, if it was a repetition.
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

    fn rest(&self) -> &'p str {
        self.pattern.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn error(&self, kind: ErrorKind, from: usize, to: usize) -> Error {
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

    fn push(&mut self, node: Node) -> Result<(), Error> {
        self.check(&node)?;
        self.group.sequence.push(node);
        Ok(())
    }

    fn look(&mut self, width: usize, look: Look) -> Result<(), Error> {
        self.at += width;
        self.push(Node::leaf(Hir::look(look), Kind::Other))
    }

    fn literal(&mut self, c: char) -> Result<(), Error> {
        let hir = if self.flags.fold_case {
            let mut class = class::of(&[(c, c)]);
            let _ = class.try_case_fold_simple();
            Hir::class(Class::Unicode(class))
        } else {
            Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes())
        };
        self.push(Node::leaf(hir, Kind::Class))
    }

    fn push_class(&mut self, class: ClassUnicode) -> Result<(), Error> {
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

    /// Turns the sequence read so far into an alternative.
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

    /// Applies a repetition that started at `start` to the last item.
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

    /// Reads `{2}`, `{2,}` or `{2,5}`; anything else stays where it is and is no repetition.
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

    /// Reads what starts with `(?`: a named group, flags, or a group with flags.
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

    // ---- escapes ----

    fn backslash(&mut self) -> Result<(), Error> {
        let start = self.at;
        let rest = self.rest();
        match rest.as_bytes().get(1) {
            Some(b'A') => return self.look(2, Look::Start),
            Some(b'z') => return self.look(2, Look::End),
            Some(b'b') => return self.look(2, Look::WordAscii),
            Some(b'B') => return self.look(2, Look::WordAsciiNegate),
            Some(b'C') => return Err(self.error(ErrorKind::InvalidEscape, start, start + 2)),
            Some(b'Q') => {
                let quoted = rest.get(2..).unwrap_or("");
                let (text, width) = match quoted.find("\\E") {
                    Some(end) => (quoted.get(..end).unwrap_or(""), end + 4),
                    None => (quoted, rest.len()),
                };
                self.at += width;
                return text.chars().try_for_each(|c| self.literal(c));
            }
            _ => {}
        }
        if let Some(class) = self.named_class()? {
            return self.push_class(class);
        }
        match char::from_u32(self.escape()?) {
            Some(c) => self.literal(c),
            // A surrogate, which no text has.
            None => self.push(Node::leaf(Hir::fail(), Kind::Class)),
        }
    }

    /// Reads `\pN`, `\p{Greek}`, `\d` and their like, if there is one.
    fn named_class(&mut self) -> Result<Option<ClassUnicode>, Error> {
        let start = self.at;
        let rest = self.rest();
        let letter = match rest.as_bytes() {
            [b'\\', letter, ..] => *letter,
            _ => return Ok(None),
        };
        if !letter.eq_ignore_ascii_case(&b'p') {
            let Some(mut class) = class::perl(letter.to_ascii_lowercase()) else {
                return Ok(None);
            };
            self.at += 2;
            self.fold(&mut class);
            return Ok(Some(signed(class, letter.is_ascii_uppercase())));
        }
        self.at += 2;
        let name = if rest.get(2..).is_some_and(|rest| rest.starts_with('{')) {
            let Some(end) = rest.find('}') else {
                return Err(self.error(ErrorKind::InvalidCharRange, start, self.pattern.len()));
            };
            self.at = start + end + 1;
            rest.get(3..end).unwrap_or("")
        } else {
            let width = self.take().map_or(0, char::len_utf8);
            rest.get(2..2 + width).unwrap_or("")
        };
        let (negated, name) = match name.strip_prefix('^') {
            Some(name) => (letter == b'p', name),
            None => (letter == b'P', name),
        };
        let class = class::unicode(name, self.flags.fold_case)
            .ok_or_else(|| self.error(ErrorKind::InvalidCharRange, start, self.at))?;
        Ok(Some(signed(class, negated)))
    }

    /// Reads an escape that stands for one character.
    fn escape(&mut self) -> Result<u32, Error> {
        let start = self.at;
        self.at += 1;
        let Some(c) = self.take() else {
            return Err(Error {
                kind: ErrorKind::TrailingBackslash,
                part: String::new(),
            });
        };
        let value = match c {
            '0'..='7' => self.octal(c),
            'x' => self.hex(),
            'a' => Some(7),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(u32::from(c)),
            _ => None,
        };
        value.ok_or_else(|| self.error(ErrorKind::InvalidEscape, start, self.at))
    }

    /// Reads up to three octal digits. A single one that is not zero would be a back-reference.
    fn octal(&mut self, first: char) -> Option<u32> {
        let mut value = first.to_digit(8)?;
        let mut count = 1;
        while count < 3
            && let Some(digit) = self.peek().and_then(|c| c.to_digit(8))
        {
            self.at += 1;
            value = value * 8 + digit;
            count += 1;
        }
        (first == '0' || count > 1).then_some(value)
    }

    fn hex(&mut self) -> Option<u32> {
        let first = self.take()?;
        if first != '{' {
            let high = first.to_digit(16);
            let low = self.take().and_then(|c| c.to_digit(16));
            return Some(high? * 16 + low?);
        }
        let mut value = 0;
        let mut digits = 0;
        loop {
            let c = self.take()?;
            if c == '}' {
                return (digits > 0).then_some(value);
            }
            value = value * 16 + c.to_digit(16)?;
            if value > u32::from(char::MAX) {
                return None;
            }
            digits += 1;
        }
    }

    // ---- classes ----

    /// Reads a class in brackets.
    fn class(&mut self) -> Result<ClassUnicode, Error> {
        let start = self.at;
        self.at += 1;
        let negated = self.peek() == Some('^');
        if negated {
            self.at += 1;
        }
        let mut class = class::of(&[]);
        let mut first = true;
        while first || self.peek() != Some(']') {
            first = false;
            let item = match self.posix_class()? {
                Some(item) => Some(item),
                None => self.named_class()?,
            };
            match item {
                Some(item) => class.union(&item),
                None => self.class_range(start, &mut class)?,
            }
        }
        self.at += 1;
        Ok(signed(class, negated))
    }

    fn posix_class(&mut self) -> Result<Option<ClassUnicode>, Error> {
        let Some(body) = self.rest().strip_prefix("[:") else {
            return Ok(None);
        };
        let Some(end) = body.find(":]") else {
            return Ok(None);
        };
        let start = self.at;
        self.at += end + 4;
        let name = body.get(..end).unwrap_or("");
        let (negated, name) = match name.strip_prefix('^') {
            Some(name) => (true, name),
            None => (false, name),
        };
        let mut class = class::posix(name)
            .ok_or_else(|| self.error(ErrorKind::InvalidCharRange, start, self.at))?;
        self.fold(&mut class);
        Ok(Some(signed(class, negated)))
    }

    fn class_range(&mut self, class_start: usize, class: &mut ClassUnicode) -> Result<(), Error> {
        let start = self.at;
        let low = self.class_char(class_start)?;
        let mut high = low;
        if let [b'-', next, ..] = self.rest().as_bytes()
            && *next != b']'
        {
            self.at += 1;
            high = self.class_char(class_start)?;
            if high < low {
                return Err(self.error(ErrorKind::InvalidCharRange, start, self.at));
            }
        }
        let mut range = range(low, high);
        self.fold(&mut range);
        class.union(&range);
        Ok(())
    }

    fn class_char(&mut self, class_start: usize) -> Result<u32, Error> {
        match self.peek() {
            Some('\\') => self.escape(),
            Some(c) => {
                self.at += c.len_utf8();
                Ok(u32::from(c))
            }
            None => Err(self.error(ErrorKind::MissingBracket, class_start, self.pattern.len())),
        }
    }

    fn fold(&self, class: &mut ClassUnicode) {
        if self.flags.fold_case {
            // The tables are compiled in, so folding cannot fail.
            let _ = class.try_case_fold_simple();
        }
    }
}

fn signed(class: ClassUnicode, negated: bool) -> ClassUnicode {
    if negated {
        class::negated(class)
    } else {
        class
    }
}

/// The characters from `low` to `high`; surrogates are none.
fn range(low: u32, high: u32) -> ClassUnicode {
    let low = char::from_u32(low).unwrap_or('\u{e000}');
    let high = char::from_u32(high).unwrap_or('\u{d7ff}');
    if low > high {
        return class::of(&[]);
    }
    ClassUnicode::new([ClassUnicodeRange::new(low, high)])
}

/// Joins nodes into one, taking apart those that are of the same kind already.
fn join(nodes: Vec<Node>, kind: Kind) -> Node {
    let mut nodes = nodes;
    if nodes.len() <= 1 {
        return nodes
            .pop()
            .unwrap_or_else(|| Node::leaf(Hir::empty(), Kind::Other));
    }
    let hoisted = |node: &Node| {
        if node.kind == kind {
            node.height - 1
        } else {
            node.height
        }
    };
    let mut joined = Node {
        hir: Hir::empty(),
        kind,
        height: 1 + nodes.iter().map(hoisted).max().unwrap_or(0),
        size: nodes.iter().map(|node| node.size).sum(),
        repeats: nodes.iter().map(|node| node.repeats).max().unwrap_or(1),
    };
    let classes_only = nodes.iter().all(|node| node.kind == Kind::Class);
    let count = nodes.len() as u64;
    let parts = nodes.into_iter().map(|node| node.hir).collect();
    if kind == Kind::Concat {
        joined.hir = Hir::concat(parts);
        return joined;
    }
    joined.hir = Hir::alternation(parts);
    if classes_only {
        return Node::leaf(joined.hir, Kind::Class);
    }
    joined.size += count - 1;
    joined
}

fn repeated(sub: Node, min: u32, max: Option<u32>, greedy: bool, counted: bool) -> Node {
    let (low, high) = (u64::from(min), max.map(u64::from));
    let size = match (counted, high) {
        (false, None) => sub.size + if min == 0 { 2 } else { 1 },
        (false, Some(_)) => sub.size + 1,
        (true, None) if min == 0 => sub.size + 2,
        (true, None) => 1 + low * sub.size,
        (true, Some(high)) => (high * sub.size + high - low).max(1),
    };
    let repeats = match (counted, high) {
        (false, _) => sub.repeats,
        (true, Some(0)) => 1,
        (true, high) => high.unwrap_or(low).max(1).saturating_mul(sub.repeats),
    };
    let height = sub.height + 1;
    let hir = Hir::repetition(Repetition {
        min,
        max,
        greedy,
        sub: Box::new(sub.hir),
    });
    Node {
        hir,
        kind: Kind::Other,
        height,
        size,
        repeats,
    }
}

/// Reads `{min}`, `{min,}` or `{min,max}` with the number of bytes it takes.
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

/// Reads a decimal number without leading zeros; a huge one becomes the largest there is.
fn number(text: &str) -> Option<(u32, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.get(..text.len() - rest.len())?;
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}
