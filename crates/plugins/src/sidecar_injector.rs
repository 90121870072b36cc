//! `SidecarInjector`: adds shared parts to Pods from templates.
//!
//! A template is a fragment of a Pod. It is merged below the Pod like a strategic merge patch: fields of the Pod take
//! precedence, lists are merged by their keys. The names of added items are recorded in an annotation, so that a second
//! run removes them first and has the same result, even if the template has changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::Request;
use lockgate_api::meta::selector::Selector;
use lockgate_kinds::strategic_merge;
use lockgate_kinds::typed::{Type, type_of};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::ConfigError;
use crate::fields::{
    annotate, annotation, is_mirror, is_on, items, items_mut, label, members, text,
};
use crate::rules::{About, NEW_PODS, Refusal, Rules, Verdict};
use crate::selector::{Labels, selects};

/// The lists with named items, for which an order can be configured.
const LISTS: [&str; 4] = [
    "containers",
    "initContainers",
    "volumes",
    "imagePullSecrets",
];

/// The maps of the metadata that templates add to.
const MAPS: [&str; 2] = ["labels", "annotations"];

/// The image of a container that is set by the template.
const AUTO: &str = "auto";

/// The configuration of the injector.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// The default for Pods without a matching label, annotation or selector.
    #[serde(default)]
    pub policy: Policy,
    /// The label or annotation with a Pod's own choice: `true`, `yes`, `on` and `y` mean yes, everything else no.
    #[serde(default = "inject_key")]
    pub inject_key: String,
    /// The annotation with the names of added items.
    #[serde(default = "status_key")]
    pub status_key: String,
    /// Pods that are not injected unless they opt in.
    #[serde(default)]
    pub never_inject_selector: Vec<Labels>,
    /// Pods that are injected unless they opt out.
    #[serde(default)]
    pub always_inject_selector: Vec<Labels>,
    /// Namespaces whose Pods are not injected.
    #[serde(default = "ignored_namespaces")]
    pub ignored_namespaces: Vec<String>,
    /// Injects into pods with `hostNetwork` too.
    #[serde(default)]
    pub host_network: bool,
    /// The templates, injected in this order.
    #[serde(default)]
    pub templates: Vec<Template>,
}

fn inject_key() -> String {
    String::from("sidecar.plugins.lockgate.io/inject")
}

fn status_key() -> String {
    String::from("sidecar.plugins.lockgate.io/status")
}

fn ignored_namespaces() -> Vec<String> {
    ["kube-system", "kube-public", "kube-node-lease"]
        .map(String::from)
        .into()
}

/// The default for Pods without a matching label, annotation or selector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Policy {
    /// They are injected.
    #[default]
    Enabled,
    /// They are not injected.
    Disabled,
}

/// A fragment of a Pod.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Template {
    /// The name.
    pub name: String,
    /// The label selector of Pods; without it, all Pods match.
    #[serde(default)]
    pub selector: Labels,
    /// The position of its containers and init containers in the Pod.
    #[serde(default)]
    pub order: Order,
    /// The fragment: `metadata` with labels and annotations, and `spec`.
    pub pod: Value,
}

/// The position of injected items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// Before the Pod's own items.
    First,
    /// After the Pod's own items.
    #[default]
    Last,
}

/// Injects templates into Pods.
#[derive(Debug, Clone)]
pub struct SidecarInjector {
    rules: Arc<Injections>,
}

#[derive(Debug)]
struct Injections {
    config: Configuration,
    never: Vec<Selector>,
    always: Vec<Selector>,
    selectors: Vec<Selector>,
    pod_type: Type,
}

/// The names of containers and volumes injected into a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    templates: Vec<String>,
    containers: Vec<String>,
    init_containers: Vec<String>,
    volumes: Vec<String>,
    image_pull_secrets: Vec<String>,
    labels: Vec<String>,
    annotations: Vec<String>,
}

impl Status {
    fn list_mut(&mut self, list: &str) -> &mut Vec<String> {
        match list {
            "containers" => &mut self.containers,
            "initContainers" => &mut self.init_containers,
            "volumes" => &mut self.volumes,
            "imagePullSecrets" => &mut self.image_pull_secrets,
            "labels" => &mut self.labels,
            _ => &mut self.annotations,
        }
    }
}

impl SidecarInjector {
    /// Creates the plugin.
    ///
    /// # Errors
    ///
    /// Fails if a selector or template is invalid.
    pub fn new(config: Configuration) -> Result<Self, ConfigError> {
        let compile = |labels: &Labels| {
            let compiled = labels.compile();
            compiled.map_err(|error| ConfigError(format!("selector: {error}")))
        };
        let all = |list: &[Labels]| list.iter().map(compile).collect::<Result<Vec<_>, _>>();
        let never = all(&config.never_inject_selector)?;
        let always = all(&config.always_inject_selector)?;
        let templates = config.templates.iter();
        let selectors = templates.map(|template| compile(&template.selector));
        let selectors = selectors.collect::<Result<Vec<_>, _>>()?;
        let no_type = || ConfigError(String::from("the type of pods is not known"));
        let pod_type = type_of("", "v1", "Pod").ok_or_else(no_type)?;
        for template in &config.templates {
            let name = &template.name;
            let tried = strategic_merge::patch(&Value::Object(Map::new()), &template.pod, pod_type);
            tried.map_err(|error| ConfigError(format!("template {name}: {error}")))?;
        }
        Ok(Self {
            rules: Arc::new(Injections {
                config,
                never,
                always,
                selectors,
                pod_type,
            }),
        })
    }

    /// Returns true if the Pod is to be injected.
    fn wants(&self, request: &Request, pod: &Value) -> bool {
        let Injections {
            config,
            never,
            always,
            ..
        } = &*self.rules;
        let ignored = config.ignored_namespaces.contains(&request.namespace);
        let is_host = is_on(pod, &["spec", "hostNetwork"]) && !config.host_network;
        if ignored || is_host || is_mirror(pod) {
            return false;
        }
        let key = &config.inject_key;
        if let Some(own) = label(pod, key).or_else(|| annotation(pod, key)) {
            return matches!(own.to_lowercase().as_str(), "y" | "yes" | "true" | "on");
        }
        if never.iter().any(|selector| selects(selector, pod)) {
            return false;
        }
        always.iter().any(|selector| selects(selector, pod)) || config.policy == Policy::Enabled
    }

    /// Removes the items of an earlier run.
    fn strip(&self, pod: &mut Value) -> Verdict {
        let key = &self.rules.config.status_key;
        let Some(status) = annotation(pod, key) else {
            return Ok(());
        };
        let mut status: Status = serde_json::from_str(status).map_err(|error| {
            Refusal::status(400, "BadRequest", format!("annotation {key}: {error}"))
        })?;
        for list in LISTS {
            let names = std::mem::take(status.list_mut(list));
            let spec = pod.get_mut("spec").and_then(|spec| spec.get_mut(list));
            if let Some(elements) = spec.and_then(Value::as_array_mut) {
                elements.retain(|one| !names.iter().any(|name| name == text(one, "name")));
            }
        }
        for map in MAPS {
            let mut names = std::mem::take(status.list_mut(map));
            names.push(key.clone());
            let members = pod
                .get_mut("metadata")
                .and_then(|metadata| metadata.get_mut(map));
            if let Some(members) = members.and_then(Value::as_object_mut) {
                members.retain(|name, _| !names.contains(name));
            }
        }
        Ok(())
    }

    fn inject(&self, template: &Template, pod: &mut Value, status: &mut Status) -> Verdict {
        let before = LISTS.map(|list| names(pod, list));
        let keys_before = MAPS.map(|map| keys(pod, map));
        for container in items_mut(pod, &["spec", "containers"]) {
            let from_template =
                names(&template.pod, "containers").contains(text(container, "name"));
            if let Some(container) = container.as_object_mut()
                && from_template
                && container.get("image").and_then(Value::as_str) == Some(AUTO)
            {
                container.remove("image");
            }
        }
        let merged = strategic_merge::patch(&template.pod, pod, self.rules.pod_type);
        *pod = merged.map_err(|error| {
            let name = &template.name;
            Refusal::Fault(format!("template {name}: {error}"))
        })?;
        for (list, before) in LISTS.into_iter().zip(before) {
            let place = pod.get_mut("spec").and_then(|spec| spec.get_mut(list));
            let Some(elements) = place.and_then(Value::as_array_mut) else {
                continue;
            };
            let (own, mut added): (Vec<Value>, Vec<Value>) = std::mem::take(elements)
                .into_iter()
                .partition(|one| before.contains(text(one, "name")));
            let mut own = in_order(own, &before);
            let told = added.iter().map(|one| text(one, "name").to_owned());
            status.list_mut(list).extend(told);
            let is_container = list.ends_with("ontainers");
            *elements = if is_container && template.order == Order::First {
                added.append(&mut own);
                added
            } else {
                own.append(&mut added);
                own
            };
        }
        for (map, before) in MAPS.into_iter().zip(keys_before) {
            let added = keys(pod, map)
                .into_iter()
                .filter(|key| !before.contains(key));
            status.list_mut(map).extend(added);
        }
        status.templates.push(template.name.clone());
        Ok(())
    }
}

fn keys(pod: &Value, map: &str) -> BTreeSet<String> {
    let members = members(pod, &["metadata", map]);
    members.map(|(key, _)| key.to_owned()).collect()
}

/// The names in a list of the spec, in order.
fn names(pod: &Value, list: &str) -> Names {
    let all = items(pod, &["spec", list]).iter();
    let order: Vec<String> = all.map(|one| text(one, "name").to_owned()).collect();
    let known = order.iter().cloned().collect();
    Names { order, known }
}

struct Names {
    order: Vec<String>,
    known: BTreeSet<String>,
}

impl Names {
    fn contains(&self, name: &str) -> bool {
        self.known.contains(name)
    }
}

/// The items in the Pod's order: merging puts the template's items first.
fn in_order(mut elements: Vec<Value>, names: &Names) -> Vec<Value> {
    let place = |one: &Value| {
        let name = text(one, "name");
        names.order.iter().position(|known| known == name)
    };
    elements.sort_by_key(place);
    elements
}

/// Denies Pods with strategic merge patch directives.
fn check_directives(pod: &Value) -> Verdict {
    let mut open = vec![pod];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                let words = [
                    "$patch",
                    "$retainKeys",
                    "$setElementOrder/",
                    "$deleteFromPrimitiveList/",
                ];
                let is_order = |name: &&String| words.iter().any(|word| name.starts_with(word));
                if let Some(name) = members.keys().find(is_order) {
                    let message = format!("a pod may not have a member `{name}`");
                    return Err(Refusal::status(400, "BadRequest", message));
                }
                open.extend(members.values());
            }
            Value::Array(elements) => open.extend(elements),
            _ => {}
        }
    }
    Ok(())
}

impl Rules for SidecarInjector {
    fn name(&self) -> &'static str {
        "SidecarInjector"
    }

    fn mutates(&self) -> &'static [About] {
        &[NEW_PODS]
    }

    async fn mutate(&self, ask: &mut Admission, pod: &mut Value) -> Verdict {
        check_directives(pod)?;
        let mut changed = pod.clone();
        self.strip(&mut changed)?;
        if self.wants(ask.request(), &changed) {
            let mut status = Status::default();
            let rules = &*self.rules;
            let templates = rules.config.templates.iter().zip(&rules.selectors);
            // Templates are selected by the Pod's own labels, not by those of other templates.
            let chosen: Vec<&Template> = templates
                .filter(|(_, selector)| selects(selector, &changed))
                .map(|(template, _)| template)
                .collect();
            for template in chosen {
                self.inject(template, &mut changed, &mut status)?;
            }
            if status != Status::default() {
                let told = lockgate_go::json::to_string(&status);
                annotate(&mut changed, &rules.config.status_key, told)?;
            }
        }
        *pod = changed;
        Ok(())
    }
}
