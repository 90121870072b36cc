//! Suppressed findings.

use lockgate_lint::suppression::SuppressionError;
use lockgate_lint::{Options, Set, Suppressions, check, find};

fn ids(text: &str, suppressions: Suppressions) -> Vec<&'static str> {
    let mut set = Set::default();
    set.add_text(text).unwrap();
    let options = Options {
        suppressions,
        ..Options::default()
    };
    check(&set, &options)
        .iter()
        .map(|finding| finding.rule.id)
        .collect()
}

#[test]
fn an_annotation_leaves_rules_out_for_its_object() {
    let bad = find("W001").unwrap().bad;
    let annotate = |rules: &str| {
        bad.replace(
            "metadata: {name: widgets}",
            &format!(
                "metadata: {{name: widgets, annotations: {{lint.lockgate.dev/ignore: '{rules}'}}}}"
            ),
        )
    };
    assert!(ids(bad, Suppressions::default()).contains(&"W001"));
    assert!(!ids(&annotate("W004, W001"), Suppressions::default()).contains(&"W001"));
    assert!(ids(&annotate("W0011"), Suppressions::default()).contains(&"W001"));
    assert!(ids(&annotate("*"), Suppressions::default()).is_empty());
}

#[test]
fn a_file_leaves_rules_out_everywhere_or_for_one_object() {
    let bad = find("W001").unwrap().bad;
    let with = |text: &str| {
        let mut suppressions = Suppressions::default();
        suppressions.read(text).unwrap();
        ids(bad, suppressions)
    };
    assert!(!with("# accepted\n\nw001  # slow on purpose\n").contains(&"W001"));
    assert!(!with("W001 ValidatingWebhookConfiguration/widgets").contains(&"W001"));
    assert!(with("W001 ValidatingWebhookConfiguration/gadgets").contains(&"W001"));
}

#[test]
fn mistakes_in_a_file_have_a_line() {
    let read = |text: &str| Suppressions::default().read(text);
    let unknown = SuppressionError::UnknownRule(String::from("W999"));
    assert_eq!(read("W001\nW999\n"), Err((2, unknown)));
    let line = SuppressionError::Line(String::from("W001 widgets"));
    assert_eq!(read("W001 widgets"), Err((1, line)));
}
