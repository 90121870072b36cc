//! `metav1.TypeMeta`: what an object says it is.
//!
//! UPSTREAM: k8s.io/apimachinery pkg/runtime/serializer/json/meta.go.

use crate::decode::describe;
use crate::document::{Kind, Value};

/// `apiVersion` and `kind`, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeMeta {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl TypeMeta {
    /// Reads what an object says it is. What it does not say is empty.
    ///
    /// # Errors
    ///
    /// The text the API server would answer with: the root is no object, or a member no text.
    pub fn read(root: Value<'_>) -> Result<Self, String> {
        let prefix = "couldn't get version/kind; json parse error: json: cannot unmarshal";
        if !matches!(root.kind(), Kind::Object | Kind::Null) {
            let found = describe(root);
            return Err(format!(
                "{prefix} {found} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                 \"json:\\\"kind,omitempty\\\"\" }}"
            ));
        }
        // Here, unlike everywhere else, names match in any case.
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
            match member.value.kind() {
                Kind::String => *target = member.value.as_str().unwrap_or_default(),
                Kind::Null => {}
                _ => {
                    let found = describe(member.value);
                    problem.get_or_insert_with(|| {
                        format!("{prefix} {found} into Go struct field .{field} of type string")
                    });
                }
            }
        }
        if let Some(problem) = problem {
            return Err(problem);
        }
        let (group, version) = match api_version.matches('/').count() {
            0 => ("", api_version),
            1 => api_version.split_once('/').unwrap_or_default(),
            _ => return Err(format!("unexpected GroupVersion string: {api_version}")),
        };
        Ok(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Fills in what is missing from what was expected.
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

    /// The group and version as they stand in `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}
