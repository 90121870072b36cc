//! The cost of a decision, of webhooks that do not match, and of the dispatch overhead per call.

#![allow(
    missing_docs,
    reason = "the macros of the harness write functions without any"
)]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use lockgate_admission::call::{Caller, Client, ClientError, HttpResponse, Post, Posted};
use lockgate_admission::engine::Engine;
use lockgate_admission::host::{BoxFuture, Host};
use lockgate_admission::matching::Matcher;
use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request, kind, resource};
use lockgate_api::meta::label_selector::{LabelSelector, LabelSelectorRequirement};
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::registration::hub::{self, ClientConfig, MatchCondition};
use lockgate_api::registration::{Configuration, ConfigurationKind, Webhook};
use serde_json::json;

/// Allows every request immediately.
struct Instant;

impl Caller for Instant {
    fn client(&self, _: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        Ok(Arc::new(Self))
    }
}

impl Client for Instant {
    fn post(&self, post: Post) -> BoxFuture<'_, Posted> {
        Box::pin(async move {
            // The uid is at the same offset in every review.
            let at = br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":""#;
            let uid = post.body.slice(at.len()..at.len() + 36);
            let uid = std::str::from_utf8(&uid).unwrap_or_default();
            let body = format!(
                r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{{"uid":"{uid}","allowed":true}}}}"#
            );
            Posted {
                result: Ok(HttpResponse {
                    code: 200,
                    content_type: Some(String::from("application/json")),
                    body: Bytes::from(body),
                }),
                phases: Vec::new(),
            }
        })
    }
}

fn hook(plural: &str) -> Webhook {
    let texts = |list: &[&str]| Some(list.iter().map(|text| String::from(*text)).collect());
    Webhook {
        name: String::from("h.example.com"),
        client_config: ClientConfig {
            url: Some(String::from("https://h.example.com")),
            ..ClientConfig::default()
        },
        rules: Some(vec![hub::Rule {
            operations: texts(&["CREATE", "UPDATE"]),
            api_groups: texts(&[""]),
            api_versions: texts(&["v1"]),
            resources: texts(&[plural]),
            scope: Some(String::from("*")),
        }]),
        match_policy: Some(String::from("Equivalent")),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector {
            match_labels: Some([(String::from("app"), String::from("web"))].into()),
            match_expressions: None,
        }),
        side_effects: Some(String::from("None")),
        timeout_seconds: Some(10),
        admission_review_versions: texts(&["v1"]),
        ..Webhook::default()
    }
}

/// A webhook with selectors, rules and match conditions as charts ship them.
fn picky() -> Webhook {
    let texts = |list: &[&str]| Some(list.iter().map(|text| String::from(*text)).collect());
    let requirement = |key: &str, operator: &str, values: &[&str]| LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: texts(values).filter(|values: &Vec<String>| !values.is_empty()),
    };
    let rule = |group: &str, resources: &[&str]| hub::Rule {
        operations: texts(&["CREATE", "UPDATE", "DELETE"]),
        api_groups: texts(&[group]),
        api_versions: texts(&["v1"]),
        resources: texts(resources),
        scope: Some(String::from("Namespaced")),
    };
    Webhook {
        rules: Some(vec![
            rule("apps", &["deployments", "statefulsets", "daemonsets"]),
            rule("", &["pods", "services", "configmaps"]),
        ]),
        namespace_selector: Some(LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![requirement(
                "kubernetes.io/metadata.name",
                "NotIn",
                &["kube-system", "kube-public"],
            )]),
        }),
        object_selector: Some(LabelSelector {
            match_labels: Some([(String::from("app"), String::from("web"))].into()),
            match_expressions: Some(vec![
                requirement("app.kubernetes.io/managed-by", "DoesNotExist", &[]),
                requirement("team", "In", &["a", "b"]),
            ]),
        }),
        ..hook("configmaps")
    }
}

fn conditional(hook: Webhook) -> Webhook {
    let condition = |name: &str, expression: &str| MatchCondition {
        name: name.to_owned(),
        expression: expression.to_owned(),
    };
    Webhook {
        match_conditions: Some(vec![
            condition(
                "not-leases",
                "!(request.resource.group == 'coordination.k8s.io')",
            ),
            condition("not-nodes", "!('system:nodes' in request.userInfo.groups)"),
        ]),
        ..hook
    }
}

fn engine(hooks: impl IntoIterator<Item = Webhook>) -> Engine {
    let engine = Engine::new(Host::new(Arc::new(Instant)));
    for kind in [ConfigurationKind::Mutating, ConfigurationKind::Validating] {
        engine.configurations(kind).remove("");
    }
    let webhooks: Vec<Webhook> = hooks.into_iter().collect();
    engine.register(&Configuration {
        kind: ConfigurationKind::Mutating,
        metadata: ObjectMeta::default(),
        webhooks: Some(webhooks),
    });
    engine
}

fn request() -> Request {
    let kind = kind("", "v1", "ConfigMap");
    let mut request = Request::new(Operation::Create, kind, resource("", "v1", "configmaps"));
    request.name = String::from("cm");
    request.namespace = String::from("shop");
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cm", "labels": {"app": "web", "team": "a"}},
        "data": {"key": "x".repeat(1000)},
    });
    request.object = Some(object.into());
    request.user.username = String::from("ann");
    request.user.groups = Some(vec![
        String::from("dev"),
        String::from("system:authenticated"),
    ]);
    request
}

fn benches(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let Ok(runtime) = runtime else { return };

    let one = engine([hook("configmaps")]);
    let request = request();
    let host = Host::new(Arc::new(Instant));
    let snapshot = one.configurations(ConfigurationKind::Mutating).snapshot();
    let mut matcher = Matcher::new(&host, &request);
    let candidate = &snapshot.hooks()[0];
    criterion.bench_function("decide one candidate", |bencher| {
        bencher.iter(|| {
            let object = request.object.as_ref();
            black_box(matcher.decide_from_cache(black_box(candidate), &request, object))
        });
    });

    let fussy = engine([picky()]);
    let snapshot = fussy.configurations(ConfigurationKind::Mutating).snapshot();
    let candidate = &snapshot.hooks()[0];
    criterion.bench_function("decide one picky candidate", |bencher| {
        bencher.iter(|| {
            let object = request.object.as_ref();
            black_box(matcher.decide_from_cache(black_box(candidate), &request, object))
        });
    });

    let mut admit = |name: &str, engine: &Engine| {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut admission = Admission::new(request.clone());
                black_box(runtime.block_on(engine.admit(&mut admission)))
            });
        });
    };
    admit("admit, none registered", &engine([]));
    admit("admit, 1 registered, 1 matches", &one);
    let others = (0..9_999).map(|n| hook(&format!("things{n}")));
    let many = engine(others.chain([hook("configmaps")]));
    admit("admit, 10000 registered, 1 matches", &many);
    admit(
        "admit, 10 registered, 10 match",
        &engine((0..10).map(|_| hook("configmaps"))),
    );
    admit(
        "admit, 10 registered with conditions, 10 match",
        &engine((0..10).map(|_| conditional(hook("configmaps")))),
    );
}

criterion_group!(all, benches);
criterion_main!(all);
