//! Decodes objects into the JSON that Go would encode.
//!
//! The rules are those of `sigs.k8s.io/json`: names are case-sensitive, a value of the wrong type is reported with
//! Go's names and decoding continues, `null` leaves a value unchanged, a duplicate field is decoded over the earlier
//! value, and unknown or duplicate fields are findings that only strict callers reject. The result has exactly the
//! fields that Go would encode.
//!
//! The decoder is a loop with an explicit stack, so the depth of skipped values uses the heap only; decoded values
//! nest at most [`tree::MAX_DEPTH`] levels.
//!
//! UPSTREAM: sigs.k8s.io/json internal/golang/encoding/json/{decode,kubernetes_patch}.go.

use std::collections::HashSet;
use std::vec;

use serde_json::map::Map;
use serde_json::{Number, Value};

use lockgate_api::document;
use lockgate_api::document::Kind;
use lockgate_go::base64;
use lockgate_go::quote::quote;

use crate::tree;

use super::data::{FieldRow, OMIT_EMPTY, OMIT_ZERO, Shape, StructRow};
use super::scalar::{Refusal, Scalar, read, zero};
use super::{Type, embeds, find_field, struct_fields};

/// The maximum number of findings.
pub const MAX_FINDINGS: usize = 100;

/// The maximum total size of paths in findings. Repeated findings at deep paths are expensive and add nothing.
const PATH_BUDGET: usize = 16 << 20;

/// An invalid value, with the message of Go's decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub(super) String);

impl DecodeError {
    fn too_deep() -> Self {
        Self(String::from("exceeded max depth"))
    }
}

/// A decoded value and the findings about it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decoded {
    /// The object as Go would encode it.
    pub value: Value,
    /// Unknown and duplicate fields in document order, with upstream's messages, at most [`MAX_FINDINGS`].
    pub findings: Vec<String>,
}

impl Type {
    /// Decodes a value of a parsed document.
    ///
    /// # Errors
    ///
    /// The value has the wrong type.
    pub fn decode(self, value: document::Value<'_>) -> Result<Decoded, DecodeError> {
        Reader::new(
            |value: document::Value<'_>| value.items(),
            |value: document::Value<'_>| value.members().map(|member| (member.key, member.value)),
        )
        .run(self, value)
    }

    /// Decodes a value of a parsed document, and keeps empty lists and maps that Go would omit.
    ///
    /// # Errors
    ///
    /// The value has the wrong type; the message is that of upstream's decoder.
    pub fn decode_with_empties(self, value: document::Value<'_>) -> Result<Decoded, DecodeError> {
        let mut reader = Reader::new(
            |value: document::Value<'_>| value.items(),
            |value: document::Value<'_>| value.members().map(|member| (member.key, member.value)),
        );
        reader.keeps_empty = true;
        reader.run(self, value)
    }

    /// Decodes a JSON value, for example a patched one.
    ///
    /// # Errors
    ///
    /// The value has the wrong type.
    pub fn decode_value(self, value: &Value) -> Result<Decoded, DecodeError> {
        let tree = Tree {
            value,
            number_text: encoded_number,
        };
        self.decode_tree(tree, false)
    }

    /// Decodes a value that a JSON patch or a merge patch produced, whose numbers are spelled as in the patch: `1.0`
    /// is not an integer. Keeps empty lists and maps that Go would omit.
    ///
    /// # Errors
    ///
    /// The value has the wrong type.
    pub fn decode_patched(self, value: &Value) -> Result<Decoded, DecodeError> {
        let tree = Tree {
            value,
            number_text: Number::to_string,
        };
        self.decode_tree(tree, true)
    }

    /// Decodes a merged value, and keeps empty lists and maps that Go would omit.
    ///
    /// # Errors
    ///
    /// The value has the wrong type.
    pub fn decode_merged(self, value: &Value) -> Result<Decoded, DecodeError> {
        let tree = Tree {
            value,
            number_text: encoded_number,
        };
        self.decode_tree(tree, true)
    }

    fn decode_tree(self, root: Tree<'_>, keeps_empty: bool) -> Result<Decoded, DecodeError> {
        let number_text = root.number_text;
        let tree = move |value| Tree { value, number_text };
        let mut reader = Reader::new(
            move |list: Tree<'_>| {
                let items = list.value.as_array().map(|list| list.iter());
                items.into_iter().flatten().map(tree)
            },
            move |object: Tree<'_>| {
                let members = object.value.as_object().map(Map::iter);
                let members = members.into_iter().flatten();
                members.map(move |(key, value)| (key.as_str(), tree(value)))
            },
        );
        reader.keeps_empty = keeps_empty;
        reader.run(self, root)
    }

    /// The JSON of Go's zero value of this type.
    #[must_use]
    pub fn zero(self) -> Value {
        match self.shape() {
            Shape::Struct(_) => {
                let mut out = Map::new();
                if let Some(row) = self.struct_row() {
                    // The nesting is finite: recursive structs use pointers.
                    complete(row, &mut out);
                }
                Value::Object(out)
            }
            shape => zero(shape),
        }
    }
}

/// A value to decode: a node of a document, or a JSON value.
trait Source<'s>: Copy {
    /// Calls `then` with the scalar, or the kind of container.
    fn scalar<R>(self, then: impl FnOnce(Scalar<'_>) -> R) -> R;
    /// The value as JSON, unless it nests deeper than `levels`.
    fn to_tree(self, levels: usize) -> Option<Value>;
}

impl<'s> Source<'s> for document::Value<'s> {
    fn scalar<R>(self, then: impl FnOnce(Scalar<'_>) -> R) -> R {
        then(match self.kind() {
            Kind::Null => Scalar::Null,
            Kind::Bool => Scalar::Bool(self.as_bool().unwrap_or_default()),
            Kind::Number => Scalar::Number(self.as_number().unwrap_or_default()),
            Kind::String => Scalar::Text(self.as_str().unwrap_or_default()),
            Kind::Array => Scalar::Array,
            Kind::Object => Scalar::Object,
        })
    }

    fn to_tree(self, levels: usize) -> Option<Value> {
        tree::from_document_within(self, levels)
    }
}

#[derive(Clone, Copy)]
struct Tree<'s> {
    value: &'s Value,
    number_text: fn(&Number) -> String,
}

impl<'s> Source<'s> for Tree<'s> {
    fn scalar<R>(self, then: impl FnOnce(Scalar<'_>) -> R) -> R {
        match self.value {
            Value::Null => then(Scalar::Null),
            Value::Bool(flag) => then(Scalar::Bool(*flag)),
            Value::Number(number) => then(Scalar::Number(&(self.number_text)(number))),
            Value::String(text) => then(Scalar::Text(text)),
            Value::Array(_) => then(Scalar::Array),
            Value::Object(_) => then(Scalar::Object),
        }
    }

    fn to_tree(self, levels: usize) -> Option<Value> {
        tree::copy_within(self.value, levels)
    }
}

/// A number as Go's encoder prints it before it is decoded again.
fn encoded_number(number: &Number) -> String {
    lockgate_go::json::to_string_plain(number)
}

/// An open container.
enum Frame<'s, I, M> {
    Struct {
        row: &'static StructRow,
        members: M,
        out: Map<String, Value>,
        /// The fields decoded so far, as a bit set.
        seen: u128,
        /// The unknown fields so far; most objects have none.
        unknown: Option<HashSet<&'s str>>,
        field: Option<&'static FieldRow>,
        /// True if a duplicate field is decoded over an earlier value.
        resumed: bool,
    },
    List {
        element: Type,
        items: I,
        out: Vec<Value>,
        before: vec::IntoIter<Value>,
    },
    Map {
        element: Type,
        members: M,
        out: Map<String, Value>,
        /// The keys decoded so far, if `out` was not empty at the beginning.
        seen: Option<HashSet<&'s str>>,
        key: &'s str,
    },
    /// The enclosing value has its own `UnmarshalJSON`, whose first error ends decoding.
    Scope,
}

/// The next step in decoding a container.
enum Next<S> {
    Child(Type, S, Option<Value>),
    End,
}

struct Reader<'s, S, I, M, FI, FM> {
    items: FI,
    members: FM,
    frames: Vec<Frame<'s, I, M>>,
    /// The first error, at the top level and of each open scope.
    errors: Vec<Option<String>>,
    findings: Vec<String>,
    seen_findings: HashSet<String>,
    path_budget: usize,
    /// True if the last value is a nil pointer, rather than a value that is encoded as `null`.
    nil: bool,
    /// True if empty lists and maps are kept that Go would omit.
    keeps_empty: bool,
    source: std::marker::PhantomData<S>,
}

impl<'s, S, I, M, FI, FM> Reader<'s, S, I, M, FI, FM>
where
    S: Source<'s>,
    I: Iterator<Item = S>,
    M: Iterator<Item = (&'s str, S)>,
    FI: Fn(S) -> I,
    FM: Fn(S) -> M,
{
    fn new(items: FI, members: FM) -> Self {
        Self {
            items,
            members,
            frames: Vec::new(),
            errors: vec![None],
            findings: Vec::new(),
            seen_findings: HashSet::new(),
            path_budget: PATH_BUDGET,
            nil: false,
            keeps_empty: false,
            source: std::marker::PhantomData,
        }
    }

    fn run(mut self, ty: Type, root: S) -> Result<Decoded, DecodeError> {
        let (mut ty, mut value, mut before) = (ty, root, None);
        let root = 'read: loop {
            let mut done = self.begin(ty, value, before)?;
            loop {
                if let Some(child) = done.take() {
                    match self.frames.last_mut() {
                        None => break 'read child,
                        Some(Frame::Scope) => {
                            self.frames.pop();
                            if let Some(error) = self.errors.pop().flatten() {
                                return Err(DecodeError(error));
                            }
                            // Go's `UnmarshalJSON` discards an empty list.
                            let empty = child.as_array().is_some_and(Vec::is_empty);
                            done = Some(if empty { Value::Null } else { child });
                            continue;
                        }
                        Some(frame) => {
                            let nil = std::mem::take(&mut self.nil);
                            frame.place(child, nil, self.keeps_empty);
                        }
                    }
                }
                match self.advance() {
                    Next::Child(child_type, child, child_before) => {
                        (ty, value, before) = (child_type, child, child_before);
                        break;
                    }
                    Next::End => done = self.frames.pop().map(Frame::finish),
                }
            }
        };
        match self.errors.pop().flatten() {
            Some(error) => Err(DecodeError(error)),
            None => Ok(Decoded {
                value: root,
                findings: self.findings,
            }),
        }
    }

    /// Begins a value: decodes a scalar, or pushes a frame.
    fn begin(
        &mut self,
        ty: Type,
        value: S,
        before: Option<Value>,
    ) -> Result<Option<Value>, DecodeError> {
        let levels = tree::MAX_DEPTH
            .checked_sub(self.frames.len())
            .ok_or_else(DecodeError::too_deep)?;
        let kind = value.scalar(|scalar| match scalar {
            Scalar::Null => Kind::Null,
            _ => scalar.container().unwrap_or(Kind::Bool),
        });
        let (ty, before) = match ty.shape() {
            Shape::Pointer(_) if kind == Kind::Null => {
                self.nil = true;
                return Ok(Some(Value::Null));
            }
            Shape::Pointer(target) => (Type(target), before.filter(|value| !value.is_null())),
            _ => (ty, before),
        };
        let frame = match (ty.shape(), kind) {
            (Shape::Struct(_), Kind::Null) => {
                return Ok(Some(before.unwrap_or_else(|| ty.zero())));
            }
            (Shape::Struct(_), Kind::Object) => match ty.struct_row() {
                None => return Ok(Some(Value::Null)),
                Some(row) => {
                    let resumed = before.is_some();
                    Frame::Struct {
                        row,
                        members: (self.members)(value),
                        out: object(before),
                        seen: 0,
                        unknown: None,
                        field: None,
                        resumed,
                    }
                }
            },
            (Shape::List(_) | Shape::Map(_), Kind::Null) => return Ok(Some(Value::Null)),
            (Shape::List(element), Kind::Array) => self.list(Type(element), value, before),
            (Shape::Map(element), Kind::Object) => self.map(Type(element), value, before),
            (Shape::Bytes, Kind::Array) => return Ok(Some(self.small_numbers(value))),
            (Shape::Raw, _) => {
                return value
                    .to_tree(levels)
                    .map(Some)
                    .ok_or_else(DecodeError::too_deep);
            }
            (Shape::SchemaOrBool(schema), _) => return self.schema_or_bool(Type(schema), value),
            (Shape::SchemaOrArray(schema, element) | Shape::SchemaOrTexts(schema, element), _) => {
                return self.schema_or_list(Type(schema), Type(element), kind, value);
            }
            _ => return self.scalar(ty, value, before).map(Some),
        };
        self.frames.push(frame);
        Ok(None)
    }

    fn list(&self, element: Type, value: S, before: Option<Value>) -> Frame<'s, I, M> {
        let before = match before {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        Frame::List {
            element,
            items: (self.items)(value),
            out: Vec::new(),
            before: before.into_iter(),
        }
    }

    fn map(&self, element: Type, value: S, before: Option<Value>) -> Frame<'s, I, M> {
        let out = object(before);
        Frame::Map {
            element,
            members: (self.members)(value),
            seen: (!out.is_empty()).then(HashSet::new),
            out,
            key: "",
        }
    }

    fn scalar(&mut self, ty: Type, value: S, before: Option<Value>) -> Result<Value, DecodeError> {
        let read = value.scalar(|scalar| read(ty.shape(), ty.go_name(), scalar, before));
        read.or_else(|refusal| self.reject(refusal))
    }

    fn reject(&mut self, refusal: Refusal) -> Result<Value, DecodeError> {
        match refusal {
            Refusal::Type(found, wanted) => {
                let message = self.type_message(&found, wanted);
                self.fail(message);
            }
            Refusal::Other(message) => self.fail(message),
            Refusal::FinalType(found, wanted) => {
                return Err(DecodeError(self.type_message(&found, wanted)));
            }
            Refusal::Final(message) => return Err(DecodeError(message)),
        }
        Ok(Value::Null)
    }

    /// A byte slice may be a list of numbers.
    fn small_numbers(&mut self, value: S) -> Value {
        let mut bytes = Vec::new();
        for item in (self.items)(value) {
            let byte = item.scalar(|scalar| match scalar {
                Scalar::Null => Ok(0),
                Scalar::Number(text) => text.parse::<u8>().map_err(|_| format!("number {text}")),
                _ => Err(scalar.describe().to_owned()),
            });
            match byte {
                Ok(byte) => bytes.push(byte),
                Err(found) => {
                    let message = self.type_message(&found, "uint8");
                    self.fail(message);
                }
            }
        }
        Value::String(base64::encode(&bytes))
    }

    fn schema_or_bool(&mut self, schema: Type, value: S) -> Result<Option<Value>, DecodeError> {
        let flag = value.scalar(|scalar| match scalar {
            Scalar::Object => Ok(None),
            Scalar::Bool(flag) => Ok(Some(Value::Bool(flag))),
            _ => Err(DecodeError(String::from("boolean or JSON schema expected"))),
        })?;
        if flag.is_none() {
            self.open_scope();
            return self.begin(schema, value, None);
        }
        Ok(flag)
    }

    /// A value that is neither a schema nor a list is silently dropped.
    fn schema_or_list(
        &mut self,
        schema: Type,
        element: Type,
        kind: Kind,
        value: S,
    ) -> Result<Option<Value>, DecodeError> {
        match kind {
            Kind::Object => {
                self.open_scope();
                self.begin(schema, value, None)
            }
            Kind::Array => {
                self.open_scope();
                let list = self.list(element, value, None);
                self.frames.push(list);
                Ok(None)
            }
            _ => Ok(Some(Value::Null)),
        }
    }

    fn open_scope(&mut self) {
        self.frames.push(Frame::Scope);
        self.errors.push(None);
    }

    /// Performs the next step of the innermost container.
    fn advance(&mut self) -> Next<S> {
        loop {
            let finding = match self.frames.last_mut() {
                None | Some(Frame::Scope) => return Next::End,
                Some(Frame::List {
                    element,
                    items,
                    before,
                    ..
                }) => {
                    return match items.next() {
                        Some(item) => Next::Child(*element, item, before.next()),
                        None => Next::End,
                    };
                }
                Some(Frame::Map {
                    element,
                    members,
                    out,
                    seen,
                    key,
                }) => {
                    let Some((name, value)) = members.next() else {
                        return Next::End;
                    };
                    *key = name;
                    let repeated = match seen {
                        Some(seen) => !seen.insert(name),
                        None => out.contains_key(name),
                    };
                    let element = *element;
                    if repeated {
                        self.find("duplicate field", name);
                    }
                    return Next::Child(element, value, None);
                }
                Some(Frame::Struct {
                    row,
                    members,
                    out,
                    seen,
                    unknown,
                    field,
                    resumed,
                }) => {
                    let Some((name, value)) = members.next() else {
                        return Next::End;
                    };
                    match find_field(row, name) {
                        None => unknown.get_or_insert_default().insert(name).then_some(name),
                        Some((at, found)) => {
                            *field = Some(found);
                            let bit = 1_u128 << (at % 128);
                            let repeated = *seen & bit != 0;
                            *seen |= bit;
                            // Without duplicates, there is no earlier value.
                            let before = if repeated || *resumed {
                                out.remove(name)
                            } else {
                                None
                            };
                            if repeated {
                                self.find("duplicate field", name);
                            }
                            return Next::Child(Type(found.1), value, before);
                        }
                    }
                }
            };
            if let Some(name) = finding {
                self.find("unknown field", name);
            }
        }
    }

    /// Adds a finding about the field `key` of the innermost container.
    fn find(&mut self, problem: &str, key: &str) {
        let within_scope = self.errors.len() > 1;
        if within_scope || self.findings.len() >= MAX_FINDINGS || self.path_budget == 0 {
            return;
        }
        let mut path = String::new();
        let outer = self.frames.len().saturating_sub(1);
        for frame in self.frames.iter().take(outer) {
            frame.push_position(&mut path);
        }
        push_key(&mut path, key);
        self.path_budget = self.path_budget.saturating_sub(path.len());
        let finding = format!("{problem} {}", quote(&path));
        if self.seen_findings.insert(finding.clone()) {
            self.findings.push(finding);
        }
    }

    fn fail(&mut self, message: String) {
        if let Some(first) = self.errors.last_mut() {
            first.get_or_insert(message);
        }
    }

    /// The error of a value of the wrong type, with the Go names of its struct and field.
    fn type_message(&self, found: &str, wanted: &str) -> String {
        let mut names = Vec::new();
        let mut struct_name = "";
        let mut in_scope = false;
        for frame in &self.frames {
            match frame {
                // Errors of an inner `UnmarshalJSON` name the outer struct.
                Frame::Scope => in_scope = true,
                Frame::Struct {
                    row,
                    field: Some(field),
                    ..
                } => {
                    names.extend(embeds(row, field).map(|embed| embed.0));
                    names.push(field.0);
                    if !in_scope {
                        struct_name = row.0;
                    }
                }
                _ => {}
            }
        }
        let place = if names.is_empty() {
            String::from("Go value")
        } else {
            format!("Go struct field {struct_name}.{}", names.join("."))
        };
        format!("json: cannot unmarshal {found} into {place} of type {wanted}")
    }
}

impl<I, M> Frame<'_, I, M> {
    /// Stores a decoded child.
    fn place(&mut self, child: Value, nil: bool, keeps_empty: bool) {
        match self {
            Self::Struct {
                out,
                field: Some(field),
                ..
            } => {
                if !is_omitted(field, &child, nil, keeps_empty) {
                    out.insert(field.0.to_owned(), child);
                }
            }
            Self::List { out, .. } => out.push(child),
            Self::Map { out, key, .. } => {
                out.insert((*key).to_owned(), child);
            }
            Self::Struct { .. } | Self::Scope => {}
        }
    }

    fn finish(self) -> Value {
        match self {
            Self::Struct { row, mut out, .. } => {
                complete(row, &mut out);
                Value::Object(out)
            }
            Self::Map { out, .. } => Value::Object(out),
            Self::List { out, .. } => Value::Array(out),
            Self::Scope => Value::Null,
        }
    }

    /// Appends the position of the current child.
    fn push_position(&self, path: &mut String) {
        match self {
            Self::Struct {
                field: Some(field), ..
            } => push_key(path, field.0),
            Self::Map { key, .. } => push_key(path, key),
            Self::List { out, .. } => path.push_str(&format!("[{}]", out.len())),
            Self::Struct { .. } | Self::Scope => {}
        }
    }
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn object(before: Option<Value>) -> Map<String, Value> {
    match before {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Returns true if Go omits a member with this value.
fn is_omitted(field: &FieldRow, value: &Value, nil: bool, keeps_empty: bool) -> bool {
    let empty = match Type(field.1).shape() {
        Shape::Pointer(target) => nil || is_no_schema(Type(target), value),
        Shape::Text | Shape::Bytes => value.as_str().is_none_or(str::is_empty),
        Shape::Bool => value == &Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Float64 => value.as_f64() == Some(0.0),
        Shape::List(_) => value
            .as_array()
            .is_none_or(|items| items.is_empty() && !keeps_empty),
        Shape::Map(_) => value
            .as_object()
            .is_none_or(|members| members.is_empty() && !keeps_empty),
        // Structs are never empty, but a type with `IsZero` may be omitted.
        _ => return field.2 & OMIT_ZERO != 0 && value.is_null(),
    };
    empty && field.2 & OMIT_EMPTY != 0
}

/// Returns true for `items` that are neither a schema nor a list of them.
///
/// UPSTREAM: apiextensions-apiserver pkg/apis/apiextensions/v1/conversion.go
fn is_no_schema(ty: Type, value: &Value) -> bool {
    matches!(ty.shape(), Shape::SchemaOrArray(..))
        && (value.is_null() || value.as_array().is_some_and(Vec::is_empty))
}

/// Adds the fields that Go encodes although they are unset.
fn complete(row: &StructRow, out: &mut Map<String, Value>) {
    for field in struct_fields(row) {
        let ty = Type(field.1);
        let structural = !matches!(
            ty.shape(),
            Shape::Pointer(_)
                | Shape::Text
                | Shape::Bytes
                | Shape::Bool
                | Shape::Int32
                | Shape::Int64
                | Shape::Float64
                | Shape::List(_)
                | Shape::Map(_)
        );
        let omitted = field.2 & OMIT_ZERO != 0 || (field.2 & OMIT_EMPTY != 0 && !structural);
        if !omitted && !out.contains_key(field.0) {
            out.insert(field.0.to_owned(), ty.zero());
        }
    }
}
