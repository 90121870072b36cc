//! Applies fixes to a text, preserving comments, order and layout.

use std::ops::Range;

use lockgate_api::document::{Kind, Value, yaml};
use lockgate_lint::Fix;
use lockgate_lint::fix::{Exclusion, requirement};
use serde_json::Value as Json;

/// A replacement of a part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The replaced bytes.
    pub range: Range<usize>,
    /// The new text.
    pub text: String,
}

/// The fixes of one object.
#[derive(Debug, Clone)]
pub struct ObjectFixes {
    /// The source, as an index into the report's.
    pub source: usize,
    /// The number of the document in the source.
    pub document: usize,
    /// The list indexes that lead from the document to the object.
    pub trail: Vec<usize>,
    /// The fixes, with the edits that make them.
    pub fixes: Vec<(Fix, Edit)>,
}

/// Fields after which to insert a new one, in order of preference.
const ANCHORS: [&str; 5] = [
    "timeoutSeconds",
    "failurePolicy",
    "matchPolicy",
    "sideEffects",
    "name",
];

/// The edit for a fix; `None` if the layout does not support it.
pub(super) fn edit(text: &str, object: Value<'_>, fix: &Fix) -> Option<Edit> {
    let page = Page(text);
    let hook = object.get("webhooks")?.items().nth(fix.webhook())?;
    match fix {
        Fix::Set { field, value, .. } => page.set(hook, field, value),
        Fix::Exclude { namespaces, .. } => {
            let json: Json = serde_json::from_str(&hook.to_json()).ok()?;
            page.exclude(hook, &Exclusion::of(&json)?, &json, namespaces)
        }
        _ => None,
    }
}

/// The text with edits applied. Edits do not overlap; two insertions at one position keep their order.
pub(super) fn edited(text: &str, edits: &[Edit]) -> Option<String> {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|edit| edit.range.start);
    let mut out = String::with_capacity(text.len() + 64 * edits.len());
    let mut at = 0;
    for edit in edits {
        out.push_str(text.get(at..edit.range.start)?);
        out.push_str(&edit.text);
        at = edit.range.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

struct Page<'t>(&'t str);

impl Page<'_> {
    fn set(&self, hook: Value<'_>, field: &str, value: &Json) -> Option<Edit> {
        let mut place = Some(hook);
        for part in field.split('.') {
            let (name, index) = match part.split_once('[') {
                Some((name, index)) => (name, index.trim_end_matches(']').parse().ok()),
                None => (part, None),
            };
            place = place.and_then(|place| place.get(name));
            if let Some(index) = index {
                let index: usize = index;
                place = place.and_then(|place| place.items().nth(index));
            }
        }
        let Some(place) = place else {
            return self.insert(hook, &Member::scalar(field, value));
        };
        let mut range = place.span().range();
        if self.0.get(range.clone())?.starts_with('&') {
            // An anchor belongs to the value that follows.
            let anchored = self.0.get(range.clone())?;
            range.start += anchored.find(' ')? + 1;
        }
        let old = self.0.get(range.clone()).filter(|old| !old.is_empty())?;
        let plain = scalar(value);
        let text = match (old.chars().next()?, value) {
            ('"', Json::String(_)) => value.to_string(),
            ('\'', Json::String(text)) => format!("'{text}'"),
            _ => plain,
        };
        let is_scalar = !matches!(place.kind(), Kind::Array | Kind::Object);
        is_scalar.then_some(Edit { range, text })
    }

    fn exclude(
        &self,
        hook: Value<'_>,
        place: &Exclusion,
        json: &Json,
        namespaces: &[String],
    ) -> Option<Edit> {
        let selector = || hook.get("namespaceSelector");
        let requirements = || selector()?.get("matchExpressions");
        match place {
            Exclusion::Selector if selector().is_some() => None,
            Exclusion::Selector => self.insert(hook, &Member::selector(namespaces)),
            Exclusion::Requirements if requirements().is_some() => None,
            Exclusion::Requirements => self.insert(selector()?, &Member::requirements(namespaces)),
            Exclusion::Requirement => {
                self.insert_item(requirements()?, &Item::requirement(namespaces))
            }
            Exclusion::Values(index) => {
                let values = requirements()?.items().nth(*index)?.get("values")?;
                let known = &json["namespaceSelector"]["matchExpressions"][*index]["values"];
                let is_new = |name: &&String| {
                    !known
                        .as_array()
                        .is_some_and(|all| all.contains(&Json::from(name.as_str())))
                };
                let new: Vec<String> = namespaces
                    .iter()
                    .filter(is_new)
                    .map(|name| word(name))
                    .collect();
                self.insert_item(values, &Item::words(&new)?)
            }
            _ => None,
        }
    }

    /// Adds an entry to a map.
    fn insert(&self, map: Value<'_>, member: &Member) -> Option<Edit> {
        if map.kind() != Kind::Object {
            return None;
        }
        let start = map.span().range().start;
        if self.0.get(start..)?.starts_with('{') {
            let first = map.members().next();
            let quoted = match first {
                Some(first) => self.0.get(first.key_span.range())?.starts_with('"'),
                None => false,
            };
            let text = if quoted { &member.json } else { &member.flow };
            return self.insert_in_flow(start + 1, first.map(|it| it.key_span.range().start), text);
        }
        let mut anchors = ANCHORS.iter().filter_map(|name| {
            let mut members = map.members();
            members.find(|member| member.key == *name)
        });
        let anchor = anchors.find(|anchor| self.ends_its_line(anchor.value));
        if let Some(anchor) = anchor {
            let indent = self.column(anchor.key_span.range().start)?;
            let at = self.line_end(anchor.value.span().range().end);
            let line_break = self.line_break();
            let lines = member.block.iter();
            let lines = lines.map(|line| format!("{line_break}{:indent$}{line}", ""));
            return Some(Edit {
                range: at..at,
                text: lines.collect(),
            });
        }
        let first = map.members().next()?.key_span.range().start;
        self.insert_above(first, &member.block)
    }

    /// Adds items before the first of a list.
    fn insert_item(&self, list: Value<'_>, item: &Item) -> Option<Edit> {
        if list.kind() != Kind::Array {
            return None;
        }
        let start = list.span().range().start;
        let first = list.items().next().map(|first| first.span().range().start);
        if self.0.get(start..)?.starts_with('[') {
            // JSON strings are always quoted.
            let rest = self.0.get(start + 1..)?.trim_start();
            let first_item = list.items().next();
            let quoted = match first_item.and_then(|item| item.members().next()) {
                Some(member) => self.0.get(member.key_span.range())?.starts_with('"'),
                None => rest.starts_with('"'),
            };
            let text = if quoted { &item.json } else { &item.flow };
            return self.insert_in_flow(start + 1, first, text);
        }
        let first = first?;
        let line = self.line_start(first);
        let before = self.0.get(line..first)?;
        let dash = line + before.rfind('-')?;
        self.insert_above(dash, &item.block)
    }

    /// Adds an entry after an opening bracket, in the layout of the first entry.
    fn insert_in_flow(&self, at: usize, first: Option<usize>, entry: &str) -> Option<Edit> {
        let text = match first {
            None => entry.to_owned(),
            Some(first) => {
                let space = self.0.get(at..first)?;
                // The `{` of the first item is not part of the preceding whitespace.
                let space = &space[..space.len() - space.trim_start().len()];
                let after = if space.contains('\n') { "" } else { " " };
                format!("{space}{entry},{after}")
            }
        };
        Some(Edit {
            range: at..at,
            text,
        })
    }

    /// Inserts lines above the line of a position that only whitespace precedes.
    fn insert_above(&self, place: usize, block: &[String]) -> Option<Edit> {
        let line = self.line_start(place);
        let indent = self.0.get(line..place)?;
        if !indent.chars().all(|c| c == ' ') {
            return None;
        }
        let line_break = self.line_break();
        let lines = block.iter();
        let text = lines
            .map(|text| format!("{indent}{text}{line_break}"))
            .collect();
        Some(Edit {
            range: line..line,
            text,
        })
    }

    /// Returns true if the value is on one line and only a comment follows.
    fn ends_its_line(&self, value: Value<'_>) -> bool {
        let range = value.span().range();
        let Some(written) = self.0.get(range.clone()) else {
            return false;
        };
        let rest = self.0.get(range.end..self.line_end(range.end));
        let rest = rest.unwrap_or_default().trim();
        !written.is_empty() && !written.contains('\n') && (rest.is_empty() || rest.starts_with('#'))
    }

    /// The indentation of a position, if only whitespace and dashes precede it on its line.
    fn column(&self, place: usize) -> Option<usize> {
        let before = self.0.get(self.line_start(place)..place)?;
        let is_indent = before.chars().all(|c| c == ' ' || c == '-');
        is_indent.then_some(before.len())
    }

    fn line_start(&self, place: usize) -> usize {
        let before = self.0.get(..place).unwrap_or_default();
        before.rfind('\n').map_or(0, |at| at + 1)
    }

    /// The end of the line, without the line break.
    fn line_end(&self, place: usize) -> usize {
        let rest = self.0.get(place..).unwrap_or_default();
        let end = place + rest.find('\n').unwrap_or(rest.len());
        match self.0.get(..end) {
            Some(line) if line.ends_with('\r') => end - 1,
            _ => end,
        }
    }

    fn line_break(&self) -> &'static str {
        match self.0.contains("\r\n") {
            true => "\r\n",
            false => "\n",
        }
    }
}

/// A map entry in its three notations.
struct Member {
    block: Vec<String>,
    flow: String,
    json: String,
}

/// A list entry in its three notations; the lines of a block start with the dash.
struct Item {
    block: Vec<String>,
    flow: String,
    json: String,
}

impl Member {
    fn scalar(name: &str, value: &Json) -> Self {
        let line = format!("{name}: {}", scalar(value));
        Self {
            block: vec![line.clone()],
            flow: line,
            json: format!("\"{name}\": {value}"),
        }
    }

    fn requirements(namespaces: &[String]) -> Self {
        let item = Item::requirement(namespaces);
        let first = String::from("matchExpressions:");
        Self {
            block: std::iter::once(first).chain(item.block).collect(),
            flow: format!("matchExpressions: [{}]", item.flow),
            json: format!("\"matchExpressions\": [{}]", item.json),
        }
    }

    fn selector(namespaces: &[String]) -> Self {
        let inner = Self::requirements(namespaces);
        let first = String::from("namespaceSelector:");
        let lines = inner.block.iter().map(|line| format!("  {line}"));
        Self {
            block: std::iter::once(first).chain(lines).collect(),
            flow: format!("namespaceSelector: {{{}}}", inner.flow),
            json: format!("\"namespaceSelector\": {{{}}}", inner.json),
        }
    }
}

impl Item {
    fn requirement(namespaces: &[String]) -> Self {
        let json = requirement(namespaces);
        let key = json["key"].as_str().unwrap_or_default();
        let words: Vec<String> = namespaces.iter().map(|name| word(name)).collect();
        let values = words.join(", ");
        Self {
            block: vec![
                format!("- key: {key}"),
                String::from("  operator: NotIn"),
                format!("  values: [{values}]"),
            ],
            flow: format!("{{key: {key}, operator: NotIn, values: [{values}]}}"),
            json: json.to_string(),
        }
    }

    fn words(words: &[String]) -> Option<Self> {
        let quoted = |word: &String| format!("\"{}\"", word.trim_matches('"'));
        let json: Vec<String> = words.iter().map(quoted).collect();
        (!words.is_empty()).then(|| Self {
            block: words.iter().map(|word| format!("- {word}")).collect(),
            flow: words.join(", "),
            json: json.join(", "),
        })
    }
}

fn scalar(value: &Json) -> String {
    match value {
        Json::String(text) => word(text),
        other => other.to_string(),
    }
}

/// A YAML string, quoted if needed.
fn word(text: &str) -> String {
    let is_plain = yaml::parse(text).is_ok_and(|read| read.root().as_str() == Some(text));
    let has_special = text.contains([':', '#', ',', '[', ']', '{', '}', '"', '\'']);
    match is_plain && !has_special {
        true => text.to_owned(),
        false => Json::from(text).to_string(),
    }
}
