//! Values that are alike, kept as what they differ in.
//!
//! A form is the text of one value. Another value has that form if it is the same text but for the contents
//! of its strings, and is kept as the strings that differ. Bindings of policies, of which there can be
//! hundreds of thousands, differ in a name, a uid and two times: a sixth of their text.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Larger values are kept as they are: they have many strings, and few of them are alike.
const MAX_TEXT: usize = 16 * 1024;
/// Forms that are remembered; values of others are kept as they are.
const MAX_FORMS: usize = 64;

/// What stands where a short string has its length: the number of an earlier string, the bytes of a uid,
/// or a length of two bytes follows.
const EARLIER: u8 = 255;
const UID: u8 = 254;
const LONG: u8 = 253;

/// A value, whole or as what it differs in from another.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Whole(Bytes),
    /// The numbers and contents of the strings that differ.
    Filled(Arc<Form>, Box<[u8]>),
}

impl Value {
    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            Self::Whole(bytes) => bytes.clone(),
            Self::Filled(form, fillings) => form.fill(fillings),
        }
    }

    /// The bytes that the value keeps in memory.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Filled(_, fillings) => fillings.len(),
        }
    }
}

/// The text of a value, and where its strings are that others may fill otherwise.
#[derive(Debug)]
pub(crate) struct Form {
    text: Box<[u8]>,
    strings: Box<[Range<u32>]>,
}

/// The forms of values under some prefixes.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    prefixes: &'static [&'static str],
    known: Mutex<HashMap<u64, Arc<Form>>>,
}

impl Forms {
    pub(crate) fn new(prefixes: &'static [&'static str]) -> Self {
        Self {
            prefixes,
            known: Mutex::default(),
        }
    }

    /// The value in the smallest form that is worth it.
    pub(crate) fn keep(&self, key: &str, bytes: Bytes) -> Value {
        let is_alike = |prefix: &&str| key.starts_with(*prefix);
        if bytes.len() > MAX_TEXT || !self.prefixes.iter().any(is_alike) {
            return Value::Whole(bytes);
        }
        self.filled(&bytes).unwrap_or(Value::Whole(bytes))
    }

    fn filled(&self, bytes: &Bytes) -> Option<Value> {
        let strings = strings(bytes)?;
        let skeleton = skeleton(bytes, &strings);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let form = match known.get(&skeleton) {
            Some(form) => Arc::clone(form),
            None if known.len() >= MAX_FORMS => return None,
            None => {
                let form = Arc::new(Form {
                    text: Box::from(&bytes[..]),
                    strings: strings.clone().into(),
                });
                known.insert(skeleton, Arc::clone(&form));
                form
            }
        };
        drop(known);
        let fillings = form.fillings(bytes, &strings)?;
        (fillings.len() * 2 < bytes.len()).then(|| Value::Filled(form, fillings.into()))
    }
}

impl Form {
    fn string(&self, number: usize) -> Option<&[u8]> {
        let range = self.strings.get(number)?;
        self.text.get(range.start as usize..range.end as usize)
    }

    /// The strings of a text that differ from those of the form; none if it has another form.
    fn fillings(&self, text: &[u8], strings: &[Range<u32>]) -> Option<Vec<u8>> {
        if strings.len() != self.strings.len()
            || !gaps(&self.text, &self.strings).eq(gaps(text, strings))
        {
            return None;
        }
        let mut fillings = Vec::new();
        let mut last = 0;
        for (number, range) in strings.iter().enumerate() {
            let string = text.get(range.start as usize..range.end as usize)?;
            if self.string(number)? == string {
                continue;
            }
            fillings.push(u8::try_from(number - last).ok()?);
            last = number;
            // Times of an object are often the same: a string that was there is told by its number.
            let earlier = strings[..number].iter().position(|range| {
                string.len() > 2
                    && text.get(range.start as usize..range.end as usize) == Some(string)
            });
            if let Some(earlier) = earlier.and_then(|earlier| u8::try_from(earlier).ok()) {
                fillings.extend_from_slice(&[EARLIER, earlier]);
            } else if let Some(uid) = uid_bytes(string) {
                fillings.push(UID);
                fillings.extend_from_slice(&uid);
            } else {
                let length = u16::try_from(string.len()).ok()?;
                match u8::try_from(length).ok().filter(|length| *length < LONG) {
                    Some(length) => fillings.push(length),
                    None => {
                        fillings.push(LONG);
                        fillings.extend_from_slice(&length.to_le_bytes());
                    }
                }
                fillings.extend_from_slice(string);
            }
        }
        Some(fillings)
    }

    /// The text with other strings. INVARIANT: the fillings were made by this form.
    fn fill(&self, fillings: &[u8]) -> Bytes {
        let mut rest = fillings;
        let mut number = 0;
        let mut next = || {
            let (&[step, head], tail) = rest.split_first_chunk::<2>()?;
            number += usize::from(step);
            let (filling, tail) = match head {
                EARLIER => {
                    let (earlier, tail) = tail.split_first()?;
                    (Filling::Earlier((*earlier).into()), tail)
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
        let mut text = Vec::with_capacity(self.text.len() + fillings.len());
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

/// The content of a string: told, or that of an earlier one.
enum Filling<'f> {
    String(&'f [u8]),
    Uid([u8; 16]),
    Earlier(usize),
}

/// The bytes of a uid in its usual form: groups of 8, 4, 4, 4 and 12 digits.
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

/// The contents of the strings of a JSON text, those aside that are names of members. None for what is no
/// such text, or has more than can be counted.
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

/// The parts of a text around its strings.
fn gaps<'t>(text: &'t [u8], strings: &'t [Range<u32>]) -> impl Iterator<Item = &'t [u8]> {
    let starts = std::iter::once(0).chain(strings.iter().map(|range| range.end as usize));
    let ends = strings.iter().map(|range| range.start as usize);
    let ends = ends.chain(std::iter::once(text.len()));
    starts
        .zip(ends)
        .map(|(start, end)| text.get(start..end).unwrap_or_default())
}

/// A hash of everything but the strings.
fn skeleton(text: &[u8], strings: &[Range<u32>]) -> u64 {
    let mut hasher = DefaultHasher::new();
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

    fn forms() -> Forms {
        Forms::new(&["/alike/"])
    }

    fn kept(forms: &Forms, text: &str) -> Value {
        forms.keep("/alike/a", Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn values_that_are_alike_are_kept_as_what_differs() {
        let forms = forms();
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
            let value = kept(&forms, &text);
            assert!(matches!(&value, Value::Filled(..)), "{text}");
            assert!(
                value.size() * 2 < text.len(),
                "{} of {}",
                value.size(),
                text.len()
            );
            assert_eq!(value.bytes(), text);
        }
        assert_eq!(forms.known.lock().unwrap().len(), 1);
    }

    #[test]
    fn others_are_kept_as_they_are() {
        let forms = forms();
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_TEXT));
        for text in ["{\"a\":\"b", "{\"a\":\"b\\", "", long.as_str()] {
            let value = kept(&forms, text);
            assert!(matches!(&value, Value::Whole(_)), "{text}");
            assert_eq!(value.bytes(), *text);
        }
        let elsewhere = forms.keep("/other/a", Bytes::from_static(br#"{"a":"b"}"#));
        assert!(matches!(elsewhere, Value::Whole(_)));
        // More forms than are remembered.
        for number in 0..2 * MAX_FORMS {
            let text = format!(r#"{{"member-{number}":"some text"}}"#);
            assert_eq!(kept(&forms, &text).bytes(), text);
        }
        assert_eq!(forms.known.lock().unwrap().len(), MAX_FORMS);
    }

    proptest! {
        #[test]
        fn every_value_comes_back(values in prop::collection::vec(r#"[{}":,a\\\[\]1 é]{0,24}"#, 1..12)) {
            let forms = forms();
            for value in values {
                prop_assert_eq!(kept(&forms, &value).bytes(), value);
            }
        }

        #[test]
        fn every_filling_comes_back(strings in prop::collection::vec(("[a-c]{0,4}", "[a-c]{0,4}", r#"(\\"|é|x){0,3}"#), 1..12)) {
            let forms = forms();
            for (one, two, three) in strings {
                let text = format!(r#"{{"one member":"{one}","another member":["{two}","{three}"],"the same":"{one}","number":1}}"#);
                prop_assert_eq!(kept(&forms, &text).bytes(), text);
            }
        }
    }
}
