//! The policy plugins on a minimal host: matching, params, errors and actions.

use std::sync::Arc;

use lockgate_api::document::json::parse;
use lockgate_api::registration::policy::{ParamKind, PolicyKind, decode_binding, decode_policy};
use serde_json::{Value as Json, json};

use crate::audit::Level;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::host::{BoxFuture, Host, Param, ParamError, ParamScope, Params};
use crate::object::Object;
use crate::plugin::Admission;
use crate::request::{Operation, Request, kind, resource};
use crate::testing::NoCaller;
use crate::trace::Enforcement;

/// ConfigMaps as parameters: `one` in the namespace `shop`, `two` and `three` with equal labels.
#[derive(Debug)]
struct ConfigMaps;

fn config_map(name: &str, limit: i64) -> Arc<Param> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "labels": {"few": (limit < 10).to_string()}},
        "data": {"limit": limit.to_string()},
    });
    Arc::new(Param {
        namespace: String::from("shop"),
        name: name.to_owned(),
        object: Object::new(object),
        is_built_in: true,
    })
}

impl Params for ConfigMaps {
    fn scope(&self, kind: &ParamKind) -> Option<ParamScope> {
        match kind.kind.as_str() {
            "ConfigMap" => Some(ParamScope::Namespaced),
            "ClusterThing" => Some(ParamScope::Cluster),
            _ => None,
        }
    }

    fn get<'f>(
        &'f self,
        kind: &'f ParamKind,
        namespace: &'f str,
        name: &'f str,
    ) -> BoxFuture<'f, Result<Option<Arc<Param>>, ParamError>> {
        Box::pin(async move {
            if kind.kind == "Namespace" {
                let object = json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "labels": {"env": "test"}, "managedFields": []}});
                return Ok(Some(Arc::new(Param {
                    namespace: String::new(),
                    name: name.to_owned(),
                    object: Object::new(object),
                    is_built_in: true,
                })));
            }
            let all = self.list(kind, namespace).await?;
            Ok(all.into_iter().find(|param| param.name == name))
        })
    }

    fn list<'f>(
        &'f self,
        _: &'f ParamKind,
        namespace: &'f str,
    ) -> BoxFuture<'f, Result<Vec<Arc<Param>>, ParamError>> {
        Box::pin(async move {
            if namespace != "shop" {
                return Ok(Vec::new());
            }
            Ok(vec![
                config_map("one", 1),
                config_map("three", 30),
                config_map("two", 2),
            ])
        })
    }
}

fn engine() -> Engine {
    let mut host = Host::new(Arc::new(NoCaller));
    host.params = Arc::new(ConfigMaps);
    Engine::new(host)
}

fn register(engine: &Engine, kind: PolicyKind, spec: &Json, bindings: &[Json]) {
    let mut spec = spec.clone();
    let rule =
        json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    if spec.get("matchConstraints").is_none() {
        spec["matchConstraints"] = json!({"resourceRules": [rule]});
    }
    let text = json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
    let document = parse(text.as_bytes()).unwrap();
    let policy = decode_policy(document.root(), kind).unwrap().value;
    engine.policies(kind).upsert_policy(&policy);
    for (nth, spec) in bindings.iter().enumerate() {
        let mut spec = spec.clone();
        spec["policyName"] = json!("p");
        let text = json!({"metadata": {"name": format!("b{nth}")}, "spec": spec}).to_string();
        let document = parse(text.as_bytes()).unwrap();
        let binding = decode_binding(document.root(), kind).unwrap().value;
        engine.policies(kind).upsert_binding(&binding);
    }
}

fn request(operation: Operation) -> Request {
    let mut request = Request::new(
        operation,
        kind("example.com", "v1", "Note"),
        resource("example.com", "v1", "notes"),
    );
    request.namespace = String::from("shop");
    request.name = String::from("n");
    if operation != Operation::Delete {
        request.object = Some(
            json!({"apiVersion": "example.com/v1", "kind": "Note",
                   "metadata": {"name": "n", "labels": {"a": "b"}}, "size": 5})
            .into(),
        );
    }
    request
}

fn deny() -> Json {
    json!({"validationActions": ["Deny"]})
}

/// The code, reason and message of a denial by a validating policy; `None` if allowed.
async fn validated(
    spec: Json,
    bindings: &[Json],
    request: Request,
) -> (Option<(i32, String, String)>, Admission) {
    let engine = engine();
    register(&engine, PolicyKind::Validating, &spec, bindings);
    let mut admission = Admission::new(request);
    let decision = engine.validate(&mut admission).await;
    let told = decision
        .status()
        .map(|status| (status.code, status.reason.clone(), status.message.clone()));
    (told, admission)
}

async fn message(spec: Json, bindings: &[Json]) -> Option<String> {
    let (told, _) = validated(spec, bindings, request(Operation::Create)).await;
    told.map(|(_, _, message)| {
        let (_, message) = message.split_once("denied request: ").unwrap();
        message.to_owned()
    })
}

#[tokio::test]
async fn a_failed_validation_is_told_with_its_message_and_reason() {
    let spec = |validation: Json| json!({"validations": [validation]});
    for (validation, code, reason, text) in [
        (
            json!({"expression": "object.size > 9"}),
            422,
            "Invalid",
            "failed expression: object.size > 9",
        ),
        (
            json!({"expression": "false", "message": " too small "}),
            422,
            "Invalid",
            "too small",
        ),
        (
            json!({"expression": "false", "message": "m", "messageExpression": "'has ' + string(object.size)", "reason": "Forbidden"}),
            403,
            "Forbidden",
            "has 5",
        ),
        (
            json!({"expression": "false", "message": "m", "messageExpression": "'a\\nb'"}),
            422,
            "Invalid",
            "m",
        ),
        (
            json!({"expression": "false", "message": "m", "messageExpression": "object.zzz + 'x'"}),
            422,
            "Invalid",
            "m",
        ),
        (
            json!({"expression": "false", "reason": "RequestEntityTooLarge"}),
            413,
            "RequestEntityTooLarge",
            "failed expression: false",
        ),
    ] {
        let (told, _) = validated(spec(validation), &[deny()], request(Operation::Create)).await;
        let want = format!(
            "notes.example.com \"n\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b0' denied request: {text}"
        );
        assert_eq!(told, Some((code, reason.to_owned(), want)));
    }
    let (told, _) = validated(
        spec(json!({"expression": "object.size == 5"})),
        &[deny()],
        request(Operation::Create),
    )
    .await;
    assert_eq!(told, None);
}

#[tokio::test]
async fn errors_meet_the_failure_policy_and_plain_failures_do_not() {
    let broken = json!({"expression": "object.zzz", "message": "m"});
    let fails = |policy: &str| json!({"failurePolicy": policy, "validations": [broken]});
    // The type does not match either, which a policy stored by another release could have.
    assert_eq!(
        message(fails("Fail"), &[deny()]).await.as_deref(),
        Some("compilation error: must evaluate to bool but got dyn")
    );
    assert_eq!(message(fails("Ignore"), &[deny()]).await, None);
    let runs = |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.zzz == 1"}, {"expression": "false"}]});
    assert_eq!(
        message(runs("Fail"), &[deny()]).await.as_deref(),
        Some("expression 'object.zzz == 1' resulted in error: no such key: zzz")
    );
    assert_eq!(
        message(runs("Ignore"), &[deny()]).await.as_deref(),
        Some("failed expression: false")
    );
}

#[tokio::test]
async fn actions_deny_warn_and_audit() {
    let spec = json!({"validations": [{"expression": "false", "message": "no"}, {"expression": "object.zzz == 1"}]});
    let binding = json!({"validationActions": ["Warn", "Audit"]});
    let (told, admission) = validated(spec, &[binding], request(Operation::Create)).await;
    assert_eq!(told, None);
    let error = "expression 'object.zzz == 1' resulted in error: no such key: zzz";
    let prefix = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b0': ";
    assert_eq!(
        admission.warnings().texts(),
        [format!("{prefix}no"), format!("{prefix}{error}")]
    );
    let annotations = admission.annotations();
    let annotations: Vec<_> = annotations.at(Level::Metadata).collect();
    assert_eq!(
        annotations,
        [(
            "validation.policy.admission.k8s.io/validation_failure",
            r#"[{"message":"no","policy":"p","binding":"b0","expressionIndex":0,"validationActions":["Warn","Audit"]}]"#
        )]
    );
    let trace = admission
        .trace()
        .plugins()
        .find(|(_, plugin)| !plugin.policies.is_empty());
    let outcomes = &trace.unwrap().1.policies[0].bindings[0].evaluations[0].outcomes;
    let done: Vec<_> = outcomes
        .iter()
        .map(|outcome| (outcome.index, outcome.enforcement))
        .collect();
    assert_eq!(
        done,
        [
            (0, Enforcement::Warn),
            (0, Enforcement::Audit),
            (1, Enforcement::Warn),
            (1, Enforcement::Audit)
        ]
    );
}

#[tokio::test]
async fn audit_annotations_are_joined_and_their_errors_refuse() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "auditAnnotations": [
            {"key": "limit", "valueExpression": "'limit ' + string(params.data.limit)"},
            {"key": "same", "valueExpression": "' same '"},
            {"key": "none", "valueExpression": "null"},
        ],
    });
    let few = json!({"validationActions": ["Deny"], "paramRef": {"selector": {"matchLabels": {"few": "true"}}, "parameterNotFoundAction": "Deny"}});
    let (told, admission) = validated(spec, &[few], request(Operation::Create)).await;
    assert_eq!(told, None);
    let annotations = admission.annotations();
    let annotations: Vec<_> = annotations
        .at(Level::Metadata)
        .map(|(_, value)| value)
        .collect();
    // The name of the policy contains no dot, so the keys are used unchanged.
    assert_eq!(annotations, ["limit 1, limit 2", "same"]);
    let asks = "authorizer.path('/x').check('get').allowed() ? 'a' : 'b'";
    let spec = json!({"auditAnnotations": [{"key": "k", "valueExpression": asks}]});
    assert_eq!(
        message(spec, &[json!({"validationActions": ["Audit"]})]).await,
        Some(format!(
            "expression '{asks}' resulted in error: no such attribute(s): authorizer"
        ))
    );
}

#[tokio::test]
async fn params_are_found_by_name_and_by_selector() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params == null || object.size <= int(params.data.limit)",
                         "messageExpression": "'at most ' + string(params.data.limit)"}],
    });
    let bind = |reference: Json| {
        let mut binding = deny();
        if !reference.is_null() {
            binding["paramRef"] = reference;
        }
        binding
    };
    let missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    for (reference, want) in [
        (Json::Null, None),
        (
            json!({"name": "one", "parameterNotFoundAction": "Deny"}),
            Some("at most 1"),
        ),
        (
            json!({"name": "three", "parameterNotFoundAction": "Deny"}),
            None,
        ),
        (
            json!({"name": "zzz", "parameterNotFoundAction": "Deny"}),
            Some(missing),
        ),
        (
            json!({"name": "zzz", "parameterNotFoundAction": "Allow"}),
            None,
        ),
        (
            json!({"name": "one", "namespace": "other", "parameterNotFoundAction": "Allow"}),
            None,
        ),
        (
            json!({"selector": {"matchLabels": {"few": "false"}}, "parameterNotFoundAction": "Deny"}),
            None,
        ),
        (
            json!({"selector": {}, "parameterNotFoundAction": "Deny"}),
            Some("at most 1"),
        ),
        (
            json!({"selector": {"matchLabels": {"few": "maybe"}}, "parameterNotFoundAction": "Deny"}),
            Some(missing),
        ),
    ] {
        let got = message(spec.clone(), &[bind(reference.clone())]).await;
        assert_eq!(got.as_deref(), want, "{reference}");
    }
    let mut unknown = spec.clone();
    unknown["paramKind"]["kind"] = json!("Nope");
    assert_eq!(
        message(unknown.clone(), &[bind(Json::Null)])
            .await
            .as_deref(),
        Some(
            "failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'"
        )
    );
    unknown["failurePolicy"] = json!("Ignore");
    assert_eq!(message(unknown, &[bind(Json::Null)]).await, None);
    let mut cluster = spec.clone();
    cluster["paramKind"]["kind"] = json!("ClusterThing");
    assert_eq!(
        message(
            cluster,
            &[bind(
                json!({"name": "a", "namespace": "b", "parameterNotFoundAction": "Deny"})
            )]
        )
        .await
        .as_deref(),
        Some(
            "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
        )
    );
    let mut nowhere = request(Operation::Create);
    nowhere.namespace.clear();
    let (told, _) = validated(
        spec,
        &[bind(
            json!({"name": "one", "parameterNotFoundAction": "Deny"}),
        )],
        nowhere,
    )
    .await;
    assert!(told.unwrap().2.ends_with(
        "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    ));
}

#[tokio::test]
async fn rules_exclusions_names_and_bindings_decide_whether_it_applies() {
    let rule = |operation: &str, names: &[&str]| {
        json!({"operations": [operation], "apiGroups": ["example.com"], "apiVersions": ["v1"],
               "resources": ["notes"], "resourceNames": names})
    };
    let spec = |constraints: Json| json!({"matchConstraints": constraints, "validations": [{"expression": "false"}]});
    for (constraints, binding, applies) in [
        (
            json!({"resourceRules": [rule("CREATE", &[])]}),
            json!({}),
            true,
        ),
        (
            json!({"resourceRules": [rule("UPDATE", &[])]}),
            json!({}),
            false,
        ),
        (
            json!({"resourceRules": [rule("*", &["n"])]}),
            json!({}),
            true,
        ),
        (
            json!({"resourceRules": [rule("*", &["m"])]}),
            json!({}),
            false,
        ),
        (
            json!({"resourceRules": [rule("*", &[])], "excludeResourceRules": [rule("CREATE", &["n"])]}),
            json!({}),
            false,
        ),
        (
            json!({"resourceRules": [rule("*", &[])], "excludeResourceRules": [rule("CREATE", &["m"])]}),
            json!({}),
            true,
        ),
        (
            json!({"resourceRules": [rule("*", &[])], "objectSelector": {"matchLabels": {"a": "c"}}}),
            json!({}),
            false,
        ),
        (
            json!({"resourceRules": [rule("*", &[])], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}),
            json!({}),
            true,
        ),
        (
            json!({"resourceRules": [rule("*", &[])]}),
            json!({"matchResources": {}}),
            true,
        ),
        (
            json!({"resourceRules": [rule("*", &[])]}),
            json!({"matchResources": {"resourceRules": [rule("UPDATE", &[])]}}),
            false,
        ),
        (
            json!({"resourceRules": [rule("*", &[])]}),
            json!({"matchResources": {"objectSelector": {"matchLabels": {"a": "c"}}}}),
            false,
        ),
    ] {
        let mut bound = binding.clone();
        bound["validationActions"] = json!(["Deny"]);
        let got = message(spec(constraints.clone()), &[bound]).await;
        assert_eq!(got.is_some(), applies, "{constraints} {binding}");
    }
}

#[tokio::test]
async fn conditions_may_exclude_look_at_params_and_fail() {
    let spec = |expression: &str, policy: &str| {
        json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "failurePolicy": policy,
               "matchConditions": [{"name": "c", "expression": expression}],
               "validations": [{"expression": "false"}]})
    };
    let mut binding = deny();
    binding["paramRef"] = json!({"name": "one", "parameterNotFoundAction": "Deny"});
    let bindings = [binding];
    let failed = Some("failed expression: false");
    for (expression, policy, want) in [
        ("object.size == 5", "Fail", failed),
        ("object.size == 6", "Fail", None),
        ("params.data.limit == '1'", "Fail", failed),
        ("params.data.limit == '2'", "Fail", None),
        ("namespaceObject == null", "Fail", failed),
        (
            "object.zzz == 1",
            "Fail",
            Some("expression 'object.zzz == 1' resulted in error: no such key: zzz"),
        ),
        ("object.zzz == 1", "Ignore", None),
    ] {
        let got = message(spec(expression, policy), &bindings).await;
        assert_eq!(got.as_deref(), want, "{expression} {policy}");
    }
}

#[tokio::test]
async fn expressions_see_the_namespace_and_named_expressions() {
    let spec = json!({
        "variables": [{"name": "twice", "expression": "object.size * 2"}, {"name": "bad", "expression": "object.zzz"}],
        "validations": [
            {"expression": "variables.twice == 10"},
            {"expression": "namespaceObject.metadata.labels['env'] == 'test'"},
            {"expression": "variables.bad == 1"},
        ],
    });
    assert_eq!(
        message(spec, &[deny()]).await.as_deref(),
        Some(
            "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: no such key: zzz"
        )
    );
}

#[tokio::test]
async fn cost_is_one_account_for_all_validations_of_a_binding() {
    let dear = "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, a + b + c + d + e > 0)))))";
    let many: Vec<Json> = (0..40).map(|_| json!({"expression": dear})).collect();
    let text = "validation failed due to running out of cost budget, no further validation rules will be run";
    let spec = |policy: &str| json!({"failurePolicy": policy, "validations": many});
    assert_eq!(
        message(spec("Fail"), &[deny()]).await.as_deref(),
        Some(text)
    );
    assert_eq!(message(spec("Ignore"), &[deny()]).await, None);
}

#[tokio::test]
async fn policies_judge_neither_themselves_nor_reviews() {
    for (group, plural, judged) in [
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
            false,
        ),
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings",
            false,
        ),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            true,
        ),
        ("authorization.k8s.io", "subjectaccessreviews", false),
        ("authentication.k8s.io", "tokenreviews", false),
        ("", "pods", true),
    ] {
        let mut request = request(Operation::Create);
        request.resource = resource(group, "v1", plural);
        let spec = json!({"validations": [{"expression": "false"}]});
        let (told, _) = validated(spec, &[deny()], request).await;
        assert_eq!(told.is_some(), judged, "{plural}");
    }
}

/// The object after mutation, or the status of a denial, and the number of evaluations.
async fn mutated(
    spec: Json,
    bindings: &[Json],
    request: Request,
) -> (Result<Json, (i32, String, String)>, usize) {
    let engine = engine();
    let mut spec = spec;
    if spec.get("reinvocationPolicy").is_none() {
        spec["reinvocationPolicy"] = json!("Never");
    }
    register(&engine, PolicyKind::Mutating, &spec, bindings);
    let mut admission = Admission::new(request);
    let decision = engine.admit(&mut admission).await;
    let outcomes = admission
        .trace()
        .plugins()
        .flat_map(|(_, plugin)| &plugin.policies);
    let outcomes = outcomes
        .flat_map(|policy| &policy.bindings)
        .flat_map(|binding| &binding.evaluations);
    let ran = outcomes.map(|evaluation| evaluation.outcomes.len()).sum();
    let told = match decision {
        Decision::Allow => Ok(admission
            .take_object()
            .map(Object::into_value)
            .unwrap_or_default()),
        Decision::Deny(denial) => {
            let status = denial.status;
            Err((status.code, status.reason, status.message))
        }
    };
    (told, ran)
}

fn patch(expression: &str) -> Json {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[tokio::test]
async fn patches_are_applied_one_after_the_other() {
    let first = patch("[JSONPatch{op: 'replace', path: '/size', value: object.size + 1}]");
    let second =
        patch("[JSONPatch{op: 'add', path: '/metadata/labels/size', value: string(object.size)}]");
    let spec = json!({"mutations": [first, second]});
    let (told, ran) = mutated(spec, &[json!({})], request(Operation::Create)).await;
    let object = told.unwrap();
    assert_eq!(
        (&object["size"], &object["metadata"]["labels"]["size"]),
        (&json!(6), &json!("6"))
    );
    assert_eq!(ran, 2);
    // Deletions are not mutated.
    let spec = json!({"mutations": [patch("object.zzz")]});
    let (told, ran) = mutated(spec, &[json!({})], request(Operation::Delete)).await;
    assert_eq!((told, ran), (Ok(Json::Null), 0));
}

#[tokio::test]
async fn errors_of_mutations_refuse_at_the_end_unless_they_are_ignored() {
    let bad = patch("[JSONPatch{op: 'remove', path: '/none'}]");
    let good = patch("[JSONPatch{op: 'add', path: '/more', value: 1}]");
    let spec = |policy: &str| json!({"failurePolicy": policy, "mutations": [bad, good]});
    let (told, ran) = mutated(spec("Ignore"), &[json!({})], request(Operation::Create)).await;
    assert_eq!((told.unwrap()["more"].clone(), ran), (json!(1), 2));
    let (told, ran) = mutated(spec("Fail"), &[json!({})], request(Operation::Create)).await;
    let (code, reason, text) = told.unwrap_err();
    assert_eq!((code, reason.as_str(), ran), (403, "Invalid", 2));
    assert!(text.starts_with("policy 'p' with binding 'b0' denied request: JSON Patch: error in remove for path: '/none'"), "{text}");
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "Nope"}, "mutations": [good]});
    let (told, _) = mutated(spec, &[json!({})], request(Operation::Create)).await;
    let (code, reason, text) = told.unwrap_err();
    assert_eq!((code, reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        text,
        "policy \"p\" denied request: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'"
    );
}

#[tokio::test]
async fn a_failing_test_skips_its_mutation() {
    let spec = json!({"mutations": [patch("[JSONPatch{op: 'test', path: '/size', value: 7}, JSONPatch{op: 'remove', path: '/size'}]")]});
    let (told, _) = mutated(spec, &[json!({})], request(Operation::Create)).await;
    assert_eq!(told.unwrap()["size"], json!(5));
}

#[tokio::test]
async fn a_policy_that_asks_for_it_runs_twice_even_alone() {
    for (reinvocation, want) in [("Never", 6), ("IfNeeded", 7)] {
        let spec = json!({"reinvocationPolicy": reinvocation,
            "mutations": [patch("[JSONPatch{op: 'replace', path: '/size', value: object.size + 1}]")]});
        let (told, _) = mutated(spec, &[json!({})], request(Operation::Create)).await;
        assert_eq!(told.unwrap()["size"], json!(want), "{reinvocation}");
    }
}

#[tokio::test]
async fn merging_needs_a_schema() {
    let apply = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{size: 6}"}});
    let (told, _) = mutated(
        json!({"mutations": [apply]}),
        &[json!({})],
        request(Operation::Create),
    )
    .await;
    assert_eq!(
        told.unwrap_err().2,
        "policy 'p' with binding 'b0' denied request: error applying patch: failed to convert patch object to typed object: no corresponding type for example.com/v1, Kind=Note"
    );
}
