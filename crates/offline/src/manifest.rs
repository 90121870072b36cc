//! Objects from files: YAML and JSON documents, single or in lists.

use lockgate_api::document::yaml;
use lockgate_kinds::tree;
use serde_json::Value;

/// The maximum nesting depth of objects.
const MAX_LEVELS: usize = 500;

/// An object and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The object.
    pub value: Value,
    /// The file, or another name of the source.
    pub source: String,
    /// The index of the document in its source, from 1.
    pub document: usize,
}

/// An invalid stream of objects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The text is neither YAML nor JSON.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// The name of the source.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The error.
        message: String,
    },
    /// A document is not an object.
    #[error("{file}: document {document} is not an object")]
    NotAnObject {
        /// The name of the source.
        file: String,
        /// The index of the document, from 1.
        document: usize,
    },
    /// A document is nested too deeply.
    #[error("{file}: document {document} nests more than {MAX_LEVELS} levels deep")]
    TooDeep {
        /// The name of the source.
        file: String,
        /// The index of the document, from 1.
        document: usize,
    },
}

/// Parses every document of a text. Lists of objects are flattened, empty documents skipped.
///
/// # Errors
///
/// Fails if the text is neither YAML nor JSON, or a document is not an object.
pub fn read(file: &str, text: &str) -> Result<Vec<Manifest>, ManifestError> {
    let mut manifests = Vec::new();
    for (document, value) in read_values(file, text)? {
        let is_list = value["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("List"));
        let manifest = |value| Manifest {
            value,
            source: file.to_owned(),
            document,
        };
        match value {
            Value::Object(mut members) if is_list && members.contains_key("items") => {
                let items = members.remove("items").unwrap_or_default();
                if let Value::Array(items) = items {
                    manifests.extend(items.into_iter().map(manifest));
                }
            }
            value @ Value::Object(_) => manifests.push(manifest(value)),
            _ => {
                let file = file.to_owned();
                return Err(ManifestError::NotAnObject { file, document });
            }
        }
    }
    Ok(manifests)
}

/// Parses every document of a text unchanged, with its index from 1; empty ones are skipped.
///
/// # Errors
///
/// Fails if the text is neither YAML nor JSON.
pub fn read_values(file: &str, text: &str) -> Result<Vec<(usize, Value)>, ManifestError> {
    let documents = yaml::parse_all(text).map_err(|error| ManifestError::Syntax {
        file: file.to_owned(),
        line: line_of(text, error.span.range().start),
        message: error.message,
    })?;
    let mut values = Vec::with_capacity(documents.len());
    for (number, document) in (1..).zip(&documents) {
        let root = document.root();
        if root.is_null() {
            continue;
        }
        let value = tree::from_document_within(root, MAX_LEVELS);
        let value = value.ok_or_else(|| ManifestError::TooDeep {
            file: file.to_owned(),
            document: number,
        })?;
        values.push((number, value));
    }
    Ok(values)
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset.min(text.len()));
    let newlines = before.into_iter().flatten().filter(|byte| **byte == b'\n');
    newlines.count() + 1
}

impl Manifest {
    /// A string field; empty if absent.
    #[must_use]
    pub fn text(&self, member: &str) -> &str {
        self.value[member].as_str().unwrap_or_default()
    }

    /// The group and version of its `apiVersion`.
    #[must_use]
    pub fn group_version(&self) -> (&str, &str) {
        split_api_version(self.text("apiVersion"))
    }

    /// The name, or its generateName prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        let metadata = &self.value["metadata"];
        let name = metadata["name"].as_str();
        let name = name.or_else(|| metadata["generateName"].as_str());
        name.unwrap_or_default()
    }

    /// The namespace; empty if absent.
    #[must_use]
    pub fn namespace(&self) -> &str {
        let namespace = self.value["metadata"]["namespace"].as_str();
        namespace.unwrap_or_default()
    }

    /// The kind and name, as kubectl prints them.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}/{}", self.text("kind"), self.name())
    }
}

/// The group and the version of an `apiVersion`.
#[must_use]
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_lists_apart_and_leaves_empty_documents_out() {
        let text = "---\n---\n{kind: List, items: [{kind: A}, {kind: B}]}\n---\nkind: C\n";
        let read = read("f.yaml", text).unwrap();
        let kinds: Vec<(&str, usize)> = read.iter().map(|m| (m.text("kind"), m.document)).collect();
        assert_eq!(kinds, [("A", 2), ("B", 2), ("C", 3)]);
    }

    #[test]
    fn says_where_a_text_is_wrong() {
        let error = read("f.yaml", "a: 1\nb: [\n").unwrap_err().to_string();
        assert!(error.starts_with("f.yaml:"), "{error}");
        let error = read("f.yaml", "a: 1\n---\n- 1\n").unwrap_err();
        assert_eq!(error.to_string(), "f.yaml: document 2 is not an object");
    }
}
