//! Validates creates and updates of built-in kinds, from JSON lines to JSON lines.
//!
//! ```text
//! echo '{"id": "1", "op": "create", "kind": "ConfigMap", "object": {"apiVersion": "v1", "kind": "ConfigMap"}}' \
//!     | cargo run -p lockgate-kinds --example validate
//! ```
//!
//! Other implementations of the same format can be compared line by line.

#[path = "../tests/it/validation/write.rs"]
mod write;

use std::io::{BufRead, Write};

use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        let mut answer = match write::in_context(|context| write::run(&case, context)) {
            write::End::Malformed(error) => json!({"malformed": error}),
            write::End::Refused(causes) => json!({"causes": causes}),
            write::End::Stored(object, warnings) => json!({"object": object, "warnings": warnings}),
        };
        answer["id"] = case["id"].clone();
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
