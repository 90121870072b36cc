//! Nodes of a pattern, with the attributes for Go's limits.

use regex_syntax::hir::{Hir, Repetition};

/// The role of a node in the rules for adjacent nodes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A character class.
    Class,
    Concat,
    Alternate,
    Other,
}

/// A node with the attributes for Go's limits.
pub(super) struct Node {
    pub(super) hir: Hir,
    pub(super) kind: Kind,
    pub(super) height: u32,
    pub(super) size: u64,
    /// The maximum product of nested repetition counts.
    pub(super) repeats: u64,
}

impl Node {
    pub(super) fn leaf(hir: Hir, kind: Kind) -> Self {
        Self {
            hir,
            kind,
            height: 1,
            size: 1,
            repeats: 1,
        }
    }
}

/// Joins nodes into one, flattening those of the same kind.
pub(super) fn join(nodes: Vec<Node>, kind: Kind) -> Node {
    let mut nodes = nodes;
    if nodes.len() <= 1 {
        return nodes
            .pop()
            .unwrap_or_else(|| Node::leaf(Hir::empty(), Kind::Other));
    }
    let hoisted = |node: &Node| {
        if node.kind == kind {
            node.height - 1
        } else {
            node.height
        }
    };
    let mut joined = Node {
        hir: Hir::empty(),
        kind,
        height: 1 + nodes.iter().map(hoisted).max().unwrap_or(0),
        size: nodes.iter().map(|node| node.size).sum(),
        repeats: nodes.iter().map(|node| node.repeats).max().unwrap_or(1),
    };
    let classes_only = nodes.iter().all(|node| node.kind == Kind::Class);
    let count = nodes.len() as u64;
    let parts = nodes.into_iter().map(|node| node.hir).collect();
    if kind == Kind::Concat {
        joined.hir = Hir::concat(parts);
        return joined;
    }
    joined.hir = Hir::alternation(parts);
    if classes_only {
        return Node::leaf(joined.hir, Kind::Class);
    }
    joined.size += count - 1;
    joined
}

pub(super) fn repeated(sub: Node, min: u32, max: Option<u32>, greedy: bool, counted: bool) -> Node {
    let (low, high) = (u64::from(min), max.map(u64::from));
    let size = match (counted, high) {
        (false, None) => sub.size + if min == 0 { 2 } else { 1 },
        (false, Some(_)) => sub.size + 1,
        (true, None) if min == 0 => sub.size + 2,
        (true, None) => 1 + low * sub.size,
        (true, Some(high)) => (high * sub.size + high - low).max(1),
    };
    let repeats = match (counted, high) {
        (false, _) => sub.repeats,
        (true, Some(0)) => 1,
        (true, high) => high.unwrap_or(low).max(1).saturating_mul(sub.repeats),
    };
    let height = sub.height + 1;
    let hir = Hir::repetition(Repetition {
        min,
        max,
        greedy,
        sub: Box::new(sub.hir),
    });
    Node {
        hir,
        kind: Kind::Other,
        height,
        size,
        repeats,
    }
}
