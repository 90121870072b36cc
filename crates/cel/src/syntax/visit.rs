//! What else is wrong with an expression that does not parse.
//!
//! Upstream looks at whatever its parser made of a broken text and complains
//! about reserved names, literals and macros in it, too. [`Tree`] is what the
//! recovering parser makes; the tree of the expression is built from it only to
//! hear those complaints.
//!
//! UPSTREAM: cel-go parser/parser.go (the visitor), parser/gen/cel_parser.go

use std::borrow::Cow;

use super::MAX_DEPTH;
use super::ast::{Ast, Expr, Literal, Name, NodeId};
use super::grammar::Rule;
use super::lexer::{Kind, Token};
use super::parser::{Parser, RESERVED};
use crate::source::Issue;

/// The offset of what is not in the text; no text is that long.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The index of a rule's run in its [`Tree`].
pub(super) type RunId = usize;

/// The runs of the grammar's rules and what each of them read.
#[derive(Debug, Default)]
pub(super) struct Tree {
    runs: Vec<Run>,
}

/// One run of a rule.
#[derive(Debug)]
struct Run {
    rule: Rule,
    /// The alternative taken, from one; zero while there is none.
    alternative: usize,
    /// Where its first token begins, whether it was read or not.
    start: u32,
    parts: Vec<Part>,
}

/// Something a rule read.
#[derive(Debug, Clone, Copy)]
enum Part {
    Token(Token),
    /// A token that is not there and was taken to be.
    Missing(Token),
    Run(RunId),
}

impl Tree {
    /// Begins a run.
    pub(super) fn begin(&mut self, rule: Rule, start: u32) -> RunId {
        self.runs.push(Run {
            rule,
            alternative: 0,
            start,
            parts: Vec::new(),
        });
        self.runs.len() - 1
    }

    /// Begins a run that has a finished one of the same rule for its first part.
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

    /// Where the first token of a kind begins.
    fn offset(&self, kind: Kind) -> Option<u32> {
        self.tokens(kind).next().map(|part| part.offset())
    }

    fn has(&self, kind: Kind) -> bool {
        self.tokens(kind).next().is_some()
    }

    /// The only token of a run of an operator's rule.
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

    /// The text of a token.
    fn text(self, source: &str) -> Name<'_> {
        match self {
            Self::Token(token) => Cow::Borrowed(token.text(source)),
            Self::Missing(token) => Cow::Owned(format!("<missing {}>", token.kind.display())),
            Self::Run(_) => Cow::Borrowed(""),
        }
    }
}

/// The complaints about what a broken text was taken for.
pub(super) fn complaints(source: &str, tokens: &[Token], tree: &Tree, start: RunId) -> Vec<Issue> {
    let mut visitor = Visitor {
        parser: Parser::new(source, tokens),
        source,
        tree,
        depth: 0,
    };
    let outcome = visitor.visit(Some(start));
    let mut issues = visitor.parser.issues;
    if let Err(TooDeep) = outcome {
        issues.push(Issue::whole("max recursion depth exceeded"));
    }
    issues
}

/// The tree is deeper than upstream looks.
struct TooDeep;

type Visited = Result<NodeId, TooDeep>;

struct Visitor<'s, 't> {
    parser: Parser<'s, 't>,
    source: &'s str,
    tree: &'t Tree,
    depth: u32,
}

impl<'s> Visitor<'s, '_> {
    fn ast(&mut self) -> &mut Ast<'s> {
        &mut self.parser.ast
    }

    fn report(&mut self, offset: u32, message: impl Into<String>) -> NodeId {
        self.parser.report(offset, message).id
    }

    fn nothing(&mut self, offset: u32) -> Visited {
        Ok(self.ast().add(offset, Expr::Unspecified))
    }

    /// An operator or anything else whose arguments do not matter.
    fn call(&mut self, offset: u32, args: Vec<NodeId>) -> Visited {
        let function = Cow::Borrowed("");
        let call = Expr::Call {
            function,
            target: None,
            args,
        };
        Ok(self.ast().add(offset, call))
    }

    /// Visits a run, passing through those that only lead to another.
    fn visit(&mut self, mut id: Option<RunId>) -> Visited {
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
                (Rule::Expr | Rule::Relation | Rule::Calc | Rule::Member, _) => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(TooDeep);
                    }
                    let visited = self.compound(run);
                    self.depth -= 1;
                    return visited;
                }
                _ => return self.compound(run),
            };
            id = run.inner(tree, next).next();
        }
        self.nothing(NOWHERE)
    }

    fn compound(&mut self, run: &Run) -> Visited {
        match (run.rule, run.alternative) {
            (Rule::Expr, _) => self.conditional(run),
            (Rule::Or, _) => self.chain(run, Rule::And, Kind::Or),
            (Rule::And, _) => self.chain(run, Rule::Relation, Kind::And),
            (Rule::Relation | Rule::Calc, _) => self.chain(run, run.rule, Kind::Eof),
            (Rule::Unary, 2) => self.prefixed(run, Kind::Exclam),
            (Rule::Unary, 3) => self.prefixed(run, Kind::Minus),
            (Rule::Unary, _) => {
                let error = Literal::String(Cow::Borrowed("<<error>>"));
                Ok(self.ast().add(run.start, Expr::Literal(error)))
            }
            (Rule::Member, 1) => self.selection(run),
            (Rule::Member, 2) => self.member_call(run),
            (Rule::Member, _) => self.index(run),
            (Rule::Primary, 1 | 2) => self.named(run),
            (Rule::Primary, 4) => self.list(run),
            (Rule::Primary, 5) => self.map(run),
            (Rule::Primary, 6) => self.message(run),
            (Rule::Literal, 1..=8) => Ok(self.literal(run)),
            _ => self.nothing(NOWHERE),
        }
    }

    fn all(&mut self, runs: impl Iterator<Item = RunId>) -> Result<Vec<NodeId>, TooDeep> {
        runs.map(|run| self.visit(Some(run))).collect()
    }

    fn conditional(&mut self, run: &Run) -> Visited {
        let tree = self.tree;
        let mut choices = run.inner(tree, Rule::Or);
        let condition = self.visit(choices.next())?;
        let yes = self.visit(choices.next())?;
        let no = self.visit(run.inner(tree, Rule::Expr).next())?;
        let offset = run.offset(Kind::Question).unwrap_or(run.start);
        self.call(offset, vec![condition, yes, no])
    }

    fn chain(&mut self, run: &Run, operands: Rule, operator: Kind) -> Visited {
        let args = self.all(run.inner(self.tree, operands))?;
        let offset = run.offset(operator).or_else(|| run.operator());
        self.call(offset.unwrap_or(run.start), args)
    }

    fn prefixed(&mut self, run: &Run, operator: Kind) -> Visited {
        let operand = self.visit(run.inner(self.tree, Rule::Member).next())?;
        if run.tokens(operator).count().is_multiple_of(2) {
            return Ok(operand);
        }
        self.call(run.offset(operator).unwrap_or(run.start), vec![operand])
    }

    /// The name a run of the rule for fields read, or what is wrong with it.
    fn field(&self, id: Option<RunId>) -> Result<Name<'s>, &'static str> {
        let run = id.and_then(|id| self.tree.run(id));
        match run.map(|run| (run.alternative, run.tokens(Kind::Ident).next())) {
            Some((1, Some(name))) => Ok(name.text(self.source)),
            Some((2, _)) => Err("unsupported syntax: '`'"),
            _ => Err("unsupported ident kind"),
        }
    }

    fn selection(&mut self, run: &Run) -> Visited {
        let tree = self.tree;
        let operand = self.visit(run.inner(tree, Rule::Member).next())?;
        let field = run.inner(tree, Rule::EscapeIdent).next();
        let (Some(id), Some(dot)) = (field, run.offset(Kind::Dot)) else {
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
            return self.call(dot, vec![operand]);
        }
        let select = Expr::Select {
            operand,
            field: name,
            test_only: false,
        };
        Ok(self.ast().add(dot, select))
    }

    fn arguments(&mut self, run: &Run) -> Result<Vec<NodeId>, TooDeep> {
        let tree = self.tree;
        match run.inner(tree, Rule::ExprList).next() {
            Some(list) => {
                let list = tree.run(list);
                self.all(
                    list.into_iter()
                        .flat_map(|list| list.inner(tree, Rule::Expr)),
                )
            }
            None => Ok(Vec::new()),
        }
    }

    fn member_call(&mut self, run: &Run) -> Visited {
        let target = self.visit(run.inner(self.tree, Rule::Member).next())?;
        let Some(name) = run.tokens(Kind::Ident).next() else {
            return self.nothing(run.start);
        };
        let name = name.text(self.source);
        let args = self.arguments(run)?;
        let open = run.offset(Kind::LParen).unwrap_or(run.start);
        Ok(self.parser.call_or_macro(open, name, Some(target), args))
    }

    fn index(&mut self, run: &Run) -> Visited {
        let tree = self.tree;
        let target = self.visit(run.inner(tree, Rule::Member).next())?;
        let Some(open) = run.offset(Kind::LBracket) else {
            return self.nothing(run.start);
        };
        let index = self.visit(run.inner(tree, Rule::Expr).next())?;
        self.call(open, vec![target, index])
    }

    /// A variable, or a call of a global function.
    fn named(&mut self, run: &Run) -> Visited {
        let Some(part) = run.tokens(Kind::Ident).next() else {
            return self.nothing(run.start);
        };
        let name = part.text(self.source);
        if RESERVED.contains(&&*name) {
            return Ok(self.report(run.start, format!("reserved identifier: {name}")));
        }
        let name = match run.has(Kind::Dot) {
            true => Cow::Owned(format!(".{name}")),
            false => name,
        };
        if run.alternative == 1 {
            return Ok(self.ast().add(part.offset(), Expr::Ident(name)));
        }
        let args = self.arguments(run)?;
        let open = run.offset(Kind::LParen).unwrap_or(run.start);
        Ok(self.parser.call_or_macro(open, name, None, args))
    }

    fn list(&mut self, run: &Run) -> Visited {
        let tree = self.tree;
        let mut elements = Vec::new();
        let list = run.inner(tree, Rule::ListInit).next();
        for element in list
            .and_then(|list| tree.run(list))
            .into_iter()
            .flat_map(|list| list.inner(tree, Rule::OptExpr))
        {
            let inner = tree.run(element);
            elements.push(self.visit(inner.and_then(|e| e.inner(tree, Rule::Expr).next()))?);
        }
        let optional = vec![false; elements.len()];
        let open = run.offset(Kind::LBracket).unwrap_or(run.start);
        Ok(self.ast().add(open, Expr::List { elements, optional }))
    }

    fn map(&mut self, run: &Run) -> Visited {
        let tree = self.tree;
        let entries = run.inner(tree, Rule::MapInit).next();
        if let Some(init) = entries.and_then(|init| tree.run(init)) {
            let mut keys = init.inner(tree, Rule::OptExpr);
            let mut values = init.inner(tree, Rule::Expr);
            for _ in init.tokens(Kind::Colon) {
                let (Some(key), Some(value)) = (keys.next(), values.next()) else {
                    break;
                };
                let key = tree.run(key);
                self.visit(key.and_then(|key| key.inner(tree, Rule::Expr).next()))?;
                self.visit(Some(value))?;
            }
        }
        let open = run.offset(Kind::LBrace).unwrap_or(run.start);
        let entries = Vec::new();
        Ok(self.ast().add(open, Expr::Map { entries }))
    }

    fn message(&mut self, run: &Run) -> Visited {
        let tree = self.tree;
        let fields = run.inner(tree, Rule::FieldInit).next();
        if let Some(init) = fields.and_then(|init| tree.run(init)) {
            let mut colons = init.tokens(Kind::Colon);
            let mut values = init.inner(tree, Rule::Expr);
            for field in init.inner(tree, Rule::OptField) {
                let (Some(_), Some(value)) = (colons.next(), values.next()) else {
                    break;
                };
                let field = tree.run(field);
                let name = field.and_then(|field| field.inner(tree, Rule::EscapeIdent).next());
                match self.field(name) {
                    // The value of a refused field is not looked at.
                    Err(message) => {
                        self.report(init.start, message);
                    }
                    Ok(_) => {
                        self.visit(Some(value))?;
                    }
                }
            }
        }
        let open = run.offset(Kind::LBrace).unwrap_or(run.start);
        let message = Expr::Struct {
            type_name: Cow::Borrowed(""),
            fields: Vec::new(),
        };
        Ok(self.ast().add(open, message))
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
