//! The implementations of overloads.

use std::sync::LazyLock;

use super::{Implementation, lists, standard, strings};
use crate::check::{OverloadId, functions};
use crate::eval::convert;
use crate::eval::cost::Argument;
use crate::types::Type;
use crate::value::{Error, Value};

/// The implementation of an overload, and its declared types unless it checks them itself.
struct Entry {
    run: Implementation,
    declared: Option<&'static [Type]>,
}

static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let mut table = Vec::new();
    for function in functions().iter() {
        for overload in &function.overloads {
            let at = overload.id.0 as usize;
            if table.len() <= at {
                table.resize_with(at + 1, || Entry {
                    run: unimplemented,
                    declared: None,
                });
            }
            if let Some(entry) = table.get_mut(at) {
                entry.run = find(overload.name).unwrap_or(unimplemented);
                let unguarded = is_unguarded(function.name);
                entry.declared = (!unguarded).then_some(overload.args.as_slice());
            }
        }
    }
    table
});

/// The implementation of an overload.
pub(crate) fn implementation(id: OverloadId) -> Implementation {
    TABLE
        .get(id.0 as usize)
        .map_or(unimplemented, |entry| entry.run)
}

/// The declared argument types of an overload, checked at the call.
pub(super) fn declared(id: OverloadId) -> Option<&'static [Type]> {
    TABLE.get(id.0 as usize).and_then(|entry| entry.declared)
}

/// Returns true for a function that accepts its arguments unchecked.
pub(super) fn is_unguarded(function: &str) -> bool {
    matches!(function, "flatten" | "contains" | "startsWith" | "endsWith")
}

fn unimplemented<'a>(_: u64, _: &[Value<'a>]) -> Argument<'a> {
    Err(Error::no_such_overload())
}

/// Functions with one implementation for all overloads.
pub(crate) fn singleton(function: &str) -> Option<Implementation> {
    Some(match function {
        "size" => standard::size,
        "type" => standard::type_of,
        "dyn" => standard::identity,
        "matches" => standard::matches,
        "sort" => lists::sort,
        "@sortByAssociatedKeys" => lists::sort_by_keys,
        "__not_strictly_false__" | "@not_strictly_false" => standard::not_strictly_false,
        _ => return None,
    })
}

macro_rules! convert {
    ($to:path) => {
        |_, args| match args {
            [value] => $to(value),
            _ => Err(Error::no_such_overload()),
        }
    };
}

fn find(overload: &str) -> Option<Implementation> {
    if let Some(found) = strings::find(overload)
        .or_else(|| lists::find(overload))
        .or_else(|| standard::find(overload))
        .or_else(|| super::kubernetes::find(overload))
    {
        return Some(found);
    }
    Some(match overload {
        "bool_to_bool" | "string_to_bool" => convert!(convert::to_bool),
        "bytes_to_bytes" | "string_to_bytes" => convert!(convert::to_bytes),
        "double_to_double" | "int64_to_double" | "string_to_double" | "uint64_to_double" => {
            convert!(convert::to_double)
        }
        "duration_to_duration" | "int64_to_duration" | "string_to_duration" => {
            convert!(convert::to_duration)
        }
        "int64_to_int64" | "double_to_int64" | "duration_to_int64" | "string_to_int64"
        | "timestamp_to_int64" | "uint64_to_int64" => convert!(convert::to_int),
        "uint64_to_uint64" | "double_to_uint64" | "int64_to_uint64" | "string_to_uint64" => {
            convert!(convert::to_uint)
        }
        "string_to_string"
        | "bool_to_string"
        | "bytes_to_string"
        | "double_to_string"
        | "duration_to_string"
        | "int64_to_string"
        | "timestamp_to_string"
        | "uint64_to_string"
        | "ip_to_string"
        | "cidr_to_string" => convert!(convert::to_string),
        "timestamp_to_timestamp" | "int64_to_timestamp" | "string_to_timestamp" => {
            convert!(convert::to_timestamp)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Overloads with their own steps, which are never called by name.
    const STEPS: [&str; 10] = [
        "_==_", "_!=_", "_&&_", "_||_", "_?_:_", "_[_]", "_[?_]", "_?._", "!_", "-_",
    ];

    #[test]
    fn every_overload_has_an_implementation() {
        let operators = [
            "_+_", "_-_", "_*_", "_/_", "_%_", "_<_", "_<=_", "_>_", "_>=_",
        ];
        let elsewhere = ["@in", "in", "_in_", "or", "orValue", "cel.@mapInsert"];
        for function in functions().iter() {
            let name = function.name;
            if STEPS.contains(&name)
                || operators.contains(&name)
                || elsewhere.contains(&name)
                || singleton(name).is_some()
            {
                continue;
            }
            for overload in &function.overloads {
                assert!(find(overload.name).is_some(), "{name} {}", overload.name);
            }
        }
    }
}
