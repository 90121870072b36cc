//! Other versions of Kubernetes: the recorded behaviour of kube-apiserver v1.36.4 with --emulated-version, and of the
//! actual releases.

use std::collections::BTreeSet;

use lockgate_apiserver::{FeatureGates, KubeVersion, Settings, TestServer};
use serde_json::{Value, json};

use crate::support::*;

const RECORDINGS: &str = include_str!("../../../../conformance/vectors/kube-versions.jsonl");
/// Recorded by conformance/differential/kube_versions.py.
const RELEASES: &str = include_str!("../../../../conformance/vectors/kube-releases.jsonl");
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// The recordings with their versions.
fn recordings() -> Vec<(KubeVersion, Value)> {
    let lines = RECORDINGS.lines().chain(RELEASES.lines()).map(|line| {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let version = recorded["version"].as_str().unwrap().parse().unwrap();
        (version, recorded)
    });
    lines.collect()
}

async fn server_of(version: KubeVersion) -> TestServer {
    start_with(Settings {
        feature_gates: FeatureGates::of(version),
        ..settings()
    })
    .await
}

/// `group/version/resource` of everything that discovery lists.
async fn served(client: &Client) -> BTreeSet<String> {
    let mut groups = vec![(String::from("/api/v1"), String::from("v1"))];
    let listed = client.get("/apis").await.expect(200);
    for group in listed["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let version = version["groupVersion"].as_str().unwrap();
            groups.push((format!("/apis/{version}"), version.to_owned()));
        }
    }
    let mut served = BTreeSet::new();
    for (path, version) in groups {
        let list = client.get(&path).await.expect(200);
        for resource in list["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            if !name.contains('/') {
                served.insert(format!("{version}/{name}"));
            }
        }
    }
    served
}

#[tokio::test]
async fn each_version_serves_what_it_served() {
    let recordings = recordings();
    let names = |recorded: &Value| -> BTreeSet<String> {
        let all = recorded["resources"].as_array().unwrap().iter();
        all.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let (_, reference) = recordings
        .iter()
        .find(|(version, _)| *version == KubeVersion::REFERENCE)
        .unwrap();
    let reference = names(reference);
    let server = start().await;
    let ours = served(&Client::admin(&server).await).await;
    server.stop().await;
    assert!(
        reference.is_subset(&ours),
        "{:?}",
        reference.difference(&ours)
    );
    for (version, recorded) in &recordings {
        let server = server_of(*version).await;
        let client = Client::admin(&server).await;
        let found = served(&client).await;
        // Differences from the reference are the same for every version.
        let missing: Vec<_> = ours.difference(&found).cloned().collect();
        let recorded_missing: Vec<_> = reference.difference(&names(recorded)).cloned().collect();
        assert_eq!(missing, recorded_missing, "{version}");
        let told = client.get("/version").await.expect(200);
        assert_eq!(told["minor"], version.minor().to_string());
        server.stop().await;
    }
}

#[test]
fn each_version_has_its_gates() {
    for (version, recorded) in recordings() {
        let gates = FeatureGates::of(version);
        let names: BTreeSet<&str> = FeatureGates::names(version).collect();
        let recorded = recorded["gates"].as_object().unwrap();
        for name in FeatureGates::NAMES {
            // The gate of KEP-3716 is removed upstream; it is still a switch here.
            if name == "AdmissionWebhookMatchConditions" {
                continue;
            }
            // Not among the recorded ones. UPSTREAM: apiserver pkg/features/kube_features.go
            if name == "ConstrainedImpersonation" {
                assert_eq!(names.contains(name), version >= KubeVersion::V1_35);
                assert_eq!(gates.is_on(name), version >= KubeVersion::V1_36);
                continue;
            }
            assert_eq!(
                names.contains(name),
                recorded.contains_key(name),
                "{version} {name}"
            );
            if let Some(on) = recorded.get(name) {
                assert_eq!(gates.is_on(name), *on == json!(true), "{version} {name}");
            }
        }
    }
}

#[tokio::test]
async fn each_version_accepts_the_expressions_it_accepted() {
    for (version, recorded) in recordings() {
        let server = server_of(version).await;
        let client = Client::admin(&server).await;
        for case in recorded["expressions"].as_array().unwrap() {
            let expression = case["expression"].as_str().unwrap();
            let (plural, object) = match case["kind"].as_str().unwrap() {
                "vap" => ("validatingadmissionpolicies", policy(expression)),
                _ => ("validatingwebhookconfigurations", webhook(expression)),
            };
            let path = format!("{GROUP}/{plural}?dryRun=All");
            let answer = client.post(&path, &object).await;
            let code = case["code"].as_u64().unwrap();
            assert_eq!(u64::from(answer.code), code, "{version}: {expression}");
            if let Some(message) = case["message"].as_str() {
                let answer = answer.expect(answer_code(code));
                // The recording does not include the name of the rejected object.
                let detail = |text: &str| text.split_once(": ").map(|(_, rest)| rest.to_owned());
                let ours = answer["message"].as_str().unwrap();
                assert_eq!(detail(ours), detail(message), "{version}: {expression}");
            }
        }
        server.stop().await;
    }
}

fn answer_code(code: u64) -> u16 {
    u16::try_from(code).unwrap()
}

/// The semver library is in 1.33, but cannot be used in stored expressions before 1.34: servers of 1.33 are recorded
/// from 1.36 with emulation, which cannot emulate that.
#[tokio::test]
async fn libraries_of_a_release_can_be_stored_by_the_next() {
    for (version, code) in [(KubeVersion::V1_33, 422), (KubeVersion::V1_34, 201)] {
        let server = server_of(version).await;
        let client = Client::admin(&server).await;
        let path = format!("{GROUP}/validatingadmissionpolicies");
        let answer = client.post(&path, &policy("isSemver('1.0.0')")).await;
        assert_eq!(answer.code, code, "{version}");
        server.stop().await;
    }
}

fn policy(expression: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "it"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]},
            "validations": [{"expression": expression}],
        },
    })
}

fn webhook(expression: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "it"},
        "webhooks": [{
            "name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "matchConditions": [{"name": "x", "expression": expression}],
        }],
    })
}
