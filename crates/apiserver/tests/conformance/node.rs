//! A JSON tree that preserves the order of fields, as scenarios are sent in the order they are written.

use std::fmt;
use std::sync::LazyLock;

use lockgate_api::document::{Kind, Value, yaml};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::pattern::Pattern;

/// Numbers in scenarios, which are written for a YAML parser that reads `1e3` as a string.
static NUMBER: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::new(
        r"^[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?)$",
    )
});

/// A JSON value.
#[derive(Debug, Clone, Default)]
pub(crate) enum Node {
    #[default]
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Self>),
    Map(Map),
}

/// Fields in the order of the source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Map(Vec<(String, Node)>);

impl Map {
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.0.iter_mut().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// Sets a field, in place or at the end.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Node>) {
        let value = value.into();
        match self.get_mut(key) {
            Some(there) => *there = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Node> {
        let at = self.0.iter().position(|(k, _)| k == key)?;
        Some(self.0.remove(at).1)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    fn sorted(&self) -> Vec<(&str, &Node)> {
        let mut members: Vec<_> = self.iter().collect();
        members.sort_by_key(|&(key, _)| key);
        members
    }
}

impl FromIterator<(String, Node)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, Node)>>(members: I) -> Self {
        let mut map = Self::default();
        for (key, value) in members {
            map.set(&key, value);
        }
        map
    }
}

/// Creates a map from name-value pairs.
macro_rules! map {
    ($($key:literal: $value:expr),* $(,)?) => {{
        let mut map = crate::node::Map::default();
        $(map.set($key, $value);)*
        map
    }};
}
pub(crate) use map;

impl From<bool> for Node {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i128> for Node {
    fn from(value: i128) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Node {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Node {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Map> for Node {
    fn from(value: Map) -> Self {
        Self::Map(value)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Node {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

/// Ignores the order of fields, but not the type of numbers.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a.sorted() == b.sorted(),
            _ => false,
        }
    }
}

impl Node {
    pub(crate) fn parse_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    pub(crate) fn parse_yaml(text: &str) -> Result<Self, String> {
        let document = yaml::parse(text).map_err(|error| error.to_string())?;
        Self::read_yaml(document.root(), text)
    }

    /// Reads scalars as the recorder does, where the YAML reader of Kubernetes differs: `y` and `n` are strings, and
    /// fewer scalars are numbers.
    fn read_yaml(value: Value<'_>, source: &str) -> Result<Self, String> {
        let whole = source.get(value.span().range()).unwrap_or_default();
        // An anchor may precede it.
        let written = whole.rsplit(char::is_whitespace).next().unwrap_or_default();
        // The source of an alias is elsewhere, and quoted scalars are always strings.
        let is_text = !written.starts_with(['*', '"', '\''])
            && match value.kind() {
                Kind::Bool => is_letter(written),
                Kind::Number => !NUMBER.matches(written),
                _ => false,
            };
        if is_text {
            return Ok(Self::from(written));
        }
        Ok(match value.kind() {
            Kind::Array => {
                let items: Result<_, _> = value
                    .items()
                    .map(|item| Self::read_yaml(item, source))
                    .collect();
                Self::List(items?)
            }
            Kind::Object => {
                let members: Result<Map, String> = value
                    .members()
                    .map(|member| {
                        let written = source.get(member.key_span.range()).unwrap_or_default();
                        let key = if is_letter(written) {
                            written
                        } else {
                            member.key
                        };
                        Ok((key.to_owned(), Self::read_yaml(member.value, source)?))
                    })
                    .collect();
                members?.into()
            }
            _ => Self::parse_json(&value.to_json())?,
        })
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The value of a field.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.get(key)
    }

    /// The items of a list; none for anything else.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The fields of a map; none for anything else.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.as_map().into_iter().flat_map(Map::iter)
    }

    /// The string in the field `key`, or an error.
    pub(crate) fn text(&self, key: &str) -> Result<&str, String> {
        self.get(key)
            .and_then(Self::as_str)
            .ok_or_else(|| format!("`{key}` is missing or no text in {}", self.short()))
    }

    /// The value at a JSON pointer, with or without the first slash.
    pub(crate) fn lookup(&self, pointer: &str) -> Option<&Self> {
        let mut node = self;
        for part in pointer_parts(pointer) {
            node = match node {
                Self::List(items) => items.get(part.parse::<usize>().ok()?)?,
                Self::Map(map) => map.get(&part)?,
                _ => return None,
            };
        }
        Some(node)
    }

    /// Sets the field at a JSON pointer; null removes it.
    pub(crate) fn assign(&mut self, pointer: &str, value: &Self) -> Result<(), String> {
        let bad = || format!("there is nothing at `{pointer}`");
        let mut parts = pointer_parts(pointer);
        let last = parts.pop().ok_or_else(bad)?;
        let mut node = self;
        for part in parts {
            node = match node {
                Self::List(items) => part
                    .parse()
                    .ok()
                    .and_then(|index: usize| items.get_mut(index))
                    .ok_or_else(bad)?,
                Self::Map(map) => {
                    if map.get(&part).is_none() {
                        map.set(&part, Map::default());
                    }
                    map.get_mut(&part).ok_or_else(bad)?
                }
                _ => return Err(bad()),
            };
        }
        match node {
            Self::List(items) => {
                let index: usize = last.parse().map_err(|_| bad())?;
                *items.get_mut(index).ok_or_else(bad)? = value.clone();
            }
            Self::Map(map) if value.is_null() => drop(map.remove(&last)),
            Self::Map(map) => map.set(&last, value.clone()),
            _ => return Err(bad()),
        }
        Ok(())
    }

    /// JSON in the recorder's format: a space after commas and colons, ASCII only.
    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Order::Kept);
        out
    }

    /// Like [`Node::to_json`], with fields sorted by name.
    pub(crate) fn to_sorted_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Order::Sorted);
        out
    }

    /// A scalar as a header value: a string as it is, anything else as JSON.
    pub(crate) fn spelled(&self) -> String {
        self.as_str().map_or_else(|| self.to_json(), str::to_owned)
    }

    /// JSON for messages, truncated.
    pub(crate) fn short(&self) -> String {
        const LIMIT: usize = 400;
        let text = self.to_json();
        match text.char_indices().nth(LIMIT) {
            None => text,
            Some((at, _)) => format!("{}… ({} characters)", &text[..at], text.chars().count()),
        }
    }

    fn write(&self, out: &mut String, order: Order) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Int(value) => out.push_str(&value.to_string()),
            Self::Float(value) => out.push_str(&format!("{value:?}")),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    item.write(out, order);
                }
                out.push(']');
            }
            Self::Map(map) => {
                let members = match order {
                    Order::Kept => map.iter().collect(),
                    Order::Sorted => map.sorted(),
                };
                out.push('{');
                for (index, (key, value)) in members.into_iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    write_text(key, out);
                    out.push_str(": ");
                    value.write(out, order);
                }
                out.push('}');
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Order {
    Kept,
    Sorted,
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

/// Returns true for single letters that Kubernetes parses as booleans.
fn is_letter(written: &str) -> bool {
    matches!(written, "y" | "Y" | "n" | "N")
}

fn pointer_parts(pointer: &str) -> Vec<String> {
    pointer
        .trim_matches('/')
        .split('/')
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut map = Map::default();
        while let Some((key, value)) = access.next_entry::<String, Node>()? {
            map.set(&key, value);
        }
        Ok(Node::Map(map))
    }
}

#[test]
fn writes_json_as_the_recorder_does() {
    let text = r#"{"b": [1, -2, 1.5, null, true], "a": "\"\\\n\u007f\u00e9\ud83d\ude00"}"#;
    let node = Node::parse_json(text).unwrap();
    assert_eq!(node.to_json(), text);
    assert!(node.to_sorted_json().starts_with(r#"{"a": "#));
}

#[test]
fn reads_yaml_as_the_recorder_does() {
    let text =
        "a: &a {y: y, on: [yes, 'no', 1e3, 1.5, 0x10, 010, -7, null, ~]}\nb: *a\nc: [&n 5, *n]\n";
    let inner = r#"{"y": "y", "true": [true, "no", "1e3", 1.5, 16, 8, -7, null, null]}"#;
    assert_eq!(
        Node::parse_yaml(text).unwrap().to_json(),
        format!(r#"{{"a": {inner}, "b": {inner}, "c": [5, 5]}}"#)
    );
}

#[test]
fn finds_and_assigns_by_pointer() {
    let mut node = Node::parse_json(r#"{"a": [{"x/y": 1}], "b": 2}"#).unwrap();
    assert_eq!(node.lookup("/a/0/x~1y"), Some(&Node::Int(1)));
    assert_eq!(node.lookup("a/1"), None);
    node.assign("/a/0/x~1y", &Node::Int(3)).unwrap();
    node.assign("/new/deep", &Node::from("here")).unwrap();
    node.assign("/b", &Node::Null).unwrap();
    assert_eq!(
        node.to_json(),
        r#"{"a": [{"x/y": 3}], "new": {"deep": "here"}}"#
    );
    assert!(node.assign("/a/7/x", &Node::Null).is_err());
}
