//! Managed fields of writes other than apply.
//!
//! UPSTREAM: apimachinery pkg/util/managedfields/internal/{fieldmanager,skipnonapplied,capmanagers,
//! managedfieldsupdater,stripmeta,structuredmerge}.go, structured-merge-diff merge/update.go

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Value, json};

use lockgate_api::meta::time::Time;

use crate::tree;

use super::compare::{Comparison, compare};
use super::field_set::FieldSet;
use super::managers::{self, Id, Manager, Managers, Operation};
use super::reconcile::reconcile;
use super::shape::{Ref, Shape};
use super::validate::{Duplicates, validate};
use super::{FieldManager, Problem};

/// The maximum number of updaters; the oldest entries beyond it are merged.
const MAX_UPDATERS: usize = 10;

/// The manager of merged entries of old updaters.
const ANCIENT: &str = "ancient-changes";

/// Fields that are never owned.
pub(super) fn unowned() -> &'static FieldSet {
    static SET: OnceLock<FieldSet> = OnceLock::new();
    SET.get_or_init(|| {
        FieldSet::of(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    })
}

/// An object after its managed fields were updated.
#[derive(Debug, Clone, PartialEq)]
pub struct Managed {
    /// The object with its managed fields.
    pub object: Value,
    /// True if the write set the time of an entry. Managers that only lose fields keep theirs.
    pub sets_time: bool,
}

impl FieldManager<'_> {
    /// Sets `metadata.managedFields` of a created, updated or patched object. `live` is the old object; `None` on
    /// create.
    ///
    /// The object is in Go's JSON format, without fields that the strategy resets. Its own managed fields count, so
    /// that clients can edit them: `[]` and `[{}]` end tracking, undecodable ones are ignored. If tracking fails, the
    /// object has no managed fields afterwards.
    #[must_use]
    pub fn update(&self, live: Option<&Value>, new: Value, manager: &str, now: Time) -> Value {
        self.timed_update(live, new, manager, now).object
    }

    /// Like [`update`](Self::update); the result tells if the write set a time.
    #[must_use]
    pub fn timed_update(
        &self,
        live: Option<&Value>,
        mut new: Value,
        manager: &str,
        now: Time,
    ) -> Managed {
        let edited = managers::take_list(&mut new).unwrap_or_default();
        let known = self.previous_managers(live, edited.as_array().map(Vec::as_slice));
        // The depth of managed fields from clients is unbounded.
        tree::dismantle(edited);
        let has_uid = live
            .and_then(|live| live.get("metadata")?.get("uid")?.as_str())
            .is_some_and(|uid| !uid.is_empty());
        // An existing object without managed fields is not tracked.
        if known.is_empty() && has_uid {
            return Managed {
                object: new,
                sets_time: false,
            };
        }
        let live = match live {
            Some(live) => Cow::Borrowed(live),
            None => Cow::Owned(self.unset()),
        };
        let tracked = self.track(&live, &new, known, manager, now).ok();
        let (list, sets_time) = tracked.map_or((None, false), |(list, sets_time)| {
            (list.encode(), sets_time)
        });
        managers::set_list(&mut new, list);
        Managed {
            object: new,
            sets_time,
        }
    }

    /// The managers before the write.
    fn previous_managers(&self, live: Option<&Value>, edited: Option<&[Value]>) -> Managers {
        if self.subresource.is_empty() {
            match edited {
                Some([]) => return Managers::default(),
                Some([Value::Object(entry)]) if entry.is_empty() => return Managers::default(),
                _ => {}
            }
            let edited = edited.and_then(|list| Managers::decode(list).ok());
            if let Some(managers) = edited.filter(|managers| !managers.is_empty()) {
                return managers;
            }
        }
        live.and_then(managers::list_of)
            .and_then(|list| Managers::decode(list).ok())
            .unwrap_or_default()
    }

    /// An empty object of this kind.
    pub(super) fn unset(&self) -> Value {
        let mut object = match self.shape {
            Shape::BuiltIn(ty) => ty.zero(),
            Shape::Custom(_) | Shape::Deduced => json!({}),
        };
        if let Some(members) = object.as_object_mut() {
            members.insert(String::from("apiVersion"), self.api_version.into());
            members.insert(String::from("kind"), self.kind.into());
        }
        object
    }

    /// The managers after a change by `manager`, and true if it took fields at the time `now`.
    pub(super) fn track(
        &self,
        live: &Value,
        new: &Value,
        managers: Managers,
        manager: &str,
        now: Time,
    ) -> Result<(Managers, bool), Problem> {
        Problem::if_too_deep(live)?;
        Problem::if_too_deep(new)?;
        let ty = self.shape.root();
        validate(ty, new, Duplicates::Allowed).map_err(self.failed(
            "failed to convert new object",
            new,
            " to smd typed",
        ))?;
        validate(ty, live, Duplicates::Allowed).map_err(self.failed(
            "failed to convert live object",
            live,
            " to smd typed",
        ))?;
        let failed = self.failed("failed to update ManagedFields", new, "");
        let mut managers = self.reconciled(live, managers).map_err(&failed)?;
        let change = self.compare_for_managers(live, new, &managers, None);
        let Changed { ours, theirs } = change.map_err(&failed)?;
        managers.give_up(&theirs);
        let fields = ours.modified.union(ours.added);
        let fields = self.without_reset(fields, self.api_version);
        let fields = fields.difference(unowned());
        let sets_time = !fields.is_empty();
        if sets_time {
            let manager = if manager.is_empty() {
                "unknown"
            } else {
                manager
            };
            let id = Id::new(
                manager,
                Operation::Update,
                self.api_version,
                self.subresource,
            );
            let before = managers.take(&id).map(|field_manager| field_manager.fields);
            managers.put(Manager {
                id,
                api_version: self.api_version.to_owned(),
                fields: fields.union(before.unwrap_or_default()),
                time: Some(now),
            });
        }
        managers.cap();
        Ok((managers, sets_time))
    }

    /// The error about an object, with upstream's message.
    pub(super) fn failed<'f>(
        &'f self,
        what: &'static str,
        object: &'f Value,
        how: &'static str,
    ) -> impl Fn(Problem) -> Problem + 'f {
        move |problem| {
            Problem(format!(
                "{what} ({}){how}: {}",
                self.shown(object),
                problem.0
            ))
        }
    }

    /// The managers, reconciled with the current schema. Entries in unknown versions are dropped.
    pub(super) fn reconciled(&self, live: &Value, managers: Managers) -> Result<Managers, Problem> {
        let mut list = Vec::with_capacity(managers.list.len() + 1);
        let mut is_known: BTreeMap<String, bool> = BTreeMap::new();
        for mut field_manager in managers.list {
            let is_known = match is_known.get(&field_manager.api_version) {
                Some(is_known) => *is_known,
                None => {
                    let found = self.convert(live, &field_manager.api_version)?.is_some();
                    is_known.insert(field_manager.api_version.clone(), found);
                    found
                }
            };
            if !is_known {
                continue;
            }
            let Some(ty) = self.type_at(&field_manager.api_version) else {
                continue;
            };
            reconcile(ty, &mut field_manager.fields);
            list.push(field_manager);
        }
        Ok(Managers { list })
    }

    /// The type of the object in a version.
    pub(super) fn type_at(&self, api_version: &str) -> Option<Ref<'_>> {
        if api_version == self.api_version {
            return Some(self.shape.root());
        }
        self.versions.shape(api_version).map(Shape::root)
    }

    /// Converts the object to a version; `None` if that version is unknown.
    pub(super) fn convert<'v>(
        &self,
        object: &'v Value,
        api_version: &str,
    ) -> Result<Option<Cow<'v, Value>>, Problem> {
        let current = object.get("apiVersion").and_then(Value::as_str);
        if current.unwrap_or(self.api_version) == api_version {
            return Ok(Some(Cow::Borrowed(object)));
        }
        if api_version.split('/').count() > 2 {
            return Err(Problem(format!(
                "unexpected GroupVersion string: {api_version}"
            )));
        }
        let converted = self.versions.convert(object, api_version);
        let Some(converted) = converted.map_err(|error| Problem(error.to_string()))? else {
            return Ok(None);
        };
        let Some(ty) = self.type_at(api_version) else {
            return Ok(None);
        };
        if let Err(problem) = Problem::if_too_deep(&converted) {
            tree::dismantle(converted);
            return Err(problem);
        }
        validate(ty, &converted, Duplicates::Refused)?;
        Ok(Some(Cow::Owned(converted)))
    }

    pub(super) fn without_reset(&self, fields: FieldSet, api_version: &str) -> FieldSet {
        let reset = if api_version == self.api_version {
            self.reset
        } else {
            self.versions.reset(api_version)
        };
        match reset {
            Some(reset) => reset.filter(fields),
            None => fields,
        }
    }

    /// Compares two objects in the versions of all managers except one.
    pub(super) fn compare_for_managers(
        &self,
        old: &Value,
        new: &Value,
        managers: &Managers,
        except: Option<&Id>,
    ) -> Result<Changed, Problem> {
        let compare_at = |old: &Value, new: &Value, api_version: &str| {
            let found = compare(self.type_at(api_version)?, old, new);
            let keep = |fields| self.without_reset(fields, api_version);
            Some(Comparison {
                added: keep(found.added),
                modified: keep(found.modified),
                removed: keep(found.removed),
            })
        };
        let ours = compare_at(old, new, self.api_version).unwrap_or_default();
        let mut others: BTreeMap<&str, Option<Comparison>> = BTreeMap::new();
        let mut theirs = Vec::with_capacity(managers.list.len());
        for field_manager in &managers.list {
            if except == Some(&field_manager.id) {
                theirs.push(Loss::default());
                continue;
            }
            let version = field_manager.api_version.as_str();
            let comparison = if version == self.api_version {
                Some(&ours)
            } else {
                if !others.contains_key(version) {
                    let failed = |which| Problem::of(format!("failed to convert {which} object"));
                    let old = self.convert(old, version).map_err(failed("old"))?;
                    let new = self.convert(new, version).map_err(failed("new"))?;
                    let comparison = match (old, new) {
                        (Some(old), Some(new)) => compare_at(&old, &new, version),
                        _ => None,
                    };
                    others.insert(version, comparison);
                }
                others.get(version).and_then(Option::as_ref)
            };
            theirs.push(match comparison {
                Some(found) => Loss {
                    conflicts: field_manager
                        .fields
                        .intersection(&found.modified)
                        .union(field_manager.fields.intersection(&found.added)),
                    removed: field_manager.fields.intersection(&found.removed),
                    all: false,
                },
                None => Loss {
                    all: true,
                    ..Loss::default()
                },
            });
        }
        Ok(Changed { ours, theirs })
    }
}

/// The result of an update.
#[derive(Debug)]
pub(super) struct Changed {
    /// The differences in the version of the request.
    pub(super) ours: Comparison,
    /// The fields that each manager loses, in the order of managers.
    pub(super) theirs: Vec<Loss>,
}

/// The fields that a manager loses.
#[derive(Debug, Default)]
pub(super) struct Loss {
    /// Fields that another manager changed.
    pub(super) conflicts: FieldSet,
    /// Removed fields.
    removed: FieldSet,
    /// True if the manager's version is no longer served, so that it loses all fields.
    all: bool,
}

impl Managers {
    /// Removes the lost fields from every manager.
    pub(super) fn give_up(&mut self, losses: &[Loss]) {
        for (field_manager, loss) in self.list.iter_mut().zip(losses) {
            let fields = std::mem::take(&mut field_manager.fields);
            if !loss.all {
                field_manager.fields = fields.difference(&loss.conflicts).difference(&loss.removed);
            }
        }
        self.list
            .retain(|field_manager| !field_manager.fields.is_empty());
    }

    /// Merges the oldest updaters beyond the maximum, each into an entry of its version.
    fn cap(&mut self) {
        let updaters = self
            .list
            .iter()
            .filter(|field_manager| !field_manager.has_applied());
        let mut count = updaters.clone().count();
        if count <= MAX_UPDATERS {
            return;
        }
        let mut updaters: Vec<_> = updaters
            .map(|field_manager| {
                (
                    field_manager.seconds(),
                    field_manager.id.sort_key(),
                    field_manager.id.clone(),
                )
            })
            .collect();
        updaters.sort_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
        let mut managers = std::mem::take(self).into_map();
        // The field sets to merge, by their target entry.
        let mut merged: BTreeMap<Id, Vec<FieldSet>> = BTreeMap::new();
        let mut first_of: BTreeMap<String, Id> = BTreeMap::new();
        for (_, _, id) in updaters {
            if count <= MAX_UPDATERS {
                break;
            }
            let Some(api_version) = managers
                .get(&id)
                .map(|field_manager| field_manager.api_version.clone())
            else {
                continue;
            };
            let Some(first) = first_of.get(&api_version) else {
                first_of.insert(api_version, id);
                continue;
            };
            let bucket = Id::new(ANCIENT, Operation::Update, &api_version, "");
            if !managers.contains_key(&bucket)
                && let Some(mut field_manager) = managers.remove(first)
            {
                field_manager.id = bucket.clone();
                managers.insert(bucket.clone(), field_manager);
            }
            let Some(field_manager) = managers.remove(&id) else {
                continue;
            };
            if let Some(kept) = managers.get_mut(&bucket) {
                (kept.api_version, kept.time) = (api_version, field_manager.time);
                merged.entry(bucket).or_default().push(field_manager.fields);
            } else {
                let id = bucket.clone();
                managers.insert(
                    bucket,
                    Manager {
                        id,
                        ..field_manager
                    },
                );
            }
            count -= 1;
        }
        for (bucket, fields) in merged {
            if let Some(field_manager) = managers.get_mut(&bucket) {
                let before = std::mem::take(&mut field_manager.fields);
                field_manager.fields = FieldSet::union_of(fields).union(before);
            }
        }
        *self = managers.into();
    }
}
