//! `PodTolerationRestriction`: default and allowed tolerations of the Pods in a namespace.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/podtolerationrestriction/admission.go and
//! pkg/util/tolerations/tolerations.go

use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_api::document;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::amounts::is_best_effort;
use crate::fields::{annotation, items, list_mut};
use crate::lookup::{Lookup, namespace};
use crate::rules::{About, PODS, Refusal, Rules, Verdict, object};
use crate::tolerations::{Toleration, merge};

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// The configuration file of upstream's plugin,
/// `podtolerationrestriction.admission.k8s.io/v1alpha1`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Configuration {
    /// The default tolerations of namespaces without an annotation.
    #[serde(default)]
    pub default: Vec<Value>,
    /// The allowed tolerations of namespaces without an annotation.
    #[serde(default)]
    pub whitelist: Vec<Value>,
}

/// Adds tolerations to Pods, and denies Pods with tolerations that are not allowed.
#[derive(Debug, Clone)]
pub struct PodTolerationRestriction {
    config: Arc<Configuration>,
    lookup: Arc<dyn Lookup>,
}

impl PodTolerationRestriction {
    /// Creates the plugin.
    pub fn new(config: Configuration, lookup: impl Lookup) -> Self {
        Self {
            config: Arc::new(config),
            lookup: Arc::new(lookup),
        }
    }

    /// The tolerations in an annotation of the namespace. An empty value is an empty list, not an
    /// absent one.
    async fn of_namespace(
        &self,
        request: &Request,
        key: &str,
    ) -> Result<Option<Vec<Value>>, Refusal> {
        let namespace = namespace(&*self.lookup, &request.namespace).await?;
        match annotation(&namespace, key) {
            None => Ok(None),
            Some("") => Ok(Some(Vec::new())),
            Some(text) => {
                let plain = |error: String| Refusal::Plain(error);
                document::json::parse(text.as_bytes()).map_err(|error| plain(error.message))?;
                let read = serde_json::from_str(text).map_err(|error| plain(error.to_string()))?;
                Ok(Some(read))
            }
        }
    }

    async fn check(&self, request: &Request, pod: &Value) -> Verdict {
        let tolerations = items(pod, &["spec", "tolerations"]);
        if tolerations.is_empty() {
            return Ok(());
        }
        let of_namespace = self.of_namespace(request, ALLOWED).await?;
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
        Err(Refusal::Plain(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its \
             {scope} whitelist"
        )))
    }
}

impl Rules for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn mutates(&self) -> &'static [About] {
        &[PODS]
    }

    fn validates(&self) -> &'static [About] {
        &[PODS]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        let request = ask.request();
        let mut extra = Vec::new();
        if request.operation == Operation::Create {
            let of_namespace = self.of_namespace(request, DEFAULTS).await?;
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
        self.check(request, pod).await
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        self.check(request, object(request)).await
    }
}
