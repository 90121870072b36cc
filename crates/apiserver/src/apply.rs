//! Manifests that are applied when a server starts: created through admission, or merged into the
//! object that exists.

use lockgate_api::admission::UserInfo;
use lockgate_api::document::{self, yaml};
use lockgate_kinds::tree;

use crate::decode::body::{self, Expected};
use crate::decode::options::WriteOptions;
use crate::decode::patch::Patch;
use crate::decode::write::{Body, PatchBody};
use crate::error::{Failure, Outcome};
use crate::http::request_info::Verb;
use crate::registry::{Resource, split_api_version};
use crate::request::{ObjectPath, Request};
use crate::write::{Writer, create, patch};
use std::sync::Arc;

/// The program that manages the fields of manifests.
const PROGRAM: &str = "lockgate";

/// The failure of a manifest that was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ApplyError {
    /// The object or the document.
    pub what: String,
    /// The message of the server.
    pub why: String,
}

/// Applies every object of a YAML or JSON stream, in order. Returns how many there were.
pub(crate) async fn apply(writer: &Writer, text: &str) -> Result<usize, ApplyError> {
    let documents = yaml::parse_all(text).map_err(|error| ApplyError {
        what: String::from("the manifest"),
        why: error.message,
    })?;
    let mut count = 0;
    for document in &documents {
        let root = document.root();
        if root.is_null() {
            continue;
        }
        let is_list = member(root, "kind") == "List";
        match root.get("items").filter(|_| is_list) {
            Some(items) => {
                for item in items.items() {
                    apply_one(writer, item).await?;
                    count += 1;
                }
            }
            None => {
                apply_one(writer, root).await?;
                count += 1;
            }
        }
    }
    Ok(count)
}

fn member<'d>(object: document::Value<'d>, name: &str) -> &'d str {
    let found = object.get(name).and_then(|value| value.as_str());
    found.unwrap_or_default()
}

async fn apply_one(writer: &Writer, object: document::Value<'_>) -> Result<(), ApplyError> {
    let (api_version, kind) = (member(object, "apiVersion"), member(object, "kind"));
    let metadata = |name: &str| object.get("metadata").map_or("", |it| member(it, name));
    let name = metadata("name");
    let failed = |why: String| ApplyError {
        what: format!("{api_version} {kind} {name}"),
        why,
    };
    let (group, version) = split_api_version(api_version);
    let snapshot = writer.registry.snapshot();
    let resource = snapshot.by_kind(group, version, kind).ok_or_else(|| {
        failed(String::from(
            "there is no such kind; a definition must come before its objects",
        ))
    })?;
    let namespace = match metadata("namespace") {
        "" if resource.names.namespaced => "default",
        namespace => namespace,
    };
    let path = ObjectPath {
        resource,
        namespace,
        name,
        subresource: "",
    };
    create_or_merge(writer, path, object)
        .await
        .map_err(|Failure(status)| failed(status.message))
}

async fn create_or_merge(
    writer: &Writer,
    path: ObjectPath<'_>,
    object: document::Value<'_>,
) -> Outcome<()> {
    let resource: &Arc<Resource> = path.resource;
    let options = WriteOptions::of_program(PROGRAM);
    let validation = options.field_validation();
    let decoded = body::decode_element(object, Expected::of(resource), validation)?;
    let request = Request::internal(admin(), Verb::Create, ObjectPath { name: "", ..path });
    let body = Body {
        object: decoded.object,
        options: options.clone(),
    };
    match create::create(writer, &request, body).await {
        Err(failure) if failure.is_already_exists() => {}
        created => return created.map(drop),
    }
    let request = Request::internal(admin(), Verb::Patch, path);
    let patch = Patch::Merge(tree::from_document(object));
    let merged = patch::patch(writer, &request, PatchBody { patch, options }).await;
    merged.map(drop)
}

fn admin() -> UserInfo {
    UserInfo {
        username: String::from("admin"),
        groups: Some(vec![
            String::from("system:masters"),
            String::from("system:authenticated"),
        ]),
        ..UserInfo::default()
    }
}
