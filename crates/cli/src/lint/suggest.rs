//! Suggestions for misspelled names.

/// The minimum similarity of a suggestion.
const ALIKE: f64 = 0.8;

/// The known name most similar to `name`, if similar enough.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let lower = name.to_lowercase();
    known
        .map(|candidate| {
            (
                strsim::jaro_winkler(&lower, &candidate.to_lowercase()),
                candidate,
            )
        })
        // In a short name one wrong letter changes the similarity a lot.
        .filter(|(likeness, candidate)| {
            let candidate = candidate.to_lowercase();
            *likeness >= ALIKE
                || lower.len() > 2 && strsim::damerau_levenshtein(&lower, &candidate) <= 1
        })
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_near() {
        let known = [
            "timeoutSeconds",
            "failurePolicy",
            "namespaceSelector",
            "name",
        ];
        for (name, want) in [
            ("timeout", Some("timeoutSeconds")),
            ("failurepolicy", Some("failurePolicy")),
            ("namespaceSelecter", Some("namespaceSelector")),
            ("nmae", Some("name")),
            ("foo", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known.into_iter()), want, "{name}");
        }
    }
}
