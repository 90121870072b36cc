//! Further issues of an expression with syntax errors.
//!
//! Upstream also visits the recovered parse tree and reports reserved names, invalid literals and
//! macros in it. [`Tree`] is the recovering parser's result; the abstract syntax tree is built from
//! it only for these issues.
//!
//! UPSTREAM: cel-go parser/parser.go (the visitor), parser/gen/cel_parser.go

use std::borrow::Cow;

use super::ast::{Ast, Expr, Literal, Name, NodeId};
use super::grammar::Rule;
use super::lexer::{Kind, Token};
use super::parser::{Parser, RESERVED};
use crate::limits::MAX_DEPTH;
use crate::source::Issue;

/// The offset of a missing node; no source is that long.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The index of a rule node in its [`Tree`].
pub(super) type RunId = usize;

/// The rule nodes of the parse tree and their children.
#[derive(Debug, Default)]
pub(super) struct Tree {
    runs: Vec<Run>,
}

/// A node of a rule.
#[derive(Debug)]
struct Run {
    rule: Rule,
    /// The alternative taken, from one; zero if not decided.
    alternative: usize,
    /// The offset of its first token, consumed or not.
    start: u32,
    parts: Vec<Part>,
}

/// A child of a rule node.
#[derive(Debug, Clone, Copy)]
enum Part {
    Token(Token),
    /// A missing token that was inserted.
    Missing(Token),
    Run(RunId),
}

impl Tree {
    /// Starts a node.
    pub(super) fn begin(&mut self, rule: Rule, start: u32) -> RunId {
        self.runs.push(Run {
            rule,
            alternative: 0,
            start,
            parts: Vec::new(),
        });
        self.runs.len() - 1
    }

    /// Starts a node whose first child is a complete node of the same rule.
    pub(super) fn wrap(&mut self, inner: RunId, alternative: usize) -> RunId {
        let Some((rule, start)) = self.run(inner).map(|run| (run.rule, run.start)) else {
            return inner;
        };
        let outer = self.begin(rule, start);
        self.choose(outer, alternative);
        self.attach(outer, inner);
        outer
    }

    pub(super) fn choose(&mut self, run: RunId, alternative: usize) {
        if let Some(run) = self.runs.get_mut(run) {
            run.alternative = alternative;
        }
    }

    pub(super) fn read(&mut self, run: RunId, token: Token) {
        self.part(run, Part::Token(token));
    }

    pub(super) fn miss(&mut self, run: RunId, token: Token) {
        self.part(run, Part::Missing(token));
    }

    pub(super) fn attach(&mut self, run: RunId, inner: RunId) {
        self.part(run, Part::Run(inner));
    }

    fn part(&mut self, run: RunId, part: Part) {
        if let Some(run) = self.runs.get_mut(run) {
            run.parts.push(part);
        }
    }

    fn run(&self, run: RunId) -> Option<&Run> {
        self.runs.get(run)
    }
}

impl Run {
    fn tokens(&self, kind: Kind) -> impl Iterator<Item = Part> {
        let of_kind = move |part: &Part| match part {
            Part::Token(token) | Part::Missing(token) => token.kind == kind,
            Part::Run(_) => false,
        };
        self.parts.iter().copied().filter(of_kind)
    }

    /// The offset of the first token of a kind.
    fn offset(&self, kind: Kind) -> Option<u32> {
        self.tokens(kind).next().map(|part| part.offset())
    }

    fn has(&self, kind: Kind) -> bool {
        self.tokens(kind).next().is_some()
    }

    /// The only token of an operator's rule node.
    fn operator(&self) -> Option<u32> {
        self.parts.iter().find_map(|part| match part {
            Part::Token(token) | Part::Missing(token) => Some(token.start),
            Part::Run(_) => None,
        })
    }

    fn inner<'t>(&'t self, tree: &'t Tree, rule: Rule) -> impl Iterator<Item = RunId> + 't {
        self.parts.iter().filter_map(move |part| match part {
            Part::Run(id) if tree.run(*id).is_some_and(|run| run.rule == rule) => Some(*id),
            _ => None,
        })
    }
}

impl Part {
    fn offset(self) -> u32 {
        match self {
            Self::Token(token) | Self::Missing(token) => token.start,
            Self::Run(_) => 0,
        }
    }

    /// The source text of a token.
    fn text(self, source: &str) -> Name<'_> {
        match self {
            Self::Token(token) => Cow::Borrowed(token.text(source)),
            Self::Missing(token) => Cow::Owned(format!("<missing {}>", token.kind.display())),
            Self::Run(_) => Cow::Borrowed(""),
        }
    }
}

/// The issues of the recovered tree.
pub(super) fn recovered_issues(
    source: &str,
    tokens: &[Token],
    tree: &Tree,
    start: RunId,
) -> Vec<Issue> {
    let mut visitor = Visitor {
        parser: Parser::new(source, tokens),
        source,
        tree,
        tasks: vec![Task::Visit(Some(start))],
        built: Vec::new(),
        depth: 0,
    };
    let outcome = visitor.run();
    let mut issues = visitor.parser.issues;
    if let Err(TooDeep) = outcome {
        issues.push(Issue::whole("max recursion depth exceeded"));
    }
    issues
}

/// The tree is deeper than upstream's limit.
struct TooDeep;

/// Pending work.
enum Task<'t> {
    Visit(Option<RunId>),
    /// Report an issue, without a node.
    Report(u32, &'static str),
    /// Build a node from those built since index `from`.
    Build {
        run: &'t Run,
        from: usize,
        counted: bool,
    },
}

struct Visitor<'s, 't> {
    parser: Parser<'s, 't>,
    source: &'s str,
    tree: &'t Tree,
    /// The pending tasks, the next one last. Sources nest too deeply for recursion.
    tasks: Vec<Task<'t>>,
    /// The built nodes without a parent yet.
    built: Vec<NodeId>,
    depth: u32,
}

impl<'s, 't> Visitor<'s, 't> {
    fn ast(&mut self) -> &mut Ast<'s> {
        &mut self.parser.ast
    }

    fn report(&mut self, offset: u32, message: impl Into<String>) -> NodeId {
        self.parser.report(offset, message).id
    }

    fn nothing(&mut self, offset: u32) -> NodeId {
        self.ast().add(offset, Expr::Unspecified)
    }

    /// A call for an operator, or where the arguments do not matter.
    fn call(&mut self, offset: u32, args: Vec<NodeId>) -> NodeId {
        let function = Cow::Borrowed("");
        let call = Expr::Call {
            function,
            target: None,
            args,
        };
        self.ast().add(offset, call)
    }

    fn run(&mut self) -> Result<(), TooDeep> {
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Visit(id) => self.visit(id)?,
                Task::Report(offset, message) => {
                    self.report(offset, message);
                }
                Task::Build { run, from, counted } => {
                    let parts = self.built.split_off(from.min(self.built.len()));
                    let node = self.build(run, parts);
                    self.built.push(node);
                    self.depth -= u32::from(counted);
                }
            }
        }
        Ok(())
    }

    /// Visits a node, passing through those with a single child.
    fn visit(&mut self, mut id: Option<RunId>) -> Result<(), TooDeep> {
        let tree = self.tree;
        while let Some(run) = id.and_then(|id| tree.run(id)) {
            let next = match (run.rule, run.alternative) {
                (Rule::Start, _) => Rule::Expr,
                (Rule::Expr, _) if !run.has(Kind::Question) => Rule::Or,
                (Rule::Or, _) if !run.has(Kind::Or) => Rule::And,
                (Rule::And, _) if !run.has(Kind::And) => Rule::Relation,
                (Rule::Relation, _) if run.operator().is_none() => Rule::Calc,
                (Rule::Calc, _) if run.operator().is_none() => Rule::Unary,
                (Rule::Unary, 1) => Rule::Member,
                (Rule::Member, 0) => Rule::Primary,
                (Rule::Primary, 3) => Rule::Expr,
                (Rule::Primary, 7) => Rule::Literal,
                (rule, _) => {
                    let counted = matches!(
                        rule,
                        Rule::Expr | Rule::Relation | Rule::Calc | Rule::Member
                    );
                    self.depth += u32::from(counted);
                    if self.depth > MAX_DEPTH {
                        return Err(TooDeep);
                    }
                    let from = self.built.len();
                    self.tasks.push(Task::Build { run, from, counted });
                    let first = self.tasks.len();
                    self.visit_parts(run);
                    // The stack pops the last one first.
                    if let Some(added) = self.tasks.get_mut(first..) {
                        added.reverse();
                    }
                    return Ok(());
                }
            };
            id = run.inner(tree, next).next();
        }
        let nothing = self.nothing(NOWHERE);
        self.built.push(nothing);
        Ok(())
    }

    /// Queues visits of a node's children, in order.
    fn visit_parts(&mut self, run: &'t Run) {
        let tree = self.tree;
        let first = |rule| Task::Visit(run.inner(tree, rule).next());
        match (run.rule, run.alternative) {
            (Rule::Expr, _) => {
                let mut choices = run.inner(tree, Rule::Or);
                self.tasks.push(Task::Visit(choices.next()));
                self.tasks.push(Task::Visit(choices.next()));
                self.tasks.push(first(Rule::Expr));
            }
            (Rule::Or, _) => self.visit_all(run, Rule::And),
            (Rule::And, _) => self.visit_all(run, Rule::Relation),
            (Rule::Relation | Rule::Calc, _) => self.visit_all(run, run.rule),
            (Rule::Unary, 2 | 3) | (Rule::Member, 1) => self.tasks.push(first(Rule::Member)),
            (Rule::Member, 2) => {
                self.tasks.push(first(Rule::Member));
                if run.has(Kind::Ident) {
                    self.visit_arguments(run);
                }
            }
            (Rule::Member, _) => {
                self.tasks.push(first(Rule::Member));
                if run.has(Kind::LBracket) {
                    self.tasks.push(first(Rule::Expr));
                }
            }
            (Rule::Primary, 2) if self.callable(run) => self.visit_arguments(run),
            (Rule::Primary, 4) => self.visit_elements(run),
            (Rule::Primary, 5) => self.visit_entries(run),
            (Rule::Primary, 6) => self.visit_fields(run),
            _ => {}
        }
    }

    fn visit_all(&mut self, run: &'t Run, rule: Rule) {
        self.tasks
            .extend(run.inner(self.tree, rule).map(|id| Task::Visit(Some(id))));
    }

    fn visit_arguments(&mut self, run: &'t Run) {
        let list = run.inner(self.tree, Rule::ExprList).next();
        if let Some(list) = list.and_then(|list| self.tree.run(list)) {
            self.visit_all(list, Rule::Expr);
        }
    }

    /// The expression of an element or a key that may be optional.
    fn visit_optional(&mut self, id: RunId) {
        let inner = self.tree.run(id);
        let expr = inner.and_then(|inner| inner.inner(self.tree, Rule::Expr).next());
        self.tasks.push(Task::Visit(expr));
    }

    fn visit_elements(&mut self, run: &'t Run) {
        let tree = self.tree;
        let list = run.inner(tree, Rule::ListInit).next();
        if let Some(list) = list.and_then(|list| tree.run(list)) {
            for element in list.inner(tree, Rule::OptExpr) {
                self.visit_optional(element);
            }
        }
    }

    fn visit_entries(&mut self, run: &'t Run) {
        let tree = self.tree;
        let entries = run.inner(tree, Rule::MapInit).next();
        let Some(init) = entries.and_then(|init| tree.run(init)) else {
            return;
        };
        let mut keys = init.inner(tree, Rule::OptExpr);
        let mut values = init.inner(tree, Rule::Expr);
        for _ in init.tokens(Kind::Colon) {
            let (Some(key), Some(value)) = (keys.next(), values.next()) else {
                break;
            };
            self.visit_optional(key);
            self.tasks.push(Task::Visit(Some(value)));
        }
    }

    fn visit_fields(&mut self, run: &'t Run) {
        let tree = self.tree;
        let fields = run.inner(tree, Rule::FieldInit).next();
        let Some(init) = fields.and_then(|init| tree.run(init)) else {
            return;
        };
        let mut colons = init.tokens(Kind::Colon);
        let mut values = init.inner(tree, Rule::Expr);
        for field in init.inner(tree, Rule::OptField) {
            let (Some(_), Some(value)) = (colons.next(), values.next()) else {
                break;
            };
            let field = tree.run(field);
            let name = field.and_then(|field| field.inner(tree, Rule::EscapeIdent).next());
            self.tasks.push(match self.field(name) {
                // The value of a rejected field is not visited.
                Err(message) => Task::Report(init.start, message),
                Ok(_) => Task::Visit(Some(value)),
            });
        }
    }

    /// Builds a node whose children are visited.
    fn build(&mut self, run: &Run, parts: Vec<NodeId>) -> NodeId {
        match (run.rule, run.alternative) {
            (Rule::Expr, _) => self.operation(run, Kind::Question, parts),
            (Rule::Or, _) => self.operation(run, Kind::Or, parts),
            (Rule::And, _) => self.operation(run, Kind::And, parts),
            (Rule::Relation | Rule::Calc, _) => {
                self.call(run.operator().unwrap_or(run.start), parts)
            }
            (Rule::Unary, 2) => self.prefixed(run, Kind::Exclam, parts),
            (Rule::Unary, 3) => self.prefixed(run, Kind::Minus, parts),
            (Rule::Unary, _) => {
                let error = Literal::String(Cow::Borrowed("<<error>>"));
                self.ast().add(run.start, Expr::Literal(error))
            }
            (Rule::Member, 1) => self.selection(run, parts),
            (Rule::Member, 2) => self.member_call(run, parts),
            (Rule::Member, _) => match run.offset(Kind::LBracket) {
                Some(open) => self.call(open, parts),
                None => self.nothing(run.start),
            },
            (Rule::Primary, 1 | 2) => self.named(run, parts),
            (Rule::Primary, 4) => {
                let optional = vec![false; parts.len()];
                let open = run.offset(Kind::LBracket).unwrap_or(run.start);
                let elements = parts;
                self.ast().add(open, Expr::List { elements, optional })
            }
            (Rule::Primary, 5) => {
                let open = run.offset(Kind::LBrace).unwrap_or(run.start);
                let entries = Vec::new();
                self.ast().add(open, Expr::Map { entries })
            }
            (Rule::Primary, 6) => {
                let open = run.offset(Kind::LBrace).unwrap_or(run.start);
                let message = Expr::Struct {
                    type_name: Cow::Borrowed(""),
                    fields: Vec::new(),
                };
                self.ast().add(open, message)
            }
            (Rule::Literal, 1..=8) => self.literal(run),
            _ => self.nothing(NOWHERE),
        }
    }

    fn operation(&mut self, run: &Run, operator: Kind, parts: Vec<NodeId>) -> NodeId {
        self.call(run.offset(operator).unwrap_or(run.start), parts)
    }

    fn prefixed(&mut self, run: &Run, operator: Kind, parts: Vec<NodeId>) -> NodeId {
        match parts.first() {
            Some(operand) if run.tokens(operator).count().is_multiple_of(2) => *operand,
            _ => self.operation(run, operator, parts),
        }
    }

    /// The name in a field rule node, or the error message.
    fn field(&self, id: Option<RunId>) -> Result<Name<'s>, &'static str> {
        let run = id.and_then(|id| self.tree.run(id));
        match run.map(|run| (run.alternative, run.tokens(Kind::Ident).next())) {
            Some((1, Some(name))) => Ok(name.text(self.source)),
            Some((2, _)) => Err("unsupported syntax: '`'"),
            _ => Err("unsupported ident kind"),
        }
    }

    fn selection(&mut self, run: &Run, parts: Vec<NodeId>) -> NodeId {
        let tree = self.tree;
        let field = run.inner(tree, Rule::EscapeIdent).next();
        let (Some(id), Some(dot), Some(&operand)) = (field, run.offset(Kind::Dot), parts.first())
        else {
            return self.nothing(run.start);
        };
        let name = match self.field(Some(id)) {
            Ok(name) => name,
            Err(message) => {
                let at = tree.run(id).map_or(run.start, |field| field.start);
                self.report(at, message);
                Cow::Borrowed("")
            }
        };
        if run.has(Kind::Question) {
            return self.call(dot, parts);
        }
        let select = Expr::Select {
            operand,
            field: name,
            test_only: false,
        };
        self.ast().add(dot, select)
    }

    fn member_call(&mut self, run: &Run, mut parts: Vec<NodeId>) -> NodeId {
        let Some(name) = run.tokens(Kind::Ident).next() else {
            return self.nothing(run.start);
        };
        let name = name.text(self.source);
        let args = parts.split_off(parts.len().min(1));
        let open = run.offset(Kind::LParen).unwrap_or(run.start);
        self.parser
            .call_or_macro(open, name, parts.first().copied(), args)
    }

    /// Returns true for a call with a valid function name.
    fn callable(&self, run: &Run) -> bool {
        let name = run.tokens(Kind::Ident).next();
        name.is_some_and(|name| !RESERVED.contains(&&*name.text(self.source)))
    }

    /// A variable, or a call of a global function.
    fn named(&mut self, run: &Run, args: Vec<NodeId>) -> NodeId {
        let Some(part) = run.tokens(Kind::Ident).next() else {
            return self.nothing(run.start);
        };
        let name = part.text(self.source);
        if RESERVED.contains(&&*name) {
            return self.report(run.start, format!("reserved identifier: {name}"));
        }
        let name = match run.has(Kind::Dot) {
            true => Cow::Owned(format!(".{name}")),
            false => name,
        };
        if run.alternative == 1 {
            return self.ast().add(part.offset(), Expr::Ident(name));
        }
        let open = run.offset(Kind::LParen).unwrap_or(run.start);
        self.parser.call_or_macro(open, name, None, args)
    }

    fn literal(&mut self, run: &Run) -> NodeId {
        let token = run.parts.iter().rev().find_map(|part| match part {
            Part::Token(token) if token.kind != Kind::Minus => Some(*token),
            _ => None,
        });
        match token {
            Some(token) => {
                let negative = run.has(Kind::Minus);
                self.parser.literal_of(run.start, negative, token).id
            }
            None => self.ast().add(run.start, Expr::Unspecified),
        }
    }
}
