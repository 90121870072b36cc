//! End to end: kubectl, an API server, and the program behind its Service, installed by Helm.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::{Cluster, SYSTEM};
use crate::support::{documents, get, root, run};

const A: &str = "47c6da67-7477-4970-aa03-84e48ff4f6ad";

/// A fixture, and its expected result: success, or a part of the error.
fn fixture(name: &str) -> (Value, Option<String>) {
    let path = root()
        .join("apps/shaper-webhooks/e2e/fixtures")
        .join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(path).unwrap();
    let expected = text
        .lines()
        .find_map(|line| line.strip_prefix("# expect: denied: "));
    (documents(&text).remove(0), expected.map(ToOwned::to_owned))
}

fn assignment(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "shaper.amahdha.com/v1alpha1", "kind": "Assignment",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default()
}

fn uuid_labels(object: &Value) -> BTreeMap<String, String> {
    let mut labels = labels(object);
    labels.retain(|key, _| key.starts_with("uuid.shaper.amahdha.com/"));
    labels
}

impl Cluster {
    async fn accepts(&self, object: &Value) -> String {
        let (passed, text) = self.create(object).await;
        assert!(passed, "{text}");
        text
    }

    async fn refuses(&self, object: &Value, want: &str) {
        let (passed, text) = self.create(object).await;
        assert!(!passed && text.contains(want), "{want}: {text}");
    }

    /// The error status as clients other than kubectl see it; kubectl shows only the causes.
    async fn refusal(&self, object: &Value) -> kube::core::Status {
        let (group, version) = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap();
        let api = self.api(
            group,
            version,
            object["kind"].as_str().unwrap(),
            Some("default"),
        );
        let object = serde_json::from_value(object.clone()).unwrap();
        match api.create(&Default::default(), &object).await {
            Err(kube::Error::Api(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    async fn fixture(&self, name: &str) {
        let (object, expected) = fixture(name);
        match expected {
            None => drop(self.accepts(&object).await),
            Some(expected) => self.refuses(&object, &expected).await,
        }
    }
}

/// The test suite of the original, in sequence.
async fn original_suite(cluster: &Cluster) {
    cluster.fixture("test-profile").await;
    for name in [
        "valid-assignment",
        "invalid-assignment-uuid",
        "invalid-assignment-buildarch",
        "invalid-assignment-default",
        "invalid-assignment-profile",
        "invalid-assignment-taken",
        "valid-profile",
        "invalid-profile-multiple-content",
        "invalid-profile-second-content",
        "valid-profile-mutation",
    ] {
        cluster.fixture(name).await;
    }

    let stored = cluster
        .stored("assignment", "default", "valid-assignment")
        .await;
    let want = [
        "buildarch.shaper.amahdha.com/arm64",
        "uuid.shaper.amahdha.com/3f5f3c39-584e-4c7c-b6ff-137e1aaa7175",
        &format!("uuid.shaper.amahdha.com/{A}"),
    ];
    assert_eq!(
        labels(&stored),
        want.map(|key| (key.to_owned(), String::new())).into()
    );

    let (object, _) = fixture("invalid-assignment-uuid");
    let status = cluster.refusal(&object).await;
    assert_eq!(
        status.message,
        "admission webhook \"mutate-assignment.shaper.amahdha.com\" denied the request: [spec.subjectSelectors.uuidList[0]: Invalid value: \"not-a-valid-uuid\": invalid UUID length: 16, spec.subjectSelectors.uuidList[1]: Invalid value: \"another-invalid-uuid\": invalid UUID length: 20]"
    );
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert_eq!(status.details.unwrap().causes.len(), 2);
    let (object, _) = fixture("invalid-assignment-profile");
    let status = cluster.refusal(&object).await;
    assert_eq!(
        status.message,
        "admission webhook \"validate-assignment.shaper.amahdha.com\" denied the request: spec.profileName: Not found: \"no-such-profile\": assignment must specify an existing profileName"
    );

    let before = cluster
        .stored("profile", "default", "valid-profile-mutation")
        .await;
    let made = uuid_labels(&before);
    let mut names: Vec<_> = made.values().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["cloud-init", "ignition-config"]);
    let patch = json!({"spec": {"ipxeTemplate": "#!ipxe\necho changed"}}).to_string();
    let (passed, text) = cluster
        .kubectl(&[
            "patch",
            "profile",
            "valid-profile-mutation",
            "--type=merge",
            "-p",
            &patch,
        ])
        .await;
    assert!(passed, "{text}");
    assert_eq!(
        uuid_labels(
            &cluster
                .stored("profile", "default", "valid-profile-mutation")
                .await
        ),
        made
    );
}

async fn machines_and_defaults(cluster: &Cluster) {
    let (passed, text) = cluster.kubectl(&["create", "namespace", "other"]).await;
    assert!(passed, "{text}");
    let (mut profile, _) = fixture("test-profile");
    profile["metadata"]["namespace"] = json!("other");
    cluster.accepts(&profile).await;

    // An object of the same name in another namespace does not hide a machine's conflict.
    let spec = json!({"profileName": "test-profile", "subjectSelectors": {"buildarch": ["arm64"], "uuidList": [A]}, "isDefault": false});
    cluster
        .refuses(
            &assignment("other", "valid-assignment", &spec),
            "referenced by another assignment: default/valid-assignment",
        )
        .await;

    // Defaults: one per architecture. Omitted fields have default values.
    let default_for = |archs: &[&str]| json!({"profileName": "test-profile", "subjectSelectors": {"buildarch": archs}, "isDefault": true});
    cluster
        .accepts(&assignment(
            "default",
            "default-arm",
            &default_for(&["arm64", "arm32"]),
        ))
        .await;
    let stored = cluster.stored("assignment", "default", "default-arm").await;
    assert!(labels(&stored).contains_key("shaper.amahdha.com/default-assignment"));
    assert_eq!(stored["spec"]["subjectSelectors"]["uuidList"], json!([]));
    cluster
        .refuses(
            &assignment("other", "default-arm", &default_for(&["arm32"])),
            "there is a default assignment for this buildarch already: default/default-arm",
        )
        .await;
    cluster
        .refuses(
            &assignment("default", "default-any", &default_for(&[])),
            "there is a default assignment",
        )
        .await;
    cluster
        .accepts(&assignment(
            "default",
            "default-pc",
            &default_for(&["i386", "x86_64"]),
        ))
        .await;
    // An assignment that is no longer a default loses the label, and another can be created.
    let patch =
        json!({"metadata": {"labels": {"team": "a"}}, "spec": {"isDefault": false}}).to_string();
    let (passed, text) = cluster
        .kubectl(&[
            "patch",
            "assignment",
            "default-arm",
            "--type=merge",
            "-p",
            &patch,
        ])
        .await;
    assert!(passed, "{text}");
    let stored = cluster.stored("assignment", "default", "default-arm").await;
    assert_eq!(
        labels(&stored),
        [
            "buildarch.shaper.amahdha.com/arm32",
            "buildarch.shaper.amahdha.com/arm64",
            "team"
        ]
        .map(|key| (
            key.to_owned(),
            if key == "team" {
                String::from("a")
            } else {
                String::new()
            }
        ))
        .into()
    );
    cluster
        .accepts(&assignment(
            "other",
            "default-arm",
            &default_for(&["arm32"]),
        ))
        .await;

    // A generated name, a dry run, and the README examples of the original.
    let spec =
        json!({"profileName": "test-profile", "subjectSelectors": {"buildarch": ["x86_64"]}});
    let mut object = assignment("default", "", &spec);
    object["metadata"] = json!({"generateName": "made-", "namespace": "default"});
    cluster.accepts(&object).await;
    let object = assignment("default", "dry", &spec);
    let (passed, text) = cluster
        .with_file(&["create", "--dry-run=server", "-o", "json"], &object)
        .await;
    assert!(
        passed && text.contains("buildarch.shaper.amahdha.com/x86_64"),
        "{text}"
    );
    let (passed, _) = cluster.kubectl(&["get", "assignment", "dry"]).await;
    assert!(!passed, "nothing was stored");

    let warned = cluster.accepts(&assignment("default", "twice", &json!({"profileName": "test-profile", "subjectSelectors": {
        "uuidList": ["11111111-2222-4333-8444-55555555ABCD", "urn:uuid:11111111-2222-4333-8444-55555555abcd"]}}))).await;
    let warning = "Warning: spec.subjectSelectors.uuidList[1]: 11111111-2222-4333-8444-55555555abcd is named twice";
    assert_eq!(
        warned.matches(warning).count(),
        1,
        "told once, although both phases say it: {warned}"
    );
    cluster
        .refuses(
            &assignment("default", "empty", &Value::Null),
            "assignment must specify an existing profileName",
        )
        .await;
}

async fn contents(cluster: &Cluster) {
    // UUID labels of another profile's content are rejected.
    let victim = uuid_labels(&cluster.stored("profile", "default", "valid-profile").await);
    let stolen = victim.keys().next().unwrap();
    let thief = json!({
        "apiVersion": "shaper.amahdha.com/v1alpha1", "kind": "Profile",
        "metadata": {"name": "thief", "namespace": "default", "labels": {stolen: "mine", "team": "a"}},
        "spec": {"ipxeTemplate": "#!ipxe", "additionalContent": [{"name": "mine", "exposed": true, "inline": "x"}]},
    });
    let text = cluster.accepts(&thief).await;
    assert!(text.contains("belongs to another profile"), "{text}");
    let stored = cluster.stored("profile", "default", "thief").await;
    assert!(!labels(&stored).contains_key(stolen));
    assert_eq!(labels(&stored)["team"], "a");
    let kept = uuid_labels(&stored);
    assert_eq!(kept.values().collect::<Vec<_>>(), ["mine"]);
    let (passed, text) = cluster
        .kubectl(&["label", "profile", "thief", &format!("{stolen}=mine")])
        .await;
    assert!(passed, "{text}");
    assert_eq!(
        uuid_labels(&cluster.stored("profile", "default", "thief").await),
        kept
    );
    let key = kept.keys().next().unwrap();
    let (passed, text) = cluster
        .kubectl(&["label", "profile", "thief", &format!("{key}-")])
        .await;
    assert!(passed, "{text}");
    assert_eq!(
        uuid_labels(&cluster.stored("profile", "default", "thief").await),
        kept,
        "what is taken away comes back"
    );

    // Content that is no longer exposed loses its label.
    let patch =
        json!([{"op": "replace", "path": "/spec/additionalContent/0/exposed", "value": false}])
            .to_string();
    let (passed, text) = cluster
        .kubectl(&["patch", "profile", "thief", "--type=json", "-p", &patch])
        .await;
    assert!(passed, "{text}");
    assert_eq!(
        uuid_labels(&cluster.stored("profile", "default", "thief").await),
        BTreeMap::new()
    );

    // The status is not checked.
    let patch = json!({"status": {"exposedAdditionalContent": {"mine": "nonsense"}}}).to_string();
    let (passed, text) = cluster
        .kubectl(&[
            "patch",
            "profile",
            "thief",
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ])
        .await;
    assert!(passed, "{text}");

    let long = "n".repeat(64);
    let spec = json!({"ipxeTemplate": "#!ipxe", "additionalContent": [{"name": long, "exposed": true, "inline": "x"}]});
    cluster.refuses(&json!({"apiVersion": "shaper.amahdha.com/v1alpha1", "kind": "Profile", "metadata": {"name": "long", "namespace": "default"}, "spec": spec}), "spec.additionalContent[0].name: Invalid value").await;
}

async fn endings(cluster: &Cluster) {
    // A terminating assignment loses its finalizer, even after its profile is deleted.
    let (mut profile, _) = fixture("test-profile");
    profile["metadata"]["name"] = json!("short-lived");
    cluster.accepts(&profile).await;
    let spec = json!({"profileName": "short-lived", "subjectSelectors": {"buildarch": [], "uuidList": ["aaaaaaaa-2222-4333-8444-555555555555"]}, "isDefault": false});
    let mut object = assignment("default", "held", &spec);
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.accepts(&object).await;
    let (passed, text) = cluster.kubectl(&["delete", "profile", "short-lived"]).await;
    assert!(
        passed && text.contains("Warning: profile is still referenced by assignments: held"),
        "{text}"
    );
    let annotate = ["annotate", "assignment", "held", "a=b"];
    let (passed, text) = cluster.kubectl(&annotate).await;
    assert!(
        !passed && text.contains("assignment must specify an existing profileName"),
        "{text}"
    );
    let (passed, text) = cluster
        .kubectl(&["delete", "assignment", "held", "--wait=false"])
        .await;
    assert!(passed, "{text}");
    let patch = json!({"metadata": {"finalizers": null}}).to_string();
    let (passed, text) = cluster
        .kubectl(&["patch", "assignment", "held", "--type=merge", "-p", &patch])
        .await;
    assert!(passed, "{text}");
    let (passed, _) = cluster.kubectl(&["get", "assignment", "held"]).await;
    assert!(!passed, "it is gone");
}

/// The script for real clusters has the same results.
async fn script(cluster: &Cluster) {
    let mut command = Command::new(root().join("apps/shaper-webhooks/e2e/run.sh"));
    command
        .arg("cluster")
        .env("KUBECONFIG", cluster.kubeconfig());
    let (passed, text) = tokio::task::spawn_blocking(move || run(&mut command))
        .await
        .unwrap();
    assert!(passed && !text.contains("FAILED"), "{text}");
    assert_eq!(text.matches("\nok ").count(), 15, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_by_helm_it_does_what_the_original_promised() {
    let mut cluster = Cluster::start().await;
    cluster.install(&[]).await;
    let mut program = cluster.run(&json!({})).await;
    script(&cluster).await;
    original_suite(&cluster).await;
    machines_and_defaults(&cluster).await;
    contents(&cluster).await;
    endings(&cluster).await;

    // Injected values survive an upgrade that does not set them.
    cluster
        .upgrade(&["--set", "webhooks.validating.timeoutSeconds=7"])
        .await;
    let stored = cluster
        .stored(
            "validatingwebhookconfiguration",
            "",
            "shaper-webhooks-validating",
        )
        .await;
    assert_eq!(stored["webhooks"][0]["timeoutSeconds"], 7);
    cluster.fixture("invalid-assignment-profile").await;

    let (code, metrics) = get(program.metrics, "/metrics").await;
    assert_eq!(code, 200);
    assert!(
        metrics.contains("controller_runtime_webhook_requests_total"),
        "{metrics}"
    );
    program.logs(|line| line.to_string().contains("validate-profile"));
    assert_eq!(program.terminate(), Some(0));

    // Without the webhook server every write is rejected.
    let (mut profile, _) = fixture("valid-profile");
    profile["metadata"]["name"] = json!("later");
    cluster
        .refuses(
            &profile,
            "failed calling webhook \"mutate-profile.shaper.amahdha.com\"",
        )
        .await;
    // After the uninstallation the webhooks are no longer called, and the objects still exist.
    cluster
        .helm(&["uninstall", "shaper-webhooks", "--namespace", SYSTEM])
        .await;
    cluster.accepts(&profile).await;
    cluster
        .helm(&["uninstall", "shaper-crds", "--namespace", "default"])
        .await;
    cluster.stored("profile", "default", "later").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_paths_of_kubebuilder_and_guarded_profiles_work_as_well() {
    let mut cluster = Cluster::start().await;
    let arguments = [
        "--set",
        "webhooks.pathStyle=kubebuilder,profileDeletion=Deny,service.port=443",
        "--set",
        "webhooks.admissionReviewVersions={v1beta1,v1}",
    ];
    cluster.install(&arguments).await;
    let _program = cluster.run(&json!({})).await;
    original_suite(&cluster).await;
    let (passed, text) = cluster
        .kubectl(&["delete", "profile", "test-profile"])
        .await;
    assert!(
        !passed && text.contains("profile is still referenced by assignments: valid-assignment"),
        "{text}"
    );
    let (passed, text) = cluster
        .kubectl(&["delete", "assignment,profile", "--all"])
        .await;
    assert!(passed, "{text}");
    cluster.stop().await;
}
