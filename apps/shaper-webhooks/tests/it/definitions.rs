//! The CustomResourceDefinitions of the chart have the same fields as the types of the program.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use shaper_webhooks::api::{
    AdditionalContent, AssignmentSpec, BasicAuthRef, MtlsRef, ObjectRef, Profile, ProfileSpec,
    ProfileStatus, Transformer, WebhookConfig,
};

use crate::support::{documents, find, render};

fn schema(name: &str, arguments: &[&str]) -> Value {
    let documents = documents(&render("shaper-crds", arguments).unwrap());
    let definition = find(&documents, "CustomResourceDefinition", name);
    assert_eq!(definition["spec"]["scope"], "Namespaced");
    let version = &definition["spec"]["versions"][0];
    assert_eq!(
        (&version["name"], &version["served"], &version["storage"]),
        (&json!("v1alpha1"), &json!(true), &json!(true))
    );
    assert_eq!(version["subresources"], json!({"status": {}}));
    version["schema"]["openAPIV3Schema"].clone()
}

/// The paths of all fields in a schema.
fn members(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        members(member, &path, found);
        found.insert(path);
    }
    if schema["items"].is_object() {
        members(&schema["items"], &format!("{path}[]"), found);
    }
}

/// The paths of all fields in a value.
fn present(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = format!("{path}.{name}");
                present(member, &path, found);
                found.insert(path);
            }
        }
        Value::Array(items) => {
            for item in items {
                present(item, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn assignments_are_what_the_program_reads() {
    let schema = schema("assignments.shaper.amahdha.com", &[]);
    let (mut of_schema, mut of_type) = (BTreeSet::new(), BTreeSet::new());
    members(&schema["properties"]["spec"], "spec", &mut of_schema);
    present(
        &serde_json::to_value(AssignmentSpec::default()).unwrap(),
        "spec",
        &mut of_type,
    );
    assert_eq!(of_schema, of_type);
    assert_eq!(
        schema["properties"]["spec"]["required"],
        json!(["profileName"])
    );
}

#[test]
fn profiles_are_what_the_program_reads() {
    let webhook = || {
        Some(WebhookConfig {
            mtls_ref: Some(MtlsRef::default()),
            basic_auth_ref: Some(BasicAuthRef::default()),
            ..WebhookConfig::default()
        })
    };
    let whole = Profile {
        spec: ProfileSpec {
            additional_content: vec![AdditionalContent {
                inline: Some(String::new()),
                object_ref: Some(ObjectRef::default()),
                webhook: webhook(),
                post_transformations: vec![Transformer {
                    webhook: webhook(),
                    ..Transformer::default()
                }],
                ..AdditionalContent::default()
            }],
            ..ProfileSpec::default()
        },
        status: ProfileStatus::default(),
        ..Profile::default()
    };
    let whole = serde_json::to_value(whole).unwrap();
    let schema = schema("profiles.shaper.amahdha.com", &[]);
    for part in ["spec", "status"] {
        let (mut of_schema, mut of_type) = (BTreeSet::new(), BTreeSet::new());
        members(&schema["properties"][part], part, &mut of_schema);
        present(&whole[part], part, &mut of_type);
        assert_eq!(of_schema, of_type);
    }
}

/// The schemas require, limit or enumerate nothing that those of the original did not.
#[test]
fn whatever_was_accepted_before_is_accepted() {
    fn walk(schema: &Value, path: &str, required: &mut BTreeSet<String>) {
        for limit in [
            "enum",
            "pattern",
            "format",
            "maxItems",
            "maxLength",
            "minItems",
            "minLength",
            "x-kubernetes-validations",
            "x-kubernetes-list-type",
            "oneOf",
            "anyOf",
            "allOf",
            "not",
        ] {
            assert_eq!(schema.get(limit), None, "{path}");
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            required.insert(format!("{path}.{}", name.as_str().unwrap()));
        }
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            walk(member, &format!("{path}.{name}"), required);
        }
        if schema["items"].is_object() {
            walk(&schema["items"], &format!("{path}[]"), required);
        }
    }
    let mut required = BTreeSet::new();
    walk(
        &schema("assignments.shaper.amahdha.com", &[]),
        "assignment",
        &mut required,
    );
    walk(
        &schema("profiles.shaper.amahdha.com", &[]),
        "profile",
        &mut required,
    );
    let reference = ["group", "version", "resource", "namespace", "name"];
    let mut want = BTreeSet::from(
        [
            "assignment.spec.profileName",
            "profile.spec.ipxeTemplate",
            "profile.spec.additionalContent[].name",
        ]
        .map(String::from),
    );
    let content = "profile.spec.additionalContent[]";
    want.extend(
        reference
            .iter()
            .chain(&["jsonpath"])
            .map(|name| format!("{content}.objectRef.{name}")),
    );
    for webhook in [
        format!("{content}.webhook"),
        format!("{content}.postTransformations[].webhook"),
    ] {
        want.insert(format!("{webhook}.url"));
        want.extend(
            reference
                .iter()
                .chain(&["clientKeyJSONPath", "clientCertJSONPath"])
                .map(|name| format!("{webhook}.mTLSRef.{name}")),
        );
        want.extend(
            reference
                .iter()
                .chain(&["usernameJSONPath", "passwordJSONPath"])
                .map(|name| format!("{webhook}.basicAuthRef.{name}")),
        );
    }
    assert_eq!(required, want);
}

#[test]
fn strict_definitions_refuse_what_the_webhooks_refuse() {
    let strict = schema("assignments.shaper.amahdha.com", &["--set", "strict=true"]);
    let spec = &strict["properties"]["spec"];
    let archs = &spec["properties"]["subjectSelectors"]["properties"]["buildarch"]["items"]["enum"];
    assert_eq!(archs, &json!(shaper_webhooks::labels::BUILDARCHS));
    assert_eq!(
        spec["x-kubernetes-validations"].as_array().unwrap().len(),
        1
    );
}
