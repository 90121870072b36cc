//! Parses escapes and bracketed classes.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, Hir, Look};

use super::node::{Kind, Node};
use super::parse::Parser;
use super::{Error, ErrorKind, class};

impl Parser<'_> {
    pub(super) fn backslash(&mut self) -> Result<(), Error> {
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
            // A surrogate, which never occurs in a string.
            None => self.push(Node::leaf(Hir::fail(), Kind::Class)),
        }
    }

    /// Parses `\pN`, `\p{Greek}`, `\d` and similar classes, if there is one.
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

    /// Parses the escape of a single character.
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

    /// Parses up to three octal digits. A single nonzero digit would be a back-reference.
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

    /// Parses a bracketed class.
    pub(super) fn class(&mut self) -> Result<ClassUnicode, Error> {
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

/// The characters from `low` to `high`, without surrogates.
fn range(low: u32, high: u32) -> ClassUnicode {
    let low = char::from_u32(low).unwrap_or('\u{e000}');
    let high = char::from_u32(high).unwrap_or('\u{d7ff}');
    if low > high {
        return class::of(&[]);
    }
    ClassUnicode::new([ClassUnicodeRange::new(low, high)])
}
