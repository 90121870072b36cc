//! `ResourceQuota`: limits the total usage of a namespace.
//!
//! Usage is charged to the quotas of a namespace before the object is stored, so that concurrent writes never exceed
//! a quota. Charges in a namespace are serialised; charged writes hold the [`Ledger`] until they complete, and a
//! recount waits for them. So a recount neither misses an object about to be stored nor counts it twice.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/resourcequota, kubernetes pkg/controller/resourcequota

mod count;
mod devices;
mod evaluator;
mod ledger;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::meta::status::Status;
use lockgate_go::quantity::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::amounts::{Amounts, add, amounts};
use crate::config::{self, ConfigError, Known};
use crate::fields::map_mut;
use crate::lookup::{
    DEVICE_CLASSES, Lookup, PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS, Writes, name_of,
};
use crate::rules::{About, Refusal, Rules, Verdict, WRITE, object, old_object};

use evaluator::{Evaluator, Scope};

pub use count::{Counted, Usage, counted_by, status_of};
pub use devices::Devices;
pub use ledger::Ledger;

/// The number of retries of a conflicting write.
const RETRIES: usize = 3;

/// The time a writer waits for its turn.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The configuration of the plugin, `apiserver.config.k8s.io/v1`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Resources that require a matching quota.
    #[serde(default)]
    pub limited_resources: Vec<LimitedResource>,
}

/// A resource that requires a matching quota.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitedResource {
    /// The group of the resource.
    #[serde(default)]
    pub api_group: String,
    /// Its plural name.
    #[serde(default)]
    pub resource: String,
    /// Substrings of the resource names it is charged under.
    #[serde(default)]
    pub match_contains: Vec<String>,
    /// The scopes of its objects.
    #[serde(default)]
    pub match_scopes: Vec<Value>,
}

impl Configuration {
    /// Parses a configuration.
    ///
    /// # Errors
    ///
    /// Fails if it is invalid or incomplete.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        const SCOPE: Known = Known(&[("scopeName", None), ("operator", None), ("values", None)]);
        const LIMITED: Known = Known(&[
            ("apiGroup", None),
            ("resource", None),
            ("matchContains", None),
            ("matchScopes", Some(&SCOPE)),
        ]);
        let config: Self = config::read_strict(
            text,
            &[
                "apiserver.config.k8s.io/v1",
                "resourcequota.admission.k8s.io/v1beta1",
                "resourcequota.admission.k8s.io/v1alpha1",
            ],
            "ResourceQuotaConfiguration",
            &Known(&[("limitedResources", Some(&LIMITED))]),
        )?;
        let all = config.limited_resources.iter().enumerate();
        let missing = all.filter(|(_, limited)| limited.resource.is_empty());
        let missing =
            missing.map(|(n, _)| format!("limitedResources[{n}].resource: Required value"));
        match crate::texts::aggregate(missing.collect()) {
            None => Ok(config),
            Some(problem) => Err(ConfigError(problem)),
        }
    }
}

/// Charges writes, and denies those that exceed a quota.
#[derive(Debug, Clone)]
pub struct ResourceQuota {
    limited: Arc<[LimitedResource]>,
    lookup: Arc<dyn Lookup>,
    writes: Arc<dyn Writes>,
    ledger: Arc<Ledger>,
}

impl ResourceQuota {
    /// Creates the plugin. The ledger is shared with the quota controller.
    pub fn new(
        config: Configuration,
        lookup: impl Lookup,
        writes: Arc<dyn Writes>,
        ledger: Arc<Ledger>,
    ) -> Self {
        Self {
            limited: config.limited_resources.into(),
            lookup: Arc::new(lookup),
            writes,
            ledger,
        }
    }

    /// The objects on which the usage of a claim depends.
    async fn devices(&self, request: &Request) -> Result<Devices, Refusal> {
        let classes = self.lookup.list(DEVICE_CLASSES, "").await?;
        let claims = [old_object(request), object(request)];
        if !claims.into_iter().any(devices::is_made_for_pod) {
            return Ok(Devices::new(&classes, Vec::new(), Vec::new()));
        }
        let pods = self.lookup.list(PODS, &request.namespace).await?;
        let claims = self
            .lookup
            .list(RESOURCE_CLAIMS, &request.namespace)
            .await?;
        Ok(Devices::new(&classes, pods, claims))
    }

    async fn charge(&self, ask: &mut Admission, evaluator: &Evaluator) -> Verdict {
        let late = || Refusal::Fault(String::from("resource quota evaluation timed out"));
        let request = ask.request();
        let namespace = request.namespace.clone();
        let dry_run = request.dry_run;
        if !dry_run {
            let entry = match ask.held::<ledger::Entry>() {
                Some(entry) if entry.is_of(&namespace) => entry,
                _ => {
                    let entry = tokio::time::timeout(LOCK_TIMEOUT, self.ledger.enter(&namespace));
                    let entry = Arc::new(entry.await.map_err(|_| late())?);
                    ask.hold(Arc::clone(&entry) as _);
                    entry
                }
            };
            let turn = tokio::time::timeout(LOCK_TIMEOUT, entry.lock());
            let _turn = turn.await.map_err(|_| late())?;
            return self.charge_in_turn(ask.request(), evaluator).await;
        }
        let quotas = self.lookup.list(RESOURCE_QUOTAS, &namespace).await?;
        self.check(ask.request(), evaluator, &quotas).map(|_| ())
    }

    async fn charge_in_turn(&self, request: &Request, evaluator: &Evaluator) -> Verdict {
        let mut only: Option<BTreeSet<String>> = None;
        let mut tries = 0;
        loop {
            let mut quotas = self
                .lookup
                .list(RESOURCE_QUOTAS, &request.namespace)
                .await?;
            if let Some(only) = &only {
                quotas.retain(|quota| only.contains(name_of(quota)));
            }
            let charged = self.check(request, evaluator, &quotas)?;
            let mut failed = BTreeSet::new();
            let mut last: Option<Box<Status>> = None;
            for quota in charged {
                if let Err(status) = self.writes.update_status(RESOURCE_QUOTAS, &quota).await {
                    failed.insert(name_of(&quota).to_owned());
                    last = Some(status);
                }
            }
            let Some(status) = last else {
                return Ok(());
            };
            if tries == RETRIES {
                return Err(Refusal::Status(status));
            }
            tries += 1;
            only = Some(failed);
        }
    }

    /// Charges a request. Returns the changed quotas.
    fn check(
        &self,
        request: &Request,
        evaluator: &Evaluator,
        quotas: &[Arc<Value>],
    ) -> Result<Vec<Value>, Refusal> {
        let (old, new) = (old_object(request), object(request));
        let limited = Limited::of(&self.limited, request, evaluator, new)?;
        let mut applying = Vec::new();
        let mut covered_names = BTreeSet::new();
        let mut covered_scopes = BTreeSet::new();
        for quota in quotas {
            let quota = Quota::read(quota)?;
            for scope in &quota.scopes {
                if evaluator.is_in(scope, new)? {
                    covered_scopes.insert(scope.name.clone());
                }
            }
            let names = evaluator.matching_resources(quota.hard.keys().map(String::as_str));
            if names.is_empty() || !quota.includes(evaluator, new)? {
                continue;
            }
            if let Some(missing) = evaluator.missing(&names, new) {
                let name = name_of(quota.object);
                return Err(Refusal::forbidden(format!(
                    "failed quota: {name}: {missing}"
                )));
            }
            if names.iter().any(|name| !quota.used.contains_key(*name)) {
                let (name, names) = (name_of(quota.object), names.join(","));
                return Err(Refusal::forbidden(format!(
                    "status unknown for quota: {name}, resources: {names}"
                )));
            }
            covered_names.extend(names.into_iter().map(str::to_owned));
            applying.push(quota);
        }
        let usage = evaluator.usage(new)?;
        let negative: Vec<&str> = usage
            .iter()
            .filter(|(_, amount)| amount.sign() < 0)
            .map(|(name, _)| name.as_str())
            .collect();
        if !negative.is_empty() {
            let names = negative.join(",");
            return Err(Refusal::forbidden(format!(
                "quota usage is negative for resource(s): {names}"
            )));
        }
        let more = match request.operation {
            Operation::Update => increase(&usage, &evaluator.usage(old)?)?,
            _ => usage.clone(),
        };
        let mut deltas = Vec::new();
        for quota in &applying {
            // An object that newly matches this quota is charged in full.
            let is_new =
                request.operation != Operation::Update || !quota.includes(evaluator, old)?;
            let delta = if is_new { &usage } else { &more };
            deltas.push(positive(delta));
        }
        let nothing = match applying.is_empty() {
            true => positive(&more).is_empty(),
            false => deltas.iter().all(Amounts::is_empty),
        };
        if nothing {
            return Ok(Vec::new());
        }
        limited.check(&covered_names, &covered_scopes)?;
        let mut charged = Vec::new();
        for (quota, delta) in applying.iter().zip(deltas) {
            charged.extend(quota.charged(request, delta)?);
        }
        Ok(charged)
    }
}

/// The quantities above zero.
fn positive(amounts: &Amounts) -> Amounts {
    let amounts = amounts.iter().filter(|(_, amount)| amount.sign() > 0);
    amounts
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect()
}

/// The usage added by an update.
fn increase(now: &Amounts, before: &Amounts) -> Result<Amounts, Refusal> {
    let mut more = Amounts::new();
    for (name, amount) in now {
        let amount = match before.get(name) {
            None => amount.clone(),
            Some(before) => {
                let difference = amount.sub(before);
                difference.map_err(|error| Refusal::Plain(error.to_string()))?
            }
        };
        more.insert(name.clone(), amount);
    }
    Ok(more)
}

/// Formats quantities: `a=1,b=2`.
fn format_amounts(amounts: &[(&str, &Quantity)]) -> String {
    let pairs: Vec<String> = amounts
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    pairs.join(",")
}

/// The limited resources that a request uses.
struct Limited {
    names: BTreeSet<String>,
    scopes: Vec<Scope>,
}

impl Limited {
    fn of(
        all: &[LimitedResource],
        request: &Request,
        evaluator: &Evaluator,
        object: &Value,
    ) -> Result<Self, Refusal> {
        let mut limited = Self {
            names: BTreeSet::new(),
            scopes: Vec::new(),
        };
        for one in all {
            for scope in one.match_scopes.iter().map(Scope::read) {
                if evaluator.is_in(&scope, object)? {
                    limited.scopes.push(scope);
                }
            }
            let resource = &request.resource;
            if (&one.api_group, &one.resource) != (&resource.group, &resource.resource) {
                continue;
            }
            for (name, amount) in evaluator.usage(object)? {
                let mut parts = one.match_contains.iter();
                if amount.sign() > 0 && parts.any(|part| name.contains(part.as_str())) {
                    limited.names.insert(name);
                }
            }
        }
        Ok(limited)
    }

    fn check(&self, names: &BTreeSet<String>, scopes: &BTreeSet<String>) -> Verdict {
        let open: Vec<&str> = self.names.difference(names).map(String::as_str).collect();
        if !open.is_empty() {
            let open = open.join(",");
            return Err(Refusal::forbidden(format!(
                "insufficient quota to consume: {open}"
            )));
        }
        let open = self
            .scopes
            .iter()
            .filter(|scope| !scopes.contains(&scope.name));
        let open: Vec<String> = open.map(Scope::to_string).collect();
        if open.is_empty() {
            return Ok(());
        }
        // UPSTREAM: this error has no status.
        Err(Refusal::Plain(format!(
            "insufficient quota to match these scopes: [{}]",
            open.join(" ")
        )))
    }
}

/// A parsed quota.
struct Quota<'v> {
    object: &'v Value,
    hard: Amounts,
    used: Amounts,
    scopes: Vec<Scope>,
}

impl<'v> Quota<'v> {
    fn read(object: &'v Value) -> Result<Self, Refusal> {
        Ok(Self {
            object,
            hard: amounts(object, &["status", "hard"])?,
            used: amounts(object, &["status", "used"])?,
            scopes: Scope::all_of(object),
        })
    }

    /// Returns true if an object is in all scopes of the quota.
    fn includes(&self, evaluator: &Evaluator, object: &Value) -> Result<bool, Refusal> {
        for scope in &self.scopes {
            if !evaluator.is_in(scope, object)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The quota with additional usage, if any of it is limited.
    fn charged(&self, request: &Request, mut more: Amounts) -> Result<Option<Value>, Refusal> {
        more.retain(|name, _| self.hard.contains_key(name));
        if more.is_empty() {
            return Ok(None);
        }
        let mut used = self.used.clone();
        add(&mut used, &more)?;
        let exceeds = |name: &String| match (used.get(name), self.hard.get(name)) {
            (Some(used), Some(hard)) => used.compare(hard) == Ordering::Greater,
            _ => false,
        };
        let exceeded: Vec<&String> = more.keys().filter(|name| exceeds(name)).collect();
        // Usage recalculated by a controller is not denied.
        if !exceeded.is_empty() && request.subresource != "status" {
            let of = |amounts: &Amounts| {
                let amounts: Vec<(&str, &Quantity)> = exceeded
                    .iter()
                    .filter_map(|name| Some((name.as_str(), amounts.get(*name)?)))
                    .collect();
                format_amounts(&amounts)
            };
            let name = name_of(self.object);
            let (requested, used, limited) = (of(&more), of(&self.used), of(&self.hard));
            return Err(Refusal::forbidden(format!(
                "exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}"
            )));
        }
        let mut quota = self.object.clone();
        let used: Map<String, Value> = used
            .into_iter()
            .map(|(name, amount)| (name, Value::String(amount.to_string())))
            .collect();
        map_mut(&mut quota, &["status"])?.insert(String::from("used"), used.into());
        Ok(Some(quota))
    }
}

impl Rules for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn validates(&self) -> &'static [About] {
        const EVERYTHING: About = About {
            operations: WRITE,
            group: "*",
            resources: &["*/*"],
        };
        &[EVERYTHING]
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let resource = &request.resource;
        let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
        if request.namespace.is_empty() || is_namespace && request.operation == Operation::Create {
            return Ok(());
        }
        let Some(evaluator) = Evaluator::of(&resource.group, &resource.resource) else {
            return Ok(());
        };
        if !evaluator.handles(request) {
            return Ok(());
        }
        // Most namespaces have no quota and need no lock.
        let quotas = self
            .lookup
            .list(RESOURCE_QUOTAS, &request.namespace)
            .await?;
        if quotas.is_empty() && self.limited.is_empty() {
            return Ok(());
        }
        let evaluator = match evaluator {
            Evaluator::ResourceClaims(_) => {
                let devices = self.devices(request).await?;
                evaluator.with(&Arc::new(devices))
            }
            other => other,
        };
        self.charge(ask, &evaluator).await
    }
}
