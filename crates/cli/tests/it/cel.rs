//! `lockgate cel`

use serde_json::Value;

use super::{lockgate, lockgate_with_stdin};

#[test]
fn checks_an_expression() {
    let run = lockgate(&["cel", "check", "request.resource.resource != 'leases'"]);
    assert_eq!(run.code, Some(0));
    assert_eq!(run.stdout, "TYPE\nbool\n");
}

#[test]
fn underlines_what_is_wrong_with_an_expression() {
    let run = lockgate(&["cel", "check", "request.dryRun + 1 &&\n foo"]);
    insta::assert_snapshot!(run.transcript());
    let run = lockgate(&["cel", "eval", "int('abc')"]);
    assert_eq!(run.code, Some(4));
    assert!(
        run.stdout.contains("program instantiation failed"),
        "{}",
        run.stdout
    );
    let run = lockgate(&["cel", "check", "-o", "json", "foo"]);
    assert_eq!(run.code, Some(4));
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(
        json["CompileError"]
            .as_str()
            .unwrap()
            .contains("undeclared reference to 'foo'")
    );
}

#[test]
fn evaluates_with_objects_in_yaml_and_a_whole_review() {
    let object = [
        "cel",
        "eval",
        "object.metadata.name + '/' + string(size(object.webhooks))",
    ];
    let run = lockgate(&[&object[..], &["--object", "good.yaml"]].concat());
    assert_eq!(
        run.stdout,
        "TYPE     COST   VALUE\nstring   11     image-policy/1\n"
    );
    let review = [
        "cel",
        "eval",
        "request.name == 'web' && object.spec.replicas > oldObject.spec.replicas && has(request.uid)",
        "--request",
        "review.json",
    ];
    let run = lockgate(&review);
    assert_eq!(run.code, Some(4), "{}", run.stdout);
    let grows = [
        "cel",
        "eval",
        "request.name == 'web' && object.spec.replicas > oldObject.spec.replicas",
    ];
    let run = lockgate(&[&grows[..], &["--request", "review.json"]].concat());
    assert_eq!(
        (run.code, run.stdout.contains("true")),
        (Some(0), true),
        "{}",
        run.stdout
    );
}

#[test]
fn an_evaluation_error_is_a_failure() {
    let run = lockgate(&["cel", "eval", "object.nope", "--object", "good.yaml"]);
    assert_eq!(run.code, Some(1));
    assert_eq!(
        run.stdout,
        "TYPE   COST   ERROR\ndyn    2      no such key: nope\n\
         help: if the key is optional, test for it with `has(object.nope)`\n"
    );
}

/// The fields of dynamic objects are only known at evaluation.
#[test]
fn a_field_that_is_not_there_is_corrected() {
    let eval = |expression: &str, more: &[&str]| {
        let args = ["cel", "eval", expression, "--object", "good.yaml"];
        lockgate(&[&args[..], more].concat())
    };
    let run = eval("object.metadata.nmae == 'a'", &[]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stdout
            .ends_with("no such key: nmae\nhelp: did you mean `name`?\n"),
        "{}",
        run.stdout
    );
    let run = eval(
        "object.webhooks.all(w, w.rulez.size() > 0)",
        &["-o", "json"],
    );
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["Help"], "did you mean `rules`?", "{told}");
    let variables = ["--variable", "meta=object.metadta"];
    let run = eval("variables.meta.name == 'a'", &variables);
    assert!(!run.stdout.contains("panicked"), "{}", run.stdout);
    assert_eq!(run.code, Some(1), "{}", run.stdout);
    let run = eval("object.metadta.name == 'a'", &["--mode", "policy"]);
    assert!(
        run.stdout.ends_with("help: did you mean `metadata`?\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn the_authorizer_answers_as_told() {
    let check = [
        "cel",
        "eval",
        "authorizer.group('').resource('pods').check('create').allowed()",
    ];
    for (answer, want) in [("allow-all", "true"), ("deny-all", "false")] {
        let run = lockgate(&[&check[..], &["--authorizer", answer]].concat());
        assert!(run.stdout.ends_with(&format!("{want}\n")), "{}", run.stdout);
    }
}

#[test]
fn explains_what_each_part_yielded_and_cost() {
    let explain = |expression: &str, more: &[&str]| {
        let args = [
            "cel",
            "eval",
            expression,
            "--object",
            "good.yaml",
            "--explain",
        ];
        lockgate(&[&args[..], more].concat())
    };
    let run = explain(
        "has(object.metadata.labels) ||\n  object.webhooks.exists(w, w.name.endsWith('.example.com') && w.nope)",
        &[],
    );
    insta::assert_snapshot!(run.transcript());
    let run = explain("object.webhooks.size() > 0", &["-o", "json"]);
    assert_eq!(run.code, Some(0));
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let first = &json["explain"][0];
    assert_eq!(first["text"], "object.webhooks.size() > 0");
    assert_eq!((&first["start"], &first["end"]), (&0.into(), &26.into()));
    assert_eq!(
        (&first["value"], &first["cost"]),
        (&"true".into(), &4.into())
    );
    let deepest = &json["explain"][2];
    assert_eq!(deepest["text"], "object.webhooks");
    assert_eq!(
        (&deepest["depth"], &deepest["cost"]),
        (&2.into(), &2.into())
    );
    assert_eq!(
        lockgate(&["cel", "eval", "--explain", "--batch", "-"]).code,
        Some(2)
    );
}

#[test]
fn a_batch_prints_a_line_for_each_expression() {
    let batch = "{\"Id\":\"a\",\"Expr\":\"1 + 1\"}\n\n{\"Id\":\"b\",\"Expr\":\"1 +\"}\n{\"Id\":\"c\",\"Expr\":\"object.x\"}\n{\"Id\":\"d\",\"Expr\":\"optional.none()\"}\n";
    let run = lockgate_with_stdin(&["cel", "eval", "--batch", "-"], batch);
    assert_eq!(run.code, Some(0));
    insta::assert_snapshot!(run.stdout);
    let run = lockgate_with_stdin(
        &["cel", "check", "--batch", "-"],
        "{\"Id\":\"a\",\"Expr\":\"1\"}\n",
    );
    assert_eq!(run.stdout, "{\"Id\":\"a\",\"OutType\":\"int\"}\n");
}

/// Evaluates every recorded expression with the command.
#[test]
fn the_recorded_expressions_agree() {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/vectors/cel");
    let file = |name: &str| format!("{vectors}/{name}");
    let (batch, pod, request) = (file("hand.jsonl"), file("pod.json"), file("req.json"));
    let run = lockgate(&[
        "cel",
        "eval",
        "--batch",
        &batch,
        "--object",
        &pod,
        "--request",
        &request,
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let recorded = std::fs::read_to_string(batch).unwrap();
    assert_eq!(run.stdout.lines().count(), recorded.lines().count());
    for (line, recorded) in run.stdout.lines().zip(recorded.lines()) {
        let parse = |text: &str| {
            let document = lockgate_api::document::json::parse(text.as_bytes()).unwrap();
            let member = |name: &str| document.root().get(name).map(|value| value.to_json());
            let unstable = member("Unstable").is_some();
            let names = [
                "Id",
                "CompileError",
                "OutType",
                "Value",
                "ValueStr",
                "EvalError",
                "Cost",
            ];
            (names.map(member), unstable)
        };
        let ((got, _), (want, unstable)) = (parse(line), parse(recorded));
        let same = |index: usize| got[index] == want[index];
        // The order of maps is undefined, which affects cost and lists.
        assert!(
            unstable || (0..got.len()).all(|i| same(i) || is_unordered(&got[i])),
            "{line}\n{recorded}"
        );
    }
}

/// Recorded objects have another field order.
fn is_unordered(value: &Option<String>) -> bool {
    value
        .as_ref()
        .is_some_and(|value| value.contains("mapValue") || value.contains("doubleValue"))
}

#[test]
fn says_what_is_wrong_with_the_input() {
    for (args, stdin, want) in [
        (
            &["cel", "eval", "--batch", "-"][..],
            "nope\n",
            "-:1: invalid character 'o' in literal null",
        ),
        (
            &["cel", "eval", "--batch", "-"],
            "{\"Id\":\"a\"}\n",
            "-:1: `Expr` is missing",
        ),
        (&["cel", "eval", "1", "--object", "-"], "a: [", "`-`:"),
        (
            &["cel", "eval", "1", "--request", "-"],
            "[]",
            "--request is not an object",
        ),
    ] {
        let run = lockgate_with_stdin(args, stdin);
        assert_eq!(run.code, Some(4), "{args:?} {}", run.stderr);
        assert!(run.stderr.contains(want), "{args:?} {}", run.stderr);
    }
    assert_eq!(
        lockgate(&["cel", "eval", "1", "--object", "no-such-file"]).code,
        Some(1)
    );
    assert_eq!(lockgate(&["cel", "eval"]).code, Some(2));
    assert_eq!(
        lockgate(&["cel", "eval", "1", "--batch", "-"]).code,
        Some(2)
    );
}

const POLICY: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: [deployments]}]
  matchConditions: [{name: has-object, expression: object != null}]
  variables:
  - {name: replicas, expression: object.spec.replicas}
  - {name: limit, expression: int(params.data.limit)}
  validations:
  - expression: variables.replicas <= variables.limit
    messageExpression: \"'at most ' + string(variables.limit)\"
  auditAnnotations: [{key: replicas, valueExpression: string(variables.replicas)}]
";

/// The files of a policy: the policy, an object and its parameters.
fn policy_files(replicas: u32) -> (tempfile::TempDir, [String; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let files = [
        write("policy.yaml", POLICY),
        write("object.yaml", &format!("spec: {{replicas: {replicas}}}\n")),
        write("params.yaml", "data: {limit: '3'}\n"),
    ];
    (folder, files)
}

#[test]
fn evaluates_every_expression_of_a_policy() {
    let (_folder, [policy, object, params]) = policy_files(5);
    let eval = [
        "cel", "eval", "--policy", &policy, "--object", &object, "--params", &params,
    ];
    let run = lockgate(&eval);
    assert_eq!(
        run.code,
        Some(3),
        "a validation failed: {}",
        run.transcript()
    );
    let cells = |field: &str| {
        let line = run
            .stdout
            .lines()
            .find(|line| line.starts_with(field))
            .unwrap();
        line[field.len()..]
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        cells("matchConditions[0] has-object").last().unwrap(),
        "true"
    );
    assert_eq!(cells("variables[1] limit").last().unwrap(), "3");
    assert_eq!(cells("validations[0].expression").last().unwrap(), "false");
    assert!(
        cells("validations[0].messageExpression").ends_with(&["most".to_owned(), "3".to_owned()])
    );
    assert_eq!(cells("auditAnnotations[0] replicas").last().unwrap(), "5");

    let (_folder, [policy, object, params]) = policy_files(2);
    let eval = [
        "cel", "eval", "-o", "json", "--policy", &policy, "--object", &object, "--params", &params,
    ];
    let run = lockgate(&eval);
    assert_eq!(run.code, Some(0), "{}", run.transcript());
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["policy"], "replicas");
    let expressions = told["expressions"].as_array().unwrap();
    let validation = expressions
        .iter()
        .find(|one| one["Field"] == "validations[0].expression")
        .unwrap();
    assert_eq!(
        (&validation["Value"], &validation["OutType"]),
        (&true.into(), &"bool".into())
    );
    // The first reference to a variable is charged its cost.
    assert!(validation["Cost"].as_u64().unwrap() > 5, "{validation}");
}

#[test]
fn evaluates_an_expression_as_a_policy_would() {
    let (_folder, [policy, object, params]) = policy_files(2);
    let expression = "variables.limit - variables.replicas";
    let run = lockgate(&[
        "cel", "eval", expression, "--policy", &policy, "--object", &object, "--params", &params,
        "-o", "json",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.transcript());
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["Value"]["int64Value"], "1");
    // Without parameters, selecting their fields is an error.
    let run = lockgate(&[
        "cel", "eval", expression, "--policy", &policy, "--object", &object,
    ]);
    assert_eq!(run.code, Some(1), "{}", run.transcript());
    let run = lockgate(&["cel", "check", "variables.nope == 1", "--policy", &policy]);
    assert_eq!(run.code, Some(4), "{}", run.transcript());
    assert!(
        run.stdout.contains("undefined field 'nope'"),
        "{}",
        run.transcript()
    );
    let run = lockgate(&["cel", "check", "--policy", &policy]);
    assert_eq!(run.code, Some(0), "{}", run.transcript());
    let run = lockgate(&["cel", "check", "--policy", &object]);
    assert_eq!(run.code, Some(4));
    assert!(
        run.stderr.contains("no policy found"),
        "{}",
        run.transcript()
    );
}

#[test]
fn a_condition_that_is_not_a_bool_is_refused() {
    let run = lockgate(&["cel", "check", "request.name"]);
    assert_eq!(run.code, Some(4), "{}", run.stdout);
    assert!(
        run.stdout.contains("must evaluate to bool but got string"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("compare the value with something"),
        "{}",
        run.stdout
    );
    let run = lockgate(&["cel", "eval", "1 + 1", "--mode", "match-condition"]);
    assert_eq!(run.code, Some(4), "{}", run.stdout);
    // Without a mode any value is printed.
    let run = lockgate(&["cel", "eval", "1 + 1"]);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
}

#[test]
fn mistakes_are_underlined_whole_and_corrected() {
    let run = lockgate(&["cel", "check", "object.metadata.name.startWith('a')"]);
    assert_eq!(run.code, Some(4));
    assert!(run.stdout.contains("─────────"), "{}", run.stdout);
    assert!(
        run.stdout.contains("did you mean `startsWith`?"),
        "{}",
        run.stdout
    );
}

#[test]
fn policies_need_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let object = file("object.yaml", "{metadata: {labels: {team: a}}}");
    let params = file("params.yaml", "{teams: [a, b]}");
    let namespace = file("namespace.yaml", "{metadata: {name: shop}}");
    let team = "--variable=team=object.metadata.labels.team";
    let expression = "variables.team in params.teams && namespaceObject.metadata.name == 'shop'";
    let run = lockgate(&[
        "cel",
        "eval",
        expression,
        team,
        "--object",
        &object,
        "--params",
        &params,
        "--namespace-object",
        &namespace,
        "--explain",
    ]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("variables.team"), "{}", run.stdout);
    let run = lockgate(&[
        "cel",
        "check",
        "--mode",
        "policy",
        "variables.team in params.teams",
    ]);
    assert_eq!(run.code, Some(4), "{}", run.stdout);
    let run = lockgate(&[
        "cel",
        "check",
        "--mode",
        "policy",
        team,
        "variables.team in params.teams",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
    let run = lockgate(&["cel", "eval", "true", "--params", &params]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("--mode policy"), "{}", run.stderr);
}

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  names: {kind: Gadget, plural: gadgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: self.min <= self.max, message: order}
            - {rule: self.mni > 1}
            properties: {min: {type: integer}, max: {type: integer}}
";

#[test]
fn rules_of_custom_resources_have_self_and_old_self() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let definition = file("crd.yaml", DEFINITION);
    let run = lockgate(&["cel", "check", "--crd", &definition]);
    assert_eq!(run.code, Some(4), "{}", run.stdout);
    assert!(
        run.stdout.contains("v1.spec [0]") && run.stdout.contains("undefined field 'mni'"),
        "{}",
        run.stdout
    );
    let run = lockgate(&[
        "cel",
        "check",
        "--crd",
        &definition,
        "--path",
        "spec",
        "self.mxa > 1",
    ]);
    assert_eq!(run.code, Some(4), "{}", run.stdout);
    assert!(run.stdout.contains("did you mean `max`?"), "{}", run.stdout);
    let object = file(
        "object.yaml",
        "{apiVersion: example.com/v1, kind: Gadget, spec: {min: 3, max: 2}}",
    );
    let old = file(
        "old.yaml",
        "{apiVersion: example.com/v1, kind: Gadget, spec: {min: 1, max: 2}}",
    );
    let at = ["--crd", &definition, "--path", "spec", "--object", &object];
    let run = lockgate(&[&["cel", "eval", "self.min <= self.max"][..], &at].concat());
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("false"), "{}", run.stdout);
    let rule = "self.min >= oldSelf.min";
    let run = lockgate(&[&["cel", "eval", rule, "--old-object", &old][..], &at].concat());
    assert!(run.stdout.contains("true"), "{}{}", run.stdout, run.stderr);
    let run = lockgate(&[&["cel", "eval", rule][..], &at].concat());
    assert_eq!(run.code, Some(1), "{}", run.stdout);
    assert!(run.stdout.contains("no old value"), "{}", run.stdout);
    // Values without a schema have the type of their JSON.
    let (new, old) = (
        file("new.yaml", "{size: 2}"),
        file("small.yaml", "{size: 1}"),
    );
    let run = lockgate(&[
        "cel",
        "eval",
        "self.size >= oldSelf.size",
        "--self",
        &new,
        "--old-self",
        &old,
    ]);
    assert!(run.stdout.contains("true"), "{}{}", run.stdout, run.stderr);
    let run = lockgate(&["cel", "eval", "self.size", "--self", &new]);
    assert_eq!(run.code, Some(4), "{}", run.stdout);
}
