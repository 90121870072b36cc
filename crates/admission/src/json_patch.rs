//! JSON Patch as implemented by the API server.
//!
//! Webhooks respond with a patch, and clients depend on the API server's interpretation: `replace` of an absent field
//! adds it, negative indexes count from the end, `test` compares numbers as text, and error messages are fixed. This
//! module reproduces all of that on JSON trees. The effect of an error on the request is decided elsewhere, as are
//! defaulting and identity afterwards.
//!
//! Everything here is bounded: the number of operations, the bytes added by `copy`, the depth of the result, and the
//! work, which is linear in the object and the patch except for logarithms. Nothing recurses over input beyond that
//! depth, so depth uses heap memory, not the stack.
//!
//! UPSTREAM: gopkg.in/evanphx/json-patch.v4 v4.13.0 patch.go. Where that library would panic (a
//! `null` element under `test`, `replace` of the whole document without a value, a member added to
//! a copied `null`), the operation is rejected or compared in the obvious way.

mod error;
mod list;
mod text;
mod tree;

use std::collections::BTreeMap;

use lockgate_api::document::{Document, Kind, Value, json};
use lockgate_go::quote::quote_json;

use self::error::{Failure, PointerProblem, TargetProblem};
use self::tree::{NIL, Tree};

pub use self::error::ApplyError;

/// The maximum number of operations in a patch.
///
/// UPSTREAM: k8s.io/apiserver pkg/endpoints/handlers/patch.go (maxJSONPatchOperations) sets this
/// for patches of clients and nothing for webhooks.
pub const MAX_OPERATIONS: usize = 10_000;

/// The maximum number of bytes added by the `copy` operations of one patch.
///
/// UPSTREAM: k8s.io/apiserver pkg/server/config.go (jsonpatch.AccumulatedCopySizeLimit).
pub const MAX_COPIED_BYTES: u64 = 3 * 1024 * 1024;

/// The maximum nesting depth of a patched object. A deeper tree of values cannot be cloned safely on the stack of a
/// thread.
pub const MAX_DEPTH: usize = 500;

/// A decoded patch.
#[derive(Debug, Clone)]
pub struct Patch {
    source: Vec<u8>,
    document: Document,
    len: usize,
}

/// An undecodable patch. The message follows `received undecodable patch in webhook response: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not JSON.
    #[error("{0}")]
    Syntax(String),
    /// The patch is not a list of objects.
    #[error("json: cannot unmarshal {found} into Go value of type {go_type}")]
    WrongType {
        /// The type of the value found.
        found: &'static str,
        /// The Go type that it should have.
        go_type: &'static str,
    },
    /// The patch has more than [`MAX_OPERATIONS`].
    #[error("the allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
}

impl Patch {
    /// Decodes a patch. Its operations are decoded when they are applied.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a JSON list of objects, or the list is too long.
    ///
    /// ```
    /// use lockgate_admission::json_patch::Patch;
    /// let error = Patch::parse(b"[{").unwrap_err();
    /// assert_eq!(error.to_string(), "unexpected end of JSON input");
    /// ```
    pub fn parse(source: &[u8]) -> Result<Self, DecodeError> {
        let document = json::parse(source).map_err(|error| DecodeError::Syntax(error.message))?;
        let root = document.root();
        if !matches!(root.kind(), Kind::Array | Kind::Null) {
            return Err(wrong_type(root.kind(), "jsonpatch.Patch"));
        }
        let mut len = 0;
        for operation in root.items() {
            len += 1;
            if !matches!(operation.kind(), Kind::Object | Kind::Null) {
                return Err(wrong_type(operation.kind(), "jsonpatch.Operation"));
            }
        }
        if len > MAX_OPERATIONS {
            return Err(DecodeError::TooManyOperations(len));
        }
        Ok(Self {
            source: source.to_vec(),
            document,
            len,
        })
    }

    /// Returns `true` if the patch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Applies all operations in order to a copy of `object`.
    ///
    /// # Errors
    ///
    /// Fails with the first operation that cannot be applied; `object` is unchanged in any case.
    ///
    /// ```
    /// use lockgate_admission::json_patch::Patch;
    /// use serde_json::json;
    ///
    /// let patch = Patch::parse(br#"[{"op": "add", "path": "/labels/a", "value": "b"}]"#).unwrap();
    /// let patched = patch.apply(&json!({"labels": {}})).unwrap();
    /// assert_eq!(patched, json!({"labels": {"a": "b"}}));
    /// assert_eq!(
    ///     patch.apply(&json!({})).unwrap_err().to_string(),
    ///     r#"add operation does not apply: doc is missing path: "/labels/a": missing value"#,
    /// );
    /// ```
    pub fn apply(&self, object: &serde_json::Value) -> Result<serde_json::Value, ApplyError> {
        Ok(self.try_apply(object)?)
    }

    fn try_apply(&self, object: &serde_json::Value) -> Result<serde_json::Value, Failure> {
        let mut run = Run {
            tree: Tree::new(object, &self.source)?,
            copied: 0,
        };
        for operation in self.document.root().items() {
            run.step(Operation(operation))?;
        }
        Ok(run.tree.to_value()?)
    }

    /// The patch as compact JSON for the audit log: the fields of each operation sorted by name, their values as sent,
    /// with Go's HTML escapes.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = Vec::with_capacity(self.source.len());
        out.push(b'[');
        for (index, operation) in self.document.root().items().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            if operation.is_null() {
                out.extend_from_slice(b"null");
                continue;
            }
            // Of duplicate fields the last one is used.
            let members: BTreeMap<&str, Value<'_>> = operation
                .members()
                .map(|member| (member.key, member.value))
                .collect();
            let mut before = b'{';
            for (key, value) in &members {
                out.push(before);
                out.extend_from_slice(quote_json(key).as_bytes());
                out.push(b':');
                text::push_compact(&mut out, &self.source[value.span().range()]);
                before = b',';
            }
            if members.is_empty() {
                out.push(b'{');
            }
            out.push(b'}');
        }
        out.push(b']');
        // Go replaces each invalid UTF-8 byte separately.
        let mut text = String::with_capacity(out.len());
        for chunk in out.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        text
    }
}

fn wrong_type(found: Kind, go_type: &'static str) -> DecodeError {
    DecodeError::WrongType {
        found: found.name(),
        go_type,
    }
}

/// One operation, whose fields are decoded lazily.
#[derive(Clone, Copy)]
struct Operation<'a>(Value<'a>);

impl<'a> Operation<'a> {
    fn kind(self) -> &'a str {
        self.0
            .get("op")
            .and_then(|op| op.as_str())
            .unwrap_or("unknown")
    }

    fn path(self) -> Result<&'a str, PointerProblem> {
        self.pointer("path", PointerProblem::NoPath)
    }

    fn from(self) -> Result<&'a str, PointerProblem> {
        self.pointer("from", PointerProblem::NoFrom)
    }

    fn pointer(self, name: &str, missing: PointerProblem) -> Result<&'a str, PointerProblem> {
        match self.0.get(name).filter(|value| !value.is_null()) {
            None => Err(missing),
            Some(value) => value
                .as_str()
                .ok_or_else(|| PointerProblem::NotAString(value.kind().name())),
        }
    }

    /// The value, if any; it may be `null`.
    fn value(self) -> Option<Value<'a>> {
        self.0.get("value")
    }
}

/// A patch that is being applied.
struct Run<'a> {
    tree: Tree<'a>,
    copied: u64,
}

type Step = Result<(), Failure>;

/// The error for an invalid `path` or `from`.
fn pointer(
    operation: &'static str,
    member: &'static str,
) -> impl FnOnce(PointerProblem) -> Failure {
    move |problem| Failure::Pointer {
        operation,
        member,
        problem,
    }
}

/// The error for a path that does not exist.
fn no_target(operation: &'static str, missing: &'static str, path: impl Into<String>) -> Failure {
    Failure::NoTarget {
        operation,
        missing,
        path: path.into(),
    }
}

/// The error for a key that its container does not accept.
fn target(
    operation: &'static str,
    member: &'static str,
    path: &str,
) -> impl FnOnce(TargetProblem) -> Failure {
    move |problem| Failure::Target {
        operation,
        member,
        path: path.to_owned(),
        problem,
    }
}

impl<'a> Run<'a> {
    fn step(&mut self, operation: Operation<'a>) -> Step {
        match operation.kind() {
            "add" => self.add(operation),
            "remove" => self.remove(operation),
            "replace" => self.replace(operation),
            "move" => self.relocate(operation),
            "test" => self.test(operation),
            "copy" => self.copy(operation),
            other => Err(Failure::UnknownOperation(other.to_owned())),
        }
    }

    fn add(&mut self, operation: Operation<'a>) -> Step {
        let Ok(path) = operation.path() else {
            return Err(pointer("add", "path")(PointerProblem::Unreadable));
        };
        let Some((parent, key)) = self.tree.find(path) else {
            return Err(no_target(
                "add",
                "doc is missing path",
                format!("\"{path}\""),
            ));
        };
        let value = self.tree.given(operation.value());
        self.tree
            .add(parent, key, value)
            .map_err(target("add", "path", path))
    }

    fn remove(&mut self, operation: Operation<'a>) -> Step {
        let Ok(path) = operation.path() else {
            return Err(pointer("remove", "path")(PointerProblem::Unreadable));
        };
        let Some((parent, key)) = self.tree.find(path) else {
            return Err(no_target(
                "remove",
                "doc is missing path",
                format!("\"{path}\""),
            ));
        };
        self.tree
            .remove(parent, &key)
            .map_err(target("remove", "path", path))
    }

    fn replace(&mut self, operation: Operation<'a>) -> Step {
        let path = operation.path().map_err(pointer("replace", "path"))?;
        if path.is_empty() {
            return match operation.value() {
                Some(value) if matches!(value.kind(), Kind::Array | Kind::Object) => {
                    self.tree.replace_root(value);
                    Ok(())
                }
                _ => Err(Failure::RootValue),
            };
        }
        let Some((parent, key)) = self.tree.find(path) else {
            return Err(no_target("replace", "doc is missing path", path));
        };
        if self.tree.get(parent, &key).is_err() {
            return Err(no_target("replace", "doc is missing key", path));
        }
        let value = self.tree.given(operation.value());
        self.tree
            .set(parent, key, value)
            .map_err(target("remove", "path", path))
    }

    fn relocate(&mut self, operation: Operation<'a>) -> Step {
        let from = operation.from().map_err(pointer("move", "from"))?;
        let Some((parent, key)) = self.tree.find(from) else {
            return Err(no_target("move", "doc is missing from path", from));
        };
        let moved = self.tree.get(parent, &key);
        let moved = moved.and_then(|value| self.tree.remove(parent, &key).map(|()| value));
        let value = moved.map_err(target("move", "path", &key))?;
        let path = operation.path().map_err(pointer("move", "path"))?;
        let Some((parent, key)) = self.tree.find(path) else {
            return Err(no_target("move", "doc is missing destination path", path));
        };
        self.tree
            .add(parent, key, value)
            .map_err(target("move", "path", path))
    }

    fn test(&mut self, operation: Operation<'a>) -> Step {
        let path = operation.path().map_err(pointer("test", "path"))?;
        let want = operation.value();
        let passed = if path.is_empty() {
            let root = self.tree.root();
            want.is_some_and(|want| self.tree.equals(root, want))
        } else {
            let Some((parent, key)) = self.tree.find(path) else {
                return Err(no_target("test", "is missing path", path));
            };
            let found = self
                .tree
                .get(parent, &key)
                .map_err(target("test", "path", path))?;
            match want {
                _ if self.tree.is_nil(found) => want.is_none_or(|want| want.is_null()),
                None => false,
                Some(want) => self.tree.equals(found, want),
            }
        };
        if passed {
            Ok(())
        } else {
            Err(Failure::TestFailed(path.to_owned()))
        }
    }

    fn copy(&mut self, operation: Operation<'a>) -> Step {
        let from = operation.from().map_err(pointer("copy", "from"))?;
        let Some((parent, key)) = self.tree.find(from) else {
            return Err(no_target("copy", "doc is missing from path", from));
        };
        let source = self
            .tree
            .get(parent, &key)
            .map_err(target("copy", "from", from))?;
        let Ok(path) = operation.path() else {
            return Err(pointer("copy", "path")(PointerProblem::Unreadable));
        };
        let Some((parent, key)) = self.tree.find(path) else {
            return Err(no_target("copy", "doc is missing destination path", path));
        };
        let mut value = NIL;
        if !self.tree.is_nil(source) {
            self.copied += self.tree.size(source);
            if self.copied > MAX_COPIED_BYTES {
                return Err(Failure::CopiedTooMuch(self.copied));
            }
            value = self.tree.copy(source);
        }
        self.tree
            .add(parent, key, value)
            .map_err(Failure::CopyTarget)
    }
}

#[cfg(test)]
mod tests;
