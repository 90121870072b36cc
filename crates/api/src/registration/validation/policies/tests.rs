use super::*;
use crate::document;
use crate::registration::policy::{decode_binding, decode_policy};

/// Returns its arguments as the error of certain expressions.
struct Echo(Composition);

impl PolicyExpressions for Echo {
    fn begin(&self, composition: Composition) -> Box<dyn ComposedExpressions> {
        Box::new(Self(composition))
    }
}

impl ComposedExpressions for Echo {
    fn declare(&mut self, _: &str, expression: &str) -> Result<(), ExpressionError> {
        self.check(expression, Role::Validation)
    }

    fn check(&mut self, expression: &str, role: Role) -> Result<(), ExpressionError> {
        match expression {
            "bad" => Err(ExpressionError::Compilation(format!(
                "{role:?} params={} variables={}",
                self.0.params, self.0.variables
            ))),
            "broken" => Err(ExpressionError::Program(String::from("why"))),
            _ => Ok(()),
        }
    }
}

const ECHO: Echo = Echo(Composition {
    params: false,
    variables: false,
});

fn policy(kind: PolicyKind, spec: &str) -> Policy {
    let text = format!("{{\"metadata\": {{\"name\": \"p.x\"}}, \"spec\": {spec}}}");
    let document = document::json::parse(text.as_bytes()).unwrap();
    decode_policy(document.root(), kind).unwrap().value
}

fn texts(errors: FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn validating(spec: &str) -> Vec<String> {
    texts(validate_policy(
        &policy(PolicyKind::Validating, spec),
        &ECHO,
    ))
}

const RULES: &str = r#""matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}"#;

#[test]
fn a_whole_policy_is_fine() {
    let spec = format!(
        r#"{{"paramKind": {{"apiVersion": "v1", "kind": "ConfigMap"}}, {RULES},
            "matchConditions": [{{"name": "c", "expression": "true"}}],
            "variables": [{{"name": "x", "expression": "1"}}],
            "validations": [{{"expression": "true", "message": "m", "messageExpression": "e", "reason": "Forbidden"}}],
            "auditAnnotations": [{{"key": "k", "valueExpression": "'v'"}}]}}"#
    );
    assert_eq!(validating(&spec), [""; 0]);
}

#[test]
fn says_what_is_missing_and_what_is_too_much() {
    let both = "validations or auditAnnotations must contain at least one item";
    assert_eq!(
        validating("{}"),
        [
            "spec.matchConstraints: Required value",
            &format!("spec.validations: Required value: {both}"),
            &format!("spec.auditAnnotations: Required value: {both}"),
        ]
    );
    let many: Vec<String> = (0..21)
        .map(|n| format!(r#"{{"key": "k{n}", "valueExpression": "''"}}"#))
        .collect();
    let spec = format!(r#"{{{RULES}, "auditAnnotations": [{}]}}"#, many.join(","));
    let errors = validating(&spec);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with(
        r#"spec.auditAnnotations: Invalid value: [{"Key":"k0","ValueExpression":"''"},"#
    ));
    assert!(errors[0].ends_with("must not have more than 20 auditAnnotations"));
}

#[test]
fn checks_every_expression_in_its_role() {
    let spec = format!(
        r#"{{"paramKind": {{"apiVersion": "v1", "kind": "ConfigMap"}}, {RULES},
            "matchConditions": [{{"name": "c", "expression": " bad "}}],
            "variables": [{{"name": "x", "expression": "bad"}}, {{"name": "in", "expression": " "}}, {{"name": "", "expression": "1"}}],
            "validations": [{{"expression": "bad", "messageExpression": "bad"}}, {{"expression": "broken", "messageExpression": "  ", "message": " "}},
                            {{"expression": " ", "message": "a\nb", "reason": "Unauthorized"}}],
            "auditAnnotations": [{{"key": "k", "valueExpression": " bad"}}, {{"key": "", "valueExpression": ""}}]}}"#
    );
    assert_eq!(
        validating(&spec),
        [
            r#"spec.matchConditions[0].expression: Invalid value: "bad": MatchCondition params=true variables=true"#,
            r#"spec.variables[0].expression: Invalid value: "bad": Validation params=true variables=true"#,
            r#"spec.variables[1].name: Invalid value: "in": must be a valid CEL identifier"#,
            "spec.variables[1].expression: Required value: expression is not specified",
            "spec.variables[2].name: Required value: name is not specified",
            r#"spec.validations[0].expression: Invalid value: "bad": Validation params=true variables=true"#,
            r#"spec.validations[0].messageExpression: Invalid value: "bad": Message params=true variables=true"#,
            "spec.validations[1].expression: Internal error: program instantiation failed: why",
            r#"spec.validations[1].messageExpression: Invalid value: "  ": must be non-empty if specified"#,
            r#"spec.validations[1].message: Invalid value: " ": must be non-empty if specified"#,
            "spec.validations[2].expression: Required value: expression is not specified",
            r#"spec.validations[2].message: Invalid value: "a\nb": must not contain line breaks"#,
            r#"spec.validations[2].reason: Unsupported value: "Unauthorized": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge""#,
            r#"spec.auditAnnotations[0].valueExpression: Invalid value: " bad": AuditAnnotation params=true variables=true"#,
            r#"spec.auditAnnotations[1].key: Invalid value: "p.x/": name part must be non-empty"#,
            r#"spec.auditAnnotations[1].key: Invalid value: "p.x/": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            "spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified",
        ]
    );
}

#[test]
fn checks_the_kind_of_params() {
    for (kind, want) in [
        (r#"{"apiVersion": "v1", "kind": "ConfigMap"}"#, &[][..]),
        (r#"{"apiVersion": "a.b/v1", "kind": "K"}"#, &[]),
        (
            "{}",
            &["apiVersion: Required value", "kind: Required value"],
        ),
        (
            r#"{"apiVersion": "a/b/c", "kind": "K"}"#,
            &[r#"apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#],
        ),
        (
            r#"{"apiVersion": "a/", "kind": "K"}"#,
            &[r#"apiVersion: Invalid value: "a/": version must be specified"#],
        ),
        (
            r#"{"apiVersion": "/", "kind": "K"}"#,
            &[r#"apiVersion: Invalid value: "/": version must be specified"#],
        ),
    ] {
        let spec = format!(
            r#"{{"paramKind": {kind}, {RULES}, "validations": [{{"expression": "true"}}]}}"#
        );
        let want: Vec<String> = want
            .iter()
            .map(|want| format!("spec.paramKind.{want}"))
            .collect();
        assert_eq!(validating(&spec), want, "{kind}");
    }
}

#[test]
fn unchanged_conditions_are_left_alone() {
    let with = |conditions: &str, param: &str| {
        let spec = format!(
            r#"{{{param} {RULES}, "matchConditions": {conditions}, "validations": [{{"expression": "true"}}]}}"#
        );
        policy(PolicyKind::Validating, &spec)
    };
    let bad = r#"[{"name": "c", "expression": "bad"}]"#;
    let other = r#"[{"name": "d", "expression": "bad"}]"#;
    let param = r#""paramKind": {"apiVersion": "v1", "kind": "K"},"#;
    for (new, old, want) in [
        (with(bad, ""), with(bad, ""), 0),
        (with(other, ""), with(bad, ""), 1),
        (with(bad, param), with(bad, ""), 1),
    ] {
        assert_eq!(validate_policy_update(&new, &old, &ECHO).len(), want);
    }
}

#[test]
fn mutating_policies_have_mutations() {
    let check = |spec: &str| texts(validate_policy(&policy(PolicyKind::Mutating, spec), &ECHO));
    let delete = RULES.replace("CREATE", "DELETE");
    let spec = format!(
        r#"{{{delete}, "reinvocationPolicy": "Sometimes", "mutations": [
            {{}}, {{"patchType": "Merge"}}, {{"patchType": "JSONPatch", "applyConfiguration": {{}}}},
            {{"patchType": "ApplyConfiguration", "applyConfiguration": {{"expression": " bad"}}, "jsonPatch": {{}}}},
            {{"patchType": "JSONPatch", "jsonPatch": {{"expression": " "}}}}]}}"#
    );
    assert_eq!(
        check(&spec),
        [
            r#"spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE""#,
            "spec.mutations[0].patchType: Required value",
            r#"spec.mutations[1].patchType: Unsupported value: "Merge": supported values: "ApplyConfiguration", "JSONPatch""#,
            "spec.mutations[2].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            r#"spec.mutations[2].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when patchType is JSONPatch"#,
            r#"spec.mutations[3].applyConfiguration.expression: Invalid value: "bad": ApplyConfiguration params=false variables=true"#,
            r#"spec.mutations[3].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration"#,
            "spec.mutations[4].jsonPatch.expression: Required value",
            r#"spec.reinvocationPolicy: Unsupported value: "Sometimes": supported values: "IfNeeded", "Never""#,
        ]
    );
    assert_eq!(
        check(&format!("{{{RULES}}}")),
        [
            "spec.mutations: Required value: mutations must contain at least one item",
            "spec.reinvocationPolicy: Required value",
        ]
    );
}

fn binding(kind: PolicyKind, spec: &str) -> Vec<String> {
    let text = format!("{{\"metadata\": {{\"name\": \"b\"}}, \"spec\": {spec}}}");
    let document = document::json::parse(text.as_bytes()).unwrap();
    let binding = decode_binding(document.root(), kind).unwrap().value;
    texts(validate_binding(&binding))
}

#[test]
fn checks_bindings() {
    for (kind, spec, want) in [
        (
            PolicyKind::Validating,
            r#"{"policyName": "p", "validationActions": ["Audit", "Deny"]}"#,
            &[][..],
        ),
        (PolicyKind::Mutating, r#"{"policyName": "p"}"#, &[]),
        (
            PolicyKind::Validating,
            r#"{"validationActions": ["Shout", "Deny", "Warn", "Deny"]}"#,
            &[
                "spec.policyName: Required value",
                r#"spec.validationActions[0]: Unsupported value: "Shout": supported values: "Audit", "Deny", "Warn""#,
                r#"spec.validationActions[3]: Duplicate value: "Deny""#,
                r#"spec.validationActions: Invalid value: ["Shout","Deny","Warn","Deny"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#,
            ],
        ),
        (
            PolicyKind::Validating,
            r#"{"policyName": "p", "paramRef": {}}"#,
            &[
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.paramRef.parameterNotFoundAction: Required value",
                "spec.validationActions: Required value: at least one validation action is required",
            ],
        ),
        (
            PolicyKind::Mutating,
            r#"{"policyName": "p", "paramRef": {"name": "a/b", "selector": {}, "parameterNotFoundAction": "Maybe"},
                "matchResources": {"resourceRules": [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "resourceNames": ["n", "n"]}]}}"#,
            &[
                r#"spec.paramRef.name: Invalid value: "a/b": may not contain '/'"#,
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                r#"spec.paramRef.parameterNotFoundAction: Unsupported value: "Maybe": supported values: "Deny", "Allow""#,
                r#"spec.matchResources.resourceRules[0].resourceNames[1]: Duplicate value: "n""#,
                r#"spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE""#,
            ],
        ),
    ] {
        assert_eq!(binding(kind, spec), want, "{spec}");
    }
}
