//! Edge cases of single rules.

use lockgate_lint::{Options, Profile, Set, check};

use super::{lint_in, messages, rules_in};

/// A CA certificate that is valid until November 2036, in base64.
const AUTHORITY: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJnekNDQVNtZ0F3SUJBZ0lVR0pJRzZxR05GNE9yd01BMlpZUHJQY3hjeDRRd0NnWUlLb1pJemowRUF3SXcKRnpFVk1CTUdBMVVFQXd3TWJHbHVkQzEwWlhOMExXTmhNQjRYRFRJMk1URXhOakUxTkRFeE1sb1hEVE0yTVRFeApNekUxTkRFeE1sb3dGekVWTUJNR0ExVUVBd3dNYkdsdWRDMTBaWE4wTFdOaE1Ga3dFd1lIS29aSXpqMENBUVlJCktvWkl6ajBEQVFjRFFnQUVNWmR4ODdKUHlJYnpMMVFsTHowb1hQWE9qVFhNWGhPK1puejRmMHRxRDJVNm9udzgKQ0F0M0NMQi9jRTlUQ0hEY1ZibkJJZXdtTHoxR0lQcHRGTWlnUHFOVE1GRXdIUVlEVlIwT0JCWUVGUE85QXdrTwozckdIb3RGNWhzQjhHRUhqMXhOek1COEdBMVVkSXdRWU1CYUFGUE85QXdrTzNyR0hvdEY1aHNCOEdFSGoxeE56Ck1BOEdBMVVkRXdFQi93UUZNQU1CQWY4d0NnWUlLb1pJemowRUF3SURTQUF3UlFJaEFKSS9lQTlPUkNJTnBJNFQKMElCZE16S1d1azdKU2hGUyt5UHhhNnhndFR4ZEFpQnJGaHNDMzdyTVovV0IydWp6M2daWk9IaVlVK01pNmxzSgo1YkVFNkJsUkJ3PT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
/// A day after its expiry.
const AFTER: i64 = 2_110_300_000;

/// A configuration with one webhook: its kind and everything after its name.
fn hook(kind: &str, name: &str, rest: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}WebhookConfiguration
metadata: {{name: {name}}}
webhooks:
- name: {name}.example.com
  sideEffects: None
  admissionReviewVersions: [v1]
{rest}
"
    )
}

const PODS: &str = "rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]";
const SERVICE: &str = "clientConfig: {service: {namespace: hooks, name: webhook}}";

/// The fields of a webhook, with the indentation of the list.
fn fields(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

#[test]
fn timeouts_are_graded() {
    for (timeout, want) in [
        ("timeoutSeconds: 10", vec![]),
        ("timeoutSeconds: 11", vec!["warning: a call may take 11 s"]),
        ("timeoutSeconds: 16", vec!["error: a call may take 16 s"]),
        (
            "matchPolicy: Equivalent",
            vec!["note: timeoutSeconds is not set: a call may take 10 s"],
        ),
    ] {
        let text = hook("Validating", "a", &fields(&[SERVICE, PODS, timeout]));
        assert_eq!(messages("W001", &text), want, "{timeout}");
    }
}

#[test]
fn the_time_of_a_request_is_that_of_all_its_webhooks() {
    let mutating = |name: &str, extra: &str| {
        let lines = fields(&[SERVICE, PODS, "timeoutSeconds: 10", extra]);
        hook("Mutating", name, &lines)
    };
    let never = "reinvocationPolicy: Never";
    let two = mutating("a", never) + &mutating("b", never);
    assert!(messages("W002", &two).is_empty());
    let validating = hook(
        "Validating",
        "c",
        &fields(&[SERVICE, PODS, "timeoutSeconds: 10"]),
    );
    let three = two.clone() + &validating;
    let [message] = &messages("W002", &three)[..] else {
        unreachable!("one finding for the two operations")
    };
    assert!(message.contains("can take 30 s"), "{message}");
    assert!(message.contains("a.example.com (10 s)"), "{message}");
    // Validating webhooks run in parallel.
    let again = validating.replace("name: c", "name: d");
    assert_eq!(
        messages("W002", &(two.clone() + &validating + &again)).len(),
        1
    );
    assert!(
        messages(
            "W002",
            &(two + &validating.replace("seconds", "").replace("10", "9"))
        )
        .is_empty()
    );
    // A webhook that is reinvoked counts twice.
    let twice = mutating("a", "reinvocationPolicy: IfNeeded") + &mutating("b", never);
    assert_eq!(messages("W002", &twice).len(), 1);
    // Webhooks for other namespaces are not added.
    let elsewhere = "namespaceSelector: {matchLabels: {team: a}}";
    let scoped = mutating("a", elsewhere) + &mutating("b", never) + &mutating("c", elsewhere);
    assert!(messages("W002", &scoped).is_empty());
}

#[test]
fn leases_are_looked_at_in_the_namespaces_of_the_control_plane() {
    let leases =
        "rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]";
    let all = hook(
        "Validating",
        "a",
        &fields(&[SERVICE, leases, "timeoutSeconds: 2"]),
    );
    assert_eq!(
        messages("W003", &all),
        [
            "warning: matches updates of leases in kube-system and kube-node-lease, each of which may take 2 s"
        ]
    );
    let slow = all.replace("timeoutSeconds: 2", "timeoutSeconds: 5");
    assert!(messages("W003", &slow)[0].starts_with("error: "));
    let condition = "matchConditions: [{name: no-leases, expression: \"request.resource.resource != 'leases'\"}]";
    let excluded = hook(
        "Validating",
        "a",
        &fields(&[SERVICE, leases, "timeoutSeconds: 5", condition]),
    );
    assert!(messages("W003", &excluded).is_empty());
}

#[test]
fn conditions_decide_what_is_matched() {
    let condition =
        "matchConditions: [{name: user, expression: \"request.namespace != 'kube-system'\"}]";
    let text = hook(
        "Validating",
        "a",
        &fields(&[SERVICE, PODS, "timeoutSeconds: 5", condition]),
    );
    assert!(messages("W004", &text).is_empty());
    assert!(!messages("W004", &text.replace("kube-system", "other")).is_empty());
}

#[test]
fn own_pods_are_excluded_by_labels_the_manifests_show() {
    let by_label = "namespaceSelector: {matchExpressions: [{key: hooks.example.com/ignore, operator: DoesNotExist}]}";
    let text = hook(
        "Validating",
        "a",
        &fields(&[SERVICE, PODS, "timeoutSeconds: 5", by_label]),
    );
    assert_eq!(messages("W010", &text).len(), 1);
    let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: hooks, labels: {hooks.example.com/ignore: 'true'}}\n";
    assert!(messages("W010", &(text + namespace)).is_empty());

    let by_object =
        "objectSelector: {matchExpressions: [{key: app, operator: NotIn, values: [webhook]}]}";
    let text = hook(
        "Validating",
        "a",
        &fields(&[SERVICE, PODS, "timeoutSeconds: 5", by_object]),
    );
    assert_eq!(messages("W010", &text).len(), 1);
    let backend = "---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: hooks}
spec: {selector: {app: webhook}, ports: [{port: 443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: webhook, namespace: hooks}
spec: {replicas: 2, template: {metadata: {labels: {app: webhook}}}}
";
    assert!(messages("W010", &(text + backend)).is_empty());
}

#[test]
fn longer_circles_are_found_and_open_chains_are_not() {
    let guard = |name: &str, guarded: &str| {
        let service = format!("clientConfig: {{service: {{namespace: {name}, name: webhook}}}}");
        let selector = format!(
            "namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {guarded}}}}}"
        );
        hook(
            "Validating",
            name,
            &fields(&[&service, PODS, "timeoutSeconds: 5", &selector]),
        )
    };
    let chain = guard("a", "b") + &guard("b", "c");
    assert!(messages("W011", &(chain.clone() + &guard("c", "elsewhere"))).is_empty());
    let circle = chain + &guard("c", "a");
    assert_eq!(
        messages("W011", &circle),
        [
            "error: Services whose Pods need each other's webhooks to be created: a/webhook → b/webhook → c/webhook → a/webhook"
        ]
    );
    // Services in cycles with the first one are no separate findings.
    let second = |name: &str, guarded: &str| {
        let metadata = format!("metadata: {{name: {name}}}");
        guard(name, guarded).replace(&metadata, &format!("metadata: {{name: {name}-2}}"))
    };
    let knot = [
        circle.clone(),
        guard("d", "a"),
        guard("e", "d"),
        second("c", "d"),
        second("d", "e"),
    ];
    let found = messages("W011", &knot.concat());
    assert_eq!(found.len(), 1, "{found:?}");
    let end = ", and 2 more Services in cycles with these";
    assert!(found[0].ends_with(end), "{found:?}");
    let open = circle.replacen(
        "sideEffects: None",
        "sideEffects: None\n  failurePolicy: Ignore",
        1,
    );
    assert!(messages("W011", &open).is_empty());
}

#[test]
fn backends_are_judged_by_their_manifests() {
    let config = hook(
        "Validating",
        "a",
        &fields(&[SERVICE, PODS, "timeoutSeconds: 5"]),
    );
    let service = |port: u16, app: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: webhook, namespace: hooks}}\nspec: {{selector: {{app: {app}}}, ports: [{{port: {port}}}]}}\n"
        )
    };
    let workload = |kind: &str, replicas: u8| {
        format!(
            "---\napiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: webhook, namespace: hooks}}\nspec: {{replicas: {replicas}, template: {{metadata: {{labels: {{app: webhook}}}}}}}}\n"
        )
    };
    let first = |text: String| {
        messages("W012", &text)
            .into_iter()
            .next()
            .unwrap_or_default()
    };
    assert_eq!(first(config.clone()), "");
    assert!(
        first(config.clone() + &service(8443, "webhook"))
            .contains("no port 443: its ports are 8443")
    );
    assert!(
        first(config.clone() + &service(443, "other") + &workload("Deployment", 2))
            .contains("matches no workload")
    );
    assert!(
        first(config.clone() + &service(443, "webhook") + &workload("Deployment", 1))
            .contains("runs 1 replica:")
    );
    assert!(
        first(config.clone() + &service(443, "webhook") + &workload("Deployment", 3))
            .starts_with("note: Deployment `hooks/webhook` has no PodDisruptionBudget")
    );
    assert_eq!(
        first(config.clone() + &service(443, "webhook") + &workload("DaemonSet", 0)),
        ""
    );
    let scaler = "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: webhook, namespace: hooks}\nspec: {minReplicas: 2, scaleTargetRef: {kind: Deployment, name: webhook}}\n";
    assert!(
        !first(config + &service(443, "webhook") + &workload("Deployment", 1) + scaler)
            .contains("replica:")
    );
}

#[test]
fn certificates_are_judged_at_the_given_time() {
    let client =
        format!("clientConfig: {{url: 'https://hooks.example.com/', caBundle: {AUTHORITY}}}");
    let text = hook(
        "Validating",
        "a",
        &fields(&[&client, PODS, "timeoutSeconds: 5"]),
    );
    assert!(messages("W023", &text).is_empty());
    let mut set = Set::default();
    set.add_text(&text).unwrap();
    let at = |now: i64| {
        let options = Options {
            now,
            ..Options::default()
        };
        let findings = check(&set, &options).into_iter();
        findings
            .filter(|finding| finding.rule.id == "W023")
            .map(|finding| finding.message)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        at(AFTER),
        ["every CA in the bundle has expired, the last one 1 days ago"]
    );
    assert_eq!(
        at(AFTER - 86_400 * 20),
        ["the last CA in the bundle expires in 18 days"]
    );
    assert!(at(0).is_empty());
    let broken = text.replace(AUTHORITY, "Y2EtY2VydA==");
    assert_eq!(
        messages("W023", &broken),
        ["error: the bundle contains no PEM certificate"]
    );
}

#[test]
fn urls_are_judged_by_their_host() {
    for (url, rule) in [
        ("https://localhost:9443/", Some("W024")),
        ("https://127.0.0.1/", Some("W024")),
        ("https://[::1]:9443/", Some("W024")),
        ("https://hook.ns.svc.cluster.local/", Some("W024")),
        ("https://metadata.google.internal/", Some("W025")),
        ("https://[fe80::1]/", Some("W025")),
        ("https://[::ffff:169.254.169.254]/", Some("W025")),
        ("https://10.0.0.1:8443/", Some("W025")),
        ("https://svc.example.com/", None),
        ("https://8.8.8.8/", None),
    ] {
        let client = format!("clientConfig: {{url: '{url}'}}");
        let text = hook(
            "Validating",
            "a",
            &fields(&[&client, PODS, "timeoutSeconds: 5"]),
        );
        let found: Vec<&str> = rules_in(Profile::Balanced, &text)
            .into_iter()
            .filter(|id| matches!(*id, "W024" | "W025"))
            .collect();
        assert_eq!(found, Vec::from_iter(rule), "{url}");
    }
}

#[test]
fn conditions_are_tried_on_requests_that_come() {
    for (operations, expression, want) in [
        (
            "DELETE",
            "object.spec.x == 1",
            "`object` is null on DELETE, which this expression does not handle",
        ),
        (
            "CREATE",
            "oldObject.spec.x == 1",
            "`oldObject` is null on CREATE, which this expression does not handle",
        ),
        (
            "CREATE",
            "object.metadata.labels['a'] == 'b'",
            "fails for objects without labels",
        ),
        (
            "CREATE",
            "has(object.metadata.labels) && object.metadata.labels['a'] == 'b'",
            "fails for objects without the label `a`",
        ),
        (
            "CREATE",
            "has(object.metadata.annotations) && object.metadata.annotations.a == 'b'",
            "fails for objects without the annotation `a`",
        ),
        (
            "CREATE",
            "namespaceObject.metadata.name == 'a'",
            "`namespaceObject` is always null in match conditions of webhooks",
        ),
        ("CREATE", "object.spec.replicas > 1", ""),
        (
            "DELETE",
            "request.operation == 'DELETE' || object.spec.x == 1",
            "",
        ),
        (
            "CREATE",
            "'labels' in object.metadata && 'a' in object.metadata.labels",
            "",
        ),
        ("CREATE", "request.userInfo.username != 'a'", ""),
    ] {
        let rules = format!(
            "rules: [{{operations: [{operations}], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}}]"
        );
        let condition = format!("matchConditions: [{{name: c, expression: \"{expression}\"}}]");
        let text = hook(
            "Validating",
            "a",
            &fields(&[SERVICE, &rules, "timeoutSeconds: 5", &condition]),
        );
        let found = lint_in(Profile::Balanced, &text)
            .into_iter()
            .find(|finding| finding.rule.id == "W026")
            .map(|finding| finding.message)
            .unwrap_or_default();
        assert_eq!(found, want, "{operations} {expression}");
    }
}

#[test]
fn policies_are_tried_as_well() {
    let policy = |operations: &str, expression: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: a}}
spec:
  matchConstraints: {{resourceRules: [{{operations: [{operations}], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}}]}}
  validations: [{{expression: \"{expression}\"}}]
"
        )
    };
    let found = |operations: &str, expression: &str| {
        messages("W026", &policy(operations, expression)).len()
    };
    assert_eq!(found("CREATE, DELETE", "object.spec.replicas <= 5"), 1);
    assert_eq!(found("CREATE", "object.spec.replicas <= 5"), 0);
    assert_eq!(
        found("CREATE", "variables.x && object.metadata.labels.a == 'b'"),
        0
    );
}

#[test]
fn conditions_that_rules_decide_are_found() {
    for (expression, want) in [
        (
            "true",
            "note: is true for every request that the rules match",
        ),
        (
            "request.resource.resource == 'pods'",
            "note: is true for every request that the rules match",
        ),
        (
            "request.operation in ['DELETE']",
            "warning: is false for every request that the rules match: the webhook is never called",
        ),
        ("request.operation == 'CREATE'", ""),
        ("request.userInfo.username == 'a'", ""),
        ("object.metadata.name == 'a'", ""),
    ] {
        let condition = format!("matchConditions: [{{name: c, expression: \"{expression}\"}}]");
        let text = hook(
            "Validating",
            "a",
            &fields(&[SERVICE, PODS, "timeoutSeconds: 5", &condition]),
        );
        assert_eq!(messages("W027", &text).concat(), want, "{expression}");
    }
}

#[test]
fn resources_are_known_or_defined() {
    for (groups, resources, want) in [
        ("''", "pod", "did you mean `pods`?"),
        ("apps", "Deployment", "did you mean `deployments`?"),
        ("'', apps", "pods, deployments", ""),
        ("example.com", "anything", ""),
        ("'*'", "anything", ""),
        ("''", "pods/ephemeralcontainers", ""),
        ("extensions", "deployments", "no longer served"),
    ] {
        let rules = format!(
            "rules: [{{operations: [CREATE], apiGroups: [{groups}], apiVersions: [v1], resources: [{resources}]}}]"
        );
        let text = hook(
            "Validating",
            "a",
            &fields(&[SERVICE, &rules, "timeoutSeconds: 5"]),
        );
        let found = messages("W019", &text).concat();
        assert!(
            found.contains(want) && found.is_empty() == want.is_empty(),
            "{groups} {resources}: {found}"
        );
    }
}

#[test]
fn selectors_that_contradict_themselves_match_nothing() {
    for (selector, contradicts) in [
        (
            "{matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [b]}]}",
            true,
        ),
        (
            "{matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}",
            true,
        ),
        (
            "{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: a, operator: NotIn, values: [c]}]}",
            false,
        ),
        ("{matchLabels: {a: b, c: d}}", false),
    ] {
        let selector_line = format!("namespaceSelector: {selector}");
        let text = hook(
            "Validating",
            "a",
            &fields(&[SERVICE, PODS, "timeoutSeconds: 5", &selector_line]),
        );
        assert_eq!(
            !messages("W047", &text).is_empty(),
            contradicts,
            "{selector}"
        );
    }
}
