//! The cost of policies: one, one among ten thousand, a thousand bindings on one request, and the memory of a thousand
//! policies with three hundred bindings each.

#![allow(
    missing_docs,
    reason = "the macros of the harness write functions without any"
)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use lockgate_admission::call::{Caller, Client, ClientError};
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{BoxFuture, Host, Param, ParamError, ParamScope, Params};
use lockgate_admission::object::Object;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_api::document::json::parse;
use lockgate_api::registration::hub::ClientConfig;
use lockgate_api::registration::policy::{ParamKind, PolicyKind, decode_binding, decode_policy};
use serde_json::{Value, json};

/// A caller that is never called.
struct NoCaller;

impl Caller for NoCaller {
    fn client(&self, _: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        Err(ClientError::Other(String::from("nobody is reached here")))
    }
}

/// Finds a ConfigMap for every name.
struct EveryName(Vec<Arc<Param>>);

impl EveryName {
    fn new(count: usize) -> Self {
        let params = (0..count).map(|n| {
            Arc::new(Param {
                namespace: String::from("shop"),
                name: n.to_string(),
                object: Object::new(json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": n.to_string(), "namespace": "shop"},
                    "data": {"team": format!("team-{n}")},
                })),
                is_built_in: true,
            })
        });
        Self(params.collect())
    }
}

impl Params for EveryName {
    fn scope(&self, _: &ParamKind) -> Option<ParamScope> {
        Some(ParamScope::Namespaced)
    }

    fn get<'f>(
        &'f self,
        _: &'f ParamKind,
        _: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<Option<Arc<Param>>, ParamError>> {
        let at: usize = name.parse().unwrap_or_default();
        let found = self.0.get(at).cloned();
        Box::pin(async move { Ok(found) })
    }

    fn list<'f>(
        &'f self,
        _: &'f ParamKind,
        _: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Arc<Param>>, ParamError>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

fn engine() -> Engine {
    let mut host = Host::new(Arc::new(NoCaller));
    host.params = Arc::new(EveryName::new(1024));
    Engine::new(host)
}

fn policy(engine: &Engine, name: &str, plural: &str, has_params: bool) {
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [{
            "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": [plural],
        }]},
        "matchConditions": [{"name": "c", "expression": format!("request.userInfo.username != 'system:{name}'")}],
        "variables": [{"name": "team", "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels ? object.metadata.labels['team'] : ''"}],
        "validations": [
            {"expression": format!("variables.team != '' || object.metadata.name != '{name}'"), "message": "a team is needed"},
            {"expression": "!has(object.data) || object.data.all(k, size(k) < 64)", "messageExpression": "'long keys in ' + string(object.metadata.name)"},
        ],
    });
    if has_params {
        spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        spec["validations"][0]["expression"] = json!("params.data.team != variables.team");
    }
    let text = json!({"metadata": {"name": name}, "spec": spec}).to_string();
    let Ok(document) = parse(text.as_bytes()) else {
        return;
    };
    if let Ok(decoded) = decode_policy(document.root(), PolicyKind::Validating) {
        let policies = engine.policies(PolicyKind::Validating);
        policies.upsert_policy(&decoded.value);
    }
}

fn binding(engine: &Engine, name: &str, policy: &str, more: Value) {
    let mut spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    let text = json!({"metadata": {"name": name}, "spec": spec}).to_string();
    let Ok(document) = parse(text.as_bytes()) else {
        return;
    };
    if let Ok(decoded) = decode_binding(document.root(), PolicyKind::Validating) {
        let policies = engine.policies(PolicyKind::Validating);
        policies.upsert_binding(&decoded.value);
    }
}

fn request() -> Request {
    let mut request = Request::new(
        Operation::Create,
        kind("", "v1", "ConfigMap"),
        resource("", "v1", "configmaps"),
    );
    request.name = String::from("settings");
    request.namespace = String::from("shop");
    request.user.username = String::from("ann");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "shop", "labels": {"team": "red"}},
        "data": {"a": "1", "b": "2"},
    });
    request.object = Some(Object::new(object));
    request
}

/// Resident memory in megabytes.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<f64>().ok());
    pages.unwrap_or_default() * 4096.0 / 1e6
}

fn benches(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let Ok(runtime) = runtime else { return };
    let request = request();

    let before = resident();
    let large = engine();
    for n in 0..1000 {
        let name = format!("policy-{n}");
        policy(&large, &name, &format!("things{n}"), false);
        for m in 0..300 {
            let selector = json!({"matchLabels": {"shard": (m % 10).to_string()}});
            let about = json!({"matchResources": {"namespaceSelector": selector}});
            binding(&large, &format!("{name}-binding-{m}"), &name, about);
        }
    }
    let held = large.policies(PolicyKind::Validating).snapshot();
    println!(
        "1000 policies with 300 bindings each: {:.1} MB ({} in force)",
        resident() - before,
        held.policies().len()
    );
    drop((held, large));

    let mut validate = |name: &str, engine: &Engine| {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut admission = Admission::new(request.clone());
                let decision = runtime.block_on(engine.validate(&mut admission));
                assert!(decision.is_allowed());
                black_box(admission)
            });
        });
    };

    let one = engine();
    policy(&one, "one", "configmaps", false);
    binding(&one, "one", "one", json!({}));
    validate("validate, 1 policy, 1 matches", &one);

    for n in 0..9_999 {
        let name = format!("other-{n}");
        policy(&one, &name, &format!("things{n}"), false);
        binding(&one, &name, &name, json!({}));
    }
    validate("validate, 10000 policies, 1 matches", &one);

    let bound = engine();
    policy(&bound, "p", "configmaps", false);
    for n in 0..1024 {
        binding(&bound, &format!("b{n}"), "p", json!({}));
    }
    validate("validate, 1024 bindings", &bound);

    let with_params = engine();
    policy(&with_params, "p", "configmaps", true);
    for n in 0..1024 {
        let reference = json!({"name": n.to_string(), "parameterNotFoundAction": "Deny"});
        binding(
            &with_params,
            &format!("b{n}"),
            "p",
            json!({"paramRef": reference}),
        );
    }
    validate(
        "validate, 1024 bindings with a parameter each",
        &with_params,
    );
}

criterion_group!(all, benches);
criterion_main!(all);
