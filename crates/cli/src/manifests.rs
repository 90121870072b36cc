//! Manifests from markers in source code.
//!
//! ```text
//!   files, folders ──► source ──► markers (comments, attributes) ──► Marked, MarkedConversion ──► lockgate_webhook::Manifests
//! ```
//!
//! The command sees source text, not types: `types` resolves the types of `k8s_openapi` and the types derived in the
//! same file. For other types, the attribute must set the arguments that the macro gets from the compiler.

pub mod definition;
pub mod markers;
pub mod source;
mod types;

use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::registration::ConfigurationKind;
use lockgate_api::registration::hub::{MatchCondition, Rule};
use lockgate_api::registration::validation::ExpressionChecker;
use lockgate_webhook::{ConversionRegistration, ManifestOptions, Manifests, Registration, Role};
use lockgate_webhook_markers::{self as written, ConversionMarker, Marker};

/// A webhook marker.
#[derive(Debug)]
pub struct Marked {
    /// `file:line:column`
    pub place: String,
    /// The registration.
    pub registration: Registration,
}

/// A conversion marker.
#[derive(Debug)]
pub struct MarkedConversion {
    /// `file:line:column`
    pub place: String,
    /// The registration.
    pub registration: ConversionRegistration,
}

/// An error in a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// `file:line:column`
    pub place: String,
    /// The message.
    pub message: String,
    /// The suggested fix.
    pub help: Option<String>,
}

/// The generated objects, and their validation errors.
#[must_use]
pub fn build(
    found: &[Marked],
    options: &ManifestOptions,
    expressions: &dyn ExpressionChecker,
) -> (Manifests, Vec<Mistake>) {
    let manifests = Manifests::of(found.iter().map(|one| &one.registration), options);
    let mut mistakes = Vec::new();
    for invalid in manifests.invalid(expressions) {
        let kind = invalid.configuration.kind;
        // The index of each webhook in the object.
        let mut in_object: Vec<&Marked> = found.iter().filter(|one| kind_of(one) == kind).collect();
        in_object.sort_by_key(|one| one.registration.name());
        for error in &invalid.errors {
            let one = index(&error.field).and_then(|index| in_object.get(index));
            let place = one.map_or_else(|| kind.name().to_owned(), |one| one.place.clone());
            mistakes.push(Mistake {
                place,
                message: error.to_string(),
                help: None,
            });
        }
    }
    (manifests, mistakes)
}

fn kind_of(marked: &Marked) -> ConfigurationKind {
    match marked.registration.role {
        Role::Mutating => ConfigurationKind::Mutating,
        Role::Validating => ConfigurationKind::Validating,
    }
}

/// The index of the webhook in a field path.
fn index(field: &str) -> Option<usize> {
    let rest = field.strip_prefix("webhooks[")?;
    rest.split(']').next()?.parse().ok()
}

/// Builds the registration of a conversion; `None` if its group is unknown.
fn conversion(marker: &ConversionMarker) -> Option<ConversionRegistration> {
    let mut registration =
        ConversionRegistration::new(marker.group.as_deref()?, marker.resource.as_str());
    if let Some(path) = &marker.path {
        registration = registration.at_path(path);
    }
    if let Some(url) = &marker.url {
        registration = registration.at_url(url);
    }
    if let Some(versions) = &marker.review_versions {
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        registration = registration.with_review_versions(&versions);
    }
    let service = &marker.service;
    if let Some(name) = &service.name {
        registration = registration.service_name(name);
    }
    if let Some(namespace) = &service.namespace {
        registration = registration.service_namespace(namespace);
    }
    if let Some(port) = service.port {
        registration = registration.service_port(port);
    }
    Some(registration)
}

/// Builds the registration of a marker, with the framework's defaults for what it does not set.
fn registration(marker: &Marker, path: Option<String>, aliases: Vec<String>) -> Registration {
    let mut registration = match marker.role {
        written::Role::Mutating => Registration::mutating(&marker.name),
        written::Role::Validating => Registration::validating(&marker.name),
    };
    if let Some(url) = &marker.url {
        registration = registration.url(url);
    }
    if let Some(path) = path {
        registration = registration.path(path);
    }
    registration.aliases = aliases;
    let service = &marker.service;
    if let Some(name) = &service.name {
        registration = registration.service_name(name);
    }
    if let Some(namespace) = &service.namespace {
        registration = registration.service_namespace(namespace);
    }
    if let Some(port) = service.port {
        registration = registration.service_port(port);
    }
    let webhook = &mut registration.webhook;
    webhook.rules = Some(vec![Rule {
        operations: Some(marker.verbs.clone()),
        api_groups: marker.groups.clone(),
        api_versions: marker.versions.clone(),
        resources: marker.resources.clone(),
        scope: marker.scope.clone(),
    }]);
    let set = |field: &mut Option<String>, said: &Option<String>| {
        if said.is_some() {
            field.clone_from(said);
        }
    };
    set(&mut webhook.failure_policy, &marker.failure_policy);
    set(&mut webhook.side_effects, &marker.side_effects);
    set(&mut webhook.match_policy, &marker.match_policy);
    set(
        &mut webhook.reinvocation_policy,
        &marker.reinvocation_policy,
    );
    if let Some(versions) = &marker.admission_review_versions {
        webhook.admission_review_versions = Some(versions.clone());
    }
    webhook.timeout_seconds = marker.timeout_seconds;
    webhook.namespace_selector = marker.namespace_selector.as_ref().map(selector);
    webhook.object_selector = marker.object_selector.as_ref().map(selector);
    let conditions = marker.match_conditions.iter();
    let conditions = conditions.map(|(name, expression)| MatchCondition {
        name: name.clone(),
        expression: expression.clone(),
    });
    webhook.match_conditions = some(conditions.collect());
    registration
}

fn selector(selector: &written::Selector) -> LabelSelector {
    let expressions = selector.expressions.iter();
    let expressions = expressions.map(|one| LabelSelectorRequirement {
        key: one.key.clone(),
        operator: one.operator.to_owned(),
        values: some(one.values.clone()),
    });
    let labels = selector.labels.iter().cloned();
    LabelSelector {
        match_labels: (!selector.labels.is_empty()).then(|| labels.collect()),
        match_expressions: some(expressions.collect()),
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
