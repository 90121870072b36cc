//! `lockgate explain`, `test`, `capture`, `replay` and `init` as processes: exit codes, bad input, a live server.

use std::process::Command;

use super::served::{Home, Served};
use super::{lockgate, lockgate_with_stdin};

/// Runs without panicking, with this exit code and one clear message.
fn complains(args: &[&str], stdin: &str, code: i32, message: &str) {
    let run = lockgate_with_stdin(args, stdin);
    assert_eq!(
        run.code,
        Some(code),
        "{args:?}: {}{}",
        run.stdout,
        run.stderr
    );
    assert!(run.stderr.contains(message), "{args:?}: {}", run.stderr);
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    assert_eq!(run.stdout, "", "{args:?}");
}

#[test]
fn bad_input_gets_one_clear_message_and_its_exit_code() {
    let explain = |more: &[&'static str]| {
        let mut args = vec!["explain"];
        args.extend(more);
        args
    };
    complains(
        &explain(&["--object", "good.yaml"]),
        "",
        2,
        "no manifests and no cluster given",
    );
    complains(
        &explain(&["-f", "nowhere.yaml", "--object", "-"]),
        "",
        1,
        "cannot read `nowhere.yaml`",
    );
    complains(
        &explain(&["-f", "good.yaml", "--object", "-"]),
        "",
        4,
        "there is no object",
    );
    complains(
        &explain(&["-f", "good.yaml", "--object", "-"]),
        "a: [",
        4,
        "<stdin>:",
    );
    complains(
        &explain(&["-f", "good.yaml", "--object", "-"]),
        "kind: Pod",
        4,
        "the object has no apiVersion",
    );
    complains(
        &explain(&["-f", "many-problems.yaml", "--object", "-"]),
        "",
        4,
        "lockgate lint",
    );
    complains(
        &explain(&["-f", "good.yaml", "--request", "-"]),
        "{}",
        4,
        "not an AdmissionReview",
    );
    complains(&explain(&["-f", "good.yaml"]), "", 2, "--object");
    complains(
        &explain(&["--kubeconfig", "good.yaml", "--object", "-"]),
        "kind: Pod",
        1,
        "kubeconfig",
    );
    complains(&["test", "empty-folder"], "", 4, "found 0 cases");
    complains(&["test", "nowhere"], "", 1, "cannot read `nowhere`");
    complains(
        &["replay", "good.yaml", "-f", "good.yaml"],
        "",
        4,
        "not a capture",
    );
    complains(
        &["replay", "-"],
        "{\"format\":\"lockgate-capture\",\"version\":1,\"source\":\"x\"}",
        2,
        "nothing to replay on",
    );
    complains(&["capture", "audit", "-"], "not json", 4, "<stdin>:1: ");
    complains(
        &["capture", "audit", "-"],
        "{}",
        4,
        "no event could be used",
    );
    complains(
        &["init", "policy", "Bad_Name"],
        "",
        2,
        "cannot be the name of a project",
    );
    complains(
        &["init", "policy", "x", "--directory", "folder"],
        "",
        2,
        "exists already",
    );
}

#[test]
fn explains_a_captured_review() {
    let run = lockgate(&[
        "explain",
        "-f",
        "good.yaml",
        "--request",
        "review.json",
        "-o",
        "json",
    ]);
    assert!(matches!(run.code, Some(0 | 3)), "{}", run.stderr);
    let told: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(told["steps"].is_array());
}

const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]}
  validations: [{expression: 'object.data.size() < 2', message: few}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few}
spec: {policyName: few, validationActions: [Deny]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: default}, data: {a: '1'}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: default}, stringData: {p: hunter2}}
";

/// A server captures what it is applied, explain reads it, and replay shows what a tighter policy would change.
#[test]
fn a_server_is_explained_captured_and_replayed() {
    let home = Home::new();
    let file = |name: &str| home.path().join(name).display().to_string();
    std::fs::write(home.path().join("policy.yaml"), POLICY).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command.args(home.arguments());
    command.args([
        "-f",
        &file("policy.yaml"),
        "--capture",
        &file("capture.jsonl"),
    ]);
    let mut served = Served::start(command);
    served.port();
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: two}, data: {a: '1', b: '2'}}";
    let explained = lockgate_with_stdin(
        &[
            "explain",
            "--kubeconfig",
            &file("kubeconfig"),
            "--object",
            "-",
            "-o",
            "json",
        ],
        object,
    );
    assert_eq!(explained.code, Some(3), "{}", explained.stderr);
    let told: serde_json::Value = serde_json::from_str(&explained.stdout).unwrap();
    assert_eq!(told["decision"]["code"], 422);
    drop(served);
    let capture = std::fs::read_to_string(home.path().join("capture.jsonl")).unwrap();
    assert!(capture.contains("\"one\""), "{capture}");
    assert!(!capture.contains("hunter2"), "{capture}");
    let same = lockgate(&["replay", &file("capture.jsonl"), "-f", &file("policy.yaml")]);
    assert_eq!(same.code, Some(0), "{}{}", same.stdout, same.stderr);
    std::fs::write(
        home.path().join("tighter.yaml"),
        POLICY.replace("< 2", "< 1"),
    )
    .unwrap();
    let changed = lockgate(&[
        "replay",
        &file("capture.jsonl"),
        "-f",
        &file("tighter.yaml"),
    ]);
    assert_eq!(
        changed.code,
        Some(3),
        "{}{}",
        changed.stdout,
        changed.stderr
    );
    assert!(
        changed.stdout.contains("CREATE configmaps default/one"),
        "{}",
        changed.stdout
    );
    let again = lockgate(&[
        "serve",
        "--secure-port=0",
        "--capture",
        &file("capture.jsonl"),
    ]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);
}

#[test]
fn a_new_policy_passes_its_tests() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("p").display().to_string();
    let made = lockgate(&["init", "policy", "my-policy", "--directory", &project]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let tested = lockgate(&["test", &project, "--coverage"]);
    assert_eq!(tested.code, Some(0), "{}", tested.stdout);
    assert!(
        tested.stdout.contains("2 cases, 2 passed"),
        "{}",
        tested.stdout
    );
    let linted = lockgate(&[
        "lint",
        &format!("{project}/policy.yaml"),
        &format!("{project}/binding.yaml"),
    ]);
    assert_eq!(linted.code, Some(0), "{}", linted.stdout);
    let webhook = folder.path().join("w").display().to_string();
    let made = lockgate(&["init", "webhook", "my-hook", "--directory", &webhook]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let code = std::fs::read_to_string(format!("{webhook}/tests/webhook.rs")).unwrap();
    assert!(code.contains("my_hook"), "{code}");
    let manifest = std::fs::read_to_string(format!("{webhook}/Cargo.toml")).unwrap();
    assert!(!manifest.contains("FROM("), "{manifest}");
}
