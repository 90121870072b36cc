//! The performance goals of the offline tools: explain with 50 configurations in 20 ms, 5,000 test cases and 2,000
//! replayed reviews per second on one core.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockgate_offline::capture::{self, Capture};
use lockgate_offline::chain::{Chain, Tracing};
use lockgate_offline::cluster::{Cluster, Validation};
use lockgate_offline::explanation::explain;
use lockgate_offline::hooks::{Hooks, Script};
use lockgate_offline::manifest;
use lockgate_offline::replay::Replay;
use lockgate_offline::request::{RequestSpec, user};
use lockgate_offline::suite::{FileError, Files, load};
use serde_json::{Value, json};

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, image: 'registry.example/web:1'}, {name: d, image: 'registry.example/log:2'}]}
";

fn webhook(n: usize) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: {}WebhookConfiguration
metadata: {{name: hook-{n}}}
webhooks:
- name: hook-{n}.example.com
  clientConfig: {{url: 'https://hooks.example.com/{n}'}}
  rules: [{{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]
  objectSelector: {{matchExpressions: [{{key: app, operator: Exists}}]}}
  matchConditions: [{{name: c, expression: \"object.spec.containers.all(c, c.image.startsWith('registry.example/')) && request.name != 'n{n}'\"}}]
  sideEffects: None
  admissionReviewVersions: [v1]
",
        ["Mutating", "Validating"][n % 2]
    )
}

const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: images}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  variables: [{name: images, expression: 'object.spec.containers.map(c, c.image)'}]
  validations:
  - {expression: \"variables.images.all(i, i.startsWith('registry.example/'))\", message: registry}
  - {expression: \"variables.images.all(i, !i.endsWith(':latest'))\", message: tag}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: images}
spec: {policyName: images, validationActions: [Deny]}
";

struct Memory {
    texts: BTreeMap<PathBuf, String>,
    all: Vec<PathBuf>,
}

impl Files for Memory {
    fn all(&self) -> &[PathBuf] {
        &self.all
    }

    fn read(&self, path: &Path) -> Result<String, FileError> {
        self.texts
            .get(path)
            .cloned()
            .ok_or_else(|| FileError(String::from("none")))
    }

    fn hooks(&self, _: Vec<Script>, _: &Path) -> Result<Hooks, FileError> {
        Ok(Hooks::default())
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn object() -> Value {
    manifest::read("pod", POD).unwrap().remove(0).value
}

fn explaining(c: &mut Criterion) {
    let text: String = (0..50).map(webhook).collect();
    let runtime = runtime();
    c.bench_function("explain/50 configurations, read and compiled", |b| {
        b.iter(|| {
            let manifests = manifest::read("hooks", &text).unwrap();
            let cluster = Cluster::from_manifests(manifests, Validation::Strict).unwrap();
            let wanted = RequestSpec {
                object: Some(object()),
                user: user(None, &[]),
                ..RequestSpec::default()
            };
            let request = wanted.make(&cluster.kinds).unwrap().request;
            let chain = Chain::new(&cluster, Hooks::default());
            let run = runtime.block_on(chain.run(request, Tracing::Explained));
            black_box(explain(&chain, &run))
        });
    });
}

fn testing(c: &mut Criterion) {
    const CASES: usize = 1000;
    let mut texts = BTreeMap::from([(PathBuf::from("p/policy.yaml"), String::from(POLICY))]);
    for n in 0..CASES {
        let path = format!("p/tests/images.c{n}.allow.object.yaml");
        texts.insert(PathBuf::from(path), String::from(POD));
    }
    let all = texts.keys().cloned().collect();
    let files = Memory { texts, all };
    let runtime = runtime();
    let mut group = c.benchmark_group("test");
    group.throughput(Throughput::Elements(CASES as u64));
    group.sample_size(10);
    group.bench_function("cases, read and run on one core", |b| {
        b.iter(|| {
            let suites = load(&files);
            assert_eq!(suites.cases.len(), CASES);
            for case in &suites.cases {
                let outcome = runtime.block_on(case.run(Tracing::Verdicts));
                assert!(outcome.failures.is_empty());
            }
        });
    });
    group.finish();
}

fn replaying(c: &mut Criterion) {
    const REVIEWS: usize = 1000;
    let line = json!({"request": {"operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "name": "web", "namespace": "shop",
        "userInfo": {"username": "ann"}, "object": object()}, "decision": {"allowed": true}})
    .to_string();
    let header = serde_json::to_string(&capture::header("serve")).unwrap();
    let text = format!("{header}\n{}", format!("{line}\n").repeat(REVIEWS));
    let mut manifests = manifest::read("policy", POLICY).unwrap();
    manifests.extend(manifest::read("hooks", &(0..4).map(webhook).collect::<String>()).unwrap());
    let cluster = Cluster::from_manifests(manifests, Validation::Strict).unwrap();
    let runtime = runtime();
    let mut group = c.benchmark_group("replay");
    group.throughput(Throughput::Elements(REVIEWS as u64));
    group.sample_size(10);
    group.bench_function("reviews, read and replayed on one core", |b| {
        b.iter(|| {
            let capture: Capture = capture::read("capture", &text).unwrap();
            let replay = Replay::on_cluster(&cluster, None, &capture);
            runtime.block_on(async {
                for (number, record) in (1..).zip(&capture.records) {
                    assert!(replay.one(number, record).await.is_none());
                }
            });
        });
    });
    group.finish();
}

criterion_group!(benches, explaining, testing, replaying);
criterion_main!(benches);
