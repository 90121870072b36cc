//! Each rule matches its bad example and not its good one, and the docs are in sync with the rules.

use lockgate_lint::{Profile, RULES, docs, find};

use super::{lint_in, rules_in};

fn profile_of(rule: &lockgate_lint::Rule) -> Profile {
    Profile::ALL
        .into_iter()
        .find(|profile| rule.levels.of(*profile).is_some())
        .unwrap()
}

#[test]
fn every_bad_example_is_found_and_no_good_one_is() {
    for rule in RULES {
        let profile = profile_of(rule);
        let bad = rules_in(profile, rule.bad);
        if rule.captured.is_some() {
            // Manifests alone are not enough; `lockgate-offline` tests them with their captures.
            assert!(!bad.contains(&rule.id), "{}: without a capture", rule.id);
            continue;
        }
        assert!(bad.contains(&rule.id), "{}: bad example: {bad:?}", rule.id);
        let good: Vec<String> = lint_in(profile, rule.good)
            .into_iter()
            .filter(|finding| finding.rule == *rule)
            .map(|finding| finding.message)
            .collect();
        assert!(good.is_empty(), "{}: good example: {good:?}", rule.id);
    }
}

#[test]
fn rules_are_sorted_and_found_in_either_case() {
    assert!(RULES.is_sorted_by(|a, b| a.id < b.id));
    assert_eq!(find("w011").map(|rule| rule.id), Some("W011"));
    assert!(find("W999").is_none());
    for rule in RULES {
        let sentences = [rule.summary, rule.advice];
        assert!(
            sentences.iter().all(|text| text.ends_with('.')),
            "{}",
            rule.id
        );
    }
}

/// A fix is documented if and only if the rule provides one.
#[test]
fn rules_that_promise_a_fix_have_one_that_answers_their_finding() {
    for rule in RULES.iter().filter(|rule| rule.captured.is_none()) {
        let findings = lint_in(profile_of(rule), rule.bad);
        let own = || findings.iter().filter(|finding| finding.rule == *rule);
        assert_eq!(
            own().any(|finding| finding.fix.is_some()),
            rule.fix.is_some(),
            "{}",
            rule.id
        );
        if rule.fix.is_none() {
            continue;
        }
        let document = &lockgate_api::document::yaml::parse_all(rule.bad).unwrap()[0];
        let mut object: serde_json::Value =
            serde_json::from_str(&document.root().to_json()).unwrap();
        for fix in own().filter_map(|finding| finding.fix.as_ref()) {
            assert!(fix.apply(&mut object), "{}", rule.id);
        }
        let after = rules_in(profile_of(rule), &object.to_string());
        assert!(!after.contains(&rule.id), "{}: {object}", rule.id);
    }
}

#[test]
fn the_page_of_rules_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lint-rules.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, docs::page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == docs::page(),
        "docs/lint-rules.md is not what the table of rules says: run this test with UPDATE_DOCS=1"
    );
}

#[test]
fn profiles_disagree_about_failure_policies_by_design() {
    let fails = find("W013").unwrap();
    let ignores = find("W014").unwrap();
    assert!(!rules_in(Profile::Security, fails.bad).contains(&"W013"));
    assert!(rules_in(Profile::Availability, fails.bad).contains(&"W013"));
    assert!(rules_in(Profile::Security, ignores.bad).contains(&"W014"));
    assert!(!rules_in(Profile::Availability, ignores.bad).contains(&"W014"));
}
