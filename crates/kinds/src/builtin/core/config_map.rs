//! ConfigMaps.

use crate::cells::Cell;
use crate::checks::{check_config_key, invalid_each};
use crate::kind::{Context, Kind, Resource, Written, namespaced};
use crate::object::{Object, flag, get};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_go::base64;
use serde_json::Value;

pub(super) const CONFIG_MAPS: Resource = namespaced(
    "",
    "v1",
    "configmaps",
    "configmap",
    "ConfigMap",
    "ConfigMapList",
    &ConfigMap,
)
.short(&["cm"]);

/// The kind `ConfigMap`.
#[derive(Debug)]
pub(super) struct ConfigMap;

impl Kind for ConfigMap {
    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata_update(new, old);
        if subresource.is_empty() {
            config_map_update(&mut errors, new.object(), old.object());
            errors.extend(self.validate_create(new, context));
        }
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        config_map(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Data|Age"
    }

    fn cells(&self) -> Option<&'static [Cell]> {
        Some(&[Cell::Name, Cell::Count(&["data", "binaryData"]), Cell::Age])
    }
}

/// The maximum total size of data in a ConfigMap or Secret, in bytes.
///
/// UPSTREAM: pkg/apis/core/types.go (MaxSecretSize).
pub(super) const MAX_DATA: usize = 1024 * 1024;

fn config_map(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let data = get(object, "data").unwrap_or(&empty);
    let binary = get(object, "binaryData").unwrap_or(&empty);
    let mut size = 0;
    let path = Path::root("data");
    for (key, value) in data {
        let key_path = path.key(key);
        invalid_each(errors, &key_path, key, check_config_key(key));
        if binary.contains_key(key) {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(&key_path, Shown::Text(key), detail));
        }
        size += value.as_str().map_or(0, str::len);
    }
    size += bytes(errors, binary, &Path::root("binaryData"));
    if size > MAX_DATA {
        // Upstream reports this error at an empty path, printed as `[]`.
        errors.push(FieldError::too_long(&Path::root("[]"), MAX_DATA));
    }
}

/// Validates the keys of binary data, and returns its size.
pub(super) fn bytes(errors: &mut FieldErrors, data: &Object, path: &Path<'_>) -> usize {
    let mut size = 0;
    for (key, value) in data {
        invalid_each(errors, &path.key(key), key, check_config_key(key));
        let text = value.as_str().unwrap_or_default();
        size += base64::decode(text).map_or(0, |bytes| bytes.len());
    }
    size
}

fn config_map_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    validate_immutable(errors, object, old, &["data", "binaryData"]);
}

/// Data and the flag itself are immutable once `immutable` is set.
pub(super) fn validate_immutable(
    errors: &mut FieldErrors,
    object: &Object,
    old: &Object,
    members: &[&str],
) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !flag(old, "immutable") {
        return;
    }
    if !flag(object, "immutable") {
        errors.push(FieldError::forbidden(&Path::root("immutable"), DETAIL));
    }
    for member in members {
        // UPSTREAM: pkg/apis/core/v1/defaults.go (SetDefaults_ConfigMap): `data` defaults to an empty map.
        let empty = Value::Object(Object::new());
        let of = |object: &Object| match object.get(*member) {
            None if *member == "data" => Some(empty.clone()),
            value => value.cloned(),
        };
        if of(object) != of(old) {
            errors.push(FieldError::forbidden(&Path::root(member), DETAIL));
        }
    }
}
