//! `lockgate explain`, `test`, `capture`, `replay` and `init` as processes: exit codes, invalid input, a live server.

use std::process::Command;

use super::served::{Home, Served, signal};
use super::{lockgate, lockgate_with_stdin};

/// Runs without a panic, with this exit code and one clear message.
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
        "no object found",
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
        "no manifests, cluster or webhook given",
    );
    complains(&["capture", "audit", "-"], "not json", 4, "<stdin>:1: ");
    complains(
        &["capture", "audit", "-"],
        "{}",
        4,
        "no usable audit event found",
    );
    complains(
        &["init", "policy", "Bad_Name"],
        "",
        2,
        "is not a valid project name",
    );
    complains(
        &[
            "init",
            "webhook",
            "x",
            "--directory",
            "new",
            "--source",
            "folder",
        ],
        "",
        2,
        "`folder` is not a Lockgate checkout",
    );
    complains(
        &["init", "policy", "x", "--directory", "nowhere/x"],
        "",
        1,
        "cannot write to `nowhere`",
    );
    complains(&["test", "--jobs", "0", "."], "", 2, "0 is not in 1..=256");
    complains(
        &["init", "policy", "x", "--directory", "folder"],
        "",
        2,
        "already exists",
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

/// A server captures applied objects, explain reads the capture, and replay shows the effect of a stricter policy.
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
    assert!(again.stderr.contains("already exists"), "{}", again.stderr);
}

/// An expression that only newer versions support is invalid input for an older one, and so is a kind it does not
/// serve.
#[test]
fn replays_on_another_kubernetes_version() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let review = serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "operation": "CREATE",
        "name": "m", "namespace": "shop", "userInfo": {"username": "ann"},
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}},
    }});
    std::fs::write(file("capture.jsonl"), format!("{review}\n")).unwrap();
    let sorted = POLICY.replace(
        "object.data.size() < 2",
        "object.data.map(k, k).sort().size() < 2",
    );
    std::fs::write(file("policy.yaml"), sorted).unwrap();
    let mutating = "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, \
                    metadata: {name: m}, spec: {policyName: m}}";
    std::fs::write(file("mutating.yaml"), mutating).unwrap();
    let (capture, policy) = (file("capture.jsonl"), file("policy.yaml"));
    let replay = |more: &[&str]| lockgate(&[&["replay", &capture, "-f"], more].concat());
    for version in ["1.36", "1.35"] {
        let run = replay(&[&policy, "--kube-version", version]);
        assert_eq!(run.code, Some(0), "{version}: {}{}", run.stdout, run.stderr);
    }
    for (file, version, message) in [
        (&policy, "1.34", "undeclared reference to 'sort'"),
        (
            &file("mutating.yaml"),
            "1.35",
            "no matches for kind \"MutatingAdmissionPolicyBinding\"",
        ),
        (
            &policy,
            "1.20",
            "is no Kubernetes version from 1.33 to 1.37",
        ),
    ] {
        let run = replay(&[file, "--kube-version", version]);
        let code = if version == "1.20" { 2 } else { 4 };
        assert_eq!(run.code, Some(code), "{}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(message), "{}", run.stderr);
    }
}

/// The tests are rerun when a file changes, whatever their previous result.
#[test]
fn watched_tests_run_again_when_a_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("p");
    let made = lockgate(&[
        "init",
        "policy",
        "my-policy",
        "--directory",
        project.to_str().unwrap(),
    ]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command.args(["test", "--watch"]).arg(&project);
    let mut watching = Served::start(command);
    let mut until = |summary: &str| while !watching.line().contains(summary) {};
    until("2 cases, 2 passed");
    let denied = project.join("tests/my-policy.unsigned.deny.object.yaml");
    let allowed = project.join("tests/my-policy.signed.allow.object.yaml");
    let text = std::fs::read_to_string(&denied).unwrap();
    std::fs::copy(&allowed, &denied).unwrap();
    until("2 cases, 1 passed, 1 failed");
    // An unreadable suite does not stop the watch.
    std::fs::write(project.join("policy.yaml.new"), "a: [").unwrap();
    let policy = std::fs::read_to_string(project.join("policy.yaml")).unwrap();
    std::fs::rename(project.join("policy.yaml.new"), project.join("policy.yaml")).unwrap();
    std::fs::write(&denied, text).unwrap();
    std::fs::write(project.join("policy.yaml"), policy).unwrap();
    until("2 cases, 2 passed");
    // A new file counts as a change.
    std::fs::copy(
        &allowed,
        project.join("tests/my-policy.again.allow.object.yaml"),
    )
    .unwrap();
    until("3 cases, 3 passed");
    signal("INT", watching.pid());
    assert_eq!(watching.exit_code(), Some(130));
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

/// Posts a review to a webhook: the status code and the response.
async fn posted(url: &str, ca: &str, review: &serde_json::Value) -> (u16, serde_json::Value) {
    use lockgate_admission::call::{Caller as _, Post};
    let caller = lockgate_admission::https::HttpsCaller::new(Default::default());
    let config = lockgate_api::registration::hub::ClientConfig {
        url: Some(url.to_owned()),
        service: None,
        ca_bundle: Some(lockgate_api::decode::Bytes(ca.as_bytes().to_vec())),
    };
    let client = caller.client(&config).unwrap();
    let body = review.to_string().into_bytes().into();
    let deadline = Some(std::time::Instant::now() + std::time::Duration::from_secs(30));
    let answer = client.post(Post { body, deadline }).await.result.unwrap();
    (
        answer.code,
        serde_json::from_slice(&answer.body).unwrap_or_default(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_in_front_of_a_webhook_passes_its_answers_on() {
    use lockgate_testkit::{ScriptedResponse, WebhookServer};
    use serde_json::json;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let webhook = WebhookServer::start().await;
    std::fs::write(file("webhook-ca.crt"), webhook.ca_pem()).unwrap();
    let patch = json!([{"op": "copy", "from": "/metadata/name", "path": "/metadata/generateName"}]);
    let denial = json!({"allowed": false, "status": {"code": 409, "reason": "Conflict", "message": "taken"},
        "warnings": ["careful"], "auditAnnotations": {"why": "taken"}});
    webhook.script(
        "/hook",
        [
            ScriptedResponse::patch(&patch),
            ScriptedResponse::respond(denial),
            ScriptedResponse::http(500, "broken"),
        ],
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    command.args([
        "capture",
        "webhook",
        "--to",
        &file("capture.jsonl"),
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--shutdown-delay-duration=0",
    ]);
    command.args([
        "--self-signed=127.0.0.1",
        "--ca-out",
        &file("ca.crt"),
        "--forward",
        &webhook.url("/hook"),
    ]);
    command.args([
        "--forward-ca-file",
        &file("webhook-ca.crt"),
        "--forward-name=hook.example.com",
    ]);
    let mut served = Served::start(command);
    let url = served.line();
    let ca = std::fs::read_to_string(file("ca.crt")).unwrap();
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Secret"},
        "resource": {"group": "", "version": "v1", "resource": "secrets"}, "operation": "CREATE",
        "name": "s", "namespace": "shop", "userInfo": {"username": "ann"},
        "object": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "aHVudGVyMg=="}},
    }});
    let (code, answer) = posted(&url, &ca, &review).await;
    assert_eq!(
        (code, &answer["response"]["allowed"]),
        (200, &json!(true)),
        "{answer}"
    );
    assert_eq!(answer["response"]["uid"], "u-1");
    let made = lockgate_go::base64::decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
    let made: serde_json::Value = serde_json::from_slice(&made).unwrap();
    assert_eq!(
        made,
        json!([{"op": "add", "path": "/metadata/generateName", "value": "s"}])
    );
    let (code, answer) = posted(&url, &ca, &review).await;
    let response = &answer["response"];
    assert_eq!(
        (code, &response["allowed"]),
        (200, &json!(false)),
        "{answer}"
    );
    assert_eq!(response["status"]["code"], 409);
    assert_eq!(response["status"]["message"], "taken");
    assert_eq!(response["warnings"], json!(["careful"]));
    assert_eq!(response["auditAnnotations"], json!({"why": "taken"}));
    // An invalid response is also invalid for the API server.
    let (code, answer) = posted(&url, &ca, &review).await;
    assert!(code >= 500, "{code}: {answer}");
    // The webhook received the full review, but the capture has no secret data.
    let sent = webhook.requests();
    assert!(String::from_utf8_lossy(&sent[0].body).contains("aHVudGVyMg=="));
    served.stop();
    let capture = std::fs::read_to_string(file("capture.jsonl")).unwrap();
    assert!(!capture.contains("aHVudGVyMg=="), "{capture}");
    let capture = lockgate_offline::capture::read("capture", &capture).unwrap();
    let calls: Vec<_> = capture
        .records
        .iter()
        .map(|record| &record.calls[0])
        .collect();
    assert!(calls.iter().all(|call| call.webhook == "hook.example.com"));
    assert_eq!(calls[0].response.as_ref().unwrap()["allowed"], true);
    assert_eq!(
        calls[1].response.as_ref().unwrap()["status"]["message"],
        "taken"
    );
    assert!(
        calls[2].error.as_ref().unwrap().contains("broken") && calls[2].response.is_none(),
        "{:?}",
        calls[2]
    );
    let decision = capture.records[1].decision.as_ref().unwrap();
    assert_eq!((decision.allowed, decision.code), (false, Some(409)));
    assert_eq!(capture.records[2].decision, None);
    webhook.stop().await;
    // The webhook's configuration, redirected to the capture.
    let of = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: hook, uid: x}\n\
              webhooks:\n- {name: a.example.com, clientConfig: {url: 'https://a.example.com/'}, timeoutSeconds: 7}\n\
              - {name: b.example.com, clientConfig: {url: 'https://b.example.com/'}}\n";
    let args = [
        "capture",
        "manifest",
        "--service",
        "tools/capture",
        "--of",
        "-",
    ];
    let run = lockgate_with_stdin(&args, of);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(
        run.stderr.contains("a.example.com, b.example.com"),
        "{}",
        run.stderr
    );
    let run = lockgate_with_stdin(&[&args[..], &["--webhook", "a.example.com"]].concat(), of);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(
        run.stdout.contains("timeoutSeconds: 7") && run.stdout.contains("path: /capture"),
        "{}",
        run.stdout
    );
    assert!(
        !run.stdout.contains("https://a.example.com/")
            && run.stdout.contains("https://b.example.com/")
    );
    assert!(!run.stdout.contains("uid:"), "{}", run.stdout);
    for (args, message) in [
        (&["--forward", "http://x/"][..], "must begin with https://"),
        (&["--forward-name", "x"], "--forward <URL>"),
    ] {
        let run = lockgate(
            &[
                &[
                    "capture",
                    "webhook",
                    "--to",
                    "/nonexistent/f",
                    "--self-signed",
                    "x",
                ],
                args,
            ]
            .concat(),
        );
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(run.stderr.contains(message), "{}", run.stderr);
    }
}

/// The project of `init webhook` compiles and passes its tests against the crates of this repository. It shares their
/// target folder and lock file, so that it needs no network and builds little.
#[test]
fn a_new_webhook_compiles_and_passes_its_tests() {
    let scratch = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir_in(scratch).unwrap();
    let project = folder.path().join("teams");
    let made = lockgate(&[
        "init",
        "webhook",
        "teams",
        "--directory",
        project.to_str().unwrap(),
        "--source",
        root.to_str().unwrap(),
    ]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    std::fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    // The profile of this repository, so that its build artefacts are reused: it optimizes dependencies.
    std::fs::create_dir(project.join(".cargo")).unwrap();
    let mut profile = String::from(
        "[profile.dev]\ndebug = \"line-tables-only\"\n[profile.dev.package.\"*\"]\nopt-level = 1\ndebug = false\n",
    );
    let own = std::fs::read_dir(root.join("crates")).unwrap();
    let own = own.map(|folder| format!("lockgate-{}", folder.unwrap().file_name().display()));
    for name in own.chain([String::from("k8s-openapi")]) {
        profile.push_str(&format!("[profile.dev.package.{name}]\nopt-level = 0\n"));
    }
    std::fs::write(project.join(".cargo/config.toml"), profile).unwrap();
    let mut test = Command::new(env!("CARGO"));
    // Build scripts run again if the variables of this test's package differ, and overwrite what other tests link.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_") && name != "CARGO_HOME" {
            test.env_remove(name);
        }
    }
    let tested = test
        .args(["test", "--offline", "--quiet"])
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", scratch.parent().unwrap())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&tested.stdout);
    let complained = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{told}{complained}");
    let passed = told.split("test result: ok. ").skip(1);
    let passed = passed.filter_map(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    let written = include_str!("../../src/scaffold/webhook/webhook.rs.txt");
    let written = written.matches("#[test]").count() + written.matches("#[tokio::test").count();
    assert!(
        written > 0 && passed.sum::<u32>() as usize >= written,
        "{told}"
    );
}
