//! `PodTolerationRestriction`: which taints the pods of a namespace tolerate, and which they may.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/podtolerationrestriction/admission.go and
//! pkg/util/tolerations/tolerations.go

use std::sync::Arc;

use lockgate_webhook::{
    Context, Denial, Fault, Mutator, Object, Operation, Refusal, Validator, Verdict,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::amounts::is_best_effort;
use crate::fields::{annotation, at, items, list_mut, text};
use crate::lookup::{Lookup, namespace};
use crate::ready::{Hook, PODS, ReadyMade, mutates, validates};

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// The configuration file of upstream's plugin,
/// `podtolerationrestriction.admission.k8s.io/v1alpha1`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Configuration {
    /// Tolerations of pods in namespaces that name none.
    #[serde(default)]
    pub default: Vec<Value>,
    /// Tolerations that pods may have in namespaces that name none.
    #[serde(default)]
    pub whitelist: Vec<Value>,
}

/// Adds tolerations to pods, and refuses those that tolerate too much.
#[derive(Debug, Clone)]
pub struct PodTolerationRestriction {
    config: Arc<Configuration>,
    lookup: Arc<dyn Lookup>,
}

impl PodTolerationRestriction {
    /// The plugin with a configuration.
    pub fn new(config: Configuration, lookup: impl Lookup) -> Self {
        Self {
            config: Arc::new(config),
            lookup: Arc::new(lookup),
        }
    }

    /// What the namespace says under a key. An empty text is an empty list, not the absence of one.
    async fn of_namespace(&self, ctx: &Context, key: &str) -> Result<Option<Vec<Value>>, Refusal> {
        let namespace = namespace(&*self.lookup, ctx.namespace()).await?;
        match annotation(&namespace, key) {
            None => Ok(None),
            Some("") => Ok(Some(Vec::new())),
            Some(text) => serde_json::from_str(text).map(Some).map_err(|error| {
                Fault::new(format!("annotation {key} of the namespace: {error}")).into()
            }),
        }
    }

    async fn check(&self, ctx: &Context, pod: &Value) -> Verdict {
        let tolerations = items(pod, &["spec", "tolerations"]);
        if tolerations.is_empty() {
            return Ok(());
        }
        let of_namespace = self.of_namespace(ctx, ALLOWED).await?;
        let (allowed, scope) = match &of_namespace {
            Some(allowed) => (allowed, "namespace"),
            None => (&self.config.whitelist, "cluster"),
        };
        let is_allowed = |toleration: &Value| {
            let mut allowed = allowed.iter();
            allowed.any(|allowed| Toleration::of(allowed).covers(&Toleration::of(toleration)))
        };
        if allowed.is_empty() || tolerations.iter().all(is_allowed) {
            return Ok(());
        }
        Err(Denial::forbidden(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its \
             {scope} whitelist"
        ))
        .into())
    }
}

/// What matters of a toleration.
#[derive(Debug, PartialEq, Eq)]
struct Toleration<'v> {
    key: &'v str,
    operator: &'v str,
    value: &'v str,
    effect: &'v str,
    seconds: Option<i64>,
}

impl<'v> Toleration<'v> {
    fn of(value: &'v Value) -> Self {
        Self {
            key: text(value, "key"),
            operator: text(value, "operator"),
            value: text(value, "value"),
            effect: text(value, "effect"),
            seconds: at(value, &["tolerationSeconds"]).and_then(Value::as_i64),
        }
    }

    /// Whether it tolerates everything that the other one does.
    fn covers(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let every_key = self.key.is_empty() && self.operator == "Exists";
        if self.key != other.key && !every_key {
            return false;
        }
        if self.effect != other.effect && !self.effect.is_empty() {
            return false;
        }
        if self.effect == "NoExecute"
            && let Some(seconds) = self.seconds
            && other.seconds.is_none_or(|other| other > seconds)
        {
            return false;
        }
        match self.operator {
            "Equal" | "" => other.operator == "Equal" && other.value == self.value,
            "Exists" => true,
            _ => false,
        }
    }
}

/// Both lists without the tolerations that others cover. Of equal ones the first stays.
fn merge(all: Vec<Value>) -> Vec<Value> {
    let mut kept = vec![false; all.len()];
    for (at, one) in all.iter().enumerate() {
        let one = Toleration::of(one);
        let mut before = all.iter().zip(&kept).take(at).filter(|(_, kept)| **kept);
        let mut after = all.iter().skip(at + 1).map(Toleration::of);
        let is_covered = before.any(|(other, _)| Toleration::of(other).covers(&one))
            || after.any(|other| other != one && other.covers(&one));
        if let Some(kept) = kept.get_mut(at) {
            *kept = !is_covered;
        }
    }
    let pairs = all.into_iter().zip(kept);
    pairs
        .filter_map(|(one, kept)| kept.then_some(one))
        .collect()
}

impl ReadyMade for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn webhooks(&self) -> Vec<Hook> {
        let word = "pod-toleration-restriction";
        vec![
            mutates(word, self.clone(), &[PODS]),
            validates(word, self.clone(), &[PODS]),
        ]
    }
}

impl Mutator<Value> for PodTolerationRestriction {
    async fn mutate(&self, ctx: &Context, pod: &mut Value) -> Verdict {
        let mut extra = Vec::new();
        if *ctx.operation() == Operation::Create {
            let of_namespace = self.of_namespace(ctx, DEFAULTS).await?;
            extra = of_namespace.unwrap_or_else(|| self.config.default.clone());
        }
        if !is_best_effort(pod)? {
            extra.push(json!({
                "key": "node.kubernetes.io/memory-pressure",
                "operator": "Exists",
                "effect": "NoSchedule",
            }));
        }
        if !extra.is_empty() {
            let tolerations = list_mut(pod, &["spec", "tolerations"])?;
            let mut all = std::mem::take(tolerations);
            all.append(&mut extra);
            *tolerations = merge(all);
        }
        self.check(ctx, pod).await
    }
}

impl Validator<Value> for PodTolerationRestriction {
    async fn create(&self, ctx: &Context, pod: &Object<Value>) -> Verdict {
        self.check(ctx, pod).await
    }

    async fn update(&self, ctx: &Context, _: &Object<Value>, pod: &Object<Value>) -> Verdict {
        self.check(ctx, pod).await
    }
}
