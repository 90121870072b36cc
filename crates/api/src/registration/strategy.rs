//! The steps of a configuration between decoding and storing: the server's own fields, then
//! validation, then warnings.
//!
//! UPSTREAM: k8s.io/apiserver pkg/registry/rest/{create,update}.go and kubernetes
//! pkg/registry/admissionregistration/*webhookconfiguration/strategy.go.

use super::GROUP;
use super::hub::{Configuration, ConfigurationKind, Version};
use super::validation::{ExpressionChecker, validate, validate_update};
use crate::field::{FieldError, FieldErrors, Path, Shown};
use crate::meta::status::Status;
use crate::meta::validation::{PATH_SEGMENT_NAMES, validate_metadata, validate_metadata_update};

/// Names with this ending belong to configurations from manifest files on the server.
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

/// The context of a write of a configuration.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// The version the client speaks.
    pub version: Version,
    /// Compiles match conditions.
    pub expressions: &'r dyn ExpressionChecker,
    /// True if configurations from manifest files exist, so that their names are refused.
    pub static_manifests: bool,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Makes a decoded configuration ready to be stored for the first time. Defaults are applied and a
/// name is generated already. Returns warnings for the client.
///
/// # Errors
///
/// The status the client gets instead.
pub fn prepare_create(
    configuration: &mut Configuration,
    request: &Request<'_>,
) -> Result<Vec<String>, Box<Status>> {
    // Cluster-scoped: a namespace is dropped silently.
    configuration.metadata.namespace.clear();
    configuration.metadata.generation = 1;

    let mut errors = validate(configuration, request.version, request.expressions);
    if request.static_manifests {
        errors.extend(refuse_static_name(&configuration.metadata.name));
    }
    if errors.is_empty() {
        // Only then, so that the kind's own messages come first.
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

/// Validates a new configuration whose server fields are set.
#[must_use]
pub fn errors_on_create(configuration: &Configuration, request: &Request<'_>) -> FieldErrors {
    let mut errors = validate(configuration, request.version, request.expressions);
    if request.static_manifests {
        errors.extend(refuse_static_name(&configuration.metadata.name));
    }
    if errors.is_empty() {
        // Only then, so that the kind's own messages come first.
        let path = Path::root("metadata");
        errors = validate_metadata(&configuration.metadata, PATH_SEGMENT_NAMES, &path);
    }
    errors
}

/// Warnings about a new configuration of this name that is valid.
#[must_use]
pub fn warnings_on_create(name: &str, request: &Request<'_>) -> Vec<String> {
    if request.static_manifests {
        return Vec::new();
    }
    warn_of_static_name(name).into_iter().collect()
}

/// Makes a decoded configuration ready to replace `old`. Returns warnings for the client.
///
/// # Errors
///
/// The status the client gets instead.
pub fn prepare_update(
    new: &mut Configuration,
    old: &Configuration,
    request: &Request<'_>,
) -> Result<Vec<String>, Box<Status>> {
    let meta = &mut new.metadata;
    meta.namespace.clear();
    // An absent list and an empty one are different on purpose: upstream compares them so.
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

/// The warning every request in a deprecated version gets, whatever it does.
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

/// The warning for an object with a name that belongs to manifest files on the server.
#[must_use]
pub fn warn_of_static_name(name: &str) -> Option<String> {
    name.ends_with(STATIC_SUFFIX)
        .then(|| format!("metadata.name: {}", static_name_message()))
}
