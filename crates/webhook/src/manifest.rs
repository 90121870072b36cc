//! Generation of webhook configurations, and of the `conversion` of CustomResourceDefinitions.
//!
//! A registration is independent of the deployment; [`ManifestOptions`] has the address. If both set a value, the
//! registration takes precedence. The format is kubebuilder's: one object per kind, the mutating configuration first,
//! webhooks sorted by name.

use std::collections::BTreeMap;

use lockgate_api::decode::Bytes;
use lockgate_api::document::yaml;
use lockgate_api::field::{FieldError, FieldErrors};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::registration::codec;
use lockgate_api::registration::hub::{
    ClientConfig, Configuration, ConfigurationKind, ServiceReference, Version, Webhook,
};
use lockgate_api::registration::strategy::{Request, errors_on_create};
use lockgate_api::registration::validation::ExpressionChecker;
use lockgate_go::base64;
use serde_json::{Map, Value, json};

use crate::conversion::ConversionRegistration;
use crate::registration::{Registration, Role};
use crate::webhooks::Webhooks;

/// cert-manager's annotation for injecting a CA into an object.
const INJECT_CA_FROM: &str = "cert-manager.io/inject-ca-from";

/// The address of the webhooks, and the names of the configurations.
///
/// ```
/// use lockgate_webhook::ManifestOptions;
///
/// let options = ManifestOptions::new()
///     .service("policy", "policy-webhooks")
///     .inject_ca_from("policy/serving-cert")
///     .label("app.kubernetes.io/name", "policy");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestOptions {
    mutating_name: String,
    validating_name: String,
    endpoint: Endpoint,
    ca_bundle: Option<Vec<u8>>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    logical_paths: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Endpoint {
    Service {
        namespace: String,
        name: String,
        port: Option<i32>,
    },
    Url(String),
}

impl Default for ManifestOptions {
    /// kubebuilder's defaults.
    fn default() -> Self {
        Self {
            mutating_name: String::from("mutating-webhook-configuration"),
            validating_name: String::from("validating-webhook-configuration"),
            endpoint: Endpoint::Service {
                namespace: String::from("system"),
                name: String::from("webhook-service"),
                port: None,
            },
            ca_bundle: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            logical_paths: false,
        }
    }
}

impl ManifestOptions {
    /// Creates kubebuilder's defaults: the Service `webhook-service` in `system`, and the default names.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the MutatingWebhookConfiguration.
    #[must_use]
    pub fn mutating_name(mut self, name: impl Into<String>) -> Self {
        self.mutating_name = name.into();
        self
    }

    /// Sets the name of the ValidatingWebhookConfiguration.
    #[must_use]
    pub fn validating_name(mut self, name: impl Into<String>) -> Self {
        self.validating_name = name.into();
        self
    }

    /// Sets the Service of the webhooks, at port 443.
    #[must_use]
    pub fn service(mut self, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        self.endpoint = Endpoint::Service {
            namespace: namespace.into(),
            name: name.into(),
            port: None,
        };
        self
    }

    /// Sets the port of the Service. No effect on a URL.
    #[must_use]
    pub fn port(mut self, number: i32) -> Self {
        if let Endpoint::Service { port, .. } = &mut self.endpoint {
            *port = Some(number);
        }
        self
    }

    /// Sets the base URL of the webhooks, as in `https://localhost:9443`.
    #[must_use]
    pub fn url(mut self, base: impl Into<String>) -> Self {
        self.endpoint = Endpoint::Url(base.into());
        self
    }

    /// Sets the PEM certificates that the API server trusts for these webhooks.
    #[must_use]
    pub fn ca_bundle(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_bundle = Some(pem.into());
        self
    }

    /// Lets cert-manager inject the CA of the Certificate `namespace/name`.
    #[must_use]
    pub fn inject_ca_from(self, certificate: impl Into<String>) -> Self {
        self.annotation(INJECT_CA_FROM, certificate)
    }

    /// Adds a label to both objects.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds an annotation to both objects.
    #[must_use]
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Registers webhooks at their first alias, if any.
    #[must_use]
    pub fn logical_paths(mut self) -> Self {
        self.logical_paths = true;
        self
    }

    fn client_config(&self, registration: &Registration) -> ClientConfig {
        let alias = registration.aliases.first().filter(|_| self.logical_paths);
        let path = alias.unwrap_or(&registration.path);
        self.client_config_at(path, &registration.webhook.client_config)
    }

    /// The `clientConfig` of a path. Settings in `own` take precedence.
    fn client_config_at(&self, path: &str, own: &ClientConfig) -> ClientConfig {
        let ca_bundle = own.ca_bundle.clone();
        let ca_bundle = ca_bundle.or_else(|| self.ca_bundle.clone().map(Bytes));
        let place = |url, service| ClientConfig {
            url,
            service,
            ca_bundle,
        };
        if let Some(url) = &own.url {
            return place(Some(url.clone()), None);
        }
        let (namespace, name, port) = match (&self.endpoint, &own.service) {
            (Endpoint::Url(base), None) => {
                let url = format!("{}{path}", base.trim_end_matches('/'));
                return place(Some(url), None);
            }
            // Settings missing in the Service of the registration have kubebuilder's defaults.
            (Endpoint::Url(_), Some(_)) => ("system", "webhook-service", None),
            (
                Endpoint::Service {
                    namespace,
                    name,
                    port,
                },
                _,
            ) => (namespace.as_str(), name.as_str(), *port),
        };
        let own = own.service.clone().unwrap_or_default();
        let or = |own: String, other: &str| {
            if own.is_empty() {
                other.to_owned()
            } else {
                own
            }
        };
        let service = ServiceReference {
            namespace: or(own.namespace, namespace),
            name: or(own.name, name),
            path: Some(path.to_owned()),
            port: own.port.or(port),
        };
        place(None, Some(service))
    }
}

/// The generated objects that register webhooks, ready to be written or applied.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use lockgate_webhook::{ManifestOptions, Operation, Registration, Rule, Validator, Webhooks, validating};
///
/// struct Guard;
///
/// impl Validator<Pod> for Guard {}
///
/// let webhooks = Webhooks::new().with(
///     Registration::validating("pods.policy.example.com")
///         .path("/pods")
///         .rule(Rule::resources(["pods"]).operations([Operation::Create])),
///     validating::<Pod, _>(Guard),
/// );
/// let manifests = webhooks.manifests(&ManifestOptions::new().service("policy", "hooks"));
/// assert!(manifests.to_yaml().starts_with("---\napiVersion: admissionregistration.k8s.io/v1\n"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifests {
    configurations: Vec<Configuration>,
    definitions: Vec<Value>,
}

/// An object that an API server would reject.
#[derive(Debug, Clone)]
pub struct Invalid<'m> {
    /// The object.
    pub configuration: &'m Configuration,
    /// The message.
    pub errors: FieldErrors,
}

impl Manifests {
    /// Generates the objects for these registrations.
    pub fn of<'r>(
        registrations: impl IntoIterator<Item = &'r Registration>,
        options: &ManifestOptions,
    ) -> Self {
        let (mut mutating, mut validating) = (Vec::new(), Vec::new());
        for registration in registrations {
            let webhook = Webhook {
                client_config: options.client_config(registration),
                ..registration.webhook.clone()
            };
            match registration.role {
                Role::Mutating => mutating.push(webhook),
                Role::Validating => validating.push(webhook),
            }
        }
        let configuration = |kind, name: &String, mut webhooks: Vec<Webhook>| {
            webhooks.sort_by(|a, b| a.name.cmp(&b.name));
            (!webhooks.is_empty()).then(|| Configuration {
                kind,
                metadata: ObjectMeta {
                    name: name.clone(),
                    labels: some(&options.labels),
                    annotations: some(&options.annotations),
                    ..ObjectMeta::default()
                },
                webhooks: Some(webhooks),
            })
        };
        use ConfigurationKind::{Mutating, Validating};
        let mutating = configuration(Mutating, &options.mutating_name, mutating);
        let validating = configuration(Validating, &options.validating_name, validating);
        Self {
            configurations: mutating.into_iter().chain(validating).collect(),
            definitions: Vec::new(),
        }
    }

    /// Adds the `conversion` of these kinds.
    #[must_use]
    pub fn with_conversions<'c>(
        mut self,
        conversions: impl IntoIterator<Item = &'c ConversionRegistration>,
        options: &ManifestOptions,
    ) -> Self {
        let patches = conversions
            .into_iter()
            .map(|conversion| definition(conversion, options));
        self.definitions.extend(patches);
        self
    }

    /// For each converted kind a patch of its CustomResourceDefinition with `spec.conversion` and the annotation for
    /// CA injection, in the format of kubebuilder's `config/crd/patches`.
    #[must_use]
    pub fn definition_patches(&self) -> &[Value] {
        &self.definitions
    }

    /// The same as YAML.
    #[must_use]
    pub fn definition_patches_yaml(&self) -> String {
        let documents = self.definitions.iter().map(yaml::write);
        documents
            .map(|document| format!("---\n{document}"))
            .collect()
    }

    /// Adds `conversion`, labels and annotations to a CustomResourceDefinition. Returns `false` if there is no
    /// conversion for it.
    pub fn complete(&self, definition: &mut Value) -> bool {
        let name = definition.pointer("/metadata/name").cloned();
        let mut patches = self.definitions.iter();
        let patch = patches.find(|patch| patch.pointer("/metadata/name") == name.as_ref());
        match patch {
            None => false,
            Some(patch) => {
                overlay(definition, patch);
                true
            }
        }
    }

    /// The objects; kinds without webhooks are omitted.
    #[must_use]
    pub fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// The objects in `v1`, for programs that register themselves.
    #[must_use]
    pub fn to_values(&self) -> Vec<Value> {
        let all = self.configurations.iter().cloned();
        all.map(|one| codec::to_json(one, Version::V1)).collect()
    }

    /// The objects as YAML, in kubebuilder's format.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let documents = self.to_values();
        let documents = documents.iter().map(yaml::write);
        documents
            .map(|document| format!("---\n{document}"))
            .collect()
    }

    /// The objects as a JSON `List`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": self.to_values() });
        format!("{list:#}\n")
    }

    /// Validates the objects as an API server would. `expressions` compiles match conditions;
    /// [`Unchecked`](lockgate_api::registration::validation::Unchecked) skips them.
    pub fn invalid(&self, expressions: &dyn ExpressionChecker) -> Vec<Invalid<'_>> {
        let request = Request {
            version: Version::V1,
            expressions,
            static_manifests: false,
        };
        let checked = self.configurations.iter().map(|configuration| {
            let mut complete = configuration.clone();
            complete.apply_defaults(Version::V1);
            let errors: Vec<FieldError> = errors_on_create(&complete, &request);
            Invalid {
                configuration,
                errors,
            }
        });
        checked.filter(|one| !one.errors.is_empty()).collect()
    }
}

/// The conversion settings of a CustomResourceDefinition.
fn definition(conversion: &ConversionRegistration, options: &ManifestOptions) -> Value {
    let config = options.client_config_at(conversion.path(), conversion.client_config());
    let mut client_config = Map::new();
    if let Some(bundle) = &config.ca_bundle {
        client_config.insert("caBundle".into(), base64::encode(&bundle.0).into());
    }
    if let Some(url) = config.url {
        client_config.insert("url".into(), url.into());
    }
    if let Some(service) = config.service {
        let mut reference = Map::new();
        reference.insert("name".into(), service.name.into());
        reference.insert("namespace".into(), service.namespace.into());
        reference.insert("path".into(), service.path.into());
        if let Some(port) = service.port {
            reference.insert("port".into(), port.into());
        }
        client_config.insert("service".into(), reference.into());
    }
    let mut metadata = Map::new();
    if let Some(annotations) = some(&options.annotations) {
        metadata.insert("annotations".into(), json!(annotations));
    }
    if let Some(labels) = some(&options.labels) {
        metadata.insert("labels".into(), json!(labels));
    }
    metadata.insert("name".into(), conversion.definition_name().into());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"conversion": {
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": client_config,
                "conversionReviewVersions": conversion.review_versions(),
            },
        }},
    })
}

/// Merges a patch into an object; the patches generated here are nested only a few levels.
fn overlay(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (name, value) in patch {
                match object.get_mut(name) {
                    // A conversion is replaced completely: an old URL must not remain next to a service.
                    Some(there) if name != "conversion" => overlay(there, value),
                    _ => {
                        object.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

fn some(map: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then(|| map.clone())
}

impl Webhooks {
    /// Generates the manifests of these webhooks.
    #[must_use]
    pub fn manifests(&self, options: &ManifestOptions) -> Manifests {
        let conversions = self.conversions().flat_map(|all| all.kinds());
        Manifests::of(self.iter().map(crate::Webhook::registration), options)
            .with_conversions(conversions.map(|one| one.registration()), options)
    }
}
