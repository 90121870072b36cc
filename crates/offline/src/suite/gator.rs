//! gator's `Suite`, for constraint templates in CEL (`K8sNativeValidation`).

use std::path::Path;
use std::sync::Arc;

use lockgate_admission::request::Operation;
use serde::Deserialize;
use serde_json::{Value, json};

use super::expect::{Count, Expect};
use super::world::World;
use super::{Case, CaseRequest, Checks, Files, LoadError, beside};
use crate::hooks::Hooks;
use crate::manifest::{self, Manifest};
use crate::request::{RequestSpec, user};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Suite {
    tests: Vec<Test>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Test {
    name: String,
    template: String,
    constraint: String,
    cases: Vec<GatorCase>,
    skip: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GatorCase {
    name: String,
    object: String,
    inventory: Vec<String>,
    assertions: Vec<Assertion>,
    skip: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Assertion {
    violations: Value,
    message: Option<String>,
}

pub(super) fn load(files: &dyn Files, file: &Path, text: &str) -> Result<Vec<Case>, LoadError> {
    let mut cases = Vec::new();
    for (_, value) in manifest::read_values(&file.display().to_string(), text)? {
        if value["kind"] != "Suite" {
            continue;
        }
        let suite: Suite =
            serde_json::from_value(value).map_err(|error| LoadError::suite(file, error))?;
        for test in suite.tests.iter().filter(|test| !test.skip) {
            cases.extend(cases_of(files, file, test)?);
        }
    }
    Ok(cases)
}

fn one(files: &dyn Files, file: &Path, name: &str) -> Result<Manifest, LoadError> {
    let path = beside(file, name);
    let manifests = manifest::read(&path.display().to_string(), &files.read(&path)?)?;
    let first = manifests.into_iter().next();
    first.ok_or_else(|| LoadError::suite(&path, "no object found"))
}

fn cases_of(files: &dyn Files, file: &Path, test: &Test) -> Result<Vec<Case>, LoadError> {
    let template = one(files, file, &test.template)?;
    let code = &template.value["spec"]["targets"][0]["code"];
    let mut codes = code.as_array().into_iter().flatten();
    let Some(code) = codes.find(|it| it["engine"] == "K8sNativeValidation") else {
        // Rego is not supported.
        return Ok(Vec::new());
    };
    let constraint = one(files, file, &test.constraint)?;
    let matches = constraint.value["spec"]["match"].clone();
    let bound = bound(&template, code, &constraint);
    let mut cases = Vec::new();
    for case in test.cases.iter().filter(|case| !case.skip) {
        let object = one(files, file, &case.object)?;
        let mut manifests = bound.clone();
        for name in &case.inventory {
            manifests.push(one(files, file, name)?);
        }
        let asked = asked(&object);
        let applies = applies(&matches, &asked);
        let mut expect = Expect::default();
        for assertion in &case.assertions {
            let count = match &assertion.violations {
                Value::Bool(true) => Count::Some,
                Value::Bool(false) => Count::Zero,
                Value::Number(count) => Count::Exactly(
                    usize::try_from(count.as_u64().unwrap_or_default()).unwrap_or_default(),
                ),
                Value::String(text) if text == "no" => Count::Zero,
                _ => Count::Some,
            };
            expect.violations = Some((count, assertion.message.clone()));
        }
        let world = if applies {
            World::bound(manifests, Hooks::default())?
        } else {
            World::bound(Vec::new(), Hooks::default())?
        };
        cases.push(Case {
            suite: file.parent().unwrap_or(file).display().to_string(),
            name: format!("{}/{}", test.name, case.name),
            file: file.display().to_string(),
            world: Arc::new(world),
            asked,
            expect,
            checks: Checks::default(),
        });
    }
    Ok(cases)
}

/// The policy that Gatekeeper generates from a template, bound with the constraint as its parameter.
fn bound(template: &Manifest, code: &Value, constraint: &Manifest) -> Vec<Manifest> {
    let source = &code["source"];
    let mut variables = vec![
        json!({"name": "anyObject", "expression":
            "has(request.operation) && request.operation == \"DELETE\" && object == null ? oldObject : object"}),
        json!({"name": "params", "expression":
            "!has(params.spec) ? null : !has(params.spec.parameters) ? null : params.spec.parameters"}),
    ];
    variables.extend(
        source["variables"]
            .as_array()
            .into_iter()
            .flatten()
            .cloned(),
    );
    let name = template.name();
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "paramKind": {"apiVersion": constraint.text("apiVersion"), "kind": constraint.text("kind")},
            "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"],
                "apiVersions": ["*"], "resources": ["*"]}]},
            "variables": variables, "validations": source["validations"],
        },
    });
    for member in ["matchConditions", "failurePolicy"] {
        if !source[member].is_null() {
            policy["spec"][member] = source[member].clone();
        }
    }
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"],
            "paramRef": {"name": constraint.name(), "parameterNotFoundAction": "Deny"}},
    });
    let made = |value: Value| Manifest {
        value,
        source: template.source.clone(),
        document: 1,
    };
    vec![made(policy), made(binding), constraint.clone()]
}

/// The request for an object, which may be an AdmissionReview.
fn asked(object: &Manifest) -> CaseRequest {
    if object.text("kind") == "AdmissionReview" {
        return CaseRequest::Review(Box::new(object.value.clone()));
    }
    CaseRequest::RequestSpec(Box::new(RequestSpec {
        operation: Some(Operation::Create),
        object: Some(object.value.clone()),
        user: user(None, &[]),
        as_is: true,
        ..RequestSpec::default()
    }))
}

/// Returns true if the `match` of a constraint covers the object of a request.
fn applies(matches: &Value, asked: &CaseRequest) -> bool {
    let object = match asked {
        CaseRequest::RequestSpec(wanted) => wanted.object.as_ref(),
        CaseRequest::Review(review) => {
            let request = &review["request"];
            let object = request.get("object").filter(|it| it.is_object());
            object.or_else(|| request.get("oldObject"))
        }
    };
    let nothing = Value::Null;
    let object = object.unwrap_or(&nothing);
    let (group, _) = manifest::split_api_version(object["apiVersion"].as_str().unwrap_or_default());
    let kind = object["kind"].as_str().unwrap_or_default();
    let has = |list: &Value, wanted: &str| {
        let Some(items) = list.as_array() else {
            return true;
        };
        let mut items = items.iter().filter_map(Value::as_str);
        items.any(|item| match item.strip_suffix('*') {
            Some(prefix) => wanted.starts_with(prefix),
            None => item == wanted,
        })
    };
    let kinds = matches["kinds"].as_array();
    let is_kind = kinds.is_none_or(|kinds| {
        let mut kinds = kinds.iter();
        kinds.any(|it| has(&it["apiGroups"], group) && has(&it["kinds"], kind))
    });
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let excluded = &matches["excludedNamespaces"];
    let is_excluded = excluded.is_array() && has(excluded, namespace);
    is_kind && has(&matches["namespaces"], namespace) && !is_excluded
}
