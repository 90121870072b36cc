//! Email addresses as parsed by Go's `net/mail`: `a@b`, `Name <a@b>`, comments, groups of one.
//!
//! UPSTREAM: Go net/mail/message.go (ParseAddress)

use std::net::IpAddr;

use lockgate_go::base64;

/// Returns true if a string is a single email address.
pub(super) fn is_address(text: &str) -> bool {
    let mut reader = Reader(text);
    let Some(addresses) = reader.address(true) else {
        return false;
    };
    reader.skip_comments().is_some() && reader.0.is_empty() && addresses == 1
}

struct Reader<'t>(&'t str);

fn is_visible(c: char) -> bool {
    c.is_ascii_graphic() || !c.is_ascii()
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn is_atom_char(c: char) -> bool {
    const SPECIALS: &[char] = &['(', ')', '<', '>', '[', ']', ':', ';', '@', '\\', ',', '"'];
    !SPECIALS.contains(&c) && is_visible(c)
}

impl<'t> Reader<'t> {
    /// Parses an address or, if allowed, a group; returns the number of addresses.
    fn address(&mut self, may_be_group: bool) -> Option<usize> {
        self.skip_space();
        if self.0.is_empty() {
            return None;
        }
        if self.spec().is_some() {
            self.skip_space();
            if self.consume('(') {
                self.comment()?;
            }
            return Some(1);
        }
        if !self.0.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if may_be_group && self.consume(':') {
            return self.group();
        }
        if !self.consume('<') {
            return None;
        }
        self.spec()?;
        self.consume('>').then_some(1)
    }

    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        let mut addresses = 0;
        if !self.consume(';') {
            loop {
                addresses += self.address(false)?;
                self.skip_comments()?;
                if self.consume(';') {
                    break;
                }
                if !self.consume(',') {
                    return None;
                }
            }
        }
        self.skip_comments()?;
        Some(addresses)
    }

    /// Parses `local@domain`; consumes nothing on failure.
    fn spec(&mut self) -> Option<()> {
        let start = self.0;
        let found = self.try_spec();
        if found.is_none() {
            self.0 = start;
        }
        found
    }

    fn try_spec(&mut self) -> Option<()> {
        self.skip_space();
        if self.0.starts_with('"') {
            let local = self.quoted()?;
            if local == 0 {
                return None;
            }
        } else {
            self.dotted_atom()?;
        }
        if !self.consume('@') {
            return None;
        }
        self.skip_space();
        if self.consume('[') {
            let (literal, rest) = self.0.split_once(']')?;
            self.0 = rest;
            let is_text = |c: char| is_visible(c) && !matches!(c, '[' | '\\');
            (literal.chars().all(is_text) && literal.parse::<IpAddr>().is_ok()).then_some(())
        } else {
            self.dotted_atom()
        }
    }

    fn dotted_atom(&mut self) -> Option<()> {
        let atom = self.atom()?;
        let is_tidy = !atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..");
        is_tidy.then_some(())
    }

    fn atom(&mut self) -> Option<&'t str> {
        let rest = self.0.trim_start_matches(is_atom_char);
        let atom = self.0.strip_suffix(rest).filter(|atom| !atom.is_empty())?;
        self.0 = rest;
        Some(atom)
    }

    /// Parses a quoted string; returns its length in characters.
    fn quoted(&mut self) -> Option<usize> {
        let mut chars = self.0.chars();
        chars.next();
        let mut length = 0;
        let mut is_escaped = false;
        loop {
            let c = chars.next()?;
            match c {
                _ if is_escaped => {
                    if !is_visible(c) && !is_space(c) {
                        return None;
                    }
                    is_escaped = false;
                    length += 1;
                }
                '"' => break,
                '\\' => is_escaped = true,
                _ if is_visible(c) || is_space(c) => length += 1,
                _ => return None,
            }
        }
        self.0 = chars.as_str();
        Some(length)
    }

    /// Parses one or more words.
    fn phrase(&mut self) -> Option<()> {
        // Adjacent encoded words count as one.
        let (mut words, mut pending) = (0, false);
        loop {
            if words > 0 {
                self.skip_comments()?;
            }
            self.skip_space();
            if self.0.is_empty() {
                // The caller reports a missing word.
                return Some(());
            }
            let word = if self.0.starts_with('"') {
                self.quoted().map(|_| Word::Plain)
            } else {
                self.atom().map(Word::of)
            };
            match word {
                Some(Word::Plain) => {
                    words += 1;
                    pending = false;
                }
                Some(Word::Encoded { is_empty }) => pending |= !is_empty,
                Some(Word::OtherCharset) | None => return (words > 0 || pending).then_some(()),
            }
        }
    }

    fn skip_space(&mut self) {
        self.0 = self.0.trim_start_matches(is_space);
    }

    fn consume(&mut self, c: char) -> bool {
        let rest = self.0.strip_prefix(c);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Skips white space and comments; `None` if one does not end.
    fn skip_comments(&mut self) -> Option<()> {
        self.skip_space();
        while self.consume('(') {
            self.comment()?;
            self.skip_space();
        }
        Some(())
    }

    /// Skips the rest of a comment, including nested ones.
    fn comment(&mut self) -> Option<()> {
        let mut depth = 1_usize;
        let mut chars = self.0.chars();
        while depth > 0 {
            match chars.next()? {
                '(' => depth += 1,
                ')' => depth -= 1,
                '\\' => drop(chars.next()?),
                _ => {}
            }
        }
        self.0 = chars.as_str();
        Some(())
    }
}

/// A word of a display name.
enum Word {
    Plain,
    /// An encoded word, such as `=?utf-8?q?J=C3=BCrgen?=`.
    Encoded {
        is_empty: bool,
    },
    /// An encoded word in an unsupported charset.
    OtherCharset,
}

impl Word {
    // UPSTREAM: Go mime/encodedword.go (Decode)
    fn of(word: &str) -> Self {
        let inner = word
            .strip_prefix("=?")
            .and_then(|rest| rest.strip_suffix("?="))
            .filter(|_| word.len() >= 8 && word.matches('?').count() == 4);
        let mut parts = inner.unwrap_or_default().splitn(3, '?');
        let (Some(charset), Some(encoding), Some(text)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Self::Plain;
        };
        let is_readable = match encoding {
            "b" | "B" => base64::decode(text).is_ok(),
            "q" | "Q" => is_quoted_printable(text),
            _ => false,
        };
        if charset.is_empty() || !is_readable {
            return Self::Plain;
        }
        let known = ["utf-8", "iso-8859-1", "us-ascii"];
        if known
            .iter()
            .any(|known| known.eq_ignore_ascii_case(charset))
        {
            Self::Encoded {
                is_empty: text.is_empty(),
            }
        } else {
            Self::OtherCharset
        }
    }
}

fn is_quoted_printable(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_fine = match byte {
            b'=' => [bytes.next(), bytes.next()]
                .into_iter()
                .all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit())),
            byte => matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'),
        };
        if !is_fine {
            return false;
        }
    }
    true
}
