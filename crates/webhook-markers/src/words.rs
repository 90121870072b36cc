//! Known identifiers, and suggestions for misspelled ones.

/// The minimum similarity of two names for a suggestion.
const ALIKE: f64 = 0.8;

/// The most similar known name, if it is similar enough.
#[must_use]
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let fold = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    let name = fold(name);
    known
        .iter()
        .map(|&candidate| (strsim::jaro_winkler(&name, &fold(candidate)), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// The API's spelling of a value in any case, with or without underscores.
pub(crate) fn canonical(word: &str, known: &[&str]) -> Option<String> {
    let fold = |text: &str| text.to_lowercase().replace('_', "");
    let word = fold(word);
    let found = known.iter().find(|known| fold(known) == word)?;
    Some((*found).to_owned())
}

/// A list for messages: `` `a`, `b` or `c` ``.
pub(crate) fn list(words: &[&str], last: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_near() {
        let known = ["failure_policy", "timeout_seconds", "name"];
        for (name, want) in [
            ("failurePolicy", Some("failure_policy")),
            ("timeout", Some("timeout_seconds")),
            ("frobnicate", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), want, "{name}");
        }
    }

    #[test]
    fn knows_words_in_any_case() {
        let known = ["None", "NoneOnDryRun"];
        assert_eq!(
            canonical("none_on_dry_run", &known).as_deref(),
            Some("NoneOnDryRun")
        );
        assert_eq!(canonical("NONE", &known).as_deref(), Some("None"));
        assert_eq!(canonical("some", &known), None);
        assert_eq!(list(&known, "or"), "`None` or `NoneOnDryRun`");
    }
}
