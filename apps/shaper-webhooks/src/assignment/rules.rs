//! The static rules of assignments, which need no lookup.

use std::collections::HashSet;

use lockgate_api::field::{ErrorType, FieldError, Path, Shown};
use lockgate_go::quote::quote;

use crate::api::AssignmentSpec;
use crate::findings::{Findings, problem};
use crate::labels::BUILDARCHS;
use crate::uuid::Uuid;

/// The error for an assignment without a profile.
pub(super) const NO_PROFILE: &str = "assignment must specify an existing profileName";

/// Checks a spec.
#[must_use]
pub fn check(spec: &AssignmentSpec) -> Findings {
    let mut findings = Findings::default();
    let root = Path::root("spec");
    let selectors = root.child("subjectSelectors");
    check_uuids(spec, &selectors.child("uuidList"), &mut findings);
    check_archs(spec, &selectors.child("buildarch"), &mut findings);
    if spec.profile_name.is_empty() {
        findings.error(FieldError::required(&root.child("profileName"), NO_PROFILE));
    }
    findings
}

fn check_uuids(spec: &AssignmentSpec, path: &Path<'_>, findings: &mut Findings) {
    let texts = &spec.subject_selectors.uuid_list;
    if spec.is_default && !texts.is_empty() {
        let detail = "a default assignment must not specify subject selectors of type UUID";
        findings.error(FieldError::forbidden(path, detail));
    }
    let mut seen = HashSet::new();
    for (place, text) in texts.iter().enumerate() {
        let path = path.index(place);
        match Uuid::parse(text) {
            Err(error) => {
                let error = FieldError::invalid(&path, Shown::Text(text), error.to_string());
                findings.error(error);
            }
            Ok(uuid) if !seen.insert(uuid) => {
                findings.warn(&path, format_args!("{uuid} is named twice"));
            }
            Ok(_) => {}
        }
    }
}

fn check_archs(spec: &AssignmentSpec, path: &Path<'_>, findings: &mut Findings) {
    let mut seen = HashSet::new();
    for (place, arch) in spec.subject_selectors.buildarch.iter().enumerate() {
        let path = path.index(place);
        if !BUILDARCHS.contains(&arch.as_str()) {
            let detail = format!(
                "specified buildarch is not supported: expected one of 'arm32', 'arm64', 'i386', 'x86_64'; received {}",
                quote(arch)
            );
            findings.error(problem(ErrorType::NotSupported, &path, arch, detail));
        } else if !seen.insert(arch) {
            findings.warn(&path, format_args!("{arch} is named twice"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(spec: Value) -> (Vec<String>, Vec<String>) {
        let spec: AssignmentSpec = serde_json::from_value(spec).unwrap();
        let findings = check(&spec);
        (
            findings.errors.iter().map(ToString::to_string).collect(),
            findings.warnings,
        )
    }

    const A: &str = "47c6da67-7477-4970-aa03-84e48ff4f6ad";

    #[test]
    fn accepts() {
        for spec in [
            json!({"profileName": "p", "subjectSelectors": {"buildarch": ["arm64"], "uuidList": [A]}}),
            json!({"profileName": "p", "subjectSelectors": {"buildarch": [], "uuidList": []}}),
            json!({"profileName": "p", "subjectSelectors": {"buildarch": null, "uuidList": null}}),
            json!({"profileName": "p"}),
            json!({"profileName": "p", "isDefault": true}),
            json!({"profileName": "p", "isDefault": true, "subjectSelectors": {"buildarch": ["i386", "x86_64", "arm32"]}}),
            json!({"profileName": "p", "subjectSelectors": {"uuidList": [A.to_uppercase(), format!("urn:uuid:{}", A.replace('4', "5"))]}}),
        ] {
            assert_eq!(checked(spec.clone()), (vec![], vec![]), "{spec}");
        }
    }

    #[test]
    fn refuses_with_the_place_and_the_reason() {
        for (spec, want) in [
            (
                json!({"profileName": "p", "subjectSelectors": {"uuidList": ["not-a-valid-uuid"]}}),
                vec![
                    "spec.subjectSelectors.uuidList[0]: Invalid value: \"not-a-valid-uuid\": invalid UUID length: 16",
                ],
            ),
            (
                json!({"profileName": "p", "subjectSelectors": {"buildarch": ["arm64", "invalid-arch"]}}),
                vec![
                    "spec.subjectSelectors.buildarch[1]: Unsupported value: \"invalid-arch\": specified buildarch is not supported: expected one of 'arm32', 'arm64', 'i386', 'x86_64'; received \"invalid-arch\"",
                ],
            ),
            (
                json!({"profileName": "p", "isDefault": true, "subjectSelectors": {"uuidList": [A]}}),
                vec![
                    "spec.subjectSelectors.uuidList: Forbidden: a default assignment must not specify subject selectors of type UUID",
                ],
            ),
            (
                json!({}),
                vec![
                    "spec.profileName: Required value: assignment must specify an existing profileName",
                ],
            ),
            (
                json!({"isDefault": true, "subjectSelectors": {"uuidList": ["x", A, "y"], "buildarch": [""]}}),
                vec![
                    "spec.subjectSelectors.uuidList: Forbidden: a default assignment must not specify subject selectors of type UUID",
                    "spec.subjectSelectors.uuidList[0]: Invalid value: \"x\": invalid UUID length: 1",
                    "spec.subjectSelectors.uuidList[2]: Invalid value: \"y\": invalid UUID length: 1",
                    "spec.subjectSelectors.buildarch[0]: Unsupported value: \"\": specified buildarch is not supported: expected one of 'arm32', 'arm64', 'i386', 'x86_64'; received \"\"",
                    "spec.profileName: Required value: assignment must specify an existing profileName",
                ],
            ),
        ] {
            assert_eq!(checked(spec.clone()).0, want, "{spec}");
        }
    }

    #[test]
    fn warns_about_what_is_named_twice() {
        let braced = format!("{{{}}}", A.to_uppercase());
        let selectors = json!({"uuidList": [A, braced], "buildarch": ["i386", "i386"]});
        let (errors, warnings) =
            checked(json!({"profileName": "p", "subjectSelectors": selectors}));
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(
            warnings,
            [
                "spec.subjectSelectors.uuidList[1]: 47c6da67-7477-4970-aa03-84e48ff4f6ad is named twice",
                "spec.subjectSelectors.buildarch[1]: i386 is named twice",
            ]
        );
    }
}
