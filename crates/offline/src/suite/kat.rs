//! The layout of kat: `tests/` beside policies, with cases in file names.
//!
//! ```text
//!   policy.yaml, binding.yaml
//!   tests/<policy>.<case>.<allow|deny|warn|audit>.<object|oldObject|request|params|authorizer>.yaml
//!   tests/<policy>.<case>.gold.yaml, .message.txt, .warnings.txt, .annotations.yaml
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate_admission::request::{Operation, resource};
use lockgate_api::registration::policy::Registered;
use serde_json::{Value, json};

use super::expect::Expect;
use super::world::{MockAccess, MockAuthorizer, World};
use super::{Case, CaseRequest, Checks, Files, LoadError};
use crate::hooks::Hooks;
use crate::manifest::{self, Manifest};
use crate::request::{RequestSpec, read_user, user};

/// The kinds of files; longer suffixes come first.
const PARTS: [&str; 10] = [
    ".oldObject.yaml",
    ".object.yaml",
    ".request.yaml",
    ".params.yaml",
    ".authorizer.yaml",
    ".annotations.yaml",
    ".gold.yaml",
    ".expected.yaml",
    ".message.txt",
    ".warnings.txt",
];

/// The files of one case by their part.
type Parts = BTreeMap<&'static str, PathBuf>;

/// The worlds of a folder by the manifests that cases add: most of them add none, and share one.
type Worlds = BTreeMap<String, Arc<World>>;

/// The cases of every folder with this layout.
pub(super) fn load_all(files: &dyn Files) -> Vec<(PathBuf, Result<Vec<Case>, LoadError>)> {
    let mut folders: BTreeMap<PathBuf, BTreeMap<String, Parts>> = BTreeMap::new();
    for file in files.all() {
        let (Some(folder), Some(name)) =
            (file.parent(), file.file_name().and_then(|it| it.to_str()))
        else {
            continue;
        };
        if folder.file_name().is_none_or(|name| name != "tests") {
            continue;
        }
        let Some(part) = PARTS.into_iter().find(|part| name.ends_with(part)) else {
            continue;
        };
        let case = name.strip_suffix(part).unwrap_or(name);
        let cases = folders.entry(folder.to_owned()).or_default();
        let parts = cases.entry(case.to_owned()).or_default();
        parts.insert(part, file.clone());
    }
    let loaded = folders.into_iter().map(|(tests, mut cases)| {
        join_parts(&mut cases);
        let folder = tests.parent().unwrap_or(&tests).to_owned();
        let loaded = load(files, &folder, cases);
        (folder, loaded)
    });
    loaded.collect()
}

/// A golden file or a message may omit the expectation in its name: it belongs to the case with the same prefix.
fn join_parts(cases: &mut BTreeMap<String, Parts>) {
    let has_request = |parts: &Parts| {
        [".object.yaml", ".oldObject.yaml", ".request.yaml"]
            .iter()
            .any(|part| parts.contains_key(part))
    };
    let alone: Vec<String> = cases
        .iter()
        .filter(|(_, parts)| !has_request(parts))
        .map(|(name, _)| name.clone())
        .collect();
    for name in alone {
        let home = cases
            .iter()
            .find(|(known, parts)| has_request(parts) && stem(known) == stem(&name))
            .map(|(known, _)| known.clone());
        if let Some(home) = home
            && let Some(parts) = cases.remove(&name)
            && let Some(known) = cases.get_mut(&home)
        {
            for (part, file) in parts {
                known.entry(part).or_insert(file);
            }
        }
    }
}

fn expectation(name: &str) -> Option<&str> {
    let (_, last) = name.rsplit_once('.')?;
    ["allow", "deny", "warn", "audit", "mutate"]
        .contains(&last)
        .then_some(last)
}

fn stem(name: &str) -> &str {
    match expectation(name) {
        Some(word) => name
            .strip_suffix(word)
            .and_then(|rest| rest.strip_suffix('.'))
            .unwrap_or(name),
        None => name,
    }
}

fn load(
    files: &dyn Files,
    folder: &Path,
    cases: BTreeMap<String, Parts>,
) -> Result<Vec<Case>, LoadError> {
    let mut manifests = Vec::new();
    for file in files
        .all()
        .iter()
        .filter(|file| file.parent() == Some(folder))
    {
        let extension = file.extension().and_then(|it| it.to_str());
        if !matches!(extension, Some("yaml" | "yml")) {
            continue;
        }
        let name = file.display().to_string();
        let read = manifest::read(&name, &files.read(file)?)?;
        let is_policy = |manifest: &Manifest| {
            let (group, _) = manifest.group_version();
            let v1 = format!("{group}/v1");
            Registered::identify(&v1, manifest.text("kind")).is_some()
                || manifest.text("kind") == "CustomResourceDefinition"
        };
        manifests.extend(read.into_iter().filter(is_policy));
    }
    if manifests.is_empty() {
        return Ok(Vec::new());
    }
    let suite = folder.display().to_string();
    let mut worlds = Worlds::default();
    let mut made = Vec::with_capacity(cases.len());
    for (name, parts) in cases {
        made.push(case(files, &suite, &name, &parts, &manifests, &mut worlds)?);
    }
    Ok(made)
}

fn case(
    files: &dyn Files,
    suite: &str,
    name: &str,
    parts: &Parts,
    manifests: &[Manifest],
    worlds: &mut Worlds,
) -> Result<Case, LoadError> {
    let value = |part: &str| -> Result<Option<Value>, LoadError> {
        let Some(file) = parts.get(part) else {
            return Ok(None);
        };
        let shown = file.display().to_string();
        let values = manifest::read_values(&shown, &files.read(file)?)?;
        Ok(values.into_iter().next().map(|(_, value)| value))
    };
    let text = |part: &str| -> Result<Option<String>, LoadError> {
        match parts.get(part) {
            Some(file) => Ok(Some(files.read(file)?)),
            None => Ok(None),
        }
    };
    let request = value(".request.yaml")?.unwrap_or_default();
    let object = value(".object.yaml")?.or_else(|| member(&request, "object"));
    let old_object = value(".oldObject.yaml")?.or_else(|| member(&request, "oldObject"));
    let mut manifests = manifests.to_vec();
    let mut namespace = request["namespace"].as_str().map(str::to_owned);
    if let Some(mut namespace_object) = member(&request, "namespaceObject") {
        let own = namespace_object["metadata"]["name"]
            .as_str()
            .map(str::to_owned);
        let object_namespace = object.as_ref().or(old_object.as_ref());
        let object_namespace =
            object_namespace.and_then(|it| it["metadata"]["namespace"].as_str().map(str::to_owned));
        // A given Namespace is that of the request, whatever its name.
        let name = namespace.clone().or(object_namespace).or(own);
        let name = name.unwrap_or_else(|| String::from("default"));
        namespace_object["metadata"]["name"] = name.clone().into();
        namespace_object["apiVersion"] = "v1".into();
        namespace_object["kind"] = "Namespace".into();
        namespace = Some(name);
        manifests.push(added(namespace_object));
    }
    if !request["namespaceObject"].is_object() {
        // Namespace selectors match nothing if the case does not specify a namespace.
        for manifest in &mut manifests {
            for member in ["matchConstraints", "matchResources"] {
                let resources = manifest.value.pointer_mut(&format!("/spec/{member}"));
                if let Some(resources) = resources.and_then(Value::as_object_mut) {
                    resources.remove("namespaceSelector");
                }
            }
        }
    }
    let params = value(".params.yaml")?;
    if let Some(params) = params {
        add_params(&mut manifests, params, namespace.as_deref());
    }
    let mocks = value(".authorizer.yaml")?;
    let key: Vec<&Value> = manifests.iter().map(|manifest| &manifest.value).collect();
    let key = json!([key, mocks]).to_string();
    let world = match worlds.get(&key) {
        Some(known) => Arc::clone(known),
        None => {
            let mut world = World::bound(manifests, Hooks::default())?;
            if let Some(mocks) = mocks {
                let mocks: Vec<MockAccess> = serde_json::from_value(mocks).map_err(|error| {
                    LoadError::suite(Path::new(suite), format!("{name}.authorizer.yaml: {error}"))
                })?;
                world = world.with_authorizer(MockAuthorizer(mocks));
            }
            let world = Arc::new(world);
            worlds.insert(key, Arc::clone(&world));
            world
        }
    };
    let mut expect = Expect {
        message: text(".message.txt")?.map(|message| server_message(&message)),
        object: value(".gold.yaml")?.or(value(".expected.yaml")?),
        ..Expect::default()
    };
    expect.allowed = Some(expectation(name) != Some("deny"));
    if let Some(warnings) = text(".warnings.txt")? {
        expect.warnings = Some(
            warnings
                .lines()
                .filter(|it| !it.trim().is_empty())
                .map(str::to_owned)
                .collect(),
        );
    }
    if let Some(Value::Object(annotations)) = value(".annotations.yaml")? {
        let pairs = annotations.into_iter();
        expect.audit_annotations = pairs
            .map(|(key, value)| (key, value.as_str().unwrap_or_default().to_owned()))
            .collect();
    }
    let asked = wanted(&request, object, old_object, namespace);
    let file = parts.values().next().map(|file| file.display().to_string());
    Ok(Case {
        suite: suite.to_owned(),
        name: name.to_owned(),
        file: file.unwrap_or_default(),
        world,
        asked: CaseRequest::RequestSpec(Box::new(asked)),
        expect,
        checks: Checks::default(),
    })
}

/// The server's message for a message that differs in kat.
fn server_message(message: &str) -> String {
    let message = message.trim();
    let message = message
        .strip_prefix("validation failed: ")
        .unwrap_or(message);
    match message {
        "params missing but required to bind to this policy" => {
            "no params found for policy binding with `Deny` parameterNotFoundAction"
        }
        other => other,
    }
    .to_owned()
}

fn member(value: &Value, name: &str) -> Option<Value> {
    value.get(name).filter(|it| it.is_object()).cloned()
}

fn added(value: Value) -> Manifest {
    Manifest {
        value,
        source: String::from("test"),
        document: 1,
    }
}

/// Adds the parameters of a case with the name that bindings refer to.
fn add_params(manifests: &mut Vec<Manifest>, params: Value, namespace: Option<&str>) {
    let references: Vec<(String, String)> = manifests
        .iter()
        .filter_map(|manifest| {
            let reference = &manifest.value["spec"]["paramRef"];
            let name = reference["name"].as_str()?.to_owned();
            let own = reference["namespace"].as_str().unwrap_or_default();
            Some((name, own.to_owned()))
        })
        .collect();
    for (name, own) in references {
        let mut params = params.clone();
        params["metadata"]["name"] = name.into();
        let given = params["metadata"]["namespace"].as_str().unwrap_or_default();
        let within = [
            own.as_str(),
            given,
            namespace.unwrap_or_default(),
            "default",
        ];
        let within = within
            .into_iter()
            .find(|it| !it.is_empty())
            .unwrap_or_default();
        params["metadata"]["namespace"] = within.into();
        manifests.push(added(params));
    }
    manifests.push(added(params));
}

fn wanted(
    request: &Value,
    object: Option<Value>,
    old_object: Option<Value>,
    namespace: Option<String>,
) -> RequestSpec {
    let operation = request["operation"].as_str().and_then(Operation::from_name);
    let is_connect = operation == Some(Operation::Connect);
    let mut wanted = RequestSpec {
        operation,
        object,
        old_object,
        namespace,
        name: request["name"].as_str().map(str::to_owned),
        subresource: request["subResource"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        user: match &request["userInfo"] {
            Value::Object(_) => read_user(&request["userInfo"]),
            _ => user(Some("kat"), &[]),
        },
        dry_run: request["dryRun"].as_bool().unwrap_or_default(),
        ..RequestSpec::default()
    };
    if is_connect {
        // The object of a CONNECT request is its options.
        wanted.resource = Some(resource("", "v1", "pods"));
        if wanted.object.is_none() {
            let kind = match wanted.subresource.as_str() {
                "attach" => "PodAttachOptions",
                "portforward" => "PodPortForwardOptions",
                "proxy" => "PodProxyOptions",
                _ => "PodExecOptions",
            };
            let mut options = request["options"].clone();
            if !options.is_object() {
                options = json!({});
            }
            options["apiVersion"] = "v1".into();
            options["kind"] = kind.into();
            wanted.object = Some(options);
        }
    } else if wanted.operation == Some(Operation::Delete)
        && wanted.old_object.is_none()
        && wanted.object.is_some()
    {
        wanted.old_object = wanted.object.take();
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_in_words_of_the_server() {
        for (written, want) in [
            ("No owner\n", "No owner"),
            ("validation failed: No owner\n", "No owner"),
            (
                "params missing but required to bind to this policy",
                "no params found for policy binding with `Deny` parameterNotFoundAction",
            ),
        ] {
            assert_eq!(server_message(written), want);
        }
    }
}
