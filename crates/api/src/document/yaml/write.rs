//! Formats YAML like Kubernetes' tools: sorted by key, lists at the indentation of their key, and
//! quotes only for strings that YAML 1.1 would resolve to another type.
//!
//! UPSTREAM: gopkg.in/yaml.v2 encode.go and emitterc.go, except that long lines are not folded.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::parse;

/// Formats a value as one YAML document in the block style.
///
/// ```
/// use lockgate_api::document::yaml;
/// let value = serde_json::json!({ "b": ["x", { "z": "yes" }], "a": {} });
/// assert_eq!(yaml::write(&value), "a: {}\nb:\n- x\n- z: \"yes\"\n");
/// ```
#[must_use]
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    // An explicit stack instead of recursion, so that depth only uses heap.
    let mut open: Vec<Block<'_>> = Vec::new();
    match Block::of(value, 0, false) {
        Some(block) => open.push(block),
        None => {
            out.push_str(&scalar(value, 2));
            out.push('\n');
        }
    }
    while let Some(block) = open.last_mut() {
        match block.write_next(&mut out) {
            Next::Inner(inner) => open.push(inner),
            Next::Scalar => {}
            Next::End => {
                open.pop();
            }
        }
    }
    out
}

fn margin(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// A collection being written.
struct Block<'v> {
    entries: Entries<'v>,
    indent: usize,
    /// True if the next entry follows a dash on the same line.
    is_begun: bool,
}

enum Entries<'v> {
    Members(std::vec::IntoIter<(&'v String, &'v Value)>),
    Items(std::slice::Iter<'v, Value>),
}

/// The result of writing a part of a block.
enum Next<'v> {
    /// A nested collection started, to be written before the rest of the block.
    Inner(Block<'v>),
    Scalar,
    End,
}

impl<'v> Block<'v> {
    /// The block of a nonempty collection.
    fn of(value: &'v Value, indent: usize, is_begun: bool) -> Option<Self> {
        let entries = match value {
            Value::Object(members) if !members.is_empty() => Entries::Members(by_name(members)),
            Value::Array(items) if !items.is_empty() => Entries::Items(items.iter()),
            _ => return None,
        };
        Some(Self {
            entries,
            indent,
            is_begun,
        })
    }

    fn write_next(&mut self, out: &mut String) -> Next<'v> {
        let indent = self.indent;
        let is_begun = std::mem::take(&mut self.is_begun);
        let start = |out: &mut String| {
            if !is_begun {
                margin(out, indent);
            }
        };
        match &mut self.entries {
            Entries::Members(members) => {
                let Some((key, value)) = members.next() else {
                    return Next::End;
                };
                start(out);
                out.push_str(&text(key, None));
                out.push(':');
                // Lists have the indentation of their key.
                let inner = if value.is_array() { indent } else { indent + 2 };
                if let Some(block) = Block::of(value, inner, false) {
                    out.push('\n');
                    return Next::Inner(block);
                }
                out.push(' ');
                out.push_str(&scalar(value, indent + 2));
            }
            Entries::Items(items) => {
                let Some(item) = items.next() else {
                    return Next::End;
                };
                start(out);
                out.push_str("- ");
                if let Some(block) = Block::of(item, indent + 2, true) {
                    return Next::Inner(block);
                }
                out.push_str(&scalar(item, indent + 2));
            }
        }
        out.push('\n');
        Next::Scalar
    }
}

fn by_name(members: &Map<String, Value>) -> std::vec::IntoIter<(&String, &Value)> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(key, _)| *key);
    members.into_iter()
}

fn scalar(value: &Value, block: usize) -> String {
    match value {
        Value::String(string) => text(string, Some(block)),
        Value::Array(_) => String::from("[]"),
        Value::Object(_) => String::from("{}"),
        other => other.to_string(),
    }
}

/// Formats a string. `block` is the indentation of a literal block scalar, where one is allowed.
fn text(text: &str, block: Option<usize>) -> String {
    let traits = Traits::of(text);
    if text.contains('\n') {
        return match block {
            Some(indent) if traits.allows_block => literal(text, indent),
            _ => double_quoted(text),
        };
    }
    // As a key, an unquoted `<<` would be a merge key.
    let merges = block.is_none() && text == "<<";
    if text.is_empty() || merges || (traits.allows_plain && !resolves_to_string(text)) {
        return double_quoted(text);
    }
    if traits.allows_plain {
        text.to_owned()
    } else if traits.allows_single {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        double_quoted(text)
    }
}

/// The allowed styles of a string.
struct Traits {
    allows_plain: bool,
    allows_single: bool,
    allows_block: bool,
}

impl Traits {
    fn of(text: &str) -> Self {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut breaks) = (false, false);
        let mut space_before_break = false;
        let mut before = None;
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let after = characters.peek().copied();
            let ends = after.is_none_or(|after| is_blank(after) || is_break(after));
            indicators |= match (character, before) {
                (
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"',
                    None,
                ) => true,
                ('%' | '@' | '`', None) => true,
                ('?' | '-', None) | (':', _) => ends,
                ('#', Some(before)) => is_blank(before) || is_break(before),
                _ => false,
            };
            special |= !is_printable(character);
            breaks |= is_break(character);
            space_before_break |= character == ' ' && after.is_some_and(is_break);
            before = Some(character);
        }
        let has_space_at = |end: Option<char>| end == Some(' ');
        let (leading, trailing) = (has_space_at(text.chars().next()), has_space_at(before));
        let is_tame = !special && !space_before_break;
        Self {
            allows_plain: is_tame && !breaks && !indicators && !leading && !trailing,
            allows_single: is_tame,
            allows_block: is_tame && !trailing,
        }
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && character != '\u{feff}'
}

/// Returns true if every parser resolves the plain scalar to a string, including parsers for which
/// `y` is a boolean, `1:30` a number and `2001-01-01` a date.
fn resolves_to_string(text: &str) -> bool {
    if matches!(text, "y" | "Y" | "n" | "N") {
        return false;
    }
    let is_of = |known: &str| {
        text.chars()
            .all(|c| c.is_ascii_digit() || known.contains(c))
    };
    let starts_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let is_sexagesimal = text.contains(':')
        && is_of("+-_:.")
        && starts_with_digit(text.trim_start_matches(['+', '-']));
    let is_day = starts_with_digit(text) && text.get(4..5) == Some("-") && is_of("-:.+TtZz \t");
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_no_number = [".inf", ".nan"]
        .iter()
        .any(|n| n.eq_ignore_ascii_case(unsigned));
    if is_sexagesimal || is_day || is_no_number {
        return false;
    }
    parse(text).is_ok_and(|document| document.root().as_str() == Some(text))
}

fn literal(text: &str, indent: usize) -> String {
    let hint = if text.starts_with([' ', '\n']) {
        "2"
    } else {
        ""
    };
    let chomp = if !text.ends_with('\n') {
        "-"
    } else if text == "\n" || text.ends_with("\n\n") {
        "+"
    } else {
        ""
    };
    let mut out = format!("|{hint}{chomp}");
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            margin(&mut out, indent);
            out.push_str(line);
        }
    }
    out
}

fn double_quoted(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        let escape = match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\0' => "\\0",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\t' => "\\t",
            '\n' => "\\n",
            '\u{b}' => "\\v",
            '\u{c}' => "\\f",
            '\r' => "\\r",
            '\u{1b}' => "\\e",
            '\u{85}' => "\\N",
            '\u{2028}' => "\\L",
            '\u{2029}' => "\\P",
            other if is_printable(other) => {
                out.push(other);
                continue;
            }
            other => {
                let code = u32::from(other);
                // Writing to a string cannot fail.
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02X}"),
                    0x100..=0xffff => write!(out, "\\u{code:04X}"),
                    _ => write!(out, "\\U{code:08X}"),
                };
                continue;
            }
        };
        out.push_str(escape);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn back(text: &str) -> Value {
        let document = parse(text).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
        serde_json::from_str(&document.root().to_json()).unwrap()
    }

    #[test]
    fn writes_as_kubernetes_tools_do() {
        let value = json!({
            "b": ["x", { "z": 1, "a": [] }, [1, 2]],
            "a": { "text": "a\n b\n", "empty": "", "map": {} },
            "c": true,
        });
        let want = "a:\n  empty: \"\"\n  map: {}\n  text: |\n    a\n     b\nb:\n- x\n- a: []\n  z: 1\n- - 1\n  - 2\nc: true\n";
        assert_eq!(write(&value), want);
        assert_eq!(back(want), value);
    }

    #[test]
    fn depth_costs_no_stack() {
        let mut value = json!(1);
        for level in 0..6_000 {
            value = if level % 2 == 0 {
                Value::Array(vec![value])
            } else {
                Value::Object(Map::from_iter([(String::from("a"), value)]))
            };
        }
        let written = write(&value);
        assert!(
            written.starts_with("a:\n- a:\n  - a:"),
            "{}",
            &written[..40]
        );
        // Dropped level by level: dropping a `serde_json` value recurses.
        while let Some(inner) = match value {
            Value::Array(ref mut items) => items.pop(),
            Value::Object(ref mut members) => members.remove("a"),
            _ => None,
        } {
            value = inner;
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        let odd = prop::sample::select(vec![
            "y",
            "no",
            "True",
            "1",
            "1.5",
            "null",
            "~",
            "-",
            "a: b",
            "a #b",
            "- a",
            "?",
            "'a",
            "\"",
            "\t",
            "\n",
            "\n\n",
            " ",
            "a ",
            " a\nb",
            "a\n\nb\n",
            "a \nb",
            "\u{7}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "😀",
            "0x1f",
            "1:30",
            "2001-01-01",
            "<<",
            "=",
            "...",
            "--- a",
            "#",
            "\\",
            "\r\n",
            "é",
            ".inf",
            "1e3",
            "0o7",
            "{a",
            "[",
            "a}",
            "&a",
            "*a",
            "!a",
            "|",
            ">",
            "%",
            "@",
            "`",
        ]);
        let parts = prop_oneof![odd.prop_map(str::to_owned), "\\PC{0,4}", "[ a\n:#-]{0,6}"];
        prop::collection::vec(parts, 0..4).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn every_text_is_read_back(a in texts(), b in texts(), key in texts()) {
            let value = json!({ "x": [a, { "k": b }], "m": { key: "v" } });
            prop_assert_eq!(back(&write(&value)), value);
        }
    }
}
