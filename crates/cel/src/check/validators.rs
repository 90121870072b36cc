//! Validators of a typed tree: literals that always fail.
//!
//! UPSTREAM: cel-go cel/validator.go, ext/formatting.go

use lockgate_go::regex::Regex;
use lockgate_go::time::{Duration, Timestamp};

use super::checker::Checked;
use crate::source::Issue;
use crate::strings::{Clause, ClauseError, Piece, pieces};
use crate::syntax::ast::{Expr, Literal, NodeId};
use crate::types::Type;

/// A node, and whether it is an argument of a `format` call, at any depth.
type VisitedNode = (NodeId, bool);

/// The issues of a well-typed tree.
pub(super) fn validate(checked: &Checked<'_>) -> Vec<Issue> {
    let mut order = Vec::with_capacity(checked.ast.len());
    descend(checked, checked.ast.root, &mut order);
    // A node without a type would be treated as `dyn`, which is assignable to every type.
    if let Some((untyped, _)) = order
        .iter()
        .find(|(id, _)| checked.known_type(*id).is_none())
    {
        let offset = checked.ast.offset(*untyped);
        return vec![Issue::at(offset, "internal error: expression has no type")];
    }
    let mut issues = Vec::new();
    for (id, in_format) in &order {
        match checked.ast.expr(*id) {
            // Arguments of `format` may be of mixed types.
            Expr::List { .. } if !in_format => homogeneous_list(checked, *id, &mut issues),
            Expr::Map { .. } if !in_format => homogeneous_map(checked, *id, &mut issues),
            Expr::Call { function, .. } => match &**function {
                "duration" | "timestamp" | "matches" => {
                    literal_argument(checked, *id, &mut issues);
                }
                "format" => format_string(checked, *id, &mut issues),
                _ => {}
            },
            _ => {}
        }
    }
    issues
}

/// Collects `id` and its descendants, parents first, and whether each is inside a `format` call.
fn descend(checked: &Checked<'_>, id: NodeId, out: &mut Vec<VisitedNode>) {
    let mut pending = vec![(id, false)];
    while let Some((id, in_format)) = pending.pop() {
        out.push((id, in_format));
        let first = pending.len();
        let mut each = |child: NodeId, inside: bool| pending.push((child, in_format || inside));
        match checked.ast.expr(id) {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => each(*operand, false),
            Expr::Call {
                function,
                target,
                args,
            } => {
                for child in target.iter().chain(args) {
                    each(*child, function == "format");
                }
            }
            Expr::List { elements, .. } => {
                for child in elements {
                    each(*child, false);
                }
            }
            Expr::Map { entries } => {
                for entry in entries {
                    each(entry.key, false);
                    each(entry.value, false);
                }
            }
            Expr::Struct { fields, .. } => {
                for field in fields {
                    each(field.value, false);
                }
            }
            Expr::Comprehension(c) => {
                for child in [c.range, c.init, c.condition, c.step, c.result] {
                    each(child, false);
                }
            }
        }
        // The stack pops the last one first.
        if let Some(added) = pending.get_mut(first..) {
            added.reverse();
        }
    }
}

/// Validates a literal first argument, such as a pattern or a timestamp.
fn literal_argument(checked: &Checked<'_>, id: NodeId, issues: &mut Vec<Issue>) {
    let Expr::Call { function, args, .. } = checked.ast.expr(id) else {
        return;
    };
    let Some(first) = args.first() else { return };
    let Expr::Literal(literal) = checked.ast.expr(*first) else {
        return;
    };
    if !accepts_literal(function, literal) {
        issues.push(Issue::at(
            checked.ast.offset(*first),
            format!("invalid {function} argument"),
        ));
    }
}

fn accepts_literal(function: &str, literal: &Literal<'_>) -> bool {
    match (function, literal) {
        ("duration", Literal::String(text)) => Duration::parse(text).is_ok(),
        ("timestamp", Literal::String(text)) => Timestamp::parse(text).is_ok(),
        ("timestamp", Literal::Int(seconds)) => Timestamp::from_unix(*seconds).is_ok(),
        ("matches", Literal::String(pattern)) => Regex::new(pattern).is_ok(),
        _ => false,
    }
}

/// Validates a literal format string against a literal list of arguments.
fn format_string(checked: &Checked<'_>, id: NodeId, issues: &mut Vec<Issue>) {
    let Expr::Call {
        target: Some(target),
        args,
        ..
    } = checked.ast.expr(id)
    else {
        return;
    };
    let Expr::Literal(Literal::String(format)) = checked.ast.expr(*target) else {
        return;
    };
    let [arg] = args.as_slice() else { return };
    let Expr::List { elements, .. } = checked.ast.expr(*arg) else {
        return;
    };
    let offset = checked.ast.offset(id);
    let mut used = 0;
    for piece in pieces(format) {
        let Piece::Clause(clause) = piece else {
            continue;
        };
        let clause = match (clause, elements.get(used)) {
            (Err(ClauseError::UnexpectedEnd), _) => {
                issues.push(Issue::at(offset, ClauseError::UnexpectedEnd.to_string()));
                return;
            }
            (_, None) => {
                issues.push(Issue::at(offset, format!("index {used} out of range")));
                return;
            }
            (Err(error), Some(_)) => {
                issues.push(Issue::at(offset, error.to_string()));
                return;
            }
            (Ok(clause), Some(element)) => (clause, *element),
        };
        let (clause, element) = clause;
        if let Err(at) = clause_accepts(checked, clause, element) {
            let refused = clause.refusal(checked.type_of(at).name());
            issues.push(Issue::at(
                checked.ast.offset(at),
                format!("error during formatting: {refused}"),
            ));
            return;
        }
        used += 1;
    }
    if elements.len() > used {
        let given = elements.len();
        issues.push(Issue::at(
            offset,
            format!("too many arguments supplied to string.format (expected {used}, got {given})"),
        ));
    }
}

/// Checks that a clause can format this node's type; the error is the node at fault.
fn clause_accepts(checked: &Checked<'_>, clause: Clause, id: NodeId) -> Result<(), NodeId> {
    let t = checked.type_of(id).unwrapped();
    let fits = match (clause, t) {
        (_, Type::Dyn) => true,
        (Clause::String, _) => return prints_as_string(checked, id),
        (Clause::Decimal | Clause::Octal, t) => matches!(t, Type::Int | Type::Uint),
        (Clause::Fixed(_) | Clause::Scientific(_), t) => matches!(t, Type::Double | Type::String),
        (Clause::Binary, t) => matches!(t, Type::Int | Type::Uint | Type::Bool),
        (Clause::Hex { .. }, t) => {
            matches!(t, Type::Int | Type::Uint | Type::String | Type::Bytes)
        }
    };
    if fits { Ok(()) } else { Err(id) }
}

fn prints_as_string(checked: &Checked<'_>, id: NodeId) -> Result<(), NodeId> {
    let printable = matches!(
        checked.type_of(id).unwrapped(),
        Type::Dyn
            | Type::List(_)
            | Type::Map(_)
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::Bool
            | Type::String
            | Type::Timestamp
            | Type::Bytes
            | Type::Duration
            | Type::TypeOf(_)
            | Type::Null
    );
    if !printable {
        return Err(id);
    }
    match checked.ast.expr(id) {
        Expr::List { elements, .. } => elements
            .iter()
            .try_for_each(|e| prints_as_string(checked, *e)),
        Expr::Map { entries } => entries.iter().try_for_each(|e| {
            prints_as_string(checked, e.key)?;
            prints_as_string(checked, e.value)
        }),
        _ => Ok(()),
    }
}

fn element_type(checked: &Checked<'_>, id: NodeId, optional: bool) -> Type {
    let t = checked.type_of(id);
    match t.optional_inner() {
        Some(inner) if optional => inner.clone(),
        _ => t.clone(),
    }
}

fn mismatch(checked: &Checked<'_>, at: NodeId, expected: &Type, found: &Type) -> Issue {
    let (expected, found) = (expected.in_message(), found.in_message());
    Issue::at(
        checked.ast.offset(at),
        format!("expected type '{expected}' but found '{found}'"),
    )
}

fn homogeneous_list(checked: &Checked<'_>, id: NodeId, issues: &mut Vec<Issue>) {
    let Expr::List { elements, optional } = checked.ast.expr(id) else {
        return;
    };
    let mut typed = elements
        .iter()
        .zip(optional)
        .map(|(element, optional)| (*element, element_type(checked, *element, *optional)));
    let Some((_, expected)) = typed.next() else {
        return;
    };
    if let Some((at, found)) = typed.find(|(_, t)| !expected.is_equivalent(t)) {
        issues.push(mismatch(checked, at, &expected, &found));
    }
}

fn homogeneous_map(checked: &Checked<'_>, id: NodeId, issues: &mut Vec<Issue>) {
    let Expr::Map { entries } = checked.ast.expr(id) else {
        return;
    };
    let mut expected: Option<(Type, Type)> = None;
    for entry in entries {
        let key = checked.type_of(entry.key).clone();
        let value = element_type(checked, entry.value, entry.optional);
        let Some((keys, values)) = &expected else {
            expected = Some((key, value));
            continue;
        };
        if !keys.is_equivalent(&key) {
            issues.push(mismatch(checked, entry.key, keys, &key));
        }
        if !values.is_equivalent(&value) {
            issues.push(mismatch(checked, entry.value, values, &value));
        }
    }
}
