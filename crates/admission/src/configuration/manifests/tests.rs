use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::super::{Configurations, Reload, StaticManifests};
use super::*;

const VALIDATING: ConfigurationKind = ConfigurationKind::Validating;

fn manifest(name: &str, url: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: {name}
webhooks:
- name: h.example.com
  clientConfig:
    {url}
  admissionReviewVersions: [v1]
  sideEffects: None
"
    )
}

fn fine(name: &str) -> String {
    manifest(name, "url: https://h.example.com/")
}

/// A directory with these files.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    directory
}

#[test]
fn reads_every_form_sorted_by_name() {
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}",
        fine("l.static.k8s.io").trim_end().replace('\n', "\n  ")
    );
    let typed = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfigurationList\nitems:\n- {}",
        fine("t.static.k8s.io").trim_end().replace('\n', "\n  ")
    );
    let two = format!(
        "---\n{}---\n---\n{}",
        fine("z.static.k8s.io"),
        fine("b.static.k8s.io")
    );
    let found = directory(&[
        ("b.yaml", &two),
        ("a.YML", &fine("y.static.k8s.io")),
        ("c.yml", &list),
        ("d.yaml", &typed),
        (
            "e.json",
            r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"a.static.k8s.io"}}"#,
        ),
        ("empty.yaml", ""),
        ("notes.txt", "not a manifest"),
    ]);
    fs::create_dir(found.path().join("deep.yaml")).unwrap();
    let read = load(found.path(), VALIDATING).unwrap();
    let names: Vec<&str> = read
        .configurations
        .iter()
        .map(|configuration| &*configuration.metadata.name)
        .collect();
    let want = ["a", "b", "l", "t", "y", "z"].map(|name| format!("{name}.static.k8s.io"));
    assert_eq!(names, want);
    assert_eq!(read.hash.len(), "sha256:".len() + 64);
    // Defaults are applied.
    let webhook = &read.configurations[1].webhooks()[0];
    assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
    assert_eq!(load(directory(&[]).path(), VALIDATING).unwrap().hash, "");
}

#[test]
fn says_what_is_wrong_and_where() {
    let name = "x.static.k8s.io";
    let mutating = fine(name).replace("Validating", "Mutating");
    let old = fine(name).replace("k8s.io/v1\n", "k8s.io/v1beta1\n");
    let service = manifest(name, "service: {namespace: a, name: b}");
    let unknown = fine(name).replace("sideEffects", "sideEffect");
    for (content, want) in [
        (
            fine("plain"),
            "\"plain\" in file \"FILE\" must have a name ending with \".static.k8s.io\"",
        ),
        (
            service,
            "webhook \"h.example.com\" in \"x.static.k8s.io\" (file \"FILE\"): clientConfig.service \
             is not supported for static manifests; use clientConfig.url instead",
        ),
        (
            mutating,
            "unsupported resource type *v1.MutatingWebhookConfiguration",
        ),
        (
            old,
            "unsupported resource type *v1beta1.ValidatingWebhookConfiguration",
        ),
        (
            String::from("apiVersion: v1\nkind: ConfigMap\n"),
            "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \
             \"k8s.io/kubernetes/pkg/admission/plugin/webhook/manifest/loader/loader.go:41\"",
        ),
        (
            String::from("apiVersion: v1\n"),
            "Object 'Kind' is missing in '{\"apiVersion\":\"v1\"}'",
        ),
        (
            unknown,
            "strict decoding error: unknown field \"webhooks[0].sideEffect\"",
        ),
        (
            fine(name).replace("sideEffects: None", "sideEffects: Some"),
            "ValidatingWebhookConfiguration \"x.static.k8s.io\": webhooks[0].sideEffects: Unsupported \
             value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            format!("{}---\n{}", fine(name), fine(name)),
            "duplicate name \"x.static.k8s.io\" found in file \"FILE\" (previously seen in \"FILE\")",
        ),
    ] {
        let found = directory(&[("m.yaml", &content)]);
        let file = found.path().join("m.yaml").display().to_string();
        let error = load(found.path(), VALIDATING).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("error loading {file}: {}", want.replace("FILE", &file))
        );
    }
    let error = load(Path::new("/no/such/place"), VALIDATING).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to read manifest directory \"/no/such/place\": open /no/such/place: no such file or \
         directory"
    );
}

#[test]
fn the_setting_is_checked_before_anything_is_read() {
    let found = directory(&[("file", "")]);
    let place = found.path().display().to_string();
    let file = format!("{place}/file");
    for (directory, gate, want) in [
        (
            place.as_str(),
            ManifestGate::Disabled,
            String::from(
                "staticManifestsDir: Forbidden: staticManifestsDir requires the \
                 ManifestBasedAdmissionControlConfig feature gate to be enabled",
            ),
        ),
        (
            "relative",
            ManifestGate::Enabled,
            String::from(
                "staticManifestsDir: Invalid value: \"relative\": must be an absolute file path",
            ),
        ),
        (
            "/no/such/place",
            ManifestGate::Enabled,
            String::from(
                "staticManifestsDir: Invalid value: \"/no/such/place\": unable to read: stat \
                 /no/such/place: no such file or directory",
            ),
        ),
        (
            file.as_str(),
            ManifestGate::Enabled,
            format!("staticManifestsDir: Invalid value: \"{file}\": must be a directory"),
        ),
    ] {
        assert_eq!(
            check_directory(directory, gate).unwrap_err().to_string(),
            want
        );
    }
    assert_eq!(check_directory(&place, ManifestGate::Enabled), Ok(()));
}

#[test]
fn bad_content_keeps_what_was_read_before() {
    let found = directory(&[("m.yaml", &fine("x.static.k8s.io"))]);
    let place = found.path().display().to_string();
    let all = Arc::new(Configurations::new(VALIDATING));
    let manifests = StaticManifests::open(&place, ManifestGate::Enabled, Arc::clone(&all)).unwrap();
    let identities = || -> Vec<String> {
        let snapshot = all.snapshot();
        snapshot
            .static_hooks()
            .iter()
            .map(|hook| hook.identity().to_owned())
            .collect()
    };
    assert_eq!(identities(), ["manifest/x.static.k8s.io/h.example.com/0"]);
    assert_eq!(manifests.reload(), Ok(Reload::Unchanged));

    fs::write(found.path().join("n.yaml"), "kind: Odd").unwrap();
    assert!(manifests.reload().is_err());
    assert_eq!(identities().len(), 1);

    fs::write(found.path().join("n.yaml"), fine("a.static.k8s.io")).unwrap();
    assert_eq!(manifests.reload(), Ok(Reload::Changed));
    assert_eq!(identities()[0], "manifest/a.static.k8s.io/h.example.com/0");

    for name in ["m.yaml", "n.yaml"] {
        fs::remove_file(found.path().join(name)).unwrap();
    }
    assert_eq!(manifests.reload(), Ok(Reload::Changed));
    assert!(identities().is_empty() && all.synced());

    let metrics = manifests.render_metrics("server");
    let prefix = "apiserver_manifest_admission_config_controller_";
    let server = "sha256:b3eacd33433b31b5252351032c9b3e7a2e7aa7738d5decdf0dd6c62680853c06";
    let labels = format!("apiserver_id_hash=\"{server}\"");
    let plugin = "plugin=\"ValidatingAdmissionWebhook\"";
    for line in [
        format!("{prefix}automatic_reloads_total{{{labels},{plugin},status=\"failure\"}} 1"),
        format!("{prefix}automatic_reloads_total{{{labels},{plugin},status=\"success\"}} 3"),
        format!("{prefix}last_config_info{{{labels},hash=\"\",{plugin}}} 1"),
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
}

#[test]
fn bad_content_at_the_start_is_an_error() {
    let found = directory(&[("m.yaml", "kind: Odd")]);
    let place = found.path().display().to_string();
    let all = Arc::new(Configurations::new(VALIDATING));
    assert!(StaticManifests::open(&place, ManifestGate::Enabled, Arc::clone(&all)).is_err());
    assert!(!all.synced());
}

/// Waits for the next reload. Without file events it would take a minute.
async fn next(outcomes: &mut watch::Receiver<u64>) {
    let changed = tokio::time::timeout(Duration::from_secs(20), outcomes.changed()).await;
    changed.expect("noticed at once").unwrap();
}

#[tokio::test]
async fn a_changed_file_is_noticed_at_once() {
    let found = directory(&[("m.yaml", &fine("x.static.k8s.io"))]);
    // A subdirectory, which can be moved away.
    let home = found.path().join("home");
    fs::create_dir(&home).unwrap();
    let place = home.display().to_string();
    let all = Arc::new(Configurations::new(VALIDATING));
    let manifests = StaticManifests::open(&place, ManifestGate::Enabled, Arc::clone(&all)).unwrap();
    let manifests = Arc::new(manifests);
    let mut outcomes = manifests.outcomes();
    let (report, mut problems) = mpsc::unbounded_channel();
    let running = tokio::spawn(Arc::clone(&manifests).run(move |problem| {
        report.send(problem.to_string()).unwrap();
    }));
    let names = || -> Vec<String> {
        let snapshot = all.snapshot();
        let hooks = snapshot.static_hooks().iter();
        hooks.map(|hook| hook.configuration().to_owned()).collect()
    };
    // Written atomically, so that no partial file is read.
    let put = |name: &str, content: &str| {
        let draft = found.path().join("draft");
        fs::write(&draft, content).unwrap();
        fs::rename(&draft, home.join(name)).unwrap();
    };

    put("a.yaml", &fine("a.static.k8s.io"));
    next(&mut outcomes).await;
    assert_eq!(names(), ["a.static.k8s.io"]);
    put("a.yaml", &fine("b.static.k8s.io"));
    next(&mut outcomes).await;
    assert_eq!(names(), ["b.static.k8s.io"]);
    put("c.yaml", "kind: Odd");
    next(&mut outcomes).await;
    assert_eq!(names(), ["b.static.k8s.io"]);
    let problem = problems.recv().await.unwrap();
    assert!(
        problem.contains("Object 'apiVersion' is missing"),
        "{problem}"
    );
    fs::remove_file(home.join("c.yaml")).unwrap();
    fs::remove_file(home.join("a.yaml")).unwrap();
    while !names().is_empty() {
        next(&mut outcomes).await;
    }
    running.abort();
}
