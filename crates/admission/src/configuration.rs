//! Webhook configurations, compiled.
//!
//! ```text
//!   Configuration ──compile──► CompiledHook ─┐
//!   (what the API stores)      rules, selectors,   Snapshot: all hooks in calling order,
//!                              conditions, client ─┘ and an index that finds the candidates
//! ```
//!
//! A snapshot is immutable. A write triggers a new one, in which unchanged webhooks keep their compiled form and
//! their connections. It is built on first use, so that a thousand consecutive writes cost one build, and no reader
//! sees a snapshot older than a completed write.

mod criteria;
mod hook;
mod index;
mod manifests;
mod policies;
mod reload;
mod rule;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use lockgate_api::registration::{Configuration, ConfigurationKind};

pub(crate) use criteria::{Criteria, WithoutRules};
pub use hook::{CompiledHook, MatchPolicy, Source};
pub(crate) use hook::{Labels, SideEffects, selects};
pub use index::Candidates;
pub(crate) use index::Index;
pub use manifests::{ManifestError, ManifestGate, Manifests, check_directory, load};
pub use policies::{
    Action, BoundPolicy, CompiledBinding, CompiledPolicy, Policies, PolicySnapshot,
};
pub(crate) use policies::{CompiledMutation, CompiledValidation, NotFound, ParamSource, PatchType};
pub use reload::{Reload, StaticManifests};
pub(crate) use rule::Rule;
pub use rule::RulePart;
pub use yaml::{ConfigurationError, from_yaml};

pub use crate::decision::FailurePolicy;

/// All webhooks of one kind at one point in time, in calling order.
#[derive(Debug, Default)]
pub struct Snapshot {
    hooks: Vec<Arc<CompiledHook>>,
    /// The number of leading entries from manifest files. INVARIANT: at most the total number.
    statics: usize,
    index: Index,
    generation: u64,
}

impl Snapshot {
    /// The webhooks. Those from manifest files come first, each group sorted by configuration name.
    #[must_use]
    pub fn hooks(&self) -> &[Arc<CompiledHook>] {
        &self.hooks
    }

    /// The webhooks from manifest files.
    #[must_use]
    pub fn static_hooks(&self) -> &[Arc<CompiledHook>] {
        self.hooks.split_at(self.statics).0
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }
}

/// The webhooks of one configuration.
type Compiled = Arc<[Arc<CompiledHook>]>;

/// The configurations of one kind.
pub struct Configurations {
    kind: ConfigurationKind,
    state: Mutex<State>,
    /// The number of changes of `state`; ahead of the snapshot's when the snapshot is outdated.
    generation: AtomicU64,
    snapshot: ArcSwap<Snapshot>,
    api_synced: AtomicBool,
    statics_synced: AtomicBool,
}

#[derive(Default)]
struct State {
    api: BTreeMap<String, Compiled>,
    statics: BTreeMap<String, Compiled>,
    has_statics: bool,
}

impl Configurations {
    /// Creates an empty, synced set: requests do not wait.
    #[must_use]
    pub fn new(kind: ConfigurationKind) -> Self {
        Self {
            kind,
            state: Mutex::default(),
            generation: AtomicU64::new(0),
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            api_synced: AtomicBool::new(true),
            statics_synced: AtomicBool::new(true),
        }
    }

    /// Creates an empty, unsynced set: requests wait until [`Self::set_synced`] or [`Self::replace`].
    #[must_use]
    pub fn unsynced(kind: ConfigurationKind) -> Self {
        let configurations = Self::new(kind);
        configurations.api_synced.store(false, Ordering::Release);
        configurations
    }

    /// The kind of the configurations.
    #[must_use]
    pub fn kind(&self) -> ConfigurationKind {
        self.kind
    }

    /// Returns `true` once all existing configurations are loaded.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.api_synced.load(Ordering::Acquire) && self.statics_synced()
    }

    pub(crate) fn statics_synced(&self) -> bool {
        self.statics_synced.load(Ordering::Acquire)
    }

    /// Marks all existing configurations as loaded.
    pub fn set_synced(&self) {
        self.api_synced.store(true, Ordering::Release);
    }

    /// Returns `true` if a manifest directory is configured, even an empty one.
    pub(crate) fn has_statics(&self) -> bool {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .has_statics
    }

    /// Adds a configuration or replaces the one of the same name. Configurations of the other kind
    /// are ignored.
    pub fn upsert(&self, configuration: &Configuration) {
        if configuration.kind != self.kind {
            return;
        }
        self.change(|state| {
            let name = &configuration.metadata.name;
            let compiled = compile(configuration, Source::Api, state.api.get(name));
            state.api.insert(name.clone(), compiled);
        });
    }

    /// Removes a configuration.
    pub fn remove(&self, name: &str) {
        self.change(|state| {
            state.api.remove(name);
        });
    }

    /// Replaces all of them, and marks them as loaded.
    pub fn replace<'c>(&self, all: impl IntoIterator<Item = &'c Configuration>) {
        self.change(|state| {
            state.api = self.compile_all(all, Source::Api, &state.api);
        });
        self.set_synced();
    }

    /// Replaces all configurations from manifest files.
    pub fn replace_static<'c>(&self, all: impl IntoIterator<Item = &'c Configuration>) {
        self.change(|state| {
            state.has_statics = true;
            state.statics = self.compile_all(all, Source::Manifest, &state.statics);
        });
        self.statics_synced.store(true, Ordering::Release);
    }

    /// Marks manifest files as not loaded yet.
    pub fn expect_static(&self) {
        self.change(|state| state.has_statics = true);
        self.statics_synced.store(false, Ordering::Release);
    }

    /// The webhooks as of the last change.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
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

    fn compile_all<'c>(
        &self,
        all: impl IntoIterator<Item = &'c Configuration>,
        source: Source,
        known: &BTreeMap<String, Compiled>,
    ) -> BTreeMap<String, Compiled> {
        all.into_iter()
            .filter(|configuration| configuration.kind == self.kind)
            .map(|configuration| {
                let name = &configuration.metadata.name;
                (
                    name.clone(),
                    compile(configuration, source, known.get(name)),
                )
            })
            .collect()
    }
}

impl State {
    fn snapshot(&self, generation: u64) -> Snapshot {
        let all = |map: &BTreeMap<String, Compiled>| -> Vec<Arc<CompiledHook>> {
            map.values()
                .flat_map(|hooks| hooks.iter().cloned())
                .collect()
        };
        let mut hooks = all(&self.statics);
        let statics = hooks.len();
        hooks.extend(all(&self.api));
        let index = Index::new(hooks.iter().map(|hook| hook.rules()));
        Snapshot {
            hooks,
            statics,
            index,
            generation,
        }
    }
}

impl fmt::Debug for Configurations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configurations")
            .field("kind", &self.kind)
            .field("synced", &self.synced())
            .finish_non_exhaustive()
    }
}

/// Compiles the webhooks of a configuration. Unchanged ones keep their compiled form, unless creating their client
/// failed, which is retried.
fn compile(configuration: &Configuration, source: Source, known: Option<&Compiled>) -> Compiled {
    let name: Arc<str> = configuration.metadata.name.as_str().into();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    configuration
        .webhooks()
        .iter()
        .map(|webhook| {
            let nth = seen.entry(&webhook.name).or_default();
            let identity = source.identity(&name, &webhook.name, *nth);
            *nth += 1;
            let same = known
                .into_iter()
                .flat_map(|hooks| hooks.iter())
                .find(|hook| {
                    hook.identity() == identity && hook.is_of(webhook) && !hook.client_failed()
                });
            match same {
                Some(hook) => Arc::clone(hook),
                None => Arc::new(CompiledHook::new(webhook, &name, identity, source)),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
