//! The known differences, and what a run makes of them.

use std::collections::BTreeMap;

#[derive(serde::Deserialize)]
struct File {
    #[serde(default)]
    scenario: Vec<Entry>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    reason: String,
}

/// Scenarios that differ, and why.
#[derive(Debug)]
pub(crate) struct Gaps(BTreeMap<String, String>);

/// What becomes of a scenario.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It is as recorded.
    Agrees,
    /// It differs, which is known.
    KnownGap,
    /// It differs.
    Differs(Vec<String>),
    /// It is as recorded and listed all the same.
    UnexpectedPass,
}

impl Gaps {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut gaps = BTreeMap::new();
        for Entry { name, reason } in file.scenario {
            if reason.trim().is_empty() {
                return Err(format!("the gap `{name}` has no reason"));
            }
            if gaps.insert(name.clone(), reason).is_some() {
                return Err(format!("the gap `{name}` is listed twice"));
            }
        }
        Ok(Self(gaps))
    }

    /// Judges a scenario by the lines in which it differs.
    pub(crate) fn judge(&self, name: &str, lines: Vec<String>) -> Verdict {
        match (lines.is_empty(), self.0.contains_key(name)) {
            (true, false) => Verdict::Agrees,
            (true, true) => Verdict::UnexpectedPass,
            (false, true) => Verdict::KnownGap,
            (false, false) => Verdict::Differs(lines),
        }
    }

    /// Entries that no scenario bears the name of.
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
    let text = "[[gap]]\nid = \"x\"\n[[scenario]]\nname = \"known\"\nreason = \"why\"\n";
    let gaps = Gaps::parse(text).unwrap();
    let lines = || vec![String::from("code: expected 1, got 2")];
    assert_eq!(gaps.judge("known", lines()), Verdict::KnownGap);
    assert_eq!(gaps.judge("known", Vec::new()), Verdict::UnexpectedPass);
    assert_eq!(gaps.judge("new", lines()), Verdict::Differs(lines()));
    assert_eq!(gaps.judge("new", Vec::new()), Verdict::Agrees);
    assert_eq!(gaps.unknown(&[String::from("new")]), ["known"]);
    assert!(Gaps::parse("[[scenario]]\nname = \"x\"\nreason = \" \"\n").is_err());
}
