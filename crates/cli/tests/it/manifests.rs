//! `lockgate manifests`

use std::fs;

use serde_json::Value;

use super::{fixtures, lockgate, lockgate_with_stdin};

/// Runs the command in the folder of its fixtures.
fn manifests(args: &[&str]) -> super::Run {
    lockgate(&[&["manifests"], args].concat())
}

#[test]
fn prints_what_controller_gen_prints() {
    let mut compared = 0;
    for case in fs::read_dir(fixtures().join("manifests/kubebuilder")).unwrap() {
        let folder = case.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let run = manifests(&[folder.to_str().unwrap()]);
        let want = fs::read_to_string(folder.join("manifests.yaml")).unwrap();
        assert_eq!(run.stdout, want, "{}: {}", folder.display(), run.stderr);
        assert_eq!(run.code, Some(0));
        compared += 1;
    }
    assert_eq!(compared, 6);
}

#[test]
fn says_which_comments_controller_gen_does_not_see() {
    let run = manifests(&["manifests/kubebuilder/placement"]);
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 8, "{}", run.stderr);
    let first = "manifests/kubebuilder/placement/a.go:4:4: marker ignored, as controller-gen does";
    assert!(lines[0].starts_with(first), "{}", lines[0]);
}

#[test]
fn reads_attributes_and_comments_of_rust() {
    insta::assert_snapshot!(manifests(&["manifests/rust"]).transcript());
}

#[test]
fn goes_where_it_is_told() {
    let service = manifests(&[
        "manifests/rust",
        "--service",
        "policy/hooks:8443",
        "--inject-ca-from",
        "policy/serving-cert",
        "--paths",
        "logical",
    ]);
    insta::assert_snapshot!(service.transcript());
    let args = [
        "manifests/rust",
        "-o",
        "json",
        "--url",
        "https://localhost:9443",
        "--ca-bundle",
        "manifests/ca.crt",
    ];
    let url = manifests(&args);
    let list: Value = serde_json::from_str(&url.stdout).unwrap();
    let client = &list["items"][0]["webhooks"][0]["clientConfig"];
    assert_eq!(
        client["url"],
        "https://localhost:9443/mutate-apps-v1-deployment"
    );
    assert!(
        client["caBundle"]
            .as_str()
            .unwrap()
            .starts_with("LS0tLS1CRUdJTi")
    );
}

#[test]
fn an_api_server_accepts_what_it_prints() {
    for args in [
        &["manifests/rust"][..],
        &["manifests/rust", "--url", "https://localhost:9443"],
        &["manifests/rust", "-o", "json", "--paths", "logical"],
        &["manifests/kubebuilder/names"],
    ] {
        let printed = manifests(args);
        let linted =
            lockgate_with_stdin(&["lint", "-f", "-", "--profile", "none"], &printed.stdout);
        assert_eq!(linted.code, Some(0), "{}", linted.transcript());
    }
}

#[test]
fn tells_every_mistake_with_its_place() {
    insta::assert_snapshot!(manifests(&["manifests/wrong"]).transcript());
}

#[test]
fn tells_what_an_api_server_would_refuse() {
    insta::assert_snapshot!(manifests(&["manifests/refused"]).transcript());
}

#[test]
fn a_file_that_is_no_rust_is_a_mistake() {
    let run = manifests(&["manifests/wrong-syntax.rs"]);
    assert_eq!(run.code, Some(4));
    assert!(
        run.stderr.starts_with("error: manifests/wrong-syntax.rs:"),
        "{}",
        run.stderr
    );
}

#[test]
fn compares_with_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manifests.yaml");
    let file = file.to_str().unwrap();
    let written = manifests(&["manifests/rust", "--output-file", file]);
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""));
    let same = manifests(&["manifests/rust", "--check", file]);
    assert_eq!((same.code, same.stdout.as_str()), (Some(0), ""));
    assert_eq!(
        fs::read_to_string(file).unwrap(),
        manifests(&["manifests/rust"]).stdout
    );

    let changed = fs::read_to_string(file)
        .unwrap()
        .replace("timeoutSeconds: 5", "timeoutSeconds: 9");
    fs::write(file, changed).unwrap();
    let drifted = manifests(&["manifests/rust", "--check", file]);
    assert_eq!(drifted.code, Some(3));
    assert!(
        drifted
            .stdout
            .contains("\n-  timeoutSeconds: 9\n+  timeoutSeconds: 5\n"),
        "{}",
        drifted.stdout
    );
    let missing = manifests(&["manifests/rust", "--check", "no-such-file"]);
    assert_eq!(missing.code, Some(1));
}

#[test]
fn a_wrong_command_line_is_told() {
    for (args, code, want) in [
        (&[][..], 2, "PATH"),
        (
            &["manifests/rust", "--service", "hooks"],
            2,
            "`hooks` is not a Service reference",
        ),
        (
            &["manifests/rust", "--service", "a/b:x"],
            2,
            "`a/b:x` is not a Service reference",
        ),
        (
            &["manifests/rust", "--url", "http://x"],
            2,
            "`http://x` does not start with https://",
        ),
        (
            &["manifests/rust", "--url", "https://x", "--service", "a/b"],
            2,
            "cannot be used with",
        ),
        (
            &["manifests/rust", "--inject-ca-from", "cert"],
            2,
            "`cert` is not a Certificate reference",
        ),
        (
            &["manifests/rust", "--ca-bundle", "good.yaml"],
            4,
            "`good.yaml` contains no PEM certificate",
        ),
        (&["empty-folder"], 4, "no webhook markers found"),
        (&["no-such-folder"], 1, "cannot read `no-such-folder`"),
    ] {
        let run = manifests(args);
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(want), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn the_program_of_the_tutorial_needs_nothing_in_its_attributes() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/first-webhook");
    let sources = format!("{example}/src");
    let run = lockgate(&["manifests", &sources, "--service", "tutorial/first-webhook"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let registered = fs::read_to_string(format!("{example}/webhook.yaml")).unwrap();
    assert_eq!(run.stdout, registered);
}

/// A file of kubebuilder's tutorial.
fn example(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cronjob/");
    format!("{root}{path}")
}

const BEHIND: [&str; 4] = [
    "--service",
    "tutorial/cronjob-webhooks:8443",
    "--inject-ca-from",
    "tutorial/serving-cert",
];

#[test]
fn prints_the_conversion_of_a_definition_as_a_patch() {
    let run = manifests(&[&[example("src").as_str()], &BEHIND[..]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let (configurations, patch) = run
        .stdout
        .split_once("---\napiVersion: apiextensions.k8s.io/v1\n")
        .unwrap();
    assert_eq!(configurations.matches("\nkind: ").count(), 2);
    assert_eq!(
        patch,
        "\
kind: CustomResourceDefinition
metadata:
  annotations:
    cert-manager.io/inject-ca-from: tutorial/serving-cert
  name: cronjobs.batch.tutorial.kubebuilder.io
spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig:
        service:
          name: cronjob-webhooks
          namespace: tutorial
          path: /convert
          port: 8443
      conversionReviewVersions:
      - v1
"
    );
}

#[test]
fn prints_definitions_with_their_conversion() {
    let (source, definition) = (example("src"), example("crd.yaml"));
    let url = [
        "--url",
        "https://localhost:9443",
        "--ca-bundle",
        "manifests/ca.crt",
    ];
    for place in [&BEHIND[..], &url[..]] {
        let args = [source.as_str(), "--definition", &definition, "-o", "json"];
        let run = manifests(&[&args[..], place].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let list: Value = serde_json::from_str(&run.stdout).unwrap();
        let printed = &list["items"][2];
        assert_eq!(printed["spec"]["versions"].as_array().unwrap().len(), 2);
        let conversion = &printed["spec"]["conversion"];
        assert_eq!(conversion["strategy"], "Webhook");
        let client = &conversion["webhook"]["clientConfig"];
        if place == BEHIND {
            assert_eq!(client["service"]["path"], "/convert");
            let annotations = &printed["metadata"]["annotations"];
            assert_eq!(
                annotations["cert-manager.io/inject-ca-from"],
                "tutorial/serving-cert"
            );
        } else {
            assert_eq!(client["url"], "https://localhost:9443/convert");
            assert!(
                client["caBundle"]
                    .as_str()
                    .unwrap()
                    .starts_with("LS0tLS1CRUdJTi")
            );
        }
        let linted = lockgate_with_stdin(&["lint", "-f", "-", "--profile", "none"], &run.stdout);
        assert_eq!(linted.code, Some(0), "{}", linted.transcript());
    }
}

#[test]
fn reads_conversions_of_go_beside_the_hub() {
    let run = manifests(&["manifests/conversion/hub.go", "-o", "json"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let list: Value = serde_json::from_str(&run.stdout).unwrap();
    let patch = &list["items"][0];
    assert_eq!(
        patch["metadata"]["name"],
        "cronjobs.batch.tutorial.kubebuilder.io"
    );
    let webhook = &patch["spec"]["conversion"]["webhook"];
    assert_eq!(
        webhook["conversionReviewVersions"],
        serde_json::json!(["v1", "v1beta1"])
    );
    assert_eq!(
        webhook["clientConfig"]["service"]["path"],
        "/convert-cronjobs"
    );
}

#[test]
fn tells_what_is_wrong_with_conversions() {
    insta::assert_snapshot!(manifests(&["manifests/conversion"]).transcript());
    let definition = example("crd.yaml");
    let missing = manifests(&["manifests/conversion/other.go", "--definition", &definition]);
    assert_eq!(missing.code, Some(4));
    assert!(
        missing
            .stderr
            .contains("other.go:3:4: no file of --definition contains `notes.example.com`"),
        "{}",
        missing.stderr
    );
    // The CustomResourceDefinition has no scope.
    let refused = manifests(&[
        "manifests/conversion/other.go",
        "--definition",
        "manifests/conversion/refused.yaml",
    ]);
    assert_eq!(refused.code, Some(4));
    assert!(
        refused.stderr.contains("spec.scope: Required value"),
        "{}",
        refused.stderr
    );
}
