//! The paths and operations of a resource.

use serde_json::{Map, Value, json};

use super::{Served, Source, group_version_kind, reference};

/// Adds the paths of a resource with this schema name.
pub(super) fn add(resource: &Served<'_>, schema: &str, paths: &mut Map<String, Value>) {
    let root = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let kind = [resource.group, resource.version, resource.kind];
    let all = format!("{root}/{}", resource.plural);
    let collection = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        all.clone()
    };
    let operation = |verb: &str| {
        let can = resource.verbs.contains(&verb);
        can.then(|| operation(verb, kind, Some(schema), resource))
    };
    let mut put = |path: String, methods: &[(&str, Option<Value>)]| {
        let mut item = Map::new();
        for (method, operation) in methods {
            if let Some(operation) = operation {
                item.insert((*method).to_owned(), operation.clone());
            }
        }
        if item.is_empty() {
            return;
        }
        let names = [("{namespace}", "namespace"), ("{name}", "name")];
        let parameters: Vec<Value> = names
            .into_iter()
            .filter(|(place, _)| path.contains(place))
            .map(|(_, name)| {
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
            })
            .collect();
        if !parameters.is_empty() {
            item.insert(String::from("parameters"), parameters.into());
        }
        paths.insert(path, item.into());
    };
    if resource.namespaced {
        put(all, &[("get", operation("list"))]);
    }
    put(
        collection.clone(),
        &[
            ("get", operation("list")),
            ("post", operation("create")),
            ("delete", operation("deletecollection")),
        ],
    );
    let one = format!("{collection}/{{name}}");
    let methods = [
        ("get", "get"),
        ("put", "update"),
        ("patch", "patch"),
        ("delete", "delete"),
    ];
    put(
        one.clone(),
        &methods.map(|(method, verb)| (method, operation(verb))),
    );
    for part in &resource.parts {
        let own = (part.kind == kind).then_some(schema);
        let methods = [
            ("get", "get"),
            ("post", "create"),
            ("put", "update"),
            ("patch", "patch"),
            ("delete", "delete"),
        ];
        let operations = methods.map(|(method, verb)| {
            let can = part.verbs.contains(&verb);
            let operation = can.then(|| self::operation(verb, part.kind, own, resource));
            (method, operation)
        });
        put(format!("{one}/{}", part.name), &operations);
    }
}

/// An operation on a kind.
fn operation(verb: &str, kind: [&str; 3], schema: Option<&str>, resource: &Served<'_>) -> Value {
    let action = match verb {
        "create" => "post",
        "update" => "put",
        other => other,
    };
    let query: &[(&str, &str)] = match verb {
        "create" | "update" => &[
            ("dryRun", "string"),
            ("fieldManager", "string"),
            ("fieldValidation", "string"),
        ],
        "patch" => &[
            ("dryRun", "string"),
            ("fieldManager", "string"),
            ("fieldValidation", "string"),
            ("force", "boolean"),
        ],
        "delete" => &[
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("propagationPolicy", "string"),
        ],
        "list" => &[
            ("labelSelector", "string"),
            ("fieldSelector", "string"),
            ("limit", "integer"),
            ("continue", "string"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("watch", "boolean"),
            ("allowWatchBookmarks", "boolean"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
        ],
        _ => &[],
    };
    let parameters: Vec<Value> = query
        .iter()
        .map(|(name, ty)| {
            json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}})
        })
        .collect();
    let mut answer = json!({"description": "OK"});
    if let (Some(schema), "get" | "create" | "update" | "patch") = (schema, verb) {
        answer["content"] = json!({"application/json": {"schema": reference(schema)}});
    }
    let mut operation = json!({
        "responses": {"200": answer},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind),
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    match (verb, schema) {
        ("create" | "update", Some(schema)) => {
            operation["requestBody"] =
                json!({"required": true, "content": {"*/*": {"schema": reference(schema)}}});
        }
        ("patch", _) => {
            let strategic = match resource.schema {
                Source::Type(_) => Some("application/strategic-merge-patch+json"),
                Source::Custom(_) => None,
            };
            let patches = [
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
            ];
            let content: Map<String, Value> = patches
                .into_iter()
                .chain(strategic)
                .map(|patch| (patch.to_owned(), json!({"schema": {"type": "object"}})))
                .collect();
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        _ => {}
    }
    operation
}
