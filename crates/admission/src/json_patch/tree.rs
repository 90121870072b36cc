//! The object during patching.
//!
//! Nodes are stored in one vector and refer to each other by index: moving a subtree changes an index, dropping it
//! never recurses, and parts that no operation touches stay references to the original.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lockgate_api::document::{self, Kind};
use serde_json::Value;

use super::error::{Failure, IndexProblem, PatchedProblem, TargetProblem};
use super::list::List;
use super::{MAX_DEPTH, text};

/// The index of a node.
pub(super) type NodeId = usize;

/// The absent node. Absent fields and `null` fields both refer to it.
pub(super) const NIL: NodeId = 0;

/// Upstream distinguishes four nulls, on which operations behave differently.
enum Node<'a> {
    /// A `null` of the object, or an absent value.
    Nil,
    /// A `null` that an operation set.
    GivenNull,
    /// A `null` copied from one that an operation set: it behaves like an empty object.
    CopiedNull,
    /// A part of the original that has not been expanded.
    Original(&'a Value),
    /// A value of the patch that has not been expanded. Copies have HTML escapes.
    Given(document::Value<'a>, Spelling),
    Object(BTreeMap<Cow<'a, str>, NodeId>),
    Array(List<NodeId>),
}

#[derive(Clone, Copy)]
enum Spelling {
    AsSent,
    Escaped,
}

/// An object being patched.
pub(super) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    root: NodeId,
    /// The text of the patch, which its values refer to.
    source: &'a [u8],
}

impl<'a> Tree<'a> {
    /// Creates the tree of `object`, for a patch with the text `source`.
    pub(super) fn new(object: &'a Value, source: &'a [u8]) -> Result<Self, Failure> {
        let found = match object {
            Value::Null | Value::Array(_) | Value::Object(_) => None,
            Value::Bool(_) => Some("bool"),
            Value::Number(_) => Some("number"),
            Value::String(_) => Some("string"),
        };
        if let Some(found) = found {
            return Err(Failure::NotAContainer(found));
        }
        let mut tree = Self {
            nodes: vec![Node::Nil],
            root: NIL,
            source,
        };
        tree.root = match object {
            Value::Null => tree.push(Node::CopiedNull),
            object => tree.push(Node::Original(object)),
        };
        tree.open(tree.root);
        Ok(tree)
    }

    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    /// Replaces the root with a list or an object.
    pub(super) fn replace_root(&mut self, value: document::Value<'a>) {
        self.root = self.push(Node::Given(value, Spelling::AsSent));
        self.open(self.root);
    }

    /// Creates a node from the value of an operation.
    pub(super) fn given(&mut self, value: Option<document::Value<'a>>) -> NodeId {
        match value {
            None => NIL,
            Some(value) if value.is_null() => self.push(Node::GivenNull),
            Some(value) => self.push(Node::Given(value, Spelling::AsSent)),
        }
    }

    pub(super) fn is_nil(&self, node: NodeId) -> bool {
        matches!(self.nodes[node], Node::Nil)
    }

    /// Finds the container of the value at `path`, and returns it with the last key.
    ///
    /// Text before the first slash is ignored.
    pub(super) fn find(&mut self, path: &str) -> Option<(NodeId, String)> {
        let (_, path) = path.split_once('/')?;
        let mut keys = path.split('/');
        let last = keys.next_back()?;
        let mut container = self.root;
        for key in keys {
            container = self.get(container, &decode_key(key)).ok()?;
            if !self.open(container) {
                return None;
            }
        }
        Some((container, decode_key(last).into_owned()))
    }

    /// The node under `key`; [`NIL`] for an absent field.
    pub(super) fn get(&self, container: NodeId, key: &str) -> Result<NodeId, TargetProblem> {
        match &self.nodes[container] {
            Node::Object(members) => Ok(members.get(key).copied().unwrap_or(NIL)),
            Node::Array(items) => {
                let index = element(atoi(key)?, items.len())?;
                Ok(items.get(index).unwrap_or(NIL))
            }
            _ => Ok(NIL),
        }
    }

    /// Replaces or adds a field, or replaces a list element.
    pub(super) fn set(&mut self, container: NodeId, key: String, value: NodeId) -> Step {
        match &mut self.nodes[container] {
            Node::Array(items) => {
                let index = element(atoi(&key)?, items.len())?;
                items.set(index, value);
                Ok(())
            }
            _ => self.add(container, key, value),
        }
    }

    /// Adds or replaces a field, or inserts a list element.
    pub(super) fn add(&mut self, container: NodeId, key: String, value: NodeId) -> Step {
        match &mut self.nodes[container] {
            Node::Object(members) => {
                members.insert(Cow::Owned(key), value);
                Ok(())
            }
            Node::Array(items) => {
                let index = if key == "-" {
                    items.len()
                } else {
                    let index = match atoi(&key) {
                        Ok(index) => index,
                        Err(problem) => return Err(TargetProblem::ImproperIndex { key, problem }),
                    };
                    // The new element counts, so -1 is the end.
                    element(index, items.len() + 1)?
                };
                items.insert(index, value);
                Ok(())
            }
            _ => Err(TargetProblem::NilMap),
        }
    }

    /// Removes a field or a list element.
    pub(super) fn remove(&mut self, container: NodeId, key: &str) -> Step {
        let removed = match &mut self.nodes[container] {
            Node::Array(items) => {
                let index = element(atoi(key)?, items.len())?;
                items.remove(index);
                true
            }
            Node::Object(members) => members.remove(key).is_some(),
            _ => false,
        };
        if removed {
            return Ok(());
        }
        Err(TargetProblem::NoMember(key.to_owned()))
    }

    /// The length of a node's JSON text.
    pub(super) fn size(&self, node: NodeId) -> u64 {
        let mut total = 0;
        let mut nodes = vec![node];
        let mut values = Vec::new();
        while let Some(node) = nodes.pop() {
            total += match &self.nodes[node] {
                Node::Nil | Node::GivenNull | Node::CopiedNull => 4,
                Node::Original(value) => {
                    values.push(*value);
                    0
                }
                Node::Given(value, _) => text::compact_len(self.raw(*value)),
                Node::Object(members) => {
                    nodes.extend(members.values());
                    members_len(members.keys().map(AsRef::as_ref))
                }
                Node::Array(items) => {
                    nodes.extend(items.iter());
                    brackets_len(items.len())
                }
            };
        }
        while let Some(value) = values.pop() {
            total += match value {
                Value::Object(members) => {
                    values.extend(members.values());
                    members_len(members.keys().map(String::as_str))
                }
                Value::Array(items) => {
                    values.extend(items);
                    brackets_len(items.len())
                }
                scalar => text::scalar_len(scalar),
            };
        }
        total
    }

    /// Copies a node with its subtree.
    pub(super) fn copy(&mut self, source: NodeId) -> NodeId {
        if matches!(self.nodes[source], Node::GivenNull | Node::CopiedNull) {
            return self.push(Node::CopiedNull);
        }
        let copy = self.copy_shallow(source);
        let mut work = vec![copy];
        while let Some(node) = work.pop() {
            let mut opened = std::mem::replace(&mut self.nodes[node], Node::Nil);
            match &mut opened {
                Node::Object(members) => {
                    for child in members.values_mut() {
                        *child = self.copy_shallow(*child);
                        work.push(*child);
                    }
                }
                Node::Array(items) => {
                    for child in items.iter_mut() {
                        *child = self.copy_shallow(*child);
                        work.push(*child);
                    }
                }
                _ => {}
            }
            // INVARIANT: the absent node is never expanded.
            self.nodes[node] = opened;
        }
        copy
    }

    fn copy_shallow(&mut self, source: NodeId) -> NodeId {
        let copy = match &self.nodes[source] {
            Node::Nil | Node::GivenNull | Node::CopiedNull => return NIL,
            Node::Original(value) => Node::Original(value),
            Node::Given(value, _) => Node::Given(*value, Spelling::Escaped),
            Node::Object(members) => Node::Object(members.clone()),
            Node::Array(items) => Node::Array(items.clone()),
        };
        self.push(copy)
    }

    /// Returns `true` if a present node equals a value of the patch, compared as text.
    pub(super) fn equals(&mut self, node: NodeId, want: document::Value<'a>) -> bool {
        let mut work = vec![(node, want)];
        while let Some((node, want)) = work.pop() {
            self.open(node);
            let equal = match &self.nodes[node] {
                Node::Nil | Node::GivenNull => want.is_null(),
                Node::CopiedNull => is_empty_object(want),
                Node::Original(value) => text::scalar_equals(value, self.raw(want)),
                Node::Given(value, Spelling::AsSent) => self.raw(*value) == self.raw(want),
                Node::Given(value, Spelling::Escaped) => {
                    text::escaped_equals(self.raw(*value), self.raw(want))
                }
                Node::Array(items) => {
                    let mut wanted = want.items();
                    let paired = items
                        .iter()
                        .all(|item| wanted.next().map(|want| work.push((item, want))).is_some());
                    want.kind() == Kind::Array && paired && wanted.next().is_none()
                }
                Node::Object(members) => {
                    let wanted: BTreeMap<&str, document::Value<'a>> = want
                        .members()
                        .map(|member| (member.key, member.value))
                        .collect();
                    want.kind() == Kind::Object
                        && wanted.len() == members.len()
                        && members.iter().all(|(key, member)| {
                            let Some(&want) = wanted.get(key.as_ref()) else {
                                return false;
                            };
                            work.push((*member, want));
                            // A null set by an operation differs from the null of a larger value.
                            matches!(self.nodes[*member], Node::Nil) == want.is_null()
                        })
                }
            };
            if !equal {
                return false;
            }
        }
        true
    }

    /// The patched object.
    pub(super) fn to_value(&self) -> Result<Value, PatchedProblem> {
        self.node_value(self.root, 0)
    }

    fn node_value(&self, node: NodeId, depth: usize) -> Result<Value, PatchedProblem> {
        check_depth(depth)?;
        Ok(match &self.nodes[node] {
            Node::Nil | Node::GivenNull | Node::CopiedNull => Value::Null,
            Node::Original(value) => original_value(value, depth)?,
            Node::Given(value, _) => given_value(*value, depth)?,
            Node::Object(members) => members
                .iter()
                .map(|(key, member)| {
                    let value = self.node_value(*member, depth + 1)?;
                    Ok((key.clone().into_owned(), value))
                })
                .collect::<Result<_, PatchedProblem>>()
                .map(Value::Object)?,
            Node::Array(items) => items
                .iter()
                .map(|item| self.node_value(item, depth + 1))
                .collect::<Result<_, _>>()
                .map(Value::Array)?,
        })
    }

    /// Expands a list or an object, so that its parts are nodes. Returns false for scalars.
    fn open(&mut self, node: NodeId) -> bool {
        let opened = match &self.nodes[node] {
            Node::Object(_) | Node::Array(_) | Node::CopiedNull => return true,
            Node::Nil | Node::GivenNull => return false,
            Node::Original(value) => {
                let value = *value;
                match value {
                    Value::Object(members) => Node::Object(
                        members
                            .iter()
                            .map(|(key, value)| (Cow::Borrowed(key.as_str()), self.original(value)))
                            .collect(),
                    ),
                    Value::Array(items) => {
                        Node::Array(items.iter().map(|value| self.original(value)).collect())
                    }
                    _ => return false,
                }
            }
            &Node::Given(value, spelling) => match value.kind() {
                Kind::Object => Node::Object(
                    value
                        .members()
                        .map(|member| {
                            let value = self.part(member.value, spelling);
                            (Cow::Borrowed(member.key), value)
                        })
                        .collect(),
                ),
                Kind::Array => Node::Array(
                    value
                        .items()
                        .map(|value| self.part(value, spelling))
                        .collect(),
                ),
                _ => return false,
            },
        };
        self.nodes[node] = opened;
        true
    }

    fn original(&mut self, value: &'a Value) -> NodeId {
        match value {
            Value::Null => NIL,
            value => self.push(Node::Original(value)),
        }
    }

    fn part(&mut self, value: document::Value<'a>, spelling: Spelling) -> NodeId {
        if value.is_null() {
            NIL
        } else {
            self.push(Node::Given(value, spelling))
        }
    }

    fn push(&mut self, node: Node<'a>) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn raw(&self, value: document::Value<'a>) -> &'a [u8] {
        &self.source[value.span().range()]
    }
}

type Step = Result<(), TargetProblem>;

/// Decodes the escapes of a path segment, each once and from the left.
fn decode_key(key: &str) -> Cow<'_, str> {
    if !key.contains('~') {
        return Cow::Borrowed(key);
    }
    let mut out = String::with_capacity(key.len());
    let mut rest = key;
    while let Some(at) = rest.find('~') {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let decoded = match tail.as_bytes().get(1) {
            Some(b'1') => Some('/'),
            Some(b'0') => Some('~'),
            _ => None,
        };
        out.push(decoded.unwrap_or('~'));
        rest = &tail[if decoded.is_some() { 2 } else { 1 }..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Parses an index as Go does.
///
/// UPSTREAM: Go strconv/atoi.go (Atoi).
fn atoi(text: &str) -> Result<i64, IndexProblem> {
    let syntax = || IndexProblem::Syntax(text.to_owned());
    let range = || IndexProblem::Range(text.to_owned());
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(syntax());
    }
    let magnitude = digits.parse::<u64>().map_err(|error| match error.kind() {
        std::num::IntErrorKind::PosOverflow => range(),
        _ => syntax(),
    })?;
    let index = if text.starts_with('-') {
        0_i64.checked_sub_unsigned(magnitude)
    } else {
        0_i64.checked_add_unsigned(magnitude)
    };
    index.ok_or_else(range)
}

/// The position of `index` among `len` elements; negative ones count from the end.
fn element(index: i64, len: usize) -> Result<usize, TargetProblem> {
    let place = if index < 0 {
        usize::try_from(index.unsigned_abs())
            .ok()
            .and_then(|back| len.checked_sub(back))
    } else {
        usize::try_from(index).ok().filter(|index| *index < len)
    };
    place.ok_or(TargetProblem::NoElement(index))
}

fn members_len<'k>(keys: impl ExactSizeIterator<Item = &'k str>) -> u64 {
    let brackets = brackets_len(keys.len());
    brackets + keys.map(|key| text::string_len(key) + 1).sum::<u64>()
}

/// The length of two brackets and the commas between `len` parts.
fn brackets_len(len: usize) -> u64 {
    2 + (len as u64).saturating_sub(1)
}

fn is_empty_object(value: document::Value<'_>) -> bool {
    value.kind() == Kind::Object && value.members().next().is_none()
}

fn check_depth(depth: usize) -> Result<(), PatchedProblem> {
    if depth > MAX_DEPTH {
        return Err(PatchedProblem::TooDeep);
    }
    Ok(())
}

fn original_value(value: &Value, depth: usize) -> Result<Value, PatchedProblem> {
    check_depth(depth)?;
    Ok(match value {
        Value::Array(items) => items
            .iter()
            .map(|item| original_value(item, depth + 1))
            .collect::<Result<_, _>>()
            .map(Value::Array)?,
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| Ok((key.clone(), original_value(member, depth + 1)?)))
            .collect::<Result<_, PatchedProblem>>()
            .map(Value::Object)?,
        scalar => scalar.clone(),
    })
}

fn given_value(value: document::Value<'_>, depth: usize) -> Result<Value, PatchedProblem> {
    check_depth(depth)?;
    Ok(match value.kind() {
        Kind::Null => Value::Null,
        Kind::Bool => Value::Bool(value.as_bool().expect("its kind is bool")),
        Kind::Number => number_value(value.as_number().expect("its kind is number"))?,
        Kind::String => Value::String(value.as_str().expect("its kind is string").to_owned()),
        Kind::Array => value
            .items()
            .map(|item| given_value(item, depth + 1))
            .collect::<Result<_, _>>()
            .map(Value::Array)?,
        Kind::Object => value
            .members()
            .map(|member| Ok((member.key.to_owned(), given_value(member.value, depth + 1)?)))
            .collect::<Result<_, PatchedProblem>>()
            .map(Value::Object)?,
    })
}

/// Parses a number: an integer if it fits into 64 bits, signed or unsigned, otherwise a float. Later decoding errors
/// show the original notation.
///
/// UPSTREAM: sigs.k8s.io/json internal/golang/encoding/json/kubernetes_patch.go.
fn number_value(text: &str) -> Result<Value, PatchedProblem> {
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(Value::from(integer));
    }
    if let Ok(integer) = text.parse::<u64>() {
        return Ok(Value::from(integer));
    }
    text.parse()
        .ok()
        .and_then(serde_json::Number::from_f64)
        .map(Value::Number)
        .ok_or_else(|| PatchedProblem::Number(text.into()))
}
