//! The known gaps, and the verdict on each scenario.

use std::collections::BTreeMap;

#[derive(serde::Deserialize)]
struct File {
    #[serde(default)]
    scenario: Vec<Entry>,
    #[serde(default)]
    gap: Vec<Vector>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    suite: String,
    id: String,
    reason: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    reason: String,
}

/// Scenarios with known differences, and the reasons.
#[derive(Debug)]
pub(crate) struct Gaps(BTreeMap<String, String>);

/// The verdict on a scenario.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The result matches the recording.
    Agrees,
    /// The result differs, as listed.
    KnownGap,
    /// The result differs.
    Differs(Vec<String>),
    /// The result matches the recording, although a gap is listed.
    UnexpectedPass,
}

impl Gaps {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        Self::of(file.scenario)
    }

    /// The known gaps among the vectors of a suite.
    pub(crate) fn of_suite(text: &str, suite: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let entries = file.gap.into_iter().filter(|gap| gap.suite == suite);
        let entry = |Vector { id, reason, .. }| Entry { name: id, reason };
        Self::of(entries.map(entry).collect())
    }

    fn of(entries: Vec<Entry>) -> Result<Self, String> {
        let mut gaps = BTreeMap::new();
        for Entry { name, reason } in entries {
            if reason.trim().is_empty() {
                return Err(format!("the gap `{name}` has no reason"));
            }
            if gaps.insert(name.clone(), reason).is_some() {
                return Err(format!("the gap `{name}` is listed twice"));
            }
        }
        Ok(Self(gaps))
    }

    /// Returns the verdict for the differing lines of a scenario.
    pub(crate) fn judge(&self, name: &str, lines: Vec<String>) -> Verdict {
        match (lines.is_empty(), self.0.contains_key(name)) {
            (true, false) => Verdict::Agrees,
            (true, true) => Verdict::UnexpectedPass,
            (false, true) => Verdict::KnownGap,
            (false, false) => Verdict::Differs(lines),
        }
    }

    /// Entries that match no scenario.
    pub(crate) fn unknown<'g>(&'g self, names: &[String]) -> Vec<&'g str> {
        self.0
            .keys()
            .filter(|gap| !names.contains(gap))
            .map(String::as_str)
            .collect()
    }
}

#[test]
fn judges_by_the_list() {
    let text = "[[gap]]\nsuite = \"s\"\nid = \"x\"\nreason = \"y\"\n[[scenario]]\nname = \"known\"\nreason = \"why\"\n";
    let gaps = Gaps::parse(text).unwrap();
    let lines = || vec![String::from("code: expected 1, got 2")];
    assert_eq!(gaps.judge("known", lines()), Verdict::KnownGap);
    assert_eq!(gaps.judge("known", Vec::new()), Verdict::UnexpectedPass);
    assert_eq!(gaps.judge("new", lines()), Verdict::Differs(lines()));
    assert_eq!(gaps.judge("new", Vec::new()), Verdict::Agrees);
    assert_eq!(gaps.unknown(&[String::from("new")]), ["known"]);
    let vectors = Gaps::of_suite(text, "s").unwrap();
    assert_eq!(vectors.judge("x", lines()), Verdict::KnownGap);
    assert!(Gaps::parse("[[scenario]]\nname = \"x\"\nreason = \" \"\n").is_err());
}
