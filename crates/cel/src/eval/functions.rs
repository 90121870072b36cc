//! Functions, and the dispatch of calls to them.

mod format;
mod kubernetes;
mod lists;
mod standard;
mod strings;
mod table;

use crate::check::{Function, OverloadId};
use crate::eval::cost::Argument;
use crate::types::Type;
use crate::value::{Error, Value};

pub(crate) use table::{implementation, singleton};

/// The implementation of an overload. The number is the remaining budget.
pub(crate) type Implementation = for<'a> fn(u64, &[Value<'a>]) -> Argument<'a>;

/// Returns true for a conversion, whose constant arguments are folded.
pub(crate) fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool"
            | "bytes"
            | "double"
            | "duration"
            | "dyn"
            | "int"
            | "string"
            | "timestamp"
            | "type"
            | "uint"
    )
}

/// Returns true if the arguments match the declared types of an overload.
///
/// UPSTREAM: cel-go common/decls/decls.go matchesRuntimeSignature
pub(crate) fn fits(id: OverloadId, args: &[Value<'_>]) -> bool {
    table::declared(id).is_none_or(|types| matches_all(types, args))
}

fn matches_all(types: &[Type], args: &[Value<'_>]) -> bool {
    types.len() == args.len() && types.iter().zip(args).all(|(t, arg)| matches(t, arg))
}

/// Returns true if a value is of a type; for containers, only the first element is checked.
fn matches(t: &Type, value: &Value<'_>) -> bool {
    match t {
        Type::Dyn | Type::Any | Type::Param(_) => true,
        Type::List(element) => {
            value.is_list()
                && value
                    .list_get(0)
                    .is_none_or(|first| matches(element, &first))
        }
        Type::Map(kv) => {
            value.is_map()
                && value
                    .entries()
                    .next()
                    .is_none_or(|(key, value)| matches(&kv.0, &key) && matches(&kv.1, &value))
        }
        _ => t.name() == value.type_name(),
    }
}

/// Calls the first matching overload.
pub(crate) fn dispatch<'a>(
    function: &'static Function,
    name: &'static str,
    budget: u64,
    args: &[Value<'a>],
) -> Argument<'a> {
    let unguarded = table::is_unguarded(name);
    let fitting = function
        .overloads
        .iter()
        .find(|o| o.args.len() == args.len() && (unguarded || matches_all(&o.args, args)));
    match fitting {
        Some(overload) => implementation(overload.id)(budget, args),
        None => Err(no_such_call(name, args)),
    }
}

/// The error for a call without a matching overload.
pub(crate) fn no_such_call(function: &str, args: &[Value<'_>]) -> Error {
    let types: Vec<_> = args.iter().map(Value::type_name).collect();
    Error::text(format_args!(
        "no such overload: {function}({})",
        types.join(", ")
    ))
}
