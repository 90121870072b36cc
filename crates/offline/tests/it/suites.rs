//! Test suites in every layout, from files in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockgate_offline::chain::Tracing;
use lockgate_offline::coverage::Coverage;
use lockgate_offline::hooks::{Hook, Hooks, Script};
use lockgate_offline::suite::{FileError, Files, Suites, load};

struct Memory {
    texts: BTreeMap<PathBuf, String>,
    all: Vec<PathBuf>,
}

impl Memory {
    fn new(files: &[(&str, &str)]) -> Self {
        let texts: BTreeMap<PathBuf, String> = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), String::from(*text)))
            .collect();
        let all = texts.keys().cloned().collect();
        Self { texts, all }
    }
}

impl Files for Memory {
    fn all(&self) -> &[PathBuf] {
        &self.all
    }

    fn read(&self, path: &Path) -> Result<String, FileError> {
        let text = self.texts.get(path);
        text.cloned()
            .ok_or_else(|| FileError(format!("no {}", path.display())))
    }

    fn hooks(&self, scripts: Vec<Script>, _: &Path) -> Result<Hooks, FileError> {
        let mut hooks = Hooks::default();
        for script in scripts {
            hooks.set(&script.name.clone(), Hook::Scripted(Box::new(script)));
        }
        Ok(hooks)
    }
}

/// The names of cases with their failures.
async fn run(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
    let suites = load(&Memory::new(files));
    assert!(suites.broken.is_empty(), "{:?}", suites.broken);
    outcomes(&suites).await
}

async fn outcomes(suites: &Suites) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    for case in &suites.cases {
        let outcome = case.run(Tracing::Verdicts).await;
        all.push((case.name.clone(), outcome.failures));
    }
    all
}

fn passed(outcomes: &[(String, Vec<String>)]) {
    for (name, failures) in outcomes {
        assert!(failures.is_empty(), "{name}: {failures:?}");
    }
}

const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limit}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{operations: [CREATE, UPDATE, DELETE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  validations:
  - expression: \"object == null || object.spec.replicas <= int(params.data.max)\"
    messageExpression: \"'at most ' + params.data.max\"
  - expression: \"oldObject == null || request.operation != 'DELETE'\"
    message: kept
  auditAnnotations: [{key: seen, valueExpression: \"'by ' + request.userInfo.username\"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limit}
spec: {policyName: limit, validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}
";

fn deployment(replicas: usize) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: shop}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: shop}}}}
  template: {{metadata: {{labels: {{app: shop}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}
"
    )
}

const PARAMS: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {max: '3'}}";

#[tokio::test]
async fn kats_file_names_are_cases() {
    let (small, large) = (deployment(2), deployment(5));
    let outcomes = run(&[
        ("p/policy.yaml", POLICY),
        ("p/tests/limit.small.allow.object.yaml", &small),
        ("p/tests/limit.small.allow.params.yaml", PARAMS),
        ("p/tests/limit.small.allow.annotations.yaml", "seen: by ann"),
        (
            "p/tests/limit.small.allow.request.yaml",
            "userInfo: {username: ann}",
        ),
        ("p/tests/limit.large.deny.object.yaml", &large),
        ("p/tests/limit.large.deny.params.yaml", PARAMS),
        ("p/tests/limit.large.deny.message.txt", "at most 3\n"),
        ("p/tests/limit.gone.deny.oldObject.yaml", &small),
        ("p/tests/limit.gone.deny.params.yaml", PARAMS),
        ("p/tests/limit.gone.deny.message.txt", "kept"),
    ])
    .await;
    assert_eq!(outcomes.len(), 3);
    passed(&outcomes);
}

#[tokio::test]
async fn a_case_that_is_wrong_says_what_was_found() {
    let large = deployment(5);
    let outcomes = run(&[
        ("p/policy.yaml", POLICY),
        ("p/tests/limit.large.allow.object.yaml", &large),
        ("p/tests/limit.large.allow.params.yaml", PARAMS),
    ])
    .await;
    let failures = &outcomes[0].1;
    assert_eq!(failures.len(), 1);
    assert!(
        failures[0].starts_with("expected the request to be allowed, it was denied: "),
        "{failures:?}"
    );
}

#[tokio::test]
async fn golden_files_are_compared_without_regard_to_defaults() {
    let policy = "
apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"team\": \"core\"}}}'}}]
";
    let sent = deployment(1);
    let gold = sent.replace("{name: shop}", "{name: shop, labels: {team: core}}");
    let wrong = sent.replace("{name: shop}", "{name: shop, labels: {team: other}}");
    let outcomes = run(&[
        ("p/policy.yaml", policy),
        ("p/tests/team.a.object.yaml", &sent),
        ("p/tests/team.a.gold.yaml", &gold),
        ("p/tests/team.b.object.yaml", &sent),
        ("p/tests/team.b.gold.yaml", &wrong),
    ])
    .await;
    assert!(outcomes[0].1.is_empty(), "{outcomes:?}");
    assert!(outcomes[1].1[0].contains("+    team: core"), "{outcomes:?}");
}

#[tokio::test]
async fn kyvernos_tests_of_policies_are_cases() {
    let test = "
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: limits}
policies: [policy.yaml]
resources: [small.yaml, large.yaml]
paramResources: [params.yaml]
results:
- {isValidatingAdmissionPolicy: true, kind: Deployment, policy: limit, resources: [shop], result: pass}
- {isValidatingAdmissionPolicy: true, kind: Deployment, policy: limit, resources: [big], result: fail}
- {kind: Pod, policy: of-kyvernos-own, resources: [x], result: fail}
";
    let (small, large) = (
        deployment(2),
        deployment(5).replace("{name: shop}", "{name: big}"),
    );
    let params = PARAMS.replace("other", "limits");
    let outcomes = run(&[
        ("t/kyverno-test.yaml", test),
        ("t/policy.yaml", POLICY),
        ("t/small.yaml", &small),
        ("t/large.yaml", &large),
        ("t/params.yaml", &params),
    ])
    .await;
    assert_eq!(outcomes.len(), 2);
    passed(&outcomes);
}

#[tokio::test]
async fn gators_suites_with_cel_are_cases() {
    let template = "
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: replicas}
spec:
  crd: {spec: {names: {kind: Replicas}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: K8sNativeValidation
      source:
        validations: [{expression: 'variables.anyObject.spec.replicas <= variables.params.max', messageExpression: \"'too many'\"}]
";
    let constraint = "
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Replicas
metadata: {name: few}
spec: {match: {kinds: [{apiGroups: [apps], kinds: [Deployment]}]}, parameters: {max: 3}}
";
    let suite = "
kind: Suite
apiVersion: test.gatekeeper.sh/v1alpha1
tests:
- name: t
  template: template.yaml
  constraint: constraint.yaml
  cases:
  - {name: small, object: small.yaml, assertions: [{violations: no}]}
  - {name: large, object: large.yaml, assertions: [{violations: 1, message: too many}]}
  - {name: other, object: other.yaml, assertions: [{violations: no}]}
";
    let (small, large) = (deployment(2), deployment(5));
    let outcomes = run(&[
        ("g/suite.yaml", suite),
        ("g/template.yaml", template),
        ("g/constraint.yaml", constraint),
        ("g/small.yaml", &small),
        ("g/large.yaml", &large),
        ("g/other.yaml", PARAMS),
    ])
    .await;
    assert_eq!(outcomes.len(), 3);
    passed(&outcomes);
}

const CHAIN: &str = "
apiVersion: test.lockgate.dev/v1
kind: AdmissionTest
metadata: {name: chain}
objects:
- apiVersion: admissionregistration.k8s.io/v1
  kind: MutatingWebhookConfiguration
  metadata: {name: a}
  webhooks:
  - name: a.example.com
    clientConfig: {url: 'https://a.example.com/'}
    rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]
    sideEffects: None
    admissionReviewVersions: [v1]
- apiVersion: admissionregistration.k8s.io/v1
  kind: MutatingWebhookConfiguration
  metadata: {name: b}
  webhooks:
  - name: b.example.com
    clientConfig: {url: 'https://b.example.com/'}
    rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]
    sideEffects: None
    admissionReviewVersions: [v1]
webhooks:
- {name: a.example.com, merge: {data: {from: a}}, warnings: [careful]}
- {name: b.example.com, merge: {data: {from: b, left: null}}}
";

#[tokio::test]
async fn chains_are_compared_call_by_call() {
    let test = format!(
        "{CHAIN}
cases:
- name: everything
  object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: m}}, data: {{k: v}}}}
  expect:
    allowed: true
    calls: [a.example.com, b.example.com]
    verdicts: {{a.example.com: allowed, b.example.com: allowed}}
    warnings: [careful]
    object: {{data: {{from: b, k: v}}}}
    setBy: {{data.from: b.example.com}}
    patches: {{a.example.com: [{{op: add, path: /data/from, value: a}}]}}
- name: denied
  webhooks: [{{name: b.example.com, allowed: false, message: not today, code: 418}}]
  object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: m}}}}
  expect: {{allowed: false, message: not today, code: 418}}
- name: other-kind
  object: {{apiVersion: v1, kind: Secret, metadata: {{name: m}}}}
  expect: {{allowed: true, calls: []}}
"
    );
    let outcomes = run(&[("chain.yaml", &test)]).await;
    assert_eq!(outcomes.len(), 3);
    passed(&outcomes);
}

#[tokio::test]
async fn checks_find_order_removal_and_endless_change() {
    let case = "
cases:
- name: c
  object: {apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {left: x}}
  expect: {allowed: true}
";
    let check = |checks: &str| format!("{CHAIN}\nchecks: {{{checks}}}{case}");
    let first = async |checks: &str| {
        let outcomes = run(&[("chain.yaml", &check(checks))]).await;
        outcomes[0].1.first().cloned().unwrap_or_default()
    };
    assert!(first("order: true").await.starts_with("order: "));
    assert_eq!(
        first("preservation: true").await,
        "field preservation: b.example.com removes `data.left`"
    );
    assert_eq!(first("idempotence: true").await, "");
    let growing = check("idempotence: true").replace(
        "merge: {data: {from: a}}",
        "patch: [{op: copy, from: /metadata, path: /metadata/annotations}]",
    );
    let outcomes = run(&[("chain.yaml", &growing)]).await;
    assert!(!outcomes[0].1.is_empty(), "{outcomes:?}");
    // A second run that the chain denies is not idempotent either.
    let moved = "patch: [{op: move, from: /data/left, path: /data/right}]";
    let moving = check("idempotence: true").replace("merge: {data: {from: a}}", moved);
    let outcomes = run(&[("chain.yaml", &moving)]).await;
    let found = outcomes[0]
        .1
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    assert!(
        found.starts_with("idempotence: the result of mutations is denied"),
        "{outcomes:?}"
    );
    // The same with failurePolicy Ignore: a patch that does not apply is a server error.
    let ignored = check("idempotence: true")
        .replace("merge: {data: {from: a}}", moved)
        .replace(
            "sideEffects: None",
            "failurePolicy: Ignore\n    sideEffects: None",
        );
    assert!(ignored.contains("failurePolicy: Ignore"), "{ignored}");
    let outcomes = run(&[("chain.yaml", &ignored)]).await;
    let found = outcomes[0]
        .1
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    assert!(
        found.starts_with("idempotence: the result of mutations is denied"),
        "{outcomes:?}"
    );
    // Webhook b removes the field that webhook a moves.
    let moving = check("order: true").replace("merge: {data: {from: a}}", moved);
    let outcomes = run(&[("chain.yaml", &moving)]).await;
    let found = outcomes[0]
        .1
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    assert!(
        found.starts_with("order: the request is denied"),
        "{outcomes:?}"
    );
}

#[test]
fn broken_suites_say_where_and_why() {
    for (file, text, want) in [
        (
            "a.yaml",
            "apiVersion: test.lockgate.dev/v1\nkind: AdmissionTest\n",
            "a.yaml: no cases found",
        ),
        (
            "b.yaml",
            "apiVersion: test.lockgate.dev/v1\nkind: Other\ncases: [{name: a}]\n",
            "unknown kind `Other`",
        ),
        (
            "c.yaml",
            "apiVersion: test.lockgate.dev/v1\nkind: AdmissionTest\ncase: []\n",
            "unknown field `case`",
        ),
        (
            "d.yaml",
            "apiVersion: test.lockgate.dev/v1\nkind: AdmissionTest\nwebhooks: [{name: x}]\ncases: [{name: a}]\n",
            "webhook `x` is in no configuration",
        ),
        (
            "e.yaml",
            "apiVersion: test.lockgate.dev/v1\nkind: [\n",
            "e.yaml:",
        ),
    ] {
        let suites = load(&Memory::new(&[(file, text)]));
        let (_, error) = &suites.broken[0];
        assert!(error.to_string().contains(want), "{error}");
    }
}

#[tokio::test]
async fn coverage_names_what_no_case_reached() {
    let small = deployment(2);
    let files = Memory::new(&[
        ("p/policy.yaml", POLICY),
        ("p/tests/limit.small.allow.object.yaml", &small),
        ("p/tests/limit.small.allow.params.yaml", PARAMS),
    ]);
    let suites = load(&files);
    let mut coverage = Coverage::default();
    for case in &suites.cases {
        coverage.expect(case.world.chain());
        let outcome = case.run(Tracing::Explained).await;
        coverage.add(&outcome.run.unwrap());
    }
    let report = coverage.report();
    let of = |field: &str| report.iter().find(|it| it.field == field).unwrap();
    assert_eq!(of("validations[0]").never, Some("false"));
    assert_eq!(of("validations[0]").missed, [] as [String; 0]);
    let second = of("validations[1]");
    assert_eq!(
        second.missed,
        ["request.operation != 'DELETE'"],
        "{second:?}"
    );
    assert_eq!(of("auditAnnotations[0]").evaluations, 1);
}
