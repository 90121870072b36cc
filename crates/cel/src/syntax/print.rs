//! Prints a tree as source text.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::ast::{Ast, Expr, Literal, MacroCall, NodeId, operators as op};
use super::parse;
use crate::source::Issue;

/// Formats an expression canonically: with uniform spacing and without redundant parentheses.
///
/// ```
/// use lockgate_cel::syntax::canonical;
/// assert_eq!(canonical("( a+b )*c  .d").unwrap(), "(a + b) * c.d");
/// ```
///
/// # Errors
///
/// The issues of an invalid expression.
pub fn canonical(expression: &str) -> Result<String, Vec<Issue>> {
    let ast = parse(expression)?;
    let macros = ast
        .expansions
        .iter()
        .map(|(id, call)| (*id, call))
        .collect();
    let mut printer = Printer {
        ast: &ast,
        macros,
        out: String::new(),
    };
    printer.expr(ast.root);
    Ok(printer.out)
}

/// The precedence of an expression; looser ones need parentheses within tighter ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Conditional,
    Or,
    And,
    Relation,
    Sum,
    Product,
    Unary,
    Member,
}

struct Printer<'a, 's> {
    ast: &'a Ast<'s>,
    macros: HashMap<NodeId, &'a MacroCall<'s>>,
    out: String,
}

/// An infix operator and its precedence.
fn infix(function: &str) -> Option<(&'static str, Binding)> {
    Some(match function {
        op::OR => ("||", Binding::Or),
        op::AND => ("&&", Binding::And),
        op::LESS => ("<", Binding::Relation),
        op::LESS_EQUALS => ("<=", Binding::Relation),
        op::GREATER => (">", Binding::Relation),
        op::GREATER_EQUALS => (">=", Binding::Relation),
        op::EQUALS => ("==", Binding::Relation),
        op::NOT_EQUALS => ("!=", Binding::Relation),
        op::IN => ("in", Binding::Relation),
        op::ADD => ("+", Binding::Sum),
        op::SUBTRACT => ("-", Binding::Sum),
        op::MULTIPLY => ("*", Binding::Product),
        op::DIVIDE => ("/", Binding::Product),
        op::MODULO => ("%", Binding::Product),
        _ => return None,
    })
}

impl Printer<'_, '_> {
    fn call(&self, id: NodeId) -> Option<(&str, &[NodeId])> {
        match self.ast.expr(id) {
            _ if self.macros.contains_key(&id) => None,
            Expr::Call {
                function,
                target: None,
                args,
            } => Some((function, args)),
            _ => None,
        }
    }

    fn binding(&self, id: NodeId) -> Binding {
        match self.call(id) {
            Some((op::CONDITIONAL, _)) => Binding::Conditional,
            Some((op::NOT | op::NEGATE, _)) => Binding::Unary,
            Some((function, _)) => infix(function).map_or(Binding::Member, |(_, b)| b),
            None => Binding::Member,
        }
    }

    /// Prints an operand, in parentheses if it binds more loosely than required.
    fn operand(&mut self, id: NodeId, least: Binding) {
        if self.binding(id) < least {
            self.bracketed(id);
        } else {
            self.expr(id);
        }
    }

    fn bracketed(&mut self, id: NodeId) {
        self.out.push('(');
        self.expr(id);
        self.out.push(')');
    }

    fn list(&mut self, ids: &[NodeId]) {
        for (nth, id) in ids.iter().enumerate() {
            self.out.push_str(if nth == 0 { "" } else { ", " });
            self.expr(*id);
        }
    }

    fn expr(&mut self, id: NodeId) {
        if let Some(call) = self.macros.get(&id).copied() {
            self.method(&call.function, call.target, &call.args);
            return;
        }
        match self.ast.expr(id) {
            Expr::Unspecified | Expr::Comprehension(_) => {}
            Expr::Literal(value) => literal(&mut self.out, value),
            Expr::Ident(name) => self.out.push_str(name),
            Expr::Select { operand, field, .. } => {
                self.operand(*operand, Binding::Member);
                let _ = write!(self.out, ".{field}");
            }
            Expr::Call {
                function,
                target,
                args,
            } => self.function(id, function, *target, args),
            Expr::List { elements, optional } => {
                self.out.push('[');
                for (nth, (element, optional)) in elements.iter().zip(optional).enumerate() {
                    self.out.push_str(if nth == 0 { "" } else { ", " });
                    self.out.push_str(if *optional { "?" } else { "" });
                    self.expr(*element);
                }
                self.out.push(']');
            }
            Expr::Map { entries } => {
                self.out.push('{');
                for (nth, entry) in entries.iter().enumerate() {
                    self.out.push_str(if nth == 0 { "" } else { ", " });
                    self.out.push_str(if entry.optional { "?" } else { "" });
                    self.expr(entry.key);
                    self.out.push_str(": ");
                    self.expr(entry.value);
                }
                self.out.push('}');
            }
            Expr::Struct { type_name, fields } => {
                let _ = write!(self.out, "{type_name}{{");
                for (nth, field) in fields.iter().enumerate() {
                    let comma = if nth == 0 { "" } else { ", " };
                    let optional = if field.optional { "?" } else { "" };
                    let _ = write!(self.out, "{comma}{optional}{}: ", field.name);
                    self.expr(field.value);
                }
                self.out.push('}');
            }
        }
    }

    fn method(&mut self, function: &str, target: Option<NodeId>, args: &[NodeId]) {
        if let Some(target) = target {
            self.operand(target, Binding::Member);
            self.out.push('.');
        }
        let _ = write!(self.out, "{function}(");
        self.list(args);
        self.out.push(')');
    }

    fn function(&mut self, id: NodeId, function: &str, target: Option<NodeId>, args: &[NodeId]) {
        match (target, function, args) {
            (None, op::CONDITIONAL, [condition, yes, no]) => {
                self.operand(*condition, Binding::Or);
                self.out.push_str(" ? ");
                self.operand(*yes, Binding::Or);
                self.out.push_str(" : ");
                self.expr(*no);
            }
            (None, op::INDEX | op::OPT_INDEX, [operand, index]) => {
                self.operand(*operand, Binding::Member);
                self.out
                    .push_str(if function == op::INDEX { "[" } else { "[?" });
                self.expr(*index);
                self.out.push(']');
            }
            (None, op::OPT_SELECT, [operand, field]) => {
                self.operand(*operand, Binding::Member);
                if let Expr::Literal(Literal::String(field)) = self.ast.expr(*field) {
                    let _ = write!(self.out, ".?{field}");
                }
            }
            (None, op::NOT | op::NEGATE, [operand]) => {
                self.out
                    .push_str(if function == op::NOT { "!" } else { "-" });
                // A minus before a number would become part of the number.
                let number = matches!(
                    self.ast.expr(*operand),
                    Expr::Literal(Literal::Int(_) | Literal::Double(_))
                );
                if number && function == op::NEGATE {
                    self.bracketed(*operand);
                } else {
                    self.operand(*operand, Binding::Member);
                }
            }
            (None, op::AND | op::OR, [_, _]) => self.logical(id, function),
            (None, _, [left, right]) if infix(function).is_some() => {
                if let Some((operator, binding)) = infix(function) {
                    self.operand(*left, binding);
                    let _ = write!(self.out, " {operator} ");
                    // Chains are left-associative.
                    if self.binding(*right) <= binding {
                        self.bracketed(*right);
                    } else {
                        self.expr(*right);
                    }
                }
            }
            _ => self.method(function, target, args),
        }
    }

    /// Prints a logical chain flat if it parses to the same tree.
    fn logical(&mut self, id: NodeId, function: &str) {
        let Some((operator, binding)) = infix(function) else {
            return;
        };
        let mut terms = Vec::new();
        if self.is_balanced(id, function, &mut terms) {
            for (nth, term) in terms.iter().enumerate() {
                if nth != 0 {
                    let _ = write!(self.out, " {operator} ");
                }
                self.operand(*term, binding);
            }
            return;
        }
        let Some((_, &[left, right])) = self.call(id) else {
            return;
        };
        for (nth, side) in [left, right].into_iter().enumerate() {
            if nth != 0 {
                let _ = write!(self.out, " {operator} ");
            }
            if self.binding(side) <= binding {
                self.bracketed(side);
            } else {
                self.expr(side);
            }
        }
    }

    /// Returns true if the parser builds this subtree for a flat chain of its terms.
    fn is_balanced(&self, id: NodeId, function: &str, terms: &mut Vec<NodeId>) -> bool {
        let first = terms.len();
        self.collect(id, function, terms);
        self.same_shape(id, function, terms.len() - first)
    }

    fn collect(&self, id: NodeId, function: &str, terms: &mut Vec<NodeId>) {
        match self.call(id) {
            Some((name, &[left, right])) if name == function => {
                self.collect(left, function, terms);
                self.collect(right, function, terms);
            }
            _ => terms.push(id),
        }
    }

    fn same_shape(&self, id: NodeId, function: &str, terms: usize) -> bool {
        match self.call(id) {
            Some((name, &[left, right])) if name == function => {
                if terms < 2 {
                    return false;
                }
                let on_the_left = (terms - 1) / 2 + 1;
                self.same_shape(left, function, on_the_left)
                    && self.same_shape(right, function, terms - on_the_left)
            }
            _ => terms == 1,
        }
    }
}

fn literal(out: &mut String, literal: &Literal<'_>) {
    let _ = match literal {
        Literal::Null => write!(out, "null"),
        Literal::Bool(b) => write!(out, "{b}"),
        Literal::Int(i) => write!(out, "{i}"),
        Literal::Uint(u) => write!(out, "{u}u"),
        Literal::Double(d) => write!(out, "{d:?}"),
        Literal::String(text) => {
            out.push('"');
            for c in text.chars() {
                let _ = match c {
                    '"' | '\\' => write!(out, "\\{c}"),
                    '\n' => write!(out, "\\n"),
                    '\r' => write!(out, "\\r"),
                    '\t' => write!(out, "\\t"),
                    c if c.is_control() => write!(out, "\\U{:08x}", u32::from(c)),
                    c => write!(out, "{c}"),
                };
            }
            write!(out, "\"")
        }
        Literal::Bytes(bytes) => {
            out.push_str("b\"");
            for byte in bytes {
                let _ = match byte {
                    b'"' | b'\\' => write!(out, "\\{}", char::from(*byte)),
                    0x20..=0x7e => write!(out, "{}", char::from(*byte)),
                    other => write!(out, "\\x{other:02x}"),
                };
            }
            write!(out, "\"")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_brackets_that_matter() {
        for (text, printed) in [
            ("a && (b && c)", "a && (b && c)"),
            ("(a && b) && c", "a && b && c"),
            ("a || b && c || d", "a || b && c || d"),
            ("(a || b) && c", "(a || b) && c"),
            ("1 - (2 - 3) - 4", "1 - (2 - 3) - 4"),
            ("-(1)", "-(1)"),
            ("-(-a)", "-(-a)"),
            ("!(!a)", "!(!a)"),
            (
                "(a ? b : c) ? d : (e ? f : g)",
                "(a ? b : c) ? d : e ? f : g",
            ),
            ("(a + b).c[?d].?e", "(a + b).c[?d].?e"),
            (
                "has(a.b) && [1].all(x, x > 0)",
                "has(a.b) && [1].all(x, x > 0)",
            ),
            (
                "{?'a': 1, b'\\xff': \"\\n\"}",
                "{?\"a\": 1, b\"\\xff\": \"\\n\"}",
            ),
        ] {
            assert_eq!(canonical(text).unwrap(), printed);
        }
    }
}
