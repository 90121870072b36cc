//! Explanations of requests.

use lockgate_admission::request::Operation;
use lockgate_offline::chain::{Chain, Tracing};
use lockgate_offline::cluster::Cluster;
use lockgate_offline::explanation::{Explanation, HookVerdict, PolicyVerdict, explain};
use lockgate_offline::hooks::{Hook, Hooks, Script};
use lockgate_offline::request::{RequestSpec, user};
use serde_json::{Value, json};

use super::cluster;

fn webhook(kind: &str, name: &str, more: &str) -> String {
    format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}WebhookConfiguration
metadata: {{name: {name}}}
webhooks:
- name: {name}.example.com
  clientConfig: {{url: 'https://hooks.example.com/'}}
  sideEffects: None
  admissionReviewVersions: [v1]
  {more}
---"
    )
}

const PODS: &str =
    "rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]";

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:latest"}]}})
}

fn wanted(object: Value) -> RequestSpec {
    RequestSpec {
        object: Some(object),
        user: user(None, &[]),
        ..RequestSpec::default()
    }
}

async fn explained(cluster: &Cluster, wanted: RequestSpec, hooks: Hooks) -> Explanation {
    let request = wanted.make(&cluster.kinds).unwrap().request;
    let chain = Chain::new(cluster, hooks);
    let run = chain.run(request, Tracing::Explained).await;
    explain(&chain, &run)
}

fn hooks_of(told: &Explanation) -> Vec<(&str, HookVerdict, &str)> {
    told.steps
        .iter()
        .flat_map(|step| &step.webhooks)
        .map(|hook| (hook.webhook.as_str(), hook.verdict, hook.reason.as_str()))
        .collect()
}

#[tokio::test]
async fn says_which_predicate_said_no_and_what_it_saw() {
    let text = [
        webhook("Validating", "a-operation", "rules: [{operations: [DELETE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]"),
        webhook("Validating", "b-group", "rules: [{operations: ['*'], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]"),
        webhook("Validating", "c-resource", "rules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [pods/status]}]"),
        webhook("Validating", "d-scope", "rules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: Cluster}]"),
        webhook("Validating", "e-namespace", &format!("{PODS}\n  namespaceSelector: {{matchLabels: {{env: prod}}}}")),
        webhook("Validating", "f-object", &format!("{PODS}\n  objectSelector: {{matchExpressions: [{{key: app, operator: NotIn, values: [web]}}]}}")),
        webhook("Validating", "g-condition", &format!("{PODS}\n  matchConditions: [{{name: admins, expression: \"request.userInfo.username == 'ann'\"}}]")),
        webhook("Validating", "h-called", PODS),
        String::from("\n{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: test}}}\n"),
    ]
    .concat();
    let told = explained(&cluster(&text), wanted(pod()), Hooks::default()).await;
    assert!(told.decision.allowed, "{:?}", told.decision);
    let not = HookVerdict::NotMatched;
    assert_eq!(
        hooks_of(&told),
        [
            (
                "a-operation.example.com",
                not,
                "rules[0].operations does not match `CREATE`"
            ),
            (
                "b-group.example.com",
                not,
                "rules[0].apiGroups does not match ``"
            ),
            (
                "c-resource.example.com",
                not,
                "rules[0].resources does not match `pods`"
            ),
            (
                "d-scope.example.com",
                not,
                "rules[0].scope does not match `Namespaced`"
            ),
            (
                "e-namespace.example.com",
                not,
                "namespaceSelector requires `env=prod`, namespace `shop` has `test`"
            ),
            (
                "f-object.example.com",
                not,
                "objectSelector requires `app notin (web)`, the object has `web`"
            ),
            (
                "g-condition.example.com",
                HookVerdict::Excluded,
                "matchCondition `admins` is false"
            ),
            (
                "h-called.example.com",
                HookVerdict::Allowed,
                "would be called; assumed to allow"
            ),
        ]
    );
    let condition = &told.steps[0].webhooks[6].conditions[0];
    assert_eq!(condition.value.as_deref(), Some("false"));
    assert!(condition.cost > 0);
    let part = condition
        .parts
        .iter()
        .find(|part| part.text == "request.userInfo.username")
        .unwrap();
    assert_eq!(part.value.as_deref(), Some("\"kubernetes-admin\""));
    assert_eq!(told.assumptions, [] as [String; 0]);
}

#[tokio::test]
async fn converts_to_the_version_that_a_rule_names() {
    let rules = |policy: &str| {
        format!(
            "rules: [{{operations: ['*'], apiGroups: [events.k8s.io], apiVersions: [v1], resources: [events]}}]\n  matchPolicy: {policy}"
        )
    };
    let text = [
        webhook("Validating", "equivalent", &rules("Equivalent")),
        webhook("Validating", "exact", &rules("Exact")),
    ]
    .concat();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"},
        "involvedObject": {"namespace": "shop"}});
    let told = explained(&cluster(&text), wanted(event), Hooks::default()).await;
    let hooks = &told.steps[0].webhooks;
    assert_eq!(
        hooks[0].converted_to.as_deref(),
        Some("events.k8s.io/v1/events")
    );
    assert_eq!(hooks[0].verdict, HookVerdict::Allowed);
    assert_eq!(hooks[1].predicate, Some("matchPolicy"));
}

#[tokio::test]
async fn blames_whoever_set_a_field_and_shows_rounds() {
    let policy = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  reinvocationPolicy: IfNeeded
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"team\": \"core\"}}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team}
---";
    let text = [
        policy.to_owned(),
        webhook(
            "Mutating",
            "first",
            &format!("{PODS}\n  reinvocationPolicy: IfNeeded"),
        ),
        webhook("Mutating", "second", PODS),
    ]
    .concat();
    let mut hooks = Hooks::default();
    let sets = |merge: Value| {
        Hook::Scripted(Box::new(Script {
            merge: Some(merge),
            ..Script::default()
        }))
    };
    hooks.set(
        "first.example.com",
        sets(json!({"metadata": {"labels": {"first": "1"}}})),
    );
    hooks.set(
        "second/second.example.com",
        sets(json!({"spec": {"nodeName": "n"}})),
    );
    let told = explained(&cluster(&text), wanted(pod()), hooks).await;
    let blame: Vec<(&str, &str, u8)> = told
        .blame
        .iter()
        .map(|blame| (blame.field.as_str(), blame.by.as_str(), blame.round))
        .collect();
    assert_eq!(
        blame,
        [
            ("metadata.labels.team", "team", 1),
            ("metadata.labels.first", "first.example.com", 1),
            ("spec.nodeName", "second.example.com", 1),
        ]
    );
    let rounds: Vec<(&str, u8)> = told
        .steps
        .iter()
        .map(|step| (step.plugin, step.round))
        .collect();
    assert_eq!(
        rounds,
        [
            ("MutatingAdmissionPolicy", 1),
            ("MutatingAdmissionWebhook", 1),
            ("MutatingAdmissionPolicy", 2),
            ("MutatingAdmissionWebhook", 2),
        ]
    );
    let object = told.object.unwrap();
    assert_eq!(
        object["metadata"]["labels"],
        json!({"app": "web", "first": "1", "team": "core"})
    );
    assert_eq!(told.steps[0].policies[0].verdict, PolicyVerdict::Mutated);
}

#[tokio::test]
async fn refuses_a_dry_run_that_a_webhook_would_not_survive() {
    let text = "
apiVersion: admissionregistration.k8s.io/v1beta1
kind: ValidatingWebhookConfiguration
metadata: {name: effects}
webhooks:
- name: effects.example.com
  clientConfig: {url: 'https://hooks.example.com/'}
  sideEffects: Some
  rules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
";
    let cluster = cluster(text);
    let told = explained(&cluster, wanted(pod()), Hooks::default()).await;
    assert!(told.decision.allowed);
    assert_eq!(
        told.steps[0].webhooks[0].dry_run.as_deref(),
        Some("refused: sideEffects is Some")
    );
    let dry = RequestSpec {
        dry_run: true,
        ..wanted(pod())
    };
    let told = explained(&cluster, dry, Hooks::default()).await;
    assert!(!told.decision.allowed);
    assert_eq!(told.decision.cause, "side-effects");
    assert_eq!(told.steps[0].webhooks[0].verdict, HookVerdict::Failed);
}

#[tokio::test]
async fn shows_every_part_of_a_policy_with_its_params_and_roles() {
    let text = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limit}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  matchConditions: [{name: not-exempt, expression: \"!authorizer.group('').resource('pods').namespace('shop').check('bypass').allowed()\"}]
  variables: [{name: images, expression: 'object.spec.containers.map(c, c.image)'}]
  validations:
  - expression: \"variables.images.all(i, i.startsWith(params.data.registry))\"
    messageExpression: \"'use ' + params.data.registry\"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limit-shop}
spec:
  policyName: limit
  validationActions: [Deny]
  paramRef: {name: registry, namespace: shop, parameterNotFoundAction: Deny}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: registry, namespace: shop}, data: {registry: registry.example/}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: bypass, namespace: shop}, rules: [{verbs: [bypass], apiGroups: [''], resources: [pods]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: bypass, namespace: shop}, roleRef: {kind: Role, name: bypass}, subjects: [{kind: User, name: ann}]}
";
    let cluster = cluster(text);
    let by = |name: &str| RequestSpec {
        user: user(Some(name), &[]),
        ..wanted(pod())
    };
    let told = explained(&cluster, by("ben"), Hooks::default()).await;
    assert_eq!(
        told.decision.message,
        "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'limit' with binding 'limit-shop' denied request: use registry.example/"
    );
    let evaluation = &told.steps[0].policies[0].bindings[0].evaluations[0];
    assert_eq!(evaluation.param.as_deref(), Some("shop/registry"));
    let fields: Vec<(&str, Option<&str>)> = evaluation
        .expressions
        .iter()
        .map(|it| (it.field.as_str(), it.value.as_deref()))
        .collect();
    assert_eq!(
        fields,
        [
            ("variables[0]", Some("[\"nginx:latest\"]")),
            ("validations[0]", Some("false")),
            (
                "validations[0].messageExpression",
                Some("\"use registry.example/\"")
            ),
        ]
    );
    let told = explained(&cluster, by("ann"), Hooks::default()).await;
    assert!(told.decision.allowed);
    assert_eq!(told.steps[0].policies[0].verdict, PolicyVerdict::Excluded);
}

#[tokio::test]
async fn tells_of_those_that_a_denial_kept_from_their_turn() {
    let text = [
        webhook("Mutating", "a", PODS),
        webhook("Mutating", "b", PODS),
        webhook("Validating", "c", PODS),
    ]
    .concat();
    let mut hooks = Hooks::default();
    hooks.set(
        "a.example.com",
        Hook::Scripted(Box::new(Script {
            allowed: Some(false),
            message: Some(String::from("no")),
            ..Script::default()
        })),
    );
    let told = explained(&cluster(&text), wanted(pod()), hooks).await;
    let verdicts: Vec<HookVerdict> = hooks_of(&told).iter().map(|it| it.1).collect();
    let not_reached = HookVerdict::NotReached;
    assert_eq!(verdicts, [HookVerdict::Denied, not_reached, not_reached]);
}

#[tokio::test]
async fn a_failing_call_meets_the_failure_policy() {
    for (policy, verdict, allowed) in [
        ("Fail", HookVerdict::Failed, false),
        ("Ignore", HookVerdict::FailedOpen, true),
    ] {
        let text = webhook(
            "Validating",
            "a",
            &format!("{PODS}\n  failurePolicy: {policy}"),
        );
        let mut hooks = Hooks::default();
        let script = Script {
            error: Some(String::from("connection refused")),
            ..Script::default()
        };
        hooks.set("a.example.com", Hook::Scripted(Box::new(script)));
        let told = explained(&cluster(&text), wanted(pod()), hooks).await;
        assert_eq!(hooks_of(&told)[0].1, verdict);
        assert_eq!(told.decision.allowed, allowed);
    }
}

#[tokio::test]
async fn a_deletion_passes_mutating_policies_by() {
    let text = webhook(
        "Validating",
        "a",
        "rules: [{operations: [DELETE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]\n  matchConditions: [{name: null-object, expression: 'object == null && oldObject != null'}]",
    );
    let wanted = RequestSpec {
        operation: Some(Operation::Delete),
        old_object: Some(pod()),
        user: user(None, &[]),
        ..RequestSpec::default()
    };
    let told = explained(&cluster(&text), wanted, Hooks::default()).await;
    assert_eq!(hooks_of(&told)[0].1, HookVerdict::Allowed);
}
