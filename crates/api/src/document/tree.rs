//! Converts `serde_json` values to documents, for decoders of documents.

use serde_json::Value;

use super::{Builder, Document, Kind, Span};

/// The document of a value's JSON, without parsing. Its spans are empty.
///
/// ```
/// use lockgate_api::document::tree::read;
/// let document = read(&serde_json::json!({"a": [1, null]}));
/// assert_eq!(document.root().to_json(), r#"{"a":[1,null]}"#);
/// ```
#[must_use]
pub fn read(tree: &Value) -> Document {
    let nowhere = Span::default();
    let mut builder = Builder::default();
    // Pending values with their keys, the next one last; `None` closes a container.
    let mut work = vec![Some((None, tree))];
    while let Some(next) = work.pop() {
        let Some((key, value)) = next else {
            builder.close(0);
            continue;
        };
        if let Some(key) = key {
            builder.key(nowhere, key);
        }
        match value {
            Value::Null => drop(builder.scalar(Kind::Null, nowhere, "null")),
            Value::Bool(true) => drop(builder.scalar(Kind::Bool, nowhere, "true")),
            Value::Bool(false) => drop(builder.scalar(Kind::Bool, nowhere, "false")),
            Value::Number(_) => {
                let text = lockgate_go::json::value_to_string(value);
                builder.scalar(Kind::Number, nowhere, &text);
            }
            Value::String(text) => drop(builder.scalar(Kind::String, nowhere, text)),
            Value::Array(items) => {
                builder.open(Kind::Array, nowhere);
                work.push(None);
                work.extend(items.iter().rev().map(|item| Some((None, item))));
            }
            Value::Object(members) => {
                builder.open(Kind::Object, nowhere);
                work.push(None);
                let members = members.iter().rev();
                work.extend(members.map(|(key, member)| Some((Some(key.as_str()), member))));
            }
        }
    }
    builder.document
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::json::parse;

    #[test]
    fn reads_what_parsing_the_text_gives() {
        for tree in [
            json!(null),
            json!({}),
            json!([]),
            json!({"b": {"c": [], "d": {}}, "a": [1, -2.5, 1e300, true, false, null, "é\"\u{2028}<"]}),
            json!([[[[]], 18_446_744_073_709_551_615_u64]]),
        ] {
            let text = lockgate_go::json::to_string(&tree);
            let parsed = parse(text.as_bytes()).unwrap();
            assert_eq!(read(&tree).root().to_json(), parsed.root().to_json());
            assert_eq!(read(&tree).nodes.len(), parsed.nodes.len());
        }
    }
}
