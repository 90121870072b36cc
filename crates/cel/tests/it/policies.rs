//! Variables of admission policies.
//!
//! `policies.jsonl` contains policies with the recorded outcomes of kube-apiserver's code, and the
//! remaining budget.

use std::sync::Arc;

use lockgate_cel::Value;
use lockgate_cel::admission::{
    Composition, MatchConditions, PolicyEvaluation, Request, Role, Variables,
};
use lockgate_cel::eval::Program;
use lockgate_cel::program::CompileError;
use serde_json::{Value as Json, json};

/// The results of a policy's expressions on a fixed object, and the remaining budget.
fn outcome(variables: &[(&str, &str)], expressions: &[&str], budget: u64) -> (Vec<String>, i64) {
    let composition = Composition::compile(true, variables.iter().copied());
    let programs: Vec<Result<Program, CompileError>> = expressions
        .iter()
        .map(|expression| composition.compile_expression(expression, None))
        .collect();
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "web", "labels": { "team": "a" } },
        "spec": { "replicas": 7, "names": ["a", "b"] },
    });
    let params = json!({ "limit": 3 });
    let request = Request {
        operation: "CREATE".to_owned(),
        ..Request::default()
    }
    .to_json();
    let inputs = Variables::new(&request)
        .object(Some(&object))
        .policy_inputs(None, Some(&params));
    let named = composition.named();
    let mut evaluation = PolicyEvaluation::new(&named, &inputs, None).with_budget(budget);
    let mut results = Vec::new();
    for (expression, program) in expressions.iter().zip(&programs) {
        results.push(match program {
            Err(error) => format!("compilation error: {error}"),
            Ok(program) => match evaluation.evaluate(program) {
                Err(spent) => return (vec![format!("ERROR {spent}")], -1),
                Ok(Ok(value)) => value.to_string(),
                Ok(Err(error)) => format!("expression '{expression}' resulted in error: {error}"),
            },
        });
    }
    (results, evaluation.remaining() as i64)
}

#[test]
fn named_expressions_are_evaluated_as_kubernetes_does() {
    let texts = |value: &Json| -> Vec<String> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    let mut compared = 0;
    for line in include_str!("policies.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let variables: Vec<Vec<String>> = case["Variables"]
            .as_array()
            .unwrap()
            .iter()
            .map(texts)
            .collect();
        let variables: Vec<_> = variables.iter().map(|v| (&*v[0], &*v[1])).collect();
        let expressions = texts(&case["Expressions"]);
        let expressions: Vec<_> = expressions.iter().map(String::as_str).collect();
        let budget = match case["Budget"].as_u64() {
            None | Some(0) => lockgate_cel::limits::POLICY_BUDGET,
            Some(units) => units,
        };
        let expected = (texts(&case["Results"]), case["Remaining"].as_i64().unwrap());
        assert_eq!(
            outcome(&variables, &expressions, budget),
            expected,
            "{variables:?} {expressions:?}"
        );
        compared += expressions.len();
    }
    assert!(compared > 70, "only {compared} expressions were compared");
}

#[test]
fn an_expression_that_selects_itself_is_an_error() {
    let (results, _) = outcome(
        &[("a", "dyn(variables)['b']"), ("b", "dyn(variables)['a']")],
        &["variables.a == 1"],
        1_000,
    );
    assert_eq!(
        results,
        [
            "expression 'variables.a == 1' resulted in error: composited variable \"a\" fails to \
             evaluate: composited variable \"b\" fails to evaluate: composited variable \"a\" \
             fails to evaluate: it selects itself"
        ]
    );
}

/// Runs on the usual stack of a worker thread.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run);
    thread.unwrap().join().expect("it fits the stack");
}

#[test]
fn expressions_that_select_one_another_are_bounded() {
    on_a_small_stack(|| {
        let chain = |length: usize, of: &dyn Fn(String) -> String| -> String {
            let named: Vec<(String, String)> = (0..length)
                .map(|nth| match nth {
                    0 => ("v0".to_owned(), "1".to_owned()),
                    _ => (format!("v{nth}"), of(format!("variables.v{}", nth - 1))),
                })
                .collect();
            let named: Vec<_> = named.iter().map(|(n, e)| (&**n, &**e)).collect();
            let last = format!("variables.v{}", length - 1);
            outcome(&named, &[&last], 10_000_000).0.remove(0)
        };
        assert_eq!(chain(60, &|before| format!("{before} + 1")), "60");
        // Each of them has the maximum depth of an expression.
        let deep = |before: String| format!("{}{before}{}", "(1+".repeat(120), ")".repeat(120));
        assert_eq!(chain(2, &deep), "121");
        let refused = chain(100, &deep);
        assert!(
            refused.ends_with("variables are nested too deeply"),
            "{refused}"
        );
        let refused = chain(400, &|before| format!("{before} + 1"));
        assert!(
            refused.ends_with("variables are nested too deeply"),
            "{refused}"
        );
    });
}

/// The result of an expression in a role, or its error.
fn in_role(expression: &str, role: Role) -> Result<String, String> {
    let composition = Composition::compile(true, [("v", "object.metadata.name")]);
    let program = composition
        .program(expression, role)
        .map_err(|error| error.to_string())?;
    let object = json!({"metadata": {"name": "web"}, "spec": {"c": [{"name": "a"}]}});
    let request = Request::default().to_json();
    let inputs = Variables::new(&request)
        .object(Some(&object))
        .policy_inputs(None, None);
    let named = composition.named();
    let mut evaluation = PolicyEvaluation::new(&named, &inputs, None);
    match evaluation.evaluate(&program).unwrap() {
        Ok(Value::Object(object)) => {
            object
                .check_type_names()
                .map_err(|error| error.to_string())?;
            let tree = object.to_tree().map_err(|error| error.to_string())?;
            Ok(tree.to_string())
        }
        Ok(value) => Ok(value.to_json().unwrap().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn objects_and_patches_are_constructed_where_they_are_known() {
    use Role::{ApplyConfiguration, JsonPatch};
    for (expression, role, want) in [
        ("Object{}", ApplyConfiguration, "{}"),
        (
            "Object{metadata: Object.metadata{labels: {'a': 'b'}}, data: {'n': 1}}",
            ApplyConfiguration,
            r#"{"data":{"n":1},"metadata":{"labels":{"a":"b"}}}"#,
        ),
        (
            "Object{spec: Object.spec{c: object.spec.c.map(c, Object.spec.c{name: string(c.name), n: 2})}}",
            ApplyConfiguration,
            r#"{"spec":{"c":[{"n":2,"name":"a"}]}}"#,
        ),
        (
            "Object{spec: Object.spec{?x: optional.none(), ?y: optional.of(null)}}",
            ApplyConfiguration,
            r#"{"spec":{"y":null}}"#,
        ),
        (
            "has(object.zzz) ? Object{a: 1} : Object{b: string(variables.v)}",
            ApplyConfiguration,
            r#"{"b":"web"}"#,
        ),
        (
            "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('x/y~z'), value: Object.a{n: 1}}]",
            JsonPatch,
            r#"[{"op":"add","path":"/a/x~1y~0z","value":{"n":1}}]"#,
        ),
        ("true ? [] : [JSONPatch{op: 'x'}]", JsonPatch, "[]"),
    ] {
        assert_eq!(
            in_role(expression, role).as_deref(),
            Ok(want),
            "{expression}"
        );
    }
    let mismatch = "unexpected type name \"Object.spec\", expected \"Object.metadata\", which \
                    matches field name path from root Object type";
    for (expression, role, want) in [
        (
            "Object{metadata: Object.spec{}}",
            ApplyConfiguration,
            mismatch,
        ),
        (
            "Object{metadata: [{'a': Object.spec{}}]}",
            ApplyConfiguration,
            mismatch,
        ),
        (
            "{'a': 'b'}",
            ApplyConfiguration,
            "must evaluate to Object but got map(string, string)",
        ),
        (
            "Object.spec{}",
            ApplyConfiguration,
            "must evaluate to Object but got Object.spec",
        ),
        (
            "JSONPatch{op: 'add'}",
            JsonPatch,
            "must evaluate to list(JSONPatch) but got JSONPatch",
        ),
        (
            "[]",
            JsonPatch,
            "must evaluate to list(JSONPatch) but got list(dyn)",
        ),
        (
            "Object{}",
            Role::Variable,
            "compilation failed: ERROR: <input>:1:7: undeclared reference to 'Object' (in container '')\n | Object{}\n | ......^",
        ),
        (
            "jsonpatch.escapeKey('a') == 'a'",
            Role::Condition,
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'jsonpatch' (in container '')\n | jsonpatch.escapeKey('a') == 'a'\n | ^\nERROR: <input>:1:20: undeclared reference to 'escapeKey' (in container '')\n | jsonpatch.escapeKey('a') == 'a'\n | ...................^",
        ),
    ] {
        assert_eq!(in_role(expression, role).unwrap_err(), want, "{expression}");
    }
}

#[test]
fn each_role_has_its_types_and_names() {
    let undeclared = |expression: &str, name: &str| {
        format!(
            "compilation failed: ERROR: <input>:1:1: undeclared reference to '{name}' (in container \
             '')\n | {expression}\n | ^"
        )
    };
    for (expression, role, want) in [
        (
            "object.a",
            Role::Condition,
            "must evaluate to bool but got dyn".to_owned(),
        ),
        (
            "object.a",
            Role::Message,
            "must evaluate to string but got dyn".to_owned(),
        ),
        (
            "object.a",
            Role::AuditAnnotation,
            "must evaluate to one of [string null_type] but got dyn".to_owned(),
        ),
        (
            "authorizer",
            Role::Message,
            undeclared("authorizer", "authorizer"),
        ),
    ] {
        assert_eq!(in_role(expression, role).unwrap_err(), want);
    }
    assert_eq!(
        in_role("null", Role::AuditAnnotation).as_deref(),
        Ok("null")
    );
    assert_eq!(
        in_role("'a'", Role::AuditAnnotation).as_deref(),
        Ok("\"a\"")
    );
    let plain = Composition::without_variables(false);
    let error = plain
        .check("variables.v == 1", Role::Condition)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("undeclared reference to 'variables'")
    );
    let composition = Composition::compile(false, [("v", "1")]);
    assert!(
        composition
            .check("variables.v == 1", Role::Condition)
            .is_ok()
    );
    assert!(
        composition
            .check_match_condition("variables.v == 1")
            .is_err()
    );
}

#[test]
fn equal_expressions_of_policies_and_webhooks_share_a_program() {
    let one = Composition::compile(false, [("v", "1")]);
    let other = Composition::compile(true, [("w", "2")]);
    let program =
        |composition: &Composition, text| composition.program(text, Role::Condition).unwrap();
    let text = "object.kind == 'shared by text'";
    assert!(Arc::ptr_eq(&program(&one, text), &program(&other, text)));
    let hook = MatchConditions::compile([("c", text)]);
    assert!(hook.shares_program(0, &program(&one, text)));
    // Expressions with variables share programs only if the variables have the same types.
    let same = Composition::compile(false, [("v", "1")]);
    let text = "variables.v == 1";
    assert!(Arc::ptr_eq(&program(&one, text), &program(&same, text)));
    let typed = Composition::compile(false, [("v", "'1'")]);
    assert!(typed.program(text, Role::Condition).is_err());
}
