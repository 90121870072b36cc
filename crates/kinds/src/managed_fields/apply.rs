//! Server-side apply: a manager owns exactly the fields of its applied configuration.
//!
//! UPSTREAM: apimachinery pkg/util/managedfields/internal/{fieldmanager,versioncheck,
//! lastappliedupdater,lastappliedmanager,skipnonapplied,structuredmerge,conflict}.go,
//! structured-merge-diff merge/{update,conflict}.go

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use lockgate_api::meta::time::Time;

use crate::structural::json::compact;

use super::compare::{compare, fields};
use super::element::Element;
use super::field_set::FieldSet;
use super::managers::{self, Id, Manager, Managers, Operation};
use super::merge::merge;
use super::remove::{remove, with_named};
use super::shape::Ref;
use super::update::{Changed, Managed, unowned};
use super::validate::{Duplicates, validate};
use super::value::equal;
use super::{FieldManager, Problem};

/// The manager of fields that existed before tracking began.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager whose client-side apply is migrated.
const KUBECTL: &str = "kubectl";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The maximum total size of an object's annotations, in bytes.
// UPSTREAM: apimachinery pkg/api/validation/objectmeta.go (TotalAnnotationSizeLimitB)
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The maximum total length of conflict messages. Many conflicts at deep paths with long keys would take gigabytes.
const TEXT_BUDGET: usize = 1 << 20;

/// The error of an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// Other managers own fields that would change: 409, with one cause per field.
    Conflicts {
        /// The message of the response.
        message: String,
        /// The conflicting fields with their managers.
        causes: Vec<ConflictCause>,
    },
    /// The configuration is malformed: 400.
    BadRequest(String),
    /// The configuration does not match its type, or merging failed: 500.
    Other(String),
}

/// A field of another manager; the reason is `FieldManagerConflict`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictCause {
    /// The message, which names the manager.
    pub message: String,
    /// The path of the field.
    pub field: String,
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflicts { message, .. } | Self::BadRequest(message) | Self::Other(message) => {
                f.write_str(message)
            }
        }
    }
}

impl std::error::Error for ApplyError {}

/// The reason of a failed merge.
enum Failure {
    Conflicts(Vec<Conflict>),
    Bad(String),
    Other(String),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Other(problem.0)
    }
}

struct Conflict {
    field_manager: Id,
    path: Vec<Element>,
}

/// The result of an apply: an object and its managers, or only managers if the object is unchanged.
struct Applied {
    object: Option<Value>,
    managers: Managers,
    /// True if fields that existed before tracking began got a manager.
    tracks_before: bool,
}

impl FieldManager<'_> {
    /// Applies a configuration to an object, or creates it. The result has updated `metadata.managedFields`; the
    /// caller decodes and defaults it, and reports decoding errors with [`conversion_error`](Self::conversion_error).
    ///
    /// # Errors
    ///
    /// [`ApplyError`], with upstream's message.
    pub fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        manager: &str,
        force: bool,
        now: Time,
    ) -> Result<Value, ApplyError> {
        let applied = self.timed_apply(live, config, manager, force, now)?;
        Ok(applied.object)
    }

    /// Like [`apply`](Self::apply); the result tells if the write set a time.
    ///
    /// # Errors
    ///
    /// [`ApplyError`], with upstream's messages.
    pub fn timed_apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        manager: &str,
        force: bool,
        now: Time,
    ) -> Result<Managed, ApplyError> {
        let list = live.and_then(managers::list_of).unwrap_or_default();
        let known = Managers::decode(list).map_err(|problem| {
            ApplyError::Other(format!("failed to decode managed fields: {problem}"))
        })?;
        for object in live.iter().copied().chain([config]) {
            Problem::if_too_deep(object).map_err(|problem| ApplyError::Other(problem.0))?;
        }
        let live = match live {
            Some(live) => without_owners(live),
            None => self.unset(),
        };
        let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("apiVersion") != self.api_version || text("kind") != self.kind {
            return Err(ApplyError::BadRequest(format!(
                "invalid object type: {}",
                kind_shown(text("apiVersion"), text("kind"))
            )));
        }
        let first = self.try_apply(&live, config, known.clone(), manager, force, now);
        let applied = match first {
            Err(Failure::Conflicts(conflicts)) if manager == KUBECTL => {
                match self.remaining_conflicts(&live, conflicts) {
                    Ok(()) => self.try_apply(&live, config, known, manager, true, now),
                    Err(conflicts) => Err(Failure::Conflicts(conflicts)),
                }
            }
            other => other,
        };
        let Applied {
            object,
            managers,
            tracks_before,
        } = applied.map_err(|failure| match failure {
            Failure::Conflicts(conflicts) => worded(conflicts),
            Failure::Bad(message) => ApplyError::BadRequest(message),
            Failure::Other(message) => ApplyError::Other(message),
        })?;
        let sets_time = object.is_some() || tracks_before;
        let mut object = object.unwrap_or(live);
        if manager == KUBECTL {
            update_last_applied(&mut object, config);
        }
        managers::set_list(&mut object, managers.encode());
        Ok(Managed { object, sets_time })
    }

    /// The error of a configuration whose merged object cannot be decoded.
    #[must_use]
    pub fn conversion_error(&self, config: &Value, problem: &str) -> ApplyError {
        ApplyError::Other(format!(
            "failed to convert new object ({}) to proper version: {problem}",
            self.shown(config)
        ))
    }

    fn try_apply(
        &self,
        live: &Value,
        config: &Value,
        mut managers: Managers,
        manager: &str,
        force: bool,
        now: Time,
    ) -> Result<Applied, Failure> {
        let mut tracks_before = false;
        if managers.is_empty() {
            let unset = self.unset();
            (managers, tracks_before) = self
                .track(&unset, live, managers, BEFORE_FIRST_APPLY, now)
                .map_err(Problem::of("failed to create manager for existing fields"))?;
        }
        if managers::list_of(config).is_some() {
            return Err(Failure::Bad(String::from(
                "metadata.managedFields must be nil",
            )));
        }
        let ty = self.shape.root();
        validate(ty, config, Duplicates::Refused).map_err(self.failed(
            "failed to create typed patch object",
            config,
            "",
        ))?;
        validate(ty, live, Duplicates::Allowed).map_err(self.failed(
            "failed to create typed live object",
            live,
            "",
        ))?;
        let manager = if manager.is_empty() {
            "unknown"
        } else {
            manager
        };
        let id = Id::new(
            manager,
            Operation::Apply,
            self.api_version,
            self.subresource,
        );
        let time_before = managers
            .get(&id)
            .and_then(|field_manager| field_manager.time);
        let mut managers = self.reconciled(live, managers)?;
        let merged = merge(ty, live, config);
        let last = managers.get(&id).cloned();
        let wanted = fields(ty, config);
        managers.put(Manager {
            id: id.clone(),
            api_version: self.api_version.to_owned(),
            fields: self.without_reset(wanted, self.api_version),
            time: time_before,
        });
        let merged = self
            .prune(merged, &managers, last)
            .map_err(Problem::of("failed to prune fields"))?;
        let Changed { theirs, .. } =
            self.compare_for_managers(live, &merged, &managers, Some(&id))?;
        if !force {
            let conflicts: Vec<_> = managers
                .list
                .iter()
                .zip(&theirs)
                .filter(|(_, loss)| !loss.conflicts.is_empty())
                .collect();
            if !conflicts.is_empty() {
                let mut found = Vec::new();
                for (field_manager, loss) in conflicts {
                    loss.conflicts.for_each(&mut |path| {
                        found.push(Conflict {
                            field_manager: field_manager.id.clone(),
                            path: path.iter().copied().cloned().collect(),
                        });
                    });
                }
                return Err(Failure::Conflicts(found));
            }
        }
        managers.give_up(&theirs);
        if let Some(mut field_manager) = managers.take(&id) {
            field_manager.fields = field_manager.fields.difference(unowned());
            if !field_manager.fields.is_empty() {
                managers.put(field_manager);
            }
        }
        if equal(live, &merged) {
            return Ok(Applied {
                object: None,
                managers,
                tracks_before,
            });
        }
        for field_manager in &mut managers.list {
            if field_manager.id == id {
                field_manager.time = Some(now);
            }
        }
        Ok(Applied {
            object: Some(merged),
            managers,
            tracks_before,
        })
    }

    /// Removes fields that the manager applied last time, omits now, and that no other manager owns.
    fn prune(
        &self,
        merged: Value,
        managers: &Managers,
        last: Option<Manager>,
    ) -> Result<Value, Problem> {
        let Some(last) = last.filter(|last| !last.fields.is_empty()) else {
            return Ok(merged);
        };
        let version = last.api_version.as_str();
        let converted = self.convert(&merged, version).map_err(Problem::of(
            "failed to convert merged object to last applied version",
        ))?;
        let (Some(ty), Some(converted)) = (self.type_at(version), converted) else {
            return Ok(merged);
        };
        let last_fields = with_named(ty, last.fields);
        let pruned = remove(ty, &converted, &last_fields);
        let pruned = self
            .add_back_owned(&converted, pruned, version, managers)
            .map_err(Problem::of("failed add back owned items"))?;
        let pruned = self.convert(&pruned, version).map_err(Problem::of(
            "failed add back dangling items: failed to convert pruned object to last applied \
             version",
        ))?;
        // Unowned fields, and fields of updaters, are kept.
        let pruned = match pruned {
            Some(pruned) => {
                let kept = named_fields(ty, &pruned);
                let gone = named_fields(ty, &converted).difference(&kept);
                remove(ty, &converted, &gone.intersection(&last_fields))
            }
            None => converted.into_owned(),
        };
        match self.convert(&pruned, self.api_version)? {
            Some(Cow::Owned(pruned)) => Ok(pruned),
            Some(Cow::Borrowed(_)) => Ok(pruned),
            None => Err(Problem(format!(
                "no corresponding type for {}",
                kind_shown(self.api_version, self.kind)
            ))),
        }
    }

    /// Adds back fields of other managers, in their versions.
    fn add_back_owned(
        &self,
        merged: &Value,
        mut pruned: Value,
        first: &str,
        managers: &Managers,
    ) -> Result<Value, Problem> {
        let mut by_version: BTreeMap<&str, Vec<FieldSet>> = BTreeMap::new();
        for field_manager in &managers.list {
            let fields = by_version.entry(&field_manager.api_version).or_default();
            fields.push(field_manager.fields.clone());
        }
        // Conversion may need removed fields, so the current version comes first.
        let own = by_version.remove(first).map(|fields| (first, fields));
        for (version, owned) in own.into_iter().chain(by_version) {
            let owned = FieldSet::union_of(owned);
            let failed = |which| {
                Problem::of(format!(
                    "failed to convert {which} object at version {version}"
                ))
            };
            let merged = self.convert(merged, version).map_err(failed("merged"))?;
            let (Some(ty), Some(merged)) = (self.type_at(version), merged) else {
                continue;
            };
            let Some(kept) = self.convert(&pruned, version).map_err(failed("pruned"))? else {
                continue;
            };
            let kept = named_fields(ty, &kept).union(with_named(ty, owned));
            let gone = named_fields(ty, &merged).difference(&kept);
            pruned = remove(ty, &merged, &gone);
        }
        Ok(pruned)
    }

    /// The conflicts except those caused by kubectl's own client-side apply of the same fields.
    fn remaining_conflicts(
        &self,
        live: &Value,
        conflicts: Vec<Conflict>,
    ) -> Result<(), Vec<Conflict>> {
        let Some(allowed) = self.last_applied_fields(live) else {
            return Err(conflicts);
        };
        let rest: Vec<_> = conflicts
            .into_iter()
            .filter(|conflict| !allowed.contains(&conflict.path))
            .collect();
        if rest.is_empty() { Ok(()) } else { Err(rest) }
    }

    /// The fields of the last client-side apply whose values are unchanged.
    fn last_applied_fields(&self, live: &Value) -> Option<FieldSet> {
        let ty = self.shape.root();
        let last = last_applied(live)?;
        validate(ty, live, Duplicates::Refused).ok()?;
        let last: Value = serde_json::from_str(last).ok()?;
        let text = |name: &str| last.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("apiVersion") != self.api_version || text("kind") != self.kind {
            return None;
        }
        validate(ty, &last, Duplicates::Refused).ok()?;
        let set = fields(ty, &last);
        let found = compare(ty, &last, live);
        Some(
            set.difference(&found.modified)
                .difference(&found.added)
                .difference(&found.removed),
        )
    }

    pub(super) fn shown(&self, object: &Value) -> String {
        let text = |name: &str| {
            let metadata = object.get("metadata");
            let text = metadata.and_then(|metadata| metadata.get(name)?.as_str());
            text.unwrap_or_default()
        };
        format!(
            "{}/{}; {}",
            text("namespace"),
            text("name"),
            kind_shown(self.api_version, self.kind)
        )
    }
}

fn named_fields(ty: Ref<'_>, object: &Value) -> FieldSet {
    with_named(ty, fields(ty, object))
}

fn kind_shown(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

fn without_owners(live: &Value) -> Value {
    let mut live = live.clone();
    managers::set_list(&mut live, None);
    live
}

fn worded(mut conflicts: Vec<Conflict>) -> ApplyError {
    conflicts.sort_by_cached_key(|conflict| conflict.field_manager.sort_key());
    let shown = |path: &[Element]| path.iter().map(Element::to_string).collect::<String>();
    let count = conflicts.len();
    let mut left = TEXT_BUDGET;
    let mut causes = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    let mut field_manager: Option<&Id> = None;
    for conflict in &conflicts {
        let field = shown(&conflict.path);
        if field.len() > left {
            break;
        }
        left -= field.len();
        if field_manager != Some(&conflict.field_manager) {
            lines.push(format!(
                "conflicts with {}:",
                conflict.field_manager.shown()
            ));
            field_manager = Some(&conflict.field_manager);
        }
        lines.push(format!("- {field}"));
        causes.push(ConflictCause {
            message: format!("conflict with {}", conflict.field_manager.shown()),
            field,
        });
    }
    let message = match (count, causes.first()) {
        (1, Some(cause)) => {
            format!(
                "Apply failed with 1 conflict: {}: {}",
                cause.message, cause.field
            )
        }
        _ => format!("Apply failed with {count} conflicts: {}", lines.join("\n")),
    };
    ApplyError::Conflicts { message, causes }
}

fn last_applied(object: &Value) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    let text = annotations.get(LAST_APPLIED)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// Updates the last-applied annotation of client-side apply, if present.
fn update_last_applied(object: &mut Value, config: &Value) {
    if last_applied(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        match annotations_of(metadata) {
            Some(annotations) => {
                annotations.remove(LAST_APPLIED);
            }
            None => {
                metadata.remove("annotations");
            }
        }
    }
    let text = compact(&config) + "\n";
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(annotations) = metadata.and_then(annotations_of) else {
        return;
    };
    annotations.insert(LAST_APPLIED.to_owned(), json!(text));
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

/// The annotations of an object; null values are replaced by empty strings.
fn annotations_of(metadata: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    for value in annotations.values_mut().filter(|value| value.is_null()) {
        *value = json!("");
    }
    Some(annotations)
}
