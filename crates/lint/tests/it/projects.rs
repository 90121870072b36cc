//! Configurations like those of well-known projects, based on their published form.

use lockgate_lint::{Profile, Severity};

use super::{lint_in, rules_in};

/// A certificate issuer: validates its own kinds, except in namespaces that opt out.
const ISSUER: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: issuer-webhook
  annotations: {cert-manager.io/inject-ca-from-secret: issuer/issuer-webhook-ca}
webhooks:
- name: webhook.issuer.example
  namespaceSelector:
    matchExpressions:
    - {key: issuer.example/disable-validation, operator: NotIn, values: ['true']}
  rules:
  - apiGroups: [issuer.example, acme.issuer.example]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: ['*/*']
  admissionReviewVersions: [v1]
  matchPolicy: Equivalent
  timeoutSeconds: 30
  failurePolicy: Fail
  sideEffects: None
  clientConfig: {service: {name: issuer-webhook, namespace: issuer, path: /validate}}
";

/// A service mesh: injects sidecars if a namespace or Pod requests it.
const MESH: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sidecar-injector}
webhooks:
- name: namespace.injector.mesh.example
  clientConfig: {service: {name: mesh, namespace: mesh-system, path: /inject, port: 443}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  admissionReviewVersions: [v1]
  sideEffects: None
  namespaceSelector:
    matchExpressions: [{key: mesh-injection, operator: In, values: [enabled]}]
  objectSelector:
    matchExpressions: [{key: sidecar.mesh.example/inject, operator: NotIn, values: ['false']}]
";

/// A policy engine: all resources of all groups, with a label for namespaces to opt out, which it protects.
const POLICY_ENGINE: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: engine-validating}
webhooks:
- name: validation.engine.example
  clientConfig: {service: {name: engine, namespace: engine-system, path: /v1/admit}}
  rules:
  - {operations: [CREATE, UPDATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*', pods/ephemeralcontainers, pods/exec, pods/log, pods/eviction, pods/portforward, pods/proxy, pods/attach, pods/binding, deployments/scale, replicasets/scale, statefulsets/scale, services/proxy, nodes/proxy, services/status]}
  failurePolicy: Ignore
  matchPolicy: Exact
  timeoutSeconds: 3
  sideEffects: None
  admissionReviewVersions: [v1, v1beta1]
  namespaceSelector:
    matchExpressions:
    - {key: admission.engine.example/ignore, operator: DoesNotExist}
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [engine-system]}
- name: check-ignore-label.engine.example
  clientConfig: {service: {name: engine, namespace: engine-system, path: /v1/admitlabel}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: ['*'], resources: [namespaces]}]
  failurePolicy: Fail
  matchPolicy: Exact
  timeoutSeconds: 3
  sideEffects: None
  admissionReviewVersions: [v1, v1beta1]
  namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [engine-system]}]
";

/// An engine that fails closed for all Pods and whose own namespace is not excluded.
const CLOSED_ENGINE: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: closed-resource-validating}
webhooks:
- name: validate.closed.svc-fail
  clientConfig: {service: {name: closed-svc, namespace: closed, path: /validate/fail, port: 443}}
  rules: [{operations: [CREATE, UPDATE, DELETE, CONNECT], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'], scope: '*'}]
  failurePolicy: Fail
  timeoutSeconds: 10
  sideEffects: NoneOnDryRun
  admissionReviewVersions: [v1]
";

#[test]
fn an_issuer_of_certificates_has_a_long_timeout_only() {
    assert_eq!(rules_in(Profile::Balanced, ISSUER), ["W001"]);
}

#[test]
fn a_mesh_that_people_opt_in_to_is_harmless() {
    let found = rules_in(Profile::Balanced, MESH);
    assert_eq!(found, ["W001", "W023"]);
}

#[test]
fn a_policy_engine_that_fails_open_leaves_holes() {
    let found = rules_in(Profile::Security, POLICY_ENGINE);
    for rule in ["W014", "W018"] {
        assert!(found.contains(&rule), "{rule}: {found:?}");
    }
    // It protects the opt-out label of namespaces, and excludes its own namespace. With every version in its rules,
    // Exact is no gap.
    for rule in ["W007", "W010", "W011", "W016", "W017"] {
        assert!(!found.contains(&rule), "{rule}: {found:?}");
    }
    assert!(rules_in(Profile::Availability, POLICY_ENGINE).contains(&"W003"));
}

#[test]
fn an_engine_that_fails_closed_for_everything_is_found_from_all_sides() {
    let found = rules_in(Profile::Availability, CLOSED_ENGINE);
    for rule in [
        "W003", "W004", "W005", "W006", "W007", "W008", "W010", "W043",
    ] {
        assert!(found.contains(&rule), "{rule}: {found:?}");
    }
}

#[test]
fn together_they_take_too_long() {
    let slow = MESH.replace("timeoutSeconds", "").replace(
        "reinvocationPolicy: Never",
        "reinvocationPolicy: IfNeeded\n  timeoutSeconds: 10",
    );
    let opted_in = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {mesh-injection: enabled}}\n";
    let all = [
        slow.replace("objectSelector", "x-none").as_str(),
        CLOSED_ENGINE,
        opted_in,
    ]
    .join("---\n");
    let all = all.replace(
        "  x-none:\n    matchExpressions: [{key: sidecar.mesh.example/inject, operator: NotIn, values: ['false']}]\n",
        "",
    );
    assert!(rules_in(Profile::Balanced, &all).contains(&"W002"), "{all}");
}

/// A webhook for each version, and a resource with one version only.
const EXACT: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: versions}
webhooks:
- {name: v1.versions.example, clientConfig: {service: {name: hook, namespace: hooks}}, matchPolicy: Exact, timeoutSeconds: 5, sideEffects: None, admissionReviewVersions: [v1], rules: [{operations: [CREATE], apiGroups: [a.example], apiVersions: [v1], resources: [things]}]}
- {name: v2.versions.example, clientConfig: {service: {name: hook, namespace: hooks}}, matchPolicy: Exact, timeoutSeconds: 5, sideEffects: None, admissionReviewVersions: [v1], rules: [{operations: [CREATE], apiGroups: [a.example], apiVersions: [v2], resources: [things]}]}
- {name: pods.versions.example, clientConfig: {service: {name: hook, namespace: hooks}}, matchPolicy: Exact, timeoutSeconds: 5, sideEffects: None, admissionReviewVersions: [v1], rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.a.example}
spec:
  group: a.example
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v0, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
";

#[test]
fn versions_are_missed_only_where_there_are_others() {
    let has = |text: &str| rules_in(Profile::Balanced, text).contains(&"W017");
    assert!(!has(EXACT));
    assert!(has(
        &EXACT.replace("{name: v0, served: false", "{name: v0, served: true")
    ));
    assert!(has(&EXACT.replace("apiVersions: [v2]", "apiVersions: [v1]")));
    // The served versions are unknown.
    assert!(has(
        &EXACT.replace("plural: things, kind", "plural: others, kind")
    ));
}

#[test]
fn rules_that_a_program_writes_itself_are_waited_for() {
    let text = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: reconciled}
webhooks:
- {name: config.reconciled.example, clientConfig: {service: {name: hook, namespace: hooks}}, timeoutSeconds: 5, sideEffects: None, admissionReviewVersions: [v1]}
";
    let severity = |text: &str| {
        let findings = lint_in(Profile::Balanced, text);
        let found = findings.iter().find(|finding| finding.rule.id == "W047");
        found.map(|finding| finding.severity)
    };
    assert_eq!(severity(text), Some(Severity::Note));
    // It has its caBundle, so that only the rules seem to be missing.
    let complete = text.replace("namespace: hooks}}", "namespace: hooks}, caBundle: Cg==}");
    assert_eq!(severity(&complete), Some(Severity::Warning));
}
