//! Evaluation.

use crate::syntax::ast::Literal;

/// Whether a conversion or a pattern accepts this literal.
pub(crate) fn accepts_literal(function: &str, literal: &Literal<'_>) -> bool {
    match (function, literal) {
        ("duration", Literal::String(text)) => crate::time::Duration::parse(text).is_ok(),
        ("timestamp", Literal::String(text)) => crate::time::Timestamp::parse(text).is_ok(),
        ("timestamp", Literal::Int(seconds)) => crate::time::Timestamp::from_unix(*seconds).is_ok(),
        ("matches", Literal::String(pattern)) => crate::go_regex::Regex::new(pattern).is_ok(),
        _ => false,
    }
}
