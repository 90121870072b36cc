//! The graph of owner references: dependents, and owners in foreground deletion. An object without owners uses no
//! memory here.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use lockgate_store::Entry;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::encoding;
use crate::write::delete::{FOREGROUND, ORPHAN};

/// The maximum number of remembered deleted owners.
///
/// UPSTREAM: kubernetes pkg/controller/garbagecollector/graph_builder.go (absentOwnerCache)
const ABSENT_OWNER_CACHE_SIZE: usize = 500;

/// The metadata fields that the graph is built from.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) uid: String,
    owner_references: Option<Vec<Reference>>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<IgnoredAny>,
}

/// A reference to an owner.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Reference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) block_owner_deletion: Option<bool>,
}

impl Meta {
    /// The metadata of a stored object.
    pub(super) fn read(entry: &Entry) -> Option<Self> {
        encoding::read_metadata(&entry.value)
    }

    pub(super) fn references(&self) -> &[Reference] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        let finalizers = self.finalizers.iter().flatten();
        finalizers.into_iter().any(|finalizer| finalizer == name)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns true in foreground deletion: it is removed after its dependents.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(FOREGROUND)
    }

    /// Returns true if it is removed after its dependents are orphaned.
    pub(super) fn orphans_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(ORPHAN)
    }
}

/// An object with owners.
#[derive(Debug)]
struct Dependent {
    uid: Arc<str>,
    owners: Vec<Owner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    uid: Arc<str>,
    blocks: bool,
    /// Distinguishes different references to the same owner.
    words: u64,
}

/// The owner references of all objects.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// By key.
    dependents: HashMap<Arc<str>, Dependent>,
    /// The keys of dependents by the uid of an owner.
    by_owner: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The keys of owners that wait for the deletion of their dependents, by UID.
    waiting: HashMap<Arc<str>, Arc<str>>,
    gone: AbsentOwnerCache,
}

/// Owners whose deletion was observed, so that objects of a removed kind are not requested.
#[derive(Debug, Default)]
struct AbsentOwnerCache {
    order: VecDeque<Arc<str>>,
    uids: HashSet<Arc<str>>,
}

impl AbsentOwnerCache {
    fn add(&mut self, uid: &Arc<str>) {
        if !self.uids.insert(Arc::clone(uid)) {
            return;
        }
        self.order.push_back(Arc::clone(uid));
        if self.order.len() > ABSENT_OWNER_CACHE_SIZE
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }
}

impl Graph {
    /// Records a stored object. Returns the keys of the objects to process.
    pub(super) fn stored(&mut self, entry: &Entry, previous: Option<&Entry>) -> Vec<Arc<str>> {
        let Some(meta) = Meta::read(entry) else {
            return Vec::new();
        };
        let mut look = Vec::new();
        if let Some(known) = self.dependents.get(&entry.key)
            && *known.uid != *meta.uid
        {
            // Another object of the same name.
            self.forget(&entry.key, &mut look);
        }
        self.set_owners(&entry.key, &meta, &mut look);
        if meta.waits_for_dependents() {
            if !self.waiting.contains_key(meta.uid.as_str()) {
                self.waiting
                    .insert(meta.uid.as_str().into(), Arc::clone(&entry.key));
                look.extend(self.dependents_of(&meta.uid));
                look.push(Arc::clone(&entry.key));
            }
        } else {
            self.waiting.remove(meta.uid.as_str());
        }
        if meta.orphans_dependents() {
            let before = previous.and_then(Meta::read).unwrap_or_default();
            if !before.orphans_dependents() {
                look.push(Arc::clone(&entry.key));
            }
        }
        look
    }

    /// Records a deleted object. Returns the keys of the objects to process.
    pub(super) fn removed(&mut self, previous: &Entry) -> Vec<Arc<str>> {
        let Some(meta) = Meta::read(previous) else {
            return Vec::new();
        };
        let mut look = Vec::new();
        self.waiting.remove(meta.uid.as_str());
        if let Some((uid, dependents)) = self.by_owner.get_key_value(meta.uid.as_str()) {
            look.extend(dependents.iter().cloned());
            self.gone.add(uid);
        }
        self.forget(&previous.key, &mut look);
        look
    }

    fn set_owners(&mut self, key: &Arc<str>, meta: &Meta, look: &mut Vec<Arc<str>>) {
        if meta.references().is_empty() {
            self.forget(key, look);
            return;
        }
        let owners: Vec<Owner> = meta
            .references()
            .iter()
            .map(|reference| self.owner(reference))
            .collect();
        let before = match self.dependents.get(key) {
            Some(known) if known.owners == owners => return,
            Some(known) => known.owners.clone(),
            None => Vec::new(),
        };
        for old in &before {
            let still = owners.iter().any(|owner| owner.uid == old.uid);
            let freed = old.blocks
                && !owners
                    .iter()
                    .any(|owner| owner.uid == old.uid && owner.blocks);
            if freed && let Some(waiting) = self.waiting.get(&old.uid) {
                look.push(Arc::clone(waiting));
            }
            if !still {
                self.remove_dependent(key, &old.uid);
            }
        }
        let named =
            |known: &Owner, owner: &Owner| (&known.uid, known.words) == (&owner.uid, owner.words);
        if owners
            .iter()
            .any(|owner| !before.iter().any(|known| named(known, owner)))
        {
            look.push(Arc::clone(key));
        }
        for owner in &owners {
            self.by_owner
                .entry(Arc::clone(&owner.uid))
                .or_default()
                .insert(Arc::clone(key));
        }
        let uid = meta.uid.as_str().into();
        self.dependents
            .insert(Arc::clone(key), Dependent { uid, owners });
    }

    fn owner(&self, reference: &Reference) -> Owner {
        let known = self.by_owner.get_key_value(reference.uid.as_str());
        let uid = match known {
            Some((uid, _)) => Arc::clone(uid),
            None => reference.uid.as_str().into(),
        };
        let mut hasher = DefaultHasher::new();
        let words = (&reference.api_version, &reference.kind, &reference.name);
        words.hash(&mut hasher);
        Owner {
            uid,
            blocks: reference.block_owner_deletion == Some(true),
            words: hasher.finish(),
        }
    }

    /// Removes the owners of an object; objects that wait for it are queued.
    fn forget(&mut self, key: &Arc<str>, look: &mut Vec<Arc<str>>) {
        let Some(dependent) = self.dependents.remove(key) else {
            return;
        };
        for owner in dependent.owners {
            if let Some(waiting) = self.waiting.get(&owner.uid) {
                look.push(Arc::clone(waiting));
            }
            self.remove_dependent(key, &owner.uid);
        }
    }

    fn remove_dependent(&mut self, key: &Arc<str>, owner: &Arc<str>) {
        if let Some(keys) = self.by_owner.get_mut(owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_owner.remove(owner);
            }
        }
    }

    /// The keys of the objects that an object owns.
    pub(super) fn dependents_of(&self, uid: &str) -> Vec<Arc<str>> {
        let keys = self.by_owner.get(uid).into_iter().flatten();
        keys.cloned().collect()
    }

    /// Returns true if an object has dependents.
    pub(super) fn has_dependents(&self, uid: &str) -> bool {
        self.by_owner.contains_key(uid)
    }

    /// The keys of the dependents that block an owner's deletion.
    pub(super) fn blocking_dependents_of(&self, uid: &str) -> Vec<Arc<str>> {
        let blocks = |key: &&Arc<str>| {
            self.dependents.get(*key).is_some_and(|dependent| {
                let mut owners = dependent.owners.iter();
                owners.any(|owner| *owner.uid == *uid && owner.blocks)
            })
        };
        let keys = self.by_owner.get(uid).into_iter().flatten();
        keys.filter(blocks).cloned().collect()
    }

    /// Returns true if the object with this key waits for the deletion of its dependents.
    pub(super) fn is_waiting(&self, key: &str) -> bool {
        self.dependents
            .get(key)
            .is_some_and(|dependent| self.waiting.contains_key(&dependent.uid))
    }

    /// Returns true if an object waits, directly or indirectly, for itself.
    pub(super) fn waits_for_itself(&self, uid: &str) -> bool {
        let mut seen: HashSet<&str> = HashSet::new();
        let mut open = vec![uid];
        while let Some(owner) = open.pop() {
            for key in self.by_owner.get(owner).into_iter().flatten() {
                let Some(dependent) = self.dependents.get(key) else {
                    continue;
                };
                let mut owners = dependent.owners.iter();
                let blocks = owners.any(|it| *it.uid == *owner && it.blocks);
                if !blocks || !self.waiting.contains_key(&dependent.uid) {
                    continue;
                }
                if *dependent.uid == *uid {
                    return true;
                }
                if seen.insert(&dependent.uid) {
                    open.push(&dependent.uid);
                }
            }
        }
        false
    }

    /// Returns true if an object was deleted recently.
    pub(super) fn is_gone(&self, uid: &str) -> bool {
        self.gone.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use lockgate_store::Revision;
    use serde_json::{Value, json};

    use super::*;

    fn entry(key: &str, metadata: Value) -> Entry {
        Entry {
            key: key.into(),
            value: encoding::encode(&json!({"metadata": metadata})),
            created: Revision(1),
            revision: Revision(1),
        }
    }

    fn owned(key: &str, uid: &str, owner: &str, blocks: bool) -> Entry {
        let reference = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": owner,
            "blockOwnerDeletion": blocks,
        });
        entry(key, json!({"uid": uid, "ownerReferences": [reference]}))
    }

    fn keys(look: Vec<Arc<str>>) -> Vec<String> {
        look.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn knows_who_waits_for_itself() {
        let mut graph = Graph::default();
        let waiting = |key: &str, uid: &str, owner: &str, blocks: bool| {
            let reference = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": owner,
                "blockOwnerDeletion": blocks,
            });
            let metadata = json!({
                "uid": uid, "ownerReferences": [reference], "finalizers": [FOREGROUND],
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            });
            entry(key, metadata)
        };
        // 1 owns 2, which owns 3, which owns 1.
        graph.stored(&waiting("/2", "2", "1", true), None);
        graph.stored(&waiting("/3", "3", "2", true), None);
        graph.stored(&owned("/1", "1", "3", true), None);
        assert!(!graph.waits_for_itself("1"), "it does not wait yet");
        let look = graph.stored(&waiting("/1", "1", "3", true), None);
        assert!(keys(look).contains(&String::from("/1")));
        for uid in ["1", "2", "3"] {
            assert!(graph.waits_for_itself(uid), "{uid}");
        }
        // An object that waits for a cycle is not part of it.
        graph.stored(&waiting("/1b", "1b", "0", true), None);
        assert!(!graph.waits_for_itself("1b") && !graph.waits_for_itself("0"));
        let freed = graph.stored(&waiting("/1", "1", "3", false), None);
        assert_eq!(keys(freed), ["/3"], "its owner is looked at");
        assert!(!graph.waits_for_itself("3"));
    }

    #[test]
    fn keeps_nothing_of_objects_without_owners() {
        let mut graph = Graph::default();
        let plain = entry("/a", json!({"uid": "1"}));
        assert_eq!(keys(graph.stored(&plain, None)), [""; 0]);
        assert_eq!(keys(graph.removed(&plain)), [""; 0]);
        assert!(graph.dependents.is_empty() && graph.gone.order.is_empty());
        let child = owned("/b", "2", "1", false);
        assert_eq!(keys(graph.stored(&child, None)), ["/b"]);
        assert_eq!(keys(graph.removed(&plain)), ["/b"]);
        assert!(graph.is_gone("1"));
        graph.removed(&child);
        assert!(graph.dependents.is_empty() && graph.by_owner.is_empty());
    }

    #[test]
    fn looks_at_an_object_when_its_owners_change() {
        let mut graph = Graph::default();
        let child = owned("/b", "2", "1", false);
        assert_eq!(keys(graph.stored(&child, None)), ["/b"]);
        assert_eq!(keys(graph.stored(&child, Some(&child))), [""; 0]);
        let other = owned("/b", "2", "3", false);
        assert_eq!(keys(graph.stored(&other, Some(&child))), ["/b"]);
        assert!(!graph.has_dependents("1"));
        assert_eq!(keys(graph.dependents_of("3")), ["/b"]);
    }

    #[test]
    fn tells_an_owner_that_waits_when_nothing_holds_it_any_more() {
        let mut graph = Graph::default();
        let child = owned("/b", "2", "1", true);
        graph.stored(&child, None);
        let going = json!({"uid": "1", "deletionTimestamp": "now", "finalizers": [FOREGROUND]});
        let owner = entry("/a", going);
        assert_eq!(keys(graph.stored(&owner, None)), ["/b", "/a"]);
        assert_eq!(keys(graph.stored(&owner, Some(&owner))), [""; 0]);
        assert_eq!(keys(graph.blocking_dependents_of("1")), ["/b"]);
        let free = owned("/b", "2", "1", false);
        assert_eq!(keys(graph.stored(&free, Some(&child))), ["/a"]);
        assert_eq!(keys(graph.blocking_dependents_of("1")), [""; 0]);
        assert_eq!(keys(graph.removed(&free)), ["/a"]);
    }

    #[test]
    fn looks_once_at_an_owner_that_lets_its_dependents_go_free() {
        let mut graph = Graph::default();
        let going = json!({"uid": "1", "deletionTimestamp": "now", "finalizers": [ORPHAN]});
        let owner = entry("/a", going);
        assert_eq!(keys(graph.stored(&owner, None)), ["/a"]);
        assert_eq!(keys(graph.stored(&owner, Some(&owner))), [""; 0]);
    }

    #[test]
    fn remembers_few_of_the_gone() {
        let mut gone = AbsentOwnerCache::default();
        for number in 0..2 * ABSENT_OWNER_CACHE_SIZE {
            gone.add(&number.to_string().into());
        }
        assert_eq!(
            (gone.order.len(), gone.uids.len()),
            (ABSENT_OWNER_CACHE_SIZE, ABSENT_OWNER_CACHE_SIZE)
        );
        assert!(gone.uids.contains("999") && !gone.uids.contains("1"));
    }
}
