//! Type checking of ValidatingAdmissionPolicies: their expressions are checked with the schemas of the matched kinds,
//! and errors become warnings in the status. They never affect a decision.
//!
//! UPSTREAM: kubernetes pkg/controller/validatingadmissionpolicystatus, apiserver
//! pkg/admission/plugin/policy/validating/typechecking.go

use std::collections::BTreeMap;
use std::sync::Arc;

use lockgate_cel::admission::{Params, TypeCheck};
use lockgate_cel::schema::{MAX_SCHEMA_DEPTH, Schema};
use serde_json::{Value, json};

use super::{Context, account};
use crate::decode::options::WriteOptions;
use crate::decode::patch::Patch;
use crate::decode::write::PatchBody;
use crate::error::{self, Outcome};
use crate::http::request_info::Verb;
use crate::metadata;
use crate::registry::{Resource, Snapshot, split_api_version};
use crate::request::{ObjectPath, Request};
use crate::write::patch;

const ACCOUNT: &str = "validatingadmissionpolicy-status-controller";
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";
/// The maximum number of kinds checked per rule of a policy.
const MAX_KINDS: usize = 10;

/// Checks a policy whose latest generation has not been checked.
pub(super) async fn reconcile(context: &Context, name: &str) -> Outcome<()> {
    let writer = &context.writer;
    let snapshot = writer.registry.snapshot();
    let policies = snapshot.find(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
    );
    let Some(resource) = policies else {
        return Ok(());
    };
    let path = |subresource| ObjectPath {
        resource,
        namespace: "",
        name,
        subresource,
    };
    let policy = match writer.storage.get(path("")).await {
        Ok(policy) => policy,
        Err(failure) if failure.is_not_found() => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let number = |pointer| policy.pointer(pointer).and_then(Value::as_i64);
    let generation = number("/metadata/generation").unwrap_or_default();
    if generation <= number("/status/observedGeneration").unwrap_or_default() {
        return Ok(());
    }
    let snapshot_of_types = Arc::clone(&snapshot);
    let uid = metadata::text(&policy, "uid").to_owned();
    // Schemas can be large and expressions numerous.
    let checked = tokio::task::spawn_blocking(move || warnings(&policy, &snapshot_of_types)).await;
    let warnings = checked.map_err(|_| error::internal("the type check did not end"))?;
    let type_checking = match warnings.is_empty() {
        true => json!({}),
        false => json!({"expressionWarnings": warnings}),
    };
    let configuration = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind(),
        // The UID excludes a recreated policy of the same name.
        "metadata": {"name": name, "uid": uid},
        "status": {"observedGeneration": generation, "typeChecking": type_checking},
    });
    let request = Request::internal(account(ACCOUNT), Verb::Patch, path("status"));
    let body = PatchBody {
        patch: Patch::Apply(configuration),
        findings: Vec::new(),
        options: WriteOptions::of_forced_apply(FIELD_MANAGER),
    };
    match patch::patch(writer, &request, body).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// The warnings of a policy, in the order of its expressions.
fn warnings(policy: &Value, snapshot: &Snapshot) -> Vec<Value> {
    let spec = &policy["spec"];
    let params = params(spec, snapshot);
    let mut checks = Vec::new();
    for (kind, resource) in kinds(spec, snapshot) {
        let Some(schema) = schema(resource) else {
            continue;
        };
        let params = match &params {
            None => Params::None,
            Some((_, None)) => Params::Unknown,
            Some((kind, Some(schema))) => Params::Known(kind, schema),
        };
        let mut check = TypeCheck::new(resource.kind(), &schema, params);
        for variable in items(spec, "variables") {
            check.declare(text(variable, "name"), text(variable, "expression"));
        }
        checks.push((kind, check));
    }
    let mut warnings = Vec::new();
    for (index, validation) in items(spec, "validations").iter().enumerate() {
        for member in ["expression", "messageExpression"] {
            let expression = text(validation, member);
            if member == "messageExpression" && expression.is_empty() {
                continue;
            }
            let found: Vec<String> = checks
                .iter()
                .filter_map(|([group, version, kind], check)| {
                    let issues = check.issues(expression)?;
                    let slash = if group.is_empty() { "" } else { "/" };
                    Some(format!("{group}{slash}{version}, Kind={kind}: {issues}\n"))
                })
                .collect();
            if !found.is_empty() {
                warnings.push(json!({
                    "fieldRef": format!("spec.validations[{index}].{member}"),
                    "warning": found.join("\n"),
                }));
            }
        }
    }
    warnings
}

/// The kind of the parameters of a policy, with its schema if known.
fn params(spec: &Value, snapshot: &Snapshot) -> Option<(String, Option<Schema>)> {
    let kind = spec.get("paramKind").filter(|kind| kind.is_object())?;
    let (group, version) = split_api_version(text(kind, "apiVersion"));
    let resource = snapshot.by_kind(group, version, text(kind, "kind"));
    Some((text(kind, "kind").to_owned(), resource.and_then(schema)))
}

fn schema(resource: &Arc<Resource>) -> Option<Schema> {
    let mut schema = Snapshot::resolved_schema(resource, MAX_SCHEMA_DEPTH)?;
    mark_int_or_string(&mut schema);
    let schema = Schema::from_json(&schema).ok()?;
    Some(schema.into_resource_root())
}

/// Built-in kinds use a format where CustomResourceDefinitions use an extension.
fn mark_int_or_string(schema: &mut Value) {
    let mut waiting = vec![schema];
    while let Some(schema) = waiting.pop() {
        let Some(members) = schema.as_object_mut() else {
            continue;
        };
        if members.get("format").and_then(Value::as_str) == Some("int-or-string") {
            members.insert("x-kubernetes-int-or-string".to_owned(), true.into());
        }
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    waiting.extend(properties.values_mut());
                }
                ("items" | "additionalProperties", value) => waiting.push(value),
                _ => {}
            }
        }
    }
}

/// The kinds in the rules of a policy, by group, version and kind. Wildcards match none.
fn kinds<'s>(spec: &Value, snapshot: &'s Snapshot) -> BTreeMap<[&'s str; 3], &'s Arc<Resource>> {
    let mut kinds = BTreeMap::new();
    let rules = spec.pointer("/matchConstraints/resourceRules");
    for rule in rules.and_then(Value::as_array).into_iter().flatten() {
        let groups = names(rule, "apiGroups");
        let versions = names(rule, "apiVersions");
        let has_wildcard = |names: &[String]| names.iter().any(|name| name.contains('*'));
        if has_wildcard(&groups) || has_wildcard(&versions) {
            continue;
        }
        let mut resources = names(rule, "resources");
        resources.retain(|resource| !resource.contains(['*', '/']));
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for name in &resources {
                    for resource in named(snapshot, group, version, name) {
                        let kind = [resource.group(), &resource.version, resource.kind()];
                        kinds.insert(kind, resource);
                        count += 1;
                        if count == MAX_KINDS {
                            return kinds;
                        }
                    }
                }
            }
        }
    }
    kinds
}

/// The resources with a plural or singular name. The core group means any group.
///
/// UPSTREAM: apimachinery pkg/api/meta/restmapper.go (KindsFor)
fn named<'s>(
    snapshot: &'s Snapshot,
    group: &str,
    version: &str,
    name: &str,
) -> impl Iterator<Item = &'s Arc<Resource>> {
    let name = name.to_lowercase();
    snapshot.resources().iter().filter(move |resource| {
        (group.is_empty() || resource.group() == group)
            && resource.version == version
            && (resource.plural() == name || resource.names.singular == name)
    })
}

/// The names in a rule, in order.
fn names(rule: &Value, member: &str) -> Vec<String> {
    let names = items(rule, member).iter().filter_map(Value::as_str);
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

fn items<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    value
        .get(member)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
