//! The latest state of cached kinds, with an index of objects by controller.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use lockgate_store::{Entry, Revision};
use serde_json::Value;
use tokio::sync::watch;

use crate::kind::Kind;
use crate::object::{Object, text};

/// The cached objects.
#[derive(Debug)]
pub(crate) struct Cache {
    state: RwLock<State>,
    /// The revision up to which the cache is complete.
    seen: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct State {
    objects: HashMap<Kind, BTreeMap<Arc<str>, Arc<Object>>>,
    /// The keys of dependents, by the uid of their controller.
    controlled: HashMap<String, BTreeSet<(Kind, Arc<str>)>>,
    /// The keys of objects without a controller, by namespace.
    orphans: HashMap<(Kind, String), BTreeSet<Arc<str>>>,
    /// The number of Pods of each Job: by the path of the Job, then by its uid.
    pods_of_jobs: HashMap<String, BTreeMap<String, usize>>,
}

impl State {
    fn index(&mut self, object: &Object, present: bool) {
        let key = Arc::clone(&object.key);
        match object.controller() {
            Some(owner) => {
                let uid = text(owner, "/uid").to_owned();
                let keys = self.controlled.entry(uid.clone()).or_default();
                change(keys, (object.kind, key), present);
                if keys.is_empty() {
                    self.controlled.remove(&uid);
                }
                if object.kind == Kind::Pod && text(owner, "/kind") == "Job" {
                    let path = format!("{}/{}", object.namespace(), text(owner, "/name"));
                    self.count_pod(path, uid, present);
                }
            }
            None => {
                let place = (object.kind, object.namespace().to_owned());
                let keys = self.orphans.entry(place.clone()).or_default();
                change(keys, key, present);
                if keys.is_empty() {
                    self.orphans.remove(&place);
                }
            }
        }
    }

    fn count_pod(&mut self, job: String, uid: String, present: bool) {
        let counts = self.pods_of_jobs.entry(job.clone()).or_default();
        let count = counts.entry(uid.clone()).or_default();
        *count = if present {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        if *count == 0 {
            counts.remove(&uid);
        }
        if counts.is_empty() {
            self.pods_of_jobs.remove(&job);
        }
    }

    fn find(&self, kind: Kind, key: &str) -> Option<Arc<Object>> {
        self.objects.get(&kind)?.get(key).cloned()
    }
}

fn change<T: Ord>(set: &mut BTreeSet<T>, item: T, present: bool) {
    if present {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            state: RwLock::default(),
            seen: watch::Sender::new(Revision::START),
        }
    }
}

impl Cache {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the cache with stored bytes. Returns the previous and the new object; `None` if the bytes are not an
    /// object.
    pub(crate) fn put(
        &self,
        kind: Kind,
        entry: &Entry,
    ) -> Option<(Option<Arc<Object>>, Arc<Object>)> {
        let mut value: Value = serde_json::from_slice(&entry.value).ok()?;
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        let version = entry.revision.to_string();
        metadata.insert(String::from("resourceVersion"), version.into());
        // Managed fields are unused here, and about half of an object's size.
        metadata.remove("managedFields");
        let object = Arc::new(Object {
            kind,
            key: Arc::clone(&entry.key),
            created: entry.created.0,
            value,
        });
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let objects = state.objects.entry(kind).or_default();
        let old = objects.insert(Arc::clone(&entry.key), Arc::clone(&object));
        if let Some(old) = &old {
            state.index(old, false);
        }
        state.index(&object, true);
        Some((old, object))
    }

    /// Removes a deleted object.
    pub(crate) fn remove(&self, kind: Kind, key: &str) -> Option<Arc<Object>> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let old = state.objects.get_mut(&kind)?.remove(key)?;
        state.index(&old, false);
        Some(old)
    }

    /// The keys of all objects.
    pub(crate) fn keys(&self) -> Vec<(Kind, Arc<str>)> {
        let state = self.read();
        let all = state.objects.iter();
        all.flat_map(|(kind, objects)| objects.keys().map(|key| (*kind, Arc::clone(key))))
            .collect()
    }

    /// Wakes waiters once the cache is complete up to a revision.
    pub(crate) fn advance(&self, to: Revision) {
        self.seen.send_if_modified(|seen| {
            let newer = *seen < to;
            if newer {
                *seen = to;
            }
            newer
        });
    }

    /// Waits until the cache is complete up to a revision.
    pub(crate) async fn wait_for_revision(&self, revision: Revision) {
        let mut seen = self.seen.subscribe();
        // The sender is part of this cache, so it cannot be closed.
        let _ = seen.wait_for(|seen| *seen >= revision).await;
    }

    pub(crate) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.read().find(kind, &kind.key(namespace, name))
    }

    /// The object at a path: `namespace/name`, or `name`.
    pub(crate) fn at(&self, kind: Kind, path: &str) -> Option<Arc<Object>> {
        self.get(kind, "", path)
    }

    /// All objects of a kind.
    pub(crate) fn all(&self, kind: Kind) -> Vec<Arc<Object>> {
        let state = self.read();
        let objects = state.objects.get(&kind);
        objects
            .into_iter()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect()
    }

    /// The objects of a kind in a namespace.
    pub(crate) fn in_namespace(&self, kind: Kind, namespace: &str) -> Vec<Arc<Object>> {
        let prefix: Arc<str> = kind.key(namespace, "").into();
        let state = self.read();
        let Some(objects) = state.objects.get(&kind) else {
            return Vec::new();
        };
        let from = objects.range(Arc::clone(&prefix)..);
        from.take_while(|(key, _)| key.starts_with(&*prefix))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The objects of a kind with this controller.
    pub(crate) fn controlled(&self, uid: &str, kind: Kind) -> Vec<Arc<Object>> {
        let state = self.read();
        let keys = state.controlled.get(uid).into_iter().flatten();
        keys.filter(|(of, _)| *of == kind)
            .filter_map(|(_, key)| state.find(kind, key))
            .collect()
    }

    /// The uids of Jobs at a path that have Pods: the current Job, and earlier ones with its name.
    pub(crate) fn jobs_with_pods(&self, path: &str) -> Vec<String> {
        let state = self.read();
        let counts = state.pods_of_jobs.get(path);
        counts
            .into_iter()
            .flat_map(BTreeMap::keys)
            .cloned()
            .collect()
    }

    /// The objects of a kind in a namespace without a controller.
    pub(crate) fn orphans(&self, kind: Kind, namespace: &str) -> Vec<Arc<Object>> {
        let state = self.read();
        let keys = state.orphans.get(&(kind, namespace.to_owned()));
        let keys = keys.into_iter().flatten();
        keys.filter_map(|key| state.find(kind, key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(key: &str, value: &Value, revision: u64) -> Entry {
        Entry {
            key: key.into(),
            value: value.to_string().into(),
            created: Revision(1),
            revision: Revision(revision),
        }
    }

    #[test]
    fn follows_who_controls_whom() {
        let cache = Cache::default();
        let pod = json!({"metadata": {"name": "a", "namespace": "n", "ownerReferences": [
            {"uid": "1", "controller": true}]}});
        cache.put(Kind::Pod, &entry("/core/pods/n/a", &pod, 2));
        assert_eq!(cache.controlled("1", Kind::Pod).len(), 1);
        assert_eq!(cache.controlled("1", Kind::Job).len(), 0);
        let orphan = json!({"metadata": {"name": "a", "namespace": "n"}});
        cache.put(Kind::Pod, &entry("/core/pods/n/a", &orphan, 3));
        assert_eq!(cache.controlled("1", Kind::Pod).len(), 0);
        assert_eq!(cache.orphans(Kind::Pod, "n").len(), 1);
        assert_eq!(cache.in_namespace(Kind::Pod, "n").len(), 1);
        assert_eq!(cache.in_namespace(Kind::Pod, "m").len(), 0);
        assert!(cache.at(Kind::Pod, "n/a").is_some());
        cache.remove(Kind::Pod, "/core/pods/n/a");
        assert!(cache.keys().is_empty());
        let state = cache.read();
        assert!(state.orphans.is_empty() && state.controlled.is_empty());
    }

    #[test]
    fn jobs_of_one_name_are_told_apart() {
        let cache = Cache::default();
        let pod = |name: &str, uid: &str| {
            json!({"metadata": {"name": name, "namespace": "n", "ownerReferences": [
                {"kind": "Job", "name": "j", "uid": uid, "controller": true}]}})
        };
        for (name, uid) in [("a", "1"), ("b", "1"), ("c", "2")] {
            let key = format!("/core/pods/n/{name}");
            cache.put(Kind::Pod, &entry(&key, &pod(name, uid), 2));
        }
        assert_eq!(cache.jobs_with_pods("n/j"), ["1", "2"]);
        assert!(cache.jobs_with_pods("m/j").is_empty());
        cache.remove(Kind::Pod, "/core/pods/n/a");
        assert_eq!(cache.jobs_with_pods("n/j"), ["1", "2"]);
        cache.remove(Kind::Pod, "/core/pods/n/b");
        assert_eq!(cache.jobs_with_pods("n/j"), ["2"]);
        cache.remove(Kind::Pod, "/core/pods/n/c");
        assert!(cache.read().pods_of_jobs.is_empty());
    }

    #[tokio::test]
    async fn those_who_wait_are_told() {
        let cache = Arc::new(Cache::default());
        let waiting = tokio::spawn({
            let cache = Arc::clone(&cache);
            async move { cache.wait_for_revision(Revision(3)).await }
        });
        cache.advance(Revision(2));
        cache.advance(Revision(4));
        waiting.await.unwrap();
    }
}
