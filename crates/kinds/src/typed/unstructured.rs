//! Decodes an unstructured object, the result of a strategic merge patch.
//!
//! Upstream's converter differs from its JSON decoder: values are converted individually, with other messages,
//! numbers are truncated, and unknown fields are sorted by message, without map keys in their paths.
//!
//! UPSTREAM: apimachinery pkg/runtime/converter.go.

use std::cmp::Reverse;

use serde_json::{Number, Value};

use lockgate_go::base64;

use super::data::{FieldRow, Shape, StructRow};
use super::decode::{DecodeError, Decoded};
use super::scalar::{Refusal, Scalar, read};
use super::{Type, embeds, find_field};

impl Type {
    /// Decodes the result of a strategic merge patch.
    ///
    /// # Errors
    ///
    /// The value has the wrong type; the message is that of upstream's converter.
    pub fn from_unstructured(self, mut value: Value) -> Result<Decoded, DecodeError> {
        let converted = Converter::default().run(self, &mut value);
        let findings = match converted {
            Ok(findings) => findings,
            Err(message) => {
                crate::tree::dismantle(value);
                return Err(message);
            }
        };
        let decoded = self.decode_merged(&value);
        crate::tree::dismantle(value);
        let decoded = decoded?;
        Ok(Decoded {
            value: decoded.value,
            findings,
        })
    }
}

/// The position of a value: its parent and the last path element.
#[derive(Clone, Copy)]
enum Step {
    Root,
    Member(usize, &'static str),
    Index(usize, usize),
    /// Map keys are not part of the path.
    Key(usize),
}

/// The maximum number of listed unknown fields.
const MAX_UNKNOWN: usize = 1000;

#[derive(Default)]
struct Converter {
    steps: Vec<Step>,
}

impl Converter {
    /// Converts scalars in place and lists unknown fields. Errors are reported in Go's struct order.
    fn run(mut self, ty: Type, value: &mut Value) -> Result<Vec<String>, DecodeError> {
        let mut unknown = Vec::new();
        self.steps.push(Step::Root);
        let mut rest = vec![(ty, value, 0_usize)];
        while let Some((ty, value, at)) = rest.pop() {
            let ty = ty.target();
            if value.is_null() {
                continue;
            }
            match ty.shape() {
                Shape::Struct(_) => {
                    let Value::Object(members) = value else {
                        return Err(cannot_restore("struct from:", value));
                    };
                    let Some(row) = ty.struct_row() else {
                        continue;
                    };
                    let mut fields = Vec::with_capacity(members.len());
                    for (name, member) in members {
                        match find_field(row, name) {
                            Some((_, field)) => {
                                self.steps.push(Step::Member(at, field.0));
                                let next = (Type(field.1), member, self.steps.len() - 1);
                                fields.push((number_in(row, field), next));
                            }
                            None if unknown.len() >= MAX_UNKNOWN => {}
                            None => {
                                let path = self.path(at, name);
                                unknown.push(format!("unknown field \"{path}\""));
                            }
                        }
                    }
                    // The last one pushed is processed next.
                    fields.sort_by_key(|(number, _)| Reverse(*number));
                    rest.extend(fields.into_iter().map(|(_, next)| next));
                }
                Shape::List(element) => {
                    let Value::Array(items) = value else {
                        return Err(cannot_restore("slice from", value));
                    };
                    for (index, item) in items.iter_mut().enumerate().rev() {
                        self.steps.push(Step::Index(at, index));
                        rest.push((Type(element), item, self.steps.len() - 1));
                    }
                }
                Shape::Map(element) => {
                    let Value::Object(members) = value else {
                        return Err(cannot_restore("map from", value));
                    };
                    self.steps.push(Step::Key(at));
                    let at = self.steps.len() - 1;
                    rest.extend(
                        members
                            .values_mut()
                            .rev()
                            .map(|member| (Type(element), member, at)),
                    );
                }
                shape => convert(shape, ty.go_name(), value)?,
            }
        }
        unknown.sort_unstable();
        Ok(unknown)
    }

    /// The path of the field `name` of the value at `at`.
    fn path(&self, mut at: usize, name: &str) -> String {
        let mut parts = vec![format!(".{name}")];
        loop {
            at = match self.steps.get(at) {
                None | Some(Step::Root) => break,
                Some(Step::Member(parent, name)) => {
                    parts.push(format!(".{name}"));
                    *parent
                }
                Some(Step::Index(parent, index)) => {
                    parts.push(format!("[{index}]"));
                    *parent
                }
                Some(Step::Key(parent)) => *parent,
            };
        }
        parts.reverse();
        let path = parts.concat();
        path.strip_prefix('.').map(str::to_owned).unwrap_or(path)
    }
}

/// The protobuf number of a field, or of its outermost embedded struct, which determines Go's struct order.
fn number_in(row: &StructRow, field: &FieldRow) -> (u16, u16) {
    let embed = embeds(row, field).next();
    (embed.map_or(field.4, |embed| embed.2), field.4)
}

/// Converts a scalar.
fn convert(shape: Shape, go_name: &str, value: &mut Value) -> Result<(), DecodeError> {
    let refused = |value: &Value, kind: &str| {
        // Go converts between these types, the JSON decoder does not.
        let convertible = match value {
            Value::Number(number) => {
                kind == "string" && number.as_i64().is_some()
                    || matches!(kind, "int32" | "int64" | "float64")
            }
            _ => false,
        };
        DecodeError(if convertible {
            format!("cannot convert {} to {go_name}", go_kind(value))
        } else {
            format!("unrecognized type: {kind}")
        })
    };
    match shape {
        Shape::Text if !value.is_string() => Err(refused(value, "string")),
        Shape::Bool if !value.is_boolean() => Err(refused(value, "bool")),
        Shape::Float64 if !value.is_number() => Err(refused(value, "float64")),
        Shape::Int32 | Shape::Int64 => {
            let kind = if shape == Shape::Int32 {
                "int32"
            } else {
                "int64"
            };
            let whole = value.as_number().and_then(whole_number);
            let whole = whole.ok_or_else(|| refused(value, kind))?;
            // Go truncates to the low bits.
            *value = Value::from(if shape == Shape::Int32 {
                i64::from(whole as i32)
            } else {
                whole
            });
            Ok(())
        }
        Shape::Bytes => match value {
            Value::String(text) => base64::decode(text)
                .map(|_| ())
                .map_err(|error| DecodeError(format!("error decoding from json: {error}"))),
            Value::Array(_) => Ok(()),
            _ => Err(cannot_restore("slice from", value)),
        },
        Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString => {
            own_reader(shape, value)
        }
        _ => Ok(()),
    }
}

fn whole_number(number: &Number) -> Option<i64> {
    if let Some(integer) = number.as_i64() {
        return Some(integer);
    }
    let double = number.as_f64()?;
    // Go's conversion on amd64: a number that does not fit an `int64` becomes the minimum.
    let holds = (-TWO_TO_63..TWO_TO_63).contains(&double);
    let whole = if holds { double as i64 } else { i64::MIN };
    (double.fract() == 0.0).then_some(whole)
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Types with their own `UnmarshalJSON` get the JSON, and their errors contain no path.
fn own_reader(shape: Shape, value: &Value) -> Result<(), DecodeError> {
    let number;
    let scalar = match value {
        Value::Null => Scalar::Null,
        Value::Bool(flag) => Scalar::Bool(*flag),
        Value::Number(written) => {
            number = lockgate_go::json::to_string_plain(written);
            Scalar::Number(&number)
        }
        Value::String(text) => Scalar::Text(text),
        Value::Array(_) => Scalar::Array,
        Value::Object(_) => Scalar::Object,
    };
    match read(shape, "", scalar, None) {
        Ok(_) => Ok(()),
        Err(Refusal::Final(message) | Refusal::Other(message)) => Err(DecodeError(message)),
        Err(Refusal::Type(found, wanted) | Refusal::FinalType(found, wanted)) => Err(DecodeError(
            format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        )),
    }
}

fn cannot_restore(what: &str, value: &Value) -> DecodeError {
    DecodeError(format!("cannot restore {what} {}", go_kind(value)))
}

/// The `reflect.Kind` of a value.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.as_i64().is_some() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::type_of;
    use super::*;

    fn read_pod(value: Value) -> Result<Decoded, DecodeError> {
        type_of("", "v1", "Pod").unwrap().from_unstructured(value)
    }

    #[test]
    fn refuses_in_the_words_of_the_converter() {
        for (value, want) in [
            (
                json!({"metadata": {"name": 1}}),
                "cannot convert int64 to string",
            ),
            (
                json!({"metadata": {"name": true}}),
                "unrecognized type: string",
            ),
            (
                json!({"spec": {"restartPolicy": 1}}),
                "cannot convert int64 to v1.RestartPolicy",
            ),
            (
                json!({"spec": {"priority": "x"}}),
                "unrecognized type: int32",
            ),
            (
                json!({"spec": {"priority": 1.5}}),
                "cannot convert float64 to int32",
            ),
            (
                json!({"spec": {"hostNetwork": "x"}}),
                "unrecognized type: bool",
            ),
            (
                json!({"spec": {"containers": {}}}),
                "cannot restore slice from map",
            ),
            (
                json!({"spec": {"containers": ["a"]}}),
                "cannot restore struct from: string",
            ),
            (
                json!({"metadata": {"labels": []}}),
                "cannot restore map from slice",
            ),
            (
                json!({"metadata": {"creationTimestamp": 1}}),
                "json: cannot unmarshal number into Go value of type string",
            ),
        ] {
            assert_eq!(
                read_pod(value.clone()).unwrap_err().to_string(),
                want,
                "{value}"
            );
        }
        let secret = type_of("", "v1", "Secret").unwrap();
        assert_eq!(
            secret.from_unstructured(json!({"data": {"a": "%"}})),
            Err(DecodeError(String::from(
                "error decoding from json: illegal base64 data at input byte 0"
            )))
        );
    }

    /// Recorded from kube-apiserver v1.36.4.
    #[test]
    fn the_first_failure_is_that_of_the_first_field() {
        let lease = type_of("coordination.k8s.io", "v1", "Lease").unwrap();
        for (spec, want) in [
            (
                json!({"acquireTime": "yesterday", "renewTime": 1.5}),
                "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \
                 \"yesterday\" as \"2006\"",
            ),
            (
                json!({"acquireTime": true, "renewTime": "2020-01-01T00:00:00Z"}),
                "json: cannot unmarshal bool into Go value of type string",
            ),
        ] {
            let read = lease.from_unstructured(json!({"spec": spec}));
            assert_eq!(read.unwrap_err().to_string(), want);
        }
        let both = json!({"spec": {"containers": [{"ports": 1}, {"name": true}]}});
        assert_eq!(
            read_pod(both).unwrap_err().to_string(),
            "cannot restore slice from int64"
        );
    }

    #[test]
    fn lists_unknown_members_by_their_texts() {
        let decoded =
            read_pod(json!({"spec": {"zz": 1, "containers": [{"name": "a", "foo": 1}]}, "b": 1}))
                .unwrap();
        assert_eq!(
            decoded.findings,
            [
                "unknown field \"b\"",
                "unknown field \"spec.containers[0].foo\"",
                "unknown field \"spec.zz\"",
            ]
        );
        assert_eq!(decoded.value["spec"]["containers"][0]["name"], "a");
    }

    #[test]
    fn numbers_are_cut_to_fit() {
        let decoded = read_pod(
            json!({"spec": {"priority": 4_294_967_298_i64, "activeDeadlineSeconds": 5.0}}),
        )
        .unwrap();
        assert_eq!(decoded.value["spec"]["priority"], 2);
        assert_eq!(decoded.value["spec"]["activeDeadlineSeconds"], 5);
    }
}
