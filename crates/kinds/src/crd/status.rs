//! The status of a definition: accepted names and conditions.
//!
//! Upstream's controllers are functions of the definition and the time here, called within the write.
//!
//! UPSTREAM: apiextensions-apiserver pkg/controller/{status,establish,apiapproval,nonstructuralschema},
//! pkg/registry/customresourcedefinition/strategy.go

use std::collections::HashSet;

use serde_json::{Map, Value as Json, json};

use lockgate_api::field::aggregate;
use lockgate_api::meta::time::Time;
use lockgate_go::quote::quote;

use super::defaults::storage_version;
use super::validation;
use crate::structural::json::{copy, equal};
use crate::structural::props::Props;

/// A condition without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition<'a> {
    /// The condition type.
    pub condition_type: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// The reason, in CamelCase.
    pub reason: &'a str,
    /// The human-readable message.
    pub message: &'a str,
}

/// The status of a new definition.
pub(super) fn empty() -> Json {
    json!({
        "acceptedNames": { "kind": "", "plural": "" },
        "conditions": null,
        "storedVersions": null,
    })
}

fn names(definition: &Json, place: &str) -> Map<String, Json> {
    let names = definition.pointer(place).and_then(Json::as_object);
    names.cloned().unwrap_or_default()
}

/// Resets fields that a client cannot set on create, and records the storage version.
pub fn prepare_create(definition: &mut Json) {
    if let Some(definition) = definition.as_object_mut() {
        definition.insert("status".to_owned(), empty());
    }
    set_generation(definition, 1);
    record_stored_version(definition);
}

/// Resets fields that a client cannot set on update, and records the storage version.
pub fn prepare_update(new: &mut Json, old: &Json) {
    if let Some(new) = new.as_object_mut() {
        let status = old.get("status").map_or_else(empty, copy);
        new.insert("status".to_owned(), status);
    }
    let unchanged = match (new.get("spec"), old.get("spec")) {
        (Some(new), Some(old)) => equal(new, old),
        (new, old) => new.is_none() && old.is_none(),
    };
    if !unchanged {
        let generation = old.pointer("/metadata/generation").and_then(Json::as_i64);
        set_generation(new, generation.unwrap_or(0).saturating_add(1));
    }
    record_stored_version(new);
}

/// Resets fields that a client cannot set in a status update.
pub fn prepare_status_update(new: &mut Json, old: &Json) {
    if let (Some(new), Some(spec)) = (new.as_object_mut(), old.get("spec")) {
        new.insert("spec".to_owned(), copy(spec));
    }
}

fn set_generation(definition: &mut Json, generation: i64) {
    let metadata = definition.get_mut("metadata").and_then(Json::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.insert("generation".to_owned(), generation.into());
    }
}

fn record_stored_version(definition: &mut Json) {
    let stored = definition.as_object().and_then(storage_version);
    let Some(stored) = stored.map(str::to_owned) else {
        return;
    };
    let status = definition.get_mut("status").and_then(Json::as_object_mut);
    let Some(status) = status else { return };
    let versions = status.entry("storedVersions").or_insert(Json::Null);
    if versions.is_null() {
        *versions = json!([]);
    }
    if let Some(versions) = versions.as_array_mut()
        && !versions
            .iter()
            .any(|version| version.as_str() == Some(&stored))
    {
        versions.push(stored.into());
    }
}

/// Sets a condition. `lastTransitionTime` changes with the status only.
pub fn set_condition(definition: &mut Json, condition: &Condition<'_>, now: Time) {
    let status = definition.as_object_mut().map(|definition| {
        definition
            .entry("status")
            .or_insert_with(empty)
            .as_object_mut()
    });
    let Some(Some(status)) = status else { return };
    let conditions = status.entry("conditions").or_insert(Json::Null);
    if conditions.is_null() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let is_it = |found: &&mut Json| {
        found.get("type").and_then(Json::as_str) == Some(condition.condition_type)
    };
    let mut since = Json::from(now.to_string());
    let written = |since| {
        json!({
            "type": condition.condition_type,
            "status": condition.status,
            "lastTransitionTime": since,
            "reason": condition.reason,
            "message": condition.message,
        })
    };
    match conditions.iter_mut().find(is_it) {
        Some(found) => {
            let had = found
                .get("lastTransitionTime")
                .filter(|time| !time.is_null());
            if let Some(had) = had
                && found.get("status").and_then(Json::as_str) == Some(condition.status)
            {
                since = had.clone();
            }
            *found = written(since);
        }
        None => conditions.push(written(since)),
    }
}

/// Removes a condition.
pub fn remove_condition(definition: &mut Json, condition_type: &str) {
    let conditions = definition.pointer_mut("/status/conditions");
    if let Some(Json::Array(conditions)) = conditions {
        let is_it = |found: &Json| found.get("type").and_then(Json::as_str) == Some(condition_type);
        conditions.retain(|found| !is_it(found));
    }
}

fn find<'j>(definition: &'j Json, condition_type: &str) -> Option<&'j Json> {
    let conditions = definition.pointer("/status/conditions")?.as_array()?;
    let is_it = |found: &&Json| found.get("type").and_then(Json::as_str) == Some(condition_type);
    conditions.iter().find(is_it)
}

/// Returns true if a definition has a condition with this status, such as `Established` with `True`.
#[must_use]
pub fn has_status(definition: &Json, condition_type: &str, status: &str) -> bool {
    let found = find(definition, condition_type).and_then(|found| found.get("status"));
    found.and_then(Json::as_str) == Some(status)
}

fn says(definition: &Json, condition: &Condition<'_>) -> bool {
    let Some(found) = find(definition, condition.condition_type) else {
        return false;
    };
    let text = |name: &str| found.get(name).and_then(Json::as_str).unwrap_or_default();
    text("status") == condition.status
        && text("reason") == condition.reason
        && text("message") == condition.message
}

/// Accepts the names that no other definition of the group has, and sets the conditions `NamesAccepted` and
/// `Established`. Returns true if the status changed.
///
/// `others` may include definitions of other groups, and this definition.
pub fn accept_names<'a>(
    definition: &mut Json,
    others: impl IntoIterator<Item = &'a Json>,
    now: Time,
) -> bool {
    let requested = names(definition, "/spec/names");
    let accepted = names(definition, "/status/acceptedNames");
    if same_names(&requested, &accepted) {
        return false;
    }
    let used = Used::in_group(definition, others);
    let (found, conflict) = negotiate(&requested, &accepted, &used);
    let names_accepted = match &conflict {
        Some((reason, message)) => Condition {
            condition_type: "NamesAccepted",
            status: "False",
            reason,
            message,
        },
        None => Condition {
            condition_type: "NamesAccepted",
            status: "True",
            reason: "NoConflicts",
            message: "no conflicts found",
        },
    };
    if same_names(&found, &accepted) && says(definition, &names_accepted) {
        return false;
    }
    if let Some(Json::Object(status)) = definition.get_mut("status") {
        status.insert("acceptedNames".to_owned(), found.into());
    }
    set_condition(definition, &names_accepted, now);
    let (reason, message) = if conflict.is_some() {
        ("NotAccepted", "not all names are accepted")
    } else {
        ("Installing", "the initial names have been accepted")
    };
    let is_established = has_status(definition, "Established", "True");
    let stays = conflict.is_some() && find(definition, "Established").is_some();
    if !is_established && !stays {
        let established = Condition {
            condition_type: "Established",
            status: "False",
            reason,
            message,
        };
        set_condition(definition, &established, now);
    }
    true
}

fn same_names(one: &Map<String, Json>, other: &Map<String, Json>) -> bool {
    let is_empty = |value: &Json| match value {
        Json::Null => true,
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        _ => false,
    };
    let given = |names: &Map<String, Json>| -> Map<String, Json> {
        let given = names.iter().filter(|(_, value)| !is_empty(value));
        given
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    given(one) == given(other)
}

/// The accepted names of a group's definitions.
#[derive(Debug, Default)]
struct Used {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl Used {
    fn in_group<'a>(definition: &Json, others: impl IntoIterator<Item = &'a Json>) -> Self {
        let mut used = Self::default();
        let group = definition.pointer("/spec/group");
        // The definition's own accepted names count as used, as upstream: a name that moves to another field
        // conflicts.
        let own = definition.pointer("/metadata/name").cloned();
        let is_other = |other: &&Json| {
            other.pointer("/spec/group") == group && other.pointer("/metadata/name") != own.as_ref()
        };
        used.add(definition);
        others
            .into_iter()
            .filter(is_other)
            .for_each(|other| used.add(other));
        used
    }

    fn add(&mut self, definition: &Json) {
        let names = names(definition, "/status/acceptedNames");
        let names = Props(&names);
        for name in ["plural", "singular"] {
            self.resources.insert(names.text(name).to_owned());
        }
        self.resources
            .extend(names.texts("shortNames").map(str::to_owned));
        for name in ["kind", "listKind"] {
            self.kinds.insert(names.text(name).to_owned());
        }
    }
}

/// The accepted names, and the last conflict, if any.
fn negotiate(
    requested: &Map<String, Json>,
    accepted: &Map<String, Json>,
    used: &Used,
) -> (Map<String, Json>, Option<(&'static str, String)>) {
    let mut found = accepted.clone();
    let mut conflict = None;
    let (asked, has) = (Props(requested), Props(accepted));
    let in_use = |name: &str| format!("{} is already in use", quote(name));
    for (field, reason, taken) in [
        ("plural", "PluralConflict", &used.resources),
        ("singular", "SingularConflict", &used.resources),
        ("shortNames", "ShortNamesConflict", &used.resources),
        ("kind", "KindConflict", &used.kinds),
        ("listKind", "ListKindConflict", &used.kinds),
    ] {
        if field == "shortNames" {
            let own: HashSet<&str> = has.texts(field).collect();
            let is_taken = |name: &&str| !own.contains(name) && taken.contains(*name);
            let conflicts: Vec<String> = asked.texts(field).filter(is_taken).map(in_use).collect();
            match conflicts.as_slice() {
                [] => copy_field(&mut found, requested, field),
                [one] => conflict = Some((reason, one.clone())),
                several => conflict = Some((reason, aggregate_texts(several))),
            }
            continue;
        }
        let name = asked.text(field);
        if name == has.text(field) || !taken.contains(name) {
            copy_field(&mut found, requested, field);
        } else {
            conflict = Some((reason, in_use(name)));
        }
    }
    copy_field(&mut found, requested, "categories");
    (found, conflict)
}

fn copy_field(found: &mut Map<String, Json>, requested: &Map<String, Json>, field: &str) {
    match requested.get(field) {
        Some(value) => drop(found.insert(field.to_owned(), value.clone())),
        None => drop(found.remove(field)),
    }
}

fn aggregate_texts(texts: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for text in texts {
        if !distinct.contains(&text.as_str()) {
            distinct.push(text);
        }
    }
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Sets the condition `Established` of a definition with accepted names. Returns true if the status changed.
///
/// Upstream waits five seconds for other servers of the cluster; a single server need not.
pub fn establish(definition: &mut Json, now: Time) -> bool {
    if !has_status(definition, "NamesAccepted", "True")
        || has_status(definition, "Established", "True")
    {
        return false;
    }
    let bundle = definition.pointer("/spec/conversion/webhook/clientConfig/caBundle");
    let bundle = bundle.and_then(Json::as_str).unwrap_or_default();
    let condition = if validation::ca_bundle_error(bundle).is_some() {
        Condition {
            condition_type: "Established",
            status: "False",
            reason: "InvalidCABundle",
            message: "The conversion webhook CABundle is invalid",
        }
    } else {
        Condition {
            condition_type: "Established",
            status: "True",
            reason: "InitialNamesAccepted",
            message: "the initial names have been accepted",
        }
    };
    set_condition(definition, &condition, now);
    true
}

/// Sets the condition `KubernetesAPIApprovalPolicyConformant` in protected groups. Returns true if the status
/// changed.
pub fn api_approval(definition: &mut Json, now: Time) -> bool {
    let group = definition.pointer("/spec/group").and_then(Json::as_str);
    if !validation::is_protected(group.unwrap_or_default()) {
        return false;
    }
    let (approval, message) = validation::approval(definition);
    let (status, reason) = match approval {
        validation::Approval::Invalid => ("False", "InvalidAnnotation"),
        validation::Approval::Missing => ("False", "MissingAnnotation"),
        validation::Approval::Approved => ("True", "ApprovedAnnotation"),
        validation::Approval::Bypassed => ("False", "UnapprovedAnnotation"),
    };
    let condition = Condition {
        condition_type: "KubernetesAPIApprovalPolicyConformant",
        status,
        reason,
        message: &message,
    };
    if says(definition, &condition) {
        return false;
    }
    set_condition(definition, &condition, now);
    true
}

/// Sets or removes the condition `NonStructuralSchema`. Returns true if the status changed.
pub fn non_structural_schema(definition: &mut Json, now: Time) -> bool {
    const TYPE: &str = "NonStructuralSchema";
    let errors = validation::non_structural(definition);
    if errors.is_empty() {
        let had = find(definition, TYPE).is_some();
        remove_condition(definition, TYPE);
        return had;
    }
    let message = aggregate(&errors);
    let condition = Condition {
        condition_type: TYPE,
        status: "True",
        reason: "Violations",
        message: &message,
    };
    if says(definition, &condition) {
        return false;
    }
    set_condition(definition, &condition, now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, names: Json) -> Json {
        json!({
            "metadata": { "name": name, "generation": 4 },
            "spec": { "group": "example.com", "names": names, "versions": [
                { "name": "v1", "served": true, "storage": true },
            ] },
            "status": empty(),
        })
    }

    fn widgets() -> Json {
        let names = json!({ "plural": "widgets", "singular": "widget", "kind": "Widget",
            "listKind": "WidgetList", "shortNames": ["w"], "categories": ["all"] });
        definition("widgets.example.com", names)
    }

    fn at(seconds: i64) -> Time {
        Time::from_unix_seconds(seconds)
    }

    #[test]
    fn a_lone_definition_is_established() {
        let mut widgets = widgets();
        assert!(accept_names(&mut widgets, [], at(0)));
        assert_eq!(widgets["status"]["acceptedNames"], widgets["spec"]["names"]);
        assert_eq!(
            widgets["status"]["conditions"],
            json!([
                { "type": "NamesAccepted", "status": "True", "reason": "NoConflicts",
                  "message": "no conflicts found", "lastTransitionTime": "1970-01-01T00:00:00Z" },
                { "type": "Established", "status": "False", "reason": "Installing",
                  "message": "the initial names have been accepted",
                  "lastTransitionTime": "1970-01-01T00:00:00Z" },
            ])
        );
        assert!(establish(&mut widgets, at(5)));
        assert!(has_status(&widgets, "Established", "True"));
        let established = json!({ "type": "Established", "status": "True",
            "reason": "InitialNamesAccepted", "message": "the initial names have been accepted",
            "lastTransitionTime": "1970-01-01T00:00:05Z" });
        assert_eq!(widgets["status"]["conditions"][1], established);
        // A second call changes nothing.
        assert!(!accept_names(&mut widgets, [], at(9)));
        assert!(!establish(&mut widgets, at(9)));
    }

    #[test]
    fn names_others_have_are_not_accepted() {
        let mut first = widgets();
        accept_names(&mut first, [], at(0));
        let names = json!({ "plural": "gadgets", "singular": "widget", "kind": "Widget",
            "listKind": "GadgetList", "shortNames": ["w", "g", "widgets"] });
        let mut second = definition("gadgets.example.com", names);
        assert!(accept_names(&mut second, [&first], at(0)));
        let accepted = json!({ "plural": "gadgets", "kind": "", "listKind": "GadgetList" });
        assert_eq!(second["status"]["acceptedNames"], accepted);
        let conditions = &second["status"]["conditions"];
        // The last conflict is reported.
        assert_eq!(conditions[0]["reason"], "KindConflict");
        assert_eq!(conditions[0]["message"], "\"Widget\" is already in use");
        assert_eq!(conditions[1]["reason"], "NotAccepted");
        assert!(!establish(&mut second, at(1)));
        assert!(!accept_names(&mut second, [&first], at(1)));

        second["spec"]["names"]["kind"] = "Gadget".into();
        assert!(accept_names(&mut second, [&first], at(2)));
        let short_names = &second["status"]["conditions"][0];
        assert_eq!(short_names["reason"], "ShortNamesConflict");
        let message = "[\"w\" is already in use, \"widgets\" is already in use]";
        assert_eq!(short_names["message"], message);

        // Names are scoped to the group.
        first["spec"]["group"] = "other.com".into();
        assert!(accept_names(&mut second, [&first], at(3)));
        assert!(has_status(&second, "NamesAccepted", "True"));
    }

    #[test]
    fn an_established_definition_stays_so() {
        let mut first = widgets();
        accept_names(&mut first, [], at(0));
        establish(&mut first, at(0));
        let mut other = definition(
            "gadgets.example.com",
            json!({ "plural": "gadgets",
            "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList" }),
        );
        accept_names(&mut other, [&first], at(0));
        first["spec"]["names"]["kind"] = "Gadget".into();
        assert!(accept_names(&mut first, [&other], at(1)));
        assert!(has_status(&first, "NamesAccepted", "False"));
        assert!(has_status(&first, "Established", "True"));
        assert_eq!(first["status"]["acceptedNames"]["kind"], "Widget");
    }

    #[test]
    fn writes_keep_the_status() {
        let mut created = widgets();
        created["status"]["storedVersions"] = json!(["v7"]);
        prepare_create(&mut created);
        assert_eq!(created["metadata"]["generation"], 1);
        let status = json!({ "acceptedNames": { "kind": "", "plural": "" }, "conditions": null,
            "storedVersions": ["v1"] });
        assert_eq!(created["status"], status);

        let mut same = created.clone();
        same["status"] = json!({});
        prepare_update(&mut same, &created);
        assert_eq!(same, created);
        let mut changed = created.clone();
        changed["spec"]["versions"][0]["name"] = "v2".into();
        prepare_update(&mut changed, &created);
        assert_eq!(changed["metadata"]["generation"], 2);
        assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));

        let mut status_only = changed.clone();
        status_only["status"]["storedVersions"] = json!(["v2"]);
        prepare_status_update(&mut status_only, &created);
        assert_eq!(status_only["spec"], created["spec"]);
        assert_eq!(status_only["status"]["storedVersions"], json!(["v2"]));
    }

    #[test]
    fn groups_of_the_community_are_marked() {
        let mut definition = widgets();
        assert!(!api_approval(&mut definition, at(0)));
        definition["spec"]["group"] = "x.k8s.io".into();
        for (annotation, status, reason) in [
            ("", "False", "MissingAnnotation"),
            ("https://example.com/1", "True", "ApprovedAnnotation"),
            ("unapproved, experimental", "False", "UnapprovedAnnotation"),
            ("sure", "False", "InvalidAnnotation"),
        ] {
            let annotations = json!({ "api-approved.kubernetes.io": annotation });
            definition["metadata"]["annotations"] = annotations;
            assert!(api_approval(&mut definition, at(0)));
            assert!(!api_approval(&mut definition, at(0)));
            let found = &definition["status"]["conditions"][0];
            assert_eq!(
                (&found["status"], &found["reason"]),
                (&status.into(), &reason.into())
            );
        }
    }

    #[test]
    fn schemas_that_are_not_structural_are_marked() {
        let mut definition = widgets();
        definition["spec"]["versions"][0]["schema"] = json!({ "openAPIV3Schema": {} });
        assert!(non_structural_schema(&mut definition, at(0)));
        let found = &definition["status"]["conditions"][0];
        assert_eq!(found["type"], "NonStructuralSchema");
        let message = "spec.versions[0].schema.openAPIV3Schema.type: Required value: must not be \
                       empty at the root";
        assert_eq!(found["message"], message);
        assert!(!non_structural_schema(&mut definition, at(0)));
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = "object".into();
        assert!(non_structural_schema(&mut definition, at(0)));
        assert_eq!(definition["status"]["conditions"], json!([]));
    }

    #[test]
    fn a_bad_bundle_is_not_established() {
        let mut definition = widgets();
        definition["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
            "clientConfig": { "caBundle": "YWJj" },
        } });
        accept_names(&mut definition, [], at(0));
        assert!(establish(&mut definition, at(1)));
        let found = &definition["status"]["conditions"][1];
        assert_eq!(found["reason"], "InvalidCABundle");
        // The status did not change, so the time is unchanged.
        assert_eq!(found["lastTransitionTime"], "1970-01-01T00:00:00Z");
    }
}
