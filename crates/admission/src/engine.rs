//! The admission chain with its webhooks and metrics.

use std::fmt;
use std::sync::Arc;

use lockgate_api::registration::policy::PolicyKind;
use lockgate_api::registration::{Configuration, ConfigurationKind};

use crate::call::Caller;
use crate::chain::Chain;
use crate::configuration::{Configurations, Policies};
use crate::decision::Decision;
use crate::host::Host;
use crate::matching::ConditionsGate;
use crate::metrics::Metrics;
use crate::order::{PluginError, Plugins};
use crate::plugin::{Admission, Plugin};
use crate::policy::{MutatingPolicies, ValidatingPolicies};
use crate::trace::Step;
use crate::webhook::{MutatingWebhooks, ValidatingWebhooks};

/// Runs admission for requests.
#[derive(Debug, Clone)]
pub struct Engine {
    chain: Chain,
    host: Host,
    mutating: Arc<Configurations>,
    validating: Arc<Configurations>,
    mutating_policies: Arc<Policies>,
    validating_policies: Arc<Policies>,
    metrics: Arc<Metrics>,
}

impl Engine {
    /// Creates an engine that evaluates policies, calls webhooks and has no other plugins.
    #[must_use]
    pub fn new(host: Host) -> Self {
        let builder = Self::builder(host);
        let plugins = builder.own_plugins();
        builder.finish(plugins)
    }

    /// Builds an engine with additional plugins.
    #[must_use]
    pub fn builder(host: Host) -> EngineBuilder {
        let kinds = [ConfigurationKind::Mutating, ConfigurationKind::Validating];
        let [mutating, validating] = kinds.map(|kind| Arc::new(Configurations::new(kind)));
        let kinds = [PolicyKind::Mutating, PolicyKind::Validating];
        let [mutating_policies, validating_policies] =
            kinds.map(|kind| Arc::new(Policies::new(kind)));
        EngineBuilder {
            host,
            mutating,
            validating,
            mutating_policies,
            validating_policies,
            plugins: Plugins::default(),
            conditions: ConditionsGate::default(),
            mutating_caller: None,
            validating_caller: None,
        }
    }

    /// The configurations of one kind.
    #[must_use]
    pub fn configurations(&self, kind: ConfigurationKind) -> &Arc<Configurations> {
        match kind {
            ConfigurationKind::Mutating => &self.mutating,
            ConfigurationKind::Validating => &self.validating,
        }
    }

    /// The policies of one kind.
    #[must_use]
    pub fn policies(&self, kind: PolicyKind) -> &Arc<Policies> {
        match kind {
            PolicyKind::Mutating => &self.mutating_policies,
            PolicyKind::Validating => &self.validating_policies,
        }
    }

    /// Adds a configuration or replaces the one of the same kind and name. Requests that start after this returns use
    /// it.
    pub fn register(&self, configuration: &Configuration) {
        self.configurations(configuration.kind)
            .upsert(configuration);
    }

    /// Runs the first step: plugins and mutating webhooks, which may change the object.
    pub async fn admit(&self, admission: &mut Admission) -> Decision {
        let guard = StepGuard::new(self, admission);
        let decision = self.chain.admit(guard.admission).await;
        guard.finish();
        decision
    }

    /// Runs the second step: plugins and validating webhooks, on the final object.
    pub async fn validate(&self, admission: &mut Admission) -> Decision {
        let guard = StepGuard::new(self, admission);
        let decision = self.chain.validate(guard.admission).await;
        guard.finish();
        decision
    }

    fn record(&self, admission: &Admission) {
        if let Some(step) = admission.trace.steps.last() {
            self.metrics.record(step, self.host.clock.now());
        }
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The plugins, in the order they run.
    pub fn plugins(&self) -> impl Iterator<Item = &'static str> {
        self.chain.names()
    }

    /// The plugins with a given step, in the order they run.
    pub fn plugins_in(&self, step: Step) -> impl Iterator<Item = &'static str> {
        self.chain.names_in(step)
    }
}

/// Records the step even if the request is cancelled, which drops its future anywhere.
struct StepGuard<'w> {
    engine: &'w Engine,
    admission: &'w mut Admission,
}

impl<'w> StepGuard<'w> {
    fn new(engine: &'w Engine, admission: &'w mut Admission) -> Self {
        Self { engine, admission }
    }

    /// Records a step that completed.
    fn finish(self) {
        self.engine.record(self.admission);
    }
}

impl Drop for StepGuard<'_> {
    fn drop(&mut self) {
        if self.engine.chain.abort(self.admission) {
            self.engine.record(self.admission);
        }
    }
}

/// A builder of engines.
pub struct EngineBuilder {
    host: Host,
    mutating: Arc<Configurations>,
    validating: Arc<Configurations>,
    mutating_policies: Arc<Policies>,
    validating_policies: Arc<Policies>,
    plugins: Plugins,
    conditions: ConditionsGate,
    mutating_caller: Option<Arc<dyn Caller>>,
    validating_caller: Option<Arc<dyn Caller>>,
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").finish_non_exhaustive()
    }
}

impl EngineBuilder {
    /// Uses shared configurations, which may not be loaded yet.
    #[must_use]
    pub fn configurations(mut self, configurations: Arc<Configurations>) -> Self {
        match configurations.kind() {
            ConfigurationKind::Mutating => self.mutating = configurations,
            ConfigurationKind::Validating => self.validating = configurations,
        }
        self
    }

    /// Uses externally managed policies, which may not be loaded yet.
    #[must_use]
    pub fn policies(mut self, policies: Arc<Policies>) -> Self {
        match policies.kind() {
            PolicyKind::Mutating => self.mutating_policies = policies,
            PolicyKind::Validating => self.validating_policies = policies,
        }
        self
    }

    /// Enables or disables match conditions; they are enabled by default.
    #[must_use]
    pub fn match_conditions(mut self, gate: ConditionsGate) -> Self {
        self.conditions = gate;
        self
    }

    /// Calls the webhooks of one kind through a separate caller, with its own credentials.
    #[must_use]
    pub fn caller(mut self, kind: ConfigurationKind, caller: Arc<dyn Caller>) -> Self {
        match kind {
            ConfigurationKind::Mutating => self.mutating_caller = Some(caller),
            ConfigurationKind::Validating => self.validating_caller = Some(caller),
        }
        self
    }

    /// Adds a plugin. The defaults and the lists of names determine if it is enabled.
    #[must_use]
    pub fn plugin(mut self, plugin: impl Plugin + 'static) -> Self {
        self.plugins.add(Arc::new(plugin));
        self
    }

    /// Enables plugins.
    #[must_use]
    pub fn enable<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.plugins.enable(names);
        self
    }

    /// Disables plugins.
    #[must_use]
    pub fn disable<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.plugins.disable(names);
        self
    }

    /// Builds the engine.
    ///
    /// # Errors
    ///
    /// Fails if a name is unknown, or both enabled and disabled.
    pub fn build(mut self) -> Result<Engine, PluginError> {
        for plugin in self.own_plugins() {
            self.plugins.add(plugin);
        }
        let plugins = std::mem::take(&mut self.plugins).ordered()?;
        Ok(self.finish(plugins))
    }

    /// The plugins of the engine itself, in the order they run.
    fn own_plugins(&self) -> Vec<Arc<dyn Plugin>> {
        let host = |caller: &Option<Arc<dyn Caller>>| {
            let mut host = self.host.clone();
            if let Some(caller) = caller {
                host.caller = Arc::clone(caller);
            }
            host
        };
        let (own, mutating) = (host(&self.mutating_caller), Arc::clone(&self.mutating));
        let mutating = MutatingWebhooks::with_configurations(own, mutating);
        let (own, validating) = (host(&self.validating_caller), Arc::clone(&self.validating));
        let validating = ValidatingWebhooks::with_configurations(own, validating);
        let policies = Arc::clone(&self.mutating_policies);
        let mutating_policies = MutatingPolicies::with_policies(self.host.clone(), policies);
        let policies = Arc::clone(&self.validating_policies);
        let validating_policies = ValidatingPolicies::with_policies(self.host.clone(), policies);
        vec![
            Arc::new(mutating_policies),
            Arc::new(mutating.with_conditions(self.conditions)),
            Arc::new(validating_policies),
            Arc::new(validating.with_conditions(self.conditions)),
        ]
    }

    fn finish(self, plugins: Vec<Arc<dyn Plugin>>) -> Engine {
        Engine {
            chain: Chain::new(Arc::clone(&self.host.clock), plugins),
            host: self.host,
            mutating: self.mutating,
            validating: self.validating,
            mutating_policies: self.mutating_policies,
            validating_policies: self.validating_policies,
            metrics: Arc::new(Metrics::new()),
        }
    }
}
