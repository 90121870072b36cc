//! List functions: Kubernetes' own, the lists extension and the sets extension.
//!
//! UPSTREAM: apiserver pkg/cel/library/lists.go, cel-go ext/lists.go, ext/sets.go

use std::cmp::Ordering;

use lockgate_go::time::Duration;

use crate::eval::cost::Argument;
use crate::eval::functions::Implementation;
use crate::eval::machine::contains;
use crate::eval::operators;
use crate::value::{Equality, Error, Value};

pub(super) fn find(overload: &str) -> Option<Implementation> {
    if overload.starts_with("list_") {
        if overload.ends_with("_is_sorted_bool") {
            return Some(is_sorted);
        }
        if overload.contains("_max_") {
            return Some(|_, args| extreme(args, "max", Ordering::Less));
        }
        if overload.contains("_min_") {
            return Some(|_, args| extreme(args, "min", Ordering::Greater));
        }
    }
    Some(match overload {
        "list_int_sum_int" => |_, args| sum(args, Value::Int(0)),
        "list_uint_sum_uint" => |_, args| sum(args, Value::Uint(0)),
        "list_double_sum_double" => |_, args| sum(args, Value::Double(0.0)),
        "list_duration_sum_duration" => {
            |_, args| sum(args, Value::Duration(Duration::from_nanos(0)))
        }
        "list_a_index_of_int" => |_, args| position(args, false),
        "list_a_last_index_of_int" => |_, args| position(args, true),
        "list_slice" => slice,
        "list_flatten" => |budget, args| match args {
            [list] if list.is_list() => flat(budget, list, 1),
            [other] => Err(Error::text(format_args!(
                "no such overload: {}.flatten()",
                spelled(other)
            ))),
            _ => Err(Error::no_such_overload()),
        },
        "list_flatten_int" => |budget, args| match args {
            [list, Value::Int(depth)] if list.is_list() => flat(budget, list, *depth),
            [list, depth] => Err(Error::text(format_args!(
                "no such overload: {}.flatten({})",
                spelled(list),
                spelled(depth)
            ))),
            _ => Err(Error::no_such_overload()),
        },
        "list_distinct" => distinct,
        "list_reverse" => |_, args| {
            let mut elements: Vec<_> = list(args)?.elements().collect();
            elements.reverse();
            Ok(elements.into())
        },
        "lists_range" => |_, args| match args {
            [Value::Int(count)] => Ok((0..*count).map(Value::Int).collect::<Vec<_>>().into()),
            _ => Err(Error::no_such_overload()),
        },
        "list_first" => |_, args| Ok(optional(list(args)?.list_get(0))),
        "list_last" => |_, args| {
            let list = list(args)?;
            let last = list.list_len().unwrap_or(0).checked_sub(1);
            Ok(optional(last.and_then(|at| list.list_get(at))))
        },
        "list_sets_contains_list" => |_, args| sets(args, |a, b| subset(b, a)),
        "list_sets_equivalent_list" => |_, args| sets(args, |a, b| subset(b, a) && subset(a, b)),
        "list_sets_intersects_list" => {
            |_, args| sets(args, |a, b| a.elements().any(|e| contains(b, &e)))
        }
        _ => return None,
    })
}

/// The full name of a value's type, as in upstream.
fn spelled<'v>(value: &'v Value<'_>) -> &'v str {
    match value.type_name() {
        "map" => "map(dyn, dyn)",
        "list" => "list(dyn)",
        name => name,
    }
}

fn list<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v Value<'a>, Error> {
    match args.first() {
        Some(list) if list.is_list() => Ok(list),
        _ => Err(Error::no_such_overload()),
    }
}

fn optional(value: Option<Value<'_>>) -> Value<'_> {
    value.map_or(Value::Optional(None), Value::some)
}

fn sets<'a>(args: &[Value<'a>], test: fn(&Value<'a>, &Value<'a>) -> bool) -> Argument<'a> {
    match args {
        [a, b] => Ok(Value::Bool(test(a, b))),
        _ => Err(Error::no_such_overload()),
    }
}

/// Returns true if every element of `part` is in `whole`.
fn subset(part: &Value<'_>, whole: &Value<'_>) -> bool {
    part.elements().all(|element| contains(whole, &element))
}

fn is_sorted<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    let mut previous: Option<Value<'a>> = None;
    for next in list(args)?.elements() {
        if !next.is_ordered() {
            return Err(Error::no_such_overload());
        }
        if previous.is_some_and(|p| p.order(&next) == Ok(Ordering::Greater)) {
            return Ok(Value::Bool(false));
        }
        previous = Some(next);
    }
    Ok(Value::Bool(true))
}

/// The first minimum or maximum of a list; `worse` is the ordering of elements to replace.
fn extreme<'a>(args: &[Value<'a>], name: &str, worse: Ordering) -> Argument<'a> {
    let mut best: Option<Value<'a>> = None;
    for next in list(args)?.elements() {
        if !next.is_ordered() {
            return Err(Error::no_such_overload());
        }
        best = Some(match best {
            Some(best) if best.order(&next) != Ok(worse) => best,
            _ => next,
        });
    }
    best.ok_or_else(|| Error::text(format_args!("{name} called on empty list")))
}

fn sum<'a>(args: &[Value<'a>], zero: Value<'a>) -> Argument<'a> {
    let mut total = zero;
    for next in list(args)?.elements() {
        let addable = matches!(
            next,
            Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::Str(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
        ) || next.is_list();
        if !addable {
            return Err(Error::no_such_overload());
        }
        total = operators::sum(total, next)?;
    }
    Ok(total)
}

fn position<'a>(args: &[Value<'a>], last: bool) -> Argument<'a> {
    let [list, item] = args else {
        return Err(Error::no_such_overload());
    };
    let size = list.list_len().ok_or_else(Error::no_such_overload)?;
    let equal = |at: &usize| {
        list.list_get(*at)
            .is_some_and(|e| e.equals_directly(item) == Equality::Equal)
    };
    let found = if last {
        (0..size).rev().find(equal)
    } else {
        (0..size).find(equal)
    };
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

fn slice<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    let [list, Value::Int(start), Value::Int(end)] = args else {
        return Err(Error::no_such_overload());
    };
    let size = list.list_len().ok_or_else(Error::no_such_overload)? as i64;
    let refuse = |why: String| {
        Err(Error::text(format_args!(
            "cannot slice({start}, {end}), {why}"
        )))
    };
    if *start < 0 || *end < 0 {
        return refuse("negative indexes not supported".to_owned());
    }
    if start > end {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    if size < *end {
        return refuse(format!("list is length {size}"));
    }
    let range = (*start as usize)..(*end as usize);
    Ok(range
        .filter_map(|at| list.list_get(at))
        .collect::<Vec<_>>()
        .into())
}

fn flat<'a>(budget: u64, list: &Value<'a>, depth: i64) -> Argument<'a> {
    if depth < 0 {
        return Err(Error::fixed("level must be non-negative"));
    }
    let mut out = Vec::new();
    // Short lists are always within the limit.
    let most = budget.saturating_mul(4).saturating_add(10_000);
    flatten_into(list, depth, most, &mut out)?;
    Ok(out.into())
}

/// Upstream charges by the outer list only, so the result size is bounded here.
fn flatten_into<'a>(
    list: &Value<'a>,
    depth: i64,
    most: u64,
    out: &mut Vec<Value<'a>>,
) -> Result<(), Error> {
    for element in list.elements() {
        if depth > 0 && element.is_list() {
            flatten_into(&element, depth - 1, most, out)?;
        } else if out.len() as u64 >= most {
            return Err(Error::CostLimit);
        } else {
            out.push(element);
        }
    }
    Ok(())
}

fn distinct<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for element in list(args)?.elements() {
        if !unique
            .iter()
            .any(|u| element.equals_directly(u) == Equality::Equal)
        {
            unique.push(element);
        }
    }
    Ok(unique.into())
}

pub(super) fn sort<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    match args {
        [list] if list.is_list() => sorted(list, list),
        [other] => Err(Error::not_applicable("sort", other)),
        _ => Err(Error::no_such_overload()),
    }
}

pub(super) fn sort_by_keys<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    match args {
        [list, keys] if list.is_list() => sorted(list, keys),
        [other, _] => Err(Error::not_applicable("@sortByAssociatedKeys", other)),
        _ => Err(Error::no_such_overload()),
    }
}

fn sorted<'a>(list: &Value<'a>, keys: &Value<'a>) -> Argument<'a> {
    let (size, count) = (list.list_len().unwrap_or(0), keys.list_len().unwrap_or(0));
    if size != count {
        return Err(Error::text(format_args!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {size} and {count} elements respectively"
        )));
    }
    let keys: Vec<_> = keys.elements().collect();
    let Some(first) = keys.first() else {
        return Ok(list.clone());
    };
    if !first.is_ordered() {
        return Err(Error::fixed("list elements must be comparable"));
    }
    if keys.len() > 1 && keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err(Error::fixed("list elements must have the same type"));
    }
    let mut elements: Vec<_> = keys.iter().zip(list.elements()).collect();
    // NaN is not ordered; it stays in place.
    elements.sort_by(|(a, _), (b, _)| a.order(b).unwrap_or(Ordering::Equal));
    Ok(elements
        .into_iter()
        .map(|(_, element)| element)
        .collect::<Vec<_>>()
        .into())
}
