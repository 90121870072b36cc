//! `PodNodeSelector`: node selectors of namespaces.
//!
//! UPSTREAM: kubernetes plugin/pkg/admission/podnodeselector/admission.go

use std::collections::BTreeMap;
use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_admission::status;
use lockgate_api::meta::names::{check_label_value, check_qualified_name};
use serde::Deserialize;
use serde_json::Value;

use crate::fields::{annotation, map_mut, texts};
use crate::lookup::{Lookup, name_of, namespace};
use crate::rules::{About, CREATE, NEW_PODS, Refusal, Rules, Verdict, object};

/// The annotation of a namespace.
const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// The configuration key of the default, which is not a namespace.
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

/// The configuration file of upstream's plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// `clusterDefaultNodeSelector` applies to namespaces without an annotation; every other key is a namespace, with
    /// the labels its Pods may select by.
    #[serde(default)]
    pub pod_node_selector_plugin_config: BTreeMap<String, String>,
}

/// Labels by their keys.
type Labels = BTreeMap<String, String>;

/// Adds the node selector of the namespace to its Pods, and denies Pods with a conflicting one.
#[derive(Debug, Clone)]
pub struct PodNodeSelector {
    config: Arc<Configuration>,
    lookup: Arc<dyn Lookup>,
}

impl PodNodeSelector {
    /// Creates the plugin.
    pub fn new(config: Configuration, lookup: impl Lookup) -> Self {
        Self {
            config: Arc::new(config),
            lookup: Arc::new(lookup),
        }
    }

    /// The merged selector of a namespace and a Pod, or the conflict.
    async fn wanted(&self, request: &Request, pod: &Value) -> Result<Labels, Refusal> {
        let namespace = namespace(&*self.lookup, &request.namespace).await?;
        let wanted = match annotation(&namespace, ANNOTATION) {
            Some(text) => read(text)?,
            None => self.configured(CLUSTER_DEFAULT)?,
        };
        let conflicts = texts(pod, &["spec", "nodeSelector"])
            .any(|(key, value)| wanted.get(key).is_some_and(|wanted| wanted != value));
        if conflicts {
            let message =
                "pod node label selector conflicts with its namespace node label selector";
            return Err(forbidden(request, pod, message));
        }
        Ok(wanted)
    }

    /// Denies Pods with a node selector that is not allowed in their namespace.
    fn check(&self, request: &Request, pod: &Value) -> Verdict {
        let allowed = self.configured(&request.namespace)?;
        let mut selected = texts(pod, &["spec", "nodeSelector"]);
        let is_allowed = |(key, value)| {
            allowed
                .get(key)
                .is_some_and(|allowed: &String| allowed == value)
        };
        if allowed.is_empty() || selected.all(is_allowed) {
            return Ok(());
        }
        let message = "pod node label selector labels conflict with its namespace whitelist";
        Err(forbidden(request, pod, message))
    }

    fn configured(&self, name: &str) -> Result<Labels, Refusal> {
        let text = self.config.pod_node_selector_plugin_config.get(name);
        read(text.map_or("", String::as_str))
    }
}

/// A denial with the Pod's own name, which is empty before it is generated.
fn forbidden(request: &Request, pod: &Value, message: &str) -> Refusal {
    if !name_of(pod).is_empty() {
        return Refusal::forbidden(message);
    }
    let status = status::forbidden(&request.resource, "", message);
    Refusal::Status(Box::new(status))
}

/// Parses `key=value,key=value`.
// UPSTREAM: apimachinery pkg/labels/labels.go (ConvertSelectorToLabelsMap).
fn read(text: &str) -> Result<Labels, Refusal> {
    if text.is_empty() {
        return Ok(Labels::new());
    }
    let wrong = |problem: String| Refusal::Plain(problem);
    let pair = |pair: &str| {
        let parts: Vec<&str> = pair.split('=').collect();
        let [key, value] = parts.as_slice() else {
            return Err(wrong(format!("invalid selector: [{}]", parts.join(" "))));
        };
        let (key, value) = (key.trim(), value.trim());
        let problems = [check_qualified_name(key), check_label_value(value)].concat();
        if !problems.is_empty() {
            let problems = problems.join("; ");
            return Err(wrong(format!("invalid label `{key}={value}`: {problems}")));
        }
        Ok((key.to_owned(), value.to_owned()))
    };
    text.split(',').map(pair).collect()
}

impl Rules for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn operations(&self) -> &'static [Operation] {
        CREATE
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    fn validates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        let request = ask.request();
        let wanted = self.wanted(request, pod).await?;
        if !wanted.is_empty() {
            let selector = map_mut(pod, &["spec", "nodeSelector"])?;
            for (key, value) in wanted {
                selector.entry(key).or_insert(Value::String(value));
            }
        }
        self.check(request, pod)
    }

    async fn validate(&self, ask: &mut Admission) -> Verdict {
        let request = ask.request();
        let pod = object(request);
        self.wanted(request, pod).await?;
        self.check(request, pod)
    }
}
