//! Lockgate's own format: entire chains of webhooks and policies in one YAML file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lockgate_admission::request::Operation;
use serde::Deserialize;
use serde_json::Value;

use super::expect::Expect;
use super::world::World;
use super::{Case, CaseRequest, Checks, Files, LoadError, beside};
use crate::cluster::{Cluster, Validation};
use crate::hooks::Script;
use crate::manifest::{self, Manifest};
use crate::request::{RequestSpec, user};

/// The `apiVersion` of such files.
pub(super) const API_VERSION: &str = "test.lockgate.dev/v1";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Test {
    api_version: String,
    kind: String,
    metadata: Metadata,
    /// Files and folders with manifests, relative to this one.
    manifests: Vec<String>,
    /// Inline manifests.
    objects: Vec<Value>,
    /// The responses of webhooks.
    webhooks: Vec<Script>,
    /// Checks of every case.
    checks: Checks,
    cases: Vec<ChainCase>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Metadata {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ChainCase {
    name: String,
    operation: Option<String>,
    object: Option<Value>,
    old_object: Option<Value>,
    /// An AdmissionReview, as a file or inline.
    review: Option<Value>,
    user: Option<String>,
    groups: Vec<String>,
    namespace: Option<String>,
    subresource: String,
    dry_run: bool,
    /// Webhook responses that override the file's.
    webhooks: Vec<Script>,
    checks: Option<Checks>,
    expect: Expected,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expected {
    allowed: Option<bool>,
    message: Option<String>,
    code: Option<i32>,
    reason: Option<String>,
    warnings: Option<Vec<String>>,
    audit_annotations: BTreeMap<String, String>,
    object: Option<Value>,
    exact_object: Option<Value>,
    calls: Option<Vec<String>>,
    verdicts: BTreeMap<String, String>,
    patches: BTreeMap<String, Value>,
    set_by: BTreeMap<String, String>,
}

pub(super) fn load(files: &dyn Files, file: &Path, text: &str) -> Result<Vec<Case>, LoadError> {
    let mut cases = Vec::new();
    for (_, value) in manifest::read_values(&file.display().to_string(), text)? {
        if value["apiVersion"] != API_VERSION {
            continue;
        }
        let test: Test =
            serde_json::from_value(value).map_err(|error| LoadError::suite(file, error))?;
        if test.kind != "AdmissionTest" || test.api_version != API_VERSION {
            let message = format!("unknown kind `{}`, expected AdmissionTest", test.kind);
            return Err(LoadError::suite(file, message));
        }
        if test.cases.is_empty() {
            return Err(LoadError::suite(file, "no cases found"));
        }
        cases.extend(cases_of(files, file, test)?);
    }
    Ok(cases)
}

fn cases_of(files: &dyn Files, file: &Path, test: Test) -> Result<Vec<Case>, LoadError> {
    let folder = file.parent().unwrap_or_else(|| Path::new("")).to_owned();
    let mut manifests = Vec::new();
    for name in &test.manifests {
        manifests.extend(read_manifests(files, file, name)?);
    }
    let source = file.display().to_string();
    manifests.extend(test.objects.into_iter().map(|value| Manifest {
        value,
        source: source.clone(),
        document: 1,
    }));
    let make = |scripts: Vec<Script>| -> Result<Arc<World>, LoadError> {
        let validation = Validation::Version(files.kube_version());
        let cluster = Cluster::from_manifests(manifests.iter().cloned(), validation)?;
        let hooks = files.hooks(scripts, &folder)?;
        check_names(file, &cluster, &hooks)?;
        Ok(Arc::new(World::new(cluster, hooks)))
    };
    let shared = make(test.webhooks.clone())?;
    let mut cases = Vec::with_capacity(test.cases.len());
    for case in test.cases {
        let world = if case.webhooks.is_empty() {
            Arc::clone(&shared)
        } else {
            let mut scripts = test.webhooks.clone();
            scripts.retain(|known| case.webhooks.iter().all(|own| own.name != known.name));
            scripts.extend(case.webhooks.iter().cloned());
            make(scripts)?
        };
        let name = case.name.clone();
        let checks = case.checks.unwrap_or(test.checks);
        let (asked, expect) = read_case(files, file, case)?;
        cases.push(Case {
            suite: match test.metadata.name.as_str() {
                "" => file.display().to_string(),
                name => name.to_owned(),
            },
            name,
            file: file.display().to_string(),
            world,
            asked,
            expect,
            checks,
        });
    }
    Ok(cases)
}

/// A script for an unregistered webhook is an error.
fn check_names(
    file: &Path,
    cluster: &Cluster,
    hooks: &crate::hooks::Hooks,
) -> Result<(), LoadError> {
    let known: Vec<(&str, &str)> = cluster
        .configurations
        .iter()
        .flat_map(|configuration| {
            let webhooks = configuration.webhooks().iter();
            webhooks.map(|webhook| (configuration.metadata.name.as_str(), webhook.name.as_str()))
        })
        .collect();
    for name in hooks.names() {
        let is_known = known.iter().any(|(configuration, webhook)| {
            name == *webhook || name == format!("{configuration}/{webhook}")
        });
        if !is_known {
            let message = format!("webhook `{name}` is in no configuration");
            return Err(LoadError::suite(file, message));
        }
    }
    Ok(())
}

fn read_manifests(files: &dyn Files, file: &Path, name: &str) -> Result<Vec<Manifest>, LoadError> {
    let path = beside(file, name);
    let mut within: Vec<&Path> = files
        .all()
        .iter()
        .map(|it| it.as_path())
        .filter(|it| it.starts_with(&path) && *it != file && **it != *path)
        .filter(|it| {
            matches!(
                it.extension().and_then(|it| it.to_str()),
                Some("yaml" | "yml" | "json")
            )
        })
        .collect();
    if within.is_empty() {
        within.push(&path);
    }
    let mut manifests = Vec::new();
    for path in within {
        let text = files.read(path)?;
        let read = manifest::read(&path.display().to_string(), &text)?;
        // Test files in a manifest folder are not manifests.
        manifests.extend(
            read.into_iter()
                .filter(|it| it.text("apiVersion") != API_VERSION),
        );
    }
    Ok(manifests)
}

/// An inline object, or one in a file.
fn object(
    files: &dyn Files,
    file: &Path,
    value: Option<Value>,
) -> Result<Option<Value>, LoadError> {
    match value {
        Some(Value::String(name)) => {
            let path = beside(file, &name);
            let values = manifest::read_values(&path.display().to_string(), &files.read(&path)?)?;
            let first = values.into_iter().next();
            let (_, value) = first.ok_or_else(|| LoadError::suite(&path, "no object found"))?;
            Ok(Some(value))
        }
        other => Ok(other),
    }
}

fn read_case(
    files: &dyn Files,
    file: &Path,
    case: ChainCase,
) -> Result<(CaseRequest, Expect), LoadError> {
    let asked = match object(files, file, case.review)? {
        Some(review) => CaseRequest::Review(Box::new(review)),
        None => {
            let operation = match &case.operation {
                None => None,
                Some(word) => {
                    Some(Operation::from_name(&word.to_uppercase()).ok_or_else(|| {
                        LoadError::suite(file, format!("{}: unknown operation `{word}`", case.name))
                    })?)
                }
            };
            let mut new = object(files, file, case.object)?;
            let mut old = object(files, file, case.old_object)?;
            if operation == Some(Operation::Delete) && old.is_none() {
                old = new.take();
            }
            CaseRequest::RequestSpec(Box::new(RequestSpec {
                operation,
                object: new,
                old_object: old,
                user: user(case.user.as_deref(), &case.groups),
                namespace: case.namespace,
                subresource: case.subresource,
                dry_run: case.dry_run,
                ..RequestSpec::default()
            }))
        }
    };
    let expected = case.expect;
    let expect = Expect {
        allowed: expected.allowed,
        message: expected.message,
        code: expected.code,
        reason: expected.reason,
        warnings: expected.warnings,
        audit_annotations: expected.audit_annotations,
        object: object(files, file, expected.exact_object)?,
        object_part: object(files, file, expected.object)?,
        calls: expected.calls,
        verdicts: expected.verdicts,
        patches: expected.patches,
        blame: expected.set_by,
        ..Expect::default()
    };
    Ok((asked, expect))
}
