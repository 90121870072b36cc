//! Annotations for the audit log, each with the level from which it is written.

use std::collections::BTreeMap;

use lockgate_api::meta::names::check_qualified_name;

/// How much of a request the audit log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing.
    None,
    /// Who did what to what.
    Metadata,
    /// The request's body too.
    Request,
    /// And the response's.
    RequestResponse,
}

/// An annotation that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotationError {
    /// The key is not of the form `prefix/name`.
    #[error("annotation key `{key}` is not a qualified name with a prefix")]
    Key {
        /// The key.
        key: String,
    },
    /// The key has another value already; the first one stays.
    #[error("annotation `{key}` has another value already")]
    Taken {
        /// The key.
        key: String,
    },
}

/// The annotations of one request. The first value of a key stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations(BTreeMap<String, (Level, String)>);

impl Annotations {
    /// Adds an annotation that is written from `level` on.
    ///
    /// # Errors
    ///
    /// The key is bad, or taken.
    pub fn add(&mut self, key: &str, value: &str, level: Level) -> Result<(), AnnotationError> {
        // UPSTREAM: apiserver pkg/admission/attributes.go demands exactly one slash.
        let has_prefix = key.matches('/').count() == 1;
        if !has_prefix || !check_qualified_name(key).is_empty() {
            return Err(AnnotationError::Key {
                key: key.to_owned(),
            });
        }
        match self.0.get(key) {
            Some((known_level, known)) if (*known_level, known.as_str()) == (level, value) => {
                Ok(())
            }
            Some(_) => Err(AnnotationError::Taken {
                key: key.to_owned(),
            }),
            None => {
                self.0.insert(key.to_owned(), (level, value.to_owned()));
                Ok(())
            }
        }
    }

    /// What a log that tells this much gets, sorted by key.
    pub fn at(&self, level: Level) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter(move |(_, (from, _))| *from <= level)
            .map(|(key, (_, value))| (key.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_qualified_names_with_a_prefix_only() {
        let mut annotations = Annotations::default();
        for (key, fine) in [
            ("h.example.com/key1", true),
            ("h.example.com/invalid*key", false),
            ("h.example.com/a/b", false),
            ("bare", false),
            ("h.example.com/", false),
            ("H.example.com/a", false),
        ] {
            assert_eq!(
                annotations.add(key, "v", Level::Metadata).is_ok(),
                fine,
                "{key}"
            );
        }
    }

    #[test]
    fn keeps_the_first_value() {
        let mut annotations = Annotations::default();
        annotations.add("a.b/c", "1", Level::Metadata).unwrap();
        annotations.add("a.b/c", "1", Level::Metadata).unwrap();
        let taken = annotations.add("a.b/c", "2", Level::Metadata).unwrap_err();
        assert_eq!(
            taken.to_string(),
            "annotation `a.b/c` has another value already"
        );
        assert!(annotations.add("a.b/c", "1", Level::Request).is_err());
        assert_eq!(
            annotations.at(Level::Metadata).collect::<Vec<_>>(),
            [("a.b/c", "1")]
        );
    }

    #[test]
    fn shows_each_level_its_own() {
        let mut annotations = Annotations::default();
        annotations.add("a.b/m", "1", Level::Metadata).unwrap();
        annotations.add("a.b/r", "2", Level::Request).unwrap();
        for (level, want) in [
            (Level::None, 0),
            (Level::Metadata, 1),
            (Level::Request, 2),
            (Level::RequestResponse, 2),
        ] {
            assert_eq!(annotations.at(level).count(), want, "{level:?}");
        }
    }
}
