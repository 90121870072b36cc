//! From attributes to manifests.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use lockgate_admission::conditions::RegistrationChecker;
use lockgate_webhook::{
    Context, ManifestOptions, Marked, Mutates, Mutator, Object, Registration, Validates, Validator,
    Verdict, Webhooks, webhook,
};
use serde_json::Value;

struct Policy;

#[webhook(name = "pods.policy.example.com")]
impl Validator<Pod> for Policy {
    async fn create(&self, _: &Context, _: &Object<Pod>) -> Verdict {
        Ok(())
    }

    async fn delete(&self, _: &Context, _: &Object<Pod>) -> Verdict {
        Ok(())
    }
}

/// One type can implement several webhooks.
#[webhook(
    name = "namespaces.policy.example.com",
    alias = logical,
    failure_policy = ignore,
    match_policy = exact,
    side_effects = none_on_dry_run,
    timeout_seconds = 5,
    admission_review_versions(v1, v1beta1),
    object_selector = "team=red, env in (prod, staging), !legacy",
)]
impl Validator<Namespace> for Policy {
    async fn update(&self, _: &Context, _: &Object<Namespace>, _: &Object<Namespace>) -> Verdict {
        Ok(())
    }
}

struct Defaults<T>(T);

#[webhook(
    name = "deployments.defaults.example.com",
    path = "/defaults",
    alias("/mutate-deployment", "/old"),
    groups(apps),
    versions(v1, v1beta1),
    resources(deployments, deployments/scale),
    verbs(create),
    reinvocation_policy = if_needed,
    namespace_selector = "policy.example.com/on",
    match_conditions(
        "not-system" = "!('system:nodes' in request.userInfo.groups)",
        "two-lines" = "object.metadata.name != 'a' &&\n  object.metadata.name != 'b'",
    ),
    service_name = "defaults",
    service_port = 8443,
)]
impl<T> Mutator<Deployment> for Defaults<T>
where
    T: Send + Sync + 'static,
{
    async fn mutate(&self, _: &Context, _: &mut Deployment) -> Verdict {
        Ok(())
    }
}

struct Elsewhere;

#[webhook(
    name = "pods.elsewhere.example.com",
    url = "https://hooks.example.com:8443/pods"
)]
impl Mutator<Pod> for Elsewhere {
    async fn mutate(&self, _: &Context, _: &mut Pod) -> Verdict {
        Ok(())
    }
}

fn webhooks() -> Webhooks {
    Webhooks::new()
        .validating::<Pod, _>(Policy)
        .validating::<Namespace, _>(Policy)
        .mutating::<Deployment, _>(Defaults(()))
        .mutating::<Pod, _>(Elsewhere)
}

#[test]
fn the_type_says_what_the_attribute_does_not() {
    let pods = <Policy as Marked<Validates<Pod>>>::registration();
    assert_eq!(pods.path, "/validate--v1-pod");
    let rule = &pods.webhook.rules.unwrap()[0];
    assert_eq!(rule.api_groups.as_deref(), Some(&[String::new()][..]));
    assert_eq!(
        rule.api_versions.as_deref(),
        Some(&[String::from("v1")][..])
    );
    assert_eq!(rule.resources.as_deref(), Some(&[String::from("pods")][..]));
    assert_eq!(rule.scope.as_deref(), Some("Namespaced"));
    assert_eq!(
        rule.operations.as_deref(),
        Some(&[String::from("CREATE"), String::from("DELETE")][..])
    );
    let namespaces = <Policy as Marked<Validates<Namespace>>>::registration();
    assert_eq!(namespaces.path, "/validate--v1-namespace");
    assert_eq!(namespaces.aliases, ["/validate-namespace"]);
    let rules = namespaces.webhook.rules.unwrap();
    assert_eq!(rules[0].scope.as_deref(), Some("Cluster"));
    let elsewhere = <Elsewhere as Marked<Mutates<Pod>>>::registration();
    assert_eq!(elsewhere.path, "/pods", "served at the path of its URL");
}

#[test]
fn every_path_is_served() {
    let webhooks = webhooks();
    for path in [
        "/validate--v1-pod",
        "/validate--v1-namespace",
        "/validate-namespace",
        "/defaults",
        "/mutate-deployment",
        "/old",
        "/pods",
    ] {
        assert!(webhooks.at(path).is_some(), "{path}");
    }
}

#[test]
fn writes_yaml_as_kubebuilder_does() {
    let manifests = webhooks().manifests(&ManifestOptions::new());
    insta::assert_snapshot!(manifests.to_yaml());
}

#[test]
fn writes_for_a_service_with_names_labels_and_cert_manager() {
    let options = ManifestOptions::new()
        .service("policy", "hooks")
        .port(9443)
        .mutating_name("policy-mutating")
        .validating_name("policy-validating")
        .inject_ca_from("policy/serving-cert")
        .label("app.kubernetes.io/name", "policy")
        .logical_paths();
    insta::assert_snapshot!(webhooks().manifests(&options).to_yaml());
}

#[test]
fn writes_json_for_a_url_with_certificates() {
    let options = ManifestOptions::new()
        .url("https://localhost:9443/")
        .ca_bundle("-----BEGIN CERTIFICATE-----\n");
    let manifests = webhooks().manifests(&options);
    let list: Value = serde_json::from_str(&manifests.to_json()).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(
        list["items"].as_array().unwrap()[..],
        manifests.to_values()[..]
    );
    let hook = &list["items"][1]["webhooks"][1];
    assert_eq!(
        hook["clientConfig"]["url"],
        "https://localhost:9443/validate--v1-pod"
    );
    assert_eq!(
        hook["clientConfig"]["caBundle"],
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
    );
    let own = &list["items"][0]["webhooks"][0]["clientConfig"];
    assert_eq!(
        own["service"]["name"], "defaults",
        "what a registration says wins: {own}"
    );
    let elsewhere = &list["items"][0]["webhooks"][1]["clientConfig"];
    assert_eq!(elsewhere["url"], "https://hooks.example.com:8443/pods");
}

#[test]
fn an_api_server_accepts_them() {
    for options in [
        ManifestOptions::new(),
        ManifestOptions::new()
            .url("https://localhost:9443")
            .logical_paths(),
    ] {
        let manifests = webhooks().manifests(&options);
        let invalid = manifests.invalid(RegistrationChecker::REFERENCE);
        assert!(invalid.is_empty(), "{invalid:?}");
    }
}

#[test]
fn tells_what_an_api_server_would_refuse() {
    let wrong = Registration::validating("short")
        .path("/x")
        .match_condition("broken", "object.");
    let manifests = lockgate_webhook::Manifests::of([&wrong], &ManifestOptions::new());
    let invalid = manifests.invalid(RegistrationChecker::REFERENCE);
    let errors: Vec<String> = invalid[0].errors.iter().map(ToString::to_string).collect();
    assert!(
        errors
            .iter()
            .any(|e| e.starts_with("webhooks[0].name: Invalid value")),
        "{errors:?}"
    );
    let condition = "webhooks[0].matchConditions[0].expression: Invalid value";
    assert!(
        errors.iter().any(|error| error.starts_with(condition)),
        "{errors:?}"
    );
}

#[test]
fn no_webhooks_make_no_objects() {
    let manifests = Webhooks::new().manifests(&ManifestOptions::new());
    assert_eq!(manifests.to_yaml(), "");
    assert!(manifests.configurations().is_empty());
}
