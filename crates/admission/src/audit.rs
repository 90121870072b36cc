//! Audit annotations, each with the minimum audit level for which it is recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use lockgate_api::meta::names::check_qualified_name;

/// The level of an audit event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing.
    None,
    /// The metadata of a request: user, verb and object.
    Metadata,
    /// Also the request body.
    Request,
    /// Also the response body.
    RequestResponse,
}

/// A rejected annotation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotationError {
    /// The key is not of the form `prefix/name`.
    #[error("annotation key `{key}` is not a qualified name with a prefix")]
    Key {
        /// The key.
        key: String,
    },
    /// The key has a different value already, which is kept.
    #[error("annotation `{key}` already has another value")]
    Taken {
        /// The key.
        key: String,
    },
}

/// The annotations of one request. The first value of a key is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations(BTreeMap<String, (Level, String)>);

impl Annotations {
    /// Adds an annotation that is recorded at `level` and above.
    ///
    /// # Errors
    ///
    /// Fails if the key is invalid, or has a different value.
    pub fn add(&mut self, key: &str, value: &str, level: Level) -> Result<(), AnnotationError> {
        // UPSTREAM: apiserver pkg/admission/attributes.go requires exactly one slash.
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

    /// The annotations recorded at a level, sorted by key.
    pub fn at(&self, level: Level) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter(move |(_, (from, _))| *from <= level)
            .map(|(key, (_, value))| (key.as_str(), value.as_str()))
    }
}

/// A duration in Go's format: `1.5ms`, `2m0.25s`.
pub(crate) fn go_duration(duration: Duration) -> String {
    let nanos = duration.subsec_nanos();
    let seconds = duration.as_secs();
    if seconds == 0 {
        let (unit, digits) = match nanos {
            0 => return String::from("0s"),
            1..1_000 => ("ns", 0),
            1_000..1_000_000 => ("µs", 3),
            _ => ("ms", 6),
        };
        let scale = 10_u32.pow(digits);
        return decimal((nanos / scale).into(), nanos % scale, digits as usize) + unit;
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = decimal(seconds % 60, nanos, 9);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

fn decimal(whole: u64, fraction: u32, digits: usize) -> String {
    if fraction == 0 {
        return whole.to_string();
    }
    let fraction = format!("{fraction:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_durations_as_go_does() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "1ns"),
            (999, "999ns"),
            (1_100, "1.1µs"),
            (2_000, "2µs"),
            (2_200_000, "2.2ms"),
            (999_999_999, "999.999999ms"),
            (1_000_000_000, "1s"),
            (3_300_000_000, "3.3s"),
            (61_000_000_001, "1m1.000000001s"),
            (245_000_000_000, "4m5s"),
            (3_600_000_000_000, "1h0m0s"),
            (18_367_001_000_000, "5h6m7.001s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), want);
        }
    }

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
            "annotation `a.b/c` already has another value"
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
