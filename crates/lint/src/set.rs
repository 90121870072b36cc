//! The set of objects to lint.

use std::collections::{BTreeMap, HashMap};

use lockgate_api::decode::DecodeError;
use lockgate_api::document::{SyntaxError, Value, yaml};
use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::selector::Selector;
use lockgate_api::registration::hub::Rule;
use lockgate_api::registration::policy::{
    Binding, Policy, Registered, decode_binding, decode_policy,
};
use lockgate_api::registration::{Configuration, ConfigurationKind, Version, Webhook, codec};
use lockgate_cel::admission::MatchConditions;
use serde_json::Value as Json;

use crate::fix::Fix;
use crate::matching::{
    Labels, NAME_LABEL, Operation, Operations, Target, covers_scope, operations_on,
    reaches_builtin_group,
};
use crate::resource::{BUILTIN, Resource};
use crate::traffic::{Call, Exchange};

/// The annotation with the rules to ignore for an object, such as `W001,W004`, or `*`.
pub const IGNORE_ANNOTATION: &str = "lint.lockgate.dev/ignore";

/// An error while adding to a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The text is not YAML.
    #[error("invalid YAML: {}", .0.message)]
    Syntax(SyntaxError),
    /// A value has a type that the API cannot decode.
    #[error("cannot decode: {}", .0.message)]
    Decode(DecodeError),
}

/// Webhook configurations, policies, bindings and related manifests.
#[derive(Debug, Default)]
pub struct Set {
    objects: Vec<ObjectInfo>,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) policies: Vec<(usize, Policy)>,
    pub(crate) bindings: Vec<(usize, Binding)>,
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) traffic: Vec<Exchange>,
    /// The labels of the namespaces among the manifests.
    namespaces: BTreeMap<String, Labels>,
}

/// An object of the set.
#[derive(Debug)]
pub(crate) struct ObjectInfo {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) annotations: Labels,
}

/// An object that is neither a configuration nor a policy.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) object: usize,
    pub(crate) kind: String,
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) json: Json,
}

impl Manifest {
    pub(crate) fn at(&self, pointer: &str) -> &Json {
        self.json.pointer(pointer).unwrap_or(&Json::Null)
    }
}

/// A webhook, compiled for linting.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The object of its configuration.
    pub(crate) object: usize,
    /// Its index in the configuration.
    pub(crate) index: usize,
    pub(crate) kind: ConfigurationKind,
    pub(crate) version: Version,
    /// The webhook with the defaults of its version.
    pub(crate) webhook: Webhook,
    /// True if `timeoutSeconds` is not set.
    pub(crate) timeout_is_default: bool,
    pub(crate) conditions: MatchConditions,
    /// The built-in resources its rules cover, without subresources.
    pub(crate) builtin: Vec<(&'static Resource, Operations)>,
    namespaces: Option<Selector>,
    objects: Option<Selector>,
}

impl Set {
    /// Adds every document of a YAML text.
    ///
    /// # Errors
    ///
    /// The text is not YAML, or a configuration or policy cannot be decoded.
    pub fn add_text(&mut self, text: &str) -> Result<(), SetError> {
        for document in yaml::parse_all(text).map_err(SetError::Syntax)? {
            if document.root().members().next().is_some() {
                self.add(document.root())?;
            }
        }
        Ok(())
    }

    /// Adds an object, and returns its number in the set.
    ///
    /// # Errors
    ///
    /// A configuration or policy cannot be decoded.
    pub fn add(&mut self, value: Value<'_>) -> Result<usize, SetError> {
        let text = |name: &str| value.get(name).and_then(|value| value.as_str());
        let api_version = text("apiVersion").unwrap_or_default();
        let kind = text("kind").unwrap_or_default();
        if let Some((kind, version)) = codec::identify(api_version, kind) {
            let decoded = codec::decode_without_defaults(value, kind, version);
            let decoded = decoded.map_err(SetError::Decode)?;
            return Ok(self.add_configuration(decoded.value, version));
        }
        Ok(match Registered::identify(api_version, kind) {
            Some(Registered::Policy(kind)) => {
                self.add_policy(decode_policy(value, kind).map_err(SetError::Decode)?.value)
            }
            Some(Registered::Binding(kind)) => {
                self.add_binding(decode_binding(value, kind).map_err(SetError::Decode)?.value)
            }
            None => self.add_manifest(value),
        })
    }

    /// Adds a configuration without defaults applied.
    pub fn add_configuration(&mut self, mut written: Configuration, version: Version) -> usize {
        let object = self.object(written.kind.name(), &written.metadata);
        let default_timeouts: Vec<bool> = written
            .webhooks()
            .iter()
            .map(|webhook| webhook.timeout_seconds.is_none())
            .collect();
        written.apply_defaults(version);
        let kind = written.kind;
        let webhooks = written.webhooks.unwrap_or_default();
        for (index, (webhook, timeout_is_default)) in
            webhooks.into_iter().zip(default_timeouts).enumerate()
        {
            let conditions = webhook.match_conditions.iter().flatten();
            let conditions = MatchConditions::compile(
                conditions.map(|condition| (&*condition.name, &*condition.expression)),
            );
            self.hooks.push(Hook {
                object,
                index,
                kind,
                version,
                timeout_is_default,
                conditions,
                builtin: builtin_resources(&webhook),
                namespaces: compiled(webhook.namespace_selector.as_ref()),
                objects: compiled(webhook.object_selector.as_ref()),
                webhook,
            });
        }
        object
    }

    /// Adds a policy.
    pub fn add_policy(&mut self, policy: Policy) -> usize {
        let object = self.object(policy.kind.name(), &policy.metadata);
        self.policies.push((object, policy));
        object
    }

    /// Adds a binding.
    pub fn add_binding(&mut self, binding: Binding) -> usize {
        let object = self.object(binding.kind.binding_name(), &binding.metadata);
        self.bindings.push((object, binding));
        object
    }

    /// Adds an object of another kind. Kinds that no rule uses are only counted.
    pub fn add_manifest(&mut self, value: Value<'_>) -> usize {
        let text = |value: Option<Value<'_>>, name: &str| {
            let value = value.and_then(|value| value.get(name));
            value
                .and_then(|value| value.as_str().map(str::to_owned))
                .unwrap_or_default()
        };
        let metadata = value.get("metadata");
        let kind = text(Some(value), "kind");
        let name = text(metadata, "name");
        let api_version = text(Some(value), "apiVersion");
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let object = self.objects.len();
        self.objects.push(ObjectInfo {
            kind: kind.clone(),
            name: name.clone(),
            annotations: Labels::new(),
        });
        // Values that JSON cannot represent, like a number out of range, are irrelevant to rules.
        let json: Json = serde_json::from_str(&value.to_json()).unwrap_or_default();
        if group.is_empty() && kind == "Namespace" {
            let mut labels = labels_at(&json, "/metadata/labels");
            labels.insert(NAME_LABEL.to_owned(), name.clone());
            self.namespaces.insert(name.clone(), labels);
        }
        self.manifests.push(Manifest {
            object,
            kind,
            group: group.to_owned(),
            name,
            namespace: text(metadata, "namespace"),
            json,
        });
        object
    }

    /// Adds a captured request.
    pub fn add_exchange(&mut self, exchange: Exchange) {
        self.traffic.push(exchange);
    }

    /// The number of captured calls of webhooks of this set.
    #[must_use]
    pub fn captured_calls(&self) -> usize {
        let calls = self.calls().into_iter();
        calls.map(|(_, calls)| calls.len()).sum()
    }

    /// The captured calls of each webhook with calls, in order.
    pub(crate) fn calls(&self) -> Vec<(&Hook, Vec<(&Exchange, &Call)>)> {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut calls: Vec<(&Hook, Vec<(&Exchange, &Call)>)> = Vec::new();
        if self.traffic.is_empty() {
            return calls;
        }
        for (at, hook) in self.hooks.iter().enumerate() {
            by_name.entry(&hook.webhook.name).or_default().push(at);
            calls.push((hook, Vec::new()));
        }
        for exchange in &self.traffic {
            for call in &exchange.calls {
                let mut named = by_name.get(call.webhook.as_str()).into_iter().flatten();
                let found = named.find(|at| self.is_of(call, **at));
                if let Some((_, of)) = found.and_then(|at| calls.get_mut(*at)) {
                    of.push((exchange, call));
                }
            }
        }
        calls.retain(|(_, calls)| !calls.is_empty());
        calls
    }

    /// Returns true if the call may belong to the webhook with this name and index.
    fn is_of(&self, call: &Call, at: usize) -> bool {
        let hook = self.hooks.get(at);
        let configuration = hook.and_then(|hook| self.info(hook.object));
        call.configuration.is_empty()
            || configuration.is_some_and(|info| info.name == call.configuration)
    }

    fn object(&mut self, kind: &str, metadata: &ObjectMeta) -> usize {
        self.objects.push(ObjectInfo {
            kind: kind.to_owned(),
            name: metadata.name.clone(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
        });
        self.objects.len() - 1
    }

    pub(crate) fn info(&self, object: usize) -> Option<&ObjectInfo> {
        self.objects.get(object)
    }

    /// `ValidatingWebhookConfiguration/name` of an object.
    #[must_use]
    pub fn title(&self, object: usize) -> String {
        let info = self.info(object);
        info.map(|info| format!("{}/{}", info.kind, info.name))
            .unwrap_or_default()
    }

    /// The labels of a namespace: from its manifest, or the name label alone.
    pub(crate) fn namespace_labels(&self, name: &str) -> Labels {
        self.namespaces
            .get(name)
            .cloned()
            .unwrap_or_else(|| Labels::from([(NAME_LABEL.to_owned(), name.to_owned())]))
    }

    /// Returns true if the set has the manifest of a namespace.
    pub(crate) fn knows_namespace(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    pub(crate) fn of_kind<'s>(
        &'s self,
        group: &'s str,
        kind: &'s str,
    ) -> impl Iterator<Item = &'s Manifest> {
        self.manifests
            .iter()
            .filter(move |manifest| manifest.group == group && manifest.kind == kind)
    }

    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<&Manifest> {
        self.of_kind("", "Service")
            .find(|service| service.name == name && service.namespace == namespace)
    }

    /// The workloads behind a service, with the labels of their pods.
    pub(crate) fn backends<'s>(&'s self, service: &'s Manifest) -> Vec<(&'s Manifest, Labels)> {
        let selector = labels_at(&service.json, "/spec/selector");
        if selector.is_empty() {
            return Vec::new();
        }
        self.workloads(&service.namespace)
            .filter(|(_, labels)| {
                selector
                    .iter()
                    .all(|(key, value)| labels.get(key) == Some(value))
            })
            .collect()
    }

    /// The workloads of a namespace, with the labels of their pods.
    pub(crate) fn workloads<'s>(
        &'s self,
        namespace: &'s str,
    ) -> impl Iterator<Item = (&'s Manifest, Labels)> {
        self.manifests
            .iter()
            .filter(move |manifest| manifest.namespace == namespace)
            .filter_map(|manifest| {
                let pointer = match (manifest.group.as_str(), manifest.kind.as_str()) {
                    ("", "Pod") => "/metadata/labels",
                    ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet") => {
                        "/spec/template/metadata/labels"
                    }
                    _ => return None,
                };
                Some((manifest, labels_at(&manifest.json, pointer)))
            })
    }

    /// The labels of the pods behind a service, as far as the set has them.
    pub(crate) fn pod_labels(&self, namespace: &str, service: &str) -> Labels {
        let service = self.service(namespace, service);
        let backends = service.map(|service| self.backends(service));
        let first = backends.and_then(|backends| backends.into_iter().next());
        first.map(|(_, labels)| labels).unwrap_or_default()
    }
}

impl Hook {
    pub(crate) fn is_mutating(&self) -> bool {
        self.kind == ConfigurationKind::Mutating
    }

    pub(crate) fn fails_closed(&self) -> bool {
        self.webhook.failure_policy.as_deref() != Some("Ignore")
    }

    pub(crate) fn timeout(&self) -> u32 {
        let seconds = self.webhook.timeout_seconds.unwrap_or(10);
        u32::try_from(seconds).unwrap_or_default()
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        self.webhook.rules.as_deref().unwrap_or_default()
    }

    /// The path of a field, such as `webhooks[0].timeoutSeconds`.
    pub(crate) fn path(&self, field: &str) -> String {
        match field {
            "" => format!("webhooks[{}]", self.index),
            field => format!("webhooks[{}].{field}", self.index),
        }
    }

    /// The fix that sets one of its fields.
    pub(crate) fn set(&self, field: &str, value: impl Into<Json>) -> Fix {
        Fix::Set {
            webhook: self.index,
            field: field.to_owned(),
            value: value.into(),
        }
    }

    /// The fix that excludes namespaces.
    pub(crate) fn excluding(&self, names: impl IntoIterator<Item = impl Into<String>>) -> Fix {
        Fix::Exclude {
            webhook: self.index,
            namespaces: names.into_iter().map(Into::into).collect(),
        }
    }

    /// The namespace and name of its service.
    pub(crate) fn service(&self) -> Option<(&str, &str)> {
        let service = self.webhook.client_config.service.as_ref()?;
        Some((&service.namespace, &service.name))
    }

    /// Returns true if it has neither selectors nor match conditions.
    pub(crate) fn is_unscoped(&self) -> bool {
        let is_empty =
            |selector: Option<&LabelSelector>| selector.is_none_or(LabelSelector::is_empty);
        is_empty(self.webhook.namespace_selector.as_ref())
            && is_empty(self.webhook.object_selector.as_ref())
            && self.conditions.is_empty()
    }

    pub(crate) fn is_equivalent(&self) -> bool {
        self.webhook.match_policy.as_deref() != Some("Exact")
    }

    /// The operations of its rules on a resource; empty if they do not cover it.
    pub(crate) fn operations(&self, group: &str, resource: &str, sub: &str) -> Operations {
        self.rules()
            .iter()
            .map(|rule| operations_on(rule, group, None, resource, sub))
            .fold(Operations::default(), Operations::with)
    }

    /// The operations of its rules on a built-in resource.
    pub(crate) fn builtin_operations(&self, resource: &'static Resource) -> Operations {
        self.builtin
            .iter()
            .find(|(covered, _)| *covered == resource)
            .map(|(_, operations)| *operations)
            .unwrap_or_default()
    }

    /// Returns true if a rule can cover a built-in group.
    pub(crate) fn reaches_builtin_groups(&self) -> bool {
        self.rules().iter().any(reaches_builtin_group)
    }

    /// Returns true if rules, selectors and conditions match the request. A selector that does
    /// not compile matches nothing: the API rejects it.
    pub(crate) fn matches(&self, target: &Target<'_>) -> bool {
        let version = [target.version];
        let versions = (!self.is_equivalent()).then_some(&version[..]);
        let by_rules = self.rules().iter().any(|rule| {
            covers_scope(rule, target.namespace.is_some())
                && operations_on(
                    rule,
                    target.group,
                    versions,
                    target.resource,
                    target.subresource,
                )
                .has(target.operation)
        });
        by_rules && self.selects(target)
    }

    /// Returns true if the conditions do not depend on the namespace or the object.
    pub(crate) fn has_fixed_conditions(&self) -> bool {
        // Identifiers through which an expression may read either; a false positive only costs time.
        let looks = ["bject", "namespace", ".name", ".?", "request["];
        let mut conditions = self.webhook.match_conditions.iter().flatten();
        !conditions.any(|one| looks.iter().any(|text| one.expression.contains(text)))
    }

    /// The same, without the rules.
    pub(crate) fn selects(&self, target: &Target<'_>) -> bool {
        self.selects_labels(target) && target.passes(&self.conditions)
    }

    /// The same, with the selectors only.
    pub(crate) fn selects_labels(&self, target: &Target<'_>) -> bool {
        let (Some(namespaces), Some(objects)) = (&self.namespaces, &self.objects) else {
            return false;
        };
        target
            .namespace
            .is_none_or(|(_, labels)| namespaces.matches(labels))
            && objects.matches(target.labels)
    }

    /// Returns true if any of the rules' operations on a built-in resource matches the webhook.
    pub(crate) fn reaches(
        &self,
        resource: &'static Resource,
        namespace: Option<(&str, &Labels)>,
    ) -> Option<Operation> {
        let namespace = namespace.filter(|_| resource.namespaced);
        self.builtin_operations(resource)
            .iter()
            .find(|operation| self.selects(&Target::of(resource, *operation, namespace)))
    }
}

fn compiled(selector: Option<&LabelSelector>) -> Option<Selector> {
    match selector {
        Some(selector) => selector.compile().ok(),
        None => Some(Selector::from(Vec::new())),
    }
}

fn builtin_resources(webhook: &Webhook) -> Vec<(&'static Resource, Operations)> {
    let exact = webhook.match_policy.as_deref() == Some("Exact");
    let rules = webhook.rules.as_deref().unwrap_or_default();
    BUILTIN
        .iter()
        .filter_map(|resource| {
            let versions = exact.then_some(resource.versions);
            let operations = rules
                .iter()
                .filter(|rule| covers_scope(rule, resource.namespaced))
                .map(|rule| operations_on(rule, resource.group, versions, resource.plural, ""))
                .fold(Operations::default(), Operations::with);
            (!operations.is_empty()).then_some((resource, operations))
        })
        .collect()
}

/// The string map at a pointer.
pub(crate) fn labels_at(json: &Json, pointer: &str) -> Labels {
    let members = json.pointer(pointer).and_then(Json::as_object);
    members
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}
