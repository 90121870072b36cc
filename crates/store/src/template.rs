//! Compresses similar values against templates.
//!
//! A template is the JSON of one value. Another value has that template if its JSON is the same except
//! for the contents of strings, and is stored as the differing strings. Policy bindings, of which there may
//! be hundreds of thousands, differ in a name, a UID and two timestamps: a sixth of their size.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use triomphe::ThinArc;

use crate::{Entry, Revision};

/// Larger values are stored uncompressed: they have many strings, and few of them are shared.
const MAX_TEXT: usize = 16 * 1024;
/// The maximum number of templates; values without one are stored uncompressed.
const MAX_TEMPLATES: usize = 64;

/// Special codes instead of the length of a short string: followed by the index of an earlier string, by
/// nothing (for the name in the key), by the bytes of a UID, by the digits of a timestamp, or by a 2-byte
/// length.
const EARLIER: u8 = 255;
const UID: u8 = 254;
const LONG: u8 = 253;
const NAME: u8 = 252;
const TIME: u8 = 251;

/// An entry that is compressed against a template: the last segment of its key, its revisions, and the
/// indexes and contents of the strings that differ.
///
/// The layout after the template is: the length of the name in one byte, the name, the two revisions, and the
/// substitutions (differing strings). INVARIANT: created by [`Compressed::new`]. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Compressed(ThinArc<Arc<Template>, u8>);

impl Compressed {
    fn new(
        template: &Arc<Template>,
        name: &str,
        entry: &Entry,
        substitutions: &[u8],
    ) -> Option<Self> {
        let mut record = Vec::with_capacity(1 + name.len() + 20 + substitutions.len());
        record.push(u8::try_from(name.len()).ok()?);
        record.extend_from_slice(name.as_bytes());
        push_number(&mut record, entry.created.0);
        push_number(&mut record, entry.revision.0.checked_sub(entry.created.0)?);
        record.extend_from_slice(substitutions);
        Some(Self(ThinArc::from_header_and_slice(
            Arc::clone(template),
            &record,
        )))
    }

    /// The key, split before its last segment.
    pub(crate) fn key(&self) -> (&[u8], &[u8]) {
        let (name, _) = self.parts();
        (self.template().folder.as_bytes(), name)
    }

    pub(crate) fn created(&self) -> Revision {
        self.revisions().0
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revisions().1
    }

    pub(crate) fn entry(&self) -> Entry {
        let (folder, name) = self.key();
        let (created, revision, substitutions) = self.revisions();
        let key = [folder, name].concat();
        Entry {
            key: String::from_utf8_lossy(&key).into(),
            value: self.template().fill(substitutions, name),
            created,
            revision,
        }
    }

    /// The memory size of the entry in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.slice.len()
    }

    fn template(&self) -> &Template {
        &self.0.header.header
    }

    /// The name, and the rest of the record.
    fn parts(&self) -> (&[u8], &[u8]) {
        let (length, rest) = self.0.slice.split_first().unwrap_or((&0, &[]));
        rest.split_at_checked((*length).into()).unwrap_or_default()
    }

    fn revisions(&self) -> (Revision, Revision, &[u8]) {
        let (_, rest) = self.parts();
        let (created, rest) = split_number(rest);
        let (later, substitutions) = split_number(rest);
        (Revision(created), Revision(created + later), substitutions)
    }
}

/// Encodes a varint: seven bits per byte, least significant first.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn split_number(bytes: &[u8]) -> (u64, &[u8]) {
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return (number, bytes.get(place + 1..).unwrap_or_default());
        }
    }
    (number, &[])
}

/// A template: the JSON of a value, and the ranges of its strings.
#[derive(Debug)]
pub(crate) struct Template {
    /// The common key prefix, up to the last segment.
    folder: Box<str>,
    text: Box<[u8]>,
    strings: Box<[Range<u32>]>,
}

/// The templates of values under some prefixes.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    prefixes: &'static [&'static str],
    known: Mutex<HashMap<u64, Arc<Template>>>,
}

impl Templates {
    pub(crate) fn new(prefixes: &'static [&'static str]) -> Self {
        Self {
            prefixes,
            known: Mutex::default(),
        }
    }

    /// Compresses an entry, if that saves enough memory.
    pub(crate) fn compress(&self, entry: &Entry) -> Option<Compressed> {
        let is_prefix = |prefix: &&str| entry.key.starts_with(*prefix);
        if entry.value.len() > MAX_TEXT || !self.prefixes.iter().any(is_prefix) {
            return None;
        }
        let (folder, name) = entry.key.split_at(entry.key.rfind('/')? + 1);
        let text = &entry.value[..];
        let strings = strings(text)?;
        let template = self.template(folder, text, &strings)?;
        let substitutions = template.substitutions(text, &strings, name)?;
        if substitutions.len() * 2 >= text.len() {
            return None;
        }
        Compressed::new(&template, name, entry, &substitutions)
    }

    /// The template of a value; the first value with its structure becomes the template.
    fn template(&self, folder: &str, text: &[u8], strings: &[Range<u32>]) -> Option<Arc<Template>> {
        let skeleton = skeleton(folder, text, strings);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = known.get(&skeleton) {
            return (*template.folder == *folder).then(|| Arc::clone(template));
        }
        if known.len() >= MAX_TEMPLATES {
            return None;
        }
        let template = Arc::new(Template {
            folder: folder.into(),
            text: text.into(),
            strings: strings.into(),
        });
        known.insert(skeleton, Arc::clone(&template));
        Some(template)
    }
}

impl Template {
    fn string(&self, number: usize) -> Option<&[u8]> {
        let range = self.strings.get(number)?;
        self.text.get(range.start as usize..range.end as usize)
    }

    /// The strings that differ from the template; `None` if the value has another structure.
    fn substitutions(&self, text: &[u8], strings: &[Range<u32>], name: &str) -> Option<Vec<u8>> {
        if strings.len() != self.strings.len()
            || !gaps(&self.text, &self.strings).eq(gaps(text, strings))
        {
            return None;
        }
        let mut substitutions = Vec::new();
        let mut last = 0;
        for (number, range) in strings.iter().enumerate() {
            let string = text.get(range.start as usize..range.end as usize)?;
            if self.string(number)? == string {
                continue;
            }
            substitutions.push(u8::try_from(number - last).ok()?);
            last = number;
            // Timestamps of an object are often equal: a repeated string is encoded by its index.
            let earlier = strings[..number].iter().position(|range| {
                string.len() > 2
                    && text.get(range.start as usize..range.end as usize) == Some(string)
            });
            if string == name.as_bytes() {
                substitutions.push(NAME);
            } else if let Some(earlier) = earlier.and_then(|earlier| u8::try_from(earlier).ok()) {
                substitutions.extend_from_slice(&[EARLIER, earlier]);
            } else if let Some(digits) = time_digits(string) {
                substitutions.push(TIME);
                substitutions.extend_from_slice(&digits);
            } else if let Some(uid) = uid_bytes(string) {
                substitutions.push(UID);
                substitutions.extend_from_slice(&uid);
            } else {
                let length = u16::try_from(string.len()).ok()?;
                match u8::try_from(length).ok().filter(|length| *length < TIME) {
                    Some(length) => substitutions.push(length),
                    None => {
                        substitutions.push(LONG);
                        substitutions.extend_from_slice(&length.to_le_bytes());
                    }
                }
                substitutions.extend_from_slice(string);
            }
        }
        Some(substitutions)
    }

    /// Fills the template with other strings. INVARIANT: the substitutions were created by this template for this
    /// name.
    fn fill(&self, substitutions: &[u8], name: &[u8]) -> Bytes {
        let mut rest = substitutions;
        let mut number = 0;
        let mut next = || {
            let (&[step, head], tail) = rest.split_first_chunk::<2>()?;
            number += usize::from(step);
            let (filling, tail) = match head {
                EARLIER => {
                    let (earlier, tail) = tail.split_first()?;
                    (Filling::Earlier((*earlier).into()), tail)
                }
                NAME => (Filling::String(name), tail),
                TIME => {
                    let (digits, tail) = tail.split_first_chunk::<6>()?;
                    (Filling::Time(*digits), tail)
                }
                UID => {
                    let (uid, tail) = tail.split_first_chunk::<16>()?;
                    (Filling::Uid(*uid), tail)
                }
                LONG => {
                    let (length, tail) = tail.split_first_chunk::<2>()?;
                    let length = u16::from_le_bytes(*length);
                    let (string, tail) = tail.split_at_checked(length.into())?;
                    (Filling::String(string), tail)
                }
                length => {
                    let (string, tail) = tail.split_at_checked(length.into())?;
                    (Filling::String(string), tail)
                }
            };
            rest = tail;
            Some((number, filling))
        };
        let mut text = Vec::with_capacity(self.text.len() + substitutions.len());
        let mut written: Vec<Range<usize>> = Vec::with_capacity(self.strings.len());
        let mut filling = next();
        let mut position = 0;
        for (number, range) in self.strings.iter().enumerate() {
            let (start, end) = (range.start as usize, range.end as usize);
            text.extend_from_slice(self.text.get(position..start).unwrap_or_default());
            let at = text.len();
            match &filling {
                Some((filled, string)) if *filled == number => {
                    match string {
                        Filling::String(string) => text.extend_from_slice(string),
                        Filling::Uid(uid) => push_uid(&mut text, uid),
                        Filling::Time(digits) => push_time(&mut text, digits),
                        Filling::Earlier(earlier) => {
                            let range = written.get(*earlier).cloned().unwrap_or_default();
                            text.extend_from_within(range);
                        }
                    }
                    filling = next();
                }
                _ => text.extend_from_slice(self.text.get(start..end).unwrap_or_default()),
            }
            written.push(at..text.len());
            position = end;
        }
        text.extend_from_slice(self.text.get(position..).unwrap_or_default());
        Bytes::from(text)
    }
}

/// The contents of a string, or the index of an equal earlier one.
enum Filling<'f> {
    String(&'f [u8]),
    Uid([u8; 16]),
    Time([u8; 6]),
    Earlier(usize),
}

/// The bytes of a UUID in the usual form: groups of 8, 4, 4, 4 and 12 digits.
fn uid_bytes(text: &[u8]) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let is_hyphen = |place: usize| matches!(place, 8 | 13 | 18 | 23);
    if text.len() != 36 {
        return None;
    }
    let mut uid = [0; 16];
    let mut digits = 0;
    for (place, byte) in text.iter().enumerate() {
        match is_hyphen(place) {
            true if *byte == b'-' => {}
            true => return None,
            false => {
                let half = uid.get_mut(digits / 2)?;
                *half = *half << 4 | digit(*byte)?;
                digits += 1;
            }
        }
    }
    Some(uid)
}

fn push_uid(text: &mut Vec<u8>, uid: &[u8; 16]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (number, byte) in uid.iter().enumerate() {
        if matches!(number, 4 | 6 | 8 | 10) {
            text.push(b'-');
        }
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// The digits of a timestamp like `2026-01-31T12:00:00Z` as one number.
fn time_digits(text: &[u8]) -> Option<[u8; 6]> {
    if text.len() != TIME_PATTERN.len() {
        return None;
    }
    let mut number = 0u64;
    for (byte, pattern) in text.iter().zip(TIME_PATTERN) {
        match (byte, pattern) {
            (b'0'..=b'9', b'0') => number = number * 10 + u64::from(byte - b'0'),
            (byte, pattern) if byte == pattern && *pattern != b'0' => {}
            _ => return None,
        }
    }
    number.to_le_bytes().first_chunk::<6>().copied()
}

fn push_time(text: &mut Vec<u8>, digits: &[u8; 6]) {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(digits);
    let mut number = u64::from_le_bytes(bytes);
    let mut time = *TIME_PATTERN;
    for place in time.iter_mut().rev().filter(|place| **place == b'0') {
        *place += (number % 10) as u8;
        number /= 10;
    }
    text.extend_from_slice(&time);
}

/// A timestamp, with `0` for every digit: fourteen digits, which fit into six bytes.
const TIME_PATTERN: &[u8; 20] = b"0000-00-00T00:00:00Z";

/// The ranges of the strings of a JSON document, except member names. `None` for other input, or for too
/// many strings.
fn strings(text: &[u8]) -> Option<Vec<Range<u32>>> {
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some(opening) = text.get(rest..)?.iter().position(|byte| *byte == b'"') {
        let start = rest + opening + 1;
        let mut end = start;
        loop {
            match text.get(end)? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        rest = end + 1;
        if text.get(rest) != Some(&b':') {
            found.push(u32::try_from(start).ok()?..u32::try_from(end).ok()?);
        }
    }
    (found.len() < usize::from(u16::MAX)).then_some(found)
}

/// The parts of a document between its strings.
fn gaps<'t>(text: &'t [u8], strings: &'t [Range<u32>]) -> impl Iterator<Item = &'t [u8]> {
    let starts = std::iter::once(0).chain(strings.iter().map(|range| range.end as usize));
    let ends = strings.iter().map(|range| range.start as usize);
    let ends = ends.chain(std::iter::once(text.len()));
    starts
        .zip(ends)
        .map(|(start, end)| text.get(start..end).unwrap_or_default())
}

/// A hash of the key prefix and everything but the strings.
fn skeleton(folder: &str, text: &[u8], strings: &[Range<u32>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(folder.as_bytes());
    for gap in gaps(text, strings) {
        hasher.write(gap);
        hasher.write_u8(0);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn templates() -> Templates {
        Templates::new(&["/alike/"])
    }

    fn entry(key: &str, text: &str) -> Entry {
        Entry {
            key: key.into(),
            value: Bytes::copy_from_slice(text.as_bytes()),
            created: Revision(300),
            revision: Revision(70_000),
        }
    }

    /// The compressed size of a value.
    fn kept(templates: &Templates, text: &str) -> Option<usize> {
        let entry = entry("/alike/one", text);
        let kept = templates.compress(&entry)?;
        assert_eq!(kept.entry(), entry);
        assert_eq!(kept.created(), entry.created);
        assert_eq!(kept.key(), (&b"/alike/"[..], &b"one"[..]));
        Some(kept.size())
    }

    #[test]
    fn values_that_are_alike_are_kept_as_what_differs() {
        let templates = templates();
        let text = |name: &str, time: &str, last: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","labels":{{"a\"b":"c\\"}},"created":"{time}","fields":[{{"time":"{time}","v:\"Deny\"":{{}}}}]}},"spec":{{"n":1,"l":["{last}","y"]}}}}"#
            )
        };
        for (name, time, last) in [
            ("one", "2026-01-01T00:00:00Z", "x"),
            ("another", "2026-02-02T00:00:00Z", "x"),
            ("", "2026-02-02T00:00:00Z", r#"\u0041\""#),
            ("one", "2026-01-01T00:00:00Z", "x"),
            ("one", "9999-99-99T99:99:99Z", "0000-00-00T00:00:01Z"),
            ("one", "2026-01-01T00:00:00z", "2026-01-01T0a:00:00Z"),
            (
                "71c8bea7-04e2-450b-be68-9bdf54049b2e",
                "t",
                "71c8bea7-04e2-450b-be68-9bdf54049b2e",
            ),
            (
                "71c8bea7-04e2-450b-be68-9bdf54049b2E",
                "t",
                "71c8bea7_04e2-450b-be68-9bdf54049b2e",
            ),
        ] {
            let text = text(name, time, last);
            let size = kept(&templates, &text).expect("a text like the others");
            assert!(size * 2 < text.len(), "{size} of {}", text.len());
        }
        assert_eq!(templates.known.lock().unwrap().len(), 1);
    }

    #[test]
    fn others_are_kept_as_they_are() {
        let templates = templates();
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_TEXT));
        for text in ["{\"a\":\"b", "{\"a\":\"b\\", "", long.as_str()] {
            assert_eq!(kept(&templates, text), None, "{text}");
        }
        let text = r#"{"a long name of a member":"b"}"#;
        assert!(kept(&templates, text).is_some());
        let long = "n".repeat(256);
        for key in ["/other/a", &format!("/alike/{long}")] {
            assert!(templates.compress(&entry(key, text)).is_none(), "{key}");
        }
        // The same value under another key prefix has another template.
        let deeper = entry("/alike/folder/one", text);
        let kept_deeper = templates.compress(&deeper).expect("a text like the others");
        assert_eq!(kept_deeper.entry(), deeper);
        // More templates than the limit.
        for number in 0..2 * MAX_TEMPLATES {
            kept(&templates, &format!(r#"{{"member-{number}":"some text"}}"#));
        }
        assert_eq!(templates.known.lock().unwrap().len(), MAX_TEMPLATES);
    }

    proptest! {
        #[test]
        fn every_value_comes_back(values in prop::collection::vec(r#"[{}":,a\\\[\]1 é]{0,24}"#, 1..12)) {
            let templates = templates();
            for value in values {
                kept(&templates, &value);
            }
        }

        #[test]
        fn every_filling_comes_back(strings in prop::collection::vec(("[a-c]{0,4}|one", "[a-c]{0,4}", r#"(\\"|é|x){0,3}"#), 1..12)) {
            let templates = templates();
            for (one, two, three) in strings {
                let text = format!(r#"{{"one member":"{one}","another member":["{two}","{three}"],"the same":"{one}","number":1}}"#);
                prop_assert!(kept(&templates, &text).is_some());
            }
        }
    }
}
