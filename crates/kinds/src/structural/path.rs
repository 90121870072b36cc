//! The field path of a value.
//!
//! Two texts exist for one place: errors of field rules put keys of maps into brackets, while the
//! schema validator joins them with points.

use std::fmt;

/// A place, built on the way down; it becomes text only when there is something to say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Self>,
    segment: Segment<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Segment<'a> {
    /// The object itself, which is nowhere.
    Root,
    /// A place that was printed before.
    Printed(&'a str),
    Name(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// The outermost object.
    pub(crate) const ROOT: Path<'static> = Path {
        parent: None,
        segment: Segment::Root,
    };

    /// A place below which everything stands.
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

    /// The place as the schema validator names it.
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

    /// The place as findings about unknown fields name it: keys are names like any other.
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

/// The place as field errors name it.
// UPSTREAM: apimachinery pkg/util/validation/field/path.go
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = self.segments();
        if segments.is_empty() {
            return f.write_str("<nil>");
        }
        for (at, segment) in segments.into_iter().enumerate() {
            match segment {
                // A name that is empty is printed as if it were a key.
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
