//! Manifests that are applied when a server starts: created through admission, or merged into what
//! is there.

use http::{HeaderMap, HeaderValue};
use lockgate_api::admission::UserInfo;
use lockgate_api::document::yaml;
use lockgate_go::json;
use lockgate_kinds::tree;
use serde_json::Value;

use crate::call::{Call, Notes};
use crate::controllers;
use crate::error::Failure;
use crate::http::query::Query;
use crate::http::request_info::{Target, Verb};
use crate::metadata;
use crate::registry::{Resource, split_api_version};
use crate::server::Server;
use crate::write::{create, patch, strategy};

/// Why a manifest was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ApplyError {
    /// Which object, or which document.
    pub what: String,
    /// What the server said.
    pub why: String,
}

/// Applies every object of a YAML or JSON stream, in order. Returns how many there were.
pub(crate) async fn apply(server: &Server, text: &str) -> Result<usize, ApplyError> {
    let documents = yaml::parse_all(text).map_err(|error| ApplyError {
        what: String::from("the manifest"),
        why: error.message,
    })?;
    let mut count = 0;
    for document in &documents {
        let root = tree::from_document(document.root());
        if root.is_null() {
            continue;
        }
        let kind = root.get("kind").and_then(Value::as_str);
        let items = match (kind, root.get("items").and_then(Value::as_array)) {
            (Some("List"), Some(items)) => items.clone(),
            _ => vec![root],
        };
        for object in items {
            apply_one(server, object).await?;
            count += 1;
        }
    }
    Ok(count)
}

async fn apply_one(server: &Server, object: Value) -> Result<(), ApplyError> {
    let text = |member: &str| {
        object
            .get(member)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let name = metadata::text(&object, "name").to_owned();
    let failed = |why: String| ApplyError {
        what: format!("{api_version} {kind} {name}"),
        why,
    };
    let (group, version) = split_api_version(&api_version);
    let resource = server
        .registry
        .snapshot()
        .by_kind(group, version, &kind)
        .cloned();
    let resource = resource.ok_or_else(|| {
        failed(String::from(
            "there is no such kind; a definition must come before its objects",
        ))
    })?;
    let mut namespace = metadata::text(&object, "namespace").to_owned();
    if resource.names.namespaced && namespace.is_empty() {
        namespace = String::from("default");
    }
    let body = json::to_string(&object);
    let mut first = call(
        &resource,
        Verb::Create,
        &namespace,
        "",
        "application/json",
        &body,
    );
    let result = match create::create(server, &mut first, &resource).await {
        Err(failure) if failure.0.reason == "AlreadyExists" => {
            let merge = "application/merge-patch+json";
            let mut second = call(&resource, Verb::Patch, &namespace, &name, merge, &body);
            patch::patch(server, &mut second, &resource).await
        }
        other => other,
    };
    result.map_err(|Failure(status)| failed(status.message))?;
    if strategy::is_definition(&resource) {
        controllers::settle_definition(server, &name).await;
    }
    Ok(())
}

fn call(
    resource: &Resource,
    verb: Verb,
    namespace: &str,
    name: &str,
    content_type: &'static str,
    body: &str,
) -> Call {
    let mut headers = HeaderMap::new();
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(content_type),
    );
    headers.insert(
        http::header::USER_AGENT,
        HeaderValue::from_static("lockgate"),
    );
    Call {
        target: Target {
            verb,
            group: resource.group().to_owned(),
            version: resource.version.clone(),
            namespace: namespace.to_owned(),
            resource: resource.plural().to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            rest: Vec::new(),
        },
        query: Query::default(),
        headers,
        user: UserInfo {
            username: String::from("admin"),
            groups: Some(vec![
                String::from("system:masters"),
                String::from("system:authenticated"),
            ]),
            ..UserInfo::default()
        },
        body: body.to_owned().into(),
        deadline: None,
        notes: Notes::default(),
    }
}
