//! Warnings for the client, with the limits of the API server.
//!
//! Warnings are returned in full until their total length exceeds a limit. Then all of them, including earlier ones,
//! are truncated, and when the total is exhausted again, further ones are dropped.
//!
//! UPSTREAM: apiserver pkg/endpoints/filters/warning.go

use std::collections::HashSet;

/// The total length in characters up to which warnings are not truncated.
const TRUNCATE_AT_RUNES: usize = 4096;
/// The length to which warnings are truncated above it.
const TRUNCATE_ITEM_RUNES: usize = 256;

/// The warnings of one request.
#[derive(Debug, Clone, Default)]
pub struct Warnings {
    /// All texts, returned or not.
    seen: HashSet<String>,
    /// The same in order.
    ordered: Vec<String>,
    sent: Vec<String>,
    characters: usize,
    cutting: bool,
}

impl Warnings {
    /// Adds a warning, unless it is empty or a duplicate, or the limit is reached.
    pub fn add(&mut self, text: &str) {
        if text.is_empty() || (self.cutting && self.characters >= TRUNCATE_AT_RUNES) {
            return;
        }
        if !self.seen.insert(text.to_owned()) {
            return;
        }
        self.ordered.push(text.to_owned());
        let shown = if self.cutting { cut(text) } else { text };
        if !is_valid_header_text(shown) {
            return;
        }
        let length = shown.chars().count();
        if self.cutting || self.characters + length <= TRUNCATE_AT_RUNES {
            self.characters += length;
            self.sent.push(shown.to_owned());
            return;
        }
        self.cutting = true;
        let all = self.ordered.iter().map(|text| cut(text));
        self.sent = all
            .filter(|text| is_valid_header_text(text))
            .map(str::to_owned)
            .collect();
        self.characters = self.sent.iter().map(|text| text.chars().count()).sum();
    }

    /// The texts for the client, in order.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.sent
    }

    /// The values of the `Warning` headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = String> {
        self.sent.iter().map(|text| {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
            format!("299 - \"{escaped}\"")
        })
    }
}

/// Returns true for texts without control characters, which would corrupt the header.
fn is_valid_header_text(text: &str) -> bool {
    !text.contains(char::is_control)
}

fn cut(text: &str) -> &str {
    match text.char_indices().nth(TRUNCATE_ITEM_RUNES) {
        Some((end, _)) => text.split_at(end).0,
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(texts: impl IntoIterator<Item = String>) -> Warnings {
        let mut warnings = Warnings::default();
        for text in texts {
            warnings.add(&text);
        }
        warnings
    }

    #[test]
    fn escapes_and_drops() {
        let texts = ["a \"b\" \\c", "", "dup", "dup", "new\nline", "tab\t", "äöü"];
        let warnings = told(texts.map(String::from));
        assert_eq!(
            warnings.headers().collect::<Vec<_>>(),
            [r#"299 - "a \"b\" \\c""#, r#"299 - "dup""#, r#"299 - "äöü""#]
        );
    }

    #[test]
    fn leaves_one_long_warning_alone() {
        let warnings = told([String::from("é").repeat(300)]);
        assert_eq!(warnings.texts()[0].chars().count(), 300);
    }

    #[test]
    fn cuts_all_once_the_total_is_exceeded() {
        let warnings = told((0..20).map(|n| format!("{n:03}{}", "x".repeat(297))));
        assert_eq!(warnings.texts().len(), 16);
        assert!(warnings.texts().iter().all(|text| text.len() == 256));
    }

    #[test]
    fn stops_when_the_total_is_used_up_by_cut_warnings() {
        let warnings = told((0..5000).map(|n| format!("{n:04}")));
        assert_eq!(warnings.texts().len(), 1025);
    }

    #[test]
    fn a_single_enormous_warning_is_cut() {
        let warnings = told([String::from("x").repeat(5000)]);
        assert_eq!(warnings.texts()[0].len(), 256);
    }
}
