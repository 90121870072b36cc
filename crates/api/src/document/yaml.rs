//! YAML with Kubernetes' semantics.
//!
//! Kubernetes converts YAML to JSON first, with the scalar types of YAML 1.1: `yes` and `off` are
//! booleans, `0777` is octal, `1_000` is a number, `<<` merges. The same rules apply here, so that
//! the linter interprets a manifest like the server.
//!
//! UPSTREAM: sigs.k8s.io/yaml, go.yaml.in/yaml/v2 resolve.go and decode.go.

mod indented;
mod problem;
mod scalar;
mod write;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::{Builder, Document, Kind, MAX_BYTES, MAX_DEPTH, Span, SyntaxError};
use indented::Indented;
pub use problem::Problem;
use scalar::Resolved;
pub use write::write;

/// Splits a stream of YAML documents at its `---` lines.
///
/// Each part can be parsed separately, so that an error in one does not hide others.
#[must_use]
pub fn split(source: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut at = 0;
    // A `%` directive belongs to the document after the following `---`.
    let mut only_directives = true;
    let mut saw_directive = false;
    for line in source.split_inclusive('\n') {
        let separator = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if separator {
            if at > start && !(saw_directive && only_directives) {
                parts.push(start..at);
                start = at;
            }
            (only_directives, saw_directive) = (false, false);
        } else if line.starts_with('%') {
            saw_directive = true;
        } else if !line.trim_start().starts_with('#') && !line.trim().is_empty() {
            only_directives = false;
        }
        at += line.len();
    }
    if at > start {
        parts.push(start..at);
    }
    parts
}

/// Parses the first YAML document of `source`. A document of only white space and comments is
/// `null`.
///
/// # Errors
///
/// The first syntax error, an unsupported key, nesting beyond [`MAX_DEPTH`], or excessive aliasing.
pub fn parse(source: &str) -> Result<Document, SyntaxError> {
    Ok(first(source)?)
}

/// Like [`parse`], with Kubernetes' error text.
///
/// # Errors
///
/// As [`parse`], and text that is not UTF-8.
pub fn parse_like_kubernetes(source: &[u8]) -> Result<Document, Problem> {
    match std::str::from_utf8(source) {
        Ok(text) => first(text),
        Err(error) => Err(Problem::not_utf8(source, error)),
    }
}

/// Parses every YAML document of `source`.
///
/// # Errors
///
/// As [`parse`]; the first error ends the stream.
pub fn parse_all(source: &str) -> Result<Vec<Document>, SyntaxError> {
    Ok(load(source, Limit::All)?)
}

fn first(source: &str) -> Result<Document, Problem> {
    let null = || {
        let mut builder = Builder::default();
        builder.scalar(Kind::Null, Span::new(0, source.len()), "null");
        builder.document
    };
    let documents = load(source, Limit::First)?;
    Ok(documents.into_iter().next().unwrap_or_else(null))
}

/// The maximum number of bytes parsed again because of lines that the parser requires to be
/// indented.
const MAX_REPARSED_BYTES: usize = 16 << 20;

#[derive(PartialEq)]
enum Limit {
    First,
    All,
}

fn load(source: &str, limit: Limit) -> Result<Vec<Document>, Problem> {
    if source.len() > MAX_BYTES {
        let message = format!("document is larger than {MAX_BYTES} bytes");
        return Err(Problem::other(message, Span::default()));
    }
    if let Some(problem) = Problem::control_character(source) {
        return Err(problem);
    }
    let mut indented = Indented::new(source);
    let mut reparsed_bytes = 0;
    loop {
        let stopped = match read(source, &indented, &limit) {
            Ok(documents) => return Ok(documents),
            Err(stopped) => stopped,
        };
        reparsed_bytes += indented.text().len();
        let may_indent = reparsed_bytes <= MAX_REPARSED_BYTES;
        let line = stopped.line.filter(|_| may_indent);
        if !line.is_some_and(|line| indented.indent(line)) {
            return Err(stopped.problem);
        }
    }
}

/// A parse error.
struct Stopped {
    problem: Problem,
    /// The line to indent before parsing again.
    line: Option<indented::Line>,
}

impl From<Problem> for Stopped {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            line: None,
        }
    }
}

fn read(source: &str, indented: &Indented<'_>, limit: &Limit) -> Result<Vec<Document>, Stopped> {
    let mut documents = Vec::new();
    let mut loader = Loader::default();
    // A decoding error of a document is reported only if its syntax is valid.
    let mut refused = None;
    for event in Parser::new_from_str(indented.text()) {
        let (event, place) = event.map_err(|error| {
            let at = error.marker().index();
            Stopped {
                problem: Problem::syntax(error.info(), source, indented.byte(at)),
                line: indented::line(error.info(), at),
            }
        })?;
        if matches!(event, Event::DocumentEnd) {
            if let Some(problem) = refused {
                return Err(Stopped::from(problem));
            }
            documents.push(std::mem::take(&mut loader).builder.document);
            if *limit == Limit::First {
                break;
            }
        } else if refused.is_none() {
            match loader.event(event, indented.span(place)) {
                Err(problem) if problem.is_depth() => return Err(Stopped::from(problem)),
                outcome => refused = outcome.err(),
            }
        }
    }
    Ok(documents)
}

/// Builds one document from parser events.
#[derive(Default)]
struct Loader {
    builder: Builder,
    open: Vec<Open>,
    anchors: HashMap<usize, Finished>,
    /// The number of nodes, and of those copied by aliases.
    made: usize,
    copied: usize,
}

/// An open container.
struct Open {
    shape: Shape,
    /// The next part of a map entry.
    next: Next,
    /// Its node; `None` for an inline map after `<<`, whose members are added to the enclosing map.
    index: Option<u32>,
    anchor: usize,
    /// The keys of the maps in a `<<` list so far; the first one takes precedence.
    merged: HashSet<String>,
    /// The maximum height of its children so far.
    height: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Array,
    Object,
    /// The list of maps of a `<<` key.
    MergeList,
}

#[derive(Clone, Copy, PartialEq)]
enum Next {
    Key,
    Value,
    /// The value of a `<<` key.
    Merge,
}

/// A finished node that an alias may refer to.
#[derive(Clone, Copy)]
struct Finished {
    index: u32,
    /// The number of nodes in its subtree.
    size: usize,
    height: usize,
}

type Step = Result<(), Problem>;

impl Loader {
    fn event(&mut self, event: Event<'_>, span: Span) -> Step {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| format!("{}{}", tag.handle, tag.suffix));
                let plain = style == ScalarStyle::Plain;
                self.scalar(&text, plain, tag.as_deref(), anchor, span)
            }
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::SequenceStart(anchor, _) => self.enter(Shape::Array, anchor, span),
            Event::MappingStart(anchor, _) => self.enter(Shape::Object, anchor, span),
            Event::SequenceEnd | Event::MappingEnd => {
                self.leave(span);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        plain: bool,
        tag: Option<&str>,
        anchor: usize,
        span: Span,
    ) -> Step {
        if self.reads_key() && plain && tag.is_none() && text == "<<" {
            self.set_next(Next::Merge);
            return Ok(());
        }
        let resolved = scalar::resolve(text, plain, tag)
            .map_err(|error| Problem::other(error.to_string(), span))?;
        if self.reads_key() {
            if resolved == Resolved::Null {
                return reject("a key must not be null", span);
            }
            self.builder.key(span, &resolved.key_text());
            self.set_next(Next::Value);
            return Ok(());
        }
        if self.merges() {
            return reject(MERGE_NEEDS_MAPS, span);
        }
        if let Some(message) = resolved.unsupported() {
            return Err(Problem::other(message, span));
        }
        let index = self
            .builder
            .scalar(resolved.kind(), span, &resolved.json_text());
        self.made += 1;
        self.finish(
            anchor,
            Finished {
                index,
                size: 1,
                height: 0,
            },
        );
        Ok(())
    }

    fn enter(&mut self, shape: Shape, anchor: usize, span: Span) -> Step {
        let start = Span::new(span.start as usize, span.start as usize + 1);
        if self.reads_key() {
            return reject("a key must be a scalar, not a list or a map", start);
        }
        if self.open.len() >= MAX_DEPTH {
            return reject(problem::TOO_DEEP, start);
        }
        self.made += 1;
        let merges = self.merges();
        let shape = if merges && shape == Shape::Array {
            Shape::MergeList
        } else {
            shape
        };
        let index = (!merges).then(|| {
            let kind = if shape == Shape::Object {
                Kind::Object
            } else {
                Kind::Array
            };
            self.builder.open(kind, span)
        });
        self.open.push(Open {
            shape,
            next: Next::Key,
            index,
            anchor,
            merged: HashSet::new(),
            height: 0,
        });
        Ok(())
    }

    fn leave(&mut self, span: Span) {
        let Some(open) = self.open.pop() else { return };
        let Some(index) = open.index else {
            return self.set_next(Next::Key);
        };
        self.builder.close(span.end as usize);
        let size = self.builder.document.nodes.len() - index as usize;
        self.finish(
            open.anchor,
            Finished {
                index,
                size,
                height: open.height,
            },
        );
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Step {
        if self.reads_key() {
            return reject("a key must be a scalar, not an alias", span);
        }
        let Some(&target) = self.anchors.get(&anchor) else {
            return reject("the value of an anchor contains itself", span);
        };
        self.made += target.size;
        self.copied += target.size;
        if is_excessive(self.made, self.copied) {
            return reject(EXCESSIVE_ALIASING, span);
        }
        if self.open.len() + target.height > MAX_DEPTH {
            return reject(problem::TOO_DEEP, span);
        }
        if self.merges() {
            if self.builder.document.node(target.index).kind != Kind::Object {
                return reject(MERGE_NEEDS_MAPS, span);
            }
            let merged = match self.open.last_mut() {
                Some(open) if open.shape == Shape::MergeList => &mut open.merged,
                _ => &mut HashSet::new(),
            };
            self.builder.copy_members(target.index, merged);
            self.set_next(Next::Key);
        } else {
            let index = self.builder.copy(target.index);
            self.builder.document.nodes[index as usize].span = span;
            self.finish(0, Finished { index, ..target });
        }
        Ok(())
    }

    fn reads_key(&self) -> bool {
        self.open
            .last()
            .is_some_and(|open| open.shape == Shape::Object && open.next == Next::Key)
    }

    /// Returns true if the next value is merged into the enclosing map.
    fn merges(&self) -> bool {
        self.open.last().is_some_and(|open| match open.shape {
            Shape::Array => false,
            Shape::Object => open.next == Next::Merge,
            Shape::MergeList => true,
        })
    }

    fn set_next(&mut self, next: Next) {
        if let Some(open) = self.open.last_mut() {
            open.next = next;
        }
    }

    /// Completes a value: records its anchor, and a map expects a key next.
    fn finish(&mut self, anchor: usize, finished: Finished) {
        if anchor != 0 {
            self.anchors.insert(anchor, finished);
        }
        if let Some(open) = self.open.last_mut() {
            open.next = Next::Key;
            open.height = open.height.max(finished.height + 1);
        }
    }
}

const MERGE_NEEDS_MAPS: &str = "map merge requires map or sequence of maps as the value";
const EXCESSIVE_ALIASING: &str = "document contains excessive aliasing";

fn reject(message: &str, span: Span) -> Step {
    Err(Problem::other(message.to_owned(), span))
}

/// Returns true if the ratio of aliased nodes is excessive.
///
/// UPSTREAM: go.yaml.in/yaml/v2 decode.go (allowedAliasRatio).
fn is_excessive(made: usize, copied: usize) -> bool {
    const RATIO_FALLS_FROM: f64 = 400_000.0;
    const RATIO_FALLS_TO: f64 = 4_000_000.0;
    let (all, aliased) = (made as f64, copied as f64);
    let allowed = if all <= RATIO_FALLS_FROM {
        0.99
    } else if all >= RATIO_FALLS_TO {
        0.10
    } else {
        0.99 - 0.89 * (all - RATIO_FALLS_FROM) / (RATIO_FALLS_TO - RATIO_FALLS_FROM)
    };
    copied > 100 && made > 1000 && aliased / all > allowed
}

#[cfg(test)]
mod tests;
