//! `lockgate lint` on large input: the goal is ten thousand webhooks in under a second.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use lockgate_admission::conditions::{MatchConditionChecker, PolicyExpressionChecker};
use lockgate_cli::lint::check::{Expressions, check};
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

fn lint(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lint");
    group.sample_size(10);
    for (name, timeout) in [
        ("10000 webhooks, all fine", 5),
        ("10000 webhooks, all refused", 60),
    ] {
        let text = configuration(WEBHOOKS, timeout);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || vec![Source::new("large.yaml", text.clone())],
                |sources| {
                    let expressions = Expressions {
                        conditions: &MatchConditionChecker,
                        policies: &PolicyExpressionChecker,
                    };
                    let report = check(
                        sources,
                        expressions,
                        Some(&lockgate_lint::Options::default()),
                    );
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
