//! `lockgate lint --fix` and `--capture`.

use std::path::Path;

use serde_json::Value;

use super::{Run, lockgate, lockgate_with_stdin};

/// Webhooks in common YAML layouts: a block with comments, a flow map, an anchor.
const CONFIGURATION: &str = "\
# Managed by the platform team.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}   # one line
webhooks:
  # The first.
  - name: images.example.com   # by name
    clientConfig:
      service: {namespace: hooks, name: webhook}
    rules:
      - operations: [CREATE]
        apiGroups: ['']
        apiVersions: [v1]
        resources: [pods]
    timeoutSeconds: 30         # long
    sideEffects: None
    admissionReviewVersions: [v1]
  - {name: flow.example.com, clientConfig: {service: {namespace: hooks, name: webhook}}, sideEffects: None, admissionReviewVersions: [v1],
     rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  - admissionReviewVersions: [v1]
    name: named.example.com
    sideEffects: None
    clientConfig:
      service: {namespace: hooks, name: webhook}
    namespaceSelector:
      matchExpressions:
        # Not the control plane.
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values:
            - kube-public
    rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
";

const FIXED: &str = "\
# Managed by the platform team.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}   # one line
webhooks:
  # The first.
  - name: images.example.com   # by name
    clientConfig:
      service: {namespace: hooks, name: webhook}
    rules:
      - operations: [CREATE]
        apiGroups: ['']
        apiVersions: [v1]
        resources: [pods]
    timeoutSeconds: 10         # long
    namespaceSelector:
      matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: NotIn
        values: [hooks, kube-system]
    sideEffects: None
    admissionReviewVersions: [v1]
  - {timeoutSeconds: 10, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [hooks, kube-system]}]}, name: flow.example.com, clientConfig: {service: {namespace: hooks, name: webhook}}, sideEffects: None, admissionReviewVersions: [v1],
     rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  - admissionReviewVersions: [v1]
    name: named.example.com
    sideEffects: None
    timeoutSeconds: 10
    clientConfig:
      service: {namespace: hooks, name: webhook}
    namespaceSelector:
      matchExpressions:
        # Not the control plane.
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values:
            - hooks
            - kube-system
            - kube-public
    rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
";

fn lint(file: &Path, args: &[&str]) -> Run {
    lockgate(&[&["lint", "-f", file.to_str().unwrap()], args].concat())
}

/// The rules with findings in a file.
fn found(file: &Path) -> Vec<String> {
    let run = lint(file, &["-o", "json"]);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let rules = findings
        .iter()
        .map(|it| it["rule"].as_str().unwrap().to_owned());
    rules.collect()
}

#[test]
fn files_are_fixed_and_keep_their_comments_and_layout() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("webhooks.yaml");
    std::fs::write(&file, CONFIGURATION).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.path().join("link.yaml");
    std::os::unix::fs::symlink("webhooks.yaml", &link).unwrap();
    let before = found(&file);
    for rule in ["W001", "W004", "W010"] {
        assert!(before.iter().any(|id| id == rule), "{rule}: {before:?}");
    }
    // Prints a diff, and writes nothing.
    let run = lint(&link, &["--fix", "--dry-run"]);
    assert_eq!(run.code, Some(3), "{}", run.transcript());
    assert!(
        run.stdout.contains(
            "-    timeoutSeconds: 30         # long\n+    timeoutSeconds: 10         # long\n"
        ),
        "{}",
        run.stdout
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), CONFIGURATION);
    let run = lint(&link, &["--fix"]);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        FIXED,
        "{}",
        run.transcript()
    );
    assert!(
        run.stderr.contains("fixed 6 findings in 1 files"),
        "{}",
        run.stderr
    );
    let left = found(&file);
    for rule in ["W001", "W004", "W010"] {
        assert!(!left.iter().any(|id| id == rule), "{rule}: {left:?}");
    }
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    // No temporary files are left, and no further fixes.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    let run = lint(&file, &["--fix"]);
    assert!(
        run.stderr.contains("fixed 0 findings in 0 files"),
        "{}",
        run.stderr
    );
}

#[test]
fn line_breaks_and_json_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("windows.yaml");
    std::fs::write(&file, CONFIGURATION.replace('\n', "\r\n")).unwrap();
    lint(&file, &["--fix"]);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        FIXED.replace('\n', "\r\n")
    );
    let json = folder.path().join("list.json");
    let text = r#"{
  "apiVersion": "v1",
  "kind": "List",
  "items": [
    {"apiVersion": "v1", "kind": "ConfigMap"},
    {
      "apiVersion": "admissionregistration.k8s.io/v1",
      "kind": "MutatingWebhookConfiguration",
      "metadata": {"name": "defaults"},
      "webhooks": [
        {
          "name": "defaults.example.com",
          "clientConfig": {"url": "https://hooks.example.com/"},
          "matchPolicy": "Exact",
          "namespaceSelector": {"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["kube-system"]}]},
          "rules": [{"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "resources": ["horizontalpodautoscalers"]}],
          "sideEffects": "None",
          "admissionReviewVersions": ["v1"]
        }
      ]
    }
  ]
}
"#;
    std::fs::write(&json, text).unwrap();
    let run = lint(&json, &["--fix"]);
    let wanted = text
        .replace(
            "        {\n          \"name\": \"def",
            "        {\n          \"timeoutSeconds\": 10,\n          \"name\": \"def",
        )
        .replace("\"Exact\"", "\"Equivalent\"")
        .replace(
            "\"key\": \"name\"",
            "\"key\": \"kubernetes.io/metadata.name\"",
        );
    assert_eq!(
        std::fs::read_to_string(&json).unwrap(),
        wanted,
        "{}",
        run.transcript()
    );
}

#[test]
fn what_two_webhooks_share_is_not_changed_for_both_by_accident() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shared.yaml");
    // Both webhooks share values by anchor and alias: a fix for the first would also change the second.
    let text = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: shared}
webhooks:
- name: a.example.com
  clientConfig: {service: {namespace: hooks, name: webhook}}
  rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  timeoutSeconds: &short 5
  namespaceSelector: &all {}
  sideEffects: None
  admissionReviewVersions: [v1]
- name: b.example.com
  clientConfig: {url: 'https://hooks.example.com/'}
  rules: [{operations: [CREATE], apiGroups: [example.com], apiVersions: [v1], resources: [widgets]}]
  timeoutSeconds: 5
  namespaceSelector: *all
  sideEffects: None
  admissionReviewVersions: [v1]
";
    std::fs::write(&file, text).unwrap();
    let run = lint(&file, &["--fix"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    assert!(
        run.stderr.contains("cannot apply the fixes safely"),
        "{}",
        run.stderr
    );
    assert_eq!(run.code, Some(3));
    // An anchor is kept, and its aliases keep their value.
    let used = text
        .replace("timeoutSeconds: &short 5", "timeoutSeconds: &time 30")
        .replace("  timeoutSeconds: 5\n", "  timeoutSeconds: *time\n");
    std::fs::write(&file, &used).unwrap();
    lint(&file, &["--fix"]);
    let fixed = used.replace("&time 30", "&time 10").replace("*time", "10");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), fixed);
}

#[test]
fn standard_input_is_fixed_to_standard_output() {
    let run = lockgate_with_stdin(&["lint", "-f", "-", "--fix"], CONFIGURATION);
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("--fix cannot write to standard input"),
        "{}",
        run.stderr
    );
    assert_eq!(run.stdout, "");
    let run = lockgate_with_stdin(&["lint", "-f", "-", "--fix", "--stdout"], CONFIGURATION);
    assert_eq!(run.stdout, FIXED);
    assert!(
        run.stderr.contains("1 webhook configuration"),
        "{}",
        run.stderr
    );
    let run = lockgate_with_stdin(
        &["lint", "-f", "-", "--fix", "--profile", "none"],
        CONFIGURATION,
    );
    assert_eq!(run.code, Some(2));
    let run = lockgate(&["lint", "good.yaml", "--dry-run"]);
    assert_eq!(run.code, Some(2));
}

#[test]
fn a_file_that_cannot_be_written_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.yaml");
    // A document that cannot be parsed: the file is not changed.
    let text = format!("{CONFIGURATION}---\n{{ : [\n");
    std::fs::write(&file, &text).unwrap();
    let run = lint(&file, &["--fix"]);
    assert_eq!(run.code, Some(4), "{}", run.transcript());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn captured_calls_are_judged_with_the_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let rule = lockgate_lint::find("W031").unwrap();
    let captured = rule.captured.unwrap();
    let manifests = folder.path().join("webhooks.yaml");
    std::fs::write(&manifests, rule.bad).unwrap();
    let capture = folder.path().join("capture.jsonl");
    let header = r#"{"format":"lockgate-capture","version":1,"source":"serve"}"#;
    std::fs::write(&capture, format!("{header}\n{}\n", captured.bad)).unwrap();
    let path = capture.to_str().unwrap();
    let run = lint(&manifests, &["--capture", path, "-o", "json"]);
    assert_eq!(run.code, Some(3), "{}", run.transcript());
    let told = "replace the whole list `spec.containers` (CREATE pods shop/web)";
    assert!(
        run.stdout.contains("\"W031\"") && run.stdout.contains(told),
        "{}",
        run.stdout
    );
    // Webhooks that respond are called once more.
    let hooks = folder.path().join("hooks.yaml");
    let script = "webhooks:\n- name: sidecars.example.com\n  patch: [{op: add, path: /spec/containers/-, value: {name: p, image: i}}]\n";
    std::fs::write(&hooks, script).unwrap();
    let run = lint(
        &manifests,
        &["--capture", path, "--hooks", hooks.to_str().unwrap()],
    );
    assert!(run.stdout.contains("warning[W032]"), "{}", run.stdout);
    let run = lockgate(&["lint", "good.yaml", "--capture", path]);
    assert!(
        run.stderr
            .contains("no captured call matches a webhook of these configurations"),
        "{}",
        run.stderr
    );
    let run = lint(&manifests, &["--capture", manifests.to_str().unwrap()]);
    assert_eq!(run.code, Some(4));
    assert!(run.stderr.contains("not a capture"), "{}", run.stderr);
}
