//! `lockgate lint`

use serde_json::Value;

use super::{lockgate, lockgate_with_stdin};

#[test]
fn accepts_a_good_configuration() {
    insta::assert_snapshot!(lockgate(&["lint", "-f", "good.yaml"]).transcript());
}

#[test]
fn underlines_every_problem() {
    insta::assert_snapshot!(lockgate(&["lint", "-f", "many-problems.yaml"]).transcript());
}

#[test]
fn says_what_v1beta1_means() {
    insta::assert_snapshot!(
        lockgate(&["lint", "-f", "v1beta1.yaml", "--profile", "none"]).transcript()
    );
}

#[test]
fn reads_json_streams_lists_and_other_kinds() {
    insta::assert_snapshot!(lockgate(&["lint", "-o", "json", "stream.json"]).transcript());
}

#[test]
fn reports_in_sarif() {
    let run = lockgate(&["lint", "-o", "sarif", "-f", "many-problems.yaml"]);
    assert_eq!(run.code, Some(3));
    let log: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let rules = log["runs"][0]["tool"]["driver"]["rules"]
        .as_array()
        .unwrap();
    assert!(!results.is_empty());
    for result in results {
        let rule = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[rule]["id"], result["ruleId"]);
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
        assert!(
            result["locations"][0]["physicalLocation"]["region"]["startLine"].as_u64() > Some(0)
        );
    }
    insta::assert_json_snapshot!(results[0]);
}

#[test]
fn reports_as_github_commands() {
    insta::assert_snapshot!(lockgate(&["lint", "-o", "github", "many-problems.yaml"]).transcript());
}

#[test]
fn every_format_has_the_same_findings() {
    let json = lockgate(&["lint", "-o", "json", "many-problems.yaml", "v1beta1.yaml"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let count = json["findings"].as_array().unwrap().len();
    let sarif = lockgate(&["lint", "-o", "sarif", "many-problems.yaml", "v1beta1.yaml"]);
    let sarif: Value = serde_json::from_str(&sarif.stdout).unwrap();
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), count);
    let github = lockgate(&["lint", "-o", "github", "many-problems.yaml", "v1beta1.yaml"]);
    assert_eq!(github.stdout.lines().count(), count);
}

#[test]
fn reads_folders_recursively_and_in_order() {
    let run = lockgate(&["lint", "-o", "json", "-f", "folder"]);
    assert_eq!(run.code, Some(3));
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let files: Vec<&str> = json["objects"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|o| o["file"].as_str())
        .collect();
    assert_eq!(files, ["folder/a.yaml", "folder/deeper/b.yml"]);
}

#[test]
fn reads_standard_input() {
    let yaml = "kind: MutatingWebhookConfiguration\napiVersion: admissionregistration.k8s.io/v1\n";
    let run = lockgate_with_stdin(&["lint", "-f", "-"], yaml);
    assert_eq!(run.code, Some(3));
    assert!(run.stdout.contains("<stdin>:1:1"), "{}", run.stdout);
    assert!(run.stdout.contains("metadata.name: Required value"));
    // A document that starts with a brace may still be YAML.
    let flow = "{kind: ConfigMap, apiVersion: v1}\n";
    assert_eq!(lockgate_with_stdin(&["lint", "-"], flow).code, Some(0));
}

#[test]
fn ends_as_the_threshold_says() {
    for (args, code) in [
        (&["lint", "v1beta1.yaml"][..], 3),
        (&["lint", "v1beta1.yaml", "--fail-on", "error"], 3),
        (
            &[
                "lint",
                "v1beta1.yaml",
                "--fail-on",
                "error",
                "--profile",
                "none",
            ],
            0,
        ),
        (&["lint", "many-problems.yaml", "--fail-on", "error"], 3),
        (&["lint", "many-problems.yaml", "--fail-on", "never"], 0),
        (&["lint", "template.yaml", "--fail-on", "never"], 4),
        (&["lint", "no-such-file.yaml"], 1),
    ] {
        let run = lockgate(args);
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn a_broken_document_does_not_hide_the_others() {
    insta::assert_snapshot!(lockgate(&["lint", "template.yaml"]).transcript());
}

#[test]
fn names_what_cannot_be_read() {
    let run = lockgate(&["lint", "no-such-file.yaml"]);
    assert!(
        run.stderr.contains("cannot read `no-such-file.yaml`"),
        "{}",
        run.stderr
    );
    let run = lockgate(&["lint", "empty-folder"]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains("contains no .yaml, .yml or .json file"),
        "{}",
        run.stderr
    );
}

#[test]
fn shows_as_many_findings_as_asked() {
    let run = lockgate(&["lint", "many-problems.yaml", "--max-findings", "1"]);
    assert!(
        run.stdout.contains("more; set --max-findings to show more"),
        "{}",
        run.stdout
    );
    assert_eq!(run.stdout.matches("╭─[").count(), 1);
}

#[test]
fn colours_only_when_asked() {
    assert!(
        !lockgate(&["lint", "many-problems.yaml"])
            .stdout
            .contains('\u{1b}')
    );
    let run = lockgate(&["lint", "many-problems.yaml", "--color", "always"]);
    assert!(run.stdout.contains('\u{1b}'));
}

#[test]
fn underlines_inside_a_very_long_line() {
    let hooks: Vec<String> = (0..2000)
        .map(|index| {
            format!(
                "{{\"name\":\"h{index}.example.com\",\"clientConfig\":{{\"url\":\"https://é.example\"}},\"sideEffects\":\"None\",\"admissionReviewVersions\":[\"v1\"],\"timeoutSeconds\":{}}}",
                if index == 1000 { 99 } else { 9 }
            )
        })
        .collect();
    let json = format!(
        "{{\"apiVersion\":\"admissionregistration.k8s.io/v1\",\"kind\":\"ValidatingWebhookConfiguration\",\"metadata\":{{\"name\":\"long\"}},\"webhooks\":[{}]}}",
        hooks.join(",")
    );
    let run = lockgate_with_stdin(&["lint", "-"], &json);
    assert_eq!(run.code, Some(3));
    assert!(
        run.stdout.contains("webhooks[1000].timeoutSeconds"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.len() < 3000, "shows the place, not the line");
}

#[test]
fn explains_texts_that_yaml_takes_for_something_else() {
    let yaml = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: n}\n";
    let run = lockgate_with_stdin(&["lint", "-"], yaml);
    assert_eq!(run.code, Some(3));
    assert!(
        run.stdout
            .contains("`n` is a boolean unless it is quoted: \"n\""),
        "{}",
        run.stdout
    );
}

#[test]
fn checks_policies_and_bindings() {
    let run = lockgate(&["lint", "-o", "json", "policies.yaml", "--exclude", "W046"]);
    assert_eq!(run.code, Some(3));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let told: Vec<(&str, u64)> = findings
        .iter()
        .map(|finding| {
            let message = finding["message"].as_str().unwrap();
            let message = message.lines().next().unwrap();
            (message, finding["line"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(
        told,
        [
            (r#"unknown field "spec.validations[0].messge""#, 13),
            (
                r#"spec.validations[0].expression: Invalid value: "variables.replicsa <= 5": compilation failed: ERROR: <input>:1:10: undefined field 'replicsa'"#,
                12
            ),
            (
                r#"spec.validations[1].expression: Invalid value: "object.spec.paused": must evaluate to bool but got dyn"#,
                14
            ),
            (
                r#"spec.validations[1].reason: Unsupported value: "Unauthorized": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge""#,
                15
            ),
            (
                r#"spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#,
                23
            ),
        ]
    );
    assert_eq!(report["objects"].as_array().unwrap().len(), 3);
}

/// A webhook that the API server accepts but that is risky.
const RISKY: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: everything}
webhooks:
- name: everything.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}]
  timeoutSeconds: 30
  sideEffects: None
  admissionReviewVersions: [v1]
";

fn risks(args: &[&str], stdin: &str) -> Vec<String> {
    let args = [&["lint", "-f", "-", "-o", "json"], args].concat();
    let run = lockgate_with_stdin(&args, stdin);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let rules = findings
        .iter()
        .map(|finding| finding["rule"].as_str().unwrap().to_owned());
    rules.collect()
}

#[test]
fn finds_risks_that_an_api_server_accepts() {
    let found = risks(&[], RISKY);
    for rule in [
        "W001", "W003", "W004", "W005", "W006", "W007", "W008", "W010",
    ] {
        assert!(found.iter().any(|id| id == rule), "{rule}: {found:?}");
    }
    assert!(risks(&["--profile", "none"], RISKY).is_empty());
    let run = lockgate_with_stdin(&["lint", "-"], RISKY);
    assert_eq!(run.code, Some(3));
    assert!(run.stdout.contains("error[W001]"), "{}", run.stdout);
    assert!(run.stdout.contains("<stdin>:8:19"), "{}", run.stdout);
    // The API server accepts it.
    assert!(!run.stdout.contains("rejected"), "{}", run.stdout);
}

#[test]
fn profiles_and_exclusions_choose_rules() {
    let has = |args: &[&str], rule: &str| risks(args, RISKY).iter().any(|id| id == rule);
    assert!(has(&["--profile", "availability"], "W043"));
    assert!(!has(&["--profile", "security"], "W043"));
    assert!(!has(
        &["--exclude", "w001,W004", "--exclude", "W007"],
        "W001"
    ));
    assert!(!has(
        &["--exclude", "w001,W004", "--exclude", "W007"],
        "W007"
    ));
    assert!(has(&["--exclude", "W001"], "W007"));
    let annotated = RISKY.replace(
        "metadata: {name: everything}",
        "metadata: {name: everything, annotations: {lint.lockgate.dev/ignore: '*'}}",
    );
    assert!(risks(&[], &annotated).is_empty());
}

#[test]
fn a_file_suppresses_what_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("accepted");
    let path = file.to_str().unwrap();
    std::fs::write(
        &file,
        "W001 ValidatingWebhookConfiguration/everything # until 2.0\n",
    )
    .unwrap();
    let found = risks(&["--ignore-file", path], RISKY);
    assert!(!found.contains(&String::from("W001")) && found.contains(&String::from("W007")));
    std::fs::write(&file, "\nW999\n").unwrap();
    let run = lockgate_with_stdin(&["lint", "-", "--ignore-file", path], RISKY);
    assert_eq!(run.code, Some(4));
    assert!(
        run.stderr.contains("accepted:2: unknown rule `W999`"),
        "{}",
        run.stderr
    );
}

#[test]
fn an_empty_stream_does_not_pass_when_something_is_required() {
    assert_eq!(lockgate_with_stdin(&["lint", "-f", "-"], "").code, Some(0));
    let run = lockgate_with_stdin(&["lint", "-f", "-", "--require", "1"], "");
    assert_eq!(run.code, Some(4));
    assert!(
        run.stderr.contains("found 0 objects, expected at least 1"),
        "{}",
        run.stderr
    );
    let run = lockgate(&["lint", "good.yaml", "--require", "1"]);
    assert_eq!(run.code, Some(0), "{}", run.transcript());
}

#[test]
fn explains_a_rule() {
    let run = lockgate(&["lint", "--explain", "w011"]);
    assert_eq!(run.code, Some(0));
    assert!(
        run.stdout
            .starts_with("# W011\n\n**webhooks depend on each other to start.**")
    );
    assert!(run.stdout.contains("Bad:") && run.stdout.contains("Good:"));
    let run = lockgate(&["lint", "--explain", "W999"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("unknown rule `W999`"), "{}", run.stderr);
}

#[test]
fn reports_as_junit_and_markdown() {
    let junit = lockgate(&["lint", "-o", "junit", "good.yaml", "many-problems.yaml"]);
    assert_eq!(junit.code, Some(3));
    assert!(
        junit.stdout.contains("tests=\"2\" failures=\"1\""),
        "{}",
        junit.stdout
    );
    assert!(
        junit
            .stdout
            .contains("Invalid value: &quot;not a key&quot;")
    );
    assert!(
        junit.stdout.contains("expression: Invalid value") && !junit.stdout.contains("<input>")
    );
    let markdown = lockgate_with_stdin(&["lint", "-", "-o", "markdown"], RISKY);
    assert!(markdown.stdout.starts_with("**lockgate lint**: "));
    assert!(
        markdown.stdout.contains(
            "| error | W001 | &lt;stdin>:8 | `everything.example.com`: a call may take 30 s |"
        ),
        "{}",
        markdown.stdout
    );
}

#[test]
fn manifests_around_a_webhook_are_judged_with_it() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: hooks}\n";
    let found = risks(&[], &format!("{RISKY}{service}"));
    assert!(found.contains(&String::from("W041")), "{found:?}");
    assert!(!risks(&[], RISKY).contains(&String::from("W041")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_read_as_files_are() {
    use super::served::{Client, Home, tls};
    let home = Home::new();
    let (served, port) = home.start_ready();
    let mut client = Client::connect(&tls(&home.data()), port).await.unwrap();
    let configuration = serde_json::json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "everything"},
        "webhooks": [{
            "name": "everything.example.com", "clientConfig": {"service": {"namespace": "hooks", "name": "gone"}}, "timeoutSeconds": 30,
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let (code, _) = client
        .send("POST", path, Some(&configuration))
        .await
        .unwrap();
    assert_eq!(code, 201);
    let kubeconfig = home.path().join("kubeconfig").display().to_string();
    let run = tokio::task::spawn_blocking(move || {
        lockgate(&["lint", "--kubeconfig", &kubeconfig, "-o", "json"])
    });
    let run = run.await.unwrap();
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    for rule in ["W001", "W003", "W007"] {
        assert!(run.stdout.contains(rule), "{rule}: {}", run.stdout);
    }
    served.stop();
    let run = lockgate(&["lint", "--kubeconfig", "/nonexistent"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr.contains("cannot use the kubeconfig"),
        "{}",
        run.stderr
    );
}

/// The API server reports only the first value that cannot be decoded; `lint` reports all of them.
#[test]
fn tells_every_value_that_cannot_be_decoded() {
    let text = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: 5, labels: [a]}
webhoks: []
webhooks:
- name: 3
  timeoutSeconds: soon
  rules:
    operations: CREATE
- sideEffects: 1.5
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: 7, validationActions: Deny, matchResource: {}}
";
    let run = lockgate_with_stdin(
        &["lint", "-f", "-", "-o", "json", "--profile", "none"],
        text,
    );
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    let findings = told["findings"].as_array().unwrap().iter();
    let mut places: Vec<(u64, &str)> = findings
        .map(|it| (it["line"].as_u64().unwrap(), it["rule"].as_str().unwrap()))
        .collect();
    places.sort_unstable();
    let decode = [3, 3, 6, 7, 9, 10, 15, 15].map(|line| (line, "decode"));
    let unknown = [(4, "unknown-field"), (15, "unknown-field")];
    let mut wanted: Vec<(u64, &str)> = decode.into_iter().chain(unknown).collect();
    wanted.sort_unstable();
    assert_eq!(places, wanted, "{told:#}");
}

/// A CEL rule in the schema of a CustomResourceDefinition is underlined at its position.
#[test]
fn underlines_rules_of_schemas() {
    let text = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: carts.shop.example}
spec:
  group: shop.example
  scope: Namespaced
  names: {plural: carts, kind: Cart, singular: cart, listKind: CartList}
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
            - rule: self.siz > 1
            properties: {size: {type: integer}}
";
    let run = lockgate_with_stdin(&["lint", "-f", "-", "-o", "json"], text);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["findings"][0]["rule"], "W048", "{told:#}");
    assert_eq!(told["findings"][0]["line"], 19, "{told:#}");
}
