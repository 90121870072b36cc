//! The field path of a value.
//!
//! A path has two string forms: field errors print map keys in brackets, the schema validator joins them with dots.

use std::fmt;

/// A path that is built during traversal, and formatted only for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Self>,
    segment: Segment<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Segment<'a> {
    /// The object itself, with an empty path.
    Root,
    /// A formatted path.
    Printed(&'a str),
    Name(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// The path of the root object.
    pub(crate) const ROOT: Path<'static> = Path {
        parent: None,
        segment: Segment::Root,
    };

    /// A formatted path as the parent of others.
    pub(crate) fn printed(text: &'a str) -> Self {
        Self {
            parent: None,
            segment: Segment::Printed(text),
        }
    }

    fn below(&'a self, segment: Segment<'a>) -> Self {
        Self {
            parent: Some(self),
            segment,
        }
    }

    /// The field `name`.
    pub(crate) fn child(&'a self, name: &'a str) -> Self {
        self.below(Segment::Name(name))
    }

    /// The entry `key` of a map.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        self.below(Segment::Key(key))
    }

    /// An element of a list.
    pub(crate) fn index(&'a self, index: usize) -> Self {
        self.below(Segment::Index(index))
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.segment, Segment::Root)
    }

    fn segments(&'a self) -> Vec<Segment<'a>> {
        let mut segments: Vec<_> = std::iter::successors(Some(self), |path| path.parent)
            .map(|path| path.segment)
            .filter(|segment| !matches!(segment, Segment::Root))
            .collect();
        segments.reverse();
        segments
    }

    /// The path in the schema validator's format.
    pub(crate) fn in_body(&self) -> String {
        let mut text = String::new();
        for segment in self.segments() {
            match segment {
                Segment::Name(name) | Segment::Printed(name) if text.is_empty() => {
                    text.push_str(name);
                }
                Segment::Name(name) | Segment::Key(name) => {
                    text.push('.');
                    text.push_str(name);
                }
                Segment::Index(index) => text.push_str(&format!("[{index}]")),
                Segment::Root | Segment::Printed(_) => {}
            }
        }
        text
    }

    /// The path in the format of unknown fields: map keys are printed like field names.
    pub(crate) fn as_names(&self) -> String {
        let mut text = String::new();
        for segment in self.segments() {
            match segment {
                Segment::Name(name) | Segment::Key(name) | Segment::Printed(name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(name);
                }
                Segment::Index(index) => text.push_str(&format!("[{index}]")),
                Segment::Root => {}
            }
        }
        text
    }
}

/// The path in the format of field errors.
// UPSTREAM: apimachinery pkg/util/validation/field/path.go
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = self.segments();
        if segments.is_empty() {
            return f.write_str("<nil>");
        }
        for (at, segment) in segments.into_iter().enumerate() {
            match segment {
                // An empty name is printed like a map key.
                Segment::Name("") => f.write_str("[]")?,
                Segment::Name(name) | Segment::Printed(name) if at == 0 => f.write_str(name)?,
                Segment::Name(name) => write!(f, ".{name}")?,
                Segment::Key(key) => write!(f, "[{key}]")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Root | Segment::Printed(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_a_place_in_each_form() {
        let root = Path::ROOT;
        let spec = root.child("spec");
        let key = spec.key("a.b");
        let item = key.index(2);
        let place = item.child("x");
        assert_eq!(place.to_string(), "spec[a.b][2].x");
        assert_eq!(place.in_body(), "spec.a.b[2].x");
        assert_eq!(place.as_names(), "spec.a.b[2].x");
        assert_eq!(root.to_string(), "<nil>");
        assert_eq!(root.in_body(), "");
        let key = root.key("k");
        assert_eq!(key.to_string(), "[k]");
        assert_eq!(key.in_body(), ".k");
        assert_eq!(key.as_names(), "k");
        let base = Path::printed("spec.x.default");
        assert_eq!(base.child("y").to_string(), "spec.x.default.y");
    }
}
