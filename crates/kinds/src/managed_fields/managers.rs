//! Decoding and encoding of `metadata.managedFields`.
//!
//! UPSTREAM: apimachinery pkg/util/managedfields/internal/managedfields.go

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use lockgate_api::meta::time::Time;
use lockgate_go::json::to_string;
use lockgate_go::quote::quote;

use crate::tree;

use super::field_set::{FieldSet, FieldSetError};

/// The operation of a managed fields entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of a field manager. An applier is the same manager in all versions, so its `api_version` is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Id {
    pub(super) fn new(
        manager: &str,
        operation: Operation,
        api_version: &str,
        subresource: &str,
    ) -> Self {
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => api_version.to_owned(),
            },
            subresource: subresource.to_owned(),
        }
    }

    /// Upstream's sort key of managers.
    pub(super) fn sort_key(&self) -> String {
        let members = [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.name()),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ];
        let members: Vec<_> = members
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("\"{name}\":{}", to_string(value)))
            .collect();
        format!("{{{}}}", members.join(","))
    }

    /// The manager as conflicts name it.
    pub(super) fn shown(&self) -> String {
        let mut text = quote(&self.manager);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {}", quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            text = format!("{text} using {}", self.api_version);
        }
        text
    }
}

/// A manager and its fields.
#[derive(Debug, Clone)]
pub(super) struct Manager {
    pub(super) id: Id,
    /// The version of the field names.
    pub(super) api_version: String,
    pub(super) fields: FieldSet,
    pub(super) time: Option<Time>,
}

impl Manager {
    pub(super) fn has_applied(&self) -> bool {
        self.id.operation == Operation::Apply
    }

    pub(super) fn seconds(&self) -> i64 {
        self.time.map_or(0, Time::unix_seconds)
    }
}

/// All managers of an object, with unique [`Id`]s.
#[derive(Debug, Clone, Default)]
pub(super) struct Managers {
    pub(super) list: Vec<Manager>,
}

impl Managers {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn get(&self, id: &Id) -> Option<&Manager> {
        self.list
            .iter()
            .find(|field_manager| field_manager.id == *id)
    }

    /// Removes a manager.
    pub(super) fn take(&mut self, id: &Id) -> Option<Manager> {
        let at = self
            .list
            .iter()
            .position(|field_manager| field_manager.id == *id)?;
        Some(self.list.swap_remove(at))
    }

    /// Adds or replaces a manager.
    pub(super) fn put(&mut self, field_manager: Manager) {
        match self
            .list
            .iter_mut()
            .find(|other| other.id == field_manager.id)
        {
            Some(other) => *other = field_manager,
            None => self.list.push(field_manager),
        }
    }

    /// The managers by identity.
    pub(super) fn into_map(self) -> BTreeMap<Id, Manager> {
        let list = self.list.into_iter();
        list.map(|field_manager| (field_manager.id.clone(), field_manager))
            .collect()
    }

    /// Decodes the list of entries.
    pub(super) fn decode(list: &[Value]) -> Result<Self, ManagedFieldsError> {
        let mut managers = BTreeMap::new();
        for (at, entry) in list.iter().enumerate() {
            let field_manager = decode_entry(entry, at)?;
            managers.insert(field_manager.id.clone(), field_manager);
        }
        Ok(managers.into())
    }

    /// Encodes the list of entries; `None` if it is empty.
    pub(super) fn encode(mut self) -> Option<Value> {
        if self.list.is_empty() {
            return None;
        }
        // Identities are unique, so this order is total.
        self.list.sort_by(|left, right| {
            (left.id.operation.cmp(&right.id.operation))
                .then_with(|| left.seconds().cmp(&right.seconds()))
                .then_with(|| left.id.manager.cmp(&right.id.manager))
                .then_with(|| left.api_version.cmp(&right.api_version))
                .then_with(|| left.id.subresource.cmp(&right.id.subresource))
        });
        Some(self.list.into_iter().map(encode_entry).collect())
    }
}

/// Clients can send as many entries as fit into an object, so operations on all managers use a map.
impl From<BTreeMap<Id, Manager>> for Managers {
    fn from(managers: BTreeMap<Id, Manager>) -> Self {
        Self {
            list: managers.into_values().collect(),
        }
    }
}

/// The error of undecodable managed fields, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    /// The operation of an entry is unknown.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry has no `apiVersion`.
    #[error("apiVersion must not be empty")]
    NoApiVersion,
    /// An entry has no `fieldsType`.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// The `fieldsType` of an entry is unknown.
    #[error("invalid fieldsType {} in managed fields entry {at}", quote(.found))]
    FieldsType {
        /// The `fieldsType`.
        found: String,
        /// The index of the entry.
        at: usize,
    },
    /// The field set of an entry is invalid.
    #[error("error decoding versioned set from {manager}: error decoding set: {error}")]
    Fields {
        /// The manager.
        manager: String,
        /// The error of the field set.
        error: FieldSetError,
    },
}

fn decode_entry(entry: &Value, at: usize) -> Result<Manager, ManagedFieldsError> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(ManagedFieldsError::Operation),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(ManagedFieldsError::NoApiVersion);
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(ManagedFieldsError::NoFieldsType(at)),
        other => {
            let found = other.to_owned();
            return Err(ManagedFieldsError::FieldsType { found, at });
        }
    }
    let id = Id::new(text("manager"), operation, api_version, text("subresource"));
    let fields = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::default(),
        Some(fields) => {
            FieldSet::from_value(fields).map_err(|error| ManagedFieldsError::Fields {
                manager: id.sort_key(),
                error,
            })?
        }
    };
    Ok(Manager {
        id,
        api_version: api_version.to_owned(),
        fields,
        time: Time::parse(text("time")).ok(),
    })
}

fn encode_entry(field_manager: Manager) -> Value {
    let Manager {
        id,
        api_version,
        fields,
        time,
    } = field_manager;
    let mut out = Map::new();
    let mut text = |name: &str, value: Cow<'_, str>| {
        if !value.is_empty() {
            out.insert(name.to_owned(), Value::String(value.into_owned()));
        }
    };
    text("apiVersion", api_version.into());
    text("fieldsType", "FieldsV1".into());
    text("manager", id.manager.into());
    text("operation", id.operation.name().into());
    text("subresource", id.subresource.into());
    if let Some(time) = time {
        text("time", time.to_string().into());
    }
    out.insert(String::from("fieldsV1"), fields.to_value());
    Value::Object(out)
}

/// The managed fields of an object, if any.
pub(super) fn list_of(object: &Value) -> Option<&[Value]> {
    let list = object.get("metadata")?.get("managedFields")?;
    list.as_array().map(Vec::as_slice)
}

/// Removes the managed fields from an object.
pub(super) fn take_list(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields")
}

/// Sets or removes the managed fields of an object.
pub(super) fn set_list(object: &mut Value, list: Option<Value>) {
    tree::dismantle(take_list(object).unwrap_or_default());
    let (Some(list), Some(object)) = (list, object.as_object_mut()) else {
        return;
    };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert(String::from("managedFields"), list);
    }
}
