//! The columns of the built-in kinds.

use serde_json::{Value, json};

use crate::resource::Resource;

/// The columns of a scale.
pub(super) fn scale() -> Value {
    let columns = "Name|Desired:integer|Available:integer|Age";
    columns.split('|').map(column).collect()
}

/// The columns of a kind.
pub(super) fn built_in(resource: &Resource) -> Value {
    let columns = resource.rules.columns();
    columns.split('|').map(column).collect()
}

fn column(text: &str) -> Value {
    let (text, priority) = match text.strip_prefix('+') {
        Some(rest) => (rest, 1),
        None => (text, 0),
    };
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    // The column Name has the format `name`; upstream also sets it for a volume attachment's attacher.
    let format = if matches!(name, "Name" | "Attacher") {
        "name"
    } else {
        ""
    };
    json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
}
