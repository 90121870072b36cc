//! ValidatingWebhookConfigurations and MutatingWebhookConfigurations, whose validation of the typed objects is in
//! `lockgate_api::registration`.

use serde_json::{Value, json};

use lockgate_api::document::tree;
use lockgate_api::field::{FieldError, FieldErrors, Path};
use lockgate_api::registration::{
    Configuration, ConfigurationKind, Version, codec, strategy, validation,
};

use crate::cells::{Common, Row, count_cell, read};
use crate::kind::{Context, Kind, Resource, ServerComponent, Written, cluster};
use crate::object::{Object, at_mut, each, fill, is_empty, open, with};

pub(super) const VALIDATING_V1: Resource = cluster(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "validatingwebhookconfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingWebhookConfigurationList",
    &Webhooks::VALIDATING_V1,
)
.categories(&["api-extensions"])
.conditional_update();

pub(super) const MUTATING_V1: Resource = cluster(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "mutatingwebhookconfiguration",
    "MutatingWebhookConfiguration",
    "MutatingWebhookConfigurationList",
    &Webhooks::MUTATING_V1,
)
.categories(&["api-extensions"])
.conditional_update();

pub(super) const VALIDATING_V1BETA1: Resource = cluster(
    "admissionregistration.k8s.io",
    "v1beta1",
    "validatingwebhookconfigurations",
    "validatingwebhookconfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingWebhookConfigurationList",
    &Webhooks::VALIDATING_V1BETA1,
)
.categories(&["api-extensions"])
.stored_as(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
)
.conditional_update();

pub(super) const MUTATING_V1BETA1: Resource = cluster(
    "admissionregistration.k8s.io",
    "v1beta1",
    "mutatingwebhookconfigurations",
    "mutatingwebhookconfiguration",
    "MutatingWebhookConfiguration",
    "MutatingWebhookConfigurationList",
    &Webhooks::MUTATING_V1BETA1,
)
.categories(&["api-extensions"])
.stored_as(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
)
.conditional_update();

/// A kind of webhook configuration in one version.
#[derive(Debug)]
pub(super) struct Webhooks {
    kind: ConfigurationKind,
    version: Version,
}

impl Webhooks {
    const VALIDATING_V1: Self = Self {
        kind: ConfigurationKind::Validating,
        version: Version::V1,
    };
    const MUTATING_V1: Self = Self {
        kind: ConfigurationKind::Mutating,
        version: Version::V1,
    };
    const VALIDATING_V1BETA1: Self = Self {
        kind: ConfigurationKind::Validating,
        version: Version::V1beta1,
    };
    const MUTATING_V1BETA1: Self = Self {
        kind: ConfigurationKind::Mutating,
        version: Version::V1beta1,
    };

    /// The typed object. Objects are decoded already, so a failure is a broken invariant, and rejects the write.
    fn typed(&self, value: &Value) -> Result<Configuration, FieldError> {
        codec::decode_without_defaults(tree::read(value).root(), self.kind, self.version)
            .map(|decoded| decoded.value)
            .map_err(|error| FieldError::internal(&Path::root("webhooks"), error.to_string()))
    }

    fn request<'c>(&self, context: &Context<'c>) -> strategy::Request<'c> {
        strategy::Request {
            version: self.version,
            expressions: context.expressions,
            static_manifests: context.static_manifests,
        }
    }
}

impl Kind for Webhooks {
    fn component(&self) -> Option<ServerComponent> {
        Some(ServerComponent::Webhooks(self.kind))
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, |object| defaults(object, self.kind, self.version));
    }

    fn prepare_create(&self, value: &mut Value, context: &Context<'_>) {
        with(value, |object| {
            if !context.match_conditions {
                drop_conditions(object);
            }
            set_generation(object, 1);
        });
    }

    fn validate_create(&self, new: &Written<'_>, context: &Context<'_>) -> FieldErrors {
        match self.typed(new.value) {
            Ok(configuration) => strategy::errors_on_create(&configuration, &self.request(context)),
            Err(error) => vec![error],
        }
    }

    fn warnings_on_create(&self, new: &Written<'_>, context: &Context<'_>) -> Vec<String> {
        strategy::warnings_on_create(&new.metadata.name, &self.request(context))
    }

    fn prepare_update(
        &self,
        _subresource: &str,
        value: &mut Value,
        old: &Value,
        context: &Context<'_>,
    ) {
        with(value, |object| {
            // Stored match conditions are kept, so that an update does not drop them.
            if !context.match_conditions && !has_conditions(old) {
                drop_conditions(object);
            }
            // An absent list differs from an empty one: upstream compares them with DeepEqual.
            if object.get("webhooks") != old.get("webhooks") {
                let generation = old.pointer("/metadata/generation").and_then(Value::as_i64);
                set_generation(object, generation.unwrap_or_default() + 1);
            }
        });
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        match (self.typed(new.value), self.typed(old.value)) {
            (Ok(new), Ok(old)) => {
                validation::validate_update(&new, &old, self.version, context.expressions)
            }
            (Err(error), _) | (_, Err(error)) => vec![error],
        }
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        _old: &Written<'_>,
        context: &Context<'_>,
    ) -> Vec<String> {
        self.warnings_on_create(new, context)
    }

    fn columns(&self) -> &'static str {
        "Name|Webhooks:integer|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [count_cell(read::count(object, "/webhooks"))])
    }
}

fn set_generation(object: &mut Object, generation: i64) {
    if let Some(metadata) = open(object, "metadata") {
        metadata.insert("generation".to_owned(), Value::from(generation));
    }
}

fn drop_conditions(object: &mut Object) {
    each(object, "webhooks", |webhook| {
        webhook.remove("matchConditions");
    });
}

fn has_conditions(object: &Value) -> bool {
    let webhooks = object.get("webhooks").and_then(Value::as_array);
    webhooks
        .into_iter()
        .flatten()
        .any(|webhook| webhook.get("matchConditions").is_some())
}

/// Defaults webhooks, depending on the version.
fn defaults(object: &mut Object, kind: ConfigurationKind, version: Version) {
    each(object, "webhooks", |webhook| {
        if version == Version::V1beta1 {
            fill(webhook, "failurePolicy", "Ignore");
            fill(webhook, "matchPolicy", "Exact");
            fill(webhook, "timeoutSeconds", 30);
            fill(webhook, "sideEffects", "Unknown");
            if is_empty(webhook, "admissionReviewVersions") {
                webhook.insert("admissionReviewVersions".to_owned(), json!(["v1beta1"]));
            }
        } else {
            fill(webhook, "failurePolicy", "Fail");
            fill(webhook, "matchPolicy", "Equivalent");
            fill(webhook, "timeoutSeconds", 10);
        }
        fill(webhook, "namespaceSelector", json!({}));
        fill(webhook, "objectSelector", json!({}));
        if kind == ConfigurationKind::Mutating {
            fill(webhook, "reinvocationPolicy", "Never");
        }
        if let Some(service) = at_mut(webhook, &["clientConfig", "service"]) {
            fill(service, "port", 443);
        }
        each(webhook, "rules", |rule| fill(rule, "scope", "*"));
    });
}
