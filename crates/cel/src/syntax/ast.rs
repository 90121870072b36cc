//! The abstract syntax tree: nodes in one flat list, with child indexes.

use std::borrow::Cow;

use crate::source::Span;

/// A name in the tree, usually borrowed from the source.
pub(crate) type Name<'s> = Cow<'s, str>;

/// The index of a node in its [`Ast`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) u32);

/// A parsed expression.
#[derive(Debug, Clone)]
pub(crate) struct Ast<'s> {
    nodes: Vec<Node<'s>>,
    pub(crate) root: NodeId,
    /// The nodes of macro expansions, with the original calls.
    pub(crate) expansions: Vec<(NodeId, MacroCall<'s>)>,
}

/// The original call of a macro.
#[derive(Debug, Clone)]
pub(crate) struct MacroCall<'s> {
    pub(crate) function: Name<'s>,
    pub(crate) target: Option<NodeId>,
    pub(crate) args: Vec<NodeId>,
}

/// A node, the offset of its defining token, and its source span.
#[derive(Debug, Clone)]
pub(crate) struct Node<'s> {
    pub(crate) expr: Expr<'s>,
    pub(crate) offset: u32,
    /// Empty for nodes that only occur in the expansion of a macro.
    pub(crate) span: Span,
}

/// A literal value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal<'s> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Cow<'s, str>),
    Bytes(Vec<u8>),
}

/// An expression.
#[derive(Debug, Clone)]
pub(crate) enum Expr<'s> {
    /// A placeholder where an error was reported.
    Unspecified,
    Literal(Literal<'s>),
    Ident(Name<'s>),
    Select {
        operand: NodeId,
        field: Name<'s>,
        test_only: bool,
    },
    Call {
        function: Name<'s>,
        target: Option<NodeId>,
        args: Vec<NodeId>,
    },
    List {
        elements: Vec<NodeId>,
        optional: Vec<bool>,
    },
    Map {
        entries: Vec<MapEntry>,
    },
    Struct {
        type_name: Name<'s>,
        fields: Vec<StructField<'s>>,
    },
    Comprehension(Box<Comprehension<'s>>),
}

/// A key with its value in a map literal.
#[derive(Debug, Clone)]
pub(crate) struct MapEntry {
    pub(crate) key: NodeId,
    pub(crate) value: NodeId,
    pub(crate) optional: bool,
}

/// A field with its value in a message literal.
#[derive(Debug, Clone)]
pub(crate) struct StructField<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) value: NodeId,
    pub(crate) optional: bool,
    pub(crate) offset: u32,
}

/// The expansion of a looping macro.
#[derive(Debug, Clone)]
pub(crate) struct Comprehension<'s> {
    pub(crate) range: NodeId,
    pub(crate) var: Name<'s>,
    pub(crate) var2: Option<Name<'s>>,
    pub(crate) accu: Name<'s>,
    pub(crate) init: NodeId,
    pub(crate) condition: NodeId,
    pub(crate) step: NodeId,
    pub(crate) result: NodeId,
}

impl<'s> Ast<'s> {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(capacity),
            root: NodeId(0),
            expansions: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, offset: u32, expr: Expr<'s>) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node {
            expr,
            offset,
            span: Span::default(),
        });
        id
    }

    /// Sets the source span of a node.
    pub(crate) fn cover(&mut self, id: NodeId, span: Span) {
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.span = span;
        }
    }

    pub(crate) fn span(&self, id: NodeId) -> Span {
        self.node(id).span
    }

    /// Returns true if the tree is deeper than `limit`. Chains of logical operators have levels
    /// that upstream does not count as depth, but recursive walks need stack for all of them.
    pub(crate) fn is_deeper_than(&self, root: NodeId, limit: usize) -> bool {
        if self.len() <= limit {
            return false;
        }
        let mut open = vec![(root, 1)];
        while let Some((id, level)) = open.pop() {
            if level > limit {
                return true;
            }
            let mut push = |child: NodeId| open.push((child, level + 1));
            match self.expr(id) {
                Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
                Expr::Select { operand, .. } => push(*operand),
                Expr::Call { target, args, .. } => {
                    target.iter().chain(args).copied().for_each(push);
                }
                Expr::List { elements, .. } => elements.iter().copied().for_each(push),
                Expr::Map { entries } => {
                    for entry in entries {
                        push(entry.key);
                        push(entry.value);
                    }
                }
                Expr::Struct { fields, .. } => fields.iter().for_each(|field| push(field.value)),
                Expr::Comprehension(part) => {
                    [
                        part.range,
                        part.init,
                        part.condition,
                        part.step,
                        part.result,
                    ]
                    .into_iter()
                    .for_each(push);
                }
            }
        }
        false
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node with this id.
    ///
    /// Ids are only returned by [`Ast::add`] of the same tree.
    #[expect(
        clippy::indexing_slicing,
        reason = "ids are created by this tree and nodes are never removed"
    )]
    pub(crate) fn node(&self, id: NodeId) -> &Node<'s> {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn expr(&self, id: NodeId) -> &Expr<'s> {
        &self.node(id).expr
    }

    pub(crate) fn offset(&self, id: NodeId) -> u32 {
        self.node(id).offset
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids are created by this tree and nodes are never removed"
    )]
    pub(crate) fn replace(&mut self, id: NodeId, expr: Expr<'s>) {
        self.nodes[id.0 as usize].expr = expr;
    }

    /// `a.b.c` as one name, if the node is a chain of names.
    pub(crate) fn qualified_name(&self, id: NodeId) -> Option<String> {
        match self.expr(id) {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select {
                operand,
                field,
                test_only: false,
            } => {
                let mut name = self.qualified_name(*operand)?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }

    /// A deep copy of a subtree, with new nodes.
    ///
    /// The recursion is bounded, as the parser limits the depth of the tree.
    pub(crate) fn copy(&mut self, id: NodeId, entry_offset: u32) -> NodeId {
        let node = self.node(id).clone();
        let expr = match node.expr {
            Expr::Select {
                operand,
                field,
                test_only,
            } => Expr::Select {
                operand: self.copy(operand, entry_offset),
                field,
                test_only,
            },
            Expr::Call {
                function,
                target,
                args,
            } => {
                let args = args.iter().map(|a| self.copy(*a, entry_offset)).collect();
                let target = target.map(|t| self.copy(t, entry_offset));
                Expr::Call {
                    function,
                    target,
                    args,
                }
            }
            Expr::List { elements, optional } => {
                let elements = elements
                    .iter()
                    .map(|e| self.copy(*e, entry_offset))
                    .collect();
                Expr::List { elements, optional }
            }
            Expr::Map { entries } => Expr::Map {
                entries: entries
                    .iter()
                    .map(|e| MapEntry {
                        key: self.copy(e.key, entry_offset),
                        value: self.copy(e.value, entry_offset),
                        optional: e.optional,
                    })
                    .collect(),
            },
            Expr::Struct { type_name, fields } => Expr::Struct {
                type_name,
                fields: fields
                    .into_iter()
                    .map(|f| StructField {
                        value: self.copy(f.value, entry_offset),
                        offset: entry_offset,
                        ..f
                    })
                    .collect(),
            },
            Expr::Comprehension(c) => {
                let c = *c;
                Expr::Comprehension(Box::new(Comprehension {
                    range: self.copy(c.range, entry_offset),
                    init: self.copy(c.init, entry_offset),
                    condition: self.copy(c.condition, entry_offset),
                    step: self.copy(c.step, entry_offset),
                    result: self.copy(c.result, entry_offset),
                    ..c
                }))
            }
            leaf @ (Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_)) => leaf,
        };
        let copy = self.add(node.offset, expr);
        self.cover(copy, node.span);
        copy
    }
}

/// Function names of the operators.
pub(crate) mod operators {
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const LESS: &str = "_<_";
    pub(crate) const LESS_EQUALS: &str = "_<=_";
    pub(crate) const GREATER: &str = "_>_";
    pub(crate) const GREATER_EQUALS: &str = "_>=_";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const SUBTRACT: &str = "_-_";
    pub(crate) const MULTIPLY: &str = "_*_";
    pub(crate) const DIVIDE: &str = "_/_";
    pub(crate) const MODULO: &str = "_%_";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPT_INDEX: &str = "_[?_]";
    pub(crate) const OPT_SELECT: &str = "_?._";
    pub(crate) const IN: &str = "@in";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    /// The accumulator variable of the looping macros; it is not a valid identifier in source.
    pub(crate) const ACCUMULATOR: &str = "@result";
    /// The former accumulator name, still rejected as a loop variable.
    pub(crate) const OLD_ACCUMULATOR: &str = "__result__";
    pub(crate) const UNUSED: &str = "#unused";
}
