//! Contents of OpenAPI documents.

use serde_json::{Value, json};

use super::*;
use crate::resource::resources;
use crate::typed::type_of;

fn undescribed(resources: &[Served<'_>]) -> Value {
    document(resources, &Descriptions::default())
}

fn served(group: &str, version: &str) -> Vec<Served<'static>> {
    resources()
        .filter(|resource| (resource.group, resource.version) == (group, version))
        .map(|resource| Served {
            group: resource.group,
            version: resource.version,
            plural: resource.plural,
            kind: resource.kind,
            namespaced: resource.namespaced,
            verbs: resource.verbs.to_vec(),
            parts: resource
                .subresources
                .iter()
                .map(|part| Part {
                    name: part.name,
                    kind: [part.group, part.version, part.kind],
                    verbs: part.verbs.to_vec(),
                })
                .collect(),
            schema: Source::Type(type_of(resource.group, resource.version, resource.kind).unwrap()),
        })
        .collect()
}

/// Asserts that all references in a document resolve.
fn assert_resolves(document: &Value) {
    let mut rest = vec![document];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                }
                rest.extend(members.values());
            }
            _ => {}
        }
    }
}

#[test]
fn every_version_has_a_document_that_holds_together() {
    for resource in resources() {
        let document = undescribed(&served(resource.group, resource.version));
        assert_resolves(&document);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let kind =
            json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let found = schemas.values().filter(|schema| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.contains(&kind))
        });
        assert_eq!(found.count(), 1, "{kind}");
    }
}

#[test]
fn tells_what_can_be_done_and_how() {
    let document = undescribed(&served("apps", "v1"));
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    let patch = &document["paths"][path]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let names: Vec<&str> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| parameter["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["dryRun", "fieldManager", "fieldValidation", "force"]
    );
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
    let scale = &document["paths"][format!("{path}/scale")]["patch"];
    assert_eq!(
        scale["x-kubernetes-group-version-kind"]["kind"],
        json!("Scale")
    );
    assert!(document["paths"]["/apis/apps/v1/deployments"]["get"].is_object());
}

#[test]
fn tells_how_lists_are_merged_and_what_is_needed() {
    let document = undescribed(&served("", "v1"));
    let schema = |name: &str| &document["components"]["schemas"][name];
    let containers = &schema("io.k8s.api.core.v1.PodSpec")["properties"]["containers"];
    assert_eq!(
        *containers,
        json!({
            "type": "array",
            "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        })
    );
    assert_eq!(
        schema("io.k8s.api.core.v1.PodSpec")["required"],
        json!(["containers"])
    );
    assert_eq!(
        schema("io.k8s.api.core.v1.Container")["required"],
        json!(["name"])
    );
    let sorted = |list: &Value| {
        let names = list.as_array().into_iter().flatten();
        let mut names: Vec<String> = names.map(Value::to_string).collect();
        names.sort();
        names
    };
    // Structs and pointers are required as well, unless they are marked as optional.
    for (name, required) in [
        ("io.k8s.api.core.v1.Binding", json!(["target"])),
        (
            "io.k8s.api.core.v1.Event",
            json!(["metadata", "involvedObject"]),
        ),
        (
            "io.k8s.api.core.v1.ContainerStatus",
            json!(["name", "ready", "restartCount", "image", "imageID"]),
        ),
        ("io.k8s.api.core.v1.NodeRuntimeHandler", Value::Null),
        ("io.k8s.api.core.v1.ContainerImage", Value::Null),
    ] {
        assert_eq!(
            sorted(&schema(name)["required"]),
            sorted(&required),
            "{name}"
        );
    }
    assert_eq!(
        schema("io.k8s.api.core.v1.PodSpec")["properties"]["restartPolicy"],
        json!({"type": "string", "enum": ["Always", "Never", "OnFailure"]})
    );
    assert_eq!(
        schema("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
        &json!({"type": "string", "format": "date-time"})
    );
}

#[test]
fn tells_the_schema_of_a_definition() {
    let own = json!({"type": "object", "properties": {"spec": {"type": "object"}, "metadata": {"type": "object"}}});
    let custom = |schema| Served {
        group: "example.org",
        version: "v1",
        plural: "widgets",
        kind: "Widget",
        namespaced: false,
        verbs: vec!["list", "patch"],
        parts: Vec::new(),
        schema: Source::Custom(schema),
    };
    let told = undescribed(&[custom(&own)]);
    assert_resolves(&told);
    let schema = &told["components"]["schemas"]["org.example.v1.Widget"];
    assert_eq!(
        schema["properties"],
        json!({
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
            "spec": {"type": "object"},
        })
    );
    let patch = &told["paths"]["/apis/example.org/v1/widgets/{name}"]["patch"];
    assert!(
        patch["requestBody"]["content"]
            .get("application/strategic-merge-patch+json")
            .is_none()
    );
    let empty = undescribed(&[custom(&Value::Null)]);
    let schema = &empty["components"]["schemas"]["org.example.v1.Widget"];
    assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], json!(true));
}

#[test]
fn tells_old_clients_what_patches_take() {
    let document = v2::to_protobuf(&v2::document(
        served("apps", "v1"),
        &Descriptions::default(),
    ));
    let contains = |text: &str| {
        document
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(document.starts_with(b"\x0a\x032.0\x12"));
    assert!(contains(
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    ));
    assert!(contains(
        r#"{"group":"apps","kind":"Deployment","version":"v1"}"#
    ));
    assert!(contains("fieldValidation"));
    // Fields of the top-level message, up to its end.
    let mut rest = document.as_slice();
    let mut numbers = Vec::new();
    while let [tag, after @ ..] = rest {
        let mut length = 0_usize;
        let mut bytes = after;
        for shift in (0..).step_by(7) {
            let [byte, after @ ..] = bytes else {
                panic!("cut")
            };
            bytes = after;
            length |= usize::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
        }
        numbers.push(tag >> 3);
        rest = &bytes[length..];
    }
    assert_eq!(numbers, [1, 2, 8, 9]);
}

#[test]
fn types_and_members_are_described() {
    let descriptions = Descriptions::parse(String::from(
        "io.k8s.api.apps.v1.Deployment\t\tKeeps pods.\n\
         io.k8s.api.apps.v1.Deployment\tspec\tWhat is wanted.\n\
         io.k8s.api.apps.v1.DeploymentSpec\treplicas\tHow many.\n\
         io.k8s.api.core.v1.Pod\tkind\tA kind.\n",
    ));
    let document = document(&served("apps", "v1"), &descriptions);
    let schema = |name: &str| &document["components"]["schemas"][name];
    let deployment = schema("io.k8s.api.apps.v1.Deployment");
    assert_eq!(deployment["description"], "Keeps pods.");
    let spec = &deployment["properties"]["spec"];
    assert_eq!(spec["description"], "What is wanted.");
    let to = "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec";
    assert_eq!(spec["allOf"][0]["$ref"], to);
    let replicas = &schema("io.k8s.api.apps.v1.DeploymentSpec")["properties"]["replicas"];
    assert_eq!(replicas["description"], "How many.");
    let schema = json!({"type": "object"});
    let gadgets = Served {
        group: "example.com",
        version: "v1",
        plural: "gadgets",
        kind: "Gadget",
        namespaced: true,
        verbs: vec!["get"],
        parts: Vec::new(),
        schema: Source::Custom(&schema),
    };
    let told = super::document(&[gadgets], &descriptions);
    let gadget = &told["components"]["schemas"]["com.example.v1.Gadget"];
    assert_eq!(gadget["properties"]["kind"]["description"], "A kind.");
}

#[test]
fn values_without_comments_are_told_in_descriptions() {
    let descriptions = Descriptions::parse(String::from(
        "io.k8s.api.core.v1.PodSpec\trestartPolicy\tHow.\n\
         io.k8s.api.core.v1.PodSpec\tdnsPolicy\tWhere.\n",
    ));
    let document = document(&served("", "v1"), &descriptions);
    let members = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(
        members["restartPolicy"]["description"],
        "How.\n\nPossible enum values:\n - `\"Always\"`\n - `\"Never\"`\n - `\"OnFailure\"`"
    );
    // Its values have comments upstream.
    assert_eq!(members["dnsPolicy"]["description"], "Where.");
}
