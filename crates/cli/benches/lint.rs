//! `lockgate lint` on large input: the goal is ten thousand webhooks in under a second.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use lockgate_admission::conditions::RegistrationChecker;
use lockgate_api::kube_version::KubeVersion;
use lockgate_cli::lint::check::{Expressions, Risks, check};
use lockgate_cli::lint::render::{human, json};
use lockgate_cli::text::Source;

const WEBHOOKS: usize = 10_000;

fn configuration(webhooks: usize, timeout: u32) -> String {
    let mut yaml = String::from(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: large}\nwebhooks:\n",
    );
    for index in 0..webhooks {
        yaml.push_str(&format!(
            "- name: hook-{index}.example.com
  clientConfig:
    service: {{namespace: default, name: hook, path: /validate, port: 8443}}
  rules:
  - operations: [CREATE, UPDATE]
    apiGroups: [\"\", apps]
    apiVersions: [v1]
    resources: [pods, deployments]
  namespaceSelector:
    matchExpressions:
    - {{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}}
  timeoutSeconds: {timeout}
  sideEffects: None
  admissionReviewVersions: [v1]
"
        ));
    }
    yaml
}

/// Configurations with one webhook each, for Services in separate namespaces: each webhook blocks the startup of every
/// other.
fn configurations(count: usize) -> String {
    let configuration = |index: usize| {
        let kind = [
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
        ][index % 2];
        format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: {kind}
metadata: {{name: config-{index}}}
webhooks:
- name: hook-{index}.example.com
  clientConfig: {{service: {{namespace: ns-{index}, name: hook, path: /validate}}}}
  rules:
  - {{operations: [CREATE, UPDATE], apiGroups: [\"\", apps], apiVersions: [v1], resources: [pods, deployments]}}
  namespaceSelector:
    matchExpressions:
    - {{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, ns-{index}]}}
  matchConditions:
  - {{name: c, expression: \"request.userInfo.username != 'a-{index}' && object.metadata.name != ''\"}}
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
"
        )
    };
    let all: Vec<String> = (0..count).map(configuration).collect();
    all.join("---\n")
}

fn lint(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lint");
    group.sample_size(10);
    for (name, text) in [
        ("10000 webhooks, all fine", configuration(WEBHOOKS, 5)),
        ("10000 webhooks, all refused", configuration(WEBHOOKS, 60)),
        (
            "1000 configurations, each in the way of all others",
            configurations(1_000),
        ),
    ] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || vec![Source::new("large.yaml", text.clone())],
                |sources| {
                    let expressions = Expressions {
                        conditions: RegistrationChecker::REFERENCE,
                        policies: RegistrationChecker::REFERENCE,
                        version: KubeVersion::REFERENCE,
                    };
                    let report = check(sources, expressions, Some(&Risks::default()));
                    let options = human::Options {
                        color: false,
                        max_findings: 100,
                        defaults: false,
                    };
                    human::render(&report, &options).len() + json::render(&report).len()
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, lint);
criterion_main!(benches);
