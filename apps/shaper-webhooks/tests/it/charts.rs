//! The charts, with the real Helm.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockgate_webhook::BoxFuture;
use serde_json::{Value, json};
use shaper_webhooks::api::{Assignment, Profile};
use shaper_webhooks::config::{Config, ProfileDeletion};
use shaper_webhooks::lookup::{Lookup, LookupError, Which};
use shaper_webhooks::profile::ProfileRules;

use crate::support::{documents, find, helm, render, root, run};

const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

/// Values that enable everything.
const EVERYTHING: &[&str] = &[
    "--set",
    "networkPolicy.enabled=true",
    "--set",
    "networkPolicy.from[0].namespaceSelector.matchLabels.team=platform",
    "--set",
    "serviceMonitor.enabled=true",
    "--set",
    "serviceMonitor.labels.release=prometheus",
    "--set",
    "serviceMonitor.relabelings[0].action=labelmap",
    "--set",
    "preStopSleepSeconds=5",
    "--set",
    "priorityClassName=system-cluster-critical",
    "--set",
    "hostNetwork=true",
    "--set",
    "dnsPolicy=ClusterFirstWithHostNet",
    "--set",
    "service.port=443",
    "--set",
    "webhookServer.port=10250",
    "--set",
    "webhooks.pathStyle=kubebuilder",
    "--set",
    "webhooks.admissionReviewVersions={v1,v1beta1}",
    "--set",
    "webhooks.annotations.team=platform",
    "--set",
    "webhooks.mutating.reinvocationPolicy=IfNeeded",
    "--set",
    "webhooks.mutating.timeoutSeconds=5",
    "--set",
    "webhooks.validating.failurePolicy=Ignore",
    "--set",
    "webhooks.validating.matchPolicy=Exact",
    "--set",
    "webhooks.validating.namespaceSelector.matchLabels.shaper=yes",
    "--set",
    "webhooks.validating.objectSelector.matchLabels.checked=yes",
    "--set",
    "webhooks.validating.matchConditions[0].name=not-me",
    "--set",
    "webhooks.validating.matchConditions[0].expression=request.userInfo.username != 'me'",
    "--set",
    "profileDeletion=Deny",
    "--set",
    "lookupScope=Namespaces",
    "--set",
    "controllerUsers={a,b}",
    "--set",
    "podDisruptionBudget.minAvailable=50%",
    "--set",
    "podAnnotations.a=b",
    "--set",
    "podLabels.c=d",
    "--set",
    "nodeSelector.disk=ssd",
    "--set",
    "tolerations[0].operator=Exists",
    "--set",
    "affinity.nodeAffinity.x=y",
    "--set",
    "topologySpreadConstraints[0].maxSkew=2",
    "--set",
    "imagePullSecrets[0].name=registry",
    "--set",
    "serviceAccount.annotations.role=webhook",
    "--set",
    "service.annotations.lb=none",
    "--set",
    "image.tag=v9",
    "--set",
    "nameOverride=gate",
    "--set",
    "extraVolumes[0].name=clients",
    "--set",
    "extraVolumeMounts[0].name=clients",
    "--set",
    "extraVolumeMounts[0].mountPath=/etc/clients",
    "--set",
    "webhookServer.clientCAName=/etc/clients/ca.crt",
];

#[test]
fn lint_finds_nothing() {
    for chart in ["shaper-crds", "shaper-webhooks"] {
        let folder = root().join("charts").join(chart);
        let (passed, text) = run(helm().args(["lint", "--strict"]).arg(&folder));
        assert!(passed, "{text}");
    }
    let folder = root().join("charts/shaper-webhooks");
    let (passed, text) = run(helm()
        .args(["lint", "--strict", "-f"])
        .arg(folder.join("values.test.yaml"))
        .arg(&folder));
    assert!(passed, "{text}");
}

#[test]
fn renders_as_before() {
    insta::assert_snapshot!("crds", render("shaper-crds", &[]).unwrap());
    insta::assert_snapshot!(
        "crds-strict",
        render("shaper-crds", &["--set", "strict=true,keep=false"]).unwrap()
    );
    insta::assert_snapshot!("default", render("shaper-webhooks", &[]).unwrap());
    insta::assert_snapshot!("everything", render("shaper-webhooks", EVERYTHING).unwrap());
    let values = root().join("charts/shaper-webhooks/values.test.yaml");
    insta::assert_snapshot!(
        "test-values",
        render("shaper-webhooks", &["-f", values.to_str().unwrap()]).unwrap()
    );
    let own = [
        "--set",
        "certificate.enabled=false",
        "--set",
        "certificate.existingSecret=mine",
        "--set-string",
        &format!("certificate.caBundle={AUTHORITY}"),
        "--set",
        "podDisruptionBudget.enabled=false",
        "--set",
        "serviceAccount.create=false",
        "--set",
        "profileDeletion=Allow",
    ];
    insta::assert_snapshot!("existing-secret", render("shaper-webhooks", &own).unwrap());
    let issuer = [
        "--set",
        "certificate.issuerRef.name=corporate",
        "--set",
        "certificate.issuerRef.kind=ClusterIssuer",
    ];
    insta::assert_snapshot!("own-issuer", render("shaper-webhooks", &issuer).unwrap());
}

/// Every value of a chart, by path; lists and empty objects are values.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    match value.as_object() {
        Some(object) if !object.is_empty() => {
            for (key, value) in object {
                paths(value, &format!("{at}.{key}"), found);
            }
        }
        _ => found.push(at.trim_start_matches('.').to_owned()),
    }
}

#[test]
fn every_value_has_a_schema_and_a_line_in_the_readme() {
    for chart in ["shaper-crds", "shaper-webhooks"] {
        let folder = root().join("charts").join(chart);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let values = documents(&read("values.yaml")).remove(0);
        let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
        let readme = read("README.md");
        let mut found = Vec::new();
        paths(&values, "", &mut found);
        for path in found {
            let mut described = &schema;
            for key in path.split('.') {
                let properties = &described["properties"];
                // API objects are passed through, and validated by the API server.
                if properties.is_null() {
                    break;
                }
                assert_eq!(described["additionalProperties"], false, "{chart}: {path}");
                described = &properties[key];
                assert!(described.is_object(), "{chart}: {path} has no schema");
            }
            let (first, _) = path.split_once('.').unwrap_or((&path, ""));
            assert!(
                readme.contains(&format!("`{first}")),
                "{chart}: the README says nothing of {first}"
            );
        }
    }
}

#[test]
fn a_digest_wins_over_a_tag() {
    let digest = format!("sha256:{}", "a1".repeat(32));
    let values = format!("image.tag=v9,image.digest={digest}");
    let text = render("shaper-webhooks", &["--set", &values]).unwrap();
    let documents = documents(&text);
    let deployment = documents.iter().find(|one| one["kind"] == "Deployment");
    let image = &deployment.unwrap()["spec"]["template"]["spec"]["containers"][0]["image"];
    let want = format!("shaper-webhooks@{digest}");
    assert_eq!(image.as_str(), Some(want.as_str()));
    // A NetworkPolicy restricts access, unless it is disabled.
    assert!(documents.iter().any(|one| one["kind"] == "NetworkPolicy"));
}

#[test]
fn the_release_name_stands_alone_when_it_says_enough() {
    let name = |release: &str| {
        let folder = root().join("charts/shaper-webhooks");
        let output = helm()
            .args(["template", release])
            .arg(&folder)
            .output()
            .unwrap();
        let documents = documents(&String::from_utf8(output.stdout).unwrap());
        let deployment = documents
            .iter()
            .find(|one| one["kind"] == "Deployment")
            .unwrap();
        deployment["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name("shaper-webhooks"), "shaper-webhooks");
    assert_eq!(name("boot"), "boot-shaper-webhooks");
}

#[test]
fn refuses_values_that_make_no_sense() {
    for (value, want) in [
        ("replicaCount=many", "replicaCount"),
        ("replicas=2", "replicas"),
        ("webhookServer.port=0", "webhookServer.port"),
        (
            "webhookServer.requestTimeout=soon",
            "webhookServer.requestTimeout",
        ),
        (
            "webhooks.mutating.failurePolicy=fail",
            "webhooks.mutating.failurePolicy",
        ),
        (
            "webhooks.validating.timeoutSeconds=31",
            "webhooks.validating.timeoutSeconds",
        ),
        (
            "webhooks.validating.reinvocationPolicy=Never",
            "reinvocationPolicy",
        ),
        ("webhooks.pathStyle=long", "webhooks.pathStyle"),
        (
            "webhooks.admissionReviewVersions={}",
            "webhooks.admissionReviewVersions",
        ),
        ("profileDeletion=deny", "profileDeletion"),
        ("logging.level=loud", "logging.level"),
        ("certificate.enabled=false", "certificate.existingSecret"),
        ("certificate.caBundle=nonsense", "certificate.caBundle"),
        ("image.pullPolicy=Sometimes", "image.pullPolicy"),
        ("image.digest=sha256:abc", "image.digest"),
    ] {
        let error = render("shaper-webhooks", &["--set", value]).unwrap_err();
        assert!(error.contains(want), "{value}: {error}");
    }
    assert!(
        render("shaper-crds", &["--set", "strict=1"])
            .unwrap_err()
            .contains("strict")
    );
}

#[test]
fn certificates_come_in_two_steps_and_the_authority_is_what_is_injected() {
    let all = documents(&render("shaper-webhooks", &[]).unwrap());
    let issuer = find(&all, "Issuer", "shaper-webhooks-selfsigned");
    assert_eq!(issuer["spec"], json!({"selfSigned": {}}));
    let authority = find(&all, "Certificate", "shaper-webhooks-ca");
    assert_eq!(
        (
            &authority["spec"]["isCA"],
            &authority["spec"]["issuerRef"]["name"]
        ),
        (&json!(true), &json!("shaper-webhooks-selfsigned"))
    );
    let issuer = find(&all, "Issuer", "shaper-webhooks-ca");
    assert_eq!(
        issuer["spec"]["ca"]["secretName"],
        authority["spec"]["secretName"]
    );
    let leaf = find(&all, "Certificate", "shaper-webhooks-cert");
    assert_eq!(leaf["spec"]["issuerRef"]["name"], "shaper-webhooks-ca");
    assert_eq!(
        leaf["spec"]["dnsNames"],
        json!([
            "shaper-webhooks",
            "shaper-webhooks.shaper-system",
            "shaper-webhooks.shaper-system.svc",
            "shaper-webhooks.shaper-system.svc.cluster.local",
        ])
    );
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "shaper-webhooks-mutating"),
        (
            "ValidatingWebhookConfiguration",
            "shaper-webhooks-validating",
        ),
    ] {
        let configuration = find(&all, kind, name);
        let annotations = &configuration["metadata"]["annotations"];
        assert_eq!(
            annotations["cert-manager.io/inject-ca-from"],
            "shaper-system/shaper-webhooks-ca"
        );
        assert_eq!(
            configuration["webhooks"][0]["clientConfig"].get("caBundle"),
            None,
            "injected, never rendered"
        );
    }
}

/// The program reads the configuration that the chart renders.
#[test]
fn the_program_reads_its_configuration() {
    for arguments in [&[][..], EVERYTHING] {
        let all = documents(&render("shaper-webhooks", arguments).unwrap());
        let map = all.iter().find(|one| one["kind"] == "ConfigMap").unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), map["data"]["config.yaml"].as_str().unwrap()).unwrap();
        let loaded = Config::read(file.path()).unwrap();
        assert!(loaded.config.strict_unknown_keys);
        let deployment = all.iter().find(|one| one["kind"] == "Deployment").unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let ports = &container["ports"];
        assert_eq!(ports[0]["containerPort"], loaded.config.webhook_server.port);
        assert_eq!(ports[1]["containerPort"], loaded.config.probes_server.port);
        assert_eq!(ports[2]["containerPort"], loaded.config.metrics_server.port);
        let mounts = &container["volumeMounts"];
        assert_eq!(
            mounts[0]["mountPath"],
            loaded.config.webhook_server.cert_dir.to_str().unwrap()
        );
        if arguments.is_empty() {
            assert_eq!(
                loaded.config,
                Config {
                    strict_unknown_keys: true,
                    ..Config::default()
                }
            );
        }
    }
}

struct Nothing;

impl Lookup for Nothing {
    fn profile_exists<'f>(
        &'f self,
        _: &'f str,
        _: &'f str,
    ) -> BoxFuture<'f, Result<bool, LookupError>> {
        Box::pin(async { Ok(false) })
    }

    fn assignments<'f>(
        &'f self,
        _: Which<'f>,
    ) -> BoxFuture<'f, Result<Vec<Assignment>, LookupError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn profiles_with<'f>(&'f self, _: &'f str) -> BoxFuture<'f, Result<Vec<Profile>, LookupError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// The chart registers the webhooks that the program serves.
#[test]
fn registers_what_the_program_serves() {
    let rules = ProfileRules {
        lookup: Arc::new(Nothing),
        controllers: Arc::new([]),
        deletion: ProfileDeletion::Warn,
    };
    let served = shaper_webhooks::webhooks::webhooks(&rules);
    for (style, arguments) in [
        ("short", &[][..]),
        ("kubebuilder", &["--set", "webhooks.pathStyle=kubebuilder"]),
    ] {
        let all = documents(&render("shaper-webhooks", arguments).unwrap());
        let configurations = all.iter().filter(|one| one["webhooks"].is_array());
        let registered: BTreeMap<&str, &Value> = configurations
            .flat_map(|one| one["webhooks"].as_array().unwrap())
            .map(|webhook| (webhook["name"].as_str().unwrap(), webhook))
            .collect();
        assert_eq!(registered.len(), served.iter().count());
        for webhook in served.iter() {
            let ours = webhook.registration();
            let theirs = registered[ours.name()];
            let path = if style == "short" {
                &ours.path
            } else {
                &ours.aliases[0]
            };
            assert_eq!(theirs["clientConfig"]["service"]["path"], json!(path));
            let rule = &ours.webhook.rules.as_ref().unwrap()[0];
            assert_eq!(
                theirs["rules"],
                json!([{
                    "apiGroups": rule.api_groups, "apiVersions": rule.api_versions,
                    "operations": rule.operations, "resources": rule.resources, "scope": rule.scope,
                }])
            );
            assert_eq!(theirs["failurePolicy"], json!(ours.webhook.failure_policy));
            assert_eq!(theirs["sideEffects"], json!(ours.webhook.side_effects));
            assert_eq!(
                theirs["timeoutSeconds"],
                json!(ours.webhook.timeout_seconds)
            );
        }
    }
}
