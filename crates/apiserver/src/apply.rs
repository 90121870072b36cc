//! Manifests that are applied when a server starts: created through admission, or merged into what
//! is there.

use http::{HeaderMap, HeaderValue};
use lockgate_api::admission::UserInfo;
use lockgate_api::document::yaml;
use lockgate_api::meta::status::Status;
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

/// The outcome of applying manifests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// The objects as the server returned them, in order.
    pub objects: Vec<Value>,
    /// The warnings of all writes, in order.
    pub warnings: Vec<String>,
}

/// An object that the server did not take.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}: {}", .status.message)]
pub struct ApplyError {
    /// The object by version, kind and name, or `the manifest`.
    pub what: String,
    /// The status a client would have got.
    pub status: Box<Status>,
}

impl ApplyError {
    fn new(what: impl Into<String>, status: Status) -> Self {
        Self {
            what: what.into(),
            status: Box::new(status),
        }
    }
}

/// Applies every object of a YAML or JSON stream, in order.
pub(crate) async fn apply(server: &Server, text: &str) -> Result<Applied, ApplyError> {
    let documents = yaml::parse_all(text)
        .map_err(|error| ApplyError::new("the manifest", Status::bad_request(error.message)))?;
    let mut applied = Applied::default();
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
            apply_one(server, object, &mut applied).await?;
        }
    }
    Ok(applied)
}

async fn apply_one(
    server: &Server,
    object: Value,
    applied: &mut Applied,
) -> Result<(), ApplyError> {
    let text = |member: &str| {
        object
            .get(member)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let name = metadata::text(&object, "name").to_owned();
    let failed = |status| ApplyError::new(format!("{api_version} {kind} {name}"), status);
    let (group, version) = split_api_version(&api_version);
    let resource = server
        .registry
        .snapshot()
        .by_kind(group, version, &kind)
        .cloned();
    let resource = resource.ok_or_else(|| {
        failed(Status::bad_request(String::from(
            "unknown kind; apply its CRD first",
        )))
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
    let (result, notes) = match create::create(server, &mut first, &resource).await {
        Err(failure) if failure.0.reason == "AlreadyExists" => {
            let merge = "application/merge-patch+json";
            let mut second = call(&resource, Verb::Patch, &namespace, &name, merge, &body);
            let result = patch::patch(server, &mut second, &resource).await;
            (result, second.notes)
        }
        other => (other, first.notes),
    };
    let reply = result.map_err(|Failure(status)| failed(*status))?;
    applied.objects.push(reply.into_object());
    applied.warnings.extend_from_slice(notes.warnings.texts());
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
