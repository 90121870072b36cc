//! Configurations from manifest files on the server, which no API request can change.
//!
//! Invalid content prevents the startup of a server; later, the previously loaded content is kept. Unchanged bytes have
//! no effect.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/manifest, pkg/admission/plugin/webhook/manifest and
//! kubernetes pkg/admission/plugin/webhook/manifest/loader

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lockgate_api::decode::strict_error;
use lockgate_api::document::{self, Kind, Value, json, yaml};
use lockgate_api::field::{FieldError, Path as FieldPath, Shown, aggregate};
use lockgate_api::registration::strategy::STATIC_SUFFIX;
use lockgate_api::registration::validation::validate;
use lockgate_api::registration::{Configuration, ConfigurationKind, GROUP, Version, codec};
use lockgate_go::quote::quote;
use sha2::{Digest, Sha256};

use crate::conditions::RegistrationChecker;

/// The maximum size of a file.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// The file in which upstream builds the scheme; part of one error message.
const SCHEME: &str = "k8s.io/kubernetes/pkg/admission/plugin/webhook/manifest/loader/loader.go:41";

/// Unusable manifests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(String);

/// An invalid file. The messages are upstream's.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("yaml: control characters are not allowed")]
    NotUtf8,
    #[error("yaml: document out of range")]
    OutOfRange,
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(document::SyntaxError),
    #[error("yaml: {0}")]
    Yaml(document::SyntaxError),
    #[error("Object '{member}' is missing in '{object}'")]
    Untyped {
        member: &'static str,
        object: String,
    },
    #[error("no kind {} is registered for version {} in scheme {}", quote(.kind), quote(.version), quote(SCHEME))]
    UnknownKind { kind: String, version: String },
    #[error("unsupported resource type *{version}.{kind}")]
    Unsupported { kind: String, version: String },
    #[error("{0}")]
    Decode(String),
    #[error("{0}")]
    Strict(String),
    #[error("{kind} {}: {errors}", quote(.name))]
    Invalid {
        kind: &'static str,
        name: String,
        errors: String,
    },
    #[error("webhook {} in {} (file {}): {problem}", quote(.webhook), quote(.configuration), quote(.file))]
    ClientConfig {
        webhook: String,
        configuration: String,
        file: String,
        problem: &'static str,
    },
    #[error("resource in file {} must have a name", quote(.0))]
    Unnamed(String),
    #[error("{} in file {} must have a name ending with {}", quote(.name), quote(.file), quote(STATIC_SUFFIX))]
    Suffix { name: String, file: String },
    #[error("duplicate name {} found in file {} (previously seen in {})", quote(.name), quote(.file), quote(.before))]
    Duplicate {
        name: String,
        file: String,
        before: String,
    },
}

impl ManifestError {
    pub(super) fn unwatched(directory: &Path, problem: &lockgate_file_watch::Error) -> Self {
        Self(format!(
            "changes in `{}` are noticed within a minute only: {problem}",
            directory.display()
        ))
    }
}

/// The feature gate `ManifestBasedAdmissionControlConfig`: if configurations may be loaded from manifest files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestGate {
    /// They may.
    Enabled,
    /// They may not.
    Disabled,
}

/// The contents of a manifest directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifests {
    /// The configurations, sorted by name.
    pub configurations: Vec<Configuration>,
    /// `sha256:` and the digest of all bytes read; empty if there were none.
    pub hash: String,
}

/// Validates the setting `staticManifestsDir`.
///
/// # Errors
///
/// Fails if the gate is disabled, or the directory does not exist.
pub fn check_directory(directory: &str, gate: ManifestGate) -> Result<(), ManifestError> {
    let path = FieldPath::root("staticManifestsDir");
    let reject = |error: FieldError| Err(ManifestError(error.to_string()));
    let invalid = |detail: String| FieldError::invalid(&path, Shown::Text(directory), detail);
    if gate == ManifestGate::Disabled {
        let detail = "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature \
                      gate to be enabled";
        return reject(FieldError::forbidden(&path, detail));
    }
    if !directory.starts_with('/') {
        return reject(invalid(String::from("must be an absolute file path")));
    }
    match fs::metadata(directory) {
        Err(error) => {
            let why = in_go(&error);
            reject(invalid(format!("unable to read: stat {directory}: {why}")))
        }
        Ok(found) if !found.is_dir() => reject(invalid(String::from("must be a directory"))),
        Ok(_) => Ok(()),
    }
}

/// Loads the configurations of one kind from the files of a directory.
///
/// # Errors
///
/// Fails with the first invalid file.
pub fn load(directory: &Path, kind: ConfigurationKind) -> Result<Manifests, ManifestError> {
    let mut sum = Sha256::new();
    let mut has_data = false;
    let mut loader = Loader {
        kind,
        seen: BTreeMap::new(),
        configurations: Vec::new(),
    };
    for file in files(directory)? {
        let shown = file.display().to_string();
        let unreadable = |error: &io::Error| {
            let why = in_go(error);
            ManifestError(format!(
                "failed to read file {}: open {shown}: {why}",
                quote(&shown)
            ))
        };
        let bytes = read(&file).map_err(|error| unreadable(&error))?;
        if bytes.is_empty() {
            continue;
        }
        sum.update(&bytes);
        sum.update([0]);
        has_data = true;
        loader
            .file(&bytes, &shown)
            .map_err(|why| ManifestError(format!("error loading {shown}: {why}")))?;
    }
    loader
        .configurations
        .sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    Ok(Manifests {
        configurations: loader.configurations,
        hash: if has_data {
            hex(&sum.finalize())
        } else {
            String::new()
        },
    })
}

/// `sha256:` and the digest in hexadecimal.
pub(super) fn hex(sum: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in sum {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The manifest files, sorted by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let shown = directory.display().to_string();
    let unreadable = |error: io::Error| {
        let why = in_go(&error);
        let quoted = quote(&shown);
        ManifestError(format!(
            "failed to read manifest directory {quoted}: open {shown}: {why}"
        ))
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path
            .extension()
            .and_then(|text| text.to_str())
            .unwrap_or_default();
        let is_manifest = ["yaml", "yml", "json"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension));
        if is_manifest && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "file too large",
        ));
    }
    Ok(bytes)
}

/// A system error in Go's format.
fn in_go(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

struct Loader {
    kind: ConfigurationKind,
    /// Names, and the files that contain them.
    seen: BTreeMap<String, String>,
    configurations: Vec<Configuration>,
}

impl Loader {
    fn file(&mut self, bytes: &[u8], file: &str) -> Result<(), FileError> {
        let text = std::str::from_utf8(bytes).map_err(|_| FileError::NotUtf8)?;
        for range in yaml::split(text) {
            let part = text.get(range).ok_or(FileError::OutOfRange)?;
            let blank = part.strip_prefix("---").unwrap_or(part).trim().is_empty();
            if blank {
                continue;
            }
            let document = if part.trim_start().starts_with('{') {
                json::parse(part.trim().as_bytes()).map_err(FileError::Json)?
            } else {
                yaml::parse(part).map_err(FileError::Yaml)?
            };
            if document.root().kind() != Kind::Null {
                self.object(document.root(), file)?;
            }
        }
        Ok(())
    }

    /// Adds one object, or the items of a list.
    fn object(&mut self, value: Value<'_>, file: &str) -> Result<(), FileError> {
        let member = |name: &str| {
            value
                .get(name)
                .and_then(|found| found.as_str())
                .unwrap_or_default()
        };
        let (api_version, found) = (member("apiVersion"), member("kind"));
        for (member, text) in [("Kind", found), ("apiVersion", api_version)] {
            if text.is_empty() {
                let object = value.to_json();
                return Err(FileError::Untyped { member, object });
            }
        }
        let items = || {
            value
                .get("items")
                .into_iter()
                .flat_map(|items| items.items())
        };
        if (api_version, found) == ("v1", "List") {
            for item in items() {
                self.object(item, file)?;
            }
            return Ok(());
        }
        let version = api_version
            .strip_prefix(GROUP)
            .and_then(|rest| rest.strip_prefix('/'));
        let is_known = version.is_some_and(|version| {
            let kinds: &[&str] = match version {
                "v1" | "v1beta1" => &KINDS,
                "v1alpha1" => KINDS.get(2..).unwrap_or_default(),
                _ => &[],
            };
            kinds.contains(&found.strip_suffix("List").unwrap_or(found))
        });
        if !is_known {
            return Err(FileError::UnknownKind {
                kind: found.to_owned(),
                version: api_version.to_owned(),
            });
        }
        let version = version.unwrap_or_default();
        match found.strip_prefix(self.kind.name()) {
            Some("") if version == "v1" => self.configuration(value, file),
            Some("List") if version == "v1" => {
                items().try_for_each(|item| self.configuration(item, file))
            }
            _ => Err(FileError::Unsupported {
                kind: found.to_owned(),
                version: version.to_owned(),
            }),
        }
    }

    fn configuration(&mut self, value: Value<'_>, file: &str) -> Result<(), FileError> {
        let decoded = codec::decode(value, self.kind, Version::V1)
            .map_err(|error| FileError::Decode(error.message))?;
        if !decoded.findings.is_empty() {
            return Err(FileError::Strict(strict_error(&decoded.findings)));
        }
        let configuration = decoded.value;
        let name = &configuration.metadata.name;
        let errors = validate(&configuration, Version::V1, RegistrationChecker::REFERENCE);
        if !errors.is_empty() {
            return Err(FileError::Invalid {
                kind: self.kind.name(),
                name: name.clone(),
                errors: aggregate(&errors),
            });
        }
        self.check_name(name, file)?;
        for webhook in configuration.webhooks() {
            let config = &webhook.client_config;
            let problem = if config.service.is_some() {
                "clientConfig.service is not supported for static manifests; use clientConfig.url \
                 instead"
            } else if config.url.as_deref().unwrap_or_default().is_empty() {
                "clientConfig.url is required for static manifests"
            } else {
                continue;
            };
            return Err(FileError::ClientConfig {
                webhook: webhook.name.clone(),
                configuration: name.clone(),
                file: file.to_owned(),
                problem,
            });
        }
        self.configurations.push(configuration);
        Ok(())
    }

    fn check_name(&mut self, name: &str, file: &str) -> Result<(), FileError> {
        let (name, file) = (name.to_owned(), file.to_owned());
        if name.is_empty() {
            return Err(FileError::Unnamed(file));
        }
        if !name.ends_with(STATIC_SUFFIX) {
            return Err(FileError::Suffix { name, file });
        }
        if let Some(before) = self.seen.insert(name.clone(), file.clone()) {
            return Err(FileError::Duplicate { name, file, before });
        }
        Ok(())
    }
}

/// The kinds of the group; the first two do not exist in `v1alpha1`.
const KINDS: [&str; 6] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
];

#[cfg(test)]
mod tests;
