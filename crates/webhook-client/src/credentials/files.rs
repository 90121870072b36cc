//! The configuration files: `AdmissionConfiguration`, `WebhookAdmissionConfiguration`, kubeconfig.
//!
//! UPSTREAM: k8s.io/apiserver pkg/admission/config.go and
//! pkg/admission/plugin/webhook/config/kubeconfig.go; k8s.io/client-go tools/clientcmd.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use lockgate_api::decode::{StrictFinding, StrictProblem, strict_error};
use lockgate_api::document::{Document, Kind, Value, yaml};
use lockgate_go::base64;
use lockgate_go::quote::quote;

use super::{Credentials, CredentialsError, Impersonate, Material, TokenFile, User, fail};

/// The configuration of an admission plugin.
#[derive(Debug, Clone, Default)]
pub struct PluginConfiguration {
    /// The credentials for webhook calls.
    pub credentials: Credentials,
    /// The directory of static manifests, if any.
    pub static_manifests_dir: Option<PathBuf>,
}

/// Loads the file given by `--admission-control-config-file` and the files it refers to, for the webhook plugin
/// `plugin`. A plugin that is not listed has the default configuration.
///
/// # Errors
///
/// Fails if a file cannot be read or is invalid, with upstream's message.
pub fn load(file: &Path, plugin: &str) -> Result<PluginConfiguration, CredentialsError> {
    match plugin_part(file, plugin)? {
        None => Ok(PluginConfiguration::default()),
        Some(text) => webhook_admission(parse(text.as_bytes())?.root()),
    }
}

/// Reads the configuration of one plugin from that file, or from the file it refers to: YAML, or `None` if the plugin
/// is not listed.
///
/// # Errors
///
/// Fails if a file cannot be read or is invalid, with upstream's message.
pub fn plugin_part(file: &Path, plugin: &str) -> Result<Option<String>, CredentialsError> {
    let text = std::fs::read(file).map_err(|error| {
        let shown = quote(&file.display().to_string());
        let problem = open_error(file, &error);
        format!("unable to read admission control configuration from {shown} [{problem}]")
    })?;
    let document = parse(&text)?;
    let root = document.root();
    // In the legacy format the file is the configuration of one plugin.
    for (member, reader) in [
        ("imagePolicy", "ImagePolicyWebhook"),
        ("podNodeSelectorPluginConfig", "PodNodeSelector"),
    ] {
        if root.get(member).is_some() {
            let whole = || String::from_utf8_lossy(&text).into_owned();
            return Ok((plugin == reader).then(whole));
        }
    }
    expect_type(
        root,
        &["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"],
        "AdmissionConfiguration",
    )
    .map_err(|error| match error.0.starts_with("no kind ") {
        // UPSTREAM: schemes are named after the file that creates them.
        true => {
            format!("{error} in scheme \"k8s.io/apiserver/pkg/server/options/admission.go:51\"")
        }
        false => error.to_string(),
    })?;
    let mut strict = Strict::default();
    strict.check(root, "", &["apiVersion", "kind", "plugins"]);
    let plugins = root.get("plugins");
    let mut found = None;
    for (index, entry) in plugins.iter().flat_map(Value::items).enumerate() {
        let path = format!("plugins[{index}]");
        strict.check(entry, &path, &["name", "path", "configuration"]);
        if found.is_none() && text_of(entry, "name")? == plugin {
            found = Some(entry);
        }
    }
    strict.finish()?;
    let Some(entry) = found else {
        return Ok(None);
    };
    let inline = entry.get("configuration").filter(|value| !value.is_null());
    if let Some(inline) = inline {
        return Ok(Some(inline.to_json()));
    }
    let path = text_of(entry, "path")?;
    if path.is_empty() {
        return Ok(None);
    }
    let path = beside(file, &path);
    let text = std::fs::read(&path).map_err(|error| open_error(&path, &error))?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

fn webhook_admission(root: Value<'_>) -> Result<PluginConfiguration, CredentialsError> {
    expect_type(
        root,
        &["apiserver.config.k8s.io/v1"],
        "WebhookAdmissionConfiguration",
    )?;
    let mut strict = Strict::default();
    let known = ["apiVersion", "kind", "kubeConfigFile", "staticManifestsDir"];
    strict.check(root, "", &known);
    strict.finish()?;
    let kubeconfig = text_of(root, "kubeConfigFile")?;
    let manifests = text_of(root, "staticManifestsDir")?;
    let mut configuration = PluginConfiguration {
        credentials: Credentials::default(),
        static_manifests_dir: (!manifests.is_empty()).then(|| PathBuf::from(manifests)),
    };
    if !kubeconfig.is_empty() {
        let path = Path::new(&kubeconfig);
        if !path.is_absolute() {
            let shown = quote(&kubeconfig);
            return fail(format!(
                "kubeConfigFile: Invalid value: {shown}: must be an absolute file path"
            ));
        }
        let text = std::fs::read(path).map_err(|error| open_error(path, &error))?;
        configuration.credentials = parse_kubeconfig(&text, path)?;
    }
    Ok(configuration)
}

/// Parses the users and the current context of a kubeconfig; paths are relative to `file`.
///
/// # Errors
///
/// Fails if the text is not YAML or a field has the wrong type.
pub fn parse_kubeconfig(text: &[u8], file: &Path) -> Result<Credentials, CredentialsError> {
    let document = parse(text)?;
    let root = document.root();
    let mut users = Vec::new();
    for entry in members_of(root, "users") {
        let name = text_of(entry, "name")?;
        let user = entry.get("user").filter(|user| !user.is_null());
        let user = match user {
            Some(user) => read_user(name, user, file)?,
            None => User {
                name,
                ..User::default()
            },
        };
        users.push(user);
    }
    let context_name = text_of(root, "current-context")?;
    let mut current = None;
    for entry in members_of(root, "contexts") {
        if !context_name.is_empty() && text_of(entry, "name")? == context_name {
            current = match entry.get("context") {
                Some(context) => some(text_of(context, "user")?),
                None => None,
            };
        }
    }
    Ok(Credentials::new(users, current))
}

fn read_user(name: String, user: Value<'_>, file: &Path) -> Result<User, CredentialsError> {
    let material = |data: &str, path: &str| -> Result<Option<Material>, CredentialsError> {
        let encoded = text_of(user, data)?;
        if !encoded.is_empty() {
            let data = base64::decode(&encoded).map_err(|error| error.to_string())?;
            return Ok(Some(Material::Data(data)));
        }
        let path = text_of(user, path)?;
        Ok(some(path).map(|path| Material::File(beside(file, &path))))
    };
    let impersonated = text_of(user, "as")?;
    let mut groups = Vec::new();
    for group in members_of(user, "as-groups") {
        groups.push(as_text(group)?);
    }
    let mut extra = BTreeMap::new();
    if let Some(members) = user.get("as-user-extra") {
        for member in members.members() {
            let values: Result<Vec<String>, CredentialsError> =
                member.value.items().map(as_text).collect();
            extra.insert(member.key.to_owned(), values?);
        }
    }
    let given = |key: &str| user.get(key).is_some_and(|value| !value.is_null());
    let unusable = if given("auth-provider") {
        Some("auth provider not supported")
    } else if given("exec") {
        Some("exec credential plugins are not supported")
    } else {
        None
    };
    Ok(User {
        name,
        token: some(text_of(user, "token")?),
        token_file: some(text_of(user, "tokenFile")?)
            .map(|path| TokenFile::new(beside(file, &path))),
        client_certificate: material("client-certificate-data", "client-certificate")?,
        client_key: material("client-key-data", "client-key")?,
        username: text_of(user, "username")?,
        password: text_of(user, "password")?,
        impersonate: (!impersonated.is_empty())
            .then(|| -> Result<_, CredentialsError> {
                Ok(Impersonate {
                    user: impersonated,
                    uid: text_of(user, "as-uid")?,
                    groups,
                    extra,
                })
            })
            .transpose()?,
        unusable: unusable.map(str::to_owned),
        ..User::default()
    })
}

fn parse(text: &[u8]) -> Result<Document, CredentialsError> {
    yaml::parse(&String::from_utf8_lossy(text)).map_err(|error| error.to_string().into())
}

fn expect_type(root: Value<'_>, versions: &[&str], kind: &str) -> Result<(), CredentialsError> {
    let (found_version, found_kind) = (text_of(root, "apiVersion")?, text_of(root, "kind")?);
    if found_kind.is_empty() {
        return fail(format!("Object 'Kind' is missing in '{}'", root.to_json()));
    }
    if found_version.is_empty() {
        let shown = root.to_json();
        return fail(format!("Object 'apiVersion' is missing in '{shown}'"));
    }
    if found_kind != kind || !versions.contains(&found_version.as_str()) {
        return fail(format!(
            "no kind \"{found_kind}\" is registered for version \"{found_version}\""
        ));
    }
    Ok(())
}

/// Collects unknown and duplicate fields.
#[derive(Default)]
struct Strict {
    findings: Vec<StrictFinding>,
}

impl Strict {
    fn check(&mut self, value: Value<'_>, path: &str, known: &[&str]) {
        let mut seen = Vec::new();
        for member in value.members() {
            let problem = if !known.contains(&member.key) {
                StrictProblem::UnknownField
            } else if seen.contains(&member.key) {
                StrictProblem::DuplicateField
            } else {
                seen.push(member.key);
                continue;
            };
            let path = if path.is_empty() {
                member.key.to_owned()
            } else {
                format!("{path}.{}", member.key)
            };
            self.findings.push(StrictFinding {
                problem,
                path,
                span: member.key_span,
                known: &[],
            });
        }
    }

    fn finish(self) -> Result<(), CredentialsError> {
        if self.findings.is_empty() {
            return Ok(());
        }
        fail(strict_error(&self.findings))
    }
}

fn members_of<'d>(value: Value<'d>, key: &str) -> impl Iterator<Item = Value<'d>> {
    value.get(key).into_iter().flat_map(|value| value.items())
}

/// The string value of a field; empty when absent.
fn text_of(value: Value<'_>, key: &str) -> Result<String, CredentialsError> {
    match value.get(key).filter(|value| !value.is_null()) {
        None => Ok(String::new()),
        Some(value) => as_text(value).map_err(|CredentialsError(problem)| {
            CredentialsError(problem.replacen("Go value", &format!("field {key}"), 1))
        }),
    }
}

fn as_text(value: Value<'_>) -> Result<String, CredentialsError> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let found = match value.kind() {
        Kind::Null => "null",
        Kind::Bool => "bool",
        Kind::Number => "number",
        Kind::String => "string",
        Kind::Array => "array",
        Kind::Object => "object",
    };
    fail(format!(
        "json: cannot unmarshal {found} into Go value of type string"
    ))
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A path relative to the folder of `file`.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent()
        .map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
}

/// The error of opening a file, in Go's format.
pub(super) fn open_error(file: &Path, error: &io::Error) -> String {
    let problem = error.to_string();
    let problem = problem.split(" (os error").next().unwrap_or_default();
    format!("open {}: {}", file.display(), problem.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
