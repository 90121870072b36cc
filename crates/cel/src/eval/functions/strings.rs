//! String functions: the strings extension, `find` and `findAll`.

use lockgate_go::regex::Regex;

use crate::eval::cost::Argument;
use crate::eval::functions::Implementation;
use crate::strings;
use crate::value::{Error, Value};

/// The maximum bytes of a resulting string per unit of remaining budget.
const BYTES_PER_UNIT: u64 = 16;
/// The maximum bytes of a resulting string without budget, so that small strings never fail.
const FREE_BYTES: u64 = 1 << 20;

pub(super) fn find(overload: &str) -> Option<Implementation> {
    Some(match overload {
        "string_char_at_int" => |_, args| match args {
            [text, Value::Int(at)] => strings::char_at(str(text)?, *at)
                .map(owned)
                .map_err(Error::text),
            _ => mismatch(),
        },
        "string_index_of_string" => |_, args| match args {
            [text, part] => Ok(strings::index_of(str(text)?, str(part)?).into()),
            _ => mismatch(),
        },
        "string_index_of_string_int" => |_, args| match args {
            [text, part, Value::Int(from)] => strings::index_of_from(str(text)?, str(part)?, *from)
                .map(Value::Int)
                .map_err(Error::text),
            _ => mismatch(),
        },
        "string_last_index_of_string" => |_, args| match args {
            [text, part] => Ok(strings::last_index_of(str(text)?, str(part)?).into()),
            _ => mismatch(),
        },
        "string_last_index_of_string_int" => |_, args| match args {
            [text, part, Value::Int(from)] => {
                strings::last_index_of_from(str(text)?, str(part)?, *from)
                    .map(Value::Int)
                    .map_err(Error::text)
            }
            _ => mismatch(),
        },
        "string_lower_ascii" => |_, args| one(args, strings::lower_ascii),
        "string_upper_ascii" => |_, args| one(args, strings::upper_ascii),
        "string_trim" => |_, args| one(args, |text| strings::trim(text).to_owned()),
        "strings_quote" => |_, args| one(args, strings::quote),
        "string_replace_string_string" => |budget, args| match args {
            [text, old, new] => replace(budget, str(text)?, str(old)?, str(new)?, -1),
            _ => mismatch(),
        },
        "string_replace_string_string_int" => |budget, args| match args {
            [text, old, new, Value::Int(limit)] => {
                replace(budget, str(text)?, str(old)?, str(new)?, *limit)
            }
            _ => mismatch(),
        },
        "string_split_string" => |_, args| match args {
            [text, separator] => split(str(text)?, str(separator)?, -1),
            _ => mismatch(),
        },
        "string_split_string_int" => |_, args| match args {
            [text, separator, Value::Int(limit)] => split(str(text)?, str(separator)?, *limit),
            _ => mismatch(),
        },
        "string_substring_int" => |_, args| match args {
            [text, Value::Int(start)] => strings::substring(str(text)?, *start)
                .map(owned)
                .map_err(Error::text),
            _ => mismatch(),
        },
        "string_substring_int_int" => |_, args| match args {
            [text, Value::Int(start), Value::Int(end)] => {
                strings::substring_range(str(text)?, *start, *end)
                    .map(owned)
                    .map_err(Error::text)
            }
            _ => mismatch(),
        },
        "string_format" => |_, args| match args {
            [format, args] => super::format::format(str(format)?, args).map(Value::from),
            _ => mismatch(),
        },
        "list_join" => |budget, args| match args {
            [list] => join(budget, list, ""),
            _ => mismatch(),
        },
        "list_join_string" => |budget, args| match args {
            [list, separator] => join(budget, list, str(separator)?),
            _ => mismatch(),
        },
        "string_find_string" => |_, args| match args {
            [text, pattern] => {
                let regex = regex(str(pattern)?)?;
                Ok(owned(regex.find(str(text)?).unwrap_or_default()))
            }
            _ => mismatch(),
        },
        "string_find_all_string" => |_, args| match args {
            [text, pattern] => find_all(str(text)?, str(pattern)?, -1),
            _ => mismatch(),
        },
        "string_find_all_string_int" => |_, args| match args {
            [text, pattern, Value::Int(limit)] => find_all(str(text)?, str(pattern)?, *limit),
            _ => mismatch(),
        },
        _ => return None,
    })
}

fn mismatch<'a>() -> Argument<'a> {
    Err(Error::no_such_overload())
}

fn str<'v>(value: &'v Value<'_>) -> Result<&'v str, Error> {
    value.as_str().ok_or_else(Error::no_such_overload)
}

fn owned<'a>(text: &str) -> Value<'a> {
    text.to_owned().into()
}

fn one<'a>(args: &[Value<'a>], change: impl Fn(&str) -> String) -> Argument<'a> {
    match args {
        [text] => Ok(change(str(text)?).into()),
        _ => mismatch(),
    }
}

/// Checks that the budget allows a string of this length.
///
/// Upstream charges some functions by their input only, so the result size is bounded here.
fn affordable(budget: u64, bytes: usize) -> Result<(), Error> {
    let allowed = budget
        .saturating_mul(BYTES_PER_UNIT)
        .saturating_add(FREE_BYTES);
    if bytes as u64 > allowed {
        Err(Error::CostLimit)
    } else {
        Ok(())
    }
}

fn replace<'a>(budget: u64, text: &str, old: &str, new: &str, limit: i64) -> Argument<'a> {
    affordable(budget, strings::replaced_len(text, old, new, limit))?;
    Ok(strings::replace(text, old, new, limit).into())
}

fn split<'a>(text: &str, separator: &str, limit: i64) -> Argument<'a> {
    Ok(Value::texts(
        strings::split(text, separator, limit)
            .into_iter()
            .map(str::to_owned),
    ))
}

fn join<'a>(budget: u64, list: &Value<'a>, separator: &str) -> Argument<'a> {
    let mut joined = String::new();
    for (nth, element) in list.elements().enumerate() {
        if nth != 0 {
            joined.push_str(separator);
        }
        match element.as_str() {
            Some(text) => joined.push_str(text),
            None => return Err(Error::text(format_args!("join: invalid input: {element}"))),
        }
        affordable(budget, joined.len())?;
    }
    Ok(joined.into())
}

fn regex(pattern: &str) -> Result<Regex, Error> {
    Regex::new(pattern).map_err(|error| Error::text(format_args!("Illegal regex: {error}")))
}

fn find_all<'a>(text: &str, pattern: &str, limit: i64) -> Argument<'a> {
    let found = regex(pattern)?;
    Ok(Value::texts(
        found.find_all(text, limit).into_iter().map(str::to_owned),
    ))
}
