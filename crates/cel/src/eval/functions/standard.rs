//! The standard library, timestamps and durations, and optional values.

use lockgate_go::regex::Regex;
use lockgate_go::time::{Timestamp, Zone};

use crate::eval::cost::Argument;
use crate::eval::functions::Implementation;
use crate::value::{Error, Value};

pub(super) fn identity<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    args.first().cloned().ok_or_else(Error::no_such_overload)
}

pub(super) fn not_strictly_false<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    Ok(Value::Bool(!matches!(args, [Value::Bool(false)])))
}

pub(super) fn size<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    match args {
        [value @ Value::Opaque(_)] => Err(Error::not_applicable("size", value)),
        [value] => match value.size() {
            Some(size) => Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX))),
            None => Err(Error::not_applicable("size", value)),
        },
        _ => Err(Error::no_such_overload()),
    }
}

pub(super) fn type_of<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    match args {
        [value] => Ok(Value::Type(value.type_name().into())),
        _ => Err(Error::no_such_overload()),
    }
}

pub(super) fn matches<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    let [text, pattern] = args else {
        return Err(Error::no_such_overload());
    };
    let Some(text) = text.as_str() else {
        return Err(Error::not_applicable("matches", text));
    };
    let pattern = pattern.as_str().ok_or_else(Error::no_such_overload)?;
    let regex = Regex::new(pattern).map_err(Error::text)?;
    Ok(Value::Bool(regex.is_match(text)))
}

pub(super) fn find(overload: &str) -> Option<Implementation> {
    if let Some(found) = timestamp(overload) {
        return Some(found);
    }
    Some(match overload {
        "contains_string" => |_, args| texts(args, |a, b| a.contains(b)),
        "starts_with_string" => |_, args| texts(args, |a, b| a.starts_with(b)),
        "ends_with_string" => |_, args| texts(args, |a, b| a.ends_with(b)),
        "duration_to_hours" => |_, args| duration(args, |d| d.hours()),
        "duration_to_minutes" => |_, args| duration(args, |d| d.minutes()),
        "duration_to_seconds" => |_, args| duration(args, |d| d.seconds()),
        "duration_to_milliseconds" => |_, args| duration(args, |d| d.milliseconds()),
        "optional_of" => |_, args| identity(0, args).map(Value::some),
        "optional_ofNonZeroValue" => |_, args| {
            let value = identity(0, args)?;
            Ok(if value.is_zero() {
                Value::Optional(None)
            } else {
                Value::some(value)
            })
        },
        "optional_none" => |_, _| Ok(Value::Optional(None)),
        "optional_value" => |_, args| match args {
            [Value::Optional(Some(value))] => value.to_result(),
            _ => Err(Error::fixed("optional.none() dereference")),
        },
        "optional_hasValue" => {
            |_, args| Ok(Value::Bool(matches!(args, [Value::Optional(Some(_))])))
        }
        "optional_unwrap" | "optional_unwrapOpt" => unwrap_all,
        _ => return None,
    })
}

fn unwrap_all<'a>(_: u64, args: &[Value<'a>]) -> Argument<'a> {
    let [list] = args else {
        return Err(Error::no_such_overload());
    };
    let mut present = Vec::new();
    for element in list.elements() {
        match element {
            Value::Optional(Some(value)) => present.push(value.to_result()?),
            Value::Optional(None) => {}
            other => return Err(Error::text(format_args!("value {other} is not optional"))),
        }
    }
    Ok(present.into())
}

fn texts<'a>(args: &[Value<'a>], test: fn(&str, &str) -> bool) -> Argument<'a> {
    match args {
        [a, b] => match (a.as_str(), b.as_str()) {
            (Some(a), Some(b)) => Ok(Value::Bool(test(a, b))),
            _ => Err(Error::no_such_overload()),
        },
        _ => Err(Error::no_such_overload()),
    }
}

fn duration<'a>(args: &[Value<'a>], get: fn(lockgate_go::time::Duration) -> i64) -> Argument<'a> {
    match args {
        [Value::Duration(d)] => Ok(Value::Int(get(*d))),
        _ => Err(Error::no_such_overload()),
    }
}

fn at<'a>(args: &[Value<'a>], get: fn(Timestamp, &Zone) -> i64) -> Argument<'a> {
    let (t, zone) = match args {
        [Value::Timestamp(t)] => (t, Zone::Utc),
        [Value::Timestamp(t), zone] => {
            let zone = zone.as_str().ok_or_else(Error::no_such_overload)?;
            (t, Zone::parse(zone).map_err(Error::text)?)
        }
        _ => return Err(Error::no_such_overload()),
    };
    Ok(Value::Int(get(*t, &zone)))
}

fn timestamp(overload: &str) -> Option<Implementation> {
    let part = overload.strip_prefix("timestamp_to_")?;
    let part = part
        .strip_suffix("_with_tz")
        .or_else(|| part.strip_suffix("_tz"))
        .unwrap_or(part);
    Some(match part {
        "year" => |_, args| at(args, |t, zone| t.full_year(zone)),
        "month" => |_, args| at(args, |t, zone| t.month(zone)),
        "day_of_year" => |_, args| at(args, |t, zone| t.day_of_year(zone)),
        "day_of_month" => |_, args| at(args, |t, zone| t.day_of_month_from_zero(zone)),
        "day_of_month_1_based" => |_, args| at(args, |t, zone| t.day_of_month(zone)),
        "day_of_week" => |_, args| at(args, |t, zone| t.day_of_week(zone)),
        "hours" => |_, args| at(args, |t, zone| t.hours(zone)),
        "minutes" => |_, args| at(args, |t, zone| t.minutes(zone)),
        "seconds" => |_, args| at(args, |t, zone| t.seconds(zone)),
        "milliseconds" => |_, args| at(args, |t, _| t.milliseconds()),
        _ => return None,
    })
}
