//! The create and update strategy of webhook configurations: server-set fields, validation, then
//! warnings.
//!
//! UPSTREAM: k8s.io/apiserver pkg/registry/rest/{create,update}.go and kubernetes
//! pkg/registry/admissionregistration/*webhookconfiguration/strategy.go.

use super::GROUP;
use super::hub::{Configuration, ConfigurationKind, Version};
use super::validation::{ExpressionChecker, validate, validate_update};
use crate::field::{FieldError, FieldErrors, Path, Shown};
use crate::meta::status::Status;
use crate::meta::validation::{PATH_SEGMENT_NAMES, validate_metadata, validate_metadata_update};

/// The suffix of names reserved for configurations from static manifests.
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

/// The context of a create or update request.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// The API version of the request.
    pub version: Version,
    /// Compiles match conditions.
    pub expressions: &'r dyn ExpressionChecker,
    /// True if static manifests are enabled, so that their names are rejected.
    pub static_manifests: bool,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Prepares a decoded configuration for creation. Defaults must be applied and the name generated.
/// Returns warnings for the client.
///
/// # Errors
///
/// The Status of the rejected request.
pub fn prepare_create(
    configuration: &mut Configuration,
    request: &Request<'_>,
) -> Result<Vec<String>, Box<Status>> {
    // Cluster-scoped: a namespace is dropped without an error.
    configuration.metadata.namespace.clear();
    configuration.metadata.generation = 1;

    let mut errors = validate(configuration, request.version, request.expressions);
    if request.static_manifests {
        errors.extend(refuse_static_name(&configuration.metadata.name));
    }
    if errors.is_empty() {
        // Only without other errors, so that the kind's own messages come first.
        let path = Path::root("metadata");
        errors = validate_metadata(&configuration.metadata, PATH_SEGMENT_NAMES, &path);
    }
    reject(configuration, &errors)?;

    if request.static_manifests {
        return Ok(Vec::new());
    }
    Ok(warn_of_static_name(&configuration.metadata.name)
        .into_iter()
        .collect())
}

/// Validates a new configuration with its server-set fields.
#[must_use]
pub fn errors_on_create(configuration: &Configuration, request: &Request<'_>) -> FieldErrors {
    let mut errors = validate(configuration, request.version, request.expressions);
    if request.static_manifests {
        errors.extend(refuse_static_name(&configuration.metadata.name));
    }
    if errors.is_empty() {
        // Only without other errors, so that the kind's own messages come first.
        let path = Path::root("metadata");
        errors = validate_metadata(&configuration.metadata, PATH_SEGMENT_NAMES, &path);
    }
    errors
}

/// The warnings for a valid new configuration with this name.
#[must_use]
pub fn warnings_on_create(name: &str, request: &Request<'_>) -> Vec<String> {
    if request.static_manifests {
        return Vec::new();
    }
    warn_of_static_name(name).into_iter().collect()
}

/// Prepares a decoded configuration to replace `old`. Returns warnings for the client.
///
/// # Errors
///
/// The Status of the rejected request.
pub fn prepare_update(
    new: &mut Configuration,
    old: &Configuration,
    request: &Request<'_>,
) -> Result<Vec<String>, Box<Status>> {
    let meta = &mut new.metadata;
    meta.namespace.clear();
    // An absent list differs from an empty one, as in upstream.
    meta.generation = old.metadata.generation + i64::from(new.webhooks != old.webhooks);
    if meta.uid.is_empty() {
        meta.uid.clone_from(&old.metadata.uid);
    }
    meta.creation_timestamp = old.metadata.creation_timestamp.or(meta.creation_timestamp);
    let deletion = old.metadata.deletion_timestamp;
    meta.deletion_timestamp = deletion
        .filter(|time| !time.is_zero())
        .or(meta.deletion_timestamp);
    meta.deletion_grace_period_seconds = meta
        .deletion_grace_period_seconds
        .or(old.metadata.deletion_grace_period_seconds);

    let path = Path::root("metadata");
    let mut errors = validate_metadata(&new.metadata, PATH_SEGMENT_NAMES, &path);
    errors.extend(validate_metadata_update(
        &new.metadata,
        &old.metadata,
        &path,
    ));
    errors.extend(validate_update(
        new,
        old,
        request.version,
        request.expressions,
    ));
    reject(new, &errors)?;

    Ok(warn_of_static_name(&new.metadata.name)
        .into_iter()
        .collect())
}

/// The warning for every request to a deprecated version.
#[must_use]
pub fn deprecation_warning(kind: ConfigurationKind, version: Version) -> Option<String> {
    let kind = kind.name();
    (version == Version::V1beta1).then(|| {
        format!(
            "{GROUP}/v1beta1 {kind} is deprecated in v1.16+, unavailable in v1.22+; use \
             {GROUP}/v1 {kind}"
        )
    })
}

fn reject(configuration: &Configuration, errors: &FieldErrors) -> Result<(), Box<Status>> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = configuration.kind.name();
    Err(Box::new(Status::invalid(
        kind,
        GROUP,
        &configuration.metadata.name,
        errors,
    )))
}

fn static_name_message() -> String {
    format!(
        "names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based \
         configurations and cannot be managed via the API"
    )
}

fn refuse_static_name(name: &str) -> Option<FieldError> {
    let metadata = Path::root("metadata");
    let path = metadata.child("name");
    name.ends_with(STATIC_SUFFIX)
        .then(|| FieldError::invalid(&path, Shown::Text(name), static_name_message()))
}

/// The warning for an object with a name that is reserved for static manifests.
#[must_use]
pub fn warn_of_static_name(name: &str) -> Option<String> {
    name.ends_with(STATIC_SUFFIX)
        .then(|| format!("metadata.name: {}", static_name_message()))
}
