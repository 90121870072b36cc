//! Finds fields of stored objects without parsing.
//!
//! Stored texts are compact, without whitespace between tokens. Other or broken texts end the scan with [`ScanError`],
//! and the caller parses them instead.

use memchr::{memchr_iter, memchr2, memchr3};

/// A text that a scan cannot handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanError;

/// A field: its name without quotes, and its value, both unparsed.
pub(crate) type Member<'b> = (&'b [u8], &'b [u8]);

/// The fields of an object, in order.
#[derive(Debug, Clone)]
pub(crate) struct Members<'b> {
    /// The text from the next field on, its comma included.
    rest: &'b [u8],
    is_first: bool,
}

impl<'b> Members<'b> {
    /// The fields of the object at the start of a text.
    pub(crate) fn of(text: &'b [u8]) -> Result<Self, ScanError> {
        let rest = text.strip_prefix(b"{").ok_or(ScanError)?;
        Ok(Self {
            rest,
            is_first: true,
        })
    }

    /// The fields that follow a position in an object.
    pub(crate) fn following(rest: &'b [u8]) -> Self {
        Self {
            rest,
            is_first: false,
        }
    }

    /// The next field; `None` at the end of the object.
    pub(crate) fn next(&mut self) -> Result<Option<Member<'b>>, ScanError> {
        let text = match self.rest {
            [b'}', ..] => return Ok(None),
            [b',', rest @ ..] if !self.is_first => rest,
            rest if self.is_first => rest,
            _ => return Err(ScanError),
        };
        let (name, text) = split(text, string(text)?)?;
        let [b'"', name @ .., b'"'] = name else {
            return Err(ScanError);
        };
        let text = text.strip_prefix(b":").ok_or(ScanError)?;
        let (found, rest) = split(text, value(text)?)?;
        (self.rest, self.is_first) = (rest, false);
        Ok(Some((name, found)))
    }

    /// The value of the next field with that name, if any.
    pub(crate) fn find(&mut self, name: &[u8]) -> Result<Option<&'b [u8]>, ScanError> {
        while let Some((found, value)) = self.next()? {
            if found == name {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The text after the object.
    pub(crate) fn after(mut self) -> Result<&'b [u8], ScanError> {
        while self.next()?.is_some() {}
        self.rest.strip_prefix(b"}").ok_or(ScanError)
    }
}

fn split(text: &[u8], at: usize) -> Result<(&[u8], &[u8]), ScanError> {
    text.split_at_checked(at).ok_or(ScanError)
}

/// The text between the quotes of a string without escapes.
pub(crate) fn plain_text(value: &[u8]) -> Result<&str, ScanError> {
    match value {
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => {
            std::str::from_utf8(text).map_err(|_| ScanError)
        }
        _ => Err(ScanError),
    }
}

/// The length of the string at the start of a text, including quotes.
fn string(text: &[u8]) -> Result<usize, ScanError> {
    if text.first() != Some(&b'"') {
        return Err(ScanError);
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\');
    let mut at = 1;
    loop {
        let rest = text.get(at..).ok_or(ScanError)?;
        // Most strings are names, shorter than the setup of a vectorised search.
        let (near, far) = rest.split_at(rest.len().min(SHORT));
        let found = match near.iter().position(is_special) {
            Some(found) => found,
            None => SHORT + memchr2(b'"', b'\\', far).ok_or(ScanError)?,
        };
        if rest.get(found) == Some(&b'"') {
            return Ok(at + found + 1);
        }
        at += found + 2;
    }
}

/// The length up to which strings are searched byte by byte.
const SHORT: usize = 24;

/// The length of the value at the start of a text.
fn value(text: &[u8]) -> Result<usize, ScanError> {
    match text.first() {
        Some(b'"') => string(text),
        Some(b'{' | b'[') => nested(text),
        Some(b'0'..=b'9' | b'-' | b't' | b'f' | b'n') => {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
            let end = text.iter().position(|byte| !is_part(byte));
            end.ok_or(ScanError)
        }
        _ => Err(ScanError),
    }
}

/// The length of the object or list at the start of a text. Only brackets of its own kind are counted, since the others
/// are balanced between them: most of the managed fields is skipped.
fn nested(text: &[u8]) -> Result<usize, ScanError> {
    let (opening, closing) = match text.first() {
        Some(b'{') => (b'{', b'}'),
        _ => (b'[', b']'),
    };
    let (mut at, mut depth, mut quotes) = (0, 0_usize, 0);
    loop {
        let rest = text.get(at..).ok_or(ScanError)?;
        let found = memchr3(opening, closing, b'\\', rest).ok_or(ScanError)?;
        quotes += memchr_iter(b'"', &rest[..found]).count();
        let byte = rest[found];
        at += found + 1;
        if byte == b'\\' {
            // An escaped character is not a closing quote.
            at += 1;
        } else if quotes % 2 == 0 {
            depth = if byte == opening {
                depth + 1
            } else {
                depth - 1
            };
            if depth == 0 {
                return Ok(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn all(text: &str) -> Result<Vec<(String, String)>, ScanError> {
        let mut members = Members::of(text.as_bytes())?;
        let mut found = Vec::new();
        while let Some((name, value)) = members.next()? {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            found.push((text(name), text(value)));
        }
        Ok(found)
    }

    fn document() -> impl Strategy<Value = Value> {
        let text = r#"[a\\"{}\[\]:,é]{0,30}"#;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(text, inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_ends_where_it_ends(document in document(), rest in r#"[,}\]"]{1,9}"#) {
            let text = document.to_string();
            prop_assert_eq!(value(format!("{text}{rest}").as_bytes()), Ok(text.len()));
        }
    }

    #[test]
    fn finds_members_as_they_are_written() {
        let text = r#"{"a":"x\"}","b\\":{"c":[1,{"]":"}"}]},"d":-1.5e3,"e":null,"f":[]},"rest":1"#;
        for length in [SHORT - 1, SHORT, SHORT + 1, 4 * SHORT] {
            let long = "x".repeat(length);
            let text = format!(r#"{{"a":"{long}","b":"{long}\"y"}}"#);
            let want = [
                ("a", format!("\"{long}\"")),
                ("b", format!("\"{long}\\\"y\"")),
            ];
            let want = want.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(all(&text).unwrap(), want);
        }
        let want = [
            ("a", r#""x\"}""#),
            (r"b\\", r#"{"c":[1,{"]":"}"}]}"#),
            ("d", "-1.5e3"),
            ("e", "null"),
            ("f", "[]"),
        ];
        let want = want.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(all(text).unwrap(), want);
        let members = Members::of(text.as_bytes()).unwrap();
        let rest = members.clone().after().unwrap();
        assert_eq!(rest, br#","rest":1"#);
        let mut following = Members::following(br#","rest":1}"#);
        assert_eq!(following.find(b"rest").unwrap(), Some(&b"1"[..]));
        assert_eq!(members.clone().find(b"d").unwrap(), Some(&b"-1.5e3"[..]));
        assert_eq!(members.clone().find(b"rest").unwrap(), None);
        assert_eq!(all("{}").unwrap(), []);
    }

    #[test]
    fn leaves_what_it_cannot_read_to_others() {
        for text in [
            "",
            "[",
            "{",
            "{\"",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":\"",
            "{\"a\":{",
            "{\"a\":[}",
            "{\"a\" :1}",
            "{\"a\": 1}",
            "{ \"a\":1}",
            "{\"a\":1,}",
            "{\"a\":1 ,\"b\":2}",
            "{,\"a\":1}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":\"\\",
            "{\"a\":x}",
        ] {
            assert_eq!(all(text), Err(ScanError), "{text}");
        }
    }

    #[test]
    fn reads_strings_without_escapes() {
        assert_eq!(plain_text(br#""shop""#), Ok("shop"));
        assert_eq!(plain_text(br#""""#), Ok(""));
        for other in [&br#""a\u003c""#[..], b"1", b"\"", b"", b"\"\xff\""] {
            assert_eq!(plain_text(other), Err(ScanError));
        }
    }
}
