//! A parsed JSON or YAML document that remembers where everything stood.
//!
//! Registration objects and webhook answers are read through this tree rather than straight into
//! structs for three reasons: strict decoding must see duplicate and unknown members, diagnostics
//! need the place of every value, and input nested ten thousand deep must neither exhaust the
//! stack while it is read nor while it is dropped. So nodes live in one flat vector and refer to
//! each other by index.

pub mod json;
pub mod tree;
pub mod yaml;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use lockgate_go::quote::push_json;

/// Deepest nesting of a document, in JSON and in YAML.
///
/// UPSTREAM: sigs.k8s.io/json internal/golang/encoding/json/scanner.go (maxNestingDepth).
pub const MAX_DEPTH: usize = 10_000;

/// The largest document that is read, in bytes. Positions are 32 bits wide.
pub const MAX_BYTES: usize = 1 << 30;

/// A byte range of the source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// A span from `start` up to and not including `end`.
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Self {
            start: clamp(start),
            end: clamp(end.max(start)),
        }
    }

    /// The span as a range of byte offsets.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A text that is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// The text; for JSON in the words of Go's scanner.
    pub message: String,
    /// The place where reading stopped.
    pub span: Span,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number, kept as written.
    Number,
    /// A string.
    String,
    /// A list.
    Array,
    /// A map; members keep their order and may repeat.
    Object,
}

impl Kind {
    /// The name of the type in Go's decoding errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

/// One value tree with its texts.
#[derive(Clone, Default)]
pub struct Document {
    nodes: Vec<Node>,
    texts: String,
}

#[derive(Clone, Copy)]
struct Node {
    kind: Kind,
    span: Span,
    key: Span,
    key_text: Span,
    /// String content, number text, or the literal, inside `texts`.
    text: Span,
    first_child: u32,
    next: u32,
}

/// Marks "no node". Node 0 is the root and never a child, so it can serve.
const NONE: u32 = 0;

impl Document {
    /// The outermost value.
    #[must_use]
    pub fn root(&self) -> Value<'_> {
        Value {
            document: self,
            index: 0,
        }
    }

    /// The same values with the members of every object in the order of their names, and of several
    /// with one name only the last.
    #[must_use]
    pub(crate) fn sorted(&self) -> Self {
        let mut builder = Builder::default();
        // Values still to add, the next one last; `None` closes a container.
        let mut work = vec![Some(self.root())];
        while let Some(next) = work.pop() {
            let Some(value) = next else {
                builder.open.pop();
                continue;
            };
            let node = value.node();
            if !builder.open.is_empty() {
                builder.key(node.key, self.text(node.key_text));
            }
            match node.kind {
                Kind::Array | Kind::Object => {
                    builder.open(node.kind, node.span);
                    work.push(None);
                    let members: BTreeMap<&str, Value<'_>> = value
                        .members()
                        .map(|member| (member.key, member.value))
                        .collect();
                    let mut children: Vec<_> = value.items().chain(members.into_values()).collect();
                    children.reverse();
                    work.extend(children.into_iter().map(Some));
                }
                _ => {
                    builder.scalar(node.kind, node.span, self.text(node.text));
                }
            }
        }
        builder.document
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn text(&self, span: Span) -> &str {
        &self.texts[span.range()]
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

/// A value inside a [`Document`].
#[derive(Clone, Copy)]
pub struct Value<'d> {
    document: &'d Document,
    index: u32,
}

/// A member of an object.
#[derive(Debug, Clone, Copy)]
pub struct Member<'d> {
    /// Its name.
    pub key: &'d str,
    /// The place of the name.
    pub key_span: Span,
    /// Its value.
    pub value: Value<'d>,
}

impl<'d> Value<'d> {
    fn node(&self) -> &'d Node {
        self.document.node(self.index)
    }

    /// The type of the value.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.node().kind
    }

    /// The place of the value in the source.
    #[must_use]
    pub fn span(&self) -> Span {
        self.node().span
    }

    /// Returns true for `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// The content of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&'d str> {
        (self.kind() == Kind::String).then(|| self.document.text(self.node().text))
    }

    /// The text of a number, as written in JSON.
    #[must_use]
    pub fn as_number(&self) -> Option<&'d str> {
        (self.kind() == Kind::Number).then(|| self.document.text(self.node().text))
    }

    /// The value of a boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        (self.kind() == Kind::Bool).then(|| self.document.text(self.node().text) == "true")
    }

    /// The elements of an array, or nothing.
    pub fn items(&self) -> impl Iterator<Item = Self> + use<'d> {
        self.children(Kind::Array)
    }

    /// The members of an object in source order, or nothing.
    pub fn members(&self) -> impl Iterator<Item = Member<'d>> + use<'d> {
        self.children(Kind::Object).map(|value| {
            let node = value.node();
            Member {
                key: value.document.text(node.key_text),
                key_span: node.key,
                value,
            }
        })
    }

    /// The last member called `key`, which is the one that counts when there are several.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Self> {
        self.members()
            .filter(|member| member.key == key)
            .map(|member| member.value)
            .last()
    }

    fn children(&self, kind: Kind) -> impl Iterator<Item = Self> + use<'d> {
        let document = self.document;
        let first = if self.kind() == kind {
            self.node().first_child
        } else {
            NONE
        };
        std::iter::successors((first != NONE).then_some(first), move |&index| {
            let next = document.node(index).next;
            (next != NONE).then_some(next)
        })
        .map(move |index| Self { document, index })
    }

    /// Writes the value as compact JSON. Repeated members are written as they stand.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        // Containers still open, innermost last, with the child to write next.
        let mut open: Vec<(Kind, u32)> = Vec::new();
        let mut index = self.index;
        loop {
            let node = self.document.node(index);
            match node.kind {
                Kind::String => push_json(&mut out, self.document.text(node.text)),
                Kind::Null | Kind::Bool | Kind::Number => {
                    out.push_str(self.document.text(node.text))
                }
                Kind::Array | Kind::Object => {
                    out.push(if node.kind == Kind::Array { '[' } else { '{' });
                    open.push((node.kind, node.first_child));
                }
            }
            loop {
                let Some((kind, next)) = open.last_mut() else {
                    return out;
                };
                if *next == NONE {
                    out.push(if *kind == Kind::Array { ']' } else { '}' });
                    open.pop();
                    continue;
                }
                // Only a container just opened leaves a bracket at the end of the text.
                if !out.ends_with(['[', '{']) {
                    out.push(',');
                }
                index = *next;
                let child = self.document.node(index);
                *next = child.next;
                if *kind == Kind::Object {
                    push_json(&mut out, self.document.text(child.key_text));
                    out.push(':');
                }
                break;
            }
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{:?}", self.kind(), self.span().range())
    }
}

/// Builds a [`Document`] from the outside in.
#[derive(Default)]
struct Builder {
    document: Document,
    /// Containers still open: their index and the index of their last child.
    open: Vec<(u32, u32)>,
    pending_key: Option<(Span, Span)>,
}

impl Builder {
    /// Stores a text and returns its place.
    fn intern(&mut self, text: &str) -> Span {
        let start = self.document.texts.len();
        self.document.texts.push_str(text);
        Span::new(start, self.document.texts.len())
    }

    /// Names the value that comes next.
    fn key(&mut self, span: Span, text: &str) {
        let text = self.intern(text);
        self.pending_key = Some((span, text));
    }

    /// Adds a value that is not a container.
    fn scalar(&mut self, kind: Kind, span: Span, text: &str) -> u32 {
        let text = self.intern(text);
        self.push(kind, span, text)
    }

    /// Opens a container; values added before [`Self::close`] become its children.
    fn open(&mut self, kind: Kind, span: Span) -> u32 {
        let index = self.push(kind, span, Span::default());
        self.open.push((index, NONE));
        index
    }

    /// Closes the innermost container, which ends at `end`.
    fn close(&mut self, end: usize) {
        if let Some((index, _)) = self.open.pop() {
            let span = &mut self.document.nodes[index as usize].span;
            *span = Span::new(span.start as usize, end);
        }
    }

    /// Adds a deep copy of the finished node `source` under the key that is pending, if any.
    fn copy(&mut self, source: u32) -> u32 {
        let copied = self.copy_node(source);
        // The work list holds nodes to copy and, as `None`, the end of a container.
        let mut work = Vec::new();
        self.copy_enter(source, copied, &mut work);
        while let Some(next) = work.pop() {
            let Some(index) = next else {
                self.open.pop();
                continue;
            };
            let node = self.document.node(index);
            self.pending_key = Some((node.key, node.key_text));
            let copy = self.copy_node(index);
            self.copy_enter(index, copy, &mut work);
        }
        copied
    }

    /// Adds copies of those members of the finished object `source` whose names are not in `known`,
    /// and adds their names to it.
    fn copy_members(&mut self, source: u32, known: &mut HashSet<String>) {
        let mut child = self.document.node(source).first_child;
        while child != NONE {
            let node = *self.document.node(child);
            if known.insert(self.document.text(node.key_text).to_owned()) {
                self.pending_key = Some((node.key, node.key_text));
                self.copy(child);
            }
            child = node.next;
        }
    }

    fn copy_node(&mut self, source: u32) -> u32 {
        let node = *self.document.node(source);
        self.push(node.kind, node.span, node.text)
    }

    fn copy_enter(&mut self, source: u32, copy: u32, work: &mut Vec<Option<u32>>) {
        let node = self.document.node(source);
        if !matches!(node.kind, Kind::Array | Kind::Object) {
            return;
        }
        work.push(None);
        let first = work.len();
        let mut child = node.first_child;
        while child != NONE {
            work.push(Some(child));
            child = self.document.node(child).next;
        }
        work[first..].reverse();
        self.open.push((copy, NONE));
    }

    fn push(&mut self, kind: Kind, span: Span, text: Span) -> u32 {
        let index = u32::try_from(self.document.nodes.len())
            .expect("a document of at most 1 GiB has fewer than 2^32 values");
        let (key, key_text) = self.pending_key.take().unwrap_or_default();
        let node = Node {
            kind,
            span,
            key,
            key_text,
            text,
            first_child: NONE,
            next: NONE,
        };
        self.document.nodes.push(node);
        if let Some((parent, last)) = self.open.last_mut() {
            if *last == NONE {
                self.document.nodes[*parent as usize].first_child = index;
            } else {
                self.document.nodes[*last as usize].next = index;
            }
            *last = index;
        }
        index
    }
}

/// Most repeated members that are reported.
const MAX_DUPLICATES: usize = 100;

/// The members that stand twice in an object, as strict decoding lists them: `duplicate field "a.b"`.
#[must_use]
pub fn duplicates(root: Value<'_>) -> Vec<String> {
    let mut found = Vec::new();
    // A stack in place of recursion. Pushed in reverse, so that the document's order is kept.
    let mut open = vec![(String::new(), root)];
    while let Some((path, value)) = open.pop() {
        let mut inner = Vec::new();
        let mut seen = HashSet::new();
        for member in value.members() {
            let path = if path.is_empty() {
                member.key.to_owned()
            } else {
                format!("{path}.{}", member.key)
            };
            if !seen.insert(member.key) {
                found.push(format!(
                    "duplicate field {}",
                    lockgate_go::quote::quote(&path)
                ));
                if found.len() == MAX_DUPLICATES {
                    return found;
                }
            }
            if matches!(member.value.kind(), Kind::Object | Kind::Array) {
                inner.push((path, member.value));
            }
        }
        for (index, item) in value.items().enumerate() {
            if matches!(item.kind(), Kind::Object | Kind::Array) {
                inner.push((format!("{path}[{index}]"), item));
            }
        }
        open.extend(inner.into_iter().rev());
    }
    found
}
