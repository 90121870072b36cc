//! A parsed JSON or YAML document with source positions.
//!
//! Registration objects and webhook responses are parsed into this tree rather than directly into
//! structs for three reasons: strict decoding reports duplicate and unknown fields, diagnostics need
//! the span of every value, and input nested ten thousand levels deep must not overflow the stack,
//! neither when it is parsed nor when it is dropped. So nodes are in one flat vector and refer to
//! each other by index.

pub mod json;
pub mod tree;
pub mod yaml;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use lockgate_go::quote::push_json;

/// The maximum nesting depth of a document, in JSON and in YAML.
///
/// UPSTREAM: sigs.k8s.io/json internal/golang/encoding/json/scanner.go (maxNestingDepth).
pub const MAX_DEPTH: usize = 10_000;

/// The maximum document size in bytes. Positions have 32 bits.
pub const MAX_BYTES: usize = 1 << 30;

/// A byte range of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Span {
    /// The start, inclusive.
    pub start: u32,
    /// The end, exclusive.
    pub end: u32,
}

impl Span {
    /// Creates the span from `start` up to but not including `end`.
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

/// A string that is not a valid document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// The message; for JSON, that of Go's scanner.
    pub message: String,
    /// The position of the error.
    pub span: Span,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// A boolean.
    Bool,
    /// A number, in its original spelling.
    Number,
    /// A string.
    String,
    /// A list.
    Array,
    /// A map; members keep their order, including duplicates.
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

/// A tree of values with their strings.
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
    /// The contents of a string, number or literal, as a range of `texts`.
    text: Span,
    first_child: u32,
    next: u32,
}

/// No node. Node 0 is the root and never a child.
const NONE: u32 = 0;

impl Document {
    /// The root value.
    #[must_use]
    pub fn root(&self) -> Value<'_> {
        Value {
            document: self,
            index: 0,
        }
    }

    /// The document with the members of every object sorted by name, and only the last of duplicates.
    #[must_use]
    pub(crate) fn sorted(&self) -> Self {
        let mut builder = Builder::default();
        // Pending values, the next one last; `None` closes a container.
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
    /// The name.
    pub key: &'d str,
    /// The span of the name.
    pub key_span: Span,
    /// The value.
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

    /// The span of the value.
    #[must_use]
    pub fn span(&self) -> Span {
        self.node().span
    }

    /// Returns true for `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// The contents of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&'d str> {
        (self.kind() == Kind::String).then(|| self.document.text(self.node().text))
    }

    /// The spelling of a number, as in JSON.
    #[must_use]
    pub fn as_number(&self) -> Option<&'d str> {
        (self.kind() == Kind::Number).then(|| self.document.text(self.node().text))
    }

    /// The value of a boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        (self.kind() == Kind::Bool).then(|| self.document.text(self.node().text) == "true")
    }

    /// The elements of an array; empty for other types.
    pub fn items(&self) -> impl Iterator<Item = Self> + use<'d> {
        self.children(Kind::Array)
    }

    /// The members of an object in source order; empty for other types.
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

    /// The last member called `key`, which takes precedence over earlier ones.
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

    /// Encodes the value as compact JSON, including duplicate members.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        // The open containers, innermost last, with the next child to encode.
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
                // The output ends with a bracket only if a container was just opened.
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

/// Builds a [`Document`] top-down.
#[derive(Default)]
struct Builder {
    document: Document,
    /// The open containers: their index and the index of their last child.
    open: Vec<(u32, u32)>,
    pending_key: Option<(Span, Span)>,
}

impl Builder {
    /// Stores a string and returns its range.
    fn intern(&mut self, text: &str) -> Span {
        let start = self.document.texts.len();
        self.document.texts.push_str(text);
        Span::new(start, self.document.texts.len())
    }

    /// Sets the name of the next value.
    fn key(&mut self, span: Span, text: &str) {
        let text = self.intern(text);
        self.pending_key = Some((span, text));
    }

    /// Adds a scalar.
    fn scalar(&mut self, kind: Kind, span: Span, text: &str) -> u32 {
        let text = self.intern(text);
        self.push(kind, span, text)
    }

    /// Opens a container; values are its children until [`Self::close`].
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

    /// Adds a deep copy of the finished node `source`, with the pending key if any.
    fn copy(&mut self, source: u32) -> u32 {
        let copied = self.copy_node(source);
        // The work list contains the nodes to copy, and `None` for the end of a container.
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

    /// Copies those members of the finished object `source` whose names are not in `known`, and adds
    /// their names to it.
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

/// The maximum number of reported duplicate fields.
const MAX_DUPLICATES: usize = 100;

/// Duplicate fields as strict decoding reports them: `duplicate field "a.b"`.
#[must_use]
pub fn duplicates(root: Value<'_>) -> Vec<String> {
    let mut found = Vec::new();
    // An explicit stack instead of recursion. Pushed in reverse, for document order.
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
