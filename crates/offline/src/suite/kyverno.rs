//! `kyverno-test.yaml`, for ValidatingAdmissionPolicies and MutatingAdmissionPolicies.

use std::path::Path;
use std::sync::Arc;

use lockgate_admission::request::Operation;
use serde::Deserialize;
use serde_json::{Value, json};

use super::expect::{Enforced, Expect};
use super::world::World;
use super::{Case, CaseRequest, Checks, Files, LoadError, beside};
use crate::hooks::Hooks;
use crate::manifest::{self, Manifest};
use crate::request::{RequestSpec, read_user, user};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Test {
    metadata: Metadata,
    policies: Vec<String>,
    resources: Vec<String>,
    param_resources: Vec<String>,
    variables: Option<String>,
    userinfo: Option<String>,
    results: Vec<Expected>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Expected {
    policy: String,
    kind: String,
    resources: Vec<String>,
    resource: Option<String>,
    result: String,
    #[serde(alias = "patchedResource")]
    patched_resources: Option<String>,
    is_validating_admission_policy: bool,
    is_mutating_admission_policy: bool,
}

pub(super) fn load(files: &dyn Files, file: &Path) -> Result<Vec<Case>, LoadError> {
    let shown = file.display().to_string();
    let values = manifest::read_values(&shown, &files.read(file)?)?;
    let mut cases = Vec::new();
    for (_, value) in values {
        let test: Test =
            serde_json::from_value(value).map_err(|error| LoadError::suite(file, error))?;
        cases.extend(cases_of(files, file, &test)?);
    }
    Ok(cases)
}

fn read_all(files: &dyn Files, file: &Path, names: &[String]) -> Result<Vec<Manifest>, LoadError> {
    let mut manifests = Vec::new();
    for name in names {
        let path = beside(file, name);
        let text = files.read(&path)?;
        manifests.extend(manifest::read(&path.display().to_string(), &text)?);
    }
    Ok(manifests)
}

fn one_value(files: &dyn Files, file: &Path, name: &str) -> Result<Value, LoadError> {
    let path = beside(file, name);
    let values = manifest::read_values(&path.display().to_string(), &files.read(&path)?)?;
    Ok(values
        .into_iter()
        .next()
        .map(|(_, value)| value)
        .unwrap_or_default())
}

fn cases_of(files: &dyn Files, file: &Path, test: &Test) -> Result<Vec<Case>, LoadError> {
    let native =
        |it: &&Expected| it.is_validating_admission_policy || it.is_mutating_admission_policy;
    let results: Vec<&Expected> = test.results.iter().filter(native).collect();
    if results.is_empty() {
        return Ok(Vec::new());
    }
    let policies = read_all(files, file, &test.policies)?;
    // Kyverno's own policy kinds are not supported.
    let is_native = |it: &Manifest| it.group_version().0 != "kyverno.io";
    let mut manifests: Vec<Manifest> = policies.into_iter().filter(is_native).collect();
    manifests.extend(read_all(files, file, &test.param_resources)?);
    let resources = read_all(files, file, &test.resources)?;
    let namespaces = resources.iter().filter(|it| it.text("kind") == "Namespace");
    manifests.extend(namespaces.cloned());
    if let Some(variables) = &test.variables {
        let variables = one_value(files, file, variables)?;
        for namespace in variables["namespaceSelector"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata":
                {"name": namespace["name"], "labels": namespace["labels"]}});
            manifests.push(Manifest {
                value,
                source: file.display().to_string(),
                document: 1,
            });
        }
    }
    let by = match &test.userinfo {
        Some(name) => read_user(&one_value(files, file, name)?["userInfo"]),
        None => user(None, &[]),
    };
    let world = Arc::new(World::bound(manifests, Hooks::default())?);
    let mut cases = Vec::new();
    for result in results {
        let patched = match &result.patched_resources {
            Some(name) => read_all(files, file, std::slice::from_ref(name))?,
            None => Vec::new(),
        };
        let named: Vec<&String> = result.resources.iter().chain(&result.resource).collect();
        for resource in &resources {
            let is_kind = result.kind.is_empty() || resource.text("kind") == result.kind;
            let full = format!("{}/{}", resource.namespace(), resource.name());
            let is_named = named.is_empty()
                || named
                    .iter()
                    .any(|name| **name == resource.name() || **name == full);
            if !is_kind || !is_named {
                continue;
            }
            let of = |it: &&Manifest| {
                it.text("kind") == resource.text("kind")
                    && it.name() == resource.name()
                    && it.namespace() == resource.namespace()
            };
            let enforced = match result.result.as_str() {
                "pass" => Enforced::Pass,
                "fail" => Enforced::Fail,
                "skip" => Enforced::Skip,
                "warn" => Enforced::Warn,
                "error" => Enforced::Error,
                other => {
                    let message = format!("unknown result `{other}`");
                    return Err(LoadError::suite(file, message));
                }
            };
            let expect = Expect {
                enforced: Some((result.policy.clone(), enforced)),
                object: patched.iter().find(of).map(|it| it.value.clone()),
                ..Expect::default()
            };
            let wanted = RequestSpec {
                operation: Some(Operation::Create),
                object: Some(resource.value.clone()),
                user: by.clone(),
                ..RequestSpec::default()
            };
            cases.push(Case {
                suite: file.parent().unwrap_or(file).display().to_string(),
                name: format!(
                    "{}/{}/{}",
                    test.metadata.name,
                    result.policy,
                    resource.title()
                ),
                file: file.display().to_string(),
                world: Arc::clone(&world),
                asked: CaseRequest::RequestSpec(Box::new(wanted)),
                expect,
                checks: Checks::default(),
            });
        }
    }
    Ok(cases)
}
