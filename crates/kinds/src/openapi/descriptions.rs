//! Descriptions of types and fields, which the caller supplies.

use std::collections::HashMap;
use std::ops::Range;

/// The descriptions of types, by their names in documents, and of their fields.
#[derive(Debug, Default)]
pub struct Descriptions {
    text: String,
    /// The ranges of descriptions, by hash of type and field. The field name is empty for the type itself.
    places: HashMap<u64, Range<usize>>,
    hasher: std::hash::RandomState,
}

impl Descriptions {
    /// Parses lines of type, field and description, separated by tabs. `\\` and `\n` are escapes of a backslash and a
    /// line break. Invalid lines are skipped.
    #[must_use]
    pub fn parse(text: String) -> Self {
        let mut read = Self::default();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let mut parts = line.trim_end_matches('\n').splitn(3, '\t');
            if let (Some(ty), Some(member), Some(said)) = (parts.next(), parts.next(), parts.next())
            {
                let from = start + ty.len() + member.len() + 2;
                let key = read.key(ty, member);
                read.places.insert(key, from..from + said.len());
            }
            start += line.len();
        }
        read.text = text;
        read
    }

    fn key(&self, ty: &str, member: &str) -> u64 {
        use std::hash::BuildHasher as _;
        self.hasher.hash_one((ty, member))
    }

    /// The description of a type or of one of its fields.
    #[must_use]
    pub fn of(&self, ty: &str, member: &str) -> Option<String> {
        let place = self.places.get(&self.key(ty, member))?;
        let said = self.text.get(place.clone())?;
        let mut text = String::with_capacity(said.len());
        let mut characters = said.chars();
        while let Some(character) = characters.next() {
            text.push(match character {
                '\\' => match characters.next() {
                    Some('n') => '\n',
                    Some(other) => other,
                    None => '\\',
                },
                other => other,
            });
        }
        Some(text)
    }

    /// Returns true if there are no descriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_types_and_members() {
        let read = Descriptions::parse(String::from(
            "a.Pod\t\tRuns.\na.Pod\tspec\tOne\\ntwo \\\\n\nnonsense\na.Pod\tkind\tK",
        ));
        assert_eq!(read.of("a.Pod", "").as_deref(), Some("Runs."));
        assert_eq!(read.of("a.Pod", "spec").as_deref(), Some("One\ntwo \\n"));
        assert_eq!(read.of("a.Pod", "kind").as_deref(), Some("K"));
        assert_eq!(read.of("a.Pod", "status"), None);
        assert_eq!(read.of("nonsense", ""), None);
        assert!(Descriptions::default().is_empty());
    }
}
