//! The fields of an object that the server owns.
//!
//! UPSTREAM: apiserver pkg/registry/rest/meta.go, pkg/storage/names/generate.go

use std::collections::HashSet;

use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_api::meta::time::Time;
use serde_json::{Map, Value, json};

use crate::error::{Outcome, bad_request};

/// The alphabet of generated names: without vowels, so that they contain no words, and without similar characters.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The length of a generated suffix.
const SUFFIX: usize = 5;
/// The maximum prefix length of a generated name.
const PREFIX_MAX: usize = 63 - SUFFIX;

/// The metadata of an object; `None` only if the value is not an object.
pub(crate) fn of(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

/// A string in the metadata, if any.
pub(crate) fn text<'o>(object: &'o Value, member: &str) -> &'o str {
    let found = of(object).and_then(|metadata| metadata.get(member));
    found.and_then(Value::as_str).unwrap_or_default()
}

/// Changes the metadata.
pub(crate) fn change(object: &mut Value, change: impl FnOnce(&mut Map<String, Value>)) {
    let Some(members) = object.as_object_mut() else {
        return;
    };
    let metadata = members
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    if let Some(metadata) = metadata.as_object_mut() {
        change(metadata);
    }
}

/// Sets a field of the metadata.
pub(crate) fn set(object: &mut Value, member: &str, value: impl Into<Value>) {
    change(object, |metadata| {
        metadata.insert(member.to_owned(), value.into());
    });
}

/// Removes fields that clients cannot set.
pub(crate) fn wipe_system_fields(object: &mut Value) {
    change(object, |metadata| {
        for member in [
            "creationTimestamp",
            "uid",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.remove(member);
        }
    });
}

/// Removes the selfLink of a changed object or a webhook's patch. Dry runs return it.
///
/// UPSTREAM: apiserver pkg/storage/util.go (PrepareObjectForStorage)
pub(crate) fn clear_self_link(object: &mut Value) {
    if object.pointer("/metadata/selfLink").is_some() {
        change(object, |metadata| {
            metadata.remove("selfLink");
        });
    }
}

/// Metadata that is not an object.
#[derive(Debug)]
pub(crate) struct NoMetadata;

/// Drops fields of the wrong type in the metadata of a custom resource, which a webhook's patch may contain: upstream
/// treats fields that it cannot decode as absent. Metadata that is not an object is dropped entirely.
///
/// UPSTREAM: apimachinery pkg/apis/meta/v1/unstructured/unstructured.go,
/// apiextensions-apiserver pkg/apiserver/schema/objectmeta/coerce.go (drops invalid fields)
pub(crate) fn drop_invalid(object: &mut Value) -> Result<(), NoMetadata> {
    let Some(metadata) = object.get_mut("metadata") else {
        return Ok(());
    };
    let Some(members) = metadata.as_object_mut() else {
        *metadata = json!({});
        return Err(NoMetadata);
    };
    members.retain(|name, value| match name.as_str() {
        "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "selfLink" => {
            value.is_string()
        }
        "generation" | "deletionGracePeriodSeconds" => value.is_i64() || value.is_u64(),
        "creationTimestamp" | "deletionTimestamp" => {
            value.is_null() || value.as_str().is_some_and(|text| Time::parse(text).is_ok())
        }
        "labels" | "annotations" => {
            let members = value.as_object();
            value.is_null() || members.is_some_and(|all| all.values().all(Value::is_string))
        }
        "finalizers" => {
            let items = value.as_array();
            value.is_null() || items.is_some_and(|all| all.iter().all(Value::is_string))
        }
        "ownerReferences" => value.is_null() || drop_invalid_references(value),
        "managedFields" => value.is_null() || are_entries(value),
        _ => true,
    });
    Ok(())
}

/// Returns true unless a webhook's patch has left undecodable managed fields in a custom resource: upstream treats
/// these as absent.
pub(crate) fn has_readable_managed_fields(object: &Value) -> bool {
    let list = of(object).and_then(|metadata| metadata.get("managedFields"));
    list.is_none_or(|list| list.is_null() || are_entries(list))
}

/// Returns true for a list of objects whose fields have the types of managed fields entries.
fn are_entries(list: &Value) -> bool {
    let texts = [
        "manager",
        "operation",
        "apiVersion",
        "fieldsType",
        "subresource",
    ];
    let is_entry = |entry: &Value| {
        let is_text = |name: &&str| {
            let member = entry.get(*name);
            member.is_none_or(|member| member.is_string() || member.is_null())
        };
        entry.is_object() && texts.iter().all(is_text)
    };
    list.as_array()
        .is_some_and(|list| list.iter().all(is_entry))
}

/// Drops fields of owner references that are not strings. Returns false if the list cannot be decoded.
fn drop_invalid_references(list: &mut Value) -> bool {
    let Some(references) = list.as_array_mut() else {
        return false;
    };
    references.iter_mut().all(|reference| {
        let Some(members) = reference.as_object_mut() else {
            return false;
        };
        let texts = ["apiVersion", "kind", "name", "uid"];
        members.retain(|name, value| !texts.contains(&name.as_str()) || value.is_string());
        let flags = ["controller", "blockOwnerDeletion"];
        flags.iter().all(|flag| {
            let value = members.get(*flag);
            value.is_none_or(|value| value.is_boolean() || value.is_null())
        })
    })
}

/// Uses the generateName prefix as the name of an object without a name.
pub(crate) fn name_plainly(object: &mut Value) {
    let prefix = text(object, "generateName").to_owned();
    if !prefix.is_empty() && text(object, "name").is_empty() {
        set(object, "name", prefix);
    }
}

/// Sets the UID and creation timestamp of an object, and generates a name if it has none.
pub(crate) fn fill(object: &mut Value) {
    let prefix = text(object, "generateName").to_owned();
    let needs_name = !prefix.is_empty() && text(object, "name").is_empty();
    change(object, |metadata| {
        metadata.insert(String::from("creationTimestamp"), now().to_string().into());
        metadata.insert(String::from("uid"), RandomIds.uid().into());
        if needs_name {
            metadata.insert(String::from("name"), generate_name(&prefix).into());
        }
    });
}

/// The current time in seconds.
pub(crate) fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    });
    Time::from_unix_seconds(seconds)
}

/// The current time in microseconds.
pub(crate) fn now_to_microsecond() -> String {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    let text = Time::from_unix_seconds(seconds).to_string();
    let whole = text.trim_end_matches('Z');
    format!("{whole}.{:06}Z", since.subsec_micros())
}

/// Generates a unique UID.
pub(crate) fn new_uid() -> String {
    RandomIds.uid()
}

fn generate_name(prefix: &str) -> String {
    let mut end = prefix.len().min(PREFIX_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = prefix[..end].to_owned();
    let random = RandomIds
        .uid()
        .bytes()
        .map(u64::from)
        .fold(seed(), |sum, byte| {
            sum.wrapping_mul(1_099_511_628_211) ^ byte
        });
    let letters = LETTERS.len() as u64;
    let mut rest = random;
    for _ in 0..SUFFIX {
        let index = usize::try_from(rest % letters).unwrap_or_default();
        name.push(char::from(LETTERS[index]));
        rest /= letters;
    }
    name
}

fn seed() -> u64 {
    14_695_981_039_346_656_037
}

/// Sets the namespace of an object to the request's.
pub(crate) fn match_namespace(object: &mut Value, expected: &str) -> Outcome<()> {
    let found = text(object, "namespace").to_owned();
    if found == expected {
        return Ok(());
    }
    if !found.is_empty() && !expected.is_empty() {
        return Err(bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    change(object, |metadata| {
        if expected.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert(String::from("namespace"), expected.into());
        }
    });
    Ok(())
}

/// Drops duplicate owner references, and returns the warning about them.
pub(crate) fn drop_duplicate_owner_references(
    object: &mut Value,
    after_admission: bool,
) -> Option<String> {
    let owners = of(object)?.get("ownerReferences")?.as_array()?;
    let mut seen = HashSet::with_capacity(owners.len());
    let is_new: Vec<bool> = owners
        .iter()
        .map(|owner| seen.insert(identity(owner)))
        .collect();
    // Once for each dropped one.
    let dropped = owners.iter().zip(&is_new).filter(|(_, is_new)| !**is_new);
    let twice: Vec<&str> = dropped
        .map(|(owner, _)| owner.get("uid").and_then(Value::as_str).unwrap_or_default())
        .collect();
    if twice.is_empty() {
        return None;
    }
    let kept: Vec<Value> = owners
        .iter()
        .zip(is_new)
        .filter(|(_, is_new)| *is_new)
        .map(|(owner, _)| owner.clone())
        .collect();
    let when = if after_admission {
        " after mutating admission happens"
    } else {
        ""
    };
    let warning = format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner \
         references in 1.20+, and may reject such requests as early as 1.24; please fix your \
         requests; duplicate UID(s) observed: {}",
        twice.join(", ")
    );
    set(object, "ownerReferences", kept);
    Some(warning)
}

/// The identity of an owner reference: all of its fields.
fn identity(owner: &Value) -> [Option<String>; 6] {
    let members = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    members.map(|member| owner.get(member).map(Value::to_string))
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = of(object)
        .and_then(|metadata| metadata.get("finalizers"))
        .and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// A number in the metadata.
pub(crate) fn number(object: &Value, member: &str) -> Option<i64> {
    of(object)?.get(member)?.as_i64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn makes_up_names() {
        let mut object = json!({"metadata": {"generateName": "x".repeat(70)}});
        fill(&mut object);
        let name = text(&object, "name");
        assert_eq!(name.len(), 63);
        assert!(
            name.ends_with(|letter: char| letter.is_ascii() && LETTERS.contains(&(letter as u8)))
        );
        assert!(!text(&object, "uid").is_empty());
        let mut named = json!({"metadata": {"generateName": "a-", "name": "b"}});
        fill(&mut named);
        assert_eq!(text(&named, "name"), "b");
    }

    #[test]
    fn keeps_namespaces_apart() {
        let mut object = json!({"metadata": {"namespace": "a"}});
        assert!(match_namespace(&mut object, "b").is_err());
        match_namespace(&mut object, "").unwrap();
        assert_eq!(object, json!({"metadata": {}}));
        match_namespace(&mut object, "b").unwrap();
        assert_eq!(text(&object, "namespace"), "b");
    }

    #[test]
    fn drops_owners_named_twice() {
        let owner = json!({"uid": "1", "name": "a"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner, {"uid": "2"}]}});
        let warning = drop_duplicate_owner_references(&mut object, true).unwrap();
        assert!(
            warning.ends_with("duplicate UID(s) observed: 1"),
            "{warning}"
        );
        assert!(warning.contains("entries after mutating admission happens;"));
        assert_eq!(
            object["metadata"]["ownerReferences"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert_eq!(drop_duplicate_owner_references(&mut object, true), None);
    }
}
