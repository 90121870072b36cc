//! The fast parser: recursive descent over the tokens, building the tree.
//!
//! It accepts exactly the language of the grammar and expands macros on the fly. It stops at the
//! first syntax error, and [`super::recovery`] reports the errors.
//!
//! UPSTREAM: cel-go parser/parser.go, parser/gen/CEL.g4

use std::borrow::Cow;

use super::ast::{
    Ast, Expr, Literal, MacroCall, MapEntry, Name, NodeId, StructField, operators as op,
};
use super::lexer::{Kind, Token, tokenize};
use super::unescape::{unescape_bytes, unescape_string};
use super::visit::NOWHERE;
use super::{macros, recovery};
use crate::limits::{MAX_CODE_POINTS, MAX_DEPTH};
use crate::source::{Issue, Span};

/// Reserved names: valid as fields, but not as variables or functions.
pub(super) const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The maximum number of nodes of a tree after macro expansion.
///
/// `optMap` copies its target, so each one in a chain doubles the tree. Upstream has no limit and
/// runs out of memory.
const MAX_NODES: usize = 300_000;

/// The maximum depth of a tree. Only chains of logical operators in parentheses, tens of thousands
/// of characters long, come close; walking deeper trees could overflow a stack of 2 MiB.
const MAX_LEVELS: usize = 2_500;

/// Parses an expression and expands its macros.
pub(crate) fn parse(source: &str) -> Result<Ast<'_>, Vec<Issue>> {
    // A code point is at least one byte, so short sources need no counting.
    if source.len() > MAX_CODE_POINTS {
        let size = source.chars().count();
        if size > MAX_CODE_POINTS {
            return Err(vec![Issue::whole(format!(
                "expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}"
            ))]);
        }
    }
    let (tokens, lexical) = tokenize(source);
    let mut parser = Parser::new(source, &tokens);
    let outcome = parser.start();
    let Parser {
        mut ast,
        mut issues,
        ..
    } = parser;
    match outcome {
        Ok(root) if lexical.is_empty() && issues.is_empty() => {
            ast.root = root;
            Ok(ast)
        }
        Ok(_) if lexical.is_empty() => Err(issues),
        Err(Stop::TooDeep(message)) if lexical.is_empty() => {
            issues.push(Issue::whole(message));
            Err(issues)
        }
        Ok(_) | Err(_) => Err(recovery::errors(source, &tokens, lexical)),
    }
}

/// The reason for stopping early.
#[derive(Debug)]
enum Stop {
    /// A syntax error.
    Syntax,
    /// The maximum depth is exceeded.
    TooDeep(&'static str),
}

type Parsed<T> = Result<T, Stop>;

/// A subtree with the depth of upstream's visitor recursion, and its source span with parentheses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sub {
    pub(super) id: NodeId,
    height: u32,
    span: Span,
}

/// The current nesting of each grammar rule.
#[derive(Debug, Default)]
struct Depth {
    expr: u32,
    relation: u32,
    calc: u32,
}

pub(super) struct Parser<'s, 't> {
    source: &'s str,
    tokens: &'t [Token],
    next: usize,
    pub(super) ast: Ast<'s>,
    pub(super) issues: Vec<Issue>,
    depth: Depth,
}

fn enter(counter: &mut u32) -> Parsed<()> {
    *counter += 1;
    if *counter > MAX_DEPTH {
        return Err(Stop::TooDeep("expression recursion limit exceeded: 250"));
    }
    Ok(())
}

impl<'s, 't> Parser<'s, 't> {
    pub(super) fn new(source: &'s str, tokens: &'t [Token]) -> Self {
        Self {
            source,
            tokens,
            next: 0,
            ast: Ast::with_capacity(tokens.len() * 2),
            issues: Vec::new(),
            depth: Depth::default(),
        }
    }

    fn peek_at(&self, ahead: usize) -> Kind {
        self.tokens
            .get(self.next + ahead)
            .map_or(Kind::Eof, |t| t.kind)
    }

    fn peek(&self) -> Kind {
        self.peek_at(0)
    }

    fn advance(&mut self) -> Token {
        let end = self.source.len() as u32;
        let token = self.tokens.get(self.next).copied();
        self.next += 1;
        token.unwrap_or(Token {
            kind: Kind::Eof,
            start: end,
            end,
        })
    }

    fn accept(&mut self, kind: Kind) -> Option<Token> {
        (self.peek() == kind).then(|| self.advance())
    }

    fn expect(&mut self, kind: Kind) -> Parsed<Token> {
        self.accept(kind).ok_or(Stop::Syntax)
    }

    pub(super) fn report(&mut self, offset: u32, message: impl Into<String>) -> Sub {
        self.issues.push(match offset {
            NOWHERE => Issue::unplaced(message),
            _ => Issue::at(offset, message),
        });
        let id = self.ast.add(offset, Expr::Unspecified);
        self.sub(id, 0, offset)
    }

    /// Creates a subtree whose span starts at `start` and ends with the last consumed token.
    fn sub(&mut self, id: NodeId, height: u32, start: u32) -> Sub {
        let last = self.next.checked_sub(1).and_then(|at| self.tokens.get(at));
        let end = last.map_or(start, |token| token.end);
        let span = Span { start, end };
        self.ast.cover(id, span);
        Sub { id, height, span }
    }

    fn call(&mut self, offset: u32, function: &'static str, args: &[Sub]) -> Sub {
        let height = 1 + args.iter().map(|a| a.height).max().unwrap_or(0);
        let span = Span {
            start: args.first().map_or(offset, |a| a.span.start.min(offset)),
            end: args.last().map_or(offset, |a| a.span.end),
        };
        let args = args.iter().map(|a| a.id).collect();
        let call = Expr::Call {
            function: Cow::Borrowed(function),
            target: None,
            args,
        };
        let id = self.ast.add(offset, call);
        self.ast.cover(id, span);
        Sub { id, height, span }
    }

    // The following rules recurse for every level of nesting, so rare work is done in separate
    // functions: the frames of most levels do without its locals.

    fn start(&mut self) -> Parsed<NodeId> {
        let root = self.expr()?;
        self.expect(Kind::Eof)?;
        if root.height > MAX_DEPTH {
            return Err(Stop::TooDeep("max recursion depth exceeded"));
        }
        if self.ast.len() > MAX_NODES {
            return Err(Stop::TooDeep(
                "expression is too large once its macros are expanded",
            ));
        }
        if self.ast.is_deeper_than(root.id, MAX_LEVELS) {
            return Err(Stop::TooDeep("expression nests too many levels"));
        }
        Ok(root.id)
    }

    fn expr(&mut self) -> Parsed<Sub> {
        enter(&mut self.depth.expr)?;
        let mut result = self.or()?;
        if self.peek() == Kind::Question {
            result = self.conditional(result)?;
        }
        self.depth.expr -= 1;
        Ok(result)
    }

    fn conditional(&mut self, condition: Sub) -> Parsed<Sub> {
        let question = self.advance().start;
        let yes = self.or()?;
        self.expect(Kind::Colon)?;
        let no = self.expr()?;
        Ok(self.call(question, op::CONDITIONAL, &[condition, yes, no]))
    }

    fn or(&mut self) -> Parsed<Sub> {
        let first = self.and()?;
        match self.peek() {
            Kind::Or => self.or_chain(first),
            _ => Ok(first),
        }
    }

    fn or_chain(&mut self, first: Sub) -> Parsed<Sub> {
        let mut terms = vec![first];
        let mut offsets = Vec::new();
        while let Some(operator) = self.accept(Kind::Or) {
            terms.push(self.and()?);
            offsets.push(operator.start);
        }
        Ok(self.balanced(op::OR, &terms, &offsets))
    }

    fn and(&mut self) -> Parsed<Sub> {
        let first = self.relation(0)?;
        match self.peek() {
            Kind::And => self.and_chain(first),
            _ => Ok(first),
        }
    }

    fn and_chain(&mut self, first: Sub) -> Parsed<Sub> {
        let mut terms = vec![first];
        let mut offsets = Vec::new();
        while let Some(operator) = self.accept(Kind::And) {
            terms.push(self.relation(0)?);
            offsets.push(operator.start);
        }
        Ok(self.balanced(op::AND, &terms, &offsets))
    }

    /// A chain of `&&` or `||` as a balanced tree, to limit the depth of long chains.
    fn balanced(&mut self, function: &'static str, terms: &[Sub], offsets: &[u32]) -> Sub {
        let middle = offsets.len() / 2;
        let (left_terms, right_terms) = terms.split_at(middle + 1);
        let (left_offsets, rest) = offsets.split_at(middle);
        let (offset, right_offsets) = match rest.split_first() {
            Some((offset, right)) => (*offset, right),
            None => (0, rest),
        };
        let half = |parser: &mut Self, terms: &[Sub], offsets: &[u32]| match terms {
            [only] => *only,
            _ => parser.balanced(function, terms, offsets),
        };
        let left = half(self, left_terms, left_offsets);
        let right = half(self, right_terms, right_offsets);
        // Logical operators do not count as depth upstream.
        let height = left.height.max(right.height);
        Sub {
            height,
            ..self.call(offset, function, &[left, right])
        }
    }

    fn relation(&mut self, minimum: u8) -> Parsed<Sub> {
        enter(&mut self.depth.relation)?;
        let mut left = self.calc(0)?;
        loop {
            if minimum > 1 {
                break;
            }
            let function = match self.peek() {
                Kind::Less => op::LESS,
                Kind::LessEquals => op::LESS_EQUALS,
                Kind::GreaterEquals => op::GREATER_EQUALS,
                Kind::Greater => op::GREATER,
                Kind::Equals => op::EQUALS,
                Kind::NotEquals => op::NOT_EQUALS,
                Kind::In => op::IN,
                _ => break,
            };
            let operator = self.advance();
            let right = self.relation(2)?;
            left = self.call(operator.start, function, &[left, right]);
        }
        self.depth.relation -= 1;
        Ok(left)
    }

    fn calc(&mut self, minimum: u8) -> Parsed<Sub> {
        enter(&mut self.depth.calc)?;
        let mut left = self.unary()?;
        loop {
            let (function, precedence) = match self.peek() {
                Kind::Star => (op::MULTIPLY, 2),
                Kind::Slash => (op::DIVIDE, 2),
                Kind::Percent => (op::MODULO, 2),
                Kind::Plus => (op::ADD, 1),
                Kind::Minus => (op::SUBTRACT, 1),
                _ => break,
            };
            if precedence < minimum {
                break;
            }
            let operator = self.advance();
            let right = self.calc(precedence + 1)?;
            left = self.call(operator.start, function, &[left, right]);
        }
        self.depth.calc -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Sub> {
        let (kind, function) = match self.peek() {
            Kind::Exclam => (Kind::Exclam, op::NOT),
            // A single minus before a number is part of the literal.
            Kind::Minus if !matches!(self.peek_at(1), Kind::Int | Kind::Float) => {
                (Kind::Minus, op::NEGATE)
            }
            _ => return self.member(),
        };
        let first = self.advance();
        let mut count = 1_u32;
        while self.accept(kind).is_some() {
            count += 1;
        }
        let operand = self.member()?;
        if count.is_multiple_of(2) {
            let span = Span {
                start: first.start,
                ..operand.span
            };
            return Ok(Sub { span, ..operand });
        }
        let call = self.call(first.start, function, &[operand]);
        Ok(Sub {
            height: operand.height,
            ..call
        })
    }

    fn member(&mut self) -> Parsed<Sub> {
        let mut operand = self.primary()?;
        loop {
            operand = match self.peek() {
                Kind::Dot => self.selection(operand)?,
                Kind::LBracket => self.index(operand)?,
                _ => return Ok(operand),
            };
        }
    }

    fn selection(&mut self, operand: Sub) -> Parsed<Sub> {
        let dot = self.advance();
        let optional = self.accept(Kind::Question).is_some();
        let name = match self.peek() {
            Kind::Ident | Kind::EscapedIdent => self.advance(),
            _ => return Err(Stop::Syntax),
        };
        let text = name.text(self.source);
        if name.kind == Kind::EscapedIdent {
            self.report(name.start, "unsupported syntax: '`'");
        } else if !optional && self.peek() == Kind::LParen {
            return self.member_call(operand, text);
        }
        let height = operand.height + 1;
        if optional {
            let field = Expr::Literal(Literal::String(Cow::Borrowed(text)));
            let id = self.ast.add(name.start, field);
            let field = self.sub(id, 0, name.start);
            let call = self.call(dot.start, op::OPT_SELECT, &[operand, field]);
            return Ok(Sub { height, ..call });
        }
        let select = Expr::Select {
            operand: operand.id,
            field: Cow::Borrowed(text),
            test_only: false,
        };
        let id = self.ast.add(dot.start, select);
        Ok(self.sub(id, height, operand.span.start))
    }

    fn member_call(&mut self, target: Sub, function: &'s str) -> Parsed<Sub> {
        let (open, args, height) = self.arguments()?;
        let height = 1 + height.max(target.height);
        let id = self.call_or_macro(open, Cow::Borrowed(function), Some(target.id), args);
        Ok(self.sub(id, height, target.span.start))
    }

    /// The arguments of a call and the offset of their opening parenthesis.
    fn arguments(&mut self) -> Parsed<(u32, Vec<NodeId>, u32)> {
        let open = self.expect(Kind::LParen)?.start;
        let mut args = Vec::new();
        let mut height = 0;
        if self.accept(Kind::RParen).is_some() {
            return Ok((open, args, height));
        }
        loop {
            let arg = self.expr()?;
            args.push(arg.id);
            height = height.max(arg.height);
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        self.expect(Kind::RParen)?;
        Ok((open, args, height))
    }

    pub(super) fn call_or_macro(
        &mut self,
        offset: u32,
        function: Name<'s>,
        target: Option<NodeId>,
        args: Vec<NodeId>,
    ) -> NodeId {
        if self.ast.len() <= MAX_NODES {
            match macros::expand(&mut self.ast, offset, &function, target, &args) {
                Some(Ok(id)) => {
                    let call = MacroCall {
                        function,
                        target,
                        args,
                    };
                    self.ast.expansions.push((id, call));
                    return id;
                }
                Some(Err((at, message))) => return self.report(at, message).id,
                None => {}
            }
        }
        self.ast.add(
            offset,
            Expr::Call {
                function,
                target,
                args,
            },
        )
    }

    fn index(&mut self, operand: Sub) -> Parsed<Sub> {
        let open = self.advance();
        let function = if self.accept(Kind::Question).is_some() {
            op::OPT_INDEX
        } else {
            op::INDEX
        };
        let index = self.expr()?;
        self.expect(Kind::RBracket)?;
        let call = self.call(open.start, function, &[operand, index]);
        Ok(self.sub(call.id, call.height, operand.span.start))
    }

    fn primary(&mut self) -> Parsed<Sub> {
        match self.peek() {
            Kind::Dot | Kind::Ident => self.named(),
            Kind::LParen => {
                let start = self.advance().start;
                let inner = self.expr()?;
                let end = self.expect(Kind::RParen)?.end;
                let span = Span { start, end };
                Ok(Sub { span, ..inner })
            }
            Kind::LBracket => self.list(),
            Kind::LBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// A variable, a call of a global function, or a message literal.
    fn named(&mut self) -> Parsed<Sub> {
        let start = self.next;
        let dot = self.accept(Kind::Dot);
        let name = self.expect(Kind::Ident)?;
        if self.message_follows() {
            self.next = start;
            return self.message();
        }
        let text = name.text(self.source);
        let begin = dot.map_or(name.start, |d| d.start);
        let full: Name<'s> = if dot.is_some() {
            Cow::Owned(format!(".{text}"))
        } else {
            Cow::Borrowed(text)
        };
        let reserved = RESERVED.contains(&text);
        if self.peek() == Kind::LParen {
            // Arguments of a reserved name are not visited upstream.
            let reported = self.issues.len();
            let (open, args, height) = self.arguments()?;
            if reserved {
                self.issues.truncate(reported);
                return Ok(self.report(begin, format!("reserved identifier: {text}")));
            }
            let id = self.call_or_macro(open, full, None, args);
            return Ok(self.sub(id, height, begin));
        }
        if reserved {
            return Ok(self.report(begin, format!("reserved identifier: {text}")));
        }
        let id = self.ast.add(name.start, Expr::Ident(full));
        Ok(self.sub(id, 0, begin))
    }

    /// Returns true if `(.name)* {` comes next.
    fn message_follows(&self) -> bool {
        let mut ahead = 0;
        while self.peek_at(ahead) == Kind::Dot && self.peek_at(ahead + 1) == Kind::Ident {
            ahead += 2;
        }
        self.peek_at(ahead) == Kind::LBrace
    }

    fn message(&mut self) -> Parsed<Sub> {
        let start = self.tokens.get(self.next).map_or(0, |t| t.start);
        let mut type_name = String::new();
        if self.accept(Kind::Dot).is_some() {
            type_name.push('.');
        }
        loop {
            type_name.push_str(self.expect(Kind::Ident)?.text(self.source));
            if self.accept(Kind::Dot).is_none() {
                break;
            }
            type_name.push('.');
        }
        let open = self.expect(Kind::LBrace)?;
        let mut fields = Vec::new();
        let mut height = 0;
        while !matches!(self.peek(), Kind::RBrace | Kind::Comma) {
            let begin = self.tokens.get(self.next).map_or(open.start, |t| t.start);
            let optional = self.accept(Kind::Question).is_some();
            let name = match self.peek() {
                Kind::Ident | Kind::EscapedIdent => self.advance(),
                _ => return Err(Stop::Syntax),
            };
            let colon = self.expect(Kind::Colon)?;
            let reported = self.issues.len();
            let value = self.expr()?;
            height = height.max(value.height);
            if name.kind == Kind::EscapedIdent {
                // The value of a rejected field is not visited upstream.
                self.issues.truncate(reported);
                let first = fields
                    .first()
                    .map_or(begin, |(at, _): &(u32, StructField<'s>)| *at);
                self.report(first, "unsupported syntax: '`'");
            }
            let name = Cow::Borrowed(name.text(self.source));
            let field = StructField {
                name,
                value: value.id,
                optional,
                offset: colon.start,
            };
            fields.push((begin, field));
            if self.peek() != Kind::Comma || self.peek_at(1) == Kind::RBrace {
                break;
            }
            self.advance();
        }
        self.accept(Kind::Comma);
        self.expect(Kind::RBrace)?;
        let fields = fields.into_iter().map(|(_, field)| field).collect();
        let message = Expr::Struct {
            type_name: Cow::Owned(type_name),
            fields,
        };
        let id = self.ast.add(open.start, message);
        Ok(self.sub(id, height, start))
    }

    fn list(&mut self) -> Parsed<Sub> {
        let open = self.advance();
        let mut elements = Vec::new();
        let mut optional = Vec::new();
        let mut height = 0;
        while !matches!(self.peek(), Kind::RBracket | Kind::Comma) {
            optional.push(self.accept(Kind::Question).is_some());
            let element = self.expr()?;
            elements.push(element.id);
            height = height.max(element.height);
            if self.peek() != Kind::Comma || self.peek_at(1) == Kind::RBracket {
                break;
            }
            self.advance();
        }
        self.accept(Kind::Comma);
        self.expect(Kind::RBracket)?;
        let id = self.ast.add(open.start, Expr::List { elements, optional });
        Ok(self.sub(id, height, open.start))
    }

    fn map(&mut self) -> Parsed<Sub> {
        let open = self.advance();
        let mut entries = Vec::new();
        let mut height = 0;
        while !matches!(self.peek(), Kind::RBrace | Kind::Comma) {
            let optional = self.accept(Kind::Question).is_some();
            let key = self.expr()?;
            self.expect(Kind::Colon)?;
            let value = self.expr()?;
            height = height.max(key.height).max(value.height);
            entries.push(MapEntry {
                key: key.id,
                value: value.id,
                optional,
            });
            if self.peek() != Kind::Comma || self.peek_at(1) == Kind::RBrace {
                break;
            }
            self.advance();
        }
        self.accept(Kind::Comma);
        self.expect(Kind::RBrace)?;
        let id = self.ast.add(open.start, Expr::Map { entries });
        Ok(self.sub(id, height, open.start))
    }

    fn literal(&mut self) -> Parsed<Sub> {
        let start = self.tokens.get(self.next).map_or(0, |t| t.start);
        let negative = self.accept(Kind::Minus).is_some();
        let token = match (negative, self.peek()) {
            (_, Kind::Int | Kind::Float) => self.advance(),
            (
                false,
                Kind::Uint | Kind::String | Kind::Bytes | Kind::True | Kind::False | Kind::Null,
            ) => self.advance(),
            _ => return Err(Stop::Syntax),
        };
        Ok(self.literal_of(start, negative, token))
    }

    /// The literal of a token, whose span starts at `start` with its sign.
    pub(super) fn literal_of(&mut self, start: u32, negative: bool, token: Token) -> Sub {
        let text = token.text(self.source);
        let value = match token.kind {
            Kind::Int => int(text, negative)
                .map(Literal::Int)
                .ok_or("invalid int literal"),
            Kind::Uint => uint(text).map(Literal::Uint).ok_or("invalid uint literal"),
            Kind::Float => double(text, negative)
                .map(Literal::Double)
                .ok_or("invalid double literal"),
            Kind::String => match unescape_string(text) {
                Ok(value) => Ok(Literal::String(value)),
                Err(message) => {
                    // Upstream keeps the raw text and continues.
                    self.report(start, message);
                    Ok(Literal::String(Cow::Borrowed(text)))
                }
            },
            Kind::Bytes => match unescape_bytes(text.get(1..).unwrap_or_default()) {
                Ok(value) => Ok(Literal::Bytes(value)),
                Err(message) => {
                    self.report(start, message);
                    Ok(Literal::Bytes(Vec::new()))
                }
            },
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        match value {
            Ok(value) => {
                let id = self.ast.add(start, Expr::Literal(value));
                self.sub(id, 0, start)
            }
            Err(message) => self.report(start, message),
        }
    }
}

fn int(text: &str, negative: bool) -> Option<i64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    if !negative {
        return i64::from_str_radix(digits, radix).ok();
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    0_i64.checked_sub_unsigned(magnitude)
}

fn uint(text: &str) -> Option<u64> {
    let text = text.get(..text.len().saturating_sub(1))?;
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn double(text: &str, negative: bool) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    // A literal that rounds to infinity is out of range.
    value
        .is_finite()
        .then_some(if negative { -value } else { value })
}
