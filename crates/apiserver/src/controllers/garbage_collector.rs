//! The garbage collector: deletes objects whose owners do not exist, and handles the finalizers `orphan` and
//! `foregroundDeletion`. All its writes pass admission.
//!
//! ```text
//!   owner deleted      dependents without another owner are deleted (background)
//!   foregroundDeletion dependents are deleted first; blocking ones hold the owner
//!   orphan             dependents lose the reference, then the owner is removed
//! ```
//!
//! UPSTREAM: kubernetes pkg/controller/garbagecollector/garbagecollector.go

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockgate_store::Entry;
use memchr::memmem;
use serde_json::Value;

use super::owner_graph::{Graph, Meta, Reference};
use super::{Context, account, options};
use crate::decode::options::{DeleteOptions, Preconditions};
use crate::error::{Outcome, corrupt, internal};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::{Resource, Snapshot, split_api_version};
use crate::request::{ObjectPath, Request};
use crate::write::delete::{Deletion, FOREGROUND, ORPHAN};
use crate::write::update::Change;

const ACCOUNT: &str = "generic-garbage-collector";

/// Returns true for events, which neither have nor are owners.
pub(super) fn is_ignored(key: &str) -> bool {
    let (group, plural, _) = split(key);
    matches!(group, "core" | "events.k8s.io") && plural == "events"
}

/// Returns true if an object may have owners or be terminating. A textual match suffices: false positives are harmless,
/// false negatives are not.
pub(super) fn may_concern(entry: &Entry) -> bool {
    let has = |name: &str| memmem::find(&entry.value, name.as_bytes()).is_some();
    !is_ignored(&entry.key) && (has("\"ownerReferences\"") || has("\"deletionTimestamp\""))
}

/// The group, the plural, and the rest of a key.
fn split(key: &str) -> (&str, &str, &str) {
    let mut parts = key.trim_start_matches('/').splitn(3, '/');
    let mut next = || parts.next().unwrap_or_default();
    (next(), next(), next())
}

/// An object to process.
struct Item<'i> {
    resource: &'i Arc<Resource>,
    namespace: &'i str,
    name: &'i str,
    entry: Entry,
    meta: Meta,
}

/// The owners of an object by their state.
#[derive(Default)]
struct ClassifiedOwners<'r> {
    solid: usize,
    /// Missing, or another object of the same name.
    dangling: Vec<&'r str>,
    /// In foreground deletion, waiting for this object.
    waiting: Vec<&'r str>,
}

enum OwnerState {
    Solid,
    Dangling,
    Waiting,
}

/// Processes one object. Returns the keys of the objects to process next.
pub(super) async fn reconcile(
    context: &Context,
    graph: &Mutex<Graph>,
    key: &str,
) -> Outcome<Vec<Arc<str>>> {
    let snapshot = context.writer.registry.snapshot();
    let Some(item) = Item::find(context, &snapshot, key).await? else {
        return Ok(Vec::new());
    };
    if item.meta.orphans_dependents() {
        item.orphan_dependents(context, graph, &snapshot).await?;
        return Ok(Vec::new());
    }
    if item.meta.waits_for_dependents() {
        return item.wait_for_dependents(context, graph).await;
    }
    if !item.meta.is_deleting() && !item.meta.references().is_empty() {
        item.collect(context, graph, &snapshot).await?;
    }
    Ok(Vec::new())
}

/// The resource of a key, in the storage version if it is served.
fn served<'s>(snapshot: &'s Snapshot, key: &str) -> Option<&'s Arc<Resource>> {
    let (group, plural, _) = split(key);
    let group = if group == "core" { "" } else { group };
    let mut versions = snapshot.resources().iter().filter(|resource| {
        (resource.storage.0.as_str(), resource.storage.1.as_str()) == (group, plural)
    });
    let first = versions.clone().next();
    versions
        .find(|resource| resource.is_storage_version())
        .or(first)
}

fn read_meta(entry: &Entry) -> Outcome<Meta> {
    Meta::read(entry).ok_or_else(|| corrupt(&entry.key, entry.revision.0))
}

fn lock(graph: &Mutex<Graph>) -> MutexGuard<'_, Graph> {
    graph.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'i> Item<'i> {
    /// The object with a key; `None` if it does not exist.
    async fn find(
        context: &Context,
        snapshot: &'i Snapshot,
        key: &'i str,
    ) -> Outcome<Option<Self>> {
        let found = context.writer.storage.entry(key).await?;
        let Some(entry) = found else {
            return Ok(None);
        };
        let meta = read_meta(&entry)?;
        let resource = served(snapshot, key)
            .ok_or_else(|| internal("the kind of the object is not served"))?;
        let (_, _, rest) = split(key);
        let (namespace, name) = match rest.split_once('/') {
            Some(parts) if resource.names.namespaced => parts,
            _ => ("", rest),
        };
        Ok(Some(Self {
            resource,
            namespace,
            name,
            entry,
            meta,
        }))
    }

    /// Deletes the object if no owner exists, otherwise removes references to missing owners.
    async fn collect(
        &self,
        context: &Context,
        graph: &Mutex<Graph>,
        snapshot: &Snapshot,
    ) -> Outcome<()> {
        let mut owners = ClassifiedOwners::default();
        for reference in self.meta.references() {
            let uid = reference.uid.as_str();
            match self.owner(context, graph, snapshot, reference).await? {
                None => return Ok(()),
                Some(OwnerState::Solid) => owners.solid += 1,
                Some(OwnerState::Dangling) => owners.dangling.push(uid),
                Some(OwnerState::Waiting) => owners.waiting.push(uid),
            }
        }
        if owners.solid > 0 {
            owners.dangling.append(&mut owners.waiting);
            if owners.dangling.is_empty() {
                return Ok(());
            }
            return self
                .remove_owner_references(context, &owners.dangling)
                .await;
        }
        let policy = if !owners.waiting.is_empty() && lock(graph).has_dependents(&self.meta.uid) {
            let in_a_circle = {
                let graph = lock(graph);
                let dependents = graph.dependents_of(&self.meta.uid);
                dependents.iter().any(|key| graph.is_waiting(key))
            };
            if in_a_circle && self.blocks_owners() {
                // In a cycle no object would be deleted first: this one waits, but its owners need not.
                self.clear_block_owner_deletion(context).await?;
                let key = context
                    .writer
                    .storage
                    .key(self.resource, self.namespace, self.name);
                return match Item::find(context, snapshot, &key).await? {
                    Some(freed) if freed.meta.uid == self.meta.uid => {
                        freed.delete(context, "Foreground").await
                    }
                    _ => Ok(()),
                };
            }
            "Foreground"
        } else if self.meta.has_finalizer(ORPHAN) {
            "Orphan"
        } else if self.meta.has_finalizer(FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        self.delete(context, policy).await
    }

    /// The state of an owner. `None` if the reference can never be valid: a cluster-scoped object cannot be owned by a
    /// namespaced one, and is kept.
    async fn owner(
        &self,
        context: &Context,
        graph: &Mutex<Graph>,
        snapshot: &Snapshot,
        reference: &Reference,
    ) -> Outcome<Option<OwnerState>> {
        if lock(graph).is_gone(&reference.uid) {
            return Ok(Some(OwnerState::Dangling));
        }
        let (group, version) = split_api_version(&reference.api_version);
        let Some(resource) = snapshot.by_kind(group, version, &reference.kind) else {
            // The kind may be served later. Until then the owner's existence is unknown.
            return Err(internal("the kind of an owner is not served"));
        };
        if self.namespace.is_empty() && resource.names.namespaced {
            return Ok(None);
        }
        // An owner in another namespace is invalid: it is looked up in the object's namespace.
        let key = context
            .writer
            .storage
            .key(resource, self.namespace, &reference.name);
        // An unreadable owner may exist: its dependents are kept.
        let owner = context.writer.storage.entry(&key).await?;
        let owner = owner.as_ref().map(read_meta).transpose()?;
        let owner = owner.filter(|owner| owner.uid == reference.uid);
        Ok(Some(match owner {
            None => OwnerState::Dangling,
            Some(owner) if owner.waits_for_dependents() => OwnerState::Waiting,
            Some(_) => OwnerState::Solid,
        }))
    }

    /// Removes the finalizer if no blocking dependent is left. Returns the blocking dependents.
    async fn wait_for_dependents(
        &self,
        context: &Context,
        graph: &Mutex<Graph>,
    ) -> Outcome<Vec<Arc<str>>> {
        let (blocking, in_the_way, in_a_circle) = {
            let graph = lock(graph);
            let mut keys = graph.blocking_dependents_of(&self.meta.uid);
            let blocking = !keys.is_empty();
            // Dependents that wait themselves are deleted when their own dependents are gone.
            keys.retain(|key| !graph.is_waiting(key));
            let is_last = blocking && keys.is_empty() && self.blocks_owners();
            let in_a_circle = is_last && graph.waits_for_itself(&self.meta.uid);
            (blocking, keys, in_a_circle)
        };
        if !blocking {
            self.remove_finalizer(context, FOREGROUND).await?;
        } else if in_a_circle {
            // All objects of a cycle were marked before any of them was known to wait.
            self.clear_block_owner_deletion(context).await?;
        }
        Ok(in_the_way)
    }

    /// Removes the references to the object from its dependents, and then the finalizer.
    async fn orphan_dependents(
        &self,
        context: &Context,
        graph: &Mutex<Graph>,
        snapshot: &Snapshot,
    ) -> Outcome<()> {
        let mut failed = None;
        let keys = lock(graph).dependents_of(&self.meta.uid);
        for key in keys {
            let freed = match Item::find(context, snapshot, &key).await {
                Ok(Some(dependent)) => {
                    dependent
                        .remove_owner_references(context, &[&self.meta.uid])
                        .await
                }
                other => other.map(drop),
            };
            failed = freed.err().or(failed);
        }
        match failed {
            Some(failure) => Err(failure),
            None => self.remove_finalizer(context, ORPHAN).await,
        }
    }

    async fn remove_finalizer(&self, context: &Context, name: &str) -> Outcome<()> {
        self.change(context, |object| {
            metadata::change(object, |metadata| {
                let finalizers = metadata.get_mut("finalizers").and_then(Value::as_array_mut);
                if let Some(finalizers) = finalizers {
                    finalizers.retain(|finalizer| finalizer != name);
                    if finalizers.is_empty() {
                        metadata.remove("finalizers");
                    }
                }
            });
        })
        .await
    }

    /// Removes the references to these owners.
    async fn remove_owner_references(&self, context: &Context, uids: &[&str]) -> Outcome<()> {
        self.change(context, |object| {
            change_references(object, |references| {
                references.retain(|reference| {
                    let uid = reference.get("uid").and_then(Value::as_str);
                    !uid.is_some_and(|uid| uids.contains(&uid))
                });
            });
        })
        .await
    }

    fn blocks_owners(&self) -> bool {
        let mut references = self.meta.references().iter();
        references.any(|reference| reference.block_owner_deletion == Some(true))
    }

    /// Removes `blockOwnerDeletion`, so that the owners do not wait for the object.
    async fn clear_block_owner_deletion(&self, context: &Context) -> Outcome<()> {
        self.change(context, |object| {
            change_references(object, |references| {
                let references = references.iter_mut().filter_map(Value::as_object_mut);
                for reference in references.filter(|it| it.contains_key("blockOwnerDeletion")) {
                    reference.insert(String::from("blockOwnerDeletion"), false.into());
                }
            });
        })
        .await
    }

    fn request(&self, context: &Context, verb: Verb) -> Request {
        let path = ObjectPath {
            resource: self.resource,
            namespace: self.namespace,
            name: self.name,
            subresource: "",
        };
        let mut request = Request::internal(account(ACCOUNT), verb, path);
        request.deadline = Some(std::time::Instant::now() + context.settings.request_timeout);
        request
    }

    async fn change(&self, context: &Context, change: impl Fn(&mut Value) + Sync) -> Outcome<()> {
        let request = self.request(context, Verb::Patch);
        let options = options();
        let it = Change {
            uid: Some(&self.meta.uid),
            ..Change::new(&context.writer, &request, &options)
        };
        let changed = it.edit(change).await;
        ignore_not_found(changed.map(drop))
    }

    async fn delete(&self, context: &Context, policy: &str) -> Outcome<()> {
        let request = self.request(context, Verb::Delete);
        let options = DeleteOptions {
            propagation_policy: Some(policy.to_owned()),
            // The decision applies to the observed object.
            preconditions: Some(Preconditions {
                uid: Some(self.meta.uid.clone()),
                resource_version: Some(self.entry.revision.to_string()),
            }),
            ..DeleteOptions::default()
        };
        let deletion = Deletion::of(&context.writer, &request);
        ignore_not_found(deletion.run(options).await.map(drop))
    }
}

/// A deleted or recreated object needs no processing.
fn ignore_not_found(result: Outcome<()>) -> Outcome<()> {
    match result {
        Err(failure) if failure.is_not_found() => Ok(()),
        other => other,
    }
}

fn change_references(object: &mut Value, change: impl FnOnce(&mut Vec<Value>)) {
    metadata::change(object, |metadata| {
        let references = metadata
            .get_mut("ownerReferences")
            .and_then(Value::as_array_mut);
        if let Some(references) = references {
            change(references);
            if references.is_empty() {
                metadata.remove("ownerReferences");
            }
        }
    });
}
