//! The errors of a patch. Their messages are those of upstream's library.

use lockgate_go::quote::quote;

use super::MAX_COPIED_BYTES;

/// An operation that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct ApplyError(#[from] Failure);

impl ApplyError {
    /// Returns true if a `test` operation failed.
    #[must_use]
    pub fn is_failed_test(&self) -> bool {
        matches!(self.0, Failure::TestFailed(_))
    }
}

/// The errors of an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("json: cannot unmarshal {0} into Go value of type jsonpatch.partialDoc")]
    NotAContainer(&'static str),
    #[error("Unexpected kind: {0}")]
    UnknownOperation(String),
    #[error("{operation} operation failed to decode {member}: {problem}")]
    Pointer {
        operation: &'static str,
        member: &'static str,
        problem: PointerProblem,
    },
    #[error("{operation} operation does not apply: {missing}: {path}: missing value")]
    NoTarget {
        operation: &'static str,
        missing: &'static str,
        path: String,
    },
    /// The library wraps a nil error, which Go prints.
    #[error("replace operation value must be object or array: %!w(<nil>)")]
    RootValue,
    #[error("error in {operation} for {member}: '{path}': {problem}")]
    Target {
        operation: &'static str,
        member: &'static str,
        path: String,
        problem: TargetProblem,
    },
    #[error("error while adding value during copy: {0}")]
    CopyTarget(TargetProblem),
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {MAX_COPIED_BYTES}"
    )]
    CopiedTooMuch(u64),
    #[error(transparent)]
    Patched(#[from] PatchedProblem),
}

/// The error of the patched object. It is small: it is returned through as many stack frames as the object is deep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatchedProblem {
    #[error("exceeded max depth")]
    TooDeep,
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(Box<str>),
}

/// The error of a `path` or `from`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PointerProblem {
    /// Some operations give no details.
    #[error("missing value")]
    Unreadable,
    #[error("operation missing path field: missing value")]
    NoPath,
    #[error("operation, missing from field: missing value")]
    NoFrom,
    #[error("json: cannot unmarshal {0} into Go value of type string")]
    NotAString(&'static str),
}

/// The error of a key in its container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TargetProblem {
    #[error(transparent)]
    Index(#[from] IndexProblem),
    #[error("value was not a proper array index: '{key}': {problem}")]
    ImproperIndex { key: String, problem: IndexProblem },
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    NoElement(i64),
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    NoMember(String),
    #[error("assignment to entry in nil map")]
    NilMap,
}

/// A key that is not an index.
///
/// UPSTREAM: Go strconv/atoi.go (Atoi).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum IndexProblem {
    #[error("strconv.Atoi: parsing {}: invalid syntax", quote(.0))]
    Syntax(String),
    #[error("strconv.Atoi: parsing {}: value out of range", quote(.0))]
    Range(String),
}
