//! Manifests that are applied at startup: created through admission, or merged into the existing object.

use std::sync::Arc;

use lockgate_api::admission::UserInfo;
use lockgate_api::document::{self, yaml};
use lockgate_api::meta::status::Status;
use lockgate_kinds::tree;
use serde_json::Value;

use crate::decode::body::{self, Expected};
use crate::decode::options::WriteOptions;
use crate::decode::patch::Patch;
use crate::decode::write::{Body, PatchBody};
use crate::error::{Failure, Outcome};
use crate::http::request_info::Verb;
use crate::registry::{Resource, split_api_version};
use crate::request::{ObjectPath, Recorded, Request};
use crate::write::{Writer, create, patch};

/// The field manager of manifests.
const PROGRAM: &str = "lockgate";

/// The outcome of applying manifests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// The objects as the server returned them, in order.
    pub objects: Vec<Value>,
    /// The warnings of all writes, in order.
    pub warnings: Vec<String>,
}

/// An object that the server rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}: {}", .status.message)]
pub struct ApplyError {
    /// The object as version, kind and name, or `the manifest`.
    pub what: String,
    /// The status in the response.
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
pub(crate) async fn apply(writer: &Writer, text: &str) -> Result<Applied, ApplyError> {
    let documents = yaml::parse_all(text)
        .map_err(|error| ApplyError::new("the manifest", Status::bad_request(error.message)))?;
    let mut applied = Applied::default();
    for document in &documents {
        let root = document.root();
        if root.is_null() {
            continue;
        }
        let is_list = member(root, "kind") == "List";
        match root.get("items").filter(|_| is_list) {
            Some(items) => {
                for item in items.items() {
                    apply_one(writer, item, &mut applied).await?;
                }
            }
            None => apply_one(writer, root, &mut applied).await?,
        }
    }
    Ok(applied)
}

fn member<'d>(object: document::Value<'d>, name: &str) -> &'d str {
    let found = object.get(name).and_then(|value| value.as_str());
    found.unwrap_or_default()
}

async fn apply_one(
    writer: &Writer,
    object: document::Value<'_>,
    applied: &mut Applied,
) -> Result<(), ApplyError> {
    let (api_version, kind) = (member(object, "apiVersion"), member(object, "kind"));
    let metadata = |name: &str| object.get("metadata").map_or("", |it| member(it, name));
    let name = metadata("name");
    let failed = |status| ApplyError::new(format!("{api_version} {kind} {name}"), status);
    let (group, version) = split_api_version(api_version);
    let snapshot = writer.registry.snapshot();
    let resource = snapshot.by_kind(group, version, kind).ok_or_else(|| {
        failed(Status::bad_request(String::from(
            "unknown kind; apply its CRD first",
        )))
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
    let (object, notes) = create_or_merge(writer, path, object)
        .await
        .map_err(|Failure(status)| failed(*status))?;
    applied.objects.push(object);
    applied.warnings.extend_from_slice(notes.warnings.texts());
    Ok(())
}

async fn create_or_merge(
    writer: &Writer,
    path: ObjectPath<'_>,
    object: document::Value<'_>,
) -> Outcome<(Value, Recorded)> {
    let resource: &Arc<Resource> = path.resource;
    let options = WriteOptions::of_program(PROGRAM);
    let validation = options.field_validation();
    let decoded = body::decode_element(object, Expected::of(resource), validation)?;
    let request = Request::internal(admin(), Verb::Create, ObjectPath { name: "", ..path });
    let body = Body {
        object: decoded.object,
        options: options.clone(),
    };
    for warning in &decoded.warnings {
        request.notes.warn(warning);
    }
    match create::create(writer, &request, body).await {
        Err(failure) if failure.is_already_exists() => {}
        created => return Ok((created?.into_object()?, request.notes.into_recorded())),
    }
    let request = Request::internal(admin(), Verb::Patch, path);
    let patch = Patch::Merge(tree::from_document(object));
    let merged = patch::patch(
        writer,
        &request,
        PatchBody {
            patch,
            findings: Vec::new(),
            options,
        },
    )
    .await?;
    Ok((merged.into_object()?, request.notes.into_recorded()))
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
