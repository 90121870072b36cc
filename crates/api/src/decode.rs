//! Decodes documents into wire types like the API server.
//!
//! The rules are those of Go's `encoding/json` in Kubernetes: field names are case-sensitive, a
//! type mismatch is reported with the Go names of the field and its type and decoding continues,
//! `null` leaves a value unchanged, a duplicate field is decoded into the previous value, and
//! unknown or duplicate fields are *strict* errors, which only some callers return.
//!
//! UPSTREAM: sigs.k8s.io/json internal/golang/encoding/json/decode.go.

mod wire;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use lockgate_go::base64;
use lockgate_go::quote::quote;

use crate::document::{Document, Kind, Span, Value};

pub use wire::{Bytes, RawJson};
pub(crate) use wire::{IsEmpty, Pointee, wire_struct};

/// The maximum number of strict errors.
const MAX_STRICT_FINDINGS: usize = 100;

/// A document that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The API server's error message.
    pub message: String,
    /// The span of the value that could not be decoded.
    pub span: Span,
}

/// A strict decoding error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrictFinding {
    /// The kind of the error.
    pub problem: StrictProblem,
    /// The path of the field, as in `webhooks[0].timeout`.
    pub path: String,
    /// The span of the field's name.
    pub span: Span,
    /// The known fields of the struct, for suggestions; empty for duplicate fields.
    pub known: &'static [FieldName],
}

/// The kinds of strict decoding errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StrictProblem {
    /// The type has no such field.
    UnknownField,
    /// The field is a duplicate.
    DuplicateField,
}

impl std::fmt::Display for StrictFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let problem = match self.problem {
            StrictProblem::UnknownField => "unknown field",
            StrictProblem::DuplicateField => "duplicate field",
        };
        write!(f, "{problem} {}", quote(&self.path))
    }
}

/// Joins strict errors into the API server's message.
#[must_use]
pub fn strict_error(findings: &[StrictFinding]) -> String {
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    format!("strict decoding error: {}", texts.join(", "))
}

/// A field's JSON name, and the Go name of its embedded struct, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldName {
    /// The JSON name.
    pub json: &'static str,
    pub(crate) embedded_in: Option<&'static str>,
}

/// A decoded value with its strict errors.
#[derive(Debug, Clone)]
pub struct Decoded<T> {
    /// The value.
    pub value: T,
    /// Unknown and duplicate fields, in document order.
    pub findings: Vec<StrictFinding>,
}

/// Decodes the root of `document`.
///
/// # Errors
///
/// The first field with a type mismatch.
pub fn decode<T: WireStruct + Default>(document: &Document) -> Result<Decoded<T>, DecodeError> {
    decode_value(document.root())
}

/// Decodes one value of a document, as the root of all paths.
///
/// # Errors
///
/// The first field with a type mismatch.
pub fn decode_value<T: WireStruct + Default>(root: Value<'_>) -> Result<Decoded<T>, DecodeError> {
    let mut decoder = Decoder::default();
    let mut value = T::default();
    decoder.object(&mut value, root)?;
    match decoder.error {
        Some(error) => Err(error),
        None => Ok(Decoded {
            value,
            findings: decoder.findings,
        }),
    }
}

/// A struct that is decoded field by field, implemented by the crate's macro `wire_struct!`.
pub trait WireStruct {
    /// The Go type, with its package.
    const GO_TYPE: &'static str;
    /// The fields, in order of declaration.
    const FIELDS: &'static [FieldName];

    /// Decodes the field `name`, which is one of [`Self::FIELDS`].
    ///
    /// # Errors
    ///
    /// Only errors that end decoding immediately; type mismatches are recorded in the decoder.
    fn decode_field(
        &mut self,
        name: &str,
        value: Value<'_>,
        decoder: &mut Decoder,
    ) -> Result<(), DecodeError>;
}

/// The state of decoding, with the context for error messages.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The first type mismatch; later ones are not reported.
    error: Option<DecodeError>,
    findings: Vec<StrictFinding>,
    seen_findings: HashSet<(StrictProblem, String)>,
    /// Go names of the enclosing fields, and of the innermost field's struct.
    field_stack: Vec<&'static str>,
    struct_name: &'static str,
    /// The path of strict errors, with indices.
    path: String,
}

type Step = Result<(), DecodeError>;

impl Decoder {
    /// Decodes a struct; `null` leaves it unchanged.
    pub(crate) fn object<T: WireStruct>(&mut self, target: &mut T, value: Value<'_>) -> Step {
        match value.kind() {
            Kind::Null => return Ok(()),
            Kind::Object => {}
            _ => return self.wrong_type(value, T::GO_TYPE),
        }
        let mut seen = BTreeSet::new();
        for member in value.members() {
            let Some(field) = T::FIELDS.iter().find(|field| field.json == member.key) else {
                self.find(
                    StrictProblem::UnknownField,
                    member.key,
                    member.key_span,
                    T::FIELDS,
                );
                continue;
            };
            if !seen.insert(field.json) {
                self.find(
                    StrictProblem::DuplicateField,
                    field.json,
                    member.key_span,
                    &[],
                );
            }
            let stack_len = self.field_stack.len();
            let outer_struct = self.struct_name;
            let path_len = self.enter_key(field.json);
            self.field_stack.extend(field.embedded_in);
            self.field_stack.push(field.json);
            self.struct_name = T::GO_TYPE.rsplit('.').next().unwrap_or(T::GO_TYPE);
            target.decode_field(field.json, member.value, self)?;
            self.field_stack.truncate(stack_len);
            self.struct_name = outer_struct;
            self.path.truncate(path_len);
        }
        Ok(())
    }

    /// Decodes a pointer to a struct.
    pub(crate) fn opt_object<T: WireStruct + Default>(
        &mut self,
        target: &mut Option<T>,
        value: Value<'_>,
    ) -> Step {
        if value.is_null() {
            *target = None;
            return Ok(());
        }
        self.object(target.get_or_insert_default(), value)
    }

    /// Decodes a list of structs.
    pub(crate) fn objects<T: WireStruct + Default>(
        &mut self,
        target: &mut Option<Vec<T>>,
        value: Value<'_>,
    ) -> Step {
        self.list(target, value, T::GO_TYPE, Self::object)
    }

    /// Decodes a string of the Go type `go_type`.
    pub(crate) fn text(&mut self, target: &mut String, value: Value<'_>, go_type: &str) -> Step {
        match value.as_str() {
            Some(text) => text.clone_into(target),
            None if value.is_null() => {}
            None => return self.wrong_type(value, go_type),
        }
        Ok(())
    }

    /// Decodes a pointer to a string.
    pub(crate) fn opt_text(
        &mut self,
        target: &mut Option<String>,
        value: Value<'_>,
        go_type: &str,
    ) -> Step {
        if value.is_null() {
            *target = None;
            return Ok(());
        }
        self.text(target.get_or_insert_default(), value, go_type)
    }

    /// Decodes a list of strings of the Go type `go_type`.
    pub(crate) fn strings(
        &mut self,
        target: &mut Option<Vec<String>>,
        value: Value<'_>,
        go_type: &str,
    ) -> Step {
        self.list(target, value, go_type, |decoder, item, value| {
            decoder.text(item, value, go_type)
        })
    }

    /// Decodes a map of strings.
    pub(crate) fn string_map(
        &mut self,
        target: &mut Option<BTreeMap<String, String>>,
        value: Value<'_>,
    ) -> Step {
        self.map(
            target,
            value,
            "map[string]string",
            |decoder, item, value| decoder.text(item, value, "string"),
        )
    }

    /// Decodes a map of lists of strings; `go_type` is the Go type of a list.
    pub(crate) fn string_list_map(
        &mut self,
        target: &mut Option<BTreeMap<String, Vec<String>>>,
        value: Value<'_>,
        go_type: &str,
    ) -> Step {
        let map_type = format!("map[string]{go_type}");
        self.map(target, value, &map_type, |decoder, item, value| {
            let mut list = Some(std::mem::take(item));
            if !matches!(value.kind(), Kind::Null | Kind::Array) {
                return decoder.wrong_type(value, go_type);
            }
            decoder.strings(&mut list, value, "string")?;
            *item = list.unwrap_or_default();
            Ok(())
        })
    }

    /// Decodes a pointer to a 32-bit integer.
    pub(crate) fn opt_int32(&mut self, target: &mut Option<i32>, value: Value<'_>) -> Step {
        if value.is_null() {
            *target = None;
            return Ok(());
        }
        self.integer(target.get_or_insert_default(), value, "int32")
    }

    /// Decodes a 32-bit integer.
    pub(crate) fn int32(&mut self, target: &mut i32, value: Value<'_>) -> Step {
        self.integer(target, value, "int32")
    }

    /// Decodes a pointer to a 64-bit integer.
    pub(crate) fn opt_int64(&mut self, target: &mut Option<i64>, value: Value<'_>) -> Step {
        if value.is_null() {
            *target = None;
            return Ok(());
        }
        self.integer(target.get_or_insert_default(), value, "int64")
    }

    /// Decodes a 64-bit integer.
    pub(crate) fn int64(&mut self, target: &mut i64, value: Value<'_>) -> Step {
        self.integer(target, value, "int64")
    }

    /// Decodes a boolean.
    pub(crate) fn boolean(&mut self, target: &mut bool, value: Value<'_>) -> Step {
        match value.as_bool() {
            Some(flag) => *target = flag,
            None if value.is_null() => {}
            None => return self.wrong_type(value, "bool"),
        }
        Ok(())
    }

    /// Decodes a pointer to a boolean.
    pub(crate) fn opt_boolean(&mut self, target: &mut Option<bool>, value: Value<'_>) -> Step {
        if value.is_null() {
            *target = None;
            return Ok(());
        }
        self.boolean(target.get_or_insert_default(), value)
    }

    /// Decodes bytes: a base64 string, or a list of integers.
    pub(crate) fn bytes(&mut self, target: &mut Option<Bytes>, value: Value<'_>) -> Step {
        match value.kind() {
            Kind::Null => *target = None,
            Kind::Array => {
                let mut list = target.take().map(|bytes| bytes.0);
                self.list(&mut list, value, "uint8", |decoder, item, value| {
                    decoder.integer(item, value, "uint8")
                })?;
                *target = list.map(Bytes);
            }
            Kind::String => match base64::decode(value.as_str().expect("a string is text")) {
                Ok(bytes) => *target = Some(Bytes(bytes)),
                Err(error) => self.fail(error.to_string(), value.span()),
            },
            _ => return self.wrong_type(value, "[]uint8"),
        }
        Ok(())
    }

    /// Keeps the raw JSON of a value; `null` is `None`.
    pub(crate) fn raw(&mut self, target: &mut Option<RawJson>, value: Value<'_>) -> Step {
        if !value.is_null() {
            *target = Some(RawJson(value.to_json()));
        }
        Ok(())
    }

    fn integer<N: TryFrom<i64>>(&mut self, target: &mut N, value: Value<'_>, go: &str) -> Step {
        match value.as_number() {
            Some(text) => match text
                .parse::<i64>()
                .ok()
                .and_then(|number| N::try_from(number).ok())
            {
                Some(number) => *target = number,
                None => self.type_error(&format!("number {text}"), go, value.span()),
            },
            None if value.is_null() => {}
            None => return self.wrong_type(value, go),
        }
        Ok(())
    }

    /// Decodes a list into an existing one: elements are decoded into those at the same index.
    fn list<T: Default>(
        &mut self,
        target: &mut Option<Vec<T>>,
        value: Value<'_>,
        go_type: &str,
        mut decode: impl FnMut(&mut Self, &mut T, Value<'_>) -> Step,
    ) -> Step {
        match value.kind() {
            Kind::Null => {
                *target = None;
                return Ok(());
            }
            Kind::Array => {}
            _ => return self.wrong_type(value, &format!("[]{go_type}")),
        }
        let list = target.get_or_insert_default();
        let mut len = 0;
        for (index, item) in value.items().enumerate() {
            if index == list.len() {
                list.push(T::default());
            }
            let path_len = self.path.len();
            self.path.push_str(&format!("[{index}]"));
            decode(self, &mut list[index], item)?;
            self.path.truncate(path_len);
            len = index + 1;
        }
        list.truncate(len);
        Ok(())
    }

    fn map<T: Default>(
        &mut self,
        target: &mut Option<BTreeMap<String, T>>,
        value: Value<'_>,
        go_type: &str,
        mut decode: impl FnMut(&mut Self, &mut T, Value<'_>) -> Step,
    ) -> Step {
        match value.kind() {
            Kind::Null => {
                *target = None;
                return Ok(());
            }
            Kind::Object => {}
            _ => return self.wrong_type(value, go_type),
        }
        let map = target.get_or_insert_default();
        let mut seen = HashSet::new();
        for member in value.members() {
            if !seen.insert(member.key) {
                self.find(
                    StrictProblem::DuplicateField,
                    member.key,
                    member.key_span,
                    &[],
                );
            }
            let path_len = self.enter_key(member.key);
            let mut item = T::default();
            decode(self, &mut item, member.value)?;
            map.insert(member.key.to_owned(), item);
            self.path.truncate(path_len);
        }
        Ok(())
    }

    /// Appends a field to the path and returns the previous length.
    fn enter_key(&mut self, key: &str) -> usize {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        len
    }

    fn find(&mut self, problem: StrictProblem, key: &str, span: Span, known: &'static [FieldName]) {
        if self.findings.len() >= MAX_STRICT_FINDINGS {
            return;
        }
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        if self.seen_findings.insert((problem, path.clone())) {
            self.findings.push(StrictFinding {
                problem,
                path,
                span,
                known,
            });
        }
    }

    fn wrong_type(&mut self, value: Value<'_>, go_type: &str) -> Step {
        self.type_error(value.kind().name(), go_type, value.span());
        Ok(())
    }

    fn type_error(&mut self, found: &str, go_type: &str, span: Span) {
        let message = self.type_message(found, go_type);
        self.fail(message, span);
    }

    pub(crate) fn type_message(&self, found: &str, go_type: &str) -> String {
        let place = if self.field_stack.is_empty() {
            String::from("Go value")
        } else {
            format!(
                "Go struct field {}.{}",
                self.struct_name,
                self.field_stack.join(".")
            )
        };
        format!("json: cannot unmarshal {found} into {place} of type {go_type}")
    }

    fn fail(&mut self, message: String, span: Span) {
        self.error.get_or_insert(DecodeError { message, span });
    }
}
