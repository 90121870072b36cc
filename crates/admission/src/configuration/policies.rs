//! Admission policies and their bindings, compiled.
//!
//! ```text
//!   Policy  ──compile──► CompiledPolicy  ─┐
//!   Binding ──compile──► CompiledBinding ─┴► PolicySnapshot: bound policies in order of their names,
//!                                            and the index that finds the candidates
//! ```
//!
//! As with webhooks, a snapshot is immutable and built on first use, and unchanged policies keep their compiled form.
//! Policies without bindings have no effect and are omitted.

mod binding;
mod compiled;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use lockgate_api::registration::policy::{Binding, MatchResources, Policy, PolicyKind, Registered};

pub use binding::{Action, CompiledBinding};
pub(crate) use binding::{NotFound, ParamSource};
pub use compiled::CompiledPolicy;
pub(crate) use compiled::{CompiledMutation, CompiledValidation, PatchType};

use super::criteria::Criteria;
use super::index::Index;
use binding::{BindingSpec, BindingSpecKey};

/// A policy with its bindings.
#[derive(Debug, Clone)]
pub struct BoundPolicy {
    /// The policy.
    pub policy: Arc<CompiledPolicy>,
    /// Its bindings, sorted by name; at least one.
    pub bindings: Arc<Vec<CompiledBinding>>,
}

/// All effective policies of one kind at one point in time.
#[derive(Debug, Default)]
pub struct PolicySnapshot {
    policies: Vec<BoundPolicy>,
    index: Index,
    generation: u64,
}

impl PolicySnapshot {
    /// The policies, sorted by name.
    #[must_use]
    pub fn policies(&self) -> &[BoundPolicy] {
        &self.policies
    }

    /// Returns `true` if any policy may match requests for a resource.
    #[must_use]
    pub fn concerns(&self, group: &str, resource: &str) -> bool {
        self.index.concerns(group, resource)
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }
}

/// The policies of one kind and their bindings.
pub struct Policies {
    kind: PolicyKind,
    state: Mutex<State>,
    /// The number of changes of `state`; ahead of the snapshot's when the snapshot is outdated.
    generation: AtomicU64,
    snapshot: ArcSwap<PolicySnapshot>,
    synced: AtomicBool,
}

type Bindings = Arc<Vec<CompiledBinding>>;

/// A binding, ordered by name.
struct ByName(CompiledBinding);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.name()
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.name().cmp(other.0.name())
    }
}

#[derive(Default)]
struct State {
    policies: BTreeMap<Arc<str>, Arc<CompiledPolicy>>,
    bindings: BTreeSet<ByName>,
    /// The bindings of each policy, sorted by name.
    by_policy: HashMap<Arc<str>, Bindings>,
    /// The criteria of bindings, shared because many are equal.
    criteria: HashMap<String, Weak<Criteria>>,
    /// The terms of bindings, shared for the same reason.
    specs: HashMap<BindingSpecKey, Weak<BindingSpec>>,
    /// Undecodable policies; they deny every request they might match.
    unreadable: BTreeMap<String, BoundPolicy>,
}

/// The number of cached criteria and terms at which unused ones are first removed; doubles afterwards.
const SWEEP_AT: usize = 256;

impl Policies {
    /// Creates an empty, synced set: requests do not wait.
    #[must_use]
    pub fn new(kind: PolicyKind) -> Self {
        Self {
            kind,
            state: Mutex::default(),
            generation: AtomicU64::new(0),
            snapshot: ArcSwap::from_pointee(PolicySnapshot::default()),
            synced: AtomicBool::new(true),
        }
    }

    /// Creates an empty, unsynced set: requests wait until [`Self::set_synced`].
    #[must_use]
    pub fn unsynced(kind: PolicyKind) -> Self {
        let policies = Self::new(kind);
        policies.synced.store(false, Ordering::Release);
        policies
    }

    /// The kind of the policies.
    #[must_use]
    pub fn kind(&self) -> PolicyKind {
        self.kind
    }

    /// Returns true once all existing policies and bindings are known.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Records that all existing policies and bindings are known.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// Adds a policy or replaces the one of the same name. Policies of the other kind are ignored.
    pub fn upsert_policy(&self, policy: &Policy) {
        if policy.kind != self.kind {
            return;
        }
        let compiled = Arc::new(CompiledPolicy::new(policy));
        self.change(|state| {
            let key = unreadable_key(Registered::Policy(self.kind), compiled.name());
            state.unreadable.remove(&key);
            state
                .policies
                .insert(Arc::clone(compiled.shared_name()), compiled);
        });
    }

    /// Removes a policy.
    pub fn remove_policy(&self, name: &str) {
        self.change(|state| {
            state.policies.remove(name);
            let key = unreadable_key(Registered::Policy(self.kind), name);
            state.unreadable.remove(&key);
        });
    }

    /// Adds a binding or replaces the one of the same name. Bindings of the other kind are ignored.
    pub fn upsert_binding(&self, binding: &Binding) {
        if binding.kind != self.kind {
            return;
        }
        self.change(|state| {
            let name = binding.metadata.name.as_str();
            let key = unreadable_key(Registered::Binding(self.kind), name);
            state.unreadable.remove(&key);
            state.unbind(name);
            let criteria = binding.match_resources.as_ref();
            let criteria = criteria.map(|resources| state.shared_criteria(resources));
            let policy = match state.by_policy.get_key_value(binding.policy_name.as_str()) {
                Some((known, _)) => Arc::clone(known),
                None => Arc::from(binding.policy_name.as_str()),
            };
            let spec = state.shared_spec(BindingSpec::new(binding, policy, criteria));
            state.bind(CompiledBinding::new(name, spec));
        });
    }

    /// Removes a binding.
    pub fn remove_binding(&self, name: &str) {
        self.change(|state| {
            state.unbind(name);
            let key = unreadable_key(Registered::Binding(self.kind), name);
            state.unreadable.remove(&key);
        });
    }

    /// Records an undecodable policy or binding. It denies every request until it is replaced or removed: accepted
    /// policies are never left unenforced.
    pub fn refuse_unreadable(&self, what: Registered, name: &str, why: &str) {
        self.change(|state| {
            match what {
                Registered::Policy(_) => {
                    state.policies.remove(name);
                }
                Registered::Binding(_) => state.unbind(name),
            }
            let why = format!("{} '{name}' cannot be read: {why}", what.name());
            let bound = BoundPolicy {
                policy: Arc::new(CompiledPolicy::unreadable(self.kind, name, &why)),
                bindings: Arc::new(vec![CompiledBinding::unreadable(name)]),
            };
            state.unreadable.insert(unreadable_key(what, name), bound);
        });
    }

    /// The policy of this name, effective or not.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<CompiledPolicy>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.policies.get(name).cloned()
    }

    /// The effective policies as of the last change.
    #[must_use]
    pub fn snapshot(&self) -> Arc<PolicySnapshot> {
        let current = self.snapshot.load_full();
        if current.generation == self.generation.load(Ordering::Acquire) {
            return current;
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.snapshot.load_full();
        // Writers increment it under the lock, so it matches the state read here.
        let generation = self.generation.load(Ordering::Acquire);
        if current.generation == generation {
            return current;
        }
        let next = Arc::new(state.snapshot(generation));
        self.snapshot.store(Arc::clone(&next));
        next
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

fn unreadable_key(what: Registered, name: &str) -> String {
    format!("{}/{name}", what.name())
}

/// The cached value of a key, or a new one.
fn shared<K: Eq + Hash, V>(
    known: &mut HashMap<K, Weak<V>>,
    key: K,
    make: impl FnOnce() -> V,
) -> Arc<V> {
    if let Some(known) = known.get(&key).and_then(Weak::upgrade) {
        return known;
    }
    if known.len() >= SWEEP_AT && known.len().is_power_of_two() {
        known.retain(|_, known| known.strong_count() > 0);
    }
    let made = Arc::new(make());
    known.insert(key, Arc::downgrade(&made));
    made
}

impl State {
    fn bind(&mut self, binding: CompiledBinding) {
        let list = self.by_policy.entry(Arc::clone(binding.shared_policy()));
        let list = Arc::make_mut(list.or_default());
        let at = list.partition_point(|known| known.name() < binding.name());
        list.insert(at, binding.clone());
        self.bindings.insert(ByName(binding));
    }

    fn unbind(&mut self, name: &str) {
        let Some(ByName(binding)) = self.bindings.take(name) else {
            return;
        };
        if let Some(list) = self.by_policy.get_mut(binding.policy()) {
            let list = Arc::make_mut(list);
            list.retain(|known| known.name() != name);
            if list.is_empty() {
                self.by_policy.remove(binding.policy());
            }
        }
    }

    fn shared_criteria(&mut self, resources: &MatchResources) -> Arc<Criteria> {
        let key = format!("{resources:?}");
        shared(&mut self.criteria, key, || Criteria::of_policy(resources))
    }

    fn shared_spec(&mut self, spec: BindingSpec) -> Arc<BindingSpec> {
        let key = spec.key();
        shared(&mut self.specs, key, || spec)
    }

    fn snapshot(&self, generation: u64) -> PolicySnapshot {
        let bound = self.policies.iter().filter_map(|(name, policy)| {
            Some(BoundPolicy {
                policy: Arc::clone(policy),
                bindings: Arc::clone(self.by_policy.get(name)?),
            })
        });
        let policies: Vec<BoundPolicy> = bound.chain(self.unreadable.values().cloned()).collect();
        let rules = policies.iter().map(|bound| &*bound.policy.criteria.rules);
        PolicySnapshot {
            index: Index::new(rules),
            policies,
            generation,
        }
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("kind", &self.kind)
            .field("synced", &self.synced())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
