//! Formatting of the demo's output.

use serde_json::Value;

use super::client::Response;

/// The response on one line.
pub(super) fn answer(answer: &Response) -> String {
    let text = |pointer: &str| {
        answer
            .body
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let mut line = match text("/kind") {
        "Status" if !text("/message").is_empty() => format!("{} {}", answer.code, text("/message")),
        kind => {
            let name = text("/metadata/name");
            let labels = answer
                .body
                .pointer("/metadata/labels")
                .map(|labels| format!(" labels {labels}"));
            format!(
                "{} {kind} {name}{}",
                answer.code,
                labels.unwrap_or_default()
            )
        }
    };
    for warning in &answer.warnings {
        line.push_str("\n   Warning: ");
        line.push_str(warning);
    }
    line
}
