//! `metav1.TypeMeta`: `apiVersion` and `kind` of an object.
//!
//! UPSTREAM: k8s.io/apimachinery pkg/runtime/serializer/json/meta.go.

use crate::document::{Kind, Value};

/// The group, version and kind from `apiVersion` and `kind`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeMeta {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// An object without a valid type, with the API server's messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeMetaError {
    /// The root is not an object.
    #[error(
        "{PREFIX} {0} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )]
    NotAnObject(String),
    /// A field is not a string.
    #[error("{PREFIX} {found} into Go struct field .{field} of type string")]
    NotAString {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// The actual type.
        found: String,
    },
    /// `apiVersion` has more than one slash.
    #[error("unexpected GroupVersion string: {0}")]
    GroupVersion(String),
}

const PREFIX: &str = "couldn't get version/kind; json parse error: json: cannot unmarshal";

impl TypeMeta {
    /// Decodes the type of an object. Missing fields are empty.
    ///
    /// # Errors
    ///
    /// The root is not an object, a field is not a string, or `apiVersion` has more than one slash.
    pub fn read(root: Value<'_>) -> Result<Self, TypeMetaError> {
        if !matches!(root.kind(), Kind::Object | Kind::Null) {
            return Err(TypeMetaError::NotAnObject(root.kind().name().to_owned()));
        }
        // Only here, field names are case-insensitive.
        let (mut api_version, mut kind) = ("", "");
        let mut problem = None;
        for member in root.members() {
            let (field, target) = if member.key.eq_ignore_ascii_case("apiVersion") {
                ("apiVersion", &mut api_version)
            } else if member.key.eq_ignore_ascii_case("kind") {
                ("kind", &mut kind)
            } else {
                continue;
            };
            match member.value.as_str() {
                Some(text) => *target = text,
                None if member.value.is_null() => {}
                None => {
                    let found = member.value.kind().name().to_owned();
                    problem.get_or_insert(TypeMetaError::NotAString { field, found });
                }
            }
        }
        if let Some(problem) = problem {
            return Err(problem);
        }
        let (group, version) = match api_version.split_once('/') {
            None => ("", api_version),
            Some((_, version)) if version.contains('/') => {
                return Err(TypeMetaError::GroupVersion(api_version.to_owned()));
            }
            Some(parts) => parts,
        };
        Ok(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Defaults missing fields to the expected type.
    pub(crate) fn complete(&mut self, group: &str, version: &str, kind: &str) {
        if self.kind.is_empty() {
            kind.clone_into(&mut self.kind);
        }
        if self.version.is_empty() && self.group.is_empty() {
            group.clone_into(&mut self.group);
        }
        if self.version.is_empty() && self.group == group {
            version.clone_into(&mut self.version);
        }
    }

    /// The group and version, as in `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}
