//! The labels by which the data plane finds objects: their names, and which of them an object has.
//!
//! Pure functions of the spec and, for profiles, of the previous labels. All labels of the group are owned by the
//! webhooks; all others by the user.

use std::collections::BTreeMap;

use lockgate_api::meta::names::check_label_value;

use crate::api::{Assignment, AssignmentSpec, GROUP, Labels, ProfileSpec};
use crate::uuid::Uuid;

/// The supported architectures of machines.
pub const BUILDARCHS: [&str; 4] = ["arm32", "arm64", "i386", "x86_64"];

/// The label of assignments for machines that no other selects.
pub const DEFAULT_ASSIGNMENT: &str = "shaper.amahdha.com/default-assignment";

/// The label of a machine on an assignment, or of a content on a profile.
#[must_use]
pub fn uuid(uuid: Uuid) -> String {
    format!("uuid.{GROUP}/{uuid}")
}

/// The label of an architecture.
#[must_use]
pub fn buildarch(arch: &str) -> String {
    format!("buildarch.{GROUP}/{arch}")
}

/// The UUID in a label key, in canonical form.
#[must_use]
pub fn uuid_in(key: &str) -> Option<Uuid> {
    let text = key
        .strip_prefix("uuid.")?
        .strip_prefix(GROUP)?
        .strip_prefix('/')?;
    let read = Uuid::parse(text).ok()?;
    (read.to_string() == text).then_some(read)
}

/// Returns `true` if a label is owned by the webhooks: its prefix is the group or a subdomain of it.
#[must_use]
pub fn is_internal(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else {
        return false;
    };
    let before = prefix.strip_suffix(GROUP);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The architectures of an assignment.
pub fn archs(spec: &AssignmentSpec) -> impl Iterator<Item = &str> {
    let named = spec.subject_selectors.buildarch.iter().map(String::as_str);
    let any = spec.subject_selectors.buildarch.is_empty();
    named.chain(BUILDARCHS.into_iter().filter(move |_| any))
}

/// The labels of an assignment: those of the user in `present`, and those computed from `spec`. A spec that violates
/// the static rules gets no labels.
#[must_use]
pub fn of_assignment(spec: &AssignmentSpec, present: &Labels) -> Labels {
    let mut labels = of_user(present);
    for text in &spec.subject_selectors.uuid_list {
        if let Ok(machine) = Uuid::parse(text) {
            labels.insert(uuid(machine), String::new());
        }
    }
    for arch in archs(spec).filter(|arch| BUILDARCHS.contains(arch)) {
        labels.insert(buildarch(arch), String::new());
    }
    if spec.is_default {
        labels.insert(DEFAULT_ASSIGNMENT.to_owned(), String::new());
    }
    labels
}

/// The machines of a stored assignment: by its labels, and by its spec.
pub fn machines(assignment: &Assignment) -> impl Iterator<Item = Uuid> {
    let labels = assignment.metadata.labels.iter().flat_map(BTreeMap::keys);
    let texts = assignment.spec.subject_selectors.uuid_list.iter();
    let named = texts.filter_map(|text| Uuid::parse(text).ok());
    labels.filter_map(|key| uuid_in(key)).chain(named)
}

/// The UUIDs of contents by name, according to the labels. If a content has several, the first in order is used, so
/// that the result is stable.
#[must_use]
pub fn contents(labels: Option<&Labels>) -> BTreeMap<String, Uuid> {
    let mut found = BTreeMap::new();
    for (key, name) in labels.into_iter().flatten() {
        if let Some(content) = uuid_in(key) {
            found.entry(name.clone()).or_insert(content);
        }
    }
    found
}

/// The labels of a profile: those of the user in `present`, and one for each exposed content, with its known UUID or a
/// new one.
///
/// # Errors
///
/// Fails if no UUID can be generated.
pub fn of_profile<E>(
    spec: &ProfileSpec,
    present: &Labels,
    known: &BTreeMap<String, Uuid>,
    mut fresh: impl FnMut() -> Result<Uuid, E>,
) -> Result<Labels, E> {
    let mut labels = of_user(present);
    // The static rules reject other names, except on objects that are being deleted.
    let exposed = spec
        .additional_content
        .iter()
        .filter(|content| content.exposed);
    for content in exposed.filter(|content| check_label_value(&content.name).is_empty()) {
        let id = match known.get(&content.name) {
            Some(&id) => id,
            None => fresh()?,
        };
        labels.insert(uuid(id), content.name.clone());
    }
    Ok(labels)
}

fn of_user(present: &Labels) -> Labels {
    let kept = present.iter().filter(|(key, _)| !is_internal(key));
    kept.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::api::{AdditionalContent, SubjectSelectors};

    const A: &str = "47c6da67-7477-4970-aa03-84e48ff4f6ad";
    const B: &str = "3f5f3c39-584e-4c7c-b6ff-137e1aaa7175";

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter();
        pairs
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn assignment(archs: &[&str], uuids: &[&str], is_default: bool) -> AssignmentSpec {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        AssignmentSpec {
            subject_selectors: SubjectSelectors {
                buildarch: owned(archs),
                uuid_list: owned(uuids),
            },
            profile_name: String::from("p"),
            is_default,
        }
    }

    fn profile(contents: &[(&str, bool)]) -> ProfileSpec {
        let contents = contents.iter().map(|&(name, exposed)| AdditionalContent {
            name: name.to_owned(),
            exposed,
            ..AdditionalContent::default()
        });
        ProfileSpec {
            additional_content: contents.collect(),
            ..ProfileSpec::default()
        }
    }

    #[test]
    fn knows_its_own_labels_by_exact_prefix() {
        for own in [
            "shaper.amahdha.com/default-assignment",
            "shaper.amahdha.com/x",
            "uuid.shaper.amahdha.com/47c6da67-7477-4970-aa03-84e48ff4f6ad",
            "buildarch.shaper.amahdha.com/arm64",
            "a.b.shaper.amahdha.com/x",
        ] {
            assert!(is_internal(own), "{own}");
        }
        for other in [
            "team",
            "shaper.amahdha.com",
            "foo.shaper.amahdha.com.evil/x",
            "notshaper.amahdha.com/x",
            "example.com/shaper.amahdha.com",
            "app.kubernetes.io/name",
        ] {
            assert!(!is_internal(other), "{other}");
        }
    }

    #[test]
    fn labels_an_assignment_by_what_it_selects() {
        let spec = assignment(&["arm64"], &[A, &B.to_uppercase()], false);
        let want = labels(&[
            ("buildarch.shaper.amahdha.com/arm64", ""),
            (&format!("uuid.shaper.amahdha.com/{B}"), ""),
            (&format!("uuid.shaper.amahdha.com/{A}"), ""),
        ]);
        assert_eq!(of_assignment(&spec, &Labels::new()), want);
    }

    #[test]
    fn keeps_labels_of_the_user_and_drops_stale_ones() {
        let present = labels(&[
            ("team", "a"),
            ("foo.shaper.amahdha.com.evil/x", "kept"),
            (&format!("uuid.shaper.amahdha.com/{B}"), ""),
            ("buildarch.shaper.amahdha.com/i386", ""),
            ("shaper.amahdha.com/default-assignment", ""),
        ]);
        let want = labels(&[
            ("team", "a"),
            ("foo.shaper.amahdha.com.evil/x", "kept"),
            ("buildarch.shaper.amahdha.com/arm64", ""),
            (&format!("uuid.shaper.amahdha.com/{A}"), ""),
        ]);
        let spec = assignment(&["arm64"], &[A], false);
        let made = of_assignment(&spec, &present);
        assert_eq!(made, want);
        assert_eq!(
            of_assignment(&spec, &made),
            want,
            "a second time changes nothing"
        );
    }

    #[test]
    fn no_architecture_means_all_four_and_the_default_is_marked() {
        let want = labels(&[
            ("buildarch.shaper.amahdha.com/arm32", ""),
            ("buildarch.shaper.amahdha.com/arm64", ""),
            ("buildarch.shaper.amahdha.com/i386", ""),
            ("buildarch.shaper.amahdha.com/x86_64", ""),
            ("shaper.amahdha.com/default-assignment", ""),
        ]);
        assert_eq!(
            of_assignment(&assignment(&[], &[], true), &Labels::new()),
            want
        );
    }

    #[test]
    fn a_profile_keeps_the_uuids_it_is_known_by() {
        let (a, b) = (Uuid::parse(A).unwrap(), Uuid::parse(B).unwrap());
        let known = BTreeMap::from([(String::from("one"), a), (String::from("gone"), b)]);
        let spec = profile(&[("one", true), ("two", true), ("hidden", false)]);
        let fresh = Uuid::parse("11111111-1111-4111-8111-111111111111").unwrap();
        let present = labels(&[("team", "a"), (&uuid(b), "gone"), (&uuid(a), "one")]);
        let made = of_profile(&spec, &present, &known, || Ok::<_, Infallible>(fresh)).unwrap();
        let want = labels(&[("team", "a"), (&uuid(a), "one"), (&uuid(fresh), "two")]);
        assert_eq!(made, want);
        let again = of_profile(&spec, &made, &contents(Some(&made)), || Err(()));
        assert_eq!(again, Ok(want), "nothing fresh is needed a second time");
    }

    #[test]
    fn reads_uuids_of_contents_from_canonical_labels_only() {
        let found = contents(Some(&labels(&[
            (&format!("uuid.shaper.amahdha.com/{A}"), "one"),
            (
                &format!("uuid.shaper.amahdha.com/{}", B.to_uppercase()),
                "two",
            ),
            ("uuid.shaper.amahdha.com/nonsense", "three"),
            (
                "uuid.shaper.amahdha.com.evil/47c6da67-7477-4970-aa03-84e48ff4f6ad",
                "four",
            ),
            ("team", "five"),
        ])));
        assert_eq!(
            found,
            BTreeMap::from([(String::from("one"), Uuid::parse(A).unwrap())])
        );
        assert_eq!(contents(None), BTreeMap::new());
    }
}
