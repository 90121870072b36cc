//! The files of new projects.

/// A file of a project: its path and its text, with `NAME` as placeholder for the project name.
pub type Template = (&'static str, &'static str);

/// A policy with its binding, test cases in kat's layout and an AdmissionTest.
pub const POLICY: [Template; 5] = [
    ("README.md", include_str!("scaffold/policy/README.md")),
    ("policy.yaml", include_str!("scaffold/policy/policy.yaml")),
    ("binding.yaml", include_str!("scaffold/policy/binding.yaml")),
    (
        "tests/NAME.signed.allow.object.yaml",
        include_str!("scaffold/policy/allow.yaml"),
    ),
    (
        "tests/NAME.unsigned.deny.object.yaml",
        include_str!("scaffold/policy/deny.yaml"),
    ),
];

/// A webhook in Rust with tests, a Containerfile and a chart.
pub const WEBHOOK: [Template; 9] = [
    ("README.md", include_str!("scaffold/webhook/README.md")),
    (
        "Cargo.toml",
        include_str!("scaffold/webhook/Cargo.toml.txt"),
    ),
    ("src/lib.rs", include_str!("scaffold/webhook/lib.rs.txt")),
    ("src/main.rs", include_str!("scaffold/webhook/main.rs.txt")),
    (
        "tests/webhook.rs",
        include_str!("scaffold/webhook/webhook.rs.txt"),
    ),
    (
        "Containerfile",
        include_str!("scaffold/webhook/Containerfile"),
    ),
    (
        "chart/Chart.yaml",
        include_str!("scaffold/webhook/Chart.yaml"),
    ),
    (
        "chart/values.yaml",
        include_str!("scaffold/webhook/values.yaml"),
    ),
    (
        "chart/templates/webhook.yaml",
        include_str!("scaffold/webhook/templates.yaml"),
    ),
];

/// The text of a template for a project with this name.
#[must_use]
pub fn fill(text: &str, name: &str) -> String {
    text.replace("first_webhook", &name.replace('-', "_"))
        .replace("first-webhook", name)
        .replace("NAME", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code of a new webhook is that of the tutorial, which is tested.
    #[test]
    fn a_new_webhook_is_the_one_of_the_tutorial() {
        let example =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/first-webhook");
        for path in ["src/lib.rs", "src/main.rs", "tests/webhook.rs"] {
            let tested = std::fs::read_to_string(example.join(path)).unwrap();
            let (_, template) = WEBHOOK.into_iter().find(|(name, _)| *name == path).unwrap();
            assert_eq!(template, tested, "{path}");
        }
        let filled = fill(WEBHOOK[4].1, "my-hook");
        assert!(filled.contains("use my_hook::webhooks;"), "{filled}");
    }
}
