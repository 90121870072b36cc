//! `tests.json` beside `policy.yaml`: templates with changed fields, as in kubescape's library.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::expect::{Enforced, Expect};
use super::world::World;
use super::{Case, CaseRequest, Checks, Files, LoadError, beside};
use crate::hooks::Hooks;
use crate::manifest::{self, Manifest};
use crate::request::{RequestSpec, user};

#[derive(Debug, Deserialize)]
struct Test {
    name: String,
    template: String,
    expected: String,
    #[serde(default)]
    field_change_list: Vec<String>,
    binding_template: Option<String>,
    param_template: Option<String>,
}

const RESOURCES: &str = "../../test-resources/";
const DEFINITION: &str = "../../configuration/policy-configuration-definition.yaml";

pub(super) fn load(files: &dyn Files, file: &Path) -> Result<Vec<Case>, LoadError> {
    let policy_file = beside(file, "policy.yaml");
    if !files.all().contains(&policy_file) {
        return Ok(Vec::new());
    }
    let tests: Vec<Test> =
        serde_json::from_str(&files.read(file)?).map_err(|error| LoadError::suite(file, error))?;
    let read = |path: &Path| -> Result<Vec<Manifest>, LoadError> {
        Ok(manifest::read(
            &path.display().to_string(),
            &files.read(path)?,
        )?)
    };
    let policies = read(&policy_file)?;
    let Some(policy) = policies
        .iter()
        .find(|it| it.text("kind") == "ValidatingAdmissionPolicy")
    else {
        return Ok(Vec::new());
    };
    let policy_name = policy.name().to_owned();
    let definitions = read(&beside(file, DEFINITION))?;
    let template = |name: &str, changes: &[(String, Value)]| -> Result<Manifest, LoadError> {
        let path = beside(file, &format!("{RESOURCES}{name}"));
        let mut manifests = read(&path)?;
        if manifests.is_empty() {
            return Err(LoadError::suite(&path, "no object found"));
        }
        let mut manifest = manifests.remove(0);
        for (field, value) in changes {
            set(&mut manifest.value, field, value.clone());
        }
        Ok(manifest)
    };
    let text = |text: String| Value::from(text);
    let mut cases = Vec::with_capacity(tests.len());
    for test in tests {
        let changes: Vec<(String, Value)> = test
            .field_change_list
            .iter()
            .filter_map(|change| change.split_once('='))
            .map(|(field, value)| (field.to_owned(), changed(value)))
            .collect();
        let object = template(&test.template, &changes)?;
        let params_name = format!("{policy_name}-params");
        let binding = test
            .binding_template
            .as_deref()
            .unwrap_or("policy-binding.yaml");
        let binding = template(
            binding,
            &[
                (String::from("spec.policyName"), text(policy_name.clone())),
                (
                    String::from("metadata.name"),
                    text(format!("{policy_name}-binding")),
                ),
                (
                    String::from("spec.paramRef.name"),
                    text(params_name.clone()),
                ),
            ],
        )?;
        let params = test.param_template.as_deref();
        let params = params.unwrap_or("default-control-configuration.yaml");
        let params = template(
            params,
            &[(String::from("metadata.name"), text(params_name))],
        )?;
        let mut manifests = definitions.clone();
        manifests.extend(policies.iter().cloned());
        manifests.extend([binding, params]);
        let enforced = match test.expected.as_str() {
            "pass" => None,
            "fail" => Some(Enforced::Fail),
            "warn" => Some(Enforced::Warn),
            other => {
                let message = format!("unknown expectation `{other}`");
                return Err(LoadError::suite(file, message));
            }
        };
        cases.push(Case {
            suite: file.parent().unwrap_or(file).display().to_string(),
            name: test.name,
            file: file.display().to_string(),
            world: Arc::new(World::bound(manifests, Hooks::default())?),
            asked: CaseRequest::RequestSpec(Box::new(RequestSpec {
                object: Some(object.value),
                user: user(None, &[]),
                ..RequestSpec::default()
            })),
            expect: Expect {
                allowed: Some(test.expected != "fail"),
                enforced: enforced.map(|it| (policy_name.clone(), it)),
                ..Expect::default()
            },
            checks: Checks::default(),
        });
    }
    Ok(cases)
}

/// A value as parsed by the library's script: JSON if valid, otherwise a string.
fn changed(text: &str) -> Value {
    match text {
        "True" => true.into(),
        "False" => false.into(),
        text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

/// Sets a field given by a path such as `spec.containers.[0].image`.
fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in split(path) {
        match part.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            Some(index) => {
                let index: usize = index.parse().unwrap_or_default();
                if !at.is_array() {
                    *at = Value::Array(Vec::new());
                }
                let Some(items) = at.as_array_mut() else {
                    return;
                };
                // Tests refer to the position after the last item at most.
                if index > items.len() {
                    return;
                }
                if index == items.len() {
                    items.push(Value::Null);
                }
                at = &mut items[index];
            }
            None => {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                at = &mut at[part];
            }
        }
    }
    *at = value;
}

fn split(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|part| !part.is_empty())
}
