//! Static checks of iPXE templates.
//!
//! The data plane executes it as a Go template over a map from content names to strings. Findings are warnings, never
//! denials: the data plane defines the template language.

use std::collections::BTreeSet;

/// Actions that rebind the dot, so that names below them cannot be resolved.
const SCOPES: [&str; 5] = ["range", "with", "define", "block", "template"];

/// Warnings about a template, given the names of its contents.
#[must_use]
pub fn remarks(template: &str, names: &[&str]) -> Vec<String> {
    let mut remarks = BTreeSet::new();
    let mut rest = template;
    let mut fields = Vec::new();
    let mut has_scopes = false;
    while let Some((_, after)) = rest.split_once("{{") {
        let Some(action) = Action::read(after) else {
            remarks.insert(String::from("an action `{{` is not closed"));
            break;
        };
        has_scopes |= action.words.iter().any(|word| SCOPES.contains(word));
        fields.extend(action.fields);
        rest = action.rest;
    }
    for field in fields {
        let (first, more) = field
            .split_once('.')
            .map_or((field, None), |(a, b)| (a, Some(b)));
        if let Some((before, _)) = field.split_once('-') {
            remarks.insert(format!(
                "`.{before}-` does not parse, names with `-` are reached as {{{{ index . \"name\" }}}}"
            ));
        } else if has_scopes || names.contains(&first) {
            // It exists, or cannot be determined.
        } else if let (".AdditionalContent", Some(name)) = (format!(".{first}").as_str(), more) {
            remarks.insert(format!(
                "`.AdditionalContent.{name}` fails when it is run, contents are at the top: {{{{ .{name} }}}}"
            ));
        } else {
            remarks.insert(format!("`.{first}` names no additionalContent"));
        }
    }
    remarks.into_iter().collect()
}

/// The content of `{{ … }}`.
struct Action<'t> {
    /// Field chains such as `a.b` of `.a.b`, relative to the dot or `$`.
    fields: Vec<&'t str>,
    /// Keywords and functions, such as `range`.
    words: Vec<&'t str>,
    /// The text after the action.
    rest: &'t str,
}

impl<'t> Action<'t> {
    /// Parses up to the closing braces; `None` if there are none.
    fn read(text: &'t str) -> Option<Self> {
        let comment = text.strip_prefix("- ").unwrap_or(text).trim_start();
        if let Some(comment) = comment.strip_prefix("/*") {
            let (_, after) = comment.split_once("*/")?;
            let (_, rest) = after.split_once("}}")?;
            return Some(Self {
                fields: Vec::new(),
                words: Vec::new(),
                rest,
            });
        }
        let (mut fields, mut words) = (Vec::new(), Vec::new());
        let mut rest = text;
        // The value that a dot at this position would select a field of.
        let mut follows_value = false;
        loop {
            let next = rest.chars().next()?;
            let after = rest.get(next.len_utf8()..).unwrap_or_default();
            if let Some(after) = rest.strip_prefix("}}") {
                return Some(Self {
                    fields,
                    words,
                    rest: after,
                });
            }
            match next {
                '"' | '\'' => {
                    rest = after_string(after, next)?;
                    follows_value = false;
                }
                '`' => {
                    rest = after.split_once('`')?.1;
                    follows_value = false;
                }
                '.' if !follows_value && after.starts_with(starts_name) => {
                    // A hyphen is included, in order to warn about it.
                    let is_end = |c: char| !(is_name(c) || c == '.' || c == '-');
                    let length = after.find(is_end).unwrap_or(after.len());
                    let (chain, behind) = after.split_at(length);
                    fields.push(chain.trim_end_matches(['.', '-']));
                    rest = behind;
                    follows_value = true;
                }
                _ if starts_name(next) || (next == '$' && after.starts_with(starts_name)) => {
                    let length = after.find(|c| !is_name(c)).unwrap_or(after.len());
                    let word = &rest[..next.len_utf8() + length];
                    rest = &rest[word.len()..];
                    words.push(word);
                    follows_value = true;
                }
                _ => {
                    rest = after;
                    follows_value = matches!(next, ')' | '0'..='9');
                }
            }
        }
    }
}

fn after_string(text: &str, mark: char) -> Option<&str> {
    let mut escaped = false;
    for (place, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == mark => return text.get(place + 1..),
            _ => {}
        }
    }
    None
}

fn starts_name(character: char) -> bool {
    character == '_' || character.is_alphabetic()
}

fn is_name(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_nothing_about_templates_that_run() {
        for template in [
            "",
            "#!ipxe\nchain http://boot.example.com/boot",
            "{{ .config }}",
            "{{- .config -}}",
            "{{ $.config | printf \"%s{{\" }} {{ index . \"cloud-init\" }}",
            "{{/* .nothing }} */}}{{ .config }}",
            "{{ $x := .config }}{{ $x.y }}{{ (index . \"a\").b }}",
            "{{ range $name, $content := . }}{{ .anything }}{{ end }}",
            "{{ `}} .nothing` }}",
            "a } }} b",
        ] {
            assert_eq!(
                remarks(template, &["config"]),
                Vec::<String>::new(),
                "{template}"
            );
        }
    }

    #[test]
    fn tells_what_will_not_run() {
        for (template, want) in [
            ("{{ .config", "an action `{{` is not closed"),
            ("{{ \"}}", "an action `{{` is not closed"),
            ("{{ .other }}", "`.other` names no additionalContent"),
            (
                "{{ .AdditionalContent.config }}",
                "`.AdditionalContent.config` fails when it is run, contents are at the top: {{ .config }}",
            ),
            (
                "{{ .cloud-init }}",
                "`.cloud-` does not parse, names with `-` are reached as {{ index . \"name\" }}",
            ),
        ] {
            assert_eq!(
                remarks(template, &["config", "cloud-init"]),
                [want],
                "{template}"
            );
        }
    }
}
