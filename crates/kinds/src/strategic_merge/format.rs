//! Values in errors, as printed by Go's `fmt`.

use serde_json::{Number, Value};

/// The Go type of a decoded value.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.as_i64().is_some() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Formats a value with `%s`.
pub(super) fn go_verb_s(value: &Value) -> String {
    match value {
        Value::Null => String::from("%!s(<nil>)"),
        Value::Bool(flag) => format!("%!s(bool={flag})"),
        Value::Number(number) => format!("%!s({}={})", go_type(value), go_number(number)),
        _ => go_verb_v(value),
    }
}

/// Formats a value with `%v`: `map[a:1 b:[x y]]`.
pub(super) fn go_verb_v(value: &Value) -> String {
    enum Part<'v> {
        Value(&'v Value),
        Text(&'v str),
    }
    let mut out = String::new();
    let mut rest = vec![Part::Value(value)];
    while let Some(part) = rest.pop() {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Value(Value::Null) => out.push_str("<nil>"),
            Part::Value(Value::Bool(flag)) => out.push_str(&flag.to_string()),
            Part::Value(Value::Number(number)) => out.push_str(&go_number(number)),
            Part::Value(Value::String(text)) => out.push_str(text),
            Part::Value(Value::Array(items)) => {
                out.push('[');
                rest.push(Part::Text("]"));
                for (at, item) in items.iter().enumerate().rev() {
                    rest.push(Part::Value(item));
                    if at > 0 {
                        rest.push(Part::Text(" "));
                    }
                }
            }
            Part::Value(Value::Object(members)) => {
                out.push_str("map[");
                rest.push(Part::Text("]"));
                for (at, (key, member)) in members
                    .iter()
                    .enumerate()
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                {
                    rest.push(Part::Value(member));
                    rest.push(Part::Text(":"));
                    rest.push(Part::Text(key));
                    if at > 0 {
                        rest.push(Part::Text(" "));
                    }
                }
            }
        }
    }
    out
}

/// Formats a number: doubles in Go's shortest form.
fn go_number(number: &Number) -> String {
    if let Some(integer) = number.as_i64() {
        return integer.to_string();
    }
    let double = number.as_f64().unwrap_or_default();
    let magnitude = double.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{double:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{double}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prints_like_go() {
        let value = json!({"b": [1, "x", null, 1.5, 1e25], "a": {"c": true}, "d": {}});
        assert_eq!(
            go_verb_v(&value),
            "map[a:map[c:true] b:[1 x <nil> 1.5 1e+25] d:map[]]"
        );
        assert_eq!(go_verb_s(&json!(3)), "%!s(int64=3)");
        assert_eq!(go_verb_s(&json!("x")), "x");
    }
}
