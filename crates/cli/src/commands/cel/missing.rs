//! Suggestions for `no such key` errors.

use serde_json::Value as Json;

use super::mistake::did_you_mean;
use crate::lint::suggest::nearest;

/// The maximum number of values to search for names.
const MAX_VALUES: usize = 100_000;

/// Advice for an evaluation error on these variables; `None` unless it is about a missing key.
pub(super) fn help(error: &str, expression: &str, variables: &[(&str, &Json)]) -> Option<String> {
    let key = error.strip_prefix("no such key: ")?;
    let is_identifier = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if key.is_empty() {
        return None;
    }
    let holders = holders(expression, key);
    let mut known: Vec<&str> = Vec::new();
    let mut lacking = None;
    for holder in &holders {
        if let Some(members) = resolve(holder, variables).and_then(Json::as_object)
            && !members.contains_key(key)
        {
            known.extend(members.keys().map(String::as_str));
            lacking = Some(*holder);
        }
    }
    if lacking.is_none() {
        // The holder is an element of a list or the result of a function.
        known = names(variables);
        known.retain(|name| *name != key);
    }
    if let Some(meant) = nearest(key, known.into_iter()) {
        return Some(did_you_mean(meant));
    }
    let holder = lacking.or_else(|| holders.first().copied())?;
    let test = match is_identifier {
        true => format!("has({holder}.{key})"),
        false => format!("'{key}' in {holder}"),
    };
    Some(format!("if the key is optional, test for it with `{test}`"))
}

/// The operands in the source that the expression selects the key from.
fn holders<'e>(expression: &'e str, key: &str) -> Vec<&'e str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices(&format!(".{key}")) {
        let (before, after) = (&expression[..at], &expression[at + 1 + key.len()..]);
        if key.is_empty() || after.starts_with(is_name) {
            continue;
        }
        found.push(operand(before));
    }
    for quote in ['\'', '"'] {
        for (at, _) in expression.match_indices(&format!("[{quote}{key}{quote}]")) {
            found.push(operand(&expression[..at]));
        }
    }
    found.retain(|holder| !holder.is_empty());
    found
}

/// The chain of fields and indexes at the end of a text.
fn operand(text: &str) -> &str {
    let mut inside = None;
    for (at, c) in text.char_indices().rev() {
        match (inside, c) {
            (None, ']') => inside = Some(at),
            (Some(_), '[') => inside = None,
            (Some(_), _) => {}
            (None, c) if c.is_alphanumeric() || matches!(c, '_' | '.' | '?') => {}
            (None, c) => return &text[at + c.len_utf8()..],
        }
    }
    text
}

/// The value of a chain that starts with a variable.
fn resolve<'v>(chain: &str, variables: &[(&str, &'v Json)]) -> Option<&'v Json> {
    let mut steps = chain
        .split(['.', '[', ']'])
        .map(|step| step.trim_matches(['?', ' ']))
        .filter(|step| !step.is_empty());
    let root = steps.next()?;
    let (_, root) = variables.iter().find(|(name, _)| *name == root)?;
    steps.try_fold(*root, |place, step| match place {
        Json::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step.trim_matches(['\'', '"'])),
    })
}

/// The names of all fields below these values.
fn names<'v>(variables: &[(&str, &'v Json)]) -> Vec<&'v str> {
    let mut open: Vec<&Json> = variables.iter().map(|(_, value)| *value).collect();
    let (mut names, mut seen) = (Vec::new(), 0);
    while let Some(value) = open.pop() {
        seen += 1;
        if seen > MAX_VALUES {
            break;
        }
        match value {
            Json::Object(members) => {
                names.extend(members.keys().map(String::as_str));
                open.extend(members.values());
            }
            Json::Array(items) => open.extend(items),
            _ => {}
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_the_member_that_was_meant() {
        let object = json!({
            "metadata": {"name": "web", "labels": {"team": "a", "app.kubernetes.io/name": "web"}},
            "spec": {"replicas": 2, "containers": [{"image": "a:1"}]},
        });
        let params = json!({"teams": ["a"]});
        for (expression, key, want) in [
            ("object.speck.replicas > 1", "speck", "did you mean `spec`?"),
            (
                "object.spec.replica > 1",
                "replica",
                "did you mean `replicas`?",
            ),
            (
                "object.metadata.labels['teem'] == 'a'",
                "teem",
                "did you mean `team`?",
            ),
            (
                "object.spec.containers[0].imge == ''",
                "imge",
                "did you mean `image`?",
            ),
            (
                "object.spec.containers.all(c, c.imge == '')",
                "imge",
                "did you mean `image`?",
            ),
            ("'a' in params.team", "team", "did you mean `teams`?"),
            (
                "object.spec.paused",
                "paused",
                "if the key is optional, test for it with `has(object.spec.paused)`",
            ),
            (
                "object.metadata.labels['example.com/tier'] == 'a'",
                "example.com/tier",
                "if the key is optional, test for it with `'example.com/tier' in object.metadata.labels`",
            ),
            // `name` is a field of another object.
            (
                "object.spec.name == object.metadata.name",
                "name",
                "if the key is optional, test for it with `has(object.spec.name)`",
            ),
        ] {
            let error = format!("no such key: {key}");
            let variables = [("object", &object), ("params", &params)];
            let found = help(&error, expression, &variables);
            assert_eq!(found.as_deref(), Some(want), "{expression}");
        }
        assert_eq!(help("division by zero", "1/0", &[]), None);
        assert_eq!(
            help("no such key: ", "object['']", &[("object", &object)]),
            None
        );
        // Strings are split at character boundaries, not between bytes.
        assert_eq!(
            help("no such key: é", "é.é[é", &[]).as_deref(),
            Some("if the key is optional, test for it with `'é' in é`")
        );
    }
}
